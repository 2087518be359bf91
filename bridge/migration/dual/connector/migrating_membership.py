"""``MigratingMembership``: a membership in ZooKeeper and one at the coordinator, around ``MigratingMember``.

    processor <--PartitionCommand-- MigratingMember <--SideCommanded-- ZooKeeperMembership
        '------PartitionEvent------>      |         <--SideCommanded-- CoordinatorMembership (from phase ``armed`` on)
                                          '--> SendToSide, acknowledgement, mirrored offsets, lease of the streams

The machine runs on the control thread of the ZooKeeper side; the coordinator side has its own control thread.  Each
submits its messages to the event loop of the other, so neither waits.

Theory of operation.  The machine decides; this file moves its events and commands between the threads:

    control thread of ZooKeeper   the machine, ``CoordinatorSideLifecycle``, the writers of ``member_znodes``, ``_tick``
    control thread of the         the membership at the coordinator with its requests.  What it reports is queued for
    coordinator side              the machine, which sees it later; that of a side that was closed is ignored
    threads of the program        ``commit``, ``leave``, ``close``: they wait for a control thread, never the reverse
    leave thread                  leaves the coordinator group, and waits for it

Each membership is complete, with a session, a lease, a listener and an end of its own.  Three things exist once for the
program, and follow the active side: the lease of the streams, the calls of listener and hooks, and the processor.

When the active side changes, the order is: the machine decides, the processor gets its commands, then the lease
changes.  Until then the streams have the lease of the former side, whose partitions they still process; a record of a
partition that was dropped is not delivered, because the processor checks that before each record.

What ends the member (``_zookeeper_failed``, ``CoordinatorSideLifecycle._side_failed``): an error of the active side,
and an error of the ZooKeeper side in every phase before ``completed``.  A member without ZooKeeper sees no rollback,
and would read on beside the new owners
(``test_a_member_that_cannot_follow_the_control_znode_ends_and_after_completed_continues``).

What a pause does.  Both sessions may have ended.  No record is delivered after it, because the lease has run out.  Each
side then learns the end of its own session, drops its partitions, and joins again.  The control znode is read with the
next view of the group; until then a version or a generation rejects each write of this member.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.dual.connector.active_side_filters import ActiveSideHooks, ActiveSideListener, ActiveSideMeters
from bridge.migration.dual.connector.coordinator_side_lifecycle import CoordinatorSideLifecycle
from bridge.migration.dual.connector.member_znodes import AcknowledgementWriter, OffsetMirror
from bridge.migration.dual.connector.migrating_commits import MigratingCommits
from bridge.migration.dual.connector.side_leases import ActiveLease
from bridge.migration.dual.connector.side_processors import MigratingEventLoop, SidePartitionProcessor
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_member import MigratingMember
from bridge.migration.dual.machine.phase_rules import MemberPhase, MembershipSide, ZooKeeperAssignment
from zkconsumer.errors import MigrationError, ThreadFailedError, ZkConsumerError
from zkconsumer.member import events as ev
from zkconsumer.member.ownership import PartitionCommand
from zkconsumer.observe.counters import Counters
from zkconsumer.runtime.membership_lifecycle import CLOSE_STEP_MS, MembershipLifecycle
from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership

if TYPE_CHECKING:
    from bridge.client.coordinator_membership import CoordinatorMembership, MembershipSettings
    from bridge.client.stream_assignor import StreamAssignor
    from bridge.migration.dual.connector.coordinator_side import CoordinatorSide
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.member_assignment import AssignmentPlanner
    from zkconsumer.member.offset_stores import CommitFailure
    from zkconsumer.member.ownership import AssignmentStatus, PartitionProcessor
    from zkconsumer.observe.member_health import MemberHealthSnapshot
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.connector_member import ConnectorMembership
    from zkconsumer.runtime.listener_calls import ListenerEventSink
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.store import ZkStore
    from zkconsumer.zk.zk_security import ZkSecurity
    from zkconsumer.zk.znode_formats import ControlRecord

ZOOKEEPER, COORDINATOR = MembershipSide.ZOOKEEPER, MembershipSide.COORDINATOR

TICK_MS = 100
"""The interval after which the stored offsets and the acknowledgement are checked."""

log = logging.getLogger("zkconsumer.member")


class MigratingMembership:
    """Call ``attach_processor`` first, then ``start``, then ``join``.

    ``settings.follows_control_znode`` is set, so the ZooKeeper side continues in every phase, and reports the control
    znode.  ``lease``: that of the streams.  ``coordinator_settings``: for each membership at the coordinator.
    """

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        planner: AssignmentPlanner,
        coordinator_settings: tuple[GroupMemberConfig, MembershipSettings, StreamAssignor],
        *,
        store: ZkStore,
        brokers: BrokerAccess,
        clock: Clock,
        lease: Lease,
        meters: MembershipMeters,
        security: ZkSecurity,
        hooks: Hooks | None = None,
    ) -> None:
        self.id = settings.member_id
        self.lease = lease
        assert settings.follows_control_znode, "the machine follows the control znode"
        self.machine = MigratingMember(auto_commit=settings.auto_commit)
        """Handles events on the control thread of the ZooKeeper side only; ``rules`` may be read on any thread."""
        self.clock = clock
        self._active_lease = ActiveLease(lease)
        """Gives the streams the lease of the active side."""
        self._active = ZOOKEEPER, clock.now_ms()
        """The active side, and since when; one attribute, so that other threads read both at once.  Between two events
        it is the active side of the machine."""
        self._listener_lock = threading.Lock()
        """Held during each call of the program's rebalance listener, by whichever side calls it."""
        self.counters = Counters()
        """Those of both sides; a migration does not reset them."""
        self.commits = MigratingCommits(self)
        self.lifecycle = MembershipLifecycle(
            self.id,
            hooks,
            self.counters,
            expire=self._active_lease.expire_all,
            release_waiters=self.commits.release_waiters,
            on_first_error=self._fail_sides,
        )
        self.fail = self.lifecycle.end
        self.thread_died = self.lifecycle.thread_died
        self.authentication_failed = self.lifecycle.authentication_failed
        self.position_missing = self.lifecycle.position_missing
        self.wait_for_assignment = self.lifecycle.wait_for_assignment
        _, coordinator_membership, _ = coordinator_settings
        # In every phase, also after ``completed``: its control thread runs the machine.
        self.zookeeper = ZooKeeperMembership(
            group,
            settings,
            planner,
            client_id=coordinator_membership.client_id,
            socket_timeout_ms=coordinator_membership.socket_timeout_ms,
            store=store,
            brokers=brokers,
            clock=clock,
            lease=self._active_lease.by_side[ZOOKEEPER],
            meters=ActiveSideMeters(meters, partial(self.is_active, ZOOKEEPER)),
            security=security,
            hooks=ActiveSideHooks(self.lifecycle.hooks, partial(self.is_active, ZOOKEEPER)),
            counters=self.counters,
            on_control=self._control_changed,
            on_assignment=self._zookeeper_assignment_held,
        )
        self._coordinator_side_lifecycle = CoordinatorSideLifecycle(
            self, coordinator_settings, brokers, self._active_lease.by_side[COORDINATOR], meters
        )
        """Opens and closes the other side, if the phase needs it."""
        # ``ConnectorMembership`` has one of each, for the streams and the fetchers: that of the ZooKeeper side.
        self.observer = self.zookeeper.observer
        self.bootstrap_client = self.zookeeper.bootstrap_client
        self.topic_finder = self.zookeeper.topic_finder
        # The program's listener is set here; a coordinator side gets it when it is opened.
        self.listener = self.make_listener(ZOOKEEPER, self.id, self.zookeeper.event_loop, self.thread_died)
        self.zookeeper.listener = self.listener
        self.event_loop = MigratingEventLoop(self.zookeeper.event_loop, self.handle_event)
        self._acknowledgement_writer = AcknowledgementWriter(self.zookeeper, group, security.acl)
        self._mirror = OffsetMirror(self.zookeeper, group, security.acl)
        self._zookeeper_offsets: dict[TopicPartition, int] = {}
        """The offsets of the last ``ZooKeeperOffsetsRead``."""
        self._has_zookeeper_assignment = False
        """Whether the ZooKeeper side has owned its complete assignment once."""

    def is_active(self, side: MembershipSide) -> bool:
        """Whether the partitions of this side are processed; from any thread.

        During an event of the machine it may already be the next side; the lease and ``active_since_ms`` follow after
        the commands of that event.
        """
        return self.machine.rules.active_side is side

    def active_since_ms(self, side: MembershipSide) -> int | None:
        """Since when ``side`` is the active side, in ms; None while it is not.  From any thread.

        ``max.poll.interval.ms`` of the coordinator side counts from then: while it was passive, the program's work on a
        record was not its concern.
        """
        active, since_ms = self._active
        return since_ms if active is side else None

    @property
    def coordinator(self) -> CoordinatorMembership | None:
        """The membership at the coordinator; None while this member has none."""
        side = self._coordinator_side_lifecycle.side
        return None if side is None else side.membership

    def make_listener(
        self, side: MembershipSide, member: str, control: ListenerEventSink, on_thread_error: OnThreadError
    ) -> ActiveSideListener:
        """Calls the program's rebalance listener for one of the sides; it has a thread for each side, and one lock."""
        return ActiveSideListener(member, control, on_thread_error, partial(self.is_active, side), self._listener_lock)

    def attach_processor(self, processor: PartitionProcessor) -> None:
        """Start the ZooKeeper side; ``processor`` receives the commands of both sides, by the rules of the phase.

        The lifecycle has the processor before the first thread starts: an error of any thread ends it.
        """
        self.lifecycle.attach(processor)
        self.zookeeper.event_loop.call_every(TICK_MS, self._tick)
        self.zookeeper.attach_processor(
            SidePartitionProcessor(
                ZOOKEEPER,
                processor,
                self.handle_event,
                self._zookeeper_failed,
                partial(self.active_since_ms, ZOOKEEPER),
            )
        )

    # --- calls of the program -----------------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises the errors of ``ZkStore.start``, after it has stopped everything.

        ``ZooKeeperMembership`` stops all of its own; the hooks belong to this membership.
        """
        try:
            self.zookeeper.start(timeout_ms)
        except BaseException:
            self.lifecycle.hooks.close()
            raise

    def join(self, subscription: TopicSubscription) -> None:
        """Join the ZooKeeper group, and the coordinator group from phase ``armed`` on.

        The subscription is set first: the first control znode may already ask for the coordinator group.
        """
        self._coordinator_side_lifecycle.subscription = subscription
        self.zookeeper.join(subscription)

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Commit these positions to the stores of the present phase; return those not committed, with the reason.

        Raises the error that ended the member, if one did.
        """
        self._check_alive()
        refused = self.commits.commit(positions, timeout_ms)
        self._check_alive()
        return refused

    def _check_alive(self) -> None:
        """Raise the error that ended the member, except inside of a call of the listener that the end still waits for:
        there the program may commit the partitions that it is about to lose."""
        if not self.listener.is_inside_awaited_call:
            self.lifecycle.check()

    def leave(self) -> bool:
        """Release all partitions and leave both groups, first that of the active side; False if it took too long.

        The active side needs the other one until it has left: a release in COPIED commits to Kafka first, through the
        coordinator side.  Both listeners return early: the program may call this inside of either.
        """
        self._coordinator_side_lifecycle.is_closing = True
        coordinator = self.coordinator
        self.listener.report_early_return()
        if coordinator is None:
            has_left = self.zookeeper.leave()
            # The control thread has answered, so a side that it was opening exists now, and no other one follows.
            late = self.coordinator
            return (late is None or late.leave()) and has_left
        coordinator.listener.report_early_return()
        leaves = [self.zookeeper.leave, coordinator.leave]
        if self.is_active(COORDINATOR):
            leaves.reverse()
        first = leaves[0]()
        return leaves[1]() and first

    def close(self) -> bool:
        """Stop everything, also the processor.  True if all threads have ended.

        The coordinator side closes before the ZooKeeper side, on whose control thread its last events are handled.  The
        processor's threads are joined after both sessions have ended, as in each membership alone.
        """
        self._coordinator_side_lifecycle.is_closing = True
        self.lifecycle.processor.end(None)
        if self.failure is None:  # else the listener is still called for lost partitions
            self.listener.close()
        coordinator = self.coordinator
        return self.lifecycle.close(
            None,
            lambda: coordinator is None or coordinator.close(),
            self.zookeeper.close,
            self.lifecycle.join,
            lambda: self._close_late(coordinator),
        )

    def _close_late(self, closed: CoordinatorMembership | None) -> bool:
        """Close the coordinator side that was being opened, or left, while the close began; the control thread has
        ended.

        ``_side_closed`` of a leave in progress is not called any more, so the leave thread is joined here.
        """
        late, leaver = self.coordinator, self._coordinator_side_lifecycle.leave_thread
        clean = late is None or late is closed or late.close()
        return (leaver is None or leaver.join(CLOSE_STEP_MS)) and clean

    # --- the state, on ZooKeeper's control thread -------------------------------------------------------------------

    @property
    def member_phase(self) -> MemberPhase:
        """The phase that this member follows; from any thread."""
        return self.machine.member_phase

    @property
    def generation(self) -> int:
        """The generation of the coordinator group in which this member is, -1 without one; from any thread."""
        return self.machine.generation

    @property
    def active_membership(self) -> ZooKeeperMembership | CoordinatorMembership:
        """The membership whose partitions are processed; that of ZooKeeper too while the coordinator side is active and
        the membership at the coordinator does not exist."""
        coordinator = self.coordinator
        return coordinator if coordinator is not None and self.is_active(COORDINATOR) else self.zookeeper

    def assignment_status(self) -> AssignmentStatus:
        """That of the active side."""
        return self.active_membership.assignment_status()

    def health_snapshot(self, fetching: int, failures: Sequence[str]) -> MemberHealthSnapshot:
        """That of the active side, with the lease of the streams."""
        owned = self.machine.partitions.owned if self.is_active(ZOOKEEPER) else self.machine.partitions.assigned
        return replace(
            self.active_membership.health_snapshot(fetching, failures),
            lease_ms_left=self.lease.until_ms - self.clock.now_ms(),
            partitions_owned=len(owned),
        )

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session timeout that ZooKeeper negotiated, in ms."""
        return self.zookeeper.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership; None while it runs."""
        return self.lifecycle.failure

    # --- the machine, on the ZooKeeper side's thread --------------------------------------------------------------

    def handle_event(self, event: val.MigratingMemberEvent, sender: CoordinatorSide | None = None) -> None:
        """Let the machine decide, and execute its commands; on the control thread of the ZooKeeper side.

        ``sender``: a coordinator side; the events of one that was closed meanwhile are dropped.  Not re-entrant: no
        command is answered during the call, so the commands of one event are executed in order, and before the next
        event.  A control znode that this member cannot follow ends it, in any phase.
        """
        if sender is not None and sender is not self._coordinator_side_lifecycle.side:
            return
        before = self.machine.rules.active_side
        assert before is self._active[0], "the last event was executed completely"
        try:
            commands = self.machine.handle(event)
        except MigrationError as error:
            self.fail(error)
            return
        for command in commands:
            if isinstance(command, PartitionCommand):
                self.lifecycle.processor.execute(command)
            elif isinstance(command, val.SendToSide):
                side = self.zookeeper if command.side is ZOOKEEPER else self.coordinator
                if side is not None:
                    side.event_loop.submit(command.event)
            else:
                self._execute(command)
        active = self.machine.rules.active_side
        if active is not before:
            self._active = active, self.clock.now_ms()
            self._active_lease.activate(active)
            phase = self.machine.member_phase.value
            log.info("active-side-changed member=%s side=%s phase=%s", self.id, active.value, phase)
        self.assignment_changed()

    def _execute(self, command: val.MigratingMemberCommand) -> None:
        match command:
            case val.SetZooKeeperAssignment(threads, new):
                self.zookeeper.event_loop.submit(ev.ExternalAssignmentSet(threads, new))
            case val.SetCoordinatorProtocols(protocols):
                self._coordinator_side_lifecycle.set_protocols(protocols)
            case val.WriteToKafka():
                self._coordinator_side_lifecycle.commit_to_kafka(command)
            case val.ReadFromKafka(partitions):
                self._coordinator_side_lifecycle.read_offsets(partitions)
            case val.MirrorToZooKeeper(offsets):
                self._mirror.add(offsets)
            case val.WriteAcknowledgement(acknowledgement):
                self._acknowledgement_writer.set(acknowledgement)

    def metadata(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """The metadata of a commit of these offsets to Kafka; on the control thread."""
        return self._coordinator_side_lifecycle.commit_metadata(offsets)

    def _control_changed(self, control: ControlRecord | None) -> None:
        """The offsets first: the ZooKeeper side may become active, and starts at them."""
        self.check_zookeeper_offsets()
        self.handle_event(val.ControlChanged(control))

    def _tick(self) -> None:
        self.check_zookeeper_offsets()
        self._acknowledgement_writer.write()
        self._coordinator_side_lifecycle.tick()

    def check_zookeeper_offsets(self) -> None:
        """Pass the stored offsets of owned partitions to the machine, if they have changed; on the control thread.

        Also without a change while the machine is not caught up: that repeats writes that were rejected.  A report
        costs a pass over all partitions, so it is not made where nothing can follow from it.
        """
        if self.machine.rules.zookeeper_assignment is not ZooKeeperAssignment.FROM_COORDINATOR:
            return
        stored = {tp: one.offset for tp, one in self.zookeeper.stored_offsets.items()}
        if stored != self._zookeeper_offsets or not self.machine.is_caught_up:
            self._zookeeper_offsets = stored
            self.handle_event(val.ZooKeeperOffsetsRead(stored))

    # --- the first assignment -------------------------------------------------------------------------------------

    def _zookeeper_assignment_held(self) -> None:
        self._has_zookeeper_assignment = True
        self.assignment_changed()

    def assignment_changed(self) -> None:
        """Wake ``wait_for_assignment`` when the first assignment is complete.

        Called after each event of the machine, so it costs nothing once the flag is set.
        """
        known = self.lifecycle.assignment_known
        if not known.is_set() and self._is_assignment_complete():
            known.set()

    def _is_assignment_complete(self) -> bool:
        """Whether the active side owns its complete assignment, and it is processed."""
        if self.machine.rules.zookeeper_assignment is ZooKeeperAssignment.COMPUTED:
            return self._has_zookeeper_assignment
        is_owned = self._has_zookeeper_assignment or self.is_active(COORDINATOR)
        is_processed = self.machine.partitions.assigned.keys() <= self.machine.partitions.running.keys()
        return self._coordinator_side_lifecycle.has_assignment and is_owned and is_processed

    # --- the end --------------------------------------------------------------------------------------------------

    def _zookeeper_failed(self, error: ZkConsumerError) -> None:
        """On any thread.  A member that cannot follow the control znode must end, unless the group cannot move back.

        After ``completed`` no rollback is possible, so the member is one of the coordinator group alone.  A thread that
        died is different: it is a defect of this library, and the machine ran on that thread.
        """
        if self.failure is not None:
            return
        if self.machine.member_phase is MemberPhase.COMPLETED and not isinstance(error, ThreadFailedError):
            log.error(
                "zookeeper-side-failed member=%s reason=%r: the group has moved, and this member goes on",
                self.id,
                str(error),
            )
            self.lifecycle.hooks.call("warning_logged", "ERROR", "zookeeper-side-failed", str(error))
            return
        self.fail(error)

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on a fetcher thread; the active side decides whether the error ends the member."""
        self.active_membership.topics_rejected(errors)

    def _fail_sides(self, error: ZkConsumerError) -> None:
        """Leave both groups, so that other members get the partitions.

        The lifecycle calls it once, with the first error.  The errors that the sides report because of it are ignored
        (``failure`` is set already).
        """
        self.zookeeper.fail(error)
        coordinator = self.coordinator
        if coordinator is not None:
            coordinator.fail(error)


if TYPE_CHECKING:

    def _is_one(membership: MigratingMembership) -> ConnectorMembership:
        return membership
