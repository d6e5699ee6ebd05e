"""Look at the project's git repository: status, history, changes, and who wrote what.

Changes nothing, not even git's index, and runs nothing that the repository's own configuration names: a repository may
come from a stranger. Its clean filters, fsmonitor, hooks, text converters and external diffs are off, and so are the
files outside of it that its configuration names. Filters that the user has configured for all repositories (Git LFS) work.
Every git process is bounded in time, memory and output. Needs git 2.31 or newer.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from subprocess import DEVNULL
from typing import Annotated, Final, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

import anyio
from anyio.abc import ByteReceiveStream, Process
from pydantic import Field

from prowess import ConfigPaths, SkillError, skill_command

MOST_BYTES: Final = 4_000_000  # that git may write for one answer; then it is stopped
MOST_FILES: Final = 500  # listed in one answer
MOST_FILTERS: Final = 500  # in the configuration of the repository; each is switched off with a variable
MOST_LINE_CHARS: Final = 1_000
MOST_SKIPPED: Final = 1_000_000_000  # git counts with 31 bits
MOST_MESSAGE_CHARS: Final = 20_000  # of one commit
MOST_REFS: Final = 50  # of one commit
MOST_SLICE_CHARS: Final = 60_000  # of one file
MOST_COMPLAINT_BYTES: Final = 10_000
MOST_REST_SECONDS: Final = 0.2  # for what is left in the pipe of a git that was stopped
MOST_MEGABYTES: Final = 512  # of memory for one git process; Linux enforces this
MOST_SECONDS: Final = 30.0  # for one git process
MOST_IGNORED_REVISIONS_BYTES: Final = 1_000_000  # of a file that blame.ignoreRevsFile names

# A shell sets the limit, because Python can do that only between fork and exec, which is not safe beside other threads.
# RLIMIT_DATA counts what git allocates and not the pack files that it maps, which may be huge.
LIMITED: Final = ("/bin/sh", "-c", 'ulimit -d "$0" 2>/dev/null; exec "$@"', str(MOST_MEGABYTES * 1024))

VARIABLES: Final = {
    "LC_ALL": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` would refresh the index
    "GIT_LITERAL_PATHSPECS": "1",  # a path is a path: no globs, no `:(top)`
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # a partial clone would fetch what it lacks,
    "GIT_ALLOW_PROTOCOL": "none",  # also with a git that is older than the variable above
}
KEPT_VARIABLES: Final = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
CONFIGURATION: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "diff.autoRefreshIndex": "false",  # `git diff` writes the index, whatever GIT_OPTIONAL_LOCKS says
    "log.showSignature": "false",  # would run what gpg.program names
    "status.submoduleSummary": "false",  # would run git in submodules, whose configuration is another stranger's
    "diff.orderFile": os.devnull,
    "safe.bareRepository": "explicit",  # files of the project that look like a repository are files
    "core.preloadIndex": "false",  # threads need memory
    "index.threads": "1",
    "core.bigFileThreshold": "16m",  # larger files are binary to a diff
}
FILES: Final = {  # what a repository names as a file to read, and what is read in its place
    "core.attributesfile": os.devnull,
    "core.excludesfile": os.devnull,
    "mailmap.file": os.devnull,
    "mailmap.blob": "",
}
READ_BY_GIT: Final = (
    ".gitattributes",
    ".gitignore",
    ".mailmap",
    ".git/info/attributes",
    ".git/info/exclude",
    ".git/config",
)
FILTER: Final = re.compile(r"filter\..+\.(clean|smudge|process|required)", re.DOTALL)
LFS_EXTENSION: Final = "lfs.extension."  # the filter of Git LFS, which the user has configured, runs what these name
DIFF_OPTIONS: Final = (
    *("--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "--relative", f"-O{os.devnull}"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty"),
    *("--inter-hunk-context=0", "--numstat", "-z"),
)
SHALLOW: Final = "this is a shallow clone without older commits; the user can get them: git fetch --unshallow"
EMPTY_TREES: Final = {  # what a first commit is compared with, by the length of a hash
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
UNUSABLE_REVISION: Final = re.compile(r"^-|\.\.|[\s:\x00-\x1f\x7f]")

Revision: TypeAlias = Annotated[str, Field(min_length=1, max_length=500)]
Change: TypeAlias = Literal["added", "modified", "deleted", "renamed", "copied", "retyped", "untracked", "conflicted"]
CHANGES: Final[dict[str, Change]] = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "retyped",
}


# --- running git ----------------------------------------------------------------------------------


class Output(NamedTuple):
    """What git wrote, and whether it was stopped because that was too much."""

    text: str
    cut: bool


class Refused(SkillError):
    """What git itself refused, and neither we nor the system: it read everything that it wanted to read."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that the project is in. `top` is its folder, `prefix` the way from there to the project."""

    paths: ConfigPaths
    environment: dict[str, str]
    top: Path
    prefix: str = ""
    shallow: bool = False
    """Whether older commits are missing."""

    async def run(self, *arguments: str) -> Output:
        """Run git without a shell between us and its arguments. Raises `Refused` with what it complained of, or `SkillError`."""
        git = shutil.which("git", path=self.environment["PATH"])
        if git is None:
            raise SkillError("git is not installed, or not on the PATH of Prowess")
        command = [*(LIMITED if os.name == "posix" else ()), git, "--no-pager", *arguments]
        out, complaint, cut, code = bytearray(), bytearray(), False, 0
        with anyio.move_on_after(MOST_SECONDS) as limit:
            opening = anyio.open_process(command, cwd=self.paths.project_root, env=self.environment, stdin=DEVNULL)
            async with await _started(opening) as process:
                assert process.stdout is not None  # noqa: S101 - both are pipes
                assert process.stderr is not None  # noqa: S101 - both are pipes
                async with anyio.create_task_group() as reading:
                    reading.start_soon(_drain, process.stderr, complaint)
                    cut = await _collect(process.stdout, out, MOST_BYTES)
                    if cut:
                        process.kill()
                        with anyio.move_on_after(MOST_REST_SECONDS):
                            await _drain(process.stdout, bytearray(MOST_COMPLAINT_BYTES))  # to its end, which closes it
                        reading.cancel_scope.cancel()  # a child of git may hold the other end of the pipe
                while cut and process.returncode is None:  # noqa: ASYNC110 - before anyio 4.15, `wait` waits for that child
                    await anyio.sleep(0.01)
                code = await process.wait()
        if limit.cancelled_caught:
            raise SkillError(f"git {arguments[0]} took more than {MOST_SECONDS:g} s and was stopped{self._suspects()}")
        if code and not cut:
            raise self._failure(arguments[0], _complaint(complaint), crashed=code < 0)
        return Output(out.decode("utf-8", "replace"), cut)

    def _failure(self, command: str, told: str, *, crashed: bool) -> SkillError:
        """What a git that failed has told, and where we know it, why."""
        if crashed or "ut of memory" in told or "unable to create thread" in told:
            reason = f"it crashed, or needed more than {MOST_MEGABYTES} MB of memory: {told}{self._suspects()}"
            return SkillError(f"git {command}: {reason}")
        if "promisor remote" in told or "lazy fetching" in told:
            reason = "this is a partial clone that lacks what this needs, and nothing is fetched here"
            return SkillError(f"git {command}: {told}; {reason}")
        return Refused(f"git {command}: {told}")

    def _suspects(self) -> str:
        """Names the files that make git read without end, if there are any."""
        odd = [name for name in READ_BY_GIT if (self.top / name).exists() and not (self.top / name).is_file()]
        return f"; {' and '.join(odd)} should be an ordinary file" if odd else ""

    async def commit(self, revision: str) -> str:
        """The full hash of a commit. Nothing else that a caller sent as a revision ever reaches git's other commands."""
        if UNUSABLE_REVISION.search(revision):
            raise SkillError(f"{revision!r} is no revision; use a branch, a tag, a hash, HEAD~2, or the like")
        try:
            found = await self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except Refused as error:
            if revision == "HEAD":
                raise SkillError("there are no commits yet") from error
            known = f"; {SHALLOW}" if self.shallow else "; git_log shows those there are"
            raise SkillError(f"there is no commit {revision!r}{known}") from error
        return found.text.strip()

    async def ends(self, revision: str) -> tuple[str | None, str]:
        """The hashes of `a..b`, or of a single commit. `a...b` begins where the two parted."""
        first, dots, last = revision.partition("...") if "..." in revision else revision.partition("..")
        if not dots:
            return None, await self.commit(revision)
        begin, end = await self.commit(first or "HEAD"), await self.commit(last or "HEAD")
        if dots == "...":
            try:
                begin = (await self.run("merge-base", begin, end)).text.strip()
            except Refused as error:
                why = f"; {SHALLOW}" if self.shallow else ""
                raise SkillError(f"{first or 'HEAD'} and {last or 'HEAD'} have no commit in common{why}") from error
        return begin, end

    def file(self, path: str) -> str:
        """A path as git takes it: from the project root, and checked to be inside. To git, a link is a file of its own."""
        found, named = self.paths.inside(path), self.paths.project_root / path
        if os.path.islink(named):  # noqa: PTH114 - Path.is_symlink raises where a folder must not be entered
            found = self.paths.inside(named.parent) / named.name
        return Path(os.path.relpath(found, self.paths.project_root)).as_posix()

    def only(self, path: str) -> list[str]:
        """The end of a command line: only this path, and only the project where the repository is larger."""
        file = self.file(path)
        return ["--"] if file == "." and not self.prefix else ["--", file]

    def why_nothing(self, path: str) -> list[str]:
        """Why there may be nothing to tell of a path, for a note."""
        named = self.paths.project_root / self.file(path)
        for folder in (named, *named.parents):
            if folder == self.paths.project_root or not folder.is_relative_to(self.paths.project_root):
                break
            if os.path.lexists(folder / ".git"):
                return [f"{shown(folder, self.paths)} is a repository of its own, and is not looked into"]
        return [] if os.path.lexists(named) else [f"there is no {path!r} in the project now"]


