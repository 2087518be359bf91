"""The protocols of a member that is moved: how the private one divides, and how the next one is come to."""

from __future__ import annotations

import pytest

from bridge.client.assignors import RangeAssignor
from bridge.migration.dual.connector.migration_assignor import (
    MigrationAssignor,
    consumer_id_of_user_data,
    migration_protocol_name,
)
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from tests.coordinator.client_harness import Member, T
from zkconsumer.errors import InvalidNameError
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.assignments import validate_cooperative_assignment
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.partition_assignor import Assignment, Subscription
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_subscription
from zkconsumer.wire.schemas import JOIN_GROUP, OFFSET_COMMIT

PRIVATE = MigrationAssignor("m1", "g_host-1")
RANGE = RangeAssignor()
REBALANCE = 27
PARTITIONS = {"t": 4, "u": 3}


def wants(*owned: TopicPartition, topics: tuple[str, ...] = ("t", "u")) -> Subscription:
    return Subscription(topics=topics, owned_partitions=owned)


def parts(shares: dict[str, Assignment]) -> dict[str, tuple[TopicPartition, ...]]:
    return {name: share.partitions for name, share in shares.items()}


# --- dividing ---------------------------------------------------------------------------------------------------


def test_it_assigns_like_range_and_moves_owned_partitions_one_generation_later() -> None:
    empty = {"a": wants(), "b": wants()}
    shares = PRIVATE.assign(PARTITIONS, empty)
    assert parts(shares) == parts(RANGE.assign(PARTITIONS, empty))
    now = {name: wants(*share.partitions) for name, share in shares.items()} | {"c": wants()}
    first = PRIVATE.assign(PARTITIONS, now)
    validate_cooperative_assignment(PRIVATE.name, now, first)
    target = RANGE.assign(PARTITIONS, now)
    assert set(first["c"].partitions) < set(target["c"].partitions), "what is to move is nobody's for now"
    kept = {name: wants(*share.partitions) for name, share in first.items()}
    assert parts(PRIVATE.assign(PARTITIONS, kept)) == parts(target)


def test_a_partition_that_two_members_own_is_assigned_to_neither_until_they_agree() -> None:
    shares = PRIVATE.assign({"t": 1}, {"a": wants(T[0]), "b": wants(T[0])})
    assert all(not share.partitions for share in shares.values())


def test_every_assignment_prevents_kip_848_clients_from_converting_the_group() -> None:
    shares = PRIVATE.assign({"t": 1}, {"a": wants(), "b": wants()})
    assert {name: bool(share.user_data) for name, share in shares.items()} == {"a": True, "b": True}


def test_the_user_data_contain_the_consumer_id_of_the_old_group() -> None:
    told = PRIVATE.subscription_user_data(frozenset(["t"]))
    assert consumer_id_of_user_data(told) == "g_host-1"
    assert consumer_id_of_user_data(None) == ""
    assert migration_protocol_name("m1") == PRIVATE.name == "zkconsumer-m1"
    with pytest.raises(InvalidNameError):
        migration_protocol_name("m 1")


# --- from one protocol to the next ------------------------------------------------------------------------------


def member(auto_commit: bool = False) -> Member:
    """In a private generation with two partitions, then offering ``range`` alone."""
    one = Member(PRIVATE, kind=DowngradingConsumerCoordinator, auto_commit=auto_commit)
    one.join(T[:2])
    return one


def told(said: list[do.Command]) -> list[tuple[Callback, frozenset[TopicPartition]]]:
    return [(each.callback, each.partitions) for each in said if isinstance(each, do.Invoke)]


def stopped(said: list[do.Command]) -> list[frozenset[TopicPartition]]:
    return [frozenset(each.partitions) for each in said if isinstance(each, ownership.Drain)]


def offered(one: Member) -> list[str]:
    return [protocol.name for protocol in one.sent(JOIN_GROUP).protocols]


def test_another_list_of_protocols_is_sent_and_nothing_is_revoked() -> None:
    one = member()
    said = one.hear(ev.AssignorsOffered((PRIVATE, RANGE)))
    assert not stopped(said)
    assert offered(one) == ["zkconsumer-m1", "range"]
    assert one.sent(JOIN_GROUP).reason == "other assignors are offered"
    assert decode_subscription(one.sent(JOIN_GROUP).protocols[0].metadata).owned_partitions == tuple(T[:2])
    one.rejoin(T[:2])
    assert not stopped(one.said)


def test_a_join_that_is_not_answered_yet_ends_with_the_assignors_that_it_has() -> None:
    one = member()
    one.hear(ev.AssignorsOffered((PRIVATE, RANGE)))
    one.hear(ev.AssignorsOffered((RANGE,)))
    one.joined(2, protocol_name=PRIVATE.name)  # the JoinGroup has it
    one.synced(T[:2])
    one.returned()
    assert not [each for each in one.said if isinstance(each, do.Raise)]
    assert offered(one) == ["range"]
    assert one.sent(JOIN_GROUP).reason == "other assignors are offered"
    one.joined(3, protocol_name="range")
    one.synced(T[:2])
    one.returned()
    assert not one.has_open(JOIN_GROUP)


def test_partitions_that_stay_in_the_first_range_generation_continue() -> None:
    one = member()
    one.hear(ev.AssignorsOffered((RANGE,)))
    one.joined(2, protocol_name="range")
    said = one.synced(T[:3])
    assert (stopped(said), told(said)) == ([], [(Callback.ASSIGNED, frozenset([T[2]]))])


def test_partitions_that_others_have_already_are_dropped_and_not_committed() -> None:
    one = member(auto_commit=True)
    one.hear(ev.AssignorsOffered((RANGE,)))
    one.hear(ownership.PositionsCollected({T[0]: 1, T[1]: 1}))
    one.committed()
    one.joined(2, protocol_name="range")
    said = one.synced(T[:1])
    assert (stopped(said), told(said)) == ([frozenset([T[1]])], [(Callback.LOST, frozenset([T[1]]))])
    assert not one.has_open(OFFSET_COMMIT)
    one.returned()
    one.returned()
    assert not one.has_open(JOIN_GROUP), "nobody waits for it"


def test_after_that_everything_is_revoked_before_the_join() -> None:
    one = member()
    one.hear(ev.AssignorsOffered((RANGE,)))
    one.rejoin(T[:2])  # by range: the first that it offers
    assert not stopped(one.said)
    said = one.beat(REBALANCE)
    assert stopped(said) == [frozenset(T[:2])]
    assert told(said) == [(Callback.REVOKED, frozenset(T[:2]))]


def test_a_range_generation_that_ends_before_its_assignment_loses_the_kept_partitions() -> None:
    one = member()
    one.hear(ev.AssignorsOffered((PRIVATE, RANGE)))
    one.joined(2, protocol_name="range")
    said = one.synced(error=REBALANCE)
    assert stopped(said) == [frozenset(T[:2])]


def test_a_generation_of_the_migration_protocol_that_ends_so_loses_nothing() -> None:
    one = member()
    one.hear(ev.AssignorsOffered((PRIVATE, RANGE)))
    one.joined(2)
    assert not stopped(one.synced(error=REBALANCE))
    assert offered(one) == ["zkconsumer-m1", "range"]
