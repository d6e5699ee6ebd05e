"""Writes what the documentation takes from the program, so that no page can contradict it. Run it with `make reference`.

- In a page, everything between `<!-- generated: NAME -->` and `<!-- end -->` is a table or text made here.
- `schemas/prowess.toml.schema.json` lets editors complete and check `prowess.toml`.
- `docs/llms.txt` lists the pages for language models.

`tests/structure/test_reference.py` compares the files with what this script would write.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import click

import prowess
from prowess import errors
from prowess.calls.context import Context
from prowess.calls.outcome import Kind
from prowess.profiles.profile import BUILT_IN
from prowess.settings.keys import OwnSettings, own_keys
from prowess_host.cli.commands import COMMANDS
from prowess_host.cli.commands import prowess as prowess_command

ROOT = Path(__file__).resolve().parent.parent
REGION = re.compile(r"(?P<open><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<close><!-- end -->)", re.DOTALL)
Table = dict[str, Any]


def main() -> None:
    """Write every file whose content has changed."""
    for path, text in sorted(files().items()):
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"reference: {path.relative_to(ROOT)} written")


def files() -> dict[Path, str]:
    """Every file that is generated, or holds something generated, as it should be."""
    pages = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md")}
    made = {path: filled(text) for path, text in pages.items() if REGION.search(text)}
    schema = json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"
    return made | {ROOT / "schemas/prowess.toml.schema.json": schema, ROOT / "docs/llms.txt": llms()}


def filled(page: str) -> str:
    """A page with every generated part as it should be."""
    return REGION.sub(lambda region: f"{region['open']}\n{PARTS[region['name']]()}\n\n{region['close']}", page)


# --- parts of pages -------------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def settings() -> str:
    """Every key that Prowess itself reads."""
    rows = ((f"`{key.name}`", key.type, default_of(key.default), key.help) for key in own_keys())
    return table(("key", "type", "default", "meaning"), rows)


def default_of(value: object) -> str:
    """A default as one would write it in `prowess.toml`."""
    return "not set" if value is None else f"`{json.dumps(value)}`"


def public_names() -> str:
    """What `from prowess import …` offers."""
    return table(("name", "what it is"), ((f"`{name}`", purpose(getattr(prowess, name))) for name in prowess.__all__))


def context_members() -> str:
    """What a command can do with its `Context`."""
    return table(("member", "what it does"), members(Context))


def members(of: type) -> Iterator[tuple[str, str]]:
    """The public properties and methods of a class, with the first line of their docstrings."""
    for name, member in vars(of).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"`{name}`", purpose(member)
        elif isinstance(member, types.FunctionType):
            parameters = list(inspect.signature(member).parameters.values())[1:]
            yield f"`{name}({', '.join(map(written, parameters))})`", purpose(member)


def written(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
    return f"{stars}{parameter.name}{default}"


def exceptions() -> str:
    """The exceptions of Prowess that a program can catch."""
    classes = (vars(errors)[name] for name in errors.__all__)
    found = (each for each in classes if isinstance(each, type))
    return table(
        ("exception", "derives from", "meaning"),
        ((f"`{each.__name__}`", f"`{each.__bases__[0].__name__}`", purpose(each)) for each in found),
    )


def commands() -> str:
    """Every command of the command line, with its help as a terminal shows it."""
    parts: list[str] = []
    for name, entry in COMMANDS.items():
        command = prowess_command.get_command(click.Context(prowess_command), name)
        if command is None:
            continue
        with click.Context(command, info_name=f"prowess {name}", terminal_width=100, color=False) as context:
            shown = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"## prowess {name}\n\n{entry.help}\n\n```text\n{shown}\n```")
    return "\n\n".join(parts)


COMPARED = {
    "from start to `tools/list`, second start": "tools/list, 1 skill, a second start",
    "from start to `tools/list`, first start": "tools/list, 1 skill, a first start",
    "one call of an async function, median": "async no-op, one at a time, p50 of the median batch",
    "one call of a sync function, median": "sync no-op, one at a time, p50 of the median batch",
    "memory of all processes (PSS)": "memory of all processes after 1,000 calls, PSS",
    "1 MB of text as a result": "result of 1 MB of text",
}


def comparison() -> str:
    """Ratios to the peers, taken from the measurements."""
    lines = (ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    measured = {row[0]: row[-2:] for row in reversed(cells) if row[-1].endswith("×")}  # the first of each title
    rows = ((shown, *(ratio.removesuffix(" ×") for ratio in measured[row])) for shown, row in COMPARED.items())
    return table(("", "to the SDK", "to FastMCP"), rows)


def schemas() -> str:
    """The published schemas."""

    def rows() -> Iterator[tuple[str, str, str]]:
        for path in sorted(ROOT.glob("schemas/*.schema.json")):
            schema = json.loads(path.read_text(encoding="utf-8"))
            draft = "draft 7" if "draft-07" in schema["$schema"] else "2020-12"
            yield f"`{path.name}`", draft, f"{schema['title']}. {schema['description']}"

    if not (ROOT / "schemas/prowess.toml.schema.json").is_file():
        return ""
    return table(("file", "dialect", "what it describes"), rows())


def purpose(of: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(of) or "").split("\n\n")[0].split())


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "comparison": comparison,
    "settings": settings,
    "public-names": public_names,
    "context": context_members,
    "exceptions": exceptions,
    "schemas": schemas,
}

KINDS = get_args(Kind)
PROFILES = tuple(BUILT_IN)


# --- the schema of prowess.toml -------------------------------------------------------------------

SECRET = {"type": "string", "minLength": 1}
SCOPES = {"type": "array", "items": {"type": "string"}}
AUTH: Table = {
    "description": "Who may send envelopes, and which scopes the commands need.",
    "type": "object",
    "properties": {
        "credentials": {
            "description": "The callers. Without any, every caller may call every command.",
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"enum": ["bearer", "api_key", "basic"]},
                    "token": {"description": "The secret of bearer and api_key.", **SECRET},
                    "user": {"description": "The user of basic.", **SECRET},
                    "password": {"description": "The password of basic.", **SECRET},
                    "scopes": {"description": "What this caller may do.", **SCOPES},
                },
            },
        },
        "scopes": {
            "description": 'The scopes that a command needs, by its id or a pattern: "notes.*" = ["notes:read"].',
            "type": "object",
            "additionalProperties": SCOPES,
        },
    },
}


SIZE: Table = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}
LIMITS: Table = {
    "contract": {"description": "What the skill promised when it was allowed.", "type": "string"},
    "limited": {"description": "False lifts all limits.", "type": "boolean"},
    "network": {"description": "Whether it may use the network.", "enum": [True, False, "loopback"]},
    "read": {"description": "Files and folders that it may read.", **SCOPES},
    "write": {"description": "Files and folders that it may change.", **SCOPES},
    "env": {"description": "Environment variables that it may see.", **SCOPES},
    "settings": {"description": "Settings that it may see.", **SCOPES},
    "memory": {"description": "Memory that each of its processes may reserve.", **SIZE},
    "cpu": {
        "description": "Seconds of processor time of each of its processes.",
        "type": "number",
        "exclusiveMinimum": 0,
    },
    "processes": {"description": "Processes that it may start.", "type": "integer", "minimum": 0},
    "file_size": {"description": "The largest file that it may write.", **SIZE},
    "disk": {"description": "Bytes that all of its temporary files may have together.", **SIZE},
}
SANDBOX: Table = {
    "type": "object",
    "properties": {
        "unenforced": {"description": "Run skills whose limits cannot be enforced here.", "type": "boolean"}
    },
    "additionalProperties": {
        "description": "The limits of one skill; false for none.",
        "anyOf": [{"const": False}, {"type": "object", "properties": LIMITS, "additionalProperties": False}],
    },
}


def settings_schema() -> Table:
    """The JSON Schema of `prowess.toml`, in draft 7, which the TOML extensions of editors read."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "prowess.toml.schema.json",
        "title": "Settings of a Prowess project",
        "description": "The file prowess.toml. Tables that are not listed here belong to skills.",
        **settings_table(OwnSettings, {"auth": AUTH}),
        "additionalProperties": {
            "description": "A table that a skill reads.",
            "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}, "minItems": 1}],
        },
    }


