"""Skills with limits in a project: declared in several places, called over the wire, and apart from everything else."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from anyio import fail_after, sleep
from patience import PATIENCE
from piped import Client, hosted, make_project, until, write_skill

from prowess.settings.limits import Limits
from prowess_host.confinement.confine import system
from prowess_host.records.reading import CallFilter, RecordReader

CHANGED = "notifications/tools/list_changed"
pytestmark = pytest.mark.skipif(bool(system().lacking(Limits())), reason="this system enforces no limits")

SKILL = """
    import contextlib
    import json
    import socket
    from pathlib import Path
    from prowess import Settings

    SECRET = os.environ.get("SECRET_OF_ALL", "none")

    @skill_command
    def worker() -> int:
        return os.getpid()

    @skill_command
    def read(path: str) -> str:
        return Path(path).read_text()

    @skill_command
    def write(path: str, text: str = "x") -> int:
        return Path(path).write_text(text)

    @skill_command
    def connect() -> str:
        socket.socket()
        return "connected"

    @skill_command
    def program() -> str:
        return subprocess.run([sys.executable, "--version"], capture_output=True, check=True, text=True).stdout

    @skill_command
    def variable(name: str) -> str:
        return os.environ.get(name, "none")

    @skill_command
    def setting(key: str, settings: Settings) -> str:
        return str(settings.get(key, "none"))

    @skill_command
    def temporary() -> str:
        import tempfile
        name = tempfile.mkdtemp()
        Path(name, "file").write_text("x")
        return name

    @skill_command
    def burn() -> int:
        while True:
            pass

    @skill_command
    def fill() -> str:
        import tempfile
        held = []
        while True:
            held.append(tempfile.NamedTemporaryFile())
            held[-1].write(bytes(1 << 20))
            held[-1].flush()
            time.sleep(0.01)

    @skill_command
    def fill_from_a_daemon() -> str:
        import tempfile
        if not os.fork():
            os.setsid()
            if not os.fork():
                held = [tempfile.TemporaryFile(buffering=0) for _ in range(20)]
                for file in held:
                    file.write(bytes(1 << 20))
                time.sleep(3600)
            os._exit(0)
        os.wait()
        time.sleep(3600)

    @skill_command
    def memory_of(pid: int) -> str:
        for name in ("environ", "mem", "maps", "cmdline", "root/etc/passwd", "cwd/.env", "fd/0"):
            try:
                open(f"/proc/{pid}/{name}", "rb").read(1)
                return name
            except OSError:
                pass
        return "nothing"

    @skill_command
    def forge(text: str, times: int = 1) -> str:
        import stat
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    left, tries = times, 100  # not every socket is one that somebody reads
                    while left and tries:
                        try:
                            os.write(fd, bytes.fromhex(text))
                            left -= 1
                        except BlockingIOError:
                            tries -= 1
                            time.sleep(0.01)
            except OSError:
                pass
        time.sleep(600)

    @skill_command
    def say(text: str) -> str:
        import stat
        for fd in range(3, 64):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    os.write(fd, bytes.fromhex(text))
        return "said"

    @skill_command
    def blame(skill: str) -> str:
        import mmap
        for fd in range(3, 64):
            with contextlib.suppress(OSError, ValueError):
                size = os.fstat(fd).st_size
                if size > 131073:  # the board: which imports go on
                    noted = json.dumps([[1, skill, "a\\u001b[2J"]]).encode()
                    mmap.mmap(fd, size)[131073 : 131073 + len(noted)] = noted
                    os._exit(3)
        return "no board"

    @skill_command
    def shorten() -> str:
        import stat
        found, own = [], os.stat(os.environ["TMPDIR"]).st_dev  # libffi may keep a file there
        for fd in range(3, 64):
            try:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode) and status.st_dev != own:
                    os.ftruncate(fd, 0)
                    found.append(fd)
            except OSError as error:
                if error.errno != 9:
                    found.append(type(error).__name__)
        return " ".join(map(str, found))
