"""A member of both worlds: between its two memberships and what works on the partitions.  Pure.

    ZooKeeper's side ----Told----> MigratingMember ---TellHolder---> holder (streams, or a keeper)
           ^---Give, Say----------        |  ^ ---HolderSaid---------'
    coordinator's side --Told----> -------'  '-- Say --> (as their holder)

What a new phase of the control znode changes, and when it is acknowledged; what happens between is in ``sides``.
When the other side begins to hold, what runs and belongs to it as well goes on untouched: no drain, no fetch again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.migration.member import values as val
from bridge.migration.member.acknowledgement import NO_GENERATION, Acknowledgement
from bridge.migration.member.duty import Share, Side, Stance, stance_of
from bridge.migration.member.sides import COORDINATOR, UNKNOWN, ZOOKEEPER, Sides
from zkconsumer.core import commands as do

if TYPE_CHECKING:
    from bridge.migration.member.values import Command, Event
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.znodes import Control

NOT_OURS = "the side that holds from here on does not have it"


class MigratingMember(Sides):
    """One member; ``handle`` takes an event and gives back what must now be done, in order.

    ``commits_by_itself``: where a partition came to rest is committed (``auto.commit.enable``).
    Raises ``MigrationError`` for a control znode that this member cannot follow: then it must end.
    """

    def __init__(self, *, commits_by_itself: bool = True) -> None:
        super().__init__(commits_by_itself=commits_by_itself)
        self.control: Control | None = None
        self._joined: tuple[str, ...] = ()
        self._acknowledged: Acknowledgement | None = None

    def handle(self, event: Event) -> list[Command]:
        """Take one event in."""
        self._out.clear()
        match event:
            case val.ControlSeen(control):
                self._control_seen(control)
            case val.GenerationSeen(generation):
                self.generation = generation
            case val.Told(side, command) if side is ZOOKEEPER:
                self._zookeeper_told(command)
            case val.Told(_, command):
                self._coordinator_told(command)
            case val.HolderSaid(said):
                self._holder_said(said)
            case val.Looked(stored):
                self.stores.looked({tp: at for tp, at in stored.items() if tp in self.locked})
                self._follow()
            case val.CommitBegun(call, partitions):
                self._commits[call] = (self.duty.order, partitions)
            case val.CommitEnded(call, in_kafka):
                del self._commits[call]
                self._kafka_took(in_kafka)
            case val.WrittenToKafka():
                self._written(event)
            case val.KafkaTook(offsets):
                self._kafka_took(offsets)
            case val.KafkaRead(offsets):
                self._kafka_read(offsets)
        if not isinstance(event, val.HolderSaid | val.CommitBegun):
            # Neither changes what is acknowledged, and the first comes once a partition.
            self._acknowledge()
        return list(self._out)

    @property
    def is_caught_up(self) -> bool:
        """Whether the phase is acknowledged, no partition is behind, and nothing is to be written to ZooKeeper."""
        is_on_its_way = self.duty.holds is COORDINATOR and self.stores.is_on_its_way(self.locked)
        return self._acknowledged is not None and self._acknowledged.behind == 0 and not is_on_its_way

    # --- the phase ----------------------------------------------------------------------------------------------

    def _control_seen(self, control: Control | None) -> None:
        stance = stance_of(control)
        is_anew = control is not None and (self.control is None or control.epoch != self.control.epoch)
        if is_anew:
            self.stores.forget_kafka()
        before, self.control, self.stance = self.duty, control, stance
        if self.duty.protocols != self._joined:
            self._joined = self.duty.protocols
            self._say(val.Join(self._joined))
        if before.holds is not self.duty.holds:
            self._hold(self.duty.holds)
        if is_anew or before is not self.duty:
            self._unread = set(self.given) if self.duty.holds is COORDINATOR and self._gives else set()
            if self._unread:
                # What could not be mirrored, and nobody reads, would stay behind in ZooKeeper.
                self._say(val.ReadFromKafka(frozenset(self._unread)))
        self._give()

    def _hold(self, side: Side) -> None:
        """This side holds from here on; what the other one waited for is no business of its any more."""
        other = COORDINATOR if side is ZOOKEEPER else ZOOKEEPER
        self._say_at_rest(other, dict.fromkeys(self._awaited[other], UNKNOWN))
        self._resting.clear()
        self._queued.clear()
        has = self.locked if side is ZOOKEEPER else self.given.keys() | self._awaited[side]
        self.works.stop(self.works.running.keys() - has, NOT_OURS)
        # An owner node of ours without anything that runs: the other side would have said so when it gave it back.
        self._say_at_rest(side, dict.fromkeys(self._awaited[side] - self.works.running.keys(), UNKNOWN))
        self.works.drain(self._awaited[side])
        self._came_to_rest(self.works.at_rest)
        if side is ZOOKEEPER:
            for tp in sorted(self._unstarted.keys() & self.locked):
                self._start(_only(self._unstarted[tp], tp))
            self._unstarted.clear()
        elif self.given.keys() - self.works.running.keys():
            # Where they stood when they were given is long ago: others had them meanwhile.
            self._say(val.ReadFromKafka(frozenset(self.given.keys() - self.works.running.keys())))

    # --- the acknowledgement ----------------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        said = self._acknowledgement()
        if said != self._acknowledged:
            self._acknowledged = said
            self._say(val.Acknowledge(said))

    def _acknowledgement(self) -> Acknowledgement | None:
        """None until what the phase wants of this member is so, and where nobody asks: a copy waits for no member."""
        now = self.control
        if now is None or now.strategy != "dual" or not self._is_so():
            return None
        return Acknowledgement(now.migration_id, now.epoch, now.phase, self.generation, self._behind())

    def _is_so(self) -> bool:
        """A commit that began the old way may end after the phase changed; owner nodes go one by one."""
        if (self.generation != NO_GENERATION) != bool(self.duty.protocols):
            return False
        if any(order is not self.duty.order for order, _ in self._commits.values()):
            return False
        return not (self.duty.share is Share.NOTHING and self.locked)

    def _behind(self) -> int:
        """How many partitions are not yet as the phase wants them."""
        if not self._gives:
            return 0
        if self.duty.holds is COORDINATOR:
            is_late = self.stores.behind_in_zookeeper(self.locked)
        elif self.stance is Stance.RETURNED:
            is_late = self.stores.untold_to_kafka()
        else:
            is_late = set(self.stores.for_kafka(self.duty.order))
        unknown = {tp for tp in self.locked if tp in self._unread or not self.stores.is_known(tp)}
        return len((self.given.keys() - self.locked) | unknown | is_late)


def _only(command: do.StartFetching, tp: TopicPartition) -> do.StartFetching:
    return do.StartFetching(
        {tp: command.positions[tp]},
        {tp: command.threads[tp]},
        {tp: command.sources[tp]},
        {tp: command.epochs[tp]},
    )
