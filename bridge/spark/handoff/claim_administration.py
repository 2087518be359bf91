"""The claims of a group's Spark queries, for tools: lists them, and deletes those of a query that no longer runs.

A query counts as alive while a member owns a partition of its records: the member that made the latest claim, when the
owner node is the one under which it was made.  A member that made the latest claim of another query belongs to that
one, and does not block.  In a group that has migrated to Kafka this cannot be determined: there the group must be
empty. Records of a query that is alive, or will be started again, must stay: they determine what its last batch may
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bridge.spark.claims.records import BatchClaim, ClaimRecord, parse_record
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetStores
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.text_format import count_text, list_text
from zkconsumer.admin.zookeeper_group import read_control
from zkconsumer.errors import InvalidNameError, MalformedZnode, PreconditionFailed, UnavailableError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import OUR_OWNER_VERSION, describe_result, owner_text, stored_offset
from zkconsumer.zk.requests import (
    MULTI_OPS_MAX,
    ConnectionLost,
    DeleteOp,
    Multi,
    MultiFailed,
    MultiOk,
    SessionEnded,
    ZnodeData,
)
from zkconsumer.zk.znode_formats import consumer_of


@dataclass(frozen=True, slots=True)
class ListedClaimRecord:
    """One record.  ``latest`` None: there is no claim yet, or ``problem`` is the reason why the record cannot be read.

    ``owner``: the current owner of the partition.  ``owner_made_claim``: the ownership is the one that made the latest
    claim.
    """

    query: str
    tp: TopicPartition
    path: str
    node: ZnodeData
    latest: BatchClaim | None
    refused: int | None
    group_offset: int | None
    owner: str | None
    owner_is_ours: bool
    owner_made_claim: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """``claims``: the records to delete; ``blocked_by``: why none may be deleted, empty when that is allowed."""

    query: str
    claims: list[ListedClaimRecord]
    blocked_by: str


def queries_of(session: AdminSession, group: str) -> list[str]:
    """The queries that have records, sorted.  Raises ``UnavailableError`` when ZooKeeper does not answer."""
    listed = session.children(paths.claims(group))
    return sorted(filter(_is_query, listed.names)) if listed else []


def record_nodes(session: AdminSession, group: str, query: str) -> dict[TopicPartition, tuple[str, ZnodeData]]:
    """The znodes of a query's records, with their paths.  Names that are no topic or partition are ignored."""
    listed = session.children(paths.claims_of_query(group, query))
    topics = {paths.claims_of_topic(group, query, topic): topic for topic in _topics(listed.names if listed else ())}
    wanted: dict[str, TopicPartition] = {}
    for parent, children in session.children_of_many(topics).items():
        for name in children.names:
            if (number := paths.partition_number(name)) is not None:
                wanted[f"{parent}/{name}"] = TopicPartition(topics[parent], number)
    nodes = session.get_many(wanted)
    return dict(sorted((tp, (path, nodes[path])) for path, tp in wanted.items() if path in nodes))


def read_records(session: AdminSession, group: str, query: str) -> dict[TopicPartition, tuple[ClaimRecord, int]]:
    """The claims of a query, with the versions of the records' znodes.

    Raises ``MalformedZnode`` for an invalid record, ``UnavailableError`` when ZooKeeper does not answer.
    """
    nodes = record_nodes(session, group, query)
    return {tp: (parse_record(node.data, path), node.stat.version) for tp, (path, node) in nodes.items()}


def list_claims(session: AdminSession, group: str, query: str | None = None) -> list[ListedClaimRecord]:
    """Every record of the group, or of one query; sorted by query and partition.

    The group's offsets are those of the store with the authority.  Raises the errors of ``KafkaOffsetAdmin.read``.
    """
    queries = queries_of(session, group) if query is None else [paths.check_query(query)]
    records = [(each, tp, *found) for each in queries for tp, found in record_nodes(session, group, each).items()]
    partitions = sorted({tp for _, tp, _, _ in records})
    owners = session.get_many(paths.owner(group, tp) for tp in partitions)
    offsets = session.get_many(paths.offset(group, tp) for tp in partitions)
    listed = [
        _listed(
            each,
            tp,
            path,
            node=node,
            owner=owners.get(paths.owner(group, tp)),
            offset=offsets.get(paths.offset(group, tp)),
        )
        for each, tp, path, node in records
    ]
    if not _is_in_kafka(session, group):
        return listed
    stored = KafkaOffsetAdmin(session, group).read_offsets()
    return [replace(one, group_offset=stored[one.tp].offset if one.tp in stored else None) for one in listed]


def _is_in_kafka(session: AdminSession, group: str) -> bool:
    """Raises ``PreconditionFailed`` when that cannot be determined."""
    control, _, problem = read_control(session, group)
    if problem:
        raise PreconditionFailed(f"the control znode of group {group} cannot be read ({problem}): repair it")
    return control is not None and control.authority == "kafka"


