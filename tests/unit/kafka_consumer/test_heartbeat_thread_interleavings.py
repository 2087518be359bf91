"""Every interleaving of the program's thread and the heartbeat thread, at the boundaries of their two locks.

The threads are real; ``Scheduler`` lets one of them run at a time, and switches where a lock of ``PolledCoordinator``
or of the network client is acquired or released.  Short scenarios run with each switch (nightly: each pair of switches)
besides those at which a thread must wait; longer ones with random switches and random misfortune.  In every run:

- no deadlock and no busy loop, and each call and each commit ends;
- the callbacks run in the program's thread, one at a time, and alternate (``CheckedProgram``);
- ``poll`` returns no record of a partition after its callback of revocation or loss has begun;
- no commit has a partition that the member does not have in the generation of the commit;
- the group's machine, ``SubscriptionState`` and the program have the same partitions when nothing is to be done.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from tests.simulated_consumer import (
    HEARTBEAT_MS,
    POLL_INTERVAL_MS,
    RETRY_MS,
    SESSION_MS,
    SimulatedConsumer,
    T,
)
from tests.simulated_group_cluster import InFlightRequest, Rival
from tests.simulation_seeds import Seeds
from tests.two_thread_scheduler import Aborted, Choices, explore
from zkconsumer.errors import TimeoutException, WakeupException, ZkConsumerError
from zkconsumer.kafka.group.errors import CommitFailedException, RebalanceInProgressException
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, SYNC_GROUP

pytestmark = pytest.mark.timeout(1_800)  # the nightly tests have thousands of runs

SEEDS = Seeds("heartbeat-thread-interleavings")
CALM_MS = 40_000

Scenario = Callable[[SimulatedConsumer, Choices], None]


def run(scenario: Scenario, choices: Choices, **settings: Any) -> SimulatedConsumer:
    """Run a scenario, then let the member come to rest, and close it."""
    consumer = SimulatedConsumer(choices=choices, **settings)
    assert consumer.scheduler is not None
    try:
        for tp in T:
            consumer.cluster.ends[tp] = 6
        scenario(consumer, choices)
        choices.end()
        settle(consumer)
        consumer.kafka.close()
        consumer.check_end()
    except Aborted:
        assert consumer.scheduler.failure is not None
        raise consumer.scheduler.failure from None
    except Exception as error:
        error.add_note(consumer.describe())
        raise
    finally:
        consumer.scheduler.end()
    return consumer


def settle(consumer: SimulatedConsumer) -> None:
    """No more misfortune: the member gets its partitions, and reads all of them."""
    consumer.program.during = lambda name, partitions: None
    until_ms = consumer.clock.now_ms() + CALM_MS
    for tp in T:
        consumer.cluster.ends[tp] += 2

    def has_settled() -> bool:
        positions = consumer.positions()
        return consumer.is_idle and all(positions.get(tp) == consumer.cluster.ends[tp] for tp in consumer.program.owned)

    while not has_settled() or not consumer.program.owned:
        assert consumer.clock.now_ms() < until_ms, f"the member does not come to rest: {consumer.describe()}"
        try:
            consumer.poll(100)
        except ZkConsumerError:
            consumer.work(1)
    consumer.check_commits()


# --- short scenarios, exhaustively ------------------------------------------------------------------------------------


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.nightly)])
def changes_max(request: pytest.FixtureRequest) -> int:
    """How many switches a run has at most."""
    changes: int = request.param
    return changes


def each_pair(*lists: Sequence[Any]) -> list[Any]:
    """Parameters of a test: all combinations, those at night but for which each pair of two values is in another one.

    The last list has two values.
    """
    found = []
    for at in itertools.product(*map(range, map(len, lists))):
        values = [values[index] for values, index in zip(lists, at, strict=True)]
        found.append(pytest.param(*values, marks=() if sum(at) % 2 == 0 else pytest.mark.nightly))
    return found


def explore_all(scenario: Scenario, changes_max: int, **settings: Any) -> list[SimulatedConsumer]:
    """Run a scenario in each interleaving with at most so many switches."""
    consumers: list[SimulatedConsumer] = []
    explore(lambda choices: consumers.append(run(scenario, choices, **settings)), changes_max)
    return consumers


def expel_after_response(consumer: SimulatedConsumer, choices: Choices, api_key: int) -> None:
    """Remove the member when the broker first answers such a request, and choose from just before its heartbeat."""
    cluster = consumer.cluster
    seen: list[Any] = []

    def answered(request: InFlightRequest, body: Any) -> None:
        if request.api_key == api_key and body.error_code == 0 and not seen:
            seen.append(request)
            cluster.after(1, lambda: cluster.expel(cluster.members()[0]))
            cluster.after(HEARTBEAT_MS - 5, choices.begin)

    cluster.on_response = answered


def work_until_heartbeat(consumer: SimulatedConsumer, early_ms: int = 0) -> None:
    """The program works until the heartbeat thread has something to do, or ends so much earlier."""
    consumer.work(max(0, consumer.machine.heartbeat.next_heartbeat_ms - early_ms - consumer.clock.now_ms()))


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_generation_that_is_cleared_between_join_group_and_sync_group_is_joined_again(
    is_cooperative: bool, changes_max: int
) -> None:
    """The leader waits for metadata; meanwhile a heartbeat finds that the coordinator has removed the member."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        consumer.cluster.metadata_delay_ms = HEARTBEAT_MS + 250
        expel_after_response(consumer, choices, JOIN_GROUP.key)
        consumer.subscribe()
        consumer.poll(HEARTBEAT_MS + 200)
        consumer.poll_until(lambda: "generation-reset" in consumer.events, step_ms=20)
        assert not consumer.cluster.assigned, "the lost generation has no assignment"

    consumers = explore_all(scenario, changes_max, is_cooperative=is_cooperative)
    assert len(consumers) > 20
    for consumer in consumers:
        assert consumer.program.names() == ["assigned", "revoked"]


