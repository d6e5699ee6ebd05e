"""Every client, scope and system: what is written into which file, next to what a user already has there."""

from __future__ import annotations

import difflib
import fcntl
import os
from pathlib import Path

import pytest

from prowess.errors import ProwessError
from prowess_host.clients.connecting import (
    ConnectTarget,
    FileChange,
    connections_of,
    execute,
    plan_connect,
    plan_disconnect,
    slug,
)
from prowess_host.clients.documents import ClientFileError
from prowess_host.clients.launches import Launch, host_launch
from prowess_host.clients.ledger import Ledger
from prowess_host.clients.machine import Machine
from prowess_host.clients.table import CLIENTS, KnownClient

GOLDEN = Path(__file__).parent / "golden"
PYTHON = {"linux": "/opt/py/bin/python", "darwin": "/opt/py/bin/python3", "win32": "C:\\py\\python.exe"}
CELLS = [
    pytest.param(client, scope, platform, id=f"{client.name}-{scope}-{platform}")
    for client in CLIENTS.values()
    for scope in client.files
    for platform in PYTHON
]

# What users have in their files: comments, other servers, odd indentation, a byte order mark, the line ends of Windows.
JSON = """\
{
   // chosen with care
   "first" : [1,2,   3],
   "KEY": {
      "other": { "command": "x", "args": [] }, // keep this one
      /* and this */ "third": {"url": "https://example.com"}, // with a comma at the end
   },

   "last": null
}
"""
TOML = """\
# chosen with care
first = [1,2,   3]   # numbers

[KEY.other] # keep this one
command = 'x'

  [projects."/a.b"]
  trust_level = "trusted"
"""
YAML = """\
# chosen with care
first: [1,2,   3]   # numbers

KEY:
    other:   # keep this one
        cmd: x
        args: [a,   b]

# the rest
last: ~
"""
TEXTS = {"json": JSON, "toml": TOML, "yaml": YAML}
BROKEN = {
    "json": ('{\n  "a": 1\n  "b": 2\n}\n', 3),
    "toml": ("a = 1\nb = = 2\n", 2),
    "yaml": ("a: 1\n  b: 2\n", 2),
}


class Place:
    """A home with a project in it, on some system."""

    def __init__(self, folder: Path, platform: str = "linux") -> None:
        self.home = folder / "home"
        self.root = self.home / "My Project"
        self.root.mkdir(parents=True)
        self.platform = platform
        self.machine = Machine(platform, self.home, {})
        self.ledger = Ledger(folder / "state")

    def launch(self, client: KnownClient) -> Launch:
        launch = host_launch(self.root, python=PYTHON[self.platform])
        return launch.needing(["API_KEY"], client.reference) if client.can_refer() else launch

    def plan(self, client: KnownClient, scope: str, name: str = "prowess", launch: Launch | None = None) -> FileChange:
        launch = launch or self.launch(client)
        return plan_connect(ConnectTarget(client, scope, name, self.root), launch, self.machine, self.ledger)

    def connect(self, client: KnownClient, scope: str, name: str = "prowess") -> Path | None:
        return execute(self.plan(client, scope, name), self.ledger)

    def disconnect(self, client: KnownClient, scope: str, name: str = "prowess") -> Path | None:
        return execute(
            plan_disconnect(ConnectTarget(client, scope, name, self.root), self.machine, self.ledger), self.ledger
        )

    def files(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.home)): None if path.is_dir() else path.read_bytes()
            for path in self.home.rglob("*")
        }


def written_by_a_user(client: KnownClient, *, crlf: bool = False) -> bytes:
    text = TEXTS[client.format].replace("KEY", client.key[0])
    return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() if crlf else text.encode()


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_files_and_entries_are_as_written_down(client: KnownClient, tmp_path: Path) -> None:
    """The golden file holds, for each scope and system, the path, the content of a new file, and the change of an old one.

    `UPDATE_GOLDEN=1` writes it anew.
    """
    told: list[str] = []
    for scope in client.files:
        for platform in PYTHON:
            place = Place(tmp_path / scope / platform, platform)
            plan = place.plan(client, scope)
            assert plan.after is not None
            fresh = plan.after.decode()
            plan.file.parent.mkdir(parents=True, exist_ok=True)
            plan.file.write_bytes(written_by_a_user(client))
            change = "\n".join(place.plan(client, scope).diff()[2:])
            text = f"=== {scope} on {platform}: {plan.file}\n{fresh}--- beside others\n{change}\n"
            told.append(text.replace(str(place.root), "<project>").replace(str(place.home), "<home>"))
    golden = GOLDEN / f"{client.name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text("\n".join(told), encoding="utf-8")

    assert golden.read_text(encoding="utf-8") == "\n".join(told)


