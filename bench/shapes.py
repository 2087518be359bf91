"""The records in the topics of the benchmarks: sizes, record formats, codecs, batches, headers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

SEED = 20
WORDS = b'{"id":12345,"name":"a customer","state":"open","amount":17.25,"currency":"EUR","at":1700000000000} '
HEADERS = (("trace-id", b"0123456789abcdef"), ("content-type", b"application/json"), ("schema", b"7"))
"""The headers of each record of a shape with headers: 57 bytes of names and values."""
TIMESTAMP_MS = 1_700_000_000_000
BATCHES_MADE = 256


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as a producer sends it: the number of records, the bytes of the values, and the encoded bytes."""

    records: int
    value_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of topic.

    ``batch_bytes``: the size of the producer's batches.  ``batch_records``: instead, the minimum and maximum of a
    random number of records in a batch.  ``varies``: values have half to one and a half of ``size`` bytes.  Text is a
    part of one repeated line, and is compressed to a tenth; without ``is_compressible`` its numbers and names differ,
    and it is compressed to about a third.
    """

    size: int
    varies: bool
    magic: int = 2
    codec: int = compression.NONE
    batch_bytes: int = 16_384
    is_random: bool = False
    batch_records: tuple[int, int] | None = None
    is_compressible: bool = True
    has_headers: bool = False

    def __str__(self) -> str:
        parts = [
            f"{self.size} B" if self.size < 1024 else f"{self.size // 1024} KB",
            f"v{self.magic}",
            compression.CODEC_NAMES[self.codec],
            "varying" if self.varies else "constant",
            "{} to {} records a batch".format(*self.batch_records)
            if self.batch_records
            else f"{self.batch_bytes // 1024} KB batches"
            if self.batch_bytes >= 1024
            else f"{self.batch_bytes} B batches",
            "random bytes" if self.is_random else "text" if self.is_compressible else "text with numbers",
            *([f"{len(HEADERS)} headers"] if self.has_headers else []),
        ]
        return ", ".join(parts)

    @property
    def is_gated(self) -> bool:
        """Whether ``bench/columns.py`` has a gate for it."""
        return self.size == 100 and self.magic in (1, 2) and self.codec == compression.NONE

    @property
    def records_in_a_batch(self) -> int:
        """The number of records in ``batch_bytes``."""
        return max(1, self.batch_bytes // (self.size + 16))

    def values(self, rows: int) -> list[bytes]:
        """The values of ``rows`` records."""
        numbers = random.Random(SEED)
        made = []
        for _ in range(rows):
            size = numbers.randrange(self.size // 2, self.size * 3 // 2 + 1) if self.varies else self.size
            if self.is_random:
                made.append(numbers.randbytes(size))
            else:
                start = numbers.randrange(len(WORDS))
                words = WORDS if self.is_compressible else _line(numbers)
                made.append((words[start:] + words * (size // len(words) + 1))[:size])
        return made

    def record_set(self, rows: int) -> bytes:
        """``rows`` records as a broker sends them."""
        records = [self._record(offset, offset, value) for offset, value in enumerate(self.values(rows))]
        in_a_batch = self.records_in_a_batch
        return b"".join(
            build_record_set(records[low : low + in_a_batch], self.magic, self.codec)
            for low in range(0, rows, in_a_batch)
        )

    def batches(self) -> list[Batch]:
        """``BATCHES_MADE`` different ones, each with records numbered from 0, as a producer sends them."""
        if self.batch_records is None:
            counts = [self.records_in_a_batch] * BATCHES_MADE
        else:
            numbers = random.Random(SEED)
            counts = [numbers.randint(*self.batch_records) for _ in range(BATCHES_MADE)]
        values = iter(self.values(sum(counts)))
        made, written = [], 0
        for count in counts:
            records = [self._record(n, written + n, next(values)) for n in range(count)]
            data = build_record_set(records, self.magic, self.codec)
            made.append(Batch(count, sum(len(record.value or b"") for record in records), data))
            written += count
        return made

    def _record(self, offset: int, number: int, value: bytes) -> Record:
        time = TIMESTAMP_MS + offset // 50
        return Record(offset, time, 0, number.to_bytes(8, "big"), value, HEADERS if self.has_headers else ())


JSON_COLUMNS = "id BIGINT, name STRING, state STRING, amount DOUBLE, at BIGINT, note STRING"
"""The fields of a ``JsonShape``, as Spark's DDL."""


@dataclass(frozen=True, slots=True)
class JsonShape:
    """JSON objects of ``size`` bytes, in batches of 16 KB; one of ``bad_in`` is cut off (0: none)."""

    size: int
    bad_in: int = 0
    magic: int = 2

    def __str__(self) -> str:
        size = f"{self.size} B" if self.size < 1024 else f"{self.size // 1024} KB"
        return f"JSON, {size}" + (f", 1 of {self.bad_in:,} broken" if self.bad_in else "")

    def batches(self) -> list[Batch]:
        """``BATCHES_MADE`` different ones, or so many that exactly one record in ``bad_in`` is bad."""
        numbers = random.Random(SEED)
        in_a_batch = max(1, 16_384 // (self.size + 16))
        count = self.bad_in or BATCHES_MADE * in_a_batch
        values = [self._value(numbers) for _ in range(count)]
        if self.bad_in:
            values[count // 2] = values[count // 2][:-1]
        made = []
        for low in range(0, count, in_a_batch):
            part = values[low : low + in_a_batch]
            records = [Record(n, TIMESTAMP_MS + n, 0, n.to_bytes(8, "big"), value, ()) for n, value in enumerate(part)]
            made.append(Batch(len(part), sum(map(len, part)), build_record_set(records, 2)))
        return made

    def _value(self, numbers: random.Random) -> bytes:
        head = (
            f'{{"id":{numbers.randrange(10_000, 100_000)},"name":"{numbers.getrandbits(32):08x}","state":"open",'
            f'"amount":{numbers.randrange(1000, 10_000) / 100:05.2f},"at":{TIMESTAMP_MS},"note":"'
        )
        note = (WORDS.decode().replace('"', "") * (self.size // len(WORDS) + 1))[: max(0, self.size - len(head) - 2)]
        return f'{head}{note}"}}'.encode()


def _line(numbers: random.Random) -> bytes:
    """A line like ``WORDS`` with the same length, and with a random id, name, amount and time."""
    number, name, amount = numbers.randrange(10_000, 100_000), numbers.getrandbits(40), numbers.randrange(1000, 10_000)
    made = (
        f'{{"id":{number},"name":"{name:010x}","state":"open","amount":{amount / 100:05.2f},"currency":"EUR",'
        f'"at":{TIMESTAMP_MS + numbers.randrange(10**9)}}} '
    )
    return made.encode()
