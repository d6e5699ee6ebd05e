"""Starts a worker under limits on this system, and reports limits that this system cannot enforce.

`system()` detects the mechanisms once: Landlock and seccomp on Linux, `sandbox-exec` on macOS. A `Confinement` is for one
worker: the command that starts it, its environment, and a private folder for temporary files. A limit that cannot be
enforced raises `Unenforceable`, unless the owner accepts that.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import functools
import json
import math
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import prowess
from prowess.daemons import start_thread
from prowess.errors import SettingsError
from prowess.frozen import frozen
from prowess.settings.limits import LOOPBACK, VARIABLE, Limits
from prowess_host.confinement.filters import MACHINES, OWN_PID, filter_for
from prowess_host.confinement.grants import Grant
from prowess_host.confinement.landlock import LEAST, SIGNALS, rights
from prowess_host.confinement.mac import profile_for

if TYPE_CHECKING:
    from prowess_host.confinement.loopback import Connections

__all__ = ["Confinement", "System", "Unenforceable", "check", "filtered_environment", "remove_left_behind", "system"]

_SETTING: Final = "sandbox.unenforced"
"""The setting that accepts limits which cannot be enforced."""
_THREADS: Final = 64
"""Threads for a worker and its libraries, added to the limit on processes, because the kernel counts both."""
_KEPT: Final = ("prowess.toml", "pyproject.toml", ".prowess")
_DESCRIPTORS: Final = 1024
_PREFIX: Final = "prowess-limited-"
"""The beginning of the names of folders for temporary files."""
_HIDDEN: Final = (errno.ENAMETOOLONG, errno.EACCES)
"""Errors of folders that are so deep, or unreadable, that they can only serve to hide files."""
_BLOCK: Final = 4096
"""Bytes that every file counts at least, because many small files fill a disk too."""
_LAUNCH: Final = str(Path(__file__).with_name("launch.py"))
_SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"
_HARMLESS: Final = frozenset(
    {
        *("PATH", "LANG", "LANGUAGE", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR", "USER", "LOGNAME", "SHELL"),
        *("PYTHONPATH", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
        *("PYTHONMALLOC", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "MPLBACKEND"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SYSTEMROOT"),
    }
)
"""Harmless variables, such as the language and the time zone."""
_SYSTEM: Final = (
    *("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/nix/store", "/etc/ld.so.cache", "/etc/ld.so.conf"),
    *(
        "/etc/ld.so.conf.d",
        "/etc/alternatives",
        "/etc/localtime",
        "/etc/timezone",
        "/etc/os-release",
        "/etc/mime.types",
    ),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/locale.alias", "/etc/fonts", "/etc/python3"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates"),
    *("/etc/magic", "/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems", "/sys/devices/system/cpu"),
)
"""Paths that every limited skill may read: libraries, programs, time zones, certificates."""
_NETWORK: Final = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/gai.conf",
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Unenforceable(OSError):
    """Limits that this system cannot enforce. The skill does not run."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(
            f"this system cannot enforce its limits: {'; '.join(reasons)}. Run it on a system that can, widen the limit, or "
            f"accept this with {_SETTING} = true"
        )


@frozen
class System:
    """The limits that this system can enforce."""

    kind: str = ""
    """`linux`, `darwin`, or empty for an unknown system."""
    machine: str = ""
    landlock: int = 0
    """The version of Landlock; 0 if the kernel has none."""
    is_root: bool = False
    groups: Path | None = None
    """The control group below which groups with a limit on processes can be made."""
    memory: Path | None = None
    """The control group below which groups with a limit on memory can be made."""
    sandbox_exec: bool = False

    def lacking(self, limits: Limits) -> list[str]:
        """The reasons why some limits cannot be enforced."""
        if self.kind == "darwin":
            return [] if self.sandbox_exec else [f"there is no {_SANDBOX_EXEC}"]
        if self.kind != "linux":
            return [f"Prowess cannot limit processes on {self.kind or 'this system'}"]
        reasons = list(self._lacking_on_linux())
        if limits.network == LOOPBACK and not reasons:
            from prowess_host.confinement.loopback import why_not  # only for those limits

            if why := why_not():
                reasons.append(f'network = "{LOOPBACK}": {why}')
        if limits.processes and self.is_root and self.groups is None:
            reasons.append(
                f"processes = {limits.processes}: the kernel counts processes of root only in a control group, and the host can "
                "write none; run the host as another user, or set processes = 0"
            )
        return reasons

    def _lacking_on_linux(self) -> Iterator[str]:
        if self.machine not in MACHINES:
            yield f"there is no filter of system calls for {self.machine}, only for {' and '.join(MACHINES)}"
        if self.landlock < LEAST:
            has = f"version {self.landlock}" if self.landlock else "none"
            yield f"Landlock {LEAST} is required (Linux 6.2 or later, with lsm=landlock), and this system has {has}"

    def in_words(self) -> str:
        """The mechanisms that enforce limits on this system, for people."""
        if self.kind == "darwin":
            return "sandbox-exec and resource limits (untested)"
        if self.landlock:
            return f"Landlock {self.landlock}, seccomp and resource limits"
        return "resource limits only"


