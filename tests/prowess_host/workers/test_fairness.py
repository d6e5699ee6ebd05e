"""Calls that find no place: whose turn it is, what is refused, and in which words. Commands wait for files, so nothing depends on time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inside import Inside, inside
from piped import make_project, result, until

SKILL = """
    from pathlib import Path

    @skill_command
    def hold(gate: str) -> str:
        Path(gate + ".begun").touch()
        while not Path(gate).exists():
            time.sleep(0.01)
        return "let go"

    @skill_command(concurrency=1)
    def single(gate: str) -> str:
        return hold.raw(gate)

    @skill_command
    def quick() -> str:
        return "quick"

    @skill_command
    async def wait(gate: str) -> str:
        while not Path(gate).exists():
            await asyncio.sleep(0.01)
        return "let go"
"""


class Gates:
    """Calls that hold their places until they are let go."""

    def __init__(self, host: Inside, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.held: list[Any] = []

    def hold(self, count: int, name: str = "t_hold") -> None:
        for _ in range(count):
            self.held.append(self.host.start_call(name, gate=str(self.folder / f"gate{len(self.held)}")))

    async def let_go(self, *numbers: int) -> None:
        for number in numbers or range(len(self.held)):
            (self.folder / f"gate{number}").touch()
        for number in numbers:
            assert "let go" == text(await result(self.held[number]))


def text(answer: dict[str, Any]) -> str:
    return answer["content"][0]["text"]


async def test_another_command_waits_for_one_place_only(tmp_path: Path):
    """However many calls of the same client wait for the first command."""
    project = make_project(tmp_path, "threads = 2\n", t=SKILL)
    async with inside(project) as host:
        gates = Gates(host, tmp_path)
        gates.hold(20)
        quick = host.start_call("t_quick")
        await gates.let_go(0)
        assert "quick" == text(await result(quick))
        assert not any(each.done() for each in gates.held[2:])
        await gates.let_go()
        assert ["let go"] * 20 == [text(await result(each)) for each in gates.held]


async def test_a_command_at_its_own_limit_leaves_the_places_to_others(tmp_path: Path):
    """Its calls wait in the host, where they have not begun."""
    project = make_project(tmp_path, "threads = 3\n", t=SKILL)
    async with inside(project) as host:
        gates = Gates(host, tmp_path)
        gates.hold(10, "t_single")
        assert "quick" == text(await host.call("t_quick"))
        assert not any(each.done() for each in gates.held)
        await gates.let_go(0, 1)
        await gates.let_go()
        assert ["let go"] * 10 == [text(await result(each)) for each in gates.held]


async def test_calls_on_the_loop_need_no_thread(tmp_path: Path):
    """Hundreds of them run at once, and beside them those that need a thread."""
    project = make_project(tmp_path, "threads = 1\n", t=SKILL)
    async with inside(project) as host:
        gates = Gates(host, tmp_path)
        gates.hold(200, "t_wait")
        assert "quick" == text(await host.call("t_quick"))
        await gates.let_go(199)
        await gates.let_go()
        assert ["let go"] * 200 == [text(await result(each)) for each in gates.held]


async def test_too_much_is_refused_and_told_when_to_try_again(tmp_path: Path):
    """The newest call of whoever has most waiting: another command gets in."""
    project = make_project(tmp_path, "threads = 1\n[host]\nmax_waiting = 3\n", t=SKILL)
    async with inside(project) as host:
        gates = Gates(host, tmp_path)
        gates.hold(6)
        for refused in gates.held[4:]:
            answer = await result(refused)
            seconds = answer["_meta"]["prowess/retry_after"]
            assert (True, "busy") == (answer["isError"], answer["_meta"]["prowess/kind"])
            assert 1 <= seconds <= 60
            assert text(answer) == (
                "t.hold was not run, because 3 calls wait already (the setting host.max_waiting). "
                f"It never began: try again in {seconds} s."
            )
        quick = host.start_call("t_quick")
        assert "busy" == (await result(gates.held[3]))["_meta"]["prowess/kind"]
        await gates.let_go(0)
        assert "quick" == text(await result(quick))
        await gates.let_go(1, 2)


async def test_what_waits_can_be_cancelled_and_runs_out_of_time(tmp_path: Path):
    """It makes room, and never begins."""
    project = make_project(tmp_path, "threads = 1\ntimeout = 3\n[host]\nmax_waiting = 2\n", t=SKILL)
    async with inside(project) as host:
        gates = Gates(host, tmp_path)
        gates.hold(3)
        host.cancel(gates.held[1])
        gates.hold(1)
        answers = [await result(gates.held[number]) for number in (0, 2, 3)]
        assert ["timeout"] * 3 == [answer["_meta"]["prowess/kind"] for answer in answers]


async def test_calls_that_wait_outlive_their_worker(tmp_path: Path):
    """They had not begun, so a new worker runs them."""
    project = make_project(tmp_path, "threads = 2\n", t=SKILL)
    async with inside(project) as host:
        gates = Gates(host, tmp_path)
        gates.hold(6)
        await until(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
        (worker,) = host.workers()
        host.living[worker].kill()
        lost = [await result(each) for each in gates.held[:2]]
        assert ["worker_lost"] * 2 == [answer["_meta"]["prowess/kind"] for answer in lost]
        await gates.let_go(2, 3, 4, 5)
