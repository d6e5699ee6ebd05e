"""The text skill: searching, finding and reading inside the project."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

from prowess import ConfigPaths, Settings, SkillError

SLOW = r"(x+x+)+y"
"""Takes longer than anybody can wait, on the line below."""
SLOW_LINE = "x" * 200


def write(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def found(result: Any) -> list[tuple[str, int, str]]:
    return [(match["path"], match["line"], match["text"]) for match in result["matches"]]


# --- search ---------------------------------------------------------------------------------------


async def test_literal_text_is_found_with_path_line_and_text(project: Any, root: Path):
    """Without `regex`, a pattern means itself."""
    write(root, **{"a.txt": "one\nf(x) = 1\r\n", "b/c.txt": "f(x)\n", "d.txt": "fx\n"})
    async with project() as opened:
        result = await opened.ok("text.search", pattern="f(x)")

    assert {"files_searched": 3, "matches": result["matches"]} == result
    assert [("a.txt", 2, "f(x) = 1"), ("b/c.txt", 1, "f(x)")] == found(result)


@pytest.mark.parametrize(
    "case, pattern, lines",
    [
        ("smart", "word", [1, 2]),
        ("smart", "Word", [2]),
        ("sensitive", "word", [1]),
        ("insensitive", "WORD", [1, 2]),
    ],
)
async def test_case_matters_as_asked(project: Any, root: Path, case: str, pattern: str, lines: list[int]):
    """Smart case is sensitive once the pattern has a capital letter."""
    write(root, **{"a.txt": "a word\na Word\n"})
    async with project() as opened:
        result = await opened.ok("text.search", pattern=pattern, case=case)

    assert lines == [match["line"] for match in result["matches"]]


async def test_regular_expression_is_one_when_asked(project: Any, root: Path):
    """Python syntax, line by line."""
    write(root, **{"a.py": "def one():\n    pass\nasync def two():\n"})
    async with project() as opened:
        result = await opened.ok("text.search", pattern=r"^(async )?def \w+", regex=True)

    assert [1, 3] == [match["line"] for match in result["matches"]]


@pytest.mark.parametrize(
    "pattern, says",
    [
        ("(x", "'(x' is no regular expression: missing )"),
        ("a\nb", "line break"),
        ("a{99999999999}", "no regular expression"),
    ],
)
async def test_useless_pattern_is_refused_with_the_way_out(project: Any, pattern: str, says: str):
    """What cannot find anything fails at once."""
    async with project() as opened:
        assert says in await opened.failed("text.search", pattern=pattern, regex=True)


@pytest.mark.parametrize(
    "globs, names",
    [
        (["*.py"], ["a.py", "src/b.py", "src/deep/c.py"]),
        (["src/*.py"], ["src/b.py"]),
        (["src/**/*.py"], ["src/b.py", "src/deep/c.py"]),
        (["src/"], ["src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        (["*.{py,ts}", "!src/deep"], ["a.py", "src/b.py"]),
        (["!*.py"], ["src/deep/d.ts"]),
        (["./a.py", "**/d.ts"], ["a.py", "src/deep/d.ts"]),
    ],
)
async def test_globs_narrow_a_search(project: Any, root: Path, globs: list[str], names: list[str]):
    """Names at any depth, paths from the root, exclusions with an exclamation mark, alternatives in braces."""
    write(root, **dict.fromkeys(["a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts"], "here"))
    async with project() as opened:
        result = await opened.ok("text.search", pattern="here", globs=globs)

    assert names == [match["path"] for match in result["matches"]]


@pytest.mark.parametrize("glob", ["/", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "!"])
async def test_useless_glob_is_refused(project: Any, glob: str):
    """An empty one, and one that unfolds to thousands."""
    async with project() as opened:
        assert "glob" in await opened.failed("text.search", pattern="x", globs=[glob])


async def test_context_is_shown_around_a_match(project: Any, root: Path):
    """As many lines as there are, and no key for what was not asked for."""
    write(root, **{"a.txt": "1\n2\nhit\n4\n"})
    async with project() as opened:
        with_context = await opened.ok("text.search", pattern="hit", context=3)
        without = await opened.ok("text.search", pattern="hit")

    assert [{"path": "a.txt", "line": 3, "text": "hit", "before": ["1", "2"], "after": ["4"]}] == with_context[
        "matches"
    ]
    assert [{"path": "a.txt", "line": 3, "text": "hit"}] == without["matches"]


async def test_search_stops_at_max_results_and_says_so(project: Any, root: Path):
    """A note appears only where something was left out."""
    write(root, **{"a.txt": "hit\n" * 5})
    async with project() as opened:
        few = await opened.ok("text.search", pattern="hit", max_results=4)
        all_of_them = await opened.ok("text.search", pattern="hit", max_results=5)

    assert (4, "there are more than 4 matches: narrow the search, or raise max_results") == (
        len(few["matches"]),
        few["note"],
    )
    assert (5, None) == (len(all_of_them["matches"]), all_of_them.get("note"))


async def test_matches_are_bounded_in_length_too(project: Any, root: Path):
    """A thousand long lines are more than a model reads."""
    write(root, **{"a.txt": f"hit {'-' * 300}\n" * 1000})
    async with project() as opened:
        outcome = await opened.call("text.search", pattern="hit", max_results=1000)

    assert 70_000 > len(outcome.text)
    assert "for length" in outcome.value["note"]


async def test_long_line_is_shown_around_the_match(project: Any, root: Path):
    """What was generated is cut on both sides; and nothing beyond 10,000 characters is looked at."""
    write(root, **{"a.js": "a" * 5000 + "hit" + "b" * 50_000, "b.js": "a" * 20_000 + "hit"})
    async with project() as opened:
        (match,) = (await opened.ok("text.search", pattern="hit"))["matches"]

    assert "a.js" == match["path"]
    assert re.fullmatch(r"…a{100}hitb{297}…", match["text"])


async def test_what_is_no_text_of_the_project_is_left_out(project: Any, root: Path):
    """Binary files, other people's folders, environments, and what is too large, of which a note speaks."""
    write(
        root,
        **{
            "yes.txt": "hit",
            "binary.dat": b"hit\0",
            "large.txt": "hit" * 1000,
            ".git/config": "hit",
            "node_modules/x/index.js": "hit",
            "env/pyvenv.cfg": "hit",
            "env/lib/x.py": "hit",
            "mine/x.py": "hit",
            ".github/x.yml": "hit",
            "latin.txt": "hit \xe9".encode("latin-1"),
        },
    )
    async with project(text__max_file_bytes=1000, text__ignore=["mine"]) as opened:
        result = await opened.ok("text.search", pattern="hit")

    assert [".github/x.yml", "latin.txt", "yes.txt"] == [match["path"] for match in result["matches"]]
    assert "1 files of more than 1,000 bytes were left out" == result["note"]


