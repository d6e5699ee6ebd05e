"""A folder of wheels, so that tests make environments without a network: what Prowess needs, as it is installed here, and
small packages in several versions.
"""

from __future__ import annotations

import compileall
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["cache_in", "installed", "shared", "small", "starts"]

_DEEP = 20
_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def starts(folder: Path, name: str, version: str, line: str) -> Path:
    """The same, with a line that Python runs whenever it starts."""
    return small(folder, name, version, more={f"{name}.pth": line.encode()})


def small(
    folder: Path, name: str, version: str, *requires: str, body: str = "", more: Mapping[str, bytes] | None = None
) -> Path:
    """A wheel of a package with one module, which knows its version."""
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    text = f'version = "{version}"\n{body}\n'
    files = {
        f"{name}.py": text.encode(),
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{name}-{version}.dist-info/WHEEL": _WHEEL.encode(),
        **(more or {}),
    }
    return _written(folder / f"{name}-{version}-py3-none-any.whl", files, f"{name}-{version}.dist-info")


def installed(folder: Path, *names: str) -> Path:
    """Wheels of distributions that are installed here, with all that they need."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting, done = list(names), set[str]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in done:
            continue
        done.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        for line in found.requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting.append(need.name)
        if not name.startswith("prowess"):
            _repacked(folder, name)
    return folder


def shared(folder: Path) -> Path:
    """Wheels of what Prowess needs and of small packages, made once in a folder of all test processes.

    Its `cache_in` holds them compiled: an environment whose files are links into that cache is made without compiling 290
    files, which takes two seconds.
    """
    wheels, made = folder / "wheels", folder / "wheels-made"
    with (folder / "wheels-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _fill(cache_in(folder), installed(wheels, "prowess-core"))
            for version in ("1.0", "2.0"):
                small(wheels, "tinypackage", version)
            small(wheels, "fickle", "1.0", "pydantic<2")
            made.touch()
    return wheels


def cache_in(folder: Path) -> Path:
    """The cache of uv for the wheels that are shared there."""
    return folder / "uv"


def _fill(cache: Path, wheels: Path) -> None:
    from uv import find_uv_bin  # tests that need none also import this module

    names = [wheel.name.partition("-")[0] for wheel in wheels.glob("*.whl")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    uv = [find_uv_bin(), "pip", "install", "--quiet", "--no-config", "--cache-dir", cache]
    with tempfile.TemporaryDirectory() as scratch:
        source = ["--python", sys.executable, "--no-index", "--find-links", wheels]
        subprocess.run([*uv, *source, "--target", scratch, *names], env=environ, check=True)
    compileall.compile_dir(cache, maxlevels=_DEEP, quiet=2)


def _repacked(folder: Path, name: str) -> None:
    found = distribution(name)
    files = {
        str(path): Path(found.locate_file(path)).read_bytes()
        for path in found.files or ()
        if not str(path).startswith("..") and path.suffix != ".pyc" and path.name not in ("RECORD", "direct_url.json")
    }
    info = next(path.split("/")[0] for path in files if path.endswith(".dist-info/METADATA"))
    wheel = files[f"{info}/WHEEL"].decode()
    tags = [line.partition(": ")[2].split("-") for line in wheel.splitlines() if line.startswith("Tag:")]
    tag = "-".join(".".join(sorted({each[part] for each in tags})) for part in range(3))
    _written(folder / f"{info.removesuffix('.dist-info')}-{tag}.whl", files, info)


def _written(wheel: Path, files: dict[str, bytes], info: str) -> Path:
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(path, text)
    return wheel


if __name__ == "__main__":
    installed(Path(sys.argv[1]), "prowess-core")