@pytest.mark.parametrize("late_ms", [0, 1, 3])
def test_a_generation_that_is_cleared_about_when_sync_group_is_answered_is_joined_again(
    late_ms: int, changes_max: int
) -> None:
    """The answer to SyncGroup arrives together with the error of the heartbeat, or after it."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        delays = consumer.cluster.delays
        delays[SYNC_GROUP.key] = HEARTBEAT_MS + late_ms
        expel_after_response(consumer, choices, SYNC_GROUP.key)
        consumer.subscribe()
        consumer.poll(HEARTBEAT_MS + 200)
        delays.clear()
        consumer.poll_until(lambda: "generation-reset" in consumer.events, step_ms=20)
        consumer.poll(10)

    consumers = explore_all(scenario, changes_max)
    assert len(consumers) > 20
    histories = {tuple(consumer.program.names()) for consumer in consumers}
    assert histories <= {("assigned", "revoked"), ("assigned", "lost", "assigned", "revoked")}
    if late_ms:
        assert histories == {("assigned", "revoked")}, "nothing is assigned by the answer of a lost generation"


@pytest.mark.parametrize(("early_ms", "is_cooperative"), each_pair([3, 0, -2, -RETRY_MS, -1_500], [False, True]))
def test_a_generation_that_is_cleared_between_sync_group_and_the_callback_is_lost(
    early_ms: int, is_cooperative: bool, changes_max: int
) -> None:
    """The heartbeat thread joins while the program works; the program polls about when a heartbeat fails."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        consumer.subscribe()
        consumer.poll(20)
        assert consumer.cluster.sent(JOIN_GROUP.key)
        expel_after_response(consumer, choices, SYNC_GROUP.key)
        while not consumer.machine.assigned:
            consumer.work(1)
        assert not consumer.program.calls, "the callback waits for the program"
        work_until_heartbeat(consumer, early_ms)
        consumer.poll(0)
        consumer.poll(20)

    for consumer in explore_all(scenario, changes_max, is_cooperative=is_cooperative):
        assert "generation-reset" in consumer.events
        assert consumer.program.names() == ["assigned", "lost", "assigned", "revoked"]


