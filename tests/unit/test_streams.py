"""The iterator of a stream: what a program sees of it, chunk by chunk, without fetchers and without ZooKeeper."""

from __future__ import annotations

import logging
import struct
import time
import zlib
from collections.abc import Callable, Sequence

import google_crc32c
import pytest

from tests.in_memory_fixtures import DEADLINE_MS, Stream, run_in_thread, take, wait_until
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import (
    ConsumerTimeoutException,
    InvalidMessageException,
    MessageSizeTooLargeException,
    NoSuchElementException,
    ThreadFailedError,
    UnsupportedCodec,
    UsageError,
)
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo, ShutdownMarker
from zkconsumer.streams import Decoder, KafkaStream, default_decoder, string_decoder
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import scan_record_set

TP = TopicPartition("clicks", 0)
OTHER = TopicPartition("clicks", 1)
THREAD = "g1_a-0"
FOR_EVER_MS = 10**9
SHORT_MS = 50


class Lane:
    """One queue with its stream, and the partitions that are read through it."""

    def __init__(
        self,
        timeout_ms: int = DEADLINE_MS,
        *,
        clock: Clock = SYSTEM_CLOCK,
        chunks_max: int = 10,
        key_decoder: Decoder = default_decoder,
        value_decoder: Decoder = default_decoder,
    ) -> None:
        self.queue = ChunkQueue(chunks_max)
        self.lease = Lease(clock)
        self.lease.set_until(clock.now_ms() + FOR_EVER_MS)
        self.stream: Stream = KafkaStream(
            THREAD, self.queue, self.lease, timeout_ms=timeout_ms, key_decoder=key_decoder, value_decoder=value_decoder
        )
        self.iterator = self.stream.iterator()

    def info(self, offset: int = 0, tp: TopicPartition = TP) -> PartitionTopicInfo:
        return PartitionTopicInfo(tp, THREAD, self.queue, offset=offset)

    def put(self, info: PartitionTopicInfo, records: bytes) -> None:
        """Queue a record set as a fetcher does."""
        found = scan_record_set(records)
        next_offset = found.next_offset if found.entries else info.fetch_offset
        chunk = FetchedDataChunk(records, info, info.fetch_offset, next_offset, found.complete_bytes, info.resets)
        info.fetch_offset = next_offset
        self.queue.offer(chunk)


def records_of(offsets: Sequence[int], magic: int = 2, codec: int = compression.NONE) -> bytes:
    records = [Record(offset, 1_000, 0, b"k%d" % offset, b"v%d" % offset) for offset in offsets]
    return build_record_set(records, magic, codec)


def offsets(lane: Lane, count: int) -> list[int]:
    return [message.offset for message in take(lane.stream, count)]


# --- one iterator -----------------------------------------------------------------------------------------------


def test_every_call_of_iterator_gives_the_same_one() -> None:
    lane = Lane()
    assert lane.stream.iterator() is lane.stream.iterator() is iter(lane.stream) is iter(lane.stream.iterator())


def test_repr_does_not_block() -> None:
    """KAFKA-1146: toString of a stream waited for a message."""
    lane = Lane(timeout_ms=-1)
    assert repr(lane.stream) == "g1_a-0 kafka stream"
    assert "ConsumerIterator" in run_in_thread(lambda: repr(lane.iterator))()


def test_a_message_shows_where_it_came_from_and_decodes_on_each_access() -> None:
    calls: list[bytes] = []

    def decoder(data: bytes) -> str:
        calls.append(data)
        return data.decode()

    lane = Lane(value_decoder=decoder, key_decoder=string_decoder)
    lane.put(lane.info(), records_of([0]))
    [message] = take(lane.stream, 1)
    assert (message.topic, message.partition, message.offset, message.key) == ("clicks", 0, 0, "k0")
    assert (message.timestamp, message.timestamp_type, message.headers) == (1_000, 0, ())
    assert message.value == message.value == "v0"
    assert calls == [b"v0", b"v0"]
    assert repr(message) == "MessageAndMetadata(clicks/0 offset 0)"


