"""When the program's rebalance listener is called: two alternating calls, each with a deadline.

   IDLE ----ReleaseCallStarted----> CALLING_RELEASE
   CALLING_RELEASE --ListenerCallDone----> RELEASE_CALLED
   CALLING_RELEASE --ListenerCallFailed--> IDLE
   RELEASE_CALLED --ReleaseCallStarted---> CALLING_RELEASE
   RELEASE_CALLED --StartCallStarted-----> CALLING_START
   CALLING_START --ListenerCallDone------> IDLE
   CALLING_START --ListenerCallFailed----> RELEASE_CALLED
   any state --ListenerReset-------------> IDLE

The order is fixed: partitions are drained before the release call; the release call precedes the commit and the
release; partitions are acquired before the start call; the start call precedes reading the positions and fetching.
``IDLE`` means that the listener received the present assignment of the group, ``RELEASE_CALLED`` that it received the
released partitions and not yet the new assignment.

Partitions can be lost without a release: the session ended, an owner node was deleted, the member has ended.  Then
``on_partitions_lost`` is called, and nothing waits for its return.

The listener is never called while an earlier call has not returned.  A call that takes longer than
``rebalance.listener.timeout.ms`` counts as done and is *late*.  Until it returns, other calls are skipped; afterwards
the group is read again and the listener is called with the present state.

A running call survives the end of the session, because the program's thread cannot be interrupted; the first call of
the next session waits for it, at most once more the timeout.

What waits for this machine: the release of a drained partition (``may_release``), the acquire step
(``needs_release_call``), and the read of the positions (``is_blocking_rebalance``).  The fixed order lets a program
commit its work in the release call, while it still owns the partitions and receives no more records of them; a commit
after the release would be rejected (``the_listener_is_called_before_each_release_and_each_start.txt``,
``kafka_the_listener_is_called_before_the_last_commit.txt``).  The Scala consumer commits before it calls
``beforeReleasingPartitions``, and waits without a limit for its return.

The return of a call cannot be lost: it comes from a thread of this process.  A pause of the process can make the
timeout and the return arrive together, in either order; both orders are correct, and the later one is ignored or ends
the lateness (``a_listener_that_does_not_return_does_not_stop_the_rebalance.txt``).

An exception of the listener fails the attempt, as in the Scala consumer: a release call that failed is made again by
the next attempt, for the same partitions, and a start call that failed is preceded by a new release call
(``a_listener_that_raises_fails_the_attempt.txt``).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer
from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.member.state_machine import MachineEvent, StateMachine, TransitionTable, go_to, rows_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import ListenerReturned
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition


class ConsumerRebalanceListener(Protocol):
    """The argument of ``set_consumer_rebalance_listener`` (Kafka 0.9 and later).

    The two methods are called alternately, on a separate thread and never at the same time.  They may use
    ``commit_offsets``, ``close`` and ``assignment`` of the connector.  The rebalance waits for a call at most
    ``rebalance.listener.timeout.ms``.  In a ZooKeeper group an exception fails the rebalance attempt, which is repeated
    after a pause; in a coordinator group it is logged, and the rebalance continues.  ``close`` calls neither method.
    """

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        """These partitions will be released: they deliver no more records, and this member still owns them.

        Topic -> partitions.  Empty when none is released: before the first assignment, and when only the assignments
        of other members change.
        """

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        """This member owns its new partitions, and does not fetch them yet.

        Topic -> partition -> thread, of the whole group; under range only of the topics to which this member
        subscribes; in a coordinator group only of this member.
        """


@runtime_checkable
class PartitionsLostListener(ConsumerRebalanceListener, Protocol):
    """A ``ConsumerRebalanceListener`` that is also called for lost partitions, like Java's ``onPartitionsLost`` (2.4).

    A listener without this method is not called for lost partitions.
    """

    def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
        """This member does not own these any more, and ``before_releasing_partitions`` was not called for them.

        Topic -> partitions.  Another member may read them already, so a commit for them is rejected: discard
        unfinished work on them.  The rebalance does not wait for this call, but the next of the other two calls does.
        """


class ListenerState(Enum):
    """Which call of the listener is running or was made last."""

    IDLE = "idle"
    CALLING_RELEASE = "calling_release"
    RELEASE_CALLED = "release_called"
    CALLING_START = "calling_start"


class ReleaseCallStarted(MachineEvent):
    """``before_releasing_partitions`` is called."""


class StartCallStarted(MachineEvent):
    """``before_starting_fetchers`` is called."""


class ListenerCallDone(MachineEvent):
    """The call returned, or its timeout expired."""


class ListenerCallFailed(MachineEvent):
    """The call raised an exception."""


class ListenerReset(MachineEvent):
    """What the listener received is no longer valid: the session ended, or a call was skipped."""


CALLED_METHODS = {
    ListenerState.CALLING_RELEASE: "before_releasing_partitions",
    ListenerState.CALLING_START: "before_starting_fetchers",
}
"""The method of each state in which the rebalance waits for a call of this session."""


class ListenerStateMachine(StateMachine):
    """The calls of the program's listener; without one (``is_set`` False) no method here has an effect."""

    INITIAL = ListenerState.IDLE

    def __init__(
        self, partitions: Mapping[TopicPartition, PartitionStateMachine], new_ticket: Callable[[], int], timeout_ms: int
    ) -> None:
        super().__init__()
        self.is_set = False
        """The program has set a listener; never False again."""
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._timeout_ms = timeout_ms
        self._notified_assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None
        """The assignment that the listener received and that is still valid; None if the next one must be reported."""
        self._assignment_in_call: Mapping[TopicPartition, ConsumerThreadId] | None = None
        """What ``_notified_assignment`` becomes when the start call returns; None after a loss during the call."""
        self._partitions_in_call: tuple[TopicPartition, ...] = ()
        """The partitions of the last release call; they may be released when it has returned.  One that was lost during
        the call is still in it."""
        self._last_start_assignment: Mapping[TopicPartition, ConsumerThreadId] = {}
        """The assignment in the last ``before_starting_fetchers`` call of this session; empty when the program
        closes."""
        self._released_since_start: set[TopicPartition] = set()
        """The partitions of it for which a release call has returned since, or a lost call was made."""
        self._running_ticket: int | None = None
        """That of the call which has not returned, of this session or the one before."""
        self._is_late = False
        """That call has timed out; only with a running call."""
        self._has_missed = False
        """A call was skipped because of it, so the group must be read again when it returns."""
        self._awaits_return = False
        """The rebalance waits for a running call of the session before; only with a running call that is not late."""

    @property
    def is_blocking_rebalance(self) -> bool:
        """Whether the rebalance waits for the listener."""
        return self.state in CALLED_METHODS or self._awaits_return

    def needs_release_call(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> bool:
        """Whether a release call, possibly with no partitions, is needed before this assignment may be acquired.

        A program that keeps state for each assignment of the group receives every change of it, as with the Scala
        consumer; an attempt that ends with the assignment of the last start call makes no call.
        """
        return self.is_set and self.state is ListenerState.IDLE and assignment not in (None, self._notified_assignment)

    def may_release(self, held: PartitionStateMachine) -> bool:
        """Whether this partition may be released: the listener was called for it, or there is no listener."""
        return held.is_listener_notified or not self.is_set

    def skip_calls_on_close(self) -> None:
        """The program closes the connector: partitions are released without a call, as in the Scala consumer."""
        for held in self._partitions.values():
            held.is_listener_notified = True
        self._last_start_assignment = {}

    def on_ownership_lost(self, partitions: Mapping[TopicPartition, PartitionStateMachine]) -> list[Command]:
        """These were lost without a release: the listener is called for those that it believes to be owned."""
        assert not any(held.is_owned for held in partitions.values()), "the ownership of a lost partition has ended"
        # The same assignment must be reported again when the lost partition is acquired again, also if a start call
        # that contains it is still running.
        if self.state is ListenerState.IDLE:
            self._notified_assignment = None
        elif self.state is ListenerState.CALLING_START:
            self._assignment_in_call = None
        lost = [tp for tp, held in sorted(partitions.items()) if self._believes_owned(tp, held)]
        self._released_since_start.update(lost)
        return [do.CallPartitionsLost(tuple(lost))] if lost else []

    def _believes_owned(self, tp: TopicPartition, held: PartitionStateMachine) -> bool:
        """Whether the last start call gave this partition to our member, and no later call took it away.

        The thread may differ: the assignment contains a move between two of our threads before it is made.
        """
        reported = self._last_start_assignment.get(tp)
        if reported is None or tp in self._released_since_start:
            return False
        return reported.consumer_id == held.thread.rpartition("-")[0]

    # --- calls --------------------------------------------------------------------------------------------------

    def call_before_release(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> list[Command]:
        """Start the release call once all released partitions are drained; also if only the assignment changed.

        ``assignment`` None: no assignment exists, so the call is made only for released partitions.  One call contains
        all of them, so it waits for the slowest drain.  The caller calls it at every event of the release step; while
        another call runs, or this one is not due, it returns nothing.
        """
        if not self.is_set or self.is_blocking_rebalance:
            return []
        leaving = sorted(tp for tp, p in self._partitions.items() if p.is_leaving and not p.is_listener_notified)
        if any(self._partitions[tp].state is PartitionState.DRAINING for tp in leaving):
            return []
        if not leaving and not self.needs_release_call(assignment):
            return []
        if self._running_ticket and not self._is_late:
            return self._await_return()
        self.handle(ReleaseCallStarted())
        self._partitions_in_call = tuple(leaving)
        if self._is_late:
            return self._skip()
        return self._start_call(do.CallBeforeReleasing(self._new_ticket(), self._partitions_in_call))

    def call_before_start(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> list[Command]:
        """Start the start call with the assignment of the whole group, after the release call.

        In any other state the listener has received this assignment already, or there is no listener.
        """
        if self.state is not ListenerState.RELEASE_CALLED or assignment is None:
            return []
        assert not self._awaits_return, "the release call has waited for the call of the session before"
        self.handle(StartCallStarted())
        self._assignment_in_call = assignment
        if self._is_late:
            return self._skip()
        self._last_start_assignment, self._released_since_start = assignment, set()
        return self._start_call(do.CallBeforeStarting(self._new_ticket(), assignment))

    def _start_call(self, command: do.CallBeforeReleasing | do.CallBeforeStarting) -> list[Command]:
        assert self._running_ticket is None, "the listener is never called while a call has not returned"
        self._running_ticket = command.ticket
        return [command, do.StartTimer(MemberTimer.LISTENER, self._timeout_ms)]

    def _await_return(self) -> list[Command]:
        """A call from the earlier session has not returned yet: wait as long as for a call."""
        assert self._running_ticket, "there is a call to wait for"
        assert not self._is_late, "a late call is not waited for"
        assert self.state is ListenerState.IDLE, "a call of this session has a state of its own"
        self._awaits_return = True
        return [do.StartTimer(MemberTimer.LISTENER, self._timeout_ms)]

    def _skip(self) -> list[Command]:
        """Continue as if the call had been made; when the late call returns, ``needs_rerun`` makes up for it."""
        assert self._running_ticket, "only a call that has not returned is late"
        assert self._is_late, "a call is skipped only because an earlier one is late"
        self._has_missed = True
        self._call_done()
        return [do.IncrementCounter("listener_calls_skipped")]

    # --- answers ------------------------------------------------------------------------------------------------

    def on_returned(self, event: ListenerReturned, *, is_leaving: bool) -> tuple[list[Command], bool]:
        """The call returned or raised; return the commands, and whether the attempt has failed.

        ``is_leaving``: the member leaves the group, and an error of the listener does not prevent that.  A call that
        was late, or that belongs to the session before, has no step of the rebalance that waits for it: its error is
        logged and counted, and changes nothing else.
        """
        assert event.ticket == self._running_ticket, "one call at a time: no call starts before the last one returned"
        was_late, self._running_ticket, self._is_late, self._awaits_return = self._is_late, None, False, False
        out: list[Command] = [do.StopTimer(MemberTimer.LISTENER)]
        if event.why:
            out.append(do.IncrementCounter("listener_failures"))
            is_repeated = not (is_leaving or was_late or self.state not in CALLED_METHODS)
            what = "the rebalance is retried after a pause" if is_repeated else "the rebalance continues"
            words = f"call={event.method_name} reason={event.why!r}: {what}"
            out.append(do.LogEvent("ERROR", "listener-failed", words))
        if was_late or self.state not in CALLED_METHODS:
            return out, False
        if event.why and not is_leaving:
            self._call_failed()
            return out, True
        self._call_done()
        return out, False

    def needs_rerun(self) -> bool:
        """Whether a call was skipped and the listener can be called again: then the group must be read again.

        True once: the caller triggers the attempt, which begins with a release call because nothing counts as reported.
        """
        if self._running_ticket or not self._has_missed:
            return False
        self.handle(ListenerReset())
        self._has_missed = False
        self._notified_assignment = None
        return True

    def on_timeout(self) -> list[Command]:
        """Continue the rebalance without the return of the call; the other members wait for our partitions.

        The timer may fire just after the return: then nothing waits any more.
        """
        if not self.is_blocking_rebalance:
            return []
        assert self._running_ticket, "the rebalance waits for a call"
        assert not self._is_late, "that call has not timed out before"
        call = CALLED_METHODS.get(self.state, "of the session before")
        self._is_late, self._awaits_return = True, False
        if self.state in CALLED_METHODS:
            self._call_done()
        words = (
            f"call={call} timeout_ms={self._timeout_ms}: the rebalance continues without it, and the listener is not "
            "called again before it returns (rebalance.listener.timeout.ms)"
        )
        return [do.IncrementCounter("listener_timeouts"), do.LogEvent("WARNING", "listener-timeout", words)]

    def reset(self) -> None:
        """The session ended; the next call waits until a running one has returned.

        ``_running_ticket`` and ``_is_late`` describe the program's thread, so they outlive the session.
        """
        self.handle(ListenerReset())
        self._notified_assignment = self._assignment_in_call = None
        self._last_start_assignment = {}
        self._awaits_return = self._has_missed = False
        assert not self.is_blocking_rebalance, "no rebalance is under way"

    def _call_done(self) -> None:
        """The running call of this session returned, timed out or was skipped: its step may continue."""
        assert self.state in CALLED_METHODS, "a call of this session is under way"
        if self.state is ListenerState.CALLING_START:
            self._notified_assignment = self._assignment_in_call
        for tp in self._partitions_in_call if self.state is ListenerState.CALLING_RELEASE else ():
            self._released_since_start.add(tp)
            if tp in self._partitions:
                self._partitions[tp].is_listener_notified = True
        self.handle(ListenerCallDone())

    def _call_failed(self) -> None:
        if self.state is ListenerState.CALLING_RELEASE:
            self._notified_assignment = None
        self.handle(ListenerCallFailed())

    TRANSITIONS: ClassVar[TransitionTable] = {
        (ListenerState.IDLE, ReleaseCallStarted): go_to(ListenerState.CALLING_RELEASE),
        (ListenerState.RELEASE_CALLED, ReleaseCallStarted): go_to(ListenerState.CALLING_RELEASE),
        (ListenerState.CALLING_RELEASE, ListenerCallDone): go_to(ListenerState.RELEASE_CALLED),
        (ListenerState.CALLING_RELEASE, ListenerCallFailed): go_to(ListenerState.IDLE),
        (ListenerState.RELEASE_CALLED, StartCallStarted): go_to(ListenerState.CALLING_START),
        (ListenerState.CALLING_START, ListenerCallDone): go_to(ListenerState.IDLE),
        (ListenerState.CALLING_START, ListenerCallFailed): go_to(ListenerState.RELEASE_CALLED),
        **rows_for(ListenerState, ListenerReset, go_to(ListenerState.IDLE)),
    }
