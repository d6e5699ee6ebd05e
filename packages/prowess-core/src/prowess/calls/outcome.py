"""The outcome of one call, and the payload that a client gets for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from prowess.contracts.contract import TOOL, Contract, OutputShape
from prowess.jsontypes import Json, JsonObject, new_object
from prowess.profiles.profile import BUILT_IN, Profile
from prowess.results.content import text_block, to_text_only
from prowess.results.kinds import SHOWN
from prowess.results.normalize import Result
from prowess.schemas.adapters import to_text

__all__ = [
    "META_ATTEMPTS",
    "META_CACHED",
    "META_DATA",
    "META_DECODED",
    "META_KIND",
    "META_RETRY_AFTER",
    "Kind",
    "Outcome",
    "read_outcome",
    "render",
    "write_outcome",
]

Kind: TypeAlias = Literal[
    "ok",
    "input",
    "failed",
    "crashed",
    "retryable",
    "timeout",
    "worker_lost",
    "busy",
    "output",
    "unknown",
    "input_required",
]

META_ATTEMPTS: Final = "prowess/attempts"
META_CACHED: Final = "prowess/cached"
META_DATA: Final = "prowess/data"
META_DECODED: Final = "prowess/decoded"
META_KIND: Final = "prowess/kind"
META_RETRY_AFTER: Final = "prowess/retry_after"
_META_CALL_ID: Final = "prowess/call_id"
_META_DURATION: Final = "prowess/duration"
_META_PROBLEMS: Final = "prowess/problems"
_META_URI: Final = "prowess/uri"
"""Facts that only `write_outcome` writes. Clients never get them."""


@dataclass(slots=True)  # a frozen class would take twice the time
class Outcome:
    """The result of a call: a value, or a failure with a kind; with attempts and duration. Read-only."""

    command: str
    kind: Kind
    result: Result
    contract: Contract | None = None
    attempts: int = 1
    cached: bool = False
    duration: float = 0.0
    """Seconds from the call to this outcome."""
    call_id: str = ""
    problems: tuple[str, ...] = ()
    """Every problem with the arguments, for the kind `input`."""
    decoded: tuple[str, ...] = ()
    """Paths of arguments that were decoded from JSON text."""
    data: Json = None
    """The `data` of a `SkillError`."""
    retry_after: float | None = None
    missing_capability: str | None = None
    """The required capability that the client lacks, with dots for nested names; the kind is `failed`."""
    questions: Mapping[str, Mapping[str, Any]] = field(default_factory=new_object)
    """The questions to a person, for the kind `input_required`."""
    profiles: Mapping[str, Profile] = field(default_factory=lambda: BUILT_IN)
    uri: str = ""
    """For a resource: the requested URI."""

    @property
    def ok(self) -> bool:
        """Whether the command succeeded."""
        return self.kind == "ok"

    @property
    def value(self) -> Json:
        """The result as JSON data, unboxed; `None` for a failure."""
        return self.result.value if self.ok else None

    @property
    def text(self) -> str:
        """The result, or the failure, as text."""
        return self.result.text

    def payload(self, profile: str | None = None, *, boxed: bool = True) -> JsonObject:
        """The payload in a profile: `content`, `isError` and, for data, `structuredContent`.

        `boxed=False` is for MCP revisions that allow any JSON value as structured content. A resource has `contents`
        instead, and a prompt has `messages`; their failures look like those of commands.
        """
        if self.contract is not None and self.contract.kind != TOOL and self.kind == "ok":
            payload, meta = SHOWN[self.contract.kind](self.result, self.contract, self.uri), self._meta()
            return {**payload, "_meta": meta} if meta else payload
        pinned = self.contract.profile if self.contract else None
        chosen = self.profiles[pinned or profile or "portable"]
        shape = self.contract or _NO_CONTRACT
        return render(self.result, chosen, shape, meta=self._meta(), boxed=boxed)

    def shows_schema(self, profile: str | None = None, *, boxed: bool = True) -> bool:
        """Whether clients of the profile see an output schema for this command, and so expect structured content."""
        if self.contract is None:
            return False
        chosen = self.profiles[self.contract.profile or profile or "portable"]
        return chosen.output_schema(self.contract, boxed=boxed) is not None

    def _meta(self) -> JsonObject:
        meta: JsonObject = {}
        if self.cached:
            meta[META_CACHED] = True
        if self.attempts > 1 or self.kind == "retryable":
            meta[META_ATTEMPTS] = self.attempts
        if self.kind != "ok":
            meta[META_KIND] = self.kind
        if self.retry_after is not None:
            meta[META_RETRY_AFTER] = self.retry_after
        if self.decoded:
            meta[META_DECODED] = list(self.decoded)
        if self.data is not None:
            meta[META_DATA] = self.data
        return meta


_NO_CONTRACT: Final = Contract("", "", "", "", "", {}, OutputShape())


def render(
    result: Result,
    profile: Profile = BUILT_IN["portable"],
    contract: Contract = _NO_CONTRACT,
    *,
    meta: JsonObject | None = None,
    boxed: bool = True,
) -> JsonObject:
    """A canonical result as the payload in a profile."""
    has_data = result.structured and profile.shows_data(contract)
    structured: Json = profile.value(contract, result.value, boxed=boxed) if has_data else None
    if result.blocks is not None:
        content = list(result.blocks) if has_data else _with_data(result, keeps_structure=profile.structured)
    elif profile.text_is_boxed and has_data:
        content = [text_block(to_text(structured))]
    else:
        content = [text_block(result.text)]
    payload: JsonObject = {"content": content, "isError": result.is_error}
    if profile.box is None:
        return to_text_only(payload)
    if has_data:
        payload["structuredContent"] = structured
    meta = {**result.meta, **(meta or {})}
    if meta:
        payload["_meta"] = meta
    return payload


def _with_data(result: Result, *, keeps_structure: bool) -> list[JsonObject]:
    """The blocks of a result without structured content, with a text block for the data unless a block already has it.

    So `-> tuple[Image, str]` becomes an image and a text. A tool result that a command made itself stays unchanged.
    """
    blocks = list(result.blocks or ())
    if not result.pair and not (result.structured and keeps_structure):
        return blocks
    text = result.value if isinstance(result.value, str) else "" if result.value is None else to_text(result.value)
    return blocks if any(text in block.get("text", "") for block in blocks) or not text else [*blocks, text_block(text)]


# From one process to another


def write_outcome(outcome: Outcome) -> tuple[JsonObject, JsonObject]:
    """The facts and the result of an outcome as two JSON objects for `read_outcome`.

    The result is that of the command, before any profile. It has `content` and `isError` like every payload, because a
    host that answers instead of a worker can only give these.
    """
    result = outcome.result
    facts: JsonObject = {
        META_KIND: outcome.kind,
        META_ATTEMPTS: outcome.attempts,
        META_CACHED: outcome.cached,
        _META_DURATION: outcome.duration,
        _META_CALL_ID: outcome.call_id,
        META_RETRY_AFTER: outcome.retry_after,
        META_DATA: outcome.data,
        META_DECODED: list(outcome.decoded),
        _META_PROBLEMS: list(outcome.problems),
    }
    if outcome.uri:
        facts[_META_URI] = outcome.uri
    body: JsonObject = {
        "content": [text_block(result.text)],
        "isError": result.is_error,
        "result": result.as_data(),
    }
    return facts, body


def read_outcome(command: str, facts: JsonObject, body: JsonObject, contract: Contract | None = None) -> Outcome:
    """The outcome that a worker wrote, or a failure that the host has answered with: `content` and a kind."""
    data: JsonObject = body.get("result") or {"text": body["content"][0]["text"], "is_error": True}
    return Outcome(
        command,
        facts[META_KIND],
        Result.of_data(data),
        contract,
        attempts=facts.get(META_ATTEMPTS, 1),
        cached=facts.get(META_CACHED, False),
        duration=facts.get(_META_DURATION, 0.0),
        call_id=facts.get(_META_CALL_ID, ""),
        problems=tuple(facts.get(_META_PROBLEMS, ())),
        decoded=tuple(facts.get(META_DECODED, ())),
        data=facts.get(META_DATA),
        retry_after=facts.get(META_RETRY_AFTER),
        uri=facts.get(_META_URI, ""),
    )
