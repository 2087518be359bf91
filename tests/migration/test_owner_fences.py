"""A fence in the place of every claim: whole or not at all, never over a live owner, and away again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.migration.control.control_steps import AcquireLock
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.fences.fence_checks import CheckFences, WaitForMembersToLeave, WaitForOwnershipRelease
from bridge.migration.fences.fence_record import FenceRecord, format_fence_record, parse_fence_record
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.owner_fences import (
    CHUNK_PARTITIONS_MAX,
    CreateLateOwnerFences,
    CreateOwnerFences,
    owner_fence_steps,
)
from bridge.migration.fences.owner_nodes import read_group_partitions
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepWaiting
from tests.migration.fence_fixtures import FENCING, PLANNED, UNDOING, lists_of, moved, run_of, stood, to
from tests.migration.step_write_faults import GROUP, WHO, Group, at_every_cut, carry_out
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    MULTI_OPS_MAX,
    PERM_READ,
    SERVER_PACKET_BYTES_MAX,
    Acl,
    Create,
    CreateOp,
    Delete,
    Multi,
    MultiOk,
    NodeExists,
    NotEmpty,
    SetOp,
)
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import consumer_of

CLICKS_0 = TopicPartition("clicks", 0)
MARK = b"zkconsumer-migrate:1:m1:2"
THREAD = b"g1_host-1416246370000-55ddbc44-0"


def fences_of(group: Group) -> dict[str, bytes]:
    """The nodes below owners/T."""
    return {path: data for path, (data, _) in group.state().items() if paths.partition_of(path.removesuffix("/fenced"))
            and path.startswith(paths.owners(GROUP))}  # fmt: skip


def claim(group: Group, tp: TopicPartition = CLICKS_0, data: bytes = THREAD) -> None:
    """As a Scala consumer does: data version 0."""
    path = paths.owner(GROUP, tp)
    assert submit_and_wait(group.member(), [Create(path, data, ephemeral=True)], 1_000) == [path]


def register(group: Group, name: str = "g1_host-1") -> None:
    submit_and_wait(group.member(), [Create(paths.registration(GROUP, name), b"{}", ephemeral=True)], 1_000)


# --- the fence record --------------------------------------------------------------------------------------------


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.integers(0, 10**18 - 1))
def test_a_fence_names_its_migration_and_epoch(migration: str, epoch: int) -> None:
    data = format_fence_record(FenceRecord(migration, epoch))
    assert parse_fence_record(data) == FenceRecord(migration, epoch)
    assert "-" in data.decode(), "old tools cut there, and fail where there is none"
    assert consumer_of(data.decode()) == data.decode(), "it has no number of a thread"


@given(st.binary(max_size=60))
def test_whatever_else_is_there_is_no_fence(data: bytes) -> None:
    assert parse_fence_record(data) is None


# --- making them ------------------------------------------------------------------------------------------------


def test_fences_are_created_in_one_multi_and_may_be_interrupted_anywhere() -> None:
    run = run_of(lambda authority: list(owner_fence_steps(authority, PLANNED)))
    at_every_cut(lambda: moved(*FENCING), run, writes_min=2)
    group = moved(*FENCING)
    with group.process() as authority:
        [step] = owner_fence_steps(authority, PLANNED)
        carry_out(authority, [step])
        assert step.describe() == ["create the fences of 4 partitions, clicks/0 first"]
    fences = fences_of(group)
    assert len(fences) == 2 * len(PLANNED)
    assert {data for path, data in fences.items() if not path.endswith("/fenced")} == {MARK}


def test_no_scala_consumer_acquires_a_fenced_partition_or_deletes_its_fence() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, list(owner_fence_steps(authority, PLANNED)))
    path = paths.owner(GROUP, CLICKS_0)
    assert submit_and_wait(group.member(), [Create(path, THREAD, ephemeral=True), Delete(path)], 1_000) == [
        NodeExists(path), NotEmpty(path)
    ]  # fmt: skip


def test_a_chunk_fits_into_a_packet_and_is_a_step_with_its_own_name() -> None:
    many = [TopicPartition("t" * 249, number) for number in range(5_001)]
    group = moved(*FENCING)
    with group.process() as authority:
        steps = owner_fence_steps(authority, many)
        assert [step.name for step in steps] == [f"owner fences {n} of {len(steps)}" for n in range(1, len(steps) + 1)]
        assert [tp for step in steps for tp in step.partitions] == sorted(many)
        held = authority.require_phase(Phase.FENCING)
        for step in steps:
            ops = [op for ops in step._pending_ops(held).values() for op in ops]
            assert len(step.partitions) <= CHUNK_PARTITIONS_MAX
            assert len(ops) < MULTI_OPS_MAX
            assert sum(len(op.path) + len(getattr(op, "data", b"")) + 64 for op in ops) < SERVER_PACKET_BYTES_MAX
        assert len(steps) > 5
        carry_out(authority, list(steps))
    assert len(fences_of(group)) == 2 * len(many)


def test_a_chunk_with_an_owned_partition_fails_completely_and_names_the_owner() -> None:
    group = moved(*FENCING)
    claim(group, TopicPartition("clicks", 2))
    before = group.state()
    with group.process() as authority:
        steps = owner_fence_steps(authority, PLANNED)
        with pytest.raises(
            PartiallyDoneError, match=r"clicks/2 is owned by g1_host-1416246370000-55ddbc44-0 \(session 0x1"
        ):
            carry_out(authority, list(steps))
        with pytest.raises(PartiallyDoneError, match="stop that member"):
            steps[0].do()
    assert group.state() == before


def test_an_owner_that_appears_between_read_and_write_fails_the_whole_chunk() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        [step] = owner_fence_steps(authority, PLANNED)
        assert isinstance(step.check(), StepPending)
        held = authority.require_phase(Phase.FENCING)
        todo = step._pending_ops(held)
        claim(group, TopicPartition("clicks", 1))
        failed = authority.transact(held, [op for ops in todo.values() for op in ops])
        assert not isinstance(failed, MultiOk)
        assert fences_of(group) == {paths.owner(GROUP, TopicPartition("clicks", 1)): THREAD}
        with pytest.raises(PartiallyDoneError, match="clicks/1 is owned by"):
            step.do()


def test_a_member_that_registers_between_two_steps_is_named() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        register(group, "g1_late-1")
        with pytest.raises(PartiallyDoneError, match="g1_late-1 registered in group g1 after all members had left"):
            carry_out(authority, list(owner_fence_steps(authority, PLANNED)))
    assert fences_of(group) == {}


def test_our_own_claim_is_swapped_for_the_fence_in_the_same_multi() -> None:
    def make(authority: ControlZnode) -> CreateOwnerFences:
        path = paths.owner(GROUP, CLICKS_0)
        made = authority.session.request([Multi((CreateOp(path, b"me-0", ephemeral=True), SetOp(path, b"me-0", 0)))])
        assert isinstance(made[0], MultiOk)
        [step] = owner_fence_steps(authority, PLANNED)
        return step

    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, [make(authority)])
        assert fences_of(group)[paths.owner(GROUP, CLICKS_0)] == MARK
    assert len(fences_of(group)) == 8, "they outlive the session"


@pytest.mark.parametrize("sets", [0, 2])
def test_a_claim_of_our_session_that_is_no_claim_of_ours_is_not_swapped(sets: int) -> None:
    """Only data version 1 is an owner node that this library created: a Scala consumer's has 0."""
    group = moved(*FENCING)
    with group.process() as authority:
        path = paths.owner(GROUP, CLICKS_0)
        authority.session.request([Create(path, b"me-0", ephemeral=True), *[Multi((SetOp(path, b"me-0"),))] * sets])
        with pytest.raises(PartiallyDoneError, match="is owned by me-0"):
            carry_out(authority, list(owner_fence_steps(authority, PLANNED)))


