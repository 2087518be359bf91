"""``KafkaConsumer`` on real brokers: positions, pauses, times, TLS and logins, idle connections, brokers that end."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest

from bridge import ConsumerRecord, KafkaConsumer
from tests.coordinator_group_fixtures import ModernClusters
from tests.interruptions import Interrupted
from tests.sandbox_fixtures import require_releases
from zkconsumer import OffsetAndMetadata
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.timer import Timer
from zkconsumer.errors import AuthenticationException
from zkconsumer.testing.sandbox import RecordToSend, Sandbox, SandboxSecurity
from zkconsumer.types import TopicPartition

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]

DEADLINE_MS = 90_000
POLL_MS = 200
RECORDS = 500
PROGRAMS = 10
"""At least so many are ended by signals before everything is read."""
REAUTH_MS = 2_500
"""The lifetime of a login (KIP-368); the broker ends a connection whose login was not renewed by then."""
LONG_SESSIONS_FROM = (0, 10, 1)
"""Before, the brokers accept at most 30 s by default, and the consumer's default is 45 s (KIP-735)."""
TIMES_FROM = (0, 10, 1)
"""ListOffsets by time, KIP-79."""


def a_release(release: str, *, nightly: bool = False) -> object:
    return pytest.param(release, marks=[pytest.mark.nightly] if nightly else [])


RELEASES = [
    a_release("0.9.0.1", nightly=True),
    a_release("0.11.0.3", nightly=True),
    a_release("1.1.1"),
    a_release("3.9.1"),
    a_release("4.1.1", nightly=True),
]


