"""Questions to a person, in both eras: whether the client can ask, how the question is sent, and the signed state of a rerun.

In the handshake era a question is a request from the server. In the stateless era the call ends with `input_required`,
and the client repeats it with the answers and the `requestState`. That state is signed and readable: it binds the answers
to one command, its contract and its arguments. The caller supplies the clock and the key.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess_host.protocol.codec import dumps
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prowess.jsontypes import JsonObject
    from prowess_host.protocol.eras import Client, Revision

__all__ = [
    "STATE_LIFETIME",
    "Answers",
    "Occasion",
    "can_ask",
    "digest_arguments",
    "elicitation_params",
    "input_required",
    "read_answer",
    "require_asking",
    "resume",
    "seal",
    "unseal",
]

STATE_LIFETIME: Final = 3600.0
"""Seconds a person has to answer. Long enough for a coffee, short enough that a leaked state is soon worth nothing."""

_FORM_VERSION: Final = 1
_PURPOSE: Final = b"prowess request state\0"
"""So that a signature made with the same key for something else is never taken for a state."""
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})


class Occasion(NamedTuple):
    """What a sealed state is good for: this command, under this contract, with these arguments."""

    command: str
    contract: str
    """Digest of the contract."""
    arguments: str
    """Digest of the arguments, see `digest_arguments`."""


class Answers(NamedTuple):
    """What has been answered so far, by key. `stale` says that answers were dropped because the contract has changed
    since they were given, so everything has to be asked again.
    """

    given: Mapping[str, JsonObject]
    asked: tuple[str, ...] = ()
    """Keys that were asked for last."""
    stale: bool = False


# Who can be asked, and how


def can_ask(client: Client, revision: Revision) -> bool:
    """Whether the client shows forms. An empty declaration means forms; one that names only URLs does not."""
    declared = client.capabilities.get("elicitation")
    if not revision.elicitation or not isinstance(declared, dict):
        return False
    return not declared or "form" in declared


def require_asking(client: Client, revision: Revision) -> None:
    """Refuse a stateless request that would have to ask a client which did not declare, in it, that it can."""
    if not can_ask(client, revision):
        raise RpcError.missing_capability({"elicitation": {}})


def elicitation_params(message: str, schema: JsonObject, revision: Revision) -> JsonObject:
    """The parameters of `elicitation/create`. Revisions that know no modes know forms only, and get no mode."""
    asked: JsonObject = {"message": message, "requestedSchema": schema}
    return {"mode": "form", **asked} if revision.elicitation_mode else asked


def read_answer(value: Any, path: str) -> JsonObject:
    """The answer of a person: an action, and the content of the form where it was accepted.

    Whether the content fits the form is checked where the form is known.
    """
    if type(value) is not dict:
        raise RpcError.wrong_param(path, "an object", value)
    answer = cast("JsonObject", value)
    action, content = answer.get("action"), answer.get("content")
    if type(action) is not str or action not in _ACTIONS:
        raise RpcError.wrong_param(f"{path}.action", "accept, decline or cancel", action)
    if action != "accept":
        return {"action": action}
    if content is not None and type(content) is not dict:
        raise RpcError.wrong_param(f"{path}.content", "an object", content)
    return {"action": action, "content": content or {}}


# The stateless round trip


def digest_arguments(arguments: JsonObject | str) -> str:
    """A fingerprint of arguments that does not depend on the order of their names."""
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise RpcError.invalid_request("params.arguments is nested too deeply") from None
    return hashlib.sha256(text.encode()).hexdigest()


def input_required(questions: Mapping[str, Mapping[str, Any]], revision: Revision, state: str) -> bytes:
    """The body of the result that asks, to be sent with the result type `input_required`.

    `questions` maps a key to a `message` and a `schema`. `state` is a sealed one whose `asked` are these keys.
    """
    requests = {
        name: {"method": "elicitation/create", "params": elicitation_params(each["message"], each["schema"], revision)}
        for name, each in questions.items()
    }
    return dumps({"inputRequests": requests, "requestState": state}, "a question")


def resume(params: JsonObject, occasion: Occasion, *, key: bytes, now: float) -> Answers:
    """The answers a stateless `tools/call` brings along, from its state and its responses.

    Beside a state only responses to what was asked count; without one they all do, since a client may keep the answers
    of its user itself. What has no response is asked again.
    """
    responses = cast("JsonObject", params.get("inputResponses") or {})
    state = params.get("requestState")
    sealed = Answers({}, tuple(responses)) if state is None else unseal(state, occasion, key=key, now=now)
    present = [name for name in sealed.asked if name in responses]
    fresh = {name: read_answer(responses[name], f"params.inputResponses.{name}") for name in present}
    return Answers({**sealed.given, **fresh}, sealed.asked, sealed.stale)


def seal(answers: Answers, occasion: Occasion, *, key: bytes, now: float) -> str:
    """The state as an opaque string that only the key can make. `now` is wall-clock time: the state may outlive us."""
    payload = dumps(
        {
            "v": _FORM_VERSION,
            "command": occasion.command,
            "contract": occasion.contract,
            "arguments": occasion.arguments,
            "expires": now + STATE_LIFETIME,
            "given": dict(answers.given),
            "asked": answers.asked,
        },
        "the answers",
    )
    text = binascii.b2a_base64(payload, newline=False).decode()
    return f"{text}.{_sign(text, key)}"


def unseal(state: str, occasion: Occasion, *, key: bytes, now: float) -> Answers:
    """The answers in a state, if it is ours, in time, and for this very call."""
    payload = _verify(state, key)
    if payload["v"] != _FORM_VERSION or now >= payload["expires"]:
        raise RpcError.bad_request_state("has expired")
    if (payload["command"], payload["arguments"]) != (occasion.command, occasion.arguments):
        raise RpcError.bad_request_state("belongs to another call")
    if payload["contract"] != occasion.contract:
        return Answers({}, stale=True)
    return Answers(payload["given"], tuple(payload["asked"]))


def _verify(state: str, key: bytes) -> JsonObject:
    """What was signed. After the signature nothing needs to be doubted any more: we wrote it."""
    text, _, signature = state.partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(text, key).encode()):
        raise RpcError.bad_request_state("was not issued by this server")
    return json.loads(binascii.a2b_base64(text))


def _sign(text: str, key: bytes) -> str:
    return hmac.digest(key, _PURPOSE + text.encode(), "sha256").hex()