"""


def block(*lines: str) -> str:
    """Inline metadata with limits."""
    told = "\n".join(f"    # {line}" for line in ("/// script", "[tool.prowess.sandbox]", *lines, "///"))
    return f"{told}\n{SKILL}"


def wait_for(gate: Path) -> str:
    """Lines with which an import takes until a file is there."""
    return f"    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)\n"


async def refused(host: Client, name: str, /, **arguments: object) -> str:
    told = await host.call(name, **arguments)
    assert told["isError"], told
    return str(told["content"][0]["text"])


async def test_skill_is_limited_by_what_it_declares(tmp_path: Path) -> None:
    """The one beside it is not. Refusals say which limit it was."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    project = make_project(tmp_path / "p", free=SKILL, limited=block())
    async with hosted(project, forked=True) as host:
        assert "s" == await host.text("free_read", path=str(secret))
        assert f"{secret} is not open to this skill: allow it with `read` or `write` in [sandbox.limited]" in (
            await refused(host, "limited_read", path=str(secret))
        )
        assert "connected" == await host.text("free_connect")
        assert "The network is off for this skill: allow it with `network = true`" in await refused(
            host, "limited_connect"
        )
        assert "may start no processes" in await refused(host, "limited_program")
        assert "nothing" == await host.text("limited_memory_of", pid=host.pid)
        assert "nothing" == await host.text("limited_memory_of", pid=int(await host.text("free_worker")))


async def test_folder_declares_limits_in_its_skill_md(tmp_path: Path) -> None:
    """Beside its name and description."""
    project = make_project(tmp_path / "p")
    write_skill(project, "notes/run.py", SKILL)
    front = "---\nname: notes\ndescription: Notes.\nsandbox:\n  network: true\n---\n# Notes\n"
    (project / "skills" / "notes" / "SKILL.md").write_text(front)
    async with hosted(project, forked=True) as host:
        assert "connected" == await host.text("notes_connect")
        assert "# Notes" in await host.text("notes_read", path=str(project / "skills/notes/SKILL.md"))
        await refused(host, "notes_read", path=str(project / "prowess.toml"))


async def test_owner_decides_and_may_change_it(tmp_path: Path) -> None:
    """A saved file counts with the next call, without a new session."""
    settings = "[sandbox.limited]\nnetwork = false\n"
    project = make_project(tmp_path / "p", settings, limited=block("network = true", 'write = ["out"]'))
    (project / "out").mkdir()
    async with hosted(project, forked=True) as host:
        await refused(host, "limited_connect")
        assert "1" == await host.text("limited_write", path=str(project / "out" / "file"))
        (project / "prowess.toml").write_text('cache_dir = "cache"\n[sandbox]\nlimited = false\n')

        with fail_after(PATIENCE):
            while (await host.call("limited_connect")).get("isError"):  # noqa: ASYNC110 - a file watcher tells nobody
                await sleep(0.05)


async def test_file_that_is_half_saved_lifts_no_limit(tmp_path: Path) -> None:
    """The last good version stays in use and in the list, within its limits, also while the whole file is described."""
    project = make_project(tmp_path / "p", free=SKILL, limited=block())
    secret, gate, file = tmp_path / "secret", tmp_path / "gate", project / "skills" / "limited.py"
    secret.touch()
    async with hosted(project, forked=True) as host:
        assert "is not open to this skill" in await refused(host, "limited_read", path=str(secret))
        file.write_text("")
        await host.noted(CHANGED, 1)
        assert "the file is empty" in await host.text("prowess_diagnostics")
        assert "is not open to this skill" in await refused(host, "limited_read", path=str(secret))
        write_skill(project, "limited.py", f"{block()}\n{wait_for(gate)}")
        await host.noted(CHANGED, 2)
        tools = await host.tools()
        assert "prowess_diagnostics" not in tools
        assert "limited_read" in tools
        gate.touch()
        assert "is not open to this skill" in await refused(host, "limited_read", path=str(secret))


