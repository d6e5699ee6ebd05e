"""Shifts the wall clock of a Python process, as far as a file says that the driver holds in its hand.

Python imports this at its start where the folder is on `PYTHONPATH`. Only `time.time` and `time.time_ns` are shifted: the
times of files stay what they are, as on a machine whose disk is another machine's.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

with open(os.environ["SOAK_CLOCK"], "rb") as _file:  # noqa: PTH123 - pathlib is an import that no start needs
    _shift = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
_time, _time_ns = time.time, time.time_ns


def shift() -> float:
    """Seconds."""
    return struct.unpack_from("d", _shift)[0]


time.time = lambda: _time() + shift()
time.time_ns = lambda: _time_ns() + int(shift() * 1e9)
