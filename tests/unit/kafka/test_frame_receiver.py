"""Plain bytes become frames, and no byte of a large one is copied."""

from __future__ import annotations

import pytest

from zkconsumer.kafka.net.frame_receiver import (
    BUFFERS_KEPT_MAX,
    FRAMES_WITHOUT_REUSE_MAX,
    MAPPED_BYTES_MAX,
    MAPPED_BYTES_MIN,
    MAPPED_KEPT_MAX,
    NO_CORRELATION_ID,
    RECEIVE_AHEAD_BYTES,
    REUSED_BYTES_MAX,
    REUSED_BYTES_MIN,
    FrameBuffers,
    FrameReceiver,
    uninitialized_buffer,
)
from zkconsumer.wire.primitives import MalformedMessage


def put(receiver: FrameReceiver, data: bytes) -> None:
    view = receiver.buffer()
    view[: len(data)] = data
    receiver.filled(len(data))


def taken(receiver: FrameReceiver, bytes_max: int = 1_000_000) -> bytes | None:
    frame = receiver.next_frame(bytes_max, uninitialized_buffer)
    return None if frame is None else bytes(frame)


def test_frames_behind_one_another_are_taken_one_by_one() -> None:
    receiver = FrameReceiver()
    assert not receiver.has_bytes
    put(receiver, b"\0\0\0\1a\0\0\0\0\0\0\0\3bc")
    assert [taken(receiver), taken(receiver), taken(receiver)] == [b"a", b"", None]
    assert receiver.is_in_frame
    assert receiver.missing_bytes == 1
    assert receiver.incomplete_bytes() == b"\0\0\0\3bc"
    put(receiver, b"d")
    assert taken(receiver) == b"bcd"
    assert not receiver.has_bytes


def test_bytes_behind_the_last_frame_move_to_the_beginning_of_the_buffer() -> None:
    receiver = FrameReceiver()
    size = RECEIVE_AHEAD_BYTES - 6
    put(receiver, size.to_bytes(4, "big") + bytes(size) + b"\0\0")
    assert taken(receiver) == bytes(size)
    assert taken(receiver) is None
    assert len(receiver.buffer()) == RECEIVE_AHEAD_BYTES - 2
    put(receiver, b"\0\1x")
    assert taken(receiver) == b"x"


def test_a_frame_has_its_own_buffer_as_soon_as_its_size_is_known() -> None:
    receiver = FrameReceiver()
    put(receiver, b"\0\0\0\5")
    assert taken(receiver) is None
    assert len(receiver.buffer()) == 5
    put(receiver, b"hello")
    assert taken(receiver) == b"hello"


@pytest.mark.parametrize("start", [b"\0\0\0\x0b", b"\xff\xff\xff\xff"])
def test_a_size_that_is_not_accepted_is_refused_again_and_again(start: bytes) -> None:
    receiver = FrameReceiver()
    put(receiver, start)
    for _ in range(2):
        with pytest.raises(MalformedMessage):
            taken(receiver, 10)
    assert receiver.incomplete_bytes() == start


@pytest.mark.parametrize(
    ("data", "correlation_id"),
    [
        (b"", None),
        (b"\0\0\0", None),
        (b"\0\0\0\4", None),
        (b"\0\0\0\x09\0\0\0", None),
        (b"\0\0\0\x09\0\0\1\2", 258),
        (b"\0\0\0\x09\0\0\1\2more", 258),
        (b"\0\0\0\3", NO_CORRELATION_ID),
        (b"\xff\0\0\0", NO_CORRELATION_ID),
    ],
)
def test_the_correlation_id_is_read_before_the_frame_is_taken(data: bytes, correlation_id: int | None) -> None:
    receiver = FrameReceiver()
    put(receiver, data)
    assert receiver.next_correlation_id() == correlation_id
    assert receiver.incomplete_bytes() == data


# --- memory of large frames -----------------------------------------------------------------------------------------

