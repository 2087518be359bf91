"""The log of groups: what is written, what is read back, what expires."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.coordinator_lifecycle import EXPIRY_KEY
from bridge.coordinator.events import (
    AppendCompleted,
    CoordinatorRecord,
    Elected,
    Event,
    GroupTimerFired,
    PartitionLoaded,
    Resigned,
    ShutDown,
    TopicsDeleted,
)
from bridge.coordinator.group_coordinator import GroupCoordinator
from bridge.coordinator.records import (
    StoredGroup,
    StoredGroupKey,
    StoredOffsetKey,
    StoredOffsetValue,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    read_group_value,
    read_key,
    read_offset_value,
)
from tests.coordinator.server_harness import CONFIG, REBALANCE_MS, SESSION_MS, START_MS, Member, Table
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription
from zkconsumer.wire.group_records import GroupMetadataMember, value_version

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
RETENTION_MS = 60_000
SUBSCRIPTION = encode_subscription(Subscription(("t",)))
SHORT_CHECKS = replace(CONFIG, offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)


def offset(
    at: TopicPartition, number: int, *, commit_ms: int = START_MS, expire_ms: int | None = None
) -> CoordinatorRecord:
    return offset_record("g", at, StoredOffsetValue(number, -1, "", commit_ms, expire_ms), 3)


def stored_member(
    member_id: str = "m", instance: str | None = None, subscription: bytes = SUBSCRIPTION
) -> GroupMetadataMember:
    return GroupMetadataMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/host",
        rebalance_timeout=REBALANCE_MS,
        session_timeout=SESSION_MS,
        subscription=subscription,
        assignment=b"part",
    )


def stored_group(
    *members: GroupMetadataMember, protocol_type: str = "consumer", since: int | None = START_MS
) -> StoredGroup:
    return StoredGroup(
        protocol_type, 15, "range" if members else None, members[0].member_id if members else None, since, members
    )


def group(*members: GroupMetadataMember, **words: str) -> CoordinatorRecord:
    return group_record("g", stored_group(*members, **words), 3)


def loaded(*records: CoordinatorRecord, table: Table | None = None) -> Table:
    """A broker that has read this log."""
    table = table or Table(elected=False)
    partition = table.coordinator.partition_for("g")
    table.logs[partition] = list(enumerate(records))
    table.elect(partition)
    return table


def passed_over(table: Table) -> list[object]:
    return [dict(note.fields)["offset"] for note in table.notes if note.name == "record-skipped"]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_offsets_without_a_group_make_an_empty_one() -> None:
    table = loaded(offset(T0, 1), offset(T1, 2), offset(T0, 3))
    assert (table.state(), table.group().protocol_type) == ("Empty", None)
    assert table.fetch() == {("t", 0): (3, "", 0), ("t", 1): (2, "", 0)}


def test_an_empty_group_is_read_with_its_offsets() -> None:
    table = loaded(offset(T0, 1), group())
    found = table.group()
    assert (table.state(), found.generation_id, found.protocol_type) == ("Empty", 15, "consumer")
    assert (found.leader_id, found.protocol_name, found.subscribed_topics) == (None, None, frozenset())
    assert table.fetch() == {("t", 0): (1, "", 0)}


def test_offsets_with_a_tombstone_are_gone() -> None:
    table = loaded(offset(T0, 1), offset(T1, 2), offset_tombstone("g", T0))
    assert table.fetch() == {("t", 1): (2, "", 0)}


def test_a_group_is_read_with_members_and_offsets() -> None:
    table = loaded(offset(T0, 1), group(stored_member("a"), stored_member("b")))
    found = table.group()
    assert (table.state(), found.leader_id, list(found.members)) == ("Stable", "a", ["a", "b"])
    assert found.get("b").assignment == b"part"
    assert table.fetch() == {("t", 0): (1, "", 0)}


def test_static_members_are_read_with_their_instances() -> None:
    table = loaded(group(stored_member("a", "i"), stored_member("b")))
    assert table.group().static_members == {"i": "a"}


def test_consumers_are_read_with_what_they_read() -> None:
    table = loaded(
        group(stored_member("a"), stored_member("b", subscription=encode_subscription(Subscription(("u",)))))
    )
    assert table.group().subscribed_topics == {"t", "u"}


def test_what_unreadable_consumers_read_is_unknown() -> None:
    table = loaded(group(stored_member("a", subscription=b"\x00")))
    assert (table.state(), table.group().subscribed_topics) == ("Stable", None)


def test_a_group_with_a_tombstone_is_gone_and_comes_again_with_its_next_record() -> None:
    assert loaded(group(stored_member()), group_tombstone("g")).state() == "Dead"
    assert loaded(group_tombstone("g"), group(stored_member())).state() == "Stable"
    table = loaded(offset(T0, 1), group(stored_member()), group_tombstone("g"))
    assert (table.state(), table.group().generation_id) == ("Empty", 0)


def test_the_last_record_of_a_group_counts() -> None:
    later = group_record("g", replace(stored_group(stored_member("b")), generation_id=16), 3)
    table = loaded(group(stored_member("a")), later)
    assert (list(table.group().members), table.group().generation_id) == (["b"], 16)


def test_a_group_may_be_as_large_as_it_is() -> None:
    members = [stored_member(f"m{number}", subscription=b"\x00\x00" + b"x" * 4_000) for number in range(2_000)]
    assert loaded(group(*members)).group().size == 2_000


def test_records_of_unknown_kinds_are_passed_over() -> None:
    unknown = CoordinatorRecord(b"\x00\x7f???", b"whatever")
    table = loaded(offset(T0, 1), unknown, offset(T1, 2))
    assert len(table.fetch()) == 2
    assert passed_over(table) == [1]


@pytest.mark.parametrize(
    "record",
    [
        CoordinatorRecord(b"", b""),
        CoordinatorRecord(b"\x00\x01", b"\x00\x03"),
        CoordinatorRecord(b"\xff\xff", b""),
        CoordinatorRecord(offset(T1, 1).key, b"\x00\x05\x00"),
        CoordinatorRecord(offset(T1, 1).key, b"\x00\x03\x00"),
        CoordinatorRecord(group_tombstone("g").key, b"\x00\x05\x00"),
        CoordinatorRecord(group_tombstone("g").key, b"\x7f\xff"),
        CoordinatorRecord(group_tombstone("g").key, b""),
    ],
)
def test_records_that_cannot_be_read_are_passed_over(record: CoordinatorRecord) -> None:
    table = loaded(offset(T0, 1), record, offset(U0, 2))
    assert table.fetch() == {("t", 0): (1, "", 0), ("u", 0): (2, "", 0)}
    assert passed_over(table) == [1]


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    table = loaded(group_record("g", stored_group(stored_member("a", "i")), version))
    member = table.group().get("a")
    assert (table.state(), member.session_timeout_ms) == ("Stable", SESSION_MS)
    assert member.rebalance_timeout_ms == (SESSION_MS if version == 0 else REBALANCE_MS)
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert table.group().current_state_timestamp == (START_MS if version >= 2 else None)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    value = StoredOffsetValue(7, 3, "m", START_MS)
    table = loaded(offset_record("g", T0, value, version))
    found = table.group().stored.offsets[T0].value
    assert found == replace(value, leader_epoch=3 if version >= 3 else -1)


def test_an_offset_with_an_end_of_its_own_is_written_in_the_version_that_has_one() -> None:
    value = StoredOffsetValue(7, 3, "m", START_MS, START_MS + 1)
    record = offset_record("g", T0, value, 3)
    assert record.value is not None
    assert value_version(record.value) == 1
    assert read_offset_value(record.value) == replace(value, leader_epoch=-1)


def test_keys_say_what_a_record_is_about() -> None:
    assert read_key(offset(T0, 1).key) == StoredOffsetKey("g", T0)
    assert read_key(group_tombstone("g").key) == StoredGroupKey("g")
    assert offset_tombstone("g", T0) == CoordinatorRecord(offset(T0, 1).key, None)


def test_the_load_of_a_partition_is_noted_with_its_groups() -> None:
    (note,) = [note for note in loaded(group()).notes if note.name == "partition-loaded"]
    assert dict(note.fields)["groups"] == 1


# --- writing ---------------------------------------------------------------------------------------------------------


def last_group(table: Table) -> StoredGroup:
    """The group's last record."""
    for append in reversed(table.written):
        for record in reversed(append.records):
            if read_key(record.key) == StoredGroupKey("g") and record.value is not None:
                return read_group_value(record.value)
    raise AssertionError("the group was never written")


