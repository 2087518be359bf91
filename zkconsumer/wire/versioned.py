"""Messages that carry their own version in front, as an int16: what members and coordinators store.  Pure."""

from __future__ import annotations

import struct
from typing import TypeVar

from zkconsumer.errors import UsageError
from zkconsumer.wire.field_types import fixed_reader, int16
from zkconsumer.wire.primitives import Buffer, FieldDecodeError, MalformedMessage, MessageReader
from zkconsumer.wire.schemas.message_schema import decoder, encoder

C = TypeVar("C")

NEVER_FLEXIBLE = 0x7FFF
"""``flexible_from`` of messages whose lengths are never compact."""

_VERSION = struct.Struct(">h")
_read_version = fixed_reader(["version"], [int16])


def version_of(name: str, data: Buffer) -> int:
    """The version in front.  ``MalformedMessage``: fewer than two bytes; the text has ``name``."""
    try:
        (version,) = _read_version(MessageReader(data))
    except FieldDecodeError as fault:
        raise malformed_message(name, fault) from None
    return int(version)


def decode_body(
    name: str,
    cls: type[C],
    data: Buffer,
    version: int,
    *,
    flexible_from: int = NEVER_FLEXIBLE,
    may_have_more: bool = False,
) -> C:
    """What follows the version in front, read in the layout of ``version``.

    ``may_have_more``: bytes after the last field are passed over.  ``MalformedMessage`` for everything else.
    """
    reader = MessageReader(data, _VERSION.size)
    try:
        body = decoder(cls, version, version >= flexible_from)(reader)
        if not may_have_more:
            reader.check_end()
    except FieldDecodeError as fault:
        raise malformed_message(f"{name} v{version}", fault) from None
    return body


def encode_versioned(
    name: str, body: object, version: int, highest: int, *, flexible_from: int = NEVER_FLEXIBLE
) -> bytes:
    """The version, then the body.  ``UsageError``: the version is not known here, or a value does not fit it."""
    if not 0 <= version <= highest:
        raise UsageError(f"{name} v{version} is not written here, only v0 to v{highest}")
    out = bytearray(_VERSION.pack(version))
    encoder(type(body), version, version >= flexible_from)(out, body)
    return bytes(out)


def malformed_message(name: str, fault: FieldDecodeError) -> MalformedMessage:
    """The fault as callers see it."""
    return MalformedMessage(name, fault.field, fault.offset, fault.why)
