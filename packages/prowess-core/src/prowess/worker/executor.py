"""The threads for what a process of ours does beside its event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prowess.worker.heap import share_one_heap

__all__ = ["Executor"]


class Executor(ThreadPoolExecutor):
    """Does with fewer threads if the system refuses more. Without any, it runs everything in the calling thread."""

    def __init__(self) -> None:
        share_one_heap()
        super().__init__(thread_name_prefix="asyncio")

    def _adjust_thread_count(self) -> None:
        """Called after work is added. `ThreadPoolExecutor` leaves it in the queue if no thread can be started."""
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                self._work_queue.get_nowait().run()
