"""Whatever happens to members and brokers, when it is over the members share everything, each partition once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.coordinator.client_simulation import World
from tests.simulation_seeds import Seeds
from zkconsumer.kafka.group import events as ev

FAULTS = ("start", "kill", "close", "reset", "lose", "sleep", "turn away", "rejoin", "grow", "move", "nothing")


def bad_luck(world: World, fault: str, which: int) -> None:
    live = world.live()
    client = live[which % len(live)] if live else None
    match fault:
        case "start" if len(live) < 5:
            world.start()
        case "kill" if client is not None and len(live) > 1:
            world.kill(client)
        case "close" if client is not None and len(live) > 1:
            world.close(client)
        case "reset" if client is not None:
            world.reset(client)
        case "sleep" if client is not None:
            world.sleep(client, 1000 + 4000 * (which % 5))
        case "lose" if client is not None:
            world.lose(client)
        case "turn away" if client is not None:
            world.turn_away(client)
        case "rejoin" if client is not None:
            client.hear(ev.RejoinAsked("the program wants it"))
        case "grow":
            world.grow()
        case "move":
            world.move()
        case _:
            pass


LIVES = {
    "seed": st.integers(0, 2**32),
    "is_cooperative": st.booleans(),
    "members": st.integers(2, 4),
    "statics": st.integers(0, 2),
    "in_order": st.booleans(),
    "faults": st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 9), st.integers(1, 6000)), max_size=12),
}
"""What is drawn for one run."""


def live_through(
    seed: int, is_cooperative: bool, members: int, statics: int, in_order: bool, faults: list[tuple[str, int, int]]
) -> None:
    """Bad luck, then good luck, then the end."""
    world = World(seed, is_cooperative=is_cooperative, topics={"t": 5, "u": 2})
    world.answers_are_in_order = in_order
    for number in range(members):
        world.start(f"static{number}" if number < statics else None)
    for fault, which, pause_ms in faults:
        world.run(pause_ms)
        bad_luck(world, fault, which)
        world.check_commits()
    world.settle()
    world.check_commits()
    for client in world.live():
        world.close(client)
    world.run(35_000)
    assert not world.live()
    assert all(not client.program.asked for client in world.clients if not client.is_dead and client.failure is None)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(**LIVES)
def test_members_always_come_to_share_everything(**life: Any) -> None:
    live_through(**life)


def live_from(seed: int) -> None:
    """As ``LIVES``, all of it drawn from one seed."""
    chance = Random(seed)
    count = chance.randint(0, 12)
    faults = [(chance.choice(FAULTS), chance.randint(0, 9), chance.randint(1, 6000)) for _ in range(count)]
    live_through(seed, chance.random() < 0.5, chance.randint(2, 4), chance.randint(0, 2), chance.random() < 0.5, faults)


SEEDS = Seeds("coordinator-client")


def test_members_share_everything_in_the_same_lives_and_in_those_that_failed_once() -> None:
    SEEDS.live(SEEDS.first(10), live_from)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_they_do_so_in_thousands_of_lives() -> None:
    SEEDS.live(SEEDS.new(3_000), live_from)
