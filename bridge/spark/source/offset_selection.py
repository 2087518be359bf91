"""Where a query of Spark's own kafka source begins, when it is to go on where a group stopped.  Pure.

    what both stores hold -> one offset a partition (``choose``) -> held against the log (``settle``) -> JSON

Spark wants every partition of every topic that it reads in ``startingOffsets``, and knows two offsets that are words:
-2, the start of the log, and -1, its end.  It takes ``startingOffsets`` for a *new* checkpoint only.
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
"""Where the group's offsets are: ``both`` takes the larger one of each partition, as members with dual commit do (0.8.2
to 1.1); ``auto`` is what the control znode or ``offsets.storage`` of the configuration file says, else whichever store
has one, provided that they agree."""

StoredOffsetConvention: TypeAlias = Literal["next", "last-consumed"]
"""What a number in ZooKeeper means: the offset to be read next (every consumer of Kafka's), or the last one that was
read (ReliableKafkaReceiver of spark-streaming-kafka 0-8, with ``spark.streaming.receiver.writeAheadLog.enable``)."""

MissingOffsetPolicy: TypeAlias = Literal["earliest", "latest", "refuse"]
OutOfRangePolicy: TypeAlias = Literal["refuse", "earliest", "latest", "keep"]


@dataclass(frozen=True, slots=True)
class PartitionStartingOffset:
    """Where one partition begins, or ``EARLIEST``, ``LATEST``.

    ``store``: which one said so, empty when none did; ``remark``: what a person should know, empty mostly.
    """

    offset: int
    store: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class GroupStartingOffsets:
    """Every partition of the topics, sorted; ``remarks``: what a person should know, a sentence each."""

    group: str
    partitions: Mapping[TopicPartition, PartitionStartingOffset]

    @property
    def topics(self) -> list[str]:
        """What ``subscribe`` must name, all of it and nothing else."""
        return sorted({tp.topic for tp in self.partitions})

    @property
    def remarks(self) -> list[str]:
        """A sentence for each remark, with the partitions that it holds for."""
        by_remark: dict[str, list[TopicPartition]] = {}
        for tp, start in self.partitions.items():
            if start.remark:
                by_remark.setdefault(start.remark, []).append(tp)
        return [f"{partitions_text(tps)}: {remark}" for remark, tps in by_remark.items()]

    def to_json(self) -> str:
        """For the option ``startingOffsets`` of ``format("kafka")``: ``{"t":{"0":23,"1":-2}}``."""
        return json.dumps(nested({tp: start.offset for tp, start in self.partitions.items()}), separators=(",", ":"))


def topic_names(topics: str | Iterable[str] | None) -> list[str] | None:
    """The topics, sorted and each once; a text is taken as ``subscribe`` takes it, with commas.

    Raises ``UsageError`` when none is left.
    """
    if topics is None:
        return None
    given = topics.split(",") if isinstance(topics, str) else list(topics)
    names = sorted({topic.strip() for topic in given} - {""})
    if not names:
        raise UsageError("topics is empty: name what Spark is to read, or leave it out for all that the group has")
    return names


def resolve_storage(store: OffsetStore, of_file: OffsetStorageMode, seen: GroupOffsetsSnapshot) -> OffsetStorageMode:
    """Which store is to be believed.

    Raises ``PreconditionFailed`` when that cannot be told, and when the store was moved; ``UnavailableError`` when
    Kafka would have to tell.
    """
    if seen.control_problem:
        raise PreconditionFailed(
            f"the control znode of group {seen.group} cannot be read ({seen.control_problem}), so it is not known "
            "which store counts: repair the znode first"
        )
    in_kafka = seen.control is not None and seen.control.authority == "kafka"
    if in_kafka and store in ("zookeeper", "both"):
        raise PreconditionFailed(
            f"the offsets of group {seen.group} are kept in Kafka now, and those in ZooKeeper are of before: "
            "use store='kafka'"
        )
    if store != "auto":
        return "dual" if store == "both" else store
    if in_kafka or of_file != "unknown":
        return of_file if not in_kafka else "kafka"
    if seen.kafka_problem:
        raise UnavailableError(
            f"it is not known whether group {seen.group} has offsets in Kafka: {seen.kafka_problem}. If it has none, "
            "say store='zookeeper'"
        )
    apart = _apart(seen)
    if apart:
        raise PreconditionFailed(
            f"group {seen.group} has other offsets in Kafka than in ZooKeeper ({partitions_text(apart)}), and no file "
            "says where "
            "its members keep them: choose store='zookeeper', 'kafka' or 'both' (the larger one, as members with dual "
            "commit do), or give the members' file as config_file"
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
    """One offset a partition, not yet held against the log.

    ``topics``: topic → the partitions that it has.  Raises ``PreconditionFailed`` for an offset that cannot be read,
    and, with ``missing="refuse"``, for one that there is none of.
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
            f"group {seen.group} has no offset of {partitions_text(nowhere)}: say with missing='earliest' or 'latest' "
            "where "
            "Spark is to begin there"
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
            f"the offset znode of {partitions_text(node.tp for node in bad)} in group {seen.group} holds no number "
            f"({bad[0].problem}): repair it ('zkconsumer offsets set'), or delete it"
        )


def check_against_logs(
    starts: GroupStartingOffsets, logs: Mapping[TopicPartition, LogRange | str], out_of_range: OutOfRangePolicy
) -> GroupStartingOffsets:
    """Held against the log: what lies outside is refused, or moved, or kept, and said.

    ``logs``: of every partition that has an offset; a text says why nothing is known, and is refused unless kept.
    Raises ``PreconditionFailed``.
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
            found[tp] = replace(start, remark=f"{problem}; it is kept, and the query will fail or skip there")
        else:
            where = EARLIEST if out_of_range == "earliest" else LATEST
            found[tp] = PartitionStartingOffset(
                where, start.store, f"{problem}: read from the {log_boundary_name(where)} of the log"
            )
    if refused:
        reasons = "; ".join(f"{partitions_text(tps)}: {why}" for why, tps in refused.items())
        raise PreconditionFailed(
            f"Spark cannot begin where group {starts.group} stands. {reasons}. Say with out_of_range='earliest' or "
            "'latest' where to begin instead; records that were deleted meanwhile are lost"
        )
    return GroupStartingOffsets(starts.group, found)


def _problem(offset: int, log: LogRange | str | None) -> str:
    if log is None or isinstance(log, str):
        return f"its log cannot be looked at ({log or 'nobody was asked'})"
    if log.contains(offset):
        return ""
    if offset < log.earliest:
        return f"{offset} is before the start of the log ({log.earliest}), {log.earliest - offset} records are gone"
    return f"{offset} is beyond the end of the log ({log.latest}): was the topic made anew?"


def log_boundary_name(offset: int) -> str:
    """``start`` or ``end``."""
    return "start" if offset == EARLIEST else "end"
