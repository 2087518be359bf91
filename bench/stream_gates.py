"""The gates of ``bench/streams.py``: the compared figures and their limits.

There are two comparisons: the best settings of zkconsumer with the best settings of a peer, and its defaults with the
same settings of a peer.  At the tail there is one comparison, because no fetch is full there.  A gate that could not be
measured is in the list, too, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gates import Gate
from stream_cells import FASTER_CODECS
from stream_results import AS_OURS, BEST, BEST_BUT_500, CellResult, Ratio, Results, Run, difference, ratio

TITLES = {
    "scala": "Scala",
    "java": "Java",
    "confluent-crc": "confluent with CRC",
    "franz-go": "franz-go",
    "kafka-python": "kafka-python without crc32c",
    "kafka-python-crc32c": "kafka-python with crc32c",
    "before-python": "the commit before",
}
SPARK_COMMAND = "bench/spark.py --before PATH --json FILE"
TAIL_P99_MS = 5.0


@dataclass(frozen=True, slots=True)
class Rule:
    """The cost of ``peer`` ÷ the cost of ``other`` in one cell must be at most ``gate``; the goal is ``goal``."""

    cell: str
    peer: str
    other: str
    gate: float
    goal: float | None = None
    column: str | None = None
    """The only settings that are compared; None: the best ones, and those of zkconsumer."""


def _rules() -> Iterator[Rule]:
    for cell in ("100B-v1", "100B-v2"):
        yield Rule(cell, "ours", "scala", 1 / 2.5, 1 / 3)
        yield Rule(cell, "ours", "java", 1 / 2, 1 / 2.5)
        yield Rule(cell, "ours", "confluent-crc", 1 / 2, 1 / 4)
        yield Rule(cell, "ours", "franz-go", 1 / 1.25, 1 / 1.7)
    for cell in ("100B-v1", "100B-v2"):
        yield Rule(cell, "ours-batches", "scala", 1 / 7, 1 / 10)
    yield Rule("1KB-v2", "ours", "scala", 1 / 3, 1 / 5)
    yield Rule("1KB-v2", "ours", "java", 1 / 2.5)
    yield Rule("1KB-v2", "ours", "confluent-crc", 1 / 1.3)
    for cell in ("snappy", "lz4"):
        for other in ("scala", "java"):
            yield Rule(cell, "ours", other, 1 / 1.7, 1 / 2.2)
    for peer in ("ours", "ours-fast"):
        yield Rule("zstd", peer, "java", 1 / 1.7, 1 / 2.2)
    for other in ("scala", "java"):
        yield Rule("gzip", "ours", other, 1 / 1.3)
    for other in ("scala", "java"):
        yield Rule("gzip", "ours-fast", other, 1 / 1.7)
    for other in ("scala", "java"):
        yield Rule("small", "ours", other, 1 / 1.5, 1 / 2)
    for codec in ("snappy", "gzip", "lz4", "zstd"):
        yield Rule(f"small-{codec}", "ours", "java", 1.0)
    for codec in FASTER_CODECS:
        yield Rule(f"small-{codec}", "ours-fast", "java", 1.0)
    yield Rule("tls", "ours", "java", 1 / 1.5)
    for other in ("java", "confluent-crc"):
        yield Rule("poll", "ours-poll", other, 1 / 2, column=BEST)
        yield Rule("poll", "ours-poll", other, 1 / 1.3, column=AS_OURS)
    yield Rule("poll", "ours-poll", "java", 1 / 1.3, column=BEST_BUT_500)
    for cell in ("100B-v1", "100B-v2"):
        yield Rule(cell, "ours-python", "before-python", 1.0)
    yield Rule("100B-v2", "ours-python", "kafka-python", 1 / 2)
    yield Rule("100B-v2", "ours-python", "kafka-python-crc32c", 1.2)


RULES = tuple(_rules())
SETTINGS = {BEST: "best settings", AS_OURS: "settings of ours", BEST_BUT_500: "lists of 500 records"}
NAMES_OF_OURS = {
    "ours": "",
    "ours-batches": " `batches()`",
    "ours-fast": " with `[fast]`",
    "ours-poll": " `poll()`",
    "ours-python": " without extensions",
}
TAILS = tuple(f"tail-{partitions}-{rate}k" for partitions in (64, 512) for rate in (1, 50))
TAIL_CPU = (("scala", 1.0), ("java", 1.2))
HEADERS_GATE = 1.1


def gates(results: Results, wanted: tuple[str, ...] | None = None) -> list[Gate]:
    """All gates, or those of the wanted cells.  The note of a gate that was not measured contains the reason."""

    def is_wanted(cell: str) -> bool:
        return wanted is None or cell in wanted

    made = [
        _of_rule(results, rule, column)
        for rule in RULES
        if is_wanted(rule.cell)
        for column in _columns_of_rule(rule, results)
    ]
    for name in filter(is_wanted, TAILS):
        made += _of_tail(results, name)
    if is_wanted("headers"):
        made.append(_of_headers(results))
    if wanted is None or results.spark:
        made += _of_spark(results)
    return made


def as_dict(gate: Gate) -> dict[str, Any]:
    """The gate as in the JSON file."""
    return {**asdict(gate), "verdict": gate.verdict}


def costs(
    cell: CellResult, peer: str, settings: str, what: Callable[[Run], float] | None = None
) -> Mapping[int, float]:
    """Round -> one figure of a peer: ``CellResult.cost``, or the result of ``what``."""
    return {run.round: (what or cell.cost)(run) for run in cell.of(peer, settings)}


def columns_of(results: Results) -> tuple[str, ...]:
    """The columns of settings that were measured: with ``--quick`` only the best."""
    return (BEST,) if results.is_quick else (BEST, AS_OURS)


def _columns_of_rule(rule: Rule, results: Results) -> tuple[str, ...]:
    if rule.column is None:
        return columns_of(results)
    return () if results.is_quick and rule.column != BEST else (rule.column,)


def _of_rule(results: Results, rule: Rule, column: str) -> Gate:
    cell = results.cell(rule.cell)
    title = cell.title if cell is not None else rule.cell
    what = f"{title}{NAMES_OF_OURS[rule.peer]}: CPU ÷ {TITLES[rule.other]}, {SETTINGS[column]}"
    why = _why_not(cell, column, rule.peer, rule.other)
    if cell is None or why:
        return Gate(what, None, rule.gate, rule.goal, at_least=False, note=why)
    sides = [costs(cell, peer, column) for peer in (rule.peer, rule.other)]
    return _gate(what, ratio(*sides), rule.gate, rule.goal)


def _of_tail(results: Results, name: str) -> Iterator[Gate]:
    cell = results.cell(name)
    title = cell.title if cell is not None else name
    for other, most in TAIL_CPU:
        why = _why_not(cell, AS_OURS, "ours", other)
        texts = f"{title}: CPU a second ÷ {TITLES[other]}", f"{title}: p99 latency − {TITLES[other]}"
        if cell is None or why:
            yield Gate(texts[0], None, most, None, at_least=False, note=why)
            yield Gate(texts[1], None, TAIL_P99_MS, None, "ms", at_least=False, note=why)
            continue
        yield _gate(texts[0], ratio(costs(cell, "ours", AS_OURS), costs(cell, other, AS_OURS)), most, None)
        late = [costs(cell, peer, AS_OURS, _p99) for peer in ("ours", other)]
        yield _gate(texts[1], difference(*late), TAIL_P99_MS, None, "ms")


def _p99(run: Run) -> float:
    assert run.latencies_ms is not None, "every reading at the tail has latencies"
    return run.latencies_ms[1]


def _of_headers(results: Results) -> Gate:
    """Three unread headers, against a value that is as much longer; one cell follows the other.

    The headers have half as many bytes as the rest of the record.  These are received and have a checksum like others.
    """
    column = columns_of(results)[-1]
    what = "three unread headers: CPU ÷ as many bytes without headers"
    sides = []
    for name in ("headers", "164B-v2"):
        cell = results.cell(name)
        why = _why_not(cell, column, "ours")
        if cell is None or why:
            return Gate(what, None, HEADERS_GATE, None, at_least=False, note=f"{name}: {why}")
        sides.append(costs(cell, "ours", column))
    return _gate(what, ratio(*sides), HEADERS_GATE, None)


def _of_spark(results: Results) -> list[Gate]:
    if not results.spark:
        note = f"run {SPARK_COMMAND}, and pass the file with --spark"
        return [
            Gate("Spark: all figures, interleaved with the commit before", None, 1.05, 1.0, at_least=False, note=note)
        ]
    return [Gate(**{key: value for key, value in each.items() if key != "verdict"}) for each in results.spark]


def _why_not(cell: CellResult | None, column: str, *peers: str) -> str:
    if cell is None:
        return "the cell was not measured"
    for peer in peers:
        why = cell.why_not(peer, column)
        if why:
            return f"{peer}: {why}"
    return ""


def _gate(what: str, found: Ratio | None, gate: float, goal: float | None, unit: str = "x") -> Gate:
    if found is None:
        return Gate(what, None, gate, goal, unit, at_least=False, note="no round has both")
    spread = f"{found.low:.3g} to {found.high:.3g}"
    return Gate(what, found.value, gate, goal, unit, at_least=False, note=spread)
