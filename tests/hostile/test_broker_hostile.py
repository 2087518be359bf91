"""What one client can make the development broker do: a little that expands to much, and connections without end.

Work is counted in calls of functions, not in seconds: the broker has one thread, and what keeps it busy keeps all
clients waiting.
"""

from __future__ import annotations

import errno
import logging
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from bridge.broker import acceptor
from bridge.broker.acceptor import (
    SHORTAGE_LOG_INTERVAL_S,
    SHORTAGE_OVER_AFTER_S,
    DescriptorShortageLogger,
    connections_max,
)
from bridge.broker.log.log_validator import (
    EXPANDED_BYTES_MAX,
    EXPANDED_ITEMS_MAX,
    ProduceRejected,
    RecordValidationRules,
    ValidatedRecords,
    validate_records,
)
from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.call_counter import calls_of
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD, compress
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set, varint
from zkconsumer.wire.schemas import METADATA, PRODUCE
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from zkconsumer.wire.schemas.produce import ProducePartition, ProduceRequest, ProduceTopic

RULES = RecordValidationRules(2, 1 << 20)
CORRUPT, MESSAGE_TOO_LARGE = 2, 10
CALLS_MAX = 20 * EXPANDED_ITEMS_MAX
"""Function calls for one request: some ten for each record that compressed entries may hold."""


def message(magic: int, attributes: int = 0, value: bytes | None = None) -> bytes:
    """One message of format 0 or 1, without a key."""
    times = b"" if magic == 0 else struct.pack(">q", -1)
    size = -1 if value is None else len(value)
    body = bytes([magic, attributes]) + times + struct.pack(">ii", -1, size) + (value or b"")
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def wrapper(magic: int, codec: int, messages: int) -> bytes:
    """A compressed message that holds so many empty ones."""
    return message(magic, codec, compress(codec, message(magic) * messages, magic))


def batch(codec: int, count: int, records: bytes) -> bytes:
    """A batch of format 2 with these (plain) records."""
    covered = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + compress(codec, records, 2)
    head = struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, google_crc32c.value(covered))
    return head + covered


def small_records(count: int) -> bytes:
    pieces = []
    for at in range(count):
        body = b"\0\0" + varint(at) + b"\1\1\0"
        pieces.append(varint(len(body)) + body)
    return b"".join(pieces)


def record_with_headers(headers: int) -> bytes:
    body = b"\0\0\0\1\1" + varint(headers) + b"\0\1" * headers
    return varint(len(body)) + body


def refusal(entry: bytes, version: int, calls_max: int = CALLS_MAX) -> ProduceRejected:
    found: list[ValidatedRecords | ProduceRejected] = []
    calls_of(lambda: found.append(validate_records(entry, version, RULES)), calls_max)
    assert isinstance(found[0], ProduceRejected)
    return found[0]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=CODEC_NAMES.get)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_message_that_holds_too_many_is_refused_after_bounded_work(magic: int, codec: int) -> None:
    entry = wrapper(magic, codec, 300_000)
    assert len(entry) < RULES.message_bytes_max
    refused = refusal(entry, 2)
    assert refused.code.code == MESSAGE_TOO_LARGE
    assert f"{EXPANDED_ITEMS_MAX} records and headers" in refused.message


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.get)
def test_a_batch_that_holds_too_many_records_is_not_even_decompressed(codec: int) -> None:
    count = EXPANDED_ITEMS_MAX + 1
    assert refusal(batch(codec, count, small_records(count)), 7, calls_max=500).code.code == MESSAGE_TOO_LARGE


def test_headers_count_as_records_do() -> None:
    entry = batch(GZIP, 1, record_with_headers(EXPANDED_ITEMS_MAX))
    assert len(entry) < 1_000
    assert refusal(entry, 7).code.code == MESSAGE_TOO_LARGE
    assert isinstance(
        validate_records(batch(GZIP, 1, record_with_headers(EXPANDED_ITEMS_MAX - 1)), 7, RULES), ValidatedRecords
    )


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.get)
def test_a_batch_that_expands_too_far_is_refused(codec: int) -> None:
    value = bytes(EXPANDED_BYTES_MAX)
    body = b"\0\0\0\1" + varint(len(value)) + value + b"\0"
    entry = batch(codec, 1, varint(len(body)) + body)
    code = MESSAGE_TOO_LARGE
    assert validate_records(entry, 7, RecordValidationRules(2, 1 << 26)).code.code == code  # type: ignore[union-attr]


