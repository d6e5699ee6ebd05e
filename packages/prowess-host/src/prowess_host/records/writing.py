"""Turns recorded events into rows without secrets, and writes them to the store. Runs in the thread of a recorder.

A failure of the disk or the database loses records and logs one warning. The store is opened with the first rows, and
reopened some time after a failure.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from prowess.errors import message_of
from prowess.jsontypes import JsonObject, json_bytes
from prowess.settings.keys import RecordSettings
from prowess.settings.settings import Settings
from prowess_host.protocol.kinds import as_content
from prowess_host.records.events import Events
from prowess_host.records.recording import CallState
from prowess_host.records.redaction import Redactor, secrets_of
from prowess_host.records.rows import OrdinaryRow, Row

if TYPE_CHECKING:
    from prowess_host.records.store import RecordStore

__all__ = ["RecordWriter"]

_log = logging.getLogger("prowess.host")
_AGAIN: Final = 30.0
"""Seconds before a failed store is opened again."""
_ALL: Final = "*"
"""Withheld: all arguments."""
_MOST_SEARCHED: Final = 1024 * 1024
"""Bytes of wrong arguments in which secrets are searched. Beyond that, the record keeps nothing that could quote one."""


class RecordWriter:
    """The record of one host."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        mark: str,
        client: str,
        now: Callable[[], float] = time.time,
        on_rows: Callable[[list[Row]], None] | None = None,
    ) -> None:
        """`mark` begins the ids of calls, and `client` is the name for callers that give none."""
        self._path = path
        self._settings = settings
        self._environ = environ
        self._mark = mark
        self._client = client
        self._now = now
        self._on_rows = on_rows
        self._redactor: Redactor | None = None
        self._store: RecordStore | None = None
        self._closed_until = 0.0
        self._warned = False
        self._ids: dict[int, str] = {}
        """The ids of running calls by serial number. A call that moves to another worker gets another id."""

    def write(self, states: list[CallState], secrets: list[str]) -> None:
        """Store the state of some calls. The secrets are never stored."""
        own = self._settings.own.record
        redactor = self._ready_redactor(own)
        redactor.keep_out(secrets)
        kept = (state for state in states if state.size <= own.max_value)  # larger ones are looked at one by one
        texts = [text for state in kept for text in (state.arguments, state.body) if text]
        page = _Page(own, redactor, redactor.may_be_in(b"\n".join(texts)), self._now() - time.monotonic(), os.getpid())
        ordinary, others = self._sorted(states, page)
        gone: list[str] = []
        rows: list[Row] = []
        for state in others:
            if state.kind == "running" and not state.number:
                continue  # the call has no id yet
            row = self._row(state, page)
            gone += self._follow(state, row.id)
            rows.append(row)
        if rows or ordinary:
            self._put(rows, ordinary, gone, own)
            if self._on_rows is not None:
                self._on_rows(rows)

    def close(self) -> None:
        """Close the store. The next calls open it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _sorted(self, states: list[CallState], page: _Page) -> tuple[list[OrdinaryRow], list[CallState]]:
        """The rows of ordinary calls, which most are, the fast way; and the other calls.

        An ordinary call has a result, has no events, and needs no masking or shortening.
        """
        own = page.own
        if page.is_doubtful or not (own.arguments and own.results) or self._on_rows is not None:
            return [], states
        ordinary: list[OrdinaryRow] = []
        others: list[CallState] = []
        known: dict[tuple[int, bytes], tuple[str, str, int] | None] = {}
        for state in states:
            arguments, body = state.arguments, state.body
            key = id(state.contract), state.head
            if key not in known:
                known[key] = self._common(state, page)
            common = known[key]
            if (
                common is None
                or state.meta != b"{}"
                or state.events is not None
                or arguments is None
                or body is None
                or state.serial in self._ids
                or state.size > own.max_value
            ):
                others.append(state)
                continue
            ordinary.append(
                (
                    f"{self._mark}{state.number:x}",
                    page.then + state.since,
                    state.duration,
                    state.worker,
                    arguments.decode("utf-8", "replace"),
                    body.decode("utf-8", "replace"),
                    *common,
                )
            )
        return ordinary, others

    def _common(self, state: CallState, page: _Page) -> tuple[str, str, int] | None:
        """The common values of all ordinary calls of a client to a command; `None` if none of them is ordinary."""
        contract = state.contract
        client, call_id = _caller_in(state.head)
        if contract is None or call_id or not page.redactor.is_harmless(contract):
            return None
        return contract.id, client or self._client, page.host

    def _follow(self, state: CallState, row_id: str) -> list[str]:
        """The former id of a call that has moved to another worker."""
        before = self._ids.pop(state.serial, row_id)
        if state.kind == "running":
            self._ids[state.serial] = row_id
        return [before] if before != row_id else []

    # The store

    def _put(self, rows: list[Row], ordinary: list[OrdinaryRow], gone: list[str], own: RecordSettings) -> None:
        import sqlite3

        if self._store is None and time.monotonic() < self._closed_until:
            return
        for attempt in range(2):
            try:
                self._opened(own).write(rows, gone, ordinary)
                return
            except (OSError, sqlite3.Error) as error:
                self.close()
                if attempt or not self._recovers_from(error):
                    self._pause(error)
                    return

    def _opened(self, own: RecordSettings) -> RecordStore:
        from prowess_host.records.store import RecordStore

        if self._store is None:
            self._store = RecordStore(self._path, own.max_bytes, own.max_days)
        return self._store

    def _recovers_from(self, error: Exception) -> bool:
        """Whether to try again at once, because the file was deleted, or was damaged and has been set aside."""
        from prowess_host.records.store import is_damage, set_aside

        if isinstance(error, FileNotFoundError):
            return True
        if not is_damage(error):
            return False
        try:
            set_aside(self._path)
        except OSError:
            return False
        _log.warning(
            "the record of calls %s was damaged: it is kept as %s.damaged, and a new one begins", *(self._path,) * 2
        )
        return True

    def _pause(self, error: Exception) -> None:
        self._closed_until = time.monotonic() + _AGAIN
        if not self._warned:
            self._warned = True
            _log.warning(
                "calls are not recorded: %s: %s (set record.on = false to turn the record off, or cache_dir to another folder)",
                *(self._path, message_of(error)),
            )

    # Rows

    def _ready_redactor(self, own: RecordSettings) -> Redactor:
        if self._redactor is None:
            secrets = secrets_of(self._settings.as_dict(), self._environ, own.secrets)
            secrets.difference_update(own.secrets)  # a setting whose own name says that it is secret
            self._redactor = Redactor(own.secrets, secrets)
        return self._redactor

    def _row(self, state: CallState, page: _Page) -> Row:
        own, redactor = page.own, page.redactor
        client, call_id = _caller_in(state.head)
        meta = _NO_META if state.meta == b"{}" else cast("JsonObject", json.loads(state.meta))
        kind = _kind(state, meta)
        arguments, withheld, secrets = self._arguments(state, own, redactor, kind)
        if secrets is None:
            result, shortened, events = None, 1, "[]"
        else:
            result, shortened = self._result(state, own, redactor, secrets)
            events = _events(state.events, redactor, secrets) if state.events is not None else "[]"
        return Row(
            call_id or (f"{self._mark}{state.number:x}" if state.number else f"{self._mark}-{state.serial:x}"),
            state.contract.id if state.contract is not None else (state.facts or {}).get("command", ""),
            client or self._client,
            page.then + state.since,
            state.duration,
            kind,
            meta.get("prowess/attempts", 1),
            int(bool(meta.get("prowess/cached"))),
            page.host,
            state.worker,
            arguments,
            withheld,
            result,
            shortened,
            events,
        )

    def _arguments(
        self, state: CallState, own: RecordSettings, redactor: Redactor, kind: str
    ) -> tuple[str | None, str, tuple[str, ...] | None]:
        """The arguments for the store, the paths of withheld ones, and the secrets among them; `None` if they are unknown."""
        text = state.arguments
        if text is None or state.contract is None:
            return None, _EVERYTHING, ()
        valid = kind == "ok"
        if len(text) > own.max_value and valid and redactor.is_harmless(state.contract):
            return None, _EVERYTHING, ()  # not kept, and without secrets that could be in the result
        if len(text) > max(own.max_value, _MOST_SEARCHED) and kind == "input":
            return None, _EVERYTHING, None  # with any names, among which a search for secrets takes seconds
        try:
            found = redactor.arguments(state.contract, text, valid=valid)
        except (ValueError, RecursionError):
            return None, _EVERYTHING, ()
        if not own.arguments or len(text) > own.max_value:
            return None, _EVERYTHING, found.secrets
        return found.text, json.dumps(found.withheld) if found.withheld else "[]", found.secrets

    def _result(
        self, state: CallState, own: RecordSettings, redactor: Redactor, secrets: tuple[str, ...]
    ) -> tuple[str | None, int]:
        """The result for the store, and whether it was shortened."""
        if state.facts is not None:
            payload: JsonObject = {"content": [_text(_replacement_text(state))], "isError": state.kind == "refused"}
            return (redactor.json(json_bytes(payload), secrets), 0) if own.results else (None, 1)
        if state.body is None or not own.results:
            return None, int(state.kind == "result")
        body, shortened = state.body, 0
        if len(body) > own.max_value or state.meta.find(b'"prowess/problems"') >= 0:
            payload = _plain(json.loads(body))
            body = json_bytes(payload)
            if len(body) > own.max_value:
                body, shortened = json_bytes(_shortened(payload, own.max_value)), 1
        return redactor.json(body, secrets), shortened


class _Page(NamedTuple):
    """The common data of the rows of one batch."""

    own: RecordSettings
    redactor: Redactor
    is_doubtful: bool
    """Whether some text of the batch may hold a secret."""
    then: float
    """The time of day at zero of the calls' clock."""
    host: int


