"""URI templates of resources: the part of RFC 6570 that can be matched against a URI.

`{name}` is one segment of a path, `{+name}` is several (with slashes), `{?first,second}` are optional parameters of a query.
Light, because the host uses it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prowess.patterns import lazy_pattern

__all__ = ["LONGEST_URI", "Template", "Variable", "parse_template"]

LONGEST_URI: Final = 8192
"""The maximum length of a URI, as in browsers and servers. A longer URI matches no resource."""
_EXPRESSION: Final = lazy_pattern(r"\{([^{}]*)\}")
_SCHEME: Final = lazy_pattern(r"[A-Za-z][A-Za-z0-9+.-]*:.")
_NAMES: Final = lazy_pattern(r"[+?]?[A-Za-z_][A-Za-z0-9_]*(,[A-Za-z_][A-Za-z0-9_]*)*")
_ILLEGAL: Final = lazy_pattern(r"[\x00-\x20\"<>\\^`|\x7f]|%(?![0-9A-Fa-f]{2})")
_LEADS_OUT: Final = lazy_pattern(r"^[/\\]|^[A-Za-z]:[/\\]|(?:^|[/\\])\.\.(?:[/\\]|$)|\0")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="


class Variable(NamedTuple):
    """A variable of a template, with its operator."""

    name: str
    operator: str
    """Empty, `+` or `?`."""


class Template(NamedTuple):
    """A parsed template, or a URI without variables."""

    text: str
    variables: tuple[Variable, ...]
    pattern: re.Pattern[str]
    """The pattern for the URI without its query."""
    literal: int
    """The number of literal characters. If two templates match a URI, the one with more literal characters wins."""

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded variables of a URI; `None` if the URI does not match."""
        if len(uri) > LONGEST_URI:
            return None
        if not self.variables:
            return {} if uri == self.text else None
        from urllib.parse import unquote  # not needed for the first answer

        optional = [variable.name for variable in self.variables if variable.operator == "?"]
        path, mark, query = uri.partition("?") if optional else (uri, "", "")
        found = self.pattern.fullmatch(path)
        if found is None:
            return None
        try:
            values = {name: unquote(value, errors="strict") for name, value in found.groupdict().items()}
            return {**values, **_queried(query, optional)} if mark else values
        except (UnicodeDecodeError, KeyError):
            return None

    def is_contained(self, values: Mapping[str, str]) -> bool:
        """Whether all path variables stay inside a folder if an author joins them with it: no `..`, `/etc` or `C:`."""
        paths = [values.get(variable.name, "") for variable in self.variables if variable.operator != "?"]
        return not any(_LEADS_OUT.search(path) for path in paths)

    def expand(self, values: Mapping[str, object]) -> str:
        """The URI for these values. Missing and null values are omitted."""
        from urllib.parse import quote

        given = {name: str(value) for name, value in values.items() if value is not None}

        def fill(expression: re.Match[str]) -> str:
            operator, names = _split(expression[1])
            if operator != "?":
                return ",".join(quote(given.get(name, ""), safe=_RESERVED if operator else "") for name in names)
            pairs = [f"{name}={quote(given[name], safe='')}" for name in names if name in given]
            return f"?{'&'.join(pairs)}" if pairs else ""

        return _EXPRESSION.sub(fill, self.text)


@functools.lru_cache(maxsize=1024)
def parse_template(text: str) -> Template:
    """Parse a template. Raises `ValueError` with the reason if it is invalid."""
    if not _SCHEME.match(text):
        raise ValueError('it must begin with a scheme, like "notes://today"')
    parts = list(_parts(text))
    variables = [Variable(name, operator) for operator, names in parts if operator != "=" for name in names]
    names = [variable.name for variable in variables]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"it has the variable {name!r} twice")
    if any(operator == "?" for operator, _ in parts[:-1]):
        raise ValueError("its query {?...} must be at the end")
    if sum(variable.operator == "+" for variable in variables) > 1:
        raise ValueError("only one variable {+...} is allowed, because it matches several segments")
    pattern, literal = "", 0
    begins = ""
    """The text behind a variable {+...}, as long as no slash came."""
    for place, (operator, names_or_text) in enumerate(parts):
        if operator == "=":
            text_between = names_or_text[0]
            pattern += re.escape(text_between)
            literal += len(text_between)
            before = parts[place - 1][0] if place else ""
            begins = "" if "/" in text_between else text_between if before == "+" else begins
        elif operator != "?":
            pattern += f"(?P<{names_or_text[0]}>{'.+' if operator else _segment(parts[place + 1 :], begins)})"
    return Template(text, tuple(variables), re.compile(pattern, re.DOTALL), literal)


def _segment(following: list[tuple[str, list[str]]], begins: str) -> str:
    """The pattern of a variable in one segment. If another variable follows, it ends before the text between them, so that
    there is only one way to match, and matching a long URI takes linear time. For the same reason, it excludes the text with
    which it `begins` after a variable of several segments, which takes as much as it can.
    """
    until = ""
    if len(following) > 1 and following[0][0] == "=" and following[1][0] != "?" and "/" not in following[0][1][0]:
        until = re.escape(following[0][1][0][0])
    return f"(?:(?!{re.escape(begins)})[^/?#{until}])+" if begins else f"[^/?#{until}]+"


def _parts(text: str) -> Iterator[tuple[str, list[str]]]:
    """The literal parts, marked with `=`, and the expressions, each with its operator and names."""
    end = 0
    before = "="
    for expression in _EXPRESSION.finditer(text):
        literal = text[end : expression.start()]
        if literal:
            yield "=", [_checked(literal)]
            before = "="
        operator, names = _split(expression[1])
        if not _NAMES.fullmatch(expression[1]) or (operator != "?" and len(names) > 1):
            raise ValueError(
                f"{expression[0]} is not a variable: write {{name}}, {{+path}} for several segments, or {{?first,second}}"
            )
        if not literal and before != "=" and operator != "?":
            raise ValueError(f"put text between {expression[0]} and the variable before it")
        yield operator, names
        before, end = operator, expression.end()
    if text[end:]:
        yield "=", [_checked(text[end:])]


def _checked(literal: str) -> str:
    wrong = _ILLEGAL.search(literal) or re.search(r"[{}]", literal)
    if wrong is not None:
        raise ValueError(f"{wrong[0]!r} is not allowed in a URI; write it percent-encoded")
    return literal


def _split(expression: str) -> tuple[str, list[str]]:
    operator = expression[:1] if expression[:1] in ("+", "?") else ""
    return operator, expression.removeprefix(operator).split(",")


def _queried(query: str, names: list[str]) -> dict[str, str]:
    """The parameters of a query. Raises `KeyError` for one that the template lacks."""
    from urllib.parse import unquote

    found: dict[str, str] = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name not in names or name in found:
            raise KeyError(name)
        found[name] = unquote(value.replace("+", " "), errors="strict")
    return found
