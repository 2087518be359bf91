"""Members, their programs, two brokers and bad luck, in one thread and in simulated time.

    Program <-> ConsumerCoordinator == connections (in order, one request at a time) == Broker <-> GroupCoordinator

As in ``bridge.client.network``, each JoinGroup has a connection of its own.

The members are the real client machines, the brokers the real coordinator machines.  All chances come from one seeded
source, so every run can be repeated.  After every event the rules of ``Program`` and ``World.check`` are held.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bridge.coordinator.config import GroupCoordinatorConfig as BrokerConfig
from tests.coordinator.client_harness import CooperativeDealer, Dealer, coordinator
from tests.coordinator.server_harness import Table
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.events import Failure, Offset, TimerKind
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.member import ownership
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, JOIN_GROUP

VERSIONS = {8: 9, 9: 7, 11: 9, 12: 4, 13: 5, 14: 5}
"""API -> the version that is spoken."""

BROKER = BrokerConfig(offsets_topic_partitions=1, group_initial_rebalance_delay_ms=200)
DELAY_MS_MAX = 300
POLL_EVERY_MS = 400
SETTLE_MS = 120_000
CALM_MS = 8000
UNCOMMITTED = {"revocation-commit-failed", "revoked-without-commit"}


@dataclass
class Program:
    """What a program sees of its member: whose callbacks come one by one, and are true."""

    owned: set[TopicPartition] = field(default_factory=set)
    reading: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition -> position; -1 while it is not known."""
    called: do.Invoke | None = None
    asked: dict[int, str] = field(default_factory=dict)
    is_stopped: bool = False

    def invoked(self, invoke: do.Invoke) -> None:
        assert self.called is None, "a program is not asked before it has returned"
        self.called = invoke
        given = set(invoke.partitions)
        if invoke.callback is Callback.ASSIGNED:
            assert not given & self.owned, "what is assigned was not owned"
            self.owned |= given
        else:
            assert given <= self.owned, "what is taken was owned"
            assert not given & self.reading.keys(), "what is taken is not read any more"
            self.owned -= given

    def started(self, command: do.StartPartitions) -> None:
        assert command.partitions <= self.owned
        self.reading |= dict.fromkeys(command.partitions, -1)

    def stopped(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.reading.pop(tp) for tp in partitions if tp in self.reading}


class Broker:
    """One broker; requests of a connection are answered in their order, the next one after the one before."""

    def __init__(self, world: World, node: int) -> None:
        self.world = world
        self.node = node
        self.table = Table(config=BROKER, elected=False, now_ms=world.now_ms)
        self.table._ids = 1_000_000 * node  # no id is given by both
        self.inboxes: dict[int, deque[do.Send]] = {}
        self.busy: dict[int, tuple[int, int]] = {}
        """Connection -> (token, request) that is being answered."""

    def receive(self, connection: int, send: do.Send) -> None:
        self.inboxes.setdefault(connection, deque()).append(send)
        self.serve(connection)

    def serve(self, connection: int) -> None:
        inbox = self.inboxes.get(connection)
        while inbox and connection not in self.busy:
            send = inbox.popleft()
            version = VERSIONS[send.api_key]
            self.advance()
            token = self.table.send(send.api_key, min(version, send.version_most), send.body)
            self.busy[connection] = token, send.request
            self.reply()

    def advance(self) -> None:
        """Bring the coordinator's clock to the world's."""
        self.table.move(self.world.now_ms - self.table.now_ms)

    def reply(self) -> None:
        for connection, (token, request) in list(self.busy.items()):
            if token in self.table.answers:
                del self.busy[connection]
                self.world.deliver(connection, request, self.table.answers.pop(token))
                self.serve(connection)

    def drop(self, connection: int) -> None:
        self.inboxes.pop(connection, None)
        self.busy.pop(connection, None)


