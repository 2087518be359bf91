"""Record sets that real producers compressed, as their brokers send them: a file a broker, a line a record set.

Java-1.1.1 snappy 300 UE5BUFBZ…      producer, codec, number of records, record set in base64

The value of record n is ``value(n)``.  A producer may make several batches of the records; they are in one record set.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer, libversion

from tests.sandbox_fixtures import librdkafka_settings
from tests.wire_oracles.recorded_frames import DATA
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.wire.entries import codec_of, iter_entries
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

FOLDER = DATA.parent / "compressed"
TIMEOUT_MS = 20_000

COUNTS = (1, 3, 300)
"""Records of a record set: small batches, and more bytes than a xerial block of 32 KiB holds."""

CODECS = {
    "0.8.2.2": ("gzip", "snappy", "lz4"),
    "0.9.0.1": ("gzip", "snappy", "lz4"),
    "0.10.2.2": ("gzip", "snappy", "lz4"),
    "1.1.1": ("gzip", "snappy", "lz4"),
    "3.9.1": ("gzip", "snappy", "lz4", "zstd"),
}
"""Broker → codecs.  The Java producer is that of the same release."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """One record set, and who compressed it."""

    producer: str
    codec: str
    count: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.producer}-{self.codec}-{self.count}"


def value(number: int) -> bytes:
    """That of record ``number``: 120 bytes."""
    return (b'{"id":%06d,"name":"customer %03d","state":"open","currency":"EUR"} ' % (number, number % 97) * 2)[:120]


def record(release: str) -> list[Compressed]:
    """Starts a broker of the release, and has Java's producer and librdkafka compress with every codec."""
    made = []
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        broker = sandbox.start_broker(release, chroot="/kafka")
        for codec in CODECS[release]:
            for count in COUNTS:
                values = [value(number) for number in range(count)]
                for producer in (f"Java-{release}", f"librdkafka-{libversion()[0]}"):
                    topic = f"{producer}-{codec}-{count}"
                    sandbox.create_topic(topic, 1)
                    if producer.startswith("Java"):
                        sandbox.produce(topic, 0, values, codec=codec)
                    else:
                        _produce_by_librdkafka(broker.address, release, topic, values, codec)
                    made.append(Compressed(producer, codec, count, _stored(broker.port, topic)))
    return made


def _produce_by_librdkafka(address: str, release: str, topic: str, values: Iterable[bytes], codec: str) -> None:
    producer = Producer({**librdkafka_settings(address, release), "compression.codec": codec, "linger.ms": 100})
    for each in values:
        producer.produce(topic, each, partition=0)
    assert producer.flush(TIMEOUT_MS / 1000) == 0, f"{topic}: not all was acknowledged"


def _stored(port: int, topic: str) -> bytes:
    """The whole record set of partition 0."""
    connection = BlockingConnection("127.0.0.1", port)
    try:
        version = negotiate(connection, TIMEOUT_MS).pick(FETCH)
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        body = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
        [row] = connection.request(FETCH, version, body, TIMEOUT_MS).responses[0].partitions
        assert row.error_code == 0, f"{topic}: error {row.error_code}"
        return bytes(row.records)
    finally:
        connection.close()


def payloads(data: bytes) -> Iterator[tuple[int, int]]:
    """Format and codec of each entry of a record set."""
    return ((entry.magic, codec_of(data, entry)) for entry in iter_entries(data))


def path_of(release: str) -> Path:
    """The file of a broker."""
    return FOLDER / f"broker-{release}.txt"


def write(release: str, made: Iterable[Compressed]) -> None:
    """The file of a broker."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = [f"{each.producer} {each.codec} {each.count} {base64.b64encode(each.data).decode()}\n" for each in made]
    path_of(release).write_text("".join(lines))


def read(release: str) -> list[Compressed]:
    """What ``write`` wrote."""
    lines = [line.split() for line in path_of(release).read_text().splitlines()]
    return [Compressed(who, codec, int(count), base64.b64decode(data)) for who, codec, count, data in lines]
