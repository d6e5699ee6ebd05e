"""Python functions as tools, resources and prompts for coding agents. Each public name loads its module at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prowess import mcp_schema as mcp_schema
    from prowess.calls.context import Context as Context
    from prowess.calls.outcome import Outcome as Outcome
    from prowess.calls.questions import Page as Page
    from prowess.calls.questions import Roots as Roots
    from prowess.calls.questions import Sample as Sample
    from prowess.command import get_script_config as get_script_config
    from prowess.command import get_tool_annotations as get_tool_annotations
    from prowess.command import is_skill_command as is_skill_command
    from prowess.command import skill_command as skill_command
    from prowess.contracts.catalog import Catalog as Catalog
    from prowess.errors import SkillError as SkillError
    from prowess.hookspecs import hookimpl as hookimpl
    from prowess.injection.recipes import Inject as Inject
    from prowess.results.content import Audio as Audio
    from prowess.results.content import File as File
    from prowess.results.content import Image as Image
    from prowess.runtime import Runtime as Runtime
    from prowess.served import prompt as prompt
    from prowess.served import resource as resource
    from prowess.settings.paths import ConfigPaths as ConfigPaths
    from prowess.settings.settings import Settings as Settings

__all__ = [
    "Audio",
    "Catalog",
    "ConfigPaths",
    "Context",
    "File",
    "Image",
    "Inject",
    "Outcome",
    "Page",
    "Roots",
    "Runtime",
    "Sample",
    "Settings",
    "SkillError",
    "get_script_config",
    "get_tool_annotations",
    "hookimpl",
    "is_skill_command",
    "mcp_schema",
    "prompt",
    "resource",
    "skill_command",
]

_HOME = {
    "Page": "calls.questions",
    "Audio": "results.content",
    "Catalog": "contracts.catalog",
    "ConfigPaths": "settings.paths",
    "Context": "calls.context",
    "File": "results.content",
    "Image": "results.content",
    "Inject": "injection.recipes",
    "Outcome": "calls.outcome",
    "Roots": "calls.questions",
    "Runtime": "runtime",
    "Sample": "calls.questions",
    "Settings": "settings.settings",
    "SkillError": "errors",
    "get_script_config": "command",
    "get_tool_annotations": "command",
    "hookimpl": "hookspecs",
    "is_skill_command": "command",
    "prompt": "served",
    "resource": "served",
    "skill_command": "command",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "mcp_schema":
        return import_module("prowess.mcp_schema")
    if name not in _HOME:
        msg = f"module 'prowess' has no attribute {name!r}"
        raise AttributeError(msg, name=name)
    value = getattr(import_module(f"prowess.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
