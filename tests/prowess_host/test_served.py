"""Resources, prompts and completions over the wire, in both eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prowess_testkit import STATELESS, WIRES, Project, ProtocolError, serve

pytestmark = pytest.mark.usefixtures("forked_hosts")

NOTES = '''
from typing import Literal
from prowess import Context, SkillError, prompt, resource, skill_command

KNOWN = {"7": "seven", "8": "eight"}

@resource("notes://today", icons=[{"src": "data:,"}], title="Today", tags=["t"])
def today() -> str:
    """What today is about."""
    return "today"

@resource("notes://{id}", complete={"id": lambda_of_ids})
def note(id: str) -> str | None:
    """One note."""
    return "outside" if ".." in id else KNOWN.get(id)

@resource("notes://{id}/broken/{kind}")
def broken(id: str, kind: Literal["crash", "fail"]) -> str:
    """Cannot be read."""
    if kind == "crash":
        raise KeyError(id)
    raise SkillError("not today")

@prompt
def review(code: str, language: Literal["python", "perl", "cpython"] = "python") -> list:
    """Review some code."""
    return [f"Review this {language}: {code}", ("assistant", "Sure.")]

async def curious(value: str, ctx: Context) -> list:
    return [(await ctx.ask("who", "Who?", str)).value]

@prompt(complete={"about": curious})
async def asks(ctx: Context, about: str = "") -> str:
    """Ask before."""
    answer = await ctx.ask("who", "Who?", str)
    return f"Hello {answer.value}"

@skill_command
def touch(id: str, ctx: Context) -> None:
    """Change a note."""
    ctx.updated(f"notes://{id}")
'''
TOOLS = "from prowess import skill_command\n\n@skill_command\ndef add() -> str:\n    return 'x'\n"


def made(tmp_path: Path, notes: str = NOTES, settings: str = "") -> Path:
    """A project with a skill `notes`."""
    (tmp_path / "skills").mkdir()
    notes = notes.replace("KNOWN = {", "def lambda_of_ids(value):\n    return sorted(KNOWN)\n\nKNOWN = {", 1)
    (tmp_path / "skills/notes.py").write_text(notes)
    (tmp_path / "prowess.toml").write_text(settings)
    return tmp_path


async def refused(client: Any, method: str, **params: Any) -> ProtocolError:
    """The error that answers a request."""
    with pytest.raises(ProtocolError) as caught:
        await client.request(method, **params)
    return caught.value


@pytest.mark.parametrize("version", WIRES)
async def test_every_kind_is_listed_read_and_completed(tmp_path: Path, version: str) -> None:
    """By its own methods, with the fields and the codes of the revision."""
    async with serve(made(tmp_path), version=version) as client:
        (listed,) = (await client.request("resources/list"))["resources"]
        assert ("notes://today", "notes_today", "Today", "What today is about.", "text/plain") == tuple(
            listed[name] for name in ("uri", "name", "title", "description", "mimeType")
        )
        assert ([{"src": "data:,"}], ["t"]) == (listed["icons"], listed["_meta"]["prowess/tags"])
        templates = (await client.request("resources/templates/list"))["resourceTemplates"]
        assert ["notes://{id}/broken/{kind}", "notes://{id}"] == [each["uriTemplate"] for each in templates]
        prompts = (await client.request("prompts/list"))["prompts"]
        assert ["notes_asks", "notes_review"] == [each["name"] for each in prompts]
        assert [("code", True), ("language", False)] == [
            (each["name"], each["required"]) for each in prompts[1]["arguments"]
        ]
        assert ["notes_touch"] == [tool["name"] for tool in await client.tools()]

        assert "today" == (await client.request("resources/read", uri="notes://today"))["contents"][0]["text"]
        read = await client.request("resources/read", uri="notes://7")
        assert {"uri": "notes://7", "mimeType": "text/plain", "text": "seven"} == read["contents"][0]
        assert (version == STATELESS) == ("ttlMs" in read)
        got = await client.request("prompts/get", name="notes_review", arguments={"code": "x"})
        assert ["user", "assistant"] == [message["role"] for message in got["messages"]]
        assert "Review some code." == got["description"]

        ref = {"type": "ref/prompt", "name": "notes_review"}
        done = await client.request("completion/complete", ref=ref, argument={"name": "language", "value": "P"})
        assert {"values": ["python", "perl", "cpython"], "total": 3, "hasMore": False} == done["completion"]
        ref = {"type": "ref/resource", "uri": "notes://{id}"}
        done = await client.request("completion/complete", ref=ref, argument={"name": "id", "value": ""})
        assert ["7", "8"] == done["completion"]["values"]


@pytest.mark.parametrize("version", WIRES)
async def test_what_is_not_there_and_what_fails_is_an_error(tmp_path: Path, version: str) -> None:
    """With the URI beside it; the handshake era has a code of its own for what is not there."""
    nothing = -32602 if version == STATELESS else -32002
    async with serve(made(tmp_path), version=version) as client:
        for uri in ("notes://9", "other://x", "notes://a/b/c", "x", "notes://..%2F7"):
            error = await refused(client, "resources/read", uri=uri)
            assert (nothing, uri) == (error.code, error.data["uri"])
        crash = await refused(client, "resources/read", uri="notes://9/broken/crash")
        assert (-32603, "crashed") == (crash.code, crash.data["prowess/kind"])
        assert "KeyError" in str(crash)
        assert -32603 == (await refused(client, "resources/read", uri="notes://9/broken/fail")).code
        assert -32602 == (await refused(client, "resources/read", uri="notes://9/broken/other")).code
        assert "code: required" in str(await refused(client, "prompts/get", name="notes_review"))
        missing = await refused(client, "prompts/get", name="notes_reviews")
        assert (-32602, True) == (missing.code, 'did you mean "notes_review"' in str(missing))
        assert -32602 == (await refused(client, "tools/call", name="notes_review", arguments={})).code
        assert -32602 == (await refused(client, "prompts/list", cursor="x")).code
        ref = {"type": "ref/prompt", "name": "nobody"}
        assert (
            -32602 == (await refused(client, "completion/complete", ref=ref, argument={"name": "a", "value": ""})).code
        )


WRONG = [
    ({"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}}, "params.ref.type"),
    ({"ref": {"type": "ref/prompt"}, "argument": {"name": "a", "value": ""}}, "params.ref.name"),
    ({"ref": {"type": "ref/resource"}, "argument": {"name": "a", "value": ""}}, "params.ref.uri"),
    ({"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"value": ""}}, "params.argument.name"),
    ({"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": 5}}, "params.argument.value"),
    ({"ref": [], "argument": {}}, "params.ref"),
]


async def test_a_completion_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    """With the field named."""
    async with serve(made(tmp_path)) as client:
        for params, field in WRONG:
            error = await refused(client, "completion/complete", **params)
            assert (-32602, True) == (error.code, field in str(error))


async def test_a_client_hears_of_the_resources_it_subscribed_to(tmp_path: Path) -> None:
    """And of no others, and no more after it has unsubscribed."""
    async with serve(made(tmp_path)) as client:
        assert {} == await client.request("resources/subscribe", uri="notes://7")
        await client.call("notes_touch", id="8")
        await client.call("notes_touch", id="7")
        assert {"uri": "notes://7"} == await client.notified("notifications/resources/updated")
        assert {} == await client.request("resources/unsubscribe", uri="notes://7")
        await client.call("notes_touch", id="7")
        updates = [note for note in client.notifications if note["method"] == "notifications/resources/updated"]
        assert 1 == len(updates)
        assert -32002 == (await refused(client, "resources/subscribe", uri="nobody://x")).code


async def test_a_stateless_client_hears_what_it_listens_to(tmp_path: Path) -> None:
    """Each notification with the id of the subscription."""
    async with serve(made(tmp_path), version=STATELESS) as client:
        await client.tools()
        wanted = {"promptsListChanged": True, "resourceSubscriptions": ["notes://7"]}
        client.host.request("subscriptions/listen", "L", notifications=wanted)
        assert wanted == (await client.notified("notifications/subscriptions/acknowledged"))["notifications"]
        await client.call("notes_touch", id="7")
        tag = {"io.modelcontextprotocol/subscriptionId": "L"}
        assert {"uri": "notes://7", "_meta": tag} == await client.notified("notifications/resources/updated")
        (tmp_path / "skills/more.py").write_text("from prowess import prompt\n\n@prompt\ndef more(): return 'x'\n")
        assert {"_meta": tag} == await client.notified("notifications/prompts/list_changed")
        methods = {note["method"] for note in client.notifications}
        assert not methods & {"notifications/tools/list_changed", "notifications/resources/list_changed"}


@pytest.mark.parametrize("version", WIRES)
async def test_a_prompt_may_ask(tmp_path: Path, version: str) -> None:
    """By a request, or by a result that wants to be answered."""
    async with serve(made(tmp_path), version=version) as client:
        if version != STATELESS:
            client.person.answer = lambda *_: {"action": "accept", "content": {"value": "you"}}  # type: ignore[method-assign]
            got = await client.request("prompts/get", name="notes_asks")
        else:
            client.host.capabilities = {"elicitation": {}}
            asked = await client.request("prompts/get", name="notes_asks")
            assert "input_required" == asked["resultType"]
            answers = {key: {"action": "accept", "content": {"value": "you"}} for key in asked["inputRequests"]}
            got = await client.request(
                "prompts/get", name="notes_asks", inputResponses=answers, requestState=asked["requestState"]
            )
        assert "Hello you" == got["messages"][0]["content"]["text"]


@pytest.mark.parametrize("version", WIRES)
async def test_nobody_is_asked_while_somebody_types(tmp_path: Path, version: str) -> None:
    """The answer to a completion cannot say that something is wanted first."""
    async with serve(made(tmp_path), version=version) as client:
        ref = {"type": "ref/prompt", "name": "notes_asks"}
        error = await refused(client, "completion/complete", ref=ref, argument={"name": "about", "value": ""})
        assert (-32603, "failed") == (error.code, error.data["prowess/kind"])


@pytest.mark.parametrize("version", WIRES)
async def test_a_project_of_tools_declares_nothing_else(tmp_path: Path, version: str) -> None:
    """Once that is known. Then the methods of the others are not there."""
    project = Project(made(tmp_path, TOOLS), flags={"cache_dir": str(tmp_path / "cache")})
    async with serve(project, version=version) as client:  # what there is, is written down
        await client.tools()
    async with serve(project, version=version) as client:
        for method in ("resources/list", "prompts/list"):
            assert -32601 == (await refused(client, method)).code


async def test_pages_go_on(tmp_path: Path) -> None:
    """In each list."""
    many = "from prowess import prompt\n" + "".join(f"@prompt\ndef p{number}(): return 'x'\n" for number in range(1001))
    async with serve(made(tmp_path, many)) as client:
        first = await client.request("prompts/list")
        assert 1000 == len(first["prompts"])
        assert 1 == len((await client.request("prompts/list", cursor=first["nextCursor"]))["prompts"])


# Files


def skill(folder: Path, text: str, **files: str) -> Path:
    """A folder with a `SKILL.md`."""
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.md").write_text(content)
    return folder


async def test_files_of_a_folder_are_resources(tmp_path: Path) -> None:
    """Those that the pattern fits, and when one changes, whoever subscribed hears of it."""
    project = made(tmp_path, settings='[resources]\ndocs = "docs/**/*.md"\n')
    (tmp_path / "docs/sub").mkdir(parents=True)
    (tmp_path / "docs/a b.md").write_text("# A\n")
    (tmp_path / "docs/sub/b.md").write_bytes(b"\xff\xfe")
    (tmp_path / "docs/c.txt").write_text("no")
    async with serve(project) as client:
        listed = (await client.request("resources/list"))["resources"]
        files = {each["uri"]: each["size"] for each in listed if each["uri"].startswith("docs:")}
        assert {"docs://a%20b.md": 4, "docs://sub/b.md": 2} == files
        read = (await client.request("resources/read", uri="docs://a%20b.md"))["contents"]
        assert [{"uri": "docs://a%20b.md", "mimeType": "text/markdown", "text": "# A\n"}] == read
        assert "//4=" == (await client.request("resources/read", uri="docs://sub/b.md"))["contents"][0]["blob"]
        await client.request("resources/subscribe", uri="docs://a%20b.md")
        (tmp_path / "docs/a b.md").write_text("# Another\n")
        assert {"uri": "docs://a%20b.md"} == await client.notified("notifications/resources/updated")
        changed = 0
        (tmp_path / "docs/new.md").write_text("x")
        while "docs://new.md" not in json.dumps(await client.request("resources/list")):
            changed += 1
            await client.notified("notifications/resources/list_changed", changed)
        assert "x" == (await client.request("resources/read", uri="docs://new.md"))["contents"][0]["text"]
        (tmp_path / "docs/a b.md").unlink()
        while "docs://a%20b.md" in json.dumps(await client.request("resources/list")):
            changed += 1
            await client.notified("notifications/resources/list_changed", changed)
        assert {} == await client.request("resources/unsubscribe", uri="docs://a%20b.md"), "also of what is gone"
        assert -32002 == (await refused(client, "resources/unsubscribe", uri="docs://a%20b.md")).code


async def test_a_folder_with_a_skill_file_is_an_agent_skill(tmp_path: Path) -> None:
    """Listed with digests that fit what is read, its folders can be looked into, and its commands are there too."""
    project = made(tmp_path)
    folder = skill(
        tmp_path / "skills/field-notes", "---\nname: field-notes\ndescription: Notes.\n---\nBody\n", form="F"
    )
    (folder / "field.py").write_text(TOOLS)
    async with serve(project, version=STATELESS) as client:
        (entry,) = (await client.request("skills/list"))["skills"]
        assert ("skill://field-notes/SKILL.md", {"name": "field-notes", "description": "Notes."}) == (
            entry["uri"],
            entry["frontmatter"],
        )
        assert ["SKILL.md", "field.py", "form.md"] == [each["uri"].rpartition("/")[2] for each in entry["resources"]]
        assert {"sha256:f67ab10ad4e4c53121b6a5fe4da9c10ddee905b978d3788d2723d7bfacbe28a9"} == {
            each["digest"] for each in entry["resources"] if each["uri"].endswith("form.md")
        }
        assert entry == (await client.request("skills/get", uri=entry["uri"]))["skill"]
        read = (await client.request("resources/read", uri=entry["uri"]))["contents"][0]
        assert ("text/markdown", True) == (read["mimeType"], read["text"].endswith("Body\n"))
        inside = (await client.request("resources/directory/read", uri="skill://field-notes"))["resources"]
        assert 3 == len(inside)
        assert -32602 == (await refused(client, "resources/directory/read", uri=entry["uri"])).code
        assert -32602 == (await refused(client, "skills/get", uri="skill://nobody/SKILL.md")).code
        assert {"notes_touch", "field-notes_add"} == {tool["name"] for tool in await client.tools()}


async def test_skill_files_can_be_kept_to_oneself(tmp_path: Path) -> None:
    """By a setting."""
    project = made(tmp_path, settings="skill_files = false\n")
    skill(tmp_path / "skills/field-notes", "---\nname: field-notes\ndescription: Notes.\n---\n")
    async with serve(project, version=STATELESS) as client:
        assert -32601 == (await refused(client, "skills/list")).code
        assert "SKILL.md" not in json.dumps(await client.request("resources/list"))
