"""Which members of a ZooKeeper group are Spark queries, from what a query stores below ``/zkconsumer/spark/G``.

A query registers as every member of this library, so its registration does not show that it is one.  Two things do:

    @pipeline/run   ephemeral; in the session of the registration: the member is the query of that pipeline
    Q/T/P           the claims of query Q: the last one has the czxid of the owner node under which it was written, so
                    the owner of that node is the query

A query with ``group.offsets.commit=afterBatch`` or ``none`` that is no pipeline stores neither.  It is shown as a
member of this library.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from bridge.migration.plan.json_object_reader import InvalidJsonError
from bridge.spark.claims.records import parse_record
from bridge.spark.group_pipeline import parse_pipeline
from zkconsumer.admin.admin_session import AdminSession, AnySession
from zkconsumer.errors import InvalidNameError, MalformedZnode, UnavailableError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from zkconsumer.admin.describe import GroupDescribeRow
    from zkconsumer.cli.groups import DescribeReport
    from zkconsumer.zk.requests import ZnodeData

QUERIES_READ_MAX = 8
"""The queries whose claims are read, those that were started last; each new checkpoint is another query."""

OURS = "zkconsumer"


def read_spark_members(session: AnySession, group: str, report: DescribeReport) -> dict[str, str]:
    """Consumer id -> the id of its query; one request for a group that no query reads.

    Empty when ZooKeeper does not answer, or the claims may not be read: the rest of the group is shown all the same.
    """
    owned = _partitions_of_ours(report.rows)
    if not owned or not isinstance(session, AdminSession):
        return {}
    try:
        return _read_queries(session, group, owned)
    except UnavailableError:
        return {}


def _read_queries(session: AdminSession, group: str, owned: Mapping[TopicPartition, str]) -> dict[str, str]:
    listed = session.children(paths.claims(group))
    if listed is None:
        return {}
    queries = [name for name in listed.names if _is_query(name)]
    read = [paths.owner(group, tp) for tp in owned]
    read += [f"{paths.ids(group)}/{member}" for member in set(owned.values())]
    read += [paths.claims_of_query(group, query) for query in queries]
    nodes = session.get_many([*read, paths.running_pipeline(group)])
    queries.sort(key=lambda query: -_changed_ms(nodes.get(paths.claims_of_query(group, query))))
    wanted = {
        paths.claims_of_partition(group, query, tp): (query, tp) for query in queries[:QUERIES_READ_MAX] for tp in owned
    }
    claims = session.get_many(wanted) if wanted else {}
    found = _query_of_pipeline(group, set(owned.values()), nodes)
    for path, node in claims.items():
        query, tp = wanted[path]
        owner = nodes.get(paths.owner(group, tp))
        if owner is not None and _claimed_under(node, path) == owner.stat.czxid:
            found[owned[tp]] = query
    return found


def _partitions_of_ours(rows: Iterable[GroupDescribeRow]) -> dict[TopicPartition, str]:
    """Partition -> the member of this library that owns it in ZooKeeper."""
    return {
        TopicPartition(row.topic, row.partition): row.consumer_id
        for row in rows
        if row.owner_kind == OURS and row.consumer_id and row.topic is not None and row.partition is not None
    }


def _is_query(name: str) -> bool:
    """Whether a child is the id of a query; the other one is that of pipelines."""
    try:
        paths.check_query(name)
    except InvalidNameError:
        return False
    return True


def _changed_ms(node: ZnodeData | None) -> int:
    return 0 if node is None else node.stat.mtime_ms


def _query_of_pipeline(group: str, members: Collection[str], nodes: Mapping[str, ZnodeData]) -> dict[str, str]:
    """The member whose session has the registration of the pipeline."""
    path = paths.running_pipeline(group)
    run = nodes.get(path)
    if run is None:
        return {}
    try:
        query = parse_pipeline(run.data.decode("utf-8", "replace"), path).query
    except InvalidJsonError:
        return {}
    registrations = {member: nodes.get(f"{paths.ids(group)}/{member}") for member in members}
    return {
        member: query
        for member, node in registrations.items()
        if node is not None and node.stat.ephemeral_owner == run.stat.ephemeral_owner
    }


def _claimed_under(node: ZnodeData, path: str) -> int | None:
    """The czxid of the owner node under which the last claim was written; None without a readable claim."""
    try:
        latest = parse_record(node.data, path).latest
    except MalformedZnode:
        return None
    return None if latest is None else latest.epoch
