"""What clients can see at the moment: the tools, and the commands behind their names. Plain data without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from prowess.contracts.catalog import Catalog, Failure
from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject
from prowess.skills.description import View
from prowess_host.long_results import read_more_tool
from prowess_host.protocol.codec import dumps
from prowess_host.protocol.rpc import EncodeError
from prowess_host.protocol.tool_list import ToolList, define_tool

__all__ = ["DIAGNOSTICS", "Listing"]

DIAGNOSTICS: Final = "prowess_diagnostics"
"""The tool that is there while something cannot be loaded, and where there is no command."""


class Listing:
    """The tools of one catalog, with what answers to their names."""

    def __init__(self, catalog: Catalog, views: Mapping[str, View], *, complete: bool = True) -> None:
        """An offer that is not `complete` can be called, as far as it goes, but not listed."""
        self.views = views
        failures = list(catalog.failures)
        contracts: list[Contract] = []
        handshake: list[JsonObject] = []
        stateless: list[JsonObject] = []
        for contract in catalog.contracts:
            if contract.id not in self.views:
                continue  # a worker has said why
            both = _definitions(contract, self.views[contract.id])
            try:
                dumps(both, "its definition")
            except (EncodeError, RecursionError) as error:
                failures.append(Failure(contract.id, f"cannot be shown to clients: {error}", contract.source))
                continue
            contracts.append(contract)
            handshake.append(both[0])
            stateless.append(both[1])
        extra = [_diagnostics_tool()] if failures or not contracts else []
        self.catalog = Catalog(tuple(contracts), tuple(failures))
        self.tools = _tool_list(handshake + extra, stateless + extra) if complete else None
        self.names = {name: each for each in contracts for name in _names(each)}

    @classmethod
    def nothing(cls) -> Listing:
        """What there is to offer before anything is known."""
        return cls(Catalog(), {}, complete=False)

    def __getitem__(self, name: str) -> Contract | None:
        """The command that answers to a name in any of its forms."""
        return self.names.get(name) or self.names.get(name.replace("/", "."))

    def failing(self, reason: str) -> Listing:
        """The same, with something wrong that is no skill's fault."""
        of_skills = [failure for failure in self.catalog.failures if failure.source != "worker"]
        failures = (*of_skills, Failure("worker", reason))
        return Listing(Catalog(self.catalog.contracts, failures), self.views)

    def replaced(self, catalog: Catalog, views: Mapping[str, View], keeping: Collection[str]) -> Listing:
        """Another catalog, with what is offered now of the skills in `keeping`."""
        kept = [contract for contract in self.catalog.contracts if contract.skill in keeping]
        contracts = [contract for contract in catalog.contracts if contract.skill not in keeping] + kept
        contracts.sort(key=lambda contract: contract.id)
        shown = {**views, **{contract.id: self.views[contract.id] for contract in kept}}
        return Listing(Catalog(tuple(contracts), catalog.failures), shown)

    def last_good(self, new: Catalog) -> set[str]:
        """Skills that lost commands because they are broken, and not because somebody took them away."""
        there = {contract.id for contract in new.contracts}
        broken = {failure.source.partition(".")[0] for failure in new.failures}
        lost = (contract for contract in self.catalog.contracts if contract.id not in there)
        return {contract.skill for contract in lost if contract.skill in broken}


def _tool_list(handshake: list[JsonObject], stateless: list[JsonObject]) -> ToolList:
    return ToolList(handshake, stateless, optional=[read_more_tool()])


def _names(contract: Contract) -> Iterable[str]:
    return (*contract.aliases, contract.id, contract.wire_name)


def _definitions(contract: Contract, view: View) -> tuple[JsonObject, JsonObject]:
    """What clients with a handshake are shown, and those without."""
    bare = define_tool(contract, view.input_schema, view.output)
    return define_tool(contract, view.input_schema, view.boxed_output), bare


def _diagnostics_tool() -> JsonObject:
    return {
        "name": DIAGNOSTICS,
        "description": "Says what is wrong with this server: which skills cannot be loaded, where and why, or that it found "
        "none, and where it looked for them.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    }
