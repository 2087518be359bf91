"""Arguments and options of ``zkconsumer pipeline check`` and ``run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zkconsumer.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

pipeline_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


def session_options(command: F) -> F:
    """``--master`` and ``--conf``."""
    with_conf = click.option(
        "--conf", "settings", multiple=True, metavar="KEY=VALUE", callback=_settings,
        help="A setting of Spark. May be given repeatedly.",
    )(command)  # fmt: skip
    return click.option(
        "--master",
        metavar="URL",
        help="The cluster that runs the tasks; sc://HOST:PORT: a server of Spark Connect.  "
        "[default: local[*], or that of spark-submit]",
    )(with_conf)


def read_secret_file(path: str) -> bytes:
    """The bytes of a file that a pipeline file names."""
    return Path(path).read_bytes()


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--conf {text}: write it as KEY=VALUE, for example spark.driver.memory=4g")
        found[key] = value
    return found
