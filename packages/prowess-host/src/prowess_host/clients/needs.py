"""Which environment variables a project needs from outside: what no file of it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from prowess.contracts.contract import Contract
from prowess.contracts.declaration import wanted
from prowess.errors import SettingsError
from prowess.settings.layers import PREFIX
from prowess.settings.settings import Settings

__all__ = ["needed_variables"]


def needed_variables(root: Path, contracts: Iterable[Contract], environ: Mapping[str, str]) -> list[str]:
    """The names: variables that fill parameters of commands, and settings that this environment holds.

    What `prowess.toml` or `.env` gives reaches the host whatever a client passes on, so it is left out.
    """
    files = Settings.load(root, environ={})
    known = {_plain(key) for key in files.keys()}  # noqa: SIM118 - a method of Settings, which is no mapping
    needed: set[str] = set()
    for contract in contracts:
        for item in contract.inject_settings:
            source, key, _ = wanted(item)
            if source == "setting":
                given = any(each == _plain(key) or each.startswith(f"{_plain(key)}.") for each in known)
                name = _variable_of(key, environ)
            else:
                given, name = key in files.dotenv, key
            needed |= set() if given else {name}
    needed |= {name for name in environ if _is_setting(root, name, environ[name])}
    return sorted(needed)


def _plain(key: str) -> str:
    return key.lower().replace("-", "_")


def _variable_of(key: str, environ: Mapping[str, str]) -> str:
    """The variable of a setting: as it is set, else as it is usually written."""
    usual = PREFIX + _plain(key).replace(".", "__").upper()
    return next((name for name in environ if name.upper() == usual), usual)


def _is_setting(root: Path, name: str, value: str) -> bool:
    """Whether a variable of the environment sets something here. Those of other programs only cause warnings."""
    if not name.upper().startswith(PREFIX):
        return False
    try:
        alone = Settings.load(root, environ={name: value})
        return not alone.warnings and len(alone.keys()) >= 1
    except SettingsError:
        return False
