"""Makes the simulation of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # importlib mode puts nothing there
