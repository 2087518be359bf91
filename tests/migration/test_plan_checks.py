"""What stops the migration of a group, and the warnings: each refusal with the next command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.migration.inspect.group_snapshot import BrokerSnapshot, OwnerSnapshot
from bridge.migration.plan.decisions import Decisions, OffsetConvention
from bridge.migration.plan.plan_checks import next_command
from tests.migration.group_snapshots import at_end, member, one_short, partition, plan, tp
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import ControlRecord

AGAIN = "zkconsumer migrate plan g1"
COMMAND = {"describe": "zkconsumer groups describe g1", "doctor": "zkconsumer groups doctor g1", "again": AGAIN,
           "inspect": "zkconsumer migrate inspect g1", "status": "zkconsumer migrate status g1",
           "lift": "zkconsumer migrate complete g1 --remove-fences", "list": "zkconsumer groups list",
           "copy": f"{AGAIN} --strategy copy"}  # fmt: skip


def control(phase: str, authority: Any = "zookeeper") -> ControlRecord:
    return ControlRecord("m0", 3, phase, authority, "copy")


def alive(*members: CoordinatorGroupMember, **more: Any) -> CoordinatorGroup:
    return CoordinatorGroup("Stable", more.pop("protocol_type", "consumer"), members)


@pytest.mark.parametrize(
    ("more", "words", "command"),
    [
        ({"control_error": "not JSON"}, "the control znode of group g1 cannot be read (not JSON)", "inspect"),
        ({"control": control("fenced")}, "is already migrating (migration m0, phase fenced, authority zoo", "status"),
        ({"control": control("planned")}, "is already migrating", "status"),
        (
            {
                "control": control("copied"),
                "coordinator_group": alive(CoordinatorGroupMember("m-1", "app", "/10.0.0.1")),
                "brokers": (),
            },
            "is already migrating",
            "status",
        ),
        ({"control": control("switched", "kafka")}, "phase switched, authority kafka", "status"),
        (
            {"control": control("completed", "kafka"), "fences_migration_id": "m0", "fences_error": "no lists"},
            "are still there, and this plan cannot take them over: no lists",
            "lift",
        ),
        ({"control": control("paused")}, "in a phase 'paused' that this release does not know", "inspect"),
        ({"brokers": ()}, "no broker is known", "again"),
        ({"brokers": (BrokerSnapshot("b:1", False, "before 0.9"),)}, "these are older: b:1 (before 0.9)", "again"),
        ({"brokers": (BrokerSnapshot("b:1", None, "refused"),)}, "are not known: b:1 (refused)", "again"),
        ({"kafka_error": "away"}, "the offsets of group g1 in Kafka are not known: away", "again"),
        ({"coordinator_group": None, "coordinator_group_error": "away"}, "has members: away", "again"),
        (
            {"coordinator_group": alive(CoordinatorGroupMember("m-1", "app", "/10.0.0.1"))},
            "has members (Stable: app at 10.0.0.1)",
            "describe",
        ),
        ({"coordinator_group": alive()}, "has members (Stable)", "describe"),
        ({"coordinator_group": alive(protocol_type="connect")}, "of another kind at the coordinator (connect)", "list"),
    ],
)
def test_refusals_about_a_group(more: dict[str, Any], words: str, command: str) -> None:
    made = plan(**more)
    [refusal] = made.refusals
    assert words in refusal
    assert next_command(refusal) == COMMAND[command]
    assert not made.can_be_applied


def test_a_migrated_group_may_migrate_again_and_the_plan_explains_it() -> None:
    moved = control("completed", "kafka")
    made = plan(control=moved)
    assert made.can_be_applied
    assert any("has moved to Kafka already (migration m0, completed)" in words for words in made.warnings)
    fence = OwnerSnapshot("zkconsumer-migrate:1:m0:3", "persistent")
    assert plan(at_end(owner=fence), control=moved, fences_migration_id="m0").can_be_applied
    other = plan(
        at_end(owner=replace(fence, thread="zkconsumer-migrate:1:m9:3")), control=moved, fences_migration_id="m0"
    )
    assert "such a node is persistent" in other.refusals[0]


def test_a_rolled_back_group_may_migrate_again() -> None:
    assert plan(control=control("undone")).can_be_applied
    assert plan(coordinator_group=CoordinatorGroup("Empty", "consumer")).can_be_applied


def test_a_convention_without_evidence_is_asked_for() -> None:
    [refusal] = plan(partition(0, 42)).refusals
    assert "the meaning of the stored offsets is not known (nothing shows it for certain)" in refusal
    assert "--offset-convention next or last" in refusal
    assert next_command(refusal) == f"{AGAIN} --offset-convention next"
    for given in OffsetConvention:
        assert plan(partition(0, 42), decisions=Decisions(given)).can_be_applied


def test_a_decision_that_contradicts_the_evidence_causes_a_warning() -> None:
    made = plan(one_short(0), one_short(1), one_short(2), decisions=Decisions(OffsetConvention.NEXT))
    assert made.convention is OffsetConvention.NEXT
    assert made.convention_evidence.startswith("decided by the operator (seen: clicks/0")
    assert any("the evidence contradicts --offset-convention next" in words for words in made.warnings)


def test_a_plan_reports_that_it_takes_numbers_for_the_last_record() -> None:
    made = plan(one_short(0), one_short(1), one_short(2))
    assert made.convention is OffsetConvention.LAST
    assert made.targets == dict.fromkeys((tp(0), tp(1), tp(2)), 100)
    assert any(words.startswith("each stored offset is taken as the last record read") for words in made.warnings)


def test_a_group_without_partitions() -> None:
    made = plan(at_end(), partitions={})
    assert "uses no existing topic" in made.refusals[0]
    assert next_command(made.refusals[0]) == COMMAND["describe"]


def test_lists_that_we_may_not_change() -> None:
    path = "/consumers/g1/offsets/clicks"
    [refusal] = plan(acls_without_admin=(path,)).refusals
    assert f"this login may not change the access lists of 1 node ({path})" in refusal
    assert next_command(refusal) == f"{AGAIN} --no-acl-fence"
    made = plan(acls_without_admin=(path,), decisions=Decisions(acl_fence=False))
    assert made.can_be_applied
    assert any("can still write an old offset" in words for words in made.warnings)


def test_owner_nodes_that_no_session_ends() -> None:
    [refusal] = plan(at_end(owner=OwnerSnapshot("by hand", "persistent"))).refusals
    assert "1 owner node (clicks/0): such a node is persistent" in refusal
    assert next_command(refusal) == COMMAND["doctor"]
    assert plan(at_end(owner=OwnerSnapshot("g1_a-0", "scala"))).can_be_applied


def test_an_offset_for_a_partition_outside_the_group() -> None:
    other = TopicPartition("clickz", 0)
    [refusal] = plan(decisions=Decisions(offsets={other: 5})).refusals
    assert refusal == f"--offset names clickz/0, which the group does not use. Next: {AGAIN}"


@pytest.mark.parametrize(
    ("more", "words", "command"),
    [
        ({"members": (member(), member("g1_b", "scala"))}, "these are others: g1_b (scala)", "copy"),
        ({"members": (member("g1_b", "foreign"),)}, "these are others: g1_b (foreign)", "copy"),
        ({"members": ()}, "no member is registered", "copy"),
        ({"members": (member(),), "assignment_in_use": "?"}, "the owners match no assignment strategy", "doctor"),
        ({"members": (member(),), "legacy_kafka_commits": "it shows"}, "store in ZooKeeper: it shows", "copy"),
    ],
)
def test_the_requirements_of_dual(more: dict[str, Any], words: str, command: str) -> None:
    [refusal] = plan(strategy="dual", **more).refusals
    assert words in refusal
    assert next_command(refusal) == COMMAND[command]
    assert plan(**more).can_be_applied


def test_dual_does_not_take_numbers_for_the_last_record() -> None:
    made = plan(strategy="dual", members=(member(),), decisions=Decisions(OffsetConvention.LAST))
    assert any("dual needs offsets of the next record" in words for words in made.refusals)
    assert plan(strategy="dual", members=(member(),)).can_be_applied


@pytest.mark.parametrize(
    ("more", "words", "command"),
    [
        ({"members": (member(),)}, "1 member is registered (g1_a): apply waits until they have stopped", ""),
        ({"members": (member(error="odd"),)}, "registrations that cannot be parsed: g1_a: odd", "doctor"),
        ({"assignment_in_use": "?"}, "the owners match neither range nor any roundrobin", "doctor"),
        (
            {"topic_filters": ("white_list 'c.*'",)},
            "members subscribe by white_list 'c.*', which now means clicks. A to",
            "",
        ),
        ({"missing_topics": ("gone",)}, "these topics do not exist and are not migrated: gone", ""),
        (
            {"offsets_without_partition": (tp(9),)},
            "offsets of partitions that do not exist are not migrated: clicks/9",
            "",
        ),
        ({"unexpected_nodes": ("/x",)}, "these nodes belong to no topic or partition, and are not changed: /x", ""),
        ({"legacy_kafka_commits": "it shows"}, "old members seem to store offsets in Kafka: it shows", ""),
        ({"retention_ms": 86_400_000}, "for 1 d (offsets.retention.minutes), copied now until 2014-11-18T17:46:1", ""),
        ({"retention_ms": None}, "for a day before Kafka 2.0, a week later (offsets.retention.minutes): start", ""),
        ({"keeps_by_commit": True}, "an idle partition whose client does not commit again loses its position then", ""),
    ],
)
def test_warnings_that_stop_nothing(more: dict[str, Any], words: str, command: str) -> None:
    made = plan(**more)
    assert made.can_be_applied
    [warning] = [each for each in made.warnings if words in each]
    assert next_command(warning) == (COMMAND[command] if command else "")
