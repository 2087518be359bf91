"""Several nodes in one process: who leads what, and what a group meets when its coordinator moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.broker.broker_cluster import BrokerCluster
from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient
from zkconsumer.errors import UsageError

FEW = {"offsets.topic.num.partitions": "3"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=3, properties=FEW) as started:
        yield started


@pytest.fixture
def talks(broker: EmbeddedBroker) -> Iterator[dict[int, RawClient]]:
    made = {address.broker_id: RawClient(address) for address in broker.addresses()}
    yield made
    for talk in made.values():
        talk.connection.close()


def coordinator_of(talk: RawClient, group: str) -> int:
    while (answer := talk.find_coordinator(group)).error_code == 15:
        pass
    assert answer.error_code == 0
    return int(answer.node_id)


def test_nodes_share_topics_and_each_answers_for_what_it_leads(
    broker: EmbeddedBroker, talks: dict[int, RawClient]
) -> None:
    broker.create_topic("t", 3)
    for talk in talks.values():
        answer = talk.metadata("t")
        assert [(b.node_id, b.port) for b in answer.brokers] == [(a.broker_id, a.port) for a in broker.addresses()]
        leaders = {p.partition_index: p.leader_id for p in answer.topics[0].partitions}
        assert sorted(leaders.values()) == [0, 1, 2]
    for partition, leader in leaders.items():
        for node, talk in talks.items():
            expected = 0 if node == leader else 6
            assert talk.produce("t", partition, b"v").error_code == expected
            assert talk.fetch("t", partition, 0).error_code == expected
    broker.move_leader("t", 0, (leaders[0] + 1) % 3)
    assert talks[leaders[0]].produce("t", 0, b"v").error_code == 6
    assert talks[(leaders[0] + 1) % 3].values("t", 0) == [b"v"]
    row = talks[0].metadata("t").topics[0].partitions[0]
    assert (row.leader_id, row.leader_epoch) == ((leaders[0] + 1) % 3, 1)


def test_groups_are_spread_by_their_hash(broker: EmbeddedBroker, talks: dict[int, RawClient]) -> None:
    groups = [f"group-{n}" for n in range(12)]
    found = {group: coordinator_of(talks[0], group) for group in groups}
    assert set(found.values()) == {0, 1, 2}
    for group, node in found.items():
        for other, talk in talks.items():
            assert coordinator_of(talk, group) == node
            assert talk.heartbeat(group, 1, "m") == (25 if other == node else 16)
        assert broker.coordinator(group) == node


def join(talk: RawClient, group: str) -> tuple[int, str]:
    while (member := talk.join(group)).error_code == 14:
        pass
    assert member.error_code == 0
    synced = talk.sync(group, member.generation_id, member.member_id, {member.member_id: b"share"})
    assert synced.error_code == 0
    return member.generation_id, member.member_id


def test_a_coordinator_that_moves_is_14_then_there_and_the_old_one_is_16(
    broker: EmbeddedBroker, talks: dict[int, RawClient]
) -> None:
    broker.create_topic("t")
    old = coordinator_of(talks[0], "g")
    member = join(talks[old], "g")
    assert talks[old].commit("g", "t", 0, 5, *member) == 0
    new = (old + 1) % 3
    broker.move_coordinator("g", new, loading_ms=300)
    assert coordinator_of(talks[0], "g") == new
    assert talks[old].heartbeat("g", *member) == 16
    assert talks[old].commit("g", "t", 0, 6, *member) == 16
    assert talks[new].commit("g", "t", 0, 6, *member) == 14
    assert talks[new].committed("g", "t", 0) == (-1, 14)
    assert talks[new].sync("g", *member, {}).error_code == 27, "SyncGroup is told to join again (3.6)"
    while (found := talks[new].committed("g", "t", 0)) == (-1, 14):
        pass
    assert found == (5, 0)
    assert talks[new].heartbeat("g", *member) == 0, "the member did not have to join again"
    assert talks[new].commit("g", "t", 0, 6, *member) == 0
    broker.move_coordinator("g", old)
    while (found := talks[old].committed("g", "t", 0)) == (-1, 14):
        pass
    assert found == (6, 0), "what the new one wrote is there when it moves back"


def test_while_nobody_leads_no_coordinator_is_found(broker: EmbeddedBroker, talks: dict[int, RawClient]) -> None:
    old = coordinator_of(talks[0], "g")
    broker.move_coordinator("g", None)
    assert talks[0].find_coordinator("g").error_code == 15
    assert broker.coordinator("g") is None
    assert talks[old].heartbeat("g", 1, "m") == 16
    broker.move_coordinator("g", old)
    assert coordinator_of(talks[0], "g") == old


def test_a_member_that_waits_in_a_join_is_told_when_its_coordinator_moves(
    broker: EmbeddedBroker, talks: dict[int, RawClient]
) -> None:
    old = coordinator_of(talks[0], "g")
    join(talks[old], "g")
    from zkconsumer.wire.schemas import JOIN_GROUP
    from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest

    with RawClient(broker.addresses()[old]) as second:
        protocols = [JoinGroupProtocol(name="range", metadata=bytes.fromhex("00000000000000000000"))]
        body: Any = JoinGroupRequest(
            group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, protocol_type="consumer",
            protocols=protocols,
        )  # fmt: skip
        pending = second.connection.send(JOIN_GROUP, 2, body, 10_000)
        assert not second.connection.has_response(100), "it waits for the first member"
        broker.move_coordinator("g", (old + 1) % 3)
        assert second.connection.receive(pending, 10_000).error_code == 16


def test_what_cannot_be_moved_is_said(broker: EmbeddedBroker) -> None:
    with pytest.raises(UsageError, match="there is no node 7; there are 0, 1, 2"):
        broker.move_coordinator("g", 7)
    with pytest.raises(UsageError, match="has 3 partitions, and none is 9"):
        broker.move_coordinator(9, 0)
    with pytest.raises(UsageError, match="no partition t/0"):
        broker.move_leader("t", 0, 0)


def test_who_leads_is_remembered_and_a_node_that_is_gone_leads_nothing(tmp_path: Path) -> None:
    with EmbeddedBroker(nodes=3, data_dir=tmp_path / "data", properties=FEW) as broker:
        broker.create_topic("t", 3)
        broker.move_leader("t", 0, 2)
        with RawClient(broker.addresses()[0]) as talk:
            before = {p.partition_index: p for p in talk.metadata("t").topics[0].partitions}
    with EmbeddedBroker(nodes=3, data_dir=tmp_path / "data", properties=FEW) as broker:
        with RawClient(broker.addresses()[0]) as talk:
            after = {p.partition_index: p for p in talk.metadata("t").topics[0].partitions}
        assert after == before
    with EmbeddedBroker(nodes=2, data_dir=tmp_path / "data", properties=FEW) as broker:
        with RawClient(broker.addresses()[0]) as talk:
            rows = talk.metadata("t").topics[0].partitions
        assert {row.leader_id for row in rows} <= {0, 1}
        assert rows[0].leader_epoch == before[0].leader_epoch + 1


def test_a_node_that_is_stopped_is_not_named_and_leads_nothing_until_it_is_back(
    broker: EmbeddedBroker, talks: dict[int, RawClient]
) -> None:
    broker.create_topic("stopped", 3)
    leaders = {p.partition_index: p.leader_id for p in talks[0].metadata("stopped").topics[0].partitions}
    broker.run_on_broker_thread(lambda cluster: cluster.stopped_nodes.add(2))
    told = talks[0].metadata("stopped")
    assert [row.node_id for row in told.brokers] == [0, 1]
    for row in told.topics[0].partitions:
        is_away = leaders[row.partition_index] == 2
        assert (row.leader_id, row.error_code) == ((-1, 5) if is_away else (leaders[row.partition_index], 0))
        assert (row.isr_nodes, row.offline_replicas) == (([], [2]) if is_away else (row.replica_nodes, []))
    broker.run_on_broker_thread(lambda cluster: cluster.stopped_nodes.clear())
    again = talks[0].metadata("stopped").topics[0].partitions
    assert {p.partition_index: p.leader_id for p in again} == leaders


def test_partitions_that_were_added_are_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 1)

        def add(cluster: BrokerCluster) -> None:
            topic = cluster.topics.get("t")
            assert topic is not None
            cluster.add_partitions(topic, [(0,), (0,)])

        broker.run_on_broker_thread(add)
        broker.append("t", 2, [b"a"])
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        assert [broker.log_end("t", index) for index in range(3)] == [0, 0, 1]