def test_fences_of_an_earlier_epoch_are_updated_and_lost_children_created_again() -> None:
    def make() -> Group:
        group = moved(*FENCING)
        for number, data in enumerate((b"zkconsumer-migrate:1:m1:1", MARK, b"zkconsumer-migrate:1:m1:0")):
            group.zookeeper.ensure(paths.owner(GROUP, TopicPartition("clicks", number)), data)
        group.zookeeper.ensure(paths.fence_child(GROUP, CLICKS_0))
        return group

    at_every_cut(make, run_of(lambda authority: list(owner_fence_steps(authority, PLANNED))), writes_min=2)
    group = make()
    with group.process() as authority:
        carry_out(authority, list(owner_fence_steps(authority, PLANNED)))
    fences = fences_of(group)
    assert len(fences) == 8
    assert {data for path, data in fences.items() if not path.endswith("/fenced")} == {MARK}


@pytest.mark.parametrize(("data", "words"), [
    (b"zkconsumer-migrate:1:m0:7", "clicks/0 is fenced by migration m0, which has no control znode"),
    (b"zkconsumer-migrate:1:m1:9", "clicks/0 is fenced at epoch 9, later than this run's"),
    (b"keep out", "another program created a persistent owner node of clicks/0.*keep out"),
    (b"", "another program created a persistent owner node of clicks/0"),
    (b"\xff" * 20_000, "another program created a persistent owner node of clicks/0"),
])  # fmt: skip
def test_a_foreign_node_is_named_and_not_changed(data: bytes, words: str) -> None:
    group = moved(*FENCING)
    group.zookeeper.ensure(paths.owner(GROUP, CLICKS_0), data)
    before = group.state()
    with group.process() as authority, pytest.raises(PartiallyDoneError, match=words):
        carry_out(authority, list(owner_fence_steps(authority, PLANNED)))
    assert group.state() == before


