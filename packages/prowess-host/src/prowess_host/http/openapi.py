"""The description of the HTTP interface in OpenAPI 3.1: fixed paths, and one operation for each command. Pure data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess.jsontypes import JsonObject

__all__ = ["COMMANDS_PATH", "INVOKE_PATH", "SCHEMAS_PATH", "describe"]

INVOKE_PATH: Final = "/v1/invoke"
COMMANDS_PATH: Final = "/v1/commands"
SCHEMAS_PATH: Final = "/schemas/"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
_REQUEST: Final = "EnvelopeRequest"
_RESPONSE: Final = "EnvelopeResponse"
_NAMES: Final = {"request.schema.json": _REQUEST, "response.schema.json": _RESPONSE}
_REASONS: Final = {
    "200": "The command has returned.",
    "202": "The call is still running; ask again with the handle.",
    "400": "The body is not JSON, or the request is malformed.",
    "401": "The caller is not authenticated.",
    "403": "The caller lacks a scope, or the host or origin of the request is not allowed.",
    "404": "Unknown command.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not JSON, or is compressed.",
    "422": "The arguments or the envelope do not match the schema.",
    "429": "Too many calls of this client run; try again later.",
    "500": "The command has failed.",
    "502": "The result does not match the output schema.",
    "503": "Try again later.",
    "504": "The command took too long.",
}


def describe(contracts: Iterable[Contract], schemas: Mapping[str, bytes], title: str, *, secured: bool) -> JsonObject:
    """The whole document. All references are internal."""
    commands = list(contracts)
    paths: JsonObject = {**_fixed_paths(), **{f"{COMMANDS_PATH}/{each.id}": _command(each) for each in commands}}
    _make_unique(paths, {each.wire_name for each in commands})
    components: JsonObject = {
        "schemas": {
            **{name: _component(json.loads(schemas[file])) for file, name in _NAMES.items()},
            "Command": _COMMAND,
            "Error": {"type": "object", "description": "Reason for a rejected request."},
        }
    }
    document: JsonObject = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1", "description": "Commands of a Prowess project."},
        "paths": paths,
        "components": components,
    }
    if secured:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    return document


def _make_unique(paths: JsonObject, names: set[str]) -> None:
    """Rename the operations of ours that are called like a command."""
    for path, item in paths.items():
        for method, operation in item.items():
            is_call = method == "post" and path.startswith(f"{COMMANDS_PATH}/")
            while not is_call and operation["operationId"] in names:
                operation["operationId"] += "_"


def _fixed_paths() -> JsonObject:
    catalog = {
        "type": "object",
        "required": ["commands", "failures"],
        "properties": {
            "commands": {"type": "array", "items": _reference("Command")},
            "failures": {"type": "array", "items": {"type": "object"}},
        },
    }
    status = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
    refused = ("401", "403")
    return {
        INVOKE_PATH: {
            "post": {
                "operationId": "invoke",
                "summary": "Call a command with an envelope.",
                "requestBody": _body(_reference(_REQUEST)),
                "responses": _responses(_reference(_RESPONSE), tuple(_REASONS)),
            }
        },
        COMMANDS_PATH: _get("listCommands", "All commands, and all failures at load.", catalog, refused),
        "/healthz": _get("health", "Liveness of the server.", status, ("403",), is_open=True),
        "/readyz": _get(
            "ready", "Readiness: the commands are loaded.", status, ("403",), is_open=True, unavailable=status
        ),
        "/openapi.json": _get("describe", "This document.", {"type": "object"}, refused),
    }


def _get(
    operation: str,
    summary: str,
    schema: JsonObject,
    refused: tuple[str, ...],
    *,
    is_open: bool = False,
    unavailable: JsonObject | None = None,
) -> JsonObject:
    responses: JsonObject = {"200": _answer("The requested data.", schema)}
    responses.update({status: _answer(_REASONS[status], _reference("Error")) for status in refused})
    if unavailable is not None:
        responses["503"] = _answer(_REASONS["503"], unavailable)
    described: JsonObject = {"operationId": operation, "summary": summary, "responses": responses}
    return {"get": {**described, "security": []} if is_open else described}


def _command(contract: Contract) -> JsonObject:
    statuses = tuple(status for status in _REASONS if status != "202")
    post: JsonObject = {
        "operationId": contract.wire_name,
        "summary": contract.title or contract.summary or contract.id,
        "description": contract.shown_description,
        "tags": [contract.category],
        "requestBody": _body(_inlined(contract.input_schema)),
        "responses": _responses(_with_output(contract), statuses),
    }
    get = _get(
        f"{contract.wire_name}__contract", f"The contract of {contract.id}.", _reference("Command"), ("401", "403")
    )
    return {"post": post, **get}


def _with_output(contract: Contract) -> JsonObject:
    """The response envelope, with the output schema of a command."""
    output = contract.output.schema
    if output is None:
        return _reference(_RESPONSE)
    return {"allOf": [_reference(_RESPONSE)], "properties": {"output": _inlined(output)}}


def _inlined(schema: Any) -> JsonObject:
    """A schema for use inside another document. Its `$id` makes its references resolve within itself."""
    if not _refers(schema):
        return cast("JsonObject", schema)
    text = json.dumps(schema, sort_keys=True, default=str)
    return {"$id": f"urn:prowess:{hashlib.sha256(text.encode()).hexdigest()[:16]}", **schema}  # equal in every process


def _refers(schema: Any) -> bool:
    return '"$ref"' in json.dumps(schema, default=str)


def _responses(schema: JsonObject, statuses: tuple[str, ...]) -> JsonObject:
    """The responses of a call. Errors of HTTP itself have another form than the envelope."""
    both: JsonObject = {"anyOf": [schema, _reference("Error")]}
    return {status: _answer(_REASONS[status], schema if status in {"200", "202"} else both) for status in statuses}


def _answer(description: str, schema: JsonObject) -> JsonObject:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _body(schema: JsonObject) -> JsonObject:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _reference(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _component(schema: JsonObject) -> JsonObject:
    """A published schema as a component, with its dialect."""
    return {"$schema": _DRAFT_7, **{key: value for key, value in schema.items() if key not in {"$schema", "$id"}}}


_COMMAND: Final[JsonObject] = {
    "type": "object",
    "description": "The contract of a command.",
    "required": ["id", "name", "description", "category", "inputSchema"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string", "description": "The name of the tool in MCP."},
        "title": {"type": "string"},
        "description": {"type": "string"},
        "category": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "aliases": {"type": "array", "items": {"type": "string"}},
        "annotations": {"type": "object"},
        "inputSchema": {"type": "object"},
        "outputSchema": {},
    },
}
