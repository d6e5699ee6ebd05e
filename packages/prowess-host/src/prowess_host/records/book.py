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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from prowess.errors import message_of
from prowess.jsontypes import JsonObject
from prowess.settings.keys import RecordSettings
from prowess.settings.settings import Settings
from prowess_host.protocol.kinds import as_content
from prowess_host.records.recording import Event, Told
from prowess_host.records.redaction import Redactor, secrets_of
from prowess_host.records.rows import OrdinaryRow, Row

if TYPE_CHECKING:
    from prowess_host.records.store import Store

__all__ = ["Book"]

_log = logging.getLogger("prowess.host")
_AGAIN: Final = 30.0
"""Seconds before a failed store is opened again."""
_ALL: Final = "*"
"""Withheld: all arguments."""


class Book:
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
        tell: Callable[[list[Row]], None] | None = None,
    ) -> None:
        """`mark` begins the ids of calls, and `client` is the name for callers that give none."""
        self._path = path
        self._settings = settings
        self._environ = environ
        self._mark = mark
        self._client = client
        self._now = now
        self._tell = tell
        self._redactor: Redactor | None = None
        self._store: Store | None = None
        self._closed_until = 0.0
        self._warned = False
        self._ids: dict[int, str] = {}
        """The ids of running calls by serial number. A call that moves to another worker gets another id."""

    def write(self, news: list[Told], secrets: list[str]) -> None:
        """Store the state of some calls. The secrets are never stored."""
        own = self._settings.own.record
        redactor = self._ready_redactor(own)
        redactor.keep_out(secrets)
        kept = [told for told in news if told.size <= own.max_value]  # larger ones are looked at one by one
        told_texts = [text for told in kept for text in (told.arguments, told.body) if text]
        page = _Page(
            own, redactor, redactor.may_be_in(b"\n".join(told_texts)), self._now() - time.monotonic(), os.getpid()
        )
        ordinary, others = self._sorted(news, page)
        gone: list[str] = []
        rows: list[Row] = []
        for told in others:
            if told.kind == "running" and not told.number:
                continue  # the call has no id yet
            row = self._row(told, page)
            gone += self._follow(told, row.id)
            rows.append(row)
        if rows or ordinary:
            self._put(rows, ordinary, gone, own)
            if self._tell is not None:
                self._tell(rows)

    def _sorted(self, news: list[Told], page: _Page) -> tuple[list[OrdinaryRow], list[Told]]:
        """The rows of ordinary calls, which most are, the fast way; and the other calls.

        An ordinary call has a result, nothing was heard of it meanwhile, and nothing of it has to be masked or left out.
        """
        own = page.own
        if page.is_doubtful or not (own.arguments and own.results) or self._tell is not None:
            return [], news
        ordinary: list[OrdinaryRow] = []
        others: list[Told] = []
        known: dict[tuple[int, bytes], tuple[str, str, int] | None] = {}
        for told in news:
            arguments, body = told.arguments, told.body
            key = id(told.contract), told.head
            if key not in known:
                known[key] = self._common(told, page)
            common = known[key]
            if (
                common is None
                or told.meta != b"{}"
                or told.events
                or arguments is None
                or body is None
                or told.serial in self._ids
                or len(arguments) + len(body) > own.max_value
            ):
                others.append(told)
                continue
            ordinary.append(
                (
                    f"{self._mark}{told.number:x}",
                    page.then + told.since,
                    told.duration,
                    told.worker,
                    arguments.decode("utf-8", "replace"),
                    body.decode("utf-8", "replace"),
                    *common,
                )
            )
        return ordinary, others

    def _common(self, told: Told, page: _Page) -> tuple[str, str, int] | None:
        """The common values of all ordinary calls of a client to a command; `None` if none of them is ordinary."""
        contract = told.contract
        client, call_id = _said_in_head(told.head)
        if contract is None or call_id or not page.redactor.is_harmless(contract):
            return None
        return contract.id, client or self._client, page.host

    def _follow(self, told: Told, row_id: str) -> list[str]:
        """The former id of a call that has moved to another worker."""
        before = self._ids.pop(told.serial, row_id)
        if told.kind == "running":
            self._ids[told.serial] = row_id
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
                self._close_store()
                if attempt or not self._recovers_from(error):
                    self._give_up(error)
                    return

    def _opened(self, own: RecordSettings) -> Store:
        from prowess_host.records.store import Store

        if self._store is None:
            self._store = Store(self._path, own.max_bytes, own.max_days)
        return self._store

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

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

    def _give_up(self, error: Exception) -> None:
        self._closed_until = time.monotonic() + _AGAIN
        if not self._warned:
            self._warned = True
            _log.warning(
                "calls are not recorded: %s: %s (set record.on = false to do without, or cache_dir for another place)",
                *(self._path, message_of(error)),
            )

    # Rows

    def _ready_redactor(self, own: RecordSettings) -> Redactor:
        if self._redactor is None:
            secrets = secrets_of(self._settings.as_dict(), self._environ, own.secrets)
            secrets.difference_update(own.secrets)  # a setting whose own name says that it is secret
            self._redactor = Redactor(own.secrets, secrets)
        return self._redactor

    def _row(self, told: Told, page: _Page) -> Row:
        own, redactor = page.own, page.redactor
        client, call_id = _said_in_head(told.head)
        meta = _NO_META if told.meta == b"{}" else cast("JsonObject", json.loads(told.meta))
        kind = _kind(told, meta)
        arguments, withheld, secrets = self._arguments(told, own, redactor, valid=kind == "ok")
        result, shortened = self._result(told, own, redactor, secrets)
        return Row(
            call_id or (f"{self._mark}{told.number:x}" if told.number else f"{self._mark}-{told.serial:x}"),
            told.contract.id if told.contract is not None else (told.facts or {}).get("command", ""),
            client or self._client,
            page.then + told.since,
            told.duration,
            kind,
            meta.get("prowess/attempts", 1),
            int(bool(meta.get("prowess/cached"))),
            page.host,
            told.worker,
            arguments,
            withheld,
            result,
            shortened,
            _events(told.events, redactor, secrets) if told.events else "[]",
        )

    def _arguments(
        self, told: Told, own: RecordSettings, redactor: Redactor, *, valid: bool
    ) -> tuple[str | None, str, tuple[str, ...]]:
        """The arguments for the store, the paths of withheld ones, and the secrets among them."""
        text = told.arguments
        if text is None or told.contract is None:
            return None, _EVERYTHING, ()
        if len(text) > own.max_value and valid and redactor.is_harmless(told.contract):
            return None, _EVERYTHING, ()  # not kept, and without secrets that could be in the result
        try:
            found = redactor.arguments(told.contract, text, valid=valid)
        except (ValueError, RecursionError):
            return None, _EVERYTHING, ()
        if not own.arguments or len(text) > own.max_value:
            return None, _EVERYTHING, found.secrets
        return found.text, json.dumps(found.withheld) if found.withheld else "[]", found.secrets

    def _result(
        self, told: Told, own: RecordSettings, redactor: Redactor, secrets: tuple[str, ...]
    ) -> tuple[str | None, int]:
        """The result for the store, and whether it was shortened."""
        if told.facts is not None:
            payload: JsonObject = {"content": [_text(_told_text(told))], "isError": told.kind == "refused"}
            return (redactor.json(_dumps(payload), secrets), 0) if own.results else (None, 1)
        if told.body is None or not own.results:
            return None, int(told.kind == "result")
        body, shortened = told.body, 0
        if len(body) > own.max_value or b'"prowess/problems"' in told.meta:
            payload = _plain(json.loads(body))
            body = _dumps(payload)
            if len(body) > own.max_value:
                body, shortened = _dumps(_shortened(payload, own.max_value)), 1
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
def _said_in_head(head: bytes) -> tuple[str, str]:
    """The client and the id of the call in the head for the worker."""
    try:
        told = json.loads(head)
    except ValueError:
        return "", ""
    return told.get("client") or "", told.get("call_id") or ""


