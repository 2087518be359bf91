"""A ``KafkaConsumer`` on a ``SimulatedCluster``, and a program that checks what the consumer does.

    consumer = SimulatedConsumer()                     # one thread: the heartbeat thread does not run
    consumer = SimulatedConsumer(choices=Choices())    # both threads run, one at a time, as ``Scheduler`` says

``CheckedProgram`` is the rebalance listener and the caller of ``poll``: its checks hold in every test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bridge.client.kafka_consumer.consumer_components import ConsumerEnvironment
from bridge.client.kafka_consumer.consumer_records import ConsumerRecords
from bridge.client.kafka_consumer.kafka_consumer import KafkaConsumer
from bridge.client.kafka_consumer.kafka_consumer_config import KafkaConsumerConfig
from tests.coordinator.client_harness import CooperativeDealer, Dealer
from tests.kafka_consumer_fixtures import NoThread, consumer_in
from tests.simulated_group_cluster import GROUP, ReceivedCommit, Rival, SimulatedCluster, SimulatedNetwork
from tests.two_thread_scheduler import Choices, ScheduledCondition, ScheduledLock, Scheduler
from zkconsumer.kafka.group.consumer_rebalance import Exit
from zkconsumer.kafka.group.events import TimerKind
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.kafka.group.group_member import JoinStep
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import HEARTBEAT, SYNC_GROUP

T = [TopicPartition("t", number) for number in range(4)]
SESSION_MS, HEARTBEAT_MS, POLL_INTERVAL_MS = 6_000, 1_000, 15_000
RETRY_MS, REQUEST_MS, API_MS = 100, 5_000, 20_000


class CheckedProgram:
    """What a program sees; every method raises ``AssertionError`` when the consumer breaks a rule.

    ``during`` is called in the middle of each callback with its name.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.lock: ScheduledLock | None = None
        """The lock of the group's machine."""
        self.owned: set[TopicPartition] = set()
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.running: str | None = None
        self.during: Callable[[str, frozenset[TopicPartition]], None] = lambda name, partitions: None
        self.returned: dict[TopicPartition, int] = {}
        """The offset after the last record that ``poll`` returned, since the partition was assigned."""
        self.processed: dict[TopicPartition, int] = {}
        """The same of earlier calls, over all assignments: what may be committed at most."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        given = self._begin("assigned", partitions)
        assert not given & self.owned, "what is assigned was not owned"
        self.owned |= given
        self._end("assigned", given)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._give_up("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._give_up("lost", partitions)

    def _give_up(self, name: str, partitions: Collection[TopicPartition]) -> None:
        given = self._begin(name, partitions)
        assert given, "a call about nothing"
        assert given <= self.owned, "what is taken was owned"
        self.owned -= given
        self.note_processed()
        for tp in given:
            self.returned.pop(tp, None)
        self._end(name, given)

    def _begin(self, name: str, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        assert threading.get_ident() == self.thread, "callbacks run in the program's thread"
        assert self.lock is None or not self.lock.is_owned, "no lock is held while code of the program runs"
        assert self.running is None, f"{name} is called while {self.running} runs"
        self.running = name
        self.calls.append((name, frozenset(partitions)))
        return frozenset(partitions)

    def _end(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        try:
            self.during(name, partitions)
        finally:
            self.running = None

    def take(self, records: ConsumerRecords[Any, Any]) -> None:
        """A ``poll`` returned these."""
        assert records.partitions() <= self.owned, f"records of {records.partitions()}, owned are {self.owned}"
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            if tp in self.returned:
                assert record.offset == self.returned[tp], f"{tp}: {record.offset} after {self.returned[tp] - 1}"
            else:
                done = self.processed.get(tp, 0)
                assert record.offset <= done, f"{tp}: begins at {record.offset}, processed is up to {done}"
            self.returned[tp] = record.offset + 1

    def note_processed(self) -> None:
        """The program has processed everything that was returned."""
        for tp, at in self.returned.items():
            self.processed[tp] = max(at, self.processed.get(tp, 0))

    def names(self) -> list[str]:
        """The names of the calls."""
        return [name for name, _ in self.calls]


class SimulatedConsumer:
    """The consumer, its cluster and its program.  ``settings`` with "_" instead of "."."""

    def __init__(
        self,
        *,
        choices: Choices | None = None,
        topics: Mapping[str, int] | None = None,
        is_cooperative: bool = False,
        cluster: SimulatedCluster | None = None,
        **settings: object,
    ) -> None:
        self.clock = ManualClock()
        self.cluster = cluster or SimulatedCluster(self.clock, topics or {"t": 4})
        self.program = CheckedProgram()
        self.is_cooperative = is_cooperative
        given: dict[str, object] = {
            "bootstrap.servers": "localhost:1969",
            "group.id": GROUP,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": POLL_INTERVAL_MS,
            "request.timeout.ms": REQUEST_MS,
            "default.api.timeout.ms": API_MS,
            "retry.backoff.ms": RETRY_MS,
            "auto.commit.interval.ms": 2_000,
            "auto.offset.reset": "earliest",
            "max.poll.records": 5,
            "partition.assignment.strategy": [CooperativeDealer() if is_cooperative else Dealer()],
        }
        given |= {key.replace("_", "."): value for key, value in settings.items()}
        environment = ConsumerEnvironment(self.clock, self._new_network, NoThread, lambda: 0.5)  # type: ignore[arg-type]
        self.kafka: KafkaConsumer[Any, Any] = consumer_in(environment, KafkaConsumerConfig(given))
        self.client = self.kafka._client
        group = self.kafka._coordinator
        assert group is not None
        self.group = group
        self.machine = group._machine
        self.events: list[str] = []
        """The names of the events that the machine has logged."""
        self.on_event: Callable[[str], None] = lambda what: None
        self._record_events()
        self.scheduler: Scheduler | None = None
        thread = group._heartbeat_thread
        if choices is None:
            return
        self.scheduler = Scheduler(self.clock, self.cluster, choices)
        self.network.wait = self.scheduler.block
        self._lock = ScheduledLock(self.scheduler)
        group._lock = self._lock  # type: ignore[assignment]
        self.program.lock = self.network.lock = self._lock
        self.client._lock = ScheduledLock(self.scheduler, is_fair=True)  # type: ignore[assignment]
        thread._changed = ScheduledCondition(self.scheduler)  # type: ignore[assignment]
        thread._start_thread = self.scheduler.start_thread  # type: ignore[assignment]

    def _new_network(self, config: Any, client_id: str, metadata: Any, *_: Any) -> SimulatedNetwork:
        self.network = SimulatedNetwork(self.cluster, metadata)
        return self.network

    def _record_events(self) -> None:
        log_event = self.machine.pending_commands.log_event

        def record(what: str, sentence: str = "", /, **fields: object) -> None:
            self.events.append(what)
            self.on_event(what)
            log_event(what, sentence, **fields)

        self.machine.pending_commands.log_event = record  # type: ignore[method-assign]

    # --- the program --------------------------------------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        self.kafka.subscribe(topics or ("t",), self.program)

    def poll(self, timeout_ms: int = 0) -> ConsumerRecords[Any, Any]:
        """One ``poll`` of the program."""
        self.program.note_processed()
        records = self.kafka.poll(timeout_ms)
        self.program.take(records)
        self.check_views()
        return records

    def poll_until(self, is_done: Callable[[], bool], timeout_ms: int = 60_000, step_ms: int = 100) -> None:
        """Poll until something holds."""
        until_ms = self.clock.now_ms() + timeout_ms
        while not is_done():
            assert self.clock.now_ms() < until_ms, f"not within {timeout_ms} ms: {self.describe()}"
            self.poll(step_ms)

    def work(self, duration_ms: int) -> None:
        """The program does something else."""
        if self.scheduler is not None:
            self.scheduler.sleep(duration_ms)
        else:
            self.clock.move(duration_ms)
            self.cluster.advance()

    def run_background(self, duration_ms: int, step_ms: int = 100) -> None:
        """Without a scheduler: let time pass, in which only the heartbeat thread runs."""
        until_ms = self.clock.now_ms() + duration_ms
        while self.clock.now_ms() < until_ms:
            self.clock.move(min(step_ms, until_ms - self.clock.now_ms()))
            self.cluster.advance()
            due_ms = self.group.background_deadline_ms()
            if due_ms is not None and due_ms <= self.clock.now_ms() + step_ms:
                self.group.poll_in_background()

    def join(self) -> None:
        """Become a stable member that has its partitions."""
        self.subscribe()
        self.poll_until(lambda: self.is_idle and bool(self.program.owned))

    def rival(self, **fields: Any) -> Rival:
        """Another member of the group joins."""
        name = "cooperative-dealer" if self.is_cooperative else "dealer"
        one = Rival(self.cluster, protocol=name, is_cooperative=self.is_cooperative, **fields)
        one.join()
        return one

    # --- what holds ---------------------------------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self.machine.generation.member_id

    @property
    def is_idle(self) -> bool:
        """Whether the member is stable and has nothing to do."""
        machine = self.machine
        return (
            machine.state is MemberState.STABLE
            and machine.step is JoinStep.IDLE
            and not machine.rejoin_needed
            and machine.revocation is None
            and machine.exit is Exit.NONE
            and not self.group._program_commands
        )

    def positions(self) -> dict[TopicPartition, int]:
        """The positions that are known."""
        return {tp: at.offset for tp, at in self.kafka._subscriptions.all_consumed().items()}

    def check_views(self) -> None:
        """When it is idle, the machine, ``SubscriptionState`` and the program have the same partitions."""
        if self.is_idle:
            assigned = self.kafka._subscriptions.assigned_partitions()
            assert self.machine.assigned == assigned == self.program.owned, self.describe()

    def check_commits(self) -> None:
        """No commit has a partition that its member did not have, an offset that was not returned before, or one that
        is smaller than an earlier one."""
        largest: dict[TopicPartition, int] = {}
        for commit in self.cluster.commits:
            had = self.had_in(commit)
            assert set(commit.offsets) <= had, f"{commit}; it had {had}"
            if commit.is_accepted:
                for tp, offset in commit.offsets.items():
                    assert offset >= largest.get(tp, 0), f"{tp} goes back from {largest[tp]} to {offset}"
                    largest[tp] = offset
        for tp in T:
            committed = self.cluster.committed(tp)
            returned = max(self.program.processed.get(tp, 0), self.program.returned.get(tp, 0))
            assert committed <= returned, f"{tp}: {committed} is committed, {returned} was returned"

    def check_requests(self) -> None:
        """No request is about a generation that the member is not in."""
        for api in (SYNC_GROUP, HEARTBEAT):
            for request in self.cluster.sent(api.key):
                assert request.body.generation_id > 0, f"{api.name} of generation {request.body.generation_id}"

    def had_in(self, commit: ReceivedCommit) -> frozenset[TopicPartition]:
        """The partitions that the member has in the generation of a commit.

        With a cooperative protocol a partition that is taken from it stays its own until another member gets it.
        """
        assigned = self.cluster.assigned
        if not self.is_cooperative:
            return assigned.get((commit.generation, commit.member), frozenset())
        owners: dict[TopicPartition, str] = {}
        for (generation, member), share in sorted(assigned.items()):
            if generation <= commit.generation:
                owners |= dict.fromkeys(share, member)
        return frozenset(tp for tp, member in owners.items() if member == commit.member)

    def describe(self) -> str:
        machine = self.machine
        return (
            f"{machine.state.name} {machine.step.name} {machine.generation} exit={machine.exit.name} "
            f"assigned={sorted(map(str, machine.assigned))} owned={sorted(map(str, self.program.owned))} "
            f"subscription={sorted(map(str, self.kafka._subscriptions.assigned_partitions()))} "
            f"rejoin={machine.rejoin_needed} calls={[(name, len(some)) for name, some in self.program.calls]}"
        )

    def check_end(self) -> None:
        """After ``close``: everything has ended."""
        assert self.machine.exit is Exit.STOPPED
        assert not self.group._calls, "each call about offsets has its result"
        assert not self.program.owned, "all partitions were revoked or lost"
        assert self.network.is_closed
        self.check_commits()
        self.check_requests()


def has_timer(consumer: SimulatedConsumer, kind: TimerKind) -> bool:
    """Whether the machine waits for this deadline."""
    return kind in consumer.group._deadlines