class Client:
    """One process: a member, its program, its connection."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world = world
        self.name = name
        given: dict[str, object] = {
            "group.id": "g",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "max.poll.interval.ms": 15_000,
            "request.timeout.ms": 5000,
            "default.api.timeout.ms": 20_000,
            "auto.commit.interval.ms": 2000,
        }
        if instance is not None:
            given["group.instance.id"] = instance
        assignor = CooperativeDealer() if world.is_cooperative else Dealer()
        self.machine = ConsumerCoordinator(GroupMemberConfig(given), [assignor], world.random.random, world.now_ms)
        self.program = Program()
        self.connection: int | None = None
        self.joining: set[int] = set()
        """Connections of JoinGroup requests that have no answer."""
        self.node = 0
        self.open: dict[int, do.Send] = {}
        self.timers: dict[TimerKind, int] = {}
        self.is_dead = False
        self.asleep_until_ms = 0
        self.failure: Exception | None = None
        self.numbers = 0
        self.stopped_at: dict[TopicPartition, int] = {}
        """Where those stand that are not read any more, until they are given back (``AssignmentExecutor``)."""
        self.said_uncommitted = False
        """Whether the member noted that what it gives back next could not be committed."""

    def hear(self, event: ev.Event) -> None:
        if self.is_dead:
            return
        for command in self.machine.handle(event, self.world.now_ms):
            self.execute(command)
        self.world.check()

    def later(self, event: ev.Event, delay_ms: int | None = None) -> None:
        self.world.after(self.world.delay() if delay_ms is None else delay_ms, lambda: self.hear(event))

    def execute(self, command: do.Command) -> None:
        match command:
            case do.Send(request, node, api_key):
                self.open[request] = command
                self.world.after(command.timeout_ms, lambda: self.fail(request, Failure.TIMED_OUT))
                if node is None:
                    assert api_key == FIND_COORDINATOR.key
                    self.later(ev.Responded(request, coordinator(self.world.leader)))
                else:
                    self.world.send(self, command)
            case do.ConnectCoordinator(node):
                self.node = node.id
                self.connection = self.world.new_connection(self)
            case do.DisconnectCoordinator():
                self.disconnect(is_told=False)
            case do.SetMemberTimer(kind, deadline):
                self.timers[kind] = deadline
                self.world.after(deadline - self.world.now_ms, lambda: self.fire(kind, deadline))
            case do.CancelMemberTimer(kind):
                self.timers.pop(kind, None)
            case do.Invoke(callback=callback, partitions=partitions):
                self.program.invoked(command)
                at_rest = {tp: self.stopped_at.pop(tp, -1) for tp in partitions}
                if callback is Callback.REVOKED:
                    if not self.said_uncommitted:
                        self.world.check_given_back(self, at_rest)
                    self.said_uncommitted = False
                self.world.after(self.world.delay(), lambda: self.returned(command.number))
            case ownership.Drain(partitions):
                self.stopped_at |= self.program.stopped(partitions)
            case do.StartPartitions(partitions):
                self.program.started(command)
                self.numbers += 1
                self.program.asked[self.numbers] = "fetch"
                self.later(ev.FetchAsked(self.numbers, partitions), 0)
            case ownership.CollectPositions():
                self.world.after(self.world.delay(), self.collected)
            case do.FetchDone(number, offsets, error):
                assert self.program.asked.pop(number) == "fetch"
                for tp, offset in offsets.items():
                    if self.program.reading.get(tp) == -1:
                        self.program.reading[tp] = 0 if offset is None else offset.offset
                again = frozenset(tp for tp, position in self.program.reading.items() if position == -1)
                if error is not None and again:
                    self.numbers += 1
                    self.program.asked[self.numbers] = "fetch"
                    self.later(ev.FetchAsked(self.numbers, again), 500)
            case do.CommitDone(number):
                assert self.program.asked.pop(number) == "commit"
            case do.NeedMetadata(topics):
                assert topics is not None
                self.world.after(self.world.delay(), lambda: self.learn(topics))
            case do.Raise(error, is_fatal):
                if is_fatal:
                    self.failure = error
            case do.MemberStopped():
                self.program.is_stopped = True
            case do.LogMemberEvent(what):
                self.said_uncommitted |= what in UNCOMMITTED

    def collected(self) -> None:
        positions = self.stopped_at | self.program.reading
        self.hear(ownership.PositionsCollected({tp: at for tp, at in positions.items() if at >= 0}))

    def learn(self, topics: frozenset[str]) -> None:
        counts = {topic: count for topic, count in self.world.topics.items() if topic in topics}
        self.hear(ev.MetadataUpdated(counts, topics))

    def returned(self, number: int) -> None:
        self.program.called = None
        self.hear(ev.CallbackDone(number))

    def fire(self, kind: TimerKind, deadline: int) -> None:
        if self.timers.get(kind) == deadline:
            del self.timers[kind]
            self.hear(ev.MemberTimerFired(kind, deadline))

    def fail(self, request: int, failure: Failure) -> None:
        if self.open.pop(request, None) is not None:
            self.hear(ev.RequestFailed(request, failure))

    def answered(self, request: int, body: Any) -> None:
        if self.open.pop(request, None) is not None:
            self.hear(ev.Responded(request, body))

    def disconnect(self, *, is_told: bool) -> None:
        """The connection is gone, and with it what was on its way."""
        if self.connection is None:
            return
        for connection in (self.connection, *self.joining):
            self.world.drop(connection)
        self.connection = None
        self.joining.clear()
        node = self.node
        for request in [request for request, send in self.open.items() if send.node is not None]:
            self.world.after(0, lambda request=request: self.fail(request, Failure.DISCONNECTED))  # type: ignore[misc]
        if is_told:
            self.later(ev.Disconnected(node), 0)

    def turn(self) -> None:
        """The program's loop: read something, call again."""
        if self.is_dead or self.program.is_stopped:
            return
        if self.world.now_ms >= self.asleep_until_ms:
            for tp, position in self.program.reading.items():
                if position >= 0:
                    self.program.reading[tp] = position + self.world.random.randrange(3)
            self.hear(ev.Polled())
            if self.world.random.random() < 0.1 and self.program.reading:
                self.numbers += 1
                self.program.asked[self.numbers] = "commit"
                offsets = {tp: Offset(at) for tp, at in self.program.reading.items() if at >= 0}
                self.hear(ev.CommitAsked(self.numbers, offsets, self.world.random.random() < 0.5))
        self.world.after(POLL_EVERY_MS, self.turn)


