"""What is recorded: Java's console clients and tools of a release, at a broker of a release, through the proxy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.wire_oracles.proxy import RecordingProxy
from tests.wire_oracles.recorded_frames import DATA, OffsetsRecord, Recorded
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.sandbox import KraftBroker, Sandbox, ZooKeeperModeBroker, wait_until
from zkconsumer.testing.sandbox.artifacts import TOOLS_SUFFIX, artifact_set
from zkconsumer.testing.sandbox.child_process import JavaCommand, JavaProcess, write_properties
from zkconsumer.wire.records import iter_records, scan_record_set
from zkconsumer.wire.schemas import FETCH, FIND_COORDINATOR, HEARTBEAT, OFFSET_COMMIT
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.offset_commit import (
    BROKER_RETENTION,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)

TOPIC = "recorded"
GROUP, STATIC_GROUP, COMMITTING_GROUP = "recorded-group", "recorded-static", "recorded-commits"
RETENTION_MS = 3_600_000
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 5
TIMEOUT_MS = 20_000
STAYS_MS = "2000"
STAYS_LONG_MS = "30000"
TOOL_TIMEOUT_MS = 60_000
FETCHES_MAX = 100
SETTINGS = {"group.min.session.timeout.ms": "1000", "offsets.load.buffer.size": "1048576"}

CONSUMER = {
    "heartbeat.interval.ms": "200",
    "session.timeout.ms": "6000",
    "auto.commit.interval.ms": "500",
    "client.id": "recorder",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A client and a broker, by release; a client without a name is ours, and only commits."""

    client: str
    broker: str

    def __str__(self) -> str:
        return f"client-{self.client or 'ours'}-broker-{self.broker}"

    @property
    def path(self) -> Path:
        return DATA / f"{self}.txt"

    @property
    def releases(self) -> tuple[str, ...]:
        """What must be there to record it."""
        if not self.client:
            return (self.broker,)
        tools = (self.client + TOOLS_SUFFIX,) if _numbers(self.client) >= TOOLS_APART_FROM else ()
        return (self.client, self.broker, *tools)

    @property
    def is_kraft(self) -> bool:
        return not artifact_set(self.broker).has_zookeeper_mode


PAIRS = (
    Pair("0.9.0.1", "0.9.0.1"),
    Pair("1.1.1", "1.1.1"),
    Pair("2.8.2", "0.10.2.2"),
    Pair("2.8.2", "2.0.1"),
    Pair("2.8.2", "2.8.2"),
    Pair("3.9.1", "3.9.1"),
    Pair("4.1.1", "4.1.1"),
)
"""The same release on both sides speaks its highest versions; a newer client on an older broker, those in between."""

COMMITS_ONLY = (Pair("", "0.8.2.2"),)
"""Brokers without groups: recorded for what they store."""

TOOLS_APART_FROM = (3, 9)
ADMIN_TOPICS_FROM = (2, 8)
STATIC_FROM = (2, 3)
NEW_CONSUMER_FLAG_UP_TO = (0, 9, 99)


def record(pair: Pair) -> Recorded:
    """Starts both, lets them talk, and reads what the broker has stored."""
    with Sandbox() as sandbox:
        broker: ZooKeeperModeBroker | KraftBroker
        if pair.is_kraft:
            broker = sandbox.start_kraft_broker(pair.broker, settings=SETTINGS)
        else:
            sandbox.start_zookeeper()
            broker = sandbox.start_broker(pair.broker, chroot="/kafka", settings=SETTINGS)
        sandbox.create_topic(TOPIC, 2)
        sandbox.produce(TOPIC, 0, 3)
        sandbox.produce(TOPIC, 1, 2)
        frames = []
        if pair.client:
            with RecordingProxy(broker.port) as proxy:
                Traffic(sandbox, pair.client, _numbers(pair.broker), proxy).run()
                frames = list(proxy.frames)
        commit(broker.port, 2 if pair.client else 1)
        return Recorded(frames, list(stored_records(broker.port)))


def commit(port: int, version: int) -> None:
    """One offset of a group without members; in version 2 with an expiry time of its own, which 0.8.2 does not know."""
    row = OffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata="note")
    body = OffsetCommitRequest(
        group_id=COMMITTING_GROUP,
        retention_time_ms=RETENTION_MS if version >= 2 else BROKER_RETENTION,
        topics=[OffsetCommitTopic(name=TOPIC, partitions=[row])],
    )
    connection = BlockingConnection("127.0.0.1", port)

    def is_stored() -> bool:
        """The first question about any group makes the topic of the offsets, and is answered later."""
        connection.request(FIND_COORDINATOR, 0, FindCoordinatorRequest(key=COMMITTING_GROUP), TIMEOUT_MS)
        [topic] = connection.request(OFFSET_COMMIT, version, body, TIMEOUT_MS).topics
        return topic.partitions[0].error_code == 0

    try:
        wait_until(is_stored, "an offset is committed", TIMEOUT_MS)
    finally:
        connection.close()