def version_of(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def poll_until(
    consumer: KafkaConsumer[bytes, bytes], is_done: Callable[[list[ConsumerRecord]], bool]
) -> list[ConsumerRecord]:
    """The records of all polls until the condition holds for them."""
    found: list[ConsumerRecord] = []
    timer = Timer(SYSTEM_CLOCK, DEADLINE_MS)
    while not is_done(found):
        assert not timer.is_expired, f"only {len(found)} records: {Counter(one.partition for one in found)}"
        found += consumer.poll(POLL_MS)
        timer.update()
    return found


def read(consumer: KafkaConsumer[bytes, bytes], count: int) -> list[ConsumerRecord]:
    return poll_until(consumer, lambda found: len(found) >= count)


@pytest.mark.parametrize("broker", RELEASES)
def test_positions_pauses_and_times(broker: str, modern_clusters: ModernClusters, names: tuple[str, str]) -> None:
    cluster = modern_clusters.get(broker)
    group, topic = names
    cluster.create_topic(topic, 2)
    has_times = version_of(broker) >= TIMES_FROM
    start_ms = SYSTEM_CLOCK.wall_ms() - 3_600_000  # older records would be deleted
    for partition in range(2):
        sent = [RecordToSend(b"k", b"%d" % n, start_ms + 1_000 * n if has_times else None) for n in range(RECORDS)]
        cluster.producer.produce_records(topic, partition, sent)
    tp0, tp1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    if version_of(broker) < LONG_SESSIONS_FROM:
        settings["session.timeout.ms"] = "30000"
    with KafkaConsumer[bytes, bytes]({**settings, "enable.auto.commit": "false", "max.poll.records": "50"}) as consumer:
        assert sorted(one.partition for one in consumer.partitions_for(topic)) == [0, 1]
        assert topic in consumer.list_topics()
        consumer.subscribe([topic])
        found = read(consumer, 2 * RECORDS)
        assert Counter((one.partition, one.offset) for one in found) == Counter(
            (partition, offset) for partition in range(2) for offset in range(RECORDS)
        )
        assert consumer.assignment() == {tp0, tp1}
        assert (consumer.position(tp0), consumer.position(tp1)) == (RECORDS, RECORDS)
        assert consumer.beginning_offsets([tp0, tp1]) == {tp0: 0, tp1: 0}
        assert consumer.end_offsets([tp0, tp1]) == {tp0: RECORDS, tp1: RECORDS}
        # A paused partition returns nothing, and all of it afterwards.
        consumer.seek_to_beginning()
        consumer.pause([tp0])
        assert {one.partition for one in read(consumer, RECORDS)} == {1}
        assert consumer.paused() == {tp0}
        consumer.resume([tp0])
        assert [one.offset for one in read(consumer, RECORDS)] == list(range(RECORDS))
        # Seeks, backwards and with metadata of a commit.
        consumer.seek(tp1, 490)
        assert [(one.partition, one.offset) for one in read(consumer, 10)] == [(1, n) for n in range(490, RECORDS)]
        consumer.commit_sync({tp0: OffsetAndMetadata(7, "seven"), tp1: OffsetAndMetadata(9)})
        committed = consumer.committed([tp0, tp1])
        assert {tp: (one.offset, one.metadata) for tp, one in committed.items() if one is not None} == {
            tp0: (7, "seven"), tp1: (9, ""),
        }  # fmt: skip
        if has_times:
            times = consumer.offsets_for_times({tp0: start_ms + 249_001, tp1: start_ms + 10**9})
            assert times[tp0] is not None
            assert (times[tp0].offset, times[tp0].timestamp) == (250, start_ms + 250_000)
            assert times[tp1] is None
        assert consumer.group_metadata().generation_id >= 1
    # The next member begins at the commits.
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.subscribe([topic])
        found = read(consumer, 2 * RECORDS - 16)
    assert {one.partition: one.offset for one in reversed(found)} == {0: 7, 1: 9}


@contextmanager
def four_partitions(
    cluster: Sandbox, names: tuple[str, str], filled: range, settings: dict[str, str]
) -> Iterator[KafkaConsumer[bytes, bytes]]:
    """A consumer of four partitions with fetches of 20 records; ``filled``: those that have records."""
    group, topic = names
    cluster.create_topic(topic, 4)
    for partition in filled:
        cluster.producer.produce(topic, partition, RECORDS, size=4_000)
    common = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    small = {"max.partition.fetch.bytes": "80000", "max.poll.records": "10"}
    with KafkaConsumer[bytes, bytes]({**common, **small, **settings}) as consumer:
        consumer.subscribe([topic])
        yield consumer


@pytest.mark.parametrize("broker", ["1.1.1", "3.9.1"])
def test_each_partition_has_its_turn_if_a_response_has_no_room_for_all(
    broker: str, modern_clusters: ModernClusters, names: tuple[str, str]
) -> None:
    """The brokers keep the order of a fetch session, and the rows of the first fetches have no records."""
    small = {"fetch.max.bytes": "100000"}
    with four_partitions(modern_clusters.get(broker), names, range(4), small) as consumer:
        found = Counter(one.partition for one in read(consumer, 2 * RECORDS))
    assert min(found[partition] for partition in range(4)) >= RECORDS // 4, found


@pytest.mark.parametrize("broker", ["1.1.1", "3.9.1"])
def test_a_partition_at_its_end_does_not_delay_the_others(
    broker: str, modern_clusters: ModernClusters, names: tuple[str, str]
) -> None:
    """A broker answers a fetch of this partition alone after ``fetch.max.wait.ms``, and there are a hundred fetches."""
    patient = {"fetch.max.wait.ms": "20000"}
    with four_partitions(modern_clusters.get(broker), names, range(1, 4), patient) as consumer:
        assert len(read(consumer, 3 * RECORDS)) == 3 * RECORDS


class SignalSender:
    """Sends signals to the main thread, whose handler raises while ``is_armed``."""

    def __init__(self, random: Random) -> None:
        self.is_armed = False
        self._random = random
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> SignalSender:
        self._handler_before = signal.signal(signal.SIGUSR1, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        if self._thread.ident is not None:
            self._thread.join()
        signal.signal(signal.SIGUSR1, self._handler_before)

    def start(self) -> None:
        """Send them from now on."""
        if self._thread.ident is None:
            self._thread.start()

    def _send(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._is_done.wait(self._random.uniform(0.001, 0.02)):
            signal.pthread_kill(main, signal.SIGUSR1)

    def _handle(self, *_: object) -> None:
        if self.is_armed:
            self.is_armed = False
            raise Interrupted


@pytest.mark.parametrize("broker", [a_release("1.1.1", nightly=True), a_release("3.9.1")])
def test_an_exception_of_a_signal_handler_in_poll_costs_no_record(
    broker: str, modern_clusters: ModernClusters, names: tuple[str, str]
) -> None:
    """Each program ends by one and closes its consumer; the next one reads on from the committed offsets."""
    cluster, (group, topic) = modern_clusters.get(broker), names
    cluster.create_topic(topic, 2)
    for partition in range(2):
        cluster.producer.produce(topic, partition, 50 * RECORDS, size=100)
    settings = {"auto.offset.reset": "earliest", "max.poll.records": "1", "max.partition.fetch.bytes": "20000"}
    positions, random, programs = Counter[int](), Random(5), 0
    timer = Timer(SYSTEM_CLOCK, DEADLINE_MS)
    while positions.total() < 100 * RECORDS:
        programs += 1
        with (
            SignalSender(random) as signals,
            KafkaConsumer[bytes, bytes](
                {"bootstrap.servers": cluster.bootstrap, "group.id": group, **settings}
            ) as consumer,
            suppress(Interrupted),
        ):
            consumer.subscribe([topic])
            while positions.total() < 100 * RECORDS:
                assert not timer.is_expired, f"{positions} after {programs} programs"
                signals.is_armed = True
                records = consumer.poll(POLL_MS)
                signals.is_armed = False
                for record in records:
                    assert record.offset == positions[record.partition], f"partition {record.partition}"
                    positions[record.partition] += 1
                    signals.start()
                timer.update()
    assert programs >= PROGRAMS


@pytest.fixture(scope="module")
def secured() -> Iterator[tuple[Sandbox, SandboxSecurity]]:
    require_releases("3.9.1")
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        security = SandboxSecurity(broker_settings={"connections.max.reauth.ms": str(REAUTH_MS)})
        sandbox.start_broker("3.9.1", chroot="/kafka", security=security)
        yield sandbox, security


LOGINS = [("SSL", None), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "PLAIN")]


@pytest.mark.parametrize(("protocol", "mechanism"), LOGINS)
def test_tls_and_logins(
    secured: tuple[Sandbox, SandboxSecurity], fresh_name: str, protocol: str, mechanism: str | None
) -> None:
    sandbox, security = secured
    sandbox.create_topic(fresh_name, 1)
    sandbox.produce(fresh_name, 0, RECORDS)
    settings = {
        "bootstrap.servers": security.address(protocol), "group.id": fresh_name, "auto.offset.reset": "earliest",
        **security.settings(protocol, mechanism),
    }  # fmt: skip
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.subscribe([fresh_name])
        assert [one.offset for one in read(consumer, RECORDS)] == list(range(RECORDS))
        consumer.commit_sync()
        assert consumer.committed([TopicPartition(fresh_name, 0)])[TopicPartition(fresh_name, 0)] is not None


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_login_is_renewed_while_a_fetch_is_in_flight(
    secured: tuple[Sandbox, SandboxSecurity], fresh_name: str, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    sandbox, security = secured
    sandbox.create_topic(fresh_name, 1)
    settings = {
        "bootstrap.servers": security.address(protocol), "group.id": fresh_name, "auto.offset.reset": "earliest",
        **security.settings(protocol, "SCRAM-SHA-256"),
        # The broker answers when this time is over, so that a fetch is in flight nearly always.
        "fetch.min.bytes": "1000000", "fetch.max.wait.ms": "700",
    }  # fmt: skip
    caplog.set_level(logging.INFO)
    found: list[ConsumerRecord] = []
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.subscribe([fresh_name])
        sent = 0
        timer = Timer(SYSTEM_CLOCK, 4 * REAUTH_MS)
        while not timer.is_expired:
            sandbox.produce(fresh_name, 0, 1)
            sent += 1
            found += consumer.poll(POLL_MS)
            timer.update()
        found += read(consumer, sent - len(found))
    assert [one.offset for one in found] == list(range(sent))
    assert "fetch-request-failed" not in caplog.text
    assert caplog.text.count("Successfully joined group") == 1


def test_a_login_that_is_rejected_is_the_error_of_poll(
    secured: tuple[Sandbox, SandboxSecurity], fresh_name: str
) -> None:
    _, security = secured
    settings = {
        "bootstrap.servers": security.address("SASL_SSL"), "group.id": fresh_name,
        **security.settings("SASL_SSL", "SCRAM-SHA-512"), "sasl.password": "wrong",
    }  # fmt: skip
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.subscribe([fresh_name])
        with pytest.raises(AuthenticationException, match="does not accept the user or the password"):
            poll_until(consumer, lambda _: False)


@pytest.mark.parametrize("broker", ["3.9.1"])
def test_connections_that_were_closed_while_idle_are_opened_again(
    broker: str, modern_clusters: ModernClusters, names: tuple[str, str]
) -> None:
    cluster = modern_clusters.get(broker)
    group, topic = names
    cluster.create_topic(topic, 1)
    settings = {
        "bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "connections.max.idle.ms": "300", "fetch.max.wait.ms": "50",
    }  # fmt: skip
    with KafkaConsumer[bytes, bytes](settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for round_ in range(3):
            cluster.producer.produce(topic, 0, 10)
            assert [one.offset for one in read(consumer, 10)] == list(range(10 * round_, 10 * round_ + 10))
            consumer.commit_sync()
            consumer.pause([TopicPartition(topic, 0)])
            poll_until_idle = Timer(SYSTEM_CLOCK, 1_000)
            while not poll_until_idle.is_expired:
                assert consumer.poll(POLL_MS).is_empty()
                poll_until_idle.update()
            consumer.resume([TopicPartition(topic, 0)])


REPLICATED = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "4"}


@pytest.mark.parametrize("broker", [a_release("1.1.1", nightly=True), a_release("3.9.1")])
def test_a_leader_that_is_killed_costs_no_record(broker: str, sandbox: Sandbox, names: tuple[str, str]) -> None:
    require_releases(broker)
    group, topic = names
    sandbox.start_zookeeper()
    settings = REPLICATED | {"zookeeper.session.timeout.ms": "6000"}
    servers = [sandbox.start_broker(broker, chroot="/kafka", settings=settings) for _ in range(2)]
    sandbox.create_topic(topic, 4, replicas={n: [n % 2, 1 - n % 2] for n in range(4)})
    config = {
        "bootstrap.servers": sandbox.bootstrap, "group.id": group,
        "auto.offset.reset": "earliest", "session.timeout.ms": "20000", "auto.commit.interval.ms": "200",
        "metadata.max.age.ms": "2000",
    }  # fmt: skip
    seen: Counter[tuple[int, int]] = Counter()

    def read_on(consumer: KafkaConsumer[bytes, bytes], wanted: Callable[[], set[tuple[int, int]]]) -> None:
        timer = Timer(SYSTEM_CLOCK, DEADLINE_MS)
        while not wanted() <= seen.keys():
            assert not timer.is_expired, f"{len(wanted() - seen.keys())} records are missing"
            seen.update((one.partition, one.offset) for one in consumer.poll(POLL_MS))
            timer.update()

    def acknowledged() -> set[tuple[int, int]]:
        offsets = sandbox.producer.acked_offsets(topic)
        return {(partition, offset) for partition, some in offsets.items() for offset in some}

    with KafkaConsumer[bytes, bytes](config) as consumer:
        consumer.subscribe([topic])
        sandbox.producer.start_rate(topic, 4, 200)
        read_on(consumer, lambda: {(partition, 20) for partition in range(4)})
        servers[1].kill()
        before = acknowledged()
        read_on(consumer, lambda: before)
        sandbox.producer.stop_rate()
        servers[1].start()
        read_on(consumer, acknowledged)
    assert max(seen.values()) == 1, "one member, and no rebalance: each record once"
