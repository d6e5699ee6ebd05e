"""The environment variables that a project needs from outside, because no file of it sets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from prowess.contracts.contract import Contract
from prowess.contracts.declaration import parse_injected
from prowess.errors import SettingsError
from prowess.settings.layers import PREFIX
from prowess.settings.settings import Settings

__all__ = ["needed_variables"]


def needed_variables(root: Path, contracts: Iterable[Contract], environ: Mapping[str, str]) -> list[str]:
    """The names of variables that fill parameters of commands, and of settings in this environment.

    Values in `prowess.toml` or `.env` reach the host in any case, so they are omitted.
    """
    files = Settings.load(root, environ={})
    known = {_plain(key) for key in files.keys()}  # noqa: SIM118 - Settings is not a mapping
    needed: set[str] = set()
    for contract in contracts:
        for item in contract.inject_settings:
            source, key, _ = parse_injected(item)
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
    """The variable of a setting: the one that is set, else the usual spelling."""
    usual = PREFIX + _plain(key).replace(".", "__").upper()
    return next((name for name in environ if name.upper() == usual), usual)


def _is_setting(root: Path, name: str, value: str) -> bool:
    """Whether a variable is a setting of this project. Variables of other programs only cause warnings."""
    if not name.upper().startswith(PREFIX):
        return False
    try:
        alone = Settings.load(root, environ={name: value})
        return not alone.warnings and len(alone.keys()) >= 1
    except SettingsError:
        return False