def test_a_stable_group_is_written_with_its_members_and_their_parts() -> None:
    table = Table(behaviour_of("3.9.1"))
    leader, follower = table.stable(2)
    written = last_group(table)
    assert (written.protocol_type, written.protocol_name, written.generation_id) == ("consumer", "range", 1)
    assert written.leader == leader.member_id
    assert [(member.member_id, member.assignment) for member in written.members] == [
        (member.member_id, member.member_id.encode()) for member in (leader, follower)
    ]
    assert written.members[0].subscription == SUBSCRIPTION
    assert (written.members[0].session_timeout, written.members[0].rebalance_timeout) == (500, 500)


def test_a_group_that_was_emptied_is_written_without_members() -> None:
    table = Table()
    (member,) = table.stable()
    table.leave_one(member.member_id)
    written = last_group(table)
    assert (written.generation_id, written.protocol_name, written.leader, written.members) == (2, None, None, ())
    assert written.protocol_type == "consumer"


def test_a_group_that_was_emptied_and_could_not_be_written_is_empty_all_the_same() -> None:
    table = Table()
    (member,) = table.stable()
    table.holds_appends = True
    table.leave_one(member.member_id)
    table.settle(19)
    assert table.state() == "Empty"
    assert table.notes[-1].name == "append-failed"


