"""The limits of a skill: what it may access and use. Plain data, read from tables and checked.

A skill declares limits in its own file (`declared`), and the owner of the project sets them in `[sandbox.<skill>]`, where each
key replaces that of the skill. How limits are enforced is not known here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields
from typing import Any, Final, cast

from prowess.errors import SettingsError, did_you_mean
from prowess.frozen import frozen
from prowess.patterns import lazy_pattern

__all__ = [
    "GIB",
    "LOOPBACK",
    "MIB",
    "TABLE",
    "VARIABLE",
    "Limits",
    "Sandbox",
    "Verdict",
    "declared",
    "limits_of",
    "normal_name",
    "own_limits",
    "wider",
]

VARIABLE: Final = "_PROWESS_LIMITS"
"""The variable with the skill and limits of a limited process, as JSON, for its error messages. It enforces nothing."""
TABLE: Final = "sandbox"
"""The table in the project's settings with one table for each skill."""
LOOPBACK: Final = "loopback"
"""The network of this machine only."""
MIB: Final = 1024**2
GIB: Final = 1024**3
_UNENFORCED: Final = "unenforced"
_CONTRACT: Final = "contract"
_LIMITED: Final = "limited"
_SIZE: Final = lazy_pattern(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", re.IGNORECASE)
_UNITS: Final = "KMGT"
_MOST: Final = 2**62
"""Bytes or seconds: the kernel accepts no larger limit."""
_MOST_PROCESSES: Final = 2**22
"""The most processes that Linux can have at one time."""
_MOST_CHARACTERS: Final = 8192
"""Characters of all names in one list: the limits are passed in one variable, which holds at most 128 KiB."""
_BLOCK: Final = lazy_pattern(r"(?m)^# /// script[ \t]*\r?\n(?P<content>(?:^#(?:| .*)\r?\n)+?)^# ///[ \t]*\r?$")
"""A block of inline metadata as defined by PEP 723."""
_MEANT: Final = lazy_pattern(r"(?m)^[ \t]*#[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*prowess[ \t]*\.[ \t]*sandbox[ \t]*\][ \t]*$")
"""A line that is only meant for such a block."""
_MEANT_IN_FRONT: Final = lazy_pattern(
    r"""(?mx)\A\s*---[ \t]*$
    (?: (?:(?!^---).*\n)*? (?: ["']?sandbox["']?[ \t]*: | \?[ \t]+["']?sandbox\b )
      | \s*\{ (?:(?!^---)[\s\S])*? \bsandbox["']?\s*: )"""
)
"""The same in YAML: as a key of a line, after a question mark, or in braces."""
_FRONT: Final = lazy_pattern(r"\A---[ \t]*\r?\n(?P<content>.*?)^---[ \t]*\r?$", re.MULTILINE | re.DOTALL)


@frozen
class Limits:
    """What a limited skill may access and use. The defaults hold for all keys that a table of limits leaves out.

    `None` means no limit. Paths are relative to the project, or begin with `~` or `/`.
    """

    network: bool | str = False
    """Whether the skill may use the network; `"loopback"` allows this machine only."""
    read: tuple[str, ...] = ()
    """Files and folders that the skill may read, in addition to its own."""
    write: tuple[str, ...] = ()
    """Files and folders that the skill may change and read."""
    env: tuple[str, ...] = ()
    """Environment variables that the skill may see, in addition to harmless ones such as PATH and LANG."""
    settings: tuple[str, ...] = ()
    """Settings that the skill may see: dotted keys, or tables."""
    memory: int | None = 2 * GIB
    """Bytes of memory that each of its processes may reserve."""
    cpu: float | None = None
    """Seconds of processor time that each of its processes may use."""
    processes: int = 0
    """Processes that the skill may run at the same time."""
    file_size: int | None = 256 * MIB
    """The largest file that the skill may write, in bytes."""
    disk: int | None = GIB
    """Bytes that all files in its temporary folder may have together."""

    def to_json(self) -> dict[str, Any]:
        """The limits as plain data for `limits_of`."""
        found: dict[str, Any] = {name: getattr(self, name) for name in _KEYS}
        return {name: list(found[name]) if name in _LISTS else _sized(name, found[name]) for name in found}

    def in_words(self) -> str:
        """The limits in one line, for people."""
        network: str = {True: "network", False: "no network", LOOPBACK: "network of this machine only"}[self.network]
        return ", ".join((network, *self._names(), *self._amounts()))

    def _names(self) -> Iterator[str]:
        for name, word in (("read", "reads"), ("write", "writes"), ("env", "variables"), ("settings", "settings")):
            names: tuple[str, ...] = getattr(self, name)
            if names:
                yield f"{word} {' '.join(names)}"

    def _amounts(self) -> Iterator[str]:
        if self.memory is not None:
            size = _sized("memory", self.memory)
            yield f"{size} of memory" if isinstance(size, str) else f"{size} bytes of memory"
        if self.cpu is not None:
            yield f"{self.cpu:g} s of processor time"
        yield f"{self.processes} processes" if self.processes else "no processes of its own"
        if self.file_size is not None:
            size = _sized("file_size", self.file_size)
            yield f"files up to {size}" if isinstance(size, str) else f"files up to {size} bytes"
        if self.disk is not None:
            size = _sized("disk", self.disk)
            yield f"{size} of temporary files" if isinstance(size, str) else f"{size} bytes of temporary files"


@frozen
class Verdict:
    """The decision of the project's owner about one skill."""

    limits: Mapping[str, Any] | None
    """The limits by key; `None` if the owner lifts them all."""
    contract: str = ""
    """A fingerprint of the contracts that the owner allowed. The skill may run only while it matches."""


@frozen
class Sandbox:
    """The limits that the owner of the project sets: the table `[sandbox]`."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    """The decisions by skill or installed package."""
    unenforced: bool = False
    """Run limited skills even if this system cannot enforce all of their limits."""
    origin: str = ""
    """The file with the table."""

    @classmethod
    def of(cls, table: Any, origin: str) -> Sandbox:
        """Read the table from the settings; `origin` is its file."""
        verdicts: dict[str, Verdict] = {}
        unenforced = False
        for name, value in _table(table, f"{origin}: [{TABLE}]").items():
            if name == _UNENFORCED and isinstance(value, bool):
                unenforced = value
            elif value is False:
                verdicts[normal_name(name)] = Verdict(None)
            elif isinstance(value, dict):
                verdicts[normal_name(name)] = _verdict(cast("dict[str, Any]", value), f"{origin}: [{TABLE}.{name}]")
            else:
                raise SettingsError(
                    f"{origin}: {TABLE}.{name} must be a table with the limits of the skill {name!r}, or false for none, "
                    f"not {json.dumps(value, default=str)}"
                )
        return cls(verdicts, unenforced, origin)

    def __getitem__(self, skill: str) -> Verdict | None:
        """The owner's decision about a skill, or `None`."""
        return self.verdicts.get(normal_name(skill))

    def limits(self, skill: str, said: tuple[Mapping[str, Any], str] | None = None) -> Limits | None:
        """The limits of a skill, `None` if it has none. `said` is what the skill declares, if it does.

        Each key that the owner writes replaces that of the skill.
        """
        verdict = self[skill]
        if verdict is None:
            return None if said is None else limits_of(said)
        if verdict.limits is None:
            return None
        return limits_of(*([said] if said else []), (verdict.limits, f"{self.origin}: [{TABLE}.{skill}]"))

    def packages(self) -> dict[str, bool]:
        """By skill: whether it runs without limits, in the workers of the project."""
        return {name: verdict.limits is None for name, verdict in self.verdicts.items()}


def _verdict(table: Mapping[str, Any], origin: str) -> Verdict:
    limits = {name: value for name, value in table.items() if name not in {_CONTRACT, _LIMITED}}
    contract, limited = table.get(_CONTRACT, ""), table.get(_LIMITED, True)
    if not isinstance(contract, str) or not isinstance(limited, bool):
        raise SettingsError(f"{origin}: {_CONTRACT} must be a string, and {_LIMITED} true or false")
    _checked(limits, origin)
    if limits and not limited:
        raise SettingsError(f"{origin}: {_LIMITED} = false lifts all limits: remove {', '.join(limits)}, or that line")
    return Verdict(limits if limited else None, contract)


def limits_of(*tables: tuple[Mapping[str, Any], str]) -> Limits:
    """Merge tables of limits, each with its origin; later tables win, key by key."""
    found: dict[str, Any] = {}
    for table, origin in tables:
        found |= _checked(table, origin)
    return Limits(**found)


def own_limits(environ: Mapping[str, str]) -> tuple[str, Limits] | None:
    """The skill and the limits of this process; `None` if it has no limits."""
    try:
        data = json.loads(environ[VARIABLE])
        return str(data["skill"]), limits_of((data["limits"], VARIABLE))
    except (KeyError, TypeError, ValueError, SettingsError):
        return None


def wider(now: Limits, before: Limits) -> list[str]:
    """The keys whose limits are wider than before."""
    return [name for name in _KEYS if not _within(getattr(now, name), getattr(before, name))]


def declared(text: str, file: str) -> tuple[dict[str, Any], str] | None:
    """The table that a Python file or a `SKILL.md` declares, with its origin; `None` if there is none.

    In Python it is `[tool.prowess.sandbox]` in the inline metadata, in `SKILL.md` it is `sandbox:` in the front matter.
    """
    if TABLE not in text:  # most files: nothing is parsed
        return None
    text = text.removeprefix("\ufeff")
    is_markdown = file.endswith(".md")
    table = _in_front_matter(text, file) if is_markdown else _in_block(text, file)
    if table is not None:
        return table, file
    # Limits in the wrong place are an error: to run the skill without any would be unsafe.
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    if is_markdown and _MEANT_IN_FRONT.search(lines):
        raise SettingsError(
            f"{file}: limits must be a block `{TABLE}:` in the front matter, which begins in the first line of the file and "
            "stands between two lines `---`"
        )
    if not is_markdown and _MEANT.search(lines):
        raise SettingsError(
            f"{file}: [tool.prowess.{TABLE}] must be in one block that begins with the line `# /// script` and ends with "
            "`# ///`; each line between begins with `# `"
        )
    return None


# --- checking -------------------------------------------------------------------------------------


def _checked(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    return {name: _value(name, value, origin) for name, value in table.items()}


def _value(name: str, value: Any, origin: str) -> Any:
    if name not in _KEYS:
        near = did_you_mean(name, _KEYS) or f"; there are {', '.join(_KEYS)}"
        raise SettingsError(f"{origin}: unknown limit {name!r}{near}")
    expected, read = _KEYS[name]
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError):
        shown = json.dumps(value, default=str)[:200]
        raise SettingsError(f"{origin}: {name} must be {expected}, not {shown}") from None


def _network(value: Any) -> bool | str:
    if isinstance(value, bool) or value == LOOPBACK:
        return value
    raise ValueError


def _names(value: Any) -> tuple[str, ...]:
    names: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(isinstance(name, str) and name.strip() and name.isprintable() for name in names):
        raise ValueError
    if sum(map(len, names)) > _MOST_CHARACTERS:
        raise ValueError
    return tuple(names)


def _size(value: Any) -> int | None:
    if value == "inf":
        return None
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        if found is None:
            raise ValueError
        number, unit, binary = found.groups()
        base = 1024 if binary else 1000
        value = int(float(number) * base ** (_UNITS.index(unit.upper()) + 1 if unit else 0))
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    if value == "inf":
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value <= 0:
        raise ValueError
    if math.isinf(value):
        return None
    if value > _MOST:
        raise ValueError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_PROCESSES:
        raise ValueError
    return value


_LISTS: Final = frozenset({"read", "write", "env", "settings"})
_LIST: Final = f"a list of printable strings, of {_MOST_CHARACTERS} characters at most"
_AMOUNT: Final = 'a size in bytes, such as "512 MiB", or inf'
_KEYS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "network": ('true, false or "loopback"', _network),
    "read": (_LIST, _names),
    "write": (_LIST, _names),
    "env": (_LIST, _names),
    "settings": (_LIST, _names),
    "memory": (_AMOUNT, _size),
    "cpu": ("seconds above 0, or inf", _number),
    "processes": (f"an integer from 0 to {_MOST_PROCESSES}", _count),
    "file_size": (_AMOUNT, _size),
    "disk": (_AMOUNT, _size),
}
assert list(_KEYS) == [each.name for each in fields(Limits)]  # noqa: S101 - catches a forgotten key


