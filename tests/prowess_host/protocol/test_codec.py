"""Bytes to messages, and messages to bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess_host.protocol import codec
from prowess_host.protocol.codec import ABSENT, Batch, Malformed, Notification, RpcRequest, RpcResponse, decode
from prowess_host.protocol.lines import Oversized
from prowess_host.protocol.numbers import number_problems
from prowess_host.protocol.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    EncodeError,
    RpcError,
)
from prowess_host.protocol.salvage import find_id

DEEP = b"[" * 200_000 + b"]" * 200_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def encoded(value: Any) -> bytes:
    """As some client would write it."""
    return json.dumps(value).encode()


def fault(line: bytes) -> tuple[Any, int]:
    """Id and code of what is wrong with a line."""
    message = decode(line)
    assert isinstance(message, Malformed)
    return message.id, message.error.code


def read_line(line: bytes) -> Any:
    """What a client reads from one line of ours; there must be just one."""
    assert line.endswith(b"\n")
    assert 1 == line.count(b"\n")
    return json.loads(line)


# Reading


def test_a_request_is_read() -> None:
    """Id, method and params."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'
    assert RpcRequest(1, "tools/call", {"name": "x"}) == decode(line)


CALL = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}'


@pytest.mark.parametrize(
    "params, arguments",
    [
        ('{"name":"x","arguments":{"a":1}}', '{"a":1}'),
        ('{"name":"x", "arguments" :\t{ "a" : [1.50, 1E2, -0] } , "_meta": {}}', '{ "a" : [1.50, 1E2, -0] }'),
        ('{"arguments":{"arguments":{"a":1}},"name":"x"}', '{"arguments":{"a":1}}'),
        ('{"arguments":{"ä":"\\ud83d\\ude00 ö"}}', '{"ä":"\\ud83d\\ude00 ö"}'),
        ('{"arguments":{"a":"}\\"{"}}', '{"a":"}\\"{"}'),
        ('{"name":"\\"arguments\\":{","arguments":{"a":1}}', '{"a":1}'),
        ('{"arguments":{}}', "{}"),
    ],
)
def test_arguments_are_handed_on_as_they_came(params: str, arguments: str) -> None:
    """Byte for byte, wherever they stand and however they are written."""
    message = decode((CALL % params).encode())
    assert isinstance(message, RpcRequest)
    assert arguments.encode() == message.arguments
    assert json.loads(arguments) == message.params["arguments"] == json.loads(params)["arguments"]


@pytest.mark.parametrize(
    "params",
    [
        '{"_meta":{"arguments":{"b":2}},"arguments":{"a":1}}',
        '{"arguments":{"a":1},"arguments":{"b":2}}',
        '{"arguments":{"a":1},"arguments":null}',
        '{"name":"x","arguments":"{}"}',
        '{"name":"x\\"arguments"}',
        '{"argument\\u0073":{"a":1}}',
        '{"arguments":{"a":1e400}}',
        "[]",
        '{"arguments":{"a":1}},"params":{"name":"y"}',
        '{"arguments":{"a":1}},"params":[{}]',
        '{"arguments":{"a":1}},"params":{"arguments":{"a":2}}',
    ],
)
def test_arguments_in_an_unusual_place_are_encoded_again(params: str) -> None:
    """The value counts that parsing the whole line gives."""
    line = CALL % params
    message = decode(line.encode())
    wanted = json.loads(line)["params"]
    if isinstance(wanted, dict):
        assert isinstance(message, RpcRequest)
        assert (wanted, None) == (message.params, message.arguments)
    else:
        assert isinstance(message, Malformed)


@pytest.mark.parametrize("text", ['{"a":1', '{"a":1}}', '{"a":"\\ud800"}', '{"a":' + "[" * 100_000, '{"a":01}'])
@pytest.mark.parametrize("more", ["", ',"x":1'])
def test_broken_arguments_are_as_wrong_as_anything_else(text: str, more: str) -> None:
    """The same is said of them as of a parameter with another name of that length."""
    line = CALL % f'{{"arguments":{text}{more}}}'
    assert str(decode(line.replace("arguments", "argumentz").encode())) == str(decode(line.encode()))


@pytest.mark.parametrize("params", [b"", b',"params":null', b',"params":{}'])
def test_missing_and_null_params_are_no_params(params: bytes) -> None:
    """Clients write all three."""
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"ping"%b}' % params)
    assert isinstance(message, RpcRequest)
    assert {} == message.params


