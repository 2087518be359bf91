"""A membership in a ZooKeeper group, put together: session, core, control thread, both offset stores, rights.

``ZooKeeperMembership`` is a ``Membership``: what is done with the partitions is its ``PartitionProcessor``'s business.
Everything that waits here waits with a deadline.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeVar

from zkconsumer import errors
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.base.threads import WorkerThread, spawn
from zkconsumer.errors import ThreadFailedError, UnavailableError, ZkConsumerError, ZkNotAuthorized
from zkconsumer.kafka.offsets_channel import OffsetsChannel
from zkconsumer.kafka.topic_finder import TopicFinder
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.member_state_machine import GroupSettings, MemberStateMachine
from zkconsumer.member.offset_stores import CommitFailure
from zkconsumer.observe.counters import Counters
from zkconsumer.runtime.broker_access import check_brokers
from zkconsumer.runtime.command_executor import CommandExecutor, ZooKeeperExecutor
from zkconsumer.runtime.hook_calls import HookCalls
from zkconsumer.runtime.kafka_offset_store import KafkaOffsetStore
from zkconsumer.runtime.kafka_topic_source import KafkaTopicSource
from zkconsumer.runtime.listener_calls import ListenerCalls
from zkconsumer.runtime.member_authorization import MemberAuthorization
from zkconsumer.runtime.member_event_loop import MemberEventLoop
from zkconsumer.runtime.member_observer import MemberObserver
from zkconsumer.runtime.topic_error_handler import TopicErrorHandler
from zkconsumer.zk.group_reader import GroupReader
from zkconsumer.zk.zk_security import NO_SECURITY, ZkSecurity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.errors import AuthenticationException
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.offsets_coordinator_client import OffsetsChannelSettings
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.member_state_machine import AssignmentPlanner
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.runtime.membership_protocols import Membership, PartitionProcessor
    from zkconsumer.types import Hooks, TopicPartition
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

LEAVE_GRACE_MS = 2_000
"""On top of draining and settling: how long a leave may take before the session is ended without it."""

CLOSE_STEP_MS = 1_500
"""How long each of the last steps of a close may take (holder, session, control thread)."""

log = logging.getLogger("zkconsumer.member")


class ZooKeeperMembership:
    """From the first connection to the last.  ``attach_processor`` comes first, then ``start``, then ``join``."""

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
    ) -> None:
        self.id = settings.member_id
        self.counters = Counters() if counters is None else counters
        self.lease = lease
        self.hooks = (
            hooks if isinstance(hooks, HookCalls) else HookCalls(self.id, hooks, self.counters, self.thread_died)
        )
        self.observer = MemberObserver(meters, self.hooks, lambda: self._holder.assignment)
        self.state_machine = MemberStateMachine(settings, planner)
        self.bootstrap_client = brokers.bootstrap_client(client_id, socket_timeout_ms, clock)
        self.event_loop = MemberEventLoop(self.state_machine, clock)
        self._settings = settings
        self._store = store
        self._clock = clock
        self._holder: PartitionProcessor
        self._assignment_known = threading.Event()
        self._has_left = threading.Event()
        self._not_released: tuple[TopicPartition, ...] = ()
        self._failure: ZkConsumerError | None = None
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
        self._topic_errors = TopicErrorHandler(self.id, clock, self.hooks, self._on_topic_error)
        topics = None if self.topic_finder is None else KafkaTopicSource(self.topic_finder, self.topics_rejected)
        rights = MemberAuthorization(
            security.acl, security.user_description, lambda: self._holder.has_no_partitions, self._not_authorized
        )
        self._zookeeper = ZooKeeperExecutor(
            group, self.id, store, GroupReader(group, topics), self.event_loop, clock, self.observer, rights
        )
        self.listener = ListenerCalls(self.id, self.event_loop, self.thread_died)
        self.coordinator_channel: OffsetsChannel | None = None
        self._kafka: KafkaOffsetStore | None = None
        if coordinator_channel is not None:
            self.coordinator_channel = OffsetsChannel(
                self.id, coordinator_channel, brokers.connect, brokers.find_brokers, clock, self.thread_died
            )
            self._kafka = KafkaOffsetStore(
                group, store, self.coordinator_channel, self.lease, self.event_loop, self.observer
            )

    def attach_processor(self, holder: PartitionProcessor) -> None:
        """Start the control thread; ``holder`` is told what is ours."""
        self._holder = holder
        executors = self._zookeeper, self._kafka, holder
        performer = CommandExecutor(self.id, *executors, self.lease, self.listener, self.counters, self.observer, self)
        self.event_loop.start(f"{self.id}-control", performer, self.thread_died)
        self._store.listen(self._zookeeper.on_store_event)

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run something on the control thread again and again, not exactly; before ``attach_processor``."""
        self.event_loop.call_every(interval_ms, action)

    # --- what the program asks for ------------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to ZooKeeper; raises what ``ZkStore.start`` raises, with nothing left running."""
        try:
            self._store.start(timeout_ms)
        except BaseException:
            self.event_loop.stop(CLOSE_STEP_MS)
            self._store.close(CLOSE_STEP_MS)
            self.hooks.close()
            raise

    def check_brokers(self) -> None:
        """See ``brokers.check_brokers``."""
        check_brokers(self.bootstrap_client)

    def join(self, subscription: TopicSubscription) -> None:
        """Become a member with this subscription; asked again, the next registration has the new one."""
        self.event_loop.submit(ev.JoinRequested(subscription))

    def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait for the first whole share; raises the error that ended the member, if one did."""
        known = self._assignment_known.wait(timeout_ms / 1000)
        if self._failure is not None:
            raise self._failure
        return known

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Write these positions; gives back what was not written, with the reason.

        Raises the error that ended the member, if one did.
        """
        if self._failure is not None:
            raise self._failure
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
        if self._failure is not None:
            raise self._failure
        return refused

    def commit_async(self, positions: Mapping[TopicPartition, int]) -> None:
        """Write these positions, and wait for nothing: what cannot be written is logged and counted."""
        with self._calls_lock:
            self._calls_made += 1
            number = self._calls_made
        self.event_loop.submit(ev.CommitRequested(number, dict(positions)))

    def leave(self) -> bool:
        """Give everything back and leave the group; False when that could not be done in time.

        A call of the rebalance listener that is under way is waited for, unless it is the listener that asks.
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
        """End everything: the holder's work, session, the holder's threads, control thread.  True when nothing was
        left behind.

        The work first: once the session has ended, others hand these records out.  The session before the threads
        are waited for, because the leader finder may be waiting for an answer from ZooKeeper.
        """
        self._holder.end(None)
        if self._failure is not None:  # the listener is called about what was lost, also when a close follows at once
            self._end_handled.wait(CLOSE_STEP_MS / 1000)
        self.listener.close(finish=self._failure is not None)
        self._ask_to_stop()
        self.event_loop.submit(ev.SessionClosed())
        clean = self._store.close(CLOSE_STEP_MS)
        clean = (self._closing_worker is None or self._closing_worker.join(CLOSE_STEP_MS)) and clean
        clean = self._holder.join(CLOSE_STEP_MS) and clean
        clean = (self.topic_finder is None or self.topic_finder.join(CLOSE_STEP_MS)) and clean
        clean = (self.coordinator_channel is None or self.coordinator_channel.join(CLOSE_STEP_MS)) and clean
        clean = self.event_loop.stop(CLOSE_STEP_MS) and clean
        self._assignment_known.set()
        self.hooks.close()
        if not self.hooks.join(CLOSE_STEP_MS):
            log.warning("hook-not-returned member=%s: it has not returned, and its thread goes on", self.id)
        if not self.listener.join(CLOSE_STEP_MS):
            log.warning("listener-not-returned member=%s: it has not returned, and its thread goes on", self.id)
        return clean

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """Run this in that session, or have its requests refused; each step, and ``then``, on the control thread."""
        self._zookeeper.run_procedure(procedure, session_id, then)

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session time-out that ZooKeeper granted."""
        return self._store.negotiated_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership, if one did."""
        return self._failure

    # --- what the performer tells (on the control thread) -------------------------------------------------------

    def commit_completed(self, command: do.CompleteCommit) -> None:
        with self._calls_lock:
            waiting = self._calls.pop(command.call_id, None)
        if waiting is not None:
            waiting[1].update(command.failures)
            waiting[0].set()

    def assignment_complete(self, _: do.AnnounceAssignment) -> None:
        self._assignment_known.set()

    def left(self, command: do.AnnounceLeft) -> None:
        self._not_released = command.unreleased
        self._has_left.set()

    def control_changed(self, command: do.AnnounceControl) -> None:
        """For members that follow it (``GroupSettings.follows_control_znode``), who say what is to be done."""

    def failed(self, command: do.Fail) -> None:
        kind = getattr(errors, command.error_class, UnavailableError)
        self._end(kind(command.message))

    def authentication_failed(self, error: AuthenticationException) -> None:
        """Called on a thread of the fetchers: nothing can be read with these settings."""
        log.error("authentication-failed member=%s reason=%r", self.id, str(error))
        self._end(error)

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on any thread: a topic that the program named must be read; a filter only happens to match others."""
        subscription = self.state_machine.subscription
        is_named = subscription is not None and not subscription.is_filter
        self._topic_errors.on_topic_errors(errors, subscription.topics if subscription is not None and is_named else ())

    def _on_topic_error(self, error: ZkConsumerError) -> None:
        log.error("member-failed member=%s reason=%r", self.id, str(error))
        self._end(error)

    def _not_authorized(self, words: str) -> None:
        self._end(ZkNotAuthorized(words))

    def thread_died(self, name: str, error: BaseException) -> None:
        """Called in the dying thread: an error on every stream, never silence."""
        log.error("thread-died member=%s thread=%s", self.id, name, exc_info=error)
        self.hooks.call("thread_died", name, error)
        self._end(ThreadFailedError.of(self.id, name, error))

    def _end(self, error: ZkConsumerError) -> None:
        """Nothing is handed out any more, so nothing may be held: the session is ended for the sake of the others."""
        is_first = self._failure is None
        self._failure = self._failure or error
        self._holder.end(self._failure)
        self.lease.set_until(0)
        if is_first:
            self.hooks.call("member_failed", error)
            self._ask_to_stop()
            self.event_loop.submit(ev.MembershipEnded(str(error)))
            self.event_loop.call_soon(self._end_handled.set)
            self._closing_worker = spawn(f"{self.id}-give-up", lambda _: self._close_session(), self.thread_died)
        self._assignment_known.set()
        self._has_left.set()
        with self._calls_lock:
            calls, self._calls = list(self._calls.values()), {}
        for done, _ in calls:
            done.set()

    def _ask_to_stop(self) -> None:
        self._holder.request_stop()
        if self.topic_finder is not None:
            self.topic_finder.ask_to_stop()
        if self.coordinator_channel is not None:
            self.coordinator_channel.ask_to_stop()

    def _close_session(self) -> None:
        self._store.close(CLOSE_STEP_MS)


if TYPE_CHECKING:

    def _is_one(membership: ZooKeeperMembership) -> Membership:
        return membership
