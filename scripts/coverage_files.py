"""Deletes the coverage files that killed processes left unfinished: tests kill many, and coverage would warn of each."""

from __future__ import annotations

import sqlite3
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def is_whole(path: Path) -> bool:
    """Whether this is a database that holds what coverage writes into it last."""
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            return database.execute("select count(*) from meta where key = 'has_arcs'").fetchone() == (1,)
    except sqlite3.Error:
        return False


for path in ROOT.glob(".coverage.*"):
    if not is_whole(path):
        path.unlink()
