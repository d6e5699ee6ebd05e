"""What the processes of one server tell each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

from anyio import fail_after
from patience import PATIENCE
from piped import until

from prowess_host.http.siblings import Siblings


async def test_process_that_stood_still_learns_that_it_has_missed_news(tmp_path: Path) -> None:
    """The system keeps only so many connections for it. Its clients have subscribed to what the news are about."""
    heard: list[bytes] = []
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(tmp_path / "2.socket"))
        listening.listen(0)

        def hear() -> None:
            while b'{"missed": true}\n' not in heard:
                with listening.accept()[0] as connection, connection.makefile("rb") as lines:
                    heard.append(lines.readline())

        siblings = Siblings(tmp_path, 1)
        siblings.start(print, dict)
        for number in range(9):
            siblings.broadcast({"number": number})
        await until(lambda: siblings._missed)
        with fail_after(PATIENCE):
            await asyncio.to_thread(hear)
        await siblings.close()
    assert len(heard) <= 9


async def test_counters_are_saved_again_after_a_failure(tmp_path: Path) -> None:
    """As on a full disk. The news that others have missed are told meanwhile."""
    counted: list[None] = []

    def count() -> dict[str, int]:
        counted.append(None)
        return {"counted": len(counted)}

    (tmp_path / "1.draft").mkdir()  # nothing can be written there
    siblings = Siblings(tmp_path, 1)
    siblings.start(print, count)
    await until(lambda: len(counted) > 1)
    assert not (tmp_path / "1.json").exists()
    (tmp_path / "1.draft").rmdir()
    await until((tmp_path / "1.json").exists)
    await siblings.close()