def test_a_tombstone_and_a_missing_key_are_none_and_meet_no_decoder() -> None:
    lane = Lane(key_decoder=string_decoder, value_decoder=string_decoder)
    lane.put(lane.info(), build_record_set([Record(0, -1, -1, None, None)], 0))
    [message] = take(lane.stream, 1)
    assert (message.key, message.value, message.timestamp) == (None, None, -1)


# --- nothing there ----------------------------------------------------------------------------------------------


def test_a_time_out_may_come_twice_in_a_row_and_iteration_goes_on() -> None:
    lane = Lane(timeout_ms=20)
    for _ in range(2):
        with pytest.raises(ConsumerTimeoutException, match=r"consumer\.timeout\.ms=20"):
            next(lane.iterator)
    lane.put(lane.info(), records_of([0]))
    assert offsets(lane, 1) == [0]


def test_a_time_out_of_0_is_one_look() -> None:
    lane = Lane(timeout_ms=0)
    with pytest.raises(ConsumerTimeoutException):
        lane.iterator.has_next()
    lane.put(lane.info(), records_of([0]))
    assert lane.iterator.has_next()
    assert offsets(lane, 1) == [0]


@pytest.mark.parametrize("call", ["next", "has_next"])
def test_chunks_without_a_record_do_not_prolong_the_time_out(call: str) -> None:
    """Markers of transactions, and records of aborted ones that ``read_committed`` leaves out."""
    lane = Lane(timeout_ms=4 * SHORT_MS)
    info = lane.info()
    ended = run_in_thread(getattr(lane.iterator, call))
    for offset in range(20):
        time.sleep(SHORT_MS / 1000)
        lane.put(info, build_record_set([Record(offset, 1_000, 0, b"\0\0\0\0", b"")], 2, control=True))
    with pytest.raises(ConsumerTimeoutException, match=r"consumer\.timeout\.ms=200"):
        ended(SHORT_MS)
    lane.put(info, records_of([20]))
    assert offsets(lane, 1) == [20]


def test_without_a_time_out_the_iterator_waits_until_something_comes() -> None:
    lane = Lane(timeout_ms=-1)
    got = run_in_thread(lambda: offsets(lane, 1))
    lane.put(lane.info(), records_of([0]))
    assert got() == [0]


# --- the end ----------------------------------------------------------------------------------------------------


def test_the_shutdown_marker_ends_the_stream_for_good() -> None:
    lane = Lane()
    lane.put(lane.info(), records_of([0, 1]))
    assert offsets(lane, 1) == [0]
    lane.queue.end(ShutdownMarker())
    assert not lane.iterator.has_next()
    assert lane.iterator.peek() is None
    assert list(lane.stream) == []
    with pytest.raises(NoSuchElementException):
        next(lane.iterator)
    with pytest.raises(StopIteration):
        next(lane.iterator)


def test_only_one_marker_is_put_and_the_first_one_counts() -> None:
    """KAFKA-1764: one marker a topic made a stream of two topics end twice."""
    lane = Lane()
    lane.put(lane.info(), records_of([0]))
    lane.queue.end(ShutdownMarker())
    lane.queue.end(ShutdownMarker(ThreadFailedError("later")))
    assert len(lane.queue) == 0
    assert list(lane.stream) == []


def test_an_ended_stream_gives_nothing_of_the_chunk_that_it_was_reading_nor_what_was_prefetched() -> None:
    lane = Lane()
    lane.put(lane.info(), records_of(range(10)))
    assert offsets(lane, 2) == [0, 1]
    assert lane.iterator.has_next()
    lane.queue.end(ShutdownMarker())
    assert not lane.iterator.has_next()


def test_an_ended_stream_ends_although_the_lease_does_not_hold() -> None:
    lane = Lane(timeout_ms=-1)
    lane.put(lane.info(), records_of(range(10)))
    assert offsets(lane, 1) == [0]
    lane.lease.set_until(0)
    ended = run_in_thread(lambda: list(lane.stream))
    lane.queue.end(ShutdownMarker())
    assert ended() == []


def test_a_marker_with_an_error_raises_it_in_every_call_from_then_on() -> None:
    lane = Lane()
    lane.put(lane.info(), records_of(range(10)))
    assert offsets(lane, 1) == [0]
    lane.queue.end(ShutdownMarker(ThreadFailedError("the fetcher ended")))
    for _ in range(2):
        with pytest.raises(ThreadFailedError, match="the fetcher ended"):
            next(lane.iterator)


