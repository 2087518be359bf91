"""``admin.stores``: offsets written by a tool, cut off and disturbed at every point."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.zookeeper_group import read_offsets
from zkconsumer.admin.zookeeper_offset_writes import (
    NO_ZNODE_VERSION,
    OffsetWrite,
    StoreWriteReport,
    registered_members,
    write_offsets,
)
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import group_procedures
from zkconsumer.zk.packets import encode
from zkconsumer.zk.requests import (
    PACKET_BYTES_MAX,
    PERM_ALL,
    PERM_READ,
    Acl,
    Create,
    CreateOp,
    Multi,
    NoAuth,
    Request,
    Result,
)
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, format_control

Watch = Callable[[Callable[[Sequence[Request]], object] | None], None]

T0, T1, V0 = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("views", 0)


def offsets(admin: AdminSession, group: str = "g1") -> dict[TopicPartition, int | None]:
    return {tp: node.offset for tp, node in read_offsets(admin, group)[0].items()}


def version(admin: AdminSession, tp: TopicPartition) -> int:
    return read_offsets(admin, "g1")[0][tp].stat.version


def is_multi(request: Request) -> bool:
    return isinstance(request, Multi)


def join(world: FakeEnvironment, consumer: str) -> None:
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    submit_and_wait(store, [Create("/consumers/g1"), Create("/consumers/g1/ids")], 1_000)
    submit_and_wait(store, [Create(f"/consumers/g1/ids/{consumer}", b"{}", ephemeral=True)], 1_000)


def written(admin: AdminSession, *writes: OffsetWrite, control_version: int | None = None) -> StoreWriteReport:
    report = StoreWriteReport()
    write_offsets(admin, "g1", writes, control_version=control_version, report=report)
    return report


@pytest.fixture
def watch(admin: AdminSession, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Calls back with the requests of each round before they are sent."""
    ask = admin.request

    def watched(on_round: Callable[[Sequence[Request]], object] | None) -> None:
        def asked(requests: Sequence[Request], session_id: int | None = None) -> list[Result]:
            if on_round is not None:
                on_round(requests)
            return ask(requests, session_id)

        monkeypatch.setattr(admin, "request", asked)

    return watched


@pytest.fixture
def small_multis(monkeypatch: pytest.MonkeyPatch) -> None:
    """One offset a multi."""
    monkeypatch.setattr(group_procedures, "MULTI_OPS_MAX", 1)


def test_offsets_of_a_group_that_does_not_exist_are_made_with_their_parents(admin: AdminSession) -> None:
    report = written(admin, OffsetWrite(T0, 42, NO_ZNODE_VERSION), OffsetWrite(V0, 7, NO_ZNODE_VERSION))
    assert report == StoreWriteReport(written=[T0, V0])
    assert offsets(admin) == {T0: 42, V0: 7}


def test_a_write_names_the_version_that_it_replaces(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"42")
    seen = version(admin, T0)
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"50")
    report = written(admin, OffsetWrite(T0, 10, seen), OffsetWrite(T1, 11, NO_ZNODE_VERSION))
    assert report == StoreWriteReport(
        stopped_by="the offset of clicks/0 was changed by another program after it was read"
    )
    assert offsets(admin) == {T0: 50}, "a multi is done as a whole or not at all"


def test_a_node_that_appeared_is_not_written_over_and_one_that_went_is_not_made(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"42")
    assert "clicks/0 was changed" in written(admin, OffsetWrite(T0, 10, NO_ZNODE_VERSION)).stopped_by
    assert "clicks/1 was changed" in written(admin, OffsetWrite(T1, 10, 3)).stopped_by
    assert offsets(admin) == {T0: 42}


def test_nothing_is_written_while_somebody_is_registered(world: FakeEnvironment, admin: AdminSession) -> None:
    join(world, "g1_a")
    report = written(admin, OffsetWrite(T0, 42, NO_ZNODE_VERSION))
    assert report == StoreWriteReport(stopped_by="g1_a is in the group now (1 registered)")
    assert offsets(admin) == {}
    assert registered_members(admin, "g1") == ["g1_a"]


