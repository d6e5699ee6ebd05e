"""Validates the messages of a limited worker, because its skill can write anything to the link.

The host passes results of other workers on as they are. Those of a limited one are read and written anew, so that no text
of it can end a message to the client and begin another, and what it describes is its own skill alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from prowess.contracts.contract import Contract
from prowess.contracts.hidden import hidden_in_data, hidden_of
from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess_host.confinement.grants import Grant

__all__ = ["sound"]


def sound(frame: Frame, grant: Grant) -> Frame | None:
    """The validated frame; `None` if it is invalid, after which the worker is killed."""
    try:
        head = _object(frame.head) if frame.head else {}
        check = _CHECKS.get(frame.kind)
        if check is not None:
            head = check(head, grant)
        body = _payload(frame.body) if frame.kind == Kind.RESULT else frame.body
        return Frame(frame.kind, frame.number, _written(head), body)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def _object(text: bytes) -> dict[str, Any]:
    found = json.loads(text, parse_constant=_refuse)
    if not isinstance(found, dict):
        raise TypeError
    return cast("dict[str, Any]", found)


def _refuse(_: str) -> None:
    raise ValueError


def _payload(text: bytes) -> bytes:
    found = _object(text)
    found.pop("_meta", None)  # it is in the head
    return _written(found)


def _written(data: Mapping[str, Any]) -> bytes:
    """JSON that every client can read: no infinite numbers (1e999 is read as one), and no halves of characters."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if "\\ud" in text:
        told = json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass")  # two halves are a character here
        text = json.dumps(json.loads(told.decode("utf-16", "replace")), ensure_ascii=True, separators=(",", ":"))
    return text.encode("ascii")


def _description(head: dict[str, Any], grant: Grant) -> dict[str, Any]:
    """What it says of its own skill, without what clients must not be shown."""
    skill = grant.skill
    skills = {name: facts for name, facts in head["skills"].items() if grant.describes(name)}
    for facts in skills.values():
        facts["failures"] = [*facts["failures"], *_refused(facts, skill)]
        facts["contracts"] = [it for it in facts["contracts"] if _is_own(it, skill) and not _hidden(it, facts)]
        shown = {it["id"] for it in facts["contracts"]}
        facts["views"] = {command: view for command, view in facts["views"].items() if command in shown}
        facts["has_hooks"] = False  # hooks shape what others promise
    return {**head, "skills": skills, "failures": []}


def _refused(facts: dict[str, Any], skill: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    for contract in facts["contracts"]:
        if not _is_own(contract, skill):
            found.append([skill, f"describes a command of another skill: {contract['id']}", None, None])
        elif hidden := _hidden(contract, facts):
            found.append(
                [skill, f"{contract['id']}: {hidden}. Models read this character, but people do not see it", None, None]
            )
    return found


def _is_own(contract: dict[str, Any], skill: str) -> bool:
    return contract["skill"] == skill and contract["id"].startswith(f"{skill}.")


def _hidden(contract: dict[str, Any], facts: dict[str, Any]) -> str:
    """What is hidden in a contract, or in what clients are shown of it."""
    return hidden_of(Contract.from_json(contract)) or hidden_in_data(facts["views"].get(contract["id"]))


def _live(head: dict[str, Any], grant: Grant) -> dict[str, Any]:
    return {"digests": {name: digest for name, digest in head["digests"].items() if grant.describes(name)}}


def _message(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {**head, "message": str(head["message"])}


def _refusal(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    told: dict[str, Any] = {key: str(head[key]) for key in ("kind", "message")}
    if "name" in head:
        told["name"] = str(head["name"])
    return {**told, "broken": bool(head["broken"])} if "broken" in head else told


def _progress(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    total, message = head["total"], head["message"]
    return {
        "done": float(head["done"]),
        "total": None if total is None else float(total),
        "message": None if message is None else str(message),
    }


def _log(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"level": str(head["level"]), "data": head["data"]}


def _secrets(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"texts": [text for text in head["texts"] if isinstance(text, str)]}


def _key(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"key": str(head["key"])}


def _rest(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"token": str(head["token"])}


def _imports(head: dict[str, Any], grant: Grant) -> dict[str, Any]:
    return {"imports": [[int(since), grant.skill, str(file)] for since, _, file in head["imports"]]}


_CHECKS: Final[Mapping[int, Callable[[dict[str, Any], Grant], dict[str, Any]]]] = {
    Kind.CATALOG: _description,
    Kind.LIVE: _live,
    Kind.FAILED: _message,
    Kind.REFUSED: _refusal,
    Kind.PROGRESS: _progress,
    Kind.LOG: _log,
    Kind.SECRETS: _secrets,
    Kind.URL_DONE: _key,
    Kind.REST: _rest,
    Kind.IMPORTING: _imports,
}
