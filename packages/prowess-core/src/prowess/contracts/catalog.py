"""What there is to call, and what could not be loaded and why. Plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prowess.contracts.contract import Contract

__all__ = ["Catalog", "Failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be loaded: a skill file, one of its commands, or an installed package."""

    source: str
    """The skill, command or package."""
    reason: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = f" ({self.file}:{self.line})" if self.file and self.line else f" ({self.file})" if self.file else ""
        return f"{self.source}{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Catalog:
    """All contracts, ordered by id, and all failures."""

    contracts: tuple[Contract, ...] = ()
    failures: tuple[Failure, ...] = ()

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
