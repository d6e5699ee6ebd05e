"""The catalog: all commands, and all failures with their reasons. Plain data."""

from __future__ import annotations

from collections.abc import Iterator

from prowess.contracts.contract import Contract
from prowess.frozen import frozen

__all__ = ["Catalog", "Failure"]


@frozen
class Failure:
    """Something that could not be loaded: a skill file, one of its commands, or an installed package."""

    source: str
    """The skill, command or package."""
    reason: str
    file: str | None = None
    line: int | None = None

    @classmethod
    def told(cls, source: str, reason: str, file: str | None = None, line: int | None = None) -> Failure:
        """A failure in words that may be a stranger's: people and models read them, so hidden characters are escapes."""
        return cls(_visible(source), _visible(reason), file, line)

    def __str__(self) -> str:
        place = f" ({self.file}:{self.line})" if self.file and self.line else f" ({self.file})" if self.file else ""
        return f"{self.source}{place}: {self.reason}"


def _visible(text: str) -> str:
    if text.replace("\n", "").isprintable():  # most texts: nothing is imported
        return text
    from prowess.contracts.hidden import shown

    return shown(text)


@frozen
class Catalog:
    """All contracts, ordered by id, and all failures."""

    contracts: tuple[Contract, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What authors have probably forgotten, with the command and its place."""
        return [f"{each.id} ({each.source}): {warning}" for each in self.contracts for warning in each.warnings]

    @property
    def tools(self) -> tuple[Contract, ...]:
        """The commands alone: what is called as a tool."""
        return tuple(contract for contract in self.contracts if contract.is_tool)

    def __iter__(self) -> Iterator[Contract]:
        return iter(self.contracts)

    def __len__(self) -> int:
        return len(self.contracts)

    def __getitem__(self, command: str) -> Contract:
        """A contract by id; `KeyError` where there is none."""
        for contract in self.contracts:
            if contract.id == command:
                return contract
        raise KeyError(command)

    def reasons(self, name: str) -> list[str]:
        """Why no command answers to a name: the failures of the command, or else of the skill that it would be in."""
        own = [str(failure) for failure in self.failures if name in _spellings(failure.source)]
        return own or [
            str(failure)
            for failure in self.failures
            if any(name.startswith((f"{source}.", f"{source}_")) for source in _spellings(failure.source))
        ]


def _spellings(source: str) -> tuple[str, str]:
    """A skill or a command as an id and as clients spell it."""
    return source, source.replace(".", "_")
