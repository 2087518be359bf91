"""What an operator reads when a query must stop because of its claims.  Pure."""

from __future__ import annotations

from bridge.spark.group_membership import NO_OFFSET
from zkconsumer.types import TopicPartition


def duplicate_run_message(group: str, query: str) -> str:
    """What an operator reads of a query that is run twice."""
    return (
        f"query {query} of group {group} was started again while this run of it lived: its checkpoint, or a copy of "
        "it, is in use twice, and the run that began last goes on. Stop one of them. A copy of a checkpoint is the "
        "same query: to read beside it, give a query a checkpointLocation and a sink of its own, with which it begins "
        "where the group stands"
    )


def group_rewound_message(group: str, tp: TopicPartition, offset: int, claimed: int) -> str:
    """What an operator reads with ``onGroupRewind=fail``."""
    stands_at = "has no offset" if offset == NO_OFFSET else f"stands at {offset}"
    return (
        f"group {group} {stands_at} of {tp}, and this query claimed up to {claimed}: somebody set the group back, or "
        "an original member wrote late. To read again from there: onGroupRewind=follow; to go on behind what was read: "
        "onGroupRewind=ignore"
    )
