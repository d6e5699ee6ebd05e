"""Makes `shell`, the command line without its start, importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "prowess_host"))  # importlib mode puts nothing there
