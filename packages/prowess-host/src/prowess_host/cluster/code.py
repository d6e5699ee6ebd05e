"""Code by content: what a project's workers run, as digests by neutral paths, so that an agent lays out exactly that.

A path is `0/…` within the project, and `1/…` and so on within folders of skills elsewhere. No path of the host leaves it.
The digest of all is what an owner signs, so that an agent with `--locked` runs only what somebody approved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess.skills.folders import walk
from prowess.skills.stamps import Stamp, digest_of, read, stamp
from prowess_host.catalog.sources import Parts

__all__ = ["APPROVED", "Code", "Snapshots", "Unapproved", "check_approved", "lay_out", "moved", "new_key", "sign"]

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_MOST: Final = 256 * 1024 * 1024
"""Bytes of all files together."""
APPROVED: Final = "prowess.approved"
"""The file of signatures, at the root of a project."""


class Unapproved(ProwessError):
    """Code that nobody has approved whom the agent trusts."""


@frozen
class Code:
    """The files of one version of a project."""

    files: Mapping[str, str]
    """The digest of each, by neutral path."""
    roots: tuple[str, ...]
    """The folders on the host that the neutral paths begin in. They stay there."""
    folders: tuple[str, ...] = ()
    """The folders of skills, as neutral paths."""

    @property
    def index(self) -> bytes:
        """The digests as bytes, which are the same wherever the project is."""
        return json.dumps(dict(sorted(self.files.items())), separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The fingerprint of all."""
        return digest_of(self.index)


class Snapshots:
    """Takes snapshots of one project, and remembers the digests of files that have not changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, str]] = {}

    def take(self, parts: Parts) -> Code:
        """The code as it is now."""
        root, folders = parts.root, parts.folders
        roots = [root, *(folder for folder in folders if not folder.is_relative_to(root))]
        found: dict[str, str] = {}
        known: dict[str, tuple[Stamp, str]] = {}
        size = 0
        paths = {*_walk(folders), *parts.files, *(str(path) for each in parts.patterns for path in root.glob(each))}
        for path in sorted(paths.difference(parts.without)):
            neutral = _neutral(path, roots)
            now = stamp(path)
            if neutral is None or not os.path.isfile(path):  # noqa: PTH113 - there are many
                continue
            size += now.size
            if size > _MOST:
                raise ProwessError(
                    f"the code in {root} has more than {_MOST >> 20} MB, too much for an agent; keep data elsewhere"
                )
            before = self._known.get(path)
            digest = before[1] if before is not None and before[0] == now else digest_of(read(path))
            known[path] = now, digest
            found[neutral] = digest
        self._known = known
        return Code(found, tuple(map(str, roots)), tuple(_neutral(str(folder), roots) or "" for folder in folders))


def _walk(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for place in walk(str(folder), _enters).places:
            yield from (f"{place.path}{os.sep}{name}" for name in place.files if not name.endswith(".pyc"))


def _enters(path: str) -> bool:
    folder = Path(path)
    return folder.name not in _SKIPPED and not folder.name.startswith(".") and not (folder / "pyvenv.cfg").exists()


def _neutral(path: str, roots: Iterable[Path]) -> str | None:
    for number, folder in enumerate(roots):
        if path == str(folder):
            return str(number)
        if path.startswith(f"{folder}{os.sep}"):
            return f"{number}/{path[len(str(folder)) + 1 :].replace(os.sep, '/')}"
    return None


def lay_out(index: bytes, folder: Path, blob: Callable[[str], bytes]) -> None:
    """Write the files of an index below a folder. What is not what its digest says is refused with `ValueError`."""
    files: Any = json.loads(index)
    for neutral, digest in files.items():
        path = PurePosixPath(neutral)
        if path.is_absolute() or ".." in path.parts or not path.parts[0].isdigit():
            raise ValueError(f"{neutral!r} is not a path within a project")
        text = blob(digest)
        if digest_of(text) != digest:
            raise ValueError(f"{neutral} is not what its digest says")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
    (folder / "0").mkdir(parents=True, exist_ok=True)


def moved(value: Any, ways: Collection[tuple[str, str]]) -> Any:
    """JSON data in which every path below one folder is below another, also in keys."""
    if isinstance(value, str):
        for before, after in ways:
            if value == before or value.startswith(f"{before}/"):
                return after + value[len(before) :]
        return value
    if isinstance(value, list):
        return [moved(item, ways) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {moved(key, ways): moved(item, ways) for key, item in cast("dict[str, Any]", value).items()}
    return value


# --- signatures -----------------------------------------------------------------------------------


def new_key() -> tuple[str, str]:
    """A private and a public key, in hexadecimal."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # only for those who sign

    key = Ed25519PrivateKey.generate()
    return key.private_bytes_raw().hex(), key.public_key().public_bytes_raw().hex()


def sign(digest: str, private: str) -> str:
    """The approval of a digest."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # as above

    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private)).sign(_signed(digest)).hex()


def check_approved(digest: str, signatures: Iterable[str], keys: Collection[str]) -> None:
    """Raise `Unapproved`, unless one of the keys has approved the digest."""
    from cryptography.exceptions import InvalidSignature  # as above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    given = list(signatures)
    for key in keys:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        for signature in given:
            try:
                public.verify(bytes.fromhex(signature), _signed(digest))
            except (InvalidSignature, ValueError):
                continue
            return
    raise Unapproved(
        f"nobody whom this agent trusts has approved this version of the code ({digest[:12]}); its owner runs "
        "`prowess approve`"
    )


def _signed(digest: str) -> bytes:
    return hashlib.sha256(f"prowess code {digest}".encode()).digest()
