"""Whatever is damaged in a chunk: what is sound is handed out once, in order; each damaged entry costs one skip."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.errors import ConsumerTimeoutException, InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.chunks import ChunkQueue, FetchedDataChunk, PartitionTopicInfo
from zkconsumer.streams import KafkaStream
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import scan_record_set

FOR_EVER_MS = 10**9
CRC_AT = {0: 12, 1: 12, 2: 17}
COVERED_FROM = {0: 17, 1: 17, 2: 27}
"""From here on the checksum covers what is flipped, and the walk over the headers does not look at it."""


@dataclass(frozen=True)
class Entry:
    """One entry of so many records; ``flip`` None: sound, else which byte is damaged."""

    records: int
    magic: int
    codec: int
    flip: int | None


entries = st.lists(
    st.builds(
        Entry,
        records=st.integers(1, 4),
        magic=st.integers(0, 2),
        codec=st.sampled_from([compression.NONE, compression.GZIP]),
        flip=st.none() | st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=6,
)


def built(entry: Entry, first: int) -> tuple[bytes, list[int], int]:
    """The bytes, the offsets that can be read, and how many messages that means to skip."""
    # Without a codec each message of formats 0 and 1 is an entry of its own.
    count = 1 if entry.magic < 2 and entry.codec == compression.NONE else entry.records
    records = [Record(first + n, 0, 0, b"key", b"value %d" % n) for n in range(count)]
    data = bytearray(build_record_set(records, entry.magic, entry.codec))
    if entry.flip is None:
        return bytes(data), [record.offset for record in records], count
    places = [*range(CRC_AT[entry.magic], CRC_AT[entry.magic] + 4), *range(COVERED_FROM[entry.magic], len(data))]
    data[places[entry.flip % len(places)]] ^= 0x55
    return bytes(data), [], count


@settings(max_examples=150, deadline=None)
@given(entries=entries, start=st.integers(0, 3), clears=st.booleans())
def test_what_is_sound_is_handed_out_once_and_each_damaged_entry_costs_a_skip(
    entries: list[Entry], start: int, clears: bool
) -> None:
    data, expected, damaged, offset = b"", [], 0, 0
    for entry in entries:
        piece, readable, count = built(entry, offset)
        data, offset = data + piece, offset + count
        expected += readable
        damaged += entry.flip is not None
    start = min(start, entries[0].records - 1, offset - 1)
    found = scan_record_set(data)
    queue, lease = ChunkQueue(1), Lease(SYSTEM_CLOCK)
    lease.set_until(SYSTEM_CLOCK.now_ms() + FOR_EVER_MS)
    info = PartitionTopicInfo(TopicPartition("t", 0), "thread", queue, offset=start)
    queue.offer(FetchedDataChunk(data, info, start, found.next_offset, found.complete_bytes, 0))
    iterator = KafkaStream[bytes, bytes]("thread", queue, lease, timeout_ms=0).iterator()
    seen: list[int] = []
    skips = 0
    while True:
        try:
            seen.append(next(iterator).offset)
        except (InvalidMessageException, UnsupportedCodec):
            skipped = iterator.skip_poison()
            assert skipped is not None
            assert skipped.offset <= skipped.next_offset == info.consumed_offset
            skips += 1
            assert skips <= damaged, "a message that was skipped came again"
        except ConsumerTimeoutException:
            break
        if clears:
            iterator.clear_current_chunk()
    assert seen == [offset for offset in expected if offset >= start]
    assert skips == damaged
    assert (info.consumed_offset, info.current_chunk) == (found.next_offset, None)