TINY = """
    @skill_command
    def version() -> str:
        return {version!r}
"""


async def until_version(host: Client, wanted: str) -> None:
    """Call until a saved version answers."""
    with fail_after(PATIENCE):
        while await host.text("tiny_version") != wanted:  # noqa: ASYNC110 - another process decides
            await sleep(0.05)


async def test_save_without_limits_is_in_use_although_the_last_one_had_broken_limits(tmp_path: Path) -> None:
    """And although it has lost a command, as what is broken loses its commands."""
    limits = "    # /// script\n    # [tool.prowess.sandbox]\n    # {more}\n    # ///\n"
    with_other = TINY.format(version="1") + "\n    @skill_command\n    def other() -> None: ...\n"
    project = make_project(tmp_path, tiny=limits.format(more="") + with_other)
    async with hosted(project, forked=True) as host:
        assert "1" == await host.text("tiny_version")
        write_skill(project, "tiny.py", limits.format(more="memory = 'much'") + with_other)
        await host.noted(CHANGED, 1)
        assert "much" in await host.text("prowess_diagnostics")
        write_skill(project, "tiny.py", TINY.format(version="2"))
        await until_version(host, "2")
        assert {"tiny_version"} == set(await host.tools())


@pytest.mark.parametrize("name", ["prowess.toml", "pyproject.toml"])
async def test_settings_that_are_half_saved_lift_no_limit(tmp_path: Path, name: str) -> None:
    """The former settings count until there are new ones, or no file."""
    table = "sandbox" if name == "prowess.toml" else "tool.prowess.sandbox"
    project = make_project(tmp_path / "p", limited=SKILL)
    (project / "prowess.toml").unlink()
    file, secret = project / name, tmp_path / "secret"
    file.write_text(f"[{table}.limited]\n")
    secret.write_text("s")
    async with hosted(project, env={"PROWESS_CACHE_DIR": str(project / "cache")}, forked=True) as host:
        assert "is not open to this skill" in await refused(host, "limited_read", path=str(secret))
        file.write_text("")
        await host.noted(CHANGED, 1)
        assert f"{file} is empty" in await host.text("prowess_diagnostics")
        assert "is not open to this skill" in await refused(host, "limited_read", path=str(secret))
        file.unlink()
        await host.noted(CHANGED, 2)
        assert "s" == await host.text("limited_read", path=str(secret))


async def test_calls_are_answered_while_a_save_lifts_the_limits(tmp_path: Path) -> None:
    """By the former version, within its limits, until the new one is in use."""
    project = make_project(tmp_path / "p", free=SKILL, limited=block())
    secret, gate, begun = tmp_path / "secret", tmp_path / "gate", tmp_path / "begun"
    secret.write_text("s")
    async with hosted(project, forked=True) as host:
        await refused(host, "limited_read", path=str(secret))
        write_skill(project, "limited.py", f"{SKILL}\n    open({str(begun)!r}, 'w')\n{wait_for(gate)}")
        await until(begun.exists)
        assert "is not open to this skill" in await refused(host, "limited_read", path=str(secret))
        gate.touch()
        with fail_after(PATIENCE):
            while (await host.call("limited_read", path=str(secret)))["isError"]:  # noqa: ASYNC110 - a file watcher tells nobody
                await sleep(0.05)
        assert "s" == await host.text("limited_read", path=str(secret))


