"""The SKILL.md that teaches agents to write skills: in the format of agentskills.io. Its code runs in test_documents.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "packages/prowess-host/src/prowess_host/templates/write-prowess-skills/SKILL.md"
ALLOWED = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def test_format_is_that_of_agent_skills() -> None:
    """Frontmatter with a name like the folder and a description, and a body of less than 500 lines and about 5,000 tokens."""
    _, front, body = FILE.read_text(encoding="utf-8").split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())

    assert {"name", "description"} <= fields.keys() <= ALLOWED
    assert FILE.parent.name == fields["name"]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert len(fields["name"]) <= 64
    assert len(fields["description"]) <= 1024
    assert ": " not in fields["description"], "YAML takes a colon and a space for another key"
    assert len(body.splitlines()) < 500
    assert len(body) / 4 < 5000
