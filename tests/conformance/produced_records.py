"""Records of every shape, written by real producers; and what the readers of other projects read of them.

producers of Java, Scala, librdkafka --> a real broker --> the raw answer --> both decoders of ours
                                                    `----> Java's consumer (0.8.2: Scala's), librdkafka
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bridge.broker.apis.fetch import max_magic_of_fetch as newest_magic
from tests.conformance import librdkafka_reader
from tests.conformance.brokers_under_test import (
    PLENTY,
    TIMEOUT_MS,
    BrokerUnderTest,
    RealTopics,
    asking,
    fetched,
    versions_of,
)
from tests.decoder_comparison import seen_by_both
from tests.sandbox_fixtures import librdkafka_settings
from zkconsumer.testing.sandbox import ReaderProcess, ReadResult, RecordToSend, Sandbox, wait_until
from zkconsumer.wire.entries import Record
from zkconsumer.wire.isolation_level import READ_COMMITTED
from zkconsumer.wire.records import scan_record_set
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartitionResponse
from zkconsumer.wire.transactions import aborted_batches

TIME_MS = 1_500_000_000_000

BYTES_MAX = (60, 900, PLENTY)
"""What a partition's part of an answer may have: less than an entry, a few entries, everything."""

PLAIN = (
    RecordToSend(b"key", b"value"),
    RecordToSend(None, b"value"),
    RecordToSend(b"key", None),
    RecordToSend(None, None),
    RecordToSend(b"", b""),
    RecordToSend(b"k" * 100, b"v" * 300),
    RecordToSend(b"\xff\x00", bytes(range(256))),
)
TIMED = (
    RecordToSend(b"key", b"value", TIME_MS),
    RecordToSend(b"key", b"before the one before it", TIME_MS - 86_400_000),
    RecordToSend(None, None, 1),
    RecordToSend(b"", b"far behind", TIME_MS + 10**10),
)
WITH_HEADERS = (
    RecordToSend(b"key", b"value", None, (("name", b"value"),)),
    RecordToSend(None, None, TIME_MS, (("", b""), ("null", None), ("null", b"not this one"))),
    RecordToSend(b"key", b"", TIME_MS + 1, (("größe", "größe".encode()), ("long", b"h" * 200))),
)
LONG = RecordToSend(None, b"a value that can be compressed " * 150)


def shapes(magic: int) -> list[RecordToSend]:
    """Every shape that a format can hold."""
    return [*PLAIN, *(TIMED if magic else ()), *(WITH_HEADERS if magic == 2 else ()), LONG]


@dataclass
class Written:
    """A topic of one partition, and what was sent to it: offset and record, in the order of offsets."""

    broker: BrokerUnderTest
    topic: str
    sent: list[tuple[int, RecordToSend]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    """The offsets of those that were sent in transactions that were aborted."""
    is_append_time: bool = False
    magic: int = 2
    """The format in which the broker keeps it."""

    first_version: int = 0
    """The first version of Fetch in which the broker can send it."""

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.sent[-1][0] + 1

    @property
    def sandbox(self) -> Sandbox:
        assert isinstance(self.broker.topics, RealTopics), "a real broker"
        return self.broker.topics.sandbox

    @property
    def segments(self) -> dict[int, Path]:
        """The first offset of each segment, and the broker's file, which it sends from without looking into it."""
        folder = self.sandbox.run.root / self.sandbox.brokers[0].name / "data" / f"{self.topic}-0"
        return {int(file.stem): file for file in folder.glob("*.log")}

    @property
    def active_segment(self) -> int:
        """The first offset of the segment that is written to."""
        return max(self.segments)

    def by_java(self, records: Sequence[RecordToSend], codec: str = "none", transaction: str = "") -> list[int]:
        """Java's producer of the broker's release; the offsets, when all are acknowledged."""
        done = self.sandbox.producer.produce_records(self.topic, 0, records, codec=codec, transaction=transaction)
        assert done.last - done.first + 1 == len(records), "they stand next to each other"
        offsets = list(range(done.first, done.last + 1))
        self.sent += zip(offsets, records, strict=True)
        return offsets

    def end_transaction(self, name: str, *, commit: bool) -> None:
        """Ends it, and waits for its marker: the coordinator answers before the marker is in the partition's log."""
        before = self.log_end()
        self.sandbox.producer.end(name, commit=commit)
        wait_until(lambda: self.log_end() > before, "the marker of the transaction is in the log", TIMEOUT_MS)

    def log_end(self) -> int:
        """The offset of the next record, from the broker."""
        consumer = Consumer(
            {**librdkafka_settings(self.sandbox.bootstrap, self.broker.release.name), "group.id": "end"}
        )
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(self.topic, 0), TIMEOUT_MS / 1000)[1])
        finally:
            consumer.close()

    def by_librdkafka(self, records: Sequence[RecordToSend], codec: str = "none") -> None:
        """confluent-kafka; as ``by_java``."""
        release = self.broker.release.name
        settings = librdkafka_settings(self.sandbox.bootstrap, release)
        producer = Producer({**settings, "compression.codec": codec, "linger.ms": 50})
        offsets: list[int] = []

        def answered(error: KafkaError | None, message: object) -> None:
            assert error is None, error
            offsets.append(message.offset())  # type: ignore[attr-defined]

        for each in records:
            more = {"timestamp": each.timestamp} if each.timestamp else {}
            headers = {"headers": list(each.headers)} if each.headers else {}
            producer.produce(self.topic, each.value, each.key, 0, on_delivery=answered, **more, **headers)
        assert producer.flush(TIMEOUT_MS / 1000) == 0, "all are acknowledged"
        self.sent += zip(sorted(offsets), records, strict=True)

    def by_scala(self, records: Sequence[RecordToSend], codec: str = "none") -> None:
        """The Scala producer (until 1.1), through its console tool: text without a tab, tab and text, or text alone."""
        release = self.broker.release
        words = ["--broker-list", self.sandbox.bootstrap, "--topic", self.topic, "--request-required-acks", "1"]
        words += ["--property", "parse.key=true", "--property", "ignore.error=true"]  # a line without a key is a value
        words += ["--old-producer"] if release.version >= (0, 9) else []
        words += ["--compression-codec", codec] if codec != "none" else []
        lines = [(b"" if each.key is None else each.key + b"\t") + (each.value or b"") + b"\n" for each in records]
        done = self.sandbox.run_tool(release.name, "kafka.tools.ConsoleProducer", words, stdin=b"".join(lines).decode())
        assert done.code == 0, done.err
        self.sent += zip(itertools.count(self.end if self.sent else 0), records, strict=False)


