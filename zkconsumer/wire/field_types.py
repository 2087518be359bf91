"""The types of fields: numbers, texts, bytes, arrays.  Pure.

A type returns *readers* and *writers*: plain functions, made once for each field and version, so that the inner
loops check nothing again.  All integers are big-endian.  Reading raises only ``FieldDecodeError``, writing only
``UsageError``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from zkconsumer.errors import UsageError
from zkconsumer.wire.primitives import Buffer, FieldDecodeError, MessageReader, put_uvarint

TEXT_BYTES_MAX = 0x7FFF
"""The longest text, in every version: where the length is an int16, and where it is not (as Java's reader has it)."""

_SLOT_BYTES = 8
"""The bytes of an element in the list that refers to it."""

FieldReader: TypeAlias = Callable[[MessageReader], Any]
FieldWriter: TypeAlias = Callable[[bytearray, Any], None]


class FieldType(Protocol):
    """The type of a field."""

    def bytes_min(self, version: int, flexible: bool) -> int:
        """The fewest bytes that a value takes."""

    @property
    def object_bytes(self) -> int:
        """About how much memory a value takes that has no content, in bytes: 64-bit CPython 3.11."""

    def reader(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldReader:
        """A function that reads one value."""

    def writer(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldWriter:
        """A function that appends one value."""


class FixedSizeFieldType:
    """A value of fixed size.  Neighbours of this kind are read and written together, in one step."""

    object_bytes = 0

    __slots__ = ("is_number", "letter", "name", "size")

    def __init__(self, name: str, letter: str) -> None:
        self.name = name
        self.letter = letter
        self.size = struct.calcsize(">" + letter)
        self.is_number = len(letter) == 1

    def bytes_min(self, version: int, flexible: bool) -> int:
        return self.size

    def reader(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldReader:
        read = fixed_reader([field], [self])

        def one(r: MessageReader) -> Any:
            return read(r)[0]

        return one

    def writer(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldWriter:
        pack = struct.Struct(">" + self.letter).pack

        def write(out: bytearray, value: Any) -> None:
            try:
                out += pack(value)
            except struct.error as error:
                raise UsageError(f"field {field} cannot be {value!r}: {error}") from error

        return write


int8 = FixedSizeFieldType("int8", "b")
int16 = FixedSizeFieldType("int16", "h")
int32 = FixedSizeFieldType("int32", "i")
int64 = FixedSizeFieldType("int64", "q")
boolean = FixedSizeFieldType("bool", "?")
uuid = FixedSizeFieldType("uuid", "16s")
"""Sixteen raw bytes; sixteen zero bytes stand for "none"."""

NO_UUID = bytes(16)


def fixed_reader(fields: list[str], kinds: list[FixedSizeFieldType]) -> Callable[[MessageReader], tuple[Any, ...]]:
    """Read a run of neighbouring fixed values; gives them as one tuple."""
    layout = struct.Struct(">" + "".join(kind.letter for kind in kinds))
    size, unpack = layout.size, layout.unpack_from

    def read(r: MessageReader) -> tuple[Any, ...]:
        pos = r.pos
        after = pos + size
        if after > r.end:
            raise _cut_off(fields, kinds, pos, r.end)
        r.pos = after
        return unpack(r.data, pos)

    return read


def _cut_off(fields: list[str], kinds: list[FixedSizeFieldType], pos: int, end: int) -> FieldDecodeError:
    for field, kind in zip(fields, kinds, strict=True):
        if pos + kind.size > end:
            return FieldDecodeError(field, pos, f"{kind.name} takes {kind.size} bytes, {end - pos} left")
        pos += kind.size
    raise AssertionError("a run of fields that fits cannot be cut off")


def fixed_value_error(fields: list[str], kinds: list[FixedSizeFieldType], values: tuple[Any, ...]) -> UsageError:
    """Say which value of a run does not fit."""
    for field, kind, value in zip(fields, kinds, values, strict=True):
        try:
            struct.pack(">" + kind.letter, value)
        except struct.error as error:
            return UsageError(f"field {field} cannot be {value!r}: {error}")
    raise AssertionError("a run of values that fits cannot misfit")


class _LengthPrefixedFieldType:
    """A value with its length before it: an int16 or int32, or a variable-length number plus one (flexible)."""

    __slots__ = ("_length", "name")

    object_bytes = 0

    def __init__(self, name: str, length_letter: str) -> None:
        self.name = name
        self._length = struct.Struct(">" + length_letter)

    def bytes_min(self, version: int, flexible: bool) -> int:
        return 1 if flexible else self._length.size

    def _length_reader(self, field: str, flexible: bool, nullable: bool) -> Callable[[MessageReader], int]:
        """The length, or −1 for null; null is refused here where the version does not know it."""
        length_size, unpack = self._length.size, self._length.unpack_from
        name = self.name
        lowest = -1 if nullable else 0

        def compact(r: MessageReader) -> int:
            start = r.pos
            length = r.uvarint(field) - 1
            if length < lowest:
                raise FieldDecodeError(field, start, f"null {name} where this version has none")
            return length

        def plain(r: MessageReader) -> int:
            start = r.pos
            if length_size > r.end - start:
                raise FieldDecodeError(field, start, f"a length takes {length_size} bytes, {r.end - start} left")
            r.pos = start + length_size
            length: int = unpack(r.data, start)[0]
            if length < lowest:
                if length == -1:
                    raise FieldDecodeError(field, start, f"null {name} where this version has none")
                raise FieldDecodeError(field, start, f"negative length {length}")
            return length

        return compact if flexible else plain

    def _length_writer(self, field: str, flexible: bool, nullable: bool) -> Callable[[bytearray, int], None]:
        pack = self._length.pack

        def plain(out: bytearray, length: int) -> None:
            try:
                out += pack(length)
            except struct.error as error:
                raise UsageError(f"field {field} is too long: {length}") from error

        def compact(out: bytearray, length: int) -> None:
            put_uvarint(out, length + 1)

        def checked(out: bytearray, length: int) -> None:
            if length < 0:
                raise UsageError(f"field {field} cannot be null in this version")
            put(out, length)

        put = compact if flexible else plain
        return put if nullable else checked


class TextFieldType(_LengthPrefixedFieldType):
    """UTF-8 text."""

    __slots__ = ()

    def reader(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldReader:
        read_length = self._length_reader(field, flexible, nullable)

        def read(r: MessageReader) -> str | None:
            length = read_length(r)
            if length < 0:
                return None
            if length > TEXT_BYTES_MAX:
                raise FieldDecodeError(field, r.pos, f"a text of {length} bytes, at most {TEXT_BYTES_MAX} are allowed")
            start = r.skip(field, length)
            try:
                return str(r.data[start : start + length], "utf-8")
            except UnicodeDecodeError as error:
                raise FieldDecodeError(field, start + error.start, f"not UTF-8: {error.reason}") from None

        return read

    def writer(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldWriter:
        write_length = self._length_writer(field, flexible, nullable)

        def write(out: bytearray, value: str | None) -> None:
            if value is None:
                write_length(out, -1)
                return
            try:
                data = value.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"field {field} cannot be {value!r}: {error.reason}") from error
            if len(data) > TEXT_BYTES_MAX:
                raise UsageError(f"field {field} has {len(data)} bytes, at most {TEXT_BYTES_MAX} can be sent")
            write_length(out, len(data))
            out += data

        return write


class BytesFieldType(_LengthPrefixedFieldType):
    """Bytes.  ``shared`` gives a read-only view of the frame instead of a copy: for record sets, which are large."""

    __slots__ = ("_shared",)

    def __init__(self, name: str, shared: bool) -> None:
        super().__init__(name, "i")
        self._shared = shared

    def reader(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldReader:
        read_length = self._length_reader(field, flexible, nullable)
        shared = self._shared

        def read(r: MessageReader) -> Buffer | None:
            length = read_length(r)
            if length < 0:
                return None
            start = r.skip(field, length)
            view = r.data[start : start + length]
            return view.toreadonly() if shared else bytes(view)

        return read

    def writer(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldWriter:
        write_length = self._length_writer(field, flexible, nullable)

        def write(out: bytearray, value: Buffer | None) -> None:
            if value is None:
                write_length(out, -1)
                return
            write_length(out, len(value))
            out += value

        return write


text = TextFieldType("text", "h")
blob = BytesFieldType("bytes", shared=False)
record_set = BytesFieldType("record set", shared=True)


class ArrayFieldType(_LengthPrefixedFieldType):
    """Elements of one type, after their count."""

    __slots__ = ("item",)

    object_bytes = 56

    def __init__(self, item: FieldType) -> None:
        super().__init__("array", "i")
        self.item = item

    def reader(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldReader:
        read_length = self._length_reader(field, flexible, nullable)
        item_bytes_min = self.item.bytes_min(version, flexible)
        assert item_bytes_min > 0, "elements without bytes would make the element count unbounded"
        if isinstance(self.item, FixedSizeFieldType) and self.item.is_number:
            return _fixed_array_reader(field, self.item, read_length)
        read_item = self.item.reader("", version, flexible, nullable=False)
        item_object_bytes = _SLOT_BYTES + self.item.object_bytes

        def read(r: MessageReader) -> list[Any] | None:
            length = read_length(r)
            if length < 0:
                return None
            r.check_count(field, length, item_bytes_min, item_object_bytes)
            items: list[Any] = []
            try:
                for _ in range(length):
                    items.append(read_item(r))  # noqa: PERF401 (a fault needs the number of the element)
            except FieldDecodeError as fault:
                raise fault.within(f"{field}[{len(items)}]") from None
            return items

        return read

    def writer(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldWriter:
        write_length = self._length_writer(field, flexible, nullable)
        if isinstance(self.item, FixedSizeFieldType) and self.item.is_number:
            return _fixed_array_writer(field, self.item, write_length)
        write_item = self.item.writer(f"{field}[]", version, flexible, nullable=False)

        def write(out: bytearray, value: list[Any] | None) -> None:
            if value is None:
                write_length(out, -1)
                return
            write_length(out, len(value))
            for item in value:
                write_item(out, item)

        return write


def _fixed_array_reader(
    field: str, kind: FixedSizeFieldType, read_length: Callable[[MessageReader], int]
) -> FieldReader:
    """Numbers are unpacked all at once."""

    def read(r: MessageReader) -> list[Any] | None:
        length = read_length(r)
        if length < 0:
            return None
        r.check_count(field, length, kind.size)
        start = r.skip(field, length * kind.size)
        return list(struct.unpack_from(f">{length}{kind.letter}", r.data, start))

    return read


def _fixed_array_writer(
    field: str, kind: FixedSizeFieldType, write_length: Callable[[bytearray, int], None]
) -> FieldWriter:
    def write(out: bytearray, value: list[Any] | None) -> None:
        if value is None:
            write_length(out, -1)
            return
        write_length(out, len(value))
        try:
            out += struct.pack(f">{len(value)}{kind.letter}", *value)
        except struct.error as error:
            raise UsageError(f"field {field} cannot be {value!r}: {error}") from error

    return write