@pytest.mark.parametrize("params", ["", ',"params":null', ',"params":[1]', ',"params":5'])
def test_a_notification_is_read_whatever_its_params_are(params: str) -> None:
    """It is not answered, so nobody could be told of a fault."""
    assert Notification("notifications/x", {}) == decode(
        b'{"jsonrpc":"2.0","method":"notifications/x"%b}' % params.encode()
    )


@pytest.mark.parametrize("request_id", ["", -1, 0, 10**30, "1", 1, "é\u2028"])
def test_row_4_every_string_and_integer_is_an_id(request_id: Any) -> None:
    """Ids are echoed exactly, with their type."""
    line = encoded({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
    message = decode(line)
    assert isinstance(message, RpcRequest)
    answer = read_line(codec.encode_result(message.id, {}))
    assert (request_id, type(request_id)) == (answer["id"], type(answer["id"]))


@pytest.mark.parametrize(
    ("line", "request_id", "code"),
    [
        pytest.param(b"{", ABSENT, PARSE_ERROR, id="row-1 malformed JSON"),
        pytest.param(b"hello", ABSENT, PARSE_ERROR, id="row-1 plain text"),
        pytest.param(b"42", ABSENT, INVALID_REQUEST, id="row-1 scalar"),
        pytest.param(b'{"id":1} {"id":2}', ABSENT, PARSE_ERROR, id="two values on one line"),
        pytest.param(b'{"id":1,"method":"m"}', 1, INVALID_REQUEST, id="row-2 no jsonrpc"),
        pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"m"}', 1, INVALID_REQUEST, id="row-2 jsonrpc 1.0"),
        pytest.param(b'{"jsonrpc":2.0,"id":1,"method":"m"}', 1, INVALID_REQUEST, id="row-2 jsonrpc a number"),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":5}', "a", INVALID_REQUEST, id="row-2 method a number"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', 1, INVALID_PARAMS, id="row-2 params a list"
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":5}', 1, INVALID_PARAMS, id="row-2 params a number"
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":1}', 1, INVALID_REQUEST, id="row-2 no method"),
        pytest.param(b"{}", ABSENT, INVALID_REQUEST, id="nothing at all"),
        pytest.param(b'{"method":"m"}', ABSENT, INVALID_REQUEST, id="no jsonrpc and no id"),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"method":"m"}', ABSENT, INVALID_REQUEST, id="row-3 id null"),
        pytest.param(b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', ABSENT, INVALID_REQUEST, id="row-3 id 1.5"),
        pytest.param(b'{"jsonrpc":"2.0","id":2.0,"method":"m"}', ABSENT, INVALID_REQUEST, id="row-3 id 2.0"),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"m"}', ABSENT, INVALID_REQUEST, id="row-3 id true"),
        pytest.param(b'{"jsonrpc":"2.0","id":{},"method":"m"}', ABSENT, INVALID_REQUEST, id="row-3 id object"),
        pytest.param(b'{"jsonrpc":"2.0","id":[1],"method":"m"}', ABSENT, INVALID_REQUEST, id="row-3 id array"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}', 1, PARSE_ERROR, id="row-5 bad UTF-8"
        ),
        pytest.param(b'{"a":"\xed\xa0\x80"}', ABSENT, PARSE_ERROR, id="row-5 surrogate as UTF-8"),
        pytest.param(b"\xff\xfe", ABSENT, PARSE_ERROR, id="row-6 bare invalid bytes"),
        pytest.param(
            rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud800"}}',
            1,
            INVALID_PARAMS,
            id="row-10 in arguments",
        ),
        pytest.param(
            rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\uDC00x"}}',
            1,
            INVALID_PARAMS,
            id="row-10 upper case",
        ),
        pytest.param(rb'{"jsonrpc":"2.0","id":"\ud800","method":"m"}', ABSENT, INVALID_PARAMS, id="row-10 in the id"),
        pytest.param(rb'{"jsonrpc":"2.0","method":"\ud800"}', ABSENT, INVALID_PARAMS, id="row-10 in a notification"),
        pytest.param(b'{"id":1,"a":NaN}', ABSENT, PARSE_ERROR, id="row-11 NaN"),
        pytest.param(b'{"id":1,"a":-Infinity}', ABSENT, PARSE_ERROR, id="row-11 Infinity"),
        pytest.param(b'{"id":%b}' % (b"9" * 5000), ABSENT, PARSE_ERROR, id="an integer of 5000 digits"),
        pytest.param(DEEP, ABSENT, INVALID_REQUEST, id="row-13 nested too deeply"),
        pytest.param(b'{"a":"tab\there"}', ABSENT, PARSE_ERROR, id="a raw control character"),
        pytest.param(
            b'{"id":7,"method":"m","params":' + b"[" * 99_999 + b"]" * 99_999 + b"}", 7, INVALID_REQUEST, id="deep"
        ),
        pytest.param(
            b'{"id":"a","method":"m","x":"tab\there"}', "a", PARSE_ERROR, id="a control character, with an id"
        ),
        pytest.param(b'{"id":1,"id":2,"method":"m",}', 2, PARSE_ERROR, id="a comma too many, and two ids"),
        pytest.param(b'{"method":"m","params":{"id":5},"x":nope}', ABSENT, PARSE_ERROR, id="only a nested id"),
        pytest.param(b'{"id":1,"method":"m","params":{"a":', ABSENT, PARSE_ERROR, id="cut short"),
        pytest.param(b'{"id":1,"method":"m","a":"', ABSENT, PARSE_ERROR, id="cut short in a string"),
        pytest.param(b'{"id":1,"method":"m"}{"id":2,"method":"m"}', ABSENT, PARSE_ERROR, id="two requests"),
        pytest.param(b'{"id":"\xff","method":"m"}', ABSENT, PARSE_ERROR, id="bad UTF-8 in the id"),
        pytest.param(rb'{"id":"\ud800","method":"m",}', ABSENT, PARSE_ERROR, id="half a pair in the id of no JSON"),
        pytest.param(b'{"id":NaN,"method":"m"}', ABSENT, PARSE_ERROR, id="an id of NaN"),
        pytest.param(b'{"id":[1,"x"],"method":"m",}', ABSENT, PARSE_ERROR, id="an id that is an array"),
        pytest.param(b'{"id":%b,"method":"m"}' % (b"9" * 5000), ABSENT, PARSE_ERROR, id="an id of 5000 digits"),
        pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"m","x":NaN}', 1, PARSE_ERROR, id="two faults"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[-Infinity]}}', 1, INVALID_PARAMS, id="a number of m"
        ),
    ],
)
def test_what_is_wrong_with_a_line(line: bytes, request_id: Any, code: int) -> None:
    """Every broken line has a code, and the id where it could be read."""
    assert (request_id, code) == fault(line)


