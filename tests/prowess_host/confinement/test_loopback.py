"""`network = "loopback"`: a skill reaches servers on this machine, and nothing else, whatever it tries."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from piped import hosted, make_project
from tests.prowess_host.confinement.limited import run

from prowess.settings.limits import Limits
from prowess_host.confinement.confine import Confinement, system
from prowess_host.confinement.grants import Grant
from prowess_host.confinement.loopback import is_loopback

LOOPBACK = Limits(network="loopback")
ELSEWHERE = "192.0.2.1"
"""An address that nobody has, for examples in texts."""
NOWHERE = "255.255.255.255"
"""One that the kernel refuses by itself, so that nothing leaves this machine."""

pytestmark = pytest.mark.skipif(bool(system().lacking(LOOPBACK)), reason="this system cannot enforce that")


@pytest.fixture
def port() -> Iterator[int]:
    """That of a server on this machine."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield server.getsockname()[1]


def raw(address: str) -> bytes:
    """As the kernel is told an address."""
    found = ip_address(address)
    if found.version == 4:
        return socket.AF_INET.to_bytes(2, "little") + bytes(2) + found.packed + bytes(8)
    return socket.AF_INET6.to_bytes(2, "little") + bytes(6) + found.packed + bytes(4)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"])
def test_addresses_of_this_machine(address: str) -> None:
    assert is_loopback(raw(address))


@pytest.mark.parametrize("address", [ELSEWHERE, "0.0.0.0", "126.0.0.1", "::", "2001:db8::1", f"::ffff:{ELSEWHERE}"])
def test_addresses_elsewhere(address: str) -> None:
    assert not is_loopback(raw(address))


@pytest.mark.parametrize(
    "data", [b"", b"\x02", raw("127.0.0.1")[:7], raw("::1")[:23], b"\x01\x00/run/socket", bytes(16)]
)
def test_what_is_no_address_of_the_internet(data: bytes) -> None:
    """Half of one, the name of a socket, and none at all, which would end a connection."""
    assert not is_loopback(data)


TRIES = """
import ctypes, errno, json, socket, struct, sys, threading
port, away, found = int(sys.argv[1]), sys.argv[2], {}
libc = ctypes.CDLL(None, use_errno=True)
local, elsewhere = (struct.pack("=HH4s8x", 2, socket.htons(port), socket.inet_aton(it)) for it in ("127.0.0.1", away))

def tried(name, function):
    try:
        function()
        found[name] = "through"
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, type(error).__name__)

def stream():
    sock = socket.socket()
    sock.setblocking(False)
    return sock

tried("number", lambda: socket.create_connection(("127.0.0.1", port)))
tried("name", lambda: socket.create_connection(("localhost", port)))
tried("waiting", lambda: socket.create_connection(("127.0.0.1", port), timeout=60))
tried("options", lambda: stream().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1))
tried("elsewhere", lambda: stream().connect((away, port)))
tried("mapped", lambda: socket.socket(socket.AF_INET6).connect(("::ffff:" + away, port)))
tried("datagrams", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (away, 9)))
tried("listening", lambda: socket.create_server(("127.0.0.1", 0)))
tried("listening anywhere", lambda: stream().listen())
tried("sending", lambda: stream().sendto(b"x", 0x20000000, (away, 9)))
tried("a message", lambda: stream().sendmsg([b"x"], [], 0x20000000, (away, 9)))
tried("a source route", lambda: stream().setsockopt(0, 4, bytes([131, 7, 4, *socket.inet_aton(away), 0])))
tried("a device", lambda: stream().setsockopt(1, 25, b"lo"))
tried("a socket of another kind", lambda: socket.socketpair()[0].connect("/x"))

def no_address():
    if libc.connect(stream().fileno(), ctypes.c_void_p(8), 16) < 0:
        raise OSError(ctypes.get_errno(), "")

def long_address():
    if libc.connect(stream().fileno(), local + bytes(1000), 1000) < 0:
        raise OSError(ctypes.get_errno(), "")

tried("no address", no_address)
tried("a long address", long_address)

# An address that changes while it is looked at.
shown, over = ctypes.create_string_buffer(local, 16), []

def change():
    while not over:
        ctypes.memmove(shown, elsewhere, 16)
        ctypes.memmove(shown, local, 16)

thread = threading.Thread(target=change)
thread.start()
peers = set()
for _ in range(400):
    with stream() as sock:
        if libc.connect(sock.fileno(), shown, 16) == 0 or ctypes.get_errno() == errno.EINPROGRESS:
            try:
                peers.add(sock.getpeername()[0])
            except OSError:
                peers.add(sock.getsockname()[0])  # on its way: from the address that leads there
over.append(1)
thread.join()
found["peers"] = sorted(peers)
print(json.dumps(found))
"""
THROUGH = {"number", "name", "waiting", "options"}


def results(limits: Limits, folder: Path, port: int, away: str) -> dict[str, Any]:
    done = run(limits, folder / "p", TRIES, str(port), away)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_connections_lead_to_this_machine_and_nowhere_else(tmp_path: Path, port: int) -> None:
    """By number and by name, with and without waiting. Everything else is refused, also in a race with the check."""
    found = results(LOOPBACK, tmp_path, port, ELSEWHERE)

    assert found.pop("peers") == ["127.0.0.1"]
    assert {name for name, told in found.items() if told == "through"} == THROUGH
    refused = {name: told for name, told in found.items() if name not in THROUGH}
    assert refused.pop("no address") == "EFAULT"
    assert refused.pop("a long address") == "EINVAL"
    assert set(refused.values()) == {"EPERM"}


def test_the_same_is_not_refused_with_the_network(tmp_path: Path, port: int) -> None:
    """Else it would prove nothing."""
    found = results(Limits(network=True), tmp_path, port, NOWHERE)

    by_limits = {"elsewhere", "datagrams", "listening", "listening anywhere", "a device"}
    assert [] == [name for name in by_limits if found[name] == "EPERM"]


def test_connections_end_with_the_host(tmp_path: Path, port: int) -> None:
    """Where nobody answers the kernel, it lets no connection through."""
    code = "print(flush=True); input(); import socket; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    confinement = Confinement(Grant("a", LOOPBACK, tmp_path))
    process = subprocess.Popen(
        confinement.command([sys.executable, "-c", f"import sys; {code}", str(port)], sys.executable),
        pass_fds=confinement.inherited,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.readline()
    confinement.close()
    _, told = process.communicate(b"\n")

    assert b"Function not implemented" in told


async def test_skill_reaches_a_server_on_this_machine(tmp_path: Path, port: int) -> None:
    """And is told what it may not do."""
    skill = """
    # /// script
    # [tool.prowess.sandbox]
    # network = "loopback"
    # ///
    import socket

    @skill_command
    def reach(host: str, port: int) -> str:
        with socket.create_connection((host, port), timeout=60) as sock:
            return sock.getpeername()[0]
    """
    async with hosted(make_project(tmp_path / "p", limited=skill)) as host:
        assert "127.0.0.1" == await host.text("limited_reach", host="127.0.0.1", port=port)
        failed = await host.call("limited_reach", host=ELSEWHERE, port=port)
        assert "This skill may only connect to this machine, by TCP" in failed["content"][0]["text"]
