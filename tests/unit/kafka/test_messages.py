"""``MessageAndMetadata`` and the objects of the hand-out: copies, pickles, memory, garbage, forked children."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.in_memory_fixtures import take
from tests.unit.test_streams import Lane, records_of
from zkconsumer.errors import ConsumerTimeoutException, ForkedError
from zkconsumer.kafka import table_delivery
from zkconsumer.kafka.chunks import FetchedDataChunk
from zkconsumer.streams import MessageAndMetadata, string_decoder
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

compiled_only = pytest.mark.skipif(not table_delivery.AVAILABLE, reason="the compiled modules are missing")

HEADERS = (("one", b"1"), ("two", None), ("café", b""))
RECORD = Record(7, 1_000, 1, b"key", b"value", HEADERS)


def message_of(record: Record = RECORD, **decoders: Any) -> MessageAndMetadata[Any, Any]:
    lane = Lane(0, **decoders)
    lane.put(lane.info(record.offset), build_record_set([record], 2, log_append_time=True))
    [message] = take(lane.stream, 1)
    return message


def said(message: MessageAndMetadata[Any, Any]) -> tuple[Any, ...]:
    return (
        message.topic, message.partition, message.offset, message.key, message.value, message.timestamp,
        message.timestamp_type, message.headers,
    )  # fmt: skip


EXPECTED = ("clicks", 0, 7, b"key", b"value", 1_000, 1, HEADERS)


def test_a_message_says_everything_of_its_record() -> None:
    assert said(message_of()) == EXPECTED


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_message_can_be_pickled(protocol: int) -> None:
    found = pickle.loads(pickle.dumps(message_of(), protocol))
    assert isinstance(found, MessageAndMetadata)
    assert said(found) == EXPECTED
    decoded = pickle.loads(pickle.dumps(message_of(value_decoder=string_decoder), protocol))
    assert decoded.value == "value"


def test_a_pickle_can_be_read_where_the_other_implementation_is_in_use() -> None:
    """For example a process pool whose workers have ``ZKCONSUMER_NO_EXTENSIONS`` set, and one that has not."""
    program = (
        "import pickle, sys; message = pickle.loads(sys.stdin.buffer.read()); "
        "print(message.offset, message.value, message.headers, type(message).__module__); "
        "sys.stdout.flush(); sys.stdout.buffer.write(pickle.dumps(message))"
    )
    other = {**os.environ, "ZKCONSUMER_NO_EXTENSIONS": "1" if table_delivery.AVAILABLE else ""}
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(message_of()), env=other, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    line, _, back = done.stdout.partition(b"\n")
    assert line.decode() == f"7 b'value' {HEADERS} zkconsumer.streams"
    assert said(pickle.loads(back)) == EXPECTED


def test_a_message_can_be_copied() -> None:
    message = message_of()
    assert said(copy.copy(message)) == said(copy.deepcopy(message)) == EXPECTED


def test_the_class_takes_type_arguments_and_a_record() -> None:
    assert MessageAndMetadata[str, bytes] is not None
    made: MessageAndMetadata[str, str] = MessageAndMetadata("t", 3, RECORD, string_decoder, string_decoder)
    assert (made.topic, made.partition, made.key, made.value, made.headers) == ("t", 3, "key", "value", HEADERS)
    with pytest.raises(AttributeError):
        made.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_an_error_of_a_decoder_comes_out_of_the_access() -> None:
    def refuse(data: bytes) -> str:
        raise LookupError(data)

    message = message_of(value_decoder=refuse)
    with pytest.raises(LookupError):
        message.value  # noqa: B018
    assert message.key == b"key"


# --- messages that the program keeps ------------------------------------------------------------------------------


def test_messages_that_are_kept_stay_what_they_are() -> None:
    lane = Lane(0)
    lane.put(lane.info(), records_of(range(5_000)))
    kept = take(lane.stream, 5_000)
    del lane
    assert [(each.offset, each.key, each.value) for each in kept] == [
        (offset, b"k%d" % offset, b"v%d" % offset) for offset in range(5_000)
    ]


def test_a_kept_message_has_its_headers_when_its_chunk_is_gone() -> None:
    records = [Record(offset, 0, 0, None, b"v", (("name", b"%d" % offset),)) for offset in range(10)]
    lane = Lane(0)
    lane.put(lane.info(), build_record_set(records, 2))
    kept = take(lane.stream, 10)
    assert [message.headers for message in kept] == [record.headers for record in records]


@compiled_only
def test_a_kept_message_does_not_keep_its_chunk() -> None:
    class Buffer(bytearray):
        """A record set that a weak reference can watch."""

    lane = Lane(0)
    info = lane.info()
    kept, alive = [], []
    for offset in range(10):
        data = Buffer(build_record_set([Record(offset, 0, 0, b"k", b"v" * 1000)], 2))
        alive.append(weakref.ref(data))
        lane.queue.offer(FetchedDataChunk(memoryview(data), info, offset, offset + 1, len(data), 0))
        del data
    kept = take(lane.stream, 10)
    assert [len(message.value) for message in kept] == [1000] * 10
    gc.collect()
    assert sum(reference() is not None for reference in alive) <= 3, "two messages, and the chunk that is read"


def numbers_of(program: str, chunks: int, timeout_s: int) -> tuple[int, int]:
    """The two numbers that a program of this folder prints; it has a process of its own, whose memory it measures."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program)), str(chunks)],
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = map(int, done.stdout.split())
    return first, second


