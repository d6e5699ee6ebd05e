"""The HTTP interface besides MCP: envelopes, one path for each command, the OpenAPI description, and the schemas.

The first envelope imports pydantic and jsonschema in a thread; MCP needs neither.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from prowess.jsontypes import uncollected
from prowess.settings.credentials import Refused
from prowess_host.http.access import client_of
from prowess_host.http.binding import RefusedRequest, refused_form
from prowess_host.http.openapi import COMMANDS_PATH, INVOKE_PATH, SCHEMAS_PATH, describe
from prowess_host.protocol.rpc import RpcError

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject
    from prowess.settings.credentials import Caller
    from prowess_host.http.access import Access, InFlight
    from prowess_host.http.messages import Exchange
    from prowess_host.project import Project

__all__ = ["Api"]

_Handlers: TypeAlias = Mapping[str, Callable[["Exchange"], Awaitable[None]]]
_ENVELOPE_VERSION: Final = "1.0.0"
_MOST_PROBLEMS: Final = 20
_MOST_LENGTH: Final = 300
_SCHEMA_TYPE: Final = (b"content-type", b"application/schema+json")


class Api:
    """The handlers of these paths."""

    def __init__(self, project: Project, access: Access, max_body: int, calls: InFlight) -> None:
        self._project = project
        self._access = access
        self._max_body = max_body
        self._calls = calls
        folder = resources.files("prowess") / "_schemas"
        self._schemas = {
            file.name: file.read_bytes() for file in folder.iterdir() if file.name.endswith(".schema.json")
        }
        self._described: tuple[Any, bytes] | None = None

    def routes(self) -> Iterator[tuple[str, str, _Handlers]]:
        """Path, name and handlers of the fixed paths."""
        yield INVOKE_PATH, "invoke", {"POST": self._invoke}
        yield COMMANDS_PATH, "commands", {"GET": self._commands}
        yield "/openapi.json", "openapi", {"GET": self._openapi}

    def prefixes(self) -> Iterator[tuple[str, str, _Handlers]]:
        """The same for prefixes of paths."""
        yield f"{COMMANDS_PATH}/", "command", {"GET": self._command, "POST": self._call}
        yield SCHEMAS_PATH, "schema", {"GET": self._schema}

    # Envelopes

    async def _invoke(self, exchange: Exchange) -> None:
        caller = await self._caller(exchange)
        body = await self._json_body(exchange)
        if body is not None:
            with self._calls.one(client_of(caller, exchange.address)):
                await self._answer(exchange, body, caller)

    async def _call(self, exchange: Exchange) -> None:
        """Wrap a body of arguments in an envelope."""
        caller = await self._access.admit(exchange.headers)
        body = await self._json_body(exchange)
        if body is not None:
            with self._calls.one(client_of(caller, exchange.address)):
                await self._call_with(exchange, body, caller)

    async def _call_with(self, exchange: Exchange, body: bytes, caller: Caller) -> None:
        try:
            with uncollected():
                payload: Any = json.loads(body)
        except (ValueError, RecursionError):
            exchange.refuse(RefusedRequest(400, RpcError.parse_error("the body is not JSON")))
            return
        name, head = exchange.path.removeprefix(f"{COMMANDS_PATH}/"), _head()
        contract = await self._project.contract_of(name)
        may_call = contract is not None and self._access.allows(caller, contract.id)  # who may not is told that instead
        problems = await asyncio.to_thread(self._mismatches, contract, payload) if contract and may_call else []
        if problems:
            status = {
                "code": "error",
                "http": 422,
                "message": "the body does not match the input schema of the command",
            }
            exchange.json(422, {**head, "status": status, "errors": problems})
            return
        await self._answer(exchange, {**head, "tool": name, "payload": payload}, caller)

    def _mismatches(self, contract: Contract, payload: Any) -> list[JsonObject]:
        """The differences between a body and `/openapi.json`. MCP and envelopes accept more."""
        from prowess_host.http.bodies import find_mismatches

        try:
            errors = list(islice(find_mismatches(contract.input_schema, payload), _MOST_PROBLEMS))
        except RecursionError:
            return [{"code": "invalid_input", "message": "it is nested too deeply", "path": "$"}]
        return [{"code": "invalid_input", "message": _brief(each), "path": each.json_path} for each in errors]

    async def _caller(self, exchange: Exchange) -> Caller | None:
        """The caller in the header; `None` if the envelope may have credentials."""
        if "authorization" not in exchange.headers and self._access.leaves_it_to_envelopes:
            return None
        return await self._access.admit(exchange.headers)

    async def _json_body(self, exchange: Exchange) -> bytes | None:
        refused = refused_form(exchange.headers)
        if refused is not None:
            exchange.refuse(refused)
            return None
        body = await exchange.body(self._max_body)
        if isinstance(body, RefusedRequest):
            exchange.refuse(body)
            return None
        return body

    async def _answer(self, exchange: Exchange, request: bytes | Mapping[str, Any], caller: Caller | None) -> None:
        """Serve an envelope. If the client disconnects, its call is cancelled."""
        invoke = await asyncio.to_thread(_load_invoke)
        response = await self._ask_other(request, caller) if self._project.mark and isinstance(request, bytes) else None
        if response is not None:
            exchange.json(cast("int", response["status"]["http"]), response)
            return
        serving = asyncio.ensure_future(
            invoke(self._project, request, caller, client=client_of(None, exchange.address))
        )
        disconnected = asyncio.ensure_future(exchange.disconnected())
        try:
            await asyncio.wait([serving, disconnected], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                return
            response = serving.result()
        finally:
            serving.cancel()
            disconnected.cancel()
        fields = [(name.lower().encode(), str(value).encode()) for name, value in response.get("headers", {}).items()]
        status = cast("int", response["status"]["http"])
        if status in (401, 403):
            fields += self._access.challenge(status)
        exchange.json(status, response, *fields)

    async def _ask_other(self, request: bytes, caller: Caller | None) -> JsonObject | None:
        """The response of the host that has the handle; `None` if no other host has it, or that host is gone."""
        try:
            text = request.decode("utf-8-sig")
            with uncollected():
                message = json.loads(text)
            handle = message["metadata"]["handle"]
            host = self._project.elsewhere(handle)
        except (KeyError, TypeError, ValueError, RecursionError):  # it is answered here
            return None
        if not host:
            return None
        try:
            caller = caller or self._access.admit_by_envelope(message.get("auth"))
        except Refused:  # and here, before anything else
            return None
        try:
            answer = await self._project.ask_other(host, {"envelope": text}, caller, handle)
        except RpcError as error:
            status = {"code": "retry", "http": 503, "message": error.message}
            errors = [{"code": "busy", "message": error.message, "path": ""}]
            request_id = message.get("id")
            known = {"id": request_id if isinstance(request_id, str) else ""}
            return {**_head(), **known, "status": status, "errors": errors}
        return answer.get("response")

    # Descriptions

    async def _commands(self, exchange: Exchange) -> None:
        await self._access.admit(exchange.headers)
        catalog = self._project.catalog()
        failures = [
            {"source": each.source, "reason": each.reason, "file": each.file, "line": each.line}
            for each in catalog.failures
        ]
        exchange.json(
            200, {"commands": [_shown(each) for each in catalog.contracts if each.is_tool], "failures": failures}
        )

    async def _command(self, exchange: Exchange) -> None:
        await self._access.admit(exchange.headers)
        contract = self._project.listing[exchange.path.removeprefix(f"{COMMANDS_PATH}/")]
        if contract is None or not contract.is_tool:
            exchange.json(404, {"error": "no command has this name"})
            return
        exchange.json(200, _shown(contract))

    async def _openapi(self, exchange: Exchange) -> None:
        await self._access.admit(exchange.headers)
        listing = self._project.listing
        if self._described is None or self._described[0] is not listing:
            title = self._project.settings.root.name
            commands = [each for each in listing.catalog.contracts if each.is_tool]
            document = describe(commands, self._schemas, title, secured=not self._access.is_open)
            self._described = (listing, json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
        exchange.answer(200, self._described[1], (b"content-type", b"application/json"))

    async def _schema(self, exchange: Exchange) -> None:
        schema = self._schemas.get(exchange.path.removeprefix(SCHEMAS_PATH))
        if schema is None:
            exchange.json(404, {"error": f"unknown schema; there are {', '.join(sorted(self._schemas))}"})
            return
        exchange.answer(200, schema, _SCHEMA_TYPE)


def _load_invoke() -> Callable[..., Awaitable[JsonObject]]:
    from prowess.envelopes.envelope import invoke

    return invoke


def _head() -> JsonObject:
    """The first fields of an envelope."""
    return {
        "id": uuid.uuid4().hex,
        "version": _ENVELOPE_VERSION,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def _brief(error: ValidationError) -> str:
    return error.message if len(error.message) <= _MOST_LENGTH else f"{error.message[:_MOST_LENGTH]}…"


def _shown(contract: Contract) -> JsonObject:
    """The parts of a contract for callers."""
    given = {
        "id": contract.id,
        "name": contract.wire_name,
        "title": contract.title,
        "description": contract.shown_description,
        "category": contract.category,
        "tags": list(contract.tags) or None,
        "aliases": list(contract.aliases) or None,
        "annotations": contract.hints.to_mcp() or None,
        "inputSchema": contract.input_schema,
        "outputSchema": contract.output.schema,
    }
    return {name: value for name, value in given.items() if value is not None}