def test_nothing_can_be_put_behind_the_marker() -> None:
    lane = Lane()
    info = lane.info()
    lane.queue.end(ShutdownMarker())
    lane.put(info, records_of([0]))
    lane.queue.prepend([FetchedDataChunk(b"", info, 0, 1, 1, 0)])
    assert len(lane.queue) == 0
    assert not lane.queue.free_chunks, "a fetcher need not fetch for it any more"


# --- what counts as consumed ------------------------------------------------------------------------------------


def came_back_by_next(lane: Lane) -> None:
    next(lane.iterator)


def came_back_by_has_next(lane: Lane) -> None:
    assert lane.iterator.has_next()


def came_back_by_peek(lane: Lane) -> None:
    assert lane.iterator.peek() is not None


@pytest.mark.parametrize("come_back", [came_back_by_next, came_back_by_has_next, came_back_by_peek])
def test_consumed_moves_when_the_program_comes_back_for_more(come_back: Callable[[Lane], None]) -> None:
    lane = Lane()
    info = lane.info()
    lane.put(info, records_of(range(3)))
    next(lane.iterator)
    assert info.consumed_offset == 0
    assert info.unacknowledged_offset == 0
    come_back(lane)
    assert info.consumed_offset == 1


def test_consumed_moves_also_when_coming_back_brings_a_time_out() -> None:
    lane = Lane(timeout_ms=0)
    info = lane.info()
    lane.put(info, records_of([0]))
    next(lane.iterator)
    with pytest.raises(ConsumerTimeoutException):
        next(lane.iterator)
    assert (info.consumed_offset, info.unacknowledged_offset) == (1, -1)


def test_has_next_and_peek_take_nothing_and_do_not_move_consumed() -> None:
    """IteratorTemplateTest."""
    lane = Lane()
    info = lane.info()
    lane.put(info, records_of(range(3)))
    for _ in range(3):
        assert lane.iterator.has_next()
        peeked = lane.iterator.peek()
        assert peeked is not None
        assert peeked.offset == 0
    assert (info.consumed_offset, info.unacknowledged_offset) == (0, -1)
    assert offsets(lane, 3) == [0, 1, 2]


def test_what_is_given_back_does_not_count() -> None:
    lane = Lane()
    info = lane.info()
    lane.put(info, records_of(range(3)))
    assert offsets(lane, 2) == [0, 1]
    lane.iterator.undeliver()
    assert (info.consumed_offset, info.unacknowledged_offset) == (1, -1)


def test_control_batches_and_gaps_at_the_end_move_the_position() -> None:
    lane = Lane(timeout_ms=0)
    info = lane.info()
    control = build_record_set([Record(2, 1_000, 0, b"\0\0\0\1", b"")], 2, control=True)
    compacted = build_record_set([], 2, base_offset=3, last_offset=9)
    lane.put(info, records_of([0, 1]) + control + compacted)
    assert offsets(lane, 2) == [0, 1]
    with pytest.raises(ConsumerTimeoutException):
        next(lane.iterator)
    assert info.consumed_offset == 10


# --- where a chunk begins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4])
def test_consumer_iterator_deduplication_deep_iterator(magic: int, codec: int) -> None:
    """ConsumerIteratorTest.testConsumerIteratorDeduplicationDeepIterator, in every format and codec of the original."""
    lane = Lane()
    lane.put(lane.info(5), records_of(range(10), magic, codec))
    assert offsets(lane, 5) == [5, 6, 7, 8, 9]
    lane.queue.end(ShutdownMarker())
    assert not lane.iterator.has_next()
    assert len(lane.queue) == 0


def test_consumer_iterator_decoding_failure() -> None:
    """ConsumerIteratorTest.testConsumerIteratorDecodingFailure: the accessor raises, iteration goes on."""

    def failing(data: bytes) -> bytes:
        raise NotImplementedError("this decoder does not work at all")

    lane = Lane(value_decoder=failing)
    lane.put(lane.info(5), records_of(range(10), codec=compression.GZIP))
    for offset in range(5, 10):
        assert lane.iterator.has_next()
        message = next(lane.iterator)
        assert message.offset == offset
        assert message.key == b"k%d" % offset
        with pytest.raises(NotImplementedError):
            _ = message.value
    lane.queue.end(ShutdownMarker())
    assert not lane.iterator.has_next()