LARGE = 1_000_000


def memory_of(buffer: memoryview) -> int:
    return id(buffer.obj)


def test_the_memory_of_a_frame_is_used_again_when_no_view_of_it_exists() -> None:
    buffers = FrameBuffers()
    first = buffers.allocate(LARGE)
    assert len(first) == LARGE
    of_first = memory_of(first)
    part = first[10:20]
    del first
    assert memory_of(buffers.allocate(LARGE)) != of_first, "a part of it is still in use"
    part[:] = b"0123456789"
    del part
    assert memory_of(buffers.allocate(LARGE - 5_000)) == of_first, "frames differ a little in size"


def test_an_object_that_has_a_view_keeps_the_memory() -> None:
    buffers = FrameBuffers()
    frame = buffers.allocate(LARGE)
    of_frame = memory_of(frame)
    held = [memoryview(frame).cast("i"), iter(frame[4:])]
    del frame
    while held:
        assert memory_of(buffers.allocate(LARGE)) != of_frame
        held.pop()


def kept(buffers: FrameBuffers) -> list[bytearray]:
    return buffers._reused._kept + buffers._mapped._kept


@pytest.mark.parametrize(("size", "kept_max"), [(LARGE, BUFFERS_KEPT_MAX), (MAPPED_BYTES_MIN, MAPPED_KEPT_MAX)])
def test_some_buffers_are_kept_at_most(size: int, kept_max: int) -> None:
    buffers = FrameBuffers()
    held = [buffers.allocate(size) for _ in range(5)]
    assert len(kept(buffers)) == kept_max
    assert len({memory_of(each) for each in held}) == 5


@pytest.mark.parametrize(
    "size", [1, REUSED_BYTES_MIN - 1, REUSED_BYTES_MAX + 1, MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MAX + 1]
)
def test_the_memory_of_frames_of_other_sizes_is_not_kept(size: int) -> None:
    buffers = FrameBuffers()
    assert len(buffers.allocate(size)) == size
    assert not kept(buffers)


def test_a_much_smaller_frame_gets_a_buffer_of_its_size() -> None:
    buffers = FrameBuffers()
    buffers.allocate(8 * LARGE)
    assert len(buffers.allocate(LARGE).obj) < 2 * LARGE


def test_a_connection_that_has_become_quiet_keeps_no_memory() -> None:
    buffers = FrameBuffers()
    buffers.allocate(LARGE)
    buffers.allocate(MAPPED_BYTES_MIN)
    for _ in range(FRAMES_WITHOUT_REUSE_MAX - 2):
        buffers.allocate(100)
    assert len(kept(buffers)) == 2
    buffers.allocate(100)
    [left] = kept(buffers)
    assert len(left) >= MAPPED_BYTES_MIN
    buffers.allocate(100)
    assert not kept(buffers)


def test_a_connection_whose_responses_have_become_smaller_keeps_the_memory_of_those_alone() -> None:
    buffers = FrameBuffers()
    buffers.allocate(MAPPED_BYTES_MIN)
    for _ in range(FRAMES_WITHOUT_REUSE_MAX):
        buffers.allocate(LARGE)
    [left] = kept(buffers)
    assert len(left) < 2 * LARGE


def test_the_memory_of_a_response_of_fetch_max_bytes_is_used_again() -> None:
    buffers = FrameBuffers()
    of_first = memory_of(buffers.allocate(52_428_800 + 64 * 100))
    assert memory_of(buffers.allocate(52_428_800 - 1_000_000)) == of_first


def test_the_memory_of_a_response_with_four_partitions_of_two_megabytes_is_used_again() -> None:
    """Brokers fill ``max.partition.fetch.bytes`` to the last byte, and a response has other fields, too."""
    buffers = FrameBuffers()
    size = 4 * 2 * 1024 * 1024 + 4 * 64
    of_first = memory_of(buffers.allocate(size))
    assert memory_of(buffers.allocate(size)) == of_first
