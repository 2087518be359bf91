"""``migration_docs/reference/speed.md`` and its plots, made of the figures of ``bench/streams.py`` alone."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import stream_gates
from gates import Gate
from plots import Line, Plot, svg
from shapes import Shape
from stream_peers import TRIED
from stream_results import AS_OURS, BEST, BEST_BUT_500, FIELDS, CellResult, Results, ratio

from zkconsumer.wire import compression

FOLDER = Path(__file__).resolve().parent.parent / "migration_docs" / "reference"
PAGE = FOLDER / "speed.md"
SIZE_CELLS = ("20B-v2", "100B-v2", "300B-v2", "1KB-v2", "4KB-v2")
PARTITION_CELLS = ("1-partition", "100B-v2", "64-partitions")
PLOTTED = ("ours", "ours-batches", "scala", "java", "confluent-crc", "franz-go")
COMPARED = ("scala", "java", "confluent-crc", "confluent", "franz-go", "kafka-python", "kafka-python-crc32c")
PAIRS = (
    *(("ours-python" if peer.startswith("kafka-python") else "ours", peer) for peer in COMPARED),
    *(("ours-poll", peer) for peer in ("java", "confluent-crc", "no-consumer")),
    ("no-consumer", "java"),
)
"""The ratios of the page: the first peer ÷ the second one."""

WRONG = """\
- *Windows in a topic.* All clients fetch ahead, and all except the Java client decode ahead. Work that was done before
  the start of a window is missing in it; with compressed topics this was nearly all of it. Now the whole reading
  counts; joining and leaving are measured separately and subtracted.
- *Values that are compressed to a tenth.* A repeated line costs a decompressor little. Values of compressed topics now
  have different numbers and names, and are compressed to about a third.
- *A cold JVM.* A JVM compiles while it reads. Now a process runs for the whole cell, and its first readings do not
  count.
- *The JVM of the tests.* The sandbox starts Java only with the first compiler, because servers of tests run for
  seconds. Here peers in Java have both compilers. The broker still has only the first one; its CPU does not count.
- *Defaults compared with defaults.* The Java client needs much less CPU with larger fetches, a larger receive buffer
  and lists of more than 500 records. Two columns replace this: the best settings of each, and equal settings.
- *Sums in the loop.* Summing offsets and lengths costs a Python program about as much as compiled code needs for a
  message, and a JVM nearly nothing. Now sums are computed in the reading that does not count.
- *Different first messages.* With several partitions each client reads other first million messages. Now sums are
  compared for the whole topic.
- *Format 2 instead of 1.* A broker of 3.9 ignores `message.format.version` of a topic and writes format 2, unless its
  `inter.broker.protocol.version` is below 3.0. Now the format on disk is read from a segment.
- *Short readings.* A JVM counts the CPU of its process in ticks of 10 ms. Topics are so large that this is negligible.
- *Timestamps in every record.* At 50,000 records per second, reading the clock for each record is a large part of the
  work of a reader. Now at most 1,000 per second are stamped; they differ in length, so that the others cost nothing.
- *`consume(500)` at the tail.* It waits for 500 messages. Now confluent-kafka is read with `poll()` there.
"""


def write(results: Results) -> list[Path]:
    """Write the page and the plots; return the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pictures = {FOLDER / f"speed-{name}.svg": svg(plot) for name, plot in plots(results).items()}
    for path, text in pictures.items():
        path.write_text(text, "utf-8")
    PAGE.write_text(page(results), "utf-8")
    return [PAGE, *pictures]