def _sized(name: str, value: Any) -> Any:
    if name not in {"memory", "cpu", "file_size", "disk"}:
        return value
    if value is None:
        return "inf"
    if name == "cpu":
        return value
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if value % factor == 0:
            return f"{value // factor} {unit}"
    return value


def _within(now: Any, before: Any) -> bool:
    """Whether a value allows no more than another one."""
    if isinstance(now, tuple):
        return set(cast("tuple[str, ...]", now)) <= set(before)
    if isinstance(now, (bool, str)):
        return _REACH[now] <= _REACH[before]
    return before is None or (now is not None and now <= before)


_REACH: Final[dict[bool | str, int]] = {False: 0, LOOPBACK: 1, True: 2}


# --- limits in the files of skills ----------------------------------------------------------------


def _in_block(text: str, file: str) -> dict[str, Any] | None:
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != 1:  # PEP 723 forbids two of them
        return None
    found = blocks[0]
    import tomllib  # takes some milliseconds, needed only for skills that declare limits

    lines = found["content"].splitlines()
    try:
        data: Any = tomllib.loads("\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file}: its inline metadata is not valid TOML: {error}") from None
    for name in ("tool", "prowess", TABLE):
        data = cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None
    return None if data is None else _table(data, f"{file}: [tool.prowess.{TABLE}]")


