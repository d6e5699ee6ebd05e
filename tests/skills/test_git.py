"""The git skill: what it tells of a repository, and that it neither changes nor runs anything."""

from __future__ import annotations

import dataclasses
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from patience import PATIENCE

from prowess import ConfigPaths, Settings, SkillError

WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_COMMITTER_DATE": "2024-05-31T12:00:00+02:00",
    "GIT_AUTHOR_DATE": "2024-05-31T12:00:00+02:00",
}
OPTIONS = [
    *("-c", "init.defaultBranch=main"),
    *("-c", "protocol.file.allow=always"),
    *("-c", "maintenance.auto=false"),  # a process after each commit
]
Git = Callable[..., str]


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine has configured for git is nobody's business here."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def run_git(folder: Path, *arguments: str, **environment: str) -> str:
    command = ["git", *OPTIONS, *arguments]
    variables = {**os.environ, **WHO, **environment}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert 0 == done.returncode or "conflict" in done.stdout.lower(), done.stderr
    return done.stdout.strip()


def quietly(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=False, capture_output=True)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def git(root: Path) -> Git:
    """Run git in a fresh repository at the project root."""
    run_git(root, "init", "-q")
    return lambda *arguments, **environment: run_git(root, *arguments, **environment)


@pytest.fixture
def commit(git: Git, root: Path) -> Callable[..., str]:
    """Write files, commit them, and give the hash."""

    def commit(message: str, _environment: dict[str, str] | None = None, **files: str | bytes | None) -> str:
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", message, **(_environment or {}))
        head = (root / ".git/HEAD").read_text().removeprefix("ref: ").strip()
        return (root / ".git" / head).read_text().strip() if head.startswith("refs/") else head

    return commit


# --- status ---------------------------------------------------------------------------------------


async def test_status_of_a_fresh_repository(project: Any, root: Path, git: Git):
    """No commit yet, and everything is untracked."""
    (root / "a b.txt").touch()
    async with project() as opened:
        result = await opened.ok("git.status")

    assert {"branch": "main", "files": [{"path": "a b.txt", "unstaged": "untracked"}]} == result


async def test_status_tells_staged_from_unstaged(project: Any, root: Path, git: Git, commit: Any):
    """One entry for each file, with what happened on both sides of the index."""
    names = ["both", "deleted", "old name", "staged", "clean"]
    first = commit("one", **{name: f"{name}\n" * 5 for name in names})
    for name in ("both", "staged"):
        (root / name).write_text("changed\n")
    git("add", "both", "staged")
    git("mv", "old name", "new\nname")
    (root / "both").write_text("again\n")
    (root / "deleted").unlink()
    async with project() as opened:
        result = await opened.ok("git.status")
        only = await opened.ok("git.status", path="both")

    both = {"path": "both", "staged": "modified", "unstaged": "modified"}
    assert [
        both,
        {"path": "deleted", "unstaged": "deleted"},
        {"path": "new\nname", "staged": "renamed", "renamed_from": "old name"},
        {"path": "staged", "staged": "modified"},
    ] == result["files"]
    assert (first, "main", [both]) == (result["commit"], result["branch"], only["files"])


async def test_status_tells_where_a_branch_stands(project: Any, root: Path, git: Git, commit: Any):
    """Ahead and behind of its upstream; on a detached HEAD there is no branch."""
    start = commit("start")
    git("branch", "-q", "base")
    commit("here")
    git("checkout", "-q", "-b", "work", "--track", "base")
    commit("mine 1")
    commit("mine 2")
    git("branch", "-q", "-f", "base", "main")
    async with project() as opened:
        tracked = await opened.ok("git.status")
        git("checkout", "-q", "--detach", start)
        detached = await opened.ok("git.status")

    assert ("work", "base", 2, 1) == tuple(tracked[key] for key in ("branch", "upstream", "ahead", "behind"))
    assert {"commit": start, "files": []} == detached


async def test_status_shows_conflicts(project: Any, root: Path, git: Git, commit: Any):
    """A file that waits for a decision is conflicted."""
    commit("base", a="base\n")
    git("checkout", "-q", "-b", "other")
    commit("theirs", a="theirs\n")
    git("checkout", "-q", "main")
    commit("ours", a="ours\n")
    git("merge", "-q", "other")
    async with project() as opened:
        assert [{"path": "a", "unstaged": "conflicted"}] == (await opened.ok("git.status"))["files"]


async def test_long_status_is_cut_and_says_so(project: Any, root: Path, git: Git):
    """Five hundred files are listed."""
    for number in range(501):
        (root / f"{number}").touch()
    async with project() as opened:
        result = await opened.ok("git.status")

    assert (500, "more than 500 files differ: give a path") == (len(result["files"]), result["note"])


# --- log ------------------------------------------------------------------------------------------


async def test_log_lists_commits(project: Any, git: Git, commit: Any):
    """The latest first, with author, date, subject and what points to it."""
    first = commit("first: one\n\nbody", a="1")
    second = commit("second", a="2")
    git("tag", "v1", first)
    async with project() as opened:
        result = await opened.ok("git.log")

    common = {"author": "Ada", "date": "2024-05-31T12:00:00+02:00"}
    assert {
        "commits": [
            {"commit": second, "subject": "second", "refs": ["HEAD -> main"], **common},
            {"commit": first, "subject": "first: one", "refs": ["tag: v1"], **common},
        ]
    } == result


async def test_log_goes_on_where_it_ended(project: Any, commit: Any):
    """The note says how."""
    for number in range(5):
        commit(f"{number}")
    async with project() as opened:
        begin = await opened.ok("git.log", max_count=2)
        end = await opened.ok("git.log", max_count=2, skip=4)

    assert ["4", "3"] == [one["subject"] for one in begin["commits"]]
    assert "older commits follow: go on with skip=2" == begin["note"]
    assert (["0"], None) == ([one["subject"] for one in end["commits"]], end.get("note"))