@pytest.mark.parametrize(
    ("how", "name", "is_cooperative"),
    each_pair(["works", "works longer", "commits"], ["assigned", "revoked", "lost"], [False, True]),
)
def test_a_heartbeat_that_fails_during_a_callback_loses_the_partitions(
    name: str, how: str, is_cooperative: bool, changes_max: int
) -> None:
    """The callback lasts until about the moment at which the heartbeat's answer arrives."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        cluster = consumer.cluster
        failed: list[type[Exception]] = []

        def during(called: str, partitions: frozenset[TopicPartition]) -> None:
            if called != name or choices.is_counting:
                return
            if consumer.member_id:
                cluster.expel(consumer.member_id)
            work_until_heartbeat(consumer)
            choices.begin()
            if how == "commits":
                try:
                    consumer.kafka.commit_sync(timeout_ms=50)
                except ZkConsumerError as error:
                    failed.append(type(error))
            else:
                consumer.work(4 if how == "works" else RETRY_MS)

        consumer.program.during = during
        consumer.subscribe()
        consumer.poll_until(lambda: consumer.is_idle and len(consumer.positions()) == 4)
        if name == "revoked":
            consumer.rival()
        elif name == "lost":
            cluster.expel(consumer.member_id)
        consumer.poll_until(lambda: choices.is_counting)
        consumer.poll(20)
        if how == "commits" and name != "assigned":  # without an offset there is nothing to commit
            assert failed == [CommitFailedException], failed

    for consumer in explore_all(scenario, changes_max, is_cooperative=is_cooperative):
        assert "generation-reset" in consumer.events
        if name == "assigned":
            assert consumer.program.names() == ["assigned", "lost", "assigned", "revoked"]


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_in_every_interleaving_a_member_joins_and_reads(is_cooperative: bool, changes_max: int) -> None:
    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        choices.begin()
        consumer.subscribe()
        consumer.poll(250)
        consumer.poll(250)
        assert consumer.program.names() == ["assigned"]

    assert len(explore_all(scenario, changes_max, is_cooperative=is_cooperative)) > 20


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_in_every_interleaving_a_rebalance_commits_what_was_returned(is_cooperative: bool, changes_max: int) -> None:
    """A heartbeat brings the rebalance; the program commits at the same time."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        consumer.join()
        consumer.poll(50)
        rival = consumer.rival()
        work_until_heartbeat(consumer)
        choices.begin()
        consumer.poll(0)
        with contextlib.suppress(CommitFailedException, RebalanceInProgressException):
            consumer.kafka.commit_sync()
        consumer.poll(10)
        choices.end()
        consumer.poll_until(lambda: rival.is_in_group and consumer.is_idle)
        given = [tp for tp in T if tp not in consumer.program.owned]
        assert given
        for tp in given:
            assert consumer.cluster.committed(tp) == consumer.program.processed.get(tp, 0), "no record is read twice"

    assert len(explore_all(scenario, changes_max, is_cooperative=is_cooperative)) > 20


