"""Reads a group from ZooKeeper and Kafka and returns a ``GroupSnapshot``; changes nothing, and creates no topic.

    znodes              read_group, access lists          acl_inspection, required_permissions
    ended migration     what its rollback left in Kafka, and its offset convention            returned_offsets
    logs                start and end, and the last entry of a log whose end is one after     log_end_inspection
                        the stored offset
    Kafka's own store   committed offsets with metadata; the coordinator group of the same name
    brokers             supported requests, retention of offsets                              broker_inspection

ZooKeeper must answer.  For information that brokers do not return, ``GroupSnapshot`` contains a sentence, and a plan
that needs it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.fences.inherited_fences import read_inherited_fences
from bridge.migration.inspect.acl_inspection import inspect_acls, missing_permissions
from bridge.migration.inspect.broker_inspection import inspect_brokers
from bridge.migration.inspect.cluster_ids import read_cluster_ids, read_zookeeper_cluster_id
from bridge.migration.inspect.group_snapshot import (
    BrokerSnapshot,
    ClusterIds,
    CommittedOffset,
    GroupSnapshot,
    OwnerSnapshot,
    PartitionSnapshot,
    RegistrationSnapshot,
)
from bridge.migration.inspect.log_end_inspection import read_last_entries
from bridge.migration.inspect.required_permissions import GroupZnodes
from bridge.migration.offsets.returned_offsets import read_ended_migration
from bridge.migration.plan.plan_checks import UNKNOWN_ASSIGNMENT
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_group import ZooKeeperGroup, read_group
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage
from zkconsumer.errors import MalformedZnode
from zkconsumer.member.group_assignment import AssignmentContext, AssignorVariant, detect_variants
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.migration.offsets.returned_offsets import EndedMigration
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.zookeeper_group import OffsetNode
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup

NO_ASSIGNMENT = "none"

GO_KAFKA_CLIENT_NODE = "api/rebalance"
"""Below the group; only go_kafka_client creates it, before it registers."""


def inspect_group(
    session: AdminSession, group: str, *, with_acls: bool = True, with_rights: bool = False
) -> GroupSnapshot | None:
    """The group now; None when ``/consumers`` does not have it.

    ``with_acls``: also the access lists, one packet a node.  ``with_rights``: also the permissions for the migration
    that this login lacks, with the fence of those lists or without it.  Raises ``InvalidNameError``, and
    ``UnavailableError`` when ZooKeeper does not answer.
    """
    brokers, retention_ms, keeps_by_commit = inspect_brokers(session)
    silence = _unreachable_text(brokers)
    state = read_group(session, group)
    if state is None:
        return None
    there = _existing_partitions(state)
    # Directly after the offsets: an offset at the end of its log shows the offset convention, and logs grow.
    logs = _logs(session, state, there, silence)
    store = KafkaOffsetAdmin(session, group)
    # Where ZooKeeper has the topics, it shows whether the cluster has an offset store.
    has_store = not silence or not session.has_topics_in_zookeeper or store.exists()
    kafka, kafka_problem = ({}, silence) if silence and has_store else _kafka_values(store, there)
    coordinator_group, group_problem = (None, silence) if silence and has_store else _coordinator_group(store)
    ended = read_ended_migration(session, group, state.control)
    partitions = {tp: _partition(state, tp, logs[tp], kafka.get(tp), ended) for tp in there}
    acls, no_admin = inspect_acls(session, state) if with_acls else ({}, ())
    inherited = read_inherited_fences(session, state, acls if with_acls else None)
    nodes = GroupZnodes(group, {tp.topic for tp in there}, [tp for tp in there if tp in state.offsets], with_acls)
    return GroupSnapshot(
        group=group,
        at_ms=state.read_at_ms,
        members=_members(state),
        partitions=read_last_entries(session, partitions),
        missing_topics=tuple(state.missing_topics),
        offsets_without_partition=tuple(tp for tp in state.offsets if tp not in partitions),
        unexpected_nodes=state.unexpected_nodes,
        acls=inherited.acls,
        acls_without_admin=no_admin,
        missing_permissions=missing_permissions(session, nodes, inherited.acls) if with_rights else (),
        control=state.control,
        control_version=state.control_version,
        control_error=state.control_problem,
        coordinator_group=coordinator_group,
        coordinator_group_error=group_problem,
        kafka_error=kafka_problem,
        brokers=brokers,
        retention_ms=retention_ms,
        keeps_by_commit=keeps_by_commit,
        assignment_in_use=_assignment_in_use(state),
        legacy_kafka_commits=_legacy_kafka_commits(session, state, partitions, coordinator_group),
        last_offset_clients=_last_offset_clients(session, group),
        clusters=ClusterIds(zookeeper=read_zookeeper_cluster_id(session)) if silence else read_cluster_ids(session),
        topic_filters=_filters(state),
        fences_migration_id=inherited.migration_id,
        fences_error=inherited.error,
        convention_before=ended.convention,
    )


# --- partitions -------------------------------------------------------------------------------------------------


def _existing_partitions(state: ZooKeeperGroup) -> list[TopicPartition]:
    """The existing partitions; of a topic whose znode cannot be read, those that have an offset."""
    numbers = {topic: frozenset(one.partitions) for topic, one in state.topics.items()}
    unread = {topic for topic, one in state.topics.items() if one.problem}
    return [tp for tp in state.partitions if tp.partition in numbers.get(tp.topic, ()) or tp.topic in unread]


def _logs(
    session: AdminSession, state: ZooKeeperGroup, partitions: list[TopicPartition], silence: str
) -> Mapping[TopicPartition, LogRange | str]:
    found: dict[TopicPartition, LogRange | str] = {}
    for tp in partitions:
        if state.topics[tp.topic].problem:
            found[tp] = f"the znode of topic {tp.topic} cannot be read: {state.topics[tp.topic].problem}"
    wanted = [tp for tp in partitions if tp not in found]
    if silence:
        return found | dict.fromkeys(wanted, silence)
    try:
        return found | (log_ranges(session.brokers, wanted) if wanted else {})
    except BROKER_REQUEST_ERRORS as error:
        return found | dict.fromkeys(wanted, str(error))


def _partition(
    state: ZooKeeperGroup, tp: TopicPartition, log: LogRange | str, kafka: CommittedOffset | None, ended: EndedMigration
) -> PartitionSnapshot:
    node, owner = state.offsets.get(tp), state.owners.get(tp)
    seen_owner = None if owner is None else OwnerSnapshot(owner.thread, owner.kind)
    is_returned = ended.has_returned(tp, kafka)
    if node is None:
        return PartitionSnapshot(tp, owner=seen_owner, kafka=kafka, log=log, is_returned=is_returned)
    is_ours = owner is not None and owner.kind == "zkconsumer" and node.stat.mzxid > owner.stat.czxid
    return PartitionSnapshot(
        tp, node.offset, node.stat.version, node.problem, node.stat.mtime_ms, _is_older(state, node), is_ours,
        seen_owner, kafka, log, is_returned=is_returned,
    )  # fmt: skip


def _is_older(state: ZooKeeperGroup, node: OffsetNode) -> bool:
    """Whether it was written before its topic was created; False where brokers store the topics (not known there)."""
    birth = state.topics[node.tp.topic].stat
    return birth is not None and node.stat.mzxid < birth.czxid


# --- Kafka ------------------------------------------------------------------------------------------------------


def _unreachable_text(brokers: tuple[BrokerSnapshot, ...]) -> str:
    """Why no further request is sent to the brokers: each would wait for all of them again.  Empty: one answers.

    Empty also if no broker is known: then the next request fails at once, with a better error text.
    """
    if not brokers or any(one.supports_groups is not None for one in brokers):
        return ""
    return f"none of {count_text(len(brokers), 'broker')} answers; the first one: {brokers[0].release}"


def _kafka_values(
    store: KafkaOffsetAdmin, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, CommittedOffset], str]:
    wanted = frozenset(partitions)
    try:
        stored = store.read_offsets()
    except BROKER_REQUEST_ERRORS as error:
        return {}, str(error)
    return {tp: CommittedOffset(one.offset, one.metadata) for tp, one in stored.items() if tp in wanted}, ""


def _coordinator_group(store: KafkaOffsetAdmin) -> tuple[CoordinatorGroup | None, str]:
    """The coordinator group, or why it is not known."""
    try:
        return store.coordinator_group(), ""
    except BROKER_REQUEST_ERRORS as error:
        return None, f"its coordinator does not answer ({error})"


def _legacy_kafka_commits(
    session: AdminSession,
    state: ZooKeeperGroup,
    partitions: Mapping[TopicPartition, PartitionSnapshot],
    coordinator_group: CoordinatorGroup | None,
) -> str:
    """Evidence that old members commit to Kafka; empty without it.

    It is either the setting ``offsets.storage`` of the given file, or offsets in Kafka that no member of a coordinator
    group and no migration has committed.  Old members, from 0.8.2 on, and some tools commit without a membership; a
    group that ever had a member keeps its protocol type.
    """
    if configured_storage(session) in ("kafka", "dual"):
        return "the --config file says offsets.storage=kafka"
    foreign = [
        one
        for one in partitions.values()
        if one.kafka is not None and one.kafka.provenance is None and not one.is_returned
    ]
    if not foreign or coordinator_group is None or coordinator_group.protocol_type or not state.members:
        return ""
    ahead = [one for one in foreign if one.stored is None or (one.kafka is not None and one.kafka.offset > one.stored)]
    words = f"Kafka has {count_text(len(foreign), 'offset')} that no member of a coordinator group committed"
    if not ahead:
        return f"{words}, while members of the old group are registered"
    first = ahead[0]
    assert first.kafka is not None, "only such are foreign"
    own = "none" if first.stored is None else first.stored
    return f"{words}, {len(ahead)} of them ahead of ZooKeeper ({first.tp}: {own} there, {first.kafka.offset} in Kafka)"


# --- the group --------------------------------------------------------------------------------------------------


def _members(state: ZooKeeperGroup) -> tuple[RegistrationSnapshot, ...]:
    return tuple(
        RegistrationSnapshot(name, one.kind, one.host, one.subscription_pattern, one.threads, one.problem)
        for name, one in sorted(state.members.items())
    )


def _filters(state: ZooKeeperGroup) -> tuple[str, ...]:
    found = {
        f"{one.registration.pattern} {pattern!r}": None
        for one in state.members.values()
        if one.registration is not None and one.registration.pattern != "static"
        for pattern in one.registration.subscription
    }
    return tuple(sorted(found))


def _assignment_in_use(state: ZooKeeperGroup) -> str:
    """The assignor variants that compute exactly the present owners of the registered members."""
    claims = {
        tp: one.thread_id
        for tp, one in state.owners.items()
        if one.kind != "persistent" and one.consumer_id in state.members
    }
    if not claims:
        return NO_ASSIGNMENT
    if any(one.registration is not None and name not in state.subscriptions for name, one in state.members.items()):
        return UNKNOWN_ASSIGNMENT
    numbers = {topic: one.partitions for topic, one in state.topics.items()}
    try:
        context = AssignmentContext("", state.subscriptions, numbers, topics=state.all_topics)
    except MalformedZnode:
        return UNKNOWN_ASSIGNMENT
    found = detect_variants(claims, context)
    return " or ".join(form.value for form in AssignorVariant if form in found) or UNKNOWN_ASSIGNMENT


def _last_offset_clients(session: AdminSession, group: str) -> tuple[str, ...]:
    path = f"{paths.group_root(group)}/{GO_KAFKA_CLIENT_NODE}"
    return (path,) if session.get(path) is not None else ()
