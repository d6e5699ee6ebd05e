"""Helps test Prowess skills: projects, clients, scripted people, snapshots. Loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prowess_testkit.client import HANDSHAKE as HANDSHAKE
    from prowess_testkit.client import STATELESS as STATELESS
    from prowess_testkit.client import WIRES as WIRES
    from prowess_testkit.client import Client as Client
    from prowess_testkit.client import Payload as Payload
    from prowess_testkit.errors import ContractChanged as ContractChanged
    from prowess_testkit.errors import HostEnded as HostEnded
    from prowess_testkit.errors import ProjectError as ProjectError
    from prowess_testkit.errors import ProtocolError as ProtocolError
    from prowess_testkit.errors import RerunForever as RerunForever
    from prowess_testkit.errors import Unanswered as Unanswered
    from prowess_testkit.memory import connect as connect
    from prowess_testkit.person import CANCEL as CANCEL
    from prowess_testkit.person import DECLINE as DECLINE
    from prowess_testkit.person import Person as Person
    from prowess_testkit.process import ProcessClient as ProcessClient
    from prowess_testkit.process import serve as serve
    from prowess_testkit.project import Project as Project
    from prowess_testkit.snapshots import assert_contract_unchanged as assert_contract_unchanged

__all__ = [
    "CANCEL",
    "DECLINE",
    "HANDSHAKE",
    "STATELESS",
    "WIRES",
    "Client",
    "ContractChanged",
    "HostEnded",
    "Payload",
    "Person",
    "ProcessClient",
    "Project",
    "ProjectError",
    "ProtocolError",
    "RerunForever",
    "Unanswered",
    "assert_contract_unchanged",
    "connect",
    "serve",
]

_HOME = {
    "CANCEL": "person",
    "DECLINE": "person",
    "HANDSHAKE": "client",
    "STATELESS": "client",
    "WIRES": "client",
    "Client": "client",
    "ContractChanged": "errors",
    "HostEnded": "errors",
    "Payload": "client",
    "Person": "person",
    "ProcessClient": "process",
    "Project": "project",
    "ProjectError": "errors",
    "ProtocolError": "errors",
    "RerunForever": "errors",
    "Unanswered": "errors",
    "assert_contract_unchanged": "snapshots",
    "connect": "memory",
    "serve": "process",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        msg = f"module 'prowess_testkit' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"prowess_testkit.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
