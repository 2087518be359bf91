"""An exclusive takeover on a ZooKeeper and a Kafka in memory, its keeper in this process; queries only pretend."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.keeper.service import Service
from bridge.spark.keeper.settings import ALL_THREADS, KeeperSettings
from bridge.spark.membership import CommitMode
from bridge.spark.owner import GroupOwner
from bridge.spark.takeover import ExclusiveTakeover, exclusive_takeover
from tests.fix_admin import doors
from tests.fix_spark_events import RUN, ended, progressed, source_of
from tests.fix_world import wait_until
from zkconsumer.admin.session import AdminSession
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads
from zkconsumer.core.view import STATIC
from zkconsumer.errors import (
    GroupNotExclusive,
    InvalidConfigException,
    OffsetsNotCommitted,
    PreconditionFailed,
    UsageError,
    WorldError,
    ZkTimeoutException,
)
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.testing.world import ADDRESS, FakeWorld
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Delete
from zkconsumer.zk.store import call

GROUP, MEMBER = "g1", "g1_spark"
CALL_MS = 10_000
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> Iterator[FakeWorld]:
    with FakeWorld() as made:
        made.create_topic("t", 2)
        for tp in (A, B):
            made.cluster.append("t", tp.partition, [b"x"] * 100)
            made.zookeeper.ensure(paths.offset(GROUP, tp), b"10")
        yield made


class Keeper:
    """The keeper's service without its process: the ``GroupMembership`` that a ``KeeperClient`` is."""

    def __init__(self, world: FakeWorld) -> None:
        properties = {"group.id": GROUP, "zookeeper.connect": ADDRESS, "rebalance.backoff.ms": "100"}
        mode = CommitMode.AFTER_BATCH
        settings = KeeperSettings(properties, STATIC, ("t",), MEMBER, ALL_THREADS, mode=mode, takeover_wait_ms=0)
        self._service = Service(settings, make_store=world.store, connect=world.cluster.connect)
        try:
            self._service.open()
        except BaseException:
            self._service.leave()
            raise
        self.is_closed = False
        self.error: Exception | None = None

    def close(self) -> None:
        self.is_closed = True
        self._service.leave()

    def begin_batch(self, ended: Any, wait_ms: int) -> Any:
        return self._asked("begin_batch", ended, wait_ms)

    def planned(self, partitions: Any) -> None:
        self._asked("planned", partitions)

    def stands(self, partitions: Any, query: str) -> Any:
        return self._asked("stands", partitions, query)

    def observe(self) -> Any:
        return self._service.observe()

    def _asked(self, name: str, *words: Any) -> Any:
        if self.error is not None:
            raise self.error
        return getattr(self._service, name)(*words, SYSTEM_CLOCK.now_ms() + CALL_MS)


class Query:
    """Stops when it is told to, and its last event comes a moment later."""

    def __init__(self, *listeners: Any) -> None:
        self.runId = RUN
        self.listeners = listeners
        self.isActive = True
        self.before_end: Callable[[], object] = lambda: None

    def stop(self) -> None:
        if self.isActive:
            self.isActive = False
            threading.Timer(0.02, self._end).start()

    def _end(self) -> None:
        self.before_end()
        for listener in self.listeners:
            listener.onQueryTerminated(ended())


Take = Callable[..., ExclusiveTakeover]


@pytest.fixture
def keepers() -> list[Keeper]:
    return []


@pytest.fixture
def take(world: FakeWorld, keepers: list[Keeper]) -> Take:
    def join() -> Any:
        keepers.append(Keeper(world))
        return keepers[-1]

    def make(group: str = GROUP, wait_ms: int = 0, silence_ms: int = 60_000, look_ms: int = 5) -> ExclusiveTakeover:
        return ExclusiveTakeover(
            group, ["t"], MEMBER, join, lambda: AdminSession.open(ADDRESS, None, doors(world)),
            wait_ms=wait_ms, silence_ms=silence_ms, look_ms=look_ms,
        )  # fmt: skip

    return make


class Stranger:
    """Somebody else's registration."""

    def __init__(self, world: FakeWorld, name: str = "g1_other") -> None:
        self._path = paths.registration(GROUP, name)
        self._store = FakeZkStore(world.zookeeper)
        self._store.start(1_000)
        world.zookeeper.ensure(paths.ids(GROUP))
        data = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}'
        call(self._store, [Create(self._path, data, ephemeral=True)], 1_000)

    def go(self) -> None:
        call(self._store, [Delete(self._path)], 1_000)


def at(world: FakeWorld, tp: TopicPartition) -> int:
    data = world.zookeeper.data(paths.offset(GROUP, tp))
    return -1 if data is None else int(data)