@pytest.mark.usefixtures("small_multis")
def test_a_member_that_joins_in_the_middle_is_noticed_one_multi_later(
    world: FakeEnvironment, admin: AdminSession, watch: Watch
) -> None:
    def joins_before_the_second(requests: Sequence[Request]) -> None:
        match requests:
            case [Multi(ops=(CreateOp(path="/consumers/g1/offsets/clicks/1"),))]:
                join(world, "g1_late")

    watch(joins_before_the_second)
    report = written(admin, *(OffsetWrite(tp, 1, NO_ZNODE_VERSION) for tp in (T0, T1, V0)))
    assert report == StoreWriteReport(written=[T0, T1], stopped_by="g1_late is in the group now (1 registered)")
    assert offsets(admin) == {T0: 1, T1: 1}


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("offset", [43, None])
def test_a_multi_whose_answer_is_lost_is_looked_at_and_never_guessed(
    world: FakeEnvironment, admin: AdminSession, is_done: bool, offset: int | None
) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"42")
    write = OffsetWrite(T0, offset, version(admin, T0))
    world.zookeeper.lose_connection_on_next(is_multi, is_done=is_done)
    assert written(admin, write) == StoreWriteReport(written=[T0])
    assert offsets(admin) == ({} if offset is None else {T0: 43})


def test_a_connection_that_breaks_again_and_again_is_given_up(world: FakeEnvironment, admin: AdminSession) -> None:
    for _ in range(group_procedures.ROUNDS_MAX):
        world.zookeeper.lose_connection_on_next(is_multi, is_done=False)
    report = written(admin, OffsetWrite(T0, 42, NO_ZNODE_VERSION))
    assert report == StoreWriteReport(stopped_by="the connection to ZooKeeper broke repeatedly")
    assert offsets(admin) == {}


def test_somebody_else_who_writes_while_the_answer_is_lost_is_not_written_over(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"42")
    write = OffsetWrite(T0, 43, version(admin, T0))

    def other_writes(request: Request) -> bool:
        if is_multi(request):
            world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"99")
        return is_multi(request)

    world.zookeeper.lose_connection_on_next(other_writes, is_done=False)
    assert "clicks/0 was changed" in written(admin, write).stopped_by
    assert offsets(admin) == {T0: 99}


@pytest.mark.parametrize("offset", [43, None])
def test_somebody_else_who_deletes_a_znode_while_the_answer_is_lost_is_not_taken_for_our_write(
    world: FakeEnvironment, admin: AdminSession, offset: int | None
) -> None:
    for partition in (0, 1):
        world.zookeeper.ensure(f"/consumers/g1/offsets/clicks/{partition}", b"42")
    writes = OffsetWrite(T0, None, version(admin, T0)), OffsetWrite(T1, offset, version(admin, T1))

    def other_deletes(request: Request) -> bool:
        if is_multi(request):
            world.zookeeper.remove("/consumers/g1/offsets/clicks/0")
        return is_multi(request)

    world.zookeeper.lose_connection_on_next(other_deletes, is_done=False)
    report = written(admin, *writes)
    assert report == StoreWriteReport(
        stopped_by="the offset of clicks/0 was changed by another program after it was read"
    )
    assert offsets(admin) == {T1: 42}