def test_a_chunk_that_starts_beyond_consumed_is_an_error_line_and_raises_consumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lane = Lane()
    info = lane.info(3)
    info.fetch_offset = 7
    lane.put(info, records_of([7, 8]))
    with caplog.at_level(logging.ERROR, "zkconsumer.streams"):
        assert lane.iterator.has_next()
    [line] = caplog.messages
    assert line == "consumed-offset-mismatch partition=clicks/0 consumed=3 fetched=7: records may be lost"
    assert info.consumed_offset == 7
    assert offsets(lane, 2) == [7, 8]


# --- what cannot be handed out ----------------------------------------------------------------------------------


def damaged(records: bytes, at: int = -1) -> bytes:
    changed = bytearray(records)
    changed[at] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_corrupt_message_is_met_again_until_the_program_goes_past_it(magic: int) -> None:
    lane = Lane()
    info = lane.info()
    bad = damaged(records_of([2], magic))
    lane.put(info, records_of([0, 1], magic) + bad + records_of([3, 4], magic))
    assert offsets(lane, 2) == [0, 1]
    for call in (lane.iterator.__next__, lane.iterator.has_next, lane.iterator.peek):
        with pytest.raises(InvalidMessageException, match=r"^clicks/0 at offset 2: .*checksum.*continues at offset 3$"):
            call()
    assert info.consumed_offset == 2, "what was handed out before is consumed, and nothing else"
    assert lane.iterator.poison is not None
    assert lane.iterator.poison[:3] == (TP, 2, 3)
    skipped = lane.iterator.skip_poison()
    assert skipped is not None
    assert skipped[:3] == (TP, 2, 3)
    assert lane.iterator.poison is None
    assert info.consumed_offset == 3
    assert offsets(lane, 2) == [3, 4]


def test_several_corrupt_messages_of_one_chunk_are_skipped_one_by_one_also_after_clearing() -> None:
    lane = Lane(timeout_ms=0)
    info = lane.info()
    bad = [damaged(records_of([n, n + 1])) for n in (0, 4)]
    lane.put(info, bad[0] + records_of([2, 3]) + bad[1])
    for position, next_offset, good in ((0, 2, [2, 3]), (4, 6, [])):
        with pytest.raises(
            InvalidMessageException, match=f"at offset {position}: .* continues at offset {next_offset}"
        ):
            next(lane.iterator)
        lane.iterator.skip_poison()
        lane.stream.clear()
        assert offsets(lane, len(good)) == good
    with pytest.raises(ConsumerTimeoutException):
        next(lane.iterator)
    assert (info.consumed_offset, info.current_chunk) == (6, None)


def test_of_a_wrapper_only_the_damaged_message_is_skipped() -> None:
    inner = [build_record_set([Record(n, -1, -1, None, b"v%d" % n)], 0) for n in range(4)]
    inner[1] = damaged(inner[1])
    value = compression.compress(compression.GZIP, b"".join(inner), 0)
    body = struct.pack(">bbii", 0, compression.GZIP, -1, len(value)) + value
    wrapper = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    lane = Lane()
    lane.put(lane.info(), wrapper)
    assert offsets(lane, 1) == [0]
    with pytest.raises(
        InvalidMessageException, match=r"clicks/0 at offset 1: .* skip_poison\(\) continues at offset 2"
    ):
        next(lane.iterator)
    lane.iterator.skip_poison()
    assert offsets(lane, 2) == [2, 3]


def test_what_was_skipped_is_skipped_for_the_stream_that_goes_on_with_the_chunk_too() -> None:
    lane, there = Lane(), Lane()
    info = lane.info()
    lane.put(info, damaged(records_of([0])) + records_of([1, 2]))
    with pytest.raises(InvalidMessageException):
        lane.iterator.has_next()
    lane.iterator.skip_poison()
    info.stop(Stops())
    [chunk] = info.undelivered_chunks()
    new = there.info(info.consumed_offset)
    there.queue.prepend([FetchedDataChunk(chunk.records, new, 0, chunk.next_offset, chunk.complete_bytes, 0)])
    assert offsets(there, 2) == [1, 2]