def owned(world: FakeWorld) -> int:
    return sum(world.zookeeper.data(paths.owner(GROUP, tp)) is not None for tp in (A, B))


def expire(world: FakeWorld, store: FakeZkStore, keeper: Keeper) -> None:
    """Our session ends, and everything is held again in another one."""
    before = store.session_id
    world.zookeeper.expire(store)
    wait_until(lambda: store.session_id not in (before, None) and owned(world) == 2, "it is held again")
    wait_until(lambda: keeper.observe()["share_is_whole"] and keeper.observe()["owned_partitions"] == 2, "and known")


# --- taking and giving back ---


def test_everything_is_held_in_the_block_and_given_back_behind_it(
    world: FakeWorld, take: Take, keepers: list[Keeper]
) -> None:
    with take() as takeover:
        assert owned(world) == 2
        assert json.loads(takeover.starting_offsets()) == {"t": {"0": 10, "1": 10}}
        takeover.check()
        assert takeover.loss is None
    assert owned(world) == 0
    assert keepers[0].is_closed
    assert [name for name in live_threads() if not name.startswith("fake-")] == []


def test_members_are_named_and_not_disturbed(world: FakeWorld, take: Take, keepers: list[Keeper]) -> None:
    Stranger(world)
    with pytest.raises(GroupNotExclusive, match=r"1 member is registered in group g1 after 0 ms \(g1_other\): stop"):
        take().__enter__()
    assert keepers == [], "nobody joined"


def test_members_are_waited_for(world: FakeWorld, take: Take) -> None:
    stranger = Stranger(world)
    threading.Timer(0.05, stranger.go).start()
    with take(wait_ms=5_000):
        assert owned(world) == 2


def test_a_mistyped_group_is_not_made(world: FakeWorld, take: Take, keepers: list[Keeper]) -> None:
    with pytest.raises(UsageError, match=r"there is no group g11 at .* did you mean g1\?"):
        take(group="g11").__enter__()
    assert keepers == []


