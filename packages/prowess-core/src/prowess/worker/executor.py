"""The threads for what a process of ours does beside its event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

__all__ = ["Executor"]


class Executor(ThreadPoolExecutor):
    """Does with fewer threads if the system refuses more. Without any, it runs everything in the calling thread."""

    def _adjust_thread_count(self) -> None:
        """Called after work is added. `ThreadPoolExecutor` leaves it in the queue if no thread can be started."""
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                self._work_queue.get_nowait().run()
