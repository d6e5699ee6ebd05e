"""The exceptions of tests.

    Exception
    ├── AssertionError
    │   ├── ContractChanged    the contracts differ from the snapshot
    │   ├── RerunForever       a command asks a new question in every run
    │   └── Unanswered         the script has no reply to a question
    ├── EOFError
    │   └── HostEnded          the host process ended before it answered
    ├── ProjectError           the test uses the project in a wrong way
    └── ProtocolError          the answer to a request is a JSON-RPC error

The messages are written here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["ContractChanged", "HostEnded", "ProjectError", "ProtocolError", "RerunForever", "Unanswered"]


class ContractChanged(AssertionError):
    """The contracts differ from the snapshot."""

    def __init__(self, file: Path, before: str | None, now: str) -> None:
        if before is None:
            super().__init__(f"there is no snapshot {file} yet; run pytest --update-contracts to write it")
            return
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), file.name, "now", lineterm="", n=4)
        diff = "\n".join(lines)
        super().__init__(
            f"the contracts differ from the snapshot {file}. If the change is intended, run pytest --update-contracts "
            f"(`prowess check` shows what it breaks).\n\n{diff}"
        )


class RerunForever(AssertionError):
    """A command asks a new question in every run."""

    def __init__(self, command: str, run: int, keys: Iterable[str]) -> None:
        super().__init__(
            f"{command} still asks {', '.join(map(repr, keys))} in run number {run}; a question must have the same key in "
            "every run"
        )


class Unanswered(AssertionError):
    """The script has no reply to a question of a command."""

    def __init__(self, message: str, replies: int) -> None:
        said = "the script is empty" if not replies else f"all {replies} replies of the script are used"
        super().__init__(f"the command asked {message!r}, and {said}; add a reply: client.person.replies(True)")


class HostEnded(EOFError):
    """The host process ended before it answered."""

    def __init__(self, what: str, code: int | None, stderr: str) -> None:
        super().__init__(f"the host ended (exit code {code}) before it answered {what}; its stderr:\n{stderr}")


class ProjectError(Exception):
    """The test uses the project in a wrong way."""


class ProtocolError(Exception):
    """The answer to a request is a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data
