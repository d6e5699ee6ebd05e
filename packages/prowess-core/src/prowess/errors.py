"""Every exception of Prowess, and the tree they form.

    Exception
    ├── SkillError                    raised by authors: its text is for the model
    └── ProwessError                  raised by Prowess
        ├── DeclarationError          a decorator got an option that it rejects       (the author's mistake)
        ├── LoadError                 a skill could not become commands               (the author's mistake)
        │   ├── SchemaError           an annotation or an explicit schema is unusable
        │   └── InjectionError        no provider exists for an injected parameter
        ├── SettingsError             prowess.toml, an environment variable or a flag is wrong
        ├── InputError                arguments do not fit the contract                (the caller's mistake)
        ├── OutputError               a result breaks the contract                    (the author's mistake)
        ├── UnknownCommand            no command has this name
        ├── NothingThere              a resource has nothing at a URI
        ├── AskError                  a question cannot be asked here
        ├── MissingCapability         the client lacks a capability that a command needs
        └── TooMuchWork               the limit of background work is reached
    BaseException
    └── InputRequired                 control flow: a person must answer before the command can continue

The classes write the messages, with the value, the place and the fix; call sites pass facts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "AskError",
    "DeclarationError",
    "InjectionError",
    "InputError",
    "InputRequired",
    "LoadError",
    "MissingCapability",
    "NothingThere",
    "OutputError",
    "ProwessError",
    "SchemaError",
    "SettingsError",
    "SkillError",
    "TooMuchWork",
    "UnknownCommand",
    "did_you_mean",
    "extra_command",
    "install_command",
    "message_of",
    "named_error",
    "parts_of_capability",
    "shortened",
]


_MOST_PROBLEMS = 100
"""Problems in one message: a client may have made a million of them."""
_LONGEST_NAME = 256
"""Characters that are compared with known names, so that a name of a megabyte costs no time."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?` for the nearest of the known names, or nothing."""
    import difflib  # for a mistake alone

    near = difflib.get_close_matches(name[:_LONGEST_NAME], list(known), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def install_command(requirement: str, python: str = sys.executable) -> str:
    """The command that installs a package for an interpreter, quoted for a shell."""
    import shlex  # only for messages that show a command
    from importlib.util import find_spec

    if of_uv := _uv_command(requirement, python):
        return shlex.join(of_uv)
    if python == sys.executable and find_spec("pip") is None:
        return shlex.join(["uv", "pip", "install", "--python", python, requirement])
    return shlex.join([python, "-m", "pip", "install", requirement])


def extra_command(requirement: str, python: str = sys.executable) -> str:
    """The command that installs an extra of ours, as a person types it."""
    import shlex

    return shlex.join(_uv_command(requirement, python) or ["pip", "install", requirement])


def _uv_command(requirement: str, python: str) -> list[str]:
    """The command for an interpreter that uv made for one program; empty for others.

    What pip installs there is gone when uv makes the environment again.
    """
    import os
    import re

    whole = requirement.startswith("prowess[")
    if re.search(r"[/\\](?:archive|environments|builds)-v\d+[/\\]", python):  # in the cache of uv
        return ["uvx", "--from" if whole else "--with", requirement, "prowess"]
    if os.path.exists(os.path.join(os.path.dirname(os.path.dirname(python)), "uv-receipt.toml")):  # noqa: PTH110, PTH118, PTH120 - pathlib may not be loaded
        return ["uv", "tool", "install", *([requirement] if whole else ["--with", requirement, "prowess"])]
    return []


def message_of(error: BaseException) -> str:
    """The message of an exception, even if its `__str__` fails."""
    try:
        return str(error)
    except BaseException as failed:  # noqa: BLE001 - the code of an author may raise anything, also an exit
        return f"its message cannot be shown: {type(failed).__name__}"


def named_error(error: BaseException, message: str | None = None) -> str:
    """The class of an exception with its message, or with another one; without a message, the class alone."""
    text = message_of(error) if message is None else message
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(text: str, most: int) -> str:
    """A text of at most `most` characters; a longer one ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def parts_of_capability(name: str) -> list[str]:
    """The keys of a capability, which dots separate. The id of an extension contains dots itself."""
    head, _, extension = name.partition("extensions.")
    return name.split(".") if head or not extension else ["extensions", extension]


class SkillError(Exception):
    """An error with a message for the calling model.

    `retryable` tells the caller that the same call may succeed later (`retry_after` seconds, if known). Prowess itself
    retries only with `retry_on`. `data` is JSON sent beside the message.
    """

    retryable: bool = False  # these defaults are for a subclass whose constructor does not call ours
    retry_after: float | None = None
    data: Any = None

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after: float | None = None, data: Any = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        self.data = data


class ProwessError(Exception):
    """The base class of the exceptions that Prowess raises itself."""


class DeclarationError(ProwessError):
    """A decorator got an option that it rejects."""

    def __init__(self, command: str, problem: str, remedy: str, *, file: str, line: int) -> None:
        super().__init__(f"{file}:{line}: command {command!r}: {problem}. {remedy}")
        self.command = command
        self.file = file
        self.line = line


class LoadError(ProwessError):
    """A skill, or one of its commands, could not be loaded."""

    def __init__(self, reason: str, *, file: str | None = None, line: int | None = None) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{reason}")
        self.reason = reason
        self.file = file
        self.line = line


class SchemaError(LoadError):
    """An annotation has no JSON Schema, or an explicit schema is unusable."""


class InjectionError(LoadError):
    """No provider exists for an injected parameter."""


class SettingsError(ProwessError):
    """A setting is unknown, malformed or missing."""


class InputError(ProwessError):
    """Arguments do not fit the contract. `problems` has one line for each of the first 100 problems."""

    def __init__(self, command: str, problems: list[str]) -> None:
        self.problems = problems[:_MOST_PROBLEMS]
        many = "" if len(problems) == 1 else f" ({len(problems)} problems)"
        lines = [f"- {problem}" for problem in self.problems]
        if len(problems) > _MOST_PROBLEMS:
            lines.append(f"- and {len(problems) - _MOST_PROBLEMS} more")
        super().__init__("\n".join([f"Invalid arguments for {command}{many}:", *lines]))


class OutputError(ProwessError):
    """A result breaks the declared contract, or cannot be sent as JSON."""


class UnknownCommand(ProwessError):
    """No command has this name."""

    def __init__(self, name: str, known: Iterable[str] = (), reasons: Sequence[str] = ()) -> None:
        """`reasons` are the failures that explain why no command has this name."""
        why = f". This could not be loaded: {'; '.join(reasons)}" if reasons else did_you_mean(name, known)
        super().__init__(f"Unknown command: {name}{why}")
        self.name = name


class NothingThere(ProwessError):
    """No resource exists at a URI: the function returned `None`."""

    def __init__(self) -> None:
        super().__init__("no resource exists at this URI")


class AskError(ProwessError):
    """A question cannot be asked, or the answer does not fit it."""


class MissingCapability(ProwessError):
    """The client lacks a capability that a command needs. `name` has dots for nested names."""

    def __init__(self, command: str, name: str) -> None:
        super().__init__(f"{command} needs a client with the capability {name!r}, which this client did not declare")
        self.name = name


class TooMuchWork(ProwessError):
    """The limit of background work is reached: that of all clients, or the client's `own`."""

    def __init__(self, number: int, *, own: bool, seconds: int) -> None:
        """After so many `seconds`, one of them has probably ended."""
        whose = "you already have" if own else "all clients together already have"
        calls = "1 call" if number == 1 else f"{number} calls"
        super().__init__(f"{whose} {calls} in the background, which is the limit; try again in {seconds} s")
        self.own = own
        self.seconds = seconds


class InputRequired(BaseException):
    """A person must answer before the command can continue. `questions` maps each key to its message and schema.

    Control flow, not an error: it derives from `BaseException`, so that no `except Exception` catches it.
    """

    def __init__(self, questions: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(f"waiting for answers to {', '.join(questions)}")
        self.questions = questions
