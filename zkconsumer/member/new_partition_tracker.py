"""Newly created partitions, and stored offsets that belong to a deleted topic of the same name.

This module avoids two defects of the Scala consumer (30 and 31 in ``migration_docs/reference/parity.md``):

- A new partition without a stored offset is read from its *beginning*, regardless of ``auto.offset.reset``.  It is new
  when an earlier view of this membership did not contain it, and every view since its creation assigned it to us: so
  all of its records were produced after we joined, and no other member has read them.
- An offset that was stored before its topic was created belongs to an earlier topic of that name.  ZooKeeper shows the
  order: the topic's znode was created later than the offset znode was last written.  For a new partition such an
  offset is ignored; otherwise only with ``offsets.older.than.topic=ignore``, because a tool that copies ZooKeeper may
  reverse the order.

A topic that is deleted and created again between two views has another czxid.  The partitions of it that we keep are
read again from the beginning, and the position in the old topic is not committed any more.

If topics are read from Kafka, the number in place of the czxid is small and grows when a topic is created again; then
no offset counts as older than its topic.

"New" ends with the first position in the topic (a commit cannot say that: the program may never commit), with the loss
of the assignment, and with the session: then another member may have read the partition
(the transcripts ``defect_30_*``).  The views must be consecutive; so the first view of a membership makes nothing new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.partition_state_machine import NO_POSITION, PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.member.group_view import GroupView
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition


class NewPartitionTracker:
    """The partitions of the last view, and the new ones in our assignment."""

    def __init__(self, partitions: Mapping[TopicPartition, PartitionStateMachine], settings: GroupSettings) -> None:
        self._partitions = partitions
        self._settings = settings
        self._topic_czxids: Mapping[str, int] = {}
        """Topic -> the transaction that created it, in the last view; empty before the first view."""
        self._known_partitions: dict[str, frozenset[int] | None] | None = None
        """Topic -> partitions of the last view; None for a topic whose znode lists none: its partitions are unknown."""
        self._new: set[TopicPartition] = set()
        """New partitions of our assignment in the last view, and those given from outside for the next one."""
        self._to_restart: set[TopicPartition] = set()
        """Owned partitions of topics that were created again, still fetched at the position in the old topic.  One that
        was lost since the last view may be among them."""
        self._logged_older: set[str] = set()
        """Topics of which it was logged that offsets older than the topic are used; once for a process."""

    def reset(self) -> None:
        """The membership ended: the next one starts with the partitions that exist then."""
        self._topic_czxids = {}
        self._known_partitions = None
        self._new.clear()
        self._to_restart.clear()

    def add_new(self, new: Iterable[TopicPartition]) -> None:
        """Mark these as new; used with an assignment from outside, which contains them in the next view."""
        self._new.update(new)

    def on_view(self, view: GroupView, topics: Iterable[str], share: Iterable[TopicPartition]) -> list[Command]:
        """Process a view: ``topics`` are those that our subscription matches, ``share`` is our assignment."""
        seen: dict[str, frozenset[int] | None] = {}
        came: dict[str, frozenset[int]] = {}
        out: list[Command] = []
        for topic in sorted(topics):
            partitions = frozenset(view.partitions_by_topic.get(topic, ()))
            birth = view.topic_czxids.get(topic)
            seen[topic] = None if birth is not None and not partitions else partitions
            if self._known_partitions is None or birth is None:
                continue
            before = self._known_partitions.get(topic, frozenset())
            if self._topic_czxids.get(topic, birth) != birth:
                out += self._on_topic_recreated(topic)
                came[topic] = partitions
            elif before is not None:
                came[topic] = partitions - before
        share = set(share)
        self._new = {tp for tp in share if tp in self._new or tp.partition in came.get(tp.topic, ())}
        self._to_restart &= self._partitions.keys()
        self._topic_czxids, self._known_partitions = view.topic_czxids, seen
        return out

    def _on_topic_recreated(self, topic: str) -> list[Command]:
        held = [tp for tp, partition in self._partitions.items() if tp.topic == topic and partition.is_position_valid]
        if not held:
            return []
        for tp in held:
            self._partitions[tp].is_position_valid = False
        self._to_restart.update(held)
        words = f"topic={topic} partitions={len(held)}: it was deleted and created again; reading it from the start"
        return [do.LogEvent("WARNING", "topic-recreated", words)]

    def restart_recreated(self, share: Mapping[TopicPartition, str]) -> list[Command]:
        """Restart the partitions of recreated topics that we own and keep in the same thread."""
        ready = {
            tp: partition.thread
            for tp in sorted(self._to_restart)
            if (partition := self._partitions.get(tp)) is not None
            and partition.state is PartitionState.FETCHING
            and share.get(tp) == partition.thread
        }
        if not ready:
            return []
        self._to_restart -= ready.keys()
        for tp in ready:
            self._partitions[tp].position = NO_POSITION
        start = dict.fromkeys(ready, ownership.BEGINNING if self._settings.new_from_beginning else NO_POSITION)
        sources = dict.fromkeys(ready, OffsetSource.NEITHER)
        epochs = {tp: self._partitions[tp].czxid for tp in ready}
        again = "its topic was created again"
        return [ownership.DropPartitions(tuple(ready), again), ownership.StartFetching(start, ready, sources, epochs)]

    def start_positions(
        self, known: Mapping[TopicPartition, PartitionStateMachine]
    ) -> tuple[dict[TopicPartition, int], list[Command]]:
        """The start positions of these partitions, whose stored offsets are known now, and log commands about them."""
        assert all(held.state is PartitionState.FETCHING for held in known.values()), "their positions are known"
        starts: dict[TopicPartition, int] = {}
        used: dict[str, int] = {}
        ignored: dict[str, int] = {}
        for tp, held in known.items():
            if self._is_older(tp, held):
                is_void = tp in self._new or self._settings.ignores_older_offsets
                counts = ignored if is_void else used
                counts[tp.topic] = counts.get(tp.topic, 0) + 1
                held.position = NO_POSITION if is_void else held.position
            begins = held.position < 0 and tp in self._new and self._settings.new_from_beginning
            starts[tp] = ownership.BEGINNING if begins else held.position
        out: list[Command] = []
        for topic, count in ignored.items():
            out += [
                do.IncrementCounter("offsets_ignored", count),
                _older_offset_log_event(topic, count, "they belong to a deleted topic and are ignored"),
            ]
        for topic in used.keys() - self._logged_older:
            self._logged_older.add(topic)
            words = "they may belong to a deleted topic; they are used (offsets.older.than.topic)"
            out.append(_older_offset_log_event(topic, used[topic], words))
        return starts, out

    def mark_positioned(self, tp: TopicPartition) -> None:
        """The position was set in the present topic, from a broker or by a reset: the partition is no longer new.

        (Otherwise a program that never commits would read everything again whenever it acquires the partition again.)
        """
        self._new.discard(tp)
        if tp not in self._to_restart and tp in self._partitions:
            self._partitions[tp].is_position_valid = True

    def _is_older(self, tp: TopicPartition, held: PartitionStateMachine) -> bool:
        """Whether the only stored offset was written before the topic was created; for Kafka's that is unknown."""
        birth = self._topic_czxids.get(tp.topic, 0)
        return held.stored.offset >= 0 and held.kafka_offset < 0 and 0 < held.stored.written_zxid < birth


def _older_offset_log_event(topic: str, partitions: int, words: str) -> Command:
    before = f"topic={topic} partitions={partitions}: the stored offsets are older than the topic: "
    return do.LogEvent("WARNING", "offset-older-than-topic", before + words)