def written(broker: BrokerUnderTest, name: str, config: dict[str, str] | None = None, **more: Any) -> Written:
    """An empty topic."""
    # 0.11.0 cannot convert a record with headers (KAFKA-6739).
    first_version = 4 if broker.release.version[:2] == (0, 11) else 0
    own: dict[str, Any] = {"magic": broker.release.magic, "first_version": first_version, **more}
    made = Written(broker, f"records-{name}", **own)
    made.sandbox.create_topic(made.topic, 1, config=config)
    return made


def write_everything(to: Written, with_codecs: Sequence[str]) -> Written:
    """By both producers, with each codec: entries of one record, and all shapes together."""
    every = shapes(to.magic)
    single = itertools.cycle(every)
    for codec in with_codecs:
        for send in (to.by_java, to.by_librdkafka):
            send([next(single)], codec)
            send(every, codec)
    return to


def write_transactions(to: Written) -> Written:
    """Committed and aborted ones of two producers, in each other's way, with records outside of them in between."""
    load = to.sandbox.producer
    one, other = f"{to.topic}-one", f"{to.topic}-other"
    every = shapes(to.magic)
    load.begin(one, codec="gzip")
    aborted = to.by_java(every[:5], transaction=one)
    load.begin(other)
    to.by_java(every[5:7], transaction=other)
    to.by_java(every[:2])
    to.by_librdkafka(every[2:4], "snappy")
    aborted += to.by_java(every[7:8], transaction=one)
    to.end_transaction(one, commit=False)
    to.by_java(every[8:], transaction=other)
    to.end_transaction(other, commit=True)
    load.begin(one)
    to.by_java(every[:3], transaction=one)
    to.end_transaction(one, commit=True)
    load.begin(one)
    aborted += to.by_java(every[3:6], transaction=one)
    to.end_transaction(one, commit=False)
    load.begin(other)
    load.end(other, commit=False)
    to.by_java(every[:1])
    to.aborted.update(aborted)
    return to


COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}


