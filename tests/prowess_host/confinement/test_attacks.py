"""A hostile skill under limits: every attack gets through without the limits, and none with them."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.prowess_host.confinement.limited import ATTACKS, attack, run

from prowess.settings.limits import MIB, Limits
from prowess_host.confinement.confine import (
    Confinement,
    System,
    Unenforceable,
    filtered_environment,
    remove_left_behind,
    system,
)
from prowess_host.confinement.grants import Grant
from prowess_host.confinement.launch import FAILED, MARK

NAMES = [
    node.name
    for node in ast.parse(ATTACKS.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "attack" for each in node.decorator_list)
]
OF_ROOT = {
    "use_the_powers_of_root",
    "powers_are_left",
    "change_root",
    "open_by_a_handle",
    "leave_the_control_group",
    "read_the_log_of_the_kernel",
    "write_what_python_starts_with",
    "write_bytecode_of_a_library",
}
"""Attacks that need the powers of root to get through at all."""
OF_THE_KERNEL = {
    "read_by_a_hard_link",
    "read_an_attribute",
    "list_attributes",
    "connect_tcp_6",
    "open_vsock_or_crypto",
    "io_uring",
    "new_user_namespace",
    "use_a_terminal",
    "message_queue",
    "handle_faults_of_pages",
    "compare_another",
    "leave_the_control_group",
    "read_the_log_of_the_kernel",
    "watch_performance",
}
"""Attacks that some systems stop for everybody."""
STARTING = {"fork"}
NETWORK = {"connect_tcp", "connect_tcp_6", "listen_on_tcp", "send_udp", "open_netlink", "resolve_a_name"}
SIGNALS = [name for name in NAMES if name.startswith("send_a_signal")]

pytestmark = pytest.mark.skipif(bool(system().lacking(Limits())), reason="this system enforces no limits")


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What becomes of the attacks without limits."""
    return attack(None, tmp_path_factory.mktemp("free"))


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What becomes of them under the limits of a skill that asks for nothing."""
    return attack(Limits(), tmp_path_factory.mktemp("limited"))


@pytest.fixture(scope="module")
def in_a_child(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What becomes of them in a child of a limited process that may have children."""
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    return attack(Limits(processes=8), tmp_path_factory.mktemp("child"), before=shell)


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What becomes of them where the skill has the network."""
    return attack(Limits(network=True), tmp_path_factory.mktemp("connected"))


@pytest.mark.parametrize("name", NAMES)
def test_attack_gets_through_without_limits(name: str, free: dict[str, str]) -> None:
    """Else it would prove nothing that it fails with them."""
    if free[name] != "through" and (name in OF_THE_KERNEL or (name in OF_ROOT and os.geteuid() != 0)):
        pytest.skip(f"this system stops it for everybody: {free[name]}")
    assert free[name] == "through"


@pytest.mark.parametrize("name", NAMES)
def test_attack_fails_under_limits(name: str, limited: dict[str, str]) -> None:
    """The operating system refuses it, or it has no effect."""
    assert limited[name] != "through"


@pytest.mark.parametrize("name", NAMES)
def test_attack_fails_in_a_child(name: str, in_a_child: dict[str, str]) -> None:
    """Children inherit the limits, whatever they are written in."""
    assert (in_a_child[name] == "through") == (name in STARTING)


@pytest.mark.parametrize("name", NAMES)
def test_network_gives_the_internet_and_nothing_else(
    name: str, connected: dict[str, str], free: dict[str, str]
) -> None:
    """Sockets of this machine, such as that of a container engine, stay closed."""
    assert (connected[name] == "through") == (name in NETWORK and free[name] == "through")


@pytest.mark.parametrize("version", [3, 4, 5])
def test_older_kernels_keep_signals_by_the_filter(version: int, tmp_path: Path) -> None:
    """Landlock before version 6 knows nothing of signals."""
    old = System("linux", system().machine, version, system().is_root, system().groups)

    found = attack(Limits(), tmp_path, on=old)

    assert [] == [name for name in NAMES if found[name] == "through"]


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (System("linux", "x86_64", 0), "Landlock 3 is required"),
        (System("linux", "x86_64", 2), "this system has version 2"),
        (System("linux", "riscv64", 7), "riscv64"),
        (System("win32", "AMD64"), "win32"),
        (System("darwin", "arm64"), "sandbox-exec"),
    ],
)
def test_what_cannot_be_enforced_is_refused(there: System, words: str, tmp_path: Path) -> None:
    """With the reason, and with the setting by which the owner accepts that."""
    with pytest.raises(Unenforceable, match=words) as caught:
        Confinement(Grant("a", Limits(), tmp_path), on=there)

    assert "sandbox.unenforced" in str(caught.value)


def test_processes_of_root_need_a_control_group(tmp_path: Path) -> None:
    """The kernel does not count what root starts."""
    there = System("linux", system().machine, system().landlock, is_root=True)

    with pytest.raises(Unenforceable, match="processes = 4"):
        Confinement(Grant("a", Limits(processes=4), tmp_path), on=there)


def test_owner_may_accept_what_is_not_enforced(tmp_path: Path) -> None:
    """What can be enforced still is: resource limits need nothing of the kernel."""
    there = System("linux", "riscv64")

    confinement = Confinement(Grant("a", Limits(), tmp_path, unenforced=True), on=there)
    try:
        assert '"RLIMIT_FSIZE"' in confinement.command(["x"], "python3")[4]
    finally:
        confinement.close()


# --- amounts --------------------------------------------------------------------------------------


def test_memory_is_limited(tmp_path: Path) -> None:
    """More than that is a MemoryError."""
    code = f"""