def test_a_commit_alone_writes_no_group() -> None:
    table = Table(behaviour_of("3.9.1"))
    table.commit({("t", 0): 1})
    assert [read_key(record.key) for append in table.written for record in append.records] == [StoredOffsetKey("g", T0)]


def test_a_commit_is_written_with_its_time_and_without_an_end() -> None:
    table = Table()
    table.move(5)
    table.commit({("t", 0): 7}, metadata="m")
    record = table.written[-1].records[-1]
    assert record.value is not None
    assert read_offset_value(record.value) == StoredOffsetValue(7, -1, "m", START_MS + 5, None)


def test_a_commit_may_bring_its_own_time() -> None:
    table = Table()
    table.commit({("t", 0): 7}, version=1, timestamp_ms=12)
    assert table.group().stored.offsets[T0].value.commit_timestamp == 12


def test_a_commit_may_bring_its_own_end() -> None:
    table = Table()
    table.commit({("t", 0): 7}, version=2, retention_ms=1_000)
    assert table.group().stored.offsets[T0].value.expire_timestamp == START_MS + 1_000


def test_an_append_that_nobody_commanded_is_passed_over() -> None:
    table = Table()
    assert table.happen(AppendCompleted(99, 0, 0)) == []


def test_appends_go_to_the_group_s_partition_in_its_term() -> None:
    table = Table()
    table.commit({("t", 0): 1})
    (append,) = [append for append in table.written if len(append.records) == 1][-1:]
    assert (append.partition, append.epoch) == (table.coordinator.partition_for("g"), 1)