_NO_META: Final[JsonObject] = {}
_EVERYTHING: Final = json.dumps([_ALL])


@functools.lru_cache(maxsize=256)
def _caller_in(head: bytes) -> tuple[str, str]:
    """The client and the id of the call in the head for the worker."""
    try:
        fields = json.loads(head)
    except (RecursionError, ValueError):  # a client may have nested its data as deeply as we read
        return "", ""
    return fields.get("client") or "", fields.get("call_id") or ""


def _kind(state: CallState, meta: JsonObject) -> str:
    if state.kind == "result":
        return meta.get("prowess/kind", "ok")
    if state.kind == "refused":
        return (state.facts or {}).get("kind", "failed")
    return state.kind


def _replacement_text(state: CallState) -> str:
    """The text instead of a result."""
    facts = state.facts or {}
    if state.kind == "refused":
        return facts.get("message", "")
    return "\n".join(str(question.get("message")) for question in facts.values())


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _plain(payload: JsonObject) -> JsonObject:
    """A payload for clients. Outcomes for direct calls have more fields (`write_outcome`)."""
    result = payload.pop("result", None)
    if isinstance(result, dict):
        outcome = cast("JsonObject", result)
        value = outcome.get("value")
        if isinstance(value, dict) and "messages" in value and not outcome.get("structured"):
            return {"messages": value["messages"]}
        payload["content"] = outcome.get("blocks") or payload["content"]
        if outcome.get("structured") and not isinstance(outcome.get("value"), str):
            payload["structuredContent"] = outcome.get("value")
    return payload


def _shortened(payload: JsonObject, most: int) -> JsonObject:
    """A payload within the limit: the beginnings of its texts, and small images."""
    left = most
    content: list[JsonObject] = []
    for block in as_content(payload).get("content", ()):
        size = len(json_bytes(block))
        if size <= left:
            content.append(block)
        elif block.get("type") == "text":
            content.append(_text(f"{block['text'][: max(left, 0) // 4]}…"))
            size = left
        else:
            kind = block.get("mimeType") or block.get("resource", {}).get("mimeType") or ""
            content.append(_text(f"[{block.get('type')} {kind}, {size} bytes: not kept]"))
            size = 0
        left -= size
    return {"content": content, "isError": bool(payload.get("isError"))}


def _events(events: Events, redactor: Redactor, secrets: tuple[str, ...]) -> str:
    return json_bytes(
        [[at, kind, redactor.data(data, secrets)] for at, kind, data in json.loads(events.as_json())]
    ).decode()