def shown(path: Path, paths: ConfigPaths) -> str:
    """A path as text, from the project root."""
    return os.fsencode(path.relative_to(paths.project_root)).decode("utf-8", "replace")


async def _started(opening: Awaitable[Process]) -> Process:
    """The process, unless the system refuses to start one."""
    try:
        return await opening
    except OSError as error:
        raise SkillError(f"git cannot be started: {error.strerror}") from error


async def _repository(paths: ConfigPaths) -> Repository:
    """The repository of the project, with everything neutralized in its configuration that runs or reads something else."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    # A relative folder on the PATH would be one of the project: its `git` is not ours.
    kept["PATH"] = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))
    bare = Repository(paths, {**kept, **VARIABLES, **_as_variables(CONFIGURATION)}, paths.project_root)
    try:
        told = await bare.run("rev-parse", "--is-shallow-repository", "--show-cdup", "--show-prefix")
    except Refused as error:
        told = str(error)
        if "not a git repository" in told:
            raise SkillError(f"{paths.project_root} is not in a git repository") from error
        if "cannot use bare repository" in told:
            raise SkillError(
                f"{paths.project_root} is a bare repository, which has no files; use a clone of it"
            ) from error
        if owned := re.search(r"dubious ownership in repository at '(.*)'", told):
            allow = f"git config --global --add safe.directory {owned[1]}"
            raise SkillError(f"{told}, which belongs to another user; the user can allow it: {allow}") from error
        raise
    shallow, up, prefix = told.text.removesuffix("\n").split("\n", 2)  # this way around: a prefix may have line breaks
    top = _resolved(paths.project_root / up)
    if not _same(Path(top, prefix), paths.project_root):
        raise SkillError(f"the repository keeps its files in {top}, which is not where the project is")
    environment = {**bare.environment, **_as_variables({**CONFIGURATION, **await _neutralized(bare)})}
    return Repository(paths, environment, top, prefix, shallow == "true")


async def _neutralized(bare: Repository) -> dict[str, str]:
    """What takes the place of the repository's own configuration, where that names programs and files."""
    told = await bare.run("config", "-z", "--list", "--show-scope", "--name-only")
    listed = told.text.split("\0")
    scoped = zip(listed[::2], listed[1::2], strict=False)
    local = {name for scope, name in scoped if scope in ("local", "worktree")}
    filters = {name: "false" if name.endswith(".required") else "" for name in local if FILTER.fullmatch(name)}
    if told.cut or len(filters) > MOST_FILTERS:
        raise SkillError("the configuration of the repository is too large: its filters cannot all be switched off")
    if extension := next((name for name in sorted(local) if name.startswith(LFS_EXTENSION)), None):
        raise SkillError(
            f"the repository's configuration names a program that Git LFS would run, in {extension}; "
            f"the user can take it out: git config --unset-all {extension}"
        )
    return filters | {name: instead for name, instead in FILES.items() if name in local}


