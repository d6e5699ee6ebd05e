"""The secret that hosts share. Digests made with it reveal nothing to other readers of the engine."""

from __future__ import annotations

import hmac
import os
from typing import Final

from prowess_host.cluster.engine import EngineConnection

__all__ = ["Secret"]

_KEY: Final = "key"
_BYTES: Final = 32


class Secret:
    """The key from the settings, else a random one that the first host stores in the engine."""

    def __init__(self, engine: EngineConnection, key: bytes | None) -> None:
        """`key` is the one from the settings, if set."""
        self._engine = engine
        self._kept = engine.bucket("secret", memory=False)
        self._key = key
        self._is_own = key is not None
        self._since = 0
        """The connection on which the key was read: another engine has another key."""

    async def digest(self, text: str) -> str:
        """The digest of a text. Raises `EngineError` if the key cannot be read."""
        return hmac.digest(await self._read(), text.encode(), "sha256").hex()

    async def _read(self) -> bytes:
        connection = self._engine.connections
        if self._key is None or (not self._is_own and self._since != connection):
            fresh = os.urandom(_BYTES)
            made = await self._kept.create(_KEY, fresh)
            kept = None if made else await self._kept.get(_KEY)
            self._key = fresh if kept is None else kept.value
            self._since = connection
        return self._key
