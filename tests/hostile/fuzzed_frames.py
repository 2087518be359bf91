"""Frames for a fuzzer: valid ones of every API and version, by the tables, and what becomes of them in bad hands.

All randomness comes from the ``random.Random`` that is given, so a run can be repeated by its seed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from zkconsumer.wire.field_types import ArrayFieldType, BytesFieldType, FieldType, FixedSizeFieldType, TextFieldType
from zkconsumer.wire.request_frames import SIZE_BYTES, encode_request, encode_response
from zkconsumer.wire.schemas import APIS, Api
from zkconsumer.wire.schemas.message_schema import Field, NestedMessageFieldType, fields

ITEMS_MAX = 3
TEXT_BYTES_MAX = 300
BLOB_BYTES_MAX = 200
GARBAGE_BYTES_MAX = 4_000

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


class Frames:
    """Makes frames.  ``words`` are texts that mean something to the peer: names of groups, topics, members."""

    def __init__(self, rng: random.Random, words: Sequence[str] = ()) -> None:
        self.rng = rng
        self._words = [*words, "", "consumer", "range", "nowhere", "ключ😀"]

    # --- valid ---

    def api(self) -> tuple[Api[Any, Any], int]:
        """Any API in any version."""
        api = self.rng.choice([*APIS.values()])
        return api, self.rng.randint(api.lowest, api.highest)

    def request(self) -> bytes:
        """A frame that every rule of the wire allows."""
        api, version = self.api()
        return self.request_of(api, version)

    def request_of(self, api: Api[Any, Any], version: int) -> bytes:
        """A request of this API and version."""
        client_id = self.rng.choice(["fuzz", "", "x" * 100])
        return encode_request(api, version, self.rng.getrandbits(31), client_id, self.message(api.request, version))

    def response_of(self, api: Api[Any, Any], version: int, correlation_id: int) -> bytes:
        """An answer to a request of this API and version."""
        return encode_response(api, version, correlation_id, self.message(api.response, version))

    def message(self, cls: type, version: int) -> Any:
        """Any message of this class; fields that the version lacks keep their defaults."""
        return cls(**{field.name: self._value(field, version) for field in fields(cls)})

    def _value(self, field: Field, version: int) -> Any:
        if version not in field.spec.versions:
            return field.make_default()
        can_be_null = version in field.spec.nullable or (field.spec.tag is not None and field.default is None)
        if can_be_null and self.rng.random() < 0.2:
            return None
        return self._of_kind(field.spec.field_type, version)

    def _of_kind(self, kind: FieldType, version: int) -> Any:
        match kind:
            case FixedSizeFieldType(letter="?"):
                return self.rng.random() < 0.5
            case FixedSizeFieldType(letter="16s"):
                return self.rng.randbytes(16)
            case FixedSizeFieldType(letter=letter):
                return self._number(_BITS[letter])
            case TextFieldType():
                return self._text()
            case BytesFieldType():
                return self.rng.randbytes(self.rng.randint(0, BLOB_BYTES_MAX))
            case ArrayFieldType():
                return [self._of_kind(kind.item, version) for _ in range(self.rng.randint(0, ITEMS_MAX))]
            case NestedMessageFieldType():
                return self.message(kind.cls, version)
        raise AssertionError(f"no value for {kind}")

    def _number(self, bits: int) -> int:
        lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        if self.rng.random() < 0.7:
            return self.rng.choice([-1, 0, 1, 2, 10, min(highest, 6_000), min(highest, 30_000)])
        return self.rng.choice([lowest, highest, self.rng.randint(lowest, highest)])

    def _text(self) -> str:
        if self.rng.random() < 0.9:
            return self.rng.choice(self._words)
        return "".join(self.rng.choices("ab./ \0é", k=self.rng.randint(0, TEXT_BYTES_MAX)))

    # --- bad ---

    def bad(self) -> bytes:
        """A frame that something is wrong with, most often."""
        return self.spoiled(self.request())

    def spoiled(self, frame: bytes) -> bytes:
        """One way to spoil a frame."""
        return self.rng.choice(
            [self.flipped, self.cut, self.stretched, self.resized, self.renamed, self.swapped, self.garbage]
        )(frame)

    def flipped(self, frame: bytes) -> bytes:
        """Some bits behind the size are turned over."""
        data = bytearray(frame)
        for _ in range(self.rng.choice([1, 1, 1, 2, 8])):
            data[self.rng.randrange(SIZE_BYTES, len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(data)

    def cut(self, frame: bytes) -> bytes:
        """The end is missing, and the size says so."""
        return _sized(frame[SIZE_BYTES : self.rng.randrange(SIZE_BYTES, len(frame))])

    def stretched(self, frame: bytes) -> bytes:
        """Something follows that no table has."""
        return _sized(frame[SIZE_BYTES:] + self.rng.randbytes(self.rng.randint(1, 40)))

    def resized(self, frame: bytes) -> bytes:
        """A length or count somewhere inside is another number."""
        data = bytearray(frame)
        number = self.rng.choice([-1, -2, -(2**31), 2**31 - 1, 2**30, 65_536, 1_000_000])
        if len(data) < SIZE_BYTES + 8:
            return bytes(data)
        struct.pack_into(">i", data, self.rng.randrange(SIZE_BYTES + 4, len(data) - 3), number)
        return bytes(data)

    def renamed(self, frame: bytes) -> bytes:
        """Another API or version stands in front of the same body."""
        data = bytearray(frame)
        at = self.rng.choice([SIZE_BYTES, SIZE_BYTES + 2])
        struct.pack_into(">h", data, at, self.rng.choice([-1, 1_000, 32_767, self.rng.randint(0, 80)]))
        return bytes(data)

    def swapped(self, frame: bytes) -> bytes:
        """A piece of another frame in the middle of this one."""
        other = self.request()
        here, there = self.rng.randrange(SIZE_BYTES, len(frame)), self.rng.randrange(SIZE_BYTES, len(other))
        return _sized(frame[SIZE_BYTES:here] + other[there:])

    def garbage(self, frame: bytes = b"") -> bytes:
        """Bytes that mean nothing, in a frame."""
        return _sized(self.rng.randbytes(self.rng.randint(0, GARBAGE_BYTES_MAX)))


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
