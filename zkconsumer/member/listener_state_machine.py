"""The program's rebalance listener as the core sees it: two calls that take turns, each with a deadline.

            ReleaseCallStarted             Answered            StartCallStarted               Answered
   QUIET ---------------> RELEASING ---------> RELEASED -------------> STARTING -----------> QUIET
     ^                     |    ^                |   ^                    |
     +------ Refused ------+    +- ReleaseCallStarted -+   +------ Refused -----+      Forgotten: QUIET, from anywhere

The order is the law: *drained before it is told of a release, told before the commit and the release; claimed before it
is told of a start, told before the positions are read and fetched*.  ``IDLE`` means that it knows the group's present
assignment, RELEASED that it was told what leaves and not yet what comes.

What is lost (the session is over, an owner node is gone, the member has ended) leaves without a release.  A call says
so, and nothing waits for its answer.

It is never asked while it has not returned.  A call that takes longer than ``rebalance.listener.timeout.ms`` counts as
answered and is *late*; until it returns nobody asks again, and what it misses meanwhile is told anew afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from zkconsumer.member import commands as do
from zkconsumer.member.events import MemberTimer
from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.member.state_machine import StateMachine, TransitionTable, go_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import ListenerReturned
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition


class ConsumerRebalanceListener(Protocol):
    """What a program gives to ``set_consumer_rebalance_listener`` (Kafka 0.9 and later).

    The two calls take turns, on a thread of their own and never at the same time.  ``commit_offsets``, ``close`` and
    ``assignment`` of the connector may be used in them.  A call that takes longer than
    ``rebalance.listener.timeout.ms`` is not waited for.  In a group in ZooKeeper an exception fails the attempt, which
    is made again after a pause; in a coordinator's group it is logged, and the rebalance goes on.  ``close`` makes no
    call.
    """

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        """These are about to be given back: nothing of them is handed out any more, and they are still ours.

        Topic -> partitions.  Empty when nothing leaves: before the first share, and when only others' shares change.
        """

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        """The claims are made, and nothing new is fetched yet.

        Topic -> partition -> thread, of the whole group; under range of the topics to which this member subscribes; in
        a coordinator's group of this member alone.
        """


@runtime_checkable
class PartitionsLostListener(ConsumerRebalanceListener, Protocol):
    """A ``ConsumerRebalanceListener`` that is also notified of what was lost, by Java's ``onPartitionsLost`` (2.4).

    Of one without this method nothing is called then.
    """

    def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
        """These are not ours any more, and ``before_releasing_partitions`` was not called for them.

        Topic -> partitions.  Another member may read them already, so a commit of them is refused: forget what is not
        done yet.  The rebalance does not wait for this call, but the next of the other two calls does.
        """


class ListenerState(Enum):
    """What the listener knows, or is being told."""

    IDLE = "quiet"
    CALLING_RELEASE = "releasing"
    RELEASE_CALLED = "released"
    CALLING_START = "starting"


@dataclass(frozen=True, slots=True)
class ReleaseCallStarted:
    """It is told what leaves."""


@dataclass(frozen=True, slots=True)
class StartCallStarted:
    """It is told the group's assignment."""


@dataclass(frozen=True, slots=True)
class ListenerCallDone:
    """It returned, or was waited for long enough."""


@dataclass(frozen=True, slots=True)
class ListenerCallFailed:
    """It raised."""


@dataclass(frozen=True, slots=True)
class ListenerReset:
    """Nothing that it was told holds any more: the session is gone, or it has missed something."""


CALLED_METHODS = {
    ListenerState.CALLING_RELEASE: "before_releasing_partitions",
    ListenerState.CALLING_START: "before_starting_fetchers",
}


