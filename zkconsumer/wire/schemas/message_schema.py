"""Defines an API by tables, and compiles the tables to functions.  Pure.

A message is a class whose fields are a table: name, type, kind, versions, default::

    @message
    class FetchPartition:
        partition: int = f(int32)
        current_leader_epoch: int = f(int32, "9+", default=-1)

An ``Api`` contains the two classes of one API, its versions, and the first flexible version (compact lengths and tagged
fields, KIP-482).  For each class and version, the table is compiled at first use into one function that reads and one
that writes: straight-line code in which adjacent fields of fixed size are one step.

Rules.  A field that a version does not have is omitted when written and has its default when read.  If the omission
would change the meaning, the table has ``needed=True``, and writing another value than the default raises
``UnsupportedVersionException`` (a ``UsageError``).  Unknown tagged fields are skipped.  Messages are values; they are
not frozen, because the initialiser of a frozen class costs three times as much, and one message is created for every
partition of every answer.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar, dataclass_transform

from zkconsumer.errors import UnsupportedVersionException
from zkconsumer.wire.field_types import (
    ArrayFieldType,
    FieldReader,
    FieldType,
    FieldWriter,
    FixedSizeFieldType,
    fixed_reader,
    fixed_value_error,
)
from zkconsumer.wire.primitives import FieldDecodeError, MessageReader, put_uvarint

Q = TypeVar("Q")
R = TypeVar("R")
Q_contra = TypeVar("Q_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
C = TypeVar("C")

_METADATA_KEY = "zkconsumer.wire"
_FOREVER = 0x7FFF

_OBJECT_BYTES = 32
_SLOT_BYTES = 8
"""The bytes of an object with slots, including the header of the garbage collector, and of each slot (64-bit CPython
3.11)."""


class MessageCodec(Protocol[Q_contra, R_co]):
    """Writes the requests and reads the answers of one API, instead of the functions from its tables."""

    def write(self, out: bytearray, body: Q_contra, version: int) -> None:
        """Append the body of a request.  Raises ``UsageError`` for a value that cannot be encoded."""

    def read(self, reader: MessageReader, version: int) -> R_co:
        """Read the body of an answer.  Raises only ``FieldDecodeError``."""


@dataclass(frozen=True, slots=True)
class Api(Generic[Q, R]):
    """One API: its key, its messages, the supported versions, and the first flexible version.

    ``client_max``: the default limit of clients for the version.  It is below the version in which an API changes its
    meaning: topics by id instead of by name, or an error that earlier versions do not have.

    ``codec``: for an API whose messages have no tables.
    """

    key: int
    name: str
    request: type[Q]
    response: type[R]
    highest: int
    flexible_from: int
    lowest: int = 0
    client_max: int | None = None
    codec: MessageCodec[Q, R] | None = None

    @property
    def client_highest(self) -> int:
        """The highest version that clients use by default."""
        return self.highest if self.client_max is None else self.client_max

    def supports(self, version: int) -> bool:
        """Whether this module can read and write the version."""
        return self.lowest <= version <= self.highest

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible_from


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """A range of versions, as text ``"0+"``, ``"8-10"`` or ``"0"``; ``""``: no version."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


def parse_versions(span: str) -> VersionSpan:
    """Parse the text of a range."""
    if not span:
        return VersionSpan(1, 0)
    if span.endswith("+"):
        return VersionSpan(int(span[:-1]), _FOREVER)
    lowest, _, highest = span.partition("-")
    return VersionSpan(int(lowest), int(highest or lowest))


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The attributes of one field in the table."""

    field_type: FieldType
    versions: VersionSpan
    nullable: VersionSpan
    tag: int | None
    non_ignorable: bool


def f(
    kind: FieldType,
    span: str = "0+",
    *,
    nullable: str = "",
    tag: int | None = None,
    needed: bool = False,
    default: Any = MISSING,
    default_factory: Any = MISSING,
) -> Any:
    """One line of a table.

    ``span``: the versions that have the field.  ``nullable``: those in which it may be None.  ``tag``: it is sent as a
    tagged field with this number, and only if it differs from its default.  ``needed``: writing another value than the
    default in a version without the field is an error.
    """
    column = FieldSpec(kind, parse_versions(span), parse_versions(nullable), tag, needed)
    metadata = {_METADATA_KEY: column}
    if default_factory is not MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    if default is not MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    assert column.versions.lowest == 0 or tag is not None, "a field that is missing in a version needs a default"
    return dataclasses.field(metadata=metadata)


@dataclass_transform(kw_only_default=True, field_specifiers=(f,))
def message(cls: type[C]) -> type[C]:
    """Make the class a dataclass with slots and keyword-only fields."""
    return dataclass(slots=True, kw_only=True)(cls)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message class, with its column and its default."""

    name: str
    spec: FieldSpec
    default: Any
    default_factory: Any

    def make_default(self) -> Any:
        """The value in versions without the field."""
        return self.default if self.default_factory is MISSING else self.default_factory()


