"""Who is answered at all: names, owners, loading, elections, the end of the broker."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.config import GroupCoordinatorConfig, read_group_coordinator_config
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import Elected, PartitionLoaded, ShutDown
from bridge.coordinator.partitioning import partition_for
from tests.coordinator.server_harness import CONFIG, Member, Table
from zkconsumer.errors import InternalError, UsageError
from zkconsumer.kafka.error_codes import ERROR_CODES
from zkconsumer.wire.schemas.leave_group import LeavingMember

NOBODY = Member("nobody", 1, "")


def error_of(table: Table, what: str, group: str = "g") -> int:
    """The error with which a request is answered now, whatever place it stands in."""
    asked: dict[str, Any] = {
        "join": lambda: table.answer(table.join(group)).error_code,
        "sync": lambda: table.answer(table.sync(NOBODY, group=group)).error_code,
        "heartbeat": lambda: table.heartbeat(NOBODY, group),
        "leave": lambda: table.leave_one("nobody", group),
        "batch leave": lambda: table.leave(LeavingMember(member_id="", group_instance_id="i"), group=group).error_code,
        "commit": lambda: table.commit({("t", 0): 1}, group=group)[0],
        "fetch": lambda: table.fetch_answer([("t", 0)], group).error_code,
        "describe": lambda: table.describe(group).error_code,
        "delete": lambda: table.delete(group)[group],
        "delete offsets": lambda: table.delete_offsets([("t", 0)], group)[0],
    }
    return int(asked[what]())


EVERY_REQUEST = (
    "join",
    "sync",
    "heartbeat",
    "leave",
    "batch leave",
    "commit",
    "fetch",
    "describe",
    "delete",
    "delete offsets",
)
LOADING = {"sync": 27, "heartbeat": 0}


@pytest.mark.parametrize("what", EVERY_REQUEST)
def test_a_group_that_is_loading_is_not_answered_for_until_it_is_loaded(what: str) -> None:
    table = Table(elected=False)
    table.happen(Elected(0, 1))
    table.happen(Elected(1, 1))
    assert error_of(table, what) == LOADING.get(what, 14)
    assert table.list_groups().error_code == 14
    for load in table.loads:
        table.happen(PartitionLoaded(load.partition, load.epoch, []))
    assert table.list_groups().error_code == 0
    if what != "join":
        assert error_of(table, what) not in (14, 27)


def test_another_partition_s_loading_is_no_matter() -> None:
    table = Table(elected=False)
    table.elect(partition_for("g", 2))
    table.happen(Elected(1 - partition_for("g", 2), 1))
    assert table.commit({("t", 0): 1}) == [0]


@pytest.mark.parametrize("what", EVERY_REQUEST)
def test_a_group_of_another_broker_is_refused(what: str) -> None:
    table = Table(elected=False)
    assert error_of(table, what) == 16


def test_every_error_has_the_number_and_name_of_kafka_s() -> None:
    for error in Errors:
        assert ERROR_CODES[error].name == error.name


@pytest.mark.parametrize("what", ["join", "sync", "heartbeat", "leave", "delete offsets"])
def test_members_have_a_group_with_a_name(what: str) -> None:
    assert error_of(Table(), what, "") == 24


@pytest.mark.parametrize("what", ["commit", "fetch", "describe", "delete"])
def test_the_group_of_the_empty_name_may_hold_offsets(what: str) -> None:
    assert error_of(Table(), what, "") in (0, 69)


@pytest.mark.parametrize("what", EVERY_REQUEST)
def test_a_name_that_no_record_can_hold_is_refused(what: str) -> None:
    assert error_of(Table(), what, "ü" * 20_000) == 24


@pytest.mark.parametrize("names", ["type", "protocol", "instance"])
def test_names_of_protocols_and_instances_that_no_record_can_hold_are_refused(names: str) -> None:
    table = Table()
    long = "x" * 40_000
    words: dict[str, Any] = {
        "type": {"protocol_type": long},
        "protocol": {"protocols": ((long, b""),)},
        "instance": {"instance_id": long},
    }[names]
    assert table.answer(table.join(**words)).error_code == 23


def test_old_brokers_say_that_a_loading_group_is_not_theirs() -> None:
    """0.9 to 1.1 ask whose a group is before they ask whether it is loading, and it is theirs once it is loaded."""
    for release, join, sync, heartbeat in (("0.9.0.1", 16, 16, 16), ("1.1.1", 16, 16, 16), ("2.0.1", 14, 27, 0)):
        table = Table(behaviour_of(release), elected=False)
        table.happen(Elected(0, 1))
        table.happen(Elected(1, 1))
        assert error_of(table, "join") == join
        assert error_of(table, "sync") == sync
        assert error_of(table, "heartbeat") == heartbeat


@pytest.mark.parametrize("release", ["0.9.0.1", "1.1.1"])
def test_old_brokers_look_at_a_group_s_name_when_somebody_joins(release: str) -> None:
    table = Table(behaviour_of(release))
    assert error_of(table, "join", "") == 24
    assert error_of(table, "heartbeat", "") == 25
    assert error_of(table, "sync", "") == 25
    table.happen(ShutDown())
    assert error_of(table, "join", "") == 15


def test_new_brokers_look_at_a_group_s_name_before_anything_else() -> None:
    table = Table()
    table.happen(ShutDown())
    assert error_of(table, "join", "") == 24


# --- elections -----------------------------------------------------------------------------------------------------


def test_a_group_moves_with_its_members_and_offsets() -> None:
    table = Table()
    leader, follower = table.stable(2)
    assert table.commit({("t", 0): 5}, leader) == [0]
    other = table.restart()
    assert other.state() == "Stable"
    assert other.heartbeat(follower) == 0
    assert other.answer(other.sync(follower)).assignment == follower.member_id.encode()
    assert other.fetch() == {("t", 0): (5, "", 0)}
    assert other.group().leader_id == leader.member_id


def test_members_of_a_loaded_group_have_their_sessions_from_then_on() -> None:
    table = Table()
    table.stable(2)
    other = table.restart()
    other.move(499)
    assert other.group().size == 2
    other.move(1)
    other.move(500)
    assert other.state() == "Empty"


def test_a_loaded_group_that_is_too_large_rebalances_so_that_members_can_commit() -> None:
    table = Table()
    members = table.stable(4)
    table.config = GroupCoordinatorConfig(
        offsets_topic_partitions=2,
        group_min_session_timeout_ms=10,
        group_max_size=2,
        group_initial_rebalance_delay_ms=50,
    )
    other = table.restart()
    assert other.state() == "PreparingRebalance"
    assert other.commit({("t", 0): 5}, members[0]) == [0]
    answers = [other.join(member_id=member.member_id) for member in members]
    assert [other.answer(token).error_code for token in answers[2:]] == [81, 81]
    assert other.joined(answers[0]).generation_id == 2


def test_who_waits_is_told_when_the_group_goes_to_another_broker() -> None:
    table = Table()
    first, second = table.rebalanced(2)
    sync = table.sync(second)
    partition = table.coordinator.partition_for("g")
    table.resign(partition)
    assert table.answer(sync).error_code == 16
    table.elect(partition, 3)
    join = table.join()
    table.resign(partition, 4)
    assert table.answer(join).error_code == 16
    assert table.heartbeat(first) == 16
    assert [key for key in table.coordinator.purgatory.keys() if key != ("expiry",)] == []  # noqa: SIM118


def test_an_append_that_ends_after_the_group_has_gone_is_answered_and_not_kept() -> None:
    table = Table(holds_appends=True)
    token = table.send_commit({("t", 0): 1})
    partition = table.coordinator.partition_for("g")
    table.resign(partition)
    table.settle(6)
    assert [row.error_code for topic in table.answer(token).topics for row in topic.partitions] == [16]
    table.elect(partition, 3)
    assert table.fetch() == {}


def test_an_old_term_s_election_load_and_resignation_are_passed_over() -> None:
    table = Table(elected=False)
    partition = table.coordinator.partition_for("g")
    table.happen(Elected(partition, 5))
    table.happen(Elected(partition, 4))
    assert [(load.partition, load.epoch) for load in table.loads] == [(partition, 5)]
    table.happen(PartitionLoaded(partition, 4, []))
    assert error_of(table, "commit") == 14
    table.happen(PartitionLoaded(partition, 5, []))
    assert error_of(table, "commit") == 0
    table.resign(partition, 4)
    assert error_of(table, "commit") == 0
    assert [note.name for note in table.notes if note.name.startswith("stale-")] == [
        "stale-election-ignored",
        "stale-load-ignored",
        "stale-resignation-ignored",
    ]


def test_what_was_read_in_an_older_term_is_not_taken_in_when_a_newer_one_began_meanwhile() -> None:
    table = Table(elected=False)
    partition = table.coordinator.partition_for("g")
    table.happen(Elected(partition, 5))
    table.happen(Elected(partition, 6))
    table.happen(PartitionLoaded(partition, 5, []))
    assert error_of(table, "commit") == 14
    table.happen(PartitionLoaded(partition, 6, []))
    assert error_of(table, "commit") == 0


def test_a_partition_is_read_again_in_a_new_term_for_another_may_have_led_in_between() -> None:
    table = Table()
    first, second = table.rebalanced(2)
    parked = table.sync(second)
    partition = table.coordinator.partition_for("g")
    table.happen(Elected(partition, 3))
    assert table.answer(parked).error_code == 16
    assert table.heartbeat(first) == 0
    assert table.commit({("t", 0): 1}) == [14]
    (load,) = table.loads
    table.happen(PartitionLoaded(partition, load.epoch, []))
    assert table.heartbeat(first) == 25
    assert table.commit({("t", 0): 1}) == [0]
    assert table.written[-1].epoch == 3


def test_an_election_that_is_told_twice_is_one() -> None:
    table = Table(elected=False)
    partition = table.coordinator.partition_for("g")
    table.happen(Elected(partition, 1))
    table.happen(Elected(partition, 1))
    assert len(table.loads) == 1
    table.happen(PartitionLoaded(partition, 1, []))
    table.happen(Elected(partition, 1))
    assert error_of(table, "commit") == 0


def test_who_waits_is_told_when_the_broker_goes_down_and_everybody_after() -> None:
    table = Table()
    first, second = table.rebalanced(2)
    sync, join = table.sync(second), table.join("h")
    table.happen(ShutDown())
    assert (table.answer(sync).error_code, table.answer(join).error_code) == (15, 15)
    assert table.heartbeat(first) == 15
    assert table.list_groups().error_code == 15
    assert table.timers == {}


def test_a_request_of_another_api_is_a_bug_of_whoever_passed_it_on() -> None:
    with pytest.raises(InternalError, match="API 3"):
        Table().send(3, 0, None)


# --- configuration ---------------------------------------------------------------------------------------------------


def test_retention_in_minutes_does_not_overflow_in_milliseconds() -> None:
    config = read_group_coordinator_config({"offsets.retention.minutes": str(2**31 - 1)})
    assert config.offsets_retention_ms == (2**31 - 1) * 60_000


def test_kafka_s_keys_are_read_and_others_left_alone() -> None:
    config = read_group_coordinator_config({"group.max.size": " 7 ", "log.dirs": "/x"})
    assert config == GroupCoordinatorConfig(group_max_size=7)
    assert read_group_coordinator_config({}, CONFIG) == CONFIG


@pytest.mark.parametrize(
    "properties",
    [
        {"group.max.size": "many"},
        {"group.max.size": "0"},
        {"offsets.retention.minutes": str(2**31)},
        {"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "99"},
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_key(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"group\.|offsets\."):
        read_group_coordinator_config(properties)


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("group1", 40),
        ("console-consumer-12345", 6),
        ("消费者", 6),
        ("😀-emoji", 38),
        ("polygenelubricants", 0),
        ("", 0),
    ],
)
def test_a_group_lives_in_the_partition_that_java_computes(group: str, partition: int) -> None:
    assert partition_for(group, 50) == partition