async def test_log_is_narrowed(project: Any, git: Git, commit: Any):
    """By path (through renames), author, message, date and range; texts are texts, not patterns."""
    bob = {"GIT_AUTHOR_NAME": "Bob (B.)", "GIT_COMMITTER_DATE": "2020-01-01T00:00:00+00:00"}
    commit("fix: [x] b", _environment=bob, b="1")
    commit("add a", a="1\n2\n3\n")
    git("mv", "a", "c")
    commit("rename")
    async with project() as opened:

        async def subjects(**narrowed: Any) -> list[str]:
            return [one["subject"] for one in (await opened.ok("git.log", **narrowed))["commits"]]

        assert ["rename", "add a"] == await subjects(path="c")
        assert ["fix: [x] b"] == await subjects(author="bob (b.")
        assert ["fix: [x] b"] == await subjects(message="[X]")
        assert ["rename", "add a"] == await subjects(since="2021-01-01")
        assert ["fix: [x] b"] == await subjects(until="2021-01-01")
        assert ["rename"] == await subjects(revision="HEAD~1..")
        assert [] == await subjects(path="nothing")
        assert [] == await subjects(author="--output=x")


# --- diff and show --------------------------------------------------------------------------------


async def test_diff_shows_what_is_not_staged_what_is_and_both(project: Any, root: Path, git: Git, commit: Any):
    """As `git diff`, `git diff --cached` and `git diff HEAD` do."""
    commit("one", a="a\n", b="b\n")
    (root / "a").write_text("A\n")
    git("add", "a")
    (root / "b").write_text("B\nB\n")
    async with project() as opened:
        unstaged = await opened.ok("git.diff")
        staged = await opened.ok("git.diff", staged=True)
        both = await opened.ok("git.diff", revision="HEAD")

    changed_a, changed_b = {"path": "a", "added": 1, "deleted": 1}, {"path": "b", "added": 2, "deleted": 1}
    assert ([changed_b], [changed_a], [changed_a, changed_b]) == (unstaged["files"], staged["files"], both["files"])
    assert unstaged["patch"].startswith("diff --git a/b b/b\n")
    assert unstaged["patch"].endswith("--- a/b\n+++ b/b\n@@ -1 +1,2 @@\n-b\n+B\n+B\n")
    assert "note" not in unstaged


async def test_nothing_changed_is_an_empty_diff(project: Any, root: Path, commit: Any):
    """Also where only the time of a file has changed."""
    commit("one", a="a\n")
    os.utime(root / "a", (0, 0))
    async with project() as opened:
        assert {"files": [], "patch": ""} == await opened.ok("git.diff")


async def test_diff_compares_commits(project: Any, git: Git, commit: Any):
    """Two dots compare the ends, three dots begin where the branches parted."""
    commit("base", a="1\n")
    git("checkout", "-q", "-b", "feature")
    commit("mine", mine="2\n")
    git("checkout", "-q", "main")
    commit("theirs", theirs="3\n")
    async with project() as opened:

        async def paths(revision: str) -> list[str]:
            return [file["path"] for file in (await opened.ok("git.diff", revision=revision))["files"]]

        assert ["mine", "theirs"] == await paths("main..feature")
        assert ["mine"] == await paths("main...feature")
        assert ["mine"] == await paths("...feature")
        assert "leave staged out" in await opened.failed("git.diff", revision="main..feature", staged=True)


async def test_renamed_and_binary_files_are_told(project: Any, git: Git, commit: Any):
    """A rename keeps its old path, a binary file has no lines."""
    commit("one", old="1\n2\n3\n", data=b"\0\1")
    git("mv", "old", "new")
    commit("two", data=b"\0\2")
    async with project() as opened:
        result = await opened.ok("git.diff", revision="HEAD~1..HEAD")

    assert [{"path": "data"}, {"path": "new", "renamed_from": "old", "added": 0, "deleted": 0}] == result["files"]


async def test_long_patch_is_cut_and_says_so(project: Any, root: Path, git: Git, commit: Any):
    """To max_chars; with 0 only the files are asked for; and git itself is stopped when it writes far too much."""
    commit("one", a="", b="")
    (root / "a").write_text("line\n" * 1000)
    async with project() as opened:
        cut = await opened.ok("git.diff", max_chars=100)
        files = await opened.ok("git.diff", max_chars=0)
        (root / "b").write_text("x" * 6_000_000)
        huge = await opened.ok("git.diff")

    assert 100 == len(cut["patch"])
    assert cut["note"].startswith("the patch was cut at 100 of 6,0")
    assert {"files": [{"path": "a", "added": 1000, "deleted": 0}], "patch": ""} == files
    assert "of more than 3,9" in huge["note"]
    assert ["a", "b"] == [file["path"] for file in huge["files"]]


async def test_many_changed_files_are_cut_too(git_module: ModuleType):
    """A list that breaks off in the middle is read up to there."""
    told = ["1\t2\ta", "0\t0\t", "old", "new", "3\t4"]
    files, patch = git_module._changed("\0".join(told))

    assert [
        {"path": "a", "added": 1, "deleted": 2},
        {"path": "new", "renamed_from": "old", "added": 0, "deleted": 0},
    ] == files
    assert "" == patch


async def test_show_tells_of_one_commit(project: Any, git: Git, commit: Any):
    """Message, parents and changes; also of the first commit, and of a merge against its first parent."""
    first = commit("first\n\nwith a body", a="1\n")
    git("checkout", "-q", "-b", "side")
    side = commit("side", b="1\n")
    git("checkout", "-q", "main")
    main = commit("main", c="1\n")
    git("merge", "-q", "--no-edit", "side")
    async with project() as opened:
        root_commit = await opened.ok("git.show", revision=first)
        merge = await opened.ok("git.show")

    assert {
        "commit": first,
        "author": "Ada",
        "message": "first\n\nwith a body",
        "parents": [],
    }.items() <= root_commit.items()
    assert [{"path": "a", "added": 1, "deleted": 0}] == root_commit["files"]
    assert root_commit["patch"].endswith("+1\n")
    assert ([main, side], ["b"]) == (merge["parents"], [file["path"] for file in merge["files"]])