def test_without_the_right_to_make_nodes_the_login_is_named() -> None:
    group = moved(*FENCING)
    group.zookeeper.set_acl(paths.owners_of_topic(GROUP, "clicks"), (Acl(PERM_READ, "world", "anyone"),))
    with group.process() as authority, pytest.raises(PartiallyDoneError, match=r"\(NoAuth\).*--zookeeper-auth"):
        carry_out(authority, list(owner_fence_steps(authority, PLANNED)))


def test_a_stale_run_fences_nothing() -> None:
    group = moved(*FENCING)
    with group.process() as stale, group.process() as other:
        [step] = owner_fence_steps(stale, PLANNED)
        assert isinstance(step.check(), StepPending)
        carry_out(other, [to(other, Phase.UNDOING)])
        with pytest.raises(PartiallyDoneError, match="phase undoing"):
            step.do()
    assert fences_of(group) == {}


def test_after_fenced_nothing_is_created_again() -> None:
    """A fence that is missing then was deleted by a client, and is not created again: ``CheckFences`` reports it."""
    group = moved(Phase.FENCING, Phase.FENCED)
    with group.process() as authority:
        for step in (*owner_fence_steps(authority, PLANNED), CreateLateOwnerFences(authority, PLANNED)):
            assert isinstance(step.check(), StepDone)


# --- what came later --------------------------------------------------------------------------------------------


def test_partitions_and_topics_that_came_after_the_plan_are_fenced_too() -> None:
    def make() -> Group:
        group = moved(*FENCING)
        group.topic("clicks", 5)
        group.topic("late", 2)
        group.topic("nobodys", 2)
        group.offset("late", 0)
        group.zookeeper.ensure(paths.owners_of_topic(GROUP, "owned"))
        group.topic("owned", 1)
        return group

    def steps(authority: ControlZnode) -> list[CreateLateOwnerFences]:
        return [CreateLateOwnerFences(authority, PLANNED)]

    at_every_cut(make, run_of(lambda authority: list(steps(authority))), writes_min=2)
    group = make()
    with group.process() as authority:
        assert steps(authority)[0].describe() == [
            "create fences for what came after the plan: clicks/3, clicks/4, late/0, late/1, owned/0"
        ]
        carry_out(authority, list(steps(authority)))
        assert steps(authority)[0].check() == StepDone()
    assert {paths.partition_of(path) for path in fences_of(group) if not path.endswith("/fenced")} == {
        TopicPartition("clicks", 3), TopicPartition("clicks", 4), TopicPartition("late", 0), TopicPartition("late", 1),
        TopicPartition("owned", 0)
    }  # fmt: skip


def test_a_live_owner_of_a_later_partition_is_named() -> None:
    group = moved(*FENCING)
    group.zookeeper.ensure(paths.owners_of_topic(GROUP, "late"))
    claim(group, TopicPartition("late", 0))
    with group.process() as authority, pytest.raises(PartiallyDoneError, match="late/0 is owned by"):
        carry_out(authority, [CreateLateOwnerFences(authority, PLANNED)])


