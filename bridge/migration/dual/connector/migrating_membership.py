"""``MigratingMembership``: a member of both worlds, put together around ``MigratingMember``, which decides.

    streams <--told-- MigratingMember --> ZooKeeperSide      its control thread is the one on which all is decided
                           |   ^------- - CoordinatorSide    from the phase ``armed`` on; a thread of its own
                           '--> the acknowledgement, the mirror, the lease that the streams look at

Neither control thread waits for anything: what one says to the other is posted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.dual.connector.active_side_filters import ActiveSideHooks, ActiveSideListener, ActiveSideMeters
from bridge.migration.dual.connector.coordinator_side import CoordinatorSide
from bridge.migration.dual.connector.coordinator_side_lifecycle import CoordinatorSideLifecycle
from bridge.migration.dual.connector.member_znodes import AcknowledgementWriter, OffsetMirror
from bridge.migration.dual.connector.migrating_commits import MigratingCommits
from bridge.migration.dual.connector.side_leases import ActiveLease
from bridge.migration.dual.connector.side_processors import MigratingEventLoop, SidePartitionProcessor
from bridge.migration.dual.connector.zookeeper_side import ZooKeeperSide
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_member import MigratingMember
from bridge.migration.dual.machine.phase_rules import MemberPhase, MembershipSide, ZooKeeperAssignment
from zkconsumer.errors import MigrationError, ThreadFailedError, ZkConsumerError
from zkconsumer.member import events as ev
from zkconsumer.member.ownership import PartitionCommand
from zkconsumer.observe.counters import Counters
from zkconsumer.runtime.hook_calls import HookCalls

if TYPE_CHECKING:
    from bridge.client.config import GroupMemberConfig
    from bridge.client.coordinator_membership import CoordinatorMembership, MembershipSettings
    from bridge.client.stream_assignor import StreamAssignor
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.errors import AuthenticationException
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.member_state_machine import AssignmentPlanner, GroupSettings
    from zkconsumer.member.offset_stores import CommitFailure
    from zkconsumer.member.ownership import AssignmentStatus, PartitionProcessor
    from zkconsumer.observe.member_health import MemberHealthSnapshot
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.connector_member import ConnectorMembership
    from zkconsumer.runtime.listener_calls import ListenerCalls, ListenerEventSink
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.store import ZkStore
    from zkconsumer.zk.zk_security import ZkSecurity
    from zkconsumer.zk.znode_formats import ControlRecord

ZOOKEEPER, COORDINATOR = MembershipSide.ZOOKEEPER, MembershipSide.COORDINATOR

TICK_MS = 100
"""How often it is looked what the stores have, and whether the acknowledgement stands."""

CLOSE_STEP_MS = 1_500
"""How long each of the last steps of a close may take."""

log = logging.getLogger("zkconsumer.member")


class MigratingMembership:
    """From the first connection to the last.  ``attach_processor`` comes first, then ``start``, then ``join``."""

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        planner: AssignmentPlanner,
        modern: tuple[GroupMemberConfig, MembershipSettings, StreamAssignor],
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
        self.machine = MigratingMember(auto_commit=settings.auto_commit)
        self.clock = clock
        self._active_lease = ActiveLease(lease)
        self._active = ZOOKEEPER, clock.now_ms()
        """Which side holds, and since when; one attribute, so that other threads see it whole."""
        self._listener_lock = threading.Lock()
        self.counters = Counters()
        self.hooks = HookCalls(self.id, hooks, self.counters, self.thread_died)
        client_id, socket_timeout_ms = modern[1].client_id, modern[1].socket_timeout_ms
        self.zookeeper = ZooKeeperSide(
            group,
            settings,
            planner,
            client_id=client_id,
            socket_timeout_ms=socket_timeout_ms,
            store=store,
            brokers=brokers,
            clock=clock,
            lease=self._active_lease.by_side[ZOOKEEPER],
            meters=ActiveSideMeters(meters, partial(self.is_active, ZOOKEEPER)),
            security=security,
            hooks=ActiveSideHooks(self.hooks, partial(self.is_active, ZOOKEEPER)),
            counters=self.counters,
            on_control=self._control_changed,
            on_share=self._zookeeper_assignment_held,
        )
        self._coordinator_side_lifecycle = CoordinatorSideLifecycle(
            self, modern, brokers, self._active_lease.by_side[COORDINATOR], meters
        )
        self.observer = self.zookeeper.observer
        self.bootstrap_client = self.zookeeper.bootstrap_client
        self.topic_finder = self.zookeeper.topic_finder
        self.side_listener = self.make_listener(ZOOKEEPER, self.id, self.zookeeper.event_loop, self.thread_died)
        self.listener: ListenerCalls = self.side_listener
        self.zookeeper.listener = self.side_listener
        self.event_loop = MigratingEventLoop(self.zookeeper.event_loop, self.handle_event)
        self.commits = MigratingCommits(self)
        self._acknowledgement_writer = AcknowledgementWriter(self.zookeeper, group, security.acl)
        self._mirror = OffsetMirror(self.zookeeper, group, security.acl)
        self._processor: PartitionProcessor
        self._assignment_known = threading.Event()
        self._zookeeper_offsets: dict[TopicPartition, int] = {}
        self._has_zookeeper_assignment = False
        self._failure: ZkConsumerError | None = None
        self._failing = threading.Lock()

    def is_active(self, side: MembershipSide) -> bool:
        """Whether the streams read what this side has; on any thread."""
        return self.machine.rules.active_side is side

    def active_since_ms(self, side: MembershipSide) -> int | None:
        """Since when ``side`` holds, None while it does not; on any thread."""
        holds, since_ms = self._active
        return since_ms if holds is side else None

    @property
    def coordinator(self) -> CoordinatorSide | None:
        """The side in the coordinator's group; None while there is none."""
        return self._coordinator_side_lifecycle.side

    def make_listener(
        self, side: MembershipSide, member: str, control: ListenerEventSink, on_thread_error: OnThreadError
    ) -> ActiveSideListener:
        """The program's rebalance listener, for one of the sides."""
        return ActiveSideListener(member, control, on_thread_error, partial(self.is_active, side), self._listener_lock)

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run something on the control thread again and again, not exactly; before ``attach_processor``."""
        self.zookeeper.every(interval_ms, action)

    def attach_processor(self, processor: PartitionProcessor) -> None:
        """Start ZooKeeper's side; ``processor`` is told what is ours, whoever says so."""
        self._processor = self._coordinator_side_lifecycle.processor = processor
        self.zookeeper.every(TICK_MS, self._tick)
        self.zookeeper.attach_processor(
            SidePartitionProcessor(
                ZOOKEEPER,
                processor,
                self.handle_event,
                self._zookeeper_failed,
                partial(self.active_since_ms, ZOOKEEPER),
            )
        )

    # --- what the program asks for ------------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises what ``ZkStore.start`` raises, with nothing left running."""
        try:
            self.zookeeper.start(timeout_ms)
        except BaseException:
            self.hooks.close()
            raise

    def check_brokers(self) -> None:
        """See ``brokers.check_brokers``."""
        self.zookeeper.check_brokers()

    def join(self, subscription: TopicSubscription) -> None:
        """Become a member with this subscription, in both worlds once the control znode says so."""
        self._coordinator_side_lifecycle.subscription = subscription
        self.zookeeper.join(subscription)

    def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait for the first whole share of the side that holds; raises the error that ended the member."""
        known = self._assignment_known.wait(timeout_ms / 1000)
        if self._failure is not None:
            raise self._failure
        return known

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Write these positions as the phase wants it; gives back what was not written, with the reason.

        Raises the error that ended the member, if one did.
        """
        self._check_alive()
        refused = self.commits.commit(positions, timeout_ms)
        self._check_alive()
        return refused

    def _check_alive(self) -> None:
        if self._failure is not None and not self.listener.is_inside_awaited_call:
            raise self._failure

    def leave(self) -> bool:
        """Give everything back and leave both worlds, that which holds first; False: that could not be done in time."""
        self._coordinator_side_lifecycle.is_closing = True
        coordinator = self.coordinator
        self.listener.report_early_return()
        if coordinator is None:
            return self.zookeeper.leave()
        coordinator.listener.report_early_return()
        leaves = [self.zookeeper.leave, coordinator.leave]
        if self.is_active(COORDINATOR):
            leaves.reverse()
        first = leaves[0]()
        return leaves[1]() and first

    def close(self) -> bool:
        """End everything, the processor included.  True when nothing was left behind."""
        self._coordinator_side_lifecycle.is_closing = True
        self._processor.end(None)
        if self._failure is None:  # else it is still called about what was lost
            self.listener.close()
        self._processor.request_stop()
        coordinator = self.coordinator
        clean = coordinator is None or coordinator.close()
        clean = self.zookeeper.close() and clean
        clean = self._processor.join(CLOSE_STEP_MS) and clean
        clean = self._close_late(coordinator) and clean
        self._assignment_known.set()
        self.hooks.close()
        if not self.hooks.join(CLOSE_STEP_MS):
            log.warning("hook-not-returned member=%s: it has not returned, and its thread goes on", self.id)
        return clean

    def _close_late(self, closed: CoordinatorSide | None) -> bool:
        """What was being opened, or left, while the close began; the control thread has ended."""
        late, leaver = self.coordinator, self._coordinator_side_lifecycle.leave_thread
        clean = late is None or late is closed or late.close()
        return (leaver is None or leaver.join(CLOSE_STEP_MS)) and clean

    # --- the state, on ZooKeeper's control thread -------------------------------------------------------------------

    @property
    def member_phase(self) -> MemberPhase:
        """The phase that this member has acknowledged; from any thread."""
        return self.machine.member_phase

    @property
    def generation(self) -> int:
        """The generation of the coordinator group in which this member is, -1 without one; from any thread."""
        return self.machine.generation

    @property
    def active_membership(self) -> ZooKeeperMembership | CoordinatorMembership:
        """The membership whose partitions are processed."""
        coordinator = self.coordinator
        return coordinator if coordinator is not None and self.is_active(COORDINATOR) else self.zookeeper

    def assignment_status(self) -> AssignmentStatus:
        return self.active_membership.assignment_status()

    def health_snapshot(self, fetching: int, failures: Sequence[str]) -> MemberHealthSnapshot:
        owned = self.machine.owned if self.is_active(ZOOKEEPER) else self.machine.assigned
        return replace(
            self.active_membership.health_snapshot(fetching, failures),
            lease_ms_left=self.lease.until_ms - self.clock.now_ms(),
            partitions_owned=len(owned),
        )

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session time-out that ZooKeeper granted."""
        return self.zookeeper.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership, if one did."""
        return self._failure

    # --- the machine, on ZooKeeper's control thread ---------------------------------------------------------------

    def handle_event(self, event: val.MigratingMemberEvent) -> None:
        """Something happened; on ZooKeeper's control thread."""
        before = self.machine.rules.active_side
        try:
            commands = self.machine.handle(event)
        except MigrationError as error:
            self.fail(error)
            return
        for command in commands:
            if isinstance(command, PartitionCommand):
                self._processor.execute(command)
            elif isinstance(command, val.SendToSide):
                side = self.zookeeper if command.side is ZOOKEEPER else self.coordinator
                if side is not None:
                    side.event_loop.submit(command.event)
            else:
                self._execute(command)
        holds = self.machine.rules.active_side
        if holds is not before:
            self._active = holds, self.clock.now_ms()
            self._active_lease.activate(holds)
            log.info(
                "active-side-changed member=%s side=%s stance=%s", self.id, holds.value, self.machine.member_phase.value
            )
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
                if self.coordinator is not None:
                    self.coordinator.read_offsets(partitions)
            case val.MirrorToZooKeeper(offsets):
                self._mirror.add(offsets)
            case val.WriteAcknowledgement(said):
                self._acknowledgement_writer.set(said)

    def metadata(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """What is committed with these to Kafka; on the control thread."""
        return self._coordinator_side_lifecycle.commit_metadata(offsets)

    def _control_changed(self, control: ControlRecord | None) -> None:
        self.handle_event(val.ControlChanged(control))

    def _tick(self) -> None:
        self.check_zookeeper_offsets()
        self._acknowledgement_writer.write()
        self._coordinator_side_lifecycle.tick()

    def check_zookeeper_offsets(self) -> None:
        """Let the machine see what ZooKeeper has of what its side holds, if that is news; on the control thread."""
        if self.machine.rules.zookeeper_assignment is not ZooKeeperAssignment.FROM_COORDINATOR:
            return
        stored = self.zookeeper.stored_offsets
        if stored != self._zookeeper_offsets or not self.machine.is_caught_up:
            self._zookeeper_offsets = stored
            self.handle_event(val.ZooKeeperOffsetsRead(stored))

    # --- the first share ------------------------------------------------------------------------------------------

    def _zookeeper_assignment_held(self) -> None:
        self._has_zookeeper_assignment = True
        self.assignment_changed()

    def assignment_changed(self) -> None:
        """Whoever waits for the first whole share is told when it is there."""
        if not self._assignment_known.is_set() and self._is_assignment_complete():
            self._assignment_known.set()

    def _is_assignment_complete(self) -> bool:
        """Whether the side that holds has its whole share, and it is worked on."""
        share = self.machine.rules.zookeeper_assignment
        if share is ZooKeeperAssignment.COMPUTED:
            return self._has_zookeeper_assignment
        is_claimed = self._has_zookeeper_assignment or self.is_active(COORDINATOR)
        is_read = self.machine.assigned.keys() <= self.machine.partitions.running.keys()
        return self._coordinator_side_lifecycle.has_assignment and is_claimed and is_read

    # --- the end --------------------------------------------------------------------------------------------------

    def _zookeeper_failed(self, error: BaseException) -> None:
        """On any thread.  Who cannot follow the control znode must not go on, unless there is no way back."""
        if self._failure is not None:
            return
        if self.machine.member_phase is MemberPhase.COMPLETED and not isinstance(error, ThreadFailedError):
            log.error(
                "zookeeper-side-failed member=%s reason=%r: the group has moved, and this member goes on",
                self.id,
                str(error),
            )
            self.hooks.call("warning_logged", "ERROR", "zookeeper-side-failed", str(error))
            return
        self.fail(error)

    def authentication_failed(self, error: AuthenticationException) -> None:
        """Called on a thread of the fetchers: nothing can be read with these settings."""
        log.error("authentication-failed member=%s reason=%r", self.id, str(error))
        self.fail(error)

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on a thread of the fetchers; judged by the side that holds."""
        self.active_membership.topics_rejected(errors)

    def thread_died(self, name: str, error: BaseException) -> None:
        """Called in the dying thread: an error on every stream, never silence."""
        log.error("thread-died member=%s thread=%s", self.id, name, exc_info=error)
        self.hooks.call("thread_died", name, error)
        self.fail(ThreadFailedError.of(self.id, name, error))

    def fail(self, error: BaseException) -> None:
        """Nothing is handed out any more, so nothing may be held: both worlds are left for the sake of the others."""
        assert isinstance(error, ZkConsumerError), "a membership ends by an error of ours"
        with self._failing:
            is_first, self._failure = self._failure is None, self._failure or error
        self._processor.end(self._failure)
        self._active_lease.expire_all()
        self._assignment_known.set()
        if not is_first:
            return
        self.hooks.call("member_failed", error)
        self._processor.request_stop()
        self.zookeeper.fail(error)
        coordinator = self.coordinator
        if coordinator is not None:
            coordinator.fail(error)
        self.commits.release_waiters()


if TYPE_CHECKING:

    def _is_one(membership: MigratingMembership) -> ConnectorMembership:
        return membership
