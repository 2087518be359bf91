"""A user who searches his logs for a text of Kafka finds it: each statement of Kafka on the group path is logged by us.

The tables are ``tests/data/kafka-log-statements``.  The scenarios are one member, or one coordinator, on a table, and
whole members on the embedded broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import pytest

from bridge import CoordinatorConsumerConnector
from bridge.coordinator import group_log_lines
from bridge.coordinator.commands import LogGroupEvent
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.events import Elected, Resigned, TopicsDeleted
from bridge.testing.embedded_broker import EmbeddedBroker
from tests.coordinator.client_harness import CooperativeDealer, Dealer, Member, T, every
from tests.coordinator.server_harness import CONFIG, DELAY_MS, REBALANCE_MS, SESSION_MS, Table
from tests.coordinator.test_connector_assignment_executor import World
from tests.coordinator.test_connector_embedded import config_of, fill, read_until, wait_until
from tests.kafka_log_statements import Statement, read_table
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.member_log_lines import level_of, text_of
from zkconsumer.kafka.group.partition_assignor import Assignment
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, OFFSET_FETCH
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupResponse, LeavingMember
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchPartitionResponse,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)

Line: TypeAlias = tuple[str, str]

INCONSISTENT, INVALID_SESSION, UNSUPPORTED, GROUP_AUTH, TOPIC_AUTH = 23, 26, 35, 30, 29
LOADING, NOT_AVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE = 14, 15, 16, 22, 25, 27
MEMBER_ID_REQUIRED, FENCED, UNSTABLE, INVALID_OFFSET_SIZE, UNEXPECTED = 79, 82, 88, 28, 9
AUTO_COMMIT_MS = 5_000


# --- the member -----------------------------------------------------------------------------------------------------


def joining(*assignors: Any, **settings: Any) -> Member:
    """A member that has sent JoinGroup."""
    member = Member(*assignors, **settings)
    member.subscribe()
    member.metadata()
    member.find()
    return member


def stable(*assignors: Any, **settings: Any) -> Member:
    member = Member(*assignors, **settings)
    member.join(T[:2])
    return member


def a_rebalance_with_this_member_as_the_leader() -> Iterator[Member]:
    member = stable()
    member.beat(REBALANCE)
    member.returned()
    member.joined(2, leader="me")
    member.synced(T[:1])
    member.returned()
    yield member
    for skipped in (False, True):
        member = joining(Dealer(assign=lambda _, members: {name: Assignment() for name in members}))
        member.joined(1, leader="me", skip_assignment=skipped)
        yield member


def a_cooperative_rebalance() -> Iterator[Member]:
    member = stable(CooperativeDealer())
    member.beat(REBALANCE)
    member.rejoin(T[:1])
    yield member


def errors_of_join_group() -> Iterator[Member]:
    for code in (
        LOADING, UNKNOWN_MEMBER, NOT_COORDINATOR, INVALID_SESSION, UNSUPPORTED, MEMBER_ID_REQUIRED, REBALANCE, FENCED,
        UNEXPECTED,
    ):  # fmt: skip
        member = joining(group_instance_id="one")
        member.join_refused(code, "given")
        yield member
    member = joining()
    member.joined(protocol_type="connect")
    yield member


def errors_of_sync_group() -> Iterator[Member]:
    for code in (REBALANCE, FENCED, UNKNOWN_MEMBER, NOT_COORDINATOR):
        member = joining(group_instance_id="one")
        member.joined()
        member.synced(error=code)
        yield member
    for fields in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        member = joining()
        member.joined()
        member.synced(T[:1], **fields)
        yield member
    member = joining()
    member.joined()
    member.beat(UNKNOWN_MEMBER)
    member.synced(T[:1])
    yield member


def a_coordinator_that_is_not_found_or_lost() -> Iterator[Member]:
    for code in (NOT_AVAILABLE, GROUP_AUTH):
        member = Member()
        member.subscribe()
        member.metadata()
        member.find(error=code)
        yield member
    member = Member()
    member.subscribe()
    member.metadata()
    member.fail(FIND_COORDINATOR)
    yield member
    member = stable()
    member.disconnect()
    yield member


def errors_of_a_heartbeat() -> Iterator[Member]:
    for code in (NOT_COORDINATOR, UNKNOWN_MEMBER, ILLEGAL_GENERATION, FENCED, GROUP_AUTH, UNEXPECTED):
        member = stable(group_instance_id="one")
        member.beat(code)
        yield member
    member = stable()
    member.wait(3_000)
    member.fail(HEARTBEAT, error=AuthenticationException("refused"))
    yield member
    member = joining()
    member.joined()
    member.beat(REBALANCE)
    yield member
    member = stable()
    member.wait(3_000)
    member.hear(ev.RejoinAsked("the program wants it"))
    member.returned()
    assert member.has_open(JOIN_GROUP)
    member.answer(HEARTBEAT, HeartbeatResponse(error_code=UNKNOWN_MEMBER))
    yield member


def a_member_that_leaves() -> Iterator[Member]:
    for answer in (LeaveGroupResponse(), LeaveGroupResponse(error_code=UNKNOWN_MEMBER)):
        member = stable()
        member.hear(ev.Closed())
        member.returned()
        member.left(answer)
        yield member
    member = stable()
    member.hear(ev.Closed(timeout_ms=1_000))
    member.returned()
    member.wait(1_000)
    yield member
    member = stable(max_poll_interval_ms=4_000)
    member.poll(0, "g_host-0")
    member.wait(5_000)
    yield member


def automatic_commits() -> Iterator[Member]:
    for code in (LOADING, INVALID_OFFSET_SIZE):
        member = stable(auto_commit=True)
        member.wait(AUTO_COMMIT_MS)
        member.hear(ownership.PositionsCollected({T[0]: 5}))
        member.committed(code)
        yield member
    member = stable(auto_commit=True)
    member.beat(REBALANCE)
    member.hear(ownership.PositionsCollected({T[0]: 5}))
    member.committed(GROUP_AUTH)
    yield member


def commits_of_the_program() -> Iterator[Member]:
    member = joining()
    member.commit()
    yield member
    for code in (LOADING, TOPIC_AUTH, ILLEGAL_GENERATION, FENCED):
        member = stable(group_instance_id="one")
        member.commit()
        member.committed(code)
        yield member


def fetched_offsets(*rows: OffsetFetchPartitionResponse, error: int = 0) -> Member:
    member = stable()
    member.hear(ev.FetchAsked(1, frozenset(T[:1])))
    topics = [OffsetFetchTopicResponse(name="t", partitions=list(rows))]
    member.answer(OFFSET_FETCH, OffsetFetchResponse(topics=topics, error_code=error))
    return member


def committed_offsets() -> Iterator[Member]:
    yield fetched_offsets(error=LOADING)
    yield fetched_offsets(OffsetFetchPartitionResponse(partition_index=0, committed_offset=-1, metadata=""))
    row = OffsetFetchPartitionResponse(partition_index=0, committed_offset=-1, metadata="", error_code=UNSTABLE)
    yield fetched_offsets(row)


MEMBER_SCENARIOS: list[Callable[[], Iterator[Member]]] = [
    a_rebalance_with_this_member_as_the_leader, a_cooperative_rebalance, errors_of_join_group, errors_of_sync_group,
    a_coordinator_that_is_not_found_or_lost, errors_of_a_heartbeat, a_member_that_leaves, automatic_commits,
    commits_of_the_program, committed_offsets,
]  # fmt: skip


@cache
def member_lines() -> frozenset[Line]:
    """All lines of the scenarios."""
    events = [
        event
        for scenario in MEMBER_SCENARIOS
        for member in scenario()
        for event in every(member.said, do.LogMemberEvent)
    ]
    return frozenset((level_of(event), text_of(event)) for event in events)


BY_THE_STREAMS = {"position-from-committed-offset", "committed-offset-ignored"}
"""Events that the executor logs, and not the machine."""

CONSUMER, COORDINATOR = read_table("consumer"), read_table("coordinator")


def name_of(statement: Statement) -> str:
    return f"{statement.event}-{statement.method.rpartition('.')[2]}-{statement.text[:30]}"


@pytest.mark.parametrize(
    "statement", [one for one in CONSUMER if one.is_logged and one.event not in BY_THE_STREAMS], ids=name_of
)
def test_a_member_logs_this_statement_of_kafka(statement: Statement) -> None:
    mine = sorted(line for line in member_lines() if line[1].startswith(statement.event))
    assert any(statement.matches(*line) for line in mine), mine


def test_streams_log_where_a_partition_begins(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    world.own({0: 5, 1: None})
    world.handing._log_positions({TopicPartition("t", 7): ev.Offset(3, 2, "m")}, {})
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    for statement in CONSUMER:
        if statement.event in BY_THE_STREAMS:
            assert any(statement.matches(*line) for line in lines), statement


# --- the coordinator ------------------------------------------------------------------------------------------------


def joins_of_each_kind() -> Iterator[Table]:
    table = Table()
    pending = table.join(version=5)
    table.join(member_id=table.answer(pending).member_id, version=5)
    table.move(2 * DELAY_MS)
    yield table
    table = Table()
    old, other = table.join(instance_id="one"), table.join()
    table.move(3 * DELAY_MS)
    members = [table.joined(old, "one"), table.joined(other)]
    table.sync_all(members)
    table.join(instance_id="one")
    table.heartbeat(members[0])
    yield table


def a_static_member_whose_new_id_cannot_be_written() -> Iterator[Table]:
    table = Table()
    (token,) = [table.join(instance_id="one")]
    table.move(2 * DELAY_MS)
    table.sync_all([table.joined(token, "one")])
    table.holds_appends = True
    table.join(instance_id="one")
    table.settle(NOT_ENOUGH_REPLICAS)
    yield table


NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, LEADER_NOT_AVAILABLE = 19, 10, 18, 5


def assignments_that_are_missing_or_not_written() -> Iterator[Table]:
    table = Table()
    first, _ = table.rebalanced(2)
    table.sync(first, {first.member_id: b"x"})
    yield table
    for code in (NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, LEADER_NOT_AVAILABLE):
        table = Table()
        (member,) = table.rebalanced()
        table.holds_appends = True
        table.sync(member, {member.member_id: b"x"})
        table.settle(code)
        yield table


def members_that_leave_or_are_lost() -> Iterator[Table]:
    table = Table()
    (member,) = table.stable()
    table.leave_one(member.member_id)
    yield table
    table = Table()
    (member,) = table.stable()
    table.move(2 * SESSION_MS)
    yield table
    table = Table()
    (member,) = table.stable()
    table.holds_appends = True
    table.leave_one(member.member_id)
    table.settle(NOT_ENOUGH_REPLICAS)
    yield table
    table = Table()
    pending = table.answer(table.join(version=5)).member_id
    table.leave(LeavingMember(member_id=pending))
    table.join(version=5)
    table.move(2 * SESSION_MS)
    yield table


def members_that_do_not_join_or_sync_in_time() -> Iterator[Table]:
    table = Table()
    _, second = table.stable(2, session_ms=60_000)
    table.join(member_id=second.member_id, session_ms=60_000, protocols=(("range", b"other"),))
    table.move(2 * REBALANCE_MS)
    yield table
    table = Table()
    tokens = [table.join(instance_id=name, session_ms=60_000) for name in ("one", "two")]
    table.move(3 * DELAY_MS)
    members = [table.joined(token, name) for token, name in zip(tokens, ("one", "two"), strict=True)]
    table.sync_all(members)
    third = table.join(session_ms=60_000)
    table.leave_one(table.coordinator.manager.current_groups()[0].leader_id or "")
    assert third
    table.move(5 * REBALANCE_MS)
    yield table
    table = Table()
    table.rebalanced(2, session_ms=60_000)
    table.move(2 * REBALANCE_MS)
    yield table


def a_group_of_static_members_that_do_not_join_again() -> Iterator[Table]:
    table = Table()
    token = table.join(instance_id="one", session_ms=60_000)
    table.move(2 * DELAY_MS)
    static = table.joined(token, "one")
    table.sync_all([static])
    guest = table.join(session_ms=60_000)
    group = table.coordinator.manager.current_groups()[0]
    dynamic = next(name for name in group.members if name != static.member_id)
    table.leave_one(dynamic)
    assert guest
    table.move(3 * REBALANCE_MS)
    yield table


def elections_and_the_log() -> Iterator[Table]:
    table = Table()
    (member,) = table.stable()
    table.commit({("t", 0): 5}, member)
    after = table.restart()
    partition = after.coordinator.partition_for("g")
    after.happen(Elected(partition, 1))
    after.happen(Resigned(partition, 1))
    after.happen(Elected(partition, 3))
    after.happen(Elected(partition, 3))
    yield after
    again = table.restart()
    again.resign(partition, 4)
    yield again


def offsets_that_end() -> Iterator[Table]:
    config = GroupCoordinatorConfig(
        offsets_topic_partitions=2, offsets_retention_minutes=1, offsets_retention_check_interval_ms=500
    )
    table = Table(config=config)
    table.commit({("t", 0): 5, ("u", 0): 6})
    table.happen(TopicsDeleted(frozenset({"u"})))
    table.move(120_000)
    yield table
    table = Table(config=CONFIG)
    table.commit({("t", 0): 5, ("t", 1): 5})
    table.delete_offsets([("t", 1)])
    table.delete("g")
    yield table
    table = Table(config=CONFIG)
    table.holds_appends = True
    table.send_commit({("t", 0): 5})
    table.settle(NOT_ENOUGH_REPLICAS)
    yield table


TABLE_SCENARIOS: list[Callable[[], Iterator[Table]]] = [
    joins_of_each_kind, a_static_member_whose_new_id_cannot_be_written, assignments_that_are_missing_or_not_written,
    members_that_leave_or_are_lost, members_that_do_not_join_or_sync_in_time,
    a_group_of_static_members_that_do_not_join_again, elections_and_the_log, offsets_that_end,
]  # fmt: skip


@cache
def coordinator_lines() -> frozenset[Line]:
    events = [event for scenario in TABLE_SCENARIOS for table in scenario() for event in table.notes]
    return frozenset((group_log_lines.level_of(event), group_log_lines.text_of(event)) for event in events)


@pytest.mark.parametrize("statement", [one for one in COORDINATOR if one.is_logged], ids=name_of)
def test_the_coordinator_logs_this_statement_of_kafka(statement: Statement) -> None:
    mine = sorted(line for line in coordinator_lines() if line[1].startswith(statement.event))
    assert any(statement.matches(*line) for line in mine), mine


# --- both, as they are --------------------------------------------------------------------------------------------


def test_the_lines_of_both_sides_are_in_the_log_of_a_program(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    quick = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 100, "retry.backoff.ms": 20}
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "1"}) as broker:
        broker.create_topic("t", 4)
        fill(broker)
        with CoordinatorConsumerConnector(config_of(broker), quick) as first:
            [stream] = first.create_message_streams({"t": 1})["t"]
            read_until(stream, 20)
            with CoordinatorConsumerConnector(config_of(broker), quick) as second:
                second.create_message_streams({"t": 1})
                wait_until(lambda: len(first.assignment) == len(second.assignment) == 2, "two each")
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    seen = {
        f"{statement.method}: {statement.text}"
        for statement in [*CONSUMER, *COORDINATOR]
        if statement.is_logged and any(statement.matches(*line) for line in lines)
    }
    found = {text.partition(": ")[0] for text in seen}
    assert found >= {
        "AbstractCoordinator.initiateJoinGroup", "AbstractCoordinator.JoinGroupResponseHandler",
        "AbstractCoordinator.SyncGroupResponseHandler", "AbstractCoordinator.FindCoordinatorResponseHandler",
        "AbstractCoordinator.maybeLeaveGroup", "ConsumerCoordinator.performAssignment",
        "ConsumerCoordinator.invokePartitionsAssigned", "ConsumerCoordinator.invokePartitionsRevoked",
        "ConsumerCoordinator.refreshCommittedOffsetsIfNeeded", "GroupCoordinator.prepareRebalance",
        "GroupCoordinator.doNewMemberJoinGroup", "GroupCoordinator.doSyncGroup", "GroupCoordinator.onCompleteJoin",
        "GroupCoordinator.handleLeaveGroup",
    }  # fmt: skip


def test_a_text_of_the_other_side_cannot_write_a_line_of_its_own() -> None:
    event = do.LogMemberEvent("joined", (("member", "a\nb"),), "Successfully joined\nERROR member-failed")
    assert text_of(event) == "joined: Successfully joined\\nERROR member-failed member='a\\nb'"
    told = LogGroupEvent("member-left", (("member", "a\nb"),), "Member a\nb has left")
    assert group_log_lines.text_of(told) == "member-left: Member a\\nb has left member=a\\nb"
