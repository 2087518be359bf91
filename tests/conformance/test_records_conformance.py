"""Records of real producers and brokers: both decoders read what Java's consumer and librdkafka read.

Both decoders read each raw answer, and each answer is read to its truncated tail.  ``produced_records`` defines what is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from bridge import CoordinatorConsumerConfig, CoordinatorConsumerConnector, KafkaConsumer
from tests.conformance.brokers_under_test import BrokerUnderTest, RealTopics, asking, fetched, real_one
from tests.conformance.produced_records import (
    BYTES_MAX,
    COMPACTED,
    Readers,
    Written,
    by_ours,
    check_alike,
    check_sent,
    in_format,
    newest_for,
    versions_to_read,
    wait_until_stable,
    write_compacted,
    write_everything,
    write_transactions,
    written,
)
from tests.decoder_comparison import seen_by_both
from zkconsumer import MessageAndMetadata
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.timer import Timer
from zkconsumer.errors import InvalidMessageException
from zkconsumer.testing.sandbox import ReaderProcess, RecordToSend, wait_until
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.isolation_level import READ_COMMITTED

RELEASES = ("0.8.2.2", "0.10.2.2", "0.11.0.3", "1.1.1", "3.9.1")

CODECS = ("none", "gzip", "snappy", "lz4")
"""Of every release here; zstd has topics of its own, because no broker converts it for readers of older formats."""

COMPACTION_TIMEOUT_MS = 60_000

STREAM_TIMEOUT_MS = 60_000

VERSIONS = {release: tuple(map(int, release.split("."))) for release in RELEASES}

OLD_FORMATS = {0: "0.9.0", 1: "0.10.2"}
"""Format → the value of ``message.format.version`` that makes a later broker keep it."""


REFUSED = r"Record is corrupt|Message is corrupt|Record batch .* is invalid"
"""The error of Java's consumers for a wrong checksum."""


def releases(first: tuple[int, ...], before: tuple[int, ...] = (99,)) -> pytest.MarkDecorator:
    """Real brokers from a release on."""
    some = [real_one(release) for release, version in VERSIONS.items() if first <= version < before]
    return pytest.mark.parametrize("broker_under_test", some, indirect=True)


@pytest.fixture(scope="session")
def readers(broker_under_test: BrokerUnderTest) -> Iterator[Readers]:
    assert isinstance(broker_under_test.topics, RealTopics), "a real broker"
    sandbox = broker_under_test.topics.sandbox
    java = ReaderProcess(sandbox.run, broker_under_test.release.name, sandbox.bootstrap)
    yield Readers(broker_under_test, java)
    java.close()


def check(topic: Written, readers: Readers) -> None:
    """Everything that the readers of other projects read of the topic is what both decoders of ours read."""
    read, error = readers.by_java(topic)
    assert error is None
    check_sent(topic, read)
    same, code, _ = readers.by_librdkafka(topic)
    assert code is None
    check_alike(same, read, "librdkafka")
    for version in versions_to_read(topic):
        magic = newest_for(topic, version)
        for bytes_max in BYTES_MAX:
            expected = [in_format(record, magic) for record in read]
            check_alike(by_ours(topic, version, bytes_max), expected, f"ours, v{version}")
    check_alike(by_poll(topic), read, "poll")


@releases((0, 8))
def test_every_shape_with_every_codec(broker_under_test: BrokerUnderTest, readers: Readers) -> None:
    check(write_everything(written(broker_under_test, "shapes"), CODECS), readers)


@releases((2, 1))
def test_every_shape_with_zstd(broker_under_test: BrokerUnderTest, readers: Readers) -> None:
    check(write_everything(written(broker_under_test, "zstd", first_version=10), ["zstd"]), readers)


@releases((0, 8), before=(2,))
@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.nightly), "gzip"])
def test_the_scala_producer(broker_under_test: BrokerUnderTest, readers: Readers, codec: str) -> None:
    topic = written(broker_under_test, f"scala-{codec}", first_version=0)
    some = [
        RecordToSend(b"key", b"value"),
        RecordToSend(None, b"value"),
        RecordToSend(b"", b"v" * 500),
        RecordToSend(b"k", b""),
    ]
    topic.by_scala(some * 5, codec)
    check(topic, readers)


@releases((0, 10))
def test_the_time_of_the_append(broker_under_test: BrokerUnderTest, readers: Readers) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    topic = written(broker_under_test, "append-time", config, is_append_time=True)
    check(write_everything(topic, ["none", "gzip"]), readers)


@releases((0, 10), before=(3,))
@pytest.mark.parametrize("magic", OLD_FORMATS)
def test_a_topic_in_an_older_format(broker_under_test: BrokerUnderTest, readers: Readers, magic: int) -> None:
    if magic >= broker_under_test.release.magic:
        return  # its own format: the other tests have it
    config = {"message.format.version": OLD_FORMATS[magic]}
    topic = written(broker_under_test, f"format-{magic}", config, magic=magic, first_version=0)
    check(write_everything(topic, ["none", "gzip", "lz4"]), readers)


