"""Stored offsets that cannot be right.  Pure.

offset-unreadable         not a number: every Scala consumer fails in every rebalance that gives it the partition
offset-of-missing-topic   the topic, or the partition, does not exist
offset-older-than-topic   older than the topic: it belongs to an earlier topic of the same name
offsets-stale             no commit for a long time, although there are records to read
offset-convention-last    every idle partition is one below its log's end: a client that stores the last offset
unexpected-znode          a znode under owners or offsets that is not a topic or a partition
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.text_format import count_text, duration_text, list_text
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import OffsetNode

STALE_MS = 7 * 86_400_000
"""An offset with records to read is stale from this age on."""

CONVENTION_PARTITIONS_MIN = 2
"""How many idle partitions must agree before an offset convention is inferred from them."""

SHOWN_MAX = 5


def find(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Findings about stored offsets."""
    yield from _unreadable(facts)
    yield from _missing(facts)
    yield from _older_than_topic(facts)
    yield from _stale(facts)
    yield from _convention(facts)
    if facts.state.unexpected_nodes:
        yield DoctorFinding(
            "unexpected-znode",
            f"{count_text(len(facts.state.unexpected_nodes), 'znode')} that no Kafka consumer makes",
            (list_text(facts.state.unexpected_nodes),),
            ("find the program that writes there; old tools fail at them",),
        )


def _unreadable(facts: GroupFacts) -> Iterator[DoctorFinding]:
    found = [node for node in facts.state.offsets.values() if node.problem]
    if found:
        tp = found[0].tp
        path = paths.offset(facts.group, tp)
        yield DoctorFinding(
            "offset-unreadable",
            f"{count_text(len(found), 'offset node')} that no release reads as a number: the Scala consumer that "
            "should take the partition fails in every rebalance; a member of zkconsumer owns it and does not read it",
            _shown(facts, found),
            (
                f"set {path} to a number with zkCli.sh, or delete it; or:",
                f"zkconsumer offsets set {facts.group} --topic {tp.topic}:{tp.partition} --to-earliest   "
                "# members stopped",
            ),
        )


def _missing(facts: GroupFacts) -> Iterator[DoctorFinding]:
    state = facts.state
    gone = [
        node for tp, node in state.offsets.items()
        if tp.topic not in state.topics
        or (not state.topics[tp.topic].problem and tp.partition not in state.topics[tp.topic].partitions)
    ]  # fmt: skip
    if gone:
        topics = sorted({node.tp.topic for node in gone if node.tp.topic not in state.topics})
        yield DoctorFinding(
            "offset-of-missing-topic",
            f"{count_text(len(gone), 'offset')} of topics or partitions that do not exist"
            + (f" ({list_text(topics)})" if topics else "")
            + ": when a topic of that name is created again, members begin at these offsets",
            _shown(facts, gone),
            _delete_topics(facts, topics),
        )


def _older_than_topic(facts: GroupFacts) -> Iterator[DoctorFinding]:
    state = facts.state
    stats = {topic: one.stat for topic, one in state.topics.items() if one.stat is not None}
    found = [
        node for tp, node in state.offsets.items()
        if tp.topic in stats and node.offset is not None and node.stat.mzxid < stats[tp.topic].czxid
    ]  # fmt: skip
    if found:
        topics = sorted({node.tp.topic for node in found})
        made = {topic: duration_text(facts.now_ms - stats[topic].ctime_ms) for topic in topics[:SHOWN_MAX]}
        yield DoctorFinding(
            "offset-older-than-topic",
            f"{count_text(len(found), 'offset')} written before the topic was created: they belong to a deleted topic "
            "of the same name. Members begin in the middle of the new topic, or reset",
            (
                *_shown(facts, found),
                *(f"{paths.topic(topic)} was created {ago} ago" for topic, ago in made.items()),
            ),
            _delete_topics(facts, topics),
        )


def _stale(facts: GroupFacts) -> Iterator[DoctorFinding]:
    found = [
        node for tp, node in facts.state.offsets.items()
        if node.offset is not None
        and not facts.is_kept_in_kafka(tp)
        and facts.now_ms - node.stat.mtime_ms > STALE_MS
        and (log := facts.second_snapshot.log_ranges.get(tp)) is not None
        and log.latest > node.offset
    ]  # fmt: skip
    if found:
        yield DoctorFinding(
            "offsets-stale",
            f"{count_text(len(found), 'offset')} not written for more than {duration_text(STALE_MS)} although there "
            "are records to read. ZooKeeper keeps offsets permanently; the broker deletes records by log.retention, "
            "and offsets in Kafka after offsets.retention.minutes (1 d before 2.0, 7 d since)",
            _shown(facts, sorted(found, key=lambda node: node.stat.mtime_ms)),
            (
                f"zkconsumer groups delete {facts.group}   # if the group is not needed any more"
                if not facts.state.is_active
                else f"zkconsumer lag {facts.group} --watch",
            ),
        )


def _convention(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Idle: the log has records and did not grow between the snapshots, and the offset did not change."""
    first, second = facts.first_snapshot, facts.second_snapshot
    gaps: list[int] = []
    shown: list[str] = []
    for tp, node in second.state.offsets.items():
        log, log_before, before = second.log_ranges.get(tp), first.log_ranges.get(tp), first.state.offsets.get(tp)
        if log is None or log_before is None or before is None or node.offset is None or log.latest <= log.earliest:
            continue
        if log.latest == log_before.latest and node.offset == before.offset:
            gaps.append(log.latest - node.offset)
            shown.append(f"{tp}: stored {node.offset}, log end {log.latest}")
    if len(gaps) >= CONVENTION_PARTITIONS_MIN and set(gaps) == {1}:
        yield DoctorFinding(
            "offset-convention-last",
            f"all {len(gaps)} idle partitions have a stored offset one below the end of the log: the committing client "
            "stores the last offset read, not the next one to read (like go_kafka_client and Spark's old receiver). A "
            "Scala consumer reads one record of each partition again",
            tuple(shown[:SHOWN_MAX]),
            ("use --offset-convention last in each tool that has it, before another client uses the offsets",),
        )


def _delete_topics(facts: GroupFacts, topics: list[str]) -> tuple[str, ...]:
    """The commands that delete what is stored of each topic; they are refused while a member is registered."""
    first = "   # members stopped" if facts.state.is_active else ""
    return tuple(f"zkconsumer groups delete {facts.group} --topic {topic}{first}" for topic in topics[:SHOWN_MAX])


def _shown(facts: GroupFacts, found: list[OffsetNode]) -> tuple[str, ...]:
    lines = [
        f"{paths.offset(facts.group, node.tp)} = {node.data[:40].decode('ascii', 'replace')!r}, "
        f"written {duration_text(facts.now_ms - node.stat.mtime_ms)} ago, version {node.stat.version}"
        for node in found[:SHOWN_MAX]
    ]
    return (*lines, *((f"and {len(found) - SHOWN_MAX} more",) if len(found) > SHOWN_MAX else ()))
