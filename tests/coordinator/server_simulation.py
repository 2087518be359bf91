"""Brokers, a log, a network and members, all in one heap of time: everything that happens follows from one seed.

    members --requests--> network (late, in order, or never) --> two coordinators, one of which leads
                                                                  '--> one log, acknowledged late and in order;
                                                                       what was not may be cut off at a change of leader

Members crash, freeze, leave and come back, some of them static, and sometimes twice; leaders change, with and without
knowing it; appends fail.  Then faults stop, and everything must settle.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.commands import Append, CancelGroupTimer, LoadPartition, SendResponse, SetGroupTimer
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.events import (
    AppendCompleted,
    CoordinatorRecord,
    Elected,
    Event,
    GroupTimerFired,
    PartitionLoaded,
    RequestReceived,
    Resigned,
    TimerKey,
)
from bridge.coordinator.group_coordinator import GroupCoordinator
from tests.coordinator.server_invariants import Checker
from zkconsumer.wire.schemas import OFFSET_COMMIT

PARTITION = 0
CONFIG = GroupCoordinatorConfig(offsets_topic_partitions=1, group_initial_rebalance_delay_ms=200)


@dataclass
class Entry:
    """One append in the log; ``owner`` and ``token``: who waits for it."""

    records: tuple[CoordinatorRecord, ...]
    owner: Broker | None
    token: int


@dataclass
class Broker:
    """One coordinator; ``life`` counts its processes."""

    number: int
    machine: GroupCoordinator
    life: int = 0
    is_up: bool = True
    timers: dict[TimerKey, int] = field(default_factory=dict)
    waiting: dict[int, Callable[[Any], None]] = field(default_factory=dict)


class Connection:
    """Requests and answers stay in order; one that is cut says so to the member, once."""

    def __init__(self, world: World, broker: Broker, lost: Callable[[], None]) -> None:
        self.world, self.broker, self.life, self._lost = world, broker, broker.life, lost
        self.is_open = True
        self._next_there_ms = self._next_back_ms = 0

    def send(self, api_key: int, version: int, body: Any, done: Callable[[Any], None]) -> None:
        world = self.world
        self._next_there_ms = max(self._next_there_ms, world.now_ms + world.delay_ms())
        world.at(self._next_there_ms, lambda: self._arrive(api_key, version, body, done))

    def cut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._lost()

    def _arrive(self, api_key: int, version: int, body: Any, done: Callable[[Any], None]) -> None:
        world, broker = self.world, self.broker
        if not broker.is_up or broker.life != self.life:
            self.cut()
            return
        # A request that is under way when its connection is cut may still arrive: nobody hears the answer.  Not a
        # commit: it could arrive after a later one of the same member on its next connection, in the same generation,
        # and nothing in the protocol tells the two apart.
        if not self.is_open and api_key == OFFSET_COMMIT.key:
            return
        token = next(world.tokens)
        broker.waiting[token] = lambda answer: self._answer(done, answer)
        world.happen(broker, RequestReceived(token, api_key, version, body, "client", "/host"))

    def _answer(self, done: Callable[[Any], None], answer: Any) -> None:
        world = self.world
        self._next_back_ms = max(self._next_back_ms, world.now_ms + world.delay_ms())
        world.at(self._next_back_ms, lambda: done(answer) if self.is_open else None)


class World:
    """``is_calm``: faults have stopped."""

    def __init__(self, seed: int, release: str) -> None:
        self.random = random.Random(seed)
        self.release = release
        self.checker = Checker()
        self.now_ms = 1_000_000
        self.is_calm = False
        self.tokens = itertools.count(1)
        self.events = 0
        self._ids = itertools.count(1)
        self._sequence = itertools.count()
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self.log: list[Entry] = []
        self.settled = 0
        self.epoch = 0
        self.brokers = [Broker(number, self._machine()) for number in (0, 1)]
        self.leader: Broker | None = None
        self.change_leader()

    def _machine(self) -> GroupCoordinator:
        return GroupCoordinator(CONFIG, behaviour_of(self.release), lambda prefix: f"{prefix}-{next(self._ids)}")

    # --- time --------------------------------------------------------------------------------------------------------

    def at(self, when_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when_ms, next(self._sequence), what))

    def after(self, by_ms: int, what: Callable[[], None]) -> None:
        self.at(self.now_ms + by_ms, what)

    def run_until(self, when_ms: int) -> None:
        while self._heap and self._heap[0][0] <= when_ms:
            self.now_ms, _, what = heapq.heappop(self._heap)
            what()
        self.now_ms = when_ms

    def delay_ms(self) -> int:
        if self.is_calm or self.random.random() < 0.9:
            return self.random.randint(1, 20)
        return self.random.randint(20, 2_500)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def happen(self, broker: Broker, event: Event) -> None:
        self.events += 1
        for command in broker.machine.handle(event, self.now_ms):
            match command:
                case SendResponse():
                    self.checker.answer(broker.number, command.token)
                    broker.waiting.pop(command.token)(command.body)
                case SetGroupTimer():
                    self._set_timer(broker, command)
                case CancelGroupTimer():
                    broker.timers.pop(command.key, None)
                case Append():
                    self._append(broker, command)
                case LoadPartition():
                    self.after(self.random.randint(1, 200), self._loader(broker, command.epoch))

    def _set_timer(self, broker: Broker, command: SetGroupTimer) -> None:
        broker.timers[command.key] = command.deadline_ms
        life = broker.life

        def fire() -> None:
            if broker.life == life and broker.timers.get(command.key) == command.deadline_ms:
                del broker.timers[command.key]
                self.happen(broker, GroupTimerFired(command.key, command.deadline_ms))

        self.at(max(command.deadline_ms, self.now_ms), fire)

    def _loader(self, broker: Broker, epoch: int) -> Callable[[], None]:
        life = broker.life

        def load() -> None:
            if broker.life == life:
                self.happen(broker, PartitionLoaded(PARTITION, epoch, self.records(self.settled)))
                self.check()

        return load

    # --- the log -----------------------------------------------------------------------------------------------------

    def records(self, entries: int) -> list[tuple[int, CoordinatorRecord]]:
        flat = [record for entry in self.log[:entries] for record in entry.records]
        return list(enumerate(flat))

    def _append(self, broker: Broker, append: Append) -> None:
        is_refused = append.epoch != self.epoch or (not self.is_calm and self.random.random() < 0.02)
        if is_refused:
            # Behind what was appended before, so that appends are settled in their order.
            error = self.random.choice((6, 19)) if append.epoch == self.epoch else 6
            self._settle_later(Entry((), broker, append.token), error)
            return
        self._settle_later(Entry(append.records, broker, append.token), 0)

    def _settle_later(self, entry: Entry, error: int) -> None:
        self.log.append(entry)
        epoch, life = self.epoch, entry.owner.life if entry.owner else 0
        owner = entry.owner
        before = getattr(self, "_settles_at", 0)
        self._settles_at = max(before, self.now_ms + self.delay_ms())

        def settle() -> None:
            if self.epoch != epoch or owner is None:
                return
            base = sum(len(known.records) for known in self.log[: self.settled])
            assert self.log[self.settled] is entry, "appends are settled in their order"
            self.settled += 1
            for record in entry.records:
                self.checker.written(record)
            if owner.life == life:
                self.happen(owner, AppendCompleted(entry.token, error, -1 if error else base))

        self.at(self._settles_at, settle)

    def change_leader(self) -> None:
        """Somebody else leads; of what was not acknowledged any part may survive, and nobody is told of it."""
        old, self.epoch = self.leader, self.epoch + 1
        unsettled = self.log[self.settled :]
        survivors = self.random.randint(0, len(unsettled)) if unsettled else 0
        del self.log[self.settled + survivors :]
        for entry in self.log[self.settled :]:
            for record in entry.records:
                self.checker.written(record)
        self.settled = len(self.log)
        up = [broker for broker in self.brokers if broker.is_up and broker is not old]
        self.leader = (up or [broker for broker in self.brokers if broker.is_up] or [None])[0]
        if old is not None and old.is_up and old is not self.leader:
            self._resign_later(old, self.epoch, unsettled)
        if self.leader is not None:
            if self.leader is old:
                self._restart(self.leader)
            self.happen(self.leader, Elected(PARTITION, self.epoch))

    def _resign_later(self, old: Broker, epoch: int, unsettled: list[Entry]) -> None:
        life = old.life

        def resign() -> None:
            if old.life != life:
                return
            self.happen(old, Resigned(PARTITION, epoch))
            for entry in unsettled:
                if entry.owner is old:
                    self.happen(old, AppendCompleted(entry.token, 6, -1))

        self.after(self.random.choice((1, 50, 3_000)), resign)

    def crash_broker(self) -> None:
        """The leader's process ends, and comes back without anything."""
        broker = self.leader
        if broker is None:
            return
        self._restart(broker)
        broker.is_up = False
        self.change_leader()

        def come_back() -> None:
            broker.is_up = True
            if self.leader is None:
                self.change_leader()

        self.after(self.random.randint(100, 4_000), come_back)

    def _restart(self, broker: Broker) -> None:
        broker.life += 1
        broker.machine = self._machine()
        broker.timers.clear()
        broker.waiting.clear()

    def check(self) -> None:
        """The leader keeps what the log says, as far as it was settled."""
        leader = self.leader
        if leader is not None and PARTITION in leader.machine.manager.owned_partitions:
            self.checker.coordinator(leader.machine, self.records(self.settled), PARTITION)
