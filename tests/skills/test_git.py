"""The git skill: what it tells of a repository, and that it neither changes nor runs anything."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from prowess import ConfigPaths, Settings, SkillError

WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_COMMITTER_DATE": "2024-05-31T12:00:00+02:00",
    "GIT_AUTHOR_DATE": "2024-05-31T12:00:00+02:00",
}
Git = Callable[..., str]


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine has configured for git is nobody's business here."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def run_git(folder: Path, *arguments: str, **environment: str) -> str:
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments]
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
        return git("rev-parse", "HEAD")

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
        assert f"{root} is in no git repository" == await opened.failed("git.status")
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
    with anyio.fail_after(10):
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
