"""The errors of partitions without a usable position when ``auto.offset.reset=none``, as in Kafka 3.0.  Pure.

A program that polls can seek.  One with streams cannot: its errors name what an operator can do (``STREAMS``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkconsumer.errors import NoOffsetForPartitionException, OffsetOutOfRangeException, UsageError
from zkconsumer.types import TopicPartition

PARTITIONS_NAMED_MAX = 5
"""How many partitions an error names."""

STREAMS = "or set an offset with `zkconsumer offsets set`, and start the member again"
"""What else the operator of a program with streams can do."""


def no_offset_error(
    partitions: Collection[TopicPartition], remedy: str = "commit an offset, or seek"
) -> NoOffsetForPartitionException:
    """No offset is stored for these."""
    return NoOffsetForPartitionException(
        f"there is no committed offset for {_named(partitions)}, and auto.offset.reset=none: set earliest or latest, "
        f"{remedy}",
        partitions,
    )


def offset_out_of_range_error(
    positions: Mapping[TopicPartition, int], remedy: str = "or seek"
) -> OffsetOutOfRangeException:
    """The logs of these do not have the offsets."""
    first = sorted(positions)[0]
    what = f"the log of {first} does not have offset {positions[first]}"
    if len(positions) > 1:
        what = f"the logs of {_named(positions)} do not have the stored offsets"
    return OffsetOutOfRangeException(f"{what}, and auto.offset.reset=none: set earliest or latest, {remedy}", positions)


def missing_position_error(positions: Mapping[TopicPartition, int]) -> UsageError:
    """The error of a member with streams; an offset below 0: none is stored."""
    without = [tp for tp, offset in positions.items() if offset < 0]
    return no_offset_error(without, STREAMS) if without else offset_out_of_range_error(positions, STREAMS)


def _named(partitions: Collection[TopicPartition]) -> str:
    more = len(partitions) - PARTITIONS_NAMED_MAX
    names = ", ".join(map(str, sorted(partitions)[:PARTITIONS_NAMED_MAX]))
    return f"{names} and {more} more" if more > 0 else names
