"""Advice about common exceptions in skills: the likely cause and the remedy."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Final

from prowess.errors import did_you_mean, install_command, message_of
from prowess.patterns import lazy_pattern
from prowess.settings.limits import LOOPBACK, TABLE, Limits, own_limits

__all__ = ["advice"]

_DECORATORS: Final = frozenset({"FastMCP", "command", "function_tool", "mcp", "mcp_tool", "server", "skill", "tool"})
"""Names of the decorator in other frameworks."""
_OF_CONTEXT: Final = {
    "elicit": '`ctx.ask("key", "message", bool)`',
    "elicit_url": '`ctx.ask_url("key", "message", "https://...")`',
    "list_roots": "`ctx.roots()`",
    "request_id": "`ctx.call_id`",
}
"""What the contexts of other frameworks have under another name."""
_DISTRIBUTIONS: Final = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "serial": "pyserial",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Modules whose distribution has another name. The distribution with the module's name may be malicious."""
_IMPORT: Final = re.compile(r"cannot import name '(\w+)' from 'prowess'")
_NO_TEXT: Final = lazy_pattern("null bytes|'utf-8' codec|Non-UTF-8 code")
"""Python's messages about source files in UTF-16, and in other encodings that are not UTF-8."""
_COROUTINE: Final = re.compile("'coroutine'")
_SAID: Final = (
    (
        "EOF when reading a line",
        "A command has no terminal to read from: take a parameter, or ask the user with `ctx.ask(...)`",
    ),
    (
        "cannot be called from a running event loop",
        "An async command runs on an event loop already: write `await ...` in place of `asyncio.run(...)`",
    ),
    (
        "There is no current event loop in thread",
        "A sync command runs in a thread, which has no event loop: use `asyncio.run(...)`, or make the command async",
    ),
    (
        "signal only works in main thread",
        "A sync command runs in a thread: with `thread=False`, it runs in the main thread, on the event loop",
    ),
    (
        "SQLite objects created in a thread can only be used in that same thread",
        "Sync commands run in threads: connect inside the command, or with `check_same_thread=False` and a lock",
    ),
    (
        "A process in the process pool was terminated abruptly",
        "A process that is started anew (macOS, Python 3.14) cannot import skills: put its function into a module of the project",
    ),
)
"""Parts of messages of the standard library, with the advice."""
_NETWORK_OFF: Final = "The network is off for this skill: allow it with `network = true`"
_LOOPBACK_ONLY: Final = "This skill may only connect to this machine, by TCP: allow more with `network = true`"
_OF_NETWORK: Final[dict[bool | str, str]] = {True: "", False: _NETWORK_OFF, LOOPBACK: _LOOPBACK_ONLY}
_PROCESSES: Final = frozenset({"subprocess", "asyncio.base_subprocess", "multiprocessing.popen_fork"})
_STARTING: Final = frozenset({"subprocess", "asyncio.base_subprocess"})


def advice(error: BaseException, file: str | None = None) -> str:
    """One or two sentences of advice, or an empty string. `file` is the author's file that raised the exception."""
    refused = _of_limits(error)
    if refused:
        return refused
    if isinstance(error, ModuleNotFoundError):
        return _of_module(error.name or "", file)
    if isinstance(error, ImportError):
        found = _IMPORT.search(message_of(error))
        return _of_name(found[1]) if found else ""
    if isinstance(error, FileNotFoundError):
        return _of_path(error)
    if isinstance(error, (SyntaxError, ValueError)) and _NO_TEXT.search(message_of(error)) and _is_of_import(error):
        return "The file is not text in UTF-8: save it in that encoding"
    if (
        isinstance(error, SyntaxError) and file is not None and error.filename == file
    ):  # else it is about a text of the command
        from prowess.calls.syntax import newer_syntax  # its patterns are for a mistake alone

        return newer_syntax(error)
    if isinstance(error, (AttributeError, TypeError)) and _COROUTINE.search(message_of(error)):
        return "An `await` is missing: async code gets the result of an async function by `await`, as in `await ctx.ask(...)`"
    if (
        isinstance(error, AttributeError)
        and error.name in _OF_CONTEXT
        and isinstance(error.obj, sys.modules["prowess"].Context)
    ):
        return f"In Prowess, this is {_OF_CONTEXT[error.name]}"
    message = message_of(error)
    for part, remedy in _SAID:
        if part in message:
            return remedy
    if type(error).__name__ == "BdbQuit" and not sys.stdin.isatty():
        return "A worker has no terminal for a debugger: run the command by `prowess call ... --in-process`"
    return ""


