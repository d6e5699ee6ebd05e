"""What a hostile skill tries, as a program: it prints by attack whether it got through, and what stopped it.

Each function is one attack, and gives something true if it got through. `test_attacks` runs all of them twice: without
limits, where each has to get through, and with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import importlib.util
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ATTACKS: dict[str, Callable[[], Any]] = {}
WHERE: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
"""The folder `outside` with a `secret`, and the process `victim`."""
_libc = ctypes.CDLL(None, use_errno=True)
_X86 = os.uname().machine == "x86_64"


def attack(function: Callable[[], Any]) -> Callable[[], Any]:
    ATTACKS[function.__name__] = function
    return function


def outside(name: str = "secret") -> Path:
    return Path(WHERE["outside"]) / name


def own(name: str) -> Path:
    return Path(tempfile.gettempdir()) / name


def victim() -> int:
    return int(WHERE["victim"])


def call(x86: int, arm: int, *args: Any, fine: tuple[int, ...] = ()) -> bool:
    """A system call, past every library. An error number in `fine` shows that it was let through, too."""
    whole = [
        ctypes.c_long(each) if isinstance(each, int) else each for each in args
    ]  # else half of a slot is left as it was
    result = _libc.syscall(ctypes.c_long(x86 if _X86 else arm), *whole)
    if result < 0 and ctypes.get_errno() not in fine:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


# --- reading --------------------------------------------------------------------------------------


@attack
def read_a_file() -> Any:
    return outside().read_text()


@attack
def list_a_folder() -> Any:
    return list(outside("..").iterdir())


@attack
def read_by_a_symlink() -> Any:
    own("link").symlink_to(outside())
    return own("link").read_text()


@attack
def read_by_a_hard_link() -> Any:
    own("hard").hardlink_to(outside())
    return own("hard").read_text()


@attack
def read_by_proc_self_root() -> Any:
    return Path(f"/proc/self/root{outside()}").read_text()


@attack
def read_by_proc_self_cwd() -> Any:
    return Path("/proc/self/cwd/.env").read_text()


@attack
def read_by_root_of_another() -> Any:
    return Path(f"/proc/{victim()}/root{outside()}").read_text()


@attack
def read_environment_of_another() -> Any:
    return b"victim" in Path(f"/proc/{victim()}/environ").read_bytes()


@attack
def read_command_of_another() -> Any:
    return Path(f"/proc/{victim()}/cmdline").read_bytes()


@attack
def read_memory_of_another() -> Any:
    with Path(f"/proc/{victim()}/mem").open("rb"):
        return Path(f"/proc/{victim()}/maps").read_text()


@attack
def read_descriptors_of_another() -> Any:
    return Path(f"/proc/{victim()}/fd/0").readlink()


@attack
def read_with_a_relative_path() -> Any:
    os.chdir(outside(".."))
    return Path(outside().parent.name, "secret").read_text()


@attack
def read_after_a_rename() -> Any:
    outside("moved").write_text("x")
    outside("moved").rename(own("moved"))
    return own("moved").read_text()


@attack
def read_by_an_inherited_descriptor() -> Any:
    with contextlib.suppress(OSError):
        return os.pread(int(WHERE["descriptor"]), 100, 0)
    return None


@attack
def watch_files_elsewhere() -> Any:
    fd = _libc.inotify_init1(0)
    return fd >= 0 and _libc.inotify_add_watch(fd, os.fsencode(outside("..")), 2) >= 0


@attack
def delay_everybody_who_opens_a_file() -> Any:
    with Path(__file__).open("rb") as file, contextlib.suppress(BlockingIOError):  # somebody has it open
        return fcntl.fcntl(file, 1024, fcntl.F_RDLCK) == 0
    return True


@attack
def watch_a_folder() -> Any:
    fd = os.open(sysconfig.get_path("stdlib"), os.O_RDONLY)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    return fcntl.fcntl(fd, 1026, 1) == 0


@attack
def open_by_a_handle() -> Any:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    return call(303, 264, -100, os.fsencode(outside()), handle, ctypes.byref(ctypes.c_int()), 0)


@attack
def read_an_attribute() -> Any:
    return os.getxattr(outside(), "user.note")


@attack
def list_attributes() -> Any:
    return os.listxattr(outside())


# --- writing --------------------------------------------------------------------------------------


@attack
def write_a_new_file() -> Any:
    return outside("new").write_text("x")


@attack
def write_an_old_file() -> Any:
    return outside("old").write_text("changed")


@attack
def append_by_a_symlink() -> Any:
    own("to_old").symlink_to(outside("old"))
    with own("to_old").open("a") as file:
        return file.write("x")


@attack
def truncate_a_file() -> Any:
    os.truncate(outside("old"), 0)
    return True


@attack
def remove_a_file() -> Any:
    outside("removable").unlink()
    return True


@attack
def make_a_folder() -> Any:
    outside("folder").mkdir()
    return True


@attack
def make_a_link_elsewhere() -> Any:
    outside("link").symlink_to("/etc/passwd")
    return True


@attack
def rename_outwards() -> Any:
    own("mine").write_text("x")
    own("mine").rename(outside("theirs"))
    return True


@attack
def change_a_mode() -> Any:
    with contextlib.suppress(OSError):
        outside("old").chmod(0o123)
    return outside("old").stat().st_mode & 0o777 == 0o123


@attack
def change_times() -> Any:
    with contextlib.suppress(OSError):
        os.utime(outside("old"), (1, 1))
    return outside("old").stat().st_mtime == 1


@attack
def change_an_owner() -> Any:
    os.chown(outside("old"), os.getuid(), os.getgid())
    return True


@attack
def write_beside_the_skill() -> Any:
    file = Path(__file__).with_name("another.py")
    file.write_text("")
    file.unlink()
    return True


@attack
def change_the_skill() -> Any:
    with Path(__file__).open("a") as file:
        return file.write("\n")


@attack
def write_into_the_settings() -> Any:
    with Path("/proc/self/cwd/prowess.toml").resolve().open("a") as file:
        return file.write("\n")


@attack
def write_what_python_starts_with() -> Any:
    """A line in such a file runs in every process that this Python starts, the host included."""
    file = Path(sysconfig.get_path("purelib"), f"prowess_attack_{os.getpid()}.pth")
    file.write_text("")
    file.unlink()
    return True


@attack
def write_bytecode_of_a_library() -> Any:
    cached = Path(str(importlib.util.find_spec("json").cached))  # type: ignore[union-attr]
    with cached.open("r+b") as file:
        return file.fileno()


@attack
def leave_the_control_group() -> Any:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if ":pids:" in line:
            own = Path("/sys/fs/cgroup/pids", line.rpartition(":")[2].lstrip("/"))
            return Path(own if len(own.parts) <= 5 else own.parent, "cgroup.procs").write_text(str(os.getpid()))
    return None


@attack
def spare_itself_when_memory_is_short() -> Any:
    return Path("/proc/self/oom_score_adj").write_text("0")


@attack
def use_a_terminal() -> Any:
    """Another program would read what is pushed into it."""
    return os.openpty()


@attack
def message_queue() -> Any:
    name = f"/prowess-{os.getpid()}".encode()
    return call(240, 180, name[1:], os.O_CREAT | os.O_RDWR, 0o600, 0) and call(241, 181, name[1:])


@attack
def write_shared_memory() -> Any:
    name = Path(f"/dev/shm/prowess-{os.getpid()}")
    name.write_text("x")
    name.unlink()
    return True


@attack
def write_into_descriptors_of_another() -> Any:
    with Path(f"/proc/{victim()}/fd/0").open("rb") as file:
        return file.fileno()


# --- the network ----------------------------------------------------------------------------------


@attack
def connect_tcp() -> Any:
    with socket.create_connection(("127.0.0.1", WHERE["port"]), timeout=60):
        return True


@attack
def connect_tcp_6() -> Any:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM):
        return True


@attack
def listen_on_tcp() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()


@attack
def send_udp() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sock.sendto(b"x", ("127.0.0.1", WHERE["port"]))


@attack
def connect_a_unix_socket() -> Any:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(WHERE["unix"])
        return True


@attack
def connect_an_abstract_socket() -> Any:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(WHERE["abstract"])
        return True


@attack
def listen_on_a_unix_socket() -> Any:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(own("listening")))
        sock.listen()
        return True


@attack
def send_a_datagram_from_a_pair() -> Any:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", WHERE["datagrams"])
    return True


@attack
def open_netlink() -> Any:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0):
        return True


@attack
def open_vsock_or_crypto() -> Any:
    for family, kind in ((38, socket.SOCK_SEQPACKET), (40, socket.SOCK_STREAM), (17, socket.SOCK_DGRAM)):
        with contextlib.suppress(OSError), socket.socket(family, kind):
            return True
    return None


@attack
def resolve_a_name() -> Any:
    return socket.getaddrinfo("localhost", 80)


# --- other processes ------------------------------------------------------------------------------


@attack
def send_a_signal() -> Any:
    os.kill(victim(), signal.SIGCONT)
    return True


@attack
def send_a_signal_to_a_group() -> Any:
    os.kill(-os.getpgid(victim()), signal.SIGCONT)
    return True


@attack
def send_a_signal_to_a_thread() -> Any:
    return call(234, 131, victim(), victim(), signal.SIGCONT)


@attack
def send_a_signal_by_a_descriptor() -> Any:
    signal.pidfd_send_signal(os.pidfd_open(victim()), signal.SIGCONT)
    return True


@attack
def trace_another() -> Any:
    return call(101, 117, 0x4206, victim(), 0, 0)


def _nothing() -> tuple[Any, ...]:
    """A byte here, and a byte of theirs at an address where nobody has one."""
    byte = ctypes.create_string_buffer(1)
    here, theirs = struct.pack("QQ", ctypes.addressof(byte), 1), struct.pack("QQ", 8, 1)
    return here, 1, theirs, 1, 0


@attack
def read_memory_by_a_call() -> Any:
    return call(310, 270, victim(), *_nothing(), fine=(errno.EFAULT,))


@attack
def write_memory_by_a_call() -> Any:
    return call(311, 271, victim(), *_nothing(), fine=(errno.EFAULT,))


@attack
def take_a_descriptor() -> Any:
    return call(438, 438, os.pidfd_open(victim()), 0, 0)


@attack
def limit_another() -> Any:
    return resource.prlimit(victim(), resource.RLIMIT_CORE, (0, 0))


@attack
def slow_another_down() -> Any:
    os.setpriority(os.PRIO_PROCESS, victim(), 19)
    return True


@attack
def move_another() -> Any:
    os.sched_setaffinity(victim(), os.sched_getaffinity(0))
    return True


@attack
def fork() -> Any:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return True


@attack
def run_a_program() -> Any:
    return subprocess.run(["/bin/cat", str(outside())], capture_output=True, check=True).stdout


# --- the kernel -----------------------------------------------------------------------------------


@attack
def new_namespace_with_a_process() -> Any:
    result = _libc.syscall(ctypes.c_long(56 if _X86 else 220), 0x20000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
    return result > 0


@attack
def new_process_by_clone3() -> Any:
    arguments = struct.pack("8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    result = _libc.syscall(ctypes.c_long(435), arguments, len(arguments))
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
    return result > 0


@attack
def keep_descriptors_from_the_host() -> Any:
    return call(436, 436, 1000, 1001, 2)  # CLOSE_RANGE_UNSHARE


@attack
def mount() -> Any:
    """Of a kind that does not exist: nothing is mounted where it is let through."""
    return call(165, 40, b"none", os.fsencode(tempfile.mkdtemp()), b"no such kind", 0, 0, fine=(errno.ENODEV,))


@attack
def change_root() -> Any:
    return call(161, 51, b"/")


@attack
def io_uring() -> Any:
    return call(425, 425, 1, bytes(120))


@attack
def keys_of_the_user() -> Any:
    return call(250, 219, 0, -4, 1)


@attack
def shared_memory_by_number() -> Any:
    return call(29, 194, 0, 4096, 0o1600)


@attack
def handle_faults_of_pages() -> Any:
    return call(323, 282, 1)


@attack
def compare_another() -> Any:
    return call(312, 272, os.getpid(), victim(), 1, 0, 0)


@attack
def read_the_log_of_the_kernel() -> Any:
    return call(103, 116, 10, 0, 0)


@attack
def watch_performance() -> Any:
    return call(298, 241, struct.pack("IIQ", 1, 112, 1) + bytes(96), 0, -1, -1, 0)


@attack
def a_file_without_a_name() -> Any:
    return os.memfd_create("x")


@attack
def become_another_user() -> Any:
    os.setresuid(os.getuid(), os.geteuid(), os.getuid())
    return True


@attack
def hide_from_the_host() -> Any:
    return _libc.prctl(4, 0, 0, 0, 0) == 0 and not _libc.prctl(3, 0, 0, 0, 0)


@attack
def use_the_powers_of_root() -> Any:
    os.mknod(own("device"), 0o600 | 0o020000, os.makedev(1, 11))
    return True


@attack
def powers_are_left() -> Any:
    status = dict(line.split(":", 1) for line in Path("/proc/thread-self/status").read_text().splitlines())
    return int(status["CapEff"], 16) or int(status["CapPrm"], 16)


@attack
def drop_the_filter() -> Any:
    """Whatever a process asks for by prctl, what was refused before is refused after it."""
    for option, value in ((22, 0), (38, 0), (28, 0), (8, 1)):
        _libc.prctl(option, value, 0, 0, 0)
    return outside().read_text()


@attack
def loosen_a_limit() -> Any:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1025, 1025))
    return True


@attack
def new_user_namespace() -> Any:
    return call(272, 97, 0x10000000)


def _results() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, function in ATTACKS.items():
        try:
            found[name] = "through" if function() else "nothing"
        except BaseException as error:  # noqa: BLE001
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    print(json.dumps(_results()))
