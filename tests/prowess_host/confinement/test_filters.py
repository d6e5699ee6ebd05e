"""The filter of system calls, run by a small copy of the kernel's filter machine: so it is tested for every processor."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from prowess.settings.limits import Limits
from prowess_host.confinement.filters import MACHINES, OWN_PID, Architecture, filter_for

ALLOWED, KILLED, ASKED = "allowed", "killed", "asked"
X86, ARM = MACHINES["x86_64"], MACHINES["aarch64"]
BOTH = pytest.mark.parametrize("machine", [X86, ARM], ids=["x86_64", "aarch64"])


def answer(program: bytes, number: int, *args: int, audit: int) -> str | int:
    """What the kernel does with a system call: it allows it, ends the process, or gives an error number."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, audit, 0, *(*args, 0, 0, 0, 0, 0, 0)[:6])
    steps = [struct.unpack_from("<HBBI", program, offset) for offset in range(0, len(program), 8)]
    value = at = 0
    while True:
        code, true, false, operand = steps[at]
        at += 1
        if code == 0x20:
            value = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x54:
            value &= operand
        elif code == 0x06:
            kinds = {0x7FFF0000: ALLOWED, 0x80000000: KILLED, 0x7FC00000: ASKED}
            return kinds.get(operand & 0xFFFF0000, operand & 0xFFFF)
        else:
            holds = {0x15: value == operand, 0x25: value > operand, 0x45: bool(value & operand)}[code]
            at += true if holds else false


def asked(limits: Limits, machine: Architecture, pair: tuple[int, int], *args: int, scoped: bool = True) -> str | int:
    return answer(filter_for(limits, machine, scoped=scoped), pair[machine.column], *args, audit=machine.audit)


READ, OPENAT, FUTEX, EXECVE = (0, 63), (257, 56), (202, 98), (59, 221)
CLONE, SOCKET, SOCKETPAIR, SENDTO = (56, 220), (41, 198), (53, 199), (44, 206)


@BOTH
@pytest.mark.parametrize("pair", [READ, OPENAT, FUTEX, EXECVE])
def test_ordinary_calls_are_allowed(machine: Architecture, pair: tuple[int, int]) -> None:
    """What a file is for is the business of Landlock."""
    assert asked(Limits(), machine, pair) == ALLOWED


@BOTH
def test_calls_of_another_processor_are_fatal(machine: Architecture) -> None:
    """32-bit programs have other numbers for the same calls."""
    for other in (0x40000003, 0x40000028, X86.audit ^ ARM.audit ^ machine.audit):
        assert answer(filter_for(Limits(), machine), 1, audit=other) == KILLED


@BOTH
@pytest.mark.parametrize("number", [463, 999, 0x40000000, 0x40000000 + 41, 0xFFFFFFFF])
def test_unknown_numbers_do_not_exist(machine: Architecture, number: int) -> None:
    """Those of later kernels, and those of the x32 mode."""
    assert answer(filter_for(Limits(network=True), machine), number, audit=machine.audit) == errno.ENOSYS


@BOTH
@pytest.mark.parametrize(
    "pair",
    [
        *((101, 117), (310, 270), (311, 271), (438, 438), (250, 219), (272, 97), (308, 268), (165, 40), (161, 51)),
        *((321, 280), (298, 241), (323, 282), (304, 265), (319, 279), (29, 194), (68, 186), (240, 180), (117, 147)),
        *((93, 55), (188, 5), (294, 26), (300, 262), (440, 440), (312, 272), (443, 443), (246, 104), (175, 105)),
    ],
)
def test_ways_around_are_refused(machine: Architecture, pair: tuple[int, int]) -> None:
    """Also with all that a skill can be given."""
    assert asked(Limits(network=True, processes=99), machine, pair) == errno.EPERM


@BOTH
@pytest.mark.parametrize("pair", [(91, 52), (268, 53), (452, 452), (280, 88)])
def test_modes_and_times_stay_as_they_are(machine: Architecture, pair: tuple[int, int]) -> None:
    """It is no error, since every copy of a file ends with these calls."""
    assert asked(Limits(), machine, pair) == 0


@BOTH
@pytest.mark.parametrize("pair", [(191, 8), (192, 9), (193, 10), (194, 11), (195, 12), (196, 13)])
def test_files_have_no_attributes(machine: Architecture, pair: tuple[int, int]) -> None:
    """As in a file system without any, which every copy of a file expects."""
    assert asked(Limits(), machine, pair) == errno.ENOTSUP


@BOTH
@pytest.mark.parametrize("pair", [(435, 435), (425, 425), (426, 426), (427, 427)])
def test_calls_with_hidden_arguments_do_not_exist(machine: Architecture, pair: tuple[int, int]) -> None:
    """So libraries go on with the older ones."""
    assert asked(Limits(network=True, processes=9), machine, pair) == errno.ENOSYS


