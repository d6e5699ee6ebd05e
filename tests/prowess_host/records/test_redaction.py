"""What must not be stored: by name, by type, and by value."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from prowess.contracts.contract import Contract
from prowess.settings.keys import RecordSettings
from prowess_host.records.redaction import Redactor, is_marked, secrets_of

PATTERNS = RecordSettings().secrets
KEY = "sk-0123456789"


def contract(**properties: Any) -> Contract:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return Contract("t.c", "t_c", "t", "c", "", schema)


def redacted(
    told: Contract, arguments: Any, *, valid: bool = True, secrets: tuple[str, ...] = ()
) -> tuple[Any, tuple[str, ...]]:
    found = Redactor(PATTERNS, secrets).arguments(told, json.dumps(arguments).encode(), valid=valid)
    return json.loads(found.text), found.withheld


NAMED = [
    "token",
    "api_key",
    "apiKey",
    "API-KEY",
    "github_token",
    "dbPassword",
    "client_secret",
    "Authorization",
    "cookies",
]


@pytest.mark.parametrize("name", NAMED)
def test_a_name_may_say_that_the_value_is_secret(name: str):
    """In any of the ways in which names are written."""
    assert is_marked(name, PATTERNS)
    assert ({name: "***"}, (name,)) == redacted(contract(**{name: {"type": "string"}}), {name: KEY})


@pytest.mark.parametrize("name", ["max_tokens", "tokens", "key", "author", "text", "passenger", "monkey"])
def test_other_names_do_not(name: str):
    assert not is_marked(name, PATTERNS)


SECRET = {"type": "string", "format": "password", "writeOnly": True}


@pytest.mark.parametrize(
    "schema",
    [
        SECRET,
        {"anyOf": [SECRET, {"type": "null"}]},
        {"type": "array", "items": SECRET},
        {"$ref": "#/$defs/Secret"},
    ],
)
def test_a_type_may_say_it_as_well(schema: dict[str, Any]):
    """As the schemas of pydantic's SecretStr and SecretBytes do, also within other types."""
    told = contract(hidden=schema, shown={"type": "string"})
    told.input_schema["$defs"] = {"Secret": SECRET}
    assert ({"hidden": "***", "shown": "a"}, ("hidden",)) == redacted(told, {"hidden": KEY, "shown": "a"})


def test_what_is_nested_has_a_path():
    told = contract(server={"type": "object"}, more={"type": "array"})
    given = {"server": {"auth": {"password": KEY, "user": "me"}}, "more": [{"token": "x"}, {"token": None}]}
    masked = {"server": {"auth": {"password": "***", "user": "me"}}, "more": [{"token": "***"}, {"token": None}]}
    assert (masked, ("server.auth.password", "more[0].token")) == redacted(told, given)


@pytest.mark.parametrize("value", [KEY, [KEY], {KEY: 1}, f"before {KEY} after", [{"deep": [KEY]}]])
def test_a_known_secret_is_found_under_any_name(value: Any):
    masked, _ = redacted(contract(value={}), {"value": value}, secrets=(KEY,))
    assert KEY not in json.dumps(masked)
    assert "***" in json.dumps(masked)


@pytest.mark.parametrize(
    "written", ['"s\\u00e9cret-123"', '"sécret-123"', '"s\\u00e9cret\\u002d123"', '"a/s\\u00e9cret-123"']
)
def test_a_secret_cannot_hide_behind_escapes(written: str):
    """JSON has several ways to write one text."""
    redactor = Redactor(PATTERNS, ["sécret-123"])
    masked = redactor.json(f'{{"text":{written}}}'.encode())
    assert json.loads(masked)["text"] in ("***", "a/***")


def test_a_number_can_be_a_secret():
    assert ({"pin": "***"}, ("pin",)) == redacted(
        contract(pin={"type": "integer"}), {"pin": 12345678}, secrets=("12345678",)
    )


def test_a_short_secret_is_masked_as_a_whole_text_only():
    """Otherwise it would be found everywhere."""
    redactor = Redactor(PATTERNS, ["open", "no"])
    assert ("***", "opened", "no") == tuple(map(redactor.text, ("open", "opened", "no")))


def test_a_command_without_secrets_is_not_even_parsed():
    """Whatever the text looks like, it is stored as it came."""
    found = Redactor(PATTERNS, [KEY]).arguments(contract(value={"type": "integer"}), b'{"value":   1}', valid=True)
    assert ('{"value":   1}', (), ()) == found


def test_arguments_that_were_refused_may_hold_any_name():
    """A client may send what is injected."""
    told = contract(value={"type": "integer"})
    assert ({"api_key": "***"}, ("api_key",)) == redacted(told, {"api_key": KEY}, valid=False)


def test_what_was_withheld_is_known_for_the_rest_of_the_call():
    redactor = Redactor(PATTERNS)
    found = redactor.arguments(contract(password=SECRET), b'{"password":"hunter22"}', valid=True)
    assert ("hunter22",) == found.secrets
    assert '{"text": "it is ***"}' == redactor.json(b'{"text":"it is hunter22"}', found.secrets)
    assert ["***", 1, {"a": "x ***"}] == redactor.data(["hunter22", 1, {"a": "x hunter22"}], found.secrets)


def test_a_secret_may_be_large_and_contain_another():
    """A pattern for this one would take seconds to compile."""
    large = f"begin {KEY} end " * 20_000
    redactor = Redactor(PATTERNS, [KEY])
    assert "a *** b *** c" == redactor.text(f"a {large} b {KEY} c", [large])


def test_settings_and_variables_may_be_secret():
    settings = {
        "api": {"key": "plain", "api_key": KEY},
        "list": [{"token": "abcd"}, "open"],
        "secrets": {"a": "wxyz", "n": 12345},
    }
    environ = {"GITHUB_TOKEN": "ghp_12345678", "MY_TOKEN": "short", "HOME": "/home/someone"}
    assert {KEY, "abcd", "wxyz", "12345", "ghp_12345678"} == secrets_of(settings, environ, PATTERNS)


def test_an_open_schema_takes_any_name():
    """So the names of its arguments are looked at."""
    for schema in ({}, {"type": "object"}, {"type": ["object", "null"]}, {"description": "anything"}):
        assert ({"value": {"token": "***"}}, ("value.token",)) == redacted(
            contract(value=schema), {"value": {"token": KEY}}
        )


def test_only_so_many_secrets_are_remembered(monkeypatch: pytest.MonkeyPatch):
    """Some are new with every call."""
    monkeypatch.setattr("prowess_host.records.redaction._MOST_SECRETS", 2)
    redactor = Redactor(PATTERNS, ["first secret", "second secret", "third secret"])
    assert ["first secret", "***", "***"] == [redactor.text(f"{each} secret") for each in ("first", "second", "third")]


def test_what_is_no_json_is_refused():
    with pytest.raises(ValueError):
        Redactor(PATTERNS).arguments(contract(token={}), b"{", valid=True)


def test_former_versions_of_a_contract_are_not_kept():
    """Each save makes new contracts, and a host may live for weeks."""
    redactor = Redactor(PATTERNS)
    for _ in range(20):
        redactor.arguments(contract(text={"type": "string"}), b"{}", valid=True)
    gc.collect()
    assert 1 >= sum(type(each) is Contract and each.id == "t.c" for each in gc.get_objects())