async def test_ignored_folder_is_searched_when_it_is_named(project: Any, root: Path):
    """Leaving out is for what nobody asked for. One file can be named as well."""
    write(root, **{"node_modules/x/index.js": "hit"})
    async with project() as opened:
        folder = await opened.ok("text.search", pattern="hit", path="node_modules")
        file = await opened.ok("text.search", pattern="hit", path="node_modules/x/index.js", globs=["*.py"])

    assert folder["matches"] == file["matches"]
    assert [("node_modules/x/index.js", 1, "hit")] == found(folder)


async def test_search_stays_inside_the_project(project: Any, root: Path):
    """Neither a path nor a symbolic link leads out."""
    write(root.parent, **{"secret.txt": "hit", "folder/secret.txt": "hit"})
    (root / "file").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent / "folder")
    async with project() as opened:
        assert [] == (await opened.ok("text.search", pattern="hit"))["matches"]
        for path in ("..", "../secret.txt", str(root.parent), "file", "folder", "~/", "/etc/passwd"):
            assert re.search(
                "leads out of the project|there is no", await opened.failed("text.search", pattern="hit", path=path)
            )


async def test_search_leaves_the_project_where_the_user_allows_it(project: Any, root: Path):
    """Then paths outside are absolute."""
    write(root.parent, **{"other.txt": "hit"})
    async with project(allow_outside_root=True) as opened:
        result = await opened.ok("text.search", pattern="hit", path="../other.txt")

    assert [(str(root.parent / "other.txt"), 1, "hit")] == found(result)


async def test_endless_pattern_gives_what_was_found_and_says_where_it_was(project: Any, root: Path):
    """A pattern that backtracks for ever stalls nothing: the alarm stops it in the middle of a match."""
    write(root, **{"a.txt": "xxy", "b.txt": SLOW_LINE, "c.txt": "xxy"})
    async with project(text__seconds=0.2) as opened:
        result = await opened.ok("text.search", pattern=SLOW, regex=True)

    assert [("a.txt", 1, "xxy")] == found(result)
    assert "gave up after 0.2 s, in b.txt: a simpler pattern or narrower globs will help" == result["note"]


