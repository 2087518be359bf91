"""Where each partition starts, and what is refused until the operator decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.migration.inspect.group_snapshot import CommittedOffset, PartitionSnapshot
from bridge.migration.offsets.provenance import Provenance, format_provenance
from bridge.migration.plan.decisions import Decisions, ExistingOffsetPolicy, OffsetConvention, OffsetFallback
from bridge.migration.plan.start_offsets import plan_partition
from tests.migration.group_snapshots import LOG, at_end, partition, plan, tp
from zkconsumer.admin.log_ranges import LogRange

NEXT, LAST = OffsetConvention.NEXT, OffsetConvention.LAST
OURS = format_provenance(Provenance("m0", 3, 1))


def outcome(one: PartitionSnapshot, convention: OffsetConvention | None = NEXT, **decisions: Any) -> tuple[Any, str]:
    """The target and why; or None and the refusal."""
    row = plan_partition(one, convention, Decisions(**decisions))
    assert (row.target is None) or not row.refusal
    return row.target, row.refusal or row.why


def test_a_stored_offset_is_copied() -> None:
    assert outcome(partition(0, 42)) == (42, "copied")
    assert outcome(at_end()) == (100, "copied")


def test_the_last_record_is_followed_by_the_next() -> None:
    assert outcome(partition(0, 42), LAST) == (43, "last + 1")
    assert outcome(partition(0, 99), LAST) == (100, "last + 1")
    target, why = outcome(partition(0, 2**63 - 1, log=LogRange(0, 2**63 - 1)), LAST)
    assert target is None
    assert why.endswith("(--offset)")


def test_without_a_meaning_there_is_no_target() -> None:
    assert outcome(partition(0, 42), None) == (None, "depends on --offset-convention")
    assert not plan(partition(0, 42)).can_be_applied


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (partition(0, None), "no offset is stored (--missing)"),
        (partition(0, None, error="b'abc' (3 bytes) is no number"), "its znode holds no offset, b'abc'"),
        (
            partition(0, 42, is_older_than_topic=True),
            "42 was stored before its topic was created (--older-than-topic use, or --m",
        ),
    ],
    ids=["missing", "unreadable", "older"],
)
def test_missing_offsets_are_decided_and_not_guessed(one: PartitionSnapshot, reason: str) -> None:
    target, why = outcome(one)
    assert target is None
    assert why.startswith(reason)
    assert outcome(one, missing=OffsetFallback.EARLIEST) == (10, "missing: earliest")
    assert outcome(one, missing=OffsetFallback.LATEST) == (100, "missing: latest")
    assert outcome(one, out_of_range=OffsetFallback.EARLIEST)[0] is None


def test_an_offset_that_is_older_than_its_topic_can_be_used() -> None:
    assert outcome(partition(0, 42, is_older_than_topic=True), use_older=True) == (42, "copied")


@pytest.mark.parametrize("at", [0, 500])
def test_in_a_log_without_records_there_is_nothing_to_decide(at: int) -> None:
    assert outcome(partition(0, None, log=LogRange(at, at))) == (at, "missing: the log is empty")
    assert outcome(partition(0, None, error="no offset", log=LogRange(at, at)))[0] is None


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (9, "9 is before the start of the log (10), 1 records are gone (--out-of-range)"),
        (101, "101 is beyond the end of the log (100) (--out-of-range)"),
    ],
)
def test_offsets_outside_the_log_are_decided_and_not_guessed(stored: int, reason: str) -> None:
    assert outcome(partition(0, stored)) == (None, reason)
    assert outcome(partition(0, stored), out_of_range=OffsetFallback.EARLIEST) == (10, "out of range: earliest")
    assert outcome(partition(0, stored), out_of_range=OffsetFallback.LATEST) == (100, "out of range: latest")
    assert outcome(partition(0, stored), missing=OffsetFallback.LATEST)[0] is None


def test_the_last_record_of_a_log_that_ends_there_cannot_be_right() -> None:
    """With --offset-convention last: no record has the number of the end."""
    assert outcome(at_end(), LAST) == (None, "101 is beyond the end of the log (100) (--out-of-range)")


def test_an_unreadable_log_is_refused_with_any_decision() -> None:
    everything = {"missing": OffsetFallback.EARLIEST, "out_of_range": OffsetFallback.EARLIEST, "offsets": {tp(): 5}}
    target, why = outcome(partition(0, 42, log="nobody leads it"), **everything)
    assert (target, why) == (None, "its log cannot be looked at: nobody leads it")


def test_a_named_offset_wins_over_everything_but_the_log() -> None:
    one = partition(0, 42, kafka=CommittedOffset(77))
    assert outcome(one, None, offsets={tp(): 50}) == (50, "decided")
    assert outcome(one, offsets={tp(): 500}) == (None, "--offset: 500 is beyond the end of the log (100)")
    ahead = "copied (Kafka's next is 77: 35 records read again)"
    assert outcome(one, offsets={tp(1): 50}, existing=ExistingOffsetPolicy.KEEP_SOURCE) == (42, ahead)
    assert outcome(one, offsets={tp(): 41}) == (41, "decided (ZooKeeper's next is 42: 1 record read again)")
    assert outcome(one, LAST, offsets={tp(): 50}) == (50, "decided (ZooKeeper's next is 43: 7 records passed over)")


# --- Kafka's values ---------------------------------------------------------------------------------------------


def test_an_equal_offset_in_kafka_needs_no_decision() -> None:
    assert outcome(partition(0, 42, kafka=CommittedOffset(42))) == (42, "copied")
    assert outcome(partition(0, 42, kafka=CommittedOffset(43)), LAST) == (43, "last + 1")


@pytest.mark.parametrize(
    ("existing", "target", "why"),
    [
        (
            ExistingOffsetPolicy.REFUSE,
            None,
            "ZooKeeper has 42 as the next one, and an application stored 77 in Kafka (--existing)",
        ),
        (ExistingOffsetPolicy.KEEP_SOURCE, 42, "copied (Kafka's next is 77: 35 records read again)"),
        (ExistingOffsetPolicy.KEEP_TARGET, 77, "kept: Kafka's (ZooKeeper's next is 42: 35 records passed over)"),
        (ExistingOffsetPolicy.HIGHER, 77, "kept: Kafka's (ZooKeeper's next is 42: 35 records passed over)"),
    ],
)
def test_an_application_s_value_that_differs(existing: ExistingOffsetPolicy, target: int | None, why: str) -> None:
    assert outcome(partition(0, 42, kafka=CommittedOffset(77, "app")), existing=existing) == (target, why)


def test_the_higher_one_is_ZooKeeper_s_where_that_is_ahead() -> None:
    assert outcome(partition(0, 42, kafka=CommittedOffset(20)), existing=ExistingOffsetPolicy.HIGHER) == (
        42,
        "copied (Kafka's next is 20: 22 records passed over)",
    )
    assert outcome(partition(0, 42, kafka=CommittedOffset(43)), LAST, existing=ExistingOffsetPolicy.HIGHER) == (
        43,
        "last + 1",
    )


@pytest.mark.parametrize(
    ("existing", "target", "why"),
    [
        (ExistingOffsetPolicy.REFUSE, None, "ZooKeeper has none, and an application stored 77 in Kafka (--existing)"),
        (ExistingOffsetPolicy.KEEP_SOURCE, 10, "missing: earliest (Kafka's next is 77: 67 records read again)"),
        (ExistingOffsetPolicy.KEEP_TARGET, 77, "kept: Kafka's"),
        (ExistingOffsetPolicy.HIGHER, 77, "kept: Kafka's"),
    ],
)
def test_an_application_s_value_where_zookeeper_has_none(
    existing: ExistingOffsetPolicy, target: int | None, why: str
) -> None:
    one = partition(0, None, kafka=CommittedOffset(77))
    assert outcome(one, existing=existing, missing=OffsetFallback.EARLIEST) == (target, why)


def test_a_value_of_a_migration_is_no_position() -> None:
    """One that was given up, or undone: what it wrote is written over without a question."""
    assert outcome(partition(0, 42, kafka=CommittedOffset(20, OURS))) == (42, "copied")
    assert outcome(partition(0, None, kafka=CommittedOffset(20, OURS)))[0] is None


def test_a_kept_value_must_be_in_the_log_too() -> None:
    one = partition(0, 42, kafka=CommittedOffset(500))
    target, why = outcome(one, existing=ExistingOffsetPolicy.KEEP_TARGET)
    assert (target, why) == (None, "500 is beyond the end of the log (100) (--out-of-range)")
    assert outcome(one, existing=ExistingOffsetPolicy.KEEP_TARGET, out_of_range=OffsetFallback.LATEST) == (
        100,
        "out of range: latest",
    )


# --- all of it --------------------------------------------------------------------------------------------------

offsets = st.none() | st.integers(0, 120)


@settings(deadline=None)
@given(
    offsets, offsets, st.sampled_from(["", "app", OURS]), st.booleans(), st.sampled_from([NEXT, LAST, None]),
    st.sampled_from(OffsetFallback), st.sampled_from(OffsetFallback), st.sampled_from(ExistingOffsetPolicy),
    st.booleans(), offsets,
)  # fmt: skip
def test_a_target_is_in_the_log_or_refused(
    stored: int | None, kafka: int | None, metadata: str, is_older: bool, convention: OffsetConvention | None,
    missing: OffsetFallback, out_of_range: OffsetFallback, existing: ExistingOffsetPolicy, use_older: bool,
    decided: int | None,
) -> None:  # fmt: skip
    value = None if kafka is None else CommittedOffset(kafka, metadata)
    one = partition(0, stored, kafka=value, is_older_than_topic=is_older)
    named = {} if decided is None else {tp(): decided}
    row = plan_partition(one, convention, Decisions(None, missing, out_of_range, existing, use_older, named))
    if row.target is None:
        assert row.refusal or (convention is None and row.why)
    else:
        assert not row.refusal
        assert LOG.contains(row.target)
        assert row.why
    everything = Decisions(NEXT, OffsetFallback.EARLIEST, OffsetFallback.EARLIEST, ExistingOffsetPolicy.KEEP_SOURCE)
    assert plan_partition(one, NEXT, everything).target is not None