try:
    held = bytearray({768 * MIB})
except MemoryError:
    print("refused")
"""
    assert run(Limits(memory=512 * MIB), tmp_path / "p", code).stdout == "refused\n"
    assert run(Limits(memory=None), tmp_path / "p", code).stdout == ""


def test_size_of_files_is_limited(tmp_path: Path) -> None:
    """Also of its own temporary files."""
    code = """
import tempfile
with tempfile.TemporaryFile(buffering=0) as file:
    try:
        for _ in range(4):
            file.write(bytes(1024 * 1024))
    except OSError as error:
        print(error.strerror)
"""
    assert run(Limits(file_size=2 * MIB), tmp_path / "p", code).stdout == "File too large\n"
    assert run(Limits(file_size=None), tmp_path / "p", code).stdout == ""


def test_processor_time_is_limited(tmp_path: Path) -> None:
    """An endless loop ends, whoever waits for it."""
    done = run(Limits(cpu=1), tmp_path / "p", "while True: pass")

    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


def test_processes_are_limited(tmp_path: Path) -> None:
    """A fork bomb comes to an end after as many as were allowed, and the threads that a worker may need."""
    code = """
import os, signal
children = []
try:
    for _ in range(500):
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
except OSError as error:
    print(type(error).__name__, len(children))
for child in children:
    os.kill(child, signal.SIGKILL)
"""
    name, count = run(Limits(processes=10), tmp_path / "p", code).stdout.split()

    assert name == "BlockingIOError"
    assert 10 <= int(count) <= 10 + 64


@pytest.mark.skipif(system().memory is None, reason="no control group of memory can be made here")
def test_memory_of_all_processes_together_is_limited(tmp_path: Path) -> None:
    """Each is below the limit of one, and all of them are above it."""
    code = """