def test_a_commit_that_is_written_after_its_group_was_deleted_does_not_bring_it_back() -> None:
    table = Table(holds_appends=True)
    token = table.send_commit({("t", 0): 1})
    table.send_delete("g")
    table.settle()
    assert table.is_answered(token)
    table.settle()
    assert table.state() == "Dead"


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_expiry_is_looked_for_at_its_time_as_long_as_there_is_anything_to_look_at() -> None:
    """Elections must not put it off: where leaders move often, nothing would ever expire."""
    coordinator = GroupCoordinator(SHORT_CHECKS, behaviour_of(), str)

    def looks_at(event: Event, now_ms: int) -> int | None:
        coordinator.handle(event, now_ms)
        return coordinator.purgatory.deadline_ms(EXPIRY_KEY) if coordinator.purgatory.is_watched(EXPIRY_KEY) else None

    assert looks_at(Elected(0, 0), 0) == 1_000
    assert looks_at(Elected(1, 0), 500) == 1_000
    assert looks_at(PartitionLoaded(0, 0, []), 500) == 1_000
    assert looks_at(Resigned(0, 1), 600) == 1_000, "a partition is loading"
    assert looks_at(PartitionLoaded(1, 0, []), 600) == 1_000
    assert looks_at(Elected(0, 2), 700) == 1_000
    assert looks_at(Resigned(0, 3), 800) == 1_000, "a partition is ours"
    assert looks_at(Resigned(1, 1), 900) is None
    assert looks_at(Elected(1, 2), 5_000) == 6_000
    assert looks_at(GroupTimerFired(EXPIRY_KEY, 6_000), 6_000) == 7_000
    assert looks_at(ShutDown(), 6_500) is None


def expiring(release: str = "3.9.1") -> Table:
    return Table(behaviour_of(release), SHORT_CHECKS)


def test_offsets_that_nobody_s_group_renews_expire_by_their_commit_and_the_group_with_them() -> None:
    table = expiring()
    table.commit({("t", 0): 1})
    table.move(1_000)
    table.commit({("t", 1): 1})
    table.move(RETENTION_MS - 1_000 - 1)
    assert len(table.fetch()) == 2
    table.move(1_000)
    assert table.fetch() == {("t", 1): (1, "", 0)}
    assert [note.name for note in table.notes if note.name == "offsets-expired"] == ["offsets-expired"]
    table.move(1_000)
    assert table.state() == "Dead"
    # Nothing was ever written of the group itself: no tombstone for it.
    keys = [read_key(record.key) for append in table.written for record in append.records]
    assert StoredGroupKey("g") not in keys
    assert table.restart().state() == "Dead"


def test_offsets_of_a_group_that_was_emptied_expire_from_then_on_all_at_once() -> None:
    table = expiring()
    (member,) = table.stable(session_ms=600_000, rebalance_ms=600_000)
    table.commit({("t", 0): 1}, member)
    table.move(30_000)
    table.commit({("t", 1): 1}, member)
    table.leave_one(member.member_id)
    table.move(RETENTION_MS - 1_000)
    assert len(table.fetch()) == 2
    table.move(2_000)
    assert table.state() == "Dead"
    last = table.written[-1].records[-1]
    assert (read_key(last.key), last.value) == (StoredGroupKey("g"), None)
    assert table.restart().state() == "Dead"


def test_an_empty_group_without_offsets_is_forgotten_at_the_next_look() -> None:
    table = expiring()
    (member,) = table.stable()
    table.leave_one(member.member_id)
    table.move(1_000)
    assert table.state() == "Dead"
    assert table.restart().state() == "Dead"


def test_a_group_with_members_does_not_expire() -> None:
    table = expiring()
    table.stable(session_ms=600_000)
    table.move(10_000)
    assert table.state() == "Stable"


def test_offsets_of_topics_that_a_living_group_does_not_read_any_more_expire() -> None:
    table = expiring()
    (member,) = table.stable(session_ms=600_000)
    table.commit({("t", 0): 1, ("u", 0): 1}, member)
    table.move(58_000)
    assert len(table.fetch()) == 2
    table.move(4_000)
    assert table.fetch() == {("t", 0): (1, "", 0)}
    assert table.state() == "Stable"


@pytest.mark.parametrize("words", [{"protocol_type": "connect"}, {"protocols": (("range", b""),)}])
def test_offsets_of_a_living_group_that_does_not_say_what_it_reads_do_not_expire(words: dict[str, str]) -> None:
    table = expiring()
    (member,) = table.stable(session_ms=600_000, **words)
    table.commit({("u", 0): 1}, member)
    table.move(120_000)
    assert table.fetch() == {("u", 0): (1, "", 0)}


def test_offsets_do_not_expire_while_the_group_rebalances() -> None:
    table = expiring()
    (member,) = table.stable(session_ms=600_000, rebalance_ms=600_000)
    table.commit({("u", 0): 1}, member)
    table.join(rebalance_ms=600_000)
    table.move(120_000)
    assert table.fetch() == {("u", 0): (1, "", 0)}