def _of_limits(error: BaseException) -> str:
    """The advice if limits of the skill caused the exception, directly or through its causes."""
    limited = own_limits(os.environ)
    if limited is None:
        return ""
    skill, limits = limited
    for each in _chain(error):
        refused = _refusal(each, limits)
        if refused:
            return f"{refused} in [{TABLE}.{skill}] of prowess.toml, or where the skill declares its limits"
    return ""


def _chain(error: BaseException) -> list[BaseException]:
    """An exception and its causes."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return found


def _refusal(error: BaseException, limits: Limits) -> str:
    """The refused operation, and the limit that would allow it."""
    if isinstance(error, MemoryError):
        return "The memory of this skill is limited: allow more with `memory`"
    if not isinstance(error, OSError):
        return ""
    if type(error).__name__ == "gaierror":
        return _OF_NETWORK[limits.network]
    if error.errno == errno.EFBIG:
        return "The size of its files is limited: allow larger ones with `file_size`"
    modules = {frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)}
    if isinstance(error, BlockingIOError | PermissionError) and not modules.isdisjoint(_PROCESSES):
        return f"This skill may start {limits.processes or 'no'} processes: allow more with `processes`"
    if not isinstance(error, PermissionError):
        return ""
    if error.filename is not None:
        return f"{error.filename} is not open to this skill: allow it with `read` or `write`"
    if "socket" in modules and limits.network is not True:
        return _OF_NETWORK[limits.network]
    return f"The limits of this skill may refuse this ({limits.in_words()}): widen them"


def _is_of_import(error: BaseException) -> bool:
    """Whether Python raised an exception while it read or compiled a module, and no code of the author ran."""
    frames = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1:] == ["importlib._bootstrap"]


def _of_module(name: str, file: str | None) -> str:
    top = name.partition(".")[0]
    if top == "prowess":
        return "Everything for skills is in the package prowess: `from prowess import skill_command`"
    if not name or top != name or top in sys.stdlib_module_names:
        return ""
    folder = Path(file).parent if file else None
    if folder is not None and ((folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()):
        return f"It is beside this file; import it as a part of the same package: `from . import {name}`"
    distribution = _DISTRIBUTIONS.get(name, name)
    return (
        f"Skills run in {sys.executable}, where it is missing. Install it with `{install_command(distribution)}`, or name a Python "
        "that has it in the setting `python`"
    )


def _of_name(name: str) -> str:
    if name in _DECORATORS:
        return "The decorator is called skill_command: `from prowess import skill_command`"
    offered = sys.modules["prowess"].__all__
    near = did_you_mean(name, offered).removeprefix("; ").capitalize()
    return near or f"There are {', '.join(offered)}"


def _of_path(error: FileNotFoundError) -> str:
    name = error.filename
    if not isinstance(name, str) or os.path.isabs(name):  # noqa: PTH117 - a text of whatever form
        return ""
    frames = [frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not _STARTING.isdisjoint(frames[-1:]):
        return (
            f"There is no program {name!r} on the PATH of the skills. Desktop clients often start without the PATH of "
            "your shell: give the absolute path of the program, or set PATH in the client"
        )
    try:
        here = os.getcwd()  # noqa: PTH109 - a text
    except FileNotFoundError:
        here = "which no longer exists"
    return (
        f"The path is relative to the working directory, {here}. Use an absolute one: `project_root` (with "
        "inject_root=True) for files of the project, `Path(__file__).parent` for files beside the skill"
    )
