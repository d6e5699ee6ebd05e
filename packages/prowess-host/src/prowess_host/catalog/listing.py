"""The tools, resources and prompts that clients can see, and the lookup by their names. Plain data without I/O."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Final

from prowess.contracts.catalog import Catalog, Failure
from prowess.contracts.contract import Contract
from prowess.contracts.kinds import PROMPT
from prowess.contracts.names import wire_forms
from prowess.contracts.uris import parse_template
from prowess.jsontypes import JsonObject
from prowess.skills.description import View
from prowess_host.long_results import read_more_tool
from prowess_host.protocol.codec import dumps
from prowess_host.protocol.item_list import ItemList
from prowess_host.protocol.kinds import LISTS, ROWS, KindList, KindRow
from prowess_host.protocol.rpc import EncodeError
from prowess_host.protocol.tool_list import ToolList, define_tool

__all__ = ["DIAGNOSTICS", "Listing"]

_FIXED: Final = "resources/list"
DIAGNOSTICS: Final = "prowess_diagnostics"
"""The tool that is listed while something cannot be loaded, or if the project has no commands."""


class Listing:
    """The lists of one catalog, and the lookup by name and URI."""

    _of_files: tuple[Failure, ...] = ()
    """The failures of files among those of the catalog."""

    def __init__(self, catalog: Catalog, views: Mapping[str, View], *, complete: bool = True) -> None:
        """A listing that is not `complete` answers calls, but no list yet."""
        self.views = views
        failures = list(catalog.failures)
        contracts: list[Contract] = []
        definitions: dict[str, list[tuple[JsonObject, JsonObject]]] = {method: [] for method in LISTS}
        for contract in catalog.contracts:
            if contract.id not in self.views:
                continue  # the failure in the catalog says why
            both = _definitions(contract, self.views[contract.id])
            try:
                dumps(both, "its definition")
            except (EncodeError, RecursionError) as error:
                failures.append(Failure(contract.id, f"cannot be shown to clients: {error}", contract.source))
                continue
            contracts.append(contract)
            definitions[_shelf_of(contract).method].append(both)
        if failures or not contracts:
            definitions["tools/list"].append((_diagnostics_tool(), _diagnostics_tool()))
        self.catalog = Catalog(tuple(contracts), tuple(failures))
        self.complete = complete
        self.lists = _lists(definitions)
        """The lists by method, shown once the listing is complete."""
        self._own_resources = [pair[0] for pair in definitions[_FIXED]]
        self.files: list[JsonObject] = []
        """Files that are listed as resources."""
        self.kinds = frozenset(contract.kind for contract in contracts)
        """The kinds with at least one entry."""
        self.names = {
            **wire_forms(contracts, ()),
            **{name: each for each in contracts for name in (*each.aliases, each.id, each.wire_name)},
        }
        self._resources = {each.uri: each for each in contracts if each.uri}
        templates = [(parse_template(each.uri), each) for each in contracts if each.is_template]
        self._templates = sorted(templates, key=lambda item: (-item[0].literal, item[1].id))

    @property
    def tools(self) -> ItemList | None:
        """The list of tools, once the listing is complete."""
        return self.lists["tools/list"] if self.complete else None

    @property
    def serves_nothing(self) -> bool:
        """Whether it is certain that there are no commands, and no failures that explain why."""
        return self.complete and not self.catalog.contracts and not self.catalog.failures

    def prompt(self, name: str) -> Contract | None:
        """The prompt with a name, an id or an alias."""
        found = self[name]
        return found if found is not None and found.kind == PROMPT else None

    def template(self, uri: str) -> Contract | None:
        """The resource with this URI or URI template, or with a template that matches the URI."""
        found = self._resources.get(uri) or self.resource(uri)
        return found[0] if isinstance(found, tuple) else found

    def fixed_resource(self, uri: str) -> Contract | None:
        """The resource with exactly this URI. It takes precedence over files and templates."""
        found = self._resources.get(uri)
        return found if found is not None and not found.is_template else None

    def resource(self, uri: str) -> tuple[Contract, Mapping[str, str]] | None:
        """The resource for a URI, with the variables of its template. If several match, the one with the most literal text.

        A template does not match if a variable leads out of a folder.
        """
        exact = self.fixed_resource(uri)
        if exact is not None:
            return exact, {}
        for template, contract in self._templates:
            variables = template.match(uri)
            if variables is not None and template.is_contained(variables):
                return contract, variables
        return None

    def with_files(self, definitions: list[JsonObject], failures: Collection[Failure] = ()) -> Listing:
        """The same with files among the resources. A resource that a skill declares comes before a file of its URI.

        `failures` are those of files that cannot be served.
        """
        new = [failure for failure in failures if failure not in self.catalog.failures]
        gone = [failure for failure in self._of_files if failure not in failures]
        if not definitions and not self.files and not new and not gone:
            return self
        listing = copy.copy(self)
        if new or gone:
            kept = [failure for failure in self.catalog.failures if failure not in gone]
            listing = Listing(Catalog(self.catalog.contracts, (*kept, *new)), self.views, complete=self.complete)
        listing._of_files = tuple(failures)
        listing.files = definitions
        shown = [*self._own_resources, *(each for each in definitions if each["uri"] not in self._resources)]
        listing.lists = {**listing.lists, _FIXED: ItemList(LISTS[_FIXED].member, shown, shown)}
        return listing

    def changed(self, before: Listing) -> list[KindRow]:
        """The kinds whose lists have changed."""
        if not (self.complete and before.complete):
            return []
        return [
            row
            for row in ROWS
            if any(self.lists[shelf.method].digest != before.lists[shelf.method].digest for shelf in row.shelves)
        ]

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the lists, by kind, to compare them with those of another process."""
        return {row.kind: "-".join(self.lists[shelf.method].digest for shelf in row.shelves) for row in ROWS}

    @classmethod
    def nothing(cls) -> Listing:
        """The listing before anything is known."""
        return cls(Catalog(), {}, complete=False)

    def __getitem__(self, name: str) -> Contract | None:
        """The command with a wire name, an id or an alias."""
        return self.names.get(name) or self.names.get(name.replace("/", "."))

    def failing(self, reason: str) -> Listing:
        """The same, with a failure of the project itself."""
        of_skills = [failure for failure in self.catalog.failures if failure.source != "worker"]
        failures = (*of_skills, Failure("worker", reason))
        return Listing(Catalog(self.catalog.contracts, failures), self.views)

    def replaced(self, catalog: Catalog, views: Mapping[str, View], keeping: Collection[str]) -> Listing:
        """Another catalog, but with the current entries of the skills in `keeping`."""
        kept = [contract for contract in self.catalog.contracts if contract.skill in keeping]
        contracts = [contract for contract in catalog.contracts if contract.skill not in keeping] + kept
        contracts.sort(key=lambda contract: contract.id)
        shown = {**views, **{contract.id: self.views[contract.id] for contract in kept}}
        return Listing(Catalog(tuple(contracts), catalog.failures), shown)

    def last_good(self, new: Catalog) -> set[str]:
        """Skills that lost commands because they are broken, not because they were deleted."""
        there = {contract.id for contract in new.contracts}
        broken = {failure.source.partition(".")[0] for failure in new.failures}
        lost = (contract for contract in self.catalog.contracts if contract.id not in there)
        return {contract.skill for contract in lost if contract.skill in broken}