def test_row_12_of_two_equal_keys_the_last_one_counts() -> None:
    """Also for the id."""
    message = decode(b'{"jsonrpc":"2.0","id":10,"id":11,"method":"ping"}')
    assert isinstance(message, RpcRequest)
    assert 11 == message.id


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        ("NaN", "params.a[0].b c: expected a finite number, got NaN, which is not JSON"),
        ("-Infinity", "expected a finite number, got -Infinity, which is not JSON"),
        ("-" + "7" * 5000, "expected an integer of fewer digits, got one of 5000"),
    ],
)
def test_an_unreadable_number_is_named_with_its_place(number: str, problem: str) -> None:
    """Its sender has to find it."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[{"b c":%b}]}}' % number.encode()
    message = decode(line)
    assert isinstance(message, Malformed)
    assert problem.replace(".b c", '["b c"]') in message.error.message


def test_unreadable_numbers_in_arguments_are_for_whoever_checks_arguments() -> None:
    """The call goes on, and nothing can write them as JSON. Of many only some are named."""
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":[NaN,NaN,1e999]}}}')
    assert isinstance(message, RpcRequest)
    assert ["a[0]", "a[1]", "a[2]"] == [line.partition(":")[0] for line in number_problems(message.params["arguments"])]
    assert 6 == len(number_problems([float("nan")] * 9))
    with pytest.raises(codec.EncodeError):
        codec.dumps(message.params)


def test_unreadable_numbers_elsewhere() -> None:
    """A notification is read all the same, an answer to us counts as a failure, an item of a batch is like a line."""
    assert isinstance(decode(b'{"jsonrpc":"2.0","method":"n","params":{"a":NaN}}'), Notification)
    answer = decode(b'{"id":1,"result":{"a":NaN}}')
    assert isinstance(answer, RpcResponse)
    assert answer.error == {"message": "a: expected a finite number, got NaN, which is not JSON"}
    batch = decode(b'[{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}]')
    assert isinstance(batch, Batch)
    item = codec.read_item(batch.items[0])
    assert isinstance(item, Malformed)
    assert (1, INVALID_PARAMS) == (item.id, item.error.code)


def test_the_search_for_an_id_is_bounded() -> None:
    """A long line is judged by its ends: an id may stand before the parameters or after them."""
    middle = b'"params":[' + b"{}," * 300_000 + b"nope]"
    assert 1 == find_id(b'{"id":1,"method":"m",' + middle + b"}")
    assert "x" == find_id(b'{"method":"m",' + middle + b',"jsonrpc":"2.0","id":"x"}')
    assert 5 == find_id(b"{" + middle + b',"id":5,"method":"m"}')
    assert find_id(b"{" + middle + b',"id":5}') is None
    assert find_id(b'{"method":"m","params":{' + middle + b',"id":5}}') is None


@given(st.dictionaries(st.sampled_from(["name", "arguments", "_meta", "ä"]), JSON), JSON, st.booleans(), st.booleans())
def test_handed_on_arguments_are_what_the_line_says(params: Any, arguments: Any, plain: bool, last: bool) -> None:
    """The text that is handed on and the value that is looked into never differ, and the value is the parser's."""
    params = {**params, "arguments": arguments} if last else {"arguments": arguments, **params}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, ensure_ascii=plain)
    message = decode(line.encode("utf-8", "surrogatepass"))
    if isinstance(message, RpcRequest):
        assert json.loads(line)["params"] == message.params
        assert message.arguments is None or json.loads(message.arguments) == message.params["arguments"]


