"""Data that a provider sends to other environments: made at load, read there as parameters are annotated."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.prowess.embedded import call, injectables

from prowess import ConfigPaths, Context, Inject, Runtime, Settings, skill_command
from prowess.errors import InjectionError
from prowess.injection.injectables import Injectables
from prowess.skills.description import SkillFacts
from prowess.skills.library import Share

PLUGIN = """
from prowess import hookimpl

@hookimpl
def prowess_injectables(provide):
    provide(dict, lambda: {"most": 5}, name="rules", sendable=True)
    provide(list, lambda: [1], name="kept")
"""


@dataclass
class Rules:
    """As another environment knows it."""

    most: int


@pytest.fixture
def here(tmp_path: Path) -> Injectables:
    return injectables(Runtime(tmp_path))


async def test_what_is_sendable_is_described_and_injected_here_as_well(tmp_path: Path) -> None:
    """Of a plugin that leaves, nothing is sent."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "rules.py").write_text(PLUGIN)

    @skill_command
    def most(rules: Annotated[dict[str, int], Inject("rules")]) -> int:
        return rules["most"]

    runtime = Runtime(tmp_path)
    facts = runtime.describe().skills["rules"]
    assert {"rules": {"most": 5}} == facts.sent
    assert facts == SkillFacts.from_json(json.loads(json.dumps(facts.to_json())))
    assert 5 == (await call(runtime, most)).value
    injectables(runtime).forget(["rules"])
    assert {} == injectables(runtime).sendable


async def test_what_was_sent_is_read_as_the_parameter_is_annotated(tmp_path: Path) -> None:
    """The other environment has a class of its own for it, or none."""

    @skill_command
    def typed(rules: Annotated[Rules, Inject("rules")]) -> int:
        return rules.most

    @skill_command
    def plain(rules: Annotated[Any, Inject("rules")]) -> int:
        return rules["most"]

    @skill_command
    def wrong(rules: Annotated[int, Inject("rules")]) -> int:
        return rules

    share = Share(only=("x",), sent={"rules": {"most": 5}})
    runtime = Runtime(tmp_path, share=share)
    assert [5, 5] == [(await call(runtime, each)).value for each in (typed, plain)]
    assert "the provider 'rules' does not fit the parameter 'rules'" in (await call(runtime, wrong)).text


def test_it_may_ask_for_settings(here: Injectables) -> None:
    def rules(settings: Settings, paths: ConfigPaths) -> dict[str, bool]:
        return {"ok": settings is not None and paths is not None}

    here.provide(dict, rules, name="rules", sendable=True)

    assert {"rules": {"ok": True}} == here.sendable


async def _later() -> int:
    return 1


def _asks(context: Context) -> int:
    return 1


def _fails() -> int:
    raise ValueError("no rules today")


@pytest.mark.parametrize(
    ("type_", "factory", "options", "words"),
    [
        (Rules, lambda: Rules(1), {}, "is a type, and sendable data needs a name"),
        (int, _later, {"name": "n"}, "must be a plain function that returns data once"),
        (int, lambda: 1, {"name": "n", "lifetime": "call"}, "must be a plain function that returns data once"),
        (int, _asks, {"name": "n"}, "can only ask for settings and paths, not context"),
        (int, _fails, {"name": "n"}, "n cannot be sent to other environments: no rules today"),
        (object, object, {"name": "n"}, "n cannot be sent to other environments: Unable to serialize"),
        (float, lambda: float("inf"), {"name": "n"}, "n cannot be sent to other environments: Out of range"),
    ],
)
def test_what_cannot_be_sent_is_an_error_at_load(
    here: Injectables, type_: Any, factory: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InjectionError, match=words):
        here.provide(type_, factory, sendable=True, **options)


def test_a_provider_of_a_container_cannot_be_sent(here: Injectables) -> None:
    """The container makes its objects when they are needed."""
    providers = pytest.importorskip("dependency_injector.providers")

    with pytest.raises(InjectionError, match="must be a plain function"):
        here.provide(dict, providers.Singleton(dict), name="n", sendable=True)
