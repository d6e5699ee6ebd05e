"""What a package imports it declares, and what `prowess-core` declares it uses. Versions move in lockstep."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAMES = [package.name for package in PACKAGES]
# What comes with a declared dependency by its own promise: pydantic pins its core, and jsonschema's API takes registries.
PART_OF = {"pydantic_core": "pydantic", "referencing": "jsonschema", "ruamel": "ruamel.yaml", "nats": "nats_py"}
# Distributions that share one import package.
TOGETHER = {
    "opentelemetry_api": "opentelemetry",
    "opentelemetry_sdk": "opentelemetry",
    "opentelemetry_exporter_otlp_proto_http": "opentelemetry",  # found by its entry point
}
# The import packages in each distribution. `prowess` has none: it is the command, and what it needs.
IMPORTS = {name: {"prowess": "", "prowess-core": "prowess"}.get(name, name.replace("-", "_")) for name in NAMES}
OURS = {name for name in IMPORTS.values() if name}


def project(package: Path) -> dict[str, Any]:
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared(package: Path) -> set[str]:
    """Import names of what a package asks for; for strangers, they are the names of the distributions with underscores."""
    requirements = [*project(package).get("dependencies", [])]
    for extra in project(package).get("optional-dependencies", {}).values():
        requirements += extra
    names = [re.split(r"[\s\[<>=!~;]", line)[0].lower() for line in requirements]
    modules = (IMPORTS.get(name, name.replace("-", "_")) for name in names)
    return {TOGETHER.get(module, module) for module in modules}


@functools.cache
def imported_modules(package: Path) -> list[tuple[str, str, str]]:
    """Place, module and name of every import in a package, wherever it stands."""
    found: list[tuple[str, str, str]] = []
    for path in sorted(package.glob("src/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node, ast.Import):
                found += [(place, alias.name, "") for alias in node.names]
            elif node.module and not node.level:
                found += [(place, node.module, alias.name) for alias in node.names]
    return found


def foreign(package: Path) -> dict[str, str]:
    """Top-level module and one place of each import that is neither the standard library's nor the package's own."""
    tops = {module.partition(".")[0]: place for place, module, _ in imported_modules(package)}
    own = {IMPORTS[package.name], *sys.stdlib_module_names}
    return {top: place for top, place in tops.items() if top not in own}


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_package_declares_what_it_imports(package: Path) -> None:
    """A shared environment hides an undeclared dependency; an import inside a function hides it even from a fresh one."""
    known = declared(package)

    assert {} == {top: place for top, place in foreign(package).items() if not {top, PART_OF.get(top)} & known}


def test_prowess_is_the_command_and_what_it_needs() -> None:
    """`pip install prowess` and `uvx prowess` give a person the command; nothing else carries it, and it carries nothing else."""
    package = ROOT / "packages/prowess"
    carrying = [each.name for each in PACKAGES if "scripts" in project(each)]
    needed = {line.split("==")[0] for line in project(package)["dependencies"]}

    assert ["prowess"] == carrying
    assert {"prowess-core", "prowess-host"} == needed
    assert [] == list(package.rglob("*.py"))


def test_prowess_core_uses_what_it_declares() -> None:
    """Each dependency is there for what it is for."""
    package = ROOT / "packages/prowess-core"

    assert set() == declared(package) - set(foreign(package))


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_package_uses_only_public_names_of_its_siblings(package: Path) -> None:
    """Between distributions, what starts with an underscore is not there."""
    siblings = OURS - {IMPORTS[package.name]}
    private = [
        f"{place}: {module} {name}"
        for place, module, name in imported_modules(package)
        if module.partition(".")[0] in siblings and any(part.startswith("_") for part in [*module.split("."), name])
    ]

    assert [] == private


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_packages_share_one_version(package: Path) -> None:
    """Lockstep: one version for all, and each package asks for exactly that of its siblings."""
    version = project(ROOT / "packages/prowess-core")["version"]
    asked = [line for line in project(package)["dependencies"] if line.split("==")[0] in NAMES]

    assert version == project(package)["version"]
    assert [] == [line for line in asked if not line.endswith(f"=={version}")]


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_dependency_has_a_lower_bound_and_no_cap(package: Path) -> None:
    """The lowest versions are what `make test-lowest` runs; a cap would only make us uninstallable beside others."""
    lines = [line for line in project(package)["dependencies"] if "==" not in line]

    assert [] == [line for line in lines if not re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?>=[\w.]+", line)]


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_package_carries_the_license(package: Path) -> None:
    """A copy and not a link: a source distribution would keep the link, and it would lead nowhere."""
    copy = package / "LICENSE"

    assert not copy.is_symlink()
    assert (ROOT / "LICENSE").read_bytes() == copy.read_bytes()
