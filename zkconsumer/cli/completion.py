"""``zkconsumer completion``: prints the script with which a shell completes commands, options and contexts."""

from __future__ import annotations

from typing import Literal

import click
from click.shell_completion import get_completion_class

from zkconsumer.cli.command_hints import PROGRAM

SHELLS = ("bash", "zsh", "fish")

COMPLETION_VARIABLE = f"_{PROGRAM.upper()}_COMPLETE"
"""click's own name for the program; click answers a shell that sets it."""


@click.command(epilog="Exit codes: 0 done.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the completion script of a shell.

    bash 4.4 or later: eval "$(zkconsumer completion bash)" in ~/.bashrc.

    zsh: eval "$(zkconsumer completion zsh)" in ~/.zshrc, after compinit.

    fish: zkconsumer completion fish > ~/.config/fish/completions/zkconsumer.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click has a class for each of SHELLS"
    click.echo(found(context.find_root().command, {}, PROGRAM, COMPLETION_VARIABLE).source())
