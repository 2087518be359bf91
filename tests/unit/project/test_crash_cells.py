"""The seeds of the crash matrix stand for what the matrix says they do."""

from __future__ import annotations

import itertools
from dataclasses import astuple, fields

from tests.spark.crash.crash_cases import BROKERS, COVERING, MODES, PEERS, POINTS, Cell, cell_of

SEEDS = 200


def test_twenty_seeds_have_every_pair_of_values() -> None:
    cells = [astuple(cell_of(seed)) for seed in range(COVERING)]
    every = [astuple(cell_of(seed)) for seed in range(SEEDS)]
    values = [sorted({astuple(cell_of(seed))[i] for seed in range(SEEDS)}, key=str) for i in range(len(fields(Cell)))]
    for i, j in itertools.combinations(range(len(values)), 2):
        for a, b in itertools.product(values[i], values[j]):
            if not any(cell[i] == a and cell[j] == b for cell in every):
                continue  # no crash of that kind can be made
            assert any(cell[i] == a and cell[j] == b for cell in cells), f"no seed has {a} with {b}"


def test_two_hundred_seeds_are_as_many_cells_and_have_each_way_to_die() -> None:
    cells = [cell_of(seed) for seed in range(SEEDS)]
    assert len(set(cells)) == SEEDS
    ways = {(cell.point, cell.mode, cell.peer, cell.broker) for cell in cells}
    assert len({way[:3] for way in ways}) == len(POINTS) * len(MODES) * len(PEERS)
    assert {way[3] for way in ways} == set(BROKERS)


def test_the_first_two_seeds_have_both_modes_on_one_broker() -> None:
    first, second = cell_of(0), cell_of(1)
    assert {first.mode, second.mode} == set(MODES)
    assert first.broker == second.broker == "1.1.1"
