from __future__ import annotations

import os
from pathlib import Path

import pytest

from prowess_host.clients.documents import ClientFileError, read_document
from prowess_host.clients.files import back_up, remove, write
from prowess_host.clients.ledger import Ledger, Record


def test_file_is_replaced_whole_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"old")
    file.chmod(0o640)

    made = write(file, b"new")

    assert (b"new", 0o640) == (file.read_bytes(), file.stat().st_mode & 0o777)
    assert (False, ()) == (made.file, made.folders)
    assert [file] == list(tmp_path.iterdir())


def test_read_only_file_is_left_alone(tmp_path: Path) -> None:
    """A rename could replace it all the same, but somebody wanted it to stay."""
    file = tmp_path / "mcp.json"
    file.write_bytes(b"old")
    file.chmod(0o444)

    with pytest.raises(PermissionError, match="it is read-only"):
        write(file, b"new")

    assert (b"old", [file]) == (file.read_bytes(), list(tmp_path.iterdir()))


def test_new_file_has_the_usual_mode_and_its_folders_are_told(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()

    made = write(tmp_path / "a/b/c.json", b"new")

    assert (True, (tmp_path / "a", tmp_path / "a/b")) == (made.file, made.folders)
    assert plain.stat().st_mode == (tmp_path / "a/b/c.json").stat().st_mode


def test_file_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"old")

    def fail(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        write(file, b"new")

    assert b"old" == file.read_bytes()
    assert [file] == list(tmp_path.iterdir())


def test_only_empty_folders_go_with_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a/b/c.json"
    made = write(file, b"x")
    (tmp_path / "a/mine").touch()

    assert [file, file.parent] == remove(file, made.folders)
    assert [] == remove(file, ())


def test_backup_is_for_the_user_alone_and_kept_once(tmp_path: Path) -> None:
    kept = back_up(tmp_path / "state", Path("/x/settings.json"), b"secret")

    assert kept == back_up(tmp_path / "state", Path("/x/settings.json"), b"secret")
    assert (b"secret", 0o600) == (kept.read_bytes(), kept.stat().st_mode & 0o777)
    assert 0o700 == kept.parent.stat().st_mode & 0o777


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 2, "connections": []}', '{"format": 1, "connections": [{"x": 1}]}']
)
def test_ledger_that_cannot_be_read_counts_as_empty(text: str, tmp_path: Path) -> None:
    (tmp_path / "connections.json").write_text(text)
    record = Record("cursor", "user", "prowess", "/f", "/p")
    ledger = Ledger(tmp_path)

    assert [] == ledger.records()
    ledger.keep(record)
    assert [record] == Ledger(tmp_path).records()


@pytest.mark.parametrize(
    "content, form, message",
    [
        (b"\xff\xfe{}", "json", ":1: not UTF-8"),
        (b"[]", "json", ":1: must be a table of settings, not a list"),
        (b"1", "json", ":1: must be a table of settings, not a number"),
        (b"- a\n", "yaml", ":1: must be a table of settings, not a list"),
    ],
)
def test_file_that_holds_something_else_is_refused(content: bytes, form: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(content)

    with pytest.raises(ClientFileError) as caught:
        read_document(file, form)

    assert str(caught.value).startswith(f"{file}{message}")


def test_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClientFileError, match=r"it is a folder.*move it away"):
        read_document(tmp_path, "json")


def test_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    """Reading it would wait for a writer."""
    pipe = tmp_path / "mcp.json"
    os.mkfifo(pipe)

    with pytest.raises(ClientFileError, match=r"it is not a regular file.*move it away"):
        read_document(pipe, "json")


def test_file_below_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ClientFileError, match=r"cannot be read: Not a directory.*check its path"):
        read_document(tmp_path / "file" / "mcp.json", "json")


@pytest.mark.parametrize(
    "content, form",
    [
        (b'mcp = {other = {command = "x"}}\n', "toml"),
        (b'mcp.prowess.command = "x"\n', "toml"),
        (b'{"mcp": null}', "json"),
        (b'{"mcp": []}', "json"),
        (b"mcp: {a: 1}\n", "yaml"),
    ],
)
def test_form_that_cannot_be_edited_safely_is_refused(content: bytes, form: str, tmp_path: Path) -> None:
    """The data is compared before and after: nothing is ever guessed."""
    file = tmp_path / "f"
    file.write_bytes(content)
    document = read_document(file, form)

    with pytest.raises(ClientFileError, match="The file was left as it is") as refused:
        document.put(["mcp", "prowess"], {"command": "y"})
    assert str(refused.value).startswith((f"{file}: ", f"{file}:1: "))


def test_empty_table_goes_with_its_last_entry_where_it_was_ours(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b'{"a": 1, "mcp": {"prowess": {}}}')
    document = read_document(file, "json")

    assert '{"a": 1, "mcp": {}}' == document.drop(["mcp", "prowess"]).text
    assert '{"a": 1}' == document.drop(["mcp", "prowess"], empty=True).text
    assert document is document.drop(["mcp", "other"])
