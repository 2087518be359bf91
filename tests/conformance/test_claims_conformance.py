"""Claims of a Spark query: the same cases on the fake ZooKeeper and on real servers."""

from __future__ import annotations

import pytest

from bridge.spark.claims import OnRewind
from bridge.spark.claims.claim_procedure import MIGRATION_STARTED
from bridge.spark.group_membership import NO_OFFSET, ClaimedRange, ClaimRefused, GroupOffset
from tests.conformance.test_zk_conformance import World, servers, world
from tests.spark_claim_sessions import GROUP, QUERY, TOPIC, SessionOf, epochs, run_claim, run_stands
from zkconsumer.errors import GroupRewound, QueryAlreadyRunning, ZkNotAuthorized
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Delete, Get, GetAcl, Request, SetData, ZnodeData
from zkconsumer.zk.zk_security import SECURE_ACL, DigestLogin

__all__ = ["servers", "world"]

P0, P1, P2 = (TopicPartition(TOPIC, number) for number in range(3))
IDS = [Create(path) for path in (*paths.parents(paths.ids(GROUP)), paths.ids(GROUP), paths.owners(GROUP))]


def group_of(session: SessionOf, **offsets: int) -> None:
    """The group's nodes, and offsets of the partitions p0, p1, p2."""
    topic = paths.offsets_of_topic(GROUP, TOPIC)
    parents = paths.owners_of_topic(GROUP, TOPIC), paths.offsets(GROUP), topic
    made: list[Request] = [*IDS, *map(Create, parents)]
    made += [Create(f"{topic}/{name[1:]}", b"%d" % offset) for name, offset in offsets.items()]
    session.ask(made, None)


@pytest.fixture
def query(world: World) -> SessionOf:
    session = SessionOf(world.store())
    group_of(session, p0=100, p1=100)
    return session


@pytest.fixture
def scala(world: World) -> SessionOf:
    return SessionOf(world.store())


def offset(session: SessionOf, tp: TopicPartition = P0) -> int | None:
    [node] = session.ask([Get(paths.offset(GROUP, tp))], None)
    return int(node.data) if isinstance(node, ZnodeData) else None


def write(session: SessionOf, tp: TopicPartition, value: int) -> None:
    session.ask([SetData(paths.offset(GROUP, tp), b"%d" % value)], None)


def test_a_batch_claims_and_commits_and_gets_the_same_answer_when_it_is_repeated(query: SessionOf) -> None:
    query.claim(P0, P1, P2)
    report = run_claim(query, 0, {P0: (100, 150), P1: (90, 130), P2: (0, 10)})
    assert report.result() == {P0: ClaimedRange(100, 150), P1: ClaimedRange(100, 130), P2: ClaimedRange(0, 10)}
    assert {tp: stored.offset for tp, stored in report.stored.items()} == {P0: 150, P1: 130, P2: 10}
    assert [offset(query, tp) for tp in (P0, P1, P2)] == [150, 130, 10]
    again = run_claim(query, 0, {P0: (100, 150), P1: (90, 130), P2: (0, 10)})
    assert (again.result(), again.stored) == (report.result(), {})
    assert run_stands(query, P0, P1).result() == {P0: GroupOffset(150, 150), P1: GroupOffset(130, 130)}
    assert run_claim(query, 1, {P0: (150, 160)}).result() == {P0: ClaimedRange(150, 160)}


def test_a_replay_finds_its_range_when_another_owns_the_partition_and_another_batch_gets_nothing(
    query: SessionOf, scala: SessionOf
) -> None:
    query.claim(P0)
    run_claim(query, 0, {P0: (100, 150)})
    query.ask([Delete(paths.owner(GROUP, P0))], None)
    scala.ask([Create(paths.owner(GROUP, P0), b"g1_scala-0", ephemeral=True)], None)
    assert run_claim(query, 0, {P0: (100, 150)}, held={P0: 1}).result() == {P0: ClaimedRange(100, 150)}
    assert run_claim(query, 1, {P0: (150, 160)}, held={P0: 1}).result() == {
        P0: ClaimRefused("the partition is owned by g1_scala-0")
    }
    assert offset(query) == 150
    scala.ask([Delete(paths.owner(GROUP, P0))], None)
    query.claim(P0)
    assert isinstance(run_claim(query, 1, {P0: (150, 160)}).result()[P0], ClaimRefused), "it was told so before"
    assert run_claim(query, 2, {P0: (150, 160)}).result() == {P0: ClaimedRange(150, 160)}


def test_an_owner_node_of_another_session_of_ours_is_not_ours(query: SessionOf, scala: SessionOf) -> None:
    scala.claim(P0)
    held = epochs(scala, [P0])
    assert isinstance(run_claim(query, 0, {P0: (100, 150)}, held=held).result()[P0], ClaimRefused)
    assert offset(query) == 100


