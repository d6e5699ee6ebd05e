"""The three forms of a packaged project: a wheel, a bundle (`.mcpb`) of the type `uv`, and the `server.json` of a registry.

Equal projects give equal bytes.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from prowess.errors import ProwessError, shortened
from prowess_host.environments.wheels import record_of

if TYPE_CHECKING:
    from prowess.contracts.contract import Contract
    from prowess_host.packaging.source import ProjectSource

__all__ = ["MANIFEST_VERSION", "SERVER_SCHEMA", "bundle", "server_json", "wheel"]

MANIFEST_VERSION: Final = "0.4"
"""The manifest version of bundles: the first one with servers of the type `uv`."""
SERVER_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_REGISTRY_NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_LONGEST_NAME: Final = 200
_MOST_OF_DESCRIPTION: Final = 100
"""Characters of a description in the registry."""
_THEN: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that equal projects give equal bytes."""

_PLUGIN: Final = '''"""{title}: skills for Prowess."""

from __future__ import annotations

from pathlib import Path

from prowess import hookimpl

HERE = Path(__file__).parent / "project"


class Plugin:
    """Brings the skills to every project that this package is installed for."""

    @hookimpl
    def prowess_skill_folders(self) -> list[Path]:
        return [HERE / folder for folder in {folders!r}]


plugin = Plugin()
'''
_COMMAND: Final = '''"""Serves the skills of this package alone, to the MCP client that starts it."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    from prowess_host.cli.main import main as prowess

    here = Path(__file__).parent / "project"
    # Whoever starts this program allows its skills, as with any other program.
    own = ["--set", "skills=[]", "--set", "sandbox.{name}=false"]
    sys.argv[1:] = ["host", "--project", str(here), *own, *sys.argv[1:]]
    prowess()


if __name__ == "__main__":
    main()
'''
_SERVER: Final = '''"""Serves the skills of this bundle to the MCP client that starts it."""

import sys
from pathlib import Path

if __name__ == "__main__":
    from prowess_host.cli.main import main

    sys.argv[1:] = ["host", "--project", str(Path(__file__).parent / "project"), *sys.argv[1:]]
    main()
'''


def wheel(source: ProjectSource, registry_name: str | None = None) -> tuple[str, bytes]:
    """The name and the bytes of a wheel: the skills with an entry point, and a command that serves only them."""
    module, info = source.module, f"{source.module}-{source.version}.dist-info"
    files: dict[str, bytes] = {
        f"{module}/__init__.py": _PLUGIN.format(title=source.name, folders=source.folders).encode(),
        f"{module}/__main__.py": _COMMAND.format(name=source.name).encode(),
        **{f"{module}/project/{path}": data for path, data in source.files.items()},
        f"{info}/METADATA": _metadata(source, registry_name).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: prowess\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": (
            f"[console_scripts]\n{source.name} = {module}.__main__:main\n\n"
            f"[prowess.skills]\n{source.name} = {module}:plugin\n"
        ).encode(),
    }
    files[f"{info}/RECORD"] = record_of(files, info)
    executable = {f"{module}/project/{path}" for path in source.executable}
    return f"{module}-{source.version}-py3-none-any.whl", _zipped(files, executable)


def _metadata(source: ProjectSource, registry_name: str | None) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {source.name}", f"Version: {source.version}"]
    lines.append(f"Summary: {source.description}")
    lines += [f"Home-page: {source.website}"] if source.website else []
    lines += [f"Author: {source.author}"] if source.author else []
    lines += [f"License: {source.license}"] if source.license else []
    lines += [f"Requires-Python: {source.python}", *(f"Requires-Dist: {each}" for each in source.dependencies)]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join([*lines, "", _marked_readme(source, registry_name)])


def _marked_readme(source: ProjectSource, registry_name: str | None) -> str:
    """The README with the line by which a registry verifies the owner of the package."""
    mark = f"mcp-name: {registry_name}"
    if registry_name is None or mark in source.readme:
        return source.readme
    return f"{source.readme.rstrip()}\n\n<!-- {mark} -->\n"


def bundle(source: ProjectSource, contracts: Iterable[Contract]) -> tuple[str, bytes]:
    """The name and the bytes of a bundle: the project, and its dependencies."""
    manifest: dict[str, Any] = {
        "manifest_version": MANIFEST_VERSION,
        "name": source.name,
        "display_name": source.title,
        "version": source.version,
        "description": source.description,
        "author": {"name": source.author or source.title},
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "server.py"]},
        },
        "tools": [
            {"name": each.wire_name, "description": each.summary or each.name} for each in contracts if each.is_tool
        ],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": source.python}},
    }
    if source.license:
        manifest["license"] = source.license
    if source.website.startswith(("http://", "https://")):
        manifest["homepage"] = source.website
    icon = next((path for path in source.files if path.endswith(".png") and "/" not in path), None)
    if icon is not None:
        manifest["icon"] = f"project/{icon}"
    project = [
        "[project]",
        f"name = {json.dumps(source.name)}",
        f"version = {json.dumps(source.version)}",
        f"requires-python = {json.dumps(source.python)}",
        f"dependencies = {json.dumps(list(source.dependencies))}",
    ]
    files: dict[str, bytes] = {
        "manifest.json": _json(manifest),
        "pyproject.toml": ("\n".join(project) + "\n").encode(),
        "server.py": _SERVER.encode(),
        "README.md": source.readme.encode(),
        **{f"project/{path}": data for path, data in source.files.items()},
    }
    executable = {f"project/{path}" for path in source.executable}
    return f"{source.name}-{source.version}.mcpb", _zipped(files, executable)


def server_json(source: ProjectSource, registry_name: str, variables: Iterable[str] = ()) -> bytes:
    """The entry of a registry for the wheel, once it is on a package index."""
    if not _REGISTRY_NAME.fullmatch(registry_name) or len(registry_name) > _LONGEST_NAME:
        raise ProwessError(f"{registry_name!r} is not a registry name; use a name like io.github.you/{source.name}")
    package: dict[str, Any] = {
        "registryType": "pypi",
        "identifier": source.name,
        "version": source.version,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
    }
    named = [{"name": name, "description": f"Needed by the tools: {name}", "isSecret": True} for name in variables]
    if named:
        package["environmentVariables"] = named
    entry: dict[str, Any] = {
        "$schema": SERVER_SCHEMA,
        "name": registry_name,
        "title": shortened(source.title, _MOST_OF_DESCRIPTION),
        "description": shortened(source.description, _MOST_OF_DESCRIPTION),
        "version": source.version,
        "packages": [package],
    }
    if source.website.startswith("https://"):
        entry["websiteUrl"] = source.website
    return _json(entry)


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _zipped(files: Mapping[str, bytes], executable: Collection[str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            info = zipfile.ZipInfo(path, _THEN)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if path in executable else 0o644) << 16
            archive.writestr(info, data)
    return buffer.getvalue()
