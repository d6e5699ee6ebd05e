"""The answer to `tools/list` for a runtime, without a host."""

from __future__ import annotations

from typing import Any

from prowess.profiles.profile import no_profile
from prowess.runtime import Runtime
from prowess_host.protocol.eras import REVISIONS
from prowess_host.protocol.tool_list import define_tool, render_tool
from prowess_testkit.client import HANDSHAKE
from prowess_testkit.errors import ProjectError

__all__ = ["listed_tools"]


def listed_tools(runtime: Runtime, *, profile: str | None = None, version: str = HANDSHAKE) -> list[dict[str, Any]]:
    """The definitions of all tools in a profile, by default that of the settings, in the order of a list."""
    revision = REVISIONS[version]
    catalog = runtime.catalog()
    tools: list[dict[str, Any]] = []
    for contract in catalog.tools:
        name = profile or contract.profile or runtime.settings.own.profile
        if name not in runtime.profiles:
            raise ProjectError(no_profile(name, runtime.profiles))
        shown = runtime.profiles[name]
        output = shown.output_schema(contract, boxed=not revision.any_output)
        tools.append(render_tool(define_tool(contract, shown.input_schema(contract), output), revision))
    return sorted(tools, key=lambda tool: tool["name"])