def test_nodes_that_are_no_partitions_are_passed_over() -> None:
    group = stood()
    for name in ("clicks/x", "clicks/01", "no topic/0"):
        group.zookeeper.ensure(f"{paths.offsets(GROUP)}/{name}")
    with group.process() as authority:
        assert read_group_partitions(authority.session, GROUP, {"views"}) == list(PLANNED)


# --- away again -------------------------------------------------------------------------------------------------


def test_fences_are_removed_with_the_created_parents_and_may_be_interrupted_anywhere() -> None:
    planned = lists_of(stood())

    def make() -> Group:
        group = moved(*FENCING)
        with group.process() as authority:
            carry_out(authority, [*owner_fence_steps(authority, PLANNED), to(authority, Phase.UNDOING)])
        return group

    at_every_cut(make, run_of(lambda authority: [RemoveOwnerFences(authority, planned)]), writes_min=4)
    group = make()
    with group.process() as authority:
        step = RemoveOwnerFences(authority, planned)
        assert step.describe() == ["delete the fences of 4 partitions"]
        carry_out(authority, [step])
    assert lists_of(group) == planned


@pytest.mark.parametrize("phase", [Phase.UNDOING, Phase.COMPLETED])
def test_fences_of_any_epoch_of_ours_are_lifted_and_others_nodes_named_and_left(phase: Phase) -> None:
    """The owner node of a member, or one made manually, is no fence."""
    forward = (*FENCING, Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.COMPLETED)
    way = UNDOING if phase is Phase.UNDOING else forward
    group = moved(*way)
    for number, data in enumerate((b"zkconsumer-migrate:1:m1:0", b"zkconsumer-migrate:1:m0:1", b"by hand")):
        group.zookeeper.ensure(paths.owner(GROUP, TopicPartition("clicks", number)), data)
    group.zookeeper.ensure(paths.owners_of_topic(GROUP, "views"))
    claim(group, TopicPartition("views", 0))
    with group.process() as authority:
        with pytest.raises(PartiallyDoneError, match="clicks/1 is fenced by migration m0"):
            carry_out(authority, [RemoveOwnerFences(authority, lists_of(group))])
        assert set(fences_of(group).values()) == {b"zkconsumer-migrate:1:m0:1", b"by hand", THREAD}
        group.zookeeper.remove(paths.owner(GROUP, TopicPartition("clicks", 1)))
        carry_out(authority, [RemoveOwnerFences(authority, lists_of(group))])
    assert set(fences_of(group).values()) == {b"by hand", THREAD}


@pytest.mark.parametrize("phase", [Phase.FENCING, Phase.SWITCHED])
def test_no_fence_is_removed_while_the_migration_advances(phase: Phase) -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, list(owner_fence_steps(authority, PLANNED)))
        way = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED) if phase is Phase.SWITCHED else ()
        carry_out(authority, [to(authority, one) for one in way])
        before = group.state()
        with pytest.raises(PartiallyDoneError, match=f"in phase {phase.value}"):
            carry_out(authority, [AcquireLock(authority, WHO), RemoveOwnerFences(authority, ())])
        assert group.state() == before


def test_fences_that_we_may_not_delete_are_reported() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(
            authority,
            [*owner_fence_steps(authority, PLANNED), to(authority, Phase.UNDOING), AcquireLock(authority, WHO)],
        )
        group.zookeeper.set_acl(paths.owners_of_topic(GROUP, "clicks"), (Acl(PERM_READ, "world", "anyone"),))
        with pytest.raises(PartiallyDoneError, match=r"were not deleted.*NoAuth"):
            carry_out(authority, [RemoveOwnerFences(authority, ())])


# --- members that are still there --------------------------------------------------------------------------------


def test_members_are_waited_for_by_name() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        step = WaitForMembersToLeave(authority)
        assert step.check() == StepDone()
        for number in range(7):
            register(group, f"g1_host-{number}")
        assert step.check() == StepWaiting(
            "g1_host-0, g1_host-1, g1_host-2, g1_host-3, g1_host-4 and 2 more to leave: stop the old members"
        )


def test_claims_of_members_that_left_are_waited_for_as_long_as_a_session_may_last() -> None:
    group = moved(*FENCING)
    claim(group)
    with group.process() as authority:
        step = WaitForOwnershipRelease(authority, acl_fence=True)
        assert step.check() == StepWaiting("the owner nodes of clicks/0 to end, at most 40 s")
        group.zookeeper.expire(group.zookeeper.stores[-2], reconnects=False)
        assert step.check() == StepDone()


