"""The skills of a runtime: loaded late, named without clashes, broken alone."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from tests.prowess.embedded import write

from prowess import Runtime, skill_command
from prowess.contracts.catalog import Failure
from prowess.skills.import_locks import ImportLocks
from prowess.skills.library import Share

HEAD = "from __future__ import annotations\nfrom prowess import skill_command, hookimpl\n"


def skill(body: str = "return 1", *, before: str = "", name: str = "run", options: str = "") -> str:
    return f"{HEAD}{before}\n@skill_command{options}\ndef {name}() -> object:\n    {body}\n"


def command(name: str) -> str:
    return f"@skill_command\ndef {name}(): ...\n"


async def value(runtime: Runtime, command: str) -> Any:
    outcome = await runtime.call(command)
    assert outcome.ok, outcome.text
    return outcome.value


def ids(runtime: Runtime) -> list[str]:
    return [contract.id for contract in runtime.catalog()]


def failures(runtime: Runtime) -> list[Failure]:
    return list(runtime.catalog().failures)


def places(runtime: Runtime) -> list[tuple[str, str, int | None]]:
    """Source, file name and line of every failure."""
    return [(item.source, Path(item.file or "").name, item.line) for item in failures(runtime)]


# As late as possible


@pytest.mark.parametrize("name", ["a.run", "a_run", "a/run"])
async def test_call_loads_only_its_skill_and_those_with_hooks(tmp_path: Path, name: str) -> None:
    """An id and a wire name both say where a command is."""
    trap = skill(before="raise SystemExit('loaded')\n")
    write(tmp_path, a=skill(), b=trap, ab=trap, hooks="from prowess import hookimpl\nimport sys\nsys.seen_hooks = 1\n")
    async with Runtime.open(tmp_path) as runtime:
        assert (await runtime.call(name)).ok
        assert 1 == sys.__dict__.pop("seen_hooks")
        assert not [module for module in sys.modules if module.endswith((".f0.b", ".f0.ab"))]
        assert ["a.run"] == ids(runtime)
        assert ["SystemExit: loaded"] * 2 == [failure.reason for failure in failures(runtime)]


async def test_wire_name_is_found_whatever_skill_it_is_cut_at(tmp_path: Path) -> None:
    """`a_b_c` may be `c` of `a_b`, or `b_c` of `a`."""
    write(tmp_path, a=skill(name="x"), a_b=skill("return 'a_b'", name="c"))
    async with Runtime.open(tmp_path) as runtime:
        assert "a_b" == await value(runtime, "a_b_c")


async def test_alias_loads_what_it_takes(tmp_path: Path) -> None:
    """An alias says nothing of where its command is; it works like the id, with a dot or a slash."""
    write(tmp_path, a=skill(options="(aliases=['search/web'])"), search=skill())
    async with Runtime.open(tmp_path) as runtime:
        assert 1 == await value(runtime, "search.web")
        assert 1 == await value(runtime, "search/web")
        assert 1 == await value(runtime, "search_web")


async def test_wire_form_of_an_alias_waits_for_the_skill_that_may_have_the_name(tmp_path: Path) -> None:
    """A command that is not loaded yet keeps its name on the wire, which other skills' aliases do not take."""
    write(tmp_path, a=skill(options="(aliases=['b.c.d'])"), b=skill("return 'b'", name="c_d"))
    async with Runtime.open(tmp_path) as runtime:
        assert 1 == await value(runtime, "a.run")
        assert "b" == await value(runtime, "b_c_d")


async def test_wire_name_of_the_settings_loads_only_its_skill(tmp_path: Path) -> None:
    """A custom name leads straight to its command."""
    write(tmp_path, a=skill(), b=skill(before="raise SystemExit\n"))
    async with Runtime.open(tmp_path, flags={"wire_names": {"a.run": "go"}}) as runtime:
        assert 1 == await value(runtime, "go")
        assert not [module for module in sys.modules if module.endswith(".f0.b")]


async def test_unknown_command_is_an_outcome(tmp_path: Path) -> None:
    """Also where there is no skill at all."""
    async with Runtime.open(tmp_path) as runtime:
        assert "unknown" == (await runtime.call("a.run")).kind
        assert [] == ids(runtime)


