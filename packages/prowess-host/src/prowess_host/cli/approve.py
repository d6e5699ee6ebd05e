"""`prowess approve`: signs the code of a project, for agents that run with --locked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from prowess.errors import ProwessError
from prowess_host.cli.exit_codes import DONE
from prowess_host.cli.options import ProjectOptions, project_options
from prowess_host.cli.projects import opened
from prowess_host.cli.terminal import plural

__all__ = ["command"]

_EPILOG = """\b
Examples:
  prowess approve --new-key ~/.config/prowess/approve.key    once, for each person who approves
  prowess approve --key ~/.config/prowess/approve.key        after a review, for the code as it is now
"""


@click.command("approve", epilog=_EPILOG)
@project_options
@click.option("--key", metavar="FILE", type=click.Path(path_type=Path), help="File with your private key.")
@click.option(
    "--new-key", metavar="FILE", type=click.Path(path_type=Path), help="Make a key, and show its public part."
)
def command(where: ProjectOptions, *, key: Path | None, new_key: Path | None) -> int:
    """Sign the code of a project, so that agents with --locked run it. Writes prowess.approved; commit that file."""
    from prowess_host.cluster import code

    if new_key is not None:
        private, public = code.new_key()
        try:
            new_key.touch(0o600, exist_ok=False)
            new_key.write_text(f"{private}\n", encoding="ascii")
        except OSError as error:
            raise ProwessError(f"{new_key} cannot be written: {error.strerror}") from error
        print(f'The private key is in {new_key}. Give agents the public key: agent.keys = ["{public}"]')
        return DONE
    if key is None:
        raise ProwessError("prowess approve needs --key FILE, or --new-key FILE to make one")
    try:
        private = key.expanduser().read_text("ascii").strip()
        if not code.is_key(private):
            raise ValueError("a key is 64 hexadecimal digits")  # noqa: TRY301 - its message is the reason below
    except (OSError, ValueError) as error:
        raise ProwessError(f"{key} has no private key ({error}); make one with --new-key") from error
    digest, files = asyncio.run(_code(where))
    approved = where.root / code.APPROVED
    lines = approved.read_text("utf-8").splitlines() if approved.exists() else []
    kept = [line for line in lines if line.startswith(f"{digest} ")]
    approved.write_text("\n".join([*kept, f"{digest} {code.sign(digest, private)}", ""]), encoding="utf-8")
    print(f"{approved}: {plural(files, 'file')} approved, with the digest {digest[:12]}")
    return DONE


async def _code(where: ProjectOptions) -> tuple[str, int]:
    """The digest of the code that the hosts of a project send to agents, and the number of its files."""
    from prowess_host.cluster.code import Snapshots

    async with opened(where) as project:
        await project.load(builds=False)
        taken = await asyncio.to_thread(Snapshots().take, project.parts())
    return taken.digest, len(taken.files)