class ListenerStateMachine(StateMachine):
    """The conversation with the program's listener; ``is_set`` when there is one, else nothing here does anything."""

    INITIAL = ListenerState.IDLE

    def __init__(
        self, partitions: Mapping[TopicPartition, PartitionStateMachine], new_ticket: Callable[[], int], timeout_ms: int
    ) -> None:
        super().__init__()
        self.is_set = False
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._timeout_ms = timeout_ms
        self._notified_assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self._assignment_in_call: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self._partitions_in_call: tuple[TopicPartition, ...] = ()
        self._last_start_assignment: Mapping[TopicPartition, ConsumerThreadId] = {}
        """The assignment of the last start that it was called about."""
        self._released_since_start: set[TopicPartition] = set()
        """What of it was named as released since, in a call that it returned from, or as lost."""
        self._running_ticket = 0
        self._is_late = self._has_missed = self._awaits_return = False

    @property
    def is_blocking_rebalance(self) -> bool:
        """Whether the rebalance waits for the listener."""
        return self.state in CALLED_METHODS or self._awaits_return

    def needs_release_call(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> bool:
        """Whether it must be told of a release first, perhaps of nothing, before anything of this may be claimed."""
        return self.is_set and self.state is ListenerState.IDLE and assignment not in (None, self._notified_assignment)

    def may_release(self, held: PartitionStateMachine) -> bool:
        """Whether this partition may be given back, as far as the listener goes."""
        return held.is_listener_notified or not self.is_set

    def skip_calls_on_close(self) -> None:
        """The program is closing: what leaves now goes without a call, as in the original."""
        for held in self._partitions.values():
            held.is_listener_notified = True
        self._last_start_assignment = {}

    def on_ownership_lost(self, partitions: Mapping[TopicPartition, PartitionStateMachine]) -> list[Command]:
        """These left without a release: it is called about those that it takes for ours."""
        if self.state is ListenerState.IDLE:
            self._notified_assignment = None
        elif self.state is ListenerState.CALLING_START:
            self._assignment_in_call = None
        lost = [tp for tp, held in sorted(partitions.items()) if self._believes_owned(tp, held)]
        self._released_since_start.update(lost)
        return [do.CallPartitionsLost(tuple(lost))] if lost else []

    def _believes_owned(self, tp: TopicPartition, held: PartitionStateMachine) -> bool:
        """The thread may be another one: a move between two of ours is in the assignment before it is made."""
        heard = self._last_start_assignment.get(tp)
        return (
            heard is not None
            and tp not in self._released_since_start
            and heard.consumer_id == held.thread.rpartition("-")[0]
        )

    # --- asking -------------------------------------------------------------------------------------------------

    def call_before_release(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> list[Command]:
        """Tell what leaves, once all of it is drained; also when nothing leaves, but the assignment is another one.

        ``assignment`` None: there is none, and only what leaves matters.
        """
        if not self.is_set or self.is_blocking_rebalance:
            return []
        leaving = {
            tp: held
            for tp, held in sorted(self._partitions.items())
            if held.is_leaving and not held.is_listener_notified
        }
        if any(held.state is PartitionState.DRAINING for held in leaving.values()):
            return []
        if not leaving and not self.needs_release_call(assignment):
            return []
        if self._running_ticket and not self._is_late:
            return self._await_return()
        self.handle(ReleaseCallStarted())
        self._partitions_in_call = tuple(leaving)
        return (
            self._skip()
            if self._is_late
            else self._start_call(do.CallBeforeReleasing(self._new_ticket(), self._partitions_in_call))
        )

    def call_before_start(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> list[Command]:
        """Tell the assignment of the whole group after what left was told."""
        if self.state is not ListenerState.RELEASE_CALLED or assignment is None:
            return []
        self.handle(StartCallStarted())
        self._assignment_in_call = assignment
        if self._is_late:
            return self._skip()
        self._last_start_assignment, self._released_since_start = assignment, set()
        return self._start_call(do.CallBeforeStarting(self._new_ticket(), assignment))

    def _start_call(self, command: do.CallBeforeReleasing | do.CallBeforeStarting) -> list[Command]:
        self._running_ticket = command.ticket
        return [command, do.StartTimer(MemberTimer.LISTENER, self._timeout_ms)]

    def _await_return(self) -> list[Command]:
        """A call of the session before has not returned yet: wait as long as for a call."""
        self._awaits_return = True
        return [do.StartTimer(MemberTimer.LISTENER, self._timeout_ms)]

    def _skip(self) -> list[Command]:
        self._has_missed = True
        self._call_done()
        return [do.IncrementCounter("listener_calls_skipped")]

    # --- answers ------------------------------------------------------------------------------------------------

    def on_returned(self, event: ListenerReturned, *, is_leaving: bool) -> tuple[list[Command], bool]:
        """It returned or raised; gives back the commands, and whether the attempt has failed.

        ``is_leaving``: the member must leave the group, and an error of its listener cannot keep it.
        """
        assert event.ticket == self._running_ticket, "one call at a time: it is never asked before it returned"
        was_late, self._running_ticket, self._is_late, self._awaits_return = self._is_late, 0, False, False
        out: list[Command] = [do.StopTimer(MemberTimer.LISTENER)]
        if event.why:
            out.append(do.IncrementCounter("listener_failures"))
            is_repeated = not (is_leaving or was_late or self.state not in CALLED_METHODS)
            what = "the attempt is made again after a pause" if is_repeated else "the rebalance goes on all the same"
            out.append(
                do.LogEvent("ERROR", "listener-failed", f"call={event.method_name} reason={event.why!r}: {what}")
            )
        if was_late or self.state not in CALLED_METHODS:
            return out, False
        if event.why and not is_leaving:
            self._call_failed()
            return out, True
        self._call_done()
        return out, False

    def needs_rerun(self) -> bool:
        """Whether the listener, which can be asked again, has missed something: then the group is to be read again."""
        if self._running_ticket or not self._has_missed:
            return False
        self.handle(ListenerReset())
        self._has_missed = False
        self._notified_assignment = None
        return True

    def on_timeout(self) -> list[Command]:
        """Go on without it."""
        if not self.is_blocking_rebalance:
            return []
        call = CALLED_METHODS.get(self.state, "of the session before")
        self._is_late, self._awaits_return = True, False
        if self.state in CALLED_METHODS:
            self._call_done()
        words = (
            f"call={call} timeout_ms={self._timeout_ms}: the rebalance goes on without it, and it is not called again "
            "before it has returned (rebalance.listener.timeout.ms)"
        )
        return [do.IncrementCounter("listener_timeouts"), do.LogEvent("WARNING", "listener-timeout", words)]

    def reset(self) -> None:
        """The session is gone; a call that is under way goes on, and is waited for before the next one."""
        self.handle(ListenerReset())
        self._notified_assignment = self._assignment_in_call = None
        self._last_start_assignment = {}
        self._awaits_return = self._has_missed = False

    def _call_done(self) -> None:
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
        (ListenerState.IDLE, ListenerReset): go_to(ListenerState.IDLE),
        (ListenerState.CALLING_RELEASE, ListenerCallDone): go_to(ListenerState.RELEASE_CALLED),
        (ListenerState.CALLING_RELEASE, ListenerCallFailed): go_to(ListenerState.IDLE),
        (ListenerState.CALLING_RELEASE, ListenerReset): go_to(ListenerState.IDLE),
        (ListenerState.RELEASE_CALLED, ReleaseCallStarted): go_to(ListenerState.CALLING_RELEASE),
        (ListenerState.RELEASE_CALLED, StartCallStarted): go_to(ListenerState.CALLING_START),
        (ListenerState.RELEASE_CALLED, ListenerReset): go_to(ListenerState.IDLE),
        (ListenerState.CALLING_START, ListenerCallDone): go_to(ListenerState.IDLE),
        (ListenerState.CALLING_START, ListenerCallFailed): go_to(ListenerState.RELEASE_CALLED),
        (ListenerState.CALLING_START, ListenerReset): go_to(ListenerState.IDLE),
    }
