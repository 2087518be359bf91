"""The members for which a phase of the control znode waits, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.migration.control.phases import Phase, authority_of
from bridge.migration.dual.dual_strategy import STOP_AFTER_PHASES
from bridge.migration.dual.machine.acknowledgement import Acknowledgement
from bridge.migration.dual.non_acknowledging_members import non_acknowledging_name
from bridge.migration.dual.participants import SPARK_QUERY_HINT, Participant, Participants, pending_conditions
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.zk.znode_formats import ControlRecord

PRIVATE = "zkconsumer-m1"


def control(phase: Phase) -> ControlRecord:
    return ControlRecord("m1", 3, phase.value, authority_of(phase), "dual")


def said(phase: Phase, **more: Any) -> Acknowledgement:
    fields: dict[str, Any] = {"epoch": 3, "phase": phase.value, "generation": 4, "behind": 0} | more
    return Acknowledgement("m1", **fields)


def group(*consumers: str, protocol: str = PRIVATE, state: str = "Stable") -> CoordinatorGroup:
    members = tuple(
        CoordinatorGroupMember(f"app-{n}", "app", "/h", user_data=name.encode()) for n, name in enumerate(consumers)
    )
    return CoordinatorGroup(state, "consumer", members, protocol)


def roster(phase: Phase, *followers: Participant, modern: CoordinatorGroup | None) -> Participants:
    return Participants(control(phase), {one.consumer_id: one for one in followers}, modern)


@pytest.mark.parametrize("phase", [*STOP_AFTER_PHASES, Phase.SWITCHED, Phase.RETURNING])
def test_all_members_that_acknowledged_are_in_the_group_by_name(phase: Phase) -> None:
    a, b = Participant("a", said(phase)), Participant("b", said(phase))
    assert pending_conditions(roster(phase, a, b, modern=group("b", "a"))) == []
    assert pending_conditions(roster(phase, a, b, modern=group("a", "c"))) == [
        "b to join the coordinator group",
        "app-1 (app, h) to leave the coordinator group: it cannot migrate; stop it",
    ], "two and two are not the same two"
    assert pending_conditions(roster(phase, a, b, modern=None)) == [
        "the coordinator to return the members of the group"
    ]
    assert pending_conditions(roster(phase, a, b, modern=group("a", "b", state="PreparingRebalance"))) == [
        "the coordinator group to become stable (it is PreparingRebalance)"
    ]
    [words] = pending_conditions(roster(phase, a, b, modern=group("a", "", protocol="range")))
    assert words.startswith(f"the coordinator group to use {PRIVATE} (it uses range: app-0 (app, h), app-1")


@pytest.mark.parametrize(
    ("follower", "words"),
    [
        (Participant("a"), "a to acknowledge, as every MigratingConsumerConnector does"),
        (
            Participant("a", is_scala_consumer=True),
            "a to leave: it cannot migrate (a Scala consumer, by its",
        ),
        (Participant("a", error="no JSON"), "a to acknowledge in the format of this release (no JSON)"),
        (Participant("a", said(Phase.READY)), "a to follow to locked, epoch 3 (at ready, epoch 3)"),
        (Participant("a", said(Phase.LOCKED, epoch=2)), "a to follow to locked, epoch 3 (at locked, epoch 2)"),
        (Participant("a", replace(said(Phase.LOCKED), migration_id="m0")), "a to follow to locked"),
        (Participant("a", said(Phase.LOCKED, generation=-1)), "a to join the coordinator group"),
        (Participant("a", said(Phase.LOCKED, behind=2)), "a to catch up with 2 of its partitions"),
        (Participant("a", said(Phase.LOCKED), is_registered=False), "a, which acknowledged and is not registered"),
    ],
)
def test_each_late_member_is_named_with_its_task(follower: Participant, words: str) -> None:
    b = Participant("b", said(Phase.LOCKED))
    [found] = pending_conditions(roster(Phase.LOCKED, follower, b, modern=group("a", "b")))
    assert found.startswith(words)


def test_two_generations_are_waited_for() -> None:
    a, b = Participant("a", said(Phase.SWITCHED)), Participant("b", said(Phase.SWITCHED, generation=5))
    assert pending_conditions(roster(Phase.SWITCHED, a, b, modern=group("a", "b"))) == [
        "the members to be in one generation (they acknowledged 4, 5)"
    ]


def test_after_the_switch_only_members_that_acknowledged_before_are_waited_for() -> None:
    a, silent = Participant("a", said(Phase.SWITCHED)), Participant("scala", is_scala_consumer=True)
    assert pending_conditions(roster(Phase.SWITCHED, a, silent, modern=group("a"))) == []
    late = Participant("late", said(Phase.COPIED))
    [words] = pending_conditions(roster(Phase.SWITCHED, a, late, silent, modern=group("a")))
    assert words.startswith("late to follow to switched")
    assert pending_conditions(roster(Phase.SWITCHED, modern=CoordinatorGroup("Empty"))) == [], (
        "members may all stop by then"
    )


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.ARMED, Phase.LOCKED, Phase.RETURNING])
def test_without_members_the_run_does_not_continue(phase: Phase) -> None:
    [words, *_] = pending_conditions(roster(phase, modern=CoordinatorGroup("Empty")))
    assert words == f"a member to register: the group is empty{SPARK_QUERY_HINT}"


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.UNDOING, Phase.UNDONE])
def test_in_phases_without_the_coordinator_group_all_members_have_left_it(phase: Phase) -> None:
    a = Participant("a", said(phase, generation=-1))
    assert pending_conditions(roster(phase, a, modern=CoordinatorGroup("Empty"))) == []
    assert pending_conditions(roster(phase, a, modern=group("a"))) == ["a to leave the coordinator group"]


def test_completed_members_are_like_any_others() -> None:
    gone = Participant("a", said(Phase.COMPLETED), is_registered=False)
    assert pending_conditions(roster(Phase.COMPLETED, gone, modern=group("", "", protocol="range"))) == []


@pytest.mark.parametrize(
    ("phase", "is_welcome"), [(Phase.SWITCHED, True), (Phase.COPIED, False), (Phase.RETURNING, False)]
)
def test_a_spark_query_joins_after_the_switch_and_leaves_before_the_rollback(phase: Phase, is_welcome: bool) -> None:
    a, there = Participant("a", said(phase)), group("a", non_acknowledging_name("g_q"))
    found = roster(phase, a, modern=there)
    assert (found.non_acknowledging_members, found.unknown_members, found.in_coordinator_group) == (("g_q",), (), {"a"})
    words = "g_q, a Spark query, to leave the coordinator group, as it does after its batch"
    assert pending_conditions(found) == ([] if is_welcome else [words])
    assert roster(phase, a, modern=group("a", "", protocol="range")).non_acknowledging_members == (), (
        "by range nobody says his name"
    )