def fields(cls: type) -> tuple[Field, ...]:
    """The table of a message class, in the order of the bytes."""
    return tuple(
        Field(field.name, field.metadata[_METADATA_KEY], field.default, field.default_factory)
        for field in dataclasses.fields(cls)
    )


class NestedMessageFieldType:
    """The kind of a field that is a message."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def bytes_min(self, version: int, flexible: bool) -> int:
        own = sum(
            field.spec.field_type.bytes_min(version, flexible)
            for field in fields(self.cls)
            if version in field.spec.versions and field.spec.tag is None
        )
        return own + flexible

    @property
    def object_bytes(self) -> int:
        columns = [field.spec.field_type for field in fields(self.cls)]
        return _OBJECT_BYTES + sum(_SLOT_BYTES + kind.object_bytes for kind in columns)

    def reader(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldReader:
        assert not nullable, "no supported API has a nullable message outside tagged fields"
        read: FieldReader = decoder(self.cls, version, flexible)
        if not field:
            return read

        def read_inside(r: MessageReader) -> Any:
            try:
                return read(r)
            except FieldDecodeError as fault:
                raise fault.within(field) from None

        return read_inside

    def writer(self, field: str, version: int, flexible: bool, nullable: bool) -> FieldWriter:
        return encoder(self.cls, version, flexible)


def array(item: FieldType | type) -> ArrayFieldType:
    """The kind of an array whose elements have a kind or a message class."""
    return ArrayFieldType(NestedMessageFieldType(item) if isinstance(item, type) else item)


def _plain(cls: type, version: int) -> Iterator[tuple[bool, list[Field]]]:
    """The untagged fields of a version, in the order of the bytes: runs of fields of fixed size, and single others."""
    present = [field for field in fields(cls) if field.spec.tag is None and version in field.spec.versions]
    for is_fixed, run in groupby(present, lambda field: isinstance(field.spec.field_type, FixedSizeFieldType)):
        if is_fixed:
            yield True, list(run)
        else:
            yield from ((False, [field]) for field in run)


def _tagged(cls: type, version: int) -> list[Field]:
    present = [field for field in fields(cls) if field.spec.tag is not None and version in field.spec.versions]
    return sorted(present, key=lambda field: field.spec.tag or 0)


def _fixed_kinds(run: list[Field]) -> list[FixedSizeFieldType]:
    return [field.spec.field_type for field in run if isinstance(field.spec.field_type, FixedSizeFieldType)]


_decoders: dict[tuple[object, int, bool], Callable[[MessageReader], Any]] = {}
_encoders: dict[tuple[object, int, bool], Callable[[bytearray, Any], None]] = {}


def decoder(cls: type[C], version: int, flexible: bool) -> Callable[[MessageReader], C]:
    """The function that reads one message of this class and version; it only raises ``FieldDecodeError``."""
    key = cls, version, flexible
    if key not in _decoders:
        _decoders[key] = _make_decoder(cls, version, flexible)
    return _decoders[key]


def encoder(cls: type[C], version: int, flexible: bool) -> Callable[[bytearray, C], None]:
    """The function that appends one message of this class and version.

    It raises ``UsageError`` for a value that cannot be encoded.
    """
    key = cls, version, flexible
    if key not in _encoders:
        _encoders[key] = _make_encoder(cls, version, flexible)
    return _encoders[key]


def _make_decoder(cls: type[C], version: int, flexible: bool) -> Callable[[MessageReader], C]:
    scope: dict[str, Any] = {"cls": cls, "new": object.__new__}
    lines = ["def decode(r):", "    o = new(cls)"]
    seen = set()
    for number, (is_fixed, run) in enumerate(_plain(cls, version)):
        names = [field.name for field in run]
        seen.update(names)
        if is_fixed:
            scope[f"read{number}"] = fixed_reader(names, _fixed_kinds(run))
            lines.append(f"    {''.join(f'o.{name}, ' for name in names)}= read{number}(r)")
        else:
            (column,) = (field.spec for field in run)
            is_nullable = version in column.nullable
            scope[f"read{number}"] = column.field_type.reader(names[0], version, flexible, is_nullable)
            lines.append(f"    o.{names[0]} = read{number}(r)")
    for field in fields(cls):
        if field.name not in seen:
            scope[f"default_{field.name}"] = field.make_default
            lines.append(f"    o.{field.name} = default_{field.name}()")
    if flexible:
        scope["read_tags"] = _tags_reader(_tagged(cls, version), version)
        # Nearly all messages have no tagged fields, and then only one byte.
        lines += ["    if r.pos < r.end and not r.data[r.pos]:", "        r.pos += 1"]
        lines += ["    else:", "        read_tags(r, o)"]
    lines.append("    return o")
    decode: Callable[[MessageReader], C] = _function("decode", lines, scope)
    return decode


def _make_encoder(cls: type[C], version: int, flexible: bool) -> Callable[[bytearray, C], None]:
    scope: dict[str, Any] = {"StructError": struct.error, "misfit": fixed_value_error, "cannot_omit": _cannot_omit}
    lines = ["def encode(out, o):"]
    for field in fields(cls):
        if field.spec.non_ignorable and version not in field.spec.versions:
            scope[f"default_{field.name}"] = field.make_default()
            lines += [
                f"    if o.{field.name} != default_{field.name}:",
                f"        raise cannot_omit({field.name!r}, o.{field.name}, {version})",
            ]
    for number, (is_fixed, run) in enumerate(_plain(cls, version)):
        names = [field.name for field in run]
        values = "".join(f"o.{name}, " for name in names)
        if is_fixed:
            kinds = _fixed_kinds(run)
            scope[f"pack{number}"] = struct.Struct(">" + "".join(kind.letter for kind in kinds)).pack
            scope[f"kinds{number}"] = kinds
            lines += [
                "    try:",
                f"        out += pack{number}({values})",
                "    except StructError as error:",
                f"        raise misfit({names!r}, kinds{number}, ({values})) from error",
            ]
        else:
            (column,) = (field.spec for field in run)
            is_nullable = version in column.nullable
            scope[f"write{number}"] = column.field_type.writer(names[0], version, flexible, is_nullable)
            lines.append(f"    write{number}(out, o.{names[0]})")
    if flexible and _tagged(cls, version):
        scope["write_tags"] = _tags_writer(_tagged(cls, version), version)
        lines.append("    write_tags(out, o)")
    elif flexible:
        lines.append("    out.append(0)")
    lines.append("    return None")
    encode: Callable[[bytearray, C], None] = _function("encode", lines, scope)
    return encode


def _function(name: str, lines: list[str], scope: dict[str, Any]) -> Any:
    """Compile generated lines.  They contain only names from the tables, and never received data."""
    exec(compile("\n".join(lines), f"<wire {name}>", "exec"), scope)
    return scope[name]


def _cannot_omit(name: str, value: Any, version: int) -> UnsupportedVersionException:
    return UnsupportedVersionException(f"field {name} is {value!r}, which version {version} cannot contain")


def _tags_reader(known: list[Field], version: int) -> Callable[[MessageReader, Any], None]:
    """Read the tagged fields at the end of a flexible message; skip unknown ones, and check the order."""
    readers: dict[int, tuple[str, FieldReader]] = {}
    for field in known:
        column = field.spec
        assert column.tag is not None
        is_nullable = version in column.nullable
        readers[column.tag] = field.name, column.field_type.reader(field.name, version, True, is_nullable)

    def read(r: MessageReader, o: Any) -> None:
        count = r.uvarint("tagged fields")
        if not count:
            return
        r.check_count("tagged fields", count, 2)
        previous = -1
        for _ in range(count):
            start = r.pos
            tag = r.uvarint("tagged fields")
            if tag <= previous:
                raise FieldDecodeError("tagged fields", start, f"tag {tag} follows tag {previous}")
            previous = tag
            size = r.uvarint("tagged fields")
            name, read_value = readers.get(tag, ("tagged fields", None))
            after = r.skip(name, size) + size
            if read_value is None:
                continue
            r.pos -= size
            end, r.end = r.end, after
            setattr(o, name, read_value(r))
            if r.pos != after:
                raise FieldDecodeError(name, r.pos, f"{after - r.pos} bytes after the end of tagged field {tag}")
            r.end = end

    return read


def _tags_writer(known: list[Field], version: int) -> Callable[[bytearray, Any], None]:
    """Write the tagged fields that differ from their defaults, in the order of their tags."""
    writers: list[tuple[int, str, Any, FieldWriter]] = []
    for field in known:
        column = field.spec
        assert column.tag is not None
        is_nullable = version in column.nullable
        write_value = column.field_type.writer(field.name, version, True, is_nullable)
        writers.append((column.tag, field.name, field.make_default(), write_value))

    def write(out: bytearray, o: Any) -> None:
        present = [w for w in writers if getattr(o, w[1]) != w[2]]
        put_uvarint(out, len(present))
        for tag, name, _, write_value in present:
            value = bytearray()
            write_value(value, getattr(o, name))
            put_uvarint(out, tag)
            put_uvarint(out, len(value))
            out += value

    return write