@BOTH
def test_threads_are_allowed_and_processes_if_the_limits_say_so(machine: Architecture) -> None:
    """The C library starts both with one call."""
    thread, process, namespace = 0x003D0F00, 17, 0x10000000 | 17

    assert asked(Limits(), machine, CLONE, thread) == ALLOWED
    assert asked(Limits(), machine, CLONE, process) == errno.EPERM
    assert asked(Limits(processes=1), machine, CLONE, process) == ALLOWED
    assert asked(Limits(processes=1), machine, CLONE, namespace) == errno.EPERM


@BOTH
@pytest.mark.parametrize("processes", [0, 1])
def test_threads_share_their_descriptors(machine: Architecture, processes: int) -> None:
    """The host measures files without names by the descriptors of a process."""
    limits, without_files, close_range = Limits(processes=processes), 0x003D0F00 & ~0x400, (436, 436)

    assert asked(limits, machine, CLONE, without_files) == errno.EPERM
    assert asked(limits, machine, close_range, 3, 9, 2) == errno.EPERM
    assert asked(limits, machine, close_range, 3, 9, 4) == ALLOWED


@pytest.mark.parametrize("number", [57, 58])
def test_old_ways_to_start_a_process_are_refused(number: int) -> None:
    """They exist on x86 only."""
    assert answer(filter_for(Limits(), X86), number, audit=X86.audit) == errno.EPERM
    assert answer(filter_for(Limits(processes=1), X86), number, audit=X86.audit) == ALLOWED


@BOTH
def test_no_network_leaves_pairs_of_streams(machine: Architecture) -> None:
    """An event loop needs one, and it leads nowhere else."""
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16, 17, 38, 40):
        assert asked(Limits(), machine, SOCKET, family, socket.SOCK_STREAM) == errno.EPERM
    for pair in ((42, 203), (49, 200), (50, 201)):
        assert asked(Limits(), machine, pair, 3) == errno.EPERM
    assert asked(Limits(), machine, SENDTO, 3, 0, 1, 0, 0, 0) == ALLOWED
    assert asked(Limits(), machine, SENDTO, 3, 0, 1, 0, 0x1000, 16) == errno.EPERM
    assert asked(Limits(), machine, SENDTO, 3, 0, 1, 0, 0x100000000, 16) == errno.EPERM


@BOTH
@pytest.mark.parametrize("network", [True, False])
def test_pairs_of_datagrams_are_refused(machine: Architecture, *, network: bool) -> None:
    """One can be sent to any other socket of this machine."""
    limits = Limits(network=network)

    for flags in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK):
        assert asked(limits, machine, SOCKETPAIR, socket.AF_UNIX, socket.SOCK_STREAM | flags) == ALLOWED
        assert asked(limits, machine, SOCKETPAIR, socket.AF_UNIX, socket.SOCK_SEQPACKET | flags) == ALLOWED
        assert asked(limits, machine, SOCKETPAIR, socket.AF_UNIX, socket.SOCK_DGRAM | flags) == errno.EPERM
    assert asked(limits, machine, SOCKETPAIR, 30, socket.SOCK_STREAM) == errno.EPERM


@BOTH
def test_network_is_streams_and_datagrams_of_the_internet(machine: Architecture) -> None:
    """And the question which routes there are, which the C library asks."""
    limits = Limits(network=True)

    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM | socket.SOCK_CLOEXEC):
            assert asked(limits, machine, SOCKET, family, kind) == ALLOWED
        assert asked(limits, machine, SOCKET, family, socket.SOCK_RAW, 1) == errno.EPERM
    assert asked(limits, machine, SOCKET, 16, socket.SOCK_RAW, 0) == ALLOWED
    assert asked(limits, machine, SOCKET, 16, socket.SOCK_RAW, 6) == errno.EPERM
    for family in (socket.AF_UNIX, 17, 38, 40, 44):
        assert asked(limits, machine, SOCKET, family, socket.SOCK_STREAM) == errno.EPERM
    assert asked(limits, machine, (42, 203), 3) == ALLOWED


