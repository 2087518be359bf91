"""The figures of ``bench/streams.py``: the result of one reading, ratios of readings, and the JSON file.

``FIELDS`` is the schema of the file; the page contains it, and ``problems`` checks a file against it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

SCHEMA = 2
BEST, AS_OURS = "best", "ours"
"""The two columns of settings: the best ones of a peer, and those of zkconsumer."""

BEST_BUT_500 = "best but 500"
"""A third one, for ``poll``: the best settings, but ``max.poll.records`` is 500, its default."""


@dataclass(frozen=True, slots=True)
class Run:
    """One reading that counts.

    ``cpu_s`` does not include ``start_s``, the CPU of joining and leaving the group; ``messages`` does not include the
    messages that were read to measure it.  ``wall_s``: the time of the whole reading; at the tail, of the window.
    ``latencies_ms``: p50 and p99 at the tail; None if a topic is read to its end.
    """

    peer: str
    settings: str
    round: int
    messages: int
    cpu_s: float
    wall_s: float
    start_s: float = 0.0
    latencies_ms: tuple[float, float] | None = None

    @property
    def us(self) -> float:
        """µs of CPU per message."""
        return self.cpu_s / self.messages * 1e6

    @property
    def ms_a_second(self) -> float:
        """ms of CPU per second."""
        return self.cpu_s / self.wall_s * 1e3


@dataclass(slots=True)
class CellResult:
    """All readings of one cell.  ``not_run``: "peer settings" -> the reason.  ``commit``: of the checkout."""

    name: str
    title: str
    shape: str
    value_bytes: int
    partitions: int
    messages: int
    tenth: int
    rate: int
    on_disk: dict[str, Any]
    commit: str = ""
    runs: list[Run] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    @property
    def is_tail(self) -> bool:
        return self.rate > 0

    def of(self, peer: str, settings: str) -> list[Run]:
        """The readings of one peer, in the order of the rounds."""
        return [run for run in self.runs if (run.peer, run.settings) == (peer, settings)]

    def why_not(self, peer: str, settings: str) -> str:
        """Why there is no figure; "" if there is one."""
        if self.of(peer, settings):
            return ""
        return self.not_run.get(f"{peer} {settings}", "not part of this cell")

    def cost(self, run: Run) -> float:
        """The compared figure: µs per message, at the tail ms of CPU per second."""
        return run.ms_a_second if self.is_tail else run.us


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two medians, and the smallest and the largest ratio of one round."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(upper: Mapping[int, float], lower: Mapping[int, float]) -> Ratio | None:
    """The ratio of the figures of two peers, by round; only rounds of both count.  None without such a round."""
    rounds = sorted(upper.keys() & lower.keys())
    if not rounds:
        return None
    each = [upper[number] / lower[number] for number in rounds]
    medians = [statistics.median(side[number] for number in rounds) for side in (upper, lower)]
    return Ratio(medians[0] / medians[1], min(each), max(each))


def difference(upper: Mapping[int, float], lower: Mapping[int, float]) -> Ratio | None:
    """Like ``ratio``, with differences."""
    rounds = sorted(upper.keys() & lower.keys())
    if not rounds:
        return None
    each = [upper[number] - lower[number] for number in rounds]
    medians = [statistics.median(side[number] for number in rounds) for side in (upper, lower)]
    return Ratio(medians[0] - medians[1], min(each), max(each))


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Results:
    """One run of the benchmark."""

    started: str
    command: str
    machine: dict[str, Any]
    load_at_start: float
    rounds: int
    scale: float
    is_quick: bool
    broker: str
    commit: str
    before: str
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    cells: list[CellResult] = field(default_factory=list)
    spark: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def cell(self, name: str) -> CellResult | None:
        return next((cell for cell in self.cells if cell.name == name), None)

    def to_json(self, gates: Sequence[Mapping[str, Any]]) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self), "gates": list(gates)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the file; gates are computed again.  Raises ``ValueError`` with all problems."""
        data = json.loads(text)
        wrong = problems(data)
        if wrong:
            raise ValueError("; ".join(wrong[:10]))
        del data["schema"], data["gates"]
        cells = [
            CellResult(**{**cell, "runs": [_run(each) for each in cell["runs"]]})  # in the order of the file
            for cell in data.pop("cells")
        ]
        return cls(**data, cells=cells)


def _run(data: Mapping[str, Any]) -> Run:
    latencies = data["latencies_ms"]
    return Run(**{**data, "latencies_ms": None if latencies is None else tuple(latencies)})


