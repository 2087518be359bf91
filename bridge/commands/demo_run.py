"""The steps of ``zkconsumer demo``: two members in one group in ten seconds, without Java and without a server.

ZooKeeper runs in memory, and the brokers are two nodes of the embedded broker.  Connectors, requests and znodes are the
real ones.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.streams import KafkaStream

GROUP, TOPIC, PARTITIONS, MESSAGES_EACH = "demo", "clicks", 4, 25
STEP_TIMEOUT_MS = 8_000
POLL_INTERVAL_MS = 20


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


def run_demo() -> None:
    """Run it, and print each step.  ``click.ClickException``: something did not happen in time."""
    with FakeEnvironment(brokers=0, connect=BlockingConnection) as world:
        broker = EmbeddedBroker(nodes=2, zookeeper=ADDRESS, zk_store=world.store).start()
        try:
            _run_demo(world, broker)
        finally:
            broker.stop()


def _run_demo(world: FakeEnvironment, broker: EmbeddedBroker) -> None:
    seen = DeliveredRecords()
    click.echo(
        "A ZooKeeper in memory, and two nodes of the embedded broker on this machine. "
        f"Topic '{TOPIC}' has {PARTITIONS} partitions."
    )
    broker.create_topic(TOPIC, PARTITIONS)
    last = paths.partition_state(TopicPartition(TOPIC, PARTITIONS - 1))
    _wait_until("the topic is in ZooKeeper", lambda: world.zookeeper.data(last) is not None)
    _produce(broker, "before the first member joins")

    click.echo("\n1. 'anna' joins group 'demo' alone, so she owns every partition:")
    anna = DemoMember(world, "anna", seen)
    _wait_until("anna has read everything", lambda: len(seen.readers_by_record) == PARTITIONS * MESSAGES_EACH)
    _show(world, f"anna has read {seen.count('anna')} messages")

    click.echo("\n2. 'bert' joins. Anna commits and releases half; she reads the others without a pause:")
    bert = DemoMember(world, "bert", seen)
    _wait_until("both own half", lambda: _owners(world) == {0: "anna", 1: "anna", 2: "bert", 3: "bert"})
    _produce(broker, "for both")
    _wait_until("both have read", lambda: len(seen.readers_by_record) == 2 * PARTITIONS * MESSAGES_EACH)
    _show(world, f"anna has read {seen.count('anna')} messages, bert {seen.count('bert')}")
    anna.connector.commit_offsets()
    bert.connector.commit_offsets()

    click.echo("\n3. Anna's process dies (kill -9). Her session times out, and ZooKeeper deletes her nodes:")
    world.kill(anna.connector)
    _wait_until("bert owns everything", lambda: set(_owners(world).values()) == {"bert"} and len(_owners(world)) == 4)
    _produce(broker, "after the crash")
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


def _produce(broker: EmbeddedBroker, words: str) -> None:
    for partition in range(PARTITIONS):
        broker.append(TOPIC, partition, [f"{words} {n}".encode() for n in range(MESSAGES_EACH)])


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