def _in_front_matter(text: str, file: str) -> dict[str, Any] | None:
    """The block `sandbox:` of lines `key: value`, whose values are the part of YAML that JSON or TOML has as well."""
    found = _FRONT.search(text)
    if found is None:
        return None
    lines = iter(found["content"].splitlines())
    for line in lines:
        if line.rstrip() == f"{TABLE}:":
            break
        if line.startswith(f"{TABLE}:"):
            raise SettingsError(f"{file}: {TABLE} must be a block of indented lines, such as `  network: false`")
    else:
        return None
    table: dict[str, Any] = {}
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            if not line.startswith(" "):
                break
            name, colon, value = line.strip().partition(":")
            if not colon or not value.strip():
                raise SettingsError(f"{file}: {line.strip()!r} must be `name: value`, with lists as [one, two]")
            table[name.strip()] = _scalar(value.partition(" #")[0].strip())
    return table


def _scalar(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    if text[:1] in {'"', "'"} and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    if text in {".inf", "inf"}:
        return math.inf
    try:
        return json.loads(text)
    except ValueError:
        return text


def normal_name(name: str) -> str:
    """The normalized name of a skill: settings may contain dashes."""
    return name.lower().replace("-", "_")


def _table(data: Any, origin: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SettingsError(f"{origin} must be a table")
    return cast("dict[str, Any]", data)
