"""``admin.offset_targets`` and ``admin.offset_plan``: which offset is meant, by the rules of KIP-122."""

from __future__ import annotations

import pytest

from zkconsumer.admin.log_ranges import LogRange, OffsetForTime, OffsetForTimeKind
from zkconsumer.admin.offset_plan import higher_in_other_store, plan_delete, plan_import, plan_set
from zkconsumer.admin.offset_targets import (
    ResetOffset,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToFile,
    ToLatest,
    ToOffset,
    ToTime,
    datetime_text,
    in_scope,
    parse_datetime,
    parse_duration,
    parse_scope,
    resolve_target,
)
from zkconsumer.errors import InvalidNameError, UsageError
from zkconsumer.types import TopicPartition

T0, T1, T2 = (TopicPartition("clicks", number) for number in range(3))
LOG = LogRange(10, 20)
BEYOND, BEFORE = "is beyond the end of the log", "is before the start of the log"


@pytest.mark.parametrize(
    ("target", "current", "expected"),
    [
        (ToEarliest(), 15, ResetOffset(10)),
        (ToLatest(), None, ResetOffset(20)),
        (ToCurrent(), 15, ResetOffset(15)),
        (ToCurrent(), 99, ResetOffset(99)),
        (ToCurrent(), None, ResetOffset(20, "had no offset: the end of the log")),
        (ToOffset(12), None, ResetOffset(12)),
        (ToOffset(20), None, ResetOffset(20)),
        (ToOffset(21), None, ResetOffset(20, f"21 {BEYOND}")),
        (ToOffset(9), None, ResetOffset(10, f"9 {BEFORE}")),
        (ShiftBy(-3), 15, ResetOffset(12)),
        (ShiftBy(-9), 15, ResetOffset(10, f"6 {BEFORE}")),
        (ShiftBy(2**63 - 1), 15, ResetOffset(20, f"{2**63 + 14} {BEYOND}")),
        (ShiftBy(1), None, "it has no offset to shift"),
        (ToFile({T0: 30}), 15, ResetOffset(20, f"30 {BEYOND}")),
    ],
)
def test_a_target_means_an_offset(target: ResetTarget, current: int | None, expected: ResetOffset | str) -> None:
    assert resolve_target(target, T0, current, LOG) == expected


@pytest.mark.parametrize(
    ("how", "remark"),
    [
        ("exact", ""),
        ("end", "no record is that new: the end of the log"),
        ("segment", "by segment: may be earlier than requested"),
        ("start", "by segment: the start of the log"),
    ],
)
def test_a_time_says_how_exact_it_is(how: OffsetForTimeKind, remark: str) -> None:
    assert resolve_target(ToTime(5), T0, None, LogRange(10, 20, OffsetForTime(13, how))) == ResetOffset(13, remark)


def test_a_log_that_is_not_known_is_a_reason_except_where_it_does_not_matter() -> None:
    assert resolve_target(ToLatest(), T0, 15, "nobody leads it") == "nobody leads it"
    assert resolve_target(ToCurrent(), T0, 15, "nobody leads it") == ResetOffset(15)


