"""The prompts that the suite gets."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

from prowess import Context, File, Image, prompt, skill_command

RED_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
NEWCOMER = '''"""Written by prompts.test_trigger_prompt_change."""

from __future__ import annotations

from prowess import prompt


@prompt
def new_prompt() -> str:
    """Say when this prompt was written: {stamp}."""
    return "{stamp}"
'''


@prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt(complete={"arg1": ["paris", "park", "party"]})
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's name
    """A prompt with a resource in it."""
    file = File(b"Embedded resource content for testing.", uri=resourceUri, mime_type="text/plain")
    return [file, "Please process the embedded resource above."]


@prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt with an image in it."""
    return [Image(RED_PIXEL), "Please analyze the image above."]


@prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks before it is written."""
    answer = await ctx.ask("user_context", "What context should the prompt use?", CONTEXT)
    return f"Use this context: {answer.content.get('context')}"


@skill_command(inject_root=True)
def test_trigger_prompt_change(project_root: Path) -> str:
    """Write a new skill file beside this one, so that the list of prompts changes."""
    skills = Path(project_root) / "skills"
    draft = skills / ".new_prompt.draft"
    draft.write_text(NEWCOMER.format(stamp=time.time_ns()))
    os.replace(draft, skills / "new_prompt.py")  # noqa: PTH105 - the name of the system call says it
    return "A skill file was written"