def _resolved(path: Path) -> Path:
    return path.resolve()


def _same(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def _as_variables(configuration: dict[str, str]) -> dict[str, str]:
    """Settings for git that win over every file, whatever characters are in their names."""
    variables = {"GIT_CONFIG_COUNT": str(len(configuration))}
    for number, (name, value) in enumerate(configuration.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


async def _collect(stream: ByteReceiveStream, into: bytearray, most: int) -> bool:
    """Read a stream to its end, or until it is too much."""
    async for chunk in stream:
        into += chunk
        if len(into) > most:
            del into[most:]
            return True
    return False


async def _drain(stream: ByteReceiveStream, into: bytearray) -> None:
    """Keep the beginning of a stream, and read the rest so that its writer does not wait for ever."""
    async for chunk in stream:
        into += chunk[: max(0, MOST_COMPLAINT_BYTES - len(into))]


def _complaint(said: bytearray) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines() or ["failed without a word"]
    fatal = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[0])
    return re.sub(r"^(fatal|error|git): ", "", fatal)


# --- status ---------------------------------------------------------------------------------------


class FileStatus(TypedDict):
    """A file that differs: `staged` from the last commit to the index, `unstaged` from there to the working tree."""

    path: str
    staged: NotRequired[Change]
    unstaged: NotRequired[Change]
    renamed_from: NotRequired[str]


class Status(TypedDict):
    """Where the working tree stands. No `branch` means a detached HEAD, no `commit` that there is none yet."""

    commit: NotRequired[str]
    branch: NotRequired[str]
    upstream: NotRequired[str]
    ahead: NotRequired[int]
    behind: NotRequired[int]
    files: list[FileStatus]
    note: NotRequired[str]


@skill_command(title="Git status", category="git", read_only=True, idempotent=True, open_world=False, timeout=60)
async def status(paths: ConfigPaths, path: str = ".") -> Status:
    """Show the branch and the files that differ from the last commit. Does not look into submodules.

    Args:
        path: Only this file or folder, relative to the project root.
    """
    repository = await _repository(paths)
    options = ["--porcelain=v2", "-z", "--branch", "--renames", "--untracked-files=normal", "--ignore-submodules=dirty"]
    told = await repository.run("status", *options, *repository.only(path))
    result = Status(files=[])
    entries = iter(told.text.split("\0")[:-1])
    for entry in entries:
        if entry.startswith("# branch."):
            _add_branch(result, *entry.removeprefix("# branch.").split(" ", 1))
        elif not entry.startswith("#"):
            result["files"].append(_file_status(entry, entries, repository.prefix))
    if told.cut or len(result["files"]) > MOST_FILES:
        result["note"] = f"more than {MOST_FILES} files differ: give a path"
        del result["files"][MOST_FILES:]
    elif not result["files"] and (notes := repository.why_nothing(path)):
        result["note"] = notes[0]
    return result


def _add_branch(result: Status, key: str, value: str) -> None:
    if key == "oid" and value != "(initial)":
        result["commit"] = value
    elif key == "head" and value != "(detached)":
        result["branch"] = value
    elif key == "upstream":
        result["upstream"] = value
    elif key == "ab" and "?" not in value:
        ahead, behind = value.split(" ")
        result["ahead"], result["behind"] = int(ahead), -int(behind)


def _file_status(entry: str, entries: Iterator[str], prefix: str) -> FileStatus:
    """One entry of porcelain version 2. That of a rename is followed by another: the path it had."""
    kind = entry[0]
    if kind == "?":
        return FileStatus(path=entry[2:].removeprefix(prefix), unstaged="untracked")
    fields = entry.split(" ", {"1": 8, "2": 9, "u": 10}[kind])
    result = FileStatus(path=fields[-1].removeprefix(prefix))
    if kind == "u":
        result["unstaged"] = "conflicted"
        return result
    for key, letter in zip(("staged", "unstaged"), fields[1], strict=True):
        if letter in CHANGES:
            result[key] = CHANGES[letter]
    if kind == "2":
        result["renamed_from"] = next(entries, "").removeprefix(prefix)
    return result


# --- log ------------------------------------------------------------------------------------------

LOG_FIELDS: Final = ("%H", "%an", "%aI", "%D", "%s")


class Commit(TypedDict):
    """A commit. `refs` are the branches and tags that point to it."""

    commit: str
    author: str
    date: str
    subject: str
    refs: NotRequired[list[str]]


class Log(TypedDict):
    """Commits, the latest first."""

    commits: list[Commit]
    note: NotRequired[str]


@skill_command(title="Git log", category="git", read_only=True, idempotent=True, open_world=False, timeout=60)
async def log(
    paths: ConfigPaths,
    revision: Revision = "HEAD",
    path: str = ".",
    *,
    author: Annotated[str | None, Field(max_length=200)] = None,
    message: Annotated[str | None, Field(max_length=200)] = None,
    since: Annotated[str | None, Field(max_length=100)] = None,
    until: Annotated[str | None, Field(max_length=100)] = None,
    skip: Annotated[int, Field(ge=0, le=MOST_SKIPPED)] = 0,
    max_count: Annotated[int, Field(ge=1, le=500)] = 20,
) -> Log:
    """List commits, the latest first.

    Args:
        revision: Where to begin: a branch, tag or hash; or a range like "main..feature".
        path: Only commits that changed this file or folder; a file is followed through its renames.
        author: Only commits of authors whose name or address contains this text.
        message: Only commits whose message contains this text.
        since: Only commits after a date, like "2024-05-31" or "2 weeks ago".
        until: Only commits before a date.
        skip: How many commits to leave out at the beginning, to go on with a long list.
        max_count: How many commits to give at most.
    """
    repository = await _repository(paths)
    begin, end = await repository.ends(revision)
    chosen = {"author": author, "message": message, "since": since, "until": until}
    if odd := next((name for name, value in chosen.items() if value and CONTROL.search(value)), None):
        raise SkillError(f"{odd} has a line break or another control character; give one line of text")
    notes: list[str] = []
    options = [f"--{name}={value}" for name, value in (("author", author), ("grep", message)) if value]
    for name, value in (("since", since), ("until", until)):
        if value:
            option, note = await _date_option(repository, name, value)
            options.append(option)
            notes += note
    follow = ["--follow"] if _is_file(paths.inside(path)) else []
    told = await repository.run(
        *("log", "-z", "--format=" + "%x00".join(LOG_FIELDS), "--encoding=UTF-8", "--no-color"),
        *("--fixed-strings", "--regexp-ignore-case", f"--skip={skip}", f"--max-count={max_count + 1}"),
        *(*options, *follow, f"{begin}..{end}" if begin else end, *repository.only(path)),
    )
    fields = told.text.split("\0")
    commits = [_commit(*record) for record in zip(*[iter(fields)] * len(LOG_FIELDS), strict=False)]
    result = Log(commits=commits[:max_count])
    if len(commits) > max_count or told.cut:
        notes.append(f"older commits follow: go on with skip={skip + len(result['commits'])}")
    elif repository.shallow:
        notes.append(SHALLOW)
    if not commits:
        notes += repository.why_nothing(path)
    if notes:
        result["note"] = "; ".join(notes)
    return result


async def _date_option(repository: Repository, name: str, value: str) -> tuple[str, list[str]]:
    """The option for a date, and a note on how git has read one that is not written in numbers: it takes any text for one."""
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        told = await repository.run("rev-parse", f"--{name}={value}")
        seconds = int(told.text.strip().rpartition("=")[2])
        try:
            taken = datetime.fromtimestamp(seconds, UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            raise SkillError(f"{value!r} is not a date; give one like 2024-05-31, or 2 weeks ago") from None
        return f"--{name}={value}", [f"{name} {value!r} was read as {taken}"]
    return f"--{name}={read.isoformat()}", []  # git would add the time of now to a date without one


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises where a folder must not be entered


def _commit(commit: str, author: str, date: str, refs: str, subject: str) -> Commit:
    result = Commit(commit=commit, author=_shortened(author), date=date, subject=_shortened(subject))
    if refs:
        result["refs"] = [_shortened(ref) for ref in refs.split(", ")[:MOST_REFS]]
    return result


def _shortened(line: str) -> str:
    """A line of a bounded length, with a mark where it was cut."""
    return line if len(line) <= MOST_LINE_CHARS else f"{line[: MOST_LINE_CHARS - 1]}…"


def _note_on_cut(lines: Iterable[str]) -> list[str]:
    return ["lines that end with … were cut"] if any(len(line) > MOST_LINE_CHARS for line in lines) else []


# --- diff and show --------------------------------------------------------------------------------


class ChangedFile(TypedDict):
    """A file that was changed, and by how many lines; a binary file has none."""

    path: str
    added: NotRequired[int]
    deleted: NotRequired[int]
    renamed_from: NotRequired[str]


class Diff(TypedDict):
    """The files that were changed, and how, as a unified diff."""

    files: list[ChangedFile]
    patch: str
    note: NotRequired[str]


class ShownCommit(Diff):
    """A commit, and what it changed; that of a merge against its first parent."""

    commit: str
    author: str
    date: str
    message: str
    parents: list[str]


MaxChars: TypeAlias = Annotated[int, Field(ge=0, le=200_000)]
Around: TypeAlias = Annotated[int, Field(ge=0, le=100)]


@skill_command(title="Git diff", category="git", read_only=True, idempotent=True, open_world=False, timeout=60)
async def diff(
    paths: ConfigPaths,
    revision: Revision | None = None,
    path: str = ".",
    *,
    staged: bool = False,
    context: Around = 3,
    max_chars: MaxChars = 20_000,
) -> Diff:
    """Show changes: in the working tree, in the index, or between commits.

    Without a revision: what is not staged yet, without new files. With a commit: the working tree compared with it. With a
    range: the two commits compared. A file in conflict is compared with our side. Does not look into submodules.

    Args:
        revision: A branch, tag or hash; or a range like "main..feature", or "main...feature" for the changes on feature.
        path: Only this file or folder, relative to the project root.
        staged: Whether to show what is staged, in the place of the working tree.
        context: How many unchanged lines to show around each change.
        max_chars: How long the patch may be; with 0 there is only the list of files.
    """
    repository = await _repository(paths)
    begin, end = await repository.ends(revision) if revision else (None, None)
    if begin and staged:
        raise SkillError("a range leaves no room for what is staged; give one revision, or leave staged out")
    compared = [commit for commit in (begin, end) if commit]
    options = ["--cached"] if staged else [] if compared else ["--ours"]
    return await _diff(repository, [*options, *compared], path, context, max_chars)


@skill_command(title="Git show", category="git", read_only=True, idempotent=True, open_world=False, timeout=60)
async def show(
    paths: ConfigPaths,
    revision: Revision = "HEAD",
    path: str = ".",
    *,
    context: Around = 3,
    max_chars: MaxChars = 20_000,
) -> ShownCommit:
    """Show one commit: its message, and what it changed.

    Args:
        revision: A branch, tag or hash.
        path: Only the changes to this file or folder, relative to the project root.
        context: How many unchanged lines to show around each change.
        max_chars: How long the patch may be; with 0 there is only the list of files.
    """
    repository = await _repository(paths)
    commit = await repository.commit(revision)
    told = await repository.run("log", "-1", "-z", "--format=%an%x00%aI%x00%P%x00%B", "--encoding=UTF-8", commit)
    author, date, parents, message = told.text.split("\0")[:4]
    before = parents.split(" ")[0] or EMPTY_TREES[len(commit)]
    shown = await _diff(repository, [before, commit], path, context, max_chars)
    message = message.strip()
    notes = [f"the message was cut at {MOST_MESSAGE_CHARS:,} characters"] * (len(message) > MOST_MESSAGE_CHARS)
    if repository.shallow and not parents:
        notes.append(f"{SHALLOW}, so all files may look new here")
    if notes:
        shown["note"] = "; ".join([*notes, *filter(None, [shown.get("note")])])
    return ShownCommit(
        commit=commit,
        author=_shortened(author),
        date=date,
        message=message[:MOST_MESSAGE_CHARS],
        parents=parents.split(),
        **shown,
    )


async def _diff(repository: Repository, what: list[str], path: str, context: int, max_chars: int) -> Diff:
    options = ["--patch", f"--unified={context}"] if max_chars else []
    told = await repository.run("diff", *DIFF_OPTIONS, *options, *what, *repository.only(path))
    files, patch = _changed(told.text)
    notes = repository.why_nothing(path) if not files else []
    if told.cut and not patch:
        notes.append(
            f"more than {len(files)} files were changed, {min(len(files), MOST_FILES)} are listed: give a path"
        )
    elif len(files) > MOST_FILES:
        notes.append(f"{len(files)} files were changed, {MOST_FILES} are listed")
    if patch and (told.cut or len(patch) > max_chars):
        whole = f"more than {len(patch):,}" if told.cut else f"{len(patch):,}"
        notes.append(f"the patch was cut at {max_chars:,} of {whole} characters: give a path, or raise max_chars")
    result = Diff(files=files[:MOST_FILES], patch=patch[:max_chars])
    if notes:
        result["note"] = "; ".join(notes)
    return result


def _changed(text: str) -> tuple[list[ChangedFile], str]:
    """What `--numstat --patch -z` wrote: an entry for each file (two for one in conflict), a zero byte, the patch."""
    files: dict[str, ChangedFile] = {}
    while "\0" in text and not text.startswith("\0"):
        entry, _, text = text.partition("\0")
        added, deleted, path = entry.split("\t", 2)
        file = ChangedFile(path=path)
        if not path:  # of a renamed file the two paths follow
            file["renamed_from"], _, text = text.partition("\0")
            file["path"], _, text = text.partition("\0")
        if added != "-":
            file["added"], file["deleted"] = int(added), int(deleted)
        files[file["path"]] = file
    return list(files.values()), text[1:] if text.startswith("\0") else ""


# --- blame and read -------------------------------------------------------------------------------

BLAMED: Final = re.compile(r"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?")


class BlamedLines(TypedDict):
    """Consecutive lines of one commit, from line `start` on. Without a `commit`, they are not committed yet."""

    start: int
    commit: NotRequired[str]
    author: NotRequired[str]
    date: NotRequired[str]
    subject: NotRequired[str]
    lines: list[str]


class Blame(TypedDict):
    """Who wrote which lines of a file."""

    path: str
    parts: list[BlamedLines]
    note: NotRequired[str]


@skill_command(title="Git blame", category="git", read_only=True, idempotent=True, open_world=False, timeout=60)
async def blame(
    file: str,
    paths: ConfigPaths,
    start: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int, Field(ge=1, le=2000)] = 200,
    revision: Revision | None = None,
) -> Blame:
    """Show which commit last changed each line of a file.

    Args:
        file: The file, relative to the project root.
        start: The first line, counted from 1.
        limit: How many lines to show at most.
        revision: The file as it was at this branch, tag or hash, in the place of the working tree.
    """
    repository = await _repository(paths)
    at = [await repository.commit(revision)] if revision else []
    await _check_ignored_revisions(repository)
    try:
        told = await repository.run(
            "blame", "--porcelain", "--no-textconv", f"-L{start},+{limit + 1}", *at, "--", repository.file(file)
        )
    except Refused as error:
        if "object name" in str(error):  # git quotes the line, which may be one of any file
            raise SkillError(f"git blame: {IGNORED} names a file that is no list of commits; {UNSET}") from None
        raise
    if told.cut:
        raise SkillError(f"the lines of {file} are too long for one answer; ask for fewer of them")
    parts = list(_blamed(told.text))
    result = Blame(path=file, parts=parts)
    notes: list[str] = []
    if sum(len(part["lines"]) for part in parts) > limit:
        parts[-1]["lines"].pop()
        result["parts"] = [part for part in parts if part["lines"]]
        notes.append(f"lines follow: go on with start={start + limit}")
    notes += _note_on_cut(line for part in parts for line in part["lines"])
    for part in parts:
        part["lines"] = [_shortened(line) for line in part["lines"]]
    if repository.shallow and "\nboundary\n" in told.text:
        notes.append(f"{SHALLOW}, so the lines of the oldest one may be older")
    if notes:
        result["note"] = "; ".join(notes)
    return result


IGNORED: Final = "blame.ignoreRevsFile"
UNSET: Final = f"mend that file, or `git config --unset-all {IGNORED}`"


async def _check_ignored_revisions(repository: Repository) -> None:
    """Refuse files of commits to ignore that git should not read. No other configuration takes their names back."""
    try:
        listed = await repository.run("config", "-z", "--type=path", "--get-all", IGNORED)
    except Refused:  # there are none
        return
    for name in filter(None, listed.text.split("\0")):
        if not _is_small_file_in(repository.top, name):
            raise SkillError(
                f"git blame: {IGNORED} names {name!r}, which is no list of commits in the repository; {UNSET}"
            )


def _is_small_file_in(top: Path, name: str) -> bool:
    file = Path(top, name).resolve()
    try:
        found = file.stat()
    except OSError:
        return False
    small = stat.S_ISREG(found.st_mode) and found.st_size <= MOST_IGNORED_REVISIONS_BYTES
    return small and file.is_relative_to(top)


def _blamed(text: str) -> Iterator[BlamedLines]:
    """What `blame --porcelain` wrote: facts about a commit come with its first line only."""
    known: dict[str, dict[str, str]] = {}
    part, before, commit = BlamedLines(start=0, lines=[]), "", ""
    for line in text.split("\n"):
        if found := BLAMED.fullmatch(line):
            commit = found[1]
            known.setdefault(commit, {})
            if commit != before:
                if before:
                    yield _with_facts(part, before, known[before])
                part, before = BlamedLines(start=int(found[2]), lines=[]), commit
        elif line.startswith("\t"):
            part["lines"].append(line[1:].rstrip("\r"))
        elif line:
            key, _, value = line.partition(" ")
            known[commit][key] = value
    if before:
        yield _with_facts(part, before, known[before])


def _with_facts(part: BlamedLines, commit: str, facts: dict[str, str]) -> BlamedLines:
    if commit.strip("0"):
        part["commit"] = commit
        part["author"] = facts["author"]
        with contextlib.suppress(ValueError, OverflowError):  # some old tools wrote times that do not exist
            part["date"] = _date(int(facts["author-time"]), facts["author-tz"])
        part["subject"] = facts["summary"]
    return part


def _date(seconds: int, zone: str) -> str:
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
    return datetime.fromtimestamp(seconds, timezone(-offset if zone[0] == "-" else offset)).isoformat()


class OldFile(TypedDict):
    """The lines of a file at a commit, from `start` to `end`, both counted from 1."""

    path: str
    commit: str
    start: int
    end: int
    text: str
    note: NotRequired[str]


@skill_command(title="Git read", category="git", read_only=True, idempotent=True, open_world=False, timeout=60)
async def read(
    file: str,
    revision: Revision,
    paths: ConfigPaths,
    start: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int, Field(ge=1, le=2000)] = 500,
) -> OldFile:
    """Read some lines of a file as it was at a commit.

    Args:
        file: The file, relative to the project root.
        revision: A branch, tag or hash.
        start: The first line to read, counted from 1.
        limit: How many lines to read at most.
    """
    repository = await _repository(paths)
    commit = await repository.commit(revision)
    name = repository.file(file)
    listed = (await repository.run("ls-tree", "-z", commit, "--", name)).text
    kind, _, blob = listed.partition("\t")[0].rpartition(" ")
    if name == "." or not kind.endswith(" blob"):
        raise SkillError(f"there is no file {file!r} at {revision}")
    told = await repository.run("cat-file", "blob", blob)
    if "\0" in told.text:
        raise SkillError(f"{file} is binary at {revision}")
    lines = told.text.removesuffix("\n").split("\n")
    if told.cut and len(lines) > 1:
        lines.pop()  # a part of a line
    wanted = [line.rstrip("\r") for line in lines[start - 1 :][:limit]]
    chosen = list(_bounded(map(_shortened, wanted)))
    if not chosen and told.cut:
        raise SkillError(f"{file} is too large at {revision}: only its first {len(lines):,} lines can be read")
    if not chosen:
        raise SkillError(f"{file} has only {len(lines)} lines at {revision}")
    result = OldFile(path=file, commit=commit, start=start, end=start + len(chosen) - 1, text="\n".join(chosen))
    notes = ["the file is a symbolic link: this is where it leads"] if kind.startswith("120000") else []
    if told.cut or len(lines) > result["end"]:
        notes.append(f"lines follow: go on with start={result['end'] + 1}")
    notes += _note_on_cut(wanted[: len(chosen)])
    if notes:
        result["note"] = "; ".join(notes)
    return result


def _bounded(lines: Iterable[str]) -> Iterator[str]:
    """As many lines as fit into one answer."""
    chars = 0
    for line in lines:
        chars += len(line)
        if chars > MOST_SLICE_CHARS:
            return
        yield line