def test_a_partition_may_leave_in_the_middle_of_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane()
    info, other = lane.info(), lane.info(tp=OTHER)
    lane.put(info, damaged(records_of([0])) + records_of([1]))
    lane.put(other, records_of([7]))
    with pytest.raises(InvalidMessageException):
        next(lane.iterator)
    move_past = PartitionTopicInfo.mark_consumed

    def lost_just_then(moved: PartitionTopicInfo, next_offset: int, resets: int) -> None:
        move_past(moved, next_offset, resets)
        moved.invalidate()

    monkeypatch.setattr(PartitionTopicInfo, "mark_consumed", lost_just_then)
    lane.iterator.skip_poison()
    monkeypatch.undo()
    assert offsets(lane, 1) == [7], "the stream goes on with what is left"


def test_nothing_is_skipped_that_was_not_raised_or_that_left() -> None:
    lane = Lane()
    info, other = lane.info(), lane.info(tp=OTHER)
    with pytest.raises(UsageError, match="nothing to skip"):
        lane.iterator.skip_poison()
    lane.put(info, damaged(records_of([0])))
    lane.put(other, records_of([0]))
    with pytest.raises(InvalidMessageException):
        next(lane.iterator)
    info.invalidate()
    assert lane.iterator.poison is None
    assert lane.iterator.skip_poison() is None
    assert [message.partition for message in take(lane.stream, 1)] == [1]
    with pytest.raises(UsageError, match="nothing to skip"):
        lane.iterator.skip_poison()


@pytest.mark.parametrize("magic", [0, 2])
def test_a_message_too_large_to_be_fetched_says_so_as_the_original_does_and_can_be_skipped(magic: int) -> None:
    lane = Lane()
    info = lane.info(17)
    told: list[None] = []
    lane.queue.on_space_available = lambda: told.append(None)
    record_set = build_record_set([Record(17, 0, 0, None, b"x" * 100), Record(19, 0, 0, None, b"y" * 100)], magic)
    [whole, *_] = list(iter_entries(record_set))
    lane.put(info, record_set[:50])
    for _ in range(2):
        with pytest.raises(MessageSizeTooLargeException) as raised:
            lane.iterator.has_next()
    next_offset = 18 if magic == 0 else 20
    assert str(raised.value) == (
        "Found a message larger than the maximum fetch size of this consumer on topic clicks partition 0 at fetch "
        "offset 17. Increase the fetch size, or decrease the maximum message size the broker will allow. "
        f"(It has {whole.end} bytes, 50 were requested last; skip_poison() continues at offset {next_offset}.)"
    )
    told.clear()
    skipped = lane.iterator.skip_poison()
    assert skipped is not None
    assert skipped[:3] == (TP, 17, next_offset)
    assert (info.fetch_offset, info.consumed_offset, told) == (next_offset, next_offset, [None])
    lane.put(info, records_of([20]))
    assert offsets(lane, 1) == [20]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_unknown_codec_is_named_and_can_be_skipped(magic: int) -> None:
    lane = Lane()
    data = bytearray(records_of([0], magic))
    attributes_at = 22 if magic == 2 else 17
    data[attributes_at] |= 7
    if magic < 2:
        data[12:16] = struct.pack(">I", zlib.crc32(data[16:]))
    else:
        data[17:21] = struct.pack(">I", google_crc32c.value(bytes(data[21:])))
    lane.put(lane.info(), bytes(data) + records_of([1], magic))
    for _ in range(2):
        with pytest.raises(UnsupportedCodec, match=r"clicks/0 at offset 0: .* codec 7 .* continues at offset 1"):
            next(lane.iterator)
    lane.iterator.skip_poison()
    assert offsets(lane, 1) == [1]


