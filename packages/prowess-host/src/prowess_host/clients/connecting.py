"""Connects a project to a client and disconnects it: first a plan, which changes nothing, then its execution.

A plan has the file before and after, so that a person can see the difference first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from prowess.errors import ProwessError
from prowess.frozen import frozen
from prowess_host.clients.documents import ClientFileError, Document, entries_at, read_document
from prowess_host.clients.files import back_up, digest, remove, write
from prowess_host.clients.launches import Launch
from prowess_host.clients.ledger import Ledger, Record
from prowess_host.clients.machine import Machine
from prowess_host.clients.table import CLIENTS, KnownClient

__all__ = [
    "ConnectTarget",
    "FileChange",
    "ServerEntry",
    "connections_of",
    "execute",
    "plan_connect",
    "plan_disconnect",
    "slug",
]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_SLUG: Final = 12
_SECRET: Final = re.compile(
    r"""(?<![\w-])(?<!\$\{)([\w-]*(?:token|key|secret|passw|auth|credential)[\w-]*["']?[ ]*[:=][ ]*)(?!["']?[${\[])(?:"[^"]+"|'[^']+'|[^\s"',]+)""",
    re.IGNORECASE,
)
"""A value under a name that is usual for secrets, but not a reference or a table."""


@frozen
class ConnectTarget:
    """The place of one entry: the client, the scope and the name of the server."""

    client: KnownClient
    scope: str
    name: str
    root: Path
    """The served project."""

    @property
    def path(self) -> list[str]:
        """The path of the entry in the file."""
        return [*self.client.key, self.name]

    def file(self, machine: Machine) -> Path:
        """The client's file. Raises `ProwessError` for a scope that the client does not have."""
        if self.scope not in self.client.files:
            usual = self.client.usual_scope
            raise ProwessError(f"{self.client.title} has no settings of a {self.scope}: use --scope {usual}")
        return self.client.file(machine, self.root, self.scope)


@frozen
class FileChange:
    """The planned change of one file."""

    target: ConnectTarget
    file: Path
    before: Document
    after: bytes | None
    """The new content; `None` if the file is to be deleted."""
    launch: Launch | None
    """The command that the client will start; `None` when disconnecting."""
    record: Record | None
    """The ledger's record of the entry."""

    @property
    def changes(self) -> bool:
        """Whether the plan changes anything."""
        return self.after is None or self.after != self.before.content

    def diff(self) -> list[str]:
        """The change as a unified diff. Values that look like secrets are masked, also those of other servers."""
        before, after = _lines(self.before.content), _lines(self.after or b"")
        old = str(self.file) if self.before.exists else "/dev/null"
        new = "/dev/null" if self.after is None else str(self.file)
        return [_SECRET.sub(r'\1"…"', line) for line in difflib.unified_diff(before, after, old, new, lineterm="")]


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8-sig").splitlines()


def slug(root: Path) -> str:
    """A short name for a project that every client accepts as the name of a server."""
    words = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")
    return words[:_SLUG].strip("-") or "skills"


# --- planning -------------------------------------------------------------------------------------


def plan_connect(target: ConnectTarget, launch: Launch, machine: Machine, ledger: Ledger) -> FileChange:
    """Plan to connect. Raises `ClientFileError` or `ProwessError` if that is impossible."""
    client, name = target.client, target.name
    if not _NAME.fullmatch(name):
        raise ProwessError(f"--name {name!r} must be letters, digits and -: clients cut or refuse other characters")
    file = target.file(machine)
    before = read_document(file, client.format)
    entry = before.entry(target.path)
    if entry is not None:
        _check_ours(target, file, entry)
    after = before.put(target.path, client.shape.merged(entry, launch, name))
    return FileChange(target, file, before, after.content, launch, ledger.find(file, name))


def _check_ours(target: ConnectTarget, file: Path, entry: Any) -> None:
    """Refuse to overwrite an entry that Prowess did not write."""
    name, root = target.name, target.root
    launch = target.client.shape.read(entry)
    other = f"{slug(root)}-skills" if slug(root) == name else slug(root)
    if launch is None or not launch.is_host:
        reason = f"its server {name!r} is not a server of Prowess"
        raise ClientFileError(file, reason, f"choose another name: --name {other}")
    if launch.project is not None and not launch.serves(root):
        reason = f"its server {name!r} serves {launch.project}"
        raise ClientFileError(file, reason, f"choose another name: --name {other}")


def plan_disconnect(target: ConnectTarget, machine: Machine, ledger: Ledger) -> FileChange:
    """Plan to disconnect: restore the former file, or remove the entry if the file was edited since."""
    file = target.file(machine)
    before = read_document(file, target.client.format)
    record = ledger.find(file, target.name)
    plan = FileChange(target, file, before, before.content, None, record)
    if before.entry(target.path) is None:
        return plan
    if record is not None and record.written == digest(before.content):
        original = _kept(record)
        if original is not None or record.made_file:
            return replace(plan, after=original)
    after = before.drop(target.path, empty=record is not None and record.made_table)
    is_ours = record is not None and record.made_file and not after.data
    return replace(plan, after=None if is_ours else after.content)


def _kept(record: Record) -> bytes | None:
    try:
        return Path(record.backup).read_bytes() if record.backup else None
    except OSError:
        return None


# --- executing ------------------------------------------------------------------------------------


def execute(plan: FileChange, ledger: Ledger, again: Callable[[], FileChange] | None = None) -> Path | None:
    """Carry out a plan. Returns the backup, if one was made. Raises `ClientFileError` if nothing was changed.

    `again` makes the plan anew for the file as it is now: another `connect` may have written to it since.
    """
    try:
        with ledger.alone():
            return _executed(again() if again is not None else plan, ledger)
    except OSError as error:
        place = error.filename or plan.file
        raise ClientFileError(plan.file, f"cannot be written: {error.strerror} ({place})", _PERMISSIONS) from error


_PERMISSIONS: Final = "check the permissions of the file and its folder, then run the command again"


def _executed(plan: FileChange, ledger: Ledger) -> Path | None:
    if not plan.changes:
        if plan.launch is None and plan.record is not None:
            ledger.forget(plan.record)
        return None
    _check_unchanged(plan)
    return _connect(plan, ledger) if plan.launch is not None else _disconnect(plan, ledger)


def _check_unchanged(plan: FileChange) -> None:
    now = plan.file.read_bytes() if plan.file.exists() else b""
    if now != plan.before.content or plan.file.exists() != plan.before.exists:
        raise ClientFileError(plan.file, "it was changed by another program just now", "run the command again")


def _connect(plan: FileChange, ledger: Ledger) -> Path | None:
    content, known, target = cast("bytes", plan.after), plan.record, plan.target
    backup = back_up(ledger.backups, plan.file, plan.before.content) if plan.before.exists else None
    made = write(plan.file, content)
    record = Record(
        client=target.client.name,
        scope=target.scope,
        name=target.name,
        file=str(plan.file),
        project=str(target.root),
        made_file=made.file,
        made_folders=tuple(map(str, made.folders)),
        made_table=entries_at(plan.before.data, target.client.key) is None,
        backup=str(backup) if backup else None,
        written=digest(content),
    )
    if known is not None and plan.before.entry(target.path) is not None:
        record = _continued(known, record, plan)
    ledger.keep(record)
    return backup


def _continued(known: Record, record: Record, plan: FileChange) -> Record:
    """The record for an entry that is written again. Disconnecting restores the state before the first time."""
    is_untouched = known.written == digest(plan.before.content)
    return replace(
        record,
        made_file=known.made_file,
        made_folders=known.made_folders,
        made_table=known.made_table,
        backup=known.backup if is_untouched else record.backup,
        written=record.written if is_untouched else None,
    )


def _disconnect(plan: FileChange, ledger: Ledger) -> Path | None:
    backup = back_up(ledger.backups, plan.file, plan.before.content)
    record = plan.record
    if plan.after is None:
        remove(plan.file, tuple(map(Path, record.made_folders)) if record else ())
    else:
        write(plan.file, plan.after)
    if record is not None:
        ledger.forget(record)
    return backup


# --- connections ----------------------------------------------------------------------------------


@frozen
class ServerEntry:
    """An entry of ours in a client's file, or a file that cannot be read."""

    client: KnownClient
    scope: str
    file: Path
    name: str = ""
    launch: Launch | None = None
    problem: str | None = None
    is_off: bool = False
    """Whether the user has disabled the server in the client."""


def connections_of(root: Path, machine: Machine, clients: Sequence[KnownClient] = ()) -> Iterator[ServerEntry]:
    """All entries in the clients' files that serve a project, including those that `connect` did not write."""
    for client in clients or CLIENTS.values():
        for scope in client.files:
            file = client.file(machine, root, scope)
            try:
                document = read_document(file, client.format)
            except ClientFileError as error:
                yield ServerEntry(client, scope, file, problem=str(error))
                continue
            servers = document.entry(client.key)
            for name, entry in cast("dict[str, Any]", servers if isinstance(servers, dict) else {}).items():
                launch = client.shape.read(entry)
                if launch is not None and _is_about(launch, root, scope):
                    yield ServerEntry(client, scope, file, name, launch, is_off=_is_off(entry))


def _is_about(launch: Launch, root: Path, scope: str) -> bool:
    """Whether a command serves a project. A host without `--project` in a project's file serves that project."""
    return launch.serves(root) or (launch.is_host and launch.project is None and scope == "project")


def _is_off(entry: dict[str, Any]) -> bool:
    """Whether the entry is disabled, in either of the two spellings of clients."""
    return entry.get("disabled") is True or entry.get("enabled") is False
