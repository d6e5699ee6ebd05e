"""Validates the messages of a limited worker, because its skill can write anything to the link.

The host passes on the results of other workers unchanged. It parses and encodes those of a limited worker again, so that a
result cannot end a message to the client and forge another, and accepts descriptions of the worker's own skill only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from prowess.contracts.contract import Contract
from prowess.contracts.hidden import hidden_in_data, hidden_of
from prowess.contracts.visible import visible
from prowess.skills.stamps import read
from prowess.skills.texts import pack, unpack
from prowess.worker.link import Frame
from prowess.worker.messages import Kind
from prowess_host.confinement.grants import Grant
from prowess_host.workers.jobs import Job
from prowess_host.workers.shapes import (
    OUTCOME,
    check_contract,
    check_meta,
    check_payload,
    check_view,
    questions,
)

__all__ = ["sound"]

_MOST_DESCRIPTION: Final = 8 * 1024 * 1024
"""Bytes of the description of one skill, most of which every client gets."""
_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


def sound(frame: Frame, grant: Grant, job: Job | None = None) -> Frame | None:
    """The validated frame; `None` if it is invalid, after which the worker is killed. `job` is the call that it is about."""
    try:
        head = _object(frame.head) if frame.head else {}
        check = _CHECKS.get(frame.kind)
        if check is not None:
            head = check(head, grant)
        body = frame.body
        if frame.kind == Kind.RESULT:
            body = _payload(body, head, job)
        elif frame.kind == Kind.CATALOG:
            if len(frame.head) > _MOST_DESCRIPTION:
                return None
            body = _sources(body, grant)
        elif frame.kind == Kind.REST:
            body.decode()
        return Frame(frame.kind, frame.number, _written(head), body)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError, OverflowError):
        return None


def _object(text: bytes) -> dict[str, Any]:
    found = json.loads(text, parse_constant=_refuse)
    if not isinstance(found, dict):
        raise TypeError
    return cast("dict[str, Any]", found)


def _refuse(_: str) -> None:
    raise ValueError


def _payload(text: bytes, meta: dict[str, Any], job: Job | None) -> bytes:
    found = _object(text)
    found.pop("_meta", None)  # it is in the head
    check_meta(meta)
    if job is not None:
        head = _object(job.head)
        kind = "completion" if "completes" in head else job.contract.kind
        check_payload(found, meta, OUTCOME if head.get("outcome") else kind, kind, boxed=head.get("boxed", True))
    return _written(found)


def _written(data: Mapping[str, Any]) -> bytes:
    """Encode JSON that every client can read: without infinite numbers (1e999 is read as one) and lone surrogates."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    if "\\ud" in text:
        encoded = json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass")  # joins pairs of surrogates
        text = json.dumps(json.loads(encoded.decode("utf-16", "replace")), ensure_ascii=True, separators=(",", ":"))
    return text.encode("ascii")


def _description(head: dict[str, Any], grant: Grant) -> dict[str, Any]:
    """The description of its own skill and files, without contracts that clients must not see."""
    skill = grant.skill
    skills = {name: facts for name, facts in head["skills"].items() if grant.describes(name)}
    for facts in skills.values():
        facts["failures"] = [*(_failure(each, grant) for each in facts["failures"]), *_refused(facts, skill)]
        facts["contracts"] = [
            contract for contract in facts["contracts"] if _is_own(contract, skill) and not _hidden(contract, facts)
        ]
        shown = {contract["id"] for contract in facts["contracts"]}
        facts["views"] = {command: view for command, view in facts["views"].items() if command in shown}
        for contract in facts["contracts"]:
            check_contract(contract)
            check_view(facts["views"].get(contract["id"], [{"type": "object"}, None]))
        for name in ("files", "absent", "own"):
            facts[name] = [path for path in facts[name] if _may_name(path, grant)]
        facts["place"] = facts["place"] if _may_name(facts["place"], grant) else ""
        facts["has_hooks"] = False  # hooks shape the contracts of other skills
        facts.pop("sent", None)  # this data would reach other skills
    seen = {name: {path: contract for path, contract in head[name].items() if _may_name(path, grant)} for name in _SEEN}
    return {**head, **seen, "skills": skills, "names": sorted(skills), "failures": []}


