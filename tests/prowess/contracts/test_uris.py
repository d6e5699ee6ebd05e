"""URI templates, read in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.contracts.uris import LONGEST_URI, parse_template

values = st.text(min_size=1).filter(lambda text: all(not "\ud800" <= letter <= "\udfff" for letter in text))


@pytest.mark.parametrize(
    ("template", "uri", "variables"),
    [
        ("notes://today", "notes://today", {}),
        ("notes://today", "notes://today/", None),
        ("notes://{id}", "notes://7", {"id": "7"}),
        ("notes://{id}", "notes://a%20b%2Fc", {"id": "a b/c"}),
        ("notes://{id}", "notes://a/b", None),
        ("notes://{id}", "notes://", None),
        ("notes://{id}", "notes://%FF", None),
        ("files:///{+path}", "files:///a/b.txt", {"path": "a/b.txt"}),
        ("x://{a}/of/{b}", "x://1/of/2", {"a": "1", "b": "2"}),
        ("x://{a}/of/{b}", "x://1/off/2", None),
        ("x://all{?q,limit}", "x://all", {}),
        ("x://all{?q,limit}", "x://all?limit=3&q=a+b%26", {"limit": "3", "q": "a b&"}),
        ("x://all{?q,limit}", "x://all?", None),
        ("x://all{?q,limit}", "x://all?other=1", None),
        ("x://all{?q,limit}", "x://all?q=1&q=2", None),
        ("x://all{?q}", "x://all?q=%FF", None),
        ("x://a.b", "x://aXb", None),
        ("x://{a}", "x://" + "a" * LONGEST_URI, None),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1", "b": "2-3"}),
        ("x://{name}.json", "x://a.b.json", {"name": "a.b"}),
        ("x://{+path}/{name}", "x://a/b/c", {"path": "a/b", "name": "c"}),
    ],
)
def test_a_uri_gives_the_variables_of_its_template(template: str, uri: str, variables: dict[str, str] | None) -> None:
    """Decoded, or nothing where the URI is not one of the template."""
    assert variables == parse_template(template).match(uri)


@pytest.mark.parametrize("value", ["a", "a/b", "..a", "a..", "a/..b/c", ".", ".hidden", "a:b", "C:", "a b", "ü/ö"])
def test_names_and_paths_are_contained(value: str) -> None:
    assert parse_template("x://{+path}").is_contained({"path": value})


@pytest.mark.parametrize(
    "value",
    ["..", "../a", "a/../b", "a/..", "..\\a", "a\\..", "/etc/passwd", "\\\\host\\share", "C:\\a", "c:/a", "a\0b"],
)
def test_what_leads_out_of_a_folder_is_not_contained(value: str) -> None:
    """A query leads nowhere: it is a text to look for."""
    assert not parse_template("x://{+path}").is_contained({"path": value})
    assert not parse_template("x://{a}/{b}").is_contained({"a": "a", "b": value})
    assert parse_template("x://a{?q}").is_contained({"q": value})


def test_a_long_uri_is_matched_in_one_go() -> None:
    """However many ways there would be to cut it."""
    template = parse_template("x://" + "-".join(f"{{v{number}}}" for number in range(12)) + "/end")
    assert None is template.match("x://" + "a-" * 4000)


@pytest.mark.parametrize(
    ("template", "given", "uri"),
    [
        ("notes://today", {}, "notes://today"),
        ("notes://{id}", {"id": 7}, "notes://7"),
        ("notes://{id}", {"id": "a b/c"}, "notes://a%20b%2Fc"),
        ("files:///{+path}", {"path": "a/b c"}, "files:///a/b%20c"),
        ("x://all{?q,limit}", {"limit": 3, "q": None}, "x://all?limit=3"),
        ("x://all{?q,limit}", {}, "x://all"),
    ],
)
def test_variables_make_a_uri(template: str, given: dict[str, Any], uri: str) -> None:
    """Encoded, and what is missing is left out."""
    assert uri == parse_template(template).expand(given)


@given(values, values)
def test_what_was_expanded_is_matched(first: str, second: str) -> None:
    """Whatever the values are."""
    template = parse_template("x://{first}/of{?second}")
    uri = template.expand({"first": first, "second": second})
    if len(uri) <= LONGEST_URI:
        assert {"first": first, "second": second} == template.match(uri)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("notes", "must begin with a scheme"),
        ("notes:", "must begin with a scheme"),
        ("x://{}", "is not a variable"),
        ("x://{a b}", "is not a variable"),
        ("x://{a,b}", "is not a variable"),
        ("x://{*a}", "is not a variable"),
        ("x://{a", "'{' is not allowed in a URI"),
        ("x://a}", "'}' is not allowed in a URI"),
        ("x://a b", "' ' is not allowed in a URI"),
        ("x://a%2", "'%' is not allowed in a URI"),
        ("x://a\nb", "is not allowed in a URI"),
        ("x://{a}/{a}", "the variable 'a' twice"),
        ("x://{a}{b}", "put text between"),
        ("x://{?a}/b", "must be at the end"),
        ("x://{+a}/of/{+b}", "only one variable"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused(template: str, problem: str) -> None:
    """With what is wrong."""
    with pytest.raises(ValueError, match=problem):
        parse_template(template)
