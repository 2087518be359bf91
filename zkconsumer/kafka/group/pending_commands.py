"""The commands that a machine emits for one event, and its unanswered requests.  Pure.

Each request has a ``SentRequest`` with the generation and the coordinator at the time when it was sent: an answer is
evaluated for that state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from zkconsumer.kafka.group.commands import CancelMemberTimer, Command, LogMemberEvent, Send, SetMemberTimer
from zkconsumer.kafka.group.events import RequestId, TimerKind
from zkconsumer.kafka.group.generation import Generation

VERSION_ANY = 0x7FFF


class RequestKind(Enum):
    """The purpose of a request."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE_GROUP = "LeaveGroup"
    OFFSET_COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request in flight.  ``incarnation`` counts coordinators; ``number`` identifies the caller."""

    what: RequestKind
    generation: Generation
    incarnation: int
    number: int = 0


class PendingCommands:
    """Commands in their order; ``open`` has the purpose of each unanswered request."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.in_flight: dict[RequestId, SentRequest] = {}
        self.command_count = 0
        """The number of commands that were ever emitted."""
        self._commands: list[Command] = []
        self._numbers = 0
        self._timers: dict[TimerKind, int] = {}

    def new_number(self) -> int:
        """Never the same twice; requests and callbacks get their numbers here."""
        self._numbers += 1
        return self._numbers

    def add(self, *commands: Command) -> None:
        """Emit these after the earlier commands."""
        self._commands += commands
        self.command_count += len(commands)

    def log_event(self, what: str, sentence: str = "", /, **fields: object) -> None:
        """Emit an event to log and count; ``sentence``: how Kafka's consumer logs it."""
        self.add(LogMemberEvent(what, tuple(fields.items()), sentence))

    def send(
        self,
        sent: SentRequest,
        node: int | None,
        api_key: int,
        *,
        body: Any,
        timeout_ms: int,
        version_most: int = VERSION_ANY,
    ) -> RequestId:
        """Send a request; its answer is returned with its purpose."""
        request = self.new_number()
        self.in_flight[request] = sent
        self.add(Send(request, node, api_key, body, timeout_ms, version_most))
        return request

    def answered(self, request: RequestId) -> SentRequest | None:
        """The request of an answer; None if it was abandoned, or answered before."""
        return self.in_flight.pop(request, None)

    def give_up(self, *kinds: RequestKind) -> None:
        """Ignore the answers to these from now on."""
        self.in_flight = {request: sent for request, sent in self.in_flight.items() if sent.what not in kinds}

    def has_in_flight(self, *kinds: RequestKind) -> bool:
        """Whether requests of these kinds are in flight."""
        return any(sent.what in kinds for sent in self.in_flight.values())

    def set_timers(self, wanted: Mapping[TimerKind, int]) -> None:
        """Set these deadlines and cancel all others; one that has passed needs no timer."""
        ahead = {kind: deadline for kind, deadline in wanted.items() if deadline > self.now_ms}
        running = {kind: deadline for kind, deadline in self._timers.items() if deadline > self.now_ms}
        self.add(*(CancelMemberTimer(kind) for kind in running if kind not in ahead))
        self.add(*(SetMemberTimer(kind, at) for kind, at in ahead.items() if self._timers.get(kind) != at))
        self._timers = ahead

    def take_all(self) -> list[Command]:
        """The commands since the last call."""
        taken, self._commands = self._commands, []
        return taken
