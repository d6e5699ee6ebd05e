"""The contract of a command, a resource or a prompt, as plain data.

A contract is computed once from a signature. It can be written to a file and read back, so that a process without the
skill and without pydantic can show it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from typing import Any, Final

from prowess.frozen import frozen
from prowess.jsontypes import JsonObject, Schema

__all__ = ["TOOL", "Contract", "Hints", "OutputShape", "Policies"]

TOOL: Final = "tool"
"""The kind of a command. Its JSON omits the fields of the other kinds."""
_BESIDE_TOOLS: Final = ("kind", "uri", "mime_type", "completions")


@frozen
class Hints:
    """The MCP hints an author declared. `None` means undeclared, and an undeclared hint is never sent."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether running it twice has the same effect as running it once."""
        return bool(self.read_only or self.idempotent)

    def to_mcp(self) -> JsonObject:
        """The declared hints under their names on the wire."""
        named = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {name: value for name, value in named.items() if value is not None}


@frozen
class Policies:
    """The policies of a command. A `timeout` of `None` means the default in the settings."""

    retry_on: tuple[str, ...] = ()
    max_attempts: int = 1
    cache_ttl: float = 0.0
    timeout: float | None = None
    concurrency: int | None = None
    thread: bool | None = None
    run_on: str = ""
    """The labels of the agents that may run it; empty for the machine of the host."""


@frozen
class OutputShape:
    """The properties of a result that profiles need."""

    schema: Schema | None = None
    """The canonical output schema; `None` if nothing was declared."""
    explicit: bool = False
    """Whether the author wrote it, so that it is used unchanged."""
    field: str | None = None
    """The author's name for the boxed field."""
    type_name: str | None = None
    """The name of the declared class, if the result is a model, a dataclass or a TypedDict."""
    text: bool = False
    """Whether the result is plain text: `-> str`, or `-> str | None`."""
    content: bool = False
    """Whether the command returns content blocks besides the data."""


@frozen
class Contract:
    """Everything that clients, reviewers and workers need about one command, resource or prompt."""

    id: str
    wire_name: str
    skill: str
    name: str
    description: str
    input_schema: Schema
    output: OutputShape = field(default_factory=OutputShape)
    summary: str = ""
    returns: str = ""
    """One line about the result, if the description does not describe it."""
    category: str = "general"
    title: str | None = None
    hints: Hints = field(default_factory=Hints)
    policies: Policies = field(default_factory=Policies)
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    icons: tuple[JsonObject, ...] = ()
    meta: JsonObject = field(default_factory=dict[str, Any])
    profile: str | None = None
    input_explicit: bool = False
    injected: tuple[str, ...] = ()
    """The names of injected parameters, which clients neither see nor send."""
    inject_settings: tuple[str, ...] = ()
    """The option `inject_settings` of the author: settings and variables that fill some of them."""
    source: str = ""
    """`file:line` of the function; the file is relative to the project if possible."""
    warnings: tuple[str, ...] = ()
    """Probable mistakes of the author. Not part of the contract with callers."""
    in_thread: bool = True
    """Whether its calls take a thread of a worker, because the function is sync. The host needs this; it is not in the digest."""
    kind: str = TOOL
    """A kind in the table of `prowess.contracts.kinds`."""
    uri: str = ""
    """For a resource: its URI or URI template."""
    mime_type: str | None = None
    """For a resource: the MIME type of its content."""
    completions: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict[str, Any])
    """Completions by argument: the values, or `None` if a function in the worker returns them."""

    def to_json(self) -> JsonObject:
        """Plain data that `from_json` reads back to an equal contract."""
        data = asdict(self)
        if self.kind == TOOL:
            for name in _BESIDE_TOOLS:
                del data[name]
        if not self.policies.run_on:
            del data["policies"]["run_on"]
        return data

    @classmethod
    def from_json(cls, data: JsonObject) -> Contract:
        """Read the data of `to_json`. Raises `TypeError` or `KeyError` for an unknown or missing key."""
        known: dict[str, Any] = dict(data)
        known["output"] = OutputShape(**known["output"])
        known["hints"] = Hints(**known["hints"])
        policies: dict[str, Any] = dict(known["policies"], retry_on=tuple(known["policies"]["retry_on"]))
        known["policies"] = Policies(**policies)
        for name in _TUPLES:
            known[name] = tuple(known[name])
        known["completions"] = {
            name: None if values is None else tuple(values) for name, values in known.get("completions", {}).items()
        }
        return cls(**known)

    @property
    def is_tool(self) -> bool:
        """Whether clients see it as a tool."""
        return self.kind == TOOL

    @property
    def is_template(self) -> bool:
        """Whether it is a resource whose URI has variables."""
        return "{" in self.uri

    @property
    def shown_description(self) -> str:
        """The description for clients."""
        return "\n\n".join(filter(None, (self.description or self.summary or self.id, self.returns)))

    @property
    def digest(self) -> str:
        """A fingerprint of everything that callers and reviewers can rely on, so without the place in the source."""
        data = self.to_json()
        del data["source"], data["warnings"], data["in_thread"]
        text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_TUPLES = tuple(f.name for f in fields(Contract) if str(f.type).startswith("tuple"))
