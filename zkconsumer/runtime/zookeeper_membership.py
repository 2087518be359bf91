"""A membership in a ZooKeeper group: combines session, state machine, control thread, offset stores and ACLs.

``ZooKeeperMembership`` implements ``Membership``; its ``PartitionProcessor`` works on the partitions.
Every wait in this module has a deadline.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeVar

from zkconsumer import errors
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.errors import UnavailableError, ZkConsumerError, ZkNotAuthorized
from zkconsumer.kafka.offsets_channel import OffsetFetchOutcome, OffsetsChannel
from zkconsumer.kafka.topic_finder import TopicFinder
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.events import StoredOffset
from zkconsumer.member.group_settings import GroupSettings
from zkconsumer.member.group_view import ControlRecord, GroupView
from zkconsumer.member.member_state_machine import MemberStateMachine
from zkconsumer.member.offset_stores import CommitFailure
from zkconsumer.member.ownership import AssignmentStatus
from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.observe.counters import Counters
from zkconsumer.observe.member_health import MemberHealthSnapshot
from zkconsumer.runtime.command_executor import ZooKeeperExecutor, command_handlers
from zkconsumer.runtime.hook_calls import HookCalls
from zkconsumer.runtime.kafka_offset_store import KafkaOffsetStore
from zkconsumer.runtime.kafka_topic_source import KafkaTopicSource
from zkconsumer.runtime.listener_calls import ListenerCalls
from zkconsumer.runtime.member_authorization import MemberAuthorization
from zkconsumer.runtime.member_event_loop import MemberEventLoop
from zkconsumer.runtime.member_observer import MemberObserver
from zkconsumer.runtime.membership_lifecycle import CLOSE_STEP_MS, MembershipLifecycle
from zkconsumer.runtime.topic_error_handler import TopicErrorHandler
from zkconsumer.zk.group_reader import GroupReader
from zkconsumer.zk.zk_security import NO_SECURITY, ZkSecurity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.offsets_coordinator_client import OffsetsChannelSettings
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.member_assignment import AssignmentPlanner
    from zkconsumer.member.ownership import PartitionProcessor
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.connector_member import ConnectorMembership
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

NOT_OWNED_STATES = (PartitionState.ACQUIRING, PartitionState.NOT_OWNED)
STATES_WITH_STORED_OFFSET = (
    PartitionState.FETCHING,
    PartitionState.DRAINING,
    PartitionState.DRAINED,
    PartitionState.RELEASING,
)
UNREADABLE_OFFSET_MESSAGE = "owned but not fetched: its stored offset cannot be read"

LEAVE_GRACE_MS = 2_000
"""How long a leave may take in addition to drain and settle times; then the session is closed without it."""

log = logging.getLogger("zkconsumer.member")


class ZooKeeperMembership:
    """One membership.  Call ``attach_processor`` first, then ``start``, then ``join``."""

    def __init__(
        self,
        group: str,
        settings: GroupSettings,
        planner: AssignmentPlanner,
        *,
        client_id: str,
        socket_timeout_ms: int,
        store: ZkStore,
        brokers: BrokerAccess,
        clock: Clock,
        lease: Lease,
        meters: MembershipMeters,
        security: ZkSecurity = NO_SECURITY,
        coordinator_channel: OffsetsChannelSettings | None = None,
        hooks: Hooks | HookCalls | None = None,
        counters: Counters | None = None,
        on_control: Callable[[ControlRecord | None], None] = lambda _: None,
        on_assignment: Callable[[], None] = lambda: None,
    ) -> None:
        self.id = settings.member_id
        self.counters = Counters() if counters is None else counters
        self.lease = lease
        self.lifecycle = MembershipLifecycle(
            self.id,
            hooks,
            self.counters,
            expire=lambda: lease.set_until(0),
            release_waiters=self._release_waiters,
            on_first_error=self._close_failed_session,
        )
        self.fail = self.lifecycle.end
        self.thread_died = self.lifecycle.thread_died
        self.authentication_failed = self.lifecycle.authentication_failed
        self.position_missing = self.lifecycle.position_missing
        self.wait_for_assignment = self.lifecycle.wait_for_assignment
        self.observer = MemberObserver(meters, self.lifecycle.hooks, lambda: self.lifecycle.processor.assignment)
        self.state_machine = MemberStateMachine(settings, planner)
        self.bootstrap_client = brokers.bootstrap_client(client_id, socket_timeout_ms, clock)
        self.event_loop = MemberEventLoop(self.state_machine, clock)
        self._settings = settings
        self._store = store
        self._clock = clock
        self._on_control = on_control
        self._on_assignment = on_assignment
        self._has_left = threading.Event()
        self._not_released: tuple[TopicPartition, ...] = ()
        self._end_handled = threading.Event()
        self._closing_worker: WorkerThread | None = None
        self._calls: dict[int, tuple[threading.Event, dict[TopicPartition, CommitFailure]]] = {}
        self._calls_made = 0
        self._calls_lock = threading.Lock()
        self.topic_finder: TopicFinder | None = None
        if brokers.bootstrap is not None:
            topics_client = brokers.bootstrap_client(client_id, socket_timeout_ms, clock)
            self.topic_finder = TopicFinder(
                self.id,
                topics_client,
                brokers.metadata_max_age_ms,
                clock,
                on_brokers=brokers.bootstrap.update,
                on_change=lambda: self.event_loop.submit(ev.GroupChanged("topics in Kafka")),
                on_authentication_error=self.authentication_failed,
                on_thread_error=self.thread_died,
            )
        self._topic_errors = TopicErrorHandler(self.id, clock, self.lifecycle.hooks, self._on_topic_error)
        topics = None if self.topic_finder is None else KafkaTopicSource(self.topic_finder, self.topics_rejected)
        rights = MemberAuthorization(
            security.acl,
            security.user_description,
            lambda: self.lifecycle.processor.has_no_partitions,
            lambda words: self.fail(ZkNotAuthorized(words)),
        )
        self._zookeeper = ZooKeeperExecutor(
            group,
            self.id,
            store,
            reader=GroupReader(group, topics),
            control=self.event_loop,
            clock=clock,
            observing=self.observer,
            rights=rights,
        )
        self.listener = ListenerCalls(self.id, self.event_loop, self.thread_died)
        self.coordinator_channel: OffsetsChannel | None = None
        self._kafka: KafkaOffsetStore | None = None
        if coordinator_channel is not None:
            self.coordinator_channel = OffsetsChannel(
                self.id,
                coordinator_channel,
                brokers.connect,
                find_brokers=brokers.find_brokers,
                clock=clock,
                on_thread_error=self.thread_died,
            )
            self._kafka = KafkaOffsetStore(
                group,
                store,
                self.coordinator_channel,
                lease=self.lease,
                control=self.event_loop,
                observing=self.observer,
            )

    def attach_processor(self, processor: PartitionProcessor) -> None:
        """Start the control thread; ``processor`` receives the commands about partitions."""
        self.lifecycle.attach(processor, self.topic_finder, self.coordinator_channel)
        handlers = command_handlers(
            self.id,
            self._zookeeper,
            self._kafka,
            processor=processor,
            lease=self.lease,
            listener=self.listener,
            counters=self.counters,
            callbacks=self,
        )
        self.event_loop.start(f"{self.id}-control", handlers, self.observer.command_executed, self.thread_died)
        self._store.listen(self._zookeeper.on_store_event)

    # --- calls of the program -----------------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises the errors of ``ZkStore.start``, after it has stopped everything."""
        try:
            self._store.start(timeout_ms)
        except BaseException:
            self.event_loop.stop(CLOSE_STEP_MS)
            self._store.close(CLOSE_STEP_MS)
            self.lifecycle.hooks.close()
            raise

    def join(self, subscription: TopicSubscription) -> None:
        """Join with this subscription; a second call sets the subscription of the next registration."""
        self.event_loop.submit(ev.JoinRequested(subscription))

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Commit these positions; return the partitions that were not committed, with the reason.

        Raises the error that ended the member, if there is one.
        """
        self.lifecycle.check()
        done = threading.Event()
        refused: dict[TopicPartition, CommitFailure] = {}
        with self._calls_lock:
            self._calls_made += 1
            number = self._calls_made
            self._calls[number] = (done, refused)
        self.event_loop.submit(ev.CommitRequested(number, dict(positions), self._clock.now_ms() + timeout_ms))
        if not done.wait(timeout_ms / 1000):
            with self._calls_lock:
                self._calls.pop(number, None)
            asked = "ZooKeeper" if self.coordinator_channel is None else "ZooKeeper, or the group's coordinator,"
            return dict.fromkeys(positions, CommitFailure(f"{asked} did not answer within {timeout_ms} ms"))
        self.lifecycle.check()
        return refused

    def fetch_kafka_offsets(
        self, partitions: list[TopicPartition], timeout_ms: int, then: Callable[[OffsetFetchOutcome], None]
    ) -> None:
        """Fetch the offsets that Kafka has of these; only with ``offsets.storage=kafka``."""
        assert self.coordinator_channel is not None, "Kafka stores no offsets of this group"
        self.coordinator_channel.fetch(partitions, timeout_ms, then)

    def change_subscription(self, subscription: TopicSubscription) -> None:
        """Write this subscription into the registration, and rebalance; from any thread."""
        self.join(subscription)
        self._zookeeper.rewrite_registration(subscription)

    def commit_async(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit these positions without waiting; failures are logged and counted."""
        with self._calls_lock:
            self._calls_made += 1
            number = self._calls_made
        self.event_loop.submit(ev.CommitRequested(number, dict(positions)))

    def leave(self) -> bool:
        """Release all partitions and leave the group; False if that was not complete in time.

        It waits for a running call of the rebalance listener, unless the listener calls this method.
        """
        self.listener.report_early_return()
        self.event_loop.submit(ev.LeaveRequested())
        leave_timeout_ms = self._settings.drain_timeout_ms + self._settings.release_settle_ms + LEAVE_GRACE_MS
        if self.listener.listener is not None:
            leave_timeout_ms += self._settings.listener_timeout_ms
        if self.coordinator_channel is not None:
            leave_timeout_ms += self._settings.kafka_close_timeout_ms
        return self._has_left.wait(leave_timeout_ms / 1000) and not self._not_released

    def close(self) -> bool:
        """Stop, in this order: processing, session, the processor's threads, control thread.  True if all stopped.

        Processing stops first, because other members deliver these records once the session has ended.  The session
        closes before the wait for the threads, because the leader finder may wait for an answer from ZooKeeper.
        """
        self.lifecycle.processor.end(None)
        if self.failure is not None:  # the listener is called for lost partitions, also if a close follows at once
            self._end_handled.wait(CLOSE_STEP_MS / 1000)
        return self.lifecycle.close(
            self.listener, self._close_session, self.lifecycle.join, lambda: self.event_loop.stop(CLOSE_STEP_MS)
        )

    def _close_session(self) -> bool:
        self.event_loop.submit(ev.SessionClosed())
        clean = self._store.close(CLOSE_STEP_MS)
        return (self._closing_worker is None or self._closing_worker.join(CLOSE_STEP_MS)) and clean

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """Run the procedure in this session; in another session its requests fail.

        Each step, and ``then``, runs on the control thread.
        """
        self._zookeeper.run_procedure(procedure, session_id, then)

    # --- the state, on the control thread -------------------------------------------------------------------------

    def assignment_status(self) -> AssignmentStatus:
        machine, view = self.state_machine, self.state_machine.view or GroupView({}, {})
        return AssignmentStatus(
            {
                topic: len(view.partitions_by_topic.get(topic, ()))
                for topic in sorted(machine.assignment.subscribed_topics)
            },
            view.missing_topics,
            tuple(name for name in view.members if name != self.id),
            machine.acquirer.not_acquired,
            machine.exclusion_reason or machine.assignment.error,
        )

    def health_snapshot(self, fetching: int, failures: Sequence[str]) -> MemberHealthSnapshot:
        machine, session_id = self.state_machine, self.session_id
        failed = {str(tp): why for tp, why in machine.acquirer.not_acquired.items()}
        failed |= {
            str(tp): UNREADABLE_OFFSET_MESSAGE
            for tp, p in machine.partitions.items()
            if p.state is PartitionState.POSITION_UNREADABLE
        }
        return MemberHealthSnapshot(
            membership=machine.membership.state.value,
            session=machine.session.state.value,
            session_id=session_id,
            lease_ms_left=self.lease.until_ms - self._clock.now_ms(),
            rebalance=machine.rebalance.state.value,
            partitions_owned=sum(p.state not in NOT_OWNED_STATES for p in machine.partitions.values()),
            partitions_fetching=fetching,
            failed_partitions=failed,
            missing_topics=tuple(sorted(machine.view_log.missing_topics)),
            broker_failures=tuple(failures),
        )

    @property
    def session_id(self) -> int | None:
        """The present session; None without one."""
        live = self.state_machine.session.live
        return None if live is None else live.session_id

    @property
    def control_version(self) -> int | None:
        """The version of the control znode, on which the writes of this member are conditional; None without one."""
        return self.state_machine.control_version

    @property
    def topic_czxids(self) -> Mapping[str, int]:
        """The transaction that created each topic's znode, if topics are read from ZooKeeper."""
        view = self.state_machine.view
        return {} if view is None else view.topic_czxids

    @property
    def stored_offsets(self) -> dict[TopicPartition, StoredOffset]:
        """The content of the offset znodes of owned partitions, as this member read or wrote it last."""
        return {tp: p.stored for tp, p in self.state_machine.partitions.items() if p.state in STATES_WITH_STORED_OFFSET}

    def stored_offset(self, tp: TopicPartition) -> StoredOffset:
        """The same for one partition, in any state; without an offset if this member does not own it."""
        partition = self.state_machine.partitions.get(tp)
        return StoredOffset() if partition is None else partition.stored

    def offsets_overwritten(self, stored: Mapping[TopicPartition, StoredOffset]) -> None:
        """This process wrote these offset znodes of owned partitions, but not by a commit of this membership."""
        self.event_loop.handle_event(ev.OffsetsOverwritten(stored))

    # --- the state, on any thread ---------------------------------------------------------------------------------

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session timeout that ZooKeeper negotiated, in ms."""
        return self._store.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership; None while it runs."""
        return self.lifecycle.failure

    # --- callbacks of the command executor (on the control thread) ----------------------------------------------

    def commit_completed(self, command: do.CompleteCommit) -> None:
        with self._calls_lock:
            waiting = self._calls.pop(command.call_id, None)
        if waiting is not None:
            waiting[1].update(command.failures)
            waiting[0].set()

    def assignment_complete(self, _: do.AnnounceAssignment) -> None:
        self.lifecycle.assignment_known.set()
        self._on_assignment()

    def left(self, command: do.AnnounceLeft) -> None:
        self._not_released = command.unreleased
        self._has_left.set()

    def control_changed(self, command: do.AnnounceControl) -> None:
        """For migrating members (``GroupSettings.follows_control_znode``)."""
        self._on_control(command.control)

    def failed(self, command: do.Fail) -> None:
        kind = getattr(errors, command.error_class, UnavailableError)
        self.fail(kind(command.message))

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on any thread.  A topic that the program named is required; one that a filter matches is not."""
        subscription = self.state_machine.subscription
        is_named = subscription is not None and not subscription.is_filter
        self._topic_errors.on_topic_errors(errors, subscription.topics if subscription is not None and is_named else ())

    def _on_topic_error(self, error: ZkConsumerError) -> None:
        log.error("member-failed member=%s reason=%r", self.id, str(error))
        self.fail(error)

    def _release_waiters(self) -> None:
        with self._calls_lock:
            calls, self._calls = list(self._calls.values()), {}
        for done, _ in calls:
            done.set()

    def _close_failed_session(self, error: ZkConsumerError) -> None:
        """The session must close so that other members can acquire the partitions."""
        self.event_loop.submit(ev.MembershipEnded(str(error)))
        self.event_loop.call_soon(self._end_handled.set)

        def close(_: StopSignal) -> None:
            self._store.close(CLOSE_STEP_MS)

        self._closing_worker = spawn(f"{self.id}-give-up", close, self.thread_died)
        self._has_left.set()


if TYPE_CHECKING:

    def _is_one(membership: ZooKeeperMembership) -> ConnectorMembership:
        return membership
