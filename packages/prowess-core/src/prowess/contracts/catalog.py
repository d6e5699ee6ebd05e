"""The catalog: all commands, and all failures with their reasons. Plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prowess.contracts.contract import Contract
from prowess.contracts.visible import visible
from prowess.frozen import frozen

__all__ = ["PROFILE", "Catalog", "Failure"]


PROFILE: Final = "the setting profile"
"""The source of the failure of all skills that the setting `profile` names no profile."""


@frozen
class Failure:
    """A skill file, a command or an installed package that failed to load."""

    source: str
    """The skill, command or package."""
    reason: str
    file: str | None = None
    line: int | None = None

    @classmethod
    def of(cls, source: str, reason: str, file: str | None = None, line: int | None = None) -> Failure:
        """A failure with a text that may come from foreign code. Hidden characters become escapes, because models read it."""
        return cls(visible(source), visible(reason), file, line)

    def __str__(self) -> str:
        place = f" ({self.file}:{self.line})" if self.file and self.line else f" ({self.file})" if self.file else ""
        return f"{self.source}{place}: {self.reason}"


@frozen
class Catalog:
    """All contracts, ordered by id, and all failures."""

    contracts: tuple[Contract, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Probable mistakes of authors, with the command and its place."""
        return [f"{each.id} ({each.source}): {warning}" for each in self.contracts for warning in each.warnings]

    @property
    def tools(self) -> tuple[Contract, ...]:
        """The commands without resources and prompts."""
        return tuple(contract for contract in self.contracts if contract.is_tool)

    def __iter__(self) -> Iterator[Contract]:
        return iter(self.contracts)

    def __len__(self) -> int:
        return len(self.contracts)

    def __getitem__(self, command: str) -> Contract:
        """A contract by id. Raises `KeyError`."""
        for contract in self.contracts:
            if contract.id == command:
                return contract
        raise KeyError(command)

    def reasons(self, name: str) -> list[str]:
        """Why no command has a name: the failures of the command, else of the skill that would have it.

        A wrong setting hides the commands of all skills.
        """
        own = [str(failure) for failure in self.failures if name in _spellings(failure.source)]
        return own or [
            str(failure)
            for failure in self.failures
            if failure.source == PROFILE
            or any(name.startswith((f"{source}.", f"{source}_")) for source in _spellings(failure.source))
        ]


def _spellings(source: str) -> tuple[str, str]:
    """The id and the wire name of a skill or a command."""
    return source, source.replace(".", "_")
