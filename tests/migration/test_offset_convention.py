"""What stored numbers mean: what proves it, what does not, and that nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.migration.inspect.group_snapshot import GroupSnapshot, LastLogEntry, PartitionSnapshot
from bridge.migration.plan.decisions import OffsetConvention
from bridge.migration.plan.offset_convention import READ_WITHIN_MS, find_convention_evidence
from tests.migration.group_snapshots import WRITTEN_MS, at_end, one_short, partition, seen
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.zk.znode_formats import ControlRecord

NEXT, LAST = OffsetConvention.NEXT, OffsetConvention.LAST
TRACE = ("/consumers/g1/api/rebalance",)


def test_a_number_at_the_end_of_its_log_is_the_next_one() -> None:
    found = find_convention_evidence(seen(partition(0), partition(1), at_end(2)))
    assert found.convention is NEXT
    assert found.text.startswith("clicks/2: the number is the end of the log")


def test_an_empty_log_at_its_end_is_one_too() -> None:
    assert find_convention_evidence(seen(partition(0, 0, log=LogRange(0, 0)))).convention is NEXT


def test_an_offset_of_our_member_is_the_next_one() -> None:
    assert find_convention_evidence(seen(partition(0), partition(1, is_written_by_owner=True))).convention is NEXT


def test_idle_partitions_at_their_newest_record_show_the_last_convention() -> None:
    found = find_convention_evidence(seen(*(one_short(number) for number in range(3)), partition(3)))
    assert found.convention is LAST
    assert "clicks/0, clicks/1, clicks/2" in found.text


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_of_them_may_be_chance(count: int) -> None:
    found = find_convention_evidence(seen(*map(one_short, range(count))))
    assert found.convention is None
    assert found.text.startswith("nothing shows it for certain: clicks/0")


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(None, id="nobody told what stands there"),
        pytest.param(LastLogEntry(False), id="a transaction's marker, which no consumer is given"),
        pytest.param(LastLogEntry(True, WRITTEN_MS + 1), id="a record that came after the commit"),
        pytest.param(LastLogEntry(True, WRITTEN_MS - READ_WITHIN_MS + 1), id="a record that was hardly read before it"),
        pytest.param(LastLogEntry(True, -1), id="a record without a time"),
    ],
)
def test_one_before_the_end_alone_shows_nothing(last: LastLogEntry | None) -> None:
    """A producer that writes one record to each partition at night, and every transactional topic, have this
    pattern.
    """
    assert find_convention_evidence(seen(*(one_short(number, last) for number in range(50)))).convention is None


def test_with_a_znode_of_go_kafka_client_one_partition_is_enough() -> None:
    assert find_convention_evidence(seen(one_short(0), partition(1), last_offset_clients=TRACE)).convention is LAST


def test_the_trace_alone_may_be_years_old() -> None:
    found = find_convention_evidence(seen(partition(0), last_offset_clients=TRACE))
    assert found.convention is None
    assert TRACE[0] in found.text
    assert find_convention_evidence(seen(at_end(0), last_offset_clients=TRACE)).convention is NEXT


def test_divided_evidence_is_none() -> None:
    """An operator set one partition to the end with a tool; the group stores the last record."""
    found = find_convention_evidence(seen(at_end(0), *(one_short(number) for number in range(1, 4))))
    assert found.convention is None
    assert found.text.startswith("the evidence is divided: clicks/0: ")


def test_single_members_that_are_one_record_late_do_not_divide_the_evidence() -> None:
    idle = [at_end(number) for number in range(9)]
    assert find_convention_evidence(seen(*idle, *(one_short(number) for number in range(9, 12)))).convention is NEXT


@pytest.mark.parametrize(
    "shows_nothing",
    [partition(0, None), at_end(0, is_older_than_topic=True), partition(0, None, error="b'x' (1 bytes) is no number")],
    ids=["none", "of a deleted topic", "unreadable"],
)
def test_where_nothing_is_stored_it_does_not_matter(shows_nothing: PartitionSnapshot) -> None:
    found = find_convention_evidence(seen(shows_nothing))
    assert (found.convention, found.text) == (NEXT, "no offset is stored, so it does not matter")


def test_a_log_that_is_not_known_and_a_number_outside_it_show_nothing() -> None:
    unknown = [partition(0, 100, log="away"), partition(1, 101), partition(2, 9)]
    assert find_convention_evidence(seen(*unknown)).convention is None


# --- a migration that has ended -----------------------------------------------------------------------------------


def after(before: OffsetConvention, *partitions: PartitionSnapshot, **more: Any) -> GroupSnapshot:
    """A group that was moved before, and whose numbers had that meaning then."""
    return seen(
        *partitions, control=ControlRecord("m0", 6, "undone", "zookeeper", "copy"), convention_before=before, **more
    )


@pytest.mark.parametrize("before", [NEXT, LAST])
def test_without_evidence_the_convention_is_that_of_the_ended_migration(
    before: OffsetConvention,
) -> None:
    found = find_convention_evidence(after(before, partition(0), partition(1)))
    assert found.convention is before
    assert found.text == (
        f"to migration m0, which has ended, each was the {before.value} record, and nothing speaks against that "
        "(nothing shows it for certain)"
    )
    assert find_convention_evidence(after(before, one_short(0), one_short(1))).convention is before, "two may be chance"


def test_evidence_that_agrees_with_the_ended_migration_is_reported() -> None:
    found = find_convention_evidence(after(NEXT, at_end(0)))
    assert (found.convention, found.text[:28]) == (NEXT, "clicks/0: the number is the ")
    assert find_convention_evidence(after(LAST, *map(one_short, range(3)))).convention is LAST
    assert find_convention_evidence(after(LAST, one_short(0), last_offset_clients=TRACE)).convention is LAST


@pytest.mark.parametrize(
    "now",
    [
        after(LAST, at_end(0)),
        after(LAST, partition(0, is_written_by_owner=True)),
        after(NEXT, *map(one_short, range(3))),
        after(NEXT, one_short(0), last_offset_clients=TRACE),
        after(NEXT, partition(0), last_offset_clients=TRACE),
        after(NEXT, at_end(0), *map(one_short, range(1, 5))),
        after(LAST, at_end(0), *map(one_short, range(1, 5))),
    ],
    ids=["end of a log", "a member of ours", "many newest records", "one, a trace", "a trace", "both", "both, last"],
)
def test_contrary_evidence_needs_a_decision(now: GroupSnapshot) -> None:
    found = find_convention_evidence(now)
    assert (found.convention, found.is_contradictory) == (None, True)
    assert found.text.startswith("the evidence is divided: ")


def test_members_that_read_a_busy_topic_do_not_speak_against_the_next_record() -> None:
    """Seen with Scala members under load: a commit of three partitions, each when one more record had been written."""
    busy = [one_short(number, LastLogEntry(True, WRITTEN_MS - 40)) for number in range(3)]
    assert find_convention_evidence(after(NEXT, *busy, *map(partition, range(3, 6)))).convention is NEXT
    assert find_convention_evidence(seen(*busy)).convention is None


def test_a_trace_does_not_speak_against_the_last_record() -> None:
    assert find_convention_evidence(after(LAST, partition(0), last_offset_clients=TRACE)).convention is LAST


def test_without_offsets_it_does_not_matter_here_either() -> None:
    assert find_convention_evidence(after(LAST, partition(0, None))).convention is NEXT
