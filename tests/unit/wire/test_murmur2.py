"""The partition of a key is the one that a Java producer chooses."""

from __future__ import annotations

import pytest

from zkconsumer.wire.murmur2 import murmur2, partition_of_key

OF_JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""``UtilsTest.testMurmur2`` of Kafka 3.0."""


@pytest.mark.parametrize(("key", "hashed"), OF_JAVA.items())
def test_the_hash_has_the_bits_of_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_the_sign_is_dropped_and_not_the_absolute_value_taken() -> None:
    assert partition_of_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7 == 3
    assert abs(-973932308) % 7 != 1