@pytest.mark.parametrize(("entry", "version"), [(wrapper(1, GZIP, 1_500_000), 2), (b"", 7)], ids=["wrapper", "batch"])
def test_the_size_is_looked_at_before_anything_else(entry: bytes, version: int) -> None:
    """As in Kafka, also before the checksum: the one of this entry is wrong."""
    sent = bytearray(entry or build_record_set([Record(0, 1, 0, None, bytes(range(256)) * 400)], 2, GZIP))
    sent[-1] ^= 1
    found: list[ValidatedRecords | ProduceRejected] = []
    calls_of(lambda: found.append(validate_records(bytes(sent), version, RecordValidationRules(2, 100))), calls_max=100)
    assert isinstance(found[0], ProduceRejected)
    assert (found[0].code.code, "the topic takes 100" in found[0].message) == (MESSAGE_TOO_LARGE, True)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_producers_send_is_taken(magic: int) -> None:
    """Five times the records that librdkafka puts into one batch."""
    count = EXPANDED_ITEMS_MAX
    entry = batch(GZIP, count, small_records(count)) if magic == 2 else wrapper(magic, GZIP, count)
    sent = validate_records(entry, 7 if magic == 2 else 2, RULES)
    assert isinstance(sent, ValidatedRecords)
    assert sent.record_count == count


# --- one request ----------------------------------------------------------------------------------------------------


def produce(talk: RawClient, version: int, *entries: bytes) -> list[int]:
    """The error codes of one request with these record sets, all for one partition."""
    rows = [ProducePartition(index=0, records=entry) for entry in entries]
    body = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[ProduceTopic(name="t", partition_data=rows)])
    answer = talk.ask(PRODUCE, version, body, timeout_ms=60_000)
    return [row.error_code for row in answer.responses[0].partition_responses]


@pytest.fixture
def talk() -> Iterator[RawClient]:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        with RawClient(broker.addresses()[0]) as talk:
            yield talk


@pytest.mark.parametrize("version", [2, 7])
def test_the_entries_of_one_request_share_what_they_may_expand_to(talk: RawClient, version: int) -> None:
    third = EXPANDED_ITEMS_MAX // 3
    entry = wrapper(1, GZIP, third) if version == 2 else batch(GZIP, third, small_records(third))
    assert produce(talk, version, *[entry] * 6) == [0, 0, 0] + [MESSAGE_TOO_LARGE] * 3
    assert produce(talk, version, entry) == [0]