class Traffic:
    """One client release at work."""

    def __init__(self, sandbox: Sandbox, client: str, broker: tuple[int, ...], proxy: RecordingProxy) -> None:
        self._sandbox = sandbox
        self._client = client
        self._version = _numbers(client)
        self._broker = broker
        self._proxy = proxy
        self._old_words = ["--new-consumer"] if self._version <= NEW_CONSUMER_FLAG_UP_TO else []

    def run(self) -> None:
        """Members that come, stay and go; then everything that the tools do with a group."""
        # The second time there are offsets, whose epochs later clients have the leader confirm.
        for _ in range(2):
            with self._member(GROUP, STAYS_MS) as first:
                assert first.wait(TIMEOUT_MS) is not None, f"it did not end: {first.log_end()}"
        static = {"group.instance.id": "i-1"} if min(self._version, self._broker) >= STATIC_FROM else {}
        with self._member(STATIC_GROUP, STAYS_LONG_MS, static) as second:
            heard = self._heartbeats()
            wait_until(lambda: self._heartbeats() > heard, "a member has its heartbeat answered", TIMEOUT_MS)
            self._groups("--list")
            self._groups("--describe", "--group", STATIC_GROUP)
            if min(self._version, self._broker) >= (1, 1):
                self._groups("--describe", "--group", STATIC_GROUP, "--members", "--verbose")
                self._groups("--describe", "--group", STATIC_GROUP, "--state")
            second.stop(TIMEOUT_MS)
        if min(self._version, self._broker) >= (0, 11):
            topic = ("--group", GROUP, "--topic", TOPIC)
            self._groups("--reset-offsets", *topic, "--to-earliest", "--execute")
        if min(self._version, self._broker) >= (2, 4):
            self._groups("--delete-offsets", "--group", GROUP, "--topic", f"{TOPIC}:1")
        if min(self._version, self._broker) >= (1, 1):
            self._groups("--delete", "--group", GROUP)
        self._produce()
        if self._version >= ADMIN_TOPICS_FROM:
            self._topics("--create", "--topic", "made", "--partitions", "2", "--replication-factor", "1")
            if self._broker >= (1,):
                self._topics("--describe", "--topic", "made")
                self._topics("--delete", "--topic", "made")
        if self._version >= TOOLS_APART_FROM:
            self._tool("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", self._proxy.address)

    def _heartbeats(self) -> int:
        return sum(frame.api is HEARTBEAT and not frame.is_request for frame in list(self._proxy.frames))

    @contextmanager
    def _member(self, group: str, stays_ms: str, settings: dict[str, str] | None = None) -> Iterator[JavaProcess]:
        run = self._sandbox.run
        config = write_properties({**CONSUMER, "group.id": group, **(settings or {})}, run.root / f"{group}.properties")
        words = [*self._old_words, "--bootstrap-server", self._proxy.address, "--topic", TOPIC, "--from-beginning"]
        words += ["--timeout-ms", stays_ms, "--consumer.config", str(config)]
        main = "org.apache.kafka.tools.consumer.ConsoleConsumer" if self._is_apart else "kafka.tools.ConsoleConsumer"
        command = JavaCommand(self._tools, main, tuple(words))
        process = JavaProcess(run, "tool", group, command, reads_commands=True)
        try:
            yield process
        finally:
            process.stop(TIMEOUT_MS)

    @property
    def _is_apart(self) -> bool:
        return self._version >= TOOLS_APART_FROM

    @property
    def _tools(self) -> str:
        return self._client + TOOLS_SUFFIX if self._is_apart else self._client

    def _groups(self, *words: str) -> None:
        main = "kafka.admin.ConsumerGroupCommand"
        if self._is_apart:
            main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        self._tool(main, *self._old_words, "--bootstrap-server", self._proxy.address, *words)

    def _topics(self, *words: str) -> None:
        main = "org.apache.kafka.tools.TopicCommand" if self._is_apart else "kafka.admin.TopicCommand"
        self._tool(main, "--bootstrap-server", self._proxy.address, *words)

    def _produce(self) -> None:
        """3.9.1 keeps its producer in the broker's artifact."""
        is_in_tools = self._version >= (4,)
        main = "org.apache.kafka.tools.ConsoleProducer" if is_in_tools else "kafka.tools.ConsoleProducer"
        word = "--bootstrap-server" if self._version >= (2, 5) else "--broker-list"
        self._tool(
            main,
            *(word, self._proxy.address, "--topic", TOPIC),
            stdin="one\ntwo\n",
            release=self._tools if is_in_tools else self._client,
        )

    def _tool(self, main: str, *words: str, stdin: str = "", release: str | None = None) -> None:
        result = self._sandbox.run_tool(release or self._tools, main, words, stdin=stdin, timeout_ms=TOOL_TIMEOUT_MS)
        assert result.code == 0, f"{main} {' '.join(words)}: {result.out}\n{result.err[-3000:]}"


def stored_records(port: int) -> Iterator[OffsetsRecord]:
    """Every record of ``__consumer_offsets``, partition by partition."""
    connection = BlockingConnection("127.0.0.1", port)
    try:
        version = negotiate(connection, TIMEOUT_MS).pick(FETCH)
        for partition in range(OFFSETS_PARTITIONS):
            offset = 0
            for _ in range(FETCHES_MAX):
                asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1_000_000)
                topic = FetchTopic(topic=OFFSETS_TOPIC, partitions=[asked])
                body = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[topic])
                response = connection.request(FETCH, version, body, TIMEOUT_MS)
                [row] = response.responses[0].partitions
                assert row.error_code == 0, f"{OFFSETS_TOPIC}/{partition}: error {row.error_code}"
                if not row.records:
                    break
                for each in iter_records(row.records, offset):
                    if each.key is not None:
                        yield OffsetsRecord(bytes(each.key), None if each.value is None else bytes(each.value))
                offset = scan_record_set(row.records).next_offset
    finally:
        connection.close()


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def named(words: Sequence[str]) -> list[Pair]:
    """The pairs whose client or broker is one of these releases; all without any."""
    return [pair for pair in (*PAIRS, *COMMITS_ONLY) if not words or pair.client in words or pair.broker in words]
