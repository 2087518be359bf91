"""Groups in bad luck: many seeds, each a world of its own, and in all of them what must hold holds."""

from __future__ import annotations

import pytest

from bridge.coordinator.group_metadata import STABLE
from tests.coordinator.server_invariants import require
from tests.coordinator.server_simulation import World
from tests.coordinator.simulated_member import PARTITIONS, SESSION_MS, Process
from tests.simulation_seeds import Seeds

FAULTS_MS = 30_000
CALM_MS = 60_000
SEEDS = 100
NIGHTLY_SEEDS = 4_000
IN_PARTS = 10
"""Tests that share the seeds, so that several workers can have some."""


def run(seed: int, release: str = "3.9.1") -> World:
    """A world from its seed to its end."""
    world = World(seed, release)
    chance = world.random
    size = chance.randint(2, 5)
    processes = [Process(world, f"i{number}" if chance.random() < 0.3 else None) for number in range(size)]

    def fault() -> None:
        if world.is_calm:
            return
        victim = chance.choice(processes)
        match chance.randrange(8):
            case 0:
                victim.crash()
                world.after(chance.randint(100, 9_000), lambda: processes.append(Process(world, victim.instance)))
            case 1 | 2:
                victim.freeze(chance.randint(1_000, 15_000))
            case 3 if victim.instance is not None:
                # Started twice: the first finds out that it is fenced.
                processes.append(Process(world, victim.instance))
            case 3 | 4:
                victim.leave()
                world.after(chance.randint(100, 5_000), lambda: processes.append(Process(world, victim.instance)))
            case 5:
                world.change_leader()
            case 6:
                world.crash_broker()
            case 7:
                processes.append(Process(world, None))
        world.check()
        world.after(chance.randint(300, 5_000), fault)

    world.after(chance.randint(500, 3_000), fault)
    start = world.now_ms
    world.run_until(start + FAULTS_MS)
    world.is_calm = True
    for process in processes:
        process.frozen_until_ms = min(process.frozen_until_ms, world.now_ms + SESSION_MS)
    world.run_until(world.now_ms + CALM_MS)
    world.check()
    _settled(world, [process for process in processes if process.is_alive])
    return world


def _settled(world: World, alive: list[Process]) -> None:
    """I3, I5, I6."""
    assert world.leader is not None
    group = world.leader.machine.manager.get_group("g")
    if not alive:
        return
    require(group is not None and group.is_(STABLE), "I3: the group is not stable a minute after the last fault")
    assert group is not None
    require(all(process.is_stable for process in alive), "I3: a member is not stable")
    require({process.generation for process in alive} == {group.generation_id}, "I3: members of several generations")
    read = sorted(index for process in alive for index in process.partitions)
    require(read == list(range(PARTITIONS)), f"I5: {read} are read")
    waiting = [member.member_id for member in group.members.values() if member.awaiting_join or member.awaiting_sync]
    require(not waiting, f"I6: {waiting} wait for an answer")


SEEDS_OF_WORLDS = Seeds("coordinator-world")


@pytest.mark.parametrize("first", range(IN_PARTS))
def test_a_thousand_things_happen_and_what_must_hold_holds(first: int) -> None:
    SEEDS_OF_WORLDS.live(SEEDS_OF_WORLDS.first(SEEDS)[first::IN_PARTS], live)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(10 * IN_PARTS))
def test_many_more_thousand_things_happen_and_what_must_hold_holds(first: int) -> None:
    SEEDS_OF_WORLDS.live(SEEDS_OF_WORLDS.new(NIGHTLY_SEEDS)[first :: 10 * IN_PARTS], live)


def live(seed: int) -> None:
    world = run(seed, ("3.9.1", "4.1.1")[seed % 2])
    assert world.events > 100