def test_every_write_checks_the_control_znode_of_a_group_that_has_one(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    control = ControlRecord("m1", 1, "planned", "zookeeper", "copy")
    world.zookeeper.ensure("/zkconsumer/groups/g1", format_control(control))
    world.zookeeper.ensure("/zkconsumer/groups/g1", format_control(control))
    assert written(admin, OffsetWrite(T0, 42, NO_ZNODE_VERSION), control_version=1) == StoreWriteReport(written=[T0])
    report = written(admin, OffsetWrite(T1, 42, NO_ZNODE_VERSION), control_version=0)
    assert report == StoreWriteReport(stopped_by="the group's control znode changed: a migration is under way")


def test_a_node_that_may_not_be_written_stops_it_by_name(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/clicks/0", b"42")
    world.zookeeper.set_acl("/consumers/g1/offsets/clicks/0", ())
    assert written(admin, OffsetWrite(T0, 1, 0)).stopped_by.startswith("NoAuth /consumers/g1/offsets/clicks/0: ")
    world.zookeeper.set_acl("/consumers/g1/offsets", ())
    report = written(admin, OffsetWrite(V0, 1, NO_ZNODE_VERSION))
    assert report.stopped_by.startswith("/consumers/g1/offsets/views cannot be created: NoAuth ")


def test_a_parent_that_may_not_be_made_and_is_there_is_no_trouble(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/clicks")
    world.zookeeper.fail_next(lambda request: request == Create("/consumers"), NoAuth)
    assert written(admin, OffsetWrite(T0, 42, NO_ZNODE_VERSION)) == StoreWriteReport(written=[T0])


def test_rights_are_given_to_what_is_made_below_the_group_and_to_nothing_above(
    admin: AdminSession, watch: Watch
) -> None:
    made: dict[str, object] = {}
    watch(lambda requests: made.update({
        each.path: each.acl for request in requests for each in (request.ops if is_multi(request) else [request])
        if isinstance(each, Create | CreateOp)
    }))  # fmt: skip
    acl = (Acl(PERM_ALL, "world", "anyone"), Acl(PERM_READ, "ip", "127.0.0.1"))
    write_offsets(
        admin, "g1", [OffsetWrite(T0, 1, NO_ZNODE_VERSION)], control_version=None, report=StoreWriteReport(), acl=acl
    )
    assert made == {
        "/consumers": None, "/consumers/g1": None, "/consumers/g1/offsets": acl, "/consumers/g1/offsets/clicks": acl,
        "/consumers/g1/offsets/clicks/0": acl,
    }  # fmt: skip


def test_deleting_the_last_offset_of_a_topic_takes_its_node_too_and_leaves_the_others(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    for path in ("clicks/0", "clicks/1", "views/0"):
        world.zookeeper.ensure(f"/consumers/g1/offsets/{path}", b"1")
    assert written(admin, OffsetWrite(T0, None, 0), OffsetWrite(V0, None, 0)) == StoreWriteReport(written=[T0, V0])
    assert offsets(admin) == {T1: 1}
    assert world.zookeeper.data("/consumers/g1/offsets/views") is None


@pytest.mark.usefixtures("small_multis")
@pytest.mark.parametrize("written_before", range(4))
def test_a_run_that_was_cut_off_anywhere_is_completed_by_the_next(
    admin: AdminSession, watch: Watch, written_before: int
) -> None:
    plan = {T0: 1, T1: 2, V0: 3}
    left = written_before

    def dies(requests: Sequence[Request]) -> None:
        nonlocal left
        if any(map(is_multi, requests)):
            if left == 0:
                raise KeyboardInterrupt
            left -= 1

    def run() -> StoreWriteReport:
        nodes = read_offsets(admin, "g1")[0]
        report = StoreWriteReport()
        writes = [OffsetWrite(tp, offset, NO_ZNODE_VERSION) for tp, offset in plan.items() if tp not in nodes]
        with contextlib.suppress(KeyboardInterrupt):
            write_offsets(admin, "g1", writes, control_version=None, report=report)
        return report

    watch(dies)
    assert run().written == list(plan)[:written_before]
    assert offsets(admin) == dict(list(plan.items())[:written_before])
    watch(None)
    assert run().written == list(plan)[written_before:]
    assert offsets(admin) == plan


def test_what_zookeeper_never_answered_is_unknown(
    world: FakeEnvironment, admin: AdminSession, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mutes(requests: Sequence[Request]) -> None:
        if any(map(is_multi, requests)):
            monkeypatch.setattr("zkconsumer.admin.admin_session.ROUND_TIMEOUT_MS", 50)
            world.zookeeper.hold("answers", world.stores[-1])

    watch(mutes)
    report = StoreWriteReport()
    with pytest.raises(ZkTimeoutException):
        write_offsets(admin, "g1", [OffsetWrite(T0, 1, NO_ZNODE_VERSION)], control_version=None, report=report)
    world.zookeeper.release("answers", world.stores[-1])
    assert report == StoreWriteReport(unknown=[T0])


def test_twenty_thousand_partitions_are_few_packets_of_bounded_size(
    world: FakeEnvironment, admin: AdminSession, watch: Watch
) -> None:
    topics = [f"topic-with-a-long-name-{topic:04}" for topic in range(20)]
    wanted = [TopicPartition(topic, number) for topic in topics for number in range(1_000)]
    multis: list[Multi] = []
    watch(lambda requests: multis.extend(each for each in requests if isinstance(each, Multi)))
    [store] = world.stores
    before = store.packets_sent
    assert written(admin, *(OffsetWrite(tp, 2**62, NO_ZNODE_VERSION) for tp in wanted)) == StoreWriteReport(
        written=wanted
    )
    assert len(multis) <= 9
    assert max(len(encode(multi, "/chroot")[1]) for multi in multis) <= PACKET_BYTES_MAX
    assert store.packets_sent - before <= 2 * len(multis) + len(topics) + 5, "a multi, a look at ids; the parents"
    before = store.packets_sent
    assert len(read_offsets(admin, "g1")[0]) == 20_000
    assert store.packets_sent - before <= 1 + len(topics) + 20, "the topics, their partitions, a thousand offsets each"