def _kind(told: Told, meta: JsonObject) -> str:
    if told.kind == "result":
        return meta.get("prowess/kind", "ok")
    if told.kind == "refused":
        return (told.facts or {}).get("kind", "failed")
    return told.kind


def _told_text(told: Told) -> str:
    """The text instead of a result."""
    facts = told.facts or {}
    if told.kind == "refused":
        return facts.get("message", "")
    return "\n".join(str(question.get("message")) for question in facts.values())


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _plain(payload: JsonObject) -> JsonObject:
    """A payload for clients. Outcomes for direct calls have more fields (`write_outcome`)."""
    result = payload.pop("result", None)
    if isinstance(result, dict):
        told = cast("JsonObject", result)
        value = told.get("value")
        if isinstance(value, dict) and "messages" in value and not told.get("structured"):
            return {"messages": value["messages"]}
        payload["content"] = told.get("blocks") or payload["content"]
        if told.get("structured") and not isinstance(told.get("value"), str):
            payload["structuredContent"] = told.get("value")
    return payload


def _shortened(payload: JsonObject, most: int) -> JsonObject:
    """A payload within the limit: the beginnings of its texts, and small images."""
    left = most
    content: list[JsonObject] = []
    for block in as_content(payload).get("content", ()):
        size = len(_dumps(block))
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


def _events(events: list[Event], redactor: Redactor, secrets: tuple[str, ...]) -> str:
    return _dumps([[at, kind, redactor.data(data, secrets)] for at, kind, data in list(events)]).decode()


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
