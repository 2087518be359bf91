"""The control thread of a connector: events and timers in, commands out.

kazoo's thread --+                          +-- timers
stream threads --+--submit--> queue --------+--> MemberStateMachine.handle --> commands --> executor
user's calls  ---+                                                                             |
                 ^---------------- answers, as events ---------------------------------------- +
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from zkconsumer.member.commands import StartTimer, StopTimer
from zkconsumer.member.events import Event, MemberTimer, TimerFired
from zkconsumer.runtime.event_loop import EventLoop

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.member.commands import Command
    from zkconsumer.member.member_state_machine import MemberStateMachine


class CommandSink(Protocol):
    """Executes the commands."""

    def execute(self, command: Command) -> None:
        """Execute or start the command; must not block."""


class MemberEventLoop(EventLoop[Event, MemberTimer]):
    """The only thread that calls ``group``; other threads use ``submit`` and ``call_soon``."""

    def __init__(self, group: MemberStateMachine, clock: Clock) -> None:
        super().__init__(clock)
        self._group = group
        self._executor: CommandSink | None = None

    def start(self, name: str, executor: CommandSink, on_thread_error: Callable[[str, BaseException], None]) -> None:
        """Run from now on; commands go to ``executor``."""
        self._executor = executor
        self.start_thread(name, on_thread_error)

    def handle_event(self, event: Event) -> None:
        """Handle an event now; only on the control thread."""
        assert self._executor is not None, "start() precedes the first event"
        for command in self._group.handle(event, self._clock.now_ms()):
            if isinstance(command, StartTimer):
                self.set_timer(command.timer, self._clock.now_ms() + command.delay_ms)
            elif isinstance(command, StopTimer):
                self.cancel_timer(command.timer)
            else:
                self._executor.execute(command)

    def handle_timer(self, timer: MemberTimer, due_ms: int) -> None:
        """See ``EventLoop``."""
        self.handle_event(TimerFired(timer))
