"""Partitions without progress, and offsets that went back.  Pure.

partition-stalled     owned, with records to read, and the stored offset does not change
offset-rewound        a stored offset went back between the snapshots
offset-beyond-end     the stored offset is beyond the end of the log
offset-before-start   the record at the stored offset was deleted from the log
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.text_format import count_text, duration_text
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup
    from zkconsumer.types import TopicPartition

STALLED_COMMIT_INTERVALS = 2
"""After so many commit intervals without a change, with records to read, a delay is no explanation any more."""

SHOWN_MAX = 5


def find(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Findings about the progress of offsets."""
    yield from _stalled(facts)
    yield from _rewound(facts)
    yield from _out_of_range(facts)


def stalled_partitions(facts: GroupFacts) -> list[TopicPartition]:
    """Partitions with the same owner node and with records to read in both snapshots, and too long without a commit.

    If Kafka's offset is ahead of ZooKeeper's, or the members store in Kafka, Kafka's counts.  It has no age, so the
    snapshots themselves must be far enough apart.
    """
    limit_ms = STALLED_COMMIT_INTERVALS * facts.commit_interval_ms
    found: list[TopicPartition] = []
    for tp, owner in facts.second_snapshot.state.owners.items():
        before = facts.first_snapshot.state.owners.get(tp)
        is_same = before is not None and before.stat.czxid == owner.stat.czxid
        log = facts.second_snapshot.log_ranges.get(tp)
        if not is_same or owner.kind == "persistent" or log is None or facts.now_ms - owner.stat.ctime_ms < limit_ms:
            continue
        if facts.is_kept_in_kafka(tp):
            stored = facts.second_snapshot.kafka.offsets.get(tp, log.earliest)
            is_stalled = (
                facts.interval_ms >= limit_ms and facts.first_snapshot.kafka.offsets.get(tp, log.earliest) == stored
            )
        else:
            node, was = facts.second_snapshot.state.offsets.get(tp), facts.first_snapshot.state.offsets.get(tp)
            stored = node.offset if node and node.offset is not None else log.earliest
            has_moved = node is not None and (was is None or was.stat.mzxid != node.stat.mzxid)
            since_ms = facts.now_ms - (node.stat.mtime_ms if node else owner.stat.ctime_ms)
            is_stalled = not has_moved and since_ms >= limit_ms
        if is_stalled and log.latest > max(stored, log.earliest):
            found.append(tp)
    return found


def _stalled(facts: GroupFacts) -> Iterator[DoctorFinding]:
    found = stalled_partitions(facts)
    if not found:
        return
    yield DoctorFinding(
        "partition-stalled",
        f"{count_text(len(found), 'partition')} owned, with records to read, and without a commit for longer than "
        f"{STALLED_COMMIT_INTERVALS} commit intervals ({duration_text(facts.commit_interval_ms)} each): the owner "
        "does not read, or does not commit",
        tuple(_stalled_text(facts, tp) for tp in found[:SHOWN_MAX]) + _more(found),
        (
            "check the owner's log and threads; a message larger than fetch.message.max.bytes, a full queue of one "
            "stream and a dead fetcher thread all have this symptom",
            "with auto.commit.enable=false, or a longer auto.commit.interval.ms, give --commit-interval",
            f"zkconsumer lag {facts.group} --watch",
        ),
    )


def _stalled_text(facts: GroupFacts, tp: TopicPartition) -> str:
    owner, node, log = facts.state.owners[tp], facts.state.offsets.get(tp), facts.second_snapshot.log_ranges[tp]
    before = facts.first_snapshot.log_ranges.get(tp)
    grew = f", {log.latest - before.latest} more in {duration_text(facts.interval_ms)}" if before else ""
    if facts.is_kept_in_kafka(tp):
        stored = f"offset {facts.second_snapshot.kafka.offsets.get(tp, 'unknown')} in Kafka in both reads"
    elif node is None:
        stored = "no offset"
    else:
        since = duration_text(facts.now_ms - node.stat.mtime_ms)
        stored = f"offset {node.data[:20].decode('ascii', 'replace')} since {since}"
    return f"{tp}: {stored}, log end {log.latest}{grew}, owner {owner.thread}"