import os, signal
children = []
for _ in range(4):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            held = bytearray(os.urandom(1)) * (60 * 1024 * 1024)
            os.write(writing, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    children.append((child, os.read(reading, 1)))
for child, _ in children:
    os.kill(child, signal.SIGTERM)
print(sorted(os.WTERMSIG(os.waitpid(child, 0)[1]) for child, _ in children))
"""
    bare = replace(system(), memory=None)
    limits = Limits(memory=160 * MIB, processes=8)

    assert run(limits, tmp_path / "bare", code, on=bare).stdout == f"{[signal.SIGTERM.value] * 4}\n"
    done = run(limits, tmp_path / "p", code)
    assert "9" in done.stdout or done.returncode == -signal.SIGKILL


MAPPING = """held.append(open('x', 'wb+')); held[-1].write(bytes(100_000)); held[-1].flush()
    held.append(mmap(None, 4096, 1, 2, held[-1].fileno(), 0)); held[-2].close(); os.unlink('x')"""
HIDING = {
    "in many files": "open(f'{number}', 'wb').write(bytes(100_000))",
    "in folders": "os.makedirs(f'{number}/a/b'); open(f'{number}/a/b/c', 'wb').write(bytes(100_000))",
    "in small files": "[open(f'{number}-{each}', 'wb').close() for each in range(30)]",
    "in files without names": "held.append(open('x', 'wb')); held[-1].write(bytes(100_000)); held[-1].flush(); os.unlink('x')",
    "in mappings": pytest.param(
        MAPPING, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can measure them")
    ),
    "in a deep tree": "os.mkdir('d' * 200); os.chdir('d' * 200)",
}


@pytest.mark.parametrize("how", HIDING.values(), ids=HIDING)
def test_temporary_files_are_counted_wherever_they_are(tmp_path: Path, how: str) -> None:
    """Links count once, and files without names as long as they are open."""
    code = f"""
import ctypes, os, tempfile; held = []; os.chdir(tempfile.gettempdir())
mmap = ctypes.CDLL(None).mmap; mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for number in range(60):
    {how}
print(flush=True); input()"""
    confinement = Confinement(Grant("a", Limits(disk=4 * MIB), tmp_path))
    command = confinement.command([sys.executable, "-c", code], sys.executable)
    process = subprocess.Popen(
        command, env=confinement.environment(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert confinement.overfull([process.pid]) == ""
        assert process.stdout
        assert process.stdout.readline()
        assert "allow more with `disk`" in confinement.overfull([process.pid])
    finally:
        process.communicate(b"\n")
        confinement.close()


def test_files_that_come_and_go_hide_no_others(tmp_path: Path) -> None:
    """A file may be gone when its size is asked for."""
    confinement, over = Confinement(Grant("a", Limits(disk=4 * MIB), tmp_path)), threading.Event()
    for number in range(60):
        (confinement.temporary / f"large-{number}").write_bytes(bytes(100_000))

    def churn() -> None:
        while not over.is_set():
            for number in range(20):
                (confinement.temporary / f"small-{number}").touch()
            for number in range(20):
                (confinement.temporary / f"small-{number}").unlink()

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        assert all(confinement.overfull([]) for _ in range(300))
    finally:
        over.set()
        churning.join()
        confinement.close()


@pytest.fixture
def nobody() -> Iterator[int]:
    """The user of the host is not root, which can read everything."""
    before = os.geteuid()
    user = before or 65534
    os.seteuid(user)
    yield user
    os.seteuid(before)


def test_unreadable_folders_hide_nothing_and_are_removed(nobody: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that nobody may list can still be filled."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr(tempfile, "tempdir", base)
        confinement = Confinement(Grant("a", Limits(), Path(base)), on=replace(system(), groups=None, memory=None))
        hidden = confinement.temporary / "hidden"
        hidden.mkdir(0o300)
        (hidden / "file").write_text("x")

        assert confinement.overfull([])
        confinement.close()
        assert not any(Path(base).iterdir())


def test_files_of_a_host_that_was_killed_are_removed(tmp_path: Path) -> None:
    """The next host does that. It touches no folder in use, and nothing that only looks like one."""
    code = f"""
import pathlib, sys
from prowess.settings.limits import Limits
from prowess_host.confinement.confine import Confinement
from prowess_host.confinement.grants import Grant
place = Confinement(Grant("a", Limits(), pathlib.Path({str(tmp_path)!r}))).temporary
(place / "file").write_text("x")
print(place, flush=True)
sys.stdin.read()
"""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (tmp_path / "prowess-limited-link").symlink_to(kept)
    environ, pipe = {**os.environ, "TMPDIR": str(tmp_path)}, subprocess.PIPE
    with (
        subprocess.Popen([sys.executable, "-c", code], env=environ, stdin=pipe, stdout=pipe, text=True) as killed,
        subprocess.Popen([sys.executable, "-c", code], env=environ, stdin=pipe, stdout=pipe, text=True) as living,
    ):
        assert killed.stdout
        assert living.stdout
        left, used = (Path(each.stdout.readline().strip()) for each in (killed, living) if each.stdout)
        killed.kill()
        killed.wait()
        assert (left / "file").exists()
        remove_left_behind(str(tmp_path))
        assert not left.exists()
        assert (used / "file").exists()
        assert (kept / "file").exists()


def test_removal_of_its_files_follows_no_links(tmp_path: Path) -> None:
    """The host removes the folder of a worker with its own permissions."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    code = "import os, sys, tempfile; os.symlink(sys.argv[1], tempfile.gettempdir() + '/link')"

    assert run(Limits(), tmp_path / "p", code, str(kept)).returncode == 0
    assert (kept / "file").exists()


# --- what is left ---------------------------------------------------------------------------------


def test_own_files_and_a_folder_for_temporary_ones_are_there(tmp_path: Path) -> None:
    """So that ordinary code works: copies, archives, and what counts as home."""
    code = """
import json, pathlib, shutil, sqlite3, ssl, subprocess, tempfile, zoneinfo
here = pathlib.Path(__file__)
with tempfile.TemporaryDirectory() as folder:
    shutil.copy2(here, folder)
    shutil.copytree(folder, folder + "/tree")
    shutil.unpack_archive(shutil.make_archive(folder + "/a", "gztar", folder + "/tree"), folder + "/out")
    with sqlite3.connect(folder + "/db") as db:
        db.execute("create table t (x)")
    assert (pathlib.Path(folder) / "out" / here.name).read_text() == here.read_text()
pathlib.Path.home().joinpath(".cache").mkdir()
ssl.create_default_context()
zoneinfo.ZoneInfo("Europe/Berlin")
print("fine", pathlib.Path.home())
"""
    word, home = run(Limits(), tmp_path / "p", code).stdout.split()

    assert word == "fine"
    assert not Path(home).exists()


def test_declared_paths_are_open_and_no_others(tmp_path: Path) -> None:
    """Reading is not writing, and a folder is not its neighbour."""
    root = tmp_path / "p"
    for name in ("data", "out", "other"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text(name)
    code = """
import os, pathlib
for name in ("data", "out", "other"):
    for mode in ("r", "a"):
        try:
            with open(f"{name}/file", mode):
                print(name, mode)
        except PermissionError:
            pass
pathlib.Path("out/new").mkdir()
os.rename("out/file", "out/new/file")
"""
    done = run(Limits(read=("data",), write=("out",)), root, code)

    assert done.stdout.splitlines() == ["data r", "out r", "out a"], done.stderr
    assert (root / "out" / "new" / "file").exists()


@pytest.mark.parametrize("way", ["out/cache", "data/../out/cache", "data/out/cache", "out/../out/cache"])
def test_path_inside_a_writable_one_opens_nothing_more(tmp_path: Path, way: str) -> None:
    """A skill could make it a link to anywhere, and have that opened at the next start; however the path is written."""
    root = tmp_path / "p"
    (root / "out").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "out").symlink_to(root / "out")
    (tmp_path / "secret").write_text("s")
    (root / "out" / "cache").symlink_to(tmp_path / "secret")

    done = run(Limits(read=(way,), write=("out", way)), root, "print(open('out/cache').read())")

    assert "PermissionError" in done.stderr


def test_environment_has_what_is_named_and_what_is_harmless(tmp_path: Path) -> None:
    """Secrets are in the environment of the host."""
    code = "import os; print([os.environ.get(name) for name in ('NAMED', 'SECRET')], 'PATH' in os.environ)"

    assert run(Limits(env=("NAMED",)), tmp_path / "p", code).stdout == "['n', None] True\n"
    assert filtered_environment({"LC_ALL": "C", "API_KEY": "k"}, ()) == {"LC_ALL": "C"}


@pytest.mark.skipif(system().machine != "x86_64", reason="32-bit calls are those of x86")
def test_calls_of_another_processor_end_the_process(tmp_path: Path) -> None:
    """Machine code may make the calls of 32-bit programs, which have other numbers."""
    code = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes([0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3]))  # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() != 0)
"""
    assert run(Limits(), tmp_path / "p", code).returncode == -signal.SIGSYS


def test_nothing_runs_if_a_limit_cannot_be_set(tmp_path: Path) -> None:
    """The launcher fails closed, whatever fails in it."""
    confinement = Confinement(Grant("a", Limits(), tmp_path))
    try:
        command = confinement.command(["/bin/echo", "it runs"], "python3")
    finally:
        confinement.close()
    for broken in (
        "{}",
        command[4].replace('"handled": ', '"handled": 9'),
        command[4].replace('"calls": "', '"calls": "A'),
    ):
        done = subprocess.run([*command[:4], broken, *command[5:]], capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (FAILED, "")
        assert done.stderr.startswith(MARK)