_SEEN: Final = ("sightings", "imported")
"""The versions of files, by which the host decides whether something was saved."""


def _may_name(path: Any, grant: Grant) -> bool:
    """Whether a file belongs to the skill, or its limits allow reading but not writing it."""
    if type(path) is not str or os.path.normpath(path) != path or not os.path.isabs(path):  # noqa: PTH117 - any text
        return False
    opened = [grant.root / Path(name).expanduser() for name in grant.limits.read]
    closed = [grant.root / Path(name).expanduser() for name in grant.limits.write]
    within = Path(path).is_relative_to
    return any(map(within, (*grant.own, *opened, *_packages(grant)))) and not any(map(within, closed))


def _packages(grant: Grant) -> list[Path]:
    """The possible folders of an installed package."""
    return [Path(entry) for entry in sys.path if os.path.isabs(entry)] if grant.package else []  # noqa: PTH117 - as above


def _sources(body: bytes, grant: Grant) -> bytes:
    """The texts that equal its files. Others are dropped, because they could run later without limits."""
    return pack({path: text for path, text in unpack(body).items() if _may_name(path, grant) and _says(path, text)})


def _says(path: str, text: bytes) -> bool:
    try:
        return read(path) == text
    except (OSError, ValueError):
        return False


def _failure(row: list[Any], grant: Grant) -> list[Any]:
    """A failure of this skill only."""
    source, reason, file, line = row
    own = source == grant.skill or str(source).startswith(f"{grant.skill}.")
    return [
        str(source) if own else grant.skill,
        str(reason),
        file if _may_name(file, grant) else None,
        line if type(line) is int else None,
    ]


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
    """Hidden characters in a contract or in its views."""
    return hidden_of(Contract.from_json(contract)) or hidden_in_data(facts["views"].get(contract["id"]))


def _live(head: dict[str, Any], grant: Grant) -> dict[str, Any]:
    return {"digests": {name: digest for name, digest in head["digests"].items() if grant.describes(name)}}


def _ready(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {
        "link": [number for number in head["link"] if type(number) is int],
        "release": visible(str(head["release"])),
    }


def _message(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {**head, "message": visible(str(head["message"]))}


def _refusal(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    refusal: dict[str, Any] = {key: visible(str(head[key])) for key in ("kind", "message")}
    if "name" in head:
        refusal["name"] = visible(str(head["name"]))
    return {**refusal, "broken": bool(head["broken"])} if "broken" in head else refusal


def _progress(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    total, message = head["total"], head["message"]
    return {
        "done": float(head["done"]),
        "total": None if total is None else float(total),
        "message": None if message is None else visible(str(message)),
    }


def _log(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    if head["level"] not in _LEVELS:
        raise ValueError
    return {"level": head["level"], "data": visible(head["data"])}


def _asked(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return questions(head)


def _updated(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"uri": str(head["uri"])}


def _secrets(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"texts": [text for text in head["texts"] if isinstance(text, str)]}


def _key(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"key": str(head["key"])}


def _keys(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"keys": [str(key) for key in cast("list[object]", head["keys"])]}


def _rest(head: dict[str, Any], _grant: Grant) -> dict[str, Any]:
    return {"token": str(head["token"])}


def _imports(head: dict[str, Any], grant: Grant) -> dict[str, Any]:
    return {"imports": [[int(since), grant.skill, visible(str(file))] for since, _, file in head["imports"]]}


_CHECKS: Final[Mapping[int, Callable[[dict[str, Any], Grant], dict[str, Any]]]] = {
    Kind.READY: _ready,
    Kind.CATALOG: _description,
    Kind.LIVE: _live,
    Kind.FAILED: _message,
    Kind.REFUSED: _refusal,
    Kind.PROGRESS: _progress,
    Kind.LOG: _log,
    Kind.SECRETS: _secrets,
    Kind.UPDATED: _updated,
    Kind.QUESTIONS: _asked,
    Kind.INPUT_REQUIRED: _asked,
    Kind.UNASKED: _keys,
    Kind.URL_DONE: _key,
    Kind.REST: _rest,
    Kind.IMPORTING: _imports,
}
