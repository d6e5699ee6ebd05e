"""Python functions as tools for coding agents. What a skill imports, loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prowess import mcp_schema as mcp_schema
    from prowess.catalog import Catalog as Catalog
    from prowess.command import get_script_config as get_script_config
    from prowess.command import get_tool_annotations as get_tool_annotations
    from prowess.command import is_skill_command as is_skill_command
    from prowess.command import skill_command as skill_command
    from prowess.content import Audio as Audio
    from prowess.content import File as File
    from prowess.content import Image as Image
    from prowess.context import Context as Context
    from prowess.errors import SkillError as SkillError
    from prowess.hookspecs import hookimpl as hookimpl
    from prowess.injection import Inject as Inject
    from prowess.outcome import Outcome as Outcome
    from prowess.paths import ConfigPaths as ConfigPaths
    from prowess.runtime import Runtime as Runtime
    from prowess.settings import Settings as Settings

__all__ = [
    "Audio",
    "Catalog",
    "ConfigPaths",
    "Context",
    "File",
    "Image",
    "Inject",
    "Outcome",
    "Runtime",
    "Settings",
    "SkillError",
    "get_script_config",
    "get_tool_annotations",
    "hookimpl",
    "is_skill_command",
    "mcp_schema",
    "skill_command",
]

_HOME = {
    "Audio": "content",
    "Catalog": "catalog",
    "ConfigPaths": "paths",
    "Context": "context",
    "File": "content",
    "Image": "content",
    "Inject": "injection",
    "Outcome": "outcome",
    "Runtime": "runtime",
    "Settings": "settings",
    "SkillError": "errors",
    "get_script_config": "command",
    "get_tool_annotations": "command",
    "hookimpl": "hookspecs",
    "is_skill_command": "command",
    "skill_command": "command",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "mcp_schema":
        return import_module("prowess.mcp_schema")
    if name not in _HOME:
        msg = f"module 'prowess' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"prowess.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
