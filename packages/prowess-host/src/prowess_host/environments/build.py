"""The process that makes one environment with uv: `python -P -m prowess_host.environments.build`.

It reads an order as one line of JSON, and reports as lines of JSON. When its input ends, the host is gone: it ends uv and
itself. The next build removes a draft that is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from prowess.errors import extra_command
from prowess_host.environments.declared import satisfies
from prowess_host.environments.errors import BuildError
from prowess_host.environments.store import EnvironmentStore, InUse
from prowess_host.environments.wheels import pack

__all__ = ["build", "find_uv", "lock", "main"]

_MISSING: Final = (
    "uv, which makes the environments of skills, is not installed: install it with `{install}`, "
    "or as https://docs.astral.sh/uv/ explains, or name it in the setting environments.uv"
)
_UNREACHABLE: Final = re.compile(
    r"error sending request|dns error|failed to fetch|request failed|connection refused|timed out|"
    r"temporary failure in name resolution|network is unreachable|client error|could not connect",
    re.IGNORECASE,
)
"""Messages of uv about an unreachable index. The cache of uv may be enough."""
_MOST: Final = 4000
"""The most characters of uv's output in a message."""
_INTERFERING: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT", "PYTHONPATH", "PYTHONHOME")
_BRIEF: Final = "import sys; print('.'.join(map(str, sys.version_info[:3])))"

_Report: TypeAlias = Callable[[str], None]


def find_uv(named: str | None) -> str:
    """The uv to use: from the settings, from the package, or on PATH."""
    if named:
        found = shutil.which(Path(named).expanduser())
        if found is None:
            raise BuildError(f"{named}, the setting environments.uv, is not an executable program; correct the setting")
        return found
    with contextlib.suppress(ImportError, OSError):
        from uv import find_uv_bin  # pyright: ignore[reportMissingImports, reportUnknownVariableType] # an extra

        return str(find_uv_bin())  # pyright: ignore[reportUnknownArgumentType] # as above
    found = shutil.which("uv")
    if found is None:
        raise BuildError(_MISSING.format(install=extra_command("prowess[uv]")))
    return found


def build(order: dict[str, Any], report: _Report) -> None:
    """Make an environment, unless another process just did. Raises `BuildError`."""
    store, key = EnvironmentStore(Path(order["cache"])), str(order["key"])
    uv = _Uv(find_uv(order["uv"]), order, report)
    try:
        with store.alone(key, wait=not order["anew"]):
            if store.is_ready(key) and not order["anew"]:
                return
            draft = store.draft(key)
            try:
                _make(uv, store, draft, order)
                store.move_in(draft, key)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except InUse as error:
        raise BuildError(str(error)) from error
    except OSError as error:
        reason = f"{store.folder} cannot be written ({error.strerror or error}); make it writable, or set cache_dir"
        raise BuildError(reason) from error


