"""The process that workers of `inside` are forked from: it has imported what every worker imports, and runs nothing else.

A request is a JSON object and descriptors, over a socket: the link, the output, the pipe for the exit code, and the board if
there is one. The answer is the id of the worker.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from prowess.worker import serving

_LONGEST = 1 << 20


def main(control: socket.socket) -> None:
    """Fork workers, and tell how they end, until nobody asks any more."""
    waking, woken = socket.socketpair()
    for end in (waking, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, waking], [], [])
        if waking in ready:
            waking.recv(4096)
            tell_of_ended(ends)
        if control in ready:
            data, fds, _, _ = socket.recv_fds(control, _LONGEST, 4)
            if not data:
                return
            link, output, end, *board = fds
            told = json.loads(data)
            pid = os.fork()
            if not pid:
                for each in (control, waking, woken):
                    each.close()
                os.close(end)
                become(told["root"], told["environ"], link, output, *board)
            ends[pid] = end
            for fd in (link, output, *board):
                os.close(fd)
            control.send(b"%d" % pid)


def tell_of_ended(ends: dict[int, int]) -> None:
    for pid in list(ends):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            end = ends.pop(pid)
            os.write(end, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(end)


def become(root: str, environ: dict[str, str], link: int, output: int, board: int | None = None) -> NoReturn:
    """Be the worker, as one that was started with a command line would be."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.chdir(root)
    os.environ.clear()
    os.environ.update(environ)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    try:
        serving.main([str(link), "-" if board is None else str(board), root, "labelled"])
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
