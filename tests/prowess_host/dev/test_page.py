"""`prowess dev` in a real browser, and as text."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browsing, is_installed
from patience import PATIENCE
from piped import hosted, make_project, write_skill

PROWESS = [sys.executable, "-c", "from prowess_host.cli.main import main; main()"]
SKILL = """
    import base64
    from typing import Annotated, Literal
    from pydantic import Field, SecretStr
    from prowess import Image

    @skill_command(read_only=True)
    def search(pattern: str, limit: int = 3, mode: Literal["exact", "fuzzy"] = "fuzzy", deep: bool | None = None) -> list[dict[str, str]]:
        '''Find articles.'''
        return [{"title": f"{pattern} {number}", "mode": mode} for number in range(limit)]

    @skill_command
    def picture() -> Image:
        return Image(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))

    @skill_command
    def slow(ctx: Context) -> str:
        for number in range(3):
            ctx.progress(number + 1, 3, f"step {number + 1}")
            print("working on", number)
            time.sleep(0.4)
        return "<b>done</b>"

    @skill_command
    async def wait() -> None:
        await asyncio.sleep(600)

    @skill_command
    def login(user: str, password: SecretStr) -> str:
        return f"welcome {user}"

    @skill_command
    def ask(ctx: Context) -> str:
        sure = ctx.ask("sure", "Delete <b>everything</b>?", bool)
        if not sure.accepted:
            return f"{sure.action}: nothing was deleted"
        more = ctx.ask_all({
            "who": ("Who are you?", {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "title": "Your name", "minLength": 3},
                "role": {"type": "string", "enum": ["admin", "guest"]}}}),
            "days": ("For how many days?", int),
        })
        return f"{sure.value} {more['who'].content} {more['days'].value}"

    @skill_command
    def visit(ctx: Context, url: str = "https://example.org/pay") -> str:
        return ctx.ask_url("pay", "Please pay", url).action

    @skill_command
    def rows() -> list[dict[str, int]]:
        return [{"id": number, "square": number**2} for number in range(20_000)]

    @skill_command
    def letters(text: Annotated[str, Field(description="w" * 500)] = "") -> str:
        return "x" * 300_000

    @skill_command
    def fail(why: str) -> None:
        raise ValueError(why)

    @skill_command
    def exact(number: int = 0, constructor: str = "", __proto__: str = "") -> list[dict[str, int | str]]:
        '''Go <img src=x onerror="document.title = 'run'"><script>document.title = 'run'</script>'''
        return [{"number": number, "next": number + 1}, {"constructor": constructor, "__proto__": __proto__}]
