"""Where a partition goes on, row by row, and how far."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.spark.claims.claim_decision import OnRewind, RewoundBelowClaim
from bridge.spark.group_membership import (
    FROM_BEGINNING,
    NO_OFFSET,
    BatchAssignment,
    CommitMode,
    GroupOffset,
    LeasedPartition,
)
from bridge.spark.offset_range_limits import (
    EarliestOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    GroupOffsetRangeLimit,
    LatestOffsetRangeLimit,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    StartingLimit,
)
from bridge.spark.source.batch_limits import BatchLimits, apply_limits, mean_bytes
from bridge.spark.source.micro_batch_plan import (
    BatchIdentity,
    LogBounds,
    LostRecords,
    OffsetPosition,
    PositionByTimestamp,
    PositionRules,
    ResolvedPositions,
    StartPositions,
    needs_group_offsets,
    next_batch,
    resolve_positions,
    start_positions,
)
from bridge.spark.source.stream_offset import BatchOffsets, Stats
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition

CLAIM, AFTER, NONE = CommitMode.CLAIM, CommitMode.AFTER_BATCH, CommitMode.NONE
A, B, C = (TopicPartition("t", n) for n in range(3))
OLD, NEW = 7, 8
"""The epoch of the last batch, and another one."""


def rules(mode: CommitMode = AFTER, starting: StartingLimit | None = None, **more: Any) -> PositionRules:
    return PositionRules(
        starting or GroupOffsetRangeLimit(), more.pop("smallest", False), mode, OnRewind.IGNORE, True, **more
    )


def held(epoch: int = NEW, offset: int = NO_OFFSET, tp: TopicPartition = A) -> BatchAssignment:
    return BatchAssignment({tp: LeasedPartition(epoch, offset)}, True, 0, {"t": 3})


def start(end: int = 50, first: int = 40) -> BatchOffsets:
    return BatchOffsets("g", "q", 4, {A: first}, {A: end}, {A: OLD})


def position(
    began: BatchOffsets | None,
    holding: BatchAssignment,
    by: PositionRules,
    stand: GroupOffset | None = None,
    refused: bool = False,
) -> OffsetPosition | PositionByTimestamp | RewoundBelowClaim:
    stands = {A: stand} if stand is not None else {}
    assert set(needs_group_offsets(began, holding, by, [A] if refused else [])) == set(stands), (
        "asked for exactly what counts"
    )
    found = start_positions(began, holding, by, stands, [A] if refused else [])
    return found.known[A] if A in found.known else found.rewound[A]


@pytest.mark.parametrize("mode", list(CommitMode))
def test_one_ownership_goes_on_where_the_batch_ended(mode: CommitMode) -> None:
    assert position(start(50), held(OLD, 1), rules(mode)) == OffsetPosition(50)


def test_claim_interrupted_follows_the_group_now_and_not_the_planned_end() -> None:
    assert position(start(50), held(NEW, 10), rules(CLAIM), GroupOffset(45, None)) == OffsetPosition(45)
    assert position(start(50), held(NEW, 10), rules(CLAIM), GroupOffset(70, 50)) == OffsetPosition(70)


def test_claim_refused_under_one_ownership_follows_the_group_too() -> None:
    assert position(start(50), held(OLD, 10), rules(CLAIM), GroupOffset(45, None), refused=True) == OffsetPosition(45)


@pytest.mark.parametrize(
    ("on_rewind", "wanted"),
    [
        (OnRewind.IGNORE, OffsetPosition(50)),
        (OnRewind.FOLLOW, OffsetPosition(20)),
        (OnRewind.FAIL, RewoundBelowClaim(20, 50)),
    ],
)
def test_claim_behind_our_own_claim_is_decided_by_the_option(
    on_rewind: OnRewind, wanted: OffsetPosition | RewoundBelowClaim
) -> None:
    by = PositionRules(GroupOffsetRangeLimit(), False, CLAIM, on_rewind, True)
    assert position(start(50), held(NEW), by, GroupOffset(20, 50)) == wanted


def test_after_batch_interrupted_takes_the_larger_and_fixes_its_own() -> None:
    assert position(start(50), held(NEW, 60), rules(AFTER)) == OffsetPosition(60, fallback=50)
    assert position(start(50), held(NEW, 50), rules(AFTER)) == OffsetPosition(50, fallback=50)
    # The group does not know yet: a batch, if need be an empty one, makes that it is told.
    assert position(start(50), held(NEW, 30), rules(AFTER)) == OffsetPosition(50, must_be_checkpointed=True)


def test_none_knows_its_own_end_alone() -> None:
    assert position(start(50), held(NEW, 99), rules(NONE)) == OffsetPosition(50)


def test_a_partition_that_the_query_never_read_begins_where_the_group_stands() -> None:
    other = BatchOffsets("g", "q", 4, {B: 1}, {B: 2}, {B: OLD}, topics={"t": 3})
    assert position(other, held(NEW, 12), rules(AFTER)) == OffsetPosition(12)
    assert position(other, held(NEW, 12), rules(NONE, EarliestOffsetRangeLimit())) == OffsetPosition(12)
    assert position(other, held(), rules(AFTER, smallest=True)) == PositionByTimestamp(EARLIEST_TIME)
    assert position(other, held(offset=FROM_BEGINNING), rules(AFTER)) == PositionByTimestamp(EARLIEST_TIME)
    assert position(other, held(), rules(CLAIM), GroupOffset(NO_OFFSET, None)) == PositionByTimestamp(LATEST_TIME)


def test_a_partition_that_came_since_the_query_began_is_read_from_its_beginning() -> None:
    for topics in ({"t": 2}, {"u": 9}):
        began = BatchOffsets("g", "q", 4, {A: 1}, {A: 2}, {A: OLD}, topics=topics)
        new = held(tp=C)
        for mode, stands in ((AFTER, {}), (NONE, {}), (CLAIM, {C: GroupOffset(NO_OFFSET, None)})):
            assert start_positions(began, new, rules(mode), stands).known == {C: PositionByTimestamp(EARLIEST_TIME)}
        by_hand = start_positions(began, new, rules(starting=SpecificOffsetRangeLimit({C: 7})), {}).known[C]
        assert by_hand == OffsetPosition(7, must_be_checkpointed=True, differs_from_group=True), (
            "what is named is named"
        )
        off = rules(new_from_beginning=False)
        assert start_positions(began, new, off, {}).known == {C: PositionByTimestamp(LATEST_TIME)}
        assert start_positions(began, held(offset=5, tp=C), rules(), {}).known == {C: OffsetPosition(5)}, (
            "others have read it"
        )


@pytest.mark.parametrize(
    ("starting", "wanted"),
    [
        (GroupOffsetRangeLimit(), OffsetPosition(12)),
        (EarliestOffsetRangeLimit(), PositionByTimestamp(EARLIEST_TIME)),
        (LatestOffsetRangeLimit(), PositionByTimestamp(LATEST_TIME)),
        (SpecificOffsetRangeLimit({A: 3}), OffsetPosition(3, must_be_checkpointed=True, differs_from_group=True)),
        (SpecificOffsetRangeLimit({A: -2}), PositionByTimestamp(EARLIEST_TIME)),
        (GlobalTimestampRangeLimit(99), PositionByTimestamp(99, is_starting_time=True)),
        (SpecificTimestampRangeLimit({A: 98}), PositionByTimestamp(98, is_starting_time=True)),
    ],
)
def test_a_new_query_begins_as_it_was_told(
    starting: StartingLimit, wanted: OffsetPosition | PositionByTimestamp
) -> None:
    assert position(None, held(offset=12), rules(starting=starting)) == wanted


def test_a_new_query_where_the_group_has_no_offset() -> None:
    assert position(None, held(), rules(smallest=True)) == PositionByTimestamp(EARLIEST_TIME)
    assert position(None, held(), rules()) == PositionByTimestamp(LATEST_TIME)
    assert position(None, held(offset=FROM_BEGINNING), rules()) == PositionByTimestamp(EARLIEST_TIME)


def test_offsets_that_name_the_last_record_begin_one_later() -> None:
    wanted = OffsetPosition(13, must_be_checkpointed=True, differs_from_group=True)
    assert position(None, held(offset=12), rules(is_last_consumed=True)) == wanted


# --- inside the log ---------------------------------------------------------------------------------------------


def resolved(
    found: OffsetPosition | PositionByTimestamp, log: LogBounds, by: PositionRules, group: int = NO_OFFSET
) -> ResolvedPositions:
    return resolve_positions(StartPositions({A: found}, {}), {A: log}, held(offset=group), by)


def test_a_rule_is_resolved_by_the_log_and_fixed() -> None:
    log = LogBounds(10, 90, at_time=33)
    for time, offset in ((EARLIEST_TIME, 10), (LATEST_TIME, 90), (5, 33)):
        assert resolved(PositionByTimestamp(time), log, rules()).positions == {A: OffsetPosition(offset, True, True)}


def test_the_end_for_a_committed_query_is_the_last_stable_offset() -> None:
    """A position between it and the end of the log is in the log: another member committed it."""
    log = LogBounds(10, 90, last_stable=60)
    assert log.readable_end == 60
    assert resolved(PositionByTimestamp(LATEST_TIME), log, rules()).positions[A].offset == 60
    ahead = resolved(OffsetPosition(75), log, rules())
    assert (ahead.positions, ahead.lost, ahead.waiting) == ({A: OffsetPosition(75)}, (), ())


def test_a_time_behind_every_record_fails_or_is_the_end() -> None:
    late = PositionByTimestamp(5, is_starting_time=True)
    assert resolved(late, LogBounds(10, 90), rules()).late == {A: 5}
    allowed = resolved(late, LogBounds(10, 90), rules(fail_on_late_timestamp=False))
    assert (allowed.late, allowed.positions[A].offset) == ({}, 90)


def test_claim_writes_into_the_group_what_is_not_there() -> None:
    assert resolved(PositionByTimestamp(EARLIEST_TIME), LogBounds(10, 90), rules(CLAIM)).seeks == {A: 10}
    assert resolved(PositionByTimestamp(EARLIEST_TIME), LogBounds(10, 90), rules(AFTER)).seeks == {}
    assert resolved(OffsetPosition(12), LogBounds(10, 90), rules(CLAIM)).seeks == {}


def test_after_batch_sets_the_group_back_and_never_forward() -> None:
    for group, seeks in ((9, {}), (10, {}), (11, {A: 10})):
        assert resolved(PositionByTimestamp(EARLIEST_TIME), LogBounds(10, 90), rules(AFTER), group).seeks == seeks
        assert resolved(PositionByTimestamp(EARLIEST_TIME), LogBounds(10, 90), rules(NONE), group).seeks == {}


@pytest.mark.parametrize("mode", list(CommitMode))
def test_what_retention_took_goes_on_where_the_log_begins(mode: CommitMode) -> None:
    log = LogBounds(10, 90)
    found = resolved(OffsetPosition(4), log, rules(mode))
    assert found.lost == (LostRecords(A, 4, log),)
    assert (found.lost[0].offsets, found.lost[0].is_beyond_end) == (6, False)
    assert found.positions[A].offset == 10
    assert found.positions[A].must_be_checkpointed
    assert found.seeks == ({A: 10} if mode is CLAIM else {})


def test_beyond_the_end_goes_on_at_the_end_or_waits_behind_our_claim() -> None:
    for mode in (AFTER, NONE):
        found = resolved(OffsetPosition(95), LogBounds(10, 90), rules(mode))
        assert (found.positions, found.waiting) == (
            {A: OffsetPosition(90, must_be_checkpointed=True, differs_from_group=True)},
            (),
        )
        assert found.seeks == ({A: 90} if mode is AFTER else {})
        assert found.lost[0].is_beyond_end
    found = resolved(OffsetPosition(95), LogBounds(10, 90), rules(CLAIM))
    assert (found.positions, found.waiting) == ({}, (A,))


def test_a_group_beyond_the_end_of_the_log_does_not_lead_a_query_that_knows_better() -> None:
    found = resolved(OffsetPosition(1000, fallback=40), LogBounds(10, 90), rules())
    assert (found.positions, found.lost) == (
        {A: OffsetPosition(40, must_be_checkpointed=True, differs_from_group=True)},
        (),
    )
    assert resolved(OffsetPosition(1000, fallback=40), LogBounds(10, 90), rules(), 1000).seeks == {A: 40}
    assert resolved(OffsetPosition(1000, fallback=95), LogBounds(10, 90), rules()).positions[A].offset == 90


def test_a_log_of_which_nothing_is_known_leaves_its_partition_out() -> None:
    found = resolve_positions(
        StartPositions({A: OffsetPosition(1), B: OffsetPosition(2)}, {}), {B: LogBounds(0, 5)}, held(tp=B), rules()
    )
    assert found.positions.keys() == {B}


# --- how far ------------------------------------------------------------------------------------------------------


def plan(
    at: dict[TopicPartition, OffsetPosition], ends: dict[TopicPartition, int], limits: BatchLimits | None = None,
    began: BatchOffsets | None = None,
) -> BatchOffsets | None:  # fmt: skip
    holding = BatchAssignment({tp: LeasedPartition(NEW, 0) for tp in at}, True, 0, {"t": 3})
    who = BatchIdentity("g", "q", CLAIM)
    return next_batch(who, began, holding, ResolvedPositions(at, {}, (), {}), ends, limits or BatchLimits(), Stats())


def test_nothing_new_is_no_batch_and_what_is_fixed_is_one() -> None:
    assert plan({A: OffsetPosition(5), B: OffsetPosition(6)}, {A: 5, B: 6}) is None
    made = plan({A: OffsetPosition(5, must_be_checkpointed=True), B: OffsetPosition(6)}, {A: 5, B: 6})
    assert made is not None
    assert (made.first, made.end, made.batch) == ({A: 5, B: 6}, {A: 5, B: 6}, 0)


def test_a_batch_has_every_held_partition_and_keeps_the_ends_of_the_others() -> None:
    began = BatchOffsets("g", "q", 4, {C: 0}, {C: 9, A: 5}, {C: OLD}, topics={"t": 2})
    made = plan({A: OffsetPosition(5), B: OffsetPosition(6)}, {A: 8, B: 6}, began=began)
    end, claims = {A: 8, B: 6, C: 9}, {A: NEW, B: NEW}
    assert made == BatchOffsets("g", "q", 5, {A: 5, B: 6}, end, claims, Stats(), CLAIM, {"t": 2})


def test_a_batch_waits_for_enough_unless_something_is_fixed() -> None:
    few = BatchLimits(min_offsets=10)
    assert plan({A: OffsetPosition(0)}, {A: 9}, few) is None
    assert plan({A: OffsetPosition(0)}, {A: 10}, few) is not None
    assert plan({A: OffsetPosition(0, must_be_checkpointed=True)}, {A: 9}, few) is not None


@pytest.mark.parametrize(
    ("available", "limit", "wanted"),
    [
        ({A: 10, B: 20}, 30, {A: 10, B: 20}),
        ({A: 10, B: 20}, 15, {A: 5, B: 10}),
        # As Spark: rounded down, and one at least.
        ({A: 1, B: 1000, C: 0}, 100, {A: 1, B: 99, C: 0}),
        ({A: 5, B: 5, C: 5}, 1, {A: 1, B: 1, C: 1}),
        ({A: 2**62, B: 2**62}, 10, {A: 5, B: 5}),
    ],
)
def test_the_limit_is_shared_out_in_proportion(
    available: dict[TopicPartition, int], limit: int, wanted: dict[TopicPartition, int]
) -> None:
    assert apply_limits(available, BatchLimits(max_offsets=limit)) == wanted


def test_bytes_limit_by_what_records_are_seen_to_have_and_the_smaller_limit_counts() -> None:
    by_size = BatchLimits(max_bytes=1000, bytes_per_offset={"t": 10})
    assert apply_limits({A: 300, B: 100}, by_size) == {A: 75, B: 25}
    both = BatchLimits(max_offsets=40, max_bytes=1000, bytes_per_offset={"t": 10})
    assert apply_limits({A: 300, B: 100}, both) == {A: 30, B: 10}
    assert apply_limits({A: 3000}, BatchLimits(max_bytes=1024 * 7)) == {A: 7}
    assert (mean_bytes(None, 100), mean_bytes(100, 50)) == (100, 75)
