"""ZooKeeper as a few dictionaries, and connections that keep the order of the store's contract until they are cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zkconsumer.member.events import StoredOffset
from zkconsumer.member.group_view import TopicSubscription
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from tests.property.group_model.model_process import Process
    from tests.property.group_model.simulation import World


@dataclass
class ServerSession:
    """One session as the server knows it; silent while no ping comes (cut, or the process is stopped)."""

    id: int
    heard_at_ms: int
    is_alive: bool = True
    is_silent: bool = False


@dataclass(frozen=True)
class OwnerNode:
    session_id: int
    thread: str
    czxid: int


@dataclass
class Server:
    """What ZooKeeper holds."""

    sessions: dict[int, ServerSession] = field(default_factory=dict)
    registrations: dict[str, tuple[int, TopicSubscription]] = field(default_factory=dict)
    owners: dict[TopicPartition, OwnerNode] = field(default_factory=dict)
    offsets: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    watches: dict[str, list[Connection]] = field(default_factory=dict)
    on_group_changed: Callable[[], None] = lambda: None
    zxid: int = 0

    def watch(self, path: str, connection: Connection) -> None:
        watchers = self.watches.setdefault(path, [])
        if connection not in watchers:
            watchers.append(connection)

    def fire(self, path: str) -> None:
        for connection in self.watches.pop(path, []):
            connection.notify(path)
        if not path.startswith("owners:"):
            self.on_group_changed()

    def create_owner(self, tp: TopicPartition, session_id: int, thread: str) -> OwnerNode:
        self.zxid += 1
        self.owners[tp] = OwnerNode(session_id, thread, self.zxid)
        self.fire(f"owners:{tp.topic}")
        return self.owners[tp]

    def delete_owner(self, tp: TopicPartition) -> None:
        del self.owners[tp]
        self.fire(f"owners:{tp.topic}")


@dataclass(eq=False)
class Connection:
    """One connection of one session; in order both ways, until it is cut."""

    world: World
    process: Process
    session_id: int
    is_up: bool = True
    busy_until_ms: int = 0
    heard_until_ms: int = 0
    in_flight: list[Call] = field(default_factory=list)

    def send(self, call: Call) -> None:
        self.in_flight.append(call)
        self.busy_until_ms = max(self.busy_until_ms, self.world.now_ms + self.world.delay())
        self.world.at(self.busy_until_ms, lambda: self._arrive(call))

    def _arrive(self, call: Call) -> None:
        if not self.is_up:
            return
        session = self.world.server.sessions[self.session_id]
        if not session.is_alive:
            return
        session.heard_at_ms = self.world.now_ms
        result = call.execute(self)
        self._deliver(lambda: self._answer(call, result))

    def _deliver(self, action: Callable[[], None]) -> None:
        self.heard_until_ms = max(self.heard_until_ms, self.world.now_ms + self.world.delay())
        self.world.at(self.heard_until_ms, action)

    def _answer(self, call: Call, result: Any) -> None:
        if self.is_up:
            self.in_flight.remove(call)
            self.process.enqueue(lambda: call.done(result))

    def notify(self, path: str) -> None:
        if self.is_up:
            self._deliver(lambda: self.is_up and self.process.enqueue(lambda: self.process.watch_fired(path)))

    def cut(self) -> None:
        """The connection breaks: some of what was under way is still executed, nothing is answered any more."""
        rng = self.world.random
        self.is_up = False
        executed = rng.randint(0, len(self.in_flight)) if self.in_flight else 0
        for i, call in enumerate(self.in_flight):
            if i < executed and not call.was_executed and self.world.server.sessions[self.session_id].is_alive:
                call.execute(self)
        for call in self.in_flight:
            self.process.enqueue(lambda call=call: call.done(None))
        self.in_flight.clear()


@dataclass(eq=False)
class Call:
    """One round trip; ``done`` gets None when the answer was lost."""

    operation: Callable[[Connection], Any]
    done: Callable[[Any], None]
    was_executed: bool = False

    def execute(self, connection: Connection) -> Any:
        self.was_executed = True
        return self.operation(connection)
