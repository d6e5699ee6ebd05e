"""Cached results that other hosts have: when they are asked for, taken, and given."""

from __future__ import annotations

import asyncio
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from prowess import Outcome, Runtime
from prowess.calls.channel import Channel
from prowess.results.normalize import Result
from prowess.settings.credentials import Caller
from prowess.settings.settings import Settings
from prowess.skills.library import Share

SKILL = """
from prowess import ConfigPaths, SkillError, skill_command

@skill_command(cache_ttl=60)
def sums(a: int, b: int = 2) -> int:
    return a + b

@skill_command(cache_ttl=60)
def rooted(paths: ConfigPaths, a: int = 1) -> int:
    return a

@skill_command(cache_ttl=60)
def fails(a: int) -> int:
    raise SkillError("no") if a else ValueError("no")

@skill_command(cache_ttl=60)
def wrong(a: int = 1) -> dict:
    return {"content": [{"type": "text", "text": "no"}], "isError": True}

@skill_command(cache_ttl=0.5)
def brief(a: int = 1) -> int:
    return a
"""


class Others:
    """Other hosts, and what they have."""

    def __init__(self, found: bytes = b"") -> None:
        self.result = found
        self.asked: list[str] = []
        self.kept: list[tuple[str, bytes, int]] = []

    async def find(self, key: str) -> bytes:
        self.asked.append(key)
        return self.result

    def keep(self, key: str, result: bytes, seconds: int) -> None:
        self.kept.append((key, result, seconds))


