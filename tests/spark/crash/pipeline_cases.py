"""The crashes of the pipeline's matrix: a command with a sink, at a point, whose driver dies or is stopped.  Pure.

    run       the live query            backfill   older offsets beside it
    replay    its dead letters again    replace    all offsets again, by ``backfill --replace``

    kill      SIGKILL for all processes of the driver; a second driver repeats the command
    stop      SIGSTOP for them; a second driver repeats the command to its end, then the first one continues

Each crash happens in the batch ``batch`` of two.  With ``delay_ms`` the driver goes on at the point, and dies or is
stopped so much later.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

RUN, BACKFILL, REPLAY, REPLACE = COMMANDS = ("run", "backfill", "replay", "replace")
KILL, STOP = FAULTS = ("kill", "stop")
PARQUET, DELTA, POSTGRES, TOPIC = SINKS = ("parquet", "delta", "postgres", "topic")

RESERVED, CLAIMED, FETCHED, DECODED = "after-reservation", "after-claim", "after-fetch", "after-decode"
WRITTEN, LETTERS, SENT = "after-write", "after-dead-letters", "after-send"
COMMITTED, CHECKPOINTED = "after-commit", "after-checkpoint"
POINTS = (RESERVED, CLAIMED, FETCHED, DECODED, WRITTEN, LETTERS, SENT, COMMITTED, CHECKPOINTED)
"""In the order in which a batch comes to them.  ``after-write``: the rows are staged.  ``after-send``: a topic has all
records of the batch, and the batch has no lineage yet."""

POINTS_OF = {
    RUN: (CLAIMED, FETCHED, DECODED, WRITTEN, LETTERS, SENT, COMMITTED, CHECKPOINTED),
    BACKFILL: (RESERVED, WRITTEN, LETTERS, SENT, COMMITTED),
    REPLAY: (RESERVED, WRITTEN, COMMITTED),
    REPLACE: (RESERVED, WRITTEN, LETTERS, COMMITTED),
}
BATCHES = (0, 1)

NIGHTLY_CRASHES = 200
DELAY_MAX_MS = 2_500
ROUND = 12
"""How many pipelines of one fault share a driver."""


@dataclass(frozen=True, slots=True)
class PipelineCrash:
    """One crash; its text is what ``crash_of`` parses.  ``seed``: of ``random_crash``."""

    command: str
    sink: str
    point: str
    fault: str
    batch: int
    delay_ms: int | None = None
    seed: int | None = None

    def __str__(self) -> str:
        delay = "" if self.delay_ms is None else f"+{self.delay_ms}"
        return f"{self.command}/{self.sink}/{self.point}/{self.fault}/{self.batch}{delay}"


def crash_of(text: str) -> PipelineCrash:
    """The crash of a text.  ``ValueError``: there is no such crash."""
    pair, plus, delay = text.partition("+")
    command, sink, point, fault, batch = pair.split("/")
    found = PipelineCrash(command, sink, point, fault, int(batch), int(delay) if plus else None)
    if not is_possible(found):
        raise ValueError(f"{text}: the matrix has no such crash")
    return found


def is_possible(crash: PipelineCrash) -> bool:
    """Whether the command exists for the sink, and has the point."""
    if crash.sink not in SINKS or crash.fault not in FAULTS or crash.batch not in BATCHES:
        return False
    if crash.point not in POINTS_OF[crash.command] or (crash.point == SENT and crash.sink != TOPIC):
        return False
    if crash.command == REPLAY:
        return crash.sink != TOPIC
    return crash.command != REPLACE or crash.sink == POSTGRES


def every_crash() -> list[PipelineCrash]:
    """Every pair of a command with its sink and a point, with each fault."""
    pairs = [(command, sink, point) for command in COMMANDS for sink in SINKS for point in POINTS_OF[command]]
    found = [
        PipelineCrash(command, sink, point, fault, (number + FAULTS.index(fault)) % len(BATCHES))
        for number, (command, sink, point) in enumerate(pairs)
        for fault in FAULTS
    ]
    return [crash for crash in found if is_possible(crash)]


def random_crash(seed: int) -> PipelineCrash:
    """The crash of a seed, some time after the point."""
    chosen = random.Random(seed)
    pair = chosen.choice(every_crash())
    batch, delay_ms = chosen.choice(BATCHES), chosen.randrange(DELAY_MAX_MS)
    return PipelineCrash(pair.command, pair.sink, pair.point, pair.fault, batch, delay_ms, seed)


def rounds_of(crashes: Iterable[PipelineCrash]) -> list[tuple[PipelineCrash, ...]]:
    """Crashes that share drivers: at most ``ROUND`` of each fault; Delta has a Spark of its own."""
    wanted = list(crashes)
    found: list[tuple[PipelineCrash, ...]] = []
    for is_delta in (False, True):
        kills, stops = (
            [each for each in wanted if (each.sink == DELTA) is is_delta and each.fault == fault] for fault in FAULTS
        )
        count = -(-max(len(kills), len(stops)) // ROUND)
        # Neighbours differ in the point only: each round has several sinks and commands.
        found += [(*kills[number::count], *stops[number::count]) for number in range(count)]
    return found


IN_CI = (
    # The offsets of the group are after the records already: what is not read now is lost.
    PipelineCrash(RUN, PARQUET, CLAIMED, KILL, 1),
    # The sink has the batch and the checkpoint does not: what is not recognized is written twice.
    PipelineCrash(RUN, POSTGRES, COMMITTED, KILL, 0),
    # The topic has the records and nothing says so.
    PipelineCrash(RUN, TOPIC, SENT, KILL, 1),
    # A driver with staged rows continues when the batch, and the next one, is there.
    PipelineCrash(RUN, PARQUET, WRITTEN, STOP, 0),
)
