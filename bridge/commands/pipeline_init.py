"""``zkconsumer pipeline init``: writes a commented pipeline file."""

from __future__ import annotations

import re
from pathlib import Path

import click

from bridge.spark.pipeline.pipeline_template import EDITED, pipeline_template
from zkconsumer.cli.console import print_message
from zkconsumer.errors import PreconditionFailed, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@click.command(short_help="Write a commented pipeline file.")
@click.argument("file", default="pipeline.toml", metavar="[FILE]", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", metavar="NAME", help="The name of the pipeline, and of its group.  [default: that of the file]")
def init(file: Path, name: str | None) -> None:
    """Write a commented pipeline file (pipeline.toml).

    Every key is in it, with its default or an example. An existing file is not changed (exit code 4).
    """
    chosen = file.stem if name is None else name
    if not _NAME.fullmatch(chosen):
        raise UsageError(f"{chosen!r} is no name of a pipeline: letters, digits, ., _ and -; give one with --name")
    try:
        with open(file, "x", encoding="utf-8") as out:
            out.write(pipeline_template(chosen))
    except FileExistsError:
        raise PreconditionFailed(
            f"{file} exists already, and was not changed; give another name, or remove it"
        ) from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give a file in a folder that exists and is writable") from error
    print_message(
        f"{file}: written. Set {' and '.join(EDITED)} in it, then: zkconsumer pipeline check {file}, and "
        f"zkconsumer pipeline run {file}"
    )
