"""Where a backfill begins and ends, and the id that each repetition of its command has."""

from __future__ import annotations

import pytest

from bridge.spark.offset_range_limits import (
    EarliestOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    LatestOffsetRangeLimit,
    SpecificOffsetRangeLimit,
)
from bridge.spark.pipeline.backfill.backfill_bounds import backfill_id, parse_bounds, replacement_prefix
from bridge.spark.pipeline.lineage import check_id
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
FROM = '{"a": {"1": 5, "0": 3}}'


def test_bounds_are_offsets_of_named_partitions_or_words_or_times_of_all() -> None:
    found = parse_bounds(FROM, '{"a": {"0": 9, "1": -1}}', None, None)
    assert found.start == SpecificOffsetRangeLimit({A0: 3, A1: 5})
    assert found.end == SpecificOffsetRangeLimit({A0: 9, A1: -1})
    assert found.partitions == (A0, A1)
    found = parse_bounds("earliest", "latest", None, None)
    assert (found.start, found.end) == (EarliestOffsetRangeLimit(), LatestOffsetRangeLimit())
    assert found.partitions is None
    found = parse_bounds(None, None, 0, None)
    assert (found.start, found.end) == (GlobalTimestampRangeLimit(0), None)
    found = parse_bounds("earliest", FROM, None, None)
    assert found.partitions == (A0, A1)
    assert parse_bounds(FROM, None, None, 7).end == GlobalTimestampRangeLimit(7)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((None, None, None, None), "give --from or --from-time"),
        (("earliest", None, 5, None), "give --from or --from-time, one of them"),
        (("earliest", "latest", None, 5), "--to or --to-time, not both"),
        (("Earliest", None, None, None), "--from: it is not JSON.*write earliest, or offsets as in --from"),
        (("earliest", "earliest", None, None), "--to: it is not JSON.*write latest"),
        (('{"a": {"0": -3}}', None, None, None), "--from: a/0 has -3"),
        (("{}", None, None, None), "--from: it names no partition"),
        (("earliest", '{"a": {"0": -2}}', None, None), "--to: a/0: a backfill cannot end where the log begins"),
        ((FROM, '{"a": {"0": 9}}', None, None), "must name the same partitions; only one of them names a/1"),
    ],
)
def test_bounds_that_cannot_be_are_one_line_with_the_option(given: tuple[str, str, int, int], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_bounds(*given)


def test_the_same_bounds_of_the_same_pipeline_have_the_same_id_and_others_have_another_one() -> None:
    again = parse_bounds('{"a":{"0":3,"1":5}}', None, None, None)
    mine = backfill_id("p", parse_bounds(FROM, None, None, None))
    assert backfill_id("p", again) == mine
    check_id(mine)
    others = [
        backfill_id("q", again),
        backfill_id("p", parse_bounds(FROM, "latest", None, None)),
        backfill_id("p", parse_bounds("earliest", None, None, None)),
        backfill_id("p", parse_bounds(None, None, 3, None)),
        replacement_prefix("p", again),
    ]
    assert len({mine, *others}) == 6