def test_an_owner_node_that_outlives_every_session_belongs_to_a_living_member() -> None:
    group = moved(*FENCING)
    claim(group)
    with group.process() as authority:
        with pytest.raises(PartiallyDoneError, match=r"clicks/0 is owned by g1_host.*stop that member"):
            carry_out(authority, [WaitForOwnershipRelease(authority, acl_fence=True)])
        assert group.clock.now_ms() >= 1_000_000 + 40_000


def test_without_access_lists_the_longest_session_is_waited_out_in_full() -> None:
    """A member that was paused may write an offset until its session has ended."""
    group = moved(*FENCING)
    with group.process() as authority:
        began_ms = group.clock.now_ms()
        assert carry_out(authority, [WaitForOwnershipRelease(authority, acl_fence=True)]) == []
        waited = carry_out(authority, [WaitForOwnershipRelease(authority, acl_fence=False)])
    assert group.clock.now_ms() - began_ms == 40_000
    assert waited[0] == "sessions of old members to end, at most 40 s"


def test_a_member_that_registers_while_claims_are_waited_for_is_named() -> None:
    group = moved(*FENCING)
    claim(group)
    with group.process() as authority:
        step = WaitForOwnershipRelease(authority, acl_fence=True)
        assert isinstance(step.check(), StepWaiting)
        register(group, "g1_late-1")
        standing = step.check()
        assert isinstance(standing, StepRefused)
        assert "g1_late-1 registered" in str(standing.error)


def test_our_fences_and_our_own_claims_are_no_claims_to_wait_for() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        authority.session.request([Create(paths.owner(GROUP, TopicPartition("clicks", 2)), b"me-0", ephemeral=True)])
        [step] = owner_fence_steps(authority, PLANNED[:2])
        carry_out(authority, [step, WaitForOwnershipRelease(authority, acl_fence=True)])
        group.zookeeper.ensure(paths.owner(GROUP, TopicPartition("views", 0)), b"by hand")
        assert isinstance(WaitForOwnershipRelease(authority, acl_fence=True).check(), StepWaiting)


# --- all fences exist --------------------------------------------------------------------------------------------


def fenced() -> Group:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, [*owner_fence_steps(authority, PLANNED), to(authority, Phase.FENCED)])
    return group


def test_a_group_that_vanished_after_the_fence_is_reported_with_the_copy() -> None:
    """Exit code 5: an old tool deletes a group without members."""
    group = fenced()
    with group.process() as authority:
        step = CheckFences(authority, PLANNED, "plan.json")
        carry_out(authority, [step])
        for path in sorted(lists_of(group), reverse=True):
            group.zookeeper.remove(path)
        group.zookeeper.remove(paths.group_root(GROUP))
        with pytest.raises(
            VerificationError, match=r"/consumers/g1 was deleted.*are in plan\.json.*migrate rollback g1"
        ):
            carry_out(authority, [step])
        assert VerificationError.exit_code == 5


@pytest.mark.parametrize("instead", [None, b"by hand", b"zkconsumer-migrate:1:m0:2", b"zkconsumer-migrate:1:m1:9"])
def test_a_deleted_fence_is_reported(instead: bytes | None) -> None:
    group = fenced()
    group.zookeeper.remove(paths.fence_child(GROUP, CLICKS_0))
    group.zookeeper.remove(paths.owner(GROUP, CLICKS_0))
    if instead is not None:
        group.zookeeper.ensure(paths.owner(GROUP, CLICKS_0), instead)
    with (
        group.process() as authority,
        pytest.raises(VerificationError, match=r"fences of clicks/0 were deleted"),
    ):
        carry_out(authority, [CheckFences(authority, PLANNED, "plan.json")])


def test_fences_count_at_later_epochs_too() -> None:
    group = fenced()
    with group.process() as authority:
        carry_out(authority, [to(authority, phase) for phase in (Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED)])
        assert authority.require_phase(Phase.SWITCHED).control.epoch == 3
        assert CheckFences(authority, PLANNED, "x").check() == StepDone()
        assert CheckFences(authority, PLANNED, "x").describe()
