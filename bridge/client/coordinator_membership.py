"""A complete membership in a coordinator group: state machine, control thread, network, topics, listener.

``CoordinatorMembership`` is a ``Membership``: its ``PartitionProcessor`` decides what happens with the partitions.
Every wait in this module has a deadline.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bridge.client.assignment_executor import AssignmentExecutor, AssignmentLimits
from bridge.client.commit_calls import CommitCall, CommitCalls, commit_results
from bridge.client.coordinator_event_loop import CoordinatorEventLoop, NetworkAnswer
from bridge.client.group_api_versions import with_group_apis
from bridge.client.group_topics import TOPIC_CHECK_INTERVAL_MS, GroupTopics
from bridge.client.network import POLL_MS, Network
from bridge.client.offset_fetch_calls import OffsetFetchCalls
from zkconsumer.errors import InternalError, UsageError, ZkConsumerError
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as cev
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.errors import OffsetFetchFailed, RebalanceCallbackFailed
from zkconsumer.kafka.group.generation import NO_GENERATION_ID, MemberState
from zkconsumer.kafka.metadata_client import fetch_leaders
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.net.metadata_updater import ManualMetadataUpdater
from zkconsumer.kafka.topic_finder import TopicFinder
from zkconsumer.member.offset_committer import NOT_OWNER
from zkconsumer.member.offset_stores import CommitFailure
from zkconsumer.member.ownership import AssignmentStatus
from zkconsumer.observe.counters import Counters
from zkconsumer.observe.member_health import CONNECTED, REGISTERED, MemberHealthSnapshot
from zkconsumer.runtime.hook_calls import HookCalls
from zkconsumer.runtime.listener_calls import ListenerCalls
from zkconsumer.runtime.member_observer import KAFKA_STORE as KAFKA_STORE
from zkconsumer.runtime.member_observer import MemberObserver
from zkconsumer.runtime.membership_lifecycle import CLOSE_STEP_MS, MembershipLifecycle
from zkconsumer.runtime.topic_error_handler import TopicErrorHandler
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.stream_assignor import StreamAssignor
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
    from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.member import ownership
    from zkconsumer.member.events import KafkaCommitResult
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.ownership import PartitionProcessor
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.connector_member import ConnectorMembership
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.types import Hooks

LEAVE_GRACE_MS = 3_000
"""How long, after draining, the last commit and a leave may take before the member ends without them."""

FAILED_LEAVE_TIMEOUT_MS = 2_000
"""How long a member that an error ended may take to leave its group, so that the others need not wait for a
time-out."""

log = logging.getLogger("zkconsumer.member")


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """The settings besides those of the group; times in ms."""

    member: str
    client_id: str
    socket_timeout_ms: int
    limits: AssignmentLimits


class MembershipEvents(Protocol):
    """Receives events of a membership, on its control thread; must not block."""

    def assignment_complete(self) -> None:
        """All owned partitions are running."""

    def generation_changed(self, generation: int) -> None:
        """The member is in this generation now; -1: in none."""

    def offsets_committed(
        self, offsets: Mapping[TopicPartition, int | None], results: Mapping[TopicPartition, KafkaCommitResult]
    ) -> None:
        """The coordinator answered a commit of these offsets."""


class CoordinatorMembership:
    """From the first connection to the last.  Call ``attach_processor`` first, then ``start``, then ``join``."""

    def __init__(
        self,
        config: GroupMemberConfig,
        assignors: Sequence[ConsumerPartitionAssignor],
        settings: MembershipSettings,
        spread: StreamAssignor,
        *,
        brokers: BrokerAccess,
        clock: Clock,
        lease: Lease,
        meters: MembershipMeters,
        hooks: Hooks | HookCalls | None = None,
        counters: Counters | None = None,
        machine_class: type[ConsumerCoordinator] = ConsumerCoordinator,
        make_listener: Callable[[str, CoordinatorEventLoop, OnThreadError], ListenerCalls] = ListenerCalls,
        events: MembershipEvents | None = None,
    ) -> None:
        self.id = settings.member
        self.counters = Counters() if counters is None else counters
        self.lease = lease
        self.lifecycle = MembershipLifecycle(
            self.id,
            hooks,
            self.counters,
            expire=lambda: lease.set_until(0),
            release_waiters=self._release_waiters,
            on_first_error=self._leave_after_error,
        )
        self.fail = self.lifecycle.end
        self.thread_died = self.lifecycle.thread_died
        self.authentication_failed = self.lifecycle.authentication_failed
        self.position_missing = self.lifecycle.position_missing
        self.wait_for_assignment = self.lifecycle.wait_for_assignment
        self.observer = MemberObserver(meters, self.lifecycle.hooks, lambda: self.lifecycle.processor.assignment)
        self.bootstrap_client = brokers.bootstrap_client(settings.client_id, settings.socket_timeout_ms, clock)
        self.machine = machine_class(config, assignors, random.random, clock.now_ms())
        self.event_loop = CoordinatorEventLoop(self.machine, config.session_timeout_ms, lease, clock)
        self.listener = make_listener(self.id, self.event_loop, self.thread_died)
        self._config = config
        self._settings = settings
        self._clock = clock
        self._events = events
        self._has_left = threading.Event()
        self._logged_error = ""
        self._calls = CommitCalls()
        self._questions = OffsetFetchCalls()
        assert brokers.bootstrap is not None, "the brokers of a coordinator's group are those of bootstrap.servers"
        self.topic_finder: TopicFinder | None = TopicFinder(
            self.id,
            brokers.bootstrap_client(settings.client_id, settings.socket_timeout_ms, clock),
            brokers.metadata_max_age_ms,
            clock,
            watches_racks=config.client_rack is not None,
            on_brokers=brokers.bootstrap.update,
            on_change=lambda: self._topics.changed(),
            on_authentication_error=self.authentication_failed,
            on_thread_error=self.thread_died,
        )
        self._refusals = TopicErrorHandler(
            self.id, clock, self.lifecycle.hooks, lambda error: self.raised(cmd.Raise(error, is_fatal=False))
        )
        self._topics = GroupTopics(
            self.topic_finder, spread, self.event_loop.call_soon, self.event_loop.dispatch, clock,
            refused=self._refusals.on_topic_errors, missed=self._topic_missed, taken=self._topics_taken,
        )  # fmt: skip
        self.event_loop.call_every(TOPIC_CHECK_INTERVAL_MS, self._topics.check_topics)
        self.assignment_executor = AssignmentExecutor(
            spread, settings.limits, self.listener,
            observing=self.observer, feed=self.event_loop.dispatch, wait=self.event_loop.wait,
            assignment_complete=self.assignment_complete,
            refused=lambda error: self.raised(cmd.Raise(error, is_fatal=False)),
        )  # fmt: skip
        nodes = ManualMetadataUpdater()
        client = ConsumerNetworkClient(
            brokers.network_client(settings.client_id, config.request_timeout_ms, nodes, clock),
            nodes,
            clock,
            retry_backoff_ms=POLL_MS,  # a poll with nothing in flight waits no longer
            request_timeout_ms=config.request_timeout_ms,
        )
        self._network = Network(
            self.id,
            client,
            nodes,
            brokers.find_brokers,
            clock=clock,
            on_answer=lambda event, sent, sent_at_ms: self.event_loop.submit(NetworkAnswer(event, sent, sent_at_ms)),
            on_thread_error=self.thread_died,
        )

    def attach_processor(self, processor: PartitionProcessor) -> None:
        """Start the threads; ``processor`` receives the partitions of this member."""
        self.lifecycle.attach(processor, self.topic_finder)
        self.assignment_executor.processor = processor
        self._network.start()
        self.event_loop.start(f"{self.id}-control", self.assignment_executor, self._network, self, self.thread_died)

    # --- calls of the program -----------------------------------------------------------------------------------

    def start(self, timeout_ms: int) -> None:
        """Connect to one broker; raises ``NoBrokerAvailableError``, or the ``AuthenticationException`` of the login.

        ``UnsupportedVersionException``: that broker does not support groups with members.
        """

        def question(connection: Connection, ranges: SupportedVersions, limit_ms: int) -> None:
            fetch_leaders(connection, ranges, [], limit_ms)
            with_group_apis(connection, ranges, limit_ms)

        try:
            self.bootstrap_client.execute(question, total_timeout_ms=timeout_ms)
        except ZkConsumerError as error:
            self.close()
            raise getattr(error, "authentication_error", None) or error from None

    def join(self, subscription: TopicSubscription) -> None:
        """Become a member with this subscription."""

        def subscribe() -> None:
            self.assignment_executor.subscription = subscription
            self._topics.subscribe(subscription)

        self.event_loop.call_soon(subscribe)

    def commit(
        self,
        positions: Mapping[TopicPartition, int],
        timeout_ms: int,
        metadata: Mapping[TopicPartition, str] | None = None,
        *,
        is_retried: bool = True,
    ) -> dict[TopicPartition, CommitFailure]:
        """Commit these positions with their metadata; returns those that were not committed, with the reason.

        ``is_retried``: transient errors are retried, for ``default.api.timeout.ms``.
        Raises the error that ended the member, if one did.
        """
        self._check_alive()
        words = metadata or {}
        offsets = {tp: cev.Offset(at, metadata=words.get(tp, "")) for tp, at in positions.items()}
        call = self._calls.open(offsets, is_retried=is_retried)
        if not self._commit(call, lambda _: True, timeout_ms):
            silent = CommitFailure(f"the group's coordinator did not answer within {timeout_ms} ms")
            return dict.fromkeys(positions, silent)
        self._check_alive(call)
        return call.refused

    def _check_alive(self, call: CommitCall | None = None) -> None:
        """Raise the error that ended the member, or that ended this call.

        The rebalance listener, which is called before the partitions of a failed member are released, may still commit.
        """
        is_refused = call is not None and call.is_ended
        if self.failure is not None and (is_refused or not self.listener.is_inside_awaited_call):
            raise self.failure

    def _commit(self, call: CommitCall, is_held: Callable[[TopicPartition], bool], timeout_ms: int) -> bool:
        """Commit the partitions that run and for which ``is_held`` is true; False if no answer arrived in time."""

        def commit() -> None:
            running = self.assignment_executor.running
            ours = {tp: one for tp, one in call.offsets.items() if tp in running and is_held(tp)}
            call.refused.update(dict.fromkeys(call.offsets.keys() - ours.keys(), NOT_OWNER))
            self.event_loop.dispatch(cev.CommitAsked(call.number, ours, retried=call.is_retried))

        self.event_loop.call_soon(commit)
        if call.done.wait(timeout_ms / 1000):
            return True
        self._calls.give_up(call)
        return False

    def commit_once(
        self,
        offsets: Mapping[TopicPartition, cev.Offset],
        is_held: Callable[[TopicPartition], bool],
        timeout_ms: int,
    ) -> tuple[dict[TopicPartition, str], set[TopicPartition]]:
        """Commit the offsets for which ``is_held`` is true (called on the control thread), in the current generation or
        not at all.

        Returns the rejected partitions with the reason, and those without an answer, which may have been committed.
        Raises the error that ended the member, if one did.
        """
        self.lifecycle.check()
        call = self._calls.open(offsets, is_retried=False)
        if not self._commit(call, is_held, timeout_ms):
            return {}, set(offsets)
        self.lifecycle.check()
        return {tp: str(why) for tp, why in call.refused.items() if tp not in call.unknown}, call.unknown

    def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, cev.Offset | None]:
        """The offsets that the coordinator has stored for these now, None without one.

        Raises the error that ended the member, the error of the coordinator, or ``OffsetFetchFailed``.
        """
        self.lifecycle.check()
        call = self._questions.open()
        self.event_loop.call_soon(lambda: self.event_loop.dispatch(cev.FetchAsked(call.number, frozenset(partitions))))
        found = call.wait(timeout_ms)
        self.lifecycle.check()
        if found is None:
            raise OffsetFetchFailed(f"the group's coordinator did not return committed offsets within {timeout_ms} ms")
        if found.error is not None:
            raise found.error
        return dict(found.offsets)

    def request_commit(
        self, offsets: Mapping[TopicPartition, cev.Offset], then: Callable[[cmd.CommitDone], None]
    ) -> None:
        """Make one attempt to commit these, and call ``then``; both on the control thread."""
        call = self._calls.open(offsets, then=then)
        self.event_loop.dispatch(cev.CommitAsked(call.number, offsets, retried=False))

    def request_offsets(self, partitions: frozenset[TopicPartition], then: Callable[[cmd.FetchDone], None]) -> None:
        """Fetch the committed offsets of these once, and call ``then``; both on the control thread."""
        call = self._questions.open(then)
        self.event_loop.dispatch(cev.FetchAsked(call.number, partitions))

    @property
    def has_ended(self) -> bool:
        """Whether the member closes, or has failed; on the control thread."""
        return self.failure is not None or self.assignment_executor.is_closing

    @property
    def running_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are processed, also while they drain; on the control thread."""
        return self.assignment_executor.running

    def leave(self) -> bool:
        """Release all partitions and leave the group; False when the time was not sufficient.

        Waits for a running call of the rebalance listener, unless the listener itself calls this.
        """
        self.listener.report_early_return()
        patience_ms = self._settings.limits.drain_ms + LEAVE_GRACE_MS + self._listener_ms
        self.event_loop.call_soon(lambda: self._leave(patience_ms))
        return self._has_left.wait((patience_ms + CLOSE_STEP_MS) / 1000)

    @property
    def _listener_ms(self) -> int:
        return 0 if self.listener.listener is None else self._settings.limits.listener_ms

    def _leave(self, timeout_ms: int) -> None:
        if self.failure is None:
            self.assignment_executor.close()
        else:
            self.assignment_executor.end(self.failure)
        self.event_loop.dispatch(cev.Closed(leave=True, timeout_ms=timeout_ms))

    def close(self) -> bool:
        """End everything, including the partition processor.  True when nothing is left in the group."""
        self._network.ask_to_stop()
        return self.lifecycle.close(
            self.listener,
            self.lifecycle.join,
            lambda: self._network.join(CLOSE_STEP_MS),
            lambda: self.event_loop.stop(CLOSE_STEP_MS),
        )

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session timeout: how long the coordinator waits for a heartbeat of this member."""
        return self._config.session_timeout_ms

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership, if one did."""
        return self.lifecycle.failure

    @property
    def generation_id(self) -> int:
        """The current generation of this member; -1 without one."""
        return self.machine.generation.generation_id

    def assignment_status(self) -> AssignmentStatus:
        counts = self.machine.subscriptions.partition_counts()
        return AssignmentStatus(
            {topic: count or 0 for topic, count in sorted(counts.items())},
            is_stable=self.machine.state is MemberState.STABLE,
            is_cooperative=not self.machine.is_eager,
        )

    def health_snapshot(self, fetching: int, failures: Sequence[str]) -> MemberHealthSnapshot:
        machine = self.machine
        return MemberHealthSnapshot(
            membership=REGISTERED if self.generation_id >= 0 else machine.state.value,
            session=CONNECTED
            if machine.coordinator_discovery.coordinator is not None
            else "the coordinator is unknown",
            session_id=None,
            lease_ms_left=self.lease.until_ms - self._clock.now_ms(),
            rebalance=machine.step.value,
            partitions_owned=len(self.assignment_executor.partitions),
            partitions_fetching=fetching,
            missing_topics=tuple(sorted(self._topics.missing)),
            broker_failures=tuple(failures),
        )

    def offer_assignors(self, assignors: Sequence[ConsumerPartitionAssignor]) -> None:
        """Join again with these assignors, in order of preference; from any thread."""
        self.event_loop.submit(cev.AssignorsOffered(tuple(assignors)))

    # --- callbacks of the control thread --------------------------------------------------------------------------

    def commit_done(self, command: cmd.CommitDone) -> None:
        """See ``MachineObserver``."""
        self._calls.done(command)

    def assignment_complete(self) -> None:
        """All owned partitions are running."""
        self.lifecycle.assignment_known.set()
        if self._events is not None:
            self._events.assignment_complete()

    def fetched(self, command: cmd.FetchDone) -> None:
        """See ``MachineObserver``: answers to requests that ``assignment_executor`` did not send."""
        self._questions.done(command)

    def needs_metadata(self, command: cmd.NeedMetadata) -> None:
        """See ``MachineObserver``."""
        self._topics.need(command.topics)

    def raised(self, command: cmd.Raise) -> None:
        """An error that the program must fix ends the member; a transient error is logged once and retried."""
        error = command.error
        must_act = isinstance(error, UsageError | InternalError) and not isinstance(error, RebalanceCallbackFailed)
        if command.is_fatal or must_act:
            log.error("member-failed member=%s reason=%r", self.id, str(error))
            self.fail(error)
        elif str(error) != self._logged_error:
            self._logged_error = str(error)
            log.warning("group-error member=%s reason=%r: retried", self.id, str(error))
            self.lifecycle.hooks.call("warning_logged", "WARNING", "group-error", str(error))

    def stopped(self) -> None:
        """See ``MachineObserver``."""
        self.assignment_executor.stopped()
        self._has_left.set()

    def noted(self, command: cmd.LogMemberEvent) -> None:
        """See ``MachineObserver``."""
        self.counters.add(command.name.replace("-", "_"))
        if self._events is not None and command.name in ("assigned", "generation-reset"):
            self._events.generation_changed(NO_GENERATION_ID if command.name != "assigned" else self.generation_id)
        if command.name == "joining":
            self.observer.metrics.rebalance_started()
        if command.name == "poll-timeout-expired":
            self.lifecycle.hooks.call("warning_logged", "WARNING", command.name, str(dict(command.fields)["reason"]))

    def answered(self, answer: NetworkAnswer) -> None:
        """Counts commits when their answer arrives, whichever call sent them."""
        completed = commit_results(answer)
        if completed is not None:
            self.observer.commit_completed(KAFKA_STORE, *completed)
            if self._events is not None:
                self._events.offsets_committed(*completed)

    def was_reset(self, event: ownership.OffsetReset) -> None:
        """See ``MachineObserver``."""
        if self.assignment_executor.on_offset_reset(event):
            self.counters.add("offsets_reset")

    # --- the end --------------------------------------------------------------------------------------------------

    def topics_rejected(self, errors: Mapping[str, ErrorCode]) -> None:
        """Called on a thread of the fetchers: a broker denies this member a topic that the group has assigned to it."""
        self._refusals.on_topic_errors(errors, errors.keys())

    def _topic_missed(self, words: str) -> None:
        if self.failure is None:
            log.warning("topic-missing member=%s %s", self.id, words)
            self.lifecycle.hooks.call("warning_logged", "WARNING", "topic-missing", words)

    def _topics_taken(self, topics: frozenset[str], words: str) -> None:
        if topics:
            log.info("filter-topics-changed member=%s %s", self.id, words)
        else:
            log.warning("filter-topics-changed member=%s %s", self.id, words)
            self.lifecycle.hooks.call("warning_logged", "WARNING", "filter-topics-changed", words)

    def _release_waiters(self) -> None:
        self._calls.end()
        self._questions.end()

    def _leave_after_error(self, _: ZkConsumerError) -> None:
        """The streams deliver no more records, so the member leaves the group: the others get its partitions."""
        self.event_loop.call_soon(lambda: self._leave(FAILED_LEAVE_TIMEOUT_MS + self._listener_ms))


if TYPE_CHECKING:

    def _is_one(membership: CoordinatorMembership) -> ConnectorMembership:
        return membership