# --- blame and read -------------------------------------------------------------------------------


async def test_blame_groups_lines_by_commit(project: Any, root: Path, commit: Any):
    """Lines that are not committed yet have no commit."""
    first = commit("first", a="1\n2\n3\n")
    second = commit("second", a="1\nII\n3\n")
    (root / "a").write_text("1\nII\n3\nfour\n")
    async with project() as opened:
        result = await opened.ok("git.blame", file="a")
        older = await opened.ok("git.blame", file="a", revision=first)

    facts = {"author": "Ada", "date": "2024-05-31T12:00:00+02:00"}
    one, two = {"commit": first, "subject": "first", **facts}, {"commit": second, "subject": "second", **facts}
    assert [
        {"start": 1, "lines": ["1"], **one},
        {"start": 2, "lines": ["II"], **two},
        {"start": 3, "lines": ["3"], **one},
        {"start": 4, "lines": ["four"]},
    ] == result["parts"]
    assert [{"start": 1, "lines": ["1", "2", "3"], **one}] == older["parts"]


async def test_blame_goes_on_where_it_ended(project: Any, commit: Any):
    """And says so only where lines follow."""
    commit("one", a="1\n2\n3\n")
    async with project() as opened:
        begin = await opened.ok("git.blame", file="a", limit=2)
        end = await opened.ok("git.blame", file="a", start=3, limit=2)

        assert ([["1", "2"]], "lines follow: go on with start=3") == (
            [part["lines"] for part in begin["parts"]],
            begin["note"],
        )
        assert ([["3"]], None) == ([part["lines"] for part in end["parts"]], end.get("note"))
        assert "has only 3 lines" in await opened.failed("git.blame", file="a", start=9)
        assert "no such path" in await opened.failed("git.blame", file="nothing")


async def test_blame_of_overlong_lines_is_refused(project: Any, commit: Any):
    """It would be cut somewhere, and say wrong things."""
    commit("one", a="x" * 5_000_000)
    async with project() as opened:
        assert "too long for one answer" in await opened.failed("git.blame", file="a")


def test_time_zones_of_blame(git_module: ModuleType):
    """East and west of Greenwich."""
    assert "1969-12-31T19:30:00-04:30" == git_module._date(0, "-0430")
    assert "1970-01-01T05:45:00+05:45" == git_module._date(0, "+0545")


async def test_file_is_read_as_it_was(project: Any, root: Path, commit: Any):
    """Also one that is gone."""
    first = commit("one", **{"d/a": "1\n2\n3\n", "data": b"\0"})
    commit("two", **{"d/a": None})
    async with project() as opened:
        result = await opened.ok("git.read", file="d/a", revision="HEAD~1", start=2, limit=1)

        expected = {"path": "d/a", "commit": first, "start": 2, "end": 2, "text": "2"}
        assert {**expected, "note": "lines follow: go on with start=3"} == result
        assert "there is no file 'd/a' at HEAD" == await opened.failed("git.read", file="d/a", revision="HEAD")
        assert "there is no file 'd' at HEAD~1" == await opened.failed("git.read", file="d", revision="HEAD~1")
        assert "d/a has only 3 lines at HEAD~1" == await opened.failed(
            "git.read", file="d/a", revision="HEAD~1", start=9
        )
        assert "data is binary at HEAD" == await opened.failed("git.read", file="data", revision="HEAD")


# --- what it must not do --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "revision", ["--output=stolen", "-p", "HEAD:a", ":/one", "HEAD a", "HEAD\nx", "..--output=x", "HEAD..-p", "a\x00b"]
)
@pytest.mark.parametrize("command", ["git.log", "git.diff", "git.show"])
async def test_revision_is_never_an_option(project: Any, root: Path, commit: Any, command: str, revision: str):
    """What could be taken for anything but a revision is refused before git sees it."""
    commit("one", a="1")
    async with project() as opened:
        assert "is no revision; use a branch" in await opened.failed(command, revision=revision)
    assert not (root / "stolen").exists()


@pytest.mark.parametrize("command", ["git.log", "git.diff", "git.show"])
async def test_unknown_revision_says_where_to_look(project: Any, commit: Any, command: str):
    """And not in the words of git."""
    commit("one")
    async with project() as opened:
        assert "there is no commit 'v9'; git_log shows those there are" == await opened.failed(command, revision="v9")


@pytest.mark.parametrize("command", ["git.log", "git.show"])
async def test_repository_without_commits_says_so(project: Any, git: Git, command: str):
    """HEAD leads nowhere yet."""
    async with project() as opened:
        assert "there are no commits yet" == await opened.failed(command)


async def test_folder_without_repository_says_so(project: Any, root: Path, monkeypatch: pytest.MonkeyPatch):
    """So does a machine without git."""
    async with project() as opened:
        assert f"{root} is not in a git repository" == await opened.failed("git.status")
        monkeypatch.setenv("PATH", str(root))
        assert "git is not installed" in await opened.failed("git.status")


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "link"])
async def test_path_leads_nowhere_else(project: Any, root: Path, commit: Any, path: str):
    """Not by dots, not by a symbolic link."""
    commit("one", a="1")
    (root / "link").symlink_to(root.parent)
    async with project() as opened:
        for command in ("git.status", "git.log", "git.diff", "git.show"):
            assert "leads out of the project" in await opened.failed(command, path=path)
        for command in ("git.blame", "git.read"):
            assert "leads out of the project" in await opened.failed(command, file=path, revision="HEAD")