async def test_cancelled_search_ends_at_once(project: Any, root: Path):
    """The process that searches is killed, in the middle of a match."""
    write(root, **{"a.txt": SLOW_LINE})
    async with project(text__seconds=1000) as opened:
        with anyio.fail_after(PATIENCE), anyio.move_on_after(0.5) as scope:
            await opened.call("text.search", pattern=SLOW, regex=True)

    assert scope.cancelled_caught


async def test_strange_file_names_do_no_harm(project: Any, root: Path):
    """A name that is no UTF-8 is shown as well as it can be."""
    try:
        write(root, **{os.fsdecode(b"odd\xff.txt"): "hit"})
    except OSError:
        pytest.skip("this file system has no such names")
    async with project() as opened:
        assert [("odd\ufffd.txt", 1, "hit")] == found(await opened.ok("text.search", pattern="hit"))
        assert "odd\ufffd.txt" == (await opened.ok("text.find", glob="*.txt"))["files"][0]["path"]
        assert "hit" == (await opened.ok("text.read", file="odd\ufffd.txt"))["text"]
        assert 1 == len(found(await opened.ok("text.search", pattern="hit", path="odd\ufffd.txt")))
        write(root, **{os.fsdecode(b"odd\xfe.txt"): "other"})
        assert "there is no" in await opened.failed("text.read", file="odd\ufffd.txt")  # it could be either
        assert "there is no" in await opened.failed("text.read", file="none/odd\ufffd.txt")


async def test_folder_that_cannot_be_opened_is_noted(scan_module: ModuleType, root: Path):
    """One closed door does not end a walk."""
    walk = scan_module.Walk(root, root, scan_module.Globs([]))
    (root / "gone").mkdir()
    with os.scandir(root) as entries:
        entry = next(entries)
    (root / "gone").rmdir()

    assert [] == walk._listed(entry)
    assert ["1 folders could not be opened"] == walk.notes


async def test_walk_is_bounded(scan_module: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch):
    """In the number of files, and in depth."""
    monkeypatch.setattr(scan_module, "MOST_ENTRIES", 4)
    monkeypatch.setattr(scan_module, "MOST_DEPTH", 1)
    write(root, **{"a/b/c": "", "d": ""})

    walk = scan_module.Walk(root, root, scan_module.Globs([]))

    assert ["d"] == [file.name for file in walk]
    write(root, e="", f="")
    walk = scan_module.Walk(root, root, scan_module.Globs([]))
    assert ["d"] == [file.name for file in walk]
    assert [
        "stopped after 4 files and folders: give a narrower path",
        "1 folders that lie deeper than 1 were left out",
    ] == walk.notes