# --- times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T01:00:00.000+0100", 0),
        ("1970-01-01T01:00:00.000+01", 0),
        ("1969-12-31T23:30:00.000-00:30", 0),
        ("1970-01-01T00:00:07", 7_000),
        ("2017-08-04T00:00:00.000", 1_501_804_800_000),
        ("2024-02-29T23:59:59.999Z", 1_709_251_199_999),
    ],
)
def test_a_time_without_a_zone_is_utc_as_in_the_original(text: str, expected: int) -> None:
    assert parse_datetime(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "2017-08-04", "2017-08-04T00:00", "2017-08-04 00:00:00.000", "2017-02-30T00:00:00.000",
        "17-08-04T00:00:00.000", "2017-08-04T24:00:00.000", "2017-08-04T00:00:00.5", "2017-08-04T00:00:00.000+25:00",
        "2017-08-04T00:00:00.000CET", "0000-01-01T00:00:00.000", "２017-08-04T00:00:00.000",
    ],
)  # fmt: skip
def test_a_time_that_could_mean_two_things_or_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--to-datetime"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", 86_400_000),
        ("PT0S", 0),
        ("P1DT2H3M4S", 93_784_000),
        ("PT1.5S", 1_500),
        ("PT1.05S", 1_050),
        ("PT90M", 5_400_000),
    ],
)
def test_a_duration(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1Y", "P1M", "P1W", "-P1D", "PT-1H", "PT1H1D", "P1.5D"])
def test_a_duration_that_the_releases_read_differently_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--by-duration"):
        parse_duration(text)


def test_a_time_for_people() -> None:
    assert datetime_text(1_501_804_800_007) == "2017-08-04T00:00:00.007Z"
    assert datetime_text(10**18) == f"{10**18} ms since 1970"


# --- scopes -----------------------------------------------------------------------------------------------------


def test_a_scope_is_topics_and_partitions() -> None:
    scope = parse_scope(["clicks:0,2", "views", "clicks:2,5"])
    assert scope == {"clicks": frozenset({0, 2, 5}), "views": None}
    assert parse_scope(["clicks:0", "clicks"]) == parse_scope(["clicks", "clicks:0"]) == {"clicks": None}
    assert in_scope(scope, T0)
    assert not in_scope(scope, T1)
    assert in_scope(scope, TopicPartition("views", 9))
    assert not in_scope(scope, TopicPartition("others", 0))
    assert in_scope(None, T0)


@pytest.mark.parametrize("text", ["clicks:", "clicks:x", "clicks:-1", "clicks:0,,1", "clicks:0:1", "clicks:0-3"])
def test_partitions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a topic, or a topic and partitions"):
        parse_scope([text])


def test_a_topic_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        parse_scope(["../clicks"])


# --- plans ------------------------------------------------------------------------------------------------------

LOGS = {T0: LOG, T1: LOG, T2: "there is no such topic"}


def test_an_import_refuses_what_lies_outside_the_log_and_what_cannot_be_compared() -> None:
    offsets = {T0: 21, T1: 9, T2: 5}
    plan = plan_import("g1", offsets, ["zookeeper"], {"zookeeper": {T0: 1}}, LOGS, allow_out_of_range=False)
    assert [row.rejection_reason for row in plan.rows] == [
        "21 is beyond the end of the log (20)",
        "9 is before the start of the log (10)",
        "its log range is unknown: there is no such topic",
    ]
    assert len(plan.rejection_lines()) == 3
    allowed = plan_import("g1", offsets, ["zookeeper"], {"zookeeper": {T0: 1}}, LOGS, allow_out_of_range=True)
    assert allowed.rejected == []
    assert [row.remark for row in allowed.rows] == [row.rejection_reason for row in plan.rows]


def test_an_import_changes_what_differs_and_refuses_nothing_that_stands_there_already() -> None:
    current = {"zookeeper": {T0: 15, T1: 16, T2: 5}}
    plan = plan_import("g1", {T0: 15, T1: 17, T2: 5}, ["zookeeper"], current, LOGS, allow_out_of_range=False)
    assert plan.rejected == []
    assert [(row.tp, row.current, row.new) for row in plan.changes] == [(T1, 16, 17)]


def test_with_both_stores_a_shift_begins_at_the_larger_where_members_would_start() -> None:
    current = {"zookeeper": {T0: 12}, "kafka": {T0: 15}}
    plan = plan_set("g1", ShiftBy(-2), [T0], stores=["zookeeper", "kafka"], current=current, logs=LOGS)
    assert [(row.store, row.current, row.new) for row in plan.rows] == [("zookeeper", 12, 13), ("kafka", 15, 13)]


def test_a_plan_tells_each_reason_once_and_not_more_than_ten() -> None:
    wanted = [TopicPartition("clicks", number) for number in range(12)]
    plan = plan_set(
        "g1", ToLatest(), wanted, stores=["kafka"], current={"kafka": {}}, logs=dict.fromkeys(wanted, "gone")
    )
    assert plan.rejection_lines() == ["clicks/0, clicks/1, clicks/2, clicks/3, clicks/4 and 7 more: gone"]
    reasons = {tp: f"reason {tp.partition}" for tp in wanted}
    plan = plan_set("g1", ToLatest(), wanted, stores=["kafka"], current={"kafka": {}}, logs=reasons)
    assert plan.rejection_lines()[-1] == "and 2 more reasons"
    assert len(plan.rejection_lines()) == 11


def test_what_is_larger_in_the_other_store_is_found() -> None:
    plan = plan_set("g1", ToEarliest(), [T0, T1], stores=["zookeeper"], current={"zookeeper": {}}, logs=LOGS)
    assert higher_in_other_store(plan, {T0: 11, T1: 10, T2: 99}) == [T0]


def test_a_znode_that_holds_no_offset_is_deleted_too() -> None:
    plan = plan_delete("g1", ["zookeeper"], {"zookeeper": {T0: None, T1: 5}})
    assert [(row.tp, row.current, row.new) for row in plan.changes] == [(T0, None, None), (T1, 5, None)]
