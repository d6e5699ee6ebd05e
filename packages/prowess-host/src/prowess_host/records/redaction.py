"""Masks secrets: values with marked names, values of marked parameters, and known secret texts.

Works on JSON and plain texts, independent of the database and of running calls.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from prowess.contracts.contract import Contract
from prowess.jsontypes import JsonObject, Schema, json_bytes

__all__ = ["MASK", "RecordedArguments", "Redactor", "is_marked", "secrets_of"]

MASK: Final = "***"
_SHORTEST: Final = 4
"""The least length of a secret. A shorter one would match everywhere."""
_SHORTEST_PART: Final = 8
"""The length from which a secret is also searched inside longer texts."""
_MOST_SECRETS: Final = 1000
_MOST_PLANS: Final = 1000
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SAY_SOMETHING: Final = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf")
"""A schema without any of these accepts any value."""
_UNUSUAL: Final = (b"\\u", b"\\/")
"""Escapes with which a JSON text may contain a secret that a search would miss."""


class RecordedArguments(NamedTuple):
    """The arguments of a call for the store."""

    text: str
    """JSON."""
    withheld: tuple[str, ...]
    """The paths of omitted values."""
    secrets: tuple[str, ...]
    """Omitted texts, which must not appear in the events of the call."""


class Redactor:
    """Masks secrets. More secrets can be added, up to a large limit."""

    def __init__(self, patterns: Sequence[str], secrets: Iterable[str] = ()) -> None:
        self._patterns = tuple(pattern.lower() for pattern in patterns)
        self._secrets: dict[str, None] = {}
        self._names: dict[str, bool] = {}
        self._plans: dict[str, tuple[Contract, frozenset[str] | None]] = {}
        self.keep_out(secrets)

    def keep_out(self, secrets: Iterable[str]) -> None:
        """Mask these texts from now on. Beyond the limit, the oldest are dropped."""
        secrets = [secret for secret in secrets if secret not in self._secrets]
        if self._secrets and not secrets:
            return
        for secret in secrets:
            if len(secret) >= _SHORTEST:
                self._secrets.pop(secret, None)
                self._secrets[secret] = None
        while len(self._secrets) > _MOST_SECRETS:
            del self._secrets[next(iter(self._secrets))]
        self._found = _Search(self._secrets)

    def may_be_in(self, text: bytes) -> bool:
        """Whether a JSON text, or several together, may contain a known secret: a quick check before the exact one."""
        return self._found.in_json(text)

    def is_harmless(self, contract: Contract) -> bool:
        """Whether no argument of a command can be secret by its name or its type, if the arguments are valid."""
        return self._marked(contract) is None

    def arguments(self, contract: Contract, text: bytes, *, valid: bool) -> RecordedArguments:
        """The arguments of a call for the store. Raises `ValueError` for malformed JSON.

        `valid` ones have only names from the schema of the command.
        """
        marked = self._marked(contract)
        if marked is not None or not valid or self._found.in_json(text):
            withheld: list[str] = []
            secrets: list[str] = []
            masked = self._masked(json.loads(text), marked or frozenset(), "", withheld, secrets)
            return RecordedArguments(json_bytes(masked).decode(), tuple(withheld), tuple(secrets))
        return RecordedArguments(text.decode(), (), ())

    def json(self, text: bytes, more: Sequence[str] = ()) -> str:
        """A JSON text without secrets: the known ones, and more."""
        search = _Search(self._secrets, more) if more else self._found
        if not search.in_json(text):
            return text.decode("utf-8", "replace")
        return json_bytes(_walk(json.loads(text), search.mask)).decode()

    def text(self, text: str, more: Sequence[str] = ()) -> str:
        """A text without secrets."""
        return (_Search(self._secrets, more) if more else self._found).mask(text)

    def data(self, data: Any, more: Sequence[str] = ()) -> Any:
        """JSON data without secrets, and without the values of marked names."""
        search = _Search(self._secrets, more) if more else self._found
        return _walk(data, search.mask)

    def is_marked(self, name: str) -> bool:
        """Whether the name says that the value is secret."""
        known = self._names.get(name)
        if known is None:
            if len(self._names) > _MOST_PLANS:
                self._names.clear()
            known = self._names[name] = is_marked(name, self._patterns)
        return known

    def _marked(self, contract: Contract) -> frozenset[str] | None:
        """The names of marked parameters; `None` if no argument of the command can be secret."""
        plan = self._plans.get(contract.id)
        if plan is None or plan[0] is not contract:
            if len(self._plans) > _MOST_PLANS:
                self._plans.clear()
            marked = frozenset(_secret_names(contract.input_schema))
            names = set(_names(contract.input_schema))
            harmless = not marked and not any(map(self.is_marked, names)) and _is_closed(contract.input_schema)
            plan = self._plans[contract.id] = contract, None if harmless else marked
        return plan[1]

    def _masked(self, value: Any, marked: frozenset[str], path: str, withheld: list[str], secrets: list[str]) -> Any:
        if isinstance(value, dict):
            found: JsonObject = {}
            for name, item in cast("JsonObject", value).items():
                where = f"{path}.{name}" if path else name
                if (name in marked or self.is_marked(name)) and item is not None and not isinstance(item, bool):
                    withheld.append(where)
                    secrets.extend(_texts(item))
                    found[name] = MASK
                else:
                    found[self._found.mask(name)] = self._masked(item, marked, where, withheld, secrets)
            return found
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self._masked(item, marked, f"{path}[{at}]", withheld, secrets) for at, item in enumerate(items)]
        masked = _masked_leaf(value, self._found.mask)
        if masked is not value and masked != value:
            withheld.append(path)
        return masked


class _Search:
    """Searches for secrets: short ones as whole texts, longer ones also inside other texts."""

    def __init__(self, secrets: Iterable[str], more: Iterable[str] = ()) -> None:
        """`more` are secrets of one call, of which short ones are also searched inside other texts."""
        parts = {*(secret for secret in secrets if len(secret) >= _SHORTEST_PART), *more}
        known = {*secrets, *more}
        self._whole = frozenset(known)
        self._parts = sorted(parts, key=len, reverse=True)  # a secret may contain another one
        written = {json.dumps(secret, ensure_ascii=escaped)[1:-1] for secret in known for escaped in (True, False)}
        self._written = [each.encode("utf-8", "surrogatepass") for each in written]

    def in_json(self, text: bytes) -> bool:
        """Whether a JSON text may contain a secret."""
        return bool(self._written) and any(each in text for each in (*self._written, *_UNUSUAL))

    def mask(self, text: str) -> str:
        if text in self._whole:
            return MASK
        for part in self._parts:
            text = text.replace(part, MASK)
        return text


def is_marked(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name matches a pattern (in snake_case) for secrets."""
    plain = _CAMEL.sub("_", name).replace("-", "_").lower()
    return _any_of(tuple(patterns)).match(plain) is not None


