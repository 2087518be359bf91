"""Topics and partitions that came into being under this member's eyes, and offsets that belong to a topic of before.

Two defects of the original are decided here (30 and 31 of the list):

- a partition that is new is read from its *beginning*, whatever ``auto.offset.reset`` says, when no offset is stored.
  It is new when an earlier view of this membership did not have it, and every view since it came gave it to us: so all
  of its records were produced after we joined, and by the rule of assignment nobody else has read them.
- an offset that was stored before its topic was created is of an earlier topic of that name.  ZooKeeper orders both:
  the topic's znode was created later than the offset's was last written.  For what is new that offset counts as none;
  else only with ``offsets.older.than.topic=ignore``, because a tool that copies ZooKeeper may turn the order round.

A topic that is deleted and created again between two views shows another birth.  What we go on owning of it is read
anew from the beginning, and the position in the old topic is not committed any more.

Where topics are learnt from Kafka a birth is a small number that grows when a topic is made anew: there no offset is
older than its topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.partition_state_machine import NO_POSITION, PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_view import GroupView
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition


class NewPartitionTracker:
    """What was there in the last view, and what of our share has come since.

    ``from_beginning`` is ``new.partitions.from.beginning``, ``ignores_older`` ``offsets.older.than.topic=ignore``.
    """

    def __init__(
        self, partitions: Mapping[TopicPartition, PartitionStateMachine], *, from_beginning: bool, ignores_older: bool
    ) -> None:
        self._partitions = partitions
        self._from_beginning = from_beginning
        self._ignores_older = ignores_older
        self._topic_czxids: Mapping[str, int] = {}
        self._known_partitions: dict[str, frozenset[int] | None] | None = None
        """Topic -> partitions of the last view; None for a topic whose znode told none, which proves nothing."""
        self._new: set[TopicPartition] = set()
        self._to_restart: set[TopicPartition] = set()
        self._logged_older: set[str] = set()

    def reset(self) -> None:
        """The membership is over: another one begins with what is there then."""
        self._topic_czxids = {}
        self._known_partitions = None
        self._new.clear()
        self._to_restart.clear()

    def add_new(self, new: Iterable[TopicPartition]) -> None:
        """Somebody else gives us our share, and has seen these come into being; the next view has them in our share."""
        self._new.update(new)

    def on_view(self, view: GroupView, topics: Iterable[str], share: Iterable[TopicPartition]) -> list[Command]:
        """Take a view in: ``topics`` are those that our subscription takes, ``share`` what the view gives us."""
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
        words = f"topic={topic} partitions={len(held)}: it was deleted and created again; reading it anew"
        return [do.LogEvent("WARNING", "topic-recreated", words)]

    def restart_recreated(self, share: Mapping[TopicPartition, str]) -> list[Command]:
        """Of topics that were created again: read anew what we hold, and go on holding, in the same thread."""
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
        start = dict.fromkeys(ready, do.BEGINNING if self._from_beginning else NO_POSITION)
        sources = dict.fromkeys(ready, OffsetSource.NEITHER)
        epochs = {tp: self._partitions[tp].czxid for tp in ready}
        again = "its topic was created again"
        return [do.DropPartitions(tuple(ready), again), do.StartFetching(start, ready, sources, epochs)]

    def start_positions(
        self, known: Mapping[TopicPartition, PartitionStateMachine]
    ) -> tuple[dict[TopicPartition, int], list[Command]]:
        """Where to read these from, now that their stored offsets are known, and what there is to say about it."""
        starts: dict[TopicPartition, int] = {}
        used: dict[str, int] = {}
        ignored: dict[str, int] = {}
        for tp, held in known.items():
            if self._is_older(tp, held):
                is_void = tp in self._new or self._ignores_older
                counts = ignored if is_void else used
                counts[tp.topic] = counts.get(tp.topic, 0) + 1
                held.position = NO_POSITION if is_void else held.position
            begins = held.position < 0 and tp in self._new and self._from_beginning
            starts[tp] = do.BEGINNING if begins else held.position
        out: list[Command] = []
        for topic, count in ignored.items():
            out += [
                do.IncrementCounter("offsets_ignored", count),
                _older_offset_log_event(topic, count, "of a deleted one; passing over them"),
            ]
        for topic in used.keys() - self._logged_older:
            self._logged_older.add(topic)
            words = "of a deleted one, perhaps; using them all the same (offsets.older.than.topic)"
            out.append(_older_offset_log_event(topic, used[topic], words))
        return starts, out

    def mark_positioned(self, tp: TopicPartition) -> None:
        """The broker said where the partition begins: its position is one in the present topic, and it is new no more.

        (A program that never commits would else get everything again whenever the partition is claimed anew.)
        """
        self._new.discard(tp)
        if tp not in self._to_restart and tp in self._partitions:
            self._partitions[tp].is_position_valid = True

    def _is_older(self, tp: TopicPartition, held: PartitionStateMachine) -> bool:
        """Whether all we know is an offset that was stored before the topic was created; of Kafka's that is unknown."""
        birth = self._topic_czxids.get(tp.topic, 0)
        return held.stored.offset >= 0 and held.kafka_offset < 0 and 0 < held.stored.written_zxid < birth


def _older_offset_log_event(topic: str, partitions: int, words: str) -> Command:
    before = f"topic={topic} partitions={partitions}: the stored offsets are older than the topic: "
    return do.LogEvent("WARNING", "offset-older-than-topic", before + words)
