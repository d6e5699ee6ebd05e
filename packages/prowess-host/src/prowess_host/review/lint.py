"""Finds problems for clients: names they cut, schemas they reject, too many tools, and the tokens of the catalog.

Every rule names its client. A schema that a client rejects is an error if the caller asked about that client, and a warning
otherwise. The rules apply to contracts in a profile.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, NamedTuple, TypeAlias

from prowess.contracts.catalog import Catalog
from prowess.contracts.contract import Contract
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, Schema
from prowess.profiles.profile import Profile
from prowess.schemas.refs import resolve
from prowess.schemas.walk import Path, is_list, is_schema, visit
from prowess.settings.limits import Limits, wider
from prowess_host.protocol.pointers import json_pointer

__all__ = ["CLIENTS", "LintFinding", "count_tokens", "lint", "wider_limits"]

_NAME_LIMIT: Final = 64
_BYTES_PER_TOKEN: Final = 4


@frozen
class LintFinding:
    """One problem, with its place and the client."""

    level: str
    """`error` or `warning`."""
    rule: str
    command: str
    """The id of the command; empty for the catalog as a whole."""
    message: str
    where: str = ""
    """The place in the tool in the form of this client: a JSON pointer."""
    client: str | None = None

    def to_json(self) -> JsonObject:
        """As plain data."""
        return asdict(self)


def count_tokens(contract: Contract, profile: Profile) -> int:
    """The estimated tokens of a command in every prompt: a quarter of the bytes that models see.

    These are the name, the description and the input schema, as compact JSON in UTF-8. Tokenizers differ by about a fifth.
    """
    return math.ceil(_size(_Tool.of(contract, profile)) / _BYTES_PER_TOKEN)


def lint(
    contracts: Iterable[Contract],
    profile: Callable[[Contract], Profile],
    *,
    server: str = "prowess",
    clients: Sequence[str] = (),
    budget: int = 0,
) -> list[LintFinding]:
    """All problems for the given clients, or for any client. A `budget` of 0 means no limit."""
    tools = [_Tool.of(contract, profile(contract), server) for contract in contracts if contract.is_tool]
    found = [finding for tool in tools for finding in _general(tool)]
    for client in clients or CLIENTS:
        for hurt in _hurts(client, tools):
            level = "error" if hurt.refused and client in clients else "warning"
            found.append(LintFinding(level, hurt.rule, hurt.command, hurt.message, hurt.where, client))
    tokens = sum(count_tokens(contract, profile(contract)) for contract in (tool.contract for tool in tools))
    if 0 < budget < tokens:
        text = f"the catalog costs about {tokens} tokens; the budget is {budget}"
        found.append(LintFinding("error", "budget", "", text))
    return sorted(found, key=lambda item: (item.command, item.level))


def wider_limits(now: Mapping[str, Limits], before: Mapping[str, Limits], catalog: Catalog) -> Iterator[LintFinding]:
    """The skills with wider limits than in the committed catalog, including those without limits now."""
    known = {contract.skill for contract in catalog}
    for skill, agreed in before.items():
        if skill in now and (more := wider(now[skill], agreed)):
            text = f"the limits of {skill} are wider than those in the committed catalog: {', '.join(more)}"
        elif skill not in now and skill in known:
            text = f"{skill} no longer has limits; the committed catalog has some"
        else:
            continue
        yield LintFinding(
            "error", "limits", "", f"{text}. If this is intended, run prowess build and commit the catalog"
        )


# --- tools ----------------------------------------------------------------------------------------


class _Tool(NamedTuple):
    contract: Contract
    input: Schema
    output: Schema | None
    server: str

    @classmethod
    def of(cls, contract: Contract, profile: Profile, server: str = "") -> _Tool:
        return cls(contract, profile.input_schema(contract), profile.output_schema(contract), server)

    @property
    def name(self) -> str:
        return self.contract.wire_name

    def nodes(self) -> Iterator[tuple[str, Path, Schema]]:
        """Every schema of the arguments, with its place in the tool and its path."""
        yield from _nodes("inputSchema", self.input)

    def output_nodes(self) -> Iterator[tuple[str, Path, Schema]]:
        yield from _nodes("outputSchema", self.output or {})


def _nodes(keyword: str, schema: Schema) -> Iterator[tuple[str, Path, Schema]]:
    for path, node in visit(schema):
        yield json_pointer(keyword, *path), path, node


def _size(tool: _Tool) -> int:
    """The bytes that a model sees."""
    shown = {"name": tool.name, "description": tool.contract.shown_description, "inputSchema": tool.input}
    return len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


# --- problems for every client --------------------------------------------------------------------


def _general(tool: _Tool) -> Iterator[LintFinding]:
    command, contract = tool.contract.id, tool.contract
    if len(tool.name) > _NAME_LIMIT:
        text = f"the name {tool.name!r} has {len(tool.name)} characters; the limit is {_NAME_LIMIT}"
        yield LintFinding("error", "name-length", command, text, "/name")
    yield from _instructions(tool)
    for warning in contract.warnings:
        yield LintFinding("warning", "declaration", command, f"{warning} ({contract.source})")
    if not contract.description.strip():
        yield LintFinding("warning", "no-description", command, "no description: write a docstring", "/description")
    for name, held in contract.input_schema.get("properties", {}).items():
        if is_schema(held) and not _is_described(contract.input_schema, held):
            where = json_pointer("inputSchema", "properties", name)
            text = f"the parameter {name} has no description: write one in the docstring, under Args:"
            yield LintFinding("warning", "no-description", command, text, where)


_REACHING: Final = (
    (
        r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:instructions?|prompts?|rules|guidelines)\b",
        "it asks the model to ignore other instructions",
    ),
    (
        r"\b(?:do not|don't|never|without)\b[^.\n]{0,30}\b(?:tell|inform|mention|reveal|show)\w*[^.\n]{0,30}\b(?:user|person)\b",
        "it asks the model to hide something from the user",
    ),
    (
        r"\b(?:always|before|after|whenever|when)\b[^.\n]{0,40}\b(?:any|every|each|all|other|another)\b[^.\n]{0,20}\btools?\b",
        "it gives rules for calls of other tools",
    ),
    (
        r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|admin|assistant|user)\b[^>\n]{0,40}>",
        "it imitates markup of the conversation",
    ),
    (
        r"\b(?:system prompt|(?:conversation|chat) history|previous messages|id_rsa|\.ssh/|\.aws/credentials|mcp\.json)",
        "it asks for data that the tool does not receive",
    ),
)
"""Phrases in descriptions that instruct models beyond their tool, each with the reason. The list is short and simple: it helps
reviewers, but does not stop an author who hides such a phrase."""


def _instructions(tool: _Tool) -> Iterator[LintFinding]:
    """Texts that instruct the model beyond the tool."""
    texts = [("/description", tool.contract.shown_description)]
    texts += [
        (where, node["description"]) for where, _, node in tool.nodes() if isinstance(node.get("description"), str)
    ]
    for where, text in texts:
        for pattern, why in _REACHING:
            found = re.search(pattern, text, re.IGNORECASE)
            if found:
                message = f"a description reaches beyond its tool ({found[0]!r}): {why}"
                yield LintFinding("warning", "instructions", tool.contract.id, message, where)


def _is_described(document: Schema, held: Schema) -> bool:
    target = resolve(document, held["$ref"]) if "$ref" in held else None
    return bool(held.get("description") or (target or {}).get("description"))


# --- problems for one client ----------------------------------------------------------------------


class _Hurt(NamedTuple):
    rule: str
    command: str
    message: str
    where: str = ""
    refused: bool = True
    """Whether the client rejects it; otherwise it cuts or changes it."""


_Rule: TypeAlias = Callable[[_Tool], Iterator[_Hurt]]
_Whole: TypeAlias = Callable[[Sequence[_Tool]], Iterator[_Hurt]]
_ROOT_UNIONS: Final = ("allOf", "anyOf", "if", "not", "oneOf")


def _root_union(refused: bool, does: str) -> _Rule:
    def rule(tool: _Tool) -> Iterator[_Hurt]:
        for keyword in _ROOT_UNIONS:
            if keyword in tool.input:
                yield _Hurt(
                    "root-union", tool.contract.id, f"{keyword} at the root {does}", f"/inputSchema/{keyword}", refused
                )

    return rule


def _root_type(tool: _Tool) -> Iterator[_Hurt]:
    if tool.input.get("type") != "object":
        yield _Hurt("root-type", tool.contract.id, "the root must be of type object", "/inputSchema")


def _keywords(*keywords: str) -> _Rule:
    """A rule for keywords that a client rejects anywhere in the arguments."""

    def rule(tool: _Tool) -> Iterator[_Hurt]:
        for where, _, node in tool.nodes():
            for keyword in keywords:
                if keyword in node:
                    yield _Hurt("keyword", tool.contract.id, f"{keyword} is refused", f"{where}/{keyword}")

    return rule


def _null_branch(tool: _Tool) -> Iterator[_Hurt]:
    for where, _, node in tool.nodes():
        for index, branch in enumerate(node.get("anyOf", ())):
            if is_schema(branch) and branch.get("type") == "null":
                yield _Hurt("null", tool.contract.id, "a null branch is refused", f"{where}/anyOf/{index}")


def _null_type(tool: _Tool) -> Iterator[_Hurt]:
    for where, _, node in tool.nodes():
        types = node.get("type")
        if is_list(types) and "null" in types:
            yield _Hurt("null", tool.contract.id, f"the union of types {json.dumps(types)} is refused", f"{where}/type")


def _no_items(tool: _Tool) -> Iterator[_Hurt]:
    for where, _, node in tool.nodes():
        if node.get("type") == "array" and "items" not in node:
            yield _Hurt("items", tool.contract.id, "an array without items loses the whole tool", where)


def _positions(tool: _Tool) -> Iterator[_Hurt]:
    for where, _, node in (*tool.nodes(), *tool.output_nodes()):
        if "prefixItems" in node:
            text = "this client validates with draft-07, which lacks prefixItems"
            yield _Hurt("tuple", tool.contract.id, text, f"{where}/prefixItems")


def _leftover_refs(tool: _Tool) -> Iterator[_Hurt]:
    """References that cannot be inlined: recursive ones, and those without a target."""
    for where, _, node in tool.nodes():
        if isinstance(ref := node.get("$ref"), str) and not _ends(tool.input, ref, ()):
            text = f"the reference {ref!r} is recursive or has no target, so it cannot be inlined"
            yield _Hurt("reference", tool.contract.id, text, f"{where}/$ref")


def _ends(document: Schema, ref: str, opened: tuple[str, ...]) -> bool:
    target = resolve(document, ref)
    if target is None or ref in opened:
        return False
    inner = (node["$ref"] for _, node in visit(target) if isinstance(node.get("$ref"), str))
    return all(_ends(document, each, (*opened, ref)) for each in inner)


_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_CHARACTERS: Final = re.compile(r"[a-zA-Z0-9_-]+")


def _property_names(tool: _Tool) -> Iterator[_Hurt]:
    for where, _, node in tool.nodes():
        for name in node.get("properties", {}):
            if not _PROPERTY.fullmatch(name):
                text = f"the property name {name!r} does not match ^{_PROPERTY.pattern}$"
                yield _Hurt("property-name", tool.contract.id, text, where + json_pointer("properties", name))


def _long_name(form: str, limit: int, *, refused: bool, does: str) -> _Rule:
    """A rule for the length of the name that a client forms."""

    def rule(tool: _Tool) -> Iterator[_Hurt]:
        name = form.format(server=tool.server, tool=tool.name)
        if len(name) > limit:
            text = f"{name!r} has {len(name)} characters; more than {limit} {does}"
            yield _Hurt("name-length", tool.contract.id, text, "/name", refused)

    return rule


def _characters(tool: _Tool) -> Iterator[_Hurt]:
    if not _CHARACTERS.fullmatch(tool.name):
        text = f"the name {tool.name!r} may only have letters, digits, _ and -"
        yield _Hurt("name-characters", tool.contract.id, text, "/name")


def _long_description(tool: _Tool) -> Iterator[_Hurt]:
    size = len(tool.contract.shown_description.encode("utf-8", "surrogatepass"))
    if size > _CLAUDE_TEXT:
        text = f"the description has {size} bytes, and is cut after {_CLAUDE_TEXT}: put first what matters"
        yield _Hurt("description-length", tool.contract.id, text, "/description", refused=False)


_CLAUDE_TEXT: Final = 2048
_VSCODE_TEXT: Final = 1024


def _long_node_descriptions(tool: _Tool) -> Iterator[_Hurt]:
    for where, _, node in tool.nodes():
        size = len(node.get("description", ""))
        if size > _VSCODE_TEXT:
            text = f"the description has {size} characters, and is cut after {_VSCODE_TEXT}"
            yield _Hurt("description-length", tool.contract.id, text, f"{where}/description", refused=False)


def _hidden_content(tool: _Tool) -> Iterator[_Hurt]:
    if tool.output is not None and tool.contract.output.content:
        text = "returns content beside structured data, and models see only the data"
        advice = "put all a model needs into the data, or return the content without an output schema"
        yield _Hurt("hidden-content", tool.contract.id, f"{text}: {advice}", "/outputSchema", refused=False)


_CODEX_TOOL: Final = 8_000
_CODEX_ALL: Final = 64_000


def _large(tool: _Tool) -> Iterator[_Hurt]:
    if _size(tool) > _CODEX_TOOL:
        text = f"the tool has {_size(tool)} bytes; the limit for plugins is {_CODEX_TOOL}"
        yield _Hurt("tool-size", tool.contract.id, text, "", refused=False)


def _all_large(tools: Sequence[_Tool]) -> Iterator[_Hurt]:
    size = sum(map(_size, tools))
    if size > _CODEX_ALL:
        text = f"all tools have {size} bytes; the limit for plugins is {_CODEX_ALL}"
        yield _Hurt("tool-size", "", text, "", refused=False)


def _too_many(limit: int, does: str, *, refused: bool = True) -> _Whole:
    def rule(tools: Sequence[_Tool]) -> Iterator[_Hurt]:
        if len(tools) > limit:
            yield _Hurt("tool-count", "", f"{len(tools)} tools; more than {limit} {does}", "", refused)

    return rule


def _server_name(tools: Sequence[_Tool]) -> Iterator[_Hurt]:
    for server in sorted({tool.server for tool in tools if "_" in tool.server}):
        text = f"the server name {server!r} has a _, where policies take the name to end"
        yield _Hurt("server-name", "", text, "", refused=False)


class _Client(NamedTuple):
    tool_rules: tuple[_Rule, ...]
    whole_rules: tuple[_Whole, ...] = ()


_CLIENTS: Final[Mapping[str, _Client]] = {
    "claude-code": _Client(
        (
            _long_name("mcp__{server}__{tool}", _NAME_LIMIT, refused=True, does="break the session"),
            _characters,
            _root_type,
            _root_union(refused=True, does="is refused"),
            _property_names,
            _long_description,
            _hidden_content,
        )
    ),
    "codex": _Client((_characters, _large), (_all_large,)),
    "copilot": _Client(
        (_characters, _long_name("{server}-{tool}", _NAME_LIMIT, refused=True, does="make the model's API refuse all"))
    ),
    "cursor": _Client(
        (
            _long_name("{server}{tool}", 60, refused=True, does="lose the tool"),
            _characters,
            _null_type,
            _positions,
        ),
        (_too_many(40, "are silently left out", refused=False),),
    ),
    "gemini": _Client(
        (
            _long_name("mcp_{server}_{tool}", 63, refused=False, does="are cut in the middle"),
            _keywords("$ref", "$defs", "const", "oneOf", "propertyNames"),
            _null_branch,
        ),
        (_server_name,),
    ),
    "goose": _Client((_long_name("{server}__{tool}", _NAME_LIMIT, refused=True, does="are refused by models' APIs"),)),
    "opencode": _Client(
        (_long_name("{server}_{tool}", _NAME_LIMIT, refused=True, does="are refused by models' APIs"),)
    ),
    "vscode": _Client(
        (_root_union(refused=False, does="is deleted"), _no_items, _long_node_descriptions),
        (_too_many(128, "are refused"),),
    ),
    "windsurf": _Client((), (_too_many(100, "of all servers together are rejected"),)),
    "zed": _Client(
        (
            _long_name("{tool}", _NAME_LIMIT, refused=False, does="are cut"),
            _keywords("if", "then", "else"),
            _leftover_refs,
        )
    ),
}

CLIENTS: Final = tuple(_CLIENTS)
"""The clients whose rules are known, by name."""


def _hurts(client: str, tools: Sequence[_Tool]) -> Iterator[_Hurt]:
    rules = _CLIENTS[client]
    for tool in tools:
        for rule in rules.tool_rules:
            yield from rule(tool)
    for whole in rules.whole_rules:
        yield from whole(tools)