async def test_path_is_no_pattern(project: Any, commit: Any):
    """`:(top)` and `*` are names of files, if anything."""
    commit("one", **{"a": "1", "*": "1"})
    async with project() as opened:
        assert [] == (await opened.ok("git.log", path=":(top)"))["commits"]
        assert ["*"] == [file["path"] for file in (await opened.ok("git.show", path="*"))["files"]]


async def test_project_in_a_larger_repository_sees_itself_only(project: Any, root: Path, git: Git, commit: Any):
    """Paths count from the project, and what lies beside it is not shown."""
    first = commit("both", **{"inside/a": "1\n", "outside/b": "1\n"})
    commit("outside", **{"outside/b": "2\n"})
    for name in ("inside/a", "inside/new", "outside/b"):
        (root / name).write_text("3\n")
    async with project(root / "inside") as opened:
        assert ["a", "new"] == [file["path"] for file in (await opened.ok("git.status"))["files"]]
        assert ["a"] == [file["path"] for file in (await opened.ok("git.diff"))["files"]]
        assert ["a"] == [file["path"] for file in (await opened.ok("git.show", revision=first))["files"]]
        assert [first] == [one["commit"] for one in (await opened.ok("git.log"))["commits"]]
        assert "1" == (await opened.ok("git.read", file="a", revision="HEAD"))["text"]
        assert 1 == len((await opened.ok("git.blame", file="a"))["parts"])
        assert "leads out" in await opened.failed("git.diff", path="../outside/b")


async def test_repository_that_keeps_its_files_elsewhere_is_refused(project: Any, root: Path, git: Git, commit: Any):
    """`core.worktree` would make any folder of the machine part of the project."""
    commit("one", a="1")
    (root.parent / "elsewhere").mkdir()
    git("config", "core.worktree", str(root.parent / "elsewhere"))
    async with project() as opened:
        for command in ("git.status", "git.diff", "git.log"):
            assert "which is not where the project is" in await opened.failed(command)


async def test_nothing_of_the_repository_is_run(project: Any, root: Path, git: Git, commit: Any, tmp_path: Path):
    """A repository may come from a stranger: what its configuration names stays where it is."""
    marker = tmp_path / "it ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{marker}'\ncat\n")
    script.chmod(0o755)
    commit("one", **{"a.txt": "1\n", ".gitattributes": "*.txt filter=evil diff=evil\n*.md filter=e=v\n", "b.md": "1\n"})
    (root / ".git/more").write_text(f'[filter "evil"]\n\tclean = {script} clean\n\trequired = true\n')
    for key, value in {
        "core.fsmonitor": str(script),
        "core.hooksPath": str(tmp_path),
        "core.pager": str(script),
        "diff.external": str(script),
        "diff.evil.command": str(script),
        "diff.evil.textconv": str(script),
        "filter.e=v.process": f"{script} process",
        "include.path": "more",
        "gpg.program": str(script),
        "log.showSignature": "true",
        "blame.ignoreRevsFile": "/etc/passwd",
        "diff.orderFile": "/etc/passwd",
    }.items():
        git("config", key, value)
    (tmp_path / "post-index-change").symlink_to(script)
    for name in ("a.txt", "b.md"):
        (root / name).write_text("changed\n")

    async with project() as opened:
        for command in ("status", "diff", "log", "show"):
            await opened.ok(f"git.{command}")
        assert "no list of commits" in await opened.failed("git.blame", file="a.txt")
        git("config", "--unset", "blame.ignoreRevsFile")
        await opened.ok("git.blame", file="a.txt")
        await opened.ok("git.read", file="a.txt", revision="HEAD")
    assert not marker.exists(), marker.read_text()

    quietly("git", "diff", folder=root)
    assert marker.exists(), "this test proves nothing: git itself runs nothing either"


async def test_nothing_of_the_repository_is_changed(project: Any, root: Path, commit: Any):
    """Not even the index, which git likes to refresh."""
    commit("one", a="1\n", b="1\n")
    os.utime(root / "a", (0, 0))
    (root / "b").write_text("2\n")
    before = contents(root)
    async with project() as opened:
        for command in ("status", "diff", "log", "show"):
            await opened.ok(f"git.{command}")
        await opened.ok("git.diff", revision="HEAD")
        await opened.ok("git.blame", file="a")

    assert before == contents(root)


async def test_environment_of_the_host_is_not_gits(
    project: Any, root: Path, commit: Any, monkeypatch: pytest.MonkeyPatch
):
    """`GIT_DIR` and its like would lead elsewhere, and some would run things."""
    commit("one", a="1")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND"):
        monkeypatch.setenv(name, "/nowhere")
    async with project() as opened:
        assert [] == (await opened.ok("git.status"))["files"]


