"""The refusals and warnings of a plan about the whole group, as sentences.  Pure.

A refusal ends with ``NEXT_COMMAND_MARK`` and the next command, and so does a warning that has one.  Refusals of single
partitions are in ``start_offsets``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.acl_policy import is_open
from bridge.migration.control.control_layout import phase_of
from bridge.migration.control.phases import ENDED, Phase
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.inspect.required_permissions import missing_permissions_text
from bridge.migration.plan.decisions import OffsetConvention
from bridge.migration.plan.offset_convention import ConventionEvidence, contradicts
from bridge.migration.plan.offset_retention import retention_warnings
from zkconsumer.admin.text_format import count_text, list_text, registered_text
from zkconsumer.wire.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from bridge.migration.control.phases import Strategy
    from bridge.migration.inspect.group_snapshot import GroupSnapshot, OwnerSnapshot
    from bridge.migration.plan.decisions import Decisions
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup

NEXT_COMMAND_MARK = ". Next: "
"""Separates a sentence from the next command."""

UNKNOWN_ASSIGNMENT = "?"
"""``assignment_in_use`` when the owners show none."""


def next_command(sentence: str) -> str:
    """The command that a sentence ends with; empty when it has none."""
    _, found, command = sentence.rpartition(NEXT_COMMAND_MARK)
    return command if found else ""


def plan_command(group: str, options: str = "") -> str:
    """The command that makes the plan again."""
    return f"zkconsumer migrate plan {group}" + (f" {options}" if options else "")


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The input of the checks: the snapshot of a group, the strategy, and the evidence of its offset convention.

    ``convention``: the decision, else that of ``evidence``; None: neither is known.
    """

    snapshot: GroupSnapshot
    decisions: Decisions
    strategy: Strategy
    evidence: ConventionEvidence

    @property
    def convention(self) -> OffsetConvention | None:
        """The meaning of a stored number in this plan."""
        return self.decisions.convention or self.evidence.convention


# --- refusals ---------------------------------------------------------------------------------------------------


def plan_refusals(case: PlanInput) -> Iterator[str]:
    """Why the group cannot be migrated now, or not with these decisions."""
    seen, decisions, convention = case.snapshot, case.decisions, case.convention
    yield from _migration_under_way(seen)
    if seen.control is not None and not seen.control.is_over:
        return  # other findings are results of that migration, and the operator must not decide them
    yield from _fences_of_completed_migration(seen, case.strategy)
    yield from _brokers(seen)
    yield from _kafka(seen)
    again = plan_command(seen.group)
    if not seen.partitions:
        yield (
            f"group {seen.group} uses no existing topic, so there is nothing to move"
            f"{NEXT_COMMAND_MARK}zkconsumer groups describe {seen.group}"
        )
    # While no broker answers, the operator must not decide what the logs may show.
    is_hidden = seen.brokers and all(one.supports_groups is None for one in seen.brokers)
    if convention is None and not is_hidden:
        yield (
            f"the meaning of the stored offsets is not known ({case.evidence.text}): decide whether an offset is the "
            f"next record to read (Kafka's own clients) or the last one read (go_kafka_client, Spark's "
            f"ReliableKafkaReceiver), with --offset-convention next or last{NEXT_COMMAND_MARK}{again} "
            "--offset-convention next"
        )
    strays = [tp for tp in decisions.offsets if tp not in seen.partitions]
    if strays:
        yield f"--offset names {list_text(strays)}, which the group does not use{NEXT_COMMAND_MARK}{again}"
    if case.strategy == "copy" and decisions.acl_fence and seen.acls_without_admin:
        yield (
            f"this login may not change the access lists of {count_text(len(seen.acls_without_admin), 'node')} "
            f"({list_text(seen.acls_without_admin)}), so they cannot block old members: use a login that the lists "
            "allow (zookeeper.auth in a --config file), or do not use access lists (then an old process that resumes "
            "from a pause can still write an old offset)"
            f"{NEXT_COMMAND_MARK}{again} --no-acl-fence"
        )
    if seen.missing_permissions:
        yield f"{missing_permissions_text(seen.missing_permissions)}{NEXT_COMMAND_MARK}{again}"
    fixed = [
        tp
        for tp, one in seen.partitions.items()
        if one.owner is not None
        and one.owner.kind == "persistent"
        and not _is_fence_of(one.owner, seen.fences_migration_id)
    ]
    if fixed:
        yield (
            f"no member can acquire the partitions of {count_text(len(fixed), 'owner node')} ({list_text(fixed)}): "
            "such a node is persistent, from another migration or created manually; the doctor shows the origin"
            f"{NEXT_COMMAND_MARK}zkconsumer groups doctor {seen.group}"
        )
    if case.strategy == "dual":
        yield from _dual_refusals(seen, convention)


