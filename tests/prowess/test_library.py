"""The skills of a runtime: loaded late, named without clashes, broken alone, reloaded in part."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from prowess import Runtime, skill_command
from prowess.catalog import Failure

HEAD = "from __future__ import annotations\nfrom prowess import skill_command, hookimpl\n"


def write(root: Path, **files: str) -> Path:
    """Skill files by name, `__` for a slash."""
    for name, text in files.items():
        path = root / "skills" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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
        runtime.reload()
        assert [] == ids(runtime)


# Broken alone


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("x = 1 / 0\n", 4, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 4, "SyntaxError: invalid syntax"),
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
        ("raise ValueError('\\udc80')\n", 4, r"ValueError: \udc80"),
        ("@skill_command(cache_ttl=-1)\ndef f(): ...\n", 4, "command 'f': cache_ttl=-1 is "),
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


async def test_broken_helper_is_named_at_its_own_line(tmp_path: Path) -> None:
    """The skill fails, and the file to open is the helper's."""
    write(tmp_path, a=skill(before="from . import _h\n"), _h="\n\n1 / 0\n")
    async with Runtime.open(tmp_path) as runtime:
        assert [("a", "_h.py", 3)] == places(runtime)


async def test_broken_file_leaves_the_others_of_its_skill(tmp_path: Path) -> None:
    """A skill is as good as its files."""
    write(tmp_path, notes__a=skill(), notes__b="import prowess\n1/0\n", notes__c=skill(name="more"))
    async with Runtime.open(tmp_path) as runtime:
        assert ["notes.more", "notes.run"] == ids(runtime)
        assert [("notes", "b.py", 2)] == places(runtime)


async def test_broken_command_leaves_the_others_of_its_file(tmp_path: Path) -> None:
    """An annotation that cannot be resolved fails that command, at its line."""
    text = HEAD + "@skill_command\ndef bad(x: Nowhere): ...\n@skill_command\ndef good(): ...\n"
    write(tmp_path, a=text)
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.good"] == ids(runtime)
        assert [("a.bad", "a.py", 3)] == places(runtime)
        assert "'Nowhere' cannot be resolved" in failures(runtime)[0].reason


async def test_annotation_that_raises_fails_its_command(tmp_path: Path) -> None:
    """Whatever an annotation does when it is looked at."""
    before = (
        "class Meta:\n"
        "    def __get_pydantic_core_schema__(*_):\n"
        "        raise RuntimeError('never\\udc80')\n"
        "class T:\n"
        "    __get_pydantic_core_schema__ = classmethod(Meta.__get_pydantic_core_schema__)\n"
    )
    write(tmp_path, a=f"{HEAD}{before}@skill_command\ndef bad(x: T): ...\n@skill_command\ndef good(): ...\n")
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.good"] == ids(runtime)
        assert ["a.bad"] == [failure.source for failure in failures(runtime)]
        assert str(tmp_path / "skills/a.py") == failures(runtime)[0].file


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


async def test_reload_sees_what_was_added_renamed_and_deleted(tmp_path: Path) -> None:
    """Files, and commands in them."""
    write(tmp_path, a=skill(), b=skill("return 'b'"))
    async with Runtime.open(tmp_path) as runtime:
        assert ["a.run", "b.run"] == ids(runtime)
        (tmp_path / "skills/b.py").rename(tmp_path / "skills/c.py")
        write(tmp_path, a=skill(name="walk"), d__x=skill())
        runtime.reload()
        assert "b" == await value(runtime, "c.run")
        assert "unknown" == (await runtime.call("b.run")).kind
        assert ["a.walk", "c.run", "d.run"] == ids(runtime)
        (tmp_path / "skills/a.py").unlink()
        (tmp_path / "skills/d/x.py").unlink()
        runtime.reload()
        assert ["c.run"] == ids(runtime)
        assert [] == failures(runtime)


async def test_reload_before_anything_was_loaded_does_nothing(tmp_path: Path) -> None:
    """The first look is fresh anyway."""
    async with Runtime.open(write(tmp_path, a=skill())) as runtime:
        runtime.reload()
        assert not [module for module in sys.modules if module.endswith(".f0.a")]
        assert ["a.run"] == ids(runtime)


async def test_reload_sees_files_of_one_skill_come_and_go(tmp_path: Path) -> None:
    """A folder skill is what lies in it now."""
    async with Runtime.open(write(tmp_path, n__a=skill())) as runtime:
        assert ["n.run"] == ids(runtime)
        write(tmp_path, n__b=skill(name="more"))
        runtime.reload()
        assert ["n.more", "n.run"] == ids(runtime)
        (tmp_path / "skills/n/a.py").unlink()
        runtime.reload()
        assert ["n.more"] == ids(runtime)


@pytest.mark.parametrize(
    "broken",
    [
        skill("return 2") + "1 / 0\n",
        "import prowess\ndef f(:\n",
        skill("return 2").replace("object", "Nowhere"),
    ],
    ids=["raises", "syntax", "annotation"],
)
async def test_skill_that_breaks_goes_on_as_it_was(tmp_path: Path, broken: str) -> None:
    """The last good version answers, with its state, and the catalog says what is wrong, until it is mended."""
    counter = "seen = []\n"
    async with Runtime.open(write(tmp_path, a=skill("seen.append(1); return len(seen)", before=counter))) as runtime:
        assert 1 == await value(runtime, "a.run")
        write(tmp_path, a=broken)
        for number in (2, 3):
            runtime.reload()
            assert number == await value(runtime, "a.run")
            (failure,) = failures(runtime)
            assert failure.reason.endswith(" (the last good version goes on)")
            assert str(tmp_path / "skills/a.py") == failure.file
        write(tmp_path, a=skill("return 'mended'"))
        runtime.reload()
        assert [] == failures(runtime)
        assert "mended" == await value(runtime, "a.run")


