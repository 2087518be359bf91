"""When the membership at the coordinator is opened, changes its protocols, and is closed.

    set_protocols --no side--> open --other protocols--> offer --none--> leave, on a thread that may wait --> closed
                        ^              an error, while the ZooKeeper side is active ----^                        |
                        '--- tick, after REJOIN_DELAY_MS at the latest, or with the next phase ------------------'

All methods run on the control thread of the ZooKeeper side; the coordinator side submits its events there.

Theory of operation.  The phase says which protocols this member must offer (``_wanted``), and at most one step towards
them is in progress:

    no side  ``side`` is None.  Protocols are wanted, and the program has joined: open one.
    open     other protocols are wanted: offer them; the side stays in the group.  None are wanted: close it.  Another
             migration has begun: close it, too, since its protocol has another name.
    leaving  ``leave_thread`` runs.  New protocols only change ``_wanted``; ``_side_closed`` takes the next step.

Order, and what breaks without it:

    one side at a time    two members of the group would have the same consumer id, and each would get partitions.  So
                          a side is opened only after the threads of the last one have ended.
    leave, then close     a closed membership cannot leave: the coordinator would keep its member until the session
                          timeout, and a rebalance would wait for it that long.
    a thread of its own   a leave waits for a drain.  The control thread of the ZooKeeper side must answer that drain,
                          so it cannot wait for it.
    answers at the end    ``_side_closed`` first drops the assignment and ends the drains, then fails the open writes,
                          then ends the generation: the machine has nothing left that could wait for this side.

When the side fails.  While the ZooKeeper side is active, nothing of the group's work depends on the coordinator side:
the error is logged, and the member joins again after ``REJOIN_DELAY_MS``.  Meanwhile it does not acknowledge the phase,
so the migration waits (``test_without_brokers_for_the_group_a_member_of_zookeeper_continues``).  While the coordinator
side is active, its error ends the member (``test_the_active_side_ends_the_streams_with_its_error``).

Late events.  A side that is being closed may still submit events.  Each event carries its side, and one of another side
than the present one is dropped (``_handle_event``): it belongs to a generation that has ended.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from bridge.client.assignors import RangeAssignor
from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.migration.dual.connector.active_side_filters import ActiveSideHooks, ActiveSideMeters
from bridge.migration.dual.connector.coordinator_side import CoordinatorSide
from bridge.migration.dual.connector.migration_assignor import MigrationAssignor
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from bridge.migration.dual.connector.side_processors import SidePartitionProcessor
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.acknowledgement import NO_GENERATION
from bridge.migration.dual.machine.phase_rules import MIGRATION_PROTOCOL, MembershipSide
from bridge.migration.offsets.provenance import Provenance, format_provenance
from zkconsumer.base.threads import WorkerThread, spawn
from zkconsumer.kafka.group import events as cev
from zkconsumer.member import ownership

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.coordinator_membership import MembershipEvents, MembershipSettings
    from bridge.client.stream_assignor import StreamAssignor
    from bridge.migration.dual.connector.migrating_membership import MigratingMembership
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.base.threads import StopSignal
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
    from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.types import TopicPartition

COORDINATOR_SIDE = MembershipSide.COORDINATOR

UNKNOWN_VERSION = -1
"""The version of an offset znode that does not contain the offset, as far as this member has read it."""

REJOIN_DELAY_MS = 30_000
"""The pause before this member joins the coordinator group again, after an error that an operator must correct."""

log = logging.getLogger("zkconsumer.member")


class CoordinatorSideLifecycle:
    """``side`` is None while this member is not in the coordinator group, and neither joins nor leaves it."""

    def __init__(
        self,
        member: MigratingMembership,
        coordinator_settings: tuple[GroupMemberConfig, MembershipSettings, StreamAssignor],
        brokers: BrokerAccess,
        lease: Lease,
        meters: MembershipMeters,
    ) -> None:
        self.side: CoordinatorSide | None = None
        """At most one; a new one is opened only when the threads of the old one have ended."""
        self.has_assignment = False
        """Whether the side has owned its complete assignment once; False without a side.  ``wait_for_assignment`` of
        the program waits for it, from LOCKED on."""
        self.subscription: TopicSubscription | None = None
        """None until the program has joined: no side is opened before."""
        self.is_closing = False
        """Whether the program leaves or closes: from then on no side is opened, and no error of a side counts.  Set on
        the program's thread, before it reads ``side``."""
        self.leave_thread: WorkerThread | None = None
        """The thread that closes ``side``; not None only while there is a side."""
        assert not member.machine.rules.protocols, "a member begins without a migration"
        self._member = member
        self._coordinator_settings = coordinator_settings
        self._brokers = brokers
        self._lease = lease
        self._meters = meters
        self._wanted: tuple[str, ...] = ()
        """The protocols of the present phase; () if the member must not be in the coordinator group."""
        self._offered: tuple[str, ...] = ()
        """The protocols that the side offers, without meaning if there is no side.  They differ from ``_wanted`` only
        while the side is being closed."""
        self._migration_id = ""
        """That of the migration in which the side was opened; its protocol has this name.  Without meaning if there is
        no side."""
        self._rejoin_at_ms = 0
        """``tick`` opens no side before; new protocols open one earlier."""
        self._open_writes: set[int] = set()
        """The writes without an answer.  Each number is removed before its one ``KafkaWriteFinished``; those of a side
        that was closed get it from ``_side_closed``, so the machine never waits for a write of an earlier side."""

    def set_protocols(self, protocols: tuple[str, ...]) -> None:
        """Offer these protocols, or leave with none: at once, or when a leave in progress has ended.

        A new phase does not wait for the pause after an error: the operator may have corrected the cause.
        """
        self._wanted = protocols
        self._rejoin_at_ms = 0
        self._apply_protocols()

    def tick(self) -> None:
        """Take the next step if one is due; after an error, when the pause is over.  Called periodically."""
        if self.side is not None or self._member.clock.now_ms() >= self._rejoin_at_ms:
            self._apply_protocols()

    def commit_to_kafka(self, command: val.WriteToKafka) -> None:
        """Commit these with their provenance; ``KafkaWriteFinished`` follows in any case, once.

        Without a side it follows as a new event: the machine handles one event at a time, and this is a command of one.
        """
        number, offsets = command.number, command.offsets
        assert number not in self._open_writes, "a write has a number of its own"
        self._open_writes.add(number)
        if self.side is None:
            self._member.zookeeper.event_loop.call_soon(lambda: self._fail_writes({number}))
            return
        metadata = self.commit_metadata(offsets)
        written = {tp: cev.Offset(at, metadata=metadata[tp]) for tp, at in offsets.items()}
        self.side.write_offsets(number, written, is_urgent=command.is_urgent)

    def read_offsets(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch the committed offsets of these, if this member is in the coordinator's group."""
        if self.side is not None:
            self.side.read_offsets(partitions)

    def commit_metadata(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """The provenance of each offset: this migration, its epoch, and the version of the offset znode.

        The version names the write of ZooKeeper whose offset this is.  While Kafka is first there is no such write yet,
        so it is ``UNKNOWN_VERSION``.
        """
        control = self._member.machine.control
        if control is None:
            return dict.fromkeys(offsets, "")
        found: dict[TopicPartition, str] = {}
        for tp, offset in offsets.items():
            stored = self._member.zookeeper.stored_offset(tp)
            version = stored.version if stored.offset == offset else UNKNOWN_VERSION
            found[tp] = format_provenance(Provenance(control.migration_id, control.epoch, version))
        return found

    # --- join -------------------------------------------------------------------------------------------------------

    def _apply_protocols(self) -> None:
        """Start the next step towards the wanted protocols, if none is in progress.

        A side that offers what is wanted already needs no step: each offer makes the group rebalance.  A member that
        was paused may meet the same phase in the next migration.  With the old protocol it would keep all others out
        (INCONSISTENT_GROUP_PROTOCOL), and it cannot change to a protocol that no member of its group offers; so it
        leaves, and joins again
        (``test_a_member_that_missed_the_end_of_a_migration_joins_with_the_protocol_of_the_next_one``).
        """
        side, control = self.side, self._member.machine.control
        assert side is not None or self.leave_thread is None, "only a side is left"
        if side is None:
            if self._wanted and self.subscription is not None and not self.is_closing:
                self._open(self.subscription)
        elif self.leave_thread is not None:
            return
        elif not self._wanted or (control is not None and control.migration_id != self._migration_id):
            self._close_side(side, leaves=True)
        elif self._wanted != self._offered:
            self._offered = self._wanted
            side.membership.offer_assignors(self._assignors())

    def _assignors(self) -> list[ConsumerPartitionAssignor]:
        """The wanted protocols, in order of preference; the name of the migration's one contains the migration id."""
        assert self._wanted, "a member of the group offers a protocol"
        migration = MigrationAssignor(self._migration_id, self._member.id)
        return [migration if protocol == MIGRATION_PROTOCOL else RangeAssignor() for protocol in self._wanted]

    def _open(self, subscription: TopicSubscription) -> None:
        """Join the group as a new member of it.

        ``side`` is set before the threads of the membership start, so none of their events is dropped as one of another
        side.  So are the listeners: the program may commit inside of a call of the side's listener, and the listener of
        this member, which a commit asks, must see that (``is_inside_awaited_call``).
        """
        member, control = self._member, self._member.machine.control
        assert self.side is None, "one side at a time"
        assert not self.has_assignment, "a new side owns nothing"
        assert control is not None, "only a control znode sets protocols"
        self._offered, self._migration_id = self._wanted, control.migration_id
        is_active = partial(member.is_active, COORDINATOR_SIDE)
        config, settings, stream_assignor = self._coordinator_settings

        def make_membership(events: MembershipEvents) -> CoordinatorMembership:
            return CoordinatorMembership(
                config, self._assignors(), settings, stream_assignor,
                brokers=self._brokers,
                clock=member.clock,
                lease=self._lease,
                meters=ActiveSideMeters(self._meters, is_active),
                hooks=ActiveSideHooks(member.lifecycle.hooks, is_active),
                counters=member.counters,
                machine_class=DowngradingConsumerCoordinator,
                make_listener=partial(member.make_listener, COORDINATOR_SIDE),
                events=events,
            )  # fmt: skip

        side = CoordinatorSide(
            make_membership,
            settings.limits.drain_ms,
            member.clock,
            on_event=self._post_event,
            on_assignment=lambda side: member.zookeeper.event_loop.call_soon(lambda: self._assignment_held(side)),
        )
        membership = side.membership
        membership.listener.listener = member.listener.listener
        member.listener.other_listeners = [membership.listener]
        self.side = side
        log.info("coordinator-group-joining member=%s protocols=%s", member.id, ",".join(self._wanted))
        membership.attach_processor(
            SidePartitionProcessor(
                COORDINATOR_SIDE,
                member.lifecycle.processor,
                partial(member.handle_event, sender=side),
                lambda error: member.zookeeper.event_loop.call_soon(lambda: self._side_failed(side, error)),
                partial(member.active_since_ms, COORDINATOR_SIDE),
                member.zookeeper.event_loop.call_soon,
            )
        )
        membership.join(subscription)

    # --- events of the side -----------------------------------------------------------------------------------------

    def _post_event(self, side: CoordinatorSide, event: val.MigratingMemberEvent) -> None:
        """Called on the control thread of the side."""
        self._member.zookeeper.event_loop.call_soon(lambda: self._handle_event(side, event))

    def _handle_event(self, side: CoordinatorSide, event: val.MigratingMemberEvent) -> None:
        """Pass an event of the present side on; the second answer to one write is dropped."""
        if side is not self.side:
            return
        if isinstance(event, val.KafkaWriteFinished):
            if event.number not in self._open_writes:
                return
            self._open_writes.discard(event.number)
        self._member.handle_event(event)

    def _assignment_held(self, side: CoordinatorSide) -> None:
        if side is self.side:
            self.has_assignment = True
            self._member.assignment_changed()

    def _fail_writes(self, numbers: set[int]) -> None:
        """Answer those of these writes that are still open: Kafka accepted nothing of them, as far as is known."""
        for number in sorted(numbers & self._open_writes):
            self._open_writes.discard(number)
            self._member.handle_event(val.KafkaWriteFinished(number, frozenset()))

    # --- leave ------------------------------------------------------------------------------------------------------

    def _side_failed(self, side: CoordinatorSide, error: ZkConsumerError) -> None:
        """An error of the active side ends the member; the passive side joins again later.

        The membership has ended itself already, so it is closed without a leave: ``fail`` has left the group as far as
        that was possible.
        """
        member = self._member
        if side is not self.side or self.is_closing or self.leave_thread is not None:
            return
        if member.is_active(COORDINATOR_SIDE):
            member.fail(error)
            return
        log.error(
            "coordinator-side-failed member=%s reason=%r: ZooKeeper's side goes on, and the coordinator's group is "
            "joined again in %d s",
            member.id,
            str(error),
            REJOIN_DELAY_MS // 1000,
        )
        member.lifecycle.hooks.call("warning_logged", "ERROR", "coordinator-side-failed", str(error))
        member.counters.add("coordinator_side_ended")
        self._rejoin_at_ms = member.clock.now_ms() + REJOIN_DELAY_MS
        self._close_side(side, leaves=False)

    def _close_side(self, side: CoordinatorSide, *, leaves: bool) -> None:
        """Leave the group, and close the side, on a thread of its own; ``_side_closed`` follows."""
        assert self.leave_thread is None, "a side is closed once"

        def go(_: StopSignal) -> None:
            if leaves:
                side.membership.leave()
            side.membership.close()
            self._member.zookeeper.event_loop.call_soon(self._side_closed)

        self.leave_thread = spawn(f"{self._member.id}-leave-coordinator", go, self._member.thread_died)

    def _side_closed(self) -> None:
        """The threads of the side have ended; see the head of this file for the order.

        At its end the next step begins: a phase that came meanwhile may want a side again.
        """
        assert self.side is not None, "a side is closed by its leave thread"
        member = self._member
        self.side, self.leave_thread = None, None
        member.listener.other_listeners = []
        self.has_assignment = False
        partitions = member.machine.partitions
        # A drain of the side that was not answered is void: otherwise its partition would never continue.
        held = tuple(sorted(partitions.assigned.keys() | partitions.awaited_by(COORDINATOR_SIDE)))
        if held:
            drop = ownership.DropPartitions(held, "the coordinator's group was left")
            member.handle_event(val.SideCommanded(COORDINATOR_SIDE, drop))
        self._fail_writes(set(self._open_writes))
        if member.machine.generation != NO_GENERATION:
            member.handle_event(val.GenerationChanged(NO_GENERATION))
        self.tick()
