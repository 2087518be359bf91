"""Texts for an operator when a query must stop because of its claims.  Pure."""

from __future__ import annotations

from bridge.spark.group_membership import NO_OFFSET
from zkconsumer.config import ConsumerConfig
from zkconsumer.types import TopicPartition


def duplicate_run_message(group: str, query: str) -> str:
    """The error text for a query that runs twice."""
    return (
        f"query {query} of group {group} was started again while this run of it was active: its checkpoint, or a copy "
        "of it, is in use twice, and the later run continues. Stop one of them. A copy of a checkpoint is the same "
        "query: to read in parallel, give a query a checkpointLocation and a sink of its own, with which it starts "
        "from the group's offsets"
    )


def claim_advice(config: ConsumerConfig) -> str:
    """What an operator can do about records that a batch has claimed and cannot read, besides ``skipOffsets``."""
    store = "zookeeper"
    if config.offsets_storage == "kafka":
        store = "both" if config.dual_commit_enabled else "kafka"
    return (
        f"With group.offsets.commit=claim the offsets of group {config.group_id} are after this batch already, so no "
        "other member reads it. To give it back to the group instead, stop the query and run 'zkconsumer spark "
        f"reconcile --group {config.group_id} --checkpoint DIR --rewind --store {store} --zookeeper "
        f"{config.zookeeper_connect} --execute', where DIR is its checkpointLocation"
    )


def group_rewound_message(group: str, tp: TopicPartition, offset: int, claimed: int) -> str:
    """The error text for ``onGroupRewind=fail``."""
    stands_at = "has no offset" if offset == NO_OFFSET else f"has the offset {offset}"
    return (
        f"group {group} {stands_at} of {tp}, but this query claimed up to {claimed}: the group was set back, or a "
        "Scala consumer wrote late. To read again from there, set onGroupRewind=follow; to continue after the claim, "
        "set onGroupRewind=ignore"
    )