"""


class Served:
    def __init__(self, root: Path, address: str) -> None:
        self.root = root
        self.address = address


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = make_project(tmp_path_factory.mktemp("dev") / "project", t=SKILL)
    with subprocess.Popen([*PROWESS, "dev", "--no-browser"], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Served(root, process.stdout.readline().strip())
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(PATIENCE)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not is_installed():
        pytest.skip("no chromium and chromedriver here")
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        browser.size(1400, 900)
        yield browser


@pytest.fixture
def browser(window: Browser, dev: Served) -> Iterator[Browser]:
    """The page, just opened. Nothing may stand in its console at the end."""
    window.open(dev.address)
    window.until_text("#connection", "live")
    window.until_text("#commands", "t.search")
    yield window
    assert [] == window.complaints()


def test_a_command_is_called_by_its_form(browser: Browser):
    """Fields come from the schema: what is empty is not sent."""
    browser.click("#commands button", "t.search")
    assert "pattern string, required" in browser.text("#fields")
    browser.click("#form .primary")
    browser.until_text("#form-error", "pattern is required")
    assert "field-0" == browser.focused()
    browser.type("#field-0", "rust")
    browser.type("#field-1", "x")
    browser.click("#form .primary")
    browser.until_text("#form-error", "limit must be a number")
    browser.type("#field-1", "2")
    browser.run("document.querySelector('#field-2').value = '\"exact\"'")
    browser.click("#form .primary")
    browser.until_text("#command-result", "rust 1")
    assert ["title", "mode"] == browser.run(
        "return [...document.querySelectorAll('#command-result th')].map((each) => each.innerText)"
    )
    browser.until_text("#calls", '{"pattern": "rust", "limit": 2, "mode": "exact"}')
    browser.click("#command-result button", "As the model sees it")
    assert '"structuredContent"' in browser.text("#command-result pre")


def test_arguments_can_be_written_as_json(browser: Browser):
    browser.click("#commands button", "t.search")
    browser.type("#field-0", "c")
    browser.click("#as-json")
    assert '"pattern": "c"' in browser.run("return document.querySelector('#raw').value")
    browser.type("#raw", "[")
    browser.click("#form .primary")
    browser.until_text("#form-error", "not valid")
    browser.type("#raw", '{"pattern": "go", "limit": 1}')
    browser.click("#form .primary")
    browser.until_text("#command-result", "go 0")


BIG = 9007199254740993
"""The first integer that JavaScript has no number for."""


def test_numbers_and_names_arrive_as_they_are_typed(browser: Browser):
    """An id of 64 bits keeps its digits, and a parameter may be called like something that every object of JavaScript has."""
    browser.click("#commands button", "t.exact")
    assert ["", "", ""] == browser.run(
        "return [...document.querySelectorAll('#fields input')].map((each) => each.value)"
    )
    for index, text in enumerate((str(BIG), "driver", "proto")):
        browser.type(f"#field-{index}", text)
    browser.click("#form .primary")
    browser.until_text("#command-result", f"{BIG + 1}")
    table = browser.run("return [...document.querySelectorAll('#command-result td')].map((each) => each.innerText)")
    assert [str(BIG), str(BIG + 1), "", "", "", "", "driver", "proto"] == table
    browser.until_text("#calls", f'"number": {BIG}')
    browser.click("#as-json")
    typed = json.loads(browser.run("return document.querySelector('#raw').value"))
    assert {"number": BIG, "constructor": "driver", "__proto__": "proto"} == typed
    browser.click("#as-json")
    assert str(BIG) == browser.run("return document.querySelector('#field-0').value")


def test_text_of_a_skill_is_never_html(browser: Browser):
    """Whatever the docstring says."""
    browser.click("#commands button", "t.exact")
    browser.until_text("#command-description", """<img src=x onerror="document.title = 'run'"><script>""")
    assert "project · prowess dev" == browser.run("return document.title")
    assert not browser.run("return document.querySelector('main img')")


def test_arguments_with_a_slip_are_not_lost_on_the_way_to_the_form(browser: Browser):
    """The other view could not show them."""
    browser.click("#commands button", "t.search")
    browser.click("#as-json")
    browser.run("document.querySelector('#raw').value = '{\"pattern\": '")
    browser.click("#as-json")
    browser.until_text("#form-error", "The arguments are not valid")
    assert '{"pattern": ' == browser.run("return document.querySelector('#raw').value")


def test_large_results_show_their_beginning(browser: Browser):
    """The whole would keep the browser busy for a minute; it can be saved. A text without spaces takes no room beside the page."""
    browser.run("""const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => { document.saved = blob.size; return make.call(URL, blob); }""")
    browser.click("#commands button", "t.rows")
    browser.click("#form .primary")
    browser.until_text("#command-result", "of 20,000 rows")
    assert 1000 < browser.run("return document.querySelectorAll('#command-result tbody tr').length") < 20_000
    browser.click("#command-result button", "Save all of it")
    rows = [{"id": number, "square": number**2} for number in range(20_000)]
    assert len(json.dumps(rows, indent=2)) == browser.run("return document.saved")
    browser.click("#commands button", "t.letters")
    browser.click("#form .primary")
    browser.until_text("#command-result", "The first 200,000 of 300,000 characters.")
    browser.click("#command-result button", "Save all of it")
    assert 300_000 == browser.run("return document.saved")
    assert browser.run("const main = document.querySelector('main'); return main.scrollWidth <= main.clientWidth")


def test_an_image_is_shown(browser: Browser):
    browser.click("#commands button", "t.picture")
    browser.click("#form .primary")
    browser.until("(document.querySelector('#command-result img') || {}).naturalWidth === 1")


def test_a_call_that_takes_long_can_be_cancelled(browser: Browser):
    browser.click("#commands button", "t.wait")
    browser.click("#form .primary")
    browser.until_text("#calls li:first-child", "running")
    browser.click("#cancel")
    browser.until_text("#form-error", "Cancelled")
    browser.until_text("#calls li:first-child", "cancelled")


def test_a_question_is_answered_on_the_page(browser: Browser):
    """By a form made from its schema. What does not fit is said, and can be mended; several questions come in turn."""
    browser.click("#commands button", "t.ask")
    browser.click("#form .primary")
    browser.until_text("#question-title", "Delete <b>everything</b>?")
    assert "question-title" == browser.focused()
    assert "t.ask asks" in browser.text("#question")
    assert "Your answer boolean, required" in browser.text("#question-fields")
    browser.until_text("#news", "t.ask asks: Delete")
    browser.click("#question .primary")
    browser.until_text("#question-title", "Who are you?")
    browser.click("#question .primary")
    browser.until_text("#question-error", "name is required")
    assert "answer-0" == browser.focused()
    browser.type("#answer-0", "Al")
    browser.run("document.querySelector('#answer-1').value = '\"admin\"'")
    browser.click("#question .primary")
    browser.until_text("#question-title", "For how many days?")
    browser.type("#answer-0", "3")
    browser.click("#question .primary")
    browser.until_text("#question-error", "name")
    browser.until_text("#question-title", "Who are you?")
    browser.type("#answer-0", "Ada")
    browser.click("#question .primary")
    browser.until_text("#question-title", "For how many days?")
    browser.type("#answer-0", "2")
    browser.click("#question .primary")
    browser.until_text("#command-result", "True {'name': 'Ada'} 2")
    assert browser.run("return document.querySelector('#question').hidden")


@pytest.mark.parametrize(("way", "action"), [("#decline", "decline"), ("#dismiss", "cancel"), ("", "cancel")])
def test_a_question_can_be_declined_and_dismissed(browser: Browser, way: str, action: str):
    """By a button, or with Escape."""
    browser.click("#commands button", "t.ask")
    browser.click("#form .primary")
    browser.until_text("#question-title", "Delete")
    if way:
        browser.click(way)
    else:
        browser.press("\ue00c")
    browser.until_text("#command-result", f"{action}: nothing was deleted")


def test_a_page_to_visit_is_shown_as_a_link(browser: Browser):
    """In a window of its own. What is no web page is text: it could run code in this page."""
    link = "return (document.querySelector('#question a') || {}).href || ''"
    browser.click("#commands button", "t.visit")
    browser.click("#form .primary")
    browser.until_text("#question-title", "Please pay")
    assert "https://example.org/pay" == browser.run(link)
    browser.click("#question .primary", "Agree")
    browser.until_text("#command-result", "accept")
    browser.type("#field-0", "javascript:alert(1)")
    browser.click("#form .primary")
    browser.until_text("#command-result", "http")
    assert not browser.run(link)


def test_a_question_ends_with_its_call(browser: Browser):
    browser.click("#commands button", "t.ask")
    browser.click("#form .primary")
    browser.until_text("#question-title", "Delete")
    browser.click("#cancel")
    browser.until("document.querySelector('#question').hidden")
    browser.until_text("#form-error", "Cancelled")


def test_a_failure_is_told_with_its_text(browser: Browser):
    browser.click("#commands button", "t.fail")
    browser.type("#field-0", "no <i>way</i>")
    browser.click("#form .primary")
    browser.until_text("#command-result", "ValueError: no <i>way</i>")
    assert not browser.run("return document.querySelector('#command-result i')"), "a result was taken for HTML"


async def test_a_call_of_an_ide_appears_while_it_runs(browser: Browser, dev: Served):
    """Its host is another process. The story grows, and is complete at the end."""
    async with hosted(dev.root, forked=True) as host:
        answer = host.start_call("t_slow")
        browser.until_text("#calls li:first-child", "piped")
        browser.click("#calls li:first-child button")
        browser.until_text("#story-title", "t.slow")
        assert "content" in (await answer)["result"]
    browser.until_text("#story-result", "<b>done</b>")
    story = browser.text("#story-events")
    assert "working on 2" in story
    assert "3/3 step 3" in story
    browser.until_text("#news", "t.slow from piped: ok")


def test_a_call_is_run_again_with_other_arguments(browser: Browser):
    """A secret is not in the record: it is asked for."""
    browser.click("#commands button", "t.login")
    browser.type("#field-0", "me")
    browser.type("#field-1", "pass-word-0815")
    assert "password" == browser.run("return document.querySelector('#field-1').type")
    browser.click("#form .primary")
    browser.until_text("#command-result", "welcome me")
    browser.until_text("#calls li:first-child", "t.login")
    browser.click("#calls li:first-child button")
    browser.until_text("#story-arguments", "***")
    assert "pass-word-0815" not in browser.text("body")
    browser.click("#again")
    browser.until_text("#form-note", "leaves out password. Type")
    assert ["me", ""] == browser.run(
        "return ['#field-0', '#field-1'].map((each) => document.querySelector(each).value)"
    )
    browser.type("#field-0", "you")
    browser.type("#field-1", "other")
    browser.click("#form .primary")
    browser.until_text("#command-result", "welcome you")


def test_a_broken_file_is_told_as_soon_as_it_is_saved(browser: Browser, dev: Served):
    """With file and line, and gone when it is mended."""
    file = write_skill(dev.root, "bad.py", "\n1 / 0\n")
    browser.until_text("#failures", "skills/bad.py:5 ZeroDivisionError")
    browser.until_text("#news", "Could not be loaded")
    file.unlink()
    browser.until("document.querySelector('#failures').hidden")
    browser.until_text("#news", "Everything loads again")
    assert "Could not be loaded" in browser.text("#news")


def test_the_page_is_used_with_the_keyboard_alone(browser: Browser):
    browser.press("/")
    assert "search" == browser.focused()
    browser.press(*"t.search", "Tab", "Enter")
    browser.until("document.activeElement.id === 'command-title'")
    browser.press("Tab", *"key", "Tab", "Tab", "Tab", "Tab", "Enter")
    browser.until_text("#command-result", "key 2")


def test_everything_that_is_used_has_a_name(browser: Browser):
    """For a screen reader: each input its label, each button its text, each region its heading."""
    browser.click("#commands button", "t.search")
    unnamed = """
        return [...document.querySelectorAll('input, select, textarea, button, nav, aside, section')]
            .filter((each) => each.offsetParent !== null)
            .filter((each) => !(each.labels && each.labels.length) && !each.innerText.trim() && !each.getAttribute('aria-label')
                && !each.getAttribute('aria-labelledby')).map((each) => each.outerHTML.slice(0, 100))
    """
    assert [] == browser.run(unnamed)
    broken = "return [...document.querySelectorAll('[aria-labelledby], [aria-describedby]')].flatMap((each) => (each.getAttribute('aria-labelledby') || each.getAttribute('aria-describedby')).split(' ')).filter((id) => !document.getElementById(id))"
    assert [] == browser.run(broken)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_in_dark(browser: Browser, scheme: str, tmp_path: Path):
    """A contrast of 4.5 at least, as WCAG AA wants it."""
    browser.colours(scheme)
    browser.click("#commands button", "t.fail")
    browser.type("#field-0", "x")
    browser.click("#form .primary")
    browser.until_text("#command-result", "ValueError")
    contrast = """
        const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map((each) => each / 255)
            .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const back = (each) => { for (let at = each; at; at = at.parentElement) { const colour = getComputedStyle(at).backgroundColor;
            if (!/, 0\\)$/.test(colour)) return colour; } return 'rgb(255, 255, 255)'; };
        return [...document.querySelectorAll('body *')].filter((each) => each.offsetParent && [...each.childNodes].some((it) => it.nodeType === 3 && it.data.trim()))
            .map((each) => { const [one, two] = [light(getComputedStyle(each).color), light(back(each))].sort((a, b) => b - a);
                return [(one + 0.05) / (two + 0.05), each.outerHTML.slice(0, 80)]; }).filter(([ratio]) => ratio < 4.5);
    """
    assert [] == browser.run(contrast)
    browser.picture(tmp_path / f"{scheme}.png")
    browser.colours("")


# As text


def test_the_terminal_shows_the_same_as_text(tmp_path: Path):
    root = make_project(tmp_path, t=SKILL)
    with subprocess.Popen(
        [*PROWESS, "dev", "--plain"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert "11 commands: t.ask, t.exact, t.fail, t.letters" in process.stdout.readline()
        subprocess.run(
            [*PROWESS, "call", "t.fail", "why=nothing"], cwd=root, capture_output=True, timeout=PATIENCE, check=False
        )
        line = process.stdout.readline()
        while "running" in line:
            line = process.stdout.readline()
        assert re.search(r"t\.fail  prowess call  crashed  .*why=nothing", line)
        file = write_skill(root, "bad.py", "\n1 / 0\n")
        assert "bad.py:5" in process.stdout.readline()
        file.unlink()
        assert "everything loads again" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(PATIENCE)


def test_the_text_ends_when_nobody_reads_it(tmp_path: Path):
    """As in `| head -1`, at the next change. The failure of a notification was a traceback, and the command stayed."""
    root = make_project(tmp_path, t=SKILL)
    with subprocess.Popen(
        [*PROWESS, "dev", "--plain"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "11 commands" in process.stdout.readline()
        process.stdout.close()
        write_skill(root, "bad.py", "\n1 / 0\n")
        assert 141 == process.wait(PATIENCE)
        assert "Traceback" not in process.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has this device")
def test_an_output_without_space_is_not_blamed_on_the_port(dev: Served):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROWESS, "dev", "--no-browser"], cwd=dev.root, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (2, True) == (done.returncode, "the output: No space left on device" in done.stderr)


def test_a_taken_port_is_a_wrong_use(dev: Served):
    found = re.search(r":(\d+)/", dev.address)
    assert found
    done = subprocess.run(
        [*PROWESS, "dev", "--no-browser", "--port", found[1]],
        cwd=dev.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert 2 == done.returncode
    assert f"port {found[1]}" in done.stderr
