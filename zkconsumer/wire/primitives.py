"""The base of the codec: a strict reader of received bytes, its errors, and variable-length numbers.  Pure.

Every size is checked against the available bytes before memory is allocated for it.  ``field_types`` has the types of
values, ``schemas`` the messages.
"""

from __future__ import annotations

from typing import TypeAlias

from zkconsumer.errors import RemoteProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in any of the types in which they arrive."""

RecordSet: TypeAlias = bytes | memoryview
"""A record set; a received one is a read-only view of its frame."""

ITEMS_MAX = 2_000_000
"""Array elements that one message may hold, all its arrays together: bounds the objects made for one frame.

A cluster of 200,000 partitions with three replicas each answers Metadata with 1.4 million.
"""

OBJECT_BYTES_FREE = 32 * 1024 * 1024
OBJECT_BYTES_PER_BYTE = 12
OBJECT_BYTES_MAX = 128 * 1024 * 1024
"""Memory for the objects of one message: at most ``OBJECT_BYTES_FREE``, and ``OBJECT_BYTES_PER_BYTE`` times the bytes
of its frame, and never more than ``OBJECT_BYTES_MAX``.

An element without content takes 6 to 10 bytes on the wire and about 150 as an object.  What brokers send takes 8 to 11
times its bytes: a partition of a Metadata answer has 26 bytes or more and about 300 as an object.  A Metadata answer
with 200,000 partitions, which is what a large cluster has, takes half of ``OBJECT_BYTES_MAX``.
"""

_UVARINT_BYTES_MAX = 5
_UVARINT_MAX = 0xFFFF_FFFF


class MalformedMessage(RemoteProtocolError):
    """A peer's bytes are not the expected message; the text names API, version, field and offset."""

    def __init__(self, message: str, field: str, offset: int, why: str) -> None:
        super().__init__(f"{message}: field {field or 'frame'} at byte {offset}: {why}")
        self.message = message
        self.field = field
        self.offset = offset
        self.why = why


class FieldDecodeError(Exception):
    """Why reading stopped; internal, converted to ``MalformedMessage`` where the message's name is known.

    The path grows outwards: an array puts its own name before the path of its element's error.
    """

    def __init__(self, field: str, offset: int, why: str) -> None:
        super().__init__(why)
        self.field = field
        self.offset = offset
        self.why = why

    def within(self, parent: str) -> FieldDecodeError:
        """The same error, one level further out."""
        self.field = f"{parent}.{self.field}" if self.field else parent
        return self


class MessageReader:
    """A cursor over one message.  ``end`` moves in while a tagged field is read, so that it cannot read past itself."""

    __slots__ = ("data", "end", "items_left", "object_bytes_left", "pos")

    def __init__(self, data: Buffer, pos: int = 0) -> None:
        self.data = memoryview(data)
        self.pos = pos
        self.end = len(self.data)
        self.items_left = ITEMS_MAX
        self.object_bytes_left = min(OBJECT_BYTES_MAX, OBJECT_BYTES_FREE + OBJECT_BYTES_PER_BYTE * self.end)

    def uvarint(self, field: str) -> int:
        """An unsigned variable-length number of at most 32 bits (KIP-482)."""
        start = pos = self.pos
        if pos < self.end and self.data[pos] < 0x80:
            self.pos = pos + 1
            return self.data[pos]
        value = shift = 0
        while True:
            if pos >= self.end:
                raise FieldDecodeError(field, start, "the message ends inside a variable-length number")
            if pos - start == _UVARINT_BYTES_MAX:
                raise FieldDecodeError(field, start, "a variable-length number has more than 5 bytes")
            byte = self.data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if value > _UVARINT_MAX:
            raise FieldDecodeError(field, start, "a variable-length number has more than 32 bits")
        self.pos = pos
        return value

    def skip(self, field: str, size: int) -> int:
        """Skip ``size`` bytes that must exist; returns where they start."""
        start = self.pos
        if size > self.end - start:
            raise FieldDecodeError(field, start, f"{size} bytes announced, {self.end - start} left")
        self.pos = start + size
        return start

    def check_count(self, field: str, items: int, item_bytes_min: int, item_object_bytes: int = 0) -> None:
        """Check an element count against the bytes and the memory that are left, before anything is made for it.

        ``item_object_bytes``: memory of one element without its content.
        """
        if items * item_bytes_min > self.end - self.pos:
            raise FieldDecodeError(
                field,
                self.pos,
                f"{items} elements of at least {item_bytes_min} bytes announced, {self.end - self.pos} bytes left",
            )
        self.items_left -= items
        if self.items_left < 0:
            raise FieldDecodeError(field, self.pos, f"more than {ITEMS_MAX} elements in one message")
        self.object_bytes_left -= items * item_object_bytes
        if self.object_bytes_left < 0:
            raise FieldDecodeError(
                field,
                self.pos,
                f"{items} elements of at least {item_object_bytes} bytes of memory announced, which is more than "
                f"{OBJECT_BYTES_PER_BYTE} times the message",
            )

    def check_end(self) -> None:
        """Nothing may follow the last field."""
        if self.pos != self.end:
            raise FieldDecodeError("", self.pos, f"{self.end - self.pos} bytes after the last field")


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned variable-length number (KIP-482)."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