def settings_table(of: type, more: Table) -> Table:
    """The schema of one table: each field of the dataclass is a key, or a table of its own."""
    properties: Table = {}
    for item in dataclasses.fields(of):
        if dataclasses.is_dataclass(item.default):
            purpose_of_table = purpose(type(item.default)).partition(": ")[2].capitalize()
            properties[item.name] = {"description": purpose_of_table, **settings_table(type(item.default), {})}
        else:
            properties[item.name] = settings_key(item)
    return {"type": "object", "properties": properties | more, "additionalProperties": False}


def settings_key(item: dataclasses.Field[Any]) -> Table:
    """The schema of one key."""
    kinds: dict[str, Table] = {
        "int": {"type": "integer"},
        "float": {"type": "number"},
        "bool": {"type": "boolean"},
        "str": {"type": "string"},
        "tuple[str, ...]": {"type": "array", "items": {"type": "string"}},
        "Mapping[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
        "Mapping[str, Any]": SANDBOX,
    }
    schema: Table = {"description": item.metadata["help"], **kinds[str(item.type).removesuffix(" | None")]}
    bounds = {"minimum": item.metadata.get("least"), "exclusiveMinimum": item.metadata.get("above")}
    schema.update({keyword: bound for keyword, bound in bounds.items() if bound is not None})
    if choices := item.metadata.get("choices"):
        schema["enum"] = list(choices)
    if item.default is not dataclasses.MISSING and item.default is not None:
        schema["default"] = item.default
    if item.name == "profile":
        schema["examples"] = list(PROFILES)
    if item.name == "skills":
        folders = {key: schema.pop(key) for key in ("type", "items")}
        schema["anyOf"] = [folders, {"type": "object", "additionalProperties": {"type": "object"}}]
    return schema


# --- llms.txt -------------------------------------------------------------------------------------


def llms() -> str:
    """The pages of the site in the order of the navigation, each with its first sentence: https://llmstxt.org."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    for entry in project["nav"]:
        ((section, pages),) = entry.items()
        names = [pages] if isinstance(pages, str) else pages
        lines += [f"## {section}", "", *(f"- {about(ROOT / 'docs' / name)}" for name in names), ""]
    return "\n".join(lines)


def about(page: Path) -> str:
    """A link to a page, with its title and its first sentence."""
    text = page.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    prose = [part for part in text.split("\n\n") if re.match(r"[A-Z`*\[]", part)]
    sentence = re.split(r"(?<=[.:]) ", " ".join(prose[0].split()))[0].rstrip(":.") if prose else ""
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", sentence)
    return f"[{title[1] if title else page.stem}]({page.name}): {plain}"


if __name__ == "__main__":
    main()
