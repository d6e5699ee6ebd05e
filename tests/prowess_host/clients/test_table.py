"""The table of clients, and what the documentation says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prowess.errors import ProwessError
from prowess_host.clients.machine import Machine
from prowess_host.clients.table import CLIENTS, KnownClient, client_named
from prowess_host.review.lint import CLIENTS as RULES

ROOT = Path(__file__).parents[3]
SECTIONS = dict(
    re.findall(r"^### (.+)\n((?:(?!^###? ).*\n)*)", (ROOT / "docs/clients.md").read_text("utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_documentation_names_the_files_and_the_key(client: KnownClient) -> None:
    section = SECTIONS[client.title]

    assert f"`prowess connect {client.name}`" in section
    assert all(key in section for key in client.key)
    for places in client.files.values():
        assert all(Path(place.path).name in section for place in places if place.path != "opencode/config.json")
        assert all(place.variable in section for place in places if place.variable)
    if client.reference is not None and client.name != "claude-code":
        assert client.reference.format("NAME") in section


def test_rules_of_the_table_are_those_of_the_review() -> None:
    """Every set of rules belongs to a client."""
    assert set(RULES) == {client.rules for client in CLIENTS.values()} - {None}


def test_clients_answer_to_other_names() -> None:
    named = [client_named(name).name for name in ("Claude", "VS-Code", "gemini_cli", "jetbrains", "zed")]

    assert ["claude-code", "vscode", "gemini", "junie", "zed"] == named
    with pytest.raises(ProwessError, match=r"unknown client 'emacs' \(there are: claude-code, "):
        client_named("emacs")


def test_client_is_found_by_its_program_or_its_folder(tmp_path: Path) -> None:
    def found(**environ: str) -> set[str]:
        machine = Machine("linux", tmp_path / "home", environ)
        return {client.name for client in CLIENTS.values() if client.is_found(machine)}

    assert set() == found()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/codex").touch(mode=0o755)
    (tmp_path / "home/.cursor").mkdir(parents=True)
    assert {"codex", "cursor"} == found(PATH=str(tmp_path / "bin"))


def test_machine_reads_its_own_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert tmp_path == Machine.this().home
    states = {
        system: Machine(system, Path("/h"), {"LOCALAPPDATA": "/l"}).own_state.as_posix()
        for system in ("linux", "darwin", "win32")
    }
    assert {
        "linux": "/h/.local/state/prowess",
        "darwin": "/h/Library/Application Support/prowess",
        "win32": "/l/prowess",
    } == states