def write_compacted(to: Written) -> Written:
    """Entries of which compaction keeps some records, all, and none; the active segment stays as it is.

    The log cleaner of 0.8.2 does not know compressed entries (KAFKA-1374): it adds the sizes of the messages in an
    entry, and its thread ends where that sum leads into the middle of an entry.  A batch of one record is enough, and
    a producer that the machine pauses sends one.
    """
    dice = random.Random(1)
    codecs = ("none", "none") if to.broker.release.version < (0, 9) else ("gzip", "none")
    for name, codec in zip((b"first", b"second"), codecs, strict=True):
        for keys in (range(10), range(0, 10, 2), range(1, 3), range(5), range(20, 30), range(10), range(5, 25)):
            to.by_java([RecordToSend(b"%s %d" % (name, key), dice.randbytes(100)) for key in keys], codec)
    return to


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass
class Readers:
    """The consumer of the broker's release, which is started once, and librdkafka."""

    broker: BrokerUnderTest
    java: ReaderProcess

    def by_java(self, topic: Written, isolation: str = "read_uncommitted") -> ReadResult:
        return self.java.read(topic.topic, topic.end, isolation=isolation)

    def by_librdkafka(
        self, topic: Written, isolation: str = "read_uncommitted", *, is_damaged: bool = False
    ) -> librdkafka_reader.Read:
        """The records up to the end or to the first error."""
        settings = {
            **librdkafka_settings(topic.sandbox.bootstrap, self.broker.release.name),
            "group.id": f"reader-{topic.topic}", "enable.auto.commit": False, "check.crcs": True,
            "enable.partition.eof": True, "auto.offset.reset": "error", "fetch.wait.max.ms": 50,
            "isolation.level": isolation,
        }  # fmt: skip
        how = librdkafka_reader.read_apart if is_damaged else librdkafka_reader.read_here
        return how(settings, topic.topic, topic.end)


def answers(
    topic: Written, version: int, bytes_max: int, isolation: int = 0
) -> Iterator[tuple[int, FetchPartitionResponse]]:
    """Fetches until the end: the requested offset, and the raw answer.

    Where an answer contains no whole entry, the function requests more, as a consumer does; also where it contains
    nothing from that offset on: a converted batch ends with its last record, and compaction may have removed the
    records after it.
    """
    connection = topic.broker.connection()
    more = {"isolation_level": isolation} if version >= 4 else {}
    offset, most = 0, bytes_max
    while offset < topic.end:
        [row] = fetched(connection, version, asking(topic.topic, offset, most), **more)
        assert row.error_code == 0
        yield offset, row
        behind = scan_record_set(row.records or b"").next_offset
        most = 2 * most if behind <= offset else bytes_max
        assert most < 2 * PLENTY, f"v{version} never gets beyond offset {offset}"
        offset = max(offset, behind)


def by_ours(topic: Written, version: int, bytes_max: int, isolation: int = 0) -> list[Record]:
    """Both decoders agree about every answer on the way."""
    found: list[Record] = []
    for offset, row in answers(topic, version, bytes_max, isolation):
        assert row.records is not None
        record_set = bytes(row.records)
        excluded_batches = aborted_batches(record_set, row.aborted_transactions or ()) if isolation else []
        both = seen_by_both(record_set, offset, excluded_batches=excluded_batches)
        assert both.failure is None, (offset, both.failure, record_set.hex())
        found += both.records
    return found


def in_format(record: Record, magic: int) -> Record:
    """What of a record an older format can hold."""
    if magic == 0:
        return record._replace(timestamp=-1, timestamp_type=-1, headers=())
    return record._replace(headers=()) if magic == 1 else record


def versions_to_read(topic: Written) -> list[int]:
    """Versions of Fetch for each format, with each way to cut off, and the newest."""
    known = [version for version in versions_of(topic.broker, FETCH) if version >= topic.first_version]
    return sorted({known[0], known[-1], *({2, 3, 4} & set(known))})


def wait_until_stable(topic: Written) -> None:
    """The markers of all transactions are written: they come a moment after the producer has returned."""
    connection = topic.broker.connection()

    def is_stable() -> bool:
        version = topic.broker.ranges.pick(FETCH)
        [row] = fetched(connection, version, asking(topic.topic, topic.end), isolation_level=READ_COMMITTED)
        return row.last_stable_offset == row.high_watermark

    wait_until(is_stable, f"all transactions in {topic.topic} are over", TIMEOUT_MS)


def check_alike(read: Sequence[Record], expected: Sequence[Record], who: str) -> None:
    """The first different record is easier to read than two lists."""
    for one, other in itertools.zip_longest(read, expected):
        assert one == other, f"{who}: {one}, not {other}"


def check_sent(topic: Written, read: Sequence[Record]) -> None:
    """A foreign reader has read what was sent."""
    sent = dict(topic.sent)
    for record in read:
        one = sent[record.offset]
        assert (record.key, record.value) == (one.key, one.value), record.offset
        assert record.headers == (one.headers if topic.magic == 2 else ()), record.offset
        if topic.magic and one.timestamp is not None and not topic.is_append_time:
            assert record.timestamp == one.timestamp, record.offset
        kind = -1 if topic.magic == 0 else int(topic.is_append_time)
        assert record.timestamp_type == kind, record.offset


def newest_for(topic: Written, version: int) -> int:
    """The format in which that version of Fetch gives the records of this topic."""
    return min(topic.magic, newest_magic(version))