class World:
    """Everything there is, and its clock."""

    def __init__(self, seed: int, *, is_cooperative: bool, topics: dict[str, int]) -> None:
        self.random = Random(seed)
        self.is_cooperative = is_cooperative
        self.topics = topics
        self.now_ms = 1_000_000
        self.clients: list[Client] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._connections: dict[int, tuple[Client, int]] = {}
        self._last_ms: dict[int, int] = {}
        self.brokers = {node: Broker(self, node) for node in (1, 2)}
        self.leader = 1
        self.epoch = 1
        self.committed: dict[tuple[str, int], int] = {}
        self.brokers[1].table.elect(0, 1)
        self.is_calm = False
        self.answers_are_in_order = True
        self._to_lose: set[Client] = set()
        self.after(50, self._tick)

    # --- time -----------------------------------------------------------------------------------------------------

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._queue, (self.now_ms + max(delay_ms, 0), self._pushed, action))

    def run(self, duration_ms: int) -> None:
        end = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end:
            at, _, action = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at)
            action()
        self.now_ms = end

    def delay(self) -> int:
        return self.random.randrange(1, 20 if self.is_calm else DELAY_MS_MAX)

    def _tick(self) -> None:
        for broker in self.brokers.values():
            broker.advance()
            broker.reply()
        self.after(50, self._tick)

    # --- the network ----------------------------------------------------------------------------------------------

    def new_connection(self, client: Client) -> int:
        self._pushed += 1
        self._connections[self._pushed] = client, client.node
        return self._pushed

    def _in_order(self, connection: int, action: Callable[[], None]) -> None:
        """After a chance delay, but never before what was sent before on this connection."""
        at = max(self.now_ms + self.delay(), self._last_ms.get(connection, 0))
        self._last_ms[connection] = at
        self.after(at - self.now_ms, action)

    def send(self, client: Client, send: do.Send) -> None:
        connection = client.connection
        if connection is None:
            self.after(0, lambda: client.fail(send.request, Failure.DISCONNECTED))
            return
        if send.api_key == JOIN_GROUP.key:
            connection = self.new_connection(client)
            client.joining.add(connection)

        def arrive() -> None:
            if connection in self._connections:
                self.brokers[self._connections[connection][1]].receive(connection, send)

        self._in_order(connection, arrive)

    def deliver(self, connection: int, request: int, body: Any) -> None:
        def arrive() -> None:
            if connection in self._connections:
                if connection in client.joining:
                    client.joining.discard(connection)
                    self.drop(connection)
                client.answered(request, body)

        client = self._connections[connection][0]
        if client in self._to_lose:
            self._to_lose.discard(client)
        elif self.answers_are_in_order or self.is_calm:
            self._in_order(-connection, arrive)
        else:
            self.after(self.delay(), arrive)

    def drop(self, connection: int) -> None:
        _, node = self._connections.pop(connection)
        self.brokers[node].drop(connection)

    # --- what happens ---------------------------------------------------------------------------------------------

    def start(self, instance: str | None = None) -> Client:
        client = Client(self, f"client{len(self.clients)}", instance)
        self.clients.append(client)
        client.hear(ev.Subscribed(frozenset(self.topics)))
        client.turn()
        return client

    def kill(self, client: Client) -> None:
        client.disconnect(is_told=False)
        client.is_dead = True

    def close(self, client: Client) -> None:
        if not client.is_dead and not client.program.is_stopped:
            client.hear(ev.Closed())

    def reset(self, client: Client) -> None:
        client.disconnect(is_told=True)

    def sleep(self, client: Client, duration_ms: int) -> None:
        client.asleep_until_ms = self.now_ms + duration_ms

    def lose(self, client: Client) -> None:
        """Its next answer never comes, and the connection stays."""
        self._to_lose.add(client)

    def grow(self) -> None:
        """A topic has one more partition, and everybody hears of it, sooner or later."""
        self.topics["t"] += 1
        for client in self.clients:
            self.after(self.delay(), lambda client=client: client.learn(frozenset(self.topics)))  # type: ignore[misc]

    def turn_away(self, client: Client) -> None:
        """The program unsubscribes, and subscribes again."""
        client.hear(ev.Unsubscribed())
        client.later(ev.Subscribed(frozenset(self.topics)))

    def move(self) -> None:
        """The other broker coordinates the group now."""
        old, new = self.brokers[self.leader], self.brokers[3 - self.leader]
        old.advance()
        self.epoch += 1
        old.table.resign(0, self.epoch)
        old.reply()
        new.advance()
        new.table.logs = {0: list(old.table.logs.get(0, []))}
        new.table.elect(0, self.epoch)
        self.leader = new.node

    # --- what must hold -------------------------------------------------------------------------------------------

    def live(self) -> list[Client]:
        return [
            client
            for client in self.clients
            if not client.is_dead and not client.program.is_stopped and client.failure is None
        ]

    def check(self) -> None:
        """No two members of the group's present generation read the same; no committed offset goes back."""
        table = self.brokers[self.leader].table
        group = table.coordinator.manager.get_group("g")
        if group is None:
            return
        readers: dict[TopicPartition, str] = {}
        for client in self.live():
            machine = client.machine
            if machine.generation.generation_id != group.generation_id or machine.state is not MemberState.STABLE:
                continue
            if machine.generation.member_id not in group.members:
                continue
            for tp in client.program.reading:
                assert tp not in readers, f"{tp} is read by {readers[tp]} and by {client.name}"
                readers[tp] = client.name

    def check_given_back(self, client: Client, positions: dict[TopicPartition, int]) -> None:
        """What a member gives back is committed before, or the member says that it is not."""
        broker = self.brokers[self.leader]
        broker.advance()
        asked = sorted((tp.topic, tp.partition) for tp, at in positions.items() if at > 0)
        for tp, (offset, _, error) in (broker.table.fetch(asked) if asked else {}).items():
            at = positions[TopicPartition(*tp)]
            assert (error, offset) >= (0, at), f"{client.name} gives {tp} back at {at}, committed is {offset}"

    def check_commits(self) -> None:
        broker = self.brokers[self.leader]
        broker.advance()
        asked = [(topic, number) for topic, count in self.topics.items() for number in range(count)]
        for tp, (offset, _, error) in broker.table.fetch(asked).items():
            assert error == 0
            assert offset >= self.committed.get(tp, -1), f"{tp} went back from {self.committed[tp]} to {offset}"
            self.committed[tp] = offset

    def settle(self) -> None:
        """Good luck from now on: they come to rest, and stay there."""
        self.is_calm = True
        for client in self.clients:
            client.asleep_until_ms = self.now_ms
        end = self.now_ms + SETTLE_MS
        calm_since = self.now_ms
        # Longer than a session: a member that died in the middle of a join is missed only then.
        while self.now_ms < min(end, calm_since + CALM_MS):
            self.run(500)
            if not self.has_converged():
                calm_since = self.now_ms
        self.check_converged()

    def has_converged(self) -> bool:
        try:
            self.check_converged()
        except AssertionError:
            return False
        return True

    def check_converged(self) -> None:
        """All live members are in one generation, and all partitions are read, each by one of them."""
        live = self.live()
        generations = {client.machine.generation.generation_id for client in live}
        states = {client.name: client.machine.state.value for client in live}
        assert len(generations) <= 1, f"generations {generations}, {states}"
        assert all(client.machine.state is MemberState.STABLE for client in live), states
        read = sorted(tp for client in live for tp in client.program.reading)
        wanted = sorted(TopicPartition(topic, at) for topic, count in self.topics.items() for at in range(count))
        if live:
            assert read == wanted, f"{[(client.name, sorted(client.program.reading)) for client in live]}"
        for client in live:
            assert set(client.program.reading) == client.program.owned == set(client.machine.assigned)
            assert all(position >= 0 for position in client.program.reading.values())
