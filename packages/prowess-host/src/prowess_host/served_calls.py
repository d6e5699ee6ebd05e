"""Requests for resources, prompts and completions: their targets, and the calls that answer them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess.contracts.kinds import COMPLETION, KINDS, MOST_VALUES, PROMPT, RESOURCE
from prowess.errors import did_you_mean
from prowess_host.protocol.codec import dumps
from prowess_host.protocol.cursors import read_cursor, write_cursor
from prowess_host.protocol.kinds import BY_METHOD
from prowess_host.protocol.rpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from prowess_host.tool_calls import ToolCall
from prowess_host.workers.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess.worker.messages import CallHead
    from prowess_host.catalog.listing import Listing
    from prowess_host.files.served_files import ServedFile, ServedFiles
    from prowess_host.protocol.session import RequestInFlight

__all__ = [
    "ServedCall",
    "ServedTarget",
    "answer_about_skills",
    "complete",
    "error_of",
    "find",
    "find_file",
    "read_served_file",
    "unknown",
]

_ON_A_PAGE: Final = 200
"""Skills, or files of a folder, on one page."""
_KIND: Final = "prowess/kind"
_UNKNOWN: Final = "unknown"
_CLIENTS_FAULT: Final = frozenset({"input", _UNKNOWN})


class ServedTarget(NamedTuple):
    """The target of a request, with the arguments."""

    contract: Contract
    arguments: JsonObject
    uri: str = ""
    completes: str | None = None
    """The name of the argument to complete."""


def find_file(call: RequestInFlight, listing: Listing, shelf: ServedFiles) -> ServedFile | None:
    """The file for a request, unless a resource of a skill has its URI."""
    uri = call.params.get("uri")
    if BY_METHOD[call.method].kind != RESOURCE or uri is None or listing.fixed_resource(uri) is not None:
        return None
    return shelf.get(uri)


def find(call: RequestInFlight, listing: Listing) -> ServedTarget | None:
    """Look up the target of a request in the listing. Raises `RpcError` for a wrong request."""
    params = call.params
    if call.method == "completion/complete":
        return _find_completion(params, listing)
    if call.method == "prompts/get":
        contract = listing.prompt(params["name"])
        return None if contract is None else ServedTarget(contract, params.get("arguments") or {})
    found = listing.resource(params["uri"])
    return None if found is None else ServedTarget(found[0], dict(found[1]), params["uri"])


def _find_completion(params: JsonObject, listing: Listing) -> ServedTarget | None:
    ref, argument = params["ref"], params["argument"]
    for name in ("name", "value"):
        if type(argument.get(name)) is not str:
            raise RpcError.wrong_param(f"params.argument.{name}", "a string", argument.get(name))
    referred = ref.get("type")
    if type(referred) is not str or referred not in _REFERENCES:
        raise RpcError.wrong_param("params.ref.type", " or ".join(_REFERENCES), referred)
    kind, place = _REFERENCES[referred]
    name = ref.get(place)
    if type(name) is not str:
        raise RpcError.wrong_param(f"params.ref.{place}", "a string", name)
    contract = listing.prompt(name) if kind == PROMPT else listing.template(name)
    if contract is None:
        return None
    context: JsonObject = params.get("context") or {}
    others: Any = context.get("arguments")
    typed: JsonObject = {"value": argument["value"], "arguments": others if type(others) is dict else {}}
    return ServedTarget(contract, typed, completes=argument["name"])


_REFERENCES: Final[Mapping[str, tuple[str, str]]] = {"ref/prompt": (PROMPT, "name"), "ref/resource": (RESOURCE, "uri")}


def unknown(call: RequestInFlight, listing: Listing) -> RpcError:
    """The error for an unknown name in a request."""
    params = call.params
    place = params.get("ref", params)
    if "uri" in place:
        uris = [contract.uri for contract in listing.catalog.contracts if contract.kind == RESOURCE]
        hint = did_you_mean(place["uri"], uris)
        return RpcError.unknown_resource(place["uri"], hint, stateless=call.revision.stateless)
    prompts = [contract.wire_name for contract in listing.catalog.contracts if contract.kind == PROMPT]
    reasons = listing.catalog.reasons(place["name"])
    why = f". This could not be loaded: {'; '.join(reasons)}" if reasons else did_you_mean(place["name"], prompts)
    return RpcError.unknown_prompt(place["name"], why)


def complete(target: ServedTarget) -> bytes | None:
    """The completion, if the schema lists the values; `None` if a worker has to be asked."""
    known = target.contract.completions.get(cast("str", target.completes), ())
    if known is None:
        return None
    typed = target.arguments["value"].casefold()
    first = [value for value in known if value.casefold().startswith(typed)]
    return _values([*first, *(value for value in known if value not in first and typed in value.casefold())])


def _values(values: list[str]) -> bytes:
    shown = {"values": values[:MOST_VALUES], "total": len(values), "hasMore": len(values) > MOST_VALUES}
    return dumps({"completion": shown})


def error_of(target: ServedTarget, kind: str, text: str, facts: JsonObject, *, stateless: bool) -> RpcError:
    """The error for a failure, because these kinds have no results with `isError`."""
    if kind == _UNKNOWN and target.uri:
        return RpcError.unknown_resource(target.uri, f": {text}", stateless=stateless)
    data = {**facts, _KIND: kind, **({"uri": target.uri} if target.uri else {})}
    return RpcError(INVALID_PARAMS if kind in _CLIENTS_FAULT else INTERNAL_ERROR, text, data)


# Files


def read_served_file(call: RequestInFlight, shelf: ServedFiles, file: ServedFile) -> bytes:
    """Read a file for the result. Runs in a thread."""
    try:
        return dumps(shelf.contents(file), "the file")
    except OSError as error:
        why = f": {error.strerror or error}"
        raise RpcError.unknown_resource(file.uri, why, stateless=call.revision.stateless) from error


def answer_about_skills(call: RequestInFlight, shelf: ServedFiles, allows: Callable[[str], bool]) -> bytes:
    """The result of a method of the Skills extension, with the skills that the client may read. Runs in a thread."""
    if call.method == "skills/list":
        return _page("skills", [each for each in shelf.entries() if allows(each["uri"])], call.params.get("cursor"))
    uri = call.params["uri"]
    if call.method == "skills/get":
        entry = shelf.entry(uri)
        if entry is None:
            raise RpcError(INVALID_PARAMS, f"Unknown skill: {uri}", {"uri": uri})
        return dumps({"skill": entry})
    children = shelf.index.children.get(uri) if shelf.index is not None else None
    if children is None:
        raise RpcError(INVALID_PARAMS, f"Not a directory: {uri}", {"uri": uri})
    return _page("resources", children, call.params.get("cursor"))


def _page(member: str, items: list[JsonObject], cursor: str | None) -> bytes:
    digest = hashlib.sha256(dumps(items)).hexdigest()[:16]
    start = read_cursor(cursor, digest, len(items))
    end = start + _ON_A_PAGE
    more = {"nextCursor": write_cursor(end, digest)} if end < len(items) else {}
    return dumps({member: items[start:end], **more})


class ServedCall(ToolCall):
    """Listens to the job of a resource, a prompt or a completion. Their failures are errors of the protocol."""

    target: ServedTarget

    def job(self, profile: str, seconds: float) -> Job:
        """The job for the workers; raises `RpcError` for a forged or foreign request state."""
        target = self.target
        if target.completes is not None:
            seconds = min(seconds, KINDS[COMPLETION].default_timeout or seconds)
        text = dumps(target.arguments, "params.arguments") if target.arguments else b"{}"
        how: CallHead = self._how(profile)
        if target.uri:
            how["uri"] = target.uri
        if target.completes is not None:
            how["completes"] = target.completes
        return Job(target.contract, dumps(how), text, self, seconds, is_private=target.completes is not None)

    def _may_ask(self, how: CallHead) -> None:
        """Completions must not ask questions, which the protocol has no way to send."""
        if self.target.completes is None:
            super()._may_ask(how)

    def result(self, meta: bytes, body: bytes) -> None:
        """Answer the request."""
        fields = cast("JsonObject", json.loads(meta))
        kind = fields.get(_KIND)
        if kind is None:
            super().result(meta, body)
            return
        blocks: Iterable[JsonObject] = json.loads(body).get("content", ())
        self._refuse(kind, "\n".join(block["text"] for block in blocks if block["type"] == "text"), fields)

    def _refuse(self, kind: str, text: str, facts: JsonObject) -> None:
        error = error_of(self.target, kind, text, facts, stateless=self._call.revision.stateless)
        self._write(self._call, self._session.refuse(self._call, error))

    def refused(self, facts: JsonObject) -> None:
        """Answer with an error: the client lacks a capability, or the worker no longer has the target."""
        if facts["kind"] == "missing_capability":
            super().refused(facts)
        else:
            self._refuse(facts["kind"], facts["message"], {})
