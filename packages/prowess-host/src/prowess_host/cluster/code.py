"""The code of a project by content: digests by neutral paths, from which an agent writes the same files.

A neutral path begins with `0/` in the project, and with `1/`, `2/`… in folders of skills outside it, so the paths of the
host stay on the host. An owner signs the digest of all files; an agent with `--locked` runs only signed code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess.skills.folders import walk
from prowess.skills.stamps import Stamp, digest_of, read, stamp
from prowess_host.catalog.sources import Parts

__all__ = [
    "APPROVED",
    "Damaged",
    "ProjectCode",
    "Snapshots",
    "Unapproved",
    "check_approved",
    "digests_in",
    "is_key",
    "lay_out",
    "moved",
    "new_key",
    "sign",
    "within",
]

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_MOST: Final = 256 * 1024 * 1024
"""Bytes of all files of a project together."""
_EXECUTABLE: Final = "+x"
_KEY: Final = re.compile("[0-9a-fA-F]{64}")
APPROVED: Final = "prowess.approved"
"""The file of signatures, at the root of a project."""


class Unapproved(ProwessError):
    """No key that the agent trusts has signed the code."""


class Damaged(ValueError):
    """The content of a file does not match its digest."""

    def __init__(self, path: str, digest: str) -> None:
        super().__init__(f"the content of {path} does not match its digest")
        self.digest = digest


@frozen
class ProjectCode:
    """The files of one version of a project."""

    files: Mapping[str, str]
    """The digest of each file, by neutral path. That of an executable file ends in `+x`."""
    roots: tuple[str, ...]
    """The folders on the host that the numbers in neutral paths stand for."""
    folders: tuple[str, ...] = ()
    """The folders of skills, as neutral paths."""

    @property
    def index(self) -> bytes:
        """The files as JSON, equal for equal files wherever the project is."""
        return json.dumps(dict(sorted(self.files.items())), separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The digest of the index, and so of all files."""
        return digest_of(self.index)


class Snapshots:
    """Takes snapshots of one project. It reads only files that changed since the last one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Stamp, str]] = {}

    def take(self, parts: Parts) -> ProjectCode:
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
                    f"the code in {root} is larger than the {_MOST >> 20} MB that an agent accepts; keep data in another folder"
                )
            before = self._known.get(path)
            try:
                digest = before[1] if before is not None and before[0] == now else digest_of(read(path))
                mark = _EXECUTABLE if os.stat(path).st_mode & 0o100 else ""  # noqa: PTH116 - there are many
            except FileNotFoundError:  # an editor has removed its temporary file
                continue
            known[path] = now, digest
            found[neutral] = digest + mark
        self._known = known
        return ProjectCode(
            found, tuple(map(str, roots)), tuple(_neutral(str(folder), roots) or "" for folder in folders)
        )


def _walk(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for below in walk(str(folder), _enters).folders:
            yield from (f"{below.path}{os.sep}{name}" for name in below.files if not name.endswith(".pyc"))


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


def digests_in(index: bytes) -> set[str]:
    """The digests of all files of an index. Raises `ValueError` for other data."""
    files: Any = json.loads(index)
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in cast("dict[str, Any]", files).values()):
        raise ValueError("the index of the code is not a table of digests")
    return {each.removesuffix(_EXECUTABLE) for each in cast("dict[str, str]", files).values()}


def within(folder: Path, neutral: str) -> Path:
    """The path below a folder for a neutral path. Raises `ValueError` for a path that leads out of the folder."""
    path = PurePosixPath(neutral)
    if path.is_absolute() or ".." in path.parts or not path.parts or not path.parts[0].isdigit():
        raise ValueError(f"{neutral!r} is not a path within a project")
    return folder / path


def lay_out(index: bytes, folder: Path, blob: Callable[[str], bytes]) -> None:
    """Write the files of an index below a folder. Raises `ValueError` for a path outside it, and `Damaged`."""
    files: dict[str, str] = json.loads(index)
    for neutral, entry in files.items():
        digest, target = entry.removesuffix(_EXECUTABLE), within(folder, neutral)
        text = blob(digest)
        if digest_of(text) != digest:
            raise Damaged(neutral, digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
        if entry != digest:
            target.chmod(0o700)
    (folder / "0").mkdir(parents=True, exist_ok=True)


def moved(value: Any, ways: Collection[tuple[str, str]]) -> Any:
    """JSON data with the beginnings of paths replaced, in values and keys. `ways` has pairs of old and new folders."""
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


def is_key(text: str) -> bool:
    """Whether a text has the form of a key."""
    return _KEY.fullmatch(text) is not None


def sign(digest: str, private: str) -> str:
    """The signature of a digest, in hexadecimal."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # as above

    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private)).sign(_signed(digest)).hex()


def check_approved(digest: str, signatures: Iterable[str], keys: Collection[str]) -> None:
    """Raise `Unapproved` unless one of the signatures was made with one of the keys."""
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
        f"this version of the code ({digest[:12]}) has no approval from a key that this agent trusts; "
        "its owner approves it with `prowess approve`"
    )


def _signed(digest: str) -> bytes:
    return hashlib.sha256(f"prowess code {digest}".encode()).digest()
