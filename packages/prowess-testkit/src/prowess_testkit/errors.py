"""What goes wrong in a test.

    Exception
    ├── AssertionError
    │   ├── ContractChanged    clients see something else than the snapshot says
    │   ├── RerunForever       a command asks something new in every run
    │   └── Unanswered         a command asked a question that the script has no reply to
    ├── EOFError
    │   └── HostEnded          the host process ended before it answered
    ├── ProjectError           the project cannot do what the test asks of it
    └── ProtocolError          a request was answered by a JSON-RPC error instead of a result

The messages are written here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["ContractChanged", "HostEnded", "ProjectError", "ProtocolError", "RerunForever", "Unanswered"]


class ContractChanged(AssertionError):
    """Clients see something else than the snapshot says."""

    def __init__(self, file: Path, before: str | None, now: str) -> None:
        if before is None:
            super().__init__(f"there is no snapshot {file} yet; run pytest --update-contracts to write it")
            return
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), file.name, "now", lineterm="", n=4)
        diff = "\n".join(lines)
        super().__init__(
            f"clients see something else than {file} says. If that is what you want, run pytest --update-contracts "
            f"(`prowess check` says what it breaks).\n\n{diff}"
        )


class RerunForever(AssertionError):
    """A command asks something new in every run."""

    def __init__(self, command: str, run: int, keys: Iterable[str]) -> None:
        super().__init__(
            f"{command} still asks {', '.join(map(repr, keys))} in its run number {run}; a question must have the same "
            "key in every run"
        )


class Unanswered(AssertionError):
    """A command asked a question that the script has no reply to."""

    def __init__(self, message: str, replies: int) -> None:
        said = "the script is empty" if not replies else f"the script has {replies} replies, and all were given"
        super().__init__(f"the command asked {message!r}, and {said}; add a reply: client.person.replies(True)")


class HostEnded(EOFError):
    """The host process ended before it answered."""

    def __init__(self, what: str, code: int | None, stderr: str) -> None:
        super().__init__(f"the host ended (exit code {code}) before it answered {what}; its stderr:\n{stderr}")


class ProjectError(Exception):
    """The project cannot do what the test asks of it."""


class ProtocolError(Exception):
    """A request was answered by a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data