def test_an_owner_node_of_nobody_is_in_the_way(
    world: FakeWorld, take: Take, keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.spark.owner.SHARE_WAIT_MS", 50)
    world.zookeeper.ensure(paths.owner(GROUP, A), b"a fence")
    with pytest.raises(GroupNotExclusive):
        take().__enter__()
    assert keepers[0].is_closed
    assert owned(world) == 1


# --- writing ---


def test_what_a_batch_ended_is_written_by_the_owner(world: FakeWorld, take: Take) -> None:
    with take() as takeover:
        projector = takeover.projector()
        projector.onQueryProgress(progressed(source_of({"t": {"0": 40, "1": 10}})))
        projector.settle(CALL_MS)
        assert (at(world, A), at(world, B)) == (40, 10)
        projector.onQueryProgress(progressed(source_of({"t": {"0": 45, "1": 50}})))
    assert (at(world, A), at(world, B)) == (45, 50), "the end of the block writes what is left"


def test_a_session_of_ours_that_expired_harms_no_offset(
    world: FakeWorld, take: Take, keepers: list[Keeper]
) -> None:
    with take() as takeover:
        projector = takeover.projector()
        store = next(store for store in world.stores if store.session_id is not None)  # the watcher has its own, later
        expire(world, store, keepers[-1])
        projector.onQueryProgress(progressed(source_of({"t": {"0": 40, "1": 41}})))
        projector.settle(CALL_MS)
        assert (at(world, A), at(world, B)) == (40, 41)
        takeover.check()


def test_what_somebody_moved_while_our_session_was_gone_ends_it(
    world: FakeWorld, take: Take, keepers: list[Keeper]
) -> None:
    with pytest.raises(GroupNotExclusive, match="meanwhile somebody moved t/0 to 77, beyond 50"), take() as takeover:
        projector = takeover.projector()
        store = next(store for store in world.stores if store.session_id is not None)  # the watcher has its own, later
        projector.onQueryProgress(progressed(source_of({"t": {"0": 40}})))
        projector.settle(CALL_MS)
        world.zookeeper.remove(paths.offset(GROUP, A))
        world.zookeeper.ensure(paths.offset(GROUP, A), b"77")
        expire(world, store, keepers[-1])
        projector.onQueryProgress(progressed(source_of({"t": {"0": 50}})))
        wait_until(lambda: takeover.loss, "it is noticed")


def test_a_partition_that_is_not_held_is_told(world: FakeWorld) -> None:
    owner = GroupOwner(GROUP, Keeper(world))  # type: ignore[arg-type]
    owner.take()
    with pytest.raises(OffsetsNotCommitted, match="t/7: it is not held yet"):
        owner.write({A: 20, TopicPartition("t", 7): 3})
    assert at(world, A) == 20
    owner.give_back()
    owner.give_back()
    with pytest.raises(WorldError, match="is over"):
        owner.write({A: 30})


def test_a_projector_is_made_in_the_block(take: Take) -> None:
    with pytest.raises(UsageError, match="inside the with block"):
        take().projector()


# --- losing ---


def test_whoever_joins_ends_it_the_query_is_stopped_first_and_its_last_batch_is_written(
    world: FakeWorld, take: Take
) -> None:
    with pytest.raises(GroupNotExclusive, match="takeover of group g1 is over: g1_other joined it") as caught:  # noqa: SIM117
        with take() as takeover:
            projector = takeover.projector()
            query = Query(projector)
            query.before_end = lambda: projector.onQueryProgress(progressed(source_of({"t": {"0": 60, "1": 10}})))
            takeover.watch(query)  # type: ignore[arg-type]
            Stranger(world)
            wait_until(lambda: owned(world) < 2, "it is given back")
            assert not query.isActive
            assert at(world, A) == 60, "also what ended while it was stopped"
            late = Query()
            takeover.watch(late)  # type: ignore[arg-type]
            assert not late.isActive
            wait_until(lambda: owned(world) == 0, "all of it")
    assert "goes on from there" in str(caught.value)


def test_nothing_is_written_while_the_query_reads_and_somebody_waits(world: FakeWorld) -> None:
    keeper = Keeper(world)
    owner = GroupOwner(GROUP, keeper)  # type: ignore[arg-type]
    owner.take()
    Stranger(world)
    wait_until(lambda: keeper.observe()["leaving_partitions"], "somebody waits")
    with pytest.raises(GroupNotExclusive, match="the query is stopped first"):
        owner.write({A: 60, B: 60})
    assert owned(world) == 2, "what a batch reads is not given away"
    owner.is_reading = False
    owner.write({A: 60, B: 60})
    owner.give_back()
    assert (at(world, A), at(world, B)) == (60, 60)


def test_a_run_that_was_stopped_for_it_is_an_error(world: FakeWorld, take: Take) -> None:
    with pytest.raises(GroupNotExclusive), take() as takeover:
        projector = takeover.projector()
        Stranger(world)
        wait_until(lambda: takeover.loss, "it is noticed")
        with pytest.raises(GroupNotExclusive):
            projector.check()


def test_an_error_of_the_block_is_not_hidden(world: FakeWorld, take: Take) -> None:
    with pytest.raises(ValueError, match="mine") as caught, take() as takeover:
        Stranger(world)
        wait_until(lambda: takeover.loss, "it is noticed")
        raise ValueError("mine")
    assert "g1_other joined it" in caught.value.__notes__[0]


def test_silence_ends_it(take: Take, keepers: list[Keeper]) -> None:
    with pytest.raises(WorldError, match=r"nobody knew whether group g1 is still ours .*no answer"):  # noqa: SIM117
        with take(silence_ms=50) as takeover:
            query = Query()
            takeover.watch(query)  # type: ignore[arg-type]
            keepers[0].error = ZkTimeoutException("no answer")
            wait_until(lambda: not query.isActive, "it is stopped")


def test_what_can_never_be_again_ends_it_at_once(take: Take, keepers: list[Keeper]) -> None:
    with pytest.raises(PreconditionFailed, match="rights"), take() as takeover:
        keepers[0].error = PreconditionFailed("no rights any more")
        wait_until(lambda: takeover.loss, "it is noticed")


def test_a_query_that_still_runs_at_the_end_of_the_block_is_stopped(
    world: FakeWorld, take: Take, caplog: pytest.LogCaptureFixture
) -> None:
    with take() as takeover:
        projector = takeover.projector()
        query = Query(projector)
        query.before_end = lambda: projector.onQueryProgress(progressed(source_of({"t": {"0": 70}})))
        takeover.watch(query)  # type: ignore[arg-type]
        projector.onQueryProgress(progressed(source_of({"t": {"0": 20}})))
    assert not query.isActive
    assert at(world, A) == 70
    assert f"takeover-query-stopped group=g1 run={RUN}" in caplog.text


# --- what is asked for ---


def test_settings_are_those_of_a_consumer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"store='zk': expected one of 'zookeeper', 'kafka', 'both'"):
        exclusive_takeover(ADDRESS, "g", "t", store="zk")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="topics is empty"):
        exclusive_takeover(ADDRESS, "g", "")
    with pytest.raises(InvalidConfigException, match=r"zookeeper\.session\.timeout\.ms"):
        exclusive_takeover(ADDRESS, "g", "t", settings={"zookeeper.session.timeout.ms": "soon"})
    file = tmp_path / "consumer.properties"
    file.write_text(f"zookeeper.connect={ADDRESS}\ngroup.id=other\n")
    assert exclusive_takeover(None, "g", "t", config_file=file).member.startswith("g_")