@releases((0, 11))
def test_transactions(broker_under_test: BrokerUnderTest, readers: Readers) -> None:
    topic = write_transactions(written(broker_under_test, "transactions"))
    if broker_under_test.release.converts_lazily:
        # A converted answer that begins at a marker, which older formats do not have, contains the entry after it
        # twice.
        topic.first_version = 4
    wait_until_stable(topic)
    check(topic, readers)
    committed, error = readers.by_java(topic, "read_committed")
    assert error is None
    assert {record.offset for record in committed} == {offset for offset, _ in topic.sent} - topic.aborted
    same, code, _ = readers.by_librdkafka(topic, "read_committed")
    assert code is None
    check_alike(same, committed, "librdkafka")
    for version in versions_to_read(topic):
        for bytes_max in BYTES_MAX if version >= 4 else ():
            check_alike(by_ours(topic, version, bytes_max, READ_COMMITTED), committed, f"ours, v{version}")
    assert by_stream(topic, "read_committed", len(committed)) == [content(record) for record in committed]
    check_alike(by_poll(topic, "read_committed"), committed, "poll")
    everything, _ = readers.by_java(topic)
    assert by_stream(topic, "read_uncommitted", len(everything)) == [content(record) for record in everything]


def content(record: Record | MessageAndMetadata[bytes, bytes]) -> tuple[object, ...]:
    """What a program receives of a record."""
    return record.offset, record.key, record.value, record.timestamp, tuple(record.headers)


def by_stream(topic: Written, isolation_level: str, count: int) -> list[tuple[object, ...]]:
    """The first ``count`` records of a stream; the last record of the topic is in no transaction."""
    config = CoordinatorConsumerConfig(
        group_id=f"{topic.topic}-{isolation_level}",
        bootstrap_servers=topic.sandbox.bootstrap,
        auto_offset_reset="smallest",
        isolation_level=isolation_level,
        consumer_timeout_ms=STREAM_TIMEOUT_MS,
    )
    with CoordinatorConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic.topic: 1})[topic.topic]
        return [content(stream.iterator().next()) for _ in range(count)]


def by_poll(topic: Written, isolation_level: str = "read_uncommitted") -> list[Record]:
    """All records that ``KafkaConsumer.poll`` returns of the topic, a few in each call."""
    settings = {"bootstrap.servers": topic.sandbox.bootstrap, "isolation.level": isolation_level, "max.poll.records": 7}
    tp = TopicPartition(topic.topic, 0)
    found: list[Record] = []
    deadline = Timer(SYSTEM_CLOCK, STREAM_TIMEOUT_MS)
    with KafkaConsumer[bytes, bytes]({**settings, "fetch.max.wait.ms": 50}) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            deadline.update()
            assert not deadline.is_expired, f"{len(found)} records, position {consumer.position(tp)} of {end}"
            found += [
                Record(one.offset, one.timestamp, one.timestamp_type, one.key, one.value, one.headers)
                for one in consumer.poll(1_000)
            ]
    return found


@releases((0, 8))
def test_a_compacted_topic(broker_under_test: BrokerUnderTest, readers: Readers) -> None:
    topic = write_compacted(written(broker_under_test, "compacted", COMPACTED))
    if topic.magic == 2:
        # A reader of older formats never gets beyond records that are missing at the end of a segment.
        topic.first_version = 4
    wait_until(lambda: is_compacted(topic), "the log is compacted", COMPACTION_TIMEOUT_MS)
    assert topic.active_segment > 20, "there is something to compact"
    check(topic, readers)


def is_compacted(topic: Written) -> bool:
    """Before the active segment, which stays as it is, each key has one record: the last one there."""
    active = topic.active_segment
    newest = {record.key: offset for offset, record in topic.sent if offset < active}
    kept = [each.offset for each in by_ours(topic, versions_to_read(topic)[-1], BYTES_MAX[-1]) if each.offset < active]
    return kept == sorted(newest.values())


@releases((0, 8))
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_wrong_checksum(broker_under_test: BrokerUnderTest, readers: Readers, codec: str) -> None:
    """The broker sends what is in its file, and each reader rejects the same entry.

    Whichever byte was changed, both of our decoders return the same.
    """
    topic = written(broker_under_test, f"damaged-{codec}")
    for _ in range(3):
        topic.by_java([RecordToSend(b"key", b"a value that can be compressed" * 3)] * 3, codec)
    version = versions_to_read(topic)[-1]
    [row] = fetched(broker_under_test.connection(), version, asking(topic.topic))
    sound = bytes(row.records or b"")
    damaged = next(entry for entry in iter_entries(sound) if entry.last_offset >= 4)
    with topic.segments[0].open("r+b") as log:
        log.seek(damaged.end - 1)
        log.write(bytes([sound[damaged.end - 1] ^ 1]))
    [row] = fetched(broker_under_test.connection(), version, asking(topic.topic))
    records, failure = seen_by_both(bytes(row.records or b""))
    assert failure is not None
    assert failure[0] is InvalidMessageException
    assert failure[2]["offset"] == damaged.offset
    for position in range(0, len(sound), 3):
        for check_crcs in (True, False):
            one_byte = sound[:position] + bytes([sound[position] ^ 1 << position % 8]) + sound[position + 1 :]
            seen_by_both(one_byte, check_crcs=check_crcs)
    same, code, text = readers.by_librdkafka(topic, is_damaged=True)
    check_alike(same, records, "librdkafka")
    assert code == KafkaError._BAD_MSG
    assert f" at offset {damaged.offset} " in text
    read, refusal = readers.by_java(topic)
    # Before 0.11 Java decompresses what it has not verified, and 0.10 refuses the whole answer.
    check_alike(read, [] if topic.broker.release.version[:2] == (0, 10) else records, "Java")
    assert re.search(REFUSED if topic.magic == 2 or codec == "none" else "Corrupt GZIP trailer", refusal or "")
    assert topic.magic < 2 or f"at offset {damaged.offset} is invalid" in (refusal or "")