def test_ten_thousand_kept_messages_of_large_chunks_take_little_memory() -> None:
    """One of each chunk of 1 MB: the process grows by at most twice their own size (and one chunk, and some noise)."""
    grown, own = numbers_of("kept_messages_program.py", 10_000, 110)
    assert grown <= 2 * own + 8 * 1024 * 1024, f"grown by {grown} bytes for {own} bytes of messages"


# --- garbage, and forked children -----------------------------------------------------------------------------------


def test_a_cycle_through_a_decoder_is_collected() -> None:
    class Decoder:
        message: Any = None

        def __call__(self, data: bytes) -> bytes:
            return data

    decoder = Decoder()
    decoder.message = message_of(value_decoder=decoder)
    watched = weakref.ref(decoder)
    del decoder
    gc.collect()
    assert watched() is None


def test_a_stream_that_nothing_refers_to_is_collected() -> None:
    lane = Lane(0)
    lane.put(lane.info(), records_of(range(10)))
    take(lane.stream, 3)
    watched = weakref.ref(lane.queue)
    del lane
    gc.collect()
    assert watched() is None


@compiled_only
def test_garbage_collection_at_any_moment_does_no_harm() -> None:
    """The collector runs before almost every object is made."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        lane = Lane(0)
        for chunk in range(5):
            lane.put(lane.info(chunk * 100), records_of(range(chunk * 100, chunk * 100 + 100)))
        kept = [message for message in numbered(lane) if message.offset % 7 == 0]
        assert [message.value for message in kept] == [b"v%d" % offset for offset in range(0, 500, 7)]
    finally:
        gc.set_threshold(*before)


def numbered(lane: Lane) -> Iterator[MessageAndMetadata[Any, Any]]:
    try:
        yield from lane.stream
    except ConsumerTimeoutException:
        return


def test_after_a_failure_every_call_raises_it() -> None:
    """What ``connector_base`` does in a forked child."""
    lane = Lane(0)
    lane.put(lane.info(), records_of(range(10)))
    take(lane.stream, 3)
    lane.iterator.fail(ForkedError("a child"))
    for call in (lambda: next(lane.iterator), lane.iterator.has_next, lambda: next(lane.stream.batches())):
        with pytest.raises(ForkedError):
            call()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_ten_million_records_leak_nothing() -> None:
    """Messages, batches, kept messages and headers, in a process of its own; resident memory stays as it is."""
    objects, grown = numbers_of("leak_program.py", 500, 590)
    assert objects <= 100
    assert grown <= 4 * 1024 * 1024
