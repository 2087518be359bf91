"""Arguments and options of the commands of ``zkconsumer pipeline``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zkconsumer.admin.offset_targets import parse_datetime
from zkconsumer.cli.json_errors import expect_json
from zkconsumer.cli.options import output_option
from zkconsumer.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_MILLISECONDS = re.compile("[0-9]{1,15}")

pipeline_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


def json_option(command: F) -> F:
    """``-o table|json``, and ``--json`` for ``-o json``; the command receives ``output``."""

    @functools.wraps(command)
    def with_output(is_json: bool, **given: Any) -> Any:
        if is_json:
            expect_json(click.get_current_context())
            given["output"] = "json"
        return command(**given)

    flag = click.option("--json", "is_json", is_flag=True, help="The same as -o json.")
    return output_option(flag(with_output))  # type: ignore[return-value]


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


def parse_time(option: str, text: str | None) -> int | None:
    """A date and time, or ms since 1970, in ms since 1970.  Raises ``UsageError`` that names the option."""
    if text is None or _MILLISECONDS.fullmatch(text):
        return None if text is None else int(text)
    try:
        return parse_datetime(text)
    except UsageError as error:
        raise UsageError(
            f"{option} {text!r}: write YYYY-MM-DDTHH:mm:SS, in UTC or with a zone as in +01:00, or ms since 1970"
        ) from error


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--conf {text}: write it as KEY=VALUE, for example spark.driver.memory=4g")
        found[key] = value
    return found