def test_scanner_answers_as_a_program(
    scan_module: ModuleType, root: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    """A question on standard input, an answer on standard output; what the caller did wrong is an answer too."""
    write(root, **{"a.txt": "hit"})
    bounds = {"regex": True, "case": "smart", "context": 0, "max_results": 9, "max_file_bytes": 99, "seconds": 9}
    asked = {"root": str(root), "start": str(root), "globs": [], "ignored": []}

    def ask(pattern: str) -> Any:
        read = iter([json.dumps({**asked, "query": {"pattern": pattern, **bounds}})])
        monkeypatch.setattr("sys.stdin", type("Input", (), {"read": lambda _: next(read)})())
        scan_module.main()
        return json.loads(capsys.readouterr().out)

    assert {"answer": {"matches": [{"path": "a.txt", "line": 1, "text": "hit"}], "files_searched": 1}} == ask("h.t")
    assert "no regular expression" in ask("(")["error"]


SEGMENTS = {"**": r"(?:[^/]+/)*", "*": r"[^/]*/", "a": "a/", "a*": r"a[^/]*/", "*.py": r"[^/]*\.py/", "?": r"[^/]/"}


@given(
    glob=st.lists(st.sampled_from(sorted(SEGMENTS)), min_size=1, max_size=5),
    way=st.lists(st.sampled_from(["a", "b", "ab", "c.py"]), min_size=1, max_size=5),
)
def test_globs_mean_what_a_regular_expression_would(scan_module: ModuleType, glob: list[str], way: list[str]):
    """`**` is any number of folders, `*` and `?` stay within one."""
    pattern = "".join(SEGMENTS[segment] for segment in glob)

    expected = re.fullmatch(pattern, "/".join(way) + "/") is not None
    assert expected == scan_module._fits(tuple(glob), tuple(way))


# --- find -----------------------------------------------------------------------------------------


async def test_files_are_found_by_name(project: Any, root: Path):
    """With size and time, ordered by path; a glob may start at the root or at the folder."""
    write(root, **{"src/b.py": "12345", "src/x/a.py": "", "c.md": ""})
    os.utime(root / "src/b.py", (0, 86_400))
    async with project() as opened:
        from_root = await opened.ok("text.find", glob="src/**/*.py")
        from_folder = await opened.ok("text.find", glob="*.py", path="src")
        nested = await opened.ok("text.find", glob="x/*.py", path="src")

    assert {"path": "src/b.py", "bytes": 5, "modified": "1970-01-02T00:00:00Z"} == from_root["files"][0]
    assert ["src/b.py", "src/x/a.py"] == [file["path"] for file in from_folder["files"]]
    assert from_root == from_folder
    assert ["src/x/a.py"] == [file["path"] for file in nested["files"]]


async def test_newest_files_come_first_when_asked(project: Any, root: Path):
    """The newest of all, not of the first few."""
    write(root, **dict.fromkeys("abc", ""))
    for age, name in enumerate("bca"):
        os.utime(root / name, (0, 1000 - age))
    async with project() as opened:
        result = await opened.ok("text.find", glob="*", order="newest", max_results=2)

    assert ["b", "c"] == [file["path"] for file in result["files"]]
    assert "there are more than 2: use a narrower glob, or raise max_results" == result["note"]


async def test_nothing_found_is_no_error(project: Any):
    """An empty list says it."""
    async with project() as opened:
        assert {"files": []} == await opened.ok("text.find", glob="*.nothing")


async def test_finding_stays_inside_the_project_and_refuses_useless_globs(project: Any, root: Path):
    """As searching does."""
    (root / "out").symlink_to(root.parent)
    async with project() as opened:
        assert {"files": []} == await opened.ok("text.find", glob="**/*.txt")
        assert "leads out" in await opened.failed("text.find", glob="*", path="..")
        assert "is no glob" in await opened.failed("text.find", glob="//")
        assert "there is no 'nowhere'" in await opened.failed("text.find", glob="*", path="nowhere")


# --- read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start, limit, expected",
    [
        (1, 500, (1, 5, "1\n2\n3\n4\n5", None)),
        (0, 1, (1, 1, "1", "lines follow: go on with start=2")),
        (2, 2, (2, 3, "2\n3", "lines follow: go on with start=4")),
        (4, 2, (4, 5, "4\n5", None)),
        (-2, 500, (4, 5, "4\n5", None)),
        (-4, 2, (2, 3, "2\n3", "lines follow: go on with start=4")),
        (-99, 500, (1, 5, "1\n2\n3\n4\n5", None)),
    ],
)
async def test_slice_of_a_file(project: Any, root: Path, start: int, limit: int, expected: Any):
    """From a line on, or counted from the end; the note says how to go on."""
    write(root, **{"a.txt": "1\r\n2\n3\n4\n5\n"})
    async with project() as opened:
        result = await opened.ok("text.read", file="a.txt", start=start, limit=limit)

    assert expected == (result["start"], result["end"], result["text"], result.get("note"))


async def test_empty_file_has_no_lines(project: Any, root: Path):
    """That is no error."""
    write(root, **{"a.txt": ""})
    async with project() as opened:
        assert {"path": "a.txt", "start": 1, "end": 0, "text": ""} == await opened.ok("text.read", file="a.txt")


async def test_overlong_lines_and_slices_are_cut(project: Any, root: Path):
    """A line of a million characters is one line; a slice is as long as a model reads."""
    write(root, **{"a.txt": "x" * 1_000_000 + "\nend\n", "b.txt": ("y" * 3000 + "\n") * 100})
    async with project() as opened:
        cut = await opened.ok("text.read", file="a.txt")
        long = await opened.ok("text.read", file="b.txt")
        rest = await opened.ok("text.read", file="b.txt", start=long["end"] + 1, limit=1)

    assert f"{'x' * 4000}…\nend" == cut["text"]
    assert (20, "lines follow: go on with start=21") == (long["end"], long["note"])
    assert (21, 21) == (rest["start"], rest["end"])


