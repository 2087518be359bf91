"""Sets the group's offsets to the start of a query: a commit of owned partitions that may decrease offsets."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.member.commands import OffsetToCommit
from zkconsumer.member.events import StoredOffset, WriteOutcome
from zkconsumer.types import TopicPartition
from zkconsumer.zk.conditional_writes import commit_partitions
from zkconsumer.zk.group_procedures import Procedure, read_positions
from zkconsumer.zk.requests import Acl


def seek(
    group: str,
    session_id: int,
    wanted: Mapping[TopicPartition, int],
    *,
    control_version: int | None,
    acl: tuple[Acl, ...] | None,
) -> Procedure[tuple[dict[TopicPartition, StoredOffset], dict[TopicPartition, str]]]:
    """Overwrite the offsets that are read now with ``wanted``; returns the stored offsets, and why others failed."""
    stored, refused = yield from read_positions(group, list(wanted))
    refused |= {tp: "ZooKeeper did not answer" for tp in wanted if tp not in stored and tp not in refused}
    offsets = {tp: OffsetToCommit(wanted[tp], found) for tp, found in stored.items()}
    results = yield from commit_partitions(group, session_id, offsets, control_version=control_version, acl=acl)
    written: dict[TopicPartition, StoredOffset] = {}
    for tp, result in results.items():
        if result.outcome is not WriteOutcome.DONE:
            refused[tp] = result.why
        elif result.stored.offset != wanted[tp]:
            refused[tp] = f"another client wrote {result.stored.offset} at the same time"
        else:
            written[tp] = result.stored
    return written, refused
