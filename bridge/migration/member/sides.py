"""What the two sides of a member of both worlds want of its partitions, and who is told what the holder says.  Pure.

Whoever *holds* by the present duty (``duty``) tells the holder what to do, and is told what it says.  The other side is
answered at once, as by a holder that works on nothing; what it has is remembered:

    given       what the coordinator's side has: the share of ZooKeeper's side, where a share is given
    locked      what ZooKeeper's side has: an owner node of ours exists
    running     what the holder works on, whoever told it (``works``)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bridge.migration.member import values as val
from bridge.migration.member.acknowledgement import NO_GENERATION
from bridge.migration.member.duty import DUTIES, Duty, Order, Share, Side, Stance
from bridge.migration.member.works import Works
from bridge.migration.member.writes import Stores
from zkconsumer.core import commands as do
from zkconsumer.core import events as ev
from zkconsumer.core.stores import Source

if TYPE_CHECKING:
    from bridge.migration.member.values import Command, ToldByHolder, ToldToHolder
    from zkconsumer.types import TopicPartition

UNKNOWN = -1
ZOOKEEPER, COORDINATOR = Side.ZOOKEEPER, Side.COORDINATOR


class Sides:
    """All but the phases, which are ``MigratingMember``'s."""

    def __init__(self, *, commits_by_itself: bool) -> None:
        self._commits_by_itself = commits_by_itself
        self.stance = Stance.ALONE
        self.generation = NO_GENERATION
        self.given: dict[TopicPartition, str] = {}
        self.locked: set[TopicPartition] = set()
        self.works = Works(self._say)
        self.stores = Stores()
        self._new: set[TopicPartition] = set()
        """What of ``given`` came into being under the coordinator's eyes, and was never worked on."""
        self._told_new: set[TopicPartition] = set()
        self._unstarted: dict[TopicPartition, do.StartFetching] = {}
        """What ZooKeeper's side would begin with, while the other side holds."""
        self._awaited: dict[Side, set[TopicPartition]] = {ZOOKEEPER: set(), COORDINATOR: set()}
        """What a side wants to be at rest.  While ZooKeeper's side holds, the other hears when it is given back."""
        self._collecting: deque[Side] = deque()
        self._writes: dict[int, dict[TopicPartition, int]] = {}
        self._writes_made = 0
        self._following = 0
        self._resting: dict[int, Mapping[TopicPartition, int]] = {}
        """Kafka is told of these, and then ZooKeeper's side that they are at rest."""
        self._queued: dict[int, dict[TopicPartition, int]] = {}
        """Kafka is being told of these for another reason; ZooKeeper's side hears that they are at rest behind that."""
        self._collected: dict[int, Mapping[TopicPartition, int]] = {}
        """Kafka is told of these, one write at a time, and then ZooKeeper's side that they were collected."""
        self._collects_again = False
        """Whether more was collected while Kafka was told: it is collected anew once Kafka has answered."""
        self._unread: set[TopicPartition] = set()
        """On the way back: what Kafka was asked for and has not told yet."""
        self._commits: dict[int, tuple[Order, frozenset[TopicPartition]]] = {}
        """Those of the program: which way each goes, and of what."""
        self._gave: tuple[Share, dict[TopicPartition, str]] = (Share.COMPUTED, {})
        self._out: list[Command] = []

    @property
    def duty(self) -> Duty:
        """What is to be done in the present phase."""
        return DUTIES[self.stance]

    def _give(self) -> None:
        share = self.duty.share
        now = (share, dict(self.given) if share is Share.GIVEN else {})
        if now == self._gave:
            return
        self._gave = now
        new = frozenset((self._new - self._told_new) & now[1].keys())
        self._told_new |= new
        self._say(val.Give(None if share is Share.COMPUTED else now[1], new))

    @property
    def _gives(self) -> bool:
        """Whether what the coordinator's side has is the share of ZooKeeper's side."""
        return self.duty.share is Share.GIVEN

    # --- what ZooKeeper's side wants ------------------------------------------------------------------------------

    def _zookeeper_told(self, command: ToldToHolder) -> None:
        holds = self.duty.holds is ZOOKEEPER
        match command:
            case do.StartFetching(positions):
                self.locked.update(positions)
                if holds:
                    self._start(command)
                else:
                    self._unstarted.update(dict.fromkeys(positions, command))
            case do.Drain(partitions) if holds:
                self._awaited[ZOOKEEPER].update(partitions)
                self.works.drain(partitions)
                at_rest = self.works.at_rest
                self._came_to_rest({tp: at_rest[tp] for tp in partitions if tp in at_rest})
                self._say_at_rest(ZOOKEEPER, {tp: UNKNOWN for tp in partitions if tp not in self.works.running})
            case do.Drain(partitions):
                self._say_at_rest(ZOOKEEPER, dict.fromkeys(partitions, UNKNOWN))
            case do.GiveUpDrain(partitions):
                # What Kafka has not taken yet was not accepted: it is given back as it was.
                at_rest = self.works.at_rest
                late = [tp for tp in partitions if tp in self._awaited[ZOOKEEPER]]
                queued = {tp: at for waiting in self._queued.values() for tp, at in waiting.items()}
                self._say_at_rest(ZOOKEEPER, {tp: queued.get(tp, UNKNOWN) for tp in late if tp in at_rest})
                self.works.give_up_drain(late)
            case do.Drop(partitions, why):
                self._zookeeper_dropped(partitions, why, holds=holds)
            case do.MoveThread() if holds:
                self.works.move(command)
            case do.CollectPositions() if holds:
                self._collect(ZOOKEEPER)
            case do.MoveThread() | do.CollectPositions():
                pass

    def _zookeeper_dropped(self, partitions: Iterable[TopicPartition], why: str, *, holds: bool) -> None:
        gone = set(partitions)
        self.locked -= gone
        self._awaited[ZOOKEEPER] -= gone
        for tp in gone:
            self._unstarted.pop(tp, None)
        if holds:
            self.works.stop(gone, why)
            self.stores.forget(gone)
            self._say_at_rest(COORDINATOR, dict.fromkeys(gone & self._awaited[COORDINATOR], UNKNOWN))

    # --- what the coordinator's side wants ------------------------------------------------------------------------

    def _coordinator_told(self, command: ToldToHolder) -> None:
        holds = self.duty.holds is COORDINATOR
        match command:
            case do.StartFetching(positions, threads):
                self.given.update(threads)
                self._new.update(tp for tp, at in positions.items() if at == do.BEGINNING)
                if holds:
                    self._start(command)
                    self.stores.took(positions)
            case do.Drain(partitions):
                self._coordinator_drains(partitions, holds=holds)
            case do.GiveUpDrain(partitions) if holds:
                self.works.give_up_drain(partitions)
            case do.GiveUpDrain(partitions):
                late = [tp for tp in partitions if tp in self._awaited[COORDINATOR]]
                self._say_at_rest(COORDINATOR, dict.fromkeys(late, UNKNOWN))
            case do.Drop(partitions, why):
                for tp in partitions:
                    self.given.pop(tp, None)
                self._new.difference_update(partitions)
                self._told_new.difference_update(partitions)
                self._unread.difference_update(partitions)
                self._awaited[COORDINATOR].difference_update(partitions)
                if holds:
                    self.works.stop(partitions, why)
                    self.stores.forget(partitions)
            case do.MoveThread(threads):
                self.given.update(threads)
                if holds:
                    self.works.move(command)
            case do.CollectPositions() if holds:
                self._collect(COORDINATOR)
            case do.CollectPositions():
                # What Kafka is told while ZooKeeper's side holds is decided here, with its provenance.
                self._say(val.Say(COORDINATOR, ev.PositionsCollected({})))
        self._give()

    def _coordinator_drains(self, partitions: Iterable[TopicPartition], *, holds: bool) -> None:
        """What is locked is stopped now, and at rest for this side once ZooKeeper's side has given it back."""
        leaving = set(partitions)
        here = self.works.running.keys() if holds else self.locked if self._gives else set()
        if not holds:
            for tp in leaving:
                self.given.pop(tp, None)
        self._awaited[COORDINATOR] |= leaving & here
        self.works.drain(leaving & here)
        self._say_at_rest(COORDINATOR, dict.fromkeys(leaving - here, UNKNOWN))

    # --- what the holder says -------------------------------------------------------------------------------------

    def _holder_said(self, said: ToldByHolder) -> None:
        match said:
            case ev.PartitionsDrained(positions):
                self._came_to_rest(self.works.arrived(positions))
            case ev.PositionsCollected(positions):
                self._positions_collected(positions)
            case ev.OffsetReset() | ev.OffsetsPlaced():
                self._say(val.Say(self.duty.holds, said))

    def _came_to_rest(self, positions: Mapping[TopicPartition, int]) -> None:
        """Tell the side that holds and waits for them; what nobody wants to leave any more goes on where it stands."""
        side = self.duty.holds
        goes_on = {tp: self.works.running[tp] for tp in positions if self._goes_on(tp)}
        if goes_on:
            self.works.move(do.MoveThread(goes_on, dict.fromkeys(goes_on, max(self.generation, 0))))
        waited = {tp: at for tp, at in positions.items() if tp in self._awaited[side]}
        first = {tp: at for tp, at in waited.items() if self._commits_by_itself and self._is_for_kafka_first(tp, at)}
        if first:
            self._resting[self._write(first, is_urgent=True)] = first
        rest = {tp: at for tp, at in waited.items() if tp not in first}
        self._say_at_rest(side, self._behind_writes(rest) if side is ZOOKEEPER else rest)

    def _behind_writes(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those that Kafka is not being told of now; a write that ended later would be in the next owner's way."""
        for tp in list(positions):
            open_writes = [number for number, offsets in self._writes.items() if tp in offsets]
            if open_writes:
                self._queued.setdefault(max(open_writes), {})[tp] = positions.pop(tp)
        return positions

    def _goes_on(self, tp: TopicPartition) -> bool:
        is_wanted = any(tp in waiting for waiting in self._awaited.values())
        return not is_wanted and (tp in self.given or self.duty.share is Share.COMPUTED)

    def _is_for_kafka_first(self, tp: TopicPartition, position: int) -> bool:
        is_first = self.duty.holds is ZOOKEEPER and self.duty.order is Order.KAFKA_FIRST
        return is_first and position >= 0 and position != self.stores.in_kafka.get(tp)

    def _say_at_rest(self, side: Side, positions: Mapping[TopicPartition, int]) -> None:
        self._awaited[side].difference_update(positions)
        if positions:
            self._say(val.Say(side, ev.PartitionsDrained(dict(sorted(positions.items())))))

    def _positions_collected(self, positions: Mapping[TopicPartition, int]) -> None:
        side = self._collecting.popleft()
        if side is not self.duty.holds:
            if side is COORDINATOR:
                self._collected_for(side, {})
            return
        fresh = {tp: at for tp, at in sorted(positions.items()) if self._is_for_kafka_first(tp, at)}
        if not fresh:
            self._collected_for(side, positions)
        elif self._collected:
            # A coordinator that is slower than the timer would have a queue, and the last write before a rebalance its
            # end: the whole group would wait for it.
            self._collects_again = True
        else:
            self._collected[self._write(fresh)] = positions

    def _collected_for(self, side: Side, positions: Mapping[TopicPartition, int]) -> None:
        self._say(val.Say(side, ev.PositionsCollected(dict(positions))))

    # --- both stores ----------------------------------------------------------------------------------------------

    def _write(self, offsets: dict[TopicPartition, int], *, is_urgent: bool = False) -> int:
        self._writes_made += 1
        self._writes[self._writes_made] = offsets
        self._say(val.WriteToKafka(self._writes_made, offsets, is_urgent))
        return self._writes_made

    def _written(self, event: val.WrittenToKafka) -> None:
        number = event.number
        offsets = self._writes.pop(number)
        self._following = 0 if self._following == number else self._following
        refused = {tp for tp in offsets if tp not in event.taken or tp not in self.works.running}
        self.stores.took({tp: at for tp, at in offsets.items() if tp not in refused})
        # What Kafka did not take is not written to ZooKeeper either: it was not accepted, and is read again.
        resting = self._resting.pop(number, {})
        waited = {tp: at for tp, at in resting.items() if tp in self._awaited[ZOOKEEPER]}
        self._say_at_rest(ZOOKEEPER, {tp: UNKNOWN if tp in refused else at for tp, at in waited.items()})
        queued = self._queued.pop(number, {})
        self._say_at_rest(ZOOKEEPER, {tp: at for tp, at in queued.items() if tp in self._awaited[ZOOKEEPER]})
        collected = {tp: at for tp, at in self._collected.pop(number, {}).items() if tp not in refused}
        if collected and self.duty.holds is ZOOKEEPER:
            self._collected_for(ZOOKEEPER, collected)
        if self._collects_again and not self._collected:
            self._collects_again = False
            if self.duty.holds is ZOOKEEPER:
                self._collect(ZOOKEEPER)

    def _kafka_took(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The program's commits, and those that the coordinator's side makes by itself while it holds.

        While ZooKeeper has each commit first, Kafka is told by ``_follow`` alone.  What is answered then began in the
        phase before, without the provenance of this epoch, so Kafka is told once more: a later migration recognises
        the values of this one by it.
        """
        if self.duty.order is Order.ZOOKEEPER_FIRST:
            return
        ours = {tp: at for tp, at in offsets.items() if tp in self.works.running}
        self.stores.took(ours)
        self._unread.difference_update(ours)
        if ours and self.duty.mirrors:
            self._say(val.Mirror(ours))
        elif ours and self.duty.holds is COORDINATOR:
            self._follow()

    def _follow(self) -> None:
        """Bring up the store that is behind; Kafka by one write at a time."""
        order = self.duty.order
        if self.duty.holds is COORDINATOR and order is Order.KAFKA_FIRST:
            late = self.stores.for_zookeeper(self.locked)
            if late:
                self._collected_for(ZOOKEEPER, late)
        elif self.duty.holds is ZOOKEEPER and not self._following:
            under_way = self._on_the_way_to_kafka
            late = {tp: at for tp, at in self.stores.for_kafka(order).items() if tp not in under_way}
            if late:
                self._following = self._write(late)

    @property
    def _on_the_way_to_kafka(self) -> set[TopicPartition]:
        """What Kafka is told first, and may have further than ZooKeeper: ZooKeeper's is not written over that."""
        found: set[TopicPartition] = set()
        if self.duty.order is Order.KAFKA_FIRST:
            found.update(*self._writes.values(), *(of for _, of in self._commits.values()))
        return found

    def _kafka_read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Where those stand that the coordinator's side has: what nobody works on begins there, and on the way back
        ZooKeeper is brought up to it."""
        self._unread.difference_update(offsets)
        known = {tp: at for tp, at in sorted(offsets.items()) if tp in self.given}
        if not known or self.duty.holds is not COORDINATOR:
            return
        starts = {tp: do.BEGINNING if at < 0 and tp in self._new else at for tp, at in known.items()}
        threads = {tp: self.given[tp] for tp in known}
        sources = {tp: Source.KAFKA if at >= 0 else Source.NEITHER for tp, at in known.items()}
        self._start(do.StartFetching(starts, threads, sources, dict.fromkeys(known, self.generation)))
        self.stores.was_told(known)
        self._follow()

    # --- small things ---------------------------------------------------------------------------------------------

    def _start(self, command: do.StartFetching) -> None:
        self._new.difference_update(command.positions)
        self.works.start(command)

    def _collect(self, side: Side) -> None:
        self._collecting.append(side)
        self._say(val.TellHolder(do.CollectPositions()))

    def _say(self, command: Command) -> None:
        self._out.append(command)
