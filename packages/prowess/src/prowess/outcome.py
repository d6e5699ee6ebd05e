"""What one call came to, and how it is shown to a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from prowess.adapters import to_text
from prowess.content import text_block, to_text_only
from prowess.contract import Contract, OutputShape
from prowess.jsontypes import Json, JsonObject, new_object
from prowess.normalize import Result
from prowess.profiles import BUILT_IN, Profile

__all__ = [
    "META_ATTEMPTS",
    "META_CACHED",
    "META_DATA",
    "META_KIND",
    "META_RETRY_AFTER",
    "Kind",
    "Outcome",
    "render",
]

Kind: TypeAlias = Literal[
    "ok", "input", "failed", "crashed", "retryable", "timeout", "worker_lost", "output", "unknown", "input_required"
]

META_ATTEMPTS: Final = "prowess/attempts"
META_CACHED: Final = "prowess/cached"
META_DATA: Final = "prowess/data"
META_KIND: Final = "prowess/kind"
META_RETRY_AFTER: Final = "prowess/retry_after"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A value, or a failure with a kind, plus what it took."""

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
    data: Json = None
    """What a `SkillError` carried beside its message."""
    retry_after: float | None = None
    missing_capability: str | None = None
    """What the client cannot do although the command needs it, with dots where it is nested; the kind is `failed`."""
    questions: Mapping[str, Mapping[str, Any]] = field(default_factory=new_object)
    """What a person has to answer first, for the kind `input_required`."""
    profiles: Mapping[str, Profile] = field(default_factory=lambda: BUILT_IN)

    @property
    def ok(self) -> bool:
        """Whether the command did what it was asked."""
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
        """`content`, `isError` and, where there is one, `structuredContent`, as a profile shows them.

        `boxed=False` is for wires that take any JSON value as structured content.
        """
        pinned = self.contract.profile if self.contract else None
        chosen = self.profiles[pinned or profile or "portable"]
        shape = self.contract or _NO_CONTRACT
        return render(self.result, chosen, shape, meta=self._meta(), boxed=boxed)

    def _meta(self) -> JsonObject:
        meta: JsonObject = {}
        if self.cached:
            meta[META_CACHED] = True
        if self.attempts > 1 or self.kind == "retryable":
            meta[META_ATTEMPTS] = self.attempts
        if not self.ok:
            meta[META_KIND] = self.kind
        if self.retry_after is not None:
            meta[META_RETRY_AFTER] = self.retry_after
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
    """A canonical result as the payload that a profile shows."""
    structured: Json = profile.value(contract, result.value, boxed=boxed) if result.structured else None
    if result.blocks is not None:
        content = list(result.blocks)
    elif profile.text_is_boxed and result.structured:
        content = [text_block(to_text(structured))]
    else:
        content = [text_block(result.text)]
    payload: JsonObject = {"content": content, "isError": result.is_error}
    if not profile.structured:
        return to_text_only(payload)
    if result.structured:
        payload["structuredContent"] = structured
    meta = {**result.meta, **(meta or {})}
    if meta:
        payload["_meta"] = meta
    return payload
