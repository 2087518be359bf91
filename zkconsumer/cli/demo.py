"""``zkconsumer demo``: two members in one group in ten seconds, without Java and without a server.

ZooKeeper runs in memory.  The two brokers run in memory too, unless another distribution offers better ones by the
entry point ``zkconsumer.demo_brokers``.  Connectors, requests and znodes are the real ones.
"""

from __future__ import annotations

import logging
import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

import click

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.cli.console import log_to_console
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.testing.fake_environment import ADDRESS, FakeEnvironment
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zkconsumer.streams import KafkaStream

GROUP, TOPIC, PARTITIONS, MESSAGES_EACH = "demo", "clicks", 4, 25
STEP_TIMEOUT_MS = 8_000
POLL_INTERVAL_MS = 20

BROKERS_ENTRY_POINT = "zkconsumer.demo_brokers"
"""Entry points of this group.  Each takes ``zookeeper.connect`` and a session factory and returns a ``DemoCluster``."""


class DemoCluster(Protocol):
    """What the demo needs of its brokers, which are registered in its ZooKeeper."""

    description: str

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; it may take a moment until it is in ZooKeeper."""

    def append(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Store records."""

    def stop(self) -> None:
        """Stop the brokers."""


class InMemoryDemoCluster:
    """The brokers of the ``FakeEnvironment``."""

    description = "A ZooKeeper and two brokers, in memory."

    def __init__(self, world: FakeEnvironment) -> None:
        self._world = world

    def create_topic(self, topic: str, partitions: int) -> None:
        self._world.create_topic(topic, partitions)

    def append(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        self._world.cluster.append(topic, partition, values)

    def stop(self) -> None:
        """Nothing to do: they end with the environment."""


class DemoMember:
    """One member of the demo, and a thread that reads its stream."""

    def __init__(self, world: FakeEnvironment, name: str, seen: DeliveredRecords) -> None:
        self.name = name
        self.connector = world.connector(
            group_id=GROUP, consumer_id=name, auto_offset_reset="smallest", zookeeper_session_timeout_ms=2000
        )
        [stream] = self.connector.create_message_streams({TOPIC: 1})[TOPIC]
        self._thread = spawn(f"reader-{name}", lambda stop: self._read(stream, seen, stop), lambda *_: None)

    def close(self) -> None:
        """Leave the group, and wait until the thread of the stream ends."""
        self.connector.shutdown()
        self._thread.join(STEP_TIMEOUT_MS)

    def _read(self, stream: KafkaStream[Any, Any], seen: DeliveredRecords, _: StopSignal) -> None:
        for message in stream:
            seen.add(self.name, message.partition, message.offset)


class DeliveredRecords:
    """Which member delivered which record."""

    def __init__(self) -> None:
        self.readers_by_record: dict[tuple[int, int], list[str]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, partition: int, offset: int) -> None:
        with self._lock:
            self.readers_by_record.setdefault((partition, offset), []).append(name)

    def count(self, name: str) -> int:
        return sum(names.count(name) for names in list(self.readers_by_record.values()))


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show the log lines of the members as well.")
def demo(verbose: bool) -> None:
    """Show how two members divide a topic: a join, a crash and a clean leave; no Java, no server."""
    log_to_console(logging.INFO if verbose else logging.ERROR)
    better = next(iter(entry_points(group=BROKERS_ENTRY_POINT)), None)
    world = FakeEnvironment(brokers=2) if better is None else FakeEnvironment(brokers=0, connect=BlockingConnection)
    with world:
        brokers: DemoCluster = InMemoryDemoCluster(world) if better is None else better.load()(ADDRESS, world.store)
        try:
            _run_demo(world, brokers)
        finally:
            brokers.stop()


def _run_demo(world: FakeEnvironment, brokers: DemoCluster) -> None:
    seen = DeliveredRecords()
    click.echo(f"{brokers.description} Topic '{TOPIC}' has {PARTITIONS} partitions.")
    brokers.create_topic(TOPIC, PARTITIONS)
    last = paths.partition_state(TopicPartition(TOPIC, PARTITIONS - 1))
    if not isinstance(brokers, InMemoryDemoCluster):
        _wait_until("the topic is in ZooKeeper", lambda: world.zookeeper.data(last) is not None)
    _produce(brokers, "before the first member joins")

    click.echo("\n1. 'anna' joins group 'demo' alone, so she owns every partition:")
    anna = DemoMember(world, "anna", seen)
    _wait_until("anna has read everything", lambda: len(seen.readers_by_record) == PARTITIONS * MESSAGES_EACH)
    _show(world, f"anna has read {seen.count('anna')} messages")

    click.echo("\n2. 'bert' joins. Anna commits and releases half; she reads the others without a pause:")
    bert = DemoMember(world, "bert", seen)
    _wait_until("both own half", lambda: _owners(world) == {0: "anna", 1: "anna", 2: "bert", 3: "bert"})
    _produce(brokers, "for both")
    _wait_until("both have read", lambda: len(seen.readers_by_record) == 2 * PARTITIONS * MESSAGES_EACH)
    _show(world, f"anna has read {seen.count('anna')} messages, bert {seen.count('bert')}")
    anna.connector.commit_offsets()
    bert.connector.commit_offsets()

    click.echo("\n3. Anna's process dies (kill -9). Her session times out, and ZooKeeper deletes her nodes:")
    world.kill(anna.connector)
    _wait_until("bert owns everything", lambda: set(_owners(world).values()) == {"bert"} and len(_owners(world)) == 4)
    _produce(brokers, "after the crash")
    _wait_until("bert has read the rest", lambda: len(seen.readers_by_record) == 3 * PARTITIONS * MESSAGES_EACH)
    _show(world, f"bert continues at anna's committed offsets; he has read {seen.count('bert')} messages")

    click.echo("\n4. Bert leaves cleanly: offsets are committed, owners and registration are deleted:")
    bert.close()
    _show(world, "")
    anna.close()
    twice = sum(len(names) > 1 for names in seen.readers_by_record.values())
    total = 3 * PARTITIONS * MESSAGES_EACH
    click.echo(
        f"\n{len(seen.readers_by_record)} of {total} messages were read, {total - len(seen.readers_by_record)} lost, "
        f"{twice} read twice."
    )
    click.echo("Next: 'zkconsumer sandbox up' for real servers, or 'zkconsumer consume --help' for your own.")


def _produce(brokers: DemoCluster, words: str) -> None:
    for partition in range(PARTITIONS):
        brokers.append(TOPIC, partition, [f"{words} {n}".encode() for n in range(MESSAGES_EACH)])


def _owners(world: FakeEnvironment) -> dict[int, str]:
    """Partition -> the member's short name."""
    return {
        partition: thread.removeprefix(f"{GROUP}_").rpartition("-")[0]
        for partition, thread in world.owners(GROUP, TOPIC).items()
    }


def _show(world: FakeEnvironment, words: str) -> None:
    owners, offsets = _owners(world), world.offsets(GROUP, TOPIC)
    click.echo("      partition  owner  committed offset")
    for partition in range(PARTITIONS):
        click.echo(f"      {partition:<9}  {owners.get(partition, '-'):<5}  {offsets.get(partition, '-')}")
    if words:
        click.echo(f"   {words}.")


def _wait_until(what: str, holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline_ms = SYSTEM_CLOCK.now_ms() + STEP_TIMEOUT_MS
    while not holds():
        if SYSTEM_CLOCK.now_ms() > deadline_ms:
            raise click.ClickException(f"this did not happen within {STEP_TIMEOUT_MS} ms: {what}")
        pause.wait(POLL_INTERVAL_MS / 1000)