async def test_skill_that_was_broken_from_the_start_is_mended(tmp_path: Path) -> None:
    """Its first good version is the first."""
    async with Runtime.open(write(tmp_path, a="import prowess\n1 / 0\n")) as runtime:
        assert [("a", "a.py", 2)] == places(runtime)
        write(tmp_path, a="import prowess\n\n1 / 0\n")
        runtime.reload()
        assert [("a", "a.py", 3)] == places(runtime)
        write(tmp_path, a=skill())
        runtime.reload()
        assert 1 == await value(runtime, "a.run")
        assert [] == failures(runtime)


async def test_version_that_fails_but_takes_nothing_away_is_taken(tmp_path: Path) -> None:
    """A new command that is broken does not hold back the others."""
    async with Runtime.open(write(tmp_path, a=skill("return 1"))) as runtime:
        assert 1 == await value(runtime, "a.run")
        write(tmp_path, a=skill("return 2") + "@skill_command\ndef new(x: Nowhere): ...\n")
        runtime.reload()
        assert 2 == await value(runtime, "a.run")
        assert ["a.new"] == [failure.source for failure in failures(runtime)]
        assert "last good" not in failures(runtime)[0].reason


async def test_failure_outside_of_the_skill_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged file that lacked a library loads when that is installed; what was fine about it keeps its state."""
    monkeypatch.syspath_prepend(tmp_path / "installed")
    good = skill("seen.append(1); return len(seen)", before="seen = []\n", options="(cache_ttl=60)")
    write(tmp_path, n__a=good, n__b=skill(before="import late_library\n", name="late"))
    async with Runtime.open(tmp_path) as runtime:
        assert ["n.run"] == ids(runtime)
        assert 1 == await value(runtime, "n.run")
        (tmp_path / "installed").mkdir()
        (tmp_path / "installed/late_library.py").write_text("")
        runtime.reload()
        assert ["n.late", "n.run"] == ids(runtime)
        assert (await runtime.call("n.run")).cached


async def test_one_of_two_that_share_a_helper_may_break(tmp_path: Path) -> None:
    """The other gets the new helper, the broken one keeps the old one, and both meet again when it is mended."""
    write(
        tmp_path,
        _h="x, y = 1, 1\n",
        a=skill("return x", before="from ._h import x\n"),
        b=skill("return y", before="from ._h import y\n"),
    )
    async with Runtime.open(tmp_path) as runtime:
        assert [1, 1] == [await value(runtime, "a.run"), await value(runtime, "b.run")]
        write(tmp_path, _h="y = 2\n")
        runtime.reload()
        assert [1, 2] == [await value(runtime, "a.run"), await value(runtime, "b.run")]
        assert [("a", "a.py", 3)] == places(runtime)
        write(tmp_path, _h="x, y = 3, 3\n")
        runtime.reload()
        assert [3, 3] == [await value(runtime, "a.run"), await value(runtime, "b.run")]
        assert [] == failures(runtime)


async def test_broken_file_keeps_the_good_ones_of_its_skill_as_they_were(tmp_path: Path) -> None:
    """A skill is one version: not half of the old and half of the new."""
    write(tmp_path, n__a=skill("return 1", name="a"), n__b=skill("return 1", name="b"))
    async with Runtime.open(tmp_path) as runtime:
        runtime.catalog()
        write(tmp_path, n__a=skill("return 2", name="a"), n__b="import prowess\n1 / 0\n")
        runtime.reload()
        assert [1, 1] == [await value(runtime, "n.a"), await value(runtime, "n.b")]
        write(tmp_path, n__b=skill("return 2", name="b"))
        runtime.reload()
        assert [2, 2] == [await value(runtime, "n.a"), await value(runtime, "n.b")]


async def test_second_skill_of_one_name_ends_the_first(tmp_path: Path) -> None:
    """Until one of them goes again."""
    write(tmp_path, a=skill("seen.append(1); return len(seen)", before="seen = []\n"))
    async with Runtime.open(tmp_path) as runtime:
        assert 1 == await value(runtime, "a.run")
        write(tmp_path, a__x=skill())
        runtime.reload()
        assert "unknown" == (await runtime.call("a.run")).kind
        (tmp_path / "skills/a/x.py").unlink()
        runtime.reload()
        assert 2 == await value(runtime, "a.run")


async def test_cache_of_an_unchanged_command_outlives_a_reload(tmp_path: Path) -> None:
    """Only what changed starts anew."""
    cached = skill("seen.append(1); return len(seen)", before="seen = []\n", options="(cache_ttl=60)")
    async with Runtime.open(write(tmp_path, a=cached, b=skill())) as runtime:
        assert 1 == await value(runtime, "a.run")
        write(tmp_path, b=skill("return 2"))
        runtime.reload()
        assert (await runtime.call("a.run")).cached


def test_call_during_a_reload_finds_its_command(tmp_path: Path) -> None:
    """Another thread that looks meanwhile never misses a command that stays."""
    runtime = Runtime(write(tmp_path, a=skill(), b=skill()))
    library = runtime._library
    missed: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if library.find("a.run") is None:
                missed.append("a.run")

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(5):
        write(tmp_path, b=skill(f"return {number}"))
        runtime.reload()
    done.set()
    thread.join(5)

    assert [] == missed
    library.close()
