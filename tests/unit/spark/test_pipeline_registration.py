"""One pipeline at a time in a group: which one is registered when two begin, one is paused, or one begins again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.group_membership import ClaimedRange, CommitMode, RangeToClaim
from bridge.spark.group_pipeline import GroupPipeline, format_pipeline, parse_pipeline
from bridge.spark.membership import pipeline_registration
from bridge.spark.membership.pipe_messages import ProcessErrorResponse
from bridge.spark.membership.pipeline_registration import PipelineRegistration, register_pipeline
from bridge.spark.membership.process_settings import MembershipProcessSettings
from bridge.spark.membership.query_membership import QueryMembership
from bridge.spark.source.announced_pipeline import announce_pipeline, await_pipeline, expect_pipeline
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import wait_until
from tests.zk_procedure_fixtures import ProcedureSession, party, server
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import (
    PipelineAlreadyRunning,
    QueryAlreadyRunning,
    UnavailableError,
    ZkNotAuthorized,
    ZkTimeoutException,
)
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_READ, Acl, Delete, Get, Multi, ZnodeData
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, format_control

__all__ = ["party", "server"]

GROUP, QUERY = "g1", "0" * 32
RUN = paths.running_pipeline(GROUP)
CLICKS = GroupPipeline("q-1", "clicks", "/data/checkpoint", "h1", 4711, 1_416_246_370_000, "run-1")
AGAIN = replace(CLICKS, run="run-2")
OTHER = replace(CLICKS, query="q-2", name="orders", run="run-3")
T0 = TopicPartition("t", 0)


def register(session: ProcedureSession, pipeline: GroupPipeline, *, is_first: bool = True, between: Any = None) -> bool:
    procedure = register_pipeline(GROUP, pipeline, session.session_id, None, is_first=is_first)
    return bool(session.run(procedure, between))


def registered(server: FakeZooKeeper) -> GroupPipeline | None:
    data = server.data(RUN)
    return None if data is None else parse_pipeline(data.decode(), RUN)


@pytest.fixture
def second(server: FakeZooKeeper) -> ProcedureSession:
    return ProcedureSession(server)


# --- the registration ---------------------------------------------------------------------------------------------


def test_the_first_pipeline_is_registered_and_its_node_ends_with_its_session(
    server: FakeZooKeeper, party: ProcedureSession
) -> None:
    assert register(party, CLICKS)
    assert registered(server) == CLICKS
    party.store.close(1_000)
    assert registered(server) is None
    assert server.data(paths.pipelines(GROUP)) == b""


def test_another_pipeline_is_refused_with_one_line_that_says_who_and_where_and_what_to_do(
    server: FakeZooKeeper, party: ProcedureSession, second: ProcedureSession
) -> None:
    register(party, CLICKS)
    with pytest.raises(PipelineAlreadyRunning) as caught:
        register(second, OTHER)
    assert str(caught.value) == (
        "another pipeline reads group g1: clicks with the checkpoint /data/checkpoint (query q-1), process 4711 on h1, "
        "since 2014-11-17T17:46:10+00:00. Each of the two would get a part of the records, so this one does not start. "
        "End the other one first; after a crash it counts until its session with ZooKeeper has expired. Or start this "
        "one with that checkpoint, or give it a group of its own"
    )
    assert registered(server) == CLICKS
    party.store.close(1_000)
    assert register(second, OTHER)
    assert registered(server) == OTHER


def test_a_restart_replaces_its_former_life_at_once(
    server: FakeZooKeeper, party: ProcedureSession, second: ProcedureSession
) -> None:
    register(party, CLICKS)
    assert register(second, AGAIN)
    assert registered(server) == AGAIN
    party.store.close(1_000)
    assert registered(server) == AGAIN, "the node is of the session of the later run"


def test_the_former_life_ends_when_it_looks_again(
    server: FakeZooKeeper, party: ProcedureSession, second: ProcedureSession
) -> None:
    register(party, CLICKS)
    register(second, AGAIN)
    with pytest.raises(QueryAlreadyRunning, match=r"pipeline clicks of group g1 was started again with the checkpoint"):
        register(party, CLICKS, is_first=False)
    assert registered(server) == AGAIN


def test_of_two_that_begin_at_the_same_moment_exactly_one_goes_on(
    server: FakeZooKeeper, party: ProcedureSession, second: ProcedureSession
) -> None:
    """Both have read that the place is free, also in the first round, which creates the parents."""

    def between(number: int) -> None:
        if number == 2:
            register(second, OTHER)

    with pytest.raises(PipelineAlreadyRunning, match="orders with the checkpoint"):
        register(party, CLICKS, between=between)
    assert registered(server) == OTHER


def test_of_two_that_have_seen_the_free_place_exactly_one_goes_on(
    server: FakeZooKeeper, party: ProcedureSession, second: ProcedureSession
) -> None:
    server.ensure(paths.pipelines(GROUP))

    def between(number: int) -> None:
        if number == 2:
            register(second, OTHER)

    with pytest.raises(PipelineAlreadyRunning, match="orders"):
        register(party, CLICKS, between=between)


def test_a_restart_does_not_delete_a_pipeline_that_was_registered_after_it_looked(
    server: FakeZooKeeper, party: ProcedureSession, second: ProcedureSession
) -> None:
    """Every node has data version 0, so only the version of the parent distinguishes them."""
    former = ProcedureSession(server)
    register(former, CLICKS)

    def between(number: int) -> None:
        if number == 2:
            former.store.close(1_000)
            register(second, OTHER)

    with pytest.raises(PipelineAlreadyRunning, match="orders"):
        register(party, AGAIN, between=between)
    assert registered(server) == OTHER


@pytest.mark.parametrize("is_done", [True, False])
def test_a_lost_answer_is_looked_up(server: FakeZooKeeper, party: ProcedureSession, *, is_done: bool) -> None:
    server.lose_connection_on_next(lambda each: isinstance(each, Multi), is_done=is_done, store=party.store)
    assert register(party, CLICKS)
    assert registered(server) == CLICKS


@pytest.mark.parametrize("data", [b"", b"{}", b'{"v":2}', b"\xff", format_pipeline(CLICKS).encode() + b"x"])
def test_a_node_that_cannot_be_read_is_another_pipeline(
    server: FakeZooKeeper, party: ProcedureSession, data: bytes
) -> None:
    server.ensure(RUN, data)
    with pytest.raises(PipelineAlreadyRunning, match=f"another pipeline reads group g1, and .*{RUN}.*delete the znode"):
        register(party, CLICKS)


def test_without_the_permission_the_acl_is_named(server: FakeZooKeeper, party: ProcedureSession) -> None:
    server.ensure(paths.pipelines(GROUP))
    server.set_acl(paths.pipelines(GROUP), (Acl(PERM_READ, "world", "anyone"),))
    with pytest.raises(ZkNotAuthorized, match=r"cannot be registered in its group: .*@pipeline"):
        register(party, CLICKS)


def test_long_texts_are_cut_and_others_are_in_ascii() -> None:
    found = parse_pipeline(format_pipeline(replace(CLICKS, name="ä" * 2_000, checkpoint="/ö")), "here")
    assert (len(found.name), found.checkpoint) == (1_000, "/ö")
    assert format_pipeline(replace(CLICKS, name="ä")).isascii()


def test_a_registration_belongs_to_the_session_in_which_it_was_made(server: FakeZooKeeper) -> None:
    clock = ManualClock()
    one, two = ProcedureSession(server).store, ProcedureSession(server).store
    registration = PipelineRegistration(GROUP, CLICKS, None, clock)
    assert not registration.is_held_in(one)
    assert registration.ensure(one)
    assert registration.is_held_in(one)
    assert registration.ensure(two), "the sessions of one process replace each other's node"
    assert (registration.is_held_in(one), registration.is_held_in(two)) == (False, True)
    server.expire(two)
    assert not registration.is_held_in(two)
    other = PipelineRegistration(GROUP, OTHER, None, clock)
    assert other.ensure(one)
    with pytest.raises(PipelineAlreadyRunning, match="orders"):
        registration.ensure(two)


def test_a_registration_is_read_again_from_time_to_time(server: FakeZooKeeper) -> None:
    clock = ManualClock()
    one, two = ProcedureSession(server).store, ProcedureSession(server).store
    registration = PipelineRegistration(GROUP, CLICKS, None, clock)
    assert registration.ensure(one)
    assert PipelineRegistration(GROUP, AGAIN, None, clock).ensure(two)
    sent = one.packets_sent
    assert registration.ensure(one)
    assert one.packets_sent == sent, "a look costs nothing"
    clock.move(pipeline_registration.RECHECK_MS)
    with pytest.raises(QueryAlreadyRunning):
        registration.ensure(one)


def test_the_errors_pass_the_pipe_of_the_membership_process() -> None:
    answer = ProcessErrorResponse.of(1, PipelineAlreadyRunning("who"))
    assert (type(answer.error()), str(answer.error())) == (PipelineAlreadyRunning, "who")


def test_the_settings_of_a_membership_process_have_the_pipeline() -> None:
    settings = MembershipProcessSettings({"group.id": GROUP}, STATIC_SUBSCRIPTION, ("t",), "c", pipeline=CLICKS)
    assert MembershipProcessSettings.from_json(settings.to_json()) == settings
    without = replace(settings, pipeline=None)
    assert MembershipProcessSettings.from_json(without.to_json()) == without


# --- the announcement ---------------------------------------------------------------------------------------------


def test_a_query_that_no_program_announces_is_not_the_one_of_a_pipeline(tmp_path: Path) -> None:
    assert await_pipeline(tmp_path / "ranges", ManualClock(), lambda _: None) is None


def test_the_source_waits_for_the_id_of_its_query(tmp_path: Path) -> None:
    expect_pipeline(tmp_path / "ranges")
    waited: list[int] = []

    def pause(ms: int) -> None:
        waited.append(ms)
        if len(waited) == 3:
            announce_pipeline(tmp_path / "ranges", CLICKS)

    assert await_pipeline(tmp_path / "ranges", ManualClock(), pause) == CLICKS
    assert len(waited) == 3


def test_a_program_that_has_ended_before_the_announcement_is_an_error(tmp_path: Path) -> None:
    expect_pipeline(tmp_path / "ranges")
    clock = ManualClock()
    with pytest.raises(UnavailableError, match=r"has not announced its query within 60 s; .*start it again"):
        await_pipeline(tmp_path / "ranges", clock, clock.move)


def test_the_announcement_of_an_earlier_query_does_not_count(tmp_path: Path) -> None:
    for pipeline in (CLICKS, OTHER):
        expect_pipeline(tmp_path)
        with pytest.raises(UnavailableError, match="has not announced its query"):
            await_pipeline(tmp_path, clock := ManualClock(), clock.move)
        announce_pipeline(tmp_path, pipeline)
        assert await_pipeline(tmp_path, ManualClock(), lambda _: None) == pipeline


# --- the membership -----------------------------------------------------------------------------------------------


class Memberships:
    """Pipelines on one group, in memory."""

    def __init__(self, world: FakeEnvironment) -> None:
        self.world = world
        self.made: list[QueryMembership] = []

    def make(self, pipeline: GroupPipeline | None, mode: CommitMode = CommitMode.CLAIM) -> QueryMembership:
        given = {"group.id": GROUP, "zookeeper.connect": ADDRESS, "rebalance.backoff.ms": "50"}
        given |= {"release.settle.ms": "0"}
        number = len(self.made)
        run = "none" if pipeline is None else pipeline.run
        settings = MembershipProcessSettings(
            given, STATIC_SUBSCRIPTION, ("t",), f"{GROUP}_spark-{number}", mode=mode, run=run, pipeline=pipeline
        )
        self.made.append(QueryMembership(settings, make_store=self.world.store, connect=self.world.cluster.connect))
        return self.made[-1]

    def open(self, pipeline: GroupPipeline | None, mode: CommitMode = CommitMode.CLAIM) -> QueryMembership:
        membership = self.make(pipeline, mode)
        membership.open()
        return membership

    @property
    def registered(self) -> GroupPipeline | None:
        return registered(self.world.zookeeper)

    @property
    def members(self) -> list[str]:
        return [path for path in self.world.zookeeper.tree.dump() if path.startswith(f"{paths.ids(GROUP)}/")]

    def expire_sessions(self, membership: QueryMembership) -> None:
        """The process was paused for longer than its sessions."""
        side = membership._membership
        assert side is not None
        for store in (side.store, membership._standby.store):
            self.world.zookeeper.expire(store)  # type: ignore[arg-type]


@pytest.fixture
def memberships() -> Iterator[Memberships]:
    with FakeEnvironment() as world:
        world.create_topic("t", 2)
        made = Memberships(world)
        yield made
        for one in made.made:
            one.abandon()


def until() -> int:
    return SYSTEM_CLOCK.now_ms() + 10_000


def test_a_second_pipeline_does_not_join_while_the_first_ones_membership_lives(memberships: Memberships) -> None:
    first = memberships.open(CLICKS)
    assert len(first.begin_batch({}, 5_000, until()).partitions) == 2
    with pytest.raises(PipelineAlreadyRunning, match="clicks with the checkpoint"):
        memberships.open(OTHER)
    memberships.made.pop().abandon()
    assert memberships.registered == CLICKS
    assert first.leave()
    assert memberships.registered is None
    assert len(memberships.open(OTHER).begin_batch({}, 5_000, until()).partitions) == 2


def test_queries_that_are_no_pipelines_may_read_one_group_together(memberships: Memberships) -> None:
    for pipeline in (None, None, CLICKS):
        memberships.open(pipeline)
    assert memberships.registered == CLICKS


def test_the_registration_is_in_the_session_that_owns_the_partitions(memberships: Memberships) -> None:
    first = memberships.open(CLICKS)
    first.begin_batch({}, 5_000, until())
    owner, run = submit_and_wait(first._standby.store, [Get(paths.owner(GROUP, T0)), Get(RUN)], 5_000)
    assert isinstance(owner, ZnodeData)
    assert isinstance(run, ZnodeData)
    assert run.stat.ephemeral_owner == owner.stat.ephemeral_owner


def test_a_pipeline_whose_session_expired_is_registered_again_and_goes_on(memberships: Memberships) -> None:
    first = memberships.open(CLICKS)
    assert len(first.begin_batch({}, 5_000, until()).partitions) == 2
    first.planned((), until())
    memberships.expire_sessions(first)
    held = first.begin_batch({}, 5_000, until()).partitions
    assert len(held) == 2
    assert memberships.registered == CLICKS
    ranges = {tp: RangeToClaim(0, 5, one.epoch) for tp, one in held.items()}
    assert first.claim(QUERY, 0, ranges, until()) == dict.fromkeys(held, ClaimedRange(0, 5))


def test_a_pipeline_that_wakes_up_beside_its_successor_reads_nothing_more_and_leaves(
    memberships: Memberships, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = memberships.open(CLICKS)
    held = first.begin_batch({}, 5_000, until()).partitions
    first.planned(held, until())
    asleep, awake = threading.Event(), threading.Event()
    keep = QueryMembership._keep_registered

    def paused(self: QueryMembership) -> None:
        if self is first:
            asleep.set()
            awake.wait(20)
        keep(self)

    monkeypatch.setattr(QueryMembership, "_keep_registered", paused)
    assert asleep.wait(20)
    memberships.expire_sessions(first)
    wait_until(lambda: memberships.registered is None, "its node has gone")
    memberships.open(OTHER)
    wait_until(lambda: len(memberships.members) == 2 and first.observe()["owned_partitions"], "it is a member again")
    assert first.begin_batch({}, 0, until()).partitions == {}, "and it leases nothing"
    with pytest.raises(ZkTimeoutException, match="not registered in its new session"):
        first.claim(QUERY, 0, {T0: RangeToClaim(0, 5, held[T0].epoch)}, SYSTEM_CLOCK.now_ms() + 500)
    awake.set()
    wait_until(lambda: first._failure is not None, "it has found its successor")
    with pytest.raises(PipelineAlreadyRunning, match="orders with the checkpoint"):
        first.begin_batch({}, 0, until())
    wait_until(lambda: first._membership is None, "it has left")
    assert memberships.registered == OTHER
    assert memberships.members == [paths.registration(GROUP, f"{GROUP}_spark-1")]


def test_a_claim_that_waits_gets_the_error_that_names_the_successor(
    memberships: Memberships, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = memberships.open(CLICKS)
    held = first.begin_batch({}, 5_000, until()).partitions
    first.planned(held, until())
    opened = threading.Event()
    keep = QueryMembership._keep_registered
    monkeypatch.setattr(
        QueryMembership, "_keep_registered", lambda self: keep(self) if opened.is_set() or self is not first else None
    )
    memberships.expire_sessions(first)
    wait_until(lambda: memberships.registered is None, "its node has gone")
    memberships.open(OTHER)
    opened.set()
    began_ms = SYSTEM_CLOCK.now_ms()
    with pytest.raises(PipelineAlreadyRunning, match="orders"):
        first.claim(QUERY, 0, {T0: RangeToClaim(0, 5, held[T0].epoch)}, began_ms + 60_000)
    assert SYSTEM_CLOCK.now_ms() - began_ms < 30_000


def test_a_second_pipeline_is_refused_also_while_the_group_migrates(memberships: Memberships) -> None:
    first = memberships.open(CLICKS)
    first.begin_batch({}, 5_000, until())
    first.planned((), until())
    zookeeper = memberships.world.zookeeper

    def go_to(phase: str) -> None:
        zookeeper.ensure(paths.control(GROUP), format_control(ControlRecord("m1", 3, phase, "zookeeper", "copy")))

    go_to("fencing")
    wait_until(lambda: first._membership is None, "it is no member")
    assert memberships.registered == CLICKS
    with pytest.raises(PipelineAlreadyRunning):
        memberships.open(OTHER)
    go_to("undone")
    assert len(first.begin_batch({}, 5_000, until()).partitions) == 2
    assert memberships.registered == CLICKS


def test_a_node_that_an_operator_deletes_is_created_again(
    memberships: Memberships, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_registration, "RECHECK_MS", 0)
    first = memberships.open(CLICKS)
    side = first._membership
    assert side is not None
    side.store.submit(None, [Delete(RUN)], lambda _: None)
    wait_until(lambda: memberships.registered == CLICKS, "it is registered again")
