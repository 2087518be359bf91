"""Plain bytes become frames, and no byte of a large one is copied."""

from __future__ import annotations

import pytest

from zkconsumer.kafka.net.frame_receiver import (
    NO_CORRELATION_ID,
    RECEIVE_AHEAD_BYTES,
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