def test_in_every_interleaving_a_callback_is_called_at_once_while_the_program_polls(changes_max: int) -> None:
    """The heartbeat thread finds the rebalance just before the program's thread begins to wait for the network."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        consumer.join()
        consumer.poll_until(lambda: sum(consumer.positions().values()) == 24)
        consumer.rival()
        work_until_heartbeat(consumer)
        consumer.work(RETRY_MS)
        found: list[int] = []
        called: list[int] = []
        consumer.on_event = lambda what: found.append(consumer.clock.now_ms()) if what == "revoking" else None
        consumer.program.during = lambda name, partitions: called.append(consumer.clock.now_ms())
        choices.begin()
        consumer.poll(HEARTBEAT_MS)
        assert found
        assert called[:1] == found[:1]

    assert len(explore_all(scenario, changes_max, enable_auto_commit=False)) > 20


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
@pytest.mark.parametrize("is_expelled", [False, True])
def test_in_every_interleaving_the_consumer_leaves_while_a_heartbeat_is_answered(
    how: str, is_expelled: bool, changes_max: int
) -> None:
    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        consumer.join()
        consumer.poll(50)
        if is_expelled:
            consumer.cluster.expel(consumer.member_id)
        work_until_heartbeat(consumer)
        choices.begin()
        if how == "close":
            consumer.kafka.close()
            consumer.check_end()
            raise _HasEnded
        consumer.kafka.unsubscribe()
        assert not consumer.program.owned
        assert not consumer.machine.assigned
        consumer.subscribe()

    def once(choices: Choices) -> None:
        with contextlib.suppress(_HasEnded):
            run(scenario, choices)

    assert explore(once, changes_max) > 20


class _HasEnded(Exception):
    """The scenario has closed the consumer."""


def test_in_every_interleaving_the_machine_gets_the_newest_metadata(changes_max: int) -> None:
    """Two updates arrive while both threads report them."""

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        consumer.join()
        consumer.poll_until(lambda: sum(consumer.positions().values()) == 24)
        consumer.cluster.metadata_delay_ms = 0
        work_until_heartbeat(consumer)
        choices.begin()
        for count in (5, 6):
            consumer.cluster.topics["t"] = count
            consumer.kafka._metadata.request_update_for_new_topics()
            consumer.poll(0)
        consumer.poll(0)
        choices.end()
        assert consumer.machine.subscriptions.partition_counts() == {"t": 6}

    assert len(explore_all(scenario, changes_max)) > 20


# --- a process that is paused at each boundary ------------------------------------------------------------------------


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("paused_ms", [SESSION_MS + 500, POLL_INTERVAL_MS + 500])
@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_process_that_is_paused_between_any_two_steps_joins_again(
    is_cooperative: bool, paused_ms: int, step: int
) -> None:
    """It joins, reads, commits and rebalances; the pause is longer than the session, or than max.poll.interval.ms.

    The rival gets the partitions meanwhile.  No commit of the lost generation is accepted (``check_commits``), and the
    listener is called with the partitions as lost unless it had been called before.
    """
    lost = 0

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        choices.begin()
        consumer.subscribe()
        consumer.poll_until(lambda: consumer.is_idle and len(consumer.positions()) == len(consumer.program.owned) > 0)
        consumer.poll(50)
        with contextlib.suppress(CommitFailedException, RebalanceInProgressException, TimeoutException):
            consumer.kafka.commit_sync()
        rival = consumer.rival()
        work_until_heartbeat(consumer)
        consumer.poll(20)
        with contextlib.suppress(CommitFailedException, RebalanceInProgressException, TimeoutException):
            consumer.kafka.commit_sync()
        consumer.poll_until(lambda: consumer.is_idle and rival.is_in_group)

    baseline = Choices()
    run(scenario, baseline, is_cooperative=is_cooperative)
    assert baseline.boundaries > 300
    for at in range(0, baseline.boundaries, step):
        choices = Choices(pauses={at: paused_ms})
        try:
            consumer = run(scenario, choices, is_cooperative=is_cooperative)
        except Exception as error:
            error.add_note(f"paused at boundary {at}")
            raise
        lost += "lost" in consumer.program.names()
    assert lost > 3


# --- random histories -------------------------------------------------------------------------------------------------


class Misfortune:
    """What happens to one consumer by chance."""

    def __init__(self, consumer: SimulatedConsumer, chance: Random) -> None:
        self.consumer = consumer
        self.chance = chance
        self.rivals: list[Rival] = []
        self.is_subscribed = True
        consumer.program.during = self.during

    def during(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        """A callback takes some time, commits, or raises."""
        chance = self.chance.random()
        if chance < 0.3:
            self.consumer.work(self.chance.choice((50, 1_500, SESSION_MS + 1_000, POLL_INTERVAL_MS + 1_000)))
        elif chance < 0.4:
            with contextlib.suppress(ZkConsumerError):
                self.consumer.kafka.commit_sync(timeout_ms=self.chance.choice((200, 3_000)))
        elif chance < 0.45:
            raise ValueError("the listener fails")

    def act(self) -> None:
        """One thing happens."""
        consumer, cluster, chance = self.consumer, self.consumer.cluster, self.chance
        match chance.randrange(17):
            case 0:
                self.rivals.append(consumer.rival(heartbeat_ms=chance.choice((300, 1_000))))
            case 1 if self.rivals:
                self.rivals.pop().leave()
            case 2:
                cluster.expel(consumer.member_id)
            case 3:
                consumer.network.stop_broker()
                cluster.after(chance.choice((10, 500, 8_000)), consumer.network.start_broker)
            case 4:
                cluster.is_silent = True
                cluster.after(chance.choice((500, 7_000)), lambda: setattr(cluster, "is_silent", False))
            case 5:
                consumer.work(chance.choice((10, 1_000, SESSION_MS, POLL_INTERVAL_MS + 1_000)))
            case 6:
                consumer.clock.move(chance.choice((500, SESSION_MS + 100, POLL_INTERVAL_MS + 100)))
            case 7:
                cluster.delays[chance.choice((JOIN_GROUP.key, SYNC_GROUP.key, HEARTBEAT.key, OFFSET_COMMIT.key))] = (
                    chance.choice((0, 0, 700, 3_000))
                )
            case 8:
                cluster.metadata_delay_ms = chance.choice((1, 1_500))
            case 9:
                consumer.kafka.wakeup()
            case 10:
                with contextlib.suppress(CommitFailedException, RebalanceInProgressException, TimeoutException):
                    consumer.kafka.commit_sync(timeout_ms=chance.choice((1, 300, 10_000)))
            case 11:
                consumer.kafka.commit_async()
            case 12:
                consumer.kafka.enforce_rebalance()
            case 13 if chance.random() < 0.3:
                try:
                    consumer.kafka.unsubscribe()
                finally:
                    consumer.subscribe()
            case _:
                for tp in T:
                    cluster.ends[tp] += chance.randrange(3)

    def calm(self) -> None:
        """From now on nothing happens."""
        cluster = self.consumer.cluster
        cluster.delays.clear()
        cluster.metadata_delay_ms = 1
        cluster.is_silent = False
        self.consumer.network.start_broker()
        for rival in self.rivals[1:]:
            rival.leave()


def live(seed: int) -> None:
    chance = Random(seed)
    choices = Choices(
        random=Random(chance.random()),
        probability=chance.choice((0.02, 0.1, 0.5)),
        pauses={chance.randrange(4_000): chance.choice((SESSION_MS + 500, POLL_INTERVAL_MS + 500)) for _ in range(2)},
    )

    def scenario(consumer: SimulatedConsumer, choices: Choices) -> None:
        misfortune = Misfortune(consumer, chance)
        consumer.subscribe()
        choices.begin()
        for _ in range(40):
            with contextlib.suppress(WakeupException, ZkConsumerError):
                consumer.poll(chance.choice((0, 10, 300, 2_000)))
            if chance.random() < 0.5:
                with contextlib.suppress(WakeupException, ZkConsumerError):
                    misfortune.act()
        misfortune.calm()

    run(
        scenario, choices, is_cooperative=chance.random() < 0.5,
        enable_auto_commit=chance.random() < 0.7, max_poll_records=chance.choice((1, 3, 500)),
    )  # fmt: skip


@pytest.mark.parametrize("group", range(4))
def test_random_interleavings_and_random_misfortune_break_no_rule(group: int) -> None:
    SEEDS.live(SEEDS.first(32)[group::4], live)


@pytest.mark.nightly
def test_new_random_interleavings_break_no_rule() -> None:
    SEEDS.live(SEEDS.new(3_000), live)