# Broken alone


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("x = 1 / 0\n", 4, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 4, "SyntaxError: invalid syntax: def f(:"),
        ("x = 1\n  y = 2\n", 5, "IndentationError: unexpected indent: y = 2"),
        ("raise SystemExit(3)\n", 4, "SystemExit: 3"),
        ("import asyncio\nraise asyncio.CancelledError\n", 5, "CancelledError"),
        ("class Odd(BaseException): pass\nraise Odd('x')\n", 5, "Odd: x"),
        ("import not_installed_anywhere\n", 4, "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
        ("import json\njson.loads('{')\n", 5, "JSONDecodeError: Expecting property name"),
        ("compile('1 +', '<text>', 'eval')\n", 4, "SyntaxError: invalid syntax (<text>, line 1)"),
        ("def f():\n    raise OSError('inner')\nf()\n", 5, "OSError: inner"),
        (
            "class E(Exception):\n    def __str__(self): return 1\nraise E\n",
            6,
            "E: its message cannot be shown: TypeError",
        ),
        (
            "class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E\n",
            6,
            "E: its message cannot be shown: SystemExit",
        ),
        (
            "class E(SyntaxError):\n    filename = property(lambda self: 1 / 0)\nraise E\n",
            None,
            "E, which cannot be shown: ZeroDivisionError",
        ),
        ("raise ValueError('\\udc80')\n", 4, r"ValueError: \udc80"),
        ("@skill_command\nclass F: ...\n", 4, "command 'F': a class cannot be a command"),
        ("x = '\0'\n", None, "source code string cannot contain null bytes"),
    ],
)
async def test_broken_file_is_a_failure_with_file_line_and_reason(
    tmp_path: Path, text: str, line: int | None, reason: str
) -> None:
    """Everything else loads, and the place is the author's own."""
    write(tmp_path, a=skill(), broken=f"import prowess\nfrom prowess import skill_command\n\n{text}", z=skill())
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run", "z.run"] == ids(runtime)
        (failure,) = failures(runtime)
        assert ("broken", str(tmp_path / "skills/broken.py")) == (failure.source, failure.file)
        assert line is None or line == failure.line
        assert reason in failure.reason


async def test_file_that_is_not_utf8_is_a_failure(tmp_path: Path) -> None:
    """It names the file."""
    write(tmp_path, a=skill())
    (tmp_path / "skills/bad.py").write_bytes(b"import prowess\nx = '\xff'\n")
    async with Runtime.open(tmp_path) as runtime:
        assert [("bad", "bad.py")] == [item[:2] for item in places(runtime)]
        assert "The file is not text in UTF-8: save it in that encoding" in failures(runtime)[0].reason


async def test_broken_helper_is_named_at_its_own_line(tmp_path: Path) -> None:
    """The skill fails, and the file to open is the helper's."""
    write(tmp_path, a=skill(before="from . import _h\n"), _h="\n\n1 / 0\n")
    async with Runtime.open(tmp_path) as runtime:
        assert [("a", "_h.py", 3)] == places(runtime)


async def test_wrong_option_in_a_helper_fails_the_skill(tmp_path: Path) -> None:
    """A helper has no commands of its own, so nothing else would name the option. A skill beside it has."""
    wrong = HEAD + "@skill_command(cache_ttl=-1)\ndef bad(): ...\n"
    write(tmp_path, a=skill(before="from . import _h\n"), b=skill(before="from . import c\n"), _h=wrong, c=wrong)
    async with Runtime.open(tmp_path) as runtime:
        assert ["b.run"] == ids(runtime)
        assert [("a", "_h.py", 3), ("c.bad", "c.py", 3)] == places(runtime)


async def test_broken_file_leaves_the_others_of_its_skill(tmp_path: Path) -> None:
    """A skill is as good as its files."""
    write(tmp_path, notes__a=skill(), notes__b="import prowess\n1/0\n", notes__c=skill(name="more"))
    async with Runtime.open(tmp_path) as runtime:
        assert ["notes.more", "notes.run"] == ids(runtime)
        assert [("notes", "b.py", 2)] == places(runtime)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("@skill_command\ndef bad(x: Nowhere): ...\n", "'Nowhere' cannot be resolved"),
        ("@skill_command(cache_ttl=-1)\ndef bad(): ...\n", "command 'bad': cache_ttl=-1 must be "),
    ],
)
async def test_broken_command_leaves_the_others_of_its_file(tmp_path: Path, bad: str, reason: str) -> None:
    """An annotation that cannot be resolved, or an option that is refused, fails that command, at its line."""
    write(tmp_path, a=f"{HEAD}{bad}@skill_command\ndef good(): ...\n")
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.good"] == ids(runtime)
        assert [("a.bad", "a.py", 3)] == places(runtime)
        assert reason in failures(runtime)[0].reason


