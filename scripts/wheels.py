"""Builds every wheel, then installs each alone in a fresh environment and imports all its public modules.

A shared environment hides undeclared dependencies, and an editable install hides missing files; this shows both.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

import hatchling.build
from installers import ROOT, environment_of_uv, find_uv

DIST = ROOT / "dist"
EXTRAS = {"prowess_host": "[http,oauth,cluster]"}  # what some of its modules need
IMPORT_ALL = ROOT / "scripts" / "import_all.py"


def main() -> None:
    """Build all, then try each."""
    shutil.rmtree(DIST, ignore_errors=True)
    wheels = [build(path.parent) for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    check_schemas(next(DIST.glob("prowess_core-*.whl")))
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "ours.txt")
        constraints.write_text("".join(f"{name(wheel)} @ {wheel.as_uri()}\n" for wheel in wheels), encoding="utf-8")
        for wheel in wheels:
            try_alone(wheel, constraints, Path(scratch, name(wheel)))


def build(package: Path) -> Path:
    """The wheel of a package, which has to be the same from the tree and from its own source distribution."""
    sdist, wheel = hatch(package, "sdist", DIST), hatch(package, "wheel", DIST)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and newer
            archive.extractall(scratch)  # noqa: S202 - our own archive
        again = hatch(Path(scratch, sdist.name.removesuffix(".tar.gz")), "wheel", Path(scratch))
        if different := files(again) ^ files(wheel):
            sys.exit(f"{wheel.name}: not the same from its source distribution: {sorted(different)}")
    return wheel


def hatch(package: Path, target: str, folder: Path) -> Path:
    """The file that hatchling builds for a target. It is called as build tools do, but here: it takes longer to start than to build."""
    with contextlib.chdir(package):
        return folder / getattr(hatchling.build, f"build_{target}")(str(folder))


def files(wheel: Path) -> set[tuple[str, int]]:
    """Names and checksums of all in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {(info.filename, info.CRC) for info in archive.infolist()}


def check_schemas(wheel: Path) -> None:
    """The schemas in the wheel are those of the repository, byte for byte."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {Path(path).name: archive.read(path) for path in archive.namelist() if "/_schemas/" in path}
    wanted = {path.name: path.read_bytes() for path in ROOT.glob("schemas/*") if path.name != "catalog.json"}
    if shipped != wanted:
        sys.exit(f"{wheel.name}: its schemas {sorted(shipped)} are not those of schemas/ {sorted(wanted)}")


def name(wheel: Path) -> str:
    """The name of the distribution in a wheel, with underscores."""
    return wheel.name.partition("-")[0]


def try_imports(wheel: Path, environment: Path) -> str:
    """Import all that is in an installed wheel, or run its command where it has no modules; gives what was done."""
    if name(wheel) == "prowess":
        run([environment / "bin" / "prowess", "--help"], cwd=environment)
        return "the command runs"
    package = {"prowess_core": "prowess"}.get(name(wheel), name(wheel))
    count = run([environment / "bin" / "python", "-I", IMPORT_ALL, package], cwd=environment).strip()
    return f"public modules imported: {count}"


def try_alone(wheel: Path, constraints: Path, environment: Path) -> None:
    """Install one wheel with what it declares and nothing else; a sibling comes from our own wheel, if it is declared."""
    python, wanted = environment / "bin" / "python", f"{wheel}{EXTRAS.get(name(wheel), '')}"
    if uv := find_uv():
        run([uv, "venv", "--quiet", "--python", sys.executable, environment])
        with_uv = [uv, "pip", "install", "--quiet", "--python", python, "--constraint", constraints, wanted]
        run(with_uv, env=environment_of_uv(uv))
        run([uv, "pip", "check", "--quiet", "--python", python])
    else:
        venv.create(environment)
        # No pip is installed there.
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        run([*pip, "install", "--no-compile", "--quiet", "--constraint", constraints, wanted])
        run([*pip, "check", "--quiet"])
    print(f"wheels: {wheel.name} alone: {try_imports(wheel, environment)}", flush=True)


def run(command: list[str | Path], cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What a command prints; a failure ends everything, and only then is it shown what the command complained of."""
    done = subprocess.run(command, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"wheels: this failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
