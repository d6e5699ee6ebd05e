"""Questions to a client, in both eras: what it can be asked, how a question is sent, and the signed state of a rerun.

In the handshake era a question is a request from the server. In the stateless era the call ends with `input_required`,
and the client repeats it with the answers and the `requestState`. That state is signed and readable: it binds the answers
to one command, its contract and its arguments. The caller supplies the clock and the key.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess_host.protocol.codec import dumps
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.eras import ClientInfo, Revision

__all__ = [
    "NEEDS",
    "STATE_LIFETIME",
    "Answers",
    "Occasion",
    "askable",
    "can_ask",
    "digest_arguments",
    "input_required",
    "kind_of",
    "read_answer",
    "request_of",
    "require_asking",
    "resume",
    "seal",
    "unseal",
]

STATE_LIFETIME: Final = 3600.0
"""Seconds that a person has to answer. A leaked state is useless after that."""

NEEDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"form": ("elicitation",), "url": ("elicitation", "url"), "sample": ("sampling",), "roots": ("roots",)}
)
"""The kinds of questions, and the capability that a client needs for each."""
_FORM_VERSION: Final = 3
_PURPOSE: Final = b"prowess request state\0"
"""Separates these signatures from others with the same key."""
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})


class Occasion(NamedTuple):
    """The call that a sealed state is bound to: command, contract, arguments and caller."""

    command: str
    contract: str
    """Digest of the contract."""
    arguments: str
    """Digest of the arguments, see `digest_arguments`."""
    caller: str = ""
    """Digest of the caller, if several callers share a server."""


class Answers(NamedTuple):
    """The answers so far, by key. `stale` says that answers were dropped because the contract has changed since, so
    everything has to be asked again.
    """

    given: Mapping[str, JsonObject]
    asked: Mapping[str, str] = MappingProxyType({})
    """The kinds of the last questions by key."""
    stale: bool = False


# Questions and answers


def can_ask(client: ClientInfo, revision: Revision) -> bool:
    """Whether the client supports forms. An empty declaration means forms; one with only URLs does not."""
    declared = client.capabilities.get("elicitation")
    if not revision.elicitation or not isinstance(declared, dict):
        return False
    return not declared or "form" in declared


def askable(client: ClientInfo, revision: Revision) -> list[str]:
    """The kinds of questions that the client can be asked."""
    declared = client.capabilities
    elicitation = declared.get("elicitation")
    opens_pages = revision.elicitation_mode and type(elicitation) is dict and type(elicitation.get("url")) is dict  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    able = {
        "form": can_ask(client, revision),
        "url": opens_pages,
        "sample": type(declared.get("sampling")) is dict,
        "roots": type(declared.get("roots")) is dict,
    }
    return [kind for kind, is_able in able.items() if is_able]


def kind_of(question: Mapping[str, Any]) -> str:
    """The kind of a question from a worker. Raises `ValueError` for an unknown one."""
    kind = question.get("ask", "form")
    if kind not in NEEDS:
        raise ValueError(f"unknown kind of question {kind!r}")
    return kind


def require_asking(client: ClientInfo, revision: Revision, kinds: Iterable[str]) -> None:
    """Raise an error if a question needs a capability that the client did not declare."""
    lacking: JsonObject = {}
    able = askable(client, revision)
    for kind in kinds:
        if kind not in able:
            needed = lacking
            for name in NEEDS[kind]:
                needed = needed.setdefault(name, {})
    if lacking:
        raise RpcError.missing_capability(lacking)


def request_of(question: Mapping[str, Any], revision: Revision, page: str = "") -> JsonObject:
    """The method and the parameters of the request for a question.

    `page` identifies a page in the handshake era, in which the server may report later that it is finished.
    """
    kind = kind_of(question)
    if kind == "sample":
        return {"method": "sampling/createMessage", "params": question["params"]}
    if kind == "roots":
        return {"method": "roots/list", "params": {}}
    message: JsonObject = {"message": question["message"]}
    if kind == "url":
        named = {} if revision.stateless else {"elicitationId": page}
        params = {"mode": "url", **message, "url": question["url"], **named}
    else:  # revisions without modes have only forms
        mode = {"mode": "form"} if revision.elicitation_mode else {}
        params = {**mode, **message, "requestedSchema": question["schema"]}
    return {"method": "elicitation/create", "params": params}


def read_answer(value: Any, path: str, kind: str = "form") -> JsonObject:
    """Parse the answer to a question: an action, and the content if it was accepted.

    The worker, which has the form, validates the fields.
    """
    if type(value) is not dict:
        raise RpcError.wrong_param(path, "an object", value)
    answer = cast("JsonObject", value)
    if kind in _RESULTS:
        name, kinds, expected = _RESULTS[kind]
        if not isinstance(answer.get(name), kinds):
            raise RpcError.wrong_param(f"{path}.{name}", expected, answer.get(name))
        return {"action": "accept", "content": {key: each for key, each in answer.items() if key != "_meta"}}
    action, content = answer.get("action"), answer.get("content")
    if type(action) is not str or action not in _ACTIONS:
        raise RpcError.wrong_param(f"{path}.action", "accept, decline or cancel", action)
    if action != "accept":
        return {"action": action}
    if content is not None and type(content) is not dict:
        raise RpcError.wrong_param(f"{path}.content", "an object", content)
    return {"action": action, "content": content or {}}


_RESULTS: Final[Mapping[str, tuple[str, tuple[type, ...], str]]] = MappingProxyType(
    {
        "sample": ("content", (dict, list), "a content block, or an array of them"),
        "roots": ("roots", (list,), "an array"),
    }
)
"""The answers that are results of other methods, with their member and its type."""


def _kind_of_answer(value: Any) -> str:
    """The kind of an answer to a question that this state did not ask."""
    if type(value) is not dict or "action" in value:
        return "form"
    return "roots" if "roots" in value else "sample" if "content" in value else "form"


# The stateless round trip


def digest_arguments(arguments: JsonObject | str) -> str:
    """A fingerprint of arguments, independent of the order of names."""
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise RpcError.invalid_request("params.arguments is nested too deeply") from None
    return hashlib.sha256(text.encode()).hexdigest()


def input_required(questions: Mapping[str, Mapping[str, Any]], revision: Revision, state: str) -> bytes:
    """The body of a result of the type `input_required`.

    `questions` are those of a worker, by key. `state` is a sealed state with the same `asked`.
    """
    requests = {name: request_of(each, revision) for name, each in questions.items()}
    return dumps({"inputRequests": requests, "requestState": state}, "a question")


def resume(params: JsonObject, occasion: Occasion, *, key: bytes, now: float) -> Answers:
    """The answers in a stateless `tools/call`, from its state and its responses.

    With a state, only responses to its questions count. Without one, all count, because a client may keep the answers of
    its user itself. Questions without a response are asked again.
    """
    responses = cast("JsonObject", params.get("inputResponses") or {})
    state = params.get("requestState")
    if state is None:
        sealed = Answers({}, {name: _kind_of_answer(value) for name, value in responses.items()})
    else:
        sealed = unseal(state, occasion, key=key, now=now)
    fresh = {
        name: read_answer(responses[name], f"params.inputResponses.{name}", kind)
        for name, kind in sealed.asked.items()
        if name in responses
    }
    return Answers({**sealed.given, **fresh}, sealed.asked, sealed.stale)


def seal(answers: Answers, occasion: Occasion, *, key: bytes, now: float) -> str:
    """Seal a state as a signed string. `now` is wall-clock time, because the state may outlive the host."""
    payload = dumps(
        {
            "v": _FORM_VERSION,
            "command": occasion.command,
            "contract": occasion.contract,
            "arguments": occasion.arguments,
            "caller": occasion.caller,
            "expires": now + STATE_LIFETIME,
            "given": dict(answers.given),
            "asked": dict(answers.asked),
        },
        "the answers",
    )
    text = binascii.b2a_base64(payload, newline=False).decode()
    return f"{text}.{_sign(text, key)}"


def unseal(state: str, occasion: Occasion, *, key: bytes, now: float) -> Answers:
    """The answers in a state, if it is authentic, not expired, and bound to this call."""
    payload = _verify(state, key)
    if payload["v"] != _FORM_VERSION or now >= payload["expires"]:
        raise RpcError.bad_request_state("has expired")
    sealed = payload["command"], payload["arguments"], payload["caller"]
    if sealed != (occasion.command, occasion.arguments, occasion.caller):
        raise RpcError.bad_request_state("belongs to another call")
    if payload["contract"] != occasion.contract:
        return Answers({}, stale=True)
    return Answers(payload["given"], payload["asked"])


def _verify(state: str, key: bytes) -> JsonObject:
    """Check the signature and parse the state. A signed state needs no further validation."""
    text, _, signature = state.partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(text, key).encode()):
        raise RpcError.bad_request_state("was not issued by this server")
    return json.loads(binascii.a2b_base64(text))


def _sign(text: str, key: bytes) -> str:
    return hmac.digest(key, _PURPOSE + text.encode(), "sha256").hex()