@pytest.mark.parametrize("client, scope, platform", CELLS)
def test_connecting_where_nothing_was_leaves_nothing_when_it_is_undone(
    client: KnownClient, scope: str, platform: str, tmp_path: Path
) -> None:
    """Files and folders that were made are gone; a second time there is nothing to do, either way."""
    place = Place(tmp_path, platform)
    before = place.files()

    assert place.connect(client, scope) is None
    after = place.files()
    assert before != after
    assert not place.plan(client, scope).changes
    assert [("prowess", scope)] == [(each.name, each.scope) for each in connections_of(place.root, place.machine)]
    place.connect(client, scope)
    assert after == place.files()
    place.disconnect(client, scope)
    assert before == place.files()
    assert place.disconnect(client, scope) is None
    assert [] == place.ledger.records()


@pytest.mark.parametrize("crlf", [False, True], ids=["plain", "byte order mark and CRLF"])
@pytest.mark.parametrize("client, scope, platform", CELLS)
def test_connecting_beside_others_only_adds_lines_and_is_undone_to_the_byte(
    client: KnownClient, scope: str, platform: str, crlf: bool, tmp_path: Path
) -> None:
    """Also where another server was written into the file in the meantime."""
    place = Place(tmp_path, platform)
    original = written_by_a_user(client, crlf=crlf)
    file = client.file(place.machine, place.root, scope)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(original)
    file.chmod(0o600)

    backup = place.connect(client, scope)

    assert backup is not None
    assert original == backup.read_bytes()
    before, after = original.decode("utf-8-sig"), file.read_bytes().decode("utf-8-sig")
    changes = difflib.ndiff(before.splitlines(), after.splitlines())
    assert {" ", "+"} == {line[0] for line in changes}
    assert file.read_bytes().startswith(b"\xef\xbb\xbf") == crlf
    assert all(line.endswith(b"\r\n") == crlf for line in file.read_bytes().splitlines(keepends=True))
    assert 0o600 == file.stat().st_mode & 0o777
    place.disconnect(client, scope)
    assert original == file.read_bytes()

    place.connect(client, scope)
    place.connect(client, scope, "second")
    place.disconnect(client, scope)
    assert ["second"] == [each.name for each in connections_of(place.root, place.machine)]
    place.disconnect(client, scope, "second")
    assert original.split() == file.read_bytes().split()


@pytest.mark.parametrize("client, scope, platform", CELLS)
def test_broken_file_is_left_alone(client: KnownClient, scope: str, platform: str, tmp_path: Path) -> None:
    """The message names the file, the line and the way out; disconnecting and looking say the same."""
    place = Place(tmp_path, platform)
    text, line = BROKEN[client.format]
    file = client.file(place.machine, place.root, scope)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")

    for attempt in (place.connect, place.disconnect):
        with pytest.raises(ClientFileError) as caught:
            attempt(client, scope)
        assert str(caught.value).startswith(f"{file}:{line}: not valid {client.format.upper()}: ")
        assert str(caught.value).endswith("The file was left as it is; correct that line, then run the command again")
    assert text == file.read_text(encoding="utf-8")
    [found] = connections_of(place.root, place.machine)
    assert f"{file}:{line}" in str(found.problem)


def test_entry_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    place = Place(tmp_path)
    client = CLIENTS["cursor"]
    file = place.root / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"prowess": {"command": "theirs"}, "far": {"url": "x"}, "odd": 1}}')

    for name in ("prowess", "far", "odd"):
        with pytest.raises(
            ClientFileError, match=rf"its server '{name}' is not a server of Prowess.*--name my-project"
        ):
            place.connect(client, "project", name)


def test_entry_of_another_project_is_not_overwritten(tmp_path: Path) -> None:
    place, other = Place(tmp_path / "a"), Place(tmp_path / "b")
    other.machine = Machine("linux", place.home, {})
    place.connect(CLIENTS["cursor"], "user")

    with pytest.raises(ClientFileError, match=r"serves .*/a/home/My Project.* choose another name: --name my-project"):
        other.connect(CLIENTS["cursor"], "user")
    other.connect(CLIENTS["cursor"], "user", "my-project")

    assert ["prowess"] == [each.name for each in connections_of(place.root, place.machine)]
    assert ["my-project"] == [each.name for each in connections_of(other.root, other.machine)]


