"""What runs beside a loop runs with few threads too, or with none."""

from __future__ import annotations

import asyncio
import threading

from patience import PATIENCE
from refused import no_more_threads

from prowess.worker.loops import new_loop


def test_without_threads_everything_runs_in_the_calling_one():
    async def main() -> tuple[int, int]:
        with no_more_threads():
            alone = await asyncio.to_thread(threading.get_ident)
        return alone, await asyncio.to_thread(threading.get_ident)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        alone, beside = runner.run(main())
    assert threading.get_ident() == alone
    assert alone != beside


def test_with_one_thread_the_others_wait_for_it():
    """Nothing runs twice, or in the thread of the loop."""

    async def main() -> list[int]:
        go_on = threading.Event()
        first = asyncio.ensure_future(asyncio.to_thread(go_on.wait, PATIENCE))
        await asyncio.sleep(0)
        with no_more_threads():
            later = [asyncio.ensure_future(asyncio.to_thread(ran.append, number)) for number in range(3)]
            await asyncio.sleep(0)
        assert ran == []
        go_on.set()
        await asyncio.gather(first, *later)
        return ran

    ran: list[int] = []
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert [0, 1, 2] == runner.run(main())
