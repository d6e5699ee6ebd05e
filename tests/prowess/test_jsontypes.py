"""Copies and texts of JSON data."""

from __future__ import annotations

import gc
import json

from prowess.jsontypes import copied, encodable, json_bytes, uncollected


def test_a_copy_shares_no_container_with_its_original():
    data = {"list": [{"a": 1}], "none": None}
    copy = copied(data)
    assert data == copy
    copy["list"][0]["a"] = 2
    assert 1 == data["list"][0]["a"]


def test_a_text_with_a_lone_surrogate_can_be_encoded():
    """All other characters stay as they are."""
    assert "é \\ 😀" == encodable("é \\ 😀")
    assert "half \\ud83d" == encodable("half \ud83d")


def test_json_with_a_lone_surrogate_is_read_as_the_same_data():
    data = {"half \ud83d": "\\\udc00 é"}
    assert data == json.loads(json_bytes(data))
    assert "é".encode() in json_bytes(data)


def test_data_can_be_read_without_collections():
    """Where they are off already, they stay off."""
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
