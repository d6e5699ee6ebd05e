"""Shows Prowess doing its main job: the commands found in `skills/` as a table, and one call with its payload."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from prowess import Runtime

ROOT = Path(__file__).resolve().parent.parent


async def show() -> None:
    """List the commands, then call the first one that needs no arguments."""
    async with Runtime.open(ROOT) as runtime:
        catalog = runtime.catalog()
        contracts = list(catalog.contracts)
        table([(contract.id, contract.category, contract.summary) for contract in contracts])
        for failure in catalog.failures:
            print(f"failed: {failure}", file=sys.stderr)
        callable_bare = [contract for contract in contracts if not contract.input_schema.get("required")]
        if callable_bare:
            outcome = await runtime.call(callable_bare[0].id, {})
            print(f"\n{callable_bare[0].id} {{}}")
            print(json.dumps(outcome.payload("portable"), indent=2, ensure_ascii=False))


def table(rows: list[tuple[str, ...]]) -> None:
    """Print rows under headings, each column as wide as its widest cell."""
    rows = [("command", "category", "what it does"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    asyncio.run(show())
