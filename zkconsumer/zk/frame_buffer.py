"""Splits the bytes of a server into packets: each starts with its length.  Pure."""

from __future__ import annotations

import struct

from zkconsumer.zk.packets import MalformedResponseError

FRAME_BYTES_MAX = 64 * 1024 * 1024
_LENGTH = struct.Struct("!i")


class FrameBuffer:
    """Receives bytes and returns complete packets: one input may contain many, and one packet may need many inputs."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0

    def add(self, received: bytes) -> None:
        """Add received bytes."""
        del self._data[: self._at]
        self._at = 0
        self._data += received

    def next(self) -> bytes | None:
        """Return the next packet without its length; None when it is not complete yet.

        Raises ``MalformedResponseError`` for a length that is negative or too large.
        """
        start = self._at + _LENGTH.size
        if start > len(self._data):
            return None
        [length] = _LENGTH.unpack_from(self._data, self._at)
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise MalformedResponseError(f"a frame of {length} bytes")
        if start + length > len(self._data):
            return None
        self._at = start + length
        return bytes(self._data[start : self._at])
