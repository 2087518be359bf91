"""The compiled checksums, with the processor's instructions and without, against zlib and google-crc32c."""

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


@pytest.mark.parametrize("with_instructions", [True, False])
def test_checksums_of_every_length_from_every_position(with_instructions: bool) -> None:
    """Each loop takes another number of bytes at a time, and hands the rest to the next one."""
    view = memoryview(DATA)
    for length in [*range(700), 4_096, 16_383, 19_990]:
        for start in range(4) if length < 300 else (length % 10,):
            part = bytes(view[start : start + length])
            assert RECORDS.crc32(part, with_instructions) == zlib.crc32(part), length
            assert RECORDS.crc32c(part, with_instructions) == google_crc32c.value(part), length
