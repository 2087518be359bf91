"""``zkconsumer sandbox``: a real ZooKeeper with real brokers on this machine, for experiments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from zkconsumer.cli.common import EXIT_FAILED, print_table
from zkconsumer.cli.console import print_error
from zkconsumer.cli.lazy_commands import LazyGroup
from zkconsumer.errors import SandboxError

if TYPE_CHECKING:
    from zkconsumer.testing.sandbox.background_cluster import BackgroundCluster

EXIT_NOT_RUNNING = 3
NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
PARTITIONS_MAX = 9999
TOPIC = re.compile(rf"({NAME.pattern}):([1-9][0-9]{{0,3}})")
BROKERS_MAX = 9
EXAMPLE_TOPIC, EXAMPLE_PARTITIONS, EXAMPLE_RECORDS = "clicks", 4, 10
"""The topic and the records of the example commands after ``up``."""


def _topics(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for value in values:
        match = TOPIC.fullmatch(value)
        if match is None or match[1] in (".", ".."):
            raise click.BadParameter(f"'{value}' is not name:partitions")
        found[match[1]] = int(match[2])
    return found


@click.group(
    "sandbox",
    cls=LazyGroup,
    lazy_commands={
        "topic": "zkconsumer.cli.sandbox_data:topic",
        "produce": "zkconsumer.cli.sandbox_data:produce",
    },
)
def sandbox() -> None:
    """A real ZooKeeper with real Kafka brokers on this machine, for experiments.

    Needs Java 17 and Maven; downloads are kept in ~/.cache/zkconsumer (or $ZKCONSUMER_CACHE).
    """


@sandbox.command("up")
@click.option(
    "--kafka",
    default="1.1.1",
    show_default=True,
    metavar="RELEASE",
    help="Release of the brokers, 0.8.1.1 to 4.1.1; for another one the error lists the supported ones.",
)
@click.option("--zookeeper", default="3.8", show_default=True, metavar="VERSION", help="3.8 or 3.4.6.")
@click.option("--brokers", default=1, show_default=True, type=click.IntRange(1, BROKERS_MAX))
@click.option("--chroot", default="", metavar="/PATH", help="The znode below which the cluster is.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    callback=_topics,
    metavar="NAME:PARTITIONS",
    help="Create this topic; may be repeated.",
)
def up(kafka: str, zookeeper: str, brokers: int, chroot: str, topics: dict[str, int]) -> None:
    """Start a cluster in the background and print its addresses.

    The first start of a release downloads it with Maven, which can take minutes.
    """
    from zkconsumer.testing.sandbox import artifacts, background_cluster, cache

    try:
        artifacts.artifact_set(kafka)
        releases = (kafka, artifacts.zookeeper_release(zookeeper))
    except SandboxError as error:
        raise click.UsageError(str(error)) from error
    if chroot and not re.fullmatch(r"(/[a-zA-Z0-9._-]+)+", chroot):
        raise click.BadParameter(f"'{chroot}' is not a path like /kafka", param_hint="--chroot")
    if not artifacts.are_in_cache(releases):
        click.echo(f"Maven downloads what is not in {cache.root()} yet; this can take minutes ...", err=True)
    click.echo(f"starting ZooKeeper {zookeeper} and Kafka {kafka} ...", err=True)
    cluster = background_cluster.up(kafka, zookeeper, brokers, topics, chroot)
    click.echo(f"zookeeper.connect={cluster.zookeeper_connect}")
    click.echo(f"bootstrap.servers={cluster.bootstrap}")
    for command in sandbox_next_steps(cluster):
        click.echo(command)
    click.echo("the sandbox runs until 'zkconsumer sandbox down'", err=True)


def sandbox_next_steps(cluster: BackgroundCluster) -> list[str]:
    """Commands that produce and show records, ready to paste."""
    steps = []
    topic = next(iter(cluster.topics), EXAMPLE_TOPIC)
    if not cluster.topics:
        steps.append(f"zkconsumer sandbox topic create {topic} --partitions {EXAMPLE_PARTITIONS}")
    steps.append(f"zkconsumer sandbox produce {topic} --count {EXAMPLE_RECORDS}")
    steps.append(
        f"zkconsumer consume --zookeeper {cluster.zookeeper_connect} --group demo --topic {topic} --from-beginning"
        f" --max-messages {EXAMPLE_RECORDS}"
    )
    return steps


@sandbox.command("status")
@click.pass_context
def status(context: click.Context) -> None:
    """Show what runs; exit code 1 if a process is dead or does not answer, 3 if no sandbox is running."""
    from zkconsumer.testing.sandbox import background_cluster

    cluster = background_cluster.current()
    if cluster is None:
        print_error("no sandbox is running")
        context.exit(EXIT_NOT_RUNNING)
    states = cluster.states()
    rows = [(part.name, part.version, part.address, part.pid, states[part.name]) for part in cluster.parts]
    print_table(("NAME", "VERSION", "ADDRESS", "PID", "STATE"), rows, ("PID",))
    click.echo(f"zookeeper.connect={cluster.zookeeper_connect}  files: {cluster.root}", err=True)
    bad = [part for part in cluster.parts if states[part.name] != background_cluster.RUNNING]
    for part in bad:
        print_error(f"{part.name}: {states[part.name]}; its log is {cluster.log(part)}")
    if bad:
        click.echo(f"start another sandbox: zkconsumer sandbox down; {cluster.start_command}", err=True)
        context.exit(EXIT_FAILED)


@sandbox.command("down")
def down() -> None:
    """Stop the cluster and delete its files."""
    from zkconsumer.testing.sandbox import background_cluster

    cluster = background_cluster.down()
    click.echo("no sandbox was running" if cluster is None else f"stopped {len(cluster.parts)} processes", err=True)
