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

The life of a partition here: unknown; *new* (a view brought it, and assigns it to us); read from its beginning; known.
A partition that is fetched when its topic is created again: its position becomes invalid in the event of the view, and
it is *to restart* until the restart follows, which is in the same event unless the partition is being released.  Three
other components use this state: the commit skips a partition whose position is invalid (an offset of the old topic
would skip records of the new one), ``PositionReader`` asks for the start positions, and ``MemberStateMachine`` restarts
after each event.

The order matters in two places.  The position becomes invalid before the commit of the same attempt, which is why the
view marks it and the restart follows.  ``on_view`` runs before the acquisition, because the start position of an
acquired partition depends on it.

A view that is lost (a failed read) costs nothing: the next one shows the same difference.  After a pause of the process
that outlasts the session the difference is unknown, and all stored offsets count; ``auto.offset.reset`` applies where
there is none, as in the Scala consumer.
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
        """Topic -> the transaction that created it, in the last view; empty before the first view.  Without the topics
        whose creation is unknown."""
        self._known_partitions: dict[str, frozenset[int] | None] | None = None
        """Topic -> partitions of the last view; None for a topic whose znode lists none: its partitions are unknown."""
        self._new: set[TopicPartition] = set()
        """New partitions of our assignment in the last view, and those given from outside for the next one.  Each is
        unread by every member since its creation."""
        self._to_restart: set[TopicPartition] = set()
        """Owned partitions of topics that were created again, still fetched at the position in the old topic, which is
        not valid.  One that was lost since the last view may be among them; it is acquired only after another view."""
        self._logged_older: set[str] = set()
        """Topics of which it was logged that offsets older than the topic are used; once for a process."""

    def reset(self) -> None:
        """The membership ended: the next one starts with the partitions that exist then.

        What was logged about older offsets stays: it is the same for the process.
        """
        self._topic_czxids = {}
        self._known_partitions = None
        self._new.clear()
        self._to_restart.clear()

    def add_new(self, new: Iterable[TopicPartition]) -> None:
        """Mark these as new; used with an assignment from outside, which contains them in the next view."""
        self._new.update(new)

    def on_view(self, view: GroupView, topics: Iterable[str], assigned: Iterable[TopicPartition]) -> list[Command]:
        """Process a view: ``topics`` are those that our subscription matches, ``assigned`` is our assignment.

        A topic without a czxid has no znode in this view, or the reader does not know its creation: nothing in it is
        new.  A partition that a former view assigned to another member is not new, whatever comes later.
        """
        known: dict[str, frozenset[int] | None] = {}
        created: dict[str, frozenset[int]] = {}
        out: list[Command] = []
        for topic in sorted(topics):
            partitions = frozenset(view.partitions_by_topic.get(topic, ()))
            czxid = view.topic_czxids.get(topic)
            # A znode that lists no partition may be damaged: what the next view shows need not be new.
            known[topic] = None if czxid is not None and not partitions else partitions
            if self._known_partitions is None or czxid is None:
                continue
            before = self._known_partitions.get(topic, frozenset())
            if self._topic_czxids.get(topic, czxid) != czxid:
                out += self._on_topic_recreated(topic)
                created[topic] = partitions
            elif before is not None:
                created[topic] = partitions - before
        self._new = {tp for tp in assigned if tp in self._new or tp.partition in created.get(tp.topic, ())}
        self._to_restart &= self._partitions.keys()
        self._topic_czxids, self._known_partitions = view.topic_czxids, known
        return out

    def _on_topic_recreated(self, topic: str) -> list[Command]:
        """Make the positions in the old topic invalid; a partition without a valid one is read again already."""
        held = [tp for tp, partition in self._partitions.items() if tp.topic == topic and partition.is_position_valid]
        if not held:
            return []
        for tp in held:
            self._partitions[tp].is_position_valid = False
        self._to_restart.update(held)
        words = f"topic={topic} partitions={len(held)}: it was deleted and created again; reading it from the start"
        return [do.LogEvent("WARNING", "topic-recreated", words)]

    def restart_recreated(self, assigned: Mapping[TopicPartition, str]) -> list[Command]:
        """Restart the partitions of recreated topics that we own and keep in the same thread.

        The others are being released: their next owner, or the next thread, finds no position to commit.  Drop and
        start follow each other in one list, so no record of the old topic is delivered after the restart.
        """
        owned = {tp: self._partitions[tp] for tp in sorted(self._to_restart & self._partitions.keys())}
        kept = {tp: p for tp, p in owned.items() if assigned.get(tp) == p.thread}
        ready = {tp: p.thread for tp, p in kept.items() if p.state is PartitionState.FETCHING}
        if not ready:
            return []
        assert not any(self._partitions[tp].is_position_valid for tp in ready), "these are positions in the old topic"
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
        """The start positions of these partitions, whose stored offsets are known now, and log commands about them.

        ``BEGINNING`` for a new partition without an offset that counts, -1 (``auto.offset.reset`` applies) for another
        one, else the offset.  ``position`` of a partition whose offset is ignored becomes -1.
        """
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
            out.append(do.IncrementCounter("offsets_ignored", count))
            out.append(_older_offset_log_event(topic, count, "they belong to a deleted topic and are ignored"))
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
        czxid = self._topic_czxids.get(tp.topic, 0)
        return held.stored.offset >= 0 and held.kafka_offset < 0 and 0 < held.stored.written_zxid < czxid


def _older_offset_log_event(topic: str, partitions: int, words: str) -> Command:
    before = f"topic={topic} partitions={partitions}: the stored offsets are older than the topic: "
    return do.LogEvent("WARNING", "offset-older-than-topic", before + words)
