"""Lets the test of this folder share the modules of the driver, which are scripts beside it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # importlib mode puts nothing there