def test_an_exception_from_outside_ends_the_call_and_not_the_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane()
    lane.put(lane.info(), records_of(range(3)))
    assert offsets(lane, 1) == [0]
    waits = lane.queue.take

    def interrupted(timeout_ms: int | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lane.queue, "take", interrupted)
    lane.stream.clear()
    for call in (lane.iterator.__next__, lane.iterator.has_next, lane.iterator.peek, lane.iterator.next):
        with pytest.raises(KeyboardInterrupt):
            call()
    monkeypatch.setattr(lane.queue, "take", waits)
    assert offsets(lane, 2) == [1, 2]


# --- several threads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["__next__", "has_next", "peek", "skip_poison"])
def test_a_second_thread_inside_the_iterator_is_refused_and_harms_nothing(call: str) -> None:
    lane = Lane(timeout_ms=-1)
    got = run_in_thread(lambda: offsets(lane, 1))
    wait_until(lambda: lane.iterator.thread_id, "the first thread waits inside")
    with pytest.raises(UsageError, match="two threads are inside one stream's iterator"):
        getattr(lane.iterator, call)()
    lane.put(lane.info(), records_of([0, 1]))
    assert got() == [0]
    assert offsets(lane, 1) == [1], "one after the other they may"


def test_a_thread_whose_call_ended_by_an_error_is_not_inside_any_more() -> None:
    lane = Lane(timeout_ms=0)

    def times_out() -> None:
        for call in (lane.iterator.__next__, lane.iterator.has_next):
            with pytest.raises(ConsumerTimeoutException):
                call()

    run_in_thread(times_out)()
    lane.put(lane.info(), records_of([0]))
    assert offsets(lane, 1) == [0]


# --- partitions that leave --------------------------------------------------------------------------------------


def test_a_prefetched_record_of_a_partition_that_left_is_forgotten() -> None:
    lane = Lane()
    info, other = lane.info(), lane.info(tp=OTHER)
    lane.put(info, records_of(range(3)))
    lane.put(other, records_of(range(2)))
    peeked = lane.iterator.peek()
    assert peeked is not None
    assert peeked.partition == 0
    info.invalidate()
    assert [(m.partition, m.offset) for m in take(lane.stream, 2)] == [(1, 0), (1, 1)]


def test_chunks_of_a_partition_that_left_are_void_and_those_of_its_next_ownership_are_not() -> None:
    lane = Lane()
    old = lane.info()
    lane.put(old, records_of(range(3)))
    old.invalidate()
    new = lane.info(1)
    lane.put(new, records_of([1, 2]))
    assert offsets(lane, 2) == [1, 2]
    assert (old.consumed_offset, new.consumed_offset) == (0, 2)


def test_clear_drops_the_chunk_of_a_partition_that_left_and_repeats_nothing_of_one_that_stays() -> None:
    lane = Lane()
    info, other = lane.info(), lane.info(tp=OTHER)
    lane.put(info, records_of(range(4)))
    lane.put(other, records_of([0]))
    assert offsets(lane, 2) == [0, 1]
    lane.stream.clear()
    assert offsets(lane, 1) == [2], "the record in hand does not come again"
    assert lane.iterator.has_next()
    lane.stream.clear()
    assert lane.iterator.has_next()
    info.invalidate()
    lane.stream.clear()
    [message] = take(lane.stream, 1)
    assert (message.partition, message.offset) == (1, 0)


def test_a_chunk_of_before_a_reset_is_void_also_when_its_record_was_prefetched() -> None:
    """A log that lost its end is read again from its beginning, not from where its old end was."""
    lane = Lane()
    info = lane.info()
    lane.put(info, records_of(range(6)))
    assert offsets(lane, 2) == [0, 1]
    assert lane.iterator.has_next()
    info.reset(0)
    lane.put(info, records_of(range(3)))
    assert offsets(lane, 3) == [0, 1, 2]
    assert info.consumed_offset == 2


def test_coming_back_with_a_record_of_before_a_reset_does_not_undo_the_reset() -> None:
    lane = Lane(timeout_ms=0)
    info = lane.info()
    lane.put(info, records_of(range(6)))
    assert offsets(lane, 6) == list(range(6))
    info.reset(2)
    assert lane.iterator.unacknowledged_position() is None, "what is in hand does not count for a commit either"
    with pytest.raises(ConsumerTimeoutException):
        next(lane.iterator)
    assert info.consumed_offset == 2


