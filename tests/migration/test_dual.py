"""A group migrates with its members, and returns: what each phase waits for, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from bridge.migration.control.control_steps import request_abort
from bridge.migration.control.phases import Phase
from bridge.migration.dual.dual_strategy import DualOptions, dual_steps
from bridge.migration.dual.non_acknowledging_members import non_acknowledging_name
from bridge.migration.dual.store_comparison import CompareStores
from bridge.migration.errors import (
    HookVetoError,
    PartiallyDoneError,
    StalePlanError,
    VerificationError,
    WaitTimeoutError,
)
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.inspect.migration_status import MigrationStatus, read_migration_status
from bridge.migration.offsets.provenance import parse_provenance
from bridge.migration.plan.decisions import Decisions, OffsetConvention, OffsetFallback
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.plan_json import digest_of_plan
from bridge.migration.steps.complete import complete_steps
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.migration.steps.step import MigrationStep, StepRunner
from bridge.migration.steps.step_executors import DryRunExecutor
from bridge.migration.steps.znode_archive import read_archive
from tests.broker.raw_client import RawClient
from tests.migration.dual_members import LOG_END, PARTITIONS, DualLab, DualMembers, dual, lab
from tests.migration.dual_order_checker import judge_order
from tests.migration.migration_write_faults import Cuts
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import Registration, format_registration
from zkconsumer.zk.requests import Create, Delete
from zkconsumer.zk.store import submit_and_wait

__all__ = ["dual", "lab"]

T0, T1, T2 = PARTITIONS
INCONSISTENT_GROUP_PROTOCOL = 23


def original(dual: DualLab, group: str, *owned: TopicPartition) -> FakeZkStore:
    """A Scala member: it claims as those do, and acknowledges nothing."""
    store = FakeZkStore(dual.zookeeper)
    store.start(1_000)
    data = format_registration(Registration("static", {"t": 1}, "1"))
    claims = [Create(paths.owner(group, tp), f"{group}_scala-1-0".encode(), ephemeral=True) for tp in owned]
    submit_and_wait(
        store, [Create(paths.registration(group, f"{group}_scala-1"), data, ephemeral=True), *claims], 1_000
    )
    return store


def status_of(dual: DualLab, crowd: DualMembers) -> MigrationStatus:
    with dual.process() as session:
        return read_migration_status(session, crowd.group)


def fenced(dual: DualLab, crowd: DualMembers) -> list[TopicPartition]:
    found = []
    for tp in PARTITIONS:
        data = dual.zookeeper.data(paths.owner(crowd.group, tp))
        if data is not None and parse_fence_record(data) is not None:
            found.append(tp)
    return found


def held_at(dual: DualLab, phase: Phase, *, is_loaded: bool = True) -> tuple[DualMembers, MigrationPlan]:
    crowd = dual.crowd(is_loaded=is_loaded)
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan, stop_after=phase)
    assert dual.stands(crowd.group)[0] == phase.value
    return crowd, plan


def test_there_and_back_under_load(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        told = dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")
    assert any("waiting for" in line and "c1 to follow to locked" in line and "s left" in line for line in told)
    assert fenced(dual, crowd) == list(PARTITIONS), "an original member that comes late finds nothing free"
    crowd.acts()
    assert {tp: offset for tp, (offset, _) in dual.kafka(crowd.group).items()} == crowd.positions
    with dual.process() as session:
        assert not any("wake" in line for line in dual.take_back(session, plan)), "nobody gave up"
    assert dual.stands(crowd.group) == ("undone", "zookeeper")
    assert dual.offsets(crowd.group) == crowd.positions
    assert all(member.generation < 0 for member in crowd.members), "nobody is in the coordinator's group any more"
    assert not fenced(dual, crowd)
    judge_order(crowd.recorder.events)


def test_in_a_rollback_zookeeper_has_the_offsets_of_a_query_before_it_has_the_authority(dual: DualLab) -> None:
    """A query holds t/2 and leaves in *returning*: the partition belongs to no member then, and ZooKeeper has an offset
    of before the query.  The acknowledgements of the members show none of that, so the tool compares both stores too.
    """
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    crowd.is_loaded = False
    query = crowd.add("spark", is_mute=True, name_in_group=non_acknowledging_name(f"{crowd.group}_spark"))
    query.ask(Delete(paths.registration(crowd.group, query.consumer)))
    query.control = crowd.members[0].control
    crowd.acts()
    before = dual.offsets(crowd.group)[T2]
    assert query.given == {T2}
    assert query.to_kafka(T2, LOG_END)
    crowd.positions[T2] = LOG_END
    pauses = count()

    def acts() -> None:
        """The query leaves at the tool's fourth check; a member reads Kafka's offset of t/2 four checks later."""
        pause = next(pauses)
        if pause == 4:
            query.control, query.topics, crowd._protocols = None, (), ()
        if pause >= 4:
            for member in crowd.members:
                member.in_kafka[T2] = before if pause < 8 else LOG_END
        crowd.acts()

    dual.on_pause = acts
    with dual.process() as session:
        told = dual.take_back(session, plan)
    words = f"compare both stores: waiting for both stores to agree: t/2: ZooKeeper has {before}, not {LOG_END}"
    assert any(line.startswith(words) for line in told), told
    assert dual.stands(crowd.group) == ("undone", "zookeeper")
    assert dual.offsets(crowd.group) == crowd.positions


def test_a_rollback_before_the_switch_is_one_write_and_no_member_stops(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.COPIED)
    owned = {member: set(member.owned) for member in crowd.members}
    cuts = Cuts()
    with dual.process(cuts) as session:
        dual.take_back(session, plan)
    control = paths.control(crowd.group)
    assert [words for words in cuts.seen if words != "Multi "] == [
        f"Delete {control}/abort", f"SetData {control}", f"SetData {control}",
    ]  # fmt: skip
    assert dual.stands(crowd.group) == ("undone", "zookeeper")
    assert {member: set(member.owned) for member in crowd.members} == owned
    crowd.acts()
    assert dual.offsets(crowd.group) == crowd.positions
    again = dual.dual_plan(crowd, name="n")
    crowd.is_loaded = False  # after the switch they would commit without a provenance
    with dual.process() as session:
        dual.move(session, again)
    assert dual.stands(crowd.group) == ("switched", "kafka")
    assert {parse_provenance(text).migration_id for _, text in dual.kafka(crowd.group).values()} == {again.migration_id}
    # type: ignore


def test_a_dry_run_shows_every_step_and_writes_nothing(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    performer, cuts = DryRunExecutor(), Cuts()
    with dual.process(cuts) as session:
        steps = dual_steps(dual.moving(session, plan), DualOptions(plan_to_bytes(plan)))
        StepRunner(performer, dual.clock, 1_000, "again", lambda: False).run_steps(steps)
    assert not cuts.seen
    assert performer.error is None
    assert [one.name for one in performer.steps if one.status == "to do"] == [
        "control znode: planned", "acquire the lock", "store the plan", "journal: apply",
        "every member acts by planned", "control znode: armed",
        "every member acts by armed", "control znode: ready",
        "every member acts by ready", "control znode: locked",
        "every member acts by locked", "members own every partition", "compare both stores", "control znode: copied",
        "every member acts by copied", "members own every partition", "compare both stores",
        "every member acts by copied", "control znode: switched",
        "every member acts by switched", "owner fences for unowned partitions", "no owners are left in ZooKeeper",
        "owner fences for unowned partitions",
    ]  # fmt: skip
    assert dual.control(crowd.group) is None


@pytest.mark.parametrize("phase", [Phase.ARMED, Phase.READY, Phase.LOCKED, Phase.COPIED])
def test_after_stop_after_every_member_acts_by_the_phase_and_the_next_run_continues(
    dual: DualLab, phase: Phase
) -> None:
    crowd, plan = held_at(dual, phase)
    assert status_of(dual, crowd).waiting_for == []
    assert {one.acknowledgement.phase for one in status_of(dual, crowd).participants.by_consumer_id.values()} == {
        phase.value
    }  # type: ignore
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")
    judge_order(crowd.recorder.events)


# --- clients that stop it ---------------------------------------------------------------------------------------


def test_a_scala_consumer_is_named_before_any_change(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    crowd.members[0].releases(set())
    dual.on_pause = lambda: None
    scala = original(dual, crowd.group, T0)
    with dual.process() as session, pytest.raises(WaitTimeoutError, match=r"g[0-9]+_scala-1, a Scala consumer"):
        dual.move(session, plan, timeout_ms=3_000)
    assert dual.control(crowd.group) is None
    dual.zookeeper.expire(scala, reconnects=False)
    dual.on_pause = crowd.acts
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_a_member_that_never_acknowledges_stops_the_first_step_and_is_named(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    mute = crowd.add("mute", is_mute=True)
    with (
        dual.process() as session,
        pytest.raises(PartiallyDoneError, match=f"{mute.consumer} to acknowledge, as every Migrat"),
    ):
        dual.move(session, plan, timeout_ms=3_000)
    assert dual.stands(crowd.group) == ("planned", "zookeeper")
    assert f"{mute.consumer} to acknowledge" in status_of(dual, crowd).waiting_for[0]
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.stands(crowd.group) == ("undone", "zookeeper"), "nobody has to answer for that"


def test_a_dead_member_is_not_waited_for_and_a_new_one_is(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.LOCKED)
    crowd.members[0].ends()
    crowd.add("late", lag=3)
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")
    judge_order(crowd.recorder.events)


def test_a_late_scala_consumer_stops_the_next_step_and_is_named(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.LOCKED)
    scala = original(dual, crowd.group)
    with dual.process() as session, pytest.raises(PartiallyDoneError, match="_scala-1 to acknowledge"):
        dual.move(session, plan, timeout_ms=3_000)
    assert dual.stands(crowd.group) == ("locked", "zookeeper")
    dual.zookeeper.expire(scala, reconnects=False)
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_after_the_switch_fences_block_a_late_scala_consumer_and_its_owner_node_stays(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.COPIED)
    came: list[FakeZkStore] = []

    def acts() -> None:
        crowd.acts()
        if dual.stands(crowd.group)[0] == "switched" and not came and not any(one.owned for one in crowd.members):
            came.append(original(dual, crowd.group, T1))

    dual.on_pause = acts
    with dual.process() as session, pytest.raises(PartiallyDoneError, match=r"_scala-1-0.* to release t/1: stop it"):
        dual.move(session, plan, timeout_ms=5_000)
    assert fenced(dual, crowd) == [T0, T2]
    dual.zookeeper.expire(came[0], reconnects=False)
    with dual.process() as session:
        dual.move(session, plan)
    assert fenced(dual, crowd) == [T0, T1, T2]
    late = original(dual, crowd.group, T1)
    assert parse_fence_record(dual.zookeeper.data(paths.owner(crowd.group, T1)) or b"") is not None
    words = [
        str(one.consumer_id)
        for one in status_of(dual, crowd).participants.by_consumer_id.values()
        if one.acknowledgement is None
    ]  # type: ignore
    assert words == [f"{crowd.group}_scala-1"], "status names it"
    dual.zookeeper.expire(late, reconnects=False)


def test_a_foreign_member_of_the_coordinator_group_is_named(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.ARMED)
    with RawClient(dual.broker.addresses()[0], client_id="stock") as stock:
        assert stock.join(crowd.group).error_code == INCONSISTENT_GROUP_PROTOCOL, "a stock client is not let in"
    crowd.add("as-another", name_in_group="somebody-else")
    with (
        dual.process() as session,
        pytest.raises(PartiallyDoneError, match=r"\(app, .*\) to leave the coordinator group"),
    ):
        dual.move(session, plan, timeout_ms=3_000)
    found = status_of(dual, crowd)
    assert len(found.participants.unknown_members) == 1  # type: ignore[union-attr]
    assert "(app, " in found.coordinator_members
    assert dual.stands(crowd.group) == ("armed", "zookeeper")


def test_a_group_without_members_is_not_led_on(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.ARMED)
    crowd.close()
    with (
        dual.process() as session,
        pytest.raises(PartiallyDoneError, match="a member to register: the group is empty"),
    ):
        dual.move(session, plan, timeout_ms=2_000)


def test_a_partition_without_an_owner_is_named(dual: DualLab) -> None:
    crowd, plan = held_at(dual, Phase.LOCKED)
    member = next(one for one in crowd.members if T1 in one.owned)
    dual.on_pause = lambda: None
    member.releases(member.owned - {T1})
    with dual.process() as session, pytest.raises(PartiallyDoneError, match="a member to acquire t/1"):
        dual.move(session, plan, timeout_ms=2_000)


# --- the comparison ---------------------------------------------------------------------------------------------


def test_a_value_that_a_member_did_not_bring_up_is_found_by_value(dual: DualLab) -> None:
    """Whatever the members acknowledge."""
    crowd, plan = held_at(dual, Phase.LOCKED, is_loaded=False)
    dual.on_pause = lambda: None
    dual.zookeeper.ensure(paths.offset(crowd.group, T0), b"30")
    with (
        dual.process() as session,
        pytest.raises(PartiallyDoneError, match="t/0: Kafka has 10, not 30 as ZooKeeper has"),
    ):
        dual.move(session, plan, timeout_ms=2_000)
    dual.on_pause = crowd.acts
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.kafka(crowd.group)[T0][0] == 30


def test_missing_and_orphaned_offsets_are_committed_as_planned_before_members_join(dual: DualLab) -> None:
    dual.broker.create_topic("unread", 1)
    crowd = dual.crowd(is_loaded=False, stored=False)
    unread = TopicPartition("unread", 0)
    dual.zookeeper.ensure(paths.offset(crowd.group, unread), b"0")
    plan = dual.dual_plan(crowd)
    assert any("no member reads unread/0" in words for words in plan.warnings)
    with dual.process() as session:
        dual.move(session, plan)
    kafka = dual.kafka(crowd.group)
    assert {tp: offset for tp, (offset, _) in kafka.items()} == {T0: 10, T1: 20, T2: 0, unread: 0}
    by_tool = {tp: parse_provenance(text).epoch for tp, (_, text) in kafka.items()}  # type: ignore[union-attr]
    assert by_tool == {T0: 3, T1: 3, T2: 1, unread: 1}, "the tool wrote at the first epoch, members at that of locked"
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.zookeeper.data(paths.offset(crowd.group, T2)) is None, "what was decided is nobody's position"


def test_a_start_that_does_not_follow_from_the_decisions_is_not_committed_by_the_tool(dual: DualLab) -> None:
    """As in a plan that was altered where it is kept: t/2 has no offset, and is to begin with the log."""
    crowd = dual.crowd(is_loaded=False, stored=False)
    plan = dual.dual_plan(crowd)
    rows = tuple(replace(row, target=48) if row.tp == T2 else row for row in plan.partitions)
    forged = replace(plan, partitions=rows)
    forged = replace(forged, digest=digest_of_plan(forged))
    with (
        dual.process() as session,
        pytest.raises(VerificationError, match=r"t/2: the plan contains 48 \(missing: earl"),
    ):
        dual.move(session, forged)
    assert dual.stands(crowd.group)[0] == "planned"
    assert dual.kafka(crowd.group) == {}


def test_an_offset_that_came_since_is_carried_by_its_member(dual: DualLab) -> None:
    crowd = dual.crowd(is_loaded=False, stored=False)
    plan = dual.dual_plan(crowd)
    dual.zookeeper.ensure(paths.offset(crowd.group, T2), b"7")
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.kafka(crowd.group)[T2][0] == 7


def test_an_orphaned_offset_that_changed_makes_the_plan_stale(dual: DualLab) -> None:
    dual.broker.create_topic("left", 1)
    crowd = dual.crowd(is_loaded=False)
    path = paths.offset(crowd.group, TopicPartition("left", 0))
    dual.zookeeper.ensure(path, b"0")
    plan = dual.dual_plan(crowd)
    dual.zookeeper.ensure(path, b"0")
    stale = r"left/0: ZooKeeper had 0 \(version 0\) and has 0"
    with dual.process() as session, pytest.raises(StalePlanError, match=stale):
        dual.move(session, plan)
    assert dual.control(crowd.group) is None


def test_a_decision_that_contradicts_a_members_offset_is_refused(dual: DualLab) -> None:
    crowd = dual.crowd(is_loaded=False)
    with pytest.raises(AssertionError, match="its member carries 10 over, and 3 was decided"):
        dual.dual_plan(crowd, Decisions(OffsetConvention.NEXT, missing=OffsetFallback.EARLIEST, offsets={T0: 3}))


def test_a_foreign_value_of_an_orphaned_partition_ends_the_run(dual: DualLab) -> None:
    crowd = dual.crowd(is_loaded=False, stored=False)
    plan = dual.dual_plan(crowd)
    assert dual.commit(crowd.group, 2, 33) == 0
    with dual.process() as session, pytest.raises(VerificationError, match="another client committed"):
        dual.move(session, plan)
    assert dual.stands(crowd.group)[0] == "planned"


# --- around it --------------------------------------------------------------------------------------------------


def test_a_program_vetoes_the_switch_and_the_members_stay_where_they_are(dual: DualLab, tmp_path: Path) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    hook = tmp_path / "zkconsumer-on-before-cut-over"
    hook.write_text('#!/bin/sh\n[ "$ZKCONSUMER_STRATEGY" = dual ] && exit 1\n')
    hook.chmod(0o755)
    with dual.process() as session, pytest.raises(HookVetoError):
        dual.move(session, plan, hooks_dir=tmp_path)
    assert dual.stands(crowd.group) == ("copied", "zookeeper")
    hook.write_text("#!/bin/sh\nexit 0\n")
    with dual.process() as session:
        dual.move(session, plan, hooks_dir=tmp_path)
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_an_abort_stops_it_between_two_steps(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)

    def acts() -> None:
        crowd.acts()
        with dual.process() as session:
            request_abort(session, crowd.group, "bob")

    dual.on_pause = acts
    with dual.process() as session, pytest.raises(PartiallyDoneError, match="by 'zkconsumer migrate abort'"):
        dual.move(session, plan)
    dual.on_pause = crowd.acts
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_a_client_that_joins_during_the_comparison_stops_the_switch(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        moving = dual.moving(session, plan)
        scala: list[FakeZkStore] = []

        def steps() -> Iterator[MigrationStep]:
            for step in dual_steps(moving, DualOptions(plan_to_bytes(plan))):
                yield step
                if isinstance(step, CompareStores) and moving.phase is Phase.COPIED:
                    scala.append(original(dual, crowd.group))

        with pytest.raises(PartiallyDoneError, match="_scala-1 to acknowledge"):
            dual.carry_out(moving, steps(), 60_000)
    assert dual.stands(crowd.group) == ("copied", "zookeeper")
    dual.zookeeper.expire(scala[0], reconnects=False)
    with dual.process() as session:
        dual.move(session, plan)
    assert dual.stands(crowd.group) == ("switched", "kafka")


def test_a_client_that_joins_during_the_comparison_stops_the_rollback(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    with dual.process() as session:
        moving = dual.moving(session, plan)
        scala: list[FakeZkStore] = []

        def steps() -> Iterator[MigrationStep]:
            for step in rollback_steps(moving, RollbackOptions(print, 1_000)):
                yield step
                if isinstance(step, CompareStores):
                    scala.append(original(dual, crowd.group))

        with pytest.raises(PartiallyDoneError, match="_scala-1 to acknowledge"):
            dual.carry_out(moving, steps(), 60_000)
    assert dual.stands(crowd.group) == ("returning", "kafka")
    dual.zookeeper.expire(scala[0], reconnects=False)
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.stands(crowd.group) == ("undone", "zookeeper")


def test_the_end_keeps_the_znodes_lifts_the_fences_and_members_offer_range_alone(dual: DualLab, tmp_path: Path) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    archive = tmp_path / "archive"
    with dual.process() as session:
        moving = dual.moving(session, plan)
        dual.carry_out(moving, complete_steps(moving, archive, remove_fences=True))
        assert dual.carry_out(moving, complete_steps(moving, archive, remove_fences=True)) == []
    assert dual.stands(crowd.group) == ("completed", "kafka")
    assert paths.offset(crowd.group, T0) in {node.path for node in read_archive(archive).nodes}
    assert not fenced(dual, crowd)
    assert crowd._protocols == ("range",)


def test_back_when_every_member_has_stopped_is_the_way_of_a_copy(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    positions = dict(crowd.positions)
    crowd.close()
    performer, cuts = DryRunExecutor(), Cuts()
    with dual.process(cuts) as session:
        steps = rollback_steps(dual.moving(session, plan), RollbackOptions(print, 1_000))
        StepRunner(performer, dual.clock, 1_000, "again", lambda: False).run_steps(steps)
    assert (performer.error, cuts.seen) == (None, [])
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.stands(crowd.group) == ("undone", "zookeeper")
    assert dual.offsets(crowd.group) == positions
    judge_order(crowd.recorder.events)


def test_back_with_members_that_came_only_then(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    for member in list(crowd.members):
        member.ends()
    crowd.add("new")
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.stands(crowd.group) == ("undone", "zookeeper")
    assert dual.offsets(crowd.group) == crowd.positions


def test_after_the_rollback_a_rebalance_of_scala_consumers_is_triggered(dual: DualLab) -> None:
    crowd = dual.crowd()
    plan = dual.dual_plan(crowd)
    with dual.process() as session:
        dual.move(session, plan)
    scala = original(dual, crowd.group)
    with dual.process() as session, pytest.raises(PartiallyDoneError, match="_scala-1 to acknowledge"):
        dual.take_back(session, plan, timeout_ms=3_000)
    dual.zookeeper.expire(scala, reconnects=False)
    with dual.process() as session:
        dual.take_back(session, plan)
    assert dual.stands(crowd.group) == ("undone", "zookeeper")