def test_an_entry_that_fails_behind_its_decompression_has_used_up_what_there_was(talk: RawClient) -> None:
    cut_off = batch(GZIP, 1, b"")
    payload = compress(GZIP, bytes(EXPANDED_BYTES_MAX // 2), 2)[:-8]
    covered = cut_off[21:61] + payload
    bad = cut_off[:8] + struct.pack(">i", 9 + len(covered)) + cut_off[12:17]
    bad += struct.pack(">I", google_crc32c.value(covered)) + covered
    good = batch(GZIP, 1, small_records(1))
    plain = build_record_set([Record(0, 1, 0, None, b"plain")], 2)
    assert produce(talk, 7, good, bad, good, plain) == [0, CORRUPT, MESSAGE_TOO_LARGE, 0]


@pytest.mark.parametrize("version", [2, 7])
def test_an_entry_that_was_damaged_on_its_way_costs_the_others_nothing(talk: RawClient, version: int) -> None:
    good = wrapper(1, GZIP, 10) if version == 2 else batch(GZIP, 10, small_records(10))
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    assert produce(talk, version, damaged, good) == [CORRUPT, 0]


@pytest.mark.parametrize("version", [2, 7])
def test_after_a_refused_request_the_broker_serves_as_before(talk: RawClient, version: int) -> None:
    bomb = wrapper(0, GZIP, 1_200_000) if version == 2 else batch(GZIP, 2**31 - 1, bytes(1 << 20))
    assert produce(talk, version, bomb) == [MESSAGE_TOO_LARGE]
    assert talk.produce("t", 0, b"after").base_offset == 0
    assert talk.values("t", 0) == [b"after"]


# --- descriptors ----------------------------------------------------------------------------------------------------

OPEN_FILES = 120
DEADLINE_S = 60
"""For each answer of the broker: far more than it takes, since only its absence is a failure."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], BrokerAddress, Path]]:
    """A broker in a process that may open few files; the last is its log."""
    log = tmp_path / "broker.log"
    command = ["broker", "--port", "0", "--data", str(tmp_path / "data"), "--topic", "t:1", "-v"]
    with log.open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", "from zkconsumer.cli import main; main()", *command],
            stdout=subprocess.PIPE, stderr=err, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES)),
        )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rsplit(":", 1)[1])
        yield process, BrokerAddress(0, "127.0.0.1", port), log
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(DEADLINE_S)
        finally:
            process.kill()


def test_a_broker_without_descriptors_serves_who_is_connected_and_recovers(
    broker: tuple[subprocess.Popen[str], BrokerAddress, Path],
) -> None:
    process, address, log = broker
    idle: list[socket.socket] = []
    with RawClient(address) as old:
        assert [topic.error_code for topic in old.metadata("t").topics] == [0]
        to = address.host, address.port
        idle.extend(socket.create_connection(to, timeout=DEADLINE_S) for _ in range(2 * OPEN_FILES))
        deadline = time.monotonic() + DEADLINE_S
        while "connections-not-accepted" not in log.read_text():
            assert time.monotonic() < deadline, "the broker accepted more connections than it may open files"
            time.sleep(0.1)
        # Who is connected is served, also with what needs descriptors: new topics, whose logs are files.
        old.metadata(*(f"new{at}" for at in range(20)))
        assert {old.produce(f"new{at}", 0, b"x").error_code for at in range(20)} == {0}
        # Whoever waits is served as soon as there are descriptors.
        with RawClient(address) as waiting:
            for one in idle:
                one.close()
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            answer = waiting.ask(METADATA, 7, request, timeout_ms=1000 * DEADLINE_S)
            assert [topic.error_code for topic in answer.topics] == [0]
    assert process.poll() is None
    lines = log.read_text().splitlines()
    [line] = [line for line in lines if "connections-not-accepted" in line]
    assert f"open_files_limit={OPEN_FILES}" in line
    assert "ulimit -n" in line
    assert len(log.read_bytes()) < 100_000, lines[:20]


def test_accept_that_fails_pauses_the_port_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of an ``EmbeddedBroker`` has other files: there ``accept`` itself fails."""
    fails = [errno.EMFILE, errno.ENFILE]
    accept = socket.socket.accept
    refused: list[int] = []

    def failing(listener: socket.socket) -> tuple[socket.socket, object]:
        if fails:
            refused.append(fails[0])
            raise OSError(fails.pop(0), "Too many open files")
        return accept(listener)

    monkeypatch.setattr(acceptor, "ACCEPT_RETRY_S", 0.05)
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        monkeypatch.setattr(socket.socket, "accept", failing)
        with RawClient(broker.addresses()[0]) as talk:
            assert [topic.error_code for topic in talk.metadata("t").topics] == [0]
    assert refused == [errno.EMFILE, errno.ENFILE]


def test_a_shortage_is_reported_once_a_period_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.broker.acceptor")
    shortage = DescriptorShortageLogger()
    for second in range(int(2.5 * SHORTAGE_LOG_INTERVAL_S)):
        shortage.record_pause("Too many open files", 10, float(second))
        shortage.check_recovered(float(second))
    errors = [record.getMessage() for record in caplog.records]
    assert [line.split(" reason=")[0].split()[-1] for line in errors] == ["pauses=1", "pauses=61", "pauses=121"]
    caplog.clear()
    end = 2.5 * SHORTAGE_LOG_INTERVAL_S
    for second in range(int(2 * SHORTAGE_OVER_AFTER_S)):
        shortage.check_recovered(end + second)
    assert [record.getMessage() for record in caplog.records] == ["connections-accepted-again pauses=150"]


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(20, 10), (120, 60), (1024, 864), (1 << 20, (1 << 20) - 160), (resource.RLIM_INFINITY, 2**31)],
)
def test_a_part_of_the_descriptors_is_kept_for_files(
    limit: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert connections_max() == connections
