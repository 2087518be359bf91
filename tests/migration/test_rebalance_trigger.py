"""Triggers a rebalance of members that gave up at a fence, and names the partitions that are still not read."""

from __future__ import annotations

import pytest

from bridge.migration.control.control_steps import AcquireLock
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.rebalance_trigger import (
    OFFSET_PROGRESS_TIMEOUT_MS,
    OWNERSHIP_TIMEOUT_MS,
    TriggerRebalance,
    WaitForOffsetProgress,
)
from bridge.migration.steps.step import StepDone, StepPending, StepWaiting
from tests.migration.fence_fixtures import FENCING, UNDOING, moved, run_of, stood
from tests.migration.step_write_faults import GROUP, WHO, Group, at_every_cut, carry_out
from zkconsumer.errors import UnavailableError
from zkconsumer.member.events import SessionConnected
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import parse_registration
from zkconsumer.zk.requests import (
    ChildNames,
    Children,
    Create,
    CreateOp,
    Multi,
    NoAuth,
    Request,
    StoreEvent,
    WatchFired,
)
from zkconsumer.zk.store import submit_and_wait

IDS = paths.ids(GROUP)
CLICKS_0, CLICKS_1 = (TopicPartition("clicks", number) for number in range(2))


def test_watching_members_rebalance_and_see_no_new_member() -> None:
    """A registration that cannot be parsed would stop the whole group, even one that exists only for a moment."""
    group = moved(*UNDOING)
    told: list[StoreEvent] = []
    member = FakeZkStore(group.zookeeper)
    member.listen(told.append)
    member.start(1_000)
    submit_and_wait(member, [Children(IDS, watch=True)], 1_000)
    with group.process() as authority:
        step = TriggerRebalance(authority)
        assert step.describe()
        assert step.check() == StepPending()
        carry_out(authority, [step])
        assert step.check() == StepDone()
    assert [event for event in told if not isinstance(event, SessionConnected)] == [WatchFired(IDS, "children")]
    [children] = submit_and_wait(member, [Children(IDS)], 1_000)
    assert isinstance(children, ChildNames)
    assert children.names == []


def test_the_trigger_node_would_be_a_member_that_reads_nothing() -> None:
    group = moved(*UNDOING)
    sent: list[Request] = []
    with group.process() as authority:

        def note(request: Request) -> bool:
            sent.extend([request] if isinstance(request, Multi) else [])
            return isinstance(request, Multi)

        carry_out(authority, [AcquireLock(authority, WHO)])
        group.zookeeper.lose_connection_on_next(note, is_done=False)
        TriggerRebalance(authority).do()
    [request] = sent
    assert isinstance(request, Multi)
    [made] = [op for op in request.ops if isinstance(op, CreateOp)]
    registration = parse_registration(made.data)
    assert (registration.pattern, dict(registration.subscription)) == ("static", {})
    assert made.path == f"{IDS}/zkconsumer-nudge-m1"
    assert not made.ephemeral


def test_a_nudge_may_be_cut_off_anywhere_and_leaves_nothing() -> None:
    at_every_cut(lambda: moved(*UNDOING), run_of(lambda authority: [TriggerRebalance(authority)]), writes_min=1)


def test_no_rebalance_is_triggered_before_the_fences_are_to_be_removed() -> None:
    with moved(*FENCING).process() as authority, pytest.raises(PartiallyDoneError, match="in phase fencing"):
        TriggerRebalance(authority).do()


def test_a_group_without_ids_needs_no_rebalance() -> None:
    group = moved(*UNDOING)
    group.zookeeper.remove(IDS)
    with group.process() as authority:
        assert TriggerRebalance(authority).check() == StepDone()
        TriggerRebalance(authority).do()
    assert group.zookeeper.data(IDS) is None
    with moved(*UNDOING, Phase.UNDONE).process() as authority:
        assert TriggerRebalance(authority).check() == StepDone()


def test_members_whose_rebalance_cannot_be_triggered_are_reported() -> None:
    group = moved(*UNDOING)
    group.zookeeper.fail_next(lambda request: isinstance(request, Multi), NoAuth)
    with group.process() as authority, pytest.raises(UnavailableError, match="NoAuth"):
        TriggerRebalance(authority).do()