@dataclass(frozen=True, slots=True)
class Field:
    """One path of the JSON file.  ``[]``: each element of a list; ``{}``: each value of an object."""

    path: str
    kind: str
    meaning: str


FIELDS = (
    Field("schema", "integer", f"{SCHEMA}; another number means other fields"),
    Field("started", "text", "when the run began, ISO 8601 in UTC"),
    Field("command", "text", "the command line"),
    Field("machine", "object", "processor, cores, memory, system, Python; names to texts or numbers"),
    Field("load_at_start", "number", "the load average of the last minute before the start"),
    Field("rounds", "integer", "the number of rounds that count"),
    Field("scale", "number", "the factor on the numbers of messages"),
    Field("is_quick", "boolean", "whether it was a quick run (`--quick`)"),
    Field("broker", "text", "the release of the broker"),
    Field("commit", "text", "the commit of this checkout; `+` after it: with changes"),
    Field("before", "text", "the commit of the second checkout; empty without one"),
    Field("peers{}", "object", "one for each peer"),
    Field("peers{}.title", "text", "its name on the page"),
    Field("peers{}.difference", "text", "its differences to the others"),
    Field("peers{}.versions", "object", "the versions that the peer reports; names to texts or booleans"),
    Field("peers{}.settings", "object", "`best`, `ours`, `best but 500`: the settings of each column, names to texts"),
    Field("cells[].name", "text", "its name for `--cells`"),
    Field("cells[].title", "text", "its name on the page"),
    Field("cells[].shape", "text", "sizes, record format, codec, batches, headers"),
    Field("cells[].value_bytes", "integer", "the mean length of a value"),
    Field("cells[].partitions", "integer", "the number of partitions of the topic"),
    Field("cells[].messages", "integer", "the number of messages in the topic; 0 at the tail"),
    Field(
        "cells[].tenth", "integer", "the number of messages in the smaller topic for slow peers; 0 without such peers"
    ),
    Field("cells[].rate", "integer", "records per second at the tail, else 0"),
    Field("cells[].on_disk", "object", "record format, codec and mean batch in the first megabyte of a segment"),
    Field("cells[].commit", "text", "the commit that was measured: as `commit`, or a later one (`--page`)"),
    Field("cells[].runs[].peer", "text", "a key of `peers`"),
    Field("cells[].runs[].settings", "text", "`best`, `ours` or `best but 500`"),
    Field("cells[].runs[].round", "integer", "from 1"),
    Field("cells[].runs[].messages", "integer", "the number of messages for `cpu_s`"),
    Field("cells[].runs[].cpu_s", "number", "user and system time of the peer's process, without `start_s`, seconds"),
    Field("cells[].runs[].wall_s", "number", "the time of the reading, at the tail of the window, seconds"),
    Field("cells[].runs[].start_s", "number", "CPU of joining and leaving, 0 at the tail, seconds"),
    Field("cells[].runs[].latencies_ms", "list or null", "p50 and p99 at the tail, from sending to the program"),
    Field("cells[].not_run", "object", "peer and settings to the reason why there is no figure"),
    Field("spark[]", "object", "the gates of `bench/spark.py --before`, from `--spark`, with the fields of `gates`"),
    Field("spark[].what", "text", "as in `gates`"),
    Field("spark[].value", "number or null", "as in `gates`"),
    Field("spark[].gate", "number or null", "as in `gates`"),
    Field("spark[].goal", "number or null", "as in `gates`"),
    Field("spark[].unit", "text", "as in `gates`"),
    Field("spark[].at_least", "boolean", "as in `gates`"),
    Field("spark[].note", "text", "as in `gates`"),
    Field("seconds", "number", "the time of the whole run"),
    Field("gates[].what", "text", "what is compared"),
    Field("gates[].value", "number or null", "the ratio of medians, or the difference; null: not run"),
    Field("gates[].gate", "number or null", "the limit; null: it is only shown"),
    Field("gates[].goal", "number or null", "the goal"),
    Field("gates[].unit", "text", "`x` for a ratio, `ms`"),
    Field("gates[].at_least", "boolean", "false: the value must be at most that"),
    Field("gates[].note", "text", "the spread over the rounds, or why it was not run"),
    Field("gates[].verdict", "text", "`goal`, `gate`, `MISSED`, `not run`, or `-` without a gate"),
)