@functools.cache
def system() -> System:
    """This system."""
    if sys.platform == "linux":
        return System("linux", platform.machine(), _landlock(), os.geteuid() == 0, _groups("pids"), _groups("memory"))
    return System(sys.platform, platform.machine(), sandbox_exec=os.access(_SANDBOX_EXEC, os.X_OK))


def _landlock() -> int:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        return max(int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)), 0)
    return 0


def _groups(controller: str) -> Path | None:
    """The control group of this process, if groups with limits of one kind can be made below it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == controller:
                folder = Path(f"/sys/fs/cgroup/{controller}{path}")
            elif not controllers and controller in _read(Path(f"/sys/fs/cgroup{path}/cgroup.subtree_control")).split():
                folder = Path(f"/sys/fs/cgroup{path}")
            else:
                continue
            if os.access(folder, os.W_OK):
                return folder
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except OSError:
        return ""


def filtered_environment(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The variables of a limited worker: harmless ones, those in its limits, and Prowess's own."""
    named = {*names, *_HARMLESS}
    return {name: value for name, value in environ.items() if name in named or name.startswith(("LC_", "_PROWESS_"))}


def check(grant: Grant) -> None:
    """Raise an error for limits that this system cannot enforce, or that a skill could change itself."""
    reasons = system().lacking(grant.limits)
    if reasons and not grant.unenforced:
        raise Unenforceable(reasons)
    kept = [*(grant.root / name for name in _KEPT), *grant.own]
    within = [grant.root / ".prowess", *grant.listed, *grant.guarded, *_code_of_host()] if grant.limits.write else []
    for name in grant.limits.read:
        _placed(grant.root, name)
    for name in grant.limits.write:
        path = Path(os.path.realpath(_placed(grant.root, name)))
        held = next((each for each in (*kept, *within) if Path(os.path.realpath(each)).is_relative_to(path)), None)
        if held is None:
            held = next((each for each in within if path.is_relative_to(os.path.realpath(each))), None)
        if held is not None:
            how = "holds" if Path(os.path.realpath(held)).is_relative_to(path) else "is in"
            raise SettingsError(
                f"write = {name!r} {how} {held}, which lets the skill lift its own limits: name another folder"
            )


def _code_of_host() -> list[Path]:
    """Folders with code that runs without limits: the interpreter of the host, its packages, and Prowess."""
    installed = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib", "scripts"))
    return [*map(Path, installed), Path(prowess.__file__).parent, Path(__file__).parent.parent]


def _placed(root: Path, name: str) -> Path:
    """An absolute path for a path in the limits."""
    try:
        return root / Path(name).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"{name!r} in the limits is in the home of an unknown user: name another path") from error


