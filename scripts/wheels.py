"""Builds every wheel, then installs each alone in a fresh environment and imports all its public modules.

A shared environment hides undeclared dependencies, and an editable install hides missing files; this shows both.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
IMPORT_ALL = ROOT / "scripts" / "import_all.py"


def main() -> None:
    """Build all, then try each."""
    shutil.rmtree(DIST, ignore_errors=True)
    wheels = [build(path.parent) for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    check_schemas(next(DIST.glob("prowess-*.whl")))
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "ours.txt")
        constraints.write_text("".join(f"{name(wheel)} @ {wheel.as_uri()}\n" for wheel in wheels), encoding="utf-8")
        for wheel in wheels:
            try_alone(wheel, constraints, Path(scratch, name(wheel)))


def build(package: Path) -> Path:
    """The wheel of a package, which has to be the same from the tree and from its own source distribution."""
    stem = package.name.replace("-", "_")
    sdist = hatch(package, "sdist", DIST, f"{stem}-*.tar.gz")
    wheel = hatch(package, "wheel", DIST, f"{stem}-*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        again = hatch(Path(scratch, sdist.name.removesuffix(".tar.gz")), "wheel", Path(scratch), "*.whl")
        if different := files(again) ^ files(wheel):
            sys.exit(f"{wheel.name}: not the same from its source distribution: {sorted(different)}")
    return wheel


def hatch(package: Path, target: str, folder: Path, pattern: str) -> Path:
    """The one file that hatchling builds for a target."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(command, cwd=package, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{package.name}: no {target}\n{done.stdout}{done.stderr}")
    (built,) = folder.glob(pattern)
    return built


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
    """The import name of what is in a wheel."""
    return wheel.name.partition("-")[0]


def try_alone(wheel: Path, constraints: Path, environment: Path) -> None:
    """Install one wheel with what it declares and nothing else; a sibling comes from our own wheel, if it is declared."""
    python = environment / "bin" / "python"
    if uv := shutil.which("uv"):
        run([uv, "venv", "--quiet", "--python", sys.executable, environment])
        run([uv, "pip", "install", "--quiet", "--python", python, "--constraint", constraints, wheel])
    else:
        venv.create(environment, with_pip=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "--quiet", "--constraint", constraints, wheel])
        run([*pip, "check", "--quiet"])
    count = run([python, "-I", IMPORT_ALL, name(wheel)], cwd=environment).strip()
    print(f"wheels: {wheel.name} alone: public modules imported: {count}", flush=True)


def run(command: list[str | Path], cwd: Path = ROOT) -> str:
    """What a command prints; a failure ends everything."""
    done = subprocess.run(command, cwd=cwd, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"wheels: this failed: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
