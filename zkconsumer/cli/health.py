"""``zkconsumer health``: whether a running member works, for systemd, Kubernetes and other supervisors.

Sends a request to the socket of the setting ``health.socket``.  ``zkconsumer.observe.member_health`` defines healthy
and alive.
"""

from __future__ import annotations

import json
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.console import print_error
from zkconsumer.errors import HealthUnavailable, UsageError
from zkconsumer.runtime.health_socket import query_health, query_process_health

HEALTH_ENTRY_POINTS = "zkconsumer.health"
"""Name of an option -> ``module:attribute`` of a function (file, ms since 1970) -> answer."""

EXIT_UNHEALTHY = 1
EXIT_NO_ANSWER = 4
RETRY_INTERVAL_MS = 250
"""The pause between two requests under ``--wait-ms``."""


@click.command(epilog="Exit codes: 0 healthy (with --alive: alive), 1 not healthy, 2 usage error, 4 no member answers.")
@click.option(
    "--pid", type=click.IntRange(min=1), metavar="N", help="The process id of a member with health.socket=auto."
)
@click.option(
    "--socket", "path", type=click.Path(path_type=Path), metavar="PATH", help="The health.socket of the member, a path."
)
@click.option(
    "--pipeline",
    "pipeline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file of a pipeline that zkconsumer pipeline run runs on this machine.",
)
@click.option(
    "--alive",
    "is_alive_enough",
    is_flag=True,
    help="Exit code 0 also if the member is unhealthy but a restart would not help.",
)
@click.option(
    "--timeout-ms", type=click.IntRange(min=1), default=3_000, show_default=True, help="Limit for one answer."
)
@click.option(
    "--wait-ms",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Repeat the request until the exit code is 0, at most for this time.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.pass_context
def health(
    ctx: click.Context,
    pid: int | None,
    path: Path | None,
    pipeline: Path | None,
    is_alive_enough: bool,
    timeout_ms: int,
    wait_ms: int,
    quiet: bool,
) -> None:
    """Ask a running member on this machine whether it is healthy: registered, connected to ZooKeeper, lease valid.

    Prints the answer, a line of JSON, and on standard error the problems.  A member without records is healthy.  With
    --pipeline: whether the run of a pipeline lives and makes progress, by its status file.
    """
    if [pid, path, pipeline].count(None) != 2:
        raise UsageError("give one of --pid, --socket and --pipeline")
    end_ms = SYSTEM_CLOCK.now_ms() + wait_ms
    while True:
        code, answer, words = _check_health(pid, path, pipeline, timeout_ms, is_alive_enough=is_alive_enough)
        left_ms = end_ms - SYSTEM_CLOCK.now_ms()
        if code == 0 or left_ms <= 0:
            break
        threading.Event().wait(min(RETRY_INTERVAL_MS, left_ms) / 1000)
    if answer is not None and not quiet:
        click.echo(json.dumps(answer))
    for line in words:
        print_error(line)
    ctx.exit(code)


def _check_health(
    pid: int | None, path: Path | None, pipeline: Path | None, timeout_ms: int, *, is_alive_enough: bool
) -> tuple[int, dict[str, Any] | None, list[str]]:
    """Return the exit code, the answer, and the problems."""
    try:
        if pipeline is not None:
            answer = _query_pipeline(pipeline)
        elif pid is not None:
            answer = query_process_health(pid, timeout_ms)
        else:
            answer = query_health(path or Path(), timeout_ms)
    except HealthUnavailable as error:
        return EXIT_NO_ANSWER, None, [str(error)]
    is_well = answer["alive"] if is_alive_enough else answer["healthy"]
    words = [f"{member.get('member')}: {problem}" for member in _members(answer) for problem in member["problems"]]
    return 0 if is_well else EXIT_UNHEALTHY, answer, words


def _query_pipeline(file: Path) -> dict[str, Any]:
    """The answer about a pipeline, by the entry point of the package that has pipelines."""
    found = list(entry_points(group=HEALTH_ENTRY_POINTS, name="pipeline"))
    if not found:
        raise UsageError("--pipeline: no installed package has pipelines; install zkconsumer with its package bridge")
    answer: dict[str, Any] = found[0].load()(file, SYSTEM_CLOCK.wall_ms())
    return answer


def _members(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in answer["members"] if isinstance(each, dict) and isinstance(each.get("problems"), list)]
