"""``zkconsumer sandbox produce`` and ``zkconsumer sandbox topic``: write data, like Kafka's console tools.

The records are made by the Java producer of the brokers' release, so they are in that release's format.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias, cast

import click

from zkconsumer.cli.common import print_table
from zkconsumer.cli.console import print_error
from zkconsumer.cli.lazy_commands import LazyGroup
from zkconsumer.cli.sandbox import EXIT_NOT_RUNNING, NAME, PARTITIONS_MAX
from zkconsumer.errors import SandboxError, UsageError

if TYPE_CHECKING:
    import io

    from zkconsumer.testing.sandbox.background_client import BackgroundClusterClient

Pair: TypeAlias = tuple[bytes | None, bytes | None]

READ_BYTES = 64 * 1024
RECORDS_PER_BATCH = 10_000


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not NAME.fullmatch(value) or value in (".", ".."):
        raise click.BadParameter(f"'{value}' is not a topic name: letters, digits, '.', '_' and '-', 249 at most")
    return value


name_argument = click.argument("name", metavar="TOPIC", callback=_name)


def _open_data(context: click.Context) -> BackgroundClusterClient:
    """Return the client of the running sandbox; exit code 3 if no sandbox is running."""
    from zkconsumer.testing.sandbox import background_cluster
    from zkconsumer.testing.sandbox.background_client import BackgroundClusterClient

    cluster = background_cluster.current()
    if cluster is None:
        print_error("no sandbox is running; start one: zkconsumer sandbox up --topic clicks:4")
        context.exit(EXIT_NOT_RUNNING)
    return BackgroundClusterClient(cluster)


# --- topics ---------------------------------------------------------------------------------------------------------


@click.group("topic", cls=LazyGroup)
def topic() -> None:
    """Create and list the topics of the sandbox, and add partitions."""


@topic.command("create")
@name_argument
@click.option("--partitions", type=click.IntRange(1, PARTITIONS_MAX), default=1, show_default=True, metavar="N")
@click.pass_context
def create(context: click.Context, name: str, partitions: int) -> None:
    """Create a topic, and wait until its partitions have leaders."""
    with _open_data(context) as data:
        data.create_topic(name, partitions)
    click.echo(f"created topic {name} with {_counted(partitions, 'partition')}", err=True)


@topic.command("list")
@click.pass_context
def list_(context: click.Context) -> None:
    """List the topics and how many partitions each has."""
    with _open_data(context) as data:
        print_table(("TOPIC", "PARTITIONS"), sorted(data.topics().items()))


@topic.command("grow")
@name_argument
@click.option(
    "--partitions", type=click.IntRange(1, PARTITIONS_MAX), required=True, metavar="N", help="The new total number."
)
@click.pass_context
def grow(context: click.Context, name: str, partitions: int) -> None:
    """Add partitions to a topic, and wait until they have leaders."""
    with _open_data(context) as data:
        before = data.grow_topic(name, partitions)
    click.echo(f"topic {name} has {partitions} partitions (it had {before})", err=True)


# --- records --------------------------------------------------------------------------------------------------------


@click.command()
@name_argument
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Send N numbered records, TOPIC-1 to TOPIC-N.")
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="Send all records to this partition.")
@click.option("--key-separator", metavar="TEXT", help="A line is a key, this text, and a value.")
@click.pass_context
def produce(
    context: click.Context, name: str, count: int | None, partition: int | None, key_separator: str | None
) -> None:
    """Send each line of standard input, or numbered records, to a topic of the sandbox.

    Records without a key are distributed round-robin; Kafka's partitioner places records with a key.
    """
    if count is not None and key_separator is not None:
        raise UsageError("--count sends records without a key; remove --count or --key-separator")
    if key_separator == "":
        raise UsageError("--key-separator is empty; give the text between key and value, as in --key-separator :")
    sent: Counter[int] = Counter()
    why = ""
    with _open_data(context) as data:
        data.partitions_of(name)
        if count is None and sys.stdin.isatty():
            click.echo("each line is a record; Ctrl-D ends the input", err=True)
        pairs = _numbered(name, count) if count is not None else _lines(key_separator)
        try:
            for some in pairs:
                for one in data.produce(name, some, partition):
                    sent[one.partition] += one.last - one.first + 1
        except _MissingSeparator as error:
            why = str(error)
    where = ", ".join(f"{records} to partition {number}" for number, records in sorted(sent.items()))
    click.echo(f"sent {_counted(sent.total(), 'record')} to {name}{f': {where}' if where else ''}", err=True)
    if why:
        raise SandboxError(why)


class _MissingSeparator(Exception):
    """A line without the separator."""


def _numbered(name: str, count: int) -> Iterator[list[Pair]]:
    for start in range(1, count + 1, RECORDS_PER_BATCH):
        end = min(start + RECORDS_PER_BATCH, count + 1)
        yield [(None, f"{name}-{number}".encode()) for number in range(start, end)]


def _lines(key_separator: str | None) -> Iterator[list[Pair]]:
    """Yield lines of standard input as they arrive; raises ``_MissingSeparator`` after those before the bad line."""
    separator = None if key_separator is None else key_separator.encode()
    number = 0
    for lines in _read():
        pairs: list[Pair] = []
        for line in lines:
            number += 1
            if separator is None:
                pairs.append((None, line))
                continue
            key, found, value = line.partition(separator)
            if not found:
                if pairs:
                    yield pairs
                raise _MissingSeparator(
                    f"line {number} has no {key_separator!r} between a key and a value; this line and those after it"
                    " were not sent"
                )
            pairs.append((key, value))
        yield pairs


def _read() -> Iterator[list[bytes]]:
    """Yield whole lines, as many as have arrived; the last one may lack its end."""
    rest = b""
    stdin = cast("io.BufferedReader", sys.stdin.buffer)
    while piece := stdin.read1(READ_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
