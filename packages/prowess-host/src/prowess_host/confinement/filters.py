"""The seccomp filter of a limited worker: the allowed system calls, as a BPF program.

A pure function from limits to bytes; `launch` installs them. The kernel runs the program at every system call of the worker
and its children, in any language or library. The program sees the number and the arguments, but no memory: it can tell kinds
of sockets apart, but not addresses or paths. `landlock` controls paths.

Numbers are those of the kernel's tables `asm/unistd_64.h` (x86_64) and `asm-generic/unistd.h` (aarch64).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from typing import Final

from prowess.frozen import frozen
from prowess.settings.limits import LOOPBACK, Limits

__all__ = ["MACHINES", "OWN_PID", "Architecture", "filter_for"]


@frozen
class Architecture:
    """A processor architecture: its name in the kernel, and its column in the tables of numbers."""

    audit: int
    column: int


MACHINES: Final = {"x86_64": Architecture(0xC000003E, 0), "aarch64": Architecture(0xC00000B7, 1)}

_LAST_KNOWN: Final = 462
"""The last system call that was reviewed for this filter (mseal). Later ones fail with ENOSYS, and so do those of the x32
mode of x86_64, whose numbers begin at 0x40000000."""

_DENIED: Final[dict[str, tuple[int | None, int | None]]] = {
    # other processes: their memory, descriptors and scheduling
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "ioprio_set": (251, 30),
    # memory and messages that all processes of a user share by name or number
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # keyrings of the user, which may hold passwords
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # other namespaces and file systems, where other rules apply
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # other users: a worker of root owns many files, even without capabilities
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "setgroups": (116, 159),
    # parts of the kernel with past escapes
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    # watching files elsewhere: Landlock does not cover it
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # owners and attributes of files elsewhere: Landlock does not cover them
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
"""System calls that fail with EPERM, whatever their arguments."""

_WITHOUT_EFFECT: Final[dict[str, tuple[int | None, int | None]]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
"""System calls that change modes and times of files. They succeed without effect: Landlock does not cover them, and an error
would break copying and unpacking, which end with these calls."""

_UNSUPPORTED: Final[dict[str, tuple[int | None, int | None]]] = {
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "fgetxattr": (193, 10),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "flistxattr": (196, 13),
}
"""System calls that read attributes of files, also of files elsewhere, because Landlock does not cover them. They fail with
ENOTSUP, as in a file system without attributes, which copying expects."""

_ABSENT: Final[dict[str, tuple[int | None, int | None]]] = {
    "clone3": (435, 435),  # its flags are in memory; the C library falls back to clone
    "io_uring_setup": (425, 425),  # makes other system calls past this filter
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
"""System calls that fail with ENOSYS, so that libraries use another way."""

_SIGNALS: Final[dict[str, tuple[int | None, int | None]]] = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
"""System calls that send signals, filtered if Landlock cannot limit signals to the worker and its children."""

_FORK: Final = (57, None)
_VFORK: Final = (58, None)
_CLONE: Final = (56, 220)
_SOCKET: Final = (41, 198)
_SOCKETPAIR: Final = (53, 199)
_CONNECT: Final = (42, 203)
_BIND: Final = (49, 200)
_LISTEN: Final = (50, 201)
_SENDTO: Final = (44, 206)
_SENDMSG: Final = (46, 211)
_SENDMMSG: Final = (307, 269)
_SETSOCKOPT: Final = (54, 208)
_FCNTL: Final = (72, 25)
_IOCTL: Final = (16, 29)
_PRCTL: Final = (157, 167)
_TGKILL: Final = (234, 131)
_SETPRIORITY: Final = (141, 140)
_OF_A_PROCESS: Final = ((302, 261), (203, 122), (144, 119), (142, 118), (314, 274))
"""prlimit64, sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr, whose first argument is a process. Only 0,
the caller, is allowed."""
_NEW_NAMESPACES: Final = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
_CLONE_THREAD: Final = 0x00010000
_CLONE_FILES: Final = 0x00000400
_CLOSE_RANGE: Final = (436, 436)
_CLOSE_RANGE_UNSHARE: Final = 2
_DENIED_PRCTL: Final = (4, 35, 36, 59)
"""PR_SET_DUMPABLE hides a process from the host. PR_SET_MM changes what a process shows about itself, and
PR_SET_CHILD_SUBREAPER the parents of orphans. PR_SET_SYSCALL_USER_DISPATCH redirects system calls."""
_WATCHING: Final = (1024, 1026)
"""F_SETLEASE delays everybody who opens the file, the host too, by 45 seconds. F_NOTIFY watches a folder."""
_OWNER_BY_FCNTL: Final = (8, 10, 15)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX let the kernel send any signal to any process when a file becomes ready."""
_OWNER_BY_IOCTL: Final = (0x8901, 0x8902)
"""FIOSETOWN and SIOCSPGRP do the same."""
_ATTRIBUTES: Final = (0x40086602, 0x401C5820, 0x40806685, 0x800C6613, 0x40046602)
"""FS_IOC_SETFLAGS (also the 32-bit form), FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY and FS_IOC_SET_ENCRYPTION_POLICY change
files that are open for reading only."""
_SUBVOLUMES: Final = (0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4008941A)
"""BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_DESTROY, their second versions, and SUBVOL_SETFLAGS: they make and delete folders
in one that is open for reading only, which Landlock does not see."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQUENCE = 1, 2, 5
_KIND: Final = 0xF
"""Masks the flags out of a socket type."""

_TCP: Final = 6
_FAST_OPEN: Final = 0x20000000
"""The flag with which sending also connects."""
_OPTIONS: Final[dict[int, tuple[int, ...]]] = {
    1: (25, 36, 62),  # SO_BINDTODEVICE, SO_MARK and SO_BINDTOIFINDEX lead around the routes of loopback
    _TCP: (30, 31),  # TCP_FASTOPEN_CONNECT connects later; TCP_ULP makes another kind of socket of it
}
"""Options of a socket that are refused, by level. Of other levels all are: those of IP can name another way to an address."""

_LD, _JEQ, _JGT, _JSET, _AND, _RET = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL, _ASK = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16


OWN_PID: Final = 0x7EADBEEF
"""A placeholder in the program for the process id of the worker, which `launch` fills in."""


def filter_for(limits: Limits, machine: Architecture, *, scoped: bool = True) -> bytes:
    """The program for a worker. Unless Landlock limits signals (`scoped`), the worker may send them only to itself."""
    program = _Program(machine)
    program.test(_JEQ, machine.audit, then=[], otherwise=[(_RET, _KILL)], load=_ARCH)  # calls of another architecture
    program.load(_NUMBER)
    program.test(_JGT, _LAST_KNOWN, then=[(_RET, _ERRNO | errno.ENOSYS)])
    for table, code in (
        (_DENIED, errno.EPERM),
        (_WITHOUT_EFFECT, 0),
        (_UNSUPPORTED, errno.ENOTSUP),
        (_ABSENT, errno.ENOSYS),
    ):
        program.answer(table.values(), code)
    if not scoped:
        program.answer(_SIGNALS.values(), errno.EPERM)
        program.when(_TGKILL, _unless_equal(0, OWN_PID))
    program.when(_FCNTL, _if_any(1, (*_WATCHING, *(() if scoped else _OWNER_BY_FCNTL))))
    program.when(_IOCTL, _if_any(1, (*_ATTRIBUTES, *_SUBVOLUMES, *(() if scoped else _OWNER_BY_IOCTL))))
    for number in _OF_A_PROCESS:
        program.when(number, _unless_equal(0, 0))
    program.when(_SETPRIORITY, [*_unless_equal(0, 0), *_unless_equal(1, 0)])
    program.when(_PRCTL, _if_any(0, _DENIED_PRCTL))
    _processes(program, limits)
    _sockets(program, limits)
    return program.whole()


def _processes(program: _Program, limits: Limits) -> None:
    program.when(_CLONE, [(_LD, _argument(0)), (_JSET, _NEW_NAMESPACES, 0, 1), _REFUSE])
    # A thread with descriptors of its own could hide files from the host, which measures those of the process.
    program.when(_CLONE, [(_LD, _argument(0)), (_JSET, _CLONE_THREAD, 0, 2), (_JSET, _CLONE_FILES, 1, 0), _REFUSE])
    program.when(_CLOSE_RANGE, [(_LD, _argument(2)), (_JSET, _CLOSE_RANGE_UNSHARE, 0, 1), _REFUSE])
    if not limits.processes:
        program.answer((_FORK, _VFORK), errno.EPERM)
        program.when(_CLONE, [(_LD, _argument(0)), (_JSET, _CLONE_THREAD, 1, 0), _REFUSE])


def _sockets(program: _Program, limits: Limits) -> None:
    # A pair of stream sockets is not a network. Datagram sockets of a pair could send elsewhere.
    program.when(
        _SOCKETPAIR,
        [
            *_unless_equal(0, _UNIX),
            (_LD, _argument(1)),
            (_AND, _KIND),
            (_JEQ, _STREAM, 2, 0),
            (_JEQ, _SEQUENCE, 1, 0),
            _REFUSE,
        ],
    )
    if not limits.network:
        program.answer((_SOCKET, _CONNECT, _BIND, _LISTEN), errno.EPERM)
        program.when(_SENDTO, _unless_equal(4, 0))
        return
    if limits.network == LOOPBACK:
        _connections(program)
        return
    program.when(
        _SOCKET,
        [
            (_LD, _argument(0)),
            (_JEQ, _INET, 3, 0),
            (_JEQ, _INET6, 2, 0),
            (_JEQ, _NETLINK, 6, 0),
            _REFUSE,
            (_LD, _argument(1)),  # internet: streams and datagrams, no raw sockets
            (_AND, _KIND),
            (_JEQ, _STREAM, 5, 0),
            (_JEQ, _DATAGRAM, 4, 0),
            _REFUSE,
            (_LD, _argument(2)),  # the routing table, which the C library reads
            (_JEQ, 0, 1, 0),
            _REFUSE,
        ],
    )


def _connections(program: _Program) -> None:
    """Streams to this machine: the host makes each connection (`loopback`), because the filter sees no addresses."""
    program.when(
        _SOCKET,
        [
            (_LD, _argument(0)),
            (_JEQ, _INET, 2, 0),
            (_JEQ, _INET6, 1, 0),
            _REFUSE,
            (_LD, _argument(1)),
            (_AND, _KIND),
            (_JEQ, _STREAM, 1, 0),
            _REFUSE,
            (_LD, _argument(2)),
            (_JEQ, 0, 2, 0),
            (_JEQ, _TCP, 1, 0),
            _REFUSE,
        ],
    )
    program.when(_CONNECT, [(_RET, _ASK)])
    program.answer((_BIND, _LISTEN), errno.EPERM)
    program.when(_SENDTO, [*_unless_equal(4, 0), (_LD, _argument(3)), (_JSET, _FAST_OPEN, 0, 1), _REFUSE])
    program.when(_SENDMSG, [(_LD, _argument(2)), (_JSET, _FAST_OPEN, 0, 1), _REFUSE])
    program.when(_SENDMMSG, [(_LD, _argument(3)), (_JSET, _FAST_OPEN, 0, 1), _REFUSE])
    of_socket, of_tcp = (_if_any(2, options) for options in _OPTIONS.values())
    program.when(
        _SETSOCKOPT,
        [
            (_LD, _argument(1)),
            (_JEQ, 1, 0, len(of_socket) + 1),
            *of_socket,
            (_RET, _ALLOW),
            (_JEQ, _TCP, 0, len(of_tcp) + 1),
            *of_tcp,
            (_RET, _ALLOW),
            _REFUSE,
        ],
    )


_Step = tuple[int, ...]
_REFUSE: Final[_Step] = (_RET, _ERRNO | errno.EPERM)


def _argument(index: int) -> int:
    """The offset of the lower half of an argument. These arguments have 32 bits, and both architectures are little-endian."""
    return _ARGUMENTS + 8 * index


def _unless_equal(index: int, value: int) -> list[_Step]:
    """Refuse any other value of an argument, in both halves."""
    low, high = _argument(index), _argument(index) + 4
    if value:
        return [(_LD, low), (_JEQ, value, 1, 0), _REFUSE]
    return [(_LD, low), (_JEQ, 0, 1, 0), _REFUSE, (_LD, high), (_JEQ, 0, 1, 0), _REFUSE]


def _if_any(index: int, values: Iterable[int]) -> list[_Step]:
    steps: list[_Step] = [(_LD, _argument(index))]
    for value in values:
        steps += [(_JEQ, value, 0, 1), _REFUSE]
    return steps


class _Program:
    """The steps of a BPF program. A jump has the numbers of steps to skip if the test is true and if it is false."""

    def __init__(self, machine: Architecture) -> None:
        self._column = machine.column
        self._steps: list[_Step] = []

    def load(self, offset: int) -> None:
        self._steps.append((_LD, offset))

    def test(
        self, jump: int, value: int, *, then: list[_Step], otherwise: list[_Step] | None = None, load: int | None = None
    ) -> None:
        """Add a comparison, with the steps for true and for false."""
        if load is not None:
            self.load(load)
        skipped = otherwise or []
        if then:
            self._steps += [(jump, value, 0, len(then)), *then]
        if skipped:
            self._steps += [(jump, value, len(skipped), 0), *skipped]

    def answer(self, numbers: Iterable[tuple[int | None, int | None]], code: int) -> None:
        """Let system calls fail with an error number; 0 means success without effect."""
        for pair in numbers:
            number = pair[self._column]
            if number is not None:
                self._steps += [(_JEQ, number, 0, 1), (_RET, _ERRNO | code)]

    def when(self, pair: tuple[int | None, int | None], steps: list[_Step]) -> None:
        """Add steps for the arguments of a system call. If they do not refuse it, the next rule follows."""
        number = pair[self._column]
        if number is not None:
            self._steps += [(_JEQ, number, 0, len(steps) + 1), *steps, (_LD, _NUMBER)]

    def whole(self) -> bytes:
        """The complete program, which ends by allowing the call."""
        packed = (step if len(step) == 4 else (*step, 0, 0) for step in (*self._steps, (_RET, _ALLOW)))
        return b"".join(struct.pack("<HBBI", code, true, false, value) for code, value, true, false in packed)
