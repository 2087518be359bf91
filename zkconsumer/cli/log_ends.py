"""``zkconsumer log-ends``: the end or the start of the logs of a topic, or offsets at a time, like GetOffsetShell.

Differences to that tool: partitions are in numerical order, each leader is asked once, failures are printed to
standard error, and then the exit code is 1.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from zkconsumer.admin.admin_session import AdminDependencies, tools_config
from zkconsumer.admin.broker_client import BrokerClient
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.common import EXIT_FAILED, open_zookeeper_session
from zkconsumer.cli.console import log_to_console, print_error
from zkconsumer.cli.options import (
    BOOTSTRAP_VARIABLE,
    ZOOKEEPER_VARIABLE,
    ClusterOptions,
    cluster_options,
    is_on_command_line,
)
from zkconsumer.config_tables.broker_connection_settings import check_bootstrap
from zkconsumer.errors import BrokerUnreachable, KafkaException, RemoteProtocolError, UnavailableError, UsageError
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.broker_security import connection_factory_from_config
from zkconsumer.kafka.error_codes import NONE
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.simple_requests import OffsetRequest, PartitionOffsetRequestInfo
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.kafka.metadata_client import LeaderMetadata

SO_TIMEOUT_MS = 10_000
"""As in GetOffsetShell (0.8 to 1.1)."""

CLIENT_ID = "zkconsumer-log-ends"

TROUBLE = (BrokerUnreachable, RemoteProtocolError, KafkaException)


@click.command("log-ends")
@click.option("--topic", required=True, metavar="T", help="The topic; it must exist.")
@click.option("--partitions", "numbers", metavar="N[,N…]", help="Only these partitions.")
@click.option(
    "--time",
    default=LATEST_TIME,
    show_default=True,
    metavar="MS|-1|-2",
    help="-1: where the log ends, -2: where it begins, else milliseconds since 1970.",
)
@click.option(
    "--offsets",
    "count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="At most N offsets for each partition, newest first (brokers before 4.0).",
)
@cluster_options
@click.pass_context
def log_ends(
    context: click.Context,
    topic: str,
    numbers: str | None,
    time: int,
    count: int,
    cluster: ClusterOptions,
) -> None:
    """Print topic:partition:offset for each partition of a topic, as GetOffsetShell does.

    With a time in milliseconds, brokers before 4.0 return the starts of the segments that were last written by then
    (none if there are none); later brokers return the first offset at or after it.
    """
    log_to_console()
    if time < EARLIEST_TIME:
        raise UsageError(f"--time {time}: give -1 (end of the log), -2 (start of the log) or a time, 0 or more")
    wanted = _numbers(numbers)
    seeds, connect = _brokers(context, cluster)
    doors = context.find_object(AdminDependencies)
    leaders = _leaders(seeds, connect, SYSTEM_CLOCK if doors is None else doors.clock, topic)
    ends = _LogEnds(connect, topic, PartitionOffsetRequestInfo(time, count))
    ends.request_all(leaders, wanted)
    for number in sorted(ends.offsets):
        click.echo(f"{topic}:{number}:{','.join(map(str, ends.offsets[number]))}")
    for trouble in ends.errors:
        print_error(trouble)
    if ends.errors:
        context.exit(EXIT_FAILED)


class _LogEnds:
    """The answers of the leaders, and the errors of the others."""

    def __init__(self, connect: ConnectionFactory, topic: str, info: PartitionOffsetRequestInfo) -> None:
        self.offsets: dict[int, tuple[int, ...]] = {}
        self.errors: list[str] = []
        self._connect = connect
        self._topic = topic
        self._info = info

    def request_all(self, found: LeaderMetadata, wanted: Sequence[int] | None) -> None:
        """Ask the leader of each partition."""
        leaders = {tp.partition: leader for tp, leader in found.partitions.items()}
        by_leader: dict[BrokerAddress, list[int]] = {}
        for number in sorted(leaders) if wanted is None else wanted:
            leader = leaders.get(number)
            if leader is None:
                self.errors.append(f"partition {number} does not exist")
            elif not isinstance(leader, BrokerAddress):
                self.errors.append(f"partition {number} does not have a leader")
            else:
                by_leader.setdefault(leader, []).append(number)
        for leader, numbers in by_leader.items():
            self._request_one(leader, numbers)

    def _request_one(self, leader: BrokerAddress, numbers: Sequence[int]) -> None:
        request = OffsetRequest({TopicPartition(self._topic, number): self._info for number in numbers})
        try:
            with _consumer(leader, self._connect) as consumer:
                response = consumer.get_offsets_before(request)
        except TROUBLE as error:
            self.errors.append(f"partitions {', '.join(map(str, numbers))}: {error}")
            return
        for number in numbers:
            code = response.error(self._topic, number)
            if code == NONE:
                self.offsets[number] = response.offsets(self._topic, number)
            else:
                self.errors.append(f"partition {number}: {leader} answers {code}")


def _consumer(broker: BrokerAddress, connect: ConnectionFactory) -> SimpleConsumer:
    return SimpleConsumer(broker.host, broker.port, SO_TIMEOUT_MS, client_id=CLIENT_ID, connect=connect)


def _leaders(seeds: Sequence[BrokerAddress], connect: ConnectionFactory, clock: Clock, topic: str) -> LeaderMetadata:
    """Return the metadata of the topic from the first broker that answers."""
    brokers = BrokerClient(lambda: seeds, connect, clock, client_id=CLIENT_ID)
    with closing(brokers):
        found = brokers.leaders([topic])
    if not found.partitions:
        raise UnavailableError(f"there is no topic {topic}: the brokers answer {found.topic_errors.get(topic, NONE)}")
    return found


def _brokers(context: click.Context, cluster: ClusterOptions) -> tuple[Sequence[BrokerAddress], ConnectionFactory]:
    """Return the brokers to ask first, and the connection factory."""
    servers = cluster.bootstrap_servers
    doors = context.find_object(AdminDependencies)
    given = None if doors is None else doors.connect
    if is_on_command_line(context, "bootstrap_servers") and is_on_command_line(context, "zookeeper"):
        raise UsageError("--bootstrap-server and --zookeeper both name the brokers; give one of them")
    if servers is not None and cluster.config_file is None:
        return _bootstrap(servers, given), given or BlockingConnection
    if cluster == ClusterOptions():
        raise UsageError(
            "give the addresses of the brokers: --bootstrap-server, --zookeeper or --config, or "
            f"{BOOTSTRAP_VARIABLE} or {ZOOKEEPER_VARIABLE} in the environment"
        )
    config = tools_config(cluster.zookeeper, cluster.config_file)
    connect = given or connection_factory_from_config(config)
    servers = servers or (config.bootstrap_servers if cluster.zookeeper is None else None)
    if servers is not None:
        return _bootstrap(servers, given), connect
    return open_zookeeper_session(context, cluster).brokers.all(), connect


def _bootstrap(servers: str, given: ConnectionFactory | None) -> Sequence[BrokerAddress]:
    try:
        found = BootstrapBrokers(check_bootstrap(servers))
    except ValueError as error:
        raise UsageError(f"--bootstrap-server: {error}") from error
    if given is None:
        found.check()
    return found.brokers()


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise UsageError(f"--partitions: {text!r} is not a list of numbers like 0,3,5") from None
