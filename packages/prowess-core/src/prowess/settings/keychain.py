"""Secrets from the system's keychain: a setting `{ keyring = "service/name" }` stands for the secret stored there.

The library is imported when the first such setting is read, and reading may wait for a person to unlock the keychain.
"""

from __future__ import annotations

import sys
from typing import Any, TypeGuard, cast

from prowess.errors import SettingsError, install_command

__all__ = ["is_reference", "read"]

_KEY = "keyring"


def is_reference(value: object) -> TypeGuard[dict[str, str]]:
    """Whether a value of the settings refers to the keychain."""
    return isinstance(value, dict) and list(cast("dict[str, Any]", value)) == [_KEY]


def read(key: str, reference: dict[str, str]) -> str:
    """The secret that a setting refers to. Raises `SettingsError` if the keychain does not give it."""
    named: Any = reference[_KEY]
    service, slash, name = named.rpartition("/") if isinstance(named, str) else ("", "", "")
    if not (slash and service and name):
        raise SettingsError(f'the setting {key!r}: keyring must be "service/name", not {named!r}')
    try:
        import keyring
    except ImportError:
        raise SettingsError(
            f"the setting {key!r} is in the system's keychain, and reading that needs the package keyring, which "
            f"{sys.executable} does not have. Install it: {install_command('prowess-core[keyring]')}"
        ) from None
    try:
        secret = keyring.get_password(service, name)
    except Exception as error:  # the libraries behind it have exceptions of their own
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise SettingsError(f"the setting {key!r}: the system's keychain cannot be read: {reason}") from error
    if secret is None:
        import shlex  # for this message alone

        raise SettingsError(
            f"the setting {key!r}: the system's keychain has no {name!r} for the service {service!r}. "
            f"Add it: {shlex.join([sys.executable, '-m', 'keyring', 'set', service, name])}"
        )
    return secret