@pytest.mark.parametrize("error", ["RuntimeError('never\\udc80')", "SystemExit(3)"])
async def test_annotation_that_raises_fails_its_command(tmp_path: Path, error: str) -> None:
    """Whatever an annotation does when it is looked at."""
    before = (
        "class Meta:\n"
        "    def __get_pydantic_core_schema__(*_):\n"
        f"        raise {error}\n"
        "class T:\n"
        "    __get_pydantic_core_schema__ = classmethod(Meta.__get_pydantic_core_schema__)\n"
    )
    write(tmp_path, a=f"{HEAD}{before}@skill_command\ndef bad(x: T): ...\n@skill_command\ndef good(): ...\n")
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.good"] == ids(runtime)
        assert ["a.bad"] == [failure.source for failure in failures(runtime)]
        assert str(tmp_path / "skills/a.py") == failures(runtime)[0].file


@pytest.mark.parametrize("limit", [sys.get_int_max_str_digits(), 0])
async def test_definition_that_nobody_could_read_fails_its_command(tmp_path: Path, limit: int) -> None:
    """The description of all skills is JSON, also where an author has lifted the limit on the digits of integers."""
    before = "from typing import Annotated, Any\nfrom pydantic import Field\n"
    bad = "@skill_command\ndef bad(x: Annotated[int, Field(le=10**5000)]): ...\n"
    good = "@skill_command\ndef good(x: Annotated[int, Field(le=10**4000)]): ...\n"
    write(tmp_path, a=f"{HEAD}{before}{bad}{good}")
    usual = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(limit)
        async with Runtime.open(tmp_path) as runtime:
            assert ["a.good"] == ids(runtime)
            assert [("a.bad", "a.py", 5)] == places(runtime)
            assert "the definition of a.bad cannot be written as JSON: " in failures(runtime)[0].reason
    finally:
        sys.set_int_max_str_digits(usual)


