"""`prowess completion`: the script with which a shell completes `prowess` commands."""

from __future__ import annotations

from typing import Final

import click

from prowess_host.cli.exit_codes import DONE

__all__ = ["command"]

_EPILOG: Final = """\b
Examples:
  echo 'eval "$(prowess completion bash)"' >> ~/.bashrc
  echo 'eval "$(prowess completion zsh)"' >> ~/.zshrc
  prowess completion fish > ~/.config/fish/completions/prowess.fish
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the completion script of SHELL. It completes options, commands, and the ids of a project's commands."""
    from click.shell_completion import get_completion_class

    from prowess_host.cli.commands import COMPLETE, prowess

    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click knows the three
    print(made(prowess, {}, "prowess", COMPLETE).source())
    return DONE
