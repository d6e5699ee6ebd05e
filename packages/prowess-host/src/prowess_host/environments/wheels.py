"""Makes wheels of the running Prowess, so that environments get the same code, even if no index has it.

For a checkout, the wheel only points to the source, as an editable installation does.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

__all__ = ["pack", "record_of"]

_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: prowess\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PACKAGES: Final = {"prowess-core": "prowess", "prowess-host": "prowess_host", "prowess": None}
"""The distributions that a skill may require, with their import packages."""


def pack(folder: Path) -> dict[str, Path]:
    """Make a wheel of each installed distribution; returns their paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    for name, module in _PACKAGES.items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = _packed(folder, installed, name.replace("-", "_"), module)
    return found


def _packed(folder: Path, installed: Distribution, name: str, module: str | None) -> Path:
    files = _files(module) if module is not None else {}
    info = f"{name}-{installed.version}.dist-info"
    files[f"{info}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    points = installed.read_text("entry_points.txt")
    if points:
        files[f"{info}/entry_points.txt"] = points.encode()
    files[f"{info}/RECORD"] = record_of(files, info)
    wheel = folder / f"{name}-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def _files(module: str) -> dict[str, bytes]:
    """The files of a package, or a pointer to its checkout."""
    file = sys.modules[module].__file__ if module in sys.modules else __import__(module).__file__
    package = Path(str(file)).resolve().parent
    if (package.parents[1] / "pyproject.toml").is_file():
        return {f"_{module}_source.pth": f"{package.parent}\n".encode()}
    found = (path for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in found}


def record_of(files: Mapping[str, bytes], info: str) -> bytes:
    """The file RECORD of a wheel, in its folder `info`."""
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=") for path, data in files.items()
    }
    lines = (f"{path},sha256={digests[path].decode()},{len(data)}\n" for path, data in files.items())
    return f"{''.join(lines)}{info}/RECORD,,\n".encode()
