"""Commands that go on in the background, where the client takes a handle instead of a result."""

from __future__ import annotations

import asyncio

from prowess import Context, SkillError, skill_command

A_MOMENT = 0.5
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CONFIRMATION = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


@skill_command(read_only=True)
def greet(name: str) -> str:
    """Greet, at once."""
    return f"Hello, {name}!"


@skill_command(read_only=True)
async def slow_compute(seconds: float, ctx: Context, label: str = "") -> str:
    """Take so many seconds."""
    ctx.background()
    await asyncio.sleep(seconds)
    return f"computed {label}"


@skill_command(read_only=True)
async def failing_job(ctx: Context) -> str:
    """Fail, after a while."""
    ctx.background(required=True)
    await asyncio.sleep(A_MOMENT)
    raise SkillError("This job always fails")


@skill_command(read_only=True)
async def protocol_error_job(ctx: Context) -> str:
    """Find out too late that no client can do what this needs."""
    ctx.background(required=True)
    await asyncio.sleep(A_MOMENT)
    ctx.require_capability("telepathy")
    return "unreachable"


@skill_command(destructive=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask from the background."""
    ctx.background()
    answer = await ctx.ask("confirm", f"Delete {filename}?", CONFIRMATION)
    return f"{filename}: {answer.action}"


@skill_command(read_only=True)
async def multi_input(ctx: Context) -> str:
    """Ask two things at once from the background."""
    ctx.background()
    answers = await ctx.ask_all({"first": ("First?", CONFIRMATION), "second": ("Second?", CONFIRMATION)})
    return ", ".join(f"{key}: {answer.action}" for key, answer in answers.items())


@skill_command(read_only=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Ask first, then go on in the background."""
    answer = await ctx.ask("user_name", "What is your name?", NAME)
    ctx.background(required=True)
    await asyncio.sleep(A_MOMENT)
    return f"Hello, {answer.content.get('name')}!"