def _listed(
    query: str, tp: TopicPartition, path: str, *, node: ZnodeData, owner: ZnodeData | None, offset: ZnodeData | None
) -> ListedClaimRecord:
    record, problem = ClaimRecord(), ""
    try:
        record = parse_record(node.data, path)
    except MalformedZnode as error:
        problem = str(error)
    stored = stored_offset(offset) if offset is not None else None
    latest = record.latest
    return ListedClaimRecord(
        query=query,
        tp=tp,
        path=path,
        node=node,
        latest=latest,
        refused=record.refused,
        group_offset=None if stored is None or isinstance(stored, str) or stored.offset < 0 else stored.offset,
        owner=None if owner is None else owner_text(owner),
        owner_is_ours=owner is not None and owner.stat.version == OUR_OWNER_VERSION,
        owner_made_claim=owner is not None and latest is not None and owner.stat.czxid == latest.epoch,
        problem=problem,
    )


# --- deletion ---------------------------------------------------------------------------------------------------


def plan_forget(session: AdminSession, group: str, query: str) -> ForgetPlan:
    """The records that would be deleted.  Raises ``PreconditionFailed`` when the query has none."""
    if query not in queries_of(session, group):
        known = list_text(queries_of(session, group)) or "none"
        raise PreconditionFailed(f"group {group} has no records of a query {query}; it has records of: {known}")
    listed = list_claims(session, group)
    claims = [claim for claim in listed if claim.query == query]
    if _is_in_kafka(session, group):
        seen = GroupOffsetStores(session, group).read(["kafka"])
        if seen.coordinator_group is None:
            raise UnavailableError(
                f"it is not known whether members of group {group} are alive at its coordinator: try again"
            )
        if seen.coordinator_group.has_members:
            members = len(seen.coordinator_group.members)
            alive = (
                f"group {group} has migrated to Kafka and has members there ({count_text(members, 'member')}), and it "
                f"is not known whether one of them is query {query}: stop them first"
            )
            return ForgetPlan(query, claims, alive)
    others = {consumer_of(claim.owner or "") for claim in listed if claim.owner_made_claim and claim.query != query}
    for claim in claims:
        if claim.owner_made_claim:
            alive = f"query {query} is alive: {claim.owner} claimed {claim.tp} and owns it; stop the query first"
            return ForgetPlan(query, claims, alive)
    for claim in claims:
        if claim.owner_is_ours and consumer_of(claim.owner or "") not in others:
            alive = (
                f"{claim.owner} owns {claim.tp}, and may be query {query} after a restart: stop that member first, or "
                "wait until it has made a claim"
            )
            return ForgetPlan(query, claims, alive)
    return ForgetPlan(query, claims, "")


def delete_claim_records(session: AdminSession, group: str, planned: ForgetPlan) -> int:
    """Delete the records as they were read, and the empty folders up to the query's; returns the number of records.

    Raises ``PreconditionFailed`` when one changed since: the query is alive.
    """
    query = planned.query
    done = 0
    deletes = [DeleteOp(claim.path, claim.node.stat.version) for claim in planned.claims]
    for at in range(0, len(deletes), MULTI_OPS_MAX):
        chunk = deletes[at : at + MULTI_OPS_MAX]
        _delete(session, chunk, f"query {query} is alive: one of its records was changed just now ({done} are deleted)")
        done += len(chunk)
    listed = session.children(paths.claims_of_query(group, query))
    topics = [paths.claims_of_topic(group, query, topic) for topic in _topics(listed.names if listed else ())]
    folders = [DeleteOp(path) for path in (*topics, paths.claims_of_query(group, query))]
    _delete(session, folders, f"{folders[-1].path} has other nodes below it, and was not deleted")
    return done


def _delete(session: AdminSession, deletes: list[DeleteOp], refusal: str) -> None:
    if not deletes:
        return
    [answer] = session.request([Multi(tuple(deletes))])
    match answer:
        case MultiOk():
            return
        case MultiFailed():
            raise PreconditionFailed(refusal)
        case ConnectionLost() | SessionEnded():
            raise UnavailableError("the connection to ZooKeeper broke: what was deleted is not known; list the claims")
        case _:
            raise UnavailableError(f"ZooKeeper does not delete {deletes[0].path}: {describe_result(answer)}")


def _is_query(name: str) -> bool:
    try:
        return bool(paths.check_query(name))
    except InvalidNameError:
        return False


def _topics(names: Iterable[str]) -> list[str]:
    found = []
    for name in sorted(names):
        try:
            found.append(paths.check_topic(name))
        except InvalidNameError:
            continue
    return found
