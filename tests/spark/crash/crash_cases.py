"""What a seed stands for: one query, its group, the peers in it, and the moment at which Spark dies.  Pure.

The first ``COVERING`` seeds together have every pair of values of any two parameters; after them come the other
combinations in an order that is always the same: each way to die in turn.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass, fields
from operator import attrgetter

POINTS = ("after_wal", "after_claim", "after_sink", "after_commitlog", "random")
MODES = ("claim", "afterBatch")
PEERS = ("before", "after", "middle")
"""``before``: in the group when Spark dies; ``after``: joins then; ``middle``: joins then, and stops in the range
that was planned for Spark."""

BROKERS = ("0.8.2.2", "1.1.1", "3.9.1")
SCALA = ("0.8.2.2", "0.10.2.2", "1.1.1")
PARTITIONS = (1, 4, 13)
PEER_COUNTS = (1, 2, 3)
BATCHES = (0, 2)
"""The batch at which it happens; the first one is replayed otherwise than the others."""

SINKS = ("foreachBatch", "parquet")
COVERING = 20
CANDIDATES = 700
"""Among how many combinations the next covering one is looked for."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One crash."""

    point: str
    mode: str
    peer: str
    broker: str
    scala: str
    partitions: int
    peers: int
    batch: int
    sink: str

    def __str__(self) -> str:
        return (
            f"{self.point}:{self.batch} {self.mode} {self.peer}x{self.peers} scala {self.scala}"
            f" broker {self.broker} {self.partitions}p {self.sink}"
        )


def is_possible(cell: Cell) -> bool:
    """Whether such a crash can be made: only a sink of our own stops behind its write, and original members do not
    read from brokers that are older than they are."""
    if cell.point == "after_sink" and cell.sink == "parquet":
        return False
    return BROKERS.index(cell.broker) > 0 or cell.scala == BROKERS[0]


def cell_of(seed: int) -> Cell:
    """The cell of a seed; seeds beyond the number of combinations begin again."""
    return _ORDER[seed % len(_ORDER)]


def _order() -> list[Cell]:
    every = itertools.product(POINTS, MODES, PEERS, BROKERS, SCALA, PARTITIONS, PEER_COUNTS, BATCHES, SINKS)
    rest = [cell for cell in (Cell(*values) for values in every) if is_possible(cell)]
    random.Random(7).shuffle(rest)
    wanted = {pair for cell in rest for pair in _pairs(cell)}
    chosen: list[Cell] = []
    # The two seeds of CI share the broker that CI has running, and have a mode each.
    for mode in MODES:
        chosen.append(next(c for c in rest if (c.broker, c.mode, c.sink) == ("1.1.1", mode, "foreachBatch")))
        wanted -= _pairs(chosen[-1])
    while wanted:
        best = max(rest[:CANDIDATES], key=lambda cell: len(wanted & _pairs(cell)))
        chosen.append(best)
        wanted -= _pairs(best)
    taken = set(chosen)
    ways: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in rest:
        if cell not in taken:
            ways[cell.point, cell.mode, cell.peer].append(cell)
    rounds = itertools.zip_longest(*ways.values())
    return chosen + [cell for row in rounds for cell in row if cell is not None]


def _pairs(cell: Cell) -> set[tuple[int, object, int, object]]:
    values = enumerate(_VALUES(cell))
    return {(i, a, j, b) for (i, a), (j, b) in itertools.combinations(values, 2)}


_VALUES = attrgetter(*(each.name for each in fields(Cell)))
"""As ``astuple``, which copies each value."""

_ORDER = _order()
