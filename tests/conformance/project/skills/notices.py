"""Commands that say something while they run: progress and log messages."""

from __future__ import annotations

import asyncio

from prowess import Context, skill_command

A_MOMENT = 0.05


@skill_command(read_only=True)
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(A_MOMENT)
    return "Tool with progress executed successfully"


@skill_command(read_only=True)
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", message)
        await asyncio.sleep(A_MOMENT)
    return "Tool with logging executed successfully"


@skill_command(read_only=True)
def test_logging_tool(ctx: Context) -> str:
    """Log one message, which goes out only to a client that asked for messages."""
    ctx.log("info", "A message for those who listen")
    return "Logged, for those who listen"


@skill_command(read_only=True)
async def test_reconnection(ctx: Context) -> str:
    """Say something, so that there is a stream, and take long enough for a client to lose it and come back."""
    ctx.log("info", "Lose me now")
    await asyncio.sleep(4 * A_MOMENT)
    return "Reconnection test completed"