@dataclass(slots=True)
class Confinement:
    """The confinement of one worker. Create it before the worker starts, and close it after the worker has ended."""

    grant: Grant
    on: System = field(default_factory=system)
    temporary: Path = field(init=False)
    """The private folder of the worker, removed at its end."""
    _lock: int = field(init=False)
    """Shows that the folder is in use, also to the hosts that come after this one was killed."""
    _groups: list[Path] = field(init=False, default_factory=list[Path])
    _connections: Connections | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        reasons = self.on.lacking(self.limits)
        if reasons and not self.grant.unenforced:
            raise Unenforceable(reasons)
        self.temporary, self._lock = _private_folder()
        try:
            self._make_groups()
            if self.limits.network == LOOPBACK and self._is_filtered:
                from prowess_host.confinement.loopback import Connections

                self._connections = Connections()
        except BaseException:
            self.close()
            raise

    @property
    def limits(self) -> Limits:
        """The limits of the worker."""
        return self.grant.limits

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the launcher needs, besides those of the worker."""
        return () if self._connections is None else (self._connections.theirs,)

    @property
    def _is_filtered(self) -> bool:
        """Whether Landlock and the filter of system calls enforce the limits."""
        return self.on.kind == "linux" and self.on.landlock >= LEAST and self.on.machine in MACHINES

    def command(self, command: Sequence[str], python: str, kept: Sequence[int] = ()) -> list[str]:
        """The command that starts another one under the limits.

        `python` is its interpreter, and `kept` are the descriptors that it inherits.
        """
        spec: dict[str, Any] = {"kept": list(kept), "resources": self._resources()}
        spec["groups"] = [str(group / "cgroup.procs") for group in self._groups]
        before: list[str] = []
        if self.on.kind == "darwin" and self.on.sandbox_exec:
            readable = [*map(str, self._readable(python)), *map(str, self.grant.own)]
            writable = [*map(str, self._writable()), str(self.temporary)]
            before = [_SANDBOX_EXEC, "-p", profile_for(self.limits, readable, map(str, self.grant.listed), writable)]
        elif self._is_filtered:
            if self._connections is not None:
                spec["asks"] = self._connections.theirs
            spec["files"] = self._files(python)
            program = filter_for(self.limits, MACHINES[self.on.machine], scoped=self.on.landlock >= SIGNALS)
            spec["calls"], spec["own_pid"] = base64.b64encode(program).decode("ascii"), OWN_PID
        return [sys.executable, "-I", "-S", _LAUNCH, json.dumps(spec), *before, *command]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of the worker, with its private folder as the home and for temporary files."""
        own = str(self.temporary)
        limits = json.dumps({"skill": self.grant.skill, "limits": self.limits.to_json()})
        more = {
            "HOME": own,
            "TMPDIR": own,
            "XDG_CACHE_HOME": f"{own}/.cache",
            "PYTHONDONTWRITEBYTECODE": "1",
            VARIABLE: limits,
        }
        return {**filtered_environment(environ, self.limits.env), **dict(self.grant.variables), **more}

    def close(self) -> None:
        """Remove the folder and the control group of the worker after its end."""
        if self._connections is not None:
            self._connections.close()
        _remove(self.temporary)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)
        for group in self._groups:
            with contextlib.suppress(OSError):
                group.rmdir()

    def why_killed(self) -> str:
        """The limit for which the system has killed the worker, if the system reports it."""
        events = "".join(
            _read(group / name) for group in self._groups for name in ("memory.events", "memory.oom_control")
        )
        if any(line.split()[:1] == ["oom_kill"] and line.split()[1:] != ["0"] for line in events.splitlines()):
            return "killed by SIGKILL, because it had used the memory of its limits: allow more with `memory`"
        return ""

    def overfull(self, processes: Iterable[int]) -> str:
        """Why the worker must end, if its temporary files exceed its limits; else empty."""
        most = self.limits.disk
        if most is None or _size_of(self.temporary, processes, most) <= most:
            return ""
        return f"killed, because it had written more than {most} bytes of temporary files: allow more with `disk`"

    # The spec for `launch`

    def _resources(self) -> dict[str, int]:
        limits = self.limits
        found: dict[str, int | None] = {
            "RLIMIT_AS": limits.memory if self.on.kind == "linux" else None,  # macOS accepts it without effect
            "RLIMIT_CPU": None if limits.cpu is None else max(math.ceil(limits.cpu), 1),
            "RLIMIT_FSIZE": limits.file_size,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": _DESCRIPTORS,
            "RLIMIT_MEMLOCK": 8 * 1024 * 1024,
            "RLIMIT_NPROC": None if self.on.is_root else _tasks_of_user() + limits.processes + _THREADS,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _make_groups(self) -> None:
        """Make control groups for the worker, if this process can."""
        if self.on.is_root and self.on.groups is not None:
            self._limit_group(self.on.groups, "pids.max", self.limits.processes + _THREADS)
        if self.on.memory is not None and self.limits.memory is not None:
            old = "memory.limit_in_bytes"
            name = old if (self.on.memory / old).exists() else "memory.max"
            with contextlib.suppress(OSError):  # the limit on the address space of each process holds anyway
                self._limit_group(self.on.memory, name, self.limits.memory)

    def _limit_group(self, folder: Path, name: str, most: int) -> None:
        group = folder / self.temporary.name
        if group not in self._groups:
            group.mkdir()
            self._groups.append(group)
        (group / name).write_text(str(most))

    def _files(self, python: str) -> dict[str, Any]:
        give = rights(self.on.landlock, network=bool(self.limits.network))
        paths: list[tuple[str, int, int]] = []

        def add(found: Iterable[Path | str], right: int) -> None:
            paths.extend((str(path), right, right & give.of_files) for path in found)

        add(_SYSTEM, give.read)
        add(_NETWORK if self.limits.network else (), give.read)
        add(_DEVICES, give.use)
        add(self._readable(python), give.read)
        add(self.grant.own, give.read)
        add(self.grant.listed, give.list)
        add(self._writable(), give.write)
        add([self.temporary], give.write)
        return {"handled": give.handled, "network": give.network, "scoped": give.scoped, "paths": paths}

    def _readable(self, python: str) -> list[Path]:
        writable = self._writable()
        readable = [self._path(name) for name in self.limits.read]
        # A folder that the skill may change could be replaced by a link before the next start.
        return [*_of_python(python, self.grant.root), *(path for path in readable if not _is_within(path, writable))]

    def _writable(self) -> list[Path]:
        paths = [self._path(name) for name in self.limits.write]
        return [path for path in paths if not _is_within(path, [other for other in paths if other != path])]

    def _path(self, name: str) -> Path:
        return _placed(self.grant.root, name)


def _private_folder() -> tuple[Path, int]:
    """A folder for temporary files, and the lock on it. It gets its name once it is locked: see `remove_left_behind`."""
    _begin_to_remove(tempfile.gettempdir())
    draft = Path(tempfile.mkdtemp(prefix=f"new-{_PREFIX}"))
    lock = os.open(draft, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(lock, fcntl.LOCK_EX)
    return draft.rename(draft.with_name(draft.name.removeprefix("new-"))), lock


@functools.cache
def _begin_to_remove(folder: str) -> None:
    start_thread("prowess-left-behind", remove_left_behind, folder)


def remove_left_behind(folder: str) -> None:
    """Remove the folders for temporary files whose hosts were killed: nobody holds their locks."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.name.startswith(_PREFIX)]
    for entry in found:
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                lock = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(Path(entry.path))
                finally:
                    os.close(lock)


def _remove(folder: Path) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # a tree too deep for Python, or with folders that cannot be read
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)


def _is_within(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is in one of some folders, with links and `..` resolved step by step."""
    ways = {path, *(Path(os.path.realpath(parent)) / path.name for parent in _parents(path))}
    return any(
        way.is_relative_to(folder) or way.is_relative_to(os.path.realpath(folder)) for way in ways for folder in folders
    )


def _parents(path: Path) -> Iterator[Path]:
    """The folders that the system visits on its way to a path, including those before each `..`."""
    return (Path(*path.parts[:count]) for count in range(1, len(path.parts)))


def _size_of(folder: Path, processes: Iterable[int], most: int) -> int:
    """Bytes on the disk of the files in a folder, and of deleted ones that are still in use. Stops counting above `most`."""
    total, seen = 0, set[int]()
    device = os.stat(folder).st_dev  # noqa: PTH116 - done often
    waiting = [str(folder)]
    while waiting and total <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # just deleted; the others count
                        continue
                    if status.st_ino not in seen:
                        seen.add(status.st_ino)
                        total += max(status.st_blocks * 512, _BLOCK)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    if total > most:
                        break
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in _HIDDEN:
                return most + 1
    for process in processes:
        with contextlib.suppress(OSError):
            for file in (*_open_files(process), *_deleted_maps(process)):
                with contextlib.suppress(OSError):
                    status = os.stat(file)  # noqa: PTH116 - as above
                    is_hidden = stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device
                    if is_hidden and status.st_ino not in seen:
                        seen.add(status.st_ino)
                        total += status.st_blocks * 512
    return total


def _open_files(process: int) -> Iterator[str]:
    folder = f"/proc/{process}/fd"
    return (f"{folder}/{name}" for name in os.listdir(folder))  # noqa: PTH208 - as above


def _deleted_maps(process: int) -> Iterator[str]:
    """The deleted files that a process has mapped, perhaps without a descriptor. Only root can follow these links."""
    with open(f"/proc/{process}/maps", "rb") as maps:  # noqa: PTH123 - as above
        for line in maps:
            if line.endswith(b" (deleted)\n"):
                first, last = line.split(b" ", 1)[0].split(b"-")
                yield f"/proc/{process}/map_files/{int(first, 16):x}-{int(last, 16):x}"


def _tasks_of_user() -> int:
    """The number of processes and threads of this user: the kernel's limit counts all of them."""
    count, me = 0, os.getuid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208 - done for every process
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == me:  # noqa: PTH116 - as above
                    count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208 - as above
    return count


def _of_python(python: str, root: Path) -> list[Path]:
    """The folders of an interpreter: its environment, the installation behind that, and its packages."""
    program = shutil.which(python) or python
    found = [Path(program), Path(os.path.realpath(program))]
    for each in tuple(found):
        prefix = each.parent.parent
        if os.path.isfile(prefix / "pyvenv.cfg") or any((prefix / "lib").glob("python3*")):  # noqa: PTH113 - pathlib raises without permission
            found.append(prefix)
    found.append(Path(prowess.__file__).resolve().parent.parent)  # an environment may import Prowess from there
    if os.path.realpath(program) == os.path.realpath(sys.executable):
        found += [Path(sys.prefix), Path(sys.base_prefix)]
        # Editable packages are outside the environment. If the project itself is one, it stays unreadable.
        entries = (Path(entry).resolve() for entry in sys.path if entry and os.path.isdir(entry))  # noqa: PTH112 - as above
        found += [entry for entry in entries if not root.resolve().is_relative_to(entry)]
    return list(dict.fromkeys(found))
