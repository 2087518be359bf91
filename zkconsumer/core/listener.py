"""The program's rebalance listener as the core sees it: two calls that take turns, each with a deadline.

            ReleaseAsked             Answered            StartAsked               Answered
   QUIET ---------------> RELEASING ---------> RELEASED -------------> STARTING -----------> QUIET
     ^                     |    ^                |   ^                    |
     +------ Refused ------+    +- ReleaseAsked -+   +------ Refused -----+      Forgotten: QUIET, from anywhere

The order is the law: *drained before it is told of a release, told before the commit and the release; claimed before it
is told of a start, told before the positions are read and fetched*.  ``QUIET`` means that it knows the group's present
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

from zkconsumer.core import commands as do
from zkconsumer.core.events import Timer
from zkconsumer.core.machine import Machine, Table, to
from zkconsumer.core.partition import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.core.commands import Command
    from zkconsumer.core.events import ListenerReturned
    from zkconsumer.core.partition import Partition
    from zkconsumer.core.subscription import ConsumerThreadId
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

    QUIET = "quiet"
    RELEASING = "releasing"
    RELEASED = "released"
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """It is told what leaves."""


@dataclass(frozen=True, slots=True)
class StartAsked:
    """It is told the group's assignment."""


@dataclass(frozen=True, slots=True)
class Answered:
    """It returned, or was waited for long enough."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It raised."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nothing that it was told holds any more: the session is gone, or it has missed something."""


ASKED = {ListenerState.RELEASING: "before_releasing_partitions", ListenerState.STARTING: "before_starting_fetchers"}