OBJECTS_OF_ANYTHING = frozenset(
    row.path for row in FIELDS if row.kind == "object" and not row.path.endswith(("{}", "[]"))
)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "text": (str,),
    "boolean": (bool,),
    "object": (dict,),
    "list": (list,),
    "null": (type(None),),
}


def problems(data: Any) -> list[str]:
    """The differences of a file to this schema: fields that are missing, have another type, or are unknown."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        return [f"this is not a file of schema {SCHEMA} of bench/streams.py"]
    known = {row.path: row for row in FIELDS}
    found: list[str] = []
    for path, value in _walk(data, ""):
        row = known.get(path)
        if row is None:
            found.append(f"{path} is not known")
        elif not _is_of(value, row.kind):
            found.append(f"{path} is {type(value).__name__}, not {row.kind}")
    found += _missing(data, "", known)
    return found


def _is_of(value: Any, kind: str) -> bool:
    kinds = [each for word in kind.split(" or ") for each in _KINDS[word]]
    return type(value) in kinds


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each path with each of its values; without containers that have paths below them."""
    if path in OBJECTS_OF_ANYTHING:
        yield path, value
    elif isinstance(value, dict) and path == "peers":
        for each in value.values():
            yield "peers{}", each
            yield from _walk(each, "peers{}")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _walk(each, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list) and any(row.path.startswith(f"{path}[]") for row in FIELDS):
        for each in value:
            if f"{path}[]" in {row.path for row in FIELDS}:
                yield f"{path}[]", each
            yield from _walk(each, f"{path}[]")
    else:
        yield path, value


def _missing(data: Mapping[str, Any], path: str, known: Mapping[str, Field]) -> list[str]:
    found = []
    for name in _names_below(path, known):
        whole = f"{path}.{name}".removeprefix(".")
        bare = whole.removesuffix("[]").removesuffix("{}")
        key = bare.rpartition(".")[2]
        if key not in data:
            found.append(f"{bare} is missing")
        elif whole.endswith("[]") and isinstance(data[key], list):
            for each in data[key]:
                found += _missing(each, whole, known) if isinstance(each, dict) else []
        elif whole.endswith("{}") and isinstance(data[key], dict):
            for each in data[key].values():
                found += _missing(each, whole, known) if isinstance(each, dict) else []
    return found


def _names_below(path: str, known: Mapping[str, Field]) -> list[str]:
    head = f"{path}." if path else ""
    names = [each.removeprefix(head).split(".")[0] for each in known if each.startswith(head)]
    return list(dict.fromkeys(names))


def load(path: Path) -> Results:
    """Load a file.  Raises ``SystemExit`` if it cannot be read or has another schema."""
    try:
        return Results.from_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}") from None


SAME_IN_ALL_PARTS = ("machine", "rounds", "scale", "is_quick", "broker", "before")


def joined(parts: Sequence[Results]) -> Results:
    """The files as one; ``load_at_start`` is the largest.

    A cell that a later file measured again replaces the one of an earlier file; its ``commit`` may be another one.
    Cells that were interrupted have no readings, and are omitted.  Raises ``SystemExit`` if the files were not measured
    under the same conditions; a peer may have other settings if all its cells were measured again.
    """
    whole = parts[0]
    whole.cells = [cell for cell in whole.cells if cell.runs]
    for part in parts[1:]:
        other = [name for name in SAME_IN_ALL_PARTS if getattr(part, name) != getattr(whole, name)]
        measured = {cell.name for cell in part.cells if cell.runs}
        kept = {run.peer for cell in whole.cells if cell.name not in measured for run in cell.runs}
        other += [f"the settings of {name}" for name in sorted(kept) if _settings(part, name) != _settings(whole, name)]
        if other:
            raise SystemExit(f"the files differ in {', '.join(other)}: they are not parts of one page")
        for name, peer in part.peers.items():
            versions = {**whole.peers[name]["versions"], **peer["versions"]}
            whole.peers[name] = {**peer, "versions": versions}
        for cell in part.cells:
            _put(whole.cells, cell)
        whole.spark = part.spark or whole.spark
        whole.command += f" && {part.command}"
        whole.load_at_start = max(whole.load_at_start, part.load_at_start)
        whole.seconds += part.seconds
    return whole


def _put(cells: list[CellResult], cell: CellResult) -> None:
    if not cell.runs:
        return
    place = next((place for place, other in enumerate(cells) if other.name == cell.name), len(cells))
    cells[place : place + 1] = [cell]


def _settings(results: Results, peer: str) -> object:
    return results.peers.get(peer, {}).get("settings")
