"""The main file of a pipeline for ``spark-submit``.

    spark-submit [options of Spark] submit_main.py run FILE      as: zkconsumer pipeline run FILE
    spark-submit [options of Spark] submit_main.py check FILE    as: zkconsumer pipeline check FILE

The session is that of ``spark-submit``: its master, its settings, its packages.  It works from a package that was
installed and from one that ``--py-files`` sends, which has no entry points.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click


def main(arguments: list[str]) -> None:
    """Runs ``zkconsumer pipeline`` with these arguments, and ends the process with its exit code."""
    from bridge.commands.pipeline import pipeline
    from zkconsumer.cli.main import RootCommand

    class SubmitCommand(RootCommand):
        """The commands of the package, with ``pipeline`` also where no entry point names it."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted({*super().list_commands(ctx), "pipeline"})

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return pipeline if cmd_name == "pipeline" else super().get_command(ctx, cmd_name)

    SubmitCommand(name="zkconsumer").main(["pipeline", *arguments], prog_name="zkconsumer")


if __name__ == "__main__":
    # Python has put the folder of this file first, where modules have the names of commands.
    here = Path(__file__).resolve().parent
    sys.path[:] = [each for each in sys.path if not each or Path(each).resolve() != here]
    main(sys.argv[1:])
