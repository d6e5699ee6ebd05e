"""Secrets from the keychain, by a real backend of the library that keeps them in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prowess import Runtime, SkillError, skill_command
from prowess.contracts.declaration import declaration_of
from prowess.errors import SettingsError, install_command
from prowess.settings.settings import Settings

keyring = pytest.importorskip("keyring")
REFERENCE = {"keyring": "acme/api/key"}


class InMemory(keyring.backend.KeyringBackend):
    """A keychain of this process."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.passwords: dict[tuple[str, str], str] = {}
        self.locked = False
        self.broken = False

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append(username)
        if self.locked:
            raise keyring.errors.KeyringLocked
        if self.broken:
            raise RuntimeError("D-Bus is gone")
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[service, username] = password


@pytest.fixture
def keychain() -> Iterator[InMemory]:
    before, backend = keyring.get_keyring(), InMemory()
    keyring.set_keyring(backend)
    keyring.set_password("acme/api", "key", "s3cr3t")
    yield backend
    keyring.set_keyring(before)


def test_a_setting_may_be_in_the_keychain(keychain: InMemory):
    """Alone, inside a table or a list; the keychain is asked once."""
    settings = Settings.of({"api": {"key": REFERENCE, "keys": [{"first": REFERENCE}], "url": "u"}})
    assert settings.may_wait("api.key")
    assert ["s3cr3t", "s3cr3t"] == [settings.get("api.key") for _ in range(2)]
    assert not settings.may_wait("api.key")
    assert {"key": "s3cr3t", "keys": [{"first": "s3cr3t"}], "url": "u"} == settings.get("api")
    assert ["key", "key"] == keychain.asked
    assert ["api.key", "api.keys", "api.url"] == settings.keys()
    assert "s3cr3t" not in repr(settings)


def test_the_environment_wins_over_the_keychain(tmp_path: Path, keychain: InMemory):
    """As over any other value of the file."""
    (tmp_path / "prowess.toml").write_text('[api]\nkey = { keyring = "acme/api/key" }')
    assert "s3cr3t" == Settings.load(tmp_path, environ={}).get("api.key")
    assert "e" == Settings.load(tmp_path, environ={"PROWESS_API__KEY": "e"}).get("api.key")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nothing", "the setting 'api.key': keyring must be \"service/name\", not 'nothing'"),
        ("/x", "keyring must be \"service/name\", not '/x'"),
        (3, 'keyring must be "service/name", not 3'),
        ("acme/other", "the system's keychain has no 'other' for the service 'acme'. Add it: "),
        ("acme/locked", "the system's keychain cannot be read: KeyringLocked"),
        ("acme/broken", "the system's keychain cannot be read: RuntimeError: D-Bus is gone"),
    ],
)
def test_what_is_not_in_the_keychain_is_named(keychain: InMemory, reference: Any, message: str):
    """With the way to put it there."""
    keychain.locked, keychain.broken = reference == "acme/locked", reference == "acme/broken"
    with pytest.raises(SettingsError) as caught:
        Settings.of({"api.key": {"keyring": reference}}).get("api.key")
    assert message in str(caught.value)


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    """In this very Python. Settings that are not read do not need it."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    settings = Settings.of({"api.key": REFERENCE, "api.url": "u"})
    assert "u" == settings.get("api.url")
    with pytest.raises(SettingsError) as caught:
        settings.get("api.key")
    assert f"Install it: {install_command('prowess-core[keyring]')}" in str(caught.value)


async def test_a_secret_of_the_keychain_is_injected_and_masked(tmp_path: Path, keychain: InMemory):
    """It is read in a thread: the keychain may wait for a person."""

    @skill_command(inject_settings=["api.key"])
    async def using(api_key: str) -> None:
        raise SkillError(f"{len(api_key)} {api_key}")

    (tmp_path / "prowess.toml").write_text('[api]\nkey = { keyring = "acme/api/key" }')
    async with Runtime.open(tmp_path) as runtime:
        declared = declaration_of(using)
        assert declared is not None
        for _ in range(2):
            assert "6 ***" == (await runtime.entry_of(declared).call({})).text
    assert ["key"] == keychain.asked
