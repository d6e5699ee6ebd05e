"""Handles the requests of the `prowess dev` page, without sockets.

The page runs commands, so it must be the only one that can: its address holds a random token, and each request must name
the loopback address as its host and, where it names an origin, the page's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.resources
import json
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prowess.errors import ProwessError
from prowess.jsontypes import JsonObject, json_bytes
from prowess_host.dev.messages import PageRequest, PageResponse, PageStream, json_response, text_response
from prowess_host.project import NotifiedClient, Project
from prowess_host.records.reading import CallFilter, NoSuchCall, RecordedCall, RecordReader

if TYPE_CHECKING:
    from prowess.contracts.catalog import Catalog, Failure
    from prowess.contracts.contract import Contract
    from prowess_host.catalog.listing import Listing

__all__ = ["DevApp"]

_FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "dev.js": ("dev.js", "text/javascript; charset=utf-8"),
    "dev.css": ("dev.css", "text/css; charset=utf-8"),
}
_HOSTS: Final = ("127.0.0.1", "localhost")
_LOOK_AGAIN: Final = 0.3
"""Seconds between two polls of the record, which other processes write."""
_ALIVE: Final = 15.0
"""Seconds of silence after which a keep-alive is sent, so that a disconnected browser is noticed."""
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_MOST_DIGITS: Final = 18
_MOST_CALLS: Final = 100
_SUMMARY: Final = 200


class DevApp(NotifiedClient):
    """The page of one project. Set its port before the first request."""

    def __init__(self, project: Project, record: RecordReader) -> None:
        self._project = project
        self._record = record
        self._changed = asyncio.Event()
        self._asked: dict[str, tuple[JsonObject, asyncio.Future[JsonObject]]] = {}
        """Open questions by id, with the futures for their answers."""
        self.token = secrets.token_urlsafe(24)
        self.port = 0

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    # Notifications from the project

    def show(self, before: Listing, after: Listing) -> None:  # noqa: ARG002 - the page fetches the whole state
        """Notify the page of changed commands or failures."""
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Requests

    async def handle(self, request: PageRequest) -> PageResponse | PageStream:
        """Answer a request of the page; reject any other."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        path = request.path.removeprefix(f"/{self.token}/")
        if request.method in ("GET", "HEAD"):
            return self._got(path, request)
        if (request.method, path) == ("POST", "api/call"):
            return await self._called(request)
        if (request.method, path) == ("POST", "api/answer"):
            return self._answered(request)
        return text_response(405, "only GET and POST are allowed here")

    def _refusal(self, request: PageRequest) -> PageResponse | None:
        """The response that rejects a request of another origin, or without the token."""
        own = [f"{host}:{self.port}" for host in _HOSTS]
        if request.headers.get("host") not in own:
            return text_response(403, "this page is served on loopback only")
        origin = request.headers.get("origin")
        if origin is not None and origin not in [f"http://{host}" for host in own]:
            return text_response(403, "other pages may not use this one")
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return text_response(403, "other pages may not use this one")
        token = request.path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return text_response(404, "there is nothing at this address: use the one that `prowess dev` printed")
        if request.method == "POST" and request.headers.get("content-type") != "application/json":
            return text_response(415, "Content-Type must be application/json")
        return None

    def _got(self, path: str, request: PageRequest) -> PageResponse | PageStream:
        if path in _FILES:
            name, kind = _FILES[path]
            folder = importlib.resources.files("prowess_host.dev") / "page"
            return PageResponse(200, kind, (folder / name).read_bytes())
        try:
            if path == "api/state":
                return json_response(self._state())
            if path == "api/calls":
                return json_response([_summary(call) for call in self._record.newest(CallFilter(), _MOST_CALLS)])
            if path.startswith("api/calls/"):
                return json_response(self._record.call(path.removeprefix("api/calls/")).to_json())
            if path == "api/events":
                return PageStream(self._events(request))
        except NoSuchCall as error:
            return json_response({"error": str(error)}, 404)
        except ProwessError as error:
            return json_response({"error": str(error)}, 500)
        return text_response(404, f"there is no {path}")

    # Commands

    def _state(self) -> JsonObject:
        listing = self._project.listing
        catalog: Catalog = listing.catalog
        return {
            "project": self._project.settings.root.name,
            "root": str(self._project.settings.root),
            "recording": self._project.own.record.on,
            "known": listing.tools is not None,
            "commands": [_shown(contract) for contract in catalog.tools],
            "failures": [self._failed(failure) for failure in catalog.failures],
        }

    def _failed(self, failure: Failure) -> JsonObject:
        """A failure, with a path relative to the project."""
        file, root = Path(failure.file or ""), self._project.settings.root.resolve()
        seen = file.relative_to(root) if file.is_relative_to(root) else file
        return {**asdict(failure), "file": seen.as_posix() if failure.file else ""}

    async def _called(self, request: PageRequest) -> PageResponse:
        """Run a command. It is cancelled when the page stops waiting.

        `page` is a random name of the page. Questions of the call carry it, so that no other page shows them.
        """
        from prowess_host.direct_calls import Audience  # imports pydantic, after the page is shown

        try:
            body: Any = json.loads(request.body)
            command, arguments, page = body["command"], body["arguments"], body.get("page")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return json_response({"error": 'a call needs a "command" and "arguments"'}, 400)
        if not isinstance(command, str) or not isinstance(arguments, dict):
            return json_response({"error": "the command must be a string, and the arguments an object"}, 400)
        asking = partial(self._ask, page, command) if isinstance(page, str) else None
        outcome = await self._project.call(command, arguments, audience=Audience(ask=asking))
        payload = outcome.payload(self._project.own.profile)
        facts = {"id": outcome.call_id, "kind": outcome.kind, "duration": outcome.duration}
        return json_response({**facts, "result": payload})

    # Questions

    async def _ask(self, page: str, command: str, questions: JsonObject) -> JsonObject:
        """Show the questions of a call to the user, and wait for the answers."""
        number = secrets.token_urlsafe(9)
        future: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._asked[number] = {"id": number, "page": page, "command": command, "questions": questions}, future
        self._notify()
        try:
            return await future
        finally:
            del self._asked[number]

    def _answered(self, request: PageRequest) -> PageResponse:
        """Accept answers to the questions of a call, or report why they are invalid."""
        from prowess.schemas.explicit import validate  # imports jsonschema

        try:
            sent: Any = json.loads(request.body)
            number, answers = sent["id"], dict(sent["answers"])
            actions = {key: answer["action"] for key, answer in answers.items()}
        except (ValueError, TypeError, KeyError, RecursionError):
            return json_response({"error": 'an answer needs an "id", and "answers" with an "action" each'}, 400)
        pending = self._asked.get(number) if isinstance(number, str) else None
        if pending is None or pending[1].done():
            return json_response({"error": "this question is closed, because its call has ended"}, 404)
        questions = pending[0]["questions"]
        if actions.keys() != questions.keys() or not set(actions.values()) <= _ACTIONS:
            return json_response({"error": f"answer {', '.join(questions)}, each by accept, decline or cancel"}, 400)
        problems = {
            key: validate(questions[key]["schema"], answer.get("content"))
            for key, answer in answers.items()
            if answer["action"] == "accept" and "schema" in questions[key]
        }
        if any(problems.values()):
            return json_response({"problems": problems})
        pending[1].set_result(answers)
        return json_response({"problems": {}})

    # Events

    async def _events(self, request: PageRequest) -> AsyncGenerator[bytes]:
        """The events: `state` when commands or failures change, `asked` for each question of a call of
        this page, `call` for each call of any client.
        """
        last = self._first_number(request)
        yield _event("state", self._state())
        shown: set[str] = set()
        last_sent, changed = time.monotonic(), self._changed
        while True:
            if changed.is_set():
                changed = self._changed
                last_sent = time.monotonic()
                yield _event("state", self._state())
            for number, (question, _) in list(self._asked.items()):
                if number not in shown:
                    shown.add(number)
                    yield _event("asked", question)
            newest = await asyncio.to_thread(self._record.last_number)
            last = min(last, newest)  # the record may have been deleted
            for call in await asyncio.to_thread(self._record.after, last, CallFilter()) if newest > last else ():
                last = call.number
                last_sent = time.monotonic()
                yield _event("call", _summary(call), call.number)
            if time.monotonic() - last_sent > _ALIVE:
                last_sent = time.monotonic()
                yield b": still here\n\n"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await changed.wait()

    def _first_number(self, request: PageRequest) -> int:
        """The last call that the page has seen, which a browser sends when it reconnects."""
        seen = request.headers.get("last-event-id", "")
        return (
            int(seen) if seen.isascii() and seen.isdigit() and len(seen) <= _MOST_DIGITS else self._record.last_number()
        )


def _event(kind: str, data: Any, number: int | None = None) -> bytes:
    mark = f"id: {number}\n" if number is not None else ""
    return f"{mark}event: {kind}\ndata: ".encode() + json_bytes(data) + b"\n\n"


def _shown(contract: Contract) -> JsonObject:
    return {
        "id": contract.id,
        "title": contract.title,
        "summary": contract.summary,
        "description": contract.shown_description,
        "category": contract.category,
        "hints": contract.hints.to_mcp(),
        "schema": contract.input_schema,
        "source": contract.source,
    }


def _summary(call: RecordedCall) -> JsonObject:
    """The fields of a call for a list."""
    arguments = json.dumps(call.arguments, ensure_ascii=False) if call.arguments is not None else ""
    newest = next((event.text for event in reversed(call.events) if event.kind == "progress"), "")
    fields = call.to_json()
    kept = ("id", "command", "client", "began", "duration", "kind")
    return {**{name: fields[name] for name in kept}, "arguments": arguments[:_SUMMARY], "progress": newest}