def _rewound(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Compares all consecutive snapshots and samples."""
    history: dict[TopicPartition, list[tuple[int, int]]] = {}
    looks = [
        _offsets_of(facts.first_snapshot.state),
        *(dict(each.offsets) for each in facts.samples),
        _offsets_of(facts.second_snapshot.state),
    ]
    for seen in looks:
        for tp, value in seen.items():
            history.setdefault(tp, []).append(value)
    words: list[str] = []
    for tp, values in sorted(history.items()):
        for (offset, version), (later, later_version) in pairwise(values):
            if later < offset:
                path = paths.offset(facts.group, tp)
                words.append(f"{path}: {offset} (version {version}), then {later} (version {later_version})")
                break
    if words:
        yield DoctorFinding(
            "offset-rewound",
            f"{count_text(len(words), 'stored offset')} went back between two reads: a program that does not own the "
            "partition wrote it, such as a Scala consumer that was paused beyond its session, or a tool while the "
            "group runs. The next owner reads the records between again",
            (*words[:SHOWN_MAX], *((f"and {len(words) - SHOWN_MAX} more",) if len(words) > SHOWN_MAX else ())),
            (
                "search for paused or swapped processes (long GC) and for tools that set offsets",
                f"zkconsumer groups describe {facts.group}",
            ),
        )


def _offsets_of(state: ZooKeeperGroup) -> dict[TopicPartition, tuple[int, int]]:
    return {tp: (one.offset, one.stat.version) for tp, one in state.offsets.items() if one.offset is not None}


def _out_of_range(facts: GroupFacts) -> Iterator[DoctorFinding]:
    beyond: list[str] = []
    before: list[str] = []
    if facts.state.authority == "kafka":
        return  # no member starts from these offsets any more
    for tp, node in facts.state.offsets.items():
        log = facts.second_snapshot.log_ranges.get(tp)
        if log is None or node.offset is None:
            continue
        if node.offset > log.latest:
            beyond.append(f"{paths.offset(facts.group, tp)} = {node.offset}, the log ends at {log.latest}")
        elif node.offset < log.earliest:
            lost = log.earliest - node.offset
            where = paths.offset(facts.group, tp)
            before.append(f"{where} = {node.offset}, the log starts at {log.earliest} ({lost} deleted)")
    if beyond:
        yield DoctorFinding(
            "offset-beyond-end",
            f"{count_text(len(beyond), 'stored offset')} beyond the end of the log: records were lost at the broker, "
            "the topic was created again, or the offset is another topic's. The owner resets by auto.offset.reset",
            tuple(beyond[:SHOWN_MAX]) + _more(beyond),
            (f"zkconsumer offsets set {facts.group} --topic {_first(beyond)} --to-latest   # members stopped",),
        )
    if before:
        yield DoctorFinding(
            "offset-before-start",
            f"{count_text(len(before), 'stored offset')} before the start of the log: retention deleted records before "
            "the group read them. The next owner resets by auto.offset.reset: with largest it skips the existing "
            "records as well",
            tuple(before[:SHOWN_MAX]) + _more(before),
            (f"zkconsumer offsets set {facts.group} --topic {_first(before)} --to-earliest   # members stopped",),
        )


def _first(found: list[str]) -> str:
    """``T:P`` of the path that the first line begins with, as ``offsets set`` takes it."""
    tp = paths.partition_of(found[0].split(" ", 1)[0])
    assert tp is not None, "the line begins with the path of an offset"
    return f"{tp.topic}:{tp.partition}"


def _more(found: list[str] | list[TopicPartition]) -> tuple[str, ...]:
    return (f"and {len(found) - SHOWN_MAX} more",) if len(found) > SHOWN_MAX else ()
