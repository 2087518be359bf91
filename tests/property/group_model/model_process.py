"""One process of a group: the core, the shell around it, and a program that reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.property.group_model import member_invariants
from tests.property.group_model.model_coordinator import Channel
from tests.property.group_model.model_listener import ModelListener
from tests.property.group_model.procedures import Procedure
from tests.property.group_model.zookeeper import Call, Connection
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.assignment_planner import ZooKeeperAssignmentPlanner
from zkconsumer.member.events import MemberTimer
from zkconsumer.member.group_settings import GroupSettings
from zkconsumer.member.member_state_machine import MemberStateMachine
from zkconsumer.member.membership_state_machine import MembershipState
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from tests.property.group_model.simulation import World

SESSION_TIMEOUT_MS = 6000
COMMIT_INTERVAL_MS = 700


@dataclass
class Stream:
    """One partition in the hands of a program; ``consumed`` is the next offset, -1 while the reset policy is asked."""

    thread: str
    consumed: int
    in_hand: bool = False
    is_live: bool = True
    reported: bool = False


class Process:
    """A process: one ``MemberStateMachine``, its shell, and a program that reads."""

    def __init__(self, world: World, name: str, threads: Mapping[str, int]) -> None:
        settings = GroupSettings(
            name,
            auto_commit_interval_ms=COMMIT_INTERVAL_MS,
            release_settle_ms=world.settle_ms,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            offset_stores=world.stores,
        )
        planner = ZooKeeperAssignmentPlanner(name, world.strategy, world.compatibility, exclude_internal_topics=True)
        self.world = world
        self.name = name
        self.threads = dict(threads)
        self.group = MemberStateMachine(settings, planner)
        self.connection: Connection | None = None
        self.session_id: int | None = None
        self.waiting: list[tuple[int, Call]] = []
        self.inbox: deque[Callable[[], None]] = deque()
        self._put_off: list[Callable[[], None]] = []
        self.timers: dict[MemberTimer, int] = {}
        self.streams: dict[TopicPartition, Stream] = {}
        self.channel = Channel(world, self, world.coordinator)
        self.lease_until_ms = 0
        self.paused_until_ms = 0
        self.is_dead = False
        self.has_left = False
        self.failure: do.Fail | None = None
        self.reads_ms: list[int] = []
        self.connected_at_ms = 0
        self.was_withdrawn = False
        self.listener = ModelListener(self, world.seed + len(world.processes)) if world.listens() else None
        if self.listener is not None:
            self.enqueue(lambda: self.feed(ev.ListenerSet()))

    # --- its thread ---

    @property
    def is_paused(self) -> bool:
        return self.world.now_ms < self.paused_until_ms

    def enqueue(self, action: Callable[[], None]) -> None:
        self.inbox.append(action)
        self.world.at(self.world.now_ms, self.run)

    def run(self) -> None:
        while self.inbox and not self.is_paused and not self.is_dead:
            self.inbox.popleft()()

    def when_awake(self, action: Callable[[], None]) -> None:
        """Something is due while the process is stopped: do it when it goes on, however early that is."""
        self._put_off.append(action)

    def wake(self) -> None:
        """It goes on: what came in first, then what was due."""
        self.run()
        put_off, self._put_off = self._put_off, []
        for action in put_off:
            action()

    def feed(self, event: ev.Event) -> None:
        world = self.world
        world.note(self, event)
        commands = self.group.handle(event, world.now_ms)
        self.was_withdrawn |= self.group.membership.state is MembershipState.EXCLUDED
        world.tell(self.name, event, commands)
        member_invariants.check_invariants(self.group)
        member_invariants.check_command_order(commands)
        for command in commands:
            self.execute(command)
        world.check_process(self)

    def watch_fired(self, path: str) -> None:
        kind, _, topic = path.partition(":")
        self.feed(ev.OwnersChanged(topic) if kind == "owners" else ev.GroupChanged(path))

    # --- the store ---

    def connect(self) -> None:
        """The client library finds a server: the session goes on, or has ended."""
        world = self.world
        if self.is_dead or (self.connection is not None and self.connection.is_up):
            return
        if self.is_paused:
            self.when_awake(self.connect)
            return
        old = None if self.session_id is None else world.server.sessions[self.session_id]
        if old is None or not old.is_alive:
            if old is not None:
                lost = old.id
                self.enqueue(lambda: self.feed(ev.SessionLost(lost)))
                self._answer_waiting(None)
            self.session_id = world.new_session()
        session_id = self.session_id
        assert session_id is not None
        self.connection = Connection(world, self, session_id)
        self.connected_at_ms = world.now_ms
        world.hear(session_id)
        self.enqueue(lambda: self.feed(ev.SessionConnected(session_id, SESSION_TIMEOUT_MS)))
        waiting, self.waiting = self.waiting, []
        for wanted, call in waiting:
            self._submit(wanted, call)

    def disconnect(self) -> None:
        if self.connection is not None and self.connection.is_up:
            self.connection.cut()
            self.world.silence(self.connection.session_id)
            self.enqueue(lambda: self.feed(ev.SessionSuspended()))

    def _submit(self, session_id: int, call: Call) -> None:
        if session_id != self.session_id:
            self.enqueue(lambda: call.done(None))
        elif self.connection is not None and self.connection.is_up:
            self.connection.send(call)
        else:
            self.waiting.append((session_id, call))

    def _answer_waiting(self, result: Any) -> None:
        waiting, self.waiting = self.waiting, []
        for _, call in waiting:
            self.enqueue(lambda call=call: call.done(result))

    def run_procedure(self, session_id: int, procedure: Procedure) -> None:
        """Drive a procedure round by round, as the shell does."""

        def step(result: Any) -> None:
            try:
                operation = procedure.send(result)
            except StopIteration as end:
                self.feed(end.value)
                return
            self._submit(session_id, Call(operation, step))

        self.enqueue(lambda: step(None))

    # --- commands ---

    def execute(self, command: do.Command) -> None:
        world = self.world
        session_id = getattr(command, "session_id", None)
        if session_id is not None:
            live = self.group.session.live
            assert live is not None, command
            assert live.session_id == session_id, command
        match command:
            case do.StartTimer(timer, delay_ms):
                self._start_timer(timer, world.now_ms + delay_ms)
            case do.StopTimer(timer):
                self.timers.pop(timer, None)
            case do.SetLease(until_ms):
                self.lease_until_ms = until_ms
            case do.ProbeSession(session_id):
                sent_at_ms = world.now_ms

                def answered(result: Any) -> None:
                    if result is not None:
                        self.feed(ev.SessionAnswered(session_id, sent_at_ms))

                self._submit(session_id, Call(lambda _: True, answered))
            case do.Register(session_id=session_id):
                self.run_procedure(session_id, world.procedures.register(self.name, command))
            case do.Deregister(session_id=session_id):
                self.run_procedure(session_id, world.procedures.deregister(self.name, command))
            case do.ReadGroup(session_id=session_id):
                self.reads_ms.append(world.now_ms)
                self.run_procedure(session_id, world.procedures.read_group(command))
            case do.ListOwners(session_id=session_id):
                self.run_procedure(session_id, world.procedures.list_owners(command))
            case do.ReadPositions(session_id=session_id):
                self.run_procedure(session_id, world.procedures.read_positions(command))
            case do.FetchOffsets():
                self.channel.fetch(command)
            case do.CommitToKafka():
                self.channel.commit(command)
            case do.CancelKafkaRequest():
                self.channel.cancel(command)
            case do.AcquireOwnership(session_id=session_id):
                self.run_procedure(session_id, world.procedures.claim(command))
            case do.CommitToZooKeeper(session_id=session_id):
                self.run_procedure(session_id, world.procedures.commit(command))
            case do.ReleaseOwnership(session_id=session_id):
                if self.listener is not None:
                    self.listener.check_release(command)
                self.run_procedure(session_id, world.procedures.release(command))
            case ownership.StartFetching(positions, threads):
                if self.listener is not None:
                    self.listener.check_start(command)
                for tp, offset in positions.items():
                    assert tp not in self.streams, f"{tp} is started twice"
                    self.streams[tp] = Stream(threads[tp], offset)
            case ownership.Drain(partitions):
                for tp in partitions:
                    self.streams[tp].is_live = False
                self._report({tp: s for tp, s in self.streams.items() if not s.is_live and not s.in_hand})
            case ownership.ForceDrain(partitions):
                self._report({tp: self.streams[tp] for tp in partitions if tp in self.streams})
            case ownership.MoveToThread(threads):
                for tp, thread in threads.items():
                    self.streams[tp] = Stream(thread, self.streams[tp].consumed)
            case ownership.DropPartitions(partitions):
                if self.listener is not None:
                    self.listener.dropped(command)
                for tp in partitions:
                    self.streams.pop(tp, None)
            case ownership.CollectPositions():
                positions = {tp: s.consumed for tp, s in self.streams.items() if s.is_live}
                self.enqueue(lambda: self.feed(ownership.PositionsCollected(positions)))
            case do.CallBeforeReleasing() | do.CallBeforeStarting():
                assert self.listener is not None, "there is no listener to call"
                self.listener.call(command)
            case do.CallPartitionsLost():
                assert self.listener is not None, "there is no listener to call"
                self.listener.lost(command)
            case do.IncrementCounter("listener_calls_skipped"):
                assert self.listener is not None, "there is no listener to call"
                self.listener.skipped()
            case do.AnnounceLeft():
                self.has_left = True
                self.enqueue(self.close)
            case do.Fail():
                self.failure = command
            case do.CompleteCommit(call):
                world.calls_waiting.discard((self.name, call))

    def _start_timer(self, timer: MemberTimer, due_ms: int) -> None:
        self.timers[timer] = due_ms
        self.world.at(due_ms, lambda: self._timer_due(timer, due_ms))

    def _timer_due(self, timer: MemberTimer, due_ms: int) -> None:
        if self.is_dead or self.timers.get(timer) != due_ms:
            return
        if self.is_paused:
            self.when_awake(lambda: self._timer_due(timer, due_ms))
            return
        del self.timers[timer]
        if timer is MemberTimer.LISTENER and self.listener is not None:
            self.listener.is_given_up = True
        self.feed(ev.TimerFired(timer))

    def close(self) -> None:
        """The program closes: the session ends at once when the server can be reached, else by and by."""
        connection = self.connection
        self.feed(ev.SessionClosed())
        self.is_dead = True
        if connection is not None and connection.is_up:
            connection.is_up = False
            self.world.end_session(connection.session_id)
        self.world.processes.pop(self.name, None)

    # --- the program ---

    def _report(self, streams: Mapping[TopicPartition, Stream]) -> None:
        positions = {tp: stream.consumed for tp, stream in streams.items() if not stream.reported}
        for tp in positions:
            streams[tp].reported = True
        if positions:
            self.enqueue(lambda: self.feed(ownership.PartitionsDrained(positions)))

    def read_on(self) -> None:
        """Every stream's caller comes back for more, or does not yet."""
        world = self.world
        back: dict[TopicPartition, Stream] = {}
        for tp, stream in list(self.streams.items()):
            if stream.in_hand and world.random.random() >= world.weather.slow_caller:
                stream.in_hand = False
                if not stream.reported:  # what was given up on counts as not consumed
                    stream.consumed += 1
                    world.consumed(tp, stream.consumed)
                if not stream.is_live:
                    back[tp] = stream
            if stream.is_live and not stream.in_hand:
                self._hand_out(tp, stream)
        self._report(back)

    def _hand_out(self, tp: TopicPartition, stream: Stream) -> None:
        if self.world.now_ms >= self.lease_until_ms:
            return
        if stream.consumed < 0:
            stream.consumed = 0
            self.enqueue(lambda: self.feed(ownership.OffsetReset(tp, 0)))
            return
        stream.in_hand = True
        self.world.handed_out(self, tp, stream.consumed)
