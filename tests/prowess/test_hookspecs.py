"""What the hooks of a call are told."""

from __future__ import annotations

from pathlib import Path

from prowess import Runtime

SKILL = """
from prowess import Settings, hookimpl, skill_command
seen = []
@hookimpl
def prowess_call_started(call): seen.append(call)
@skill_command(inject_settings=["api.key"])
def run(x: int, settings: Settings, api_key: str, y: int = 2) -> list[str]:
    (call,) = seen
    return [call.command, call.client_name, call.trace_id, str(dict(call.arguments)), str(bool(call.call_id))]
"""


async def test_observer_sees_the_arguments_and_nothing_that_was_injected(tmp_path: Path) -> None:
    """Arguments as the function takes them, after validation; secrets stay where they are."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/a.py").write_text(SKILL)
    async with Runtime.open(tmp_path, flags={"api": {"key": "secret"}}) as runtime:
        outcome = await runtime.call("a.run", {"x": "1"})
    assert outcome.ok, outcome.text
    assert ["a.run", "", "", "{'x': 1}", "True"] == outcome.value
