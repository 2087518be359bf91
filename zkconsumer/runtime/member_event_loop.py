"""The control thread of a connector: events and timers in, commands out.

kazoo's thread --+                          +-- timers
stream threads --+--submit--> queue --------+--> MemberStateMachine.handle --> commands --> handlers
user's calls  ---+                                                                             |
                 ^---------------- answers, as events ---------------------------------------- +
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.member.commands import StartTimer, StopTimer
from zkconsumer.member.events import Event, MemberTimer, TimerFired
from zkconsumer.runtime.event_loop import EventLoop

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.member.commands import Command
    from zkconsumer.member.member_state_machine import MemberStateMachine


CommandHandlers: TypeAlias = "Mapping[type, Callable[[Any], None]]"
"""Command class -> the function that executes or starts such a command, without blocking."""


class MemberEventLoop(EventLoop[Event, MemberTimer]):
    """The only thread that calls ``group``; other threads use ``submit`` and ``call_soon``."""

    def __init__(self, group: MemberStateMachine, clock: Clock) -> None:
        super().__init__(clock)
        self._group = group
        self._handlers: CommandHandlers = {}
        self._on_executed: Callable[[Command], None]

    def start(
        self,
        name: str,
        handlers: CommandHandlers,
        on_executed: Callable[[Command], None],
        on_thread_error: Callable[[str, BaseException], None],
    ) -> None:
        """Run from now on; ``on_executed`` is called after each command."""
        self._handlers = {
            **handlers,
            StartTimer: lambda command: self.set_timer(command.timer, self._clock.now_ms() + command.delay_ms),
            StopTimer: lambda command: self.cancel_timer(command.timer),
        }
        self._on_executed = on_executed
        self.start_thread(name, on_thread_error)

    def handle_event(self, event: Event) -> None:
        """Handle an event now; only on the control thread."""
        assert self._handlers, "start() precedes the first event"
        for command in self._group.handle(event, self._clock.now_ms()):
            self._handlers[type(command)](command)
            self._on_executed(command)

    def handle_timer(self, timer: MemberTimer, due_ms: int) -> None:
        """See ``EventLoop``."""
        self.handle_event(TimerFired(timer))