def project(root: Path, **files: str) -> Path:
    for name, text in ({"skills/s.py": SKILL} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return root


async def asked(
    root: Path,
    command: str = "s.sums",
    others: Others | None = None,
    scopes: str = "",
    flags: Any = None,
    **arguments: Any,
) -> tuple[Outcome, Others]:
    """One call in a runtime of its own, as a fresh host makes it."""
    others = others or Others()
    async with Runtime.open(root, flags=flags) as runtime:
        outcome = await runtime.call(command, arguments, channel=Channel(shared=others, scopes=scopes))
    return outcome, others


async def key(root: Path, command: str = "s.sums", **more: Any) -> str:
    _, others = await asked(root, command, **({"a": 1} | more))
    (found,) = others.asked
    return found


async def test_result_of_another_host_is_taken_and_counts_as_cached(tmp_path: Path) -> None:
    found = Result(value=7, text="7", structured=True).to_json()
    outcome, others = await asked(project(tmp_path), others=Others(found), a=1)

    assert (7, True, []) == (outcome.value, outcome.cached, others.kept)


async def test_what_runs_here_is_kept_for_the_others(tmp_path: Path) -> None:
    outcome, others = await asked(project(tmp_path), a=1)

    assert (3, False) == (outcome.value, outcome.cached)
    assert [(others.asked[0], outcome.result.to_json(), 60)] == others.kept


@pytest.mark.parametrize("text", [b"nonsense", b"[]", b'{"unknown": 1}', b"7"])
async def test_what_cannot_be_read_is_no_result(tmp_path: Path, text: bytes) -> None:
    outcome, others = await asked(project(tmp_path), others=Others(text), a=1)

    assert (3, False, 1) == (outcome.value, outcome.cached, len(others.kept))


@pytest.mark.parametrize("command, arguments", [("fails", {"a": 1}), ("fails", {"a": 0}), ("wrong", {})])
async def test_failure_is_told_as_nothing(tmp_path: Path, command: str, arguments: Any) -> None:
    """So that nobody waits for it."""
    outcome, others = await asked(project(tmp_path), f"s.{command}", **arguments)

    assert not outcome.ok
    assert [b""] == [result for _, result, _ in others.kept]


async def test_result_of_less_than_a_second_is_nobody_elses(tmp_path: Path) -> None:
    _, others = await asked(project(tmp_path), "s.brief")

    assert [] == others.asked


async def test_result_of_another_host_is_not_cached_here(tmp_path: Path) -> None:
    """How old it is, only the engine knows."""
    others = Others(Result(value=7, text="7").to_json())
    async with Runtime.open(project(tmp_path)) as runtime:
        for _ in range(2):
            await runtime.call("s.sums", {"a": 1}, channel=Channel(shared=others))

    assert 2 == len(others.asked)


async def test_equal_calls_here_ask_once(tmp_path: Path) -> None:
    others = Others()
    async with Runtime.open(project(tmp_path)) as runtime:
        channel = Channel(shared=others)
        await asyncio.gather(*(runtime.call("s.sums", {"a": 1}, channel=channel) for _ in range(5)))

    assert 1 == len(others.asked)


async def test_key_is_equal_for_equal_code_wherever_it_lies(tmp_path: Path) -> None:
    one, other = project(tmp_path / "one"), project(tmp_path / "other")

    assert await key(one) == await key(other) == await key(one, b=2)
    assert await key(one, "s.rooted") == await key(one, "s.rooted")
    assert await key(one, "s.rooted") != await key(other, "s.rooted")  # what is injected may know where it lies


async def test_key_differs_with_everything_that_a_result_depends_on(tmp_path: Path) -> None:
    root = project(tmp_path / "one")
    hook = "from prowess import hookimpl\n@hookimpl\ndef prowess_render(value):\n    return None\n"
    keys = [
        await key(root),
        await key(root, a=2),
        await key(root, scopes='["a"]'),
        await key(project(tmp_path / "code", **{"skills/s.py": SKILL.replace("a + b", "a - b")})),
        await key(project(tmp_path / "hooks", **{"skills/h.py": hook})),
        await key(
            project(tmp_path / "lib", **{"skills/s.py": SKILL + "\ndef later():\n    import lib\n", "lib.py": "x = 1"})
        ),
    ]

    assert len(keys) == len(set(keys))


async def test_key_differs_with_the_data_that_providers_of_the_project_have_sent(tmp_path: Path) -> None:
    keys: set[str] = set()
    for most in (5, 6):
        runtime, others = Runtime(project(tmp_path), share=Share(only=("s",), sent={"rules": {"most": most}})), Others()
        await runtime.call("s.sums", {"a": 1}, channel=Channel(shared=others))
        await runtime.aclose()
        keys.update(others.asked)

    assert 2 == len(keys)


def test_settings_that_a_result_may_depend_on_have_another_fingerprint(tmp_path: Path) -> None:
    """Those about serving do not count."""

    def of(flags: Any = None, env: str = "") -> str:
        (tmp_path / ".env").write_text(env)
        return Settings.load(tmp_path, environ={}, flags=flags).fingerprint()

    serving = {"serve.port": "1", "host.grace": "9", "cluster.url": "nats://x", "cache_dir": "x"}
    different = [of(), of({"my.key": "1"}), of({"my.key": "2"}), of({"timeout": "2"}), of(env="A=1"), of(env="A=2")]
    assert len(different) == len(set(different))
    assert of() == of(serving)


async def test_callers_with_other_scopes_get_other_results_here_as_well(tmp_path: Path) -> None:
    async with Runtime.open(project(tmp_path)) as runtime:
        cached = [
            (await runtime.call("s.sums", {"a": 1}, channel=Channel(scopes=Caller(1, scopes).partition))).cached
            for scopes in (None, frozenset({"a"}), frozenset({"b"}), frozenset({"a"}), None)
        ]

    assert [False, False, False, True, True] == cached


@pytest.mark.parametrize("how", ["import", "container"])
async def test_code_that_may_import_anything_is_not_shared(tmp_path: Path, how: str) -> None:
    """Its fingerprint is not known."""
    flags = {"inject.container": "own:Box"} if how == "container" else {}
    more = "\nimport importlib\nimportlib.import_module('json')\n" if how == "import" else ""
    box = "from dependency_injector import containers\nclass Box(containers.DeclarativeContainer):\n    pass\n"
    root = project(tmp_path, **{"skills/s.py": SKILL + more, "own.py": box})
    outcome, others = await asked(root, flags=flags, a=1)

    assert (3, []) == (outcome.value, others.asked)


def test_partition_names_the_scopes_in_order() -> None:
    assert ["", "[]", json.dumps(["a", "b"])] == [
        Caller(1, scopes).partition for scopes in (None, frozenset[str](), frozenset({"b", "a"}))
    ]


def test_result_survives_the_way_to_another_process() -> None:
    result = Result(value={"a": [1]}, text="t", blocks=({"type": "text", "text": "x"},), meta={"m": 1}, whole=True)

    assert result == Result.from_json(result.to_json())