class Listener(Machine):
    """The conversation with the program's listener; ``is_set`` when there is one, else nothing here does anything."""

    INITIAL = ListenerState.QUIET

    def __init__(
        self, partitions: Mapping[TopicPartition, Partition], new_ticket: Callable[[], int], timeout_ms: int
    ) -> None:
        super().__init__()
        self.is_set = False
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._timeout_ms = timeout_ms
        self._told: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self._telling: Mapping[TopicPartition, ConsumerThreadId] | None = None
        self._named: tuple[TopicPartition, ...] = ()
        self._heard: Mapping[TopicPartition, ConsumerThreadId] = {}
        """The assignment of the last start that it was called about."""
        self._heard_gone: set[TopicPartition] = set()
        """What of it was named as released since, in a call that it returned from, or as lost."""
        self._running = 0
        self._is_late = self._has_missed = self._awaits_return = False

    @property
    def is_holding(self) -> bool:
        """Whether the rebalance waits for the listener."""
        return self.state in ASKED or self._awaits_return

    def is_behind(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> bool:
        """Whether it must be told of a release first, perhaps of nothing, before anything of this may be claimed."""
        return self.is_set and self.state is ListenerState.QUIET and assignment not in (None, self._told)

    def knows(self, held: Partition) -> bool:
        """Whether this partition may be given back, as far as the listener goes."""
        return held.is_told or not self.is_set

    def excuse(self) -> None:
        """The program is closing: what leaves now goes without a call, as in the original."""
        for held in self._partitions.values():
            held.is_told = True
        self._heard = {}

    def lost(self, partitions: Mapping[TopicPartition, Partition]) -> list[Command]:
        """These left without a release: it is called about those that it takes for ours."""
        if self.state is ListenerState.QUIET:
            self._told = None
        elif self.state is ListenerState.STARTING:
            self._telling = None
        lost = [tp for tp, held in sorted(partitions.items()) if self._takes_for_ours(tp, held)]
        self._heard_gone.update(lost)
        return [do.CallLost(tuple(lost))] if lost else []

    def _takes_for_ours(self, tp: TopicPartition, held: Partition) -> bool:
        """The thread may be another one: a move between two of ours is in the assignment before it is made."""
        heard = self._heard.get(tp)
        return heard is not None and tp not in self._heard_gone and heard.consumer_id == held.thread.rpartition("-")[0]

    # --- asking -------------------------------------------------------------------------------------------------

    def ask_before_release(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> list[Command]:
        """Tell what leaves, once all of it is drained; also when nothing leaves, but the assignment is another one.

        ``assignment`` None: there is none, and only what leaves matters.
        """
        if not self.is_set or self.is_holding:
            return []
        leaving = {tp: held for tp, held in sorted(self._partitions.items()) if held.is_leaving and not held.is_told}
        if any(held.state is PartitionState.DRAINING for held in leaving.values()):
            return []
        if not leaving and not self.is_behind(assignment):
            return []
        if self._running and not self._is_late:
            return self._await_return()
        self.handle(ReleaseAsked())
        self._named = tuple(leaving)
        return self._skip() if self._is_late else self._ask(do.CallBeforeReleasing(self._new_ticket(), self._named))

    def ask_before_start(self, assignment: Mapping[TopicPartition, ConsumerThreadId] | None) -> list[Command]:
        """Tell the assignment of the whole group after what left was told."""
        if self.state is not ListenerState.RELEASED or assignment is None:
            return []
        self.handle(StartAsked())
        self._telling = assignment
        if self._is_late:
            return self._skip()
        self._heard, self._heard_gone = assignment, set()
        return self._ask(do.CallBeforeStarting(self._new_ticket(), assignment))

    def _ask(self, command: do.CallBeforeReleasing | do.CallBeforeStarting) -> list[Command]:
        self._running = command.ticket
        return [command, do.StartTimer(Timer.LISTENER, self._timeout_ms)]

    def _await_return(self) -> list[Command]:
        """A call of the session before has not returned yet: wait as long as for a call."""
        self._awaits_return = True
        return [do.StartTimer(Timer.LISTENER, self._timeout_ms)]

    def _skip(self) -> list[Command]:
        self._has_missed = True
        self._answered()
        return [do.Count("listener_calls_skipped")]

    # --- answers ------------------------------------------------------------------------------------------------

    def returned(self, event: ListenerReturned, *, must_go: bool) -> tuple[list[Command], bool]:
        """It returned or raised; gives back the commands, and whether the attempt has failed.

        ``must_go``: the member must leave the group, and an error of its listener cannot keep it.
        """
        assert event.ticket == self._running, "one call at a time: it is never asked before it returned"
        was_late, self._running, self._is_late, self._awaits_return = self._is_late, 0, False, False
        out: list[Command] = [do.StopTimer(Timer.LISTENER)]
        if event.why:
            out.append(do.Count("listener_failures"))
            is_repeated = not (must_go or was_late or self.state not in ASKED)
            what = "the attempt is made again after a pause" if is_repeated else "the rebalance goes on all the same"
            out.append(do.Tell("ERROR", "listener-failed", f"call={event.call} why={event.why!r}: {what}"))
        if was_late or self.state not in ASKED:
            return out, False
        if event.why and not must_go:
            self._refused()
            return out, True
        self._answered()
        return out, False

    def catches_up(self) -> bool:
        """Whether the listener, which can be asked again, has missed something: then the group is to be read again."""
        if self._running or not self._has_missed:
            return False
        self.handle(Forgotten())
        self._has_missed = False
        self._told = None
        return True

    def timed_out(self) -> list[Command]:
        """Go on without it."""
        if not self.is_holding:
            return []
        call = ASKED.get(self.state, "of the session before")
        self._is_late, self._awaits_return = True, False
        if self.state in ASKED:
            self._answered()
        words = (
            f"call={call} timeout_ms={self._timeout_ms}: the rebalance goes on without it, and it is not called again "
            "before it has returned (rebalance.listener.timeout.ms)"
        )
        return [do.Count("listener_timeouts"), do.Tell("WARNING", "listener-late", words)]

    def forget(self) -> None:
        """The session is gone; a call that is under way goes on, and is waited for before the next one."""
        self.handle(Forgotten())
        self._told = self._telling = None
        self._heard = {}
        self._awaits_return = self._has_missed = False

    def _answered(self) -> None:
        if self.state is ListenerState.STARTING:
            self._told = self._telling
        for tp in self._named if self.state is ListenerState.RELEASING else ():
            self._heard_gone.add(tp)
            if tp in self._partitions:
                self._partitions[tp].is_told = True
        self.handle(Answered())

    def _refused(self) -> None:
        if self.state is ListenerState.RELEASING:
            self._told = None
        self.handle(Refused())

    TRANSITIONS: ClassVar[Table] = {
        (ListenerState.QUIET, ReleaseAsked): to(ListenerState.RELEASING),
        (ListenerState.QUIET, Forgotten): to(ListenerState.QUIET),
        (ListenerState.RELEASING, Answered): to(ListenerState.RELEASED),
        (ListenerState.RELEASING, Refused): to(ListenerState.QUIET),
        (ListenerState.RELEASING, Forgotten): to(ListenerState.QUIET),
        (ListenerState.RELEASED, ReleaseAsked): to(ListenerState.RELEASING),
        (ListenerState.RELEASED, StartAsked): to(ListenerState.STARTING),
        (ListenerState.RELEASED, Forgotten): to(ListenerState.QUIET),
        (ListenerState.STARTING, Answered): to(ListenerState.QUIET),
        (ListenerState.STARTING, Refused): to(ListenerState.RELEASED),
        (ListenerState.STARTING, Forgotten): to(ListenerState.QUIET),
    }
