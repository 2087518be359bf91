"""What a member sends to ZooKeeper when its group changes, on a world in memory.

``tests/transcripts/a_change_*`` and ``kafka_a_change_*`` have the rules; here is the order on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, Stream, run_in_thread, take, wait_until
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.member.group_view import TopicSubscription
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import format_registration, registration_of
from zkconsumer.zk.requests import Children, DeleteOp, Multi, Request, SetOp

TOPIC, GROUP = "topic1", "group1"
RECORDS = 5
LATE_MS = 60_000
"""Longer than a test: neither the interval of automatic commits nor the debounce time ends in it."""

Change = Callable[[FakeEnvironment], None]


def another_member(world: FakeEnvironment, name: str = "z-other") -> None:
    """The registration of a member that takes one of the two partitions."""
    data = format_registration(registration_of(TopicSubscription("static", {TOPIC: 1}), "0"))
    world.zookeeper.ensure(paths.registration(GROUP, name), data)


def more_partitions(world: FakeEnvironment) -> None:
    world.create_topic(TOPIC, 3)


def reading(
    connect: MakeConnector, world: FakeEnvironment, debounce_ms: int = LATE_MS, **settings: Any
) -> tuple[ZookeeperConsumerConnector, Stream]:
    """A member that was handed all records and has committed none since its offset nodes exist."""
    world.create_topic(TOPIC, 2)
    connector = connect(
        group_id=GROUP,
        consumer_id="consumer1",
        auto_commit_interval_ms=LATE_MS,
        rebalance_debounce_ms=debounce_ms,
        **settings,
    )
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [b"first"])
    take(stream, 2)
    connector.commit_offsets()
    for partition in range(2):
        world.cluster.append(TOPIC, partition, [b"record"] * RECORDS)
    take(stream, 2 * RECORDS)
    return connector, stream


def recorded(world: FakeEnvironment, connector: ZookeeperConsumerConnector) -> list[Request]:
    """Everything that the member sends from now on."""
    store: Any = world.store_of(connector)
    sent: list[Request] = []
    submit = store.submit

    def note_and_submit(session_id: int | None, requests: Sequence[Request], done: Any) -> None:
        sent.extend(requests)
        submit(session_id, requests, done)

    store.submit = note_and_submit
    return sent


def written(sent: Sequence[Request]) -> list[int]:
    """Where in the order offsets are written."""
    offsets = paths.offsets(GROUP)
    return [
        at
        for at, request in enumerate(sent)
        if isinstance(request, Multi)
        and any(isinstance(op, SetOp) and op.path.startswith(offsets) for op in request.ops)
    ]


def released(sent: Sequence[Request]) -> list[int]:
    """Where in the order owner nodes are deleted."""
    return [
        at
        for at, request in enumerate(sent)
        if isinstance(request, Multi) and any(isinstance(op, DeleteOp) for op in request.ops)
    ]


def reads(sent: Sequence[Request]) -> list[int]:
    """Where in the order the members of the group are listed."""
    return [at for at, request in enumerate(sent) if isinstance(request, Children) and request.path == paths.ids(GROUP)]


@pytest.mark.parametrize("change", [another_member, more_partitions])
@pytest.mark.parametrize("storage", [{}, {"offsets_storage": "kafka"}], ids=["zookeeper", "dual"])
def test_one_write_commits_what_is_consumed_before_the_group_is_read(
    change: Change, storage: dict[str, Any], world: FakeEnvironment, connect: MakeConnector
) -> None:
    connector, stream = reading(connect, world, **storage)
    sent = recorded(world, connector)
    coming_back = run_in_thread(lambda: stream.iterator().has_next()) if change is another_member else None
    change(world)
    wait_until(lambda: reads(sent), "the group is read")
    [first, *_] = written(sent)
    assert first < reads(sent)[0]
    consumed = 2 * (1 + RECORDS) - 1
    wait_until(lambda: sum(world.offsets(GROUP, TOPIC).values()) >= consumed, "all but the record in hand is committed")
    if coming_back is not None:
        wait_until(lambda: released(sent), "the other partition is released")
        world.cluster.append(TOPIC, 0, [b"last"])
        assert coming_back()


def test_a_member_that_has_consumed_nothing_new_writes_nothing(world: FakeEnvironment, connect: MakeConnector) -> None:
    connector, _ = reading(connect, world)
    connector.commit_offsets()
    sent = recorded(world, connector)
    more_partitions(world)
    wait_until(lambda: reads(sent), "the group is read")
    assert written(sent) == []


def test_without_automatic_commits_nothing_is_committed(world: FakeEnvironment, connect: MakeConnector) -> None:
    connector, _ = reading(connect, world, auto_commit_enable=False)
    before = world.offsets(GROUP, TOPIC)
    sent = recorded(world, connector)
    another_member(world)
    wait_until(lambda: released(sent), "the other partition is released")
    assert written(sent) == []
    assert world.offsets(GROUP, TOPIC) == before


def test_many_changes_cost_no_more_commits_than_readings(world: FakeEnvironment, connect: MakeConnector) -> None:
    connector, stream = reading(connect, world, debounce_ms=50)
    sent = recorded(world, connector)
    for number in range(20):
        world.cluster.append(TOPIC, 0, [b"record"])
        take(stream, 1)
        another_member(world, f"z-{number}")
    wait_until(lambda: released(sent), "the other partition is released")
    assert len(written(sent)) - len(released(sent)) <= len(reads(sent)) + 1, "the last one's reading may come yet"