@given(st.binary(max_size=100), JSON)
def test_a_found_id_is_the_one_that_json_has(data: bytes, value: Any) -> None:
    """Whatever else stands on the line, and nothing breaks the search."""
    find_id(data)
    message = {"jsonrpc": "2.0", "id": value, "method": "m", "params": value}
    expected = value if type(value) in (int, str) and len(str(value)) < 100 else None
    assert expected == find_id(encoded(message))


def test_row_14_an_oversized_line_is_answered_to_its_id() -> None:
    """Where one of its ends tells it."""
    first = Oversized(64, b'{"id":1,"method":"m","params":{"a":"xx', b'xx"}}')
    last = Oversized(64, b'{"method":"m","params":{"a":"xx', b'xx"},"jsonrpc":"2.0","id":2}')
    nested = Oversized(64, b'{"method":"m","params":{"a":"xx', b'xx","id":3}}')
    assert [1, 2, ABSENT] == [fault(line)[0] for line in (first, last, nested)]


def test_row_14_an_oversized_line_says_what_the_limit_is() -> None:
    """It has no id, since nobody has looked for one."""
    message = decode(Oversized(64))
    assert isinstance(message, Malformed)
    assert (ABSENT, INVALID_REQUEST) == (message.id, message.error.code)
    assert "64 bytes" in message.error.message


def test_a_surrogate_pair_is_text() -> None:
    """Only half a pair is refused."""
    message = decode(rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud83d\ude00"}}')
    assert isinstance(message, RpcRequest)
    assert {"a": "😀"} == message.params


def test_a_message_nested_too_deeply_to_be_checked_is_refused() -> None:
    """What cannot be checked is not handed on."""
    value: Any = "\ud800"
    for _ in range(100_000):
        value = [value]
    message = codec.read_message({"jsonrpc": "2.0", "id": 1, "method": "m", "params": value}, rb"\ud800")
    assert isinstance(message, Malformed)
    assert 1 == message.id


@pytest.mark.parametrize(
    ("line", "response"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}', RpcResponse(1, {"a": 1}), id="a result"),
        pytest.param(b'{"id":"1","result":{}}', RpcResponse("1", {}), id="a result without jsonrpc"),
        pytest.param(b'{"id":1,"error":{"code":1}}', RpcResponse(1, {}, {"code": 1}), id="an error"),
        pytest.param(b'{"id":null,"error":{"code":1}}', RpcResponse(ABSENT, {}, {"code": 1}), id="a complaint"),
        pytest.param(b'{"error":{}}', RpcResponse(ABSENT, {}, {}), id="an empty complaint"),
    ],
)
def test_a_response_is_read(line: bytes, response: RpcResponse) -> None:
    """Either a result or an error."""
    assert response == decode(line)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"id":1,"result":5}', id="the result is no object"),
        pytest.param(b'{"id":1,"error":"no"}', id="the error is no object"),
        pytest.param(b'{"id":1,"result":{},"error":null}', id="both"),
        pytest.param(rb'{"id":1,"result":{"a":"\ud800"}}', id="a lone surrogate"),
    ],
)
def test_a_malformed_response_counts_as_a_failure(line: bytes) -> None:
    """So that whoever asked is not left waiting."""
    message = decode(line)
    assert isinstance(message, RpcResponse)
    assert 1 == message.id
    assert message.error