# --- do they read again -----------------------------------------------------------------------------------------


def owned(*partitions: TopicPartition) -> Group:
    group = moved(*UNDOING, group=stood())
    store = group.member()
    for tp in partitions:
        submit_and_wait(store, [Create(paths.owner(GROUP, tp), b"g1_host-1-0", ephemeral=True)], 1_000)
    return group


def looking(authority: ControlZnode, told: list[str], ends: dict[TopicPartition, int]) -> WaitForOffsetProgress:
    return WaitForOffsetProgress(authority, lambda: ends, told.append)


def test_a_partition_with_unread_records_whose_offset_does_not_change_is_named() -> None:
    """Its member's ``createMessageStreams`` had failed at the fence: it must be restarted."""
    group, told = owned(CLICKS_0, CLICKS_1), []
    with group.process() as authority:
        step = looking(authority, told, {CLICKS_0: 100, CLICKS_1: 100})
        assert step.describe()
        assert step.check() == StepWaiting("the offsets of clicks/0, clicks/1 to change, at most 90 s")
        group.offset("clicks", 1, 60)
        began_ms = group.clock.now_ms()
        carry_out(authority, [step])
        assert group.clock.now_ms() - began_ms == OFFSET_PROGRESS_TIMEOUT_MS
        assert step.check() == StepDone()
    assert told == [
        "the offsets of clicks/0 do not change, though there are more records: restart the members that own them "
        "(g1_host-1-0). Their streams ended at the fence and read nothing now"
    ]


@pytest.mark.parametrize(
    ("partitions", "ends"), [((), {CLICKS_0: 100}), ((CLICKS_0,), {CLICKS_0: 42}), ((CLICKS_0,), {})]
)
def test_offsets_of_orphaned_partitions_or_at_their_end_need_not_change(
    partitions: tuple[TopicPartition, ...], ends: dict[TopicPartition, int]
) -> None:
    told: list[str] = []
    with owned(*partitions).process() as authority:
        assert looking(authority, told, ends).check() == StepDone()
    assert told == []


def test_members_get_time_to_acquire_after_the_trigger_and_these_partitions_are_checked() -> None:
    """A member acquires a moment after the rebalance was triggered: a check in between would find no owner."""
    group, told = owned(), []
    submit_and_wait(group.member(), [Create(f"{IDS}/{GROUP}_late", b"{}", ephemeral=True)], 1_000)
    with group.process() as authority:
        step = looking(authority, told, {CLICKS_0: 100, CLICKS_1: 100})
        assert step.check() == StepWaiting("the registered members to acquire clicks/0, clicks/1")
        submit_and_wait(group.member(), [Create(paths.owner(GROUP, CLICKS_0), b"g1_late-0", ephemeral=True)], 1_000)
        assert step.check() == StepWaiting("the registered members to acquire clicks/1")
        group.clock.move(OWNERSHIP_TIMEOUT_MS)
        assert step.check() == StepWaiting("the offsets of clicks/0 to change, at most 80 s")
        carry_out(authority, [step])
    assert "(g1_late-0)" in told[0], "and the other is nothing that anybody reads"


def test_changed_offsets_are_enough() -> None:
    group, told = owned(CLICKS_0), []
    with group.process() as authority:
        step = looking(authority, told, {CLICKS_0: 100})
        assert isinstance(step.check(), StepWaiting)
        group.offset("clicks", 0, 43)
        assert step.check() == StepDone()
    assert told == []


def test_a_new_partition_without_an_offset_migrates_when_it_gets_one() -> None:
    tp = TopicPartition("views", 0)
    group, told = moved(*UNDOING), []
    group.zookeeper.ensure(paths.owners_of_topic(GROUP, "views"))
    submit_and_wait(group.member(), [Create(paths.owner(GROUP, tp), b"g1_host-1-0", ephemeral=True)], 1_000)
    with group.process() as authority:
        step = looking(authority, told, {tp: 5})
        assert isinstance(step.check(), StepWaiting)
        group.offset("views", 0, 5)
        assert step.check() == StepDone()
    assert told == []
