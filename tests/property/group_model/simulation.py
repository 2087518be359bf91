"""A small world for whole groups of bare ``Group``s: a model of ZooKeeper, of the streams, and of what goes wrong.

One seed is one history.  Nothing here is real but the core and its planner: the server is a few dictionaries, the
network delivers in order and breaks, a process may be stopped and go on, a caller takes its time with a record.

The order of the store's contract is kept: answers come in the order of the requests, a watch event before any answer
that shows the change, lost answers before ``SessionSuspended``, ``SessionLost`` before the answers that it takes away;
what is asked while the connection is broken waits for it.

Checked while it runs:

    ownership       what a member reads has an owner node of its own live session, or it delivers nothing; hence two
                    members never both deliver a partition
    lease           nothing is delivered after the lease, which ends before any server may end the session
    no gap          no offset is skipped
    consumed        what is committed was consumed
    offsets         no write of ours makes a stored offset smaller
    no repetition   in a world without faults nothing is delivered twice

``member_invariants`` is checked after every event: its rules concern one member, these the whole group.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NoReturn

from tests.property.group_model.fault_profile import CALM, FaultProfile
from tests.property.group_model.model_coordinator import Coordinator
from tests.property.group_model.model_process import SESSION_TIMEOUT_MS, Process
from tests.property.group_model.procedures import Procedures
from tests.property.group_model.zookeeper import Server, ServerSession
from tests.transcripts.conversation import show
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.events import MemberTimer, StoredOffset, WriteOutcome
from zkconsumer.member.group_assignment import AssignmentContext, create_instance
from zkconsumer.member.group_view import TopicSubscription
from zkconsumer.member.membership_state_machine import MembershipState
from zkconsumer.member.offset_stores import OffsetStoreSelection
from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.member.rebalance_state_machine import RebalanceState
from zkconsumer.member.topic_count import StaticTopicCount
from zkconsumer.types import TopicPartition

TICK_MS = 1000
PROCESSES_MAX = 5
HISTORY_EVENTS_MAX = 200
LISTENERS = 0.3
ODD = TopicSubscription("white_list", {"(?>t|tt).*": 1})
"""A subscription that may mean something to Java, and that we do not evaluate."""

ROUTINE = (ev.SessionAnswered, ownership.PositionsCollected, ownership.OffsetReset)
ROUTINE_TIMERS = (MemberTimer.PROBE, MemberTimer.COMMIT)
"""What a history does not tell."""


class Broken(AssertionError):
    """A rule does not hold in this world."""


class World:
    """Everything, and the clock."""

    def __init__(
        self,
        seed: int,
        weather: FaultProfile,
        *,
        processes: int = 3,
        stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._listener_random = Random(seed)
        self.weather = weather
        self.is_calm = weather == CALM
        self.now_ms = 1000
        self.server = Server(on_group_changed=self._group_changed)
        self.procedures = Procedures(self.server, self._is_unlucky, self.check_write)
        self.coordinator = Coordinator(self)
        self.stores = stores
        self.processes: dict[str, Process] = {}
        self.calls_waiting: set[tuple[str, int]] = set()
        self.strategy, self.compatibility = self.random.choice(
            [("range", ""), ("range", ""), ("roundrobin", "1.0"), ("roundrobin", "auto")]
        )
        self.settle_ms = self.random.choice([0, 0, 0, 300])
        self.handed_upto: dict[TopicPartition, int] = {}
        self.consumed_upto: dict[TopicPartition, int] = {}
        self.orphans: set[tuple[int, TopicPartition]] = set()
        """Owner nodes that somebody deleted behind the back of the session that made them."""
        self.changed_at_ms = 0
        self.idleness = 1
        """How much slower than usual the programs read."""
        self.sometimes: set[str] = set()
        """What happened in this history that must happen in some history."""
        self._told: deque[tuple[int, str, object, Sequence[do.Command]]] = deque(maxlen=HISTORY_EVENTS_MAX)
        self._due: list[tuple[int, int, Callable[[], Any]]] = []
        self._sequence = self._sessions = self._names = self._calls = 0
        self.server.topics = {"t": self.random.randint(1, 5), "u": self.random.randint(1, 3)}
        for _ in range(processes):
            self.start_process()
        self._read_on()

    # --- time ---------------------------------------------------------------------------------------------------

    def at(self, time_ms: int, action: Callable[[], Any]) -> None:
        """Do something later; at the same time, in the order in which it was said."""
        self._sequence += 1
        heapq.heappush(self._due, (time_ms, self._sequence, action))

    def run_until(self, time_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; True when ``until`` held before the time was over."""
        while self._due and self._due[0][0] <= time_ms:
            self.now_ms, _, action = heapq.heappop(self._due)
            action()
            if until is not None and until():
                return True
        self.now_ms = time_ms
        return until is not None and until()

    def delay(self) -> int:
        """Mostly short; now and then as long as the weather allows."""
        return self.random.randint(1, 5 if self.random.random() < 0.9 else self.weather.delay_ms_max)

    def _read_on(self) -> None:
        for process in list(self.processes.values()):
            if not process.is_paused:
                process.read_on()
        self.at(self.now_ms + self.random.randint(50, 250) * self.idleness, self._read_on)

    # --- sessions -----------------------------------------------------------------------------------------------

    def new_session(self) -> int:
        """Somebody connects without a session that lives."""
        self._sessions += 1
        self.server.sessions[self._sessions] = ServerSession(self._sessions, self.now_ms)
        return self._sessions

    def hear(self, session_id: int) -> None:
        """Pings come (again)."""
        session = self.server.sessions[session_id]
        session.is_silent, session.heard_at_ms = False, self.now_ms

    def silence(self, session_id: int) -> None:
        """No ping comes any more; the last one may be a third of the time-out old."""
        session = self.server.sessions[session_id]
        if not session.is_silent:
            ping_ms = self.now_ms - self.random.randint(0, SESSION_TIMEOUT_MS // 3)
            session.is_silent, session.heard_at_ms = True, max(session.heard_at_ms, ping_ms)
        self._expire_later(session)

    def _expire_later(self, session: ServerSession) -> None:
        """A server ends a session at the next tick after its time-out: late, never early."""
        due_ms = session.heard_at_ms + SESSION_TIMEOUT_MS
        self.at(due_ms + self.random.randint(0, TICK_MS), lambda: self._expire(session))

    def _expire(self, session: ServerSession) -> None:
        if not session.is_alive or not session.is_silent:
            return
        if self.now_ms < session.heard_at_ms + SESSION_TIMEOUT_MS:
            self._expire_later(session)
            return
        self.tell("server", f"session {session.id} expires")
        self.end_session(session.id)

    def end_session(self, session_id: int) -> None:
        """Its ephemerals go with it; and the connection, if there is one."""
        self.server.sessions[session_id].is_alive = False
        for tp in [tp for tp, node in self.server.owners.items() if node.session_id == session_id]:
            self.server.delete_owner(tp)
        for name in [name for name, (owner, _) in self.server.registrations.items() if owner == session_id]:
            self._delete_registration(name)
        for process in self.processes.values():
            connection = process.connection
            if connection is not None and connection.is_up and connection.session_id == session_id:
                process.disconnect()
                self.at(self.now_ms + self.delay(), process.connect)

    def listens(self) -> bool:
        """Whether the next program has a rebalance listener."""
        return self._listener_random.random() < LISTENERS

    # --- what merely changes ------------------------------------------------------------------------------------

    def start_process(self, name: str = "") -> Process:
        """A process with a new id, or once more with one that was there."""
        if not name:
            self._names += 1
            name = f"m{self._names}"
        topics = self.random.choice([("t",), ("t", "u"), ("t", "u")])
        process = Process(self, name, {topic: self.random.randint(1, 2) for topic in topics})
        self.processes[name] = process
        self.at(self.now_ms + self.delay(), process.connect)
        process.enqueue(lambda: process.feed(ev.JoinRequested(TopicSubscription("static", process.threads))))
        return process

    def change(self) -> None:
        """Something that happens in a healthy group."""
        if not self.processes:
            self.start_process()
            return
        process = self.random.choice(list(self.processes.values()))
        kind = self.random.choice(["join", "leave", "grow", "commit", "commit"])
        self.tell("world", f"{kind} {process.name}")
        match kind:
            case "join" if len(self.processes) < PROCESSES_MAX:
                self.start_process()
            case "leave" if len(self.processes) > 1:
                process.enqueue(lambda: process.feed(ev.LeaveRequested()))
            case "grow":
                self._grow(self.random.choice(["t", "u"]))
            case "commit":
                self._commit(process)

    def _grow(self, topic: str) -> None:
        busy = (RebalanceState.RELEASING, RebalanceState.ACQUIRING, RebalanceState.POSITIONING)
        if any(process.group.rebalance.state in busy for process in self.processes.values()):
            self.sometimes.add("a topic grows in the middle of an attempt")
        self.server.topics[topic] = self.server.topics.get(topic, 0) + 1
        self.server.fire(f"topic:{topic}")

    def _commit(self, process: Process) -> None:
        self._calls += 1
        call = self._calls
        self.calls_waiting.add((process.name, call))
        positions = {tp: stream.consumed for tp, stream in process.streams.items() if stream.consumed >= 0}
        process.enqueue(lambda: process.feed(ev.CommitRequested(call, positions)))

    # --- what goes wrong ----------------------------------------------------------------------------------------

    def fault(self) -> None:
        """Whatever the weather brings to one of them."""
        if not self.processes:
            return
        rng, weather = self.random, self.weather
        process = rng.choice(list(self.processes.values()))
        if rng.random() < weather.cut:
            self.tell("world", f"cut {process.name}")
            process.disconnect()
            self.at(self.now_ms + rng.choice([10, 200, 1000, 4000, 9000, 12_000]), process.connect)
        if rng.random() < weather.pause:
            self._pause(process, rng.choice([300, 2000, 5000, 9000]))
        if rng.random() < weather.crash and len(self.processes) > 1:
            self._crash(process)
        if rng.random() < weather.lose_node and self.server.owners:
            self._lose_node(rng.choice(sorted(self.server.owners)))
        if rng.random() < weather.lose_registration and process.name in self.server.registrations:
            self.tell("world", f"somebody deletes the registration of {process.name}")
            self._delete_registration(process.name)
        if rng.random() < weather.rewind and self.server.offsets:
            self._rewind(rng.choice(sorted(self.server.offsets)))
        if rng.random() < weather.odd_member:
            self._toggle_odd_member()
        if self.stores.uses_kafka:
            self.coordinator.fault()

    def _pause(self, process: Process, for_ms: int) -> None:
        self.tell("world", f"pause {process.name} {for_ms}")
        process.paused_until_ms = max(process.paused_until_ms, self.now_ms + for_ms)
        connection = process.connection
        if connection is not None and connection.is_up:
            self.silence(connection.session_id)
        if self.random.random() < 0.5:
            self.at(process.paused_until_ms, process.read_on)  # its program wakes before its control thread
        self.at(process.paused_until_ms, lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        if process.is_paused or process.is_dead:
            return
        connection = process.connection
        if connection is not None and connection.is_up:
            self.hear(connection.session_id)
        process.wake()

    def _crash(self, process: Process) -> None:
        self.tell("world", f"crash {process.name}")
        process.is_dead = True
        del self.processes[process.name]
        self.calls_waiting = {(name, call) for name, call in self.calls_waiting if name != process.name}
        if process.connection is not None and process.connection.is_up:
            process.connection.cut()
        if process.session_id is not None:
            self.silence(process.session_id)
        if self.random.random() < 0.5:
            self.at(self.now_ms + self.random.randint(0, 2000), lambda: self._restart(process.name))

    def _restart(self, name: str) -> None:
        if name not in self.processes:
            self.start_process(name)

    def _lose_node(self, tp: TopicPartition) -> None:
        self.tell("world", f"somebody deletes the owner node of {tp}")
        self.orphans.add((self.server.owners[tp].session_id, tp))
        self.server.delete_owner(tp)

    def _rewind(self, tp: TopicPartition) -> None:
        self.tell("world", f"somebody rewinds {tp}")
        found = self.server.offsets[tp]
        self.server.offsets[tp] = StoredOffset(self.random.randint(0, max(0, found.offset)), found.version + 1)

    def _toggle_odd_member(self) -> None:
        """Somebody comes, or goes, whose subscription we cannot evaluate."""
        if "odd" in self.server.registrations:
            self._delete_registration("odd")
        else:
            self.server.registrations["odd"] = (0, ODD)
            self.server.fire("ids")

    def _is_unlucky(self) -> bool:
        return self.random.random() < self.weather.refusals

    def clear_up(self) -> None:
        """The faults are over: everybody is connected, goes on, and is quick."""
        self.weather = CALM
        self.changed_at_ms = self.now_ms
        self.coordinator.away_until_ms = 0
        if "odd" in self.server.registrations:
            self._delete_registration("odd")
        if not self.processes:
            self.start_process()
        for process in self.processes.values():
            process.paused_until_ms = min(process.paused_until_ms, self.now_ms)
            self.at(self.now_ms, lambda process=process: self._resume(process))
            self.at(self.now_ms, process.connect)

    def _delete_registration(self, name: str) -> None:
        del self.server.registrations[name]
        self.server.fire("ids")

    def _group_changed(self) -> None:
        self.changed_at_ms = self.now_ms

    # --- what must hold -----------------------------------------------------------------------------------------

    def handed_out(self, process: Process, tp: TopicPartition, offset: int) -> None:
        """A record goes to the program."""
        if not self._is_owner(process, tp):
            self._broken(f"ownership: {process.name} hands out {tp}, and the node is {self.server.owners.get(tp)}")
        upto = self.handed_upto.get(tp, 0)
        if offset > upto:
            self._broken(f"no gap: {tp} goes on at {offset}, and {upto} was not handed out")
        if self.is_calm and offset < upto:
            self._broken(f"no repetition: {tp} hands out {offset} again (up to {upto} already)")
        self.handed_upto[tp] = max(upto, offset + 1)

    def consumed(self, tp: TopicPartition, upto: int) -> None:
        """The program came back for more."""
        self.consumed_upto[tp] = max(self.consumed_upto.get(tp, 0), upto)

    def check_write(self, tp: TopicPartition, found: int, offset: int) -> None:
        """Somebody who owns it writes an offset, to either store."""
        if offset < found:
            self._broken(f"offsets: {tp} goes back from {found} to {offset}")
        if offset > self.consumed_upto.get(tp, 0):
            self._broken(f"consumed: {tp} is committed at {offset}, which nobody consumed")

    def check_process(self, process: Process) -> None:
        """What it reads is its own, or it knows that it must not hand out."""
        fetching = process.group.fetched_partitions
        live = {tp for tp, stream in process.streams.items() if stream.is_live}
        if live != fetching.keys():
            self._broken(f"the streams of {process.name} read {live}, the core {set(fetching)}")
        if process.lease_until_ms <= self.now_ms:
            return
        for tp in fetching:
            if not self._is_owner(process, tp):
                lease = f"under a lease until {process.lease_until_ms}"
                self._broken(
                    f"ownership, lease: {process.name} reads {tp} {lease}, and the node is {self.server.owners.get(tp)}"
                )

    def _is_owner(self, process: Process, tp: TopicPartition) -> bool:
        """Whether the owner node is of its session, or was deleted by somebody else's hand and it cannot know yet."""
        node = self.server.owners.get(tp)
        if node is not None and node.session_id == process.session_id:
            self.orphans.discard((node.session_id, tp))
            return True
        return (process.session_id, tp) in self.orphans

    def reads_since_the_last_change(self, process: Process) -> int:
        """How often a member read the group after anything changed for it for the last time."""
        changed_at_ms = max(self.changed_at_ms, process.connected_at_ms)
        return sum(at_ms > changed_at_ms for at_ms in process.reads_ms)

    def is_settled(self) -> bool:
        """Everybody holds its share, and the shares together are what the assignment says."""
        for process in self.processes.values():
            group = process.group
            if (
                group.membership.state is not MembershipState.REGISTERED
                or group.rebalance.state is not RebalanceState.STABLE
            ):
                return False
            if group.fetched_partitions != group.assignment.own_partitions:
                return False
            listener = process.listener
            if listener is not None and (listener.is_out_of_it or listener.told != group.assignment.group_assignment):
                return False
        return {tp: node.thread for tp, node in self.server.owners.items()} == self._expected_owners()

    def _expected_owners(self) -> dict[TopicPartition, str]:
        counts = {name: StaticTopicCount(name, of.topics) for name, (_, of) in self.server.registrations.items()}
        partitions = {topic: range(n) for topic, n in self.server.topics.items()}
        form = "0.10.2" if self.compatibility == "auto" else self.compatibility
        assignment = create_instance(self.strategy, form).assign(AssignmentContext("nobody", counts, partitions))
        return {tp: str(thread) for tp, thread in assignment.owners.items()}

    def _broken(self, why: str) -> NoReturn:
        raise Broken(f"at {self.now_ms}: {why}")

    # --- what is told -------------------------------------------------------------------------------------------

    def tell(self, who: str, event: object, commands: Sequence[do.Command] = ()) -> None:
        """One event of the history."""
        is_routine = isinstance(event, ROUTINE) or (isinstance(event, ev.TimerFired) and event.timer in ROUTINE_TIMERS)
        if not is_routine:
            self._told.append((self.now_ms, who, event, commands))

    def note(self, process: Process, event: ev.Event) -> None:
        """Called before a process handles an event: remember what is worth having happened."""
        match event:
            case ev.SessionLost():
                states = {held.state for held in process.group.partitions.values()}
                for state in states & {PartitionState.ACQUIRING, PartitionState.DRAINING, PartitionState.RELEASING}:
                    self.sometimes.add(f"a session ends with a partition {state.value}")
                if process.group.committer.is_in_progress:
                    self.sometimes.add("a session ends with a commit under way")
                if process.group.committer.is_waiting_for_kafka:
                    self.sometimes.add("a session ends while Kafka is told")
            case ev.GroupChanged() if process.group.committer.is_in_progress:
                self.sometimes.add("a change is seen with a commit under way")
            case ev.TimerFired(MemberTimer.RELEASE_WAITS_FOR_KAFKA):
                self.sometimes.add("a release does not wait for Kafka any longer")
            case ev.AcquireOwnershipCompleted() | ev.ReleaseOwnershipCompleted() | ev.CommitToZooKeeperCompleted():
                for result in event.results.values():
                    if result.outcome is WriteOutcome.UNKNOWN:
                        self.sometimes.add(f"the outcome of a write is unknown: {type(event).__name__}")
                    if "in the same moment" in result.why:
                        self.sometimes.add("two members race for one node")
                    if getattr(result, "rewound_from", None) is not None:
                        self.sometimes.add("a rewound offset is written again")
            case ev.RegistrationConflict():
                self.sometimes.add("an earlier session holds the id")
            case ownership.PartitionsDrained() if MemberTimer.DRAIN not in process.timers:
                self.sometimes.add("a drain was given up")
            case ev.Registered() if process.was_withdrawn:
                self.sometimes.add("a member that withdrew comes back")

    def unsettled(self) -> str:
        """Who stands where, for a person."""
        words = []
        for process in self.processes.values():
            group = process.group
            held = {str(tp): partition.state.value for tp, partition in sorted(group.partitions.items())}
            states = f"{group.session.state.value} {group.membership.state.value} {group.rebalance.state.value}"
            share = {str(tp): thread for tp, thread in sorted(group.assignment.own_partitions.items())}
            timers = {timer.value: due_ms for timer, due_ms in process.timers.items()}
            words.append(f"{process.name}: {states} held={held} share={share} timers={timers}")
        owners = {str(tp): node.thread for tp, node in sorted(self.server.owners.items())}
        expected = {str(tp): thread for tp, thread in sorted(self._expected_owners().items())}
        return "\n".join([*words, f"owners {owners}", f"expected {expected}"])

    def history(self) -> str:
        """The last events, for a person."""
        lines: list[str] = []
        for at_ms, who, event, commands in self._told:
            lines.append(f"{at_ms:>6} {who:<6} {event}")
            lines += [
                f"{'':>13} -> {show(c)}" for c in commands if not isinstance(c, do.StopTimer | do.IncrementCounter)
            ]
        return "\n".join(lines)
