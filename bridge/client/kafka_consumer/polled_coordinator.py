r"""``PolledCoordinator``: runs the group's machine in ``poll`` and in the heartbeat thread.

Java: ``ConsumerCoordinator``.

                    .--> network requests: ``ConsumerNetworkClient``, by any thread
    events --> machine (under ``_lock``) --> commands --+--> results of commits and look-ups: ``offset_calls``
      ^                                                 '--> commands for the program's thread: ``_program_commands``
      |                                                                                              |
      '------- positions, callbacks that returned <------- ``poll``, ``close``, ``unsubscribe`` <----'

The machine (``consumer_coordinator``) decides everything about the group.  It is pure, and any thread may feed it: the
program's thread in ``poll``, and the thread that receives a response.  What concerns positions and the program happens
only in the program's thread: stopping partitions, collecting positions, callbacks, errors.  So an automatic commit has
exactly the positions of the records that earlier calls of ``poll`` returned.

Nothing here waits for the group except ``close``, ``unsubscribe`` and the calls about offsets, each with a timer.

A lost answer: the network client ends each request by its time-out, and the machine receives ``RequestFailed``
(``coordinator_requests``).

*The time of the last call.*  ``max.poll.interval.ms`` counts from it.  While a call would change nothing else, it is
reported to the machine only once in ``CALL_REPORT_MS``, and before a timer fires.

Invariants: ``_lock`` is never held while the network is polled, or while code of the program runs.  ``_deadlines`` has
the timers of the machine.  ``_calls`` has the calls whose result is still to come.  ``_commands`` is executed by the
thread that set ``_is_executing``, in the order in which the machine returned them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.client.kafka_consumer.consumer_metrics import ConsumerCoordinatorMetrics
from bridge.client.kafka_consumer.heartbeat_thread import HeartbeatThread
from bridge.client.kafka_consumer.offset_calls import (
    CommitOffsetsCall,
    CommittedOffsetsCall,
    OffsetCommitCallback,
    Offsets,
    to_offset,
    to_offset_and_metadata,
)
from zkconsumer.base.timer import FOREVER_MS, Timer
from zkconsumer.errors import InternalError, TimeoutException, WakeupException, ZkConsumerError
from zkconsumer.kafka.coordinator_requests import CoordinatorRequests
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.consumer_rebalance import Exit
from zkconsumer.kafka.group.errors import RetriableCommitFailedException
from zkconsumer.kafka.group.events import TimerKind
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group.kafka_text_forms import offsets_text
from zkconsumer.kafka.group.member_log_lines import level_of, text_of
from zkconsumer.kafka.net.client_request import ClientResponse
from zkconsumer.member.ownership import CollectPositions, Drain
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_COMMIT

if TYPE_CHECKING:
    from bridge.client.consumer_interceptors import ConsumerInterceptors
    from bridge.client.kafka_consumer.heartbeat_thread import StartThread
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
    from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
    from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient

WAIT_STEP_MS = 100
"""The longest wait of one poll in a call that waits for the group."""

CALL_REPORT_MS = 100
"""How often a call of ``poll`` is reported to a machine that has nothing to do in it: a program with small lists calls
some thousand times in a second."""

THREAD_END_MS = 5_000
"""How long the heartbeat thread may take to end."""

log = logging.getLogger("zkconsumer.member")


class PolledCoordinator:
    """``poll_in_background`` is for the heartbeat thread; all other public methods are for the program's thread."""

    def __init__(
        self,
        machine: ConsumerCoordinator,
        client: ConsumerNetworkClient,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        clock: Clock,
        *,
        interceptors: ConsumerInterceptors[Any],
        name: str,
        start_thread: StartThread,
    ) -> None:
        self.metrics = ConsumerCoordinatorMetrics()
        self._machine = machine
        self._config = machine.config
        self._client = client
        self._requests = CoordinatorRequests(client, clock, self._on_answer)
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._interceptors = interceptors
        self._clock = clock
        self._lock = threading.RLock()
        self._events: deque[ev.Event] = deque()
        self._commands: deque[cmd.Command] = deque()
        self._is_executing = False
        self._deadlines: dict[TimerKind, int] = {}
        self._called_ms = self._reported_call_ms = clock.now_ms()
        """The last call of ``poll``, and the last one that the machine has seen."""
        self._calls: dict[int, CommitOffsetsCall | CommittedOffsetsCall] = {}
        self._call_count = 0
        self._send_count = 0
        """How many requests were passed to the network client."""
        self._metadata_version = -1
        """The update of the metadata that the machine has."""
        self._pattern_version = -1
        """The last update at ``subscribe``, or later the one whose topics were compared with the pattern."""
        self._has_pattern_topics = False
        """Whether the machine has the topics of the present pattern."""
        self._program_commands: deque[cmd.Command] = deque()
        self._is_running_commands = False
        self._completed_commits: deque[CommitOffsetsCall] = deque()
        self._accepted_offsets: deque[Offsets] = deque()
        """What the coordinator has accepted, until the interceptors are called."""
        self._errors: deque[ZkConsumerError] = deque()
        """Errors for the next call of the program."""
        self._fatal: ZkConsumerError | None = None
        self._is_closing = False
        self._is_stopped = False
        self._heartbeat_thread = HeartbeatThread(f"{name}-heartbeat", self, clock, self._on_thread_error, start_thread)

    # --- the machine --------------------------------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        """Let the machine handle an event, after those that are being handled."""
        with self._lock:
            if isinstance(self._fatal, InternalError):
                return
            self._events.append(event)
            if self._is_executing:
                return
            self._is_executing = True
            try:
                while self._events or self._commands:
                    if self._commands:
                        self._execute_first()
                    else:
                        now_ms = self._clock.now_ms()
                        self._commands.extend(self._machine.handle(self._events.popleft(), now_ms))
            except Exception as error:  # noqa: BLE001
                # The machine does not raise.  Without it no call may wait for its answers.
                self._break(InternalError(f"the member of group {self._config.group_id} failed: {error!r}"), error)
            finally:
                self._is_executing = False
        self._heartbeat_thread.wake_before(self.background_deadline_ms())
        if self.has_commands:
            self._client.wake_up_poller()

    def _execute_first(self) -> None:
        """Execute the oldest command, and remove it.

        A request is removed after it was sent: an exception of a signal handler lets the next event send it again.  The
        machine waits for one response, and ignores a second one.
        """
        command = self._commands[0]
        if isinstance(command, cmd.Send):
            self._execute(command)
            self._commands.popleft()
        else:
            self._commands.popleft()
            self._execute(command)

    def _break(self, failure: InternalError, cause: BaseException) -> None:
        """An error that is a bug ends the member: later calls raise it, and ``close`` does not wait."""
        failure.__cause__ = cause
        self._fatal = self._fatal or failure
        self._is_stopped = True
        self._events.clear()
        self._commands.clear()
        for call in self._calls.values():
            self._fail_call(call, failure)
        self._calls.clear()

    def _fail_call(self, call: CommitOffsetsCall | CommittedOffsetsCall, failure: InternalError) -> None:
        call.fail(failure)
        if isinstance(call, CommitOffsetsCall) and call.callback is not None:
            self._completed_commits.append(call)

    def _execute(self, command: cmd.Command) -> None:
        match command:
            case cmd.DisconnectCoordinator() if self._is_closing:
                pass  # LeaveGroup may not be written yet; all connections are closed soon
            case cmd.Send() | cmd.ConnectCoordinator() | cmd.DisconnectCoordinator():
                self._send_count += isinstance(command, cmd.Send)
                self._requests.execute(command)
            case cmd.SetMemberTimer(kind, deadline_ms):
                self._deadlines[kind] = deadline_ms
            case cmd.CancelMemberTimer(kind):
                self._deadlines.pop(kind, None)
            case cmd.CommitDone(number, error, refused):
                self._end_commit(number, error or next(iter(refused.values()), None))
            case cmd.FetchDone(number, offsets, error):
                call = self._calls.pop(number, None)
                if isinstance(call, CommittedOffsetsCall):
                    call.end(offsets, error)
            case cmd.NeedMetadata(topics):
                self._need_metadata(topics)
            case cmd.Raise(error, is_fatal):
                if is_fatal:
                    self._fatal = error
                else:
                    self._errors.append(error)
            case cmd.MemberStopped():
                self._is_stopped = True
            case cmd.LogMemberEvent():
                self.metrics.count_event(command, self._clock.now_ms())
                if command.name == "joining" and self._subscriptions.has_pattern_subscription:
                    # Topics that match and are new: this member joins once more for them.
                    self._metadata.request_update()
                level = logging.getLevelNamesMapping()[level_of(command)]
                if log.isEnabledFor(level):
                    line, _, rest = text_of(command).partition(" ")
                    log.log(level, "%s %s", line, rest)
            case Drain() | CollectPositions() | cmd.Invoke() | cmd.StartPartitions():
                self._program_commands.append(command)

    def _end_commit(self, number: int, error: ZkConsumerError | None) -> None:
        call = self._calls.pop(number, None)
        if isinstance(call, CommitOffsetsCall):
            call.end(error)
            if call.callback is not None or error is not None:
                self._completed_commits.append(call)

    def _new_number(self, call: CommitOffsetsCall | CommittedOffsetsCall) -> int:
        """Below zero: the numbers of the machine's own commits are above."""
        with self._lock:
            self._call_count += 1
            if isinstance(self._fatal, InternalError):
                self._fail_call(call, self._fatal)  # the machine handles nothing any more
            else:
                self._calls[-self._call_count] = call
            return -self._call_count

    # --- requests -----------------------------------------------------------------------------------------------------

    def _on_answer(
        self, event: ev.Responded | ev.RequestFailed, command: cmd.Send, response: ClientResponse | None, _: int
    ) -> None:
        if response is not None:
            self.metrics.record_response(command.api_key, response)
            if command.api_key == OFFSET_COMMIT.key:
                self._note_accepted_offsets(command, response)
        self._feed(event)

    def _note_accepted_offsets(self, command: cmd.Send, response: ClientResponse) -> None:
        if not self._interceptors:
            return
        rejected = {
            TopicPartition(topic.name, row.partition_index)
            for topic in response.body.topics
            for row in topic.partitions
            if row.error_code
        }
        accepted = {
            tp: to_offset_and_metadata(
                ev.Offset(row.committed_offset, row.committed_leader_epoch, row.committed_metadata)
            )
            for topic in command.body.topics
            for row in topic.partitions
            if (tp := TopicPartition(topic.name, row.partition_index)) not in rejected
        }
        if accepted:
            self._accepted_offsets.append(accepted)

    # --- metadata -----------------------------------------------------------------------------------------------------

    def _need_metadata(self, topics: frozenset[str] | None) -> None:
        """The machine needs the partitions of these: this member's topics, and of all members while it leads."""
        if topics is None or not self._subscriptions.has_auto_assigned_partitions:
            return
        self._subscriptions.group_subscribe(topics)
        known = self._metadata.fetch().topics
        if not topics <= known:
            self._metadata.request_update_for_new_topics()
        self._metadata_version = -1
        self._report_metadata()  # what is known

    def _report_metadata(self) -> None:
        """Pass a new state of the metadata to the machine.

        Another thread may update the metadata meanwhile.  It writes in the opposite order (``Metadata.update``), so
        what is read here is never older than its version, and the next call reports a newer one.
        """
        with self._lock:  # also while the machine handles it: two threads must not report in the wrong order
            version = self._metadata.update_version
            if version == self._metadata_version or not self._subscriptions.has_auto_assigned_partitions:
                return
            self._metadata_version = version
            is_update_requested = self._metadata.update_requested
            cluster = self._metadata.fetch()
            wanted = self._subscriptions.metadata_topics()
            # A topic that is missing counts as one that does not exist only if no request for it is on its way.
            asked = wanted & cluster.topics if is_update_requested else wanted
            counts = {topic: cluster.partition_count_for_topic(topic) or 0 for topic in asked & cluster.topics}
            racks: dict[TopicPartition, frozenset[str]] = {}
            if self._config.client_rack is not None:
                racks = {
                    TopicPartition(topic, one.partition): frozenset(node.rack for node in one.replicas if node.rack)
                    for topic in counts
                    for one in cluster.partitions_for_topic(topic)
                }
            self._feed(ev.MetadataUpdated(counts, asked, racks))

    def _update_pattern_subscription(self) -> None:
        """The topics that match the pattern, from new metadata; a pattern without a match joins the group, too."""
        if not self._subscriptions.has_pattern_subscription or self._metadata.last_successful_update_ms is None:
            return
        version = self._metadata.update_version
        if version == self._pattern_version:
            return
        self._pattern_version = version
        matches = self._subscriptions.matches_subscribed_pattern
        topics = self._metadata.pattern_topics()
        if self._subscriptions.subscribe_from_pattern(topics) or not self._has_pattern_topics:
            self._has_pattern_topics = True
            self._feed(ev.Subscribed(topics, matches))

    # --- the subscription ---------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """The subscription has changed (``SubscriptionState``); a pattern has its topics after the next metadata."""
        if self._subscriptions.has_pattern_subscription:
            # What is known has the topics of the former subscription only: the member would join twice.
            self._pattern_version = self._metadata.update_version
            self._has_pattern_topics = False
        else:
            self._feed(ev.Subscribed(self._subscriptions.subscription()))
        self._heartbeat_thread.start()

    def unsubscribe(self, timer: Timer) -> None:
        """Leave the group: commit if that is automatic, call the listener, send LeaveGroup.

        Raises the exception of the listener afterwards.  Inside of the listener it does not wait: the member leaves
        when the listener returns.
        """
        self._errors.clear()  # they are about the membership that ends
        self._feed(ev.Unsubscribed())
        if self.is_in_callback:
            return
        errors: list[Exception] = []
        while self._machine.exit is Exit.UNSUBSCRIBING and not timer.is_expired:
            self._try(self.run_commands, errors)
            self._try(partial(self._wait, timer, is_wakeup_disabled=True), errors)
        self._try(self.run_commands, errors)
        self._try(self._client.poll_no_wakeup, errors)
        if self._machine.exit is Exit.UNSUBSCRIBING:
            log.warning(
                "unsubscribe-timed-out group=%s timeout_ms=%d: the coordinator removes this member after "
                "session.timeout.ms", self._config.group_id, timer.timeout_ms,
            )  # fmt: skip
        if errors:
            raise errors[0]
        if self._errors:
            raise self._errors.popleft()  # of the listener

    def commit_if_due(self) -> None:
        """Begin an automatic commit, if one is due."""
        self._run_timers()
        self.run_commands()

    def enforce_rebalance(self, reason: str) -> None:
        """Join again (2.6, KIP-568); the next ``poll`` calls the listener."""
        self._feed(ev.RejoinAsked(reason))

    @property
    def generation(self) -> Generation:
        """The present generation of this member."""
        return self._machine.generation

    # --- polls --------------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """What a call of ``poll`` does for the group; never waits.

        Raises errors of the group, of the listener and of the coordinator.
        """
        self.invoke_completed_offset_commit_callbacks()
        self._update_pattern_subscription()
        self._report_metadata()
        if self._subscriptions.has_auto_assigned_partitions:
            self._check_connection()
        self._called_ms = now_ms = self._clock.now_ms()
        if now_ms - self._reported_call_ms >= CALL_REPORT_MS or not self._machine.is_settled:
            self._reported_call_ms = now_ms
            self._feed(ev.Polled())
        self._run_timers()
        self.run_commands()
        self.raise_error()

    def note_call(self, now_ms: int) -> bool:
        """Note a call of the program's ``poll`` at this time; False: ``poll`` here must be called now.

        True: it would at most fire a timer, or report something that it can also report some milliseconds later.
        """
        if self.has_commands or self._completed_commits or self._accepted_offsets:
            return False
        self._called_ms = now_ms
        return True

    @property
    def has_commands(self) -> bool:
        """Whether ``run_commands`` has work; no record may be returned before."""
        return bool(self._program_commands or self._errors or self._fatal)

    def time_to_next_poll_ms(self) -> int:
        """How long ``poll`` may wait for the network before it must be called again."""
        return 0 if self.has_commands else self._time_to_deadline_ms()

    def _time_to_deadline_ms(self) -> int:
        with self._lock:
            deadline_ms = min(self._deadlines.values(), default=FOREVER_MS)
        return max(0, deadline_ms - self._clock.now_ms())

    def raise_error(self) -> None:
        """Raise the error that ended this member, or the oldest that was not raised yet."""
        if self._fatal is not None:
            raise self._fatal
        if self._errors:
            raise self._errors.popleft()

    def poll_in_background(self) -> None:
        """See ``BackgroundWork``."""
        try:
            self._check_connection()
            self._run_timers()
            count = self._send_count
            self._client.poll_no_wakeup()
            self._report_metadata()
            if self._send_count != count:
                # What the answers have caused: the next poll is retry.backoff.ms later.
                self._client.transmit_sends(self._clock.now_ms())
        except ZkConsumerError as error:
            # The program's thread raises it, as if its own poll had found it.  One is enough: a program that works for
            # a minute would get the same error hundreds of times.
            if not self._errors:
                self._errors.append(error)
            self._client.wake_up_poller()

    def background_deadline_ms(self) -> int | None:
        """See ``BackgroundWork``."""
        with self._lock:
            deadlines = [self._deadlines[kind] for kind in _IN_BACKGROUND if kind in self._deadlines]
            if self._machine.pending_commands.in_flight:
                deadlines.append(self._clock.now_ms() + self._config.retry_backoff_ms)
        return min(deadlines, default=None)

    def _check_connection(self) -> None:
        """Report a connection to the coordinator that broke while no request was in flight."""
        found = self._machine.coordinator_discovery.coordinator
        lost = None if found is None else self._requests.lost_connection(found.id)
        if lost is not None:
            self._feed(lost)

    def _run_timers(self) -> None:
        with self._lock:
            now_ms = self._clock.now_ms()
            if (
                self._called_ms != self._reported_call_ms
                and min(self._deadlines.values(), default=FOREVER_MS) <= now_ms
            ):
                self._reported_call_ms = self._called_ms
                self._feed(ev.Polled(self._called_ms))
            due = [(kind, at) for kind, at in self._deadlines.items() if at <= now_ms]
            for kind, _ in due:
                del self._deadlines[kind]
        for kind, at in due:
            self._feed(ev.MemberTimerFired(kind, at))

    def _wait(self, timer: Timer, condition: Any = None, *, is_wakeup_disabled: bool = False) -> None:
        """Poll the network until something happens, a timer of the machine is due, or ``timer`` expires."""
        step = Timer(self._clock, min(self._time_to_deadline_ms(), timer.remaining_ms, WAIT_STEP_MS))
        try:
            self._client.poll(step, condition, is_wakeup_disabled=is_wakeup_disabled)
        finally:
            self._report_metadata()
            self._run_timers()
            timer.update()

    # --- commands for the program's thread ----------------------------------------------------------------------------

    def run_commands(self) -> None:
        """Execute the commands about positions and callbacks; not inside a callback, which is one of them."""
        if self._is_running_commands:
            return
        self._is_running_commands = True
        try:
            while self._program_commands:
                self._run_command(self._program_commands[0])
        finally:
            self._is_running_commands = False

    @property
    def is_in_callback(self) -> bool:
        """Whether the rebalance listener is being called."""
        return self._is_running_commands

    def _run_command(self, command: cmd.Command) -> None:
        """Execute the oldest command, and remove it at the end.

        An exception of a signal handler before that lets the next call execute it again: the machine waits for its
        answer, and ignores a second one.
        """
        match command:
            case Drain(partitions):
                self._subscriptions.mark_pending_revocation(
                    [tp for tp in partitions if self._subscriptions.is_assigned(tp)]
                )
                self._program_commands.popleft()
            case CollectPositions():
                consumed = self._subscriptions.all_consumed()
                self._feed(ev.OffsetsCollected({tp: to_offset(one) for tp, one in consumed.items()}))
                self._program_commands.popleft()
            case cmd.Invoke():
                self._invoke(command)
            case cmd.StartPartitions():
                # The assignment is there already, so that the callback could seek.
                self._program_commands.popleft()

    def _invoke(self, command: cmd.Invoke) -> None:
        if command.callback is Callback.ASSIGNED:
            # Before the callback, which may seek.
            self._assign(self._subscriptions.assigned_partitions() | command.partitions)
        error: Exception | None = None
        try:
            started_ms = self._clock.now_ms()
            self._call_listener(command.callback, command.partitions)
            self.metrics.record_callback(command.callback, self._clock.now_ms() - started_ms)
        except WakeupException:
            raise
        except Exception as raised:
            name = _LISTENER_METHODS[command.callback]
            log.error(
                "listener-raised: User provided listener failed on invocation of %s for partitions %s",
                name, sorted(map(str, command.partitions)), exc_info=True,
            )  # fmt: skip
            error = raised
        finally:
            # Also after an exception inside the callback that is not the program's, such as KeyboardInterrupt.
            if command.callback is not Callback.ASSIGNED:
                self._assign(self._subscriptions.assigned_partitions() - command.partitions)
            self._feed(ev.CallbackDone(command.number, error=error))
            self._program_commands.popleft()

    def _call_listener(self, callback: Callback, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscriptions.rebalance_listener
        if listener is None:
            return
        method = getattr(listener, callback.value, None)
        if method is None:
            assert callback is Callback.LOST, "the other methods are part of the Protocol"
            method = listener.on_partitions_revoked
        method(sorted(partitions))

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self._subscriptions.has_auto_assigned_partitions:
            self._subscriptions.assign_from_subscribed(sorted(partitions))

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offsets_sync(self, offsets: Offsets, timer: Timer) -> None:
        """Commit, with retries.

        ``TimeoutException``: the timer expired, and the offsets may be committed later; or there is no time for another
        attempt, and its cause is the error of the last one.  Without time the request is sent once, as in Java.
        """
        self.invoke_completed_offset_commit_callbacks()
        if not offsets:
            return
        call = self._commit(offsets, None, is_retried=True, timeout_ms=max(1, timer.remaining_ms))
        while not call.is_done:
            self._wait(timer, call)
            if timer.is_expired:
                break
        self.invoke_completed_offset_commit_callbacks()
        timer.update()
        is_out_of_time = timer.is_expired or (call.error is not None and call.error.__cause__ is not None)
        if not call.is_done or (is_out_of_time and isinstance(call.error, RetriableCommitFailedException)):
            raise TimeoutException(
                f"Timeout of {timer.timeout_ms}ms expired before successfully committing offsets {offsets}"
            ) from call.error
        if call.error is not None:
            raise call.error

    def commit_offsets_async(self, offsets: Offsets, callback: OffsetCommitCallback | None) -> None:
        """Commit without waiting and without retries; ``callback`` is called by a later call of the program."""
        self.invoke_completed_offset_commit_callbacks()
        call = self._commit(offsets, callback, is_retried=False, timeout_ms=self._config.default_api_timeout_ms)
        if not call.is_done:
            self._client.poll_no_wakeup()

    def _commit(
        self, offsets: Offsets, callback: OffsetCommitCallback | None, *, is_retried: bool, timeout_ms: int
    ) -> CommitOffsetsCall:
        call = CommitOffsetsCall(dict(offsets), callback)
        number = self._new_number(call)
        self._feed(ev.CommitAsked(number, {tp: to_offset(one) for tp, one in offsets.items()}, is_retried, timeout_ms))
        return call

    def invoke_completed_offset_commit_callbacks(self) -> None:
        """Call the interceptors and the callbacks of the commits that have ended."""
        while self._accepted_offsets:
            self._interceptors.on_commit(self._accepted_offsets.popleft())
        while self._completed_commits:
            call = self._completed_commits.popleft()
            if call.callback is not None:
                call.callback(call.offsets, call.error)

    def ask_committed_offsets(self, partitions: Collection[TopicPartition]) -> CommittedOffsetsCall:
        """Begin to look up committed offsets."""
        call = CommittedOffsetsCall(frozenset(partitions))
        self._feed(ev.FetchAsked(self._new_number(call), call.partitions))
        return call

    def wait_for_committed_offsets(self, call: CommittedOffsetsCall, timer: Timer) -> bool:
        """Wait for the look-up; returns whether it has ended."""
        while not call.is_done and not timer.is_expired:
            self._wait(timer, call)
        return call.is_done

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self, timer: Timer) -> None:
        """Commit if that is automatic, call the listener, leave the group, and end the heartbeat thread.

        When there is no time for the answers, the last commit and LeaveGroup are sent without waiting.  Raises the
        first error after all steps: that of the listener, or of the network.
        """
        self._errors.clear()  # they are about the membership that ends
        self._is_closing = True
        errors: list[Exception] = []
        try:
            self._leave(timer, errors)
        finally:
            self._heartbeat_thread.close(THREAD_END_MS)
        errors += self._errors
        if errors:
            raise errors[0]

    def _leave(self, timer: Timer, errors: list[Exception]) -> None:
        is_member = self._subscriptions.has_auto_assigned_partitions
        if self._config.enable_auto_commit and (timer.is_expired or not is_member):
            self._try(partial(self._commit_at_close, timer), errors)
        timer.update()
        self._feed(ev.Closed(leave=True, timeout_ms=timer.remaining_ms))
        while not self._is_stopped:
            self._try(self.run_commands, errors)
            self._try(partial(self._wait, timer, is_wakeup_disabled=True), errors)
            timer.update()
            if timer.is_expired and not self._is_stopped:
                self._feed(ev.MemberTimerFired(TimerKind.CLOSE, self._clock.now_ms()))
                break
        self._try(self.run_commands, errors)
        self._try(self._client.poll_no_wakeup, errors)
        self._try(self.invoke_completed_offset_commit_callbacks, errors)

    def _commit_at_close(self, timer: Timer) -> None:
        consumed = self._subscriptions.all_consumed()
        try:
            if timer.is_expired:
                self.commit_offsets_async(consumed, None)
            else:
                self.commit_offsets_sync(consumed, timer)
        except ZkConsumerError as error:
            offsets = offsets_text({tp: to_offset(one) for tp, one in consumed.items()})
            log.warning(
                "revocation-commit-failed: Synchronous auto-commit of offsets %s failed: %s reason=%r",
                offsets, error, str(error),
            )  # fmt: skip

    @staticmethod
    def _try(step: Callable[[], None], errors: list[Exception]) -> None:
        """Run one step of the end; its error does not keep the others from running."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised by ``close``
            errors.append(error)

    def _on_thread_error(self, name: str, error: BaseException) -> None:
        with self._lock:
            self._break(InternalError(f"the thread {name} ended with {error!r}"), error)
        self._client.wake_up_poller()


_IN_BACKGROUND = (TimerKind.HEARTBEAT, TimerKind.SESSION, TimerKind.POLL, TimerKind.BACKOFF, TimerKind.REBALANCE)
"""The deadlines that the heartbeat thread keeps; automatic commits need the program's positions."""

_LISTENER_METHODS: Mapping[Callback, str] = {
    Callback.REVOKED: "onPartitionsRevoked",
    Callback.ASSIGNED: "onPartitionsAssigned",
    Callback.LOST: "onPartitionsLost",
}
