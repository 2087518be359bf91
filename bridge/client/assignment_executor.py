"""Executes partition commands of the state machine: starts and drains the partitions of a processor, step by step.

    command of the machine    what it causes, in this order
    Drain                     drain the partitions; after rebalance.drain.timeout.ms ForceDrain
    CollectPositions          (wait for the drain) read the positions; event PositionsCollected
    Invoke REVOKED            (wait for the drain) call the listener; drop the partitions; event CallbackDone
    Invoke LOST               drop the partitions; call the listener, and do not wait for its return; CallbackDone
    Invoke ASSIGNED           (wait for the drain) call the listener; event CallbackDone
    StartPartitions           event FetchAsked; the machine answers with FetchDone; start the partitions

CollectPositions, REVOKED and ASSIGNED are *steps*: they wait in a queue for the end of a drain and for the return of
the listener, and keep their order.  All methods run on the control thread.

A call of the listener that takes longer than ``rebalance.listener.timeout.ms`` is *late*: its step continues without
it, and skips its other calls.  If the start call was skipped, the listener is called with the present partitions when
the late call has returned (as in a ZooKeeper group: ``zkconsumer.member.listener_state_machine``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from zkconsumer.errors import UsageError
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as cev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.kafka_text_forms import offset_text, partition_text, position_text
from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.partition_releaser import DROP_REASON_RELEASED
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.stream_assignor import StreamAssignor
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.ownership import PartitionProcessor
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.runtime.listener_calls import ListenerCalls
    from zkconsumer.runtime.member_observer import MemberObserver

UNKNOWN = -1
START_CALL = "before_starting_fetchers"
PARTITION_LOST_REASON = "the group has assigned it to another member, or may have"

log = logging.getLogger("zkconsumer.member")


class AssignmentWait(Enum):
    """A wait with a deadline."""

    DRAIN = "drain"
    LISTENER = "listener"
    POSITIONS = "positions"


@dataclass(frozen=True, slots=True)
class AssignmentLimits:
    """The limits in ms; ``positions_ms``: the pause before the coordinator is asked for offsets again.

    ``new_from_beginning``: ``new.partitions.from.beginning``.
    """

    drain_ms: int
    listener_ms: int
    positions_ms: int
    new_from_beginning: bool


class AssignmentExecutor:
    """Executes the commands for one member.

    ``feed``: submits an event to the machine.  ``wait``: starts a timer that calls ``fired`` after so many ms; None
    stops it.  ``assignment_complete``: called when all owned partitions run.  ``refused``: called when the coordinator
    denies the committed offsets, so that a retry cannot succeed.
    """

    def __init__(
        self,
        spread: StreamAssignor,
        limits: AssignmentLimits,
        listener: ListenerCalls,
        *,
        observing: MemberObserver,
        feed: Callable[[cev.Event], None],
        wait: Callable[[AssignmentWait, int | None], None],
        assignment_complete: Callable[[], None],
        refused: Callable[[ZkConsumerError], None],
    ) -> None:
        self.processor: PartitionProcessor
        self.subscription: TopicSubscription | None = None
        self.is_closing = False
        self._spread = spread
        self._limits = limits
        self._listener = listener
        self._observing = observing
        self._feed = feed
        self._wait = wait
        self._share_held = assignment_complete
        self._refused = refused
        self._running: dict[TopicPartition, str] = {}
        """Running partitions and their threads, including those that drain."""
        self._awaiting_offsets: dict[TopicPartition, str] = {}
        """Owned partitions that do not run yet, and their threads: their committed offsets are requested."""
        self._new: frozenset[TopicPartition] = frozenset()
        """Those of them that were created while we were in the group."""
        self._generation = UNKNOWN
        self._asked: dict[int, frozenset[TopicPartition]] = {}
        """The requests for committed offsets without an answer: number -> partitions."""
        self._questions = 0
        """The number of the last of these requests."""
        self._stored: dict[TopicPartition, int] = {}
        """The committed offset from which each partition was started."""
        self._draining: set[TopicPartition] = set()
        self._moving: set[TopicPartition] = set()
        """Draining partitions that stay with this member and get another thread; no step waits for their drain."""
        self._drained: dict[TopicPartition, int] = {}
        """Drained partitions that leave this member, and their positions."""
        self._steps: deque[Callable[[], bool]] = deque()
        """Steps that wait for a drain or for the listener; each returns whether the next one may run at once."""
        self._listener_calls: deque[tuple[str, Callable[[], None]]] = deque()
        """The calls of the listener (name, function) that the running step has still to make."""
        self._calling = ""
        """The latest call of the listener."""
        self._is_listening = False
        """Whether the program's listener has not returned yet, also after its time limit."""
        self._then: Callable[[], None] | None = None
        """The rest of the running step, after its last call of the listener; None: no step waits for the listener."""
        self._was_told_of_release = False
        """Whether the listener was called for a release in this rebalance: it is called once also without one."""
        self._has_missed_start = False
        """Whether a start call was skipped because an earlier call was late, and none was made since."""
        self._started: set[TopicPartition] = set()
        """The partitions that the listener counts as ours: a start named them, and no release since."""
        self._why_ended = ""
        """The error that ended the member, as text; "" without one."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Owned partitions that run, or start soon."""
        return frozenset(self._running) | frozenset(self._awaiting_offsets)

    @property
    def running(self) -> frozenset[TopicPartition]:
        """The running partitions."""
        return frozenset(self._running)

    # --- commands of the machine --------------------------------------------------------------------------------

    def drain(self, command: ownership.Drain) -> None:
        """Stop the delivery of records of these: those that run and do not drain already."""
        for tp in command.partitions:
            self._awaiting_offsets.pop(tp, None)
        self._moving.difference_update(command.partitions)
        inactive = self._draining | self._drained.keys()
        self._begin_drain([tp for tp in command.partitions if tp in self._running and tp not in inactive])

    def _begin_drain(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        self._draining.update(partitions)
        self.processor.execute(ownership.Drain(tuple(partitions)))
        self._wait(AssignmentWait.DRAIN, self._limits.drain_ms)

    def collect_positions(self) -> None:
        """Report the consumed offsets, once all leaving partitions are drained."""

        def step() -> bool:
            self.processor.execute(ownership.CollectPositions())
            return True

        self._put(step)

    def invoke(self, command: cmd.Invoke) -> None:
        """Call the program's listener, and then report the end of the call to the machine."""
        match command.callback:
            case Callback.REVOKED:
                self._put(lambda: self._revoke(command))
            case Callback.LOST:
                self._lose(command.partitions, self._why_ended or PARTITION_LOST_REASON)
                self._feed(cev.CallbackDone(command.number))
                self._advance()
            case Callback.ASSIGNED:
                self._put(lambda: self._assigned(command))

    def start_fetching(self, command: cmd.StartPartitions) -> None:
        """We own these; request their committed offsets."""
        self._generation = command.generation
        threads = self._threads(command.partitions)
        assert threads.keys() >= command.partitions, "only topics with a stream are assigned to this member"
        self._awaiting_offsets.update({tp: str(threads[tp]) for tp in command.partitions})
        self._new = (self._new & self._awaiting_offsets.keys()) | command.new
        self._ask()
        self._move(threads)

    def _threads(self, more: frozenset[TopicPartition]) -> dict[TopicPartition, ConsumerThreadId]:
        if self.subscription is None:
            return {}
        return self._spread.threads(self.subscription, self.partitions | more)

    def fetched(self, command: cmd.FetchDone) -> bool:
        """Committed offsets of some of them: start, or ask again after a pause.  False: not requested by this
        object."""
        if command.number not in self._asked:
            return False
        asked = self._asked.pop(command.number) & self._awaiting_offsets.keys()
        if isinstance(command.error, UsageError):
            if asked:
                self._refused(command.error)
            return True
        if command.error is not None:
            if asked:
                log.warning("offset-fetch-failed partitions=%d reason=%r: retried", len(asked), str(command.error))
                self._wait(AssignmentWait.POSITIONS, self._limits.positions_ms)
            return True
        known = {tp: command.offsets.get(tp) for tp in sorted(asked)}
        self._log_positions(command.offsets, known)
        if not asked:
            return True  # revoked or lost meanwhile: the next assignment is announced when it is complete
        self.processor.execute(
            ownership.StartFetching(
                {tp: self._start(tp) if stored is None else stored.offset for tp, stored in known.items()},
                {tp: self._awaiting_offsets[tp] for tp in known},
                {tp: OffsetSource.NEITHER if stored is None else OffsetSource.KAFKA for tp, stored in known.items()},
                dict.fromkeys(known, self._generation),
            )
        )
        for tp, stored in known.items():
            self._running[tp] = self._awaiting_offsets.pop(tp)
            self._stored[tp] = UNKNOWN if stored is None else stored.offset
        self._announce()
        return True

    def _log_positions(
        self, offsets: Mapping[TopicPartition, cev.Offset | None], known: Mapping[TopicPartition, cev.Offset | None]
    ) -> None:
        for tp, stored in sorted(offsets.items()):
            if stored is not None and tp in known:
                log.info(
                    "position-from-committed-offset: Setting offset for partition %s to the committed offset %s "
                    "partition=%s offset=%d",
                    partition_text(tp),
                    position_text(stored),
                    tp,
                    stored.offset,
                )
            elif stored is not None:
                log.info(
                    "committed-offset-ignored: Ignoring the returned %s since its partition %s is no longer assigned "
                    "partition=%s",
                    offset_text(stored),
                    partition_text(tp),
                    tp,
                )

    def _start(self, tp: TopicPartition) -> int:
        """The starting position of a partition without a committed offset."""
        return ownership.BEGINNING if self._limits.new_from_beginning and tp in self._new else UNKNOWN

    def _ask(self) -> None:
        on_its_way = frozenset[TopicPartition]().union(*self._asked.values())
        unknown = frozenset(self._awaiting_offsets) - on_its_way
        if unknown:
            self._questions += 1
            self._asked[self._questions] = unknown
            self._feed(cev.FetchAsked(self._questions, unknown))

    def _announce(self) -> None:
        if not self._awaiting_offsets:
            self._observing.command_executed(do.AnnounceAssignment(len(self._running)))
            self._share_held()

    def close(self) -> None:
        """The program closes: its listener is not called any more, unless an error ended the member before."""
        if not self._why_ended:
            self.is_closing = True
            self._started.clear()

    def end(self, error: ZkConsumerError) -> None:
        """An error ends the member.

        The machine still releases the partitions of this member: the listener is called about them first, as in a
        rebalance.  Partitions that cannot be released are lost.  (Java's consumer does the same when it is closed after
        an error.)
        """
        if not self.is_closing:
            self._why_ended = f"an error ended the member: {error}"

    def stopped(self) -> None:
        """The machine has stopped.  Partitions that it did not release in time are lost, if an error ended the
        member."""
        if not self._why_ended:
            return
        if self._then is not None:
            self._listener_done()
        self._lose(self.partitions | self._started, self._why_ended)

    def _lose(self, partitions: frozenset[TopicPartition], why: str) -> None:
        self._drop(partitions, why)
        lost = tuple(sorted(self._started & partitions))
        self._started.difference_update(lost)
        if lost:
            self._listener.call_partitions_lost(do.CallPartitionsLost(lost))

    # --- callbacks of the partition processor -------------------------------------------------------------------

    def on_offset_reset(self, event: ownership.OffsetReset) -> bool:
        """A broker does not have the committed offset: logs it and the new one, if an offset was committed."""
        tp, stored = event.partition, self._stored.get(event.partition, UNKNOWN)
        if stored < 0:
            return False
        words = f"partition={tp} stored={stored} is out of range; continuing at {event.offset}"
        log.warning("offset-reset %s", words)
        self._observing.command_executed(do.LogEvent("WARNING", "offset-reset", words, (tp, stored, event.offset)))
        return True

    def drained(self, event: ownership.PartitionsDrained) -> None:
        """These are drained: they leave this member, or change to another thread."""
        arrived = {tp: position for tp, position in event.positions.items() if tp in self._draining}
        self._draining -= arrived.keys()
        moved = self._moving & arrived.keys()
        self._moving -= moved
        self._drained |= {tp: position for tp, position in arrived.items() if tp not in moved}
        if moved:
            threads = self._threads(frozenset())
            targets = {tp: str(threads[tp]) for tp in sorted(moved)}
            self._running.update(targets)
            self.processor.execute(ownership.MoveToThread(targets, dict.fromkeys(targets, self._generation)))
        if not self._draining:
            self._wait(AssignmentWait.DRAIN, None)
        self._advance()

    def collected(self, event: ownership.PositionsCollected) -> None:
        """The consumed offsets of running partitions; those of drained ones are known from the drain."""
        positions = {**event.positions, **self._drained}
        self._feed(ownership.PositionsCollected(positions))

    def fired(self, what: AssignmentWait) -> None:
        """A wait has reached its deadline."""
        match what:
            case AssignmentWait.DRAIN if self._draining:
                command = ownership.ForceDrain(tuple(sorted(self._draining)))
                self._observing.command_executed(command)
                self.processor.execute(command)
            case AssignmentWait.POSITIONS:
                self._ask()
            case AssignmentWait.LISTENER:
                words = (
                    f"call={self._calling} timeout_ms={self._limits.listener_ms}: the rebalance continues without it "
                    "(rebalance.listener.timeout.ms)"
                )
                log.warning("listener-timeout member=%s %s", self._listener.member, words)
                self._observing.command_executed(do.LogEvent("WARNING", "listener-timeout", words))
                self._listener_done()
            case _:
                pass

    def listener_returned(self) -> None:
        """The program's listener has returned, in time or not."""
        self._is_listening = False
        self._wait(AssignmentWait.LISTENER, None)
        if self._listener_calls:
            self._call_listener()
        else:
            self._listener_done()
        if self._has_missed_start and self._then is None:
            self._has_missed_start = False
            self._put(self._report_partitions)

    # --- steps --------------------------------------------------------------------------------------------------

    def _put(self, step: Callable[[], bool]) -> None:
        self._steps.append(step)
        self._advance()

    def _advance(self) -> None:
        while self._steps and not self._draining - self._moving and self._then is None:
            if not self._steps.popleft()():
                return

    def _revoke(self, command: cmd.Invoke) -> bool:
        def done() -> None:
            self._started -= command.partitions
            self._drop(command.partitions, DROP_REASON_RELEASED)
            self._feed(cev.CallbackDone(command.number))

        self._was_told_of_release = True
        return self._call_listener_then(done, self._release_call(command.partitions))

    def _assigned(self, command: cmd.Invoke) -> bool:
        def done() -> None:
            self._feed(cev.CallbackDone(command.number))
            if not command.partitions:
                self._move(self._threads(frozenset()))
                self._announce()

        if self._why_ended:
            done()
            return True
        first = [] if self._was_told_of_release else [self._release_call(frozenset())]
        self._was_told_of_release = False
        start = START_CALL, lambda: self._before_starting(command.partitions)
        return self._call_listener_then(done, *first, start)

    def _report_partitions(self) -> bool:
        """Make the start call that was skipped, for the partitions that this member owns now."""
        if self._why_ended:
            return True
        # The two calls alternate, also with those of the next rebalance.
        first = [self._release_call(frozenset())] if self._calling == START_CALL else []
        self._was_told_of_release = False
        start = START_CALL, lambda: self._before_starting(self.partitions)
        return self._call_listener_then(lambda: None, *first, start)

    def _release_call(self, partitions: frozenset[TopicPartition]) -> tuple[str, Callable[[], None]]:
        call = do.CallBeforeReleasing(0, tuple(sorted(partitions)))
        return "before_releasing_partitions", lambda: self._listener.call_before_releasing(call)

    def _call_listener_then(self, then: Callable[[], None], *calls: tuple[str, Callable[[], None]]) -> bool:
        """Call the listener, if it exists and must be called; returns whether ``then`` has run already."""
        if self._listener.listener is None or self.is_closing:
            then()
            return True
        self._then = then
        self._listener_calls = deque(calls)
        if not self._is_listening:
            self._call_listener()
        else:
            self._wait(AssignmentWait.LISTENER, self._limits.listener_ms)
        return False

    def _call_listener(self) -> None:
        self._is_listening = True
        self._wait(AssignmentWait.LISTENER, self._limits.listener_ms)
        self._calling, call = self._listener_calls.popleft()
        call()

    def _listener_done(self) -> None:
        """Continue the step: its calls have returned, or the first of them is late."""
        self._has_missed_start |= any(name == START_CALL for name, _ in self._listener_calls)
        self._listener_calls.clear()
        then, self._then = self._then, None
        if then is not None:
            then()
        self._advance()

    def _before_starting(self, added: frozenset[TopicPartition]) -> None:
        self._has_missed_start = False
        self._started |= self.partitions | added
        self._listener.call_before_starting(do.CallBeforeStarting(0, self._threads(added)))

    def _drop(self, partitions: frozenset[TopicPartition], why: str) -> None:
        for tp in partitions:
            self._awaiting_offsets.pop(tp, None)
            self._drained.pop(tp, None)
        self._draining -= partitions
        self._moving -= partitions
        gone = tuple(tp for tp in sorted(partitions) if self._running.pop(tp, None) is not None)
        for tp in gone:
            del self._stored[tp]
        if not gone:
            return
        if why != DROP_REASON_RELEASED:
            log.warning(
                "partitions-lost partitions=%d first=%s: records since the last commit are read again",
                len(gone),
                gone[0],
            )
        command = ownership.DropPartitions(gone, why)
        self.processor.execute(command)
        self._observing.command_executed(command)

    def _move(self, threads: Mapping[TopicPartition, ConsumerThreadId]) -> None:
        """Drain the partitions that another thread of ours gets, and then move them; those that do not run yet start
        there."""
        self._awaiting_offsets.update({tp: str(threads[tp]) for tp in self._awaiting_offsets if tp in threads})
        movers = [
            tp
            for tp, thread in sorted(threads.items())
            if self._running.get(tp, str(thread)) != str(thread)
            and tp not in self._draining
            and tp not in self._drained
        ]
        self._moving.update(movers)
        self._begin_drain(movers)
