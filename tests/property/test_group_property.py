"""Whole groups in a model world, one history a seed: safety after every step, and a quick end when the faults are over.

``group_model/world.py`` says what the world is and what is checked while it runs.  A seed that fails prints the end of
its history; ``tests/simulation_seeds.py`` says where seeds come from and how to replay one.
"""

from __future__ import annotations

import pytest

from tests.property.group_model.fault_profile import CALM, FaultProfile, storm
from tests.property.group_model.model_process import SESSION_TIMEOUT_MS
from tests.property.group_model.simulation import World
from tests.simulation_seeds import Seeds, is_one_seed
from zkconsumer.member.offset_stores import OffsetStoreSelection

STORMY_SEEDS, CALM_SEEDS, NIGHTLY_SEEDS = 200, 40, 2_000
KAFKA_SEEDS, CALM_KAFKA_SEEDS = 60, 10
RARE_SEEDS = [838]
"""Beyond the first ones: a session ends with a partition acquiring."""

STORM_MS = 12_000
STEP_MS = 250
CHANGE_A_STEP = 0.15
SETTLED_WITHIN_MS = 2 * SESSION_TIMEOUT_MS + 5_000
QUIET_MS, QUIET_IDLENESS = 15_000, 10
READS_MAX = 3
"""How often a member may read the group after the last change: once because of the change, once more when the change
fell into a reading that was under way, and once when the pause of a member that was refused ends before the neighbour
has drained; and a fourth time when a listener came back late and is told what it missed.  What is still refused then
is waited for with a watch on the owners, which costs no reading.
"""

READS_MORE_FOR_KAFKA = 2
"""What Kafka did not tell in time is asked for again with an attempt, which reads the group."""

SEEDS = {stores: Seeds(f"group-{stores.name}") for stores in OffsetStoreSelection}

MUST_HAPPEN_WITH_KAFKA = {
    "a release does not wait for Kafka any longer",
    "a session ends while Kafka is told",
    "the answer to a commit to Kafka is lost",
    "the coordinator does not tell offsets in time",
}
MUST_HAPPEN = {
    "a change is seen with a commit under way",
    "a drain was given up",
    "a listener is too slow",
    "a listener raises",
    "a listener returns",
    "a loss is reported to a listener",
    "a member that withdrew comes back",
    "a rewound offset is written again",
    "a session ends with a commit under way",
    "a session ends with a partition acquiring",
    "a session ends with a partition draining",
    "a session ends with a partition releasing",
    "a topic grows in the middle of an attempt",
    "an earlier session holds the id",
    "the outcome of a write is unknown: AcquireOwnershipCompleted",
    "the outcome of a write is unknown: CommitToZooKeeperCompleted",
    "the outcome of a write is unknown: ReleaseOwnershipCompleted",
    "two members race for one node",
}


def test_a_stormy_group_is_safe_and_settles() -> None:
    happened: set[str] = set()
    seeds = SEEDS[OffsetStoreSelection.ZOOKEEPER]
    numbers = [*seeds.first(STORMY_SEEDS), *([] if is_one_seed() else RARE_SEEDS)]
    seeds.live(numbers, lambda seed: happened.update(live(seed, storm(seed)).sometimes))
    if not is_one_seed():
        assert happened >= MUST_HAPPEN, f"no history has: {sorted(MUST_HAPPEN - happened)}"


@pytest.mark.parametrize("stores", [OffsetStoreSelection.KAFKA, OffsetStoreSelection.BOTH])
def test_a_stormy_group_with_offsets_in_kafka_is_safe_and_settles(stores: OffsetStoreSelection) -> None:
    happened: set[str] = set()
    seeds = SEEDS[stores]
    seeds.live(seeds.first(KAFKA_SEEDS), lambda seed: happened.update(live(seed, storm(seed), stores).sometimes))
    if not is_one_seed():
        assert happened >= MUST_HAPPEN_WITH_KAFKA, f"no history has: {sorted(MUST_HAPPEN_WITH_KAFKA - happened)}"


@pytest.mark.parametrize("stores", list(OffsetStoreSelection))
def test_without_faults_nothing_is_handed_out_twice(stores: OffsetStoreSelection) -> None:
    seeds = Seeds(f"calm-group-{stores.name}")
    count = CALM_SEEDS if stores is OffsetStoreSelection.ZOOKEEPER else CALM_KAFKA_SEEDS
    seeds.live(seeds.first(count), lambda seed: live(seed, CALM, stores))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stores", list(OffsetStoreSelection))
def test_more_groups_are_safe_and_settle(stores: OffsetStoreSelection) -> None:
    stormy, calm = SEEDS[stores], Seeds(f"calm-group-{stores.name}")
    stormy.live(stormy.new(NIGHTLY_SEEDS * 4 // 5), lambda seed: live(seed, storm(seed), stores))
    calm.live(calm.new(NIGHTLY_SEEDS // 5), lambda seed: live(seed, CALM, stores))


def test_the_same_seed_is_the_same_history() -> None:
    assert live(7, storm(7)).history() == live(7, storm(7)).history()


def test_what_was_due_in_a_pause_comes_with_its_end_also_when_that_is_early() -> None:
    world = World(7, CALM)
    world.run_until(3000)
    paused = next(iter(world.processes.values()))
    paused.paused_until_ms = world.now_ms + 9000
    world.run_until(world.now_ms + 4000)
    assert min(paused.timers.values()) < world.now_ms, "something was due"
    world.clear_up()
    world.run_until(world.now_ms)
    assert min(paused.timers.values()) > world.now_ms


def live(seed: int, weather: FaultProfile, stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER) -> World:
    """One history: a storm, then calm, in which everything must be in its place soon, and stay there."""
    world = World(seed, weather, stores=stores)
    try:
        while world.now_ms < STORM_MS:
            world.run_until(world.now_ms + STEP_MS)
            if world.random.random() < CHANGE_A_STEP:
                world.change()
            world.fault()
        world.clear_up()
        is_settled = world.run_until(world.now_ms + SETTLED_WITHIN_MS, world.is_settled)
        assert is_settled, f"not settled {SETTLED_WITHIN_MS} ms after the faults were over"
        world.idleness = QUIET_IDLENESS
        world.run_until(world.now_ms + QUIET_MS)
        assert world.is_settled(), "settled, but not for long"
        assert not world.calls_waiting, f"commits that were never answered: {world.calls_waiting}"
        reads = {name: world.reads_since_the_last_change(process) for name, process in world.processes.items()}
        more = READS_MORE_FOR_KAFKA if world.stores.uses_kafka else 0
        allowed = {name: READS_MAX + more + (process.listener is not None) for name, process in world.processes.items()}
        assert all(reads[name] <= allowed[name] for name in reads), f"readings after the last change: {reads}"
    except Exception as error:
        error.add_note(f"seed {seed}\n{world.unsettled()}\nthe end of its history:\n{world.history()}")
        raise
    return world