async def test_cancelled_call_kills_git(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No process stays behind: what it held open is closed."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "git").write_text(f"#!/bin/sh\nexec 3> '{tmp_path}/pipe'\necho started >&3\nexec sleep 600\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with anyio.fail_after(PATIENCE):
        async with project() as opened, anyio.create_task_group() as tasks:
            tasks.start_soon(opened.call, "git.status")
            with anyio.CancelScope(shield=True):
                async with await anyio.open_file(tmp_path / "pipe") as pipe:
                    assert "started\n" == await pipe.readline()
                    tasks.cancel_scope.cancel()
                    assert "" == await pipe.read()


async def test_what_git_says_reaches_the_model(git_module: ModuleType, root: Path, git: Git):
    """Its first complaint, without what surrounds it; a long one does not block."""
    repository = await git_module._repository(ConfigPaths.of(Settings.load(root, environ={}), {}))

    with pytest.raises(SkillError, match=r"^git frobnicate: 'frobnicate' is not a git command"):
        await repository.run("frobnicate")
    assert "failed without a word" == git_module._complaint(bytearray())


# --- what must not bring it down ------------------------------------------------------------------

READING = ("status", "log", "diff", "show")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("named", ["missing", "/dev/zero", "/etc/passwd", ".git/pipe", ".", ""])
@pytest.mark.parametrize(
    "key",
    ["diff.orderFile", "core.attributesFile", "core.excludesFile", "mailmap.file", "mailmap.blob", "commit.template"],
)
async def test_file_that_the_configuration_names_is_not_read(
    project: Any, root: Path, commit: Any, key: str, named: str
):
    """A missing file breaks nothing, a device fills no memory, a pipe makes nobody wait."""
    commit("one", a="1\n")
    (root / "a").write_text("2\n")
    os.mkfifo(root / ".git/pipe")
    run_git(root, "config", key, named)
    async with project() as opened:
        for command in READING:
            await opened.ok(f"git.{command}")
        await opened.ok("git.blame", file="a")
        await opened.ok("git.read", file="a", revision="HEAD")


@pytest.mark.parametrize(
    "named", ["missing", "/dev/zero", "/etc/passwd", ".git/pipe", ".", "link", "text", "huge", "~/x"]
)
async def test_unusable_list_of_ignored_commits_is_named(project: Any, root: Path, git: Git, commit: Any, named: str):
    """Blame says which key is wrong, and never what is in the file; the other commands do not care."""
    commit("one", a="1\n", text="these are not hashes\n", huge="# \n" * 500_000)
    os.mkfifo(root / ".git/pipe")
    (root / "link").symlink_to("/etc/passwd")
    git("config", "blame.ignoreRevsFile", named)
    async with project() as opened:
        told = await opened.failed("git.blame", file="a")
        for command in READING:
            await opened.ok(f"git.{command}")

    assert "blame.ignoreRevsFile names" in told
    assert "no list of commits" in told
    assert "git config --unset-all blame.ignoreRevsFile" in told
    assert "not hashes" not in told
    assert "root:" not in told


async def test_ignored_commits_are_looked_through(project: Any, root: Path, git: Git, commit: Any):
    """A list in the repository works as in git, also from a folder below."""
    first = commit("first", **{"sub/a": "x = 1\n"})
    second = commit("format", **{"sub/a": "x  =  1\n"})
    (root / ".ignored").write_text(f"# formatting\n{second}\n")
    git("config", "blame.ignoreRevsFile", ".ignored")
    async with project() as opened:
        assert [first] == [part["commit"] for part in (await opened.ok("git.blame", file="sub/a"))["parts"]]
        async with project(root / "sub") as below:
            assert [first] == [part["commit"] for part in (await below.ok("git.blame", file="a"))["parts"]]
        git("config", "--unset", "blame.ignoreRevsFile")
        assert [second] == [part["commit"] for part in (await opened.ok("git.blame", file="sub/a"))["parts"]]


@pytest.fixture
def short_of_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Change how long git may take, in every copy of the skill that is loaded."""

    def change(seconds: float) -> None:
        for module in [module for name, module in sys.modules.items() if name.rpartition(".")[2] == "git"]:
            if hasattr(module, "MOST_SECONDS"):
                monkeypatch.setattr(module, "MOST_SECONDS", seconds)

    return change


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [".git/info/attributes", ".git/info/exclude", ".git/info/sparse-checkout", ".git/index"]
)
async def test_endless_file_of_the_repository_is_bounded(project: Any, root: Path, commit: Any, name: str):
    """Git reads it into memory up to the limit, or up to the time; the failure names the file."""
    commit("one", a="1\n")
    (root / "a").write_text("2\n")
    (root / "new").touch()
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to("/dev/zero")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    async with project() as opened:
        outcomes = [await opened.call(f"git.{command}") for command in ("status", "diff")]

    assert {"ok", "failed"} >= {outcome.kind for outcome in outcomes}
    assert all(name.rpartition("/")[2] in outcome.text for outcome in outcomes if outcome.kind == "failed")
    assert ["ok", "failed"][name == ".git/info/attributes"] == outcomes[1].kind or name == ".git/index"
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss <= max(before, 700_000)  # kilobytes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [".git/info/exclude", ".git/info/attributes", ".git/config", ".gitignore"])
async def test_pipe_in_the_place_of_a_file_is_bounded(
    project: Any, root: Path, commit: Any, short_of_time: Callable[[float], None], name: str
):
    """Git would wait for ever for somebody to write; it is stopped, and the failure names the file."""
    commit("one", a="1\n")
    (root / "a").write_text("2\n")
    (root / "new").touch()
    async with project() as opened:
        await opened.ok("git.status")
        short_of_time(3)
        (root / name).unlink(missing_ok=True)
        os.mkfifo(root / name)
        outcomes = [await opened.call(f"git.{command}") for command in ("status", "diff")]

    failed = [outcome for outcome in outcomes if outcome.kind != "ok"]
    assert failed
    for outcome in failed:
        assert "failed" == outcome.kind
        assert "took more than 3 s and was stopped" in outcome.text
        assert f"{name} should be an ordinary file" in outcome.text


@pytest.mark.parametrize(
    "key, value",
    [
        ("diff.renameLimit", "many"),
        ("core.compression", "x"),
        ("core.bare", "maybe"),
        ("diff.renames", "x"),
        ("core.sharedRepository", "x"),
    ],
)
async def test_broken_configuration_is_named(project: Any, root: Path, commit: Any, key: str, value: str):
    """What git does not understand it names, and that reaches the model."""
    commit("one", a="1\n")
    with (root / ".git/config").open("a") as file:
        section, _, name = key.partition(".")
        file.write(f"[{section}]\n\t{name} = {value}\n")
    async with project() as opened:
        outcomes = [await opened.call(f"git.{command}") for command in READING]

    assert {"ok", "failed"} >= {outcome.kind for outcome in outcomes}
    assert all(key.lower() in outcome.text.lower() for outcome in outcomes if outcome.kind == "failed")


@pytest.mark.parametrize("included", ["/dev/zero", "/etc/passwd", "/dev/full", "."])
async def test_included_configuration_that_is_none_fails_readably(
    project: Any, root: Path, git: Git, commit: Any, included: str
):
    """Git refuses it, and shows nothing of it."""
    commit("one", a="1\n")
    git("config", "include.path", included)
    async with project() as opened:
        outcomes = [await opened.call(f"git.{command}") for command in READING]

    assert {"ok", "failed"} >= {outcome.kind for outcome in outcomes}
    assert not any("root:" in outcome.text for outcome in outcomes)


NAMES = [
    "-p",
    "--output=x",
    "new\nline",
    "tab\there",
    "a..b",
    ":(top)x",
    "*",
    "ü",
    'quo"te',
    "back\\slash",
    " ",
    "HEAD",
    "@{u}",
]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_of_a_file_is_only_a_name(project: Any, root: Path, commit: Any, name: str):
    """Never an option, a pattern, a revision or two lines."""
    first = commit("one", **{name: "1\n"})
    (root / name).write_text("2\n")
    async with project() as opened:
        assert [{"path": name, "unstaged": "modified"}] == (await opened.ok("git.status", path=name))["files"]
        assert [{"path": name, "added": 1, "deleted": 1}] == (await opened.ok("git.diff", path=name))["files"]
        assert [first] == [one["commit"] for one in (await opened.ok("git.log", path=name))["commits"]]
        assert [{"path": name, "added": 1, "deleted": 0}] == (await opened.ok("git.show", path=name))["files"]
        assert [["2"]] == [part["lines"] for part in (await opened.ok("git.blame", file=name))["parts"]]
        assert "1" == (await opened.ok("git.read", file=name, revision="HEAD"))["text"]


async def test_names_and_texts_that_are_not_utf8_are_shown_all_the_same(
    project: Any, root: Path, git: Git, commit: Any
):
    """With a replacement character, in valid JSON."""
    commit("one", **{"a": b"\xff\n", os.fsdecode(b"\xff\xfe"): b"\xff\n"})
    (root / "a").write_bytes(b"\xfe\n")
    async with project() as opened:
        shown = await opened.ok("git.show")
        await opened.ok("git.diff")
        await opened.ok("git.status")
        await opened.ok("git.blame", file="a")
        await opened.ok("git.read", file="a", revision="HEAD")

    assert ["a", "\ufffd\ufffd"] == sorted(file["path"] for file in shown["files"])


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/".join(["d"] * 3000), "pipe", "device"])
async def test_odd_paths_do_not_crash(project: Any, root: Path, commit: Any, path: str):
    """They are refused, or there is nothing about them."""
    commit("one", a="1\n")
    os.mkfifo(root / "pipe")
    (root / "device").symlink_to("/dev/zero")
    async with project() as opened:
        for command in READING:
            assert (await opened.call(f"git.{command}", path=path)).kind in ("ok", "failed")
        for command in ("blame", "read"):
            assert "failed" == (await opened.call(f"git.{command}", file=path, revision="HEAD")).kind
        assert "failed" == (await opened.call("git.blame", file=path)).kind


@pytest.mark.timeout(600)
async def test_huge_things_are_cut(
    project: Any, root: Path, git: Git, commit: Any, short_of_time: Callable[[float], None]
):
    """A message, subjects, references, a sparse file of 1 TB."""
    (root.parent / "message").write_text("s" * 5_000_000)
    commit("one", a="1\n" * 90_000, b="x" * 5_000_000)
    for _ in range(2):
        git("commit", "-q", "--allow-empty", "-F", str(root.parent / "message"))
    for number in range(60):
        git("tag", f"t{number}")
    os.truncate(root / "a", 10**12)
    async with project() as opened:
        log = await opened.ok("git.log")
        shown = await opened.ok("git.show")
        part = await opened.ok("git.read", file="a", revision="HEAD", limit=2000)
        assert "is too large at HEAD" in await opened.failed("git.read", file="b", revision="HEAD", start=2)
        await opened.ok("git.status")
        assert "out of memory" in (await opened.failed("git.blame", file="a")).lower()
        short_of_time(1)
        assert "took more than 1 s" in await opened.failed("git.diff")

    assert (1, 1000, 50) == tuple(
        len(x) for x in (log["commits"], log["commits"][0]["subject"], log["commits"][0]["refs"])
    )
    assert "older commits follow: go on with skip=1" == log["note"]
    assert (20_000, "the message was cut at 20,000 characters") == (len(shown["message"]), shown["note"])
    assert (2000, "lines follow: go on with start=2001") == (part["end"], part["note"])


async def test_times_that_do_not_exist_are_left_out(project: Any, root: Path, git: Git, commit: Any):
    """Old tools have written commits whose time zone is none."""
    commit("one", a="1\n")
    odd = root.parent / "odd"
    odd.write_text(git("cat-file", "commit", "HEAD").replace("+0200", "+9900") + "\n")
    made = git("hash-object", "-t", "commit", "-w", "--literally", str(odd))
    git("update-ref", "HEAD", made)
    async with project() as opened:
        (part,) = (await opened.ok("git.blame", file="a"))["parts"]
        await opened.ok("git.log")

    assert ("one", None) == (part["subject"], part.get("date"))


async def test_repository_that_changes_underneath_fails_readably(project: Any, root: Path, git: Git, commit: Any):
    """Objects that are gone, a HEAD that is garbage, an index that is torn."""
    first = commit("one", a="1\n")
    async with project() as opened:
        for name in (".git/index", ".git/HEAD", f".git/objects/{first[:2]}/{first[2:]}"):
            kept = (root / name).read_bytes()
            (root / name).chmod(0o644)
            (root / name).write_bytes(b"garbage")
            for command in READING:
                assert (await opened.call(f"git.{command}")).kind in ("ok", "failed")
            (root / name).write_bytes(kept)
        shutil.rmtree(root / ".git")
        assert "is not in a git repository" in await opened.failed("git.status")


async def test_relative_folder_on_the_path_is_not_searched(
    project: Any, root: Path, commit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """`PATH=.:…` would run a program that the project brings along."""
    commit("one", a="1\n")
    (root / "git").write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    (root / "git").chmod(0o755)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}:")
    async with project() as opened:
        await opened.ok("git.status")
    assert not (tmp_path / "ran").exists()


async def test_project_in_a_folder_with_an_odd_name(project: Any, root: Path, git: Git, commit: Any):
    """A line break in the way to the project is part of its name."""
    inside = root / "a\nb" / "-c"
    commit("one", **{"a\nb/-c/file": "1\n"})
    (inside / "file").write_text("2\n")
    async with project(inside) as opened:
        assert ["file"] == [file["path"] for file in (await opened.ok("git.status"))["files"]]
        assert ["file"] == [file["path"] for file in (await opened.ok("git.diff"))["files"]]
        assert "1" == (await opened.ok("git.read", file="file", revision="HEAD"))["text"]


async def test_folder_that_looks_like_a_bare_repository_is_a_folder(project: Any, root: Path, git: Git, commit: Any):
    """A stranger could bring one along, with a configuration of its own."""
    commit("one", a="1\n")
    run_git(root, "init", "-q", "--bare", "inner")
    async with project(root / "inner") as opened:
        assert "failed" == (await opened.call("git.status")).kind


async def test_each_git_process_is_bounded(
    git_module: ModuleType, root: Path, git: Git, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """In memory, whichever command it is."""
    (tmp_path / "git").write_text("#!/bin/sh\nulimit -d\n")
    (tmp_path / "git").chmod(0o755)
    repository = await git_module._repository(ConfigPaths.of(Settings.load(root, environ={}), {}))
    bounded = dataclasses.replace(repository, environment={**repository.environment, "PATH": str(tmp_path)})

    assert str(git_module.MOST_MEGABYTES * 1024) == (await bounded.run("anything")).text.strip()


@pytest.mark.timeout(600)
async def test_child_of_git_that_holds_the_pipe_delays_nothing(
    git_module: ModuleType, root: Path, git: Git, tmp_path: Path
):
    """When git is stopped for writing too much, what it has started may live on."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "git").write_text(f"#!/bin/sh\nread x < '{tmp_path}/pipe' >/dev/null &\nexec yes\n")
    (tmp_path / "git").chmod(0o755)
    repository = await git_module._repository(ConfigPaths.of(Settings.load(root, environ={}), {}))
    path = f"{tmp_path}:{repository.environment['PATH']}"
    output = await dataclasses.replace(repository, environment={**repository.environment, "PATH": path}).run("x")
    (tmp_path / "pipe").write_text("over\n")

    assert output.cut


# --- what is missing, and what is odd -------------------------------------------------------------


async def test_shallow_clone_says_what_it_lacks(project: Any, root: Path, git: Git, commit: Any):
    """Its oldest commit looks like the first one, and like the author of all that is older."""
    for number in range(1, 4):
        commit(f"c{number}", a="".join(f"{line}\n" for line in range(number)))
    clone = root.parent / "clone"
    run_git(root.parent, "clone", "-q", "--depth=2", root.as_uri(), str(clone))
    async with project(clone) as opened:
        noted = [
            await opened.ok("git.log"),
            await opened.ok("git.show", revision="HEAD~1"),
            await opened.ok("git.blame", file="a"),
        ]
        first = await opened.ok("git.log", max_count=1)
        newest = await opened.ok("git.show")
        assert "this is a shallow clone" in await opened.failed("git.show", revision="HEAD~2")
    assert all("this is a shallow clone without older commits" in result["note"] for result in noted)
    assert "older commits follow: go on with skip=1" == first["note"]
    assert "note" not in newest


async def test_partial_clone_says_what_it_lacks(project: Any, root: Path, git: Git, commit: Any):
    """It is not fetched, and a file that is missing here is not one that the commit lacks."""
    commit("one", a="1\n")
    git("config", "uploadpack.allowFilter", "true")
    clone = root.parent / "clone"
    run_git(root.parent, "clone", "-q", "--filter=blob:none", "--no-checkout", root.as_uri(), str(clone))
    async with project(clone) as opened:
        for command, arguments in (("read", {"file": "a", "revision": "HEAD"}), ("show", {})):
            assert "this is a partial clone" in await opened.failed(f"git.{command}", **arguments)


async def test_link_is_a_file_of_its_own(project: Any, root: Path, git: Git, commit: Any):
    """What was a file and became a link is told of under its name, and not what the link leads to now."""
    first = commit("file", a="mine\n", b="other\n")
    (root / "a").unlink()
    (root / "a").symlink_to("b")
    commit("link")
    async with project() as opened:
        before = await opened.ok("git.read", file="a", revision=first)
        now = await opened.ok("git.read", file="a", revision="HEAD")
        log = await opened.ok("git.log", path="a")
        diff = await opened.ok("git.diff", revision=f"{first}..", path="a")
    assert "mine" == before["text"]
    assert ("b", "the file is a symbolic link: this is where it leads") == (now["text"], now["note"])
    assert ["link", "file"] == [each["subject"] for each in log["commits"]]
    assert "-mine" in diff["patch"]


async def test_diff_shows_files_in_conflict(project: Any, root: Path, git: Git, commit: Any):
    """With the marks, compared with our side; also beside other changes, and as a list alone."""
    commit("one", a="1\n", b="1\n")
    git("checkout", "-q", "-b", "other")
    commit("theirs", a="2\n")
    git("checkout", "-q", "main")
    commit("ours", a="3\n")
    git("merge", "other")
    (root / "b").write_text("more\n")
    async with project() as opened:
        result = await opened.ok("git.diff")
        only = await opened.ok("git.diff", path="a")
        files = await opened.ok("git.diff", max_chars=0)
    conflict, changed = {"path": "a", "added": 4, "deleted": 0}, {"path": "b", "added": 1, "deleted": 1}
    assert [conflict, changed] == result["files"] == files["files"]
    assert "" == files["patch"]
    assert [conflict] == only["files"]
    assert "* Unmerged path a\n" in only["patch"]
    assert "+<<<<<<< HEAD\n 3\n" in only["patch"]


async def test_configuration_too_large_to_look_through_is_refused(
    project: Any, root: Path, git: Git, commit: Any, git_module: ModuleType
):
    """A filter may hide behind megabytes of it, and too many of them cannot be switched off. Nothing of it is run."""
    commit("one", **{".gitattributes": "* filter=evil\n", "a": "1\n"})
    (root / "a").write_text("2\n")
    plain = (root / ".git/config").read_text()
    run = f'[filter "evil"]\n\tclean = touch {root.parent}/ran; cat\n'
    name = "x" * 60
    padding = "".join(f'[x "{name}{number}"]\n\ty = 1\n' for number in range(git_module.MOST_BYTES // 60))
    many = "".join(f'[filter "{number}"]\n\tclean = cat\n' for number in range(git_module.MOST_FILTERS + 1))
    long = f'[filter "{"x" * 200_000}"]\n\tclean = cat\n'
    async with project() as opened:
        for more, told in ((padding, "is too large"), (many, "is too large"), (long, "git cannot be started")):
            (root / ".git/config").write_text(plain + more + run)
            for command in ("status", "diff"):
                assert told in await opened.failed(f"git.{command}")
    assert not (root.parent / "ran").exists()


async def test_log_says_how_a_date_was_read(project: Any, commit: Any):
    """Git takes any text for a date, and adds the time of now to a date."""
    at = {"GIT_COMMITTER_DATE": "2024-05-31T00:00:01"}
    commit("one", _environment=at)
    async with project() as opened:
        day = await opened.ok("git.log", since="2024-05-31")
        weeks = await opened.ok("git.log", since="1 week ago")
        any_text = await opened.ok("git.log", until="the last sprint")
        wrong = await opened.ok("git.log", since="2024-13-45")
    assert (["one"], False) == ([each["subject"] for each in day["commits"]], "note" in day)
    assert "since '1 week ago' was read as 20" in weeks["note"]
    assert "until 'the last sprint' was read as 20" in any_text["note"]
    assert "since '2024-13-45' was read as 20" in wrong["note"]


@pytest.mark.parametrize("argument", ["author", "message", "since", "until"])
@pytest.mark.parametrize("text", ["a\0b", "a\nb"])
async def test_log_takes_texts_of_one_line(project: Any, commit: Any, argument: str, text: str):
    """To git, each line would be a text of its own."""
    commit("a")
    async with project() as opened:
        assert f"{argument} has a line break" in await opened.failed("git.log", **{argument: text})
        assert "input" == (await opened.call("git.log", skip=2**31)).kind


async def test_nothing_to_tell_of_a_path_has_a_reason(project: Any, root: Path, git: Git, commit: Any):
    """A name that is misspelt, or a file of a submodule, whose repository is another one."""
    commit("one", a="1\n")
    run_git(root, "clone", "-q", root.as_uri(), "sub")
    git("add", "sub")
    commit("two")
    (root / "sub/a").write_text("changed\n")
    async with project() as opened:
        for command in ("status", "log", "diff"):
            assert "there is no 'b' in the project now" == (await opened.ok(f"git.{command}", path="b"))["note"]
            result = await opened.ok(f"git.{command}", path="sub/a")
            assert "sub is a repository of its own, and is not looked into" == result["note"]
        assert "note" not in await opened.ok("git.status", path="a")
        assert "there is no file 'sub' at HEAD" == await opened.failed("git.read", file="sub", revision="HEAD")


async def test_histories_without_a_common_commit_say_so(project: Any, git: Git, commit: Any):
    commit("one", a="1\n")
    git("checkout", "-q", "--orphan", "other")
    commit("two", a="2\n")
    async with project() as opened:
        assert "main and HEAD have no commit in common" == await opened.failed("git.diff", revision="main...")


async def test_long_lines_are_marked_where_they_are_cut(project: Any, commit: Any):
    commit("one", a="x" * 5000 + "\nshort\n")
    async with project() as opened:
        read = await opened.ok("git.read", file="a", revision="HEAD")
        blame = await opened.ok("git.blame", file="a")
    lines = ["x" * 999 + "…", "short"]
    assert (lines, lines) == (read["text"].split("\n"), blame["parts"][0]["lines"])
    assert read["note"] == blame["note"] == "lines that end with … were cut"


async def test_repository_of_another_user_says_how_to_allow_it(project: Any, root: Path, git: Git, commit: Any):
    commit("one")
    try:
        for path in (root, root / ".git"):
            os.chown(path, 12345, -1)
    except PermissionError:
        pytest.skip("only root can give files away")
    async with project() as opened:
        assert f"git config --global --add safe.directory {root}" in await opened.failed("git.status")


async def test_bare_repository_is_named(project: Any, root: Path, git: Git, commit: Any):
    commit("one")
    async with project(root / ".git") as opened:
        assert "is a bare repository, which has no files" in await opened.failed("git.log")


async def test_program_that_git_lfs_would_run_is_refused(project: Any, root: Path, git: Git, commit: Any):
    """The filter of Git LFS is the user's, and its extensions may be those of the repository."""
    commit("one", a="1\n")
    git("config", "lfs.extension.evil.clean", "./evil.sh")
    async with project() as opened:
        for command in ("status", "diff", "log"):
            told = await opened.failed(f"git.{command}")
            assert "git config --unset-all lfs.extension.evil.clean" in told