# --- the handshake of a hand-out and a stop ---------------------------------------------------------------------


class Stops:
    """Who is told that nothing is in hand any more."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def __call__(self, info: PartitionTopicInfo) -> None:
        self.positions.append(info.consumed_offset)


def test_stopped_before_the_hand_out_the_record_is_not_handed_out_and_the_stop_is_told_at_once() -> None:
    lane, stopped = Lane(), Stops()
    info = lane.info()
    info.stop(stopped)
    assert stopped.positions == [0]
    assert not info.begin_delivery(0)
    assert stopped.positions[-1] == 0
    assert info.unacknowledged_offset == -1


def test_stopped_after_the_hand_out_the_stop_is_told_when_the_program_comes_back() -> None:
    lane, stopped = Lane(), Stops()
    info = lane.info()
    assert info.begin_delivery(0)
    info.stop(stopped)
    assert stopped.positions == []
    info.acknowledge(1, 0)
    assert stopped.positions == [1]


def test_stopped_between_the_two_halves_of_a_hand_out_nobody_misses_the_other() -> None:
    """The iterating thread has written ``unacknowledged_offset`` and not yet read ``is_live`` when the partition is
    stopped.
    """
    lane, stopped = Lane(), Stops()
    info = lane.info()
    info.unacknowledged_offset = 0
    info.stop(stopped)
    assert stopped.positions == [], "the record may be handed out: wait"
    assert not info.begin_delivery(0)
    assert stopped.positions == [0], "it was not: go on"


def test_a_hand_out_between_the_two_halves_of_a_stop_is_seen_by_it() -> None:
    """The control thread has written ``is_live`` and not yet read ``unacknowledged_offset`` when the iterating thread
    comes.
    """
    lane, stopped = Lane(), Stops()
    info = lane.info()
    info.on_drained = stopped
    info.is_live = False
    assert not info.begin_delivery(0)
    assert stopped.positions == [0]
    info.stop(stopped)
    assert stopped.positions == [0, 0], "told twice, which is allowed, and never not at all"


def test_a_partition_that_is_stopped_under_a_running_reader_loses_no_record_and_hands_out_none_afterwards() -> None:
    lane = Lane(timeout_ms=SHORT_MS)
    for _ in range(20):
        info, stopped = lane.info(), Stops()
        lane.put(info, records_of(range(200)))
        seen: list[int] = []

        def read(seen: list[int] = seen) -> None:
            with pytest.raises(ConsumerTimeoutException):
                while True:
                    seen.append(next(lane.iterator).offset)

        done = run_in_thread(read)
        wait_until(lambda seen=seen: len(seen) > 3, "the reader reads")
        info.stop(stopped)
        done()
        assert stopped.positions
        assert set(stopped.positions) == {len(seen)}
        assert seen == list(range(len(seen)))
        info.invalidate()


def test_what_was_not_handed_out_can_go_to_another_stream() -> None:
    lane, there = Lane(timeout_ms=SHORT_MS), Lane()
    info = lane.info()
    lane.put(info, records_of(range(4)))
    lane.put(info, records_of(range(4, 6)))
    other = lane.info(tp=OTHER)
    lane.put(other, records_of([0]))
    assert offsets(lane, 2) == [0, 1]
    info.stop(Stops())
    assert [m.partition for m in take(lane.stream, 1)] == [1], "the stream goes on with something else meanwhile"
    moved = info.undelivered_chunks()
    assert [(chunk.fetch_offset, chunk.next_offset) for chunk in moved] == [(0, 4), (4, 6)]
    new = there.info(info.consumed_offset)
    there.queue.prepend(
        [FetchedDataChunk(c.records, new, c.fetch_offset, c.next_offset, c.complete_bytes, 0) for c in moved]
    )
    assert offsets(there, 4) == [2, 3, 4, 5]


def test_a_chunk_that_was_read_to_its_end_is_not_kept() -> None:
    lane = Lane(timeout_ms=0)
    info = lane.info()
    lane.put(info, records_of(range(2)))
    assert offsets(lane, 2) == [0, 1]
    with pytest.raises(ConsumerTimeoutException):
        next(lane.iterator)
    assert info.current_chunk is None


# --- the lease --------------------------------------------------------------------------------------------------


def test_nothing_is_handed_out_while_the_lease_does_not_hold_though_the_answer_already_lies_there() -> None:
    clock = ManualClock()
    lane = Lane(timeout_ms=SHORT_MS, clock=clock)
    info = lane.info()
    lane.put(info, records_of(range(4)))
    lane.put(info, records_of(range(4, 8)))
    lane.lease.set_until(clock.now_ms() + 1_000)
    assert offsets(lane, 1) == [0]
    assert lane.iterator.has_next()
    clock.move(1_000)
    for call in (lane.iterator.__next__, lane.iterator.has_next, lane.iterator.peek):
        with pytest.raises(ConsumerTimeoutException, match="ZooKeeper has not answered lately"):
            call()
    assert info.unacknowledged_offset == -1
    assert info.consumed_offset == 1
    lane.lease.set_until(clock.now_ms() + 1_000)
    assert offsets(lane, 7) == [1, 2, 3, 4, 5, 6, 7]


def test_who_waits_for_the_lease_goes_on_when_it_is_renewed() -> None:
    clock = ManualClock()
    lane = Lane(timeout_ms=-1, clock=clock)
    lane.put(lane.info(), records_of([0]))
    lane.lease.set_until(0)
    got = run_in_thread(lambda: offsets(lane, 1))
    lane.lease.set_until(clock.now_ms() + 1)
    assert got() == [0]


def test_who_waits_for_the_lease_is_in_nobodys_way_when_the_partition_leaves() -> None:
    lane, stopped = Lane(timeout_ms=-1, clock=ManualClock()), Stops()
    info = lane.info()
    lane.put(info, records_of([0]))
    lane.lease.set_until(0)
    ended = run_in_thread(lambda: list(lane.stream))
    wait_until(lambda: lane.iterator.thread_id, "the reader has begun")
    info.stop(stopped)
    lane.lease.wake()
    wait_until(lambda: stopped.positions, "the stop is told")
    assert set(stopped.positions) == {0}
    lane.queue.end(ShutdownMarker())
    lane.lease.wake()
    assert ended() == []


def test_the_lease_is_looked_at_for_every_record() -> None:
    clock = ManualClock()
    lane = Lane(timeout_ms=0, clock=clock)
    lane.put(lane.info(), records_of(range(10)))
    lane.lease.set_until(clock.now_ms() + 5)
    seen = []
    with pytest.raises(ConsumerTimeoutException):
        while True:
            seen.append(next(lane.iterator).offset)
            clock.move(1)
    assert seen == [0, 1, 2, 3, 4]


# --- the queue --------------------------------------------------------------------------------------------------


def test_a_queue_takes_so_many_chunks_and_says_when_it_has_room_again() -> None:
    lane = Lane(chunks_max=2)
    told: list[None] = []
    lane.queue.on_space_available = lambda: told.append(None)
    info = lane.info()
    for number in range(2):
        assert lane.queue.free_chunks
        lane.put(info, records_of([number]))
    assert not lane.queue.check_space()
    lane.put(info, records_of([2]))  # it was asked for before
    assert offsets(lane, 1) == [0]
    assert not told
    assert not lane.queue.check_space()
    assert offsets(lane, 1) == [1]
    assert told == [None]
    assert lane.queue.check_space()
    for number in (3, 4):
        lane.put(info, records_of([number]))
    assert offsets(lane, 3) == [2, 3, 4]
    assert told == [None], "no fetcher waits for it"


def test_dropping_what_is_void_makes_room() -> None:
    lane = Lane(chunks_max=2)
    gone, stays = lane.info(), lane.info(tp=OTHER)
    lane.put(gone, records_of([0]))
    lane.put(stays, records_of([0]))
    gone.invalidate()
    lane.queue.drop_stale()
    assert lane.queue.free_chunks
    assert [m.partition for m in take(lane.stream, 1)] == [1]


def test_a_void_chunk_is_swallowed() -> None:
    lane = Lane(chunks_max=1)
    gone, stays = lane.info(), lane.info(tp=OTHER)
    lane.put(stays, records_of([0]))
    gone.invalidate()
    lane.put(gone, records_of([0]))
    assert len(lane.queue) == 1
