"""Committing and fetching offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.events import CoordinatorRecord
from bridge.coordinator.records import StoredOffsetValue, offset_record
from tests.coordinator.server_harness import Member, Table, commit_errors
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic

T0 = {("t", 0): 5}


def test_a_member_of_an_unknown_group_does_not_commit() -> None:
    assert Table().commit(T0, Member("m", 1, "")) == [22]


def test_who_is_no_member_commits_for_a_group_that_nobody_is_in() -> None:
    table = Table()
    assert table.commit(T0) == [0]
    assert table.fetch() == {("t", 0): (5, "", 0)}
    assert table.describe().group_state == "Empty"


def test_who_is_no_member_commits_for_a_group_that_everybody_has_left() -> None:
    table = Table()
    (member,) = table.stable()
    assert table.commit(T0) == [25]
    table.leave_one(member.member_id)
    assert table.commit({("t", 0): 6}) == [0]
    assert table.fetch() == {("t", 0): (6, "", 0)}


def test_offsets_are_fetched_with_their_metadata() -> None:
    table = Table()
    (member,) = table.stable()
    assert table.commit({("t", 0): 1, ("t", 1): 2, ("u", 0): 3}, member, metadata="why") == [0, 0, 0]
    assert table.fetch([("t", 1), ("u", 0)]) == {("t", 1): (2, "why", 0), ("u", 0): (3, "why", 0)}


def test_offsets_of_an_empty_group_are_fetched() -> None:
    table = Table()
    assert table.commit(T0, group="simple") == [0]
    assert table.fetch([("t", 0)], "simple") == {("t", 0): (5, "", 0)}


def test_a_partition_that_has_no_offset_has_none() -> None:
    table = Table()
    assert table.fetch([("t", 0)]) == {("t", 0): (-1, "", 0)}
    table.commit(T0)
    assert table.fetch([("t", 1)]) == {("t", 1): (-1, "", 0)}


@pytest.mark.parametrize(("version", "top", "rows"), [(1, 0, [16]), (2, 16, []), (7, 16, [])])
def test_offsets_of_another_broker_s_group_are_refused_as_the_version_says(
    version: int, top: int, rows: list[int]
) -> None:
    answer = Table(elected=False).fetch_answer([("t", 0)], version=version)
    assert answer.error_code == top
    assert [row.error_code for topic in answer.topics for row in topic.partitions] == rows


def test_several_groups_are_fetched_at_once_each_with_its_own_error() -> None:
    table = Table()
    table.commit(T0)
    answer = table.fetch_answer(None, version=8)
    (group,) = answer.groups
    assert (group.group_id, group.error_code, answer.topics) == ("g", 0, [])
    assert [(topic.name, row.committed_offset) for topic in group.topics for row in topic.partitions] == [("t", 5)]
    (group,) = Table(elected=False).fetch_answer(None, version=8).groups
    assert (group.error_code, group.topics) == (16, [])


def test_all_offsets_are_fetched_when_none_are_named() -> None:
    table = Table()
    table.commit({("u", 1): 1, ("t", 3): 2, ("t", 1): 3})
    assert list(table.fetch()) == [("t", 1), ("t", 3), ("u", 1)]
    assert Table().fetch() == {}


def test_nobody_commits_while_the_leader_is_waited_for() -> None:
    table = Table()
    (member,) = table.rebalanced()
    assert table.commit(T0, member) == [27]


def test_an_unknown_member_s_commit_while_the_leader_is_waited_for_is_refused_as_such() -> None:
    table = Table()
    table.rebalanced()
    assert table.commit(T0, Member("m", 1, "")) == [25]


def test_another_generation_s_commit_while_the_leader_is_waited_for_is_refused_as_such() -> None:
    table = Table()
    (member,) = table.rebalanced()
    assert table.commit(T0, replace(member, generation_id=7)) == [22]


def test_a_commit_without_generation_is_nobody_s_and_its_ids_do_not_matter_in_an_empty_group() -> None:
    table = Table()
    somebody = Member("somebody", -1, "", "instance")
    assert table.commit(T0, somebody) == [0]
    assert table.commit({("t", 0): 6}, somebody) == [0]


def test_a_member_commits_while_the_others_join() -> None:
    table = Table()
    (member,) = table.stable()
    table.join()
    assert table.state() == "PreparingRebalance"
    assert table.commit(T0, member) == [0]


def test_a_commit_without_generation_that_names_a_member_is_of_another_generation() -> None:
    table = Table()
    (member,) = table.stable()
    assert table.commit(T0, replace(member, generation_id=-1)) == [22]


def test_a_former_member_does_not_commit_for_the_group_that_it_has_left() -> None:
    table = Table()
    (member,) = table.stable()
    table.leave_one(member.member_id)
    assert table.commit(T0, replace(member, generation_id=2)) == [25]


def test_a_commit_counts_once_the_log_has_it() -> None:
    table = Table(holds_appends=True)
    token = table.send_commit(T0)
    assert not table.is_answered(token)
    assert table.fetch() == {}
    table.settle()
    assert commit_errors(table.answer(token)) == [0]
    assert table.fetch() == {("t", 0): (5, "", 0)}


@pytest.mark.parametrize(
    ("append_error", "told"),
    [(3, 15), (19, 15), (20, 15), (6, 16), (56, 16), (7, 7), (10, 28), (18, 28), (4, 28), (-1, -1)],
)
def test_a_commit_that_the_log_refuses_is_answered_as_such_and_does_not_count(append_error: int, told: int) -> None:
    table = Table()
    table.commit({("t", 0): 1})
    table.holds_appends = True
    token = table.send_commit({("t", 0): 2, ("t", 1): 3})
    table.settle(append_error)
    assert commit_errors(table.answer(token)) == [told, told]
    assert table.fetch() == {("t", 0): (1, "", 0)}
    assert table.fetch([("t", 0)], require_stable=True) == {("t", 0): (1, "", 0)}


def test_of_two_commits_under_way_one_may_fail() -> None:
    table = Table(holds_appends=True)
    first, second = table.send_commit({("t", 0): 1}), table.send_commit({("t", 0): 2})
    table.settle(7)
    assert commit_errors(table.answer(first)) == [7]
    assert table.fetch([("t", 0)], require_stable=True) == {("t", 0): (-1, "", 88)}
    table.settle()
    assert commit_errors(table.answer(second)) == [0]
    assert table.fetch([("t", 0)], require_stable=True) == {("t", 0): (2, "", 0)}


def test_of_two_commits_under_way_the_later_counts() -> None:
    table = Table(holds_appends=True)
    table.send_commit({("t", 0): 1})
    table.send_commit({("t", 0): 2})
    table.settle()
    assert table.fetch() == {("t", 0): (1, "", 0)}
    table.settle()
    assert table.fetch() == {("t", 0): (2, "", 0)}


def test_an_offset_that_is_under_way_is_not_stable_yet() -> None:
    table = Table()
    table.commit({("t", 0): 1, ("t", 1): 1})
    table.holds_appends = True
    table.send_commit({("t", 0): 2})
    stable = table.fetch([("t", 0), ("t", 1), ("t", 2)], require_stable=True)
    assert stable == {("t", 0): (-1, "", 88), ("t", 1): (1, "", 0), ("t", 2): (-1, "", 0)}
    assert table.fetch([("t", 0)]) == {("t", 0): (1, "", 0)}


def test_metadata_that_is_too_long_is_refused_alone() -> None:
    table = Table()
    longest = table.config.offset_metadata_max_chars
    assert table.commit({("t", 0): 1}, metadata="x" * longest) == [0]
    assert table.commit({("t", 0): 2}, metadata="x" * (longest + 1)) == [12]
    # Java counts a character outside the basic plane twice.
    assert table.commit({("t", 0): 3}, metadata="😀" * (longest // 2)) == [0]
    assert table.commit({("t", 0): 4}, metadata="😀" * (longest // 2 + 1)) == [12]
    assert table.commit({("t", 0): 4}, metadata="ü" * longest) == [0]


def test_a_commit_of_several_partitions_goes_on_without_those_whose_metadata_is_too_long() -> None:
    table = Table()
    (member,) = table.stable()
    rows = [
        OffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 5_000),
        OffsetCommitPartition(partition_index=1, committed_offset=2, committed_metadata=None),
    ]
    body = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[OffsetCommitTopic(name="t", partitions=rows)],
    )
    assert commit_errors(table.answer(table.send(8, 7, body))) == [12, 0]
    assert table.fetch() == {("t", 1): (2, "", 0)}


def test_a_commit_of_nothing_is_answered_with_nothing() -> None:
    table = Table()
    answer = table.answer(table.send_commit({}))
    assert answer.topics == []
    assert table.written == []


# --- transactions that a log may hold --------------------------------------------------------------------------------

PRODUCER = 77
OTHER_PRODUCER = 78
COMMIT_MARKER = CoordinatorRecord(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", PRODUCER, True)
ABORT_MARKER = CoordinatorRecord(b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00", PRODUCER, True)


def stored(offset: int, producer: int | None = None, partition: int = 0, group: str = "g") -> CoordinatorRecord:
    record = offset_record(group, TopicPartition("t", partition), StoredOffsetValue(offset, -1, "", 1_000_000), 3)
    return replace(record, producer_id=producer)


def loaded(*records: CoordinatorRecord, group: str = "g") -> Table:
    """A broker that has read this log."""
    table = Table(elected=False)
    partition = table.coordinator.partition_for(group)
    table.logs[partition] = list(enumerate(records))
    table.elect(partition)
    return table


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    table = loaded(stored(1, PRODUCER), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (1, "", 0)}
    assert table.state() == "Empty"


def test_offsets_of_a_transaction_that_was_aborted_do_not_count() -> None:
    assert loaded(stored(1, PRODUCER), ABORT_MARKER).state() == "Dead"
    table = loaded(stored(1), stored(2, PRODUCER), ABORT_MARKER)
    assert table.fetch([("t", 0)], require_stable=True) == {("t", 0): (1, "", 0)}


def test_offsets_of_an_open_transaction_are_not_stable() -> None:
    table = loaded(stored(1), stored(2, PRODUCER), stored(3, PRODUCER, 1))
    assert table.fetch([("t", 0), ("t", 1)], require_stable=True) == {("t", 0): (-1, "", 88), ("t", 1): (-1, "", 88)}
    assert table.fetch([("t", 0), ("t", 1)]) == {("t", 0): (1, "", 0), ("t", 1): (-1, "", 0)}
    # And they keep the group, as brokers do: the transaction may still end well.
    table.move(2 * table.config.offsets_retention_ms)
    assert table.state() == "Empty"


def test_transactions_of_several_producers_end_each_on_its_own() -> None:
    table = loaded(stored(1, PRODUCER), stored(2, OTHER_PRODUCER, 1), stored(3, PRODUCER, 2), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (1, "", 0), ("t", 2): (3, "", 0)}
    assert table.fetch([("t", 1)], require_stable=True) == {("t", 1): (-1, "", 88)}


def test_committed_aborted_and_open_transactions_of_one_producer_are_told_apart() -> None:
    table = loaded(stored(1, PRODUCER), ABORT_MARKER, stored(2, PRODUCER, 1), COMMIT_MARKER, stored(3, PRODUCER, 2))
    assert table.fetch() == {("t", 1): (2, "", 0)}
    assert table.fetch([("t", 2)], require_stable=True) == {("t", 2): (-1, "", 88)}


def test_an_offset_stored_after_that_of_a_transaction_stays_when_it_is_committed() -> None:
    table = loaded(stored(1, PRODUCER), stored(2), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (2, "", 0)}


def test_an_offset_of_a_transaction_stored_after_another_counts_when_it_is_committed() -> None:
    table = loaded(stored(2), stored(1, PRODUCER), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (1, "", 0)}


def test_a_tombstone_within_a_transaction_takes_back_what_the_transaction_said() -> None:
    table = loaded(stored(1, PRODUCER), replace(stored(1, PRODUCER), value=None), COMMIT_MARKER)
    assert table.fetch() == {}


def test_a_marker_of_an_unknown_producer_ends_nothing() -> None:
    table = loaded(stored(1), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (1, "", 0)}


@pytest.mark.parametrize("key", [b"", b"\x00\x00\x00\x07"])
def test_a_control_record_that_says_nothing_is_passed_over(key: bytes) -> None:
    table = loaded(stored(1, PRODUCER), replace(COMMIT_MARKER, key=key), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (1, "", 0)}
    assert [note.name for note in table.notes if note.name == "record-skipped"] == ["record-skipped"]


def test_one_transaction_may_store_offsets_of_several_groups() -> None:
    where = Table().coordinator.partition_for
    other = next(name for name in map(str, range(100)) if where(name) == where("g"))
    table = loaded(stored(1, PRODUCER), stored(2, PRODUCER, group=other), COMMIT_MARKER)
    assert table.fetch() == {("t", 0): (1, "", 0)}
    assert table.fetch(group=other) == {("t", 0): (2, "", 0)}


@pytest.mark.parametrize("release", ["2.0.1", "4.1.1"])
def test_an_offset_may_ask_to_be_kept_longer_than_time_can_be_counted(release: str) -> None:
    table = Table(behaviour_of(release))
    assert table.commit(T0, version=2, retention_ms=2**63 - 1) == [0]
    assert table.restart().fetch([("t", 0)])["t", 0][0] == 5