def test_interrupt_goes_through_while_a_command_is_compiled(tmp_path: Path) -> None:
    """Ctrl-C is no failure of the command."""
    annotation = "class T:\n    def __get_pydantic_core_schema__(*_):\n        raise KeyboardInterrupt\n"
    write(tmp_path, a=f"{HEAD}{annotation}@skill_command\ndef bad(x: T): ...\n")
    runtime = Runtime(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        runtime.catalog()
    runtime._library.close()


async def test_printing_file_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a skill prints is its own affair."""
    async with Runtime.open(write(tmp_path, a=skill(before="print('hello')\n"))) as runtime:
        assert ["a.run"] == ids(runtime)
    assert "hello" in capsys.readouterr().out


async def test_objects_that_raise_when_looked_at_are_no_commands(tmp_path: Path) -> None:
    """A lazy proxy at the top of a module is left alone."""
    proxy = "class Proxy:\n    def __getattribute__(self, name): raise RuntimeError(name)\nproxy = Proxy()\n"
    async with Runtime.open(write(tmp_path, a=skill(before=proxy))) as runtime:
        assert 1 == await value(runtime, "a.run")
        assert [] == failures(runtime)


def test_interrupt_goes_through_and_can_be_followed_by_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during an import is no failure of the skill; the next call starts anew, where it was."""
    info = tmp_path / "site/acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prowess.skills]\nacme = acme_plugin:plugin\n")
    (tmp_path / "site/acme_plugin.py").write_text("plugin = object()\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    once = "import os\nif not os.path.exists(__file__ + '.seen'):\n    open(__file__ + '.seen', 'w').close()\n"
    text = f"{HEAD}{once}    raise KeyboardInterrupt\n@skill_command\ndef run(): ...\n"
    write(tmp_path, a=skill(), hooked__a=skill(name="first"), hooked__b=text)
    runtime = Runtime(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        runtime.catalog()

    assert ["a.run", "hooked.first", "hooked.run"] == ids(runtime)
    assert [] == failures(runtime)
    runtime._library.close()


async def test_interrupt_that_a_skill_raises_itself_is_a_failure(tmp_path: Path) -> None:
    """In a worker thread nobody pressed Ctrl-C."""
    async with Runtime.open(write(tmp_path, a=skill(before="raise KeyboardInterrupt\n"))) as runtime:
        assert "unknown" == (await runtime.call("a.run")).kind
        assert ["KeyboardInterrupt"] == [failure.reason for failure in failures(runtime)]


async def test_command_called_while_its_file_is_imported_runs(tmp_path: Path) -> None:
    """A direct call at the top of a module runs on another thread, which must not wait for the import."""
    text = f"{HEAD}@skill_command\ndef run() -> int:\n    return 7\nearly = run()\nconfig = run.__name__\n"
    text += "@skill_command\ndef show() -> dict:\n    return early['structuredContent']\n"
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        assert {"result": 7} == await value(runtime, "a.show")
        assert [] == failures(runtime)


# Commands and where they belong


async def test_imported_command_belongs_to_where_it_was_defined(tmp_path: Path) -> None:
    """Not to the skill that imports it, nor to the other file of one skill."""
    write(
        tmp_path,
        a=skill(),
        b=skill(before="from .a import run as other\n", name="mine"),
        notes__a=skill(),
        notes__b=skill(before="from .a import run\n", name="mine"),
    )
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run", "b.mine", "notes.mine", "notes.run"] == ids(runtime)
        assert [] == failures(runtime)


async def test_command_imported_from_a_skill_stays_there_even_if_listed(tmp_path: Path) -> None:
    """`__all__` does not make a second one of it."""
    write(tmp_path, a=skill(), b=skill(before="from .a import run as other\n__all__ = ['other']\n", name="mine"))
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run", "b.mine"] == ids(runtime)


async def test_command_of_a_helper_is_registered_by_who_shows_it(tmp_path: Path) -> None:
    """A folder skill shows what its helpers define; a single file lists in `__all__` what it means to show."""
    write(
        tmp_path,
        _shared=skill(),
        a=skill(before="from ._shared import run\n__all__ = ['run', 'mine']\n", name="mine"),
        b=skill(before="from ._shared import run\n", name="mine"),
        notes__lib__deep=skill(name="deep"),
        notes__main="import prowess\nfrom .lib.deep import deep, deep as twice\n",
    )
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.mine", "a.run", "b.mine", "notes.deep"] == ids(runtime)
        assert [] == failures(runtime)


async def test_command_outside_of_the_skills_keeps_its_state(tmp_path: Path) -> None:
    """A command that a script or a test defines is compiled once: its cache works between direct calls."""
    runs: list[int] = []

    @skill_command(cache_ttl=60)
    async def count() -> int:
        runs.append(1)
        return len(runs)

    async with Runtime.open(tmp_path):
        first = await count()
        assert first["structuredContent"] == (await count())["structuredContent"]
    assert [1] == runs


async def test_direct_call_of_a_skill_shares_its_state(tmp_path: Path) -> None:
    """A command called from another command is the same one a client calls."""
    text = HEAD + (
        "runs = []\n"
        "@skill_command(cache_ttl=60)\nasync def count() -> int:\n    runs.append(1)\n    return len(runs)\n"
        "@skill_command\nasync def twice() -> list:\n"
        "    return [(await count())['structuredContent']['result'] for _ in '12']\n"
    )
    async with Runtime.open(write(tmp_path, a=text)) as runtime:
        assert 1 == await value(runtime, "a.count")
        assert [1, 1] == await value(runtime, "a.twice")


# Names


async def test_two_files_of_one_skill_with_one_command_are_both_refused(tmp_path: Path) -> None:
    """Each failure names the other, and its own place."""
    write(tmp_path, notes__a=skill(), notes__b=skill(), notes__c=skill(name="ok"))
    async with Runtime.open(tmp_path) as runtime:
        assert ["notes.ok"] == ids(runtime)
        assert [("notes.run", "a.py", 4), ("notes.run", "b.py", 4)] == places(runtime)
        assert "the name 'notes.run' is also claimed by notes.run (skills/notes/b.py:4); rename one" == (
            failures(runtime)[0].reason
        )


async def test_wire_names_that_meet_are_refused(tmp_path: Path) -> None:
    """`a_b.c` and `a.b_c` are one name on the wire; with dots they are two."""
    write(tmp_path, a=skill(name="b_c"), a_b=skill(name="c"))
    async with Runtime.open(tmp_path) as runtime:
        assert [] == ids(runtime)
        assert ["the name 'a_b_c' is also claimed by a_b.c (skills/a_b.py:4); rename one"] == [
            failure.reason for failure in failures(runtime) if failure.source == "a.b_c"
        ]
    async with Runtime.open(tmp_path, flags={"names": "dotted"}) as runtime:
        assert ["a.b_c", "a_b.c"] == ids(runtime)


async def test_alias_that_is_taken_is_refused(tmp_path: Path) -> None:
    """The command whose id it is keeps it; two aliases refuse each other."""
    write(
        tmp_path,
        a=skill(),
        b=skill(options="(aliases=['a.run'])"),
        c=skill(options="(aliases=['x'])"),
        d=skill(options="(aliases=['x'])"),
    )
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run"] == ids(runtime)
        assert ["b.run", "c.run", "d.run"] == [failure.source for failure in failures(runtime)]


async def test_wire_name_has_a_limit(tmp_path: Path) -> None:
    """Clients refuse names longer than 64 characters."""
    write(tmp_path, a=skill(name="x" * 62) + command("y" * 63))
    async with Runtime.open(tmp_path) as runtime:
        assert [64] == [len(contract.wire_name) for contract in runtime.catalog()]
        (failure,) = failures(runtime)
        assert f"the wire name 'a_{'y' * 63}' is longer than 64 characters; clients refuse it" == failure.reason
        assert 7 == failure.line


async def test_profile_must_be_there(tmp_path: Path) -> None:
    """A command pinned to a profile that nobody knows fails at load."""
    async with Runtime.open(write(tmp_path, a=skill(options="(profile='mine')"))) as runtime:
        assert [] == ids(runtime)
        assert failures(runtime)[0].reason.startswith("there is no profile 'mine'; known: full, ")


async def test_hidden_commands_are_not_there(tmp_path: Path) -> None:
    """The last pattern that fits decides, and a hidden command takes no name."""
    names = ["raw_x", "raw_ok", "log"]
    write(tmp_path, git=HEAD + "".join(command(name) for name in names), git_raw=skill(name="x"))
    async with Runtime.open(tmp_path, flags={"hide": ["git.raw_*", "!git.raw_ok"]}) as runtime:
        assert ["git.log", "git.raw_ok", "git_raw.x"] == ids(runtime)
        assert "unknown" == (await runtime.call("git.raw_x")).kind


# Reload
# Several imports at once


def plain(before: str = "") -> str:
    """A skill without hooks: those are imported before all others."""
    return f"{before}\nfrom prowess import skill_command\n@skill_command\ndef run() -> int:\n    return 1\n"


async def test_two_threads_that_want_one_skill_import_it_once(tmp_path: Path) -> None:
    """The second one waits for the first one."""
    begun = tmp_path / "begun"
    wait = f"import time\nwith open({str(begun)!r}, 'a') as file:\n    file.write('x')\ntime.sleep(0.05)\n"
    write(tmp_path, t=plain(wait))
    async with Runtime.open(tmp_path) as runtime:
        found = await asyncio.gather(*(asyncio.to_thread(runtime._library.find, "t.run") for _ in range(8)))
    assert 1 == len(set(map(id, found)))
    assert "x" == begun.read_text()


HALFWAY = """
import os
if not os.path.exists({0!r}):
    open({0!r}, "w").close()
    raise ImportError("cannot import name 'x' from partially initialized module 'y'")
"""
"""Fails once, as it happens when two threads import modules that import each other."""


async def test_skill_that_met_a_half_imported_module_is_imported_again_alone(tmp_path: Path) -> None:
    """In one thread it would have loaded."""
    failed = str(tmp_path / "failed")
    wait = f"import os, time\nopen({failed!r} + '0', 'w').close()\nwhile not os.path.exists({failed!r}):\n    time.sleep(0.001)\n"
    write(tmp_path, a=plain(HALFWAY.format(failed)), b=plain(wait))
    async with Runtime.open(tmp_path) as runtime:
        beside = asyncio.create_task(asyncio.to_thread(runtime._library.find, "b.run"))
        while not Path(failed + "0").exists():  # noqa: ASYNC110, ASYNC240 - a thread writes it
            await asyncio.sleep(0.001)
        assert 1 == await value(runtime, "a.run")
        await beside
        assert [] == failures(runtime)


async def test_skill_that_was_to_be_imported_alone_may_be_there_by_then(tmp_path: Path) -> None:
    """Whoever came first has imported it."""
    begun = tmp_path / "begun"
    write(tmp_path, a=plain(f"with open({str(begun)!r}, 'a') as file:\n    file.write('x')\n"))
    async with Runtime.open(tmp_path) as runtime:
        assert 1 == await value(runtime, "a.run")
        runtime._library._import_alone("a")
        assert 1 == await value(runtime, "a.run")
    assert "x" == begun.read_text()


async def test_skill_that_met_a_half_imported_module_by_itself_has_failed(tmp_path: Path) -> None:
    """It would do so again."""
    write(tmp_path, a=plain(HALFWAY.format(str(tmp_path / "failed"))))
    async with Runtime.open(tmp_path) as runtime:
        assert ["a"] == [failure.source for failure in failures(runtime)]


async def test_skill_that_asks_for_itself_while_it_is_imported_does_not_wait_for_itself(tmp_path: Path) -> None:
    """It is told that it is not there yet."""
    asks = "from prowess.runtime import current_runtime\nassert current_runtime()._library.find('t.run') is None\n"
    write(tmp_path, t=plain(asks))
    async with Runtime.open(tmp_path) as runtime:
        assert 1 == await value(runtime, "t.run")


async def test_description_goes_on_when_the_import_that_somebody_waits_for_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other skills are listed meanwhile."""
    monkeypatch.setattr("prowess.skills.library._MOST_TURNS", 3)
    write(tmp_path, t=plain())
    async with Runtime.open(tmp_path) as runtime:
        runtime._library._wanting.add(0)
        assert {"t"} == set(runtime.describe().skills)


def test_an_import_alone_waits_for_all_others() -> None:
    """It takes modules out of the interpreter that another import may need."""
    locks = ImportLocks()
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def one() -> None:
        with locks.one("a"):
            inside.set()
            leave.wait(PATIENCE)
            order.append("one")

    def alone() -> None:
        with locks.alone("b"):
            order.append("alone")

    threads = [threading.Thread(target=one), threading.Thread(target=alone)]
    threads[0].start()
    assert inside.wait(PATIENCE)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert ["one", "alone"] == order
    assert not locks.overlapped("a")


def test_an_import_alone_may_import_other_skills_and_does_not_wait_for_itself() -> None:
    """All of that happens in one thread."""
    locks = ImportLocks()

    with locks.one("a"), locks.alone("b") as first, locks.one("c") as second, locks.alone("b") as again:
        assert (True, True, False) == (first, second, again)


# The skills of one worker among several

PROVIDER = f"""{HEAD}
class Client: ...

@hookimpl
def prowess_injectables(provide):
    provide(Client)
"""
"""A plugin of the project."""


async def test_a_library_imports_only_its_share(tmp_path: Path):
    """Neither what is asked for by name, nor plugins, nor the container of the project."""
    write(tmp_path, a=skill("return 1"), b=skill("return 2"), c=PROVIDER)
    (tmp_path / "prowess.toml").write_text('[inject]\ncontainer = "nowhere:Container"\n')
    runtime = Runtime(tmp_path, share=Share(only=["a"]))
    assert 1 == await value(runtime, "a.run")
    assert (await runtime.call("b.run")).kind == "unknown"
    assert ["a.run"] == ids(runtime)
    assert ["a"] == list(runtime.describe().skills)
    assert ("a", "b", "c") == runtime.describe().names
    assert [] == failures(runtime)
    await runtime.aclose()


async def test_a_library_leaves_out_what_others_import(tmp_path: Path):
    runtime = Runtime(write(tmp_path, a=skill(), b=skill(), c=PROVIDER), share=Share(without=["b", "c"]))
    assert ["a.run"] == ids(runtime)
    await runtime.aclose()


async def test_what_the_project_provides_does_not_reach_a_skill_apart(tmp_path: Path):
    """It is a failure at load, and says what to do."""
    write(
        tmp_path,
        a=f"{HEAD}from .c import Client\n@skill_command\ndef run(client: Client) -> int:\n    return 1\n",
        c=PROVIDER,
    )
    whole = Runtime(tmp_path)
    assert ["a.run"] == ids(whole)
    await whole.aclose()
    runtime = Runtime(tmp_path, share=Share(only=["a"]))
    assert [] == ids(runtime)
    (failure,) = failures(runtime)
    assert "runs in its own process" in failure.reason
    assert "`prowess_injectables` in the skill" in failure.reason
    await runtime.aclose()


async def test_a_skill_apart_can_have_providers_of_its_own(tmp_path: Path):
    own = f"{PROVIDER}@skill_command\ndef run(client: Client) -> str:\n    return type(client).__name__\n"
    runtime = Runtime(write(tmp_path, a=own), share=Share(only=["a"]))
    assert "Client" == await value(runtime, "a.run")
    await runtime.aclose()
