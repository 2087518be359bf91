"""The compiled checksums, by tables and by the processor's instructions, against zlib and google-crc32c."""

from __future__ import annotations

import random
import zlib

import google_crc32c
import pytest

from zkconsumer.wire import compiled

if compiled.RECORD_DECODER is None:
    pytest.skip("installed without a compiler, or ZKCONSUMER_NO_EXTENSIONS is set", allow_module_level=True)

RECORDS = compiled.RECORD_DECODER

DATA = random.Random(1).randbytes(20_000)


TABLES, WITHOUT_AVX512, ALL = range(3)


@pytest.mark.parametrize("use", [TABLES, WITHOUT_AVX512, ALL])
def test_checksums_of_every_length_from_every_position(use: int) -> None:
    """Each loop takes another number of bytes at a time, and hands the rest to the next one."""
    view = memoryview(DATA)
    for length in [*range(1_100), 4_096, 16_383, 19_990]:
        for start in range(4) if length < 300 else (length % 10,):
            part = bytes(view[start : start + length])
            assert RECORDS.crc32(part, use) == zlib.crc32(part), length
            assert RECORDS.crc32c(part, use) == google_crc32c.value(part), length
