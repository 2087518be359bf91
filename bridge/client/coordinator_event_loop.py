"""The control thread of a member, which owns the state machine; events in, commands out.

    network ----+                                             +--> network, timers
    streams ----+--post--> CoordinatorEventLoop --handle------+--> assignment_executor (streams, listener)
    program ----+             |  (machine)                    +--> observer: commits, the assignment, the end
    timers -----+             '-- the lease

Commands are executed in order: commands that an answer causes are executed after the earlier commands.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from bridge.client.assignment_executor import AssignmentExecutor, AssignmentWait
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as cev
from zkconsumer.kafka.group.error_policy import REBALANCE_IN_PROGRESS
from zkconsumer.kafka.group.events import TimerKind
from zkconsumer.kafka.group.member_log_lines import level_of, text_of
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.runtime.event_loop import EventLoop
from zkconsumer.wire.schemas import HEARTBEAT, SYNC_GROUP

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
    from zkconsumer.member.ownership import PartitionEvent

LEASE_NUMERATOR, LEASE_DENOMINATOR = 2, 3
"""The part of the session timeout for which a lease is valid, from the time when the answered request was sent."""

HEARTBEAT_OF_0_9 = 0
"""The version of Heartbeat of brokers of 0.9, and also of 0.10; the version does not distinguish them."""

POLL_INTERVAL_MS = 1_000
"""How often the state of the program is checked: streams have no ``poll``.  A member that left because its program
worked on one record for ``max.poll.interval.ms`` joins again within this time after the program asked for the next
record."""

log = logging.getLogger("zkconsumer.member")


@dataclass(frozen=True, slots=True)
class NetworkAnswer:
    """An answer of the network, its request, and when that was sent."""

    event: cev.Responded | cev.RequestFailed | cev.Disconnected
    sent: cmd.Send | None
    sent_at_ms: int


Item: TypeAlias = "cev.Event | NetworkAnswer | PartitionEvent | ev.ListenerSet | ev.ListenerReturned"


class CommandSender(Protocol):
    """The network."""

    def execute(self, command: cmd.Send | cmd.ConnectCoordinator | cmd.DisconnectCoordinator) -> None:
        """Execute this soon, without blocking."""


class MachineObserver(Protocol):
    """Receives results and events of the machine for the program; on the control thread."""

    def commit_done(self, command: cmd.CommitDone) -> None: ...
    def fetched(self, command: cmd.FetchDone) -> None: ...
    def needs_metadata(self, command: cmd.NeedMetadata) -> None: ...
    def raised(self, command: cmd.Raise) -> None: ...
    def stopped(self) -> None: ...
    def noted(self, command: cmd.LogMemberEvent) -> None: ...
    def answered(self, answer: NetworkAnswer) -> None: ...
    def was_reset(self, event: ownership.OffsetReset) -> None: ...


class CoordinatorEventLoop(EventLoop[Item, TimerKind | AssignmentWait]):
    """The control thread; other threads post events."""

    def __init__(self, machine: ConsumerCoordinator, session_timeout_ms: int, lease: Lease, clock: Clock) -> None:
        super().__init__(clock)
        self.machine = machine
        self._lease_ms = session_timeout_ms * LEASE_NUMERATOR // LEASE_DENOMINATOR
        self._lease = lease
        self._pending: deque[cev.Event] = deque()
        self._commands: deque[cmd.Command] = deque()
        self._is_busy = False
        self._was_polled = False
        """Whether the program's state was checked before the next event."""
        self._handing: AssignmentExecutor
        self._network: CommandSender
        self._concerned: MachineObserver

    def start(
        self,
        name: str,
        handing: AssignmentExecutor,
        network: CommandSender,
        concerned: MachineObserver,
        on_thread_error: Callable[[str, BaseException], None],
    ) -> None:
        """Start the thread."""
        self._handing, self._network, self._concerned = handing, network, concerned
        self.call_every(POLL_INTERVAL_MS, lambda: self.dispatch(self._poll_program()))
        self.start_thread(name, on_thread_error)

    def handle_event(self, event: Item) -> None:
        """Handle this event now; only on the thread."""
        match event:
            case NetworkAnswer():
                self._extend_lease(event)
                self._concerned.answered(event)
                self.dispatch(event.event)
            case ownership.PartitionsDrained():
                self._handing.drained(event)
            case ownership.PositionsCollected():
                self._handing.collected(event)
            case ownership.OffsetReset():
                self._concerned.was_reset(event)
            case ev.ListenerReturned():
                self._handing.listener_returned()
            case ev.ListenerSet() | ev.OffsetsOverwritten():
                pass
            case _:
                self.dispatch(event)

    def handle_timer(self, timer: TimerKind | AssignmentWait, due_ms: int) -> None:
        """See ``EventLoop``."""
        if isinstance(timer, AssignmentWait):
            self._handing.fired(timer)
        else:
            self.dispatch(cev.MemberTimerFired(timer, due_ms))

    def wait(self, what: AssignmentWait, timeout_ms: int | None) -> None:
        """Call ``fired`` of the assignment executor after that time; None: cancel it."""
        if timeout_ms is None:
            self.cancel_timer(what)
        else:
            self.set_timer(what, self._clock.now_ms() + timeout_ms)

    def dispatch(self, event: cev.Event) -> None:
        """Submit an event to the machine, once all its earlier commands are executed; only on the thread."""
        self._pending.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._pending or self._commands:
                if self._commands:
                    self._execute(self._commands.popleft())
                else:
                    now_ms = self._clock.now_ms()
                    self._commands += self.machine.handle(self._next_event(now_ms), now_ms)
        finally:
            self._is_busy = False

    def _next_event(self, now_ms: int) -> cev.Event:
        """The next event: first the program's state, when the machine would otherwise use an older one."""
        is_due = self.machine.heartbeat.poll_timeout_expired(now_ms) and not self._was_polled
        if is_due and not isinstance(self._pending[0], cev.Polled):
            self._was_polled = True
            return self._poll_program()
        self._was_polled = False
        return self._pending.popleft()

    def _poll_program(self) -> cev.Polled:
        busy = self._handing.processor.busy_stream
        return cev.Polled() if busy is None else cev.Polled(*busy)

    def _execute(self, command: cmd.Command) -> None:
        match command:
            case cmd.Send() | cmd.ConnectCoordinator() | cmd.DisconnectCoordinator():
                self._network.execute(command)
            case cmd.SetMemberTimer(kind, deadline_ms):
                self.set_timer(kind, deadline_ms)
            case cmd.CancelMemberTimer(kind):
                self.cancel_timer(kind)
            case ownership.Drain():
                self._handing.drain(command)
            case ownership.CollectPositions():
                self._handing.collect_positions()
            case cmd.Invoke():
                self._handing.invoke(command)
            case cmd.StartPartitions():
                self._handing.start_fetching(command)
            case cmd.FetchDone():
                if not self._handing.fetched(command):
                    self._concerned.fetched(command)
            case cmd.CommitDone():
                self._concerned.commit_done(command)
            case cmd.NeedMetadata():
                self._concerned.needs_metadata(command)
            case cmd.Raise():
                self._concerned.raised(command)
            case cmd.MemberStopped():
                self._concerned.stopped()
            case cmd.LogMemberEvent():
                self._concerned.noted(command)
                level = logging.getLevelNamesMapping()[level_of(command)]
                if log.isEnabledFor(level):
                    name, _, rest = text_of(command).partition(" ")
                    log.log(level, "%s %s", name, rest)

    def _extend_lease(self, answer: NetworkAnswer) -> None:
        """An answer that the coordinator gives only to members proves that we were one when the request was sent.

        A heartbeat that is answered 27 proves it too, but not from 0.9: while a group rebalances, that release answers
        27 also to members that it has removed.
        """
        event = answer.event
        if answer.sent is None or not isinstance(event, cev.Responded):
            return
        code = event.body.error_code if answer.sent.api_key in (HEARTBEAT.key, SYNC_GROUP.key) else None
        is_rebalancing = code == REBALANCE_IN_PROGRESS and answer.sent.api_key == HEARTBEAT.key
        is_taken = code == 0 or (is_rebalancing and event.version > HEARTBEAT_OF_0_9)
        until_ms = answer.sent_at_ms + self._lease_ms
        if is_taken and until_ms > self._lease.until_ms:
            self._lease.set_until(until_ms)