@functools.lru_cache(maxsize=16)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")


def secrets_of(settings: Mapping[str, Any], environ: Mapping[str, str], patterns: Sequence[str]) -> set[str]:
    """The texts of settings and variables with secret names."""
    found = {text for name, text in environ.items() if is_marked(name, patterns) and len(text) >= _SHORTEST_PART}
    for name, value in settings.items():
        found.update(_secret_texts(name, value, patterns))
    return {text for text in found if len(text) >= _SHORTEST}


def _secret_texts(name: str, value: Any, patterns: Sequence[str]) -> Iterator[str]:
    if is_marked(name, patterns):
        yield from _texts(value)
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _secret_texts(key, item, patterns)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value):
            yield from _secret_texts("", item, patterns)


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value. Numbers count in their written form."""
    if isinstance(value, Mapping):
        for item in cast("Mapping[str, Any]", value).values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value):
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool) and len(text := str(value)) >= _SHORTEST:
        yield text


def _walk(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {mask(name): _walk(item, mask) for name, item in cast("JsonObject", value).items()}
    if isinstance(value, list):
        return [_walk(item, mask) for item in cast("list[Any]", value)]
    return _masked_leaf(value, mask)


def _masked_leaf(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and mask(str(value)) == MASK:
        return MASK
    return value


# Schemas


def _secret_names(schema: Schema) -> Iterator[str]:
    """The properties at any depth with a secret type: pydantic's `SecretStr` and `SecretBytes`."""
    for name, below in _properties(schema):
        if _is_secret(below, schema, set()):
            yield name


def _names(schema: Schema) -> Iterator[str]:
    return (name for name, _ in _properties(schema))


def _properties(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for key, below in cast("JsonObject", schema).items():
            if key == "properties" and isinstance(below, dict):
                for name, item in cast("JsonObject", below).items():
                    yield name, item
                    yield from _properties(item)
            elif key not in ("default", "const", "enum", "examples"):
                yield from _properties(below)
    elif isinstance(schema, list):
        for below in cast("list[Any]", schema):
            yield from _properties(below)


def _is_secret(schema: Any, root: Schema, seen: set[str]) -> bool:
    """Whether a value of this schema may be a secret or a list of secrets, without looking into properties."""
    if isinstance(schema, list):
        return any(_is_secret(each, root, seen) for each in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return False
    node = cast("JsonObject", schema)
    if node.get("writeOnly") is True or node.get("format") == "password":
        return True
    target = node.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/") and target not in seen:
        seen.add(target)
        if _is_secret(root.get("$defs", {}).get(target.removeprefix("#/$defs/")), root, seen):
            return True
    below = ("anyOf", "oneOf", "allOf", "items", "prefixItems", "additionalProperties")
    return any(_is_secret(node[key], root, seen) for key in below if key in node)


def _is_closed(schema: Any) -> bool:
    """Whether the schema allows only names that it declares."""
    if isinstance(schema, list):
        return all(map(_is_closed, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return True
    node = cast("JsonObject", schema)
    if not any(key in node for key in _SAY_SOMETHING):
        return False
    kinds = node.get("type")
    if (kinds == "object" or "object" in (kinds or ())) and node.get("additionalProperties") is not False:
        return False
    names = ("properties", "$defs")
    inside = [item for name in names for item in cast("JsonObject", node.get(name) or {}).values()]
    keys = ("anyOf", "oneOf", "allOf", "items", "prefixItems")
    return all(map(_is_closed, [*inside, *(node[key] for key in keys if key in node)]))
