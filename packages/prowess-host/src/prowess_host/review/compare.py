"""Compares two catalogs, and decides for each difference whether it breaks callers.

A difference is compatible if all valid argument objects stay valid, and all possible results were possible before. In
doubt, it counts as breaking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final, cast

from prowess.contracts.contract import Contract, Hints, Policies
from prowess.contracts.names import wire_forms
from prowess.frozen import frozen
from prowess.jsontypes import JsonObject
from prowess.profiles.profile import BUILT_IN
from prowess.schemas.nulls import strip_null
from prowess_host.review.containment import within
from prowess_host.review.diff import Change, changes, in_words

__all__ = ["Difference", "compare"]


@frozen
class Difference:
    """One difference, and whether it breaks callers."""

    command: str
    kind: str
    breaking: bool
    message: str
    where: str = ""
    """The place in the tool as clients see it: a JSON pointer."""
    suggestion: str | None = None
    """A change that would not break the callers."""

    def to_json(self) -> JsonObject:
        """As plain data."""
        return asdict(self)


def compare(before: Iterable[Contract], after: Iterable[Contract], profile: str = "portable") -> list[Difference]:
    """All differences by command, breaking ones first. `profile` is that of the callers."""
    old = {contract.id: contract for contract in before}
    new = {contract.id: contract for contract in after}
    found: list[Difference] = []
    successors: set[str] = set()
    for command, contract in old.items():
        successor = new.get(command) or _successor(contract, new.values())
        if successor is None:
            found.append(_removed(contract))
        else:
            successors.add(successor.id)
            found.extend(_Pair(contract, successor, profile).differences())
    found.extend(_added(contract) for command, contract in new.items() if command not in old.keys() | successors)
    return sorted(found, key=lambda item: (item.command, not item.breaking))


# --- commands -------------------------------------------------------------------------------------


def _names(contract: Contract) -> tuple[str, ...]:
    return contract.wire_name, contract.id, *contract.aliases, *wire_forms([contract], ())


def _successor(contract: Contract, candidates: Iterable[Contract]) -> Contract | None:
    """The command that has the wire name of a removed one."""
    return next((each for each in candidates if contract.wire_name in _names(each)), None)


def _removed(contract: Contract) -> Difference:
    alias = f"or give its successor aliases=[{contract.wire_name!r}, {contract.id!r}]"
    return Difference(contract.id, "command-removed", True, "the command is gone", "", f"keep it, {alias}")


def _added(contract: Contract) -> Difference:
    return Difference(contract.id, "command-added", False, "a new command")


class _Pair:
    """One command before and after."""

    def __init__(self, before: Contract, after: Contract, profile: str) -> None:
        self.before = before
        self.after = after
        self.profile = profile

    def differences(self) -> Iterator[Difference]:
        yield from self._names()
        yield from self._kind()
        yield from self._inputs()
        yield from self._outputs()
        yield from self._shown_field()
        yield from self._hints()
        yield from self._policies()
        yield from self._texts()

    def _breaking(self, kind: str, message: str, where: str, suggestion: str) -> Difference:
        return Difference(self.before.id, kind, True, message, where, suggestion)

    def _compatible(self, kind: str, message: str, where: str = "") -> Difference:
        return Difference(self.before.id, kind, False, message, where)

    # Kind and URI

    def _kind(self) -> Iterator[Difference]:
        before, after = self.before, self.after
        if before.kind != after.kind:
            text = f"it is a {after.kind} now; it was a {before.kind}"
            yield self._breaking(
                "kind", text, "", f"keep the {before.kind}, and give the {after.kind} a name of its own"
            )
        elif before.uri != after.uri:
            text = f"the URI is {after.uri!r}; it was {before.uri!r}"
            yield self._breaking("uri", text, "/uri", f"keep the URI, or declare a second resource at {before.uri!r}")
        if before.mime_type != after.mime_type:
            yield self._compatible(
                "mime-type", f"the type is {after.mime_type}; it was {before.mime_type}", "/mimeType"
            )

    # Names

    def _names(self) -> Iterator[Difference]:
        before, after = self.before, self.after
        kept = set(_names(after))
        if before.wire_name != after.wire_name:
            text = f"the name on the wire is {after.wire_name!r}; it was {before.wire_name!r}"
            yield self._renamed("wire-name", text, before.wire_name, "/name", kept)
        if before.id != after.id:
            yield self._renamed("id", f"the id is {after.id!r}; it was {before.id!r}", before.id, "", kept)
        for alias in before.aliases:
            if alias not in after.aliases:
                yield self._renamed("alias", f"the alias {alias!r} is gone", alias, "/aliases", kept)
        for alias in after.aliases:
            if alias not in before.aliases:
                yield self._compatible("alias-added", f"new alias {alias!r}", "/aliases")

    def _renamed(self, kind: str, text: str, name: str, where: str, kept: set[str]) -> Difference:
        if name in kept:
            return self._compatible(kind, f"{text}; the old name still works", where)
        return self._breaking(kind, text, where, f"keep the old name: aliases=[{name!r}]")

    # Arguments

    def _inputs(self) -> Iterator[Difference]:
        old, new = self.before.input_schema, self.after.input_schema
        found = [self._parameter(change) for change in changes(old, new)]
        yield from found
        if not any(item.breaking for item in found) and not _still_taken(old, new):
            yield self._breaking(
                "input",
                "as a whole, arguments that were valid may be rejected",
                "/inputSchema",
                "keep accepting everything that was accepted",
            )

    def _parameter(self, change: Change) -> Difference:
        gone = change.kind == "removed"  # an open schema would accept and ignore it
        where, text = f"/inputSchema{change.pointer}", f"{_subject('parameter', change)}: {change.message}"
        if not (change.narrows or gone):
            return self._compatible(f"parameter-{change.kind}", text, where)
        return self._breaking(f"parameter-{change.kind}", text, where, self._advice(change))

    def _advice(self, change: Change) -> str:
        if change.kind != "removed" or len(change.path) != 1:
            return _TAKE[change.kind]
        known = self.before.input_schema["properties"]
        come = [name for name in self.after.input_schema.get("properties", {}) if name not in known]
        renamed = f"; if it is called {come[0]!r} now, take both names" if len(come) == 1 else ""
        return _TAKE["removed"] + renamed

    # Results

    def _outputs(self) -> Iterator[Difference]:
        old, new = self.before.output.schema, self.after.output.schema
        if old is None and new is not None:
            yield self._compatible("output-declared", f"the result is declared: {in_words(new)}", "/outputSchema")
        elif old is not None and new is None:
            text = f"the result is no longer declared; it was {in_words(old)}"
            yield self._breaking("output-undeclared", text, "/outputSchema", "keep the return type, or declare output=")
        elif old is not None and new is not None:
            found = [self._field(change) for change in changes(old, new)]
            yield from found
            if not any(item.breaking for item in found) and not within(new, old):
                text = "as a whole, the result may differ from what was promised"
                yield self._breaking("output", text, "/outputSchema", "return only what was promised")

    def _field(self, change: Change) -> Difference:
        where, text = f"/outputSchema{change.pointer}", f"{_subject('result', change)}: {change.message}"
        if not (change.widens or change.kind == "removed"):
            return self._compatible(f"result-{change.kind}", text, where)
        return self._breaking(f"result-{change.kind}", text, where, _GIVE[change.kind])

    def _shown_field(self) -> Iterator[Difference]:
        """Differences in the field of the box."""
        was, now = _shown_as(self.before, self.profile), _shown_as(self.after, self.profile)
        if self.before.profile != self.after.profile:
            message = f"pinned to the profile {self.after.profile!r}; it was {self.before.profile!r}"
            yield self._compatible("profile", message.replace("None", "none"))
        if was is not None and now is not None and was != now:
            text = f"the result is {_in_place(now)}; it was {_in_place(was)}"
            yield self._breaking("result-place", text, "/outputSchema", _PLACE_ADVICE)
        if was is not None and now is None and self.after.output.schema is not None:
            text = "the result is no longer shown as structured content"
            yield self._breaking("result-place", text, "/outputSchema", "keep the profile")

    # Other differences

    def _hints(self) -> Iterator[Difference]:
        for hint in _HINTS:
            declared = getattr(self.before.hints, hint.name), getattr(self.after.hints, hint.name)
            was, now = hint.is_good(self.before.hints), hint.is_good(self.after.hints)
            where = f"/annotations/{hint.wire_name}"
            if was and not now:
                yield self._breaking("hint", hint.lost, where, hint.advice)
            elif declared[0] is not declared[1]:
                yield self._compatible("hint", f"{hint.name}: {_said(declared[0])} → {_said(declared[1])}", where)

    def _policies(self) -> Iterator[Difference]:
        for item in fields(Policies):
            was, now = getattr(self.before.policies, item.name), getattr(self.after.policies, item.name)
            if was != now:
                yield self._compatible(
                    "policy", f"{item.name}: {_plain(was)} → {_plain(now)}", f"/policies/{item.name}"
                )

    def _texts(self) -> Iterator[Difference]:
        for name, where in _TEXTS.items():
            was, now = getattr(self.before, name), getattr(self.after, name)
            if was != now:
                yield self._compatible(name, f"another {name}" if was and now else _come_or_gone(name, now), where)


# --- compatibility --------------------------------------------------------------------------------


def _still_taken(old: JsonObject, new: JsonObject) -> bool:
    """Whether all valid arguments stay valid, both in full and without nulls, as in most profiles."""
    return within(old, new) and within(strip_null(old), strip_null(new))


def _subject(what: str, change: Change) -> str:
    path = "".join(step if step in _UNNAMED else f".{step}" for step in change.path)
    if not path:
        return "the arguments" if what == "parameter" else "the result"
    return f"parameter {path[1:]}" if what == "parameter" else f"result{path}"


_UNNAMED: Final = ("[]", "{}")


def _shown_as(contract: Contract, profile: str) -> str | None:
    """The field of the box, empty without a box; `None` without an output schema."""
    shown = BUILT_IN.get(contract.profile or profile)
    if shown is None or contract.output.schema is None or not shown.shows_data(contract):
        return None
    probe = shown.value(contract, "")
    return next(iter(probe)) if isinstance(probe, dict) else ""


def _in_place(field: str) -> str:
    return f"in a field {field!r}" if field else "by itself"


_PLACE_ADVICE: Final = "keep the form of the result, or name the field: output_field="

_TAKE: Final[Mapping[str, str]] = {
    "removed": "keep it as an optional parameter, even if the command ignores it",
    "added": 'callers could send anything under this name: take it still, and close the type (extra="forbid")',
    "required": "give it a default",
    "null": "keep accepting null: annotate it `… | None`",
    "values": "keep the old values, at least as other names for new ones",
    "type": "keep accepting the old type: annotate it with a union of both",
    "limits": "keep the old limits",
    "open": "keep accepting other arguments: **kwargs",
}
_GIVE: Final[Mapping[str, str]] = {
    "removed": "keep the field, even if it stays empty",
    "added": "leave it out: callers were promised no other fields",
    "required": "leave it out: callers were promised no other fields",
    "optional": "always return it",
    "null": "return a value of the old type, or put null into a new field",
    "values": "return the old values, and put the new ones into a field of their own",
    "type": "keep the type, and put the new form into a field of its own",
    "limits": "stay within the old limits",
    "open": "return only the fields that were promised",
}


@frozen
class _Hint:
    """A hint from the view of a client, which assumes the worst for undeclared hints."""

    name: str
    wire_name: str
    good: bool
    lost: str
    advice: str
    moot: bool = False
    """Whether the hint is irrelevant for read-only commands."""

    def is_good(self, hints: Hints) -> bool:
        return getattr(hints, self.name) is self.good or (self.moot and hints.read_only is True)


_HINTS: Final = (
    _Hint(
        "read_only",
        "readOnlyHint",
        good=True,
        lost="no longer read-only: clients that ran it without asking will now ask",
        advice="declare read_only=True again if that is still true; otherwise move the writing part to a command of its own",
    ),
    _Hint(
        "destructive",
        "destructiveHint",
        good=False,
        lost="may now be destructive",
        advice="declare destructive=False if that is still true; otherwise move the destructive part to a command of its own",
        moot=True,
    ),
    _Hint(
        "idempotent",
        "idempotentHint",
        good=True,
        lost="no longer idempotent: trying again is not safe",
        advice="declare idempotent=True again if that is still true",
        moot=True,
    ),
    _Hint(
        "open_world",
        "openWorldHint",
        good=False,
        lost="may reach the outside world now",
        advice="declare open_world=False again if that is still true",
    ),
)

_TEXTS: Final[Mapping[str, str]] = {
    "description": "/description",
    "title": "/title",
    "category": "/_meta/prowess~1category",
    "tags": "/_meta/prowess~1tags",
    "icons": "/icons",
    "meta": "/_meta",
}


def _said(hint: bool | None) -> str:
    return "not declared" if hint is None else str(hint)


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(cast("tuple[str, ...]", value)) or "nothing"
    return "not set" if value is None else str(value)


def _come_or_gone(name: str, now: Any) -> str:
    noun = name if name.endswith("s") or name == "meta" else f"a {name}"
    return f"now has {noun}" if now else f"no longer has {noun}"