async def test_what_cannot_be_read_says_why(project: Any, root: Path):
    """Each with what to do, where there is something to do."""
    write(root, **{"binary.dat": b"\x00\x01", "short.txt": "1\n"})
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to(root.parent)
    async with project() as opened:
        told = {
            name: await opened.failed("text.read", file=name)
            for name in ("binary.dat", "pipe", ".", "no", "link", "a\0b")
        }
        beyond = await opened.failed("text.read", file="short.txt", start=7)

    assert "binary.dat cannot be read as text: it is binary" == told["binary.dat"]
    assert "pipe cannot be read as text: not a file" == told["pipe"]
    assert ". cannot be read as text: not a file" == told["."]
    assert "there is no 'no' in the project; text_find finds files by name" == told["no"]
    assert "leads out of the project" in told["link"]
    assert "not a usable path" in told["a\0b"]
    assert "short.txt ends before line 7; a negative start counts from its end" == beyond


async def test_file_that_becomes_a_link_is_not_followed(scan_module: ModuleType, root: Path):
    """What was checked is what is opened."""
    (root / "link").symlink_to(root)

    with pytest.raises(scan_module.Unreadable):
        scan_module.opened(root / "link")


async def test_commands_compose_by_raw(text_module: ModuleType, root: Path):
    """`.raw` is the plain function: it takes what would be injected, and raises."""
    paths = ConfigPaths.of(Settings.load(root, environ={}), {})

    with pytest.raises(SkillError, match="there is no 'x'"):
        text_module.read.raw("x", paths, None)


# --- nothing is left out without a word -----------------------------------------------------------


async def test_what_a_search_cannot_see_is_noted(project: Any, root: Path):
    """The end of an overlong line, text that is not UTF-8, and a file that is named and not text."""
    write(root, long="a" * 20_000 + "needle\n")
    (root / "latin").write_bytes("caf\xe9\n".encode("latin-1"))
    (root / "wide").write_bytes("needle\n".encode("utf-16"))
    async with project() as opened:
        found = await opened.ok("text.search", pattern="needle")
        accents = await opened.ok("text.search", pattern="café", path="latin")
        binary = await opened.ok("text.search", pattern="needle", path="wide")
    assert "1 files have long lines, of which only the first 10,000 characters were searched" == found["note"]
    assert "1 files are not UTF-8: only ASCII is found in them" == accents["note"]
    assert (0, "the file is binary, or not UTF-8, and was left out") == (binary["files_searched"], binary["note"])


async def test_lines_are_read_as_they_are(project: Any, root: Path):
    """Without the mark of a beginning; cut only where they are too long, and between characters; what is no UTF-8 is noted."""
    (root / "a").write_bytes(b"\xef\xbb\xbf" + b"x" * 4000 + b"\r\n" + "ä".encode() * 2001 + b"\nend")
    (root / "b").write_bytes(b"caf\xe9\n")
    (root / "c").write_bytes("\n".join(["x" + "ä" * 3000] * 2).encode())
    async with project() as opened:
        plain = await opened.ok("text.read", file="a", limit=1)
        cut = await opened.ok("text.read", file="a", start=2)
        latin = await opened.ok("text.read", file="b")
        middle = await opened.ok("text.read", file="c")
        assert "input" == (await opened.call("text.read", file="a", start=2**70)).kind
    note = "lines of more than 4,000 bytes were cut, and end with …"
    assert ("x" * 4000, "lines follow: go on with start=2") == (plain["text"], plain["note"])
    assert ("ä" * 2000 + "…\nend", note) == (cut["text"], cut["note"])
    assert "caf\ufffd" == latin["text"]
    assert "the file is not UTF-8" in latin["note"]
    assert ("\n".join(["x" + "ä" * 1999 + "…"] * 2), note) == (middle["text"], middle["note"])


async def test_files_are_found_in_folders_only(project: Any, root: Path):
    """A file does not fit a glob because it was named."""
    write(root, **{"a.md": ""})
    async with project() as opened:
        assert "'a.md' is a file; give the folder" in await opened.failed("text.find", glob="*.py", path="a.md")


def test_time_that_no_clock_shows_hides_no_file(text_module: ModuleType, scan_module: ModuleType, root: Path):
    write(root, a="")

    class Odd(type(root)):
        def lstat(self) -> Any:
            return os.stat_result([*super().lstat()[:8], 1 << 50, 0])

    found = text_module._described(scan_module.File(Odd(root / "a"), "a"))
    assert (9999, "a") == (found["modified"].year, found["path"])
