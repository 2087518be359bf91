"""Which offsets of a batch are corrupt: decided once, and followed by each later pass."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord
from bridge.spark.pipeline.corrupt_rows import (
    CORRUPT_RANGES_MAX,
    DecidedRange,
    check_count,
    check_decided,
    corrupt_policy,
    decided_of,
    offset_count,
    ranges_of,
    source_option,
)
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def decided(*ranges: tuple[TopicPartition, int, int]) -> list[DecidedRange]:
    return [DecidedRange(OffsetRange(*each), "checksum") for each in ranges]


@pytest.mark.parametrize(
    ("options", "policy", "given_to_source"),
    [
        ({}, OnCorruptRecord.FAIL, {}),
        ({"onCorruptRecord": "FAIL"}, OnCorruptRecord.FAIL, {}),
        ({"onCorruptRecord": "skip"}, OnCorruptRecord.SKIP, {"onCorruptRecord": "deadLetter"}),
        ({"onCorruptRecord": "deadletter"}, OnCorruptRecord.DEAD_LETTER, {"onCorruptRecord": "deadLetter"}),
    ],
)
def test_the_source_returns_corrupt_ranges_unless_they_fail_the_query(
    options: dict[str, str], policy: OnCorruptRecord, given_to_source: dict[str, str]
) -> None:
    assert corrupt_policy(options) is policy
    assert source_option(policy) == given_to_source


def test_what_a_lineage_stores_is_decided_again() -> None:
    found = decided((A, 2, 4), (A, 4, 5), (B, 0, 1))
    assert ranges_of(found) == {A: ((2, 5),), B: ((0, 1),)}
    assert ranges_of(decided_of(ranges_of(found))) == ranges_of(found)
    assert offset_count(found) == 4


@pytest.mark.parametrize("found", [[], [(A, 2, 5)], [(A, 3, 4), (B, 0, 1)]])
def test_a_pass_may_find_what_was_decided_or_less(found: list[tuple[TopicPartition, int, int]]) -> None:
    check_decided(decided(*found), decided((A, 2, 4), (A, 4, 5), (B, 0, 1)))


@pytest.mark.parametrize("found", [(A, 1, 3), (A, 4, 6), (B, 2, 5)])
def test_a_corrupt_offset_that_was_not_decided_fails_the_batch(found: tuple[TopicPartition, int, int]) -> None:
    with pytest.raises(PreconditionFailed, match=r"cannot be read \(checksum\), but another pass .* has read it"):
        check_decided(decided(found), decided((A, 2, 5)))


def test_a_batch_has_a_limit_of_corrupt_ranges() -> None:
    check_count(decided(*[(A, 2 * n, 2 * n + 1) for n in range(CORRUPT_RANGES_MAX)]))
    with pytest.raises(PreconditionFailed, match="10001 corrupt ranges"):
        check_count(decided(*[(A, 2 * n, 2 * n + 1) for n in range(CORRUPT_RANGES_MAX + 1)]))