def test_what_a_user_adds_to_our_entry_stays(tmp_path: Path) -> None:
    """A new interpreter changes the command and nothing else, and undoing gives back what the user wrote since."""
    place = Place(tmp_path)
    client = CLIENTS["claude-code"]
    place.connect(client, "project")
    file = place.root / ".mcp.json"
    file.write_text(file.read_text().replace('"env": {', '"timeout": 9, // mine\n      "env": {\n        "B": "2",'))

    execute(place.plan(client, "project", launch=host_launch(place.root, python="/new/python")), place.ledger)

    text = file.read_text()
    assert '"timeout": 9, // mine' in text
    assert '"B": "2"' in text
    assert '"/new/python"' in text
    place.disconnect(client, "project")
    assert not file.exists()


def test_file_that_was_there_stays_when_the_entry_was_edited(tmp_path: Path) -> None:
    place = Place(tmp_path)
    file = place.root / ".mcp.json"
    file.write_text('{\n  "mcpServers": {}\n}')
    place.connect(CLIENTS["claude-code"], "project")
    file.write_text(file.read_text().replace('"-P",', '"-P", '))

    place.disconnect(CLIENTS["claude-code"], "project")

    assert '{\n  "mcpServers": {}\n}' == file.read_text()


def test_entry_that_nobody_remembers_is_removed(tmp_path: Path) -> None:
    """Without our record the file and the table stay: they may be the user's."""
    place = Place(tmp_path)
    place.connect(CLIENTS["codex"], "user")
    place.ledger = Ledger(tmp_path / "another state")

    place.disconnect(CLIENTS["codex"], "user")

    assert b"" == place.files()[".codex/config.toml"]


def test_record_of_an_entry_that_was_removed_by_hand_is_dropped(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.connect(CLIENTS["zed"], "user")
    (place.home / ".config/zed/settings.json").write_text("{}")

    place.disconnect(CLIENTS["zed"], "user")

    assert [] == place.ledger.records()
    assert b"{}" == place.files()[".config/zed/settings.json"]


def test_file_that_changes_between_looking_and_writing_is_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    plan = place.plan(CLIENTS["cursor"], "user")
    plan.file.parent.mkdir()
    plan.file.write_text("{}")

    with pytest.raises(ClientFileError, match="changed by another program just now"):
        execute(plan, place.ledger)


def test_entries_that_are_written_at_the_same_time_all_stay(tmp_path: Path) -> None:
    """Each was planned before any was written; each plan is made anew once it is its turn."""
    place = Place(tmp_path)
    plans = {name: place.plan(CLIENTS["cursor"], "user", name) for name in ("one", "two", "three")}

    for name, plan in plans.items():
        execute(plan, place.ledger, lambda name=name: place.plan(CLIENTS["cursor"], "user", name))

    found = {each.name for each in connections_of(place.root, place.machine)}
    assert set(plans) == found == {each.name for each in place.ledger.records()}


def test_only_one_process_writes_at_a_time(tmp_path: Path) -> None:
    place = Place(tmp_path)

    def plan_while_held() -> FileChange:
        with (tmp_path / "state" / "connections.lock").open("a") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return place.plan(CLIENTS["cursor"], "user")

    execute(place.plan(CLIENTS["cursor"], "user"), place.ledger, plan_while_held)


def test_file_is_left_alone_if_its_change_cannot_be_remembered(tmp_path: Path) -> None:
    """Then `disconnect` could not undo it exactly."""
    (tmp_path / "state").write_text("a file where a folder has to be")
    place = Place(tmp_path)

    with pytest.raises(ClientFileError, match="cannot be written"):
        place.connect(CLIENTS["cursor"], "user")

    assert not (place.home / ".cursor").exists()


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.home / ".cursor").write_text("a file where a folder has to be")

    with pytest.raises(ClientFileError, match=r"cannot be (read|written)"):
        place.connect(CLIENTS["cursor"], "user")


def test_scope_that_a_client_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProwessError, match="Windsurf has no settings of a project: use --scope user"):
        Place(tmp_path).connect(CLIENTS["windsurf"], "project")