async def test_skill_sees_the_variables_and_settings_that_its_limits_name(tmp_path: Path) -> None:
    """Of all others it is told nothing: not by the environment, not by `.env`, and not over the link."""
    named = block('env = ["NAMED", "IN_DOTENV"]', 'settings = ["weather.key"]')
    settings = '[weather]\nkey = "w"\nother = "o"\n[api]\nkey = "a"\n'
    settings += '[environments]\nindex = "https://ada:hush@index.example.com/simple"\n'
    project = make_project(tmp_path / "p", settings, limited=named, free=SKILL)
    (project / ".env").write_text("IN_DOTENV=d\nOTHER=o\n")
    env = {"NAMED": "n", "SECRET_OF_ALL": "s"}
    async with hosted(project, env=env, forked=True) as host:
        for name, free, limited in (
            ("NAMED", "n", "n"),
            ("IN_DOTENV", "d", "d"),
            ("OTHER", "o", "none"),
            ("SECRET_OF_ALL", "s", "none"),
        ):
            assert free == await host.text("free_variable", name=name)
            assert limited == await host.text("limited_variable", name=name)
        for key in ("weather.key", "weather.other", "api.key", "environments.index"):
            limited = "w" if key == "weather.key" else "none"
            assert "none" != await host.text("free_setting", key=key)
            assert limited == await host.text("limited_setting", key=key)
        await refused(host, "limited_read", path=str(project / ".env"))


async def test_limited_skills_share_nothing(tmp_path: Path) -> None:
    """Not even with equal limits: one would read the memory of the other."""
    project = make_project(tmp_path / "p", one=block(), two=block())
    async with hosted(project, forked=True) as host:
        one, two = int(await host.text("one_worker")), int(await host.text("two_worker"))

        assert one != two
        assert "nothing" == await host.text("one_memory_of", pid=two)
        await refused(host, "one_read", path=str(project / "skills" / "two.py"))


def is_there(folder: Path) -> bool:
    return folder.is_dir()


async def test_own_folder_goes_with_the_worker(tmp_path: Path) -> None:
    """What a skill leaves there, nobody else finds."""
    project = make_project(tmp_path / "p", limited=block())
    async with hosted(project, forked=True) as host:
        folder = Path(await host.text("limited_temporary"))
        assert is_there(folder)
        assert str(folder).startswith(tempfile.gettempdir())

    assert not is_there(folder.parent)


async def test_worker_that_a_limit_ends_is_told_as_such(tmp_path: Path) -> None:
    """And the next call has a new one."""
    project = make_project(tmp_path / "p", limited=block("cpu = 3"))
    async with hosted(project, forked=True) as host:
        assert "it had used the processor time of its limits" in await refused(host, "limited_burn")
        assert int(await host.text("limited_worker"))


async def test_disk_is_not_filled(tmp_path: Path) -> None:
    """The kernel limits one file. The host counts the rest, and says why the worker ended."""
    project = make_project(tmp_path / "p", limited=block('disk = "8 MiB"'))
    async with hosted(project, forked=True) as host:
        assert "it had written more than 8388608 bytes of temporary files" in await refused(host, "limited_fill")
        assert int(await host.text("limited_worker"))


async def test_disk_is_not_filled_by_a_process_that_left_the_worker(tmp_path: Path) -> None:
    """Its files have no names, and its parent has ended."""
    project = make_project(tmp_path / "p", limited=block('disk = "8 MiB"', "processes = 4"))
    async with hosted(project, forked=True) as host:
        told = await refused(host, "limited_fill_from_a_daemon")
        assert "it had written more than 8388608 bytes of temporary files" in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("netwrk = true", "unknown limit 'netwrk'; did you mean \"network\"?"),
        ('write = ["."]', "which lets the skill lift its own limits"),
        ('write = ["skills/limited.py"]', "which lets the skill lift its own limits"),
        ('write = ["skills/other.py"]', "which lets the skill lift its own limits"),
        ('write = [".prowess/x"]', "which lets the skill lift its own limits"),
        ('write = ["cache"]', "which lets the skill lift its own limits"),
        ('write = ["cache/environments"]', "which lets the skill lift its own limits"),
        (f"write = [{json.dumps(sysconfig.get_path('purelib'))}]", "which lets the skill lift its own limits"),
        (f"write = [{json.dumps(sysconfig.get_path('scripts'))}]", "which lets the skill lift its own limits"),
        ('write = ["~nobody_of_this_name/x"]', "in the home of an unknown user"),
        ('read = ["~nobody_of_this_name/x"]', "in the home of an unknown user"),
    ],
)
async def test_limits_that_cannot_be_kept_stop_the_skill(tmp_path: Path, line: str, words: str) -> None:
    """It does not run, and the project's own commands do."""
    project = make_project(tmp_path / "p", limited=block(line), free=SKILL)
    async with hosted(project, forked=True) as host:
        assert int(await host.text("free_worker"))
        assert words in await host.text("prowess_diagnostics") if "prowess_diagnostics" in await host.tools() else True
        assert not [tool for tool in await host.tools() if tool.startswith("limited_")]


WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
steps = b"".join(struct.pack("<HBBI", *step) for step in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x00050000 | 38), (6, 0, 0, 0x7FFF0000)))
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Program(4, steps)), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A program that starts another one where Landlock does not exist."""


async def test_owner_may_run_what_cannot_be_enforced(tmp_path: Path) -> None:
    """By a setting of the project, with everything that can be enforced. Else it does not run."""
    text = block('file_size = "1 KiB"')
    refusing = make_project(tmp_path / "refusing", limited=text, free=SKILL)
    accepting = make_project(tmp_path / "accepting", "[sandbox]\nunenforced = true\n", limited=text)
    through = [sys.executable, "-c", WITHOUT_LANDLOCK]
    async with hosted(refusing, through=through) as host:
        assert int(await host.text("free_worker"))
        assert "Landlock 3 is required" in await host.text("prowess_diagnostics")
        assert not [tool for tool in await host.tools() if tool.startswith("limited_")]
    async with hosted(accepting, through=through) as host:
        assert "connected" == await host.text("limited_connect")
        big = await host.call("limited_write", path=str(tmp_path / "big"), text="x" * 2048)
        assert "File too large" in big["content"][0]["text"]


FORGED_RESULT = b'{"content":[]}}\n{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
PROGRESS = b'{"done":0,"total":null,"message":null}'
INFINITE = b'{"content":[],"structuredContent":{"x":1e999}}'
FRAMES = {
    "a result that is no JSON": b"\x16"
    + (1).to_bytes(4)
    + (2).to_bytes(4)
    + len(INFINITE).to_bytes(4)
    + b"{}"
    + INFINITE,
    "a refusal without a reason": b"\x19" + (1).to_bytes(4) + (2).to_bytes(4) + bytes(4) + b"{}",
    "a result that ends the line": b"\x16"
    + (1).to_bytes(4)
    + (2).to_bytes(4)
    + len(FORGED_RESULT).to_bytes(4)
    + b"{}"
    + FORGED_RESULT,
    "a head that is no object": b"\x1c" + bytes(4) + (1).to_bytes(4) + bytes(4) + b"5",
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_forged_frames_end_the_worker_and_nothing_else(tmp_path: Path, frame: bytes) -> None:
    """A skill has the link in its hands. The client checks every line that it gets."""
    project = make_project(tmp_path / "p", limited=block(), free=SKILL)
    async with hosted(project, forked=True) as host:
        await host.text("limited_worker")
        assert "was lost" in await refused(host, "limited_forge", text=frame.hex())
        assert int(await host.text("limited_worker"))
        assert int(await host.text("free_worker"))


@pytest.mark.parametrize(
    ("frame", "times", "why"),
    [
        (b"\x16" + (1).to_bytes(4) + bytes(4) + b"\xff" * 4, 1, "it sent a frame of 4294967295 bytes"),
        (b"\x16" + (1).to_bytes(4) + b"\xff" * 4 + bytes(4), 1, "it sent a frame of 4294967295 bytes"),
        (
            (b"\x1a" + b"\xff" * 4 + len(PROGRESS).to_bytes(4) + bytes(4) + PROGRESS) * 100,
            101,
            "more than 10000 messages about calls",
        ),
    ],
    ids=["a long body", "a long head", "a flood"],
)
async def test_too_much_over_the_link_ends_the_worker_and_its_calls_hear_why(
    tmp_path: Path, frame: bytes, times: int, why: str
) -> None:
    """The host waits for no 4 GB, and reads no flood for ever."""
    project = make_project(tmp_path / "p", limited=block())
    async with hosted(project, forked=True) as host:
        await host.text("limited_worker")
        assert why in await refused(host, "limited_forge", text=frame.hex(), times=times)
        assert int(await host.text("limited_worker"))


def frame(kind: int, head: object) -> str:
    text = json.dumps(head).encode()
    return (bytes([kind]) + bytes(4) + len(text).to_bytes(4) + bytes(4) + text).hex()


async def test_words_about_others_count_for_nothing(tmp_path: Path) -> None:
    """Secrets that nobody told it, news of resources of others, and imports of others that end its worker."""
    news = "notifications/resources/updated"
    shared = """
    from prowess import Context, resource

    @resource("shared://thing")
    def thing() -> str:
        return "x"

    @skill_command
    async def touch(ctx: Context) -> str:
        ctx.updated("shared://thing")
        return "touched"

    @skill_command
    def repeat(text: str) -> str:
        return text
    """
    project = make_project(tmp_path / "p", limited=block(), shared=shared)
    async with hosted(project, forked=True) as host:
        await host.ask("resources/subscribe", uri="shared://thing")
        assert "said" == await host.text("limited_say", text=frame(38, {"texts": ["ordinary words"]}))
        assert "said" == await host.text("limited_say", text=frame(39, {"uri": "shared://thing"}))
        assert "touched" == await host.text("shared_touch")
        await host.noted(news)
        assert 1 == len([note for note in host.notes if note["method"] == news])
        assert "ordinary words" == await host.text("shared_repeat", text="ordinary words")
        for _ in range(3):
            assert "was lost" in await refused(host, "limited_blame", skill="shared")
        assert "still here" == await host.text("shared_repeat", text="still here")
    (record,) = (project / "cache").rglob("*.sqlite")
    calls = RecordReader(record).newest(CallFilter(command="shared.repeat"), 2)
    assert "ordinary words" in str(calls)


async def test_names_of_others_are_not_to_be_had(tmp_path: Path) -> None:
    """Who claims a name that another skill has would take it from both. A limited skill alone loses it."""
    greedy = """
    # /// script
    # [tool.prowess.sandbox]
    # ///
    @skill_command(aliases=["shared_repeat"])
    def take() -> str:
        return "taken"

    @skill_command
    def keep() -> str:
        return "kept"
    """
    shared = "@skill_command\ndef repeat() -> str:\n    return 'mine'\n"
    async with hosted(make_project(tmp_path / "p", greedy=greedy, shared=shared), forked=True) as host:
        assert "mine" == await host.text("shared_repeat")
        assert "kept" == await host.text("greedy_keep")
        assert "the name 'shared_repeat' is also claimed by shared.repeat" in await host.text("prowess_diagnostics")
        assert "greedy_take" not in await host.tools()


async def test_board_cannot_be_made_shorter(tmp_path: Path) -> None:
    """The host would end with the next look at it."""
    project = make_project(tmp_path / "p", limited=block())
    async with hosted(project, forked=True) as host:
        assert {"PermissionError"} == set((await host.text("limited_shorten")).split())
        assert int(await host.text("limited_worker"))


async def test_second_start_lists_limited_skills_from_the_manifest(tmp_path: Path) -> None:
    """And calls run limited, whichever comes first."""
    project = make_project(tmp_path / "p", limited=block())
    async with hosted(project, forked=True) as host:
        assert int(await host.text("limited_worker"))
    async with hosted(project, forked=True) as host:
        assert "limited_connect" in await host.tools()
        assert "The network is off" in await refused(host, "limited_connect")
        assert os.getpid() != int(await host.text("limited_worker"))