def _migration_under_way(seen: GroupSnapshot) -> Iterator[str]:
    look = f"{NEXT_COMMAND_MARK}zkconsumer migrate inspect {seen.group}"
    if seen.control_error:
        yield (
            f"the control znode of group {seen.group} cannot be read ({seen.control_error}): find out which program "
            f"wrote it, and repair or delete it{look}"
        )
    control = seen.control
    if control is None:
        return
    try:
        phase = phase_of(control)
    except ValueError:
        yield (
            f"group {seen.group} is migrating, in a phase {control.phase!r} that this release does not know: continue "
            f"with the release that wrote it{look}"
        )
        return
    if phase not in ENDED:
        yield (
            f"group {seen.group} is already migrating (migration {control.migration_id}, phase {phase.value}, "
            f"authority {control.authority}): finish it, or roll it back"
            f"{NEXT_COMMAND_MARK}zkconsumer migrate status {seen.group}"
        )


def _is_fence_of(owner: OwnerSnapshot, migration_id: str) -> bool:
    mark = parse_fence_record(owner.thread.encode(errors="replace"))
    return mark is not None and mark.migration_id == migration_id


def _fences_of_completed_migration(seen: GroupSnapshot, strategy: Strategy) -> Iterator[str]:
    if not seen.fences_migration_id:
        return
    why = seen.fences_error
    if strategy == "dual":
        why = "dual keeps the members running, and the fences would block their ownership"
    if why:
        yield (
            f"the fences of migration {seen.fences_migration_id}, which is completed, are still there, and this plan "
            "cannot take "
            f"them over: {why}. Remove them first{NEXT_COMMAND_MARK}zkconsumer migrate complete {seen.group} "
            "--remove-fences"
        )


def _brokers(seen: GroupSnapshot) -> Iterator[str]:
    again = f"{NEXT_COMMAND_MARK}{plan_command(seen.group)}"
    old = [f"{one.name} ({one.release})" for one in seen.brokers if one.supports_groups is False]
    silent = [f"{one.name} ({one.release})" for one in seen.brokers if one.supports_groups is None]
    if not seen.brokers:
        yield f"no broker is known, so the group would have no coordinator: start one, or correct the chroot{again}"
    if old:
        yield (
            f"groups with members need brokers from 0.9 on, and these are older: {list_text(old)}; upgrade them{again}"
        )
    if silent:
        yield f"the releases of these brokers are not known: {list_text(silent)}; start them, or remove them{again}"


def _kafka(seen: GroupSnapshot) -> Iterator[str]:
    again = f"{NEXT_COMMAND_MARK}{plan_command(seen.group)}"
    if seen.kafka_error:
        yield f"the offsets of group {seen.group} in Kafka are not known: {seen.kafka_error}{again}"
    if seen.coordinator_group is None:
        yield (
            f"it is not known whether the coordinator group {seen.group} has members: "
            f"{seen.coordinator_group_error}{again}"
        )
        return
    if seen.coordinator_group.protocol_type not in ("", PROTOCOL_TYPE):
        yield (
            f"there is a group {seen.group} of another kind at the coordinator "
            f"({seen.coordinator_group.protocol_type}), and no "
            f"consumer can join that: the old group's programs need another group.id first"
            f"{NEXT_COMMAND_MARK}zkconsumer groups list"
        )
    elif seen.coordinator_group.has_members:
        yield (
            f"the coordinator group {seen.group} has members ({_coordinator_group_text(seen.coordinator_group)}), "
            "and brokers accept commits of its members only: stop them first"
            f"{NEXT_COMMAND_MARK}zkconsumer groups describe {seen.group}"
        )


def _coordinator_group_text(group: CoordinatorGroup) -> str:
    names = [f"{one.client_id} at {one.host.lstrip('/')}" for one in group.members]
    return f"{group.state}: {list_text(names)}" if names else group.state


def _dual_refusals(seen: GroupSnapshot, convention: OffsetConvention | None) -> Iterator[str]:
    as_copy = f"{NEXT_COMMAND_MARK}{plan_command(seen.group, '--strategy copy')}"
    others = [f"{one.consumer_id} ({one.kind})" for one in seen.members if one.kind in ("scala", "foreign")]
    if others:
        yield f"dual needs members of this library only, and these are others: {list_text(others)}{as_copy}"
    if not seen.members:
        yield f"dual migrates a group with running members, and no member is registered{as_copy}"
    if seen.assignment_in_use == UNKNOWN_ASSIGNMENT:
        yield (
            f"the owners match no assignment strategy, so the group is rebalancing{NEXT_COMMAND_MARK}zkconsumer "
            "groups doctor "
            f"{seen.group}"
        )
    if convention is OffsetConvention.LAST:
        yield f"dual needs offsets of the next record, and the stored ones are of the last record read{as_copy}"
    if seen.legacy_kafka_commits:
        yield f"dual needs members that store in ZooKeeper: {seen.legacy_kafka_commits}{as_copy}"