@pytest.mark.parametrize("name", ["my_server", "", "a b", "-a", "ä"])
def test_name_that_clients_refuse_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProwessError, match="letters, digits and -"):
        Place(tmp_path).connect(CLIENTS["cursor"], "user", name)


@pytest.mark.parametrize(
    "client, scope, before, after",
    [
        ("opencode", "project", '"enabled": true', '"enabled": false'),
        ("goose", "user", "enabled: true", "enabled: false"),
        ("cline", "user", '"command"', '"disabled": true, "command"'),
    ],
)
def test_server_that_the_user_has_switched_off_stays_off(
    client: str, scope: str, before: str, after: str, tmp_path: Path
) -> None:
    """And is told apart from one that works."""
    place = Place(tmp_path)
    row = CLIENTS[client]
    place.connect(row, scope)
    assert [False] == [each.is_off for each in connections_of(place.root, place.machine)]
    file = row.file(place.machine, place.root, scope)
    file.write_text(file.read_text().replace(before, after))

    execute(place.plan(row, scope, launch=host_launch(place.root, python="/new/python")), place.ledger)

    assert "/new/python" in file.read_text()
    assert [True] == [each.is_off for each in connections_of(place.root, place.machine)]


@pytest.mark.parametrize(
    "client, text",
    [
        (
            "cursor",
            '{"mcpServers": {\n"a": {"env": {"API_KEY": "s3cret", "B": "shown"}},\n"b": {"Authorization": "Bearer s3cret"}\n}}',
        ),
        ("codex", "[mcp_servers.a.env]\nMY_TOKEN = 's3cret'\nB = 'shown'\n"),
        ("goose", "extensions:\n  a:\n    envs:\n      password: s3cret\n      B: shown\n"),
    ],
)
def test_secrets_of_other_servers_are_masked_in_the_difference(client: str, text: str, tmp_path: Path) -> None:
    """A screen is easily shared. References, which hold no secret, are shown."""
    place = Place(tmp_path)
    row = CLIENTS[client]
    file = row.file(place.machine, place.root, "user")
    file.parent.mkdir(parents=True)
    file.write_text(text)

    shown = "\n".join(place.plan(row, "user").diff())

    assert "s3cret" not in shown
    assert "…" in shown
    assert "shown" in shown
    assert "API_KEY" in shown
    assert ("${env:API_KEY}" in shown) == (client == "cursor")


def test_link_stays_a_link(tmp_path: Path) -> None:
    """Dotfiles are often links into a repository: the file there is what changes."""
    place = Place(tmp_path)
    real = tmp_path / "dotfiles.json"
    real.write_text("{}\n")
    link = place.home / ".cursor/mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)

    place.connect(CLIENTS["cursor"], "user")

    assert link.is_symlink()
    assert "prowess_host" in real.read_text()
    place.disconnect(CLIENTS["cursor"], "user")
    assert link.is_symlink()
    assert "{}\n" == real.read_text()


def test_variables_of_the_clients_move_their_files(tmp_path: Path) -> None:
    root = tmp_path / "p"
    variables = "CODEX_HOME CLAUDE_CONFIG_DIR COPILOT_HOME XDG_CONFIG_HOME GEMINI_CLI_HOME".split()
    machine = Machine("linux", tmp_path, {name: str(tmp_path / name) for name in variables})
    files = {name: str(client.file(machine, root, "user").relative_to(tmp_path)) for name, client in CLIENTS.items()}

    assert "CODEX_HOME/config.toml" == files["codex"]
    assert "CLAUDE_CONFIG_DIR/.claude.json" == files["claude-code"]
    assert "COPILOT_HOME/mcp-config.json" == files["copilot"]
    assert "GEMINI_CLI_HOME/.gemini/settings.json" == files["gemini"]
    assert "XDG_CONFIG_HOME/opencode/opencode.json" == files["opencode"]
    assert "XDG_CONFIG_HOME/Code/User/mcp.json" == files["vscode"]


def test_file_that_exists_is_used_where_a_client_reads_several(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "opencode.jsonc").write_text("// mine\n{}\n")

    place.connect(CLIENTS["opencode"], "project")

    assert {"opencode.jsonc"} == {file.name for file in place.root.iterdir()}


@pytest.mark.parametrize(
    "name, expected", [("My Project", "my-project"), ("a__b", "a-b"), ("日本", "skills"), ("x" * 20, "x" * 12)]
)
def test_slug_is_a_name_that_every_client_takes(name: str, expected: str) -> None:
    assert expected == slug(Path("/x") / name)
