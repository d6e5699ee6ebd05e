"""An engine that dies and hangs when a test wants it."""

from __future__ import annotations

import contextlib
import os
import signal

from prowess_host.cluster.local import LocalEngine


class FailingEngine(LocalEngine):
    """A server of nats-server, with the faults of a machine."""

    def kill(self) -> None:
        """Kill it, as a crash would, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        self.stop()

    def pause(self) -> None:
        """Freeze it: it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Let it shut down, also after `pause`."""
        with contextlib.suppress(ProcessLookupError):
            self.resume()
        super().stop()