def _lists(definitions: Mapping[str, list[tuple[JsonObject, JsonObject]]]) -> Mapping[str, ItemList]:
    lists: dict[str, ItemList] = {}
    for method, shelf in LISTS.items():
        handshake, stateless = ([pair[era] for pair in definitions[method]] for era in (0, 1))
        if method == "tools/list":
            lists[method] = ToolList(handshake, stateless, optional=[read_more_tool()])
        else:
            lists[method] = ItemList(shelf.member, handshake, stateless)
    return lists


def _row_of(contract: Contract) -> KindRow:
    return next(row for row in ROWS if row.kind == contract.kind)


def _shelf_of(contract: Contract) -> KindList:
    return next(shelf for shelf in _row_of(contract).shelves if shelf.holds(contract))


def _definitions(contract: Contract, view: View) -> tuple[JsonObject, JsonObject]:
    """The definition for clients with a handshake, and the one for clients without."""
    define = _row_of(contract).define
    if define is not None:
        definition = define(contract)
        return definition, definition
    bare = define_tool(contract, view.input_schema, view.output)
    return define_tool(contract, view.input_schema, view.boxed_output), bare


def _diagnostics_tool() -> JsonObject:
    return {
        "name": DIAGNOSTICS,
        "description": "Reports what is wrong with this server: which skills fail to load, where and why, or which folders "
        "were searched if there are none.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},
    }