def test_an_array_is_a_batch_of_unread_items() -> None:
    """Whether a batch may stand here is for others to say."""
    assert Batch([1, {"id": 2}]) == decode(b'[1, {"id": 2}]')


def test_an_item_is_read_like_a_line() -> None:
    """Its arguments are encoded again when they are handed on."""
    message = codec.read_item({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": "é"}})
    assert isinstance(message, RpcRequest)
    assert RpcRequest(1, "m", {"a": "é"}) == message


def test_a_lone_surrogate_in_an_item_is_refused() -> None:
    """As on a line of its own."""
    message = codec.read_item({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": "\ud800"}})
    assert isinstance(message, Malformed)
    assert (1, INVALID_PARAMS) == (message.id, message.error.code)


def test_an_item_too_deep_to_be_written_again_is_refused() -> None:
    """What cannot be handed on is not taken."""
    value: Any = {}
    for _ in range(100_000):
        value = {"a": value}
    message = codec.read_item(value)
    assert isinstance(message, Malformed)
    assert INVALID_REQUEST == message.error.code


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    """Whatever arrives becomes a message or a fault."""
    assert decode(data) is not None


@given(JSON)
def test_no_json_breaks_the_reader(value: Any) -> None:
    """Also with the names that mean something."""
    for whole in (value, [value], {"id": value, "method": value, "params": value, "jsonrpc": "2.0"}):
        assert decode(encoded(whole)) is not None


# Writing


@given(JSON)
def test_what_is_written_is_one_line_and_reads_back(value: Any) -> None:
    """No newline but the last, whatever the strings hold."""
    lines = {
        "result": codec.encode_result("é\n", {"a": value}),
        "raw": codec.encode_result_raw(1, codec.dumps({"a": value})),
        "error": codec.encode_error(1, RpcError(1, "m\n", value)),
        "params": codec.encode_notification("n", {"a": value}),
        "request": codec.encode_request(1, "n\n", {"a": value}),
    }
    read = {name: read_line(line) for name, line in lines.items()}
    assert {"jsonrpc": "2.0", "id": "é\n", "result": {"a": value}} == read["result"]
    assert {"jsonrpc": "2.0", "id": 1, "result": {"a": value}} == read["raw"]
    assert value == read["error"]["error"].get("data")
    assert {"jsonrpc": "2.0", "method": "n", "params": {"a": value}} == read["params"]
    assert {"jsonrpc": "2.0", "id": 1, "method": "n\n", "params": {"a": value}} == read["request"]


def test_params_are_left_out_where_there_are_none() -> None:
    """An absent member, not a null one."""
    assert b'{"jsonrpc":"2.0","method":"n"}\n' == codec.encode_notification("n")


def test_an_error_without_id_leaves_the_id_out() -> None:
    """Null is not allowed there."""
    assert b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error: x"}}\n' == codec.encode_error(
        ABSENT, RpcError.parse_error("x")
    )


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), LOOP])
def test_row_35_a_result_that_is_no_json_becomes_an_error_of_that_id(value: Any) -> None:
    """One bad value costs one answer, never the connection."""
    answer = read_line(codec.encode_result(7, {"a": value}))
    assert (7, INTERNAL_ERROR) == (answer["id"], answer["error"]["code"])


def test_a_result_nested_too_deeply_becomes_an_error_of_that_id() -> None:
    """Recursion is bounded in both directions."""
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    assert "nested too deeply" in read_line(codec.encode_result(7, value))["error"]["message"]


@pytest.mark.parametrize("value", [float("nan"), "\ud800"])
def test_a_notification_that_is_no_json_is_refused_to_its_maker(value: Any) -> None:
    """Nobody waits for it, so there is nobody else to tell."""
    with pytest.raises(EncodeError, match="params cannot be encoded"):
        codec.encode_notification("n", {"a": value})


def test_an_error_is_written_even_if_its_data_or_message_cannot_be() -> None:
    """The data is an extra, and a broken character is replaced."""
    error = read_line(codec.encode_error(1, RpcError(-32603, "bad \ud800", float("nan"))))["error"]
    assert {"code": -32603, "message": "bad ?"} == error
