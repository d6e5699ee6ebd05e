"""Nothing committed names the machine, the workplace or the index it was made with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Character classes keep these patterns from matching themselves.
FORBIDDEN = re.compile(
    r"/[w]ork/|/[r]oot/|/[o]pt/pypi|/[t]mp/(plan|bash_jobs)"  # folders of one machine
    r"|[p]ypi\.org|[p]ythonhosted\.org|[r]egistry\.npmjs|[r]egistry\.yarnpkg|--[i]ndex-url"  # where packages come from
    r"|\b[D]ESIGN\.md|\b[S]TYLE\.md|\b[w]ire\.md|\b[a]ncestors\.md|\b[p]eers-and-clients\.md|\b[A]RCH\.md"  # other people's notes
)


def committed() -> list[Path]:
    """All that git tracks, or would with `git add`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_committed_text_names_no_workplace() -> None:
    """Paths of a machine, hosts of registries and notes that are not in the repository help no reader of it."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in committed()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1)
        if (match := FORBIDDEN.search(line))
    ]

    assert [] == found
