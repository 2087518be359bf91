"""``zkconsumer sandbox``: a real ZooKeeper with real brokers on this machine, to try things on."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click

from zkconsumer.cli.lazy import LazyGroup
from zkconsumer.errors import SandboxError

P = ParamSpec("P")
R = TypeVar("R")

NOTHING_RUNS = 3
TOPIC = re.compile(r"([a-zA-Z0-9._-]{1,249}):([1-9][0-9]{0,3})")
BROKERS_MAX = 9


def _reported(command: Callable[P, R]) -> Callable[P, R]:
    """A SandboxError becomes words on stderr and exit code 1."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except SandboxError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def _topics(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for value in values:
        match = TOPIC.fullmatch(value)
        if match is None or match[1] in (".", ".."):
            raise click.BadParameter(f"'{value}' is not name:partitions")
        found[match[1]] = int(match[2])
    return found


@click.group("sandbox", cls=LazyGroup)
def sandbox() -> None:
    """A real ZooKeeper with real Kafka brokers on this machine, for trying things out.

    Needs Java 17 and Maven; what is fetched stays in ~/.cache/zkconsumer (or $ZKCONSUMER_CACHE).
    """


@sandbox.command("up")
@click.option("--kafka", default="1.1.1", show_default=True, metavar="RELEASE", help="Release of the brokers.")
@click.option("--zookeeper", default="3.8", show_default=True, metavar="VERSION", help="3.8 or 3.4.6.")
@click.option("--brokers", default=1, show_default=True, type=click.IntRange(1, BROKERS_MAX))
@click.option("--chroot", default="", metavar="/PATH", help="Keep the cluster below this node.")
@click.option(
    "--topic", "topics", multiple=True, callback=_topics, metavar="NAME:PARTITIONS", help="May be given repeatedly."
)
@_reported
def up(kafka: str, zookeeper: str, brokers: int, chroot: str, topics: dict[str, int]) -> None:
    """Start a cluster in the background and print its addresses."""
    from zkconsumer.testing.sandbox import background

    if chroot and not re.fullmatch(r"(/[a-zA-Z0-9._-]+)+", chroot):
        raise click.BadParameter(f"'{chroot}' is not a path like /kafka", param_hint="--chroot")
    click.echo(f"starting ZooKeeper {zookeeper} and Kafka {kafka} ...", err=True)
    cluster = background.up(kafka, zookeeper, brokers, topics, chroot)
    click.echo(f"zookeeper.connect={cluster.zookeeper_connect}")
    click.echo(f"bootstrap.servers={cluster.bootstrap}")
    topic = next(iter(topics), "TOPIC")
    click.echo(
        f"zkconsumer consume --zookeeper {cluster.zookeeper_connect} --group demo --topic {topic} --from-beginning"
    )
    click.echo("it runs until 'zkconsumer sandbox down'", err=True)


@sandbox.command("status")
@click.pass_context
@_reported
def status(context: click.Context) -> None:
    """Show what runs; exit code 3 if nothing does."""
    from zkconsumer.testing.sandbox import background

    cluster = background.current()
    if cluster is None:
        click.echo("no sandbox is up", err=True)
        context.exit(NOTHING_RUNS)
    alive = cluster.running()
    rows = [("NAME", "VERSION", "ADDRESS", "PID", "STATE")]
    for part in cluster.parts:
        state = "running" if part.pid in alive else "dead"
        rows.append((part.name, part.version, part.address, str(part.pid), state))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    click.echo(f"zookeeper.connect={cluster.zookeeper_connect}  files: {cluster.root}", err=True)
    if not alive:
        context.exit(NOTHING_RUNS)


@sandbox.command("down")
@_reported
def down() -> None:
    """Stop the cluster and remove its files."""
    from zkconsumer.testing.sandbox import background

    cluster = background.down()
    click.echo("no sandbox was up" if cluster is None else f"stopped {len(cluster.parts)} processes", err=True)