# --- warnings ---------------------------------------------------------------------------------------------------


def plan_warnings(case: PlanInput) -> Iterator[str]:
    """What does not prevent the migration, but the operator should know."""
    seen, decisions, strategy, evidence = case.snapshot, case.decisions, case.strategy, case.evidence
    yield from _second_migration_warning(seen)
    yield from _members(seen, strategy)
    if case.convention is OffsetConvention.LAST:
        yield f"each stored offset is taken as the last record read, so the next one is one higher: {evidence.text}"
    given = decisions.convention
    if given is not None and contradicts(evidence, given):
        yield f"the evidence contradicts --offset-convention {given.value}: {evidence.text}"
    if seen.legacy_kafka_commits and strategy == "copy":
        yield (
            f"old members seem to store offsets in Kafka: {seen.legacy_kafka_commits}. Where the stores differ, "
            "--existing decides which one is used"
        )
    yield from _topics(seen)
    if seen.coordinator_group is not None:
        yield from retention_warnings(seen, decisions)
    if strategy == "dual":
        yield from _dual(seen)
    elif decisions.acl_fence and any(not is_open(acl) for acl in set(seen.acls.values())):
        yield (
            "the nodes of the group have access lists, so apply needs a login with ADMIN permission on them "
            "(--zookeeper-auth), and not the members' login: otherwise the lists do not block a member that resumes "
            "from a long pause, and apply waits for the longest session instead"
        )
    elif not decisions.acl_fence:
        yield (
            "without access lists as a fence an old process that resumes from a pause can still write an old offset "
            "to ZooKeeper; it cannot acquire a partition"
        )


def _second_migration_warning(seen: GroupSnapshot) -> Iterator[str]:
    control = seen.control
    if control is None or control.phase != Phase.COMPLETED.value:
        return
    fences = "no fence is there, so old members may read until apply makes new ones"
    if seen.fences_migration_id:
        fences = "its fences are still there, and apply takes them over: no old member can read meanwhile"
    yield (
        f"group {seen.group} has moved to Kafka already (migration {control.migration_id}, completed), and Kafka has "
        f"the authority; {fences}. The first write of apply gives ZooKeeper the authority again. A rollback before the "
        "switch removes the fences, and old members then go on from ZooKeeper's offsets; one behind the switch writes "
        "Kafka's offsets to ZooKeeper first"
    )


def _dual(seen: GroupSnapshot) -> Iterator[str]:
    read = {topic for one in seen.members for topic in one.topics}
    unread = [tp for tp in seen.partitions if tp.topic not in read]
    if unread:
        yield (
            f"no member reads {list_text(unread)}: apply commits their offsets to Kafka as planned, before any member "
            "joins the coordinator group"
        )
    unknown = [one.consumer_id for one in seen.members if one.kind == "unknown"]
    if unknown:
        yield (
            f"{list_text(unknown)} own no partition, so it is not known whether they can migrate: apply waits until "
            "each of them has acknowledged"
        )


def _members(seen: GroupSnapshot, strategy: Strategy) -> Iterator[str]:
    names = [one.consumer_id for one in seen.members]
    if names and strategy == "copy":
        yield f"{registered_text(len(names))} ({list_text(names)}): apply waits until they have stopped"
    unread = [f"{one.consumer_id}: {one.error}" for one in seen.members if one.error]
    if unread:
        yield (
            f"registrations that cannot be parsed: {list_text(unread)}{NEXT_COMMAND_MARK}zkconsumer groups doctor "
            f"{seen.group}"
        )
    if seen.assignment_in_use == UNKNOWN_ASSIGNMENT and strategy == "copy":
        yield (
            "the owners match neither range nor any roundrobin: a member is joining, or the members compute different "
            f"assignments{NEXT_COMMAND_MARK}zkconsumer groups doctor {seen.group}"
        )


def _topics(seen: GroupSnapshot) -> Iterator[str]:
    if seen.topic_filters:
        yield (
            f"members subscribe by {list_text(seen.topic_filters)}, which now means {list_text(seen.topics)}. A topic "
            "that appears "
            "during the move is behind the fence as well, and apply names it; it is planned when the plan is made anew"
        )
    if seen.missing_topics:
        yield f"these topics do not exist and are not migrated: {list_text(seen.missing_topics)}"
    if seen.offsets_without_partition:
        yield f"offsets of partitions that do not exist are not migrated: {list_text(seen.offsets_without_partition)}"
    if seen.unexpected_nodes:
        yield f"these nodes belong to no topic or partition, and are not changed: {list_text(seen.unexpected_nodes)}"