def lock(order: dict[str, Any], report: _Report) -> None:
    """Write the exact versions of all dependencies to a file. Raises `BuildError`."""
    store, target = EnvironmentStore(Path(order["cache"])), Path(order["lock"])
    uv = _Uv(find_uv(order["uv"]), order, report)
    key = str(order["key"])
    try:
        with store.alone(key):
            draft = store.draft(key)
            draft.mkdir()
            try:
                given = _given(draft, order)
                ours = [f"--no-emit-package={name}" for name in pack(draft / "wheels")]
                python = _requested_python(order)
                version = ["--python", python] if python else []
                text = uv.run(
                    ["pip", "compile", "--universal", "--no-header", "--no-annotate", *ours, *version, *given]
                )
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        head = f"# The exact versions for {Path(order['file']).name}, written by `prowess lock`.\n# needs: {order['needs']}\n"
        draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        draft.write_text(head + text, encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        raise BuildError(f"{error.filename or target} cannot be written ({error.strerror or error})") from error


class _Uv:
    """The program uv, with the settings about networks and indexes."""

    def __init__(self, program: str, order: dict[str, Any], report: _Report) -> None:
        self._program = program
        self._order = order
        self._report = report
        self._environ = {name: value for name, value in os.environ.items() if name not in _INTERFERING}
        self._environ |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1", "PATH": _path(self._environ.get("PATH", ""))}

    def run(self, arguments: list[str]) -> str:
        """Run uv and return its output. If no index is reachable, use its cache. Raises `BuildError` with its message."""
        code, said, printed = self._run(arguments)
        if code and not self._order["offline"] and _UNREACHABLE.search(said):
            self._report("no index can be reached; installing from the cache of uv")
            again, _, printed = self._run([*arguments, "--offline"])
            if not again:
                return printed
        if code:
            told = said[-_MOST:].strip()
            raise BuildError(f"uv says: {told}" if told else f"uv failed with exit code {code} and printed nothing")
        return printed

    def _run(self, arguments: list[str]) -> tuple[int, str, str]:
        command = [self._program, *arguments, "--no-python-downloads"]
        if self._order["python_downloads"]:
            command.pop()
        if self._order["offline"]:
            command.append("--offline")
        if "venv" not in arguments:
            command += [*self._index(), *(["--no-build"] if self._order["limited"] else [])]
        process = subprocess.Popen(
            command,
            env=self._environ,
            cwd=self._order["cache"],  # a folder without pyproject.toml and uv.toml
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101 - as above
        out, printed = process.stdout, list[str]()
        reading = threading.Thread(target=lambda: printed.append(out.read()), daemon=True)
        reading.start()
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if line.strip() and not line.startswith(
                (" ", "Using Python", "Using CPython", "Creating virtual", "Activate")
            ):
                self._report(line.strip())
        reading.join()
        return process.wait(), "".join(said), "".join(printed)

    def _index(self) -> list[str]:
        found = [f"--find-links={each}" for each in self._order["find_links"]]
        index = self._order["index"]
        if index is None:
            return found
        return [*found, "--no-index"] if index == "" else [*found, f"--default-index={index}"]


def _make(uv: _Uv, store: EnvironmentStore, draft: Path, order: dict[str, Any]) -> None:
    python = _requested_python(order)
    # Relocatable, because the draft is moved. uv must ignore the surrounding project.
    uv.run(["venv", "--no-project", "--relocatable", *(["--python", python] if python else []), str(draft)])
    given = _given(draft, order)
    own = str(draft / "bin" / "python")
    # Compiling starts Python, which runs code of packages (.pth files), and the limits of a skill do not apply here.
    compiled = [] if order["limited"] else ["--compile-bytecode"]
    uv.run(["pip", "install", *compiled, "--python", own, *given])
    if order["limited"]:
        subprocess.run(
            [own, "-I", "-S", "-m", "compileall", "-q", "-q", str(draft / "lib")], capture_output=True, check=False
        )
    shutil.rmtree(draft / "prowess", ignore_errors=True)
    facts = {
        "python": _version_of(own),
        "dependencies": order["dependencies"],
        "skills": order["skills"],
    }
    store.note(draft, facts)


def _given(draft: Path, order: dict[str, Any]) -> list[str]:
    """The arguments with the requirements: those of the skill, its lock, and Prowess."""
    folder = draft / "prowess"
    folder.mkdir(parents=True)
    lines = list(order["dependencies"])
    given: list[str] = []
    if order["locked"]:
        _check_lock(order)
        given += _file(folder, "lock", order["locked"].splitlines())
    if order["by_file"]:
        given += [order["file"]] if "lock" in order else ["-r", order["file"]]
    if order["prowess"]:
        lines.append(order["prowess"])
        constraints: list[str] = []
    else:
        wheels = pack(folder / "wheels")
        lines.append(f"prowess-core @ {wheels['prowess-core'].as_uri()}")
        constraints = [f"{name} @ {wheel.as_uri()}" for name, wheel in wheels.items()]
    if constraints:
        given += ["-c", *_file(folder, "constraints", constraints)[1:]]
    needed = _file(folder, "needs", lines)
    return [*given, *(needed[1:] if "lock" in order else needed)]


def _file(folder: Path, name: str, lines: Iterable[str]) -> list[str]:
    path = folder / f"{name}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["-r", str(path)]


def _check_lock(order: dict[str, Any]) -> None:
    found = re.search(r"(?m)^# needs: (\w+)$", order["locked"])
    if found is None or found[1] != order["needs"]:
        raise BuildError(
            f"{order['lock_file']} was written for other dependencies than those in {order['file']}; run prowess lock"
        )


# --- interpreters ---------------------------------------------------------------------------------


def _requested_python(order: dict[str, Any]) -> str:
    """The Python version or interpreter for uv: the author's choice, else the project's interpreter if it is suitable."""
    if order["python"]:
        return str(order["python"])
    base, requires = str(order["base"]), str(order["requires_python"])
    if not requires:
        return base
    version = tuple(int(part) for part in _version_of(base).split(".") if part.isdigit())
    return base if satisfies(version, requires) else requires


def _version_of(python: str) -> str:
    try:
        return subprocess.run(
            [python, "-I", "-S", "-c", _BRIEF], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"{python} cannot be run ({error}); check the setting `python`") from error


def _path(path: str) -> str:
    """PATH for uv with real interpreters instead of pyenv's shims, because uv gives up at the first one that does not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    folders = [folder for folder in path.split(os.pathsep) if folder and Path(folder) != pyenv / "shims"]
    return os.pathsep.join([*folders, *map(str, sorted(pyenv.glob("versions/*/bin"), reverse=True))])


# --- the process ----------------------------------------------------------------------------------


def main() -> None:
    """Entry point."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    lines = threading.Lock()

    def send(**told: Any) -> None:
        with lines, contextlib.suppress(OSError):
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()

    try:
        (lock if "lock" in order else build)(order, lambda line: send(told=line))
    except BuildError as error:
        send(failed=str(error))
    else:
        send(ready=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
