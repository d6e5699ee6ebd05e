"""Connects the sockets of a worker with `network = "loopback"`: the host does it, and only to this machine.

The kernel stops every `connect` of the worker and notifies the host. The host copies the address once, checks it, and
connects the worker's socket to its copy, so that later changes by the worker have no effect. The system call of the worker
itself never runs. It fails if the host is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import ipaddress
import os
import select
import socket
import struct
import threading
from pathlib import Path
from typing import Final

from prowess.daemons import NO_THREAD, start_thread

__all__ = ["Connections", "is_loopback", "why_not"]

_MOST: Final = 64
"""Connections of one worker that are made at the same time, each in a thread."""
_MOST_ADDRESS: Final = 128
"""The bytes of a `sockaddr_storage`."""
_NOTICE: Final = struct.Struct("=QIIiIQ6Q")
"""A notification of the kernel: id, thread, flags, then the system call: number, architecture, address, arguments."""
_ANSWER: Final = struct.Struct("=QqiI")
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_PIDFD_GETFD: Final = 438
_libc = ctypes.CDLL(None, use_errno=True)


def is_loopback(address: bytes) -> bool:
    """Whether a `sockaddr` is a port on the loopback interface."""
    if len(address) < 2:
        return False
    family = int.from_bytes(address[:2], "little")
    if family == socket.AF_INET and len(address) >= 8:
        return ipaddress.IPv4Address(address[4:8]).is_loopback
    if family == socket.AF_INET6 and len(address) >= 24:
        found = ipaddress.IPv6Address(address[8:24])
        return (found.ipv4_mapped or found).is_loopback
    return False


@functools.cache
def why_not() -> str:
    """Why this system does not let a host connect the sockets of its workers; empty if it does."""
    with contextlib.suppress(OSError):
        if int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text("ascii")) > 1 and os.geteuid():
            return "kernel.yama.ptrace_scope keeps the host from reading the addresses that its worker connects to"
    try:
        own = os.pidfd_open(os.getpid())
        try:
            os.close(_copy(own, own))
        finally:
            os.close(own)
    except OSError as error:
        return f"the system does not let the host take a socket of its worker ({error.strerror})"
    return ""


def _copy(process: int, descriptor: int) -> int:
    """A descriptor of another process."""
    found = int(_libc.syscall(ctypes.c_long(_PIDFD_GETFD), process, ctypes.c_int(descriptor), 0))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


class Connections:
    """Makes the connections of one worker. The launcher of the worker sends the notifying descriptor over `theirs`."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._free = threading.BoundedSemaphore(_MOST)
        if start_thread("prowess-connections", self._serve) is None:
            raise OSError(errno.EAGAIN, NO_THREAD)

    @property
    def theirs(self) -> int:
        """The descriptor for the launcher."""
        return self._theirs.fileno()

    def close(self) -> None:
        """Stop, because the worker has ended."""
        self._theirs.close()

    def _serve(self) -> None:
        """Handle notifications in a thread until the worker has ended."""
        with self._ours:
            _, found, _, _ = socket.recv_fds(self._ours, 1, 1)
            if not found:
                return
            listener = found[0]
            try:
                poll = select.poll()
                poll.register(listener, select.POLLIN)
                poll.register(self._ours, select.POLLIN)
                while [(listener, select.POLLIN)] == poll.poll():
                    self._receive(listener)
            finally:
                os.close(listener)

    def _receive(self, listener: int) -> None:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError:  # the asking thread has ended meanwhile
            return
        number = _NOTICE.unpack(notice)[0]
        if not self._free.acquire(blocking=False):
            _answer(listener, number, errno.EAGAIN)
            return
        try:
            copy, address = _taken(listener, bytes(notice))
        except OSError as error:
            self._free.release()
            _answer(listener, number, error.errno or errno.EPERM)
            return
        # The listener may be closed before a slow connection is made: the thread has its own.
        asker = os.dup(listener)
        if start_thread("prowess-connection", self._connect, asker, number, copy, address) is None:
            _answer(asker, number, errno.EAGAIN)
            os.close(copy)
            os.close(asker)
            self._free.release()

    def _connect(self, listener: int, number: int, copy: int, address: bytes) -> None:
        try:
            failed = _libc.connect(copy, address, len(address))
            _answer(listener, number, ctypes.get_errno() if failed else 0)
        finally:
            os.close(copy)
            os.close(listener)
            self._free.release()


def _taken(listener: int, notice: bytes) -> tuple[int, bytes]:
    """A copy of the worker's socket, and the requested address. Raises the `OSError` that the worker gets."""
    number, thread, _, _, _, _, fd, at, size, *_ = _NOTICE.unpack(notice)
    fd, size = fd & 0xFFFFFFFF, size & 0xFFFFFFFF  # the kernel takes these as 32 bits
    if size > _MOST_ADDRESS:
        raise OSError(errno.EINVAL, "an address of this size")
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        status = Path(f"/proc/{thread}/status").read_text("ascii")
        process = os.pidfd_open(int(status.partition("\nTgid:")[2].split(None, 1)[0]))
        try:
            # The thread still waits, so its ids have not been reused.
            fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", number))
            try:
                address = os.pread(memory.fileno(), size, at)
            except (OSError, OverflowError):
                raise OSError(errno.EFAULT, "no address") from None
            if not is_loopback(address):
                raise OSError(errno.EPERM, "not this machine")
            return _copy(process, fd), address
        finally:
            os.close(process)


def _answer(listener: int, number: int, error: int) -> None:
    with contextlib.suppress(OSError):  # the asking thread has ended meanwhile
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, -error, 0))