@BOTH
def test_loopback_is_streams_that_the_host_connects(machine: Architecture) -> None:
    """Nothing else makes a connection: no datagrams, no listening, no sending that connects, no options that name routes."""
    limits, connect, setsockopt, fast = Limits(network="loopback"), (42, 203), (54, 208), 0x20000000

    assert asked(limits, machine, connect, 3) == ASKED
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_STREAM | socket.SOCK_NONBLOCK):
            assert [ALLOWED] * 2 == [asked(limits, machine, SOCKET, family, kind, protocol) for protocol in (0, 6)]
            assert asked(limits, machine, SOCKET, family, kind, 262) == errno.EPERM
        assert asked(limits, machine, SOCKET, family, socket.SOCK_DGRAM) == errno.EPERM
    for family in (socket.AF_UNIX, 16, 17, 38, 40, 43):
        assert asked(limits, machine, SOCKET, family, socket.SOCK_STREAM) == errno.EPERM
    for pair in ((49, 200), (50, 201)):
        assert asked(limits, machine, pair, 3) == errno.EPERM
    for pair, place in ((SENDTO, 3), ((46, 211), 2), ((307, 269), 3)):
        assert asked(limits, machine, pair, 3, 0, 0, 0) == ALLOWED
        assert asked(limits, machine, pair, *[0] * place, fast | 1) == errno.EPERM
    assert asked(limits, machine, SENDTO, 3, 0, 1, 0, 0x1000, 16) == errno.EPERM
    for level, option in ((1, 25), (1, 62), (1, 36), (6, 30), (6, 31), (0, 4), (0, 19), (41, 57), (41, 5), (132, 1)):
        assert asked(limits, machine, setsockopt, 3, level, option) == errno.EPERM
    for level, option in ((1, 2), (1, 9), (6, 1), (6, 4)):
        assert asked(limits, machine, setsockopt, 3, level, option) == ALLOWED
    assert asked(limits, machine, (0, 63), 3) == ALLOWED


@BOTH
@pytest.mark.parametrize("pair", [(302, 261), (203, 122), (144, 119), (142, 118), (314, 274)])
def test_a_process_may_change_its_own_pace_only(machine: Architecture, pair: tuple[int, int]) -> None:
    """0 is whoever calls."""
    assert asked(Limits(), machine, pair, 0) == ALLOWED
    assert asked(Limits(), machine, pair, 4711) == errno.EPERM
    assert asked(Limits(), machine, pair, 1 << 32) == errno.EPERM


@BOTH
def test_priority_of_a_user_stays(machine: Architecture) -> None:
    """0 as what is meant by a number: 1 is a group of processes, 2 a user."""
    assert asked(Limits(), machine, (141, 140), 0, 0) == ALLOWED
    assert asked(Limits(), machine, (141, 140), 2, 0) == errno.EPERM
    assert asked(Limits(), machine, (141, 140), 0, 1) == errno.EPERM


@BOTH
def test_prctl_cannot_hide_a_process(machine: Architecture) -> None:
    """Names and death signals are its own business."""
    for option in (4, 35, 36, 59):
        assert asked(Limits(), machine, (157, 167), option) == errno.EPERM
    for option in (1, 15, 22, 38):
        assert asked(Limits(), machine, (157, 167), option) == ALLOWED


@BOTH
def test_signals_are_filtered_where_landlock_does_not_know_them(machine: Architecture) -> None:
    """A process may still end itself, as `abort` does."""
    for pair in ((62, 129), (200, 130), (129, 138), (297, 240), (424, 424)):
        assert asked(Limits(), machine, pair, 1) == ALLOWED
        assert asked(Limits(), machine, pair, 1, scoped=False) == errno.EPERM
    assert asked(Limits(), machine, (234, 131), OWN_PID, scoped=False) == ALLOWED
    assert asked(Limits(), machine, (234, 131), 1, scoped=False) == errno.EPERM


@BOTH
def test_program_is_as_long_as_the_kernel_takes(machine: Architecture) -> None:
    """4096 steps, and a jump of at most 255."""
    assert len(filter_for(Limits(network=True), machine, scoped=False)) < 4096 * 8


@BOTH
def test_files_send_no_signals_where_the_kernel_does_not_keep_them_within(machine: Architecture) -> None:
    """A file may have an owner, which is sent a signal when there is news: any signal, and any process of this user."""
    fcntl, ioctl = (72, 25), (16, 29)
    for pair, commands in ((fcntl, (8, 10, 15)), (ioctl, (0x8901, 0x8902))):
        for command in commands:
            assert asked(Limits(), machine, pair, 3, command, scoped=False) == errno.EPERM
            assert asked(Limits(), machine, pair, 3, command) == ALLOWED
    assert asked(Limits(), machine, fcntl, 3, 3, scoped=False) == ALLOWED


@BOTH
def test_attributes_of_files_stay(machine: Architecture) -> None:
    """Their owner may change them in a file that was opened to be read, and Landlock does not look."""
    subvolumes = (0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4008941A)
    for command in (0x40086602, 0x401C5820, 0x40806685, 0x800C6613, *subvolumes):
        assert asked(Limits(), machine, (16, 29), 3, command) == errno.EPERM
    for command in (0x5401, 0x40049409):  # FICLONE, with which files are copied
        assert asked(Limits(), machine, (16, 29), 1, command) == ALLOWED