def test_before_2_1_an_offset_ends_at_its_time_whatever_its_group_does() -> None:
    table = expiring("1.1.1")
    (member,) = table.stable(session_ms=300_000, rebalance_ms=600_000)
    table.commit({("u", 0): 1}, member)
    table.join(session_ms=300_000, rebalance_ms=600_000)
    assert table.state() == "PreparingRebalance"
    table.move(120_000)
    assert table.fetch() == {}


def test_an_end_that_the_commit_asked_for_counts_before_the_broker_s() -> None:
    table = expiring()
    table.commit({("t", 0): 1}, version=2, retention_ms=5_000)
    table.commit({("t", 1): 1})
    table.move(6_000)
    assert table.fetch() == {("t", 1): (1, "", 0)}


def test_an_offset_whose_end_was_written_by_an_old_broker_keeps_it() -> None:
    table = loaded(
        offset(T0, 1, expire_ms=START_MS + 5_000), offset(T1, 1), table=Table(config=SHORT_CHECKS, elected=False)
    )
    table.move(4_000)
    assert len(table.fetch()) == 2
    table.move(1_000)
    assert table.fetch() == {("t", 1): (1, "", 0)}


def test_before_2_1_an_offset_goes_behind_its_end_and_one_without_an_end_by_its_commit() -> None:
    table = Table(behaviour_of("1.1.1"), SHORT_CHECKS, elected=False)
    table = loaded(offset(T0, 1), offset(T1, 1, expire_ms=START_MS + 5_000), table=table)
    table.move(5_000)
    assert len(table.fetch()) == 2
    table.move(1_000)
    assert table.fetch() == {("t", 0): (1, "", 0)}
    table.move(RETENTION_MS - 6_000)
    assert len(table.fetch()) == 1
    table.move(1_000)
    assert table.fetch() == {}


def test_offsets_without_the_time_of_their_group_s_end_expire_by_their_commit() -> None:
    old = group_record("g", stored_group(), 1)
    table = loaded(
        offset(T0, 1, commit_ms=START_MS + 2_000 - RETENTION_MS), old, table=Table(config=SHORT_CHECKS, elected=False)
    )
    table.move(1_000)
    assert len(table.fetch()) == 1
    table.move(2_000)
    assert table.state() == "Dead"


def test_an_offset_that_is_being_committed_does_not_expire() -> None:
    table = expiring()
    table.commit({("t", 0): 1})
    table.move(59_000)
    table.holds_appends = True
    table.send_commit({("t", 0): 2})
    table.move(10_000)
    table.settle()
    assert table.fetch() == {("t", 0): (2, "", 0)}


def test_what_could_not_be_written_of_an_expiry_comes_again() -> None:
    table = expiring()
    table.commit({("t", 0): 1})
    table.move(RETENTION_MS - 1)
    table.holds_appends = True
    table.move(1_000)
    assert table.state() == "Dead"
    table.settle(19)
    assert (table.state(), table.fetch()) == ("Empty", {("t", 0): (1, "", 0)})
    table.holds_appends = False
    table.move(1_000)
    assert table.state() == "Dead"


def test_offsets_of_topics_that_are_deleted_go_with_them() -> None:
    table = Table()
    (member,) = table.stable()
    table.commit({("t", 0): 1, ("u", 0): 1}, member)
    table.commit({("u", 0): 1}, group="simple")
    table.happen(TopicsDeleted(frozenset({"u"})))
    assert table.fetch() == {("t", 0): (1, "", 0)}
    assert table.state() == "Stable"
    assert table.state("simple") == "Dead"
    other = table.restart()
    assert (other.fetch(), other.state("simple")) == ({("t", 0): (1, "", 0)}, "Dead")


def test_nothing_expires_on_a_broker_that_leads_nothing() -> None:
    table = Table()
    for partition in (0, 1):
        table.resign(partition)
    assert table.timers == {}
    assert table.heartbeat(Member("m", 1, "")) == 16
