"""Commands that ask the person: by a request on a handshake wire, by `input_required` on a stateless one."""

from __future__ import annotations

import json
from typing import Any

from prowess import Context, Roots, Sample, skill_command

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOUR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
CONFIRMATION = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
ACCOUNT = {
    "type": "object",
    "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "required": ["username", "email"],
}
EVERY_DEFAULT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    },
}
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
UNTITLED = ["option1", "option2", "option3"]
EVERY_ENUM = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": UNTITLED},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": UNTITLED}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


async def answered(ctx: Context, key: str, message: str, schema: dict[str, Any]) -> str:
    """Ask, and say what came of it."""
    answer = await ctx.ask(key, message, schema)
    return f"User response: action={answer.action}, content={json.dumps(answer.content)}"


@skill_command(read_only=True)
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask for an account, in the caller's words."""
    return await answered(ctx, "account", message, ACCOUNT)


@skill_command(read_only=True)
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask by a form that has a default of every kind."""
    return await answered(ctx, "user", "Please provide user information", EVERY_DEFAULT)


@skill_command(read_only=True)
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask by a form that has a choice of every kind."""
    return await answered(ctx, "choices", "Please select options from the enum fields", EVERY_ENUM)


@skill_command(read_only=True)
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask: nothing but notifications may come before the question."""
    ctx.progress(1, 2, "About to ask")
    return await answered(ctx, "user_name", "What is your name?", NAME)


@skill_command(read_only=True)
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name, and greet."""
    answer = await ctx.ask("user_name", "What is your name?", NAME)
    return f"Hello, {answer.content['name'] if answer.accepted else 'stranger'}!"


@skill_command(read_only=True)
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a confirmation, which only counts together with the state that went out with the question."""
    answer = await ctx.ask("confirm", "Please confirm", CONFIRMATION)
    return f"state-ok: {answer.action}"


@skill_command(read_only=True)
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a confirmation; whoever comes back with another state is turned away."""
    answer = await ctx.ask("confirm", "Please confirm", CONFIRMATION)
    return f"state-ok: {answer.action}"


@skill_command(read_only=True)
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, the second question after the first answer."""
    name = await ctx.ask("step1", "Step 1: What is your name?", NAME)
    colour = await ctx.ask("step2", "Step 2: What is your favorite color?", COLOUR)
    if not (name.accepted and colour.accepted):
        return "Nobody likes nothing."
    return f"{name.content['name']} likes {colour.content['color']}."


@skill_command(read_only=True)
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Let the client's model answer a prompt."""
    answer = await ctx.sample("completion", prompt, max_tokens=100)
    return f"LLM response: {answer.value}"


@skill_command(read_only=True)
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Let the client's model answer a question."""
    return (await ctx.sample("capital_question", "What is the capital of France?", max_tokens=100)).value


@skill_command(read_only=True)
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Name the folders that the client has open."""
    return ", ".join((await ctx.roots("client_roots")).value)


@skill_command(read_only=True)
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the person, the model and the client, all at once."""
    answers = await ctx.ask_all(
        {
            "user_name": ("What is your name?", NAME),
            "greeting": Sample("Generate a greeting", max_tokens=50),
            "client_roots": Roots(),
        }
    )
    return f"{answers['greeting'].value} {answers['user_name'].content} {answers['client_roots'].value}"


@skill_command(read_only=True)
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask for whatever the client can be asked for."""
    able = ctx.capabilities
    questions: dict[str, Any] = {}
    if "elicitation" in able:
        questions["user_name"] = ("What is your name?", NAME)
    if "sampling" in able:
        questions["greeting"] = Sample("Generate a greeting", max_tokens=50)
    if "roots" in able:
        questions["client_roots"] = Roots()
    answers = await ctx.ask_all(questions)
    return f"answers to {', '.join(answers)}"
