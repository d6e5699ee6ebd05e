"""Importing Prowess costs next to nothing: a skill pays for what it uses, and the host for almost nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pydantic", "pydantic_core", "pluggy", "anyio", "tenacity", "cachetools", "dependency_injector", "jsonschema")

# What the host reads contracts with: these stay light, each and with all that they import.
LIGHT = (
    "errors",
    "jsontypes",
    "contracts.docstrings",
    "contracts.contract",
    "profiles.profile",
    "schemas.walk",
    "schemas.steps",
    "schemas.explicit",
)

STATEMENTS = (
    "import prowess",
    "from prowess import skill_command",
    "from prowess import SkillError",
    *(f"import prowess.{module}" for module in LIGHT),
)


# What a host needs before it starts the first worker of a new project, which everything else of a first start waits for.
OF_A_NEW_PROJECT = (
    "import prowess_host.cli.main, prowess_host.transports.claim, prowess_host.workers.process_tree, "
    "prowess_host.catalog.manifest_names, prowess_host.workers.launch"
)

# What it needs before it starts the first worker of a project that it may know.
BEFORE_THE_WORKER = (
    "import prowess_host.cli.main, prowess_host.stderr, prowess_host.transports.claim, prowess.settings.paths, "
    "prowess_host.workers.process_tree, prowess_host.catalog.manifest_path, prowess_host.workers.launch"
)


def loaded_by(statement: str) -> list[str]:
    """The modules that a statement loads in a fresh interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_import_loads_nothing_heavy(statement: str) -> None:
    """In a fresh interpreter, none of the libraries that cost tens of milliseconds is loaded."""
    assert [] == [name for name in loaded_by(statement) if name in HEAVY]


def test_the_first_worker_starts_before_the_host_imports_what_it_does_not_need():
    late = {*HEAVY, "asyncio", "difflib", "logging", "shlex", "tomllib", "traceback"}
    assert [] == [name for name in loaded_by(BEFORE_THE_WORKER) if name in late]


def test_the_worker_of_a_new_project_starts_before_the_settings_are_read():
    late = {*HEAVY, "asyncio", "dataclasses", "hashlib", "inspect", "pathlib", "prowess.settings.settings", "tomllib"}
    assert [] == [name for name in loaded_by(OF_A_NEW_PROJECT) if name in late]


def test_a_worker_is_up_before_it_imports_what_few_calls_need():
    late = {
        "anyio._backends._asyncio",
        "dependency_injector",
        "difflib",
        "importlib.resources",
        "mimetypes",
        "shlex",
        "shutil",
        "tenacity",
    }
    if "shutil" in loaded_by("import anyio"):  # before anyio 4.12
        late.remove("shutil")
    assert [] == [name for name in loaded_by("import prowess.worker.serving") if name in late]
