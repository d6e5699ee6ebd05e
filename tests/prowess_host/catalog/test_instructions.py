"""What a client is told of the server: instructions, website, icons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prowess.contracts.contract import Contract
from prowess.errors import SettingsError
from prowess.settings.keys import IdentitySettings
from prowess_host.catalog.instructions import MOST_INSTRUCTIONS, details_of, instructions_of
from prowess_testkit import STATELESS, WIRES, Project, serve

PIXEL = b"\x89PNG\r\n\x1a\n"
SKILL = '''
from prowess import skill_command


@skill_command
def add(a: int, b: int) -> int:
    """Add two numbers. They may be negative."""
    return a + b


@skill_command
def subtract(a: int, b: int) -> int:
    """Subtract one number from another."""
    return a - b
'''


def contract(skill: str, name: str, summary: str, **more: Any) -> Contract:
    return Contract(f"{skill}.{name}", f"{skill}_{name}", skill, name, summary, {}, summary=summary, **more)


def test_each_skill_has_a_line() -> None:
    """With what its commands do, said once; a command without a docstring gives its name."""
    told = instructions_of(
        [
            contract("git", "log", "Show the log."),
            contract("git", "diff", ""),
            contract("git", "log2", "Show the log."),
            contract("text", "count", "Count words"),
            contract("notes", "note", "A note", kind="resource"),
        ]
    )
    assert told is not None
    assert ["- git: Show the log; diff", "- text: Count words"] == told.splitlines()[1:]


def test_nothing_is_said_of_nothing() -> None:
    """A client without instructions asks for the list."""
    assert instructions_of([]) is None


def test_a_long_skill_leaves_room_for_the_others() -> None:
    """Its line is cut, and theirs are not."""
    told = instructions_of(
        [contract("a", f"c{number}", f"{number} words " * 20) for number in range(50)] + [contract("b", "c", "Do it")]
    )
    assert told is not None
    assert told.endswith("…\n- b: Do it")


def test_of_very_many_skills_the_names_are_said() -> None:
    """As many as there is room for."""
    told = instructions_of(contract(f"skill{number}", "c", "Do it") for number in range(300))
    assert told is not None
    assert ": skill0, skill1, skill2" in told
    assert told.endswith("…")


@given(st.lists(st.tuples(st.text(max_size=100), st.text(max_size=300)), max_size=300))
def test_instructions_are_short(commands: list[tuple[str, str]]) -> None:
    """However many skills there are, and whatever they say."""
    told = instructions_of(contract(skill, str(number), summary) for number, (skill, summary) in enumerate(commands))
    if told is not None:
        assert len(told.encode()) <= MOST_INSTRUCTIONS


def test_an_icon_is_a_file_or_an_address(tmp_path: Path) -> None:
    """A file becomes an address that needs no server."""
    (tmp_path / "icon.png").write_bytes(PIXEL)
    own = IdentitySettings(
        title="Sums", icons=("icon.png", "https://example.org/i.svg"), website_url="https://example.org"
    )
    assert {
        "title": "Sums",
        "websiteUrl": "https://example.org",
        "icons": [
            {"src": "data:image/png;base64,iVBORw0KGgo=", "mimeType": "image/png"},
            {"src": "https://example.org/i.svg"},
        ],
    } == details_of(own, tmp_path)
    assert {} == details_of(IdentitySettings(), tmp_path)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("icon.exe", "'icon.exe' is not an icon"),
        ("missing.png", "missing.png cannot be read"),
        ("large.svg", "large.svg has 65537 bytes"),
        ("http://example.org/i", "is not an icon"),
    ],
)
def test_a_wrong_icon_is_named(tmp_path: Path, source: str, why: str) -> None:
    """With what would be right."""
    (tmp_path / "large.svg").write_bytes(b"x" * 65537)
    with pytest.raises(SettingsError, match=why):
        details_of(IdentitySettings(icons=(source,)), tmp_path)


@pytest.mark.usefixtures("forked_hosts")
@pytest.mark.parametrize("wire", WIRES)
async def test_a_client_is_told_who_serves_and_how(tmp_path: Path, wire: str) -> None:
    """A wrong icon costs no more than itself. What is written wins over what is generated, which names no deleted skill."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/sums.py").write_text(SKILL)
    project = Project(
        tmp_path,
        flags={"cache_dir": "cache", "identity.name": "calculator", "identity.website_url": "https://example.org"},
    )
    gone = tmp_path / "skills/gone.py"
    gone.write_text(SKILL)
    async with serve(project) as client:
        await client.tools()
    gone.unlink()
    async with serve(project, version=wire) as client:
        told = await client.request("server/discover") if wire == STATELESS else client.host.opened
    assert "- sums: Add two numbers. They may be negative; Subtract one number from another" in told["instructions"]
    assert "gone" not in told["instructions"]
    info = told["_meta"]["io.modelcontextprotocol/serverInfo"] if wire == STATELESS else told["serverInfo"]
    assert ("calculator", "https://example.org") == (info["name"], info["websiteUrl"])
    project = Project(
        tmp_path,
        flags={"cache_dir": "cache", "identity.instructions": "Sum things up.", "identity.icons": ["missing.png"]},
    )
    async with serve(project, version=wire) as client:
        told = await client.request("server/discover") if wire == STATELESS else client.host.opened
        assert "missing.png cannot be read" in client.stderr
    assert "Sum things up." == told["instructions"]
