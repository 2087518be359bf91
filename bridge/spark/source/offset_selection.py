"""Selects the starting offsets of a query of Spark's own Kafka source that continues from a group.  Pure.

    offsets of both stores -> one offset a partition (``select_offsets``) -> checked (``check_against_logs``) -> JSON

Spark requires every partition of every topic in ``startingOffsets``, and has two special offsets: -2, the start of the
log, and -1, its end.  It uses ``startingOffsets`` for a *new* checkpoint only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.spark.offset_range_limits import nested
from zkconsumer.admin.describe import current_offset
from zkconsumer.admin.offset_plan import partitions_text
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import INT64_MAX

if TYPE_CHECKING:
    from zkconsumer.admin.describe import OffsetStorageMode
    from zkconsumer.admin.group_offset_stores import GroupOffsetsSnapshot
    from zkconsumer.admin.log_ranges import LogRange

EARLIEST = -2
LATEST = -1

OffsetStore: TypeAlias = Literal["auto", "zookeeper", "kafka", "both"]
"""The store of the group's offsets: ``both`` takes the larger one of each partition, as members with dual commit do
(0.8.2 to 1.1).  ``auto`` uses the control znode or ``offsets.storage`` of the configuration file; without either, the
store that has offsets, provided that the two do not differ."""

StoredOffsetConvention: TypeAlias = Literal["next", "last-consumed"]
"""The meaning of a number in ZooKeeper: the next offset to read (every consumer of Kafka's), or the last one that was
read (ReliableKafkaReceiver of spark-streaming-kafka 0-8, with ``spark.streaming.receiver.writeAheadLog.enable``)."""

MissingOffsetPolicy: TypeAlias = Literal["earliest", "latest", "refuse"]
OutOfRangePolicy: TypeAlias = Literal["refuse", "earliest", "latest", "keep"]


@dataclass(frozen=True, slots=True)
class PartitionStartingOffset:
    """The starting offset of one partition, or ``EARLIEST``, ``LATEST``.

    ``store``: the store of the offset, empty when neither has one; ``remark``: a note for the operator, mostly empty.
    """

    offset: int
    store: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class GroupStartingOffsets:
    """Every partition of the topics, sorted; ``remarks``: notes for the operator, one sentence each."""

    group: str
    partitions: Mapping[TopicPartition, PartitionStartingOffset]

    @property
    def topics(self) -> list[str]:
        """The topics that ``subscribe`` must name, all of them and no others."""
        return sorted({tp.topic for tp in self.partitions})

    @property
    def remarks(self) -> list[str]:
        """One sentence for each remark, with the partitions to which it applies."""
        by_remark: dict[str, list[TopicPartition]] = {}
        for tp, start in self.partitions.items():
            if start.remark:
                by_remark.setdefault(start.remark, []).append(tp)
        return [f"{partitions_text(tps)}: {remark}" for remark, tps in by_remark.items()]

    def to_json(self) -> str:
        """For the option ``startingOffsets`` of ``format("kafka")``: ``{"t":{"0":23,"1":-2}}``."""
        return json.dumps(nested({tp: start.offset for tp, start in self.partitions.items()}), separators=(",", ":"))


def topic_names(topics: str | Iterable[str] | None) -> list[str] | None:
    """The topics, sorted, without duplicates; a text is parsed as in ``subscribe``, with commas.

    Raises ``UsageError`` when no topic remains.
    """
    if topics is None:
        return None
    given = topics.split(",") if isinstance(topics, str) else list(topics)
    names = sorted({topic.strip() for topic in given} - {""})
    if not names:
        raise UsageError("topics is empty: name the topics that Spark reads, or omit it for all topics of the group")
    return names


def resolve_storage(store: OffsetStore, of_file: OffsetStorageMode, seen: GroupOffsetsSnapshot) -> OffsetStorageMode:
    """The store whose offsets are valid.

    Raises ``PreconditionFailed`` when that cannot be determined, and when the group has migrated to the other store;
    ``UnavailableError`` when the answer depends on Kafka, and Kafka did not answer.
    """
    if seen.control_problem:
        raise PreconditionFailed(
            f"the control znode of group {seen.group} cannot be read ({seen.control_problem}), so it is not known "
            "which store is valid: repair the znode first"
        )
    in_kafka = seen.control is not None and seen.control.authority == "kafka"
    if in_kafka and store in ("zookeeper", "both"):
        raise PreconditionFailed(
            f"group {seen.group} has migrated: its offsets are in Kafka, and those in ZooKeeper are from before the "
            "migration: use store='kafka'"
        )
    if store != "auto":
        return "dual" if store == "both" else store
    if in_kafka or of_file != "unknown":
        return of_file if not in_kafka else "kafka"
    if seen.kafka_problem:
        raise UnavailableError(
            f"it is not known whether group {seen.group} has offsets in Kafka: {seen.kafka_problem}. If it has none, "
            "set store='zookeeper'"
        )
    apart = _apart(seen)
    if apart:
        raise PreconditionFailed(
            f"group {seen.group} has different offsets in Kafka and in ZooKeeper ({partitions_text(apart)}), and no "
            "file names the store in which its members commit: set store='zookeeper', 'kafka' or 'both' (the larger "
            "one, as members with dual commit do), or give the members' file as config_file"
        )
    return "unknown"


def _apart(seen: GroupOffsetsSnapshot) -> list[TopicPartition]:
    kafka = seen.kafka or {}
    in_zookeeper = {tp: node.offset for tp, node in seen.zookeeper.items() if node.offset is not None}
    return [tp for tp, offset in in_zookeeper.items() if kafka.get(tp, offset) != offset]


def select_offsets(
    seen: GroupOffsetsSnapshot,
    topics: Mapping[str, Sequence[int]],
    storage: OffsetStorageMode,
    *,
    convention: StoredOffsetConvention,
    missing: MissingOffsetPolicy,
) -> GroupStartingOffsets:
    """One offset a partition, not yet checked against the log.

    ``topics``: topic → its partitions.  Raises ``PreconditionFailed`` for an offset that cannot be read, and, with
    ``missing="refuse"``, for a partition without an offset.
    """
    wanted = [TopicPartition(topic, number) for topic in sorted(topics) for number in sorted(topics[topic])]
    _refuse_unreadable(seen, wanted, storage)
    authority = "zookeeper" if seen.control is None else seen.control.authority
    found: dict[TopicPartition, PartitionStartingOffset] = {}
    nowhere: list[TopicPartition] = []
    for tp in wanted:
        node = seen.zookeeper.get(tp)
        in_zookeeper = None if node is None else node.offset
        if in_zookeeper is not None and convention == "last-consumed" and in_zookeeper < INT64_MAX:
            in_zookeeper += 1
        offset, said_by = current_offset(in_zookeeper, (seen.kafka or {}).get(tp), storage, authority)
        if offset is not None:
            found[tp] = PartitionStartingOffset(offset, said_by)
        else:
            nowhere.append(tp)
            where = EARLIEST if missing == "earliest" else LATEST
            found[tp] = PartitionStartingOffset(
                where, "", f"the group has no offset: read from the {log_boundary_name(where)} of the log"
            )
    if nowhere and missing == "refuse":
        raise PreconditionFailed(
            f"group {seen.group} has no offset of {partitions_text(nowhere)}: set missing='earliest' or 'latest' "
            "to choose where Spark starts there"
        )
    return GroupStartingOffsets(seen.group, found)


def _refuse_unreadable(
    seen: GroupOffsetsSnapshot, wanted: Sequence[TopicPartition], storage: OffsetStorageMode
) -> None:
    if storage == "kafka":
        return
    bad = [node for node in seen.unreadable if node.tp in set(wanted)]
    if bad:
        raise PreconditionFailed(
            f"the offset znode of {partitions_text(node.tp for node in bad)} in group {seen.group} contains no number "
            f"({bad[0].problem}): repair it ('zkconsumer offsets set'), or delete it"
        )


def check_against_logs(
    starts: GroupStartingOffsets, logs: Mapping[TopicPartition, LogRange | str], out_of_range: OutOfRangePolicy
) -> GroupStartingOffsets:
    """Checks the offsets against the log: an offset outside is refused, moved or kept; a remark reports it.

    ``logs``: of every partition that has an offset; a text is the reason why its bounds are unknown, and causes a
    refusal unless offsets are kept.  Raises ``PreconditionFailed``.
    """
    found = dict(starts.partitions)
    refused: dict[str, list[TopicPartition]] = {}
    for tp, start in starts.partitions.items():
        problem = _problem(start.offset, logs.get(tp)) if start.offset >= 0 else ""
        if not problem:
            continue
        if out_of_range == "refuse" or (isinstance(logs.get(tp), str) and out_of_range != "keep"):
            refused.setdefault(problem, []).append(tp)
        elif out_of_range == "keep":
            found[tp] = replace(start, remark=f"{problem}; it is kept, and the query will fail or skip records there")
        else:
            where = EARLIEST if out_of_range == "earliest" else LATEST
            found[tp] = PartitionStartingOffset(
                where, start.store, f"{problem}: read from the {log_boundary_name(where)} of the log"
            )
    if refused:
        reasons = "; ".join(f"{partitions_text(tps)}: {why}" for why, tps in refused.items())
        raise PreconditionFailed(
            f"Spark cannot start from the offsets of group {starts.group}. {reasons}. Set out_of_range='earliest' or "
            "'latest' to choose another start; records that were deleted meanwhile are lost"
        )
    return GroupStartingOffsets(starts.group, found)


def _problem(offset: int, log: LogRange | str | None) -> str:
    if log is None or isinstance(log, str):
        return f"the bounds of its log are not known ({log or 'no request was sent'})"
    if log.contains(offset):
        return ""
    if offset < log.earliest:
        return f"{offset} is before the start of the log ({log.earliest}), {log.earliest - offset} records are deleted"
    return f"{offset} is beyond the end of the log ({log.latest}): was the topic created again?"


def log_boundary_name(offset: int) -> str:
    """``start`` or ``end``."""
    return "start" if offset == EARLIEST else "end"