def page(results: Results) -> str:
    """The whole page, as Markdown."""
    reads = [cell for cell in results.cells if not cell.is_tail]
    tails = [cell for cell in results.cells if cell.is_tail]
    parts = [
        _head(results),
        _costs("## Best settings of each: µs of CPU a message", results, reads, BEST),
        _costs("## Settings of ours for all: µs of CPU a message", results, reads, AS_OURS),
        _costs("## Best settings of each, but lists of 500 records: µs of CPU a message", results, reads, BEST_BUT_500),
        _ratios(results, reads),
        _tails(results, tails),
        _plots(results),
        ["## Gates", "", *gate_table(stream_gates.gates(results)), ""],
        _missing(results),
        _peers(results),
        _topics(results),
        ["## Errors of earlier measurements", "", *WRONG.splitlines(), ""],
        _schema(),
    ]
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


def gate_table(gates: Iterable[Gate]) -> list[str]:
    """The table of these gates."""
    return ["| what | is | gate | goal | |", "|---|---|---|---|---|", *(gate.row() for gate in gates)]


def lines_of(cell: CellResult, peers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One cell for the console: a line for each peer and column, also for one that could not run."""
    unit = "ms CPU/s" if cell.is_tail else "µs"
    lines = []
    for peer, settings in _all_of(cell):
        title = f"  {peers[peer]['title']}, settings {settings}:"
        why = cell.why_not(peer, settings)
        if why:
            lines.append(f"{title} not run: {why}")
            continue
        costs = [cell.cost(run) for run in cell.of(peer, settings)]
        late = _latency(cell, peer, settings)
        lines.append(
            f"{title} {statistics.median(costs):.3f} {unit} ({min(costs):.3f} to {max(costs):.3f})"
            + (f", p50 {late[0]:.1f} ms, p99 {late[1]:.1f} ms" if late else "")
        )
    return lines


def codec_of(shape: Shape) -> str:
    """Its name."""
    return compression.CODEC_NAMES[shape.codec]


def plots(results: Results) -> dict[str, Plot]:
    """Name -> plot; only plots with at least two measured cells."""
    made = {
        "size": Plot(
            "Cost against message size (v2, best settings)",
            "bytes of a value",
            "µs",
            _lines(results, SIZE_CELLS, lambda cell: cell.value_bytes),
        ),
        "partitions": Plot(
            "Cost against partitions (100 B, v2, best settings)",
            "partitions",
            "µs",
            _lines(results, PARTITION_CELLS, lambda cell: cell.partitions),
        ),
    }
    for partitions in (64, 512):
        names = [cell.name for cell in results.cells if cell.is_tail and cell.partitions == partitions]
        made[f"rate-{partitions}"] = Plot(
            f"CPU at the tail against rate ({partitions} partitions)",
            "records/s",
            "ms/s",
            _lines(results, names, lambda cell: cell.rate),
        )
    return {name: plot for name, plot in made.items() if any(len(line.points) > 1 for line in plot.lines)}


# --- parts ----------------------------------------------------------------------------------------------------------


def _head(results: Results) -> list[str]:
    found = results.machine
    before = f", against {results.before}" if results.before else ""
    look = " It was a quick run (`--quick`): figures are rough." if results.is_quick else ""
    fewer = f" The numbers of messages are multiplied by {results.scale:g}." if results.scale != 1 else ""
    return [
        "# What a message costs",
        "",
        f"Printed by `{_without_paths(results.command)}`; the docstring of `bench/streams.py` explains the "
        "measurement.",
        "",
        f"{found['processor']}, {found['cores']} cores, {found['memory_gib']} GiB, {found['system']}, Python",
        f"{found['python']}; load {results.load_at_start:g} before the start.",
        f"Broker {results.broker} in ZooKeeper mode, on the same cores. Commit {results.commit}{before}.",
        *_later_commits(results),
        f"{results.started}, {results.seconds / 60:.0f} minutes.",
        f"Medians of {results.rounds} rounds in which all peers alternate.{look}{fewer}",
        "Gates are for an idle machine.",
        "",
        "zkconsumer is a complete member: in a group, with commits, lease and ownership.",
        "Settings of ours: the defaults of zkconsumer.",
        "",
    ]


def _later_commits(results: Results) -> list[str]:
    """The cells that were measured again, or added, after a change that concerns only these."""
    cells: dict[str, list[str]] = {}
    for cell in results.cells:
        if cell.commit != results.commit:
            cells.setdefault(cell.commit, []).append(cell.title)
    return [f"Commit {commit}: {'; '.join(titles)}." for commit, titles in cells.items()]


def _without_paths(command: str) -> str:
    """The command with PATH for the files and folders of the machine that ran it."""
    return re.sub(r"(--before|--json|--spark) (?:'[^']*'|\S+)", r"\1 PATH", command)


def _costs(head: str, results: Results, cells: list[CellResult], column: str) -> list[str]:
    shown = [peer for peer in results.peers if any(_cost(cell, peer, column) for cell in cells)]
    if not shown:
        return []
    titles = [results.peers[peer]["title"] for peer in shown]
    lines = [head, "", f"| topic | {' | '.join(titles)} |", "|---" * (len(shown) + 1) + "|"]
    for cell in cells:
        values = [_cost(cell, peer, column) for peer in shown]
        if any(values):
            lines.append(f"| {cell.title} | " + " | ".join(values) + " |")
    return [*lines, ""]


def _cost(cell: CellResult, peer: str, column: str) -> str:
    runs = cell.of(peer, column)
    if runs:
        return f"{statistics.median(cell.cost(run) for run in runs):.3f}"
    return "not run" if f"{peer} {column}" in cell.not_run else ""


def _ratios(results: Results, cells: list[CellResult]) -> list[str]:
    lines = []
    for cell in cells:
        for ours, peer in PAIRS:
            shown = []
            for column in (BEST, AS_OURS):
                sides = stream_gates.costs(cell, ours, column), stream_gates.costs(cell, peer, column)
                found = ratio(*sides)
                shown.append("" if found is None else str(found))
            if any(shown):
                names = [results.peers[each]["title"] for each in (ours, peer)]
                lines.append(f"| {cell.title} | {' ÷ '.join(names)} | {' | '.join(shown)} |")
    if not lines:
        return []
    return [
        "## Ratios",
        "",
        "Ratios of the medians; in parentheses the smallest and the largest ratio of one round. Below 1 the first one",
        "needs less CPU.",
        "",
        "| topic | what | both with their best settings | both with those of ours |",
        "|---|---|---|---|",
        *lines,
        "",
    ]


def _tails(results: Results, cells: list[CellResult]) -> list[str]:
    if not cells:
        return []
    lines = [
        "## At the tail",
        "",
        "Latency: from sending a record to its delivery to the program, for up to 1,000 records per second. All have",
        "the settings of ours: at the tail no fetch is full. The producer waits 1 ms for more records of a batch.",
        "",
        "| topic | consumer | ms of CPU a second | p50, ms | p99, ms |",
        "|---|---|---|---|---|",
    ]
    for cell in cells:
        for peer, settings in _all_of(cell):
            title = results.peers[peer]["title"]
            late = _latency(cell, peer, settings)
            if late is None:
                lines.append(f"| {cell.title} | {title} | not run | | |")
                continue
            cost = statistics.median(cell.cost(run) for run in cell.of(peer, settings))
            lines.append(f"| {cell.title} | {title} | {cost:.1f} | {late[0]:.1f} | {late[1]:.1f} |")
    return [*lines, ""]


def _plots(results: Results) -> list[str]:
    made = plots(results)
    if not made:
        return []
    return ["## Plots", "", *(f"![{plot.title}](speed-{name}.svg)\n" for name, plot in made.items())]


def _missing(results: Results) -> list[str]:
    lines = [
        f"| {cell.title} | {results.peers[who.partition(' ')[0]]['title']}, {who.partition(' ')[2]} | {_cell(why)} |"
        for cell in results.cells
        for who, why in cell.not_run.items()
    ]
    if not lines:
        return []
    return ["## Not run", "", "| topic | consumer, settings | why |", "|---|---|---|", *lines, ""]


def _peers(results: Results) -> list[str]:
    lines = ["## Differences of the consumers, and their settings", "", "| consumer | versions | |", "|---|---|---|"]
    for peer in results.peers.values():
        versions = ", ".join(f"{name} {value}" for name, value in peer["versions"].items() if isinstance(value, str))
        lines.append(f"| {peer['title']} | {versions} | {peer['difference']} |")
    lines += ["", "The best settings need the least CPU per message at 100 B, v2, of these settings:", ""]
    lines += [*TRIED.splitlines(), "", "Without addresses and TLS settings:", "", "```text"]
    for peer in results.peers.values():
        for column, settings in peer["settings"].items():
            if settings:
                title = peer["title"].replace("`", "")
                lines += [f"{title}, {column}:", *(f"  {key}={value}" for key, value in settings.items())]
    return [*lines, "```", ""]


def _topics(results: Results) -> list[str]:
    lines = [
        "## The topics",
        "",
        "Keys of 8 bytes; values are parts of lines of JSON. Format and codec on disk are read from a segment.",
        "",
        "| topic | what was sent | partitions | messages | a tenth | on disk: format, codec, bytes a batch, records |",
        "|---|---|---|---|---|---|",
    ]
    for cell in results.cells:
        disk = cell.on_disk
        records = f", {disk['records_a_batch']:.1f}" if disk and disk["records_a_batch"] else ""
        found = f"{disk['magic']}, {disk['codec']}, {disk['batch_bytes']:.0f}{records}" if disk else ""
        tenth = f"{cell.tenth:,}" if cell.tenth else ""
        lines.append(
            f"| {cell.title} | {cell.shape} | {cell.partitions} | {cell.messages or cell.rate:,}"
            f"{'/s' if cell.is_tail else ''} | {tenth} | {found} |"
        )
    return [*lines, ""]


def _schema() -> list[str]:
    return [
        "## The JSON file",
        "",
        "`--json FILE` saves all readings, `--page FILE` makes this page from them. `[]`: each element of a list;",
        "`{}`: each value of an object.",
        "",
        "| field | what | |",
        "|---|---|---|",
        *(f"| `{row.path}` | {row.kind} | {row.meaning} |" for row in FIELDS),
    ]


# --- figures --------------------------------------------------------------------------------------------------------


def _all_of(cell: CellResult) -> list[tuple[str, str]]:
    """All peers of a cell, in the order of the first round; then those that could not run."""
    named = [(run.peer, run.settings) for run in cell.runs]
    left_out = [(who.partition(" ")[0], who.partition(" ")[2]) for who in cell.not_run]
    return sorted(dict.fromkeys([*named, *left_out]), key=lambda who: (_place(who[0]), who[1] != BEST))


def _place(peer: str) -> int:
    order = ("ours", "ours-batches", "ours-fast", "before", "ours-python", "before-python", *COMPARED)
    return order.index(peer) if peer in order else len(order)


def _latency(cell: CellResult, peer: str, settings: str) -> tuple[float, float] | None:
    found = [run.latencies_ms for run in cell.of(peer, settings) if run.latencies_ms is not None]
    if not found:
        return None
    return statistics.median(each[0] for each in found), statistics.median(each[1] for each in found)


def _lines(results: Results, names: Iterable[str], x: Any) -> list[Line]:
    cells = [cell for name in names if (cell := results.cell(name)) is not None]
    lines = []
    for peer in PLOTTED:
        points = []
        for cell in cells:
            settings = AS_OURS if cell.is_tail else BEST
            runs = cell.of(peer, settings)
            if runs:
                points.append((float(x(cell)), statistics.median(cell.cost(run) for run in runs)))
        if points and peer in results.peers:
            lines.append(Line(results.peers[peer]["title"].replace("`", ""), points))
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