def test_what_a_scala_consumer_reads_and_writes_late(query: SessionOf, scala: SessionOf) -> None:
    query.claim(P0, P1)
    run_claim(query, 0, dict.fromkeys((P0, P1), (100, 150)))
    write(scala, P0, 40)
    write(scala, P1, 155)
    with pytest.raises(GroupRewound, match="has the offset 40"):
        run_claim(query, 1, dict.fromkeys((P0, P1), (150, 160)), OnRewind.FAIL).result()
    report = run_claim(query, 1, dict.fromkeys((P0, P1), (150, 160)))
    assert (report.result(), report.rewound) == (
        {P0: ClaimedRange(150, 160), P1: ClaimedRange(155, 160)},
        {P0: (40, 150)},
    )
    write(scala, P0, 40)
    assert run_stands(query, P0).result() == {P0: GroupOffset(40, 160)}
    refused = run_claim(query, 2, {P0: (160, 170)}, OnRewind.FOLLOW).result()[P0]
    assert refused == ClaimRefused("the group's offset is 40, before the range: the next batch begins there")
    assert run_claim(query, 3, {P0: (40, 60)}, OnRewind.FOLLOW).result() == {P0: ClaimedRange(40, 60)}
    assert run_stands(query, P0, P2).result() == {P0: GroupOffset(60, 60), P2: GroupOffset(NO_OFFSET, None)}


def test_of_two_runs_of_one_query_the_later_one_claims(query: SessionOf, scala: SessionOf) -> None:
    query.claim(P0)
    copy = scala
    copy.claim(P1)
    assert run_claim(query, 0, {P0: (100, 150)}, run="a").result() == {P0: ClaimedRange(100, 150)}
    assert run_claim(copy, 1, {P1: (100, 150)}, run="b").result() == {P1: ClaimedRange(100, 150)}
    with pytest.raises(QueryAlreadyRunning, match="the later run continues"):
        run_claim(query, 1, {P0: (150, 160)}, run="a").result()
    assert offset(query) == 150
    assert run_claim(copy, 2, {P1: (150, 160)}, run="b").result() == {P1: ClaimedRange(150, 160)}
    assert run_claim(query, 1, {P0: (150, 160)}, run="started again").result() == {P0: ClaimedRange(150, 160)}


def test_a_group_that_is_fenced_in_between(query: SessionOf) -> None:
    query.claim(P0, P1)
    query.ask([Create("/zkconsumer"), Create("/zkconsumer/groups"), Create(paths.control(GROUP), b"{}")], None)
    query.ask([SetData(paths.control(GROUP), b"{ }")], None)
    report = run_claim(query, 0, {P0: (100, 150)}, control_version=0)
    assert report.result() == {P0: ClaimRefused(MIGRATION_STARTED)}
    assert run_claim(query, 1, {P0: (100, 150)}, control_version=1).result() == {P0: ClaimedRange(100, 150)}


def test_a_claim_after_the_connection_came_back(world: World, query: SessionOf) -> None:
    query.claim(P0)
    run_claim(query, 0, {P0: (100, 150)})
    held = epochs(query, [P0])
    world.bounce(query.store)
    assert run_claim(query, 1, {P0: (150, 160)}, held=held).result() == {P0: ClaimedRange(150, 160)}


def test_a_new_session_finds_the_claims_of_the_old_one_and_continues(world: World, query: SessionOf) -> None:
    query.claim(P0)
    run_claim(query, 0, {P0: (100, 150)})
    world.expire(query.store)
    query.await_session()
    query.claim(P0)
    assert run_claim(query, 0, {P0: (100, 150)}).result() == {P0: ClaimedRange(100, 150)}
    assert run_claim(query, 1, {P0: (140, 160)}).result() == {P0: ClaimedRange(150, 160)}


def test_lists_of_rights(world: World) -> None:
    """``zookeeper.set.acl``: everything below the shared folder is ours, and the error for another login names the
    owner.
    """
    smith = SessionOf(world.store(login=DigestLogin("smith", "secret")))
    group_of(smith, p0=100, p1=100)
    smith.claim(P0)
    assert run_claim(smith, 0, {P0: (100, 150)}, acl=SECURE_ACL).result() == {P0: ClaimedRange(100, 150)}
    shared, ours = smith.ask([GetAcl(paths.SPARK_CLAIMS), GetAcl(paths.claims_of_partition(GROUP, QUERY, P0))], None)
    assert [(entry.scheme, entry.perms) for entry in shared] == [("world", 31)]
    assert ("digest", 31) in [(entry.scheme, entry.perms) for entry in ours]
    smith.ask([Delete(paths.owner(GROUP, P0))], None)
    jones = SessionOf(world.store(login=DigestLogin("jones", "secret")))
    jones.claim(P0)
    with pytest.raises(ZkNotAuthorized, match=r"this query cannot claim: NoAuth: only .*smith.* may write"):
        run_claim(jones, 1, {P0: (150, 160)}, acl=SECURE_ACL).result()
    assert offset(jones) == 150
