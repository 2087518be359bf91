"""Measures reading with Spark through ``format("zkconsumer")``, compared with Spark's Kafka source and confluent-kafka.

    python bench/spark.py [--quick] [--cells 100B-varying ...] [--before PATH] [--json FILE] [--write]

It uses one real broker (3.9.1) of the sandbox, topics of 4 partitions, and a separate ``local[2]`` session for each
source, as in a program.  The sources alternate on the same topic; figures are medians of ``--rounds`` readings after
one that does not count.  CPU is the time of the JVM and, after the +, of its Python processes; without the broker and
this program.  The stream is AvailableNow in batches of 500,000 rows; the source of this project is a member of a
ZooKeeper group that claims each batch before it reads it.

Topics are so large that the fastest source reads for some seconds.  A query costs .1 to .3 s of CPU before its first
row (plans in two Python processes, tasks, and garbage collection in each worker): with a topic of 120,000 rows of 1 KB
this was a third of the measured cost of a row.  Larger topics would not improve the figures, and Spark ends workers
that it does not use for a minute; new ones load their packages again.  A run takes 15 to 20 minutes on two idle cores.

The gates for confluent-kafka are for rows per second with many rows and without other work (100 B, noop): with a sink,
or with 1 KB to copy for each row, the difference between all sources is smaller.  The other figures are only shown.
With rows of 1 KB, the transport of the row costs most: rows of this project pass a second socket, from Python to the
JVM.  A source that returns one prepared batch repeatedly takes 1 µs of CPU per row there, half of the cost of this
project's source with all its reading.

``--before PATH`` is a second checkout of this project with its own virtual environment (``.venv`` or ``venv`` in it or
next to it): its source alternates with the others, and each figure of this project is compared with its figure.
``--json FILE`` saves the gates; ``bench/streams.py --spark FILE`` shows those for the second checkout.

``--quick`` is for a rough result (fewer rows, three rounds); then the JVM is not warm.  confluent-kafka must be
installed (the extra ``[bench]``).  ``--write`` writes the page to migration_docs/reference/spark-speed.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import columns
from columns import Cost
from gates import Gate
from shapes import Shape
from spark_claims import claim_ms_a_partition
from spark_runs import (
    BEFORE,
    CONFLUENT,
    JVM,
    NARROW,
    NARROW_BEFORE,
    OURS,
    PARTITIONS,
    SOURCES,
    Cluster,
    Sample,
    Source,
    count_rows,
    read_batch,
)
from spark_sessions import Sessions, import_problem, sessions
from spark_stream import StreamRun, read_stream
from stream_peers import Checkout, checkout_of
from stream_results import Ratio, ratio
from topics import fill

from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.spark_jars import ensure_spark_jars
from zkconsumer.wire import compiled

BROKER = "3.9.1"
HEAP_MB = 512
DECODED_ROWS, DECODED_ROUNDS, DECODED_IN_TURN = 80_000, 7, 2
STREAM_BATCH_ROWS, STREAM_BATCH_ROWS_QUICK = 500_000, 125_000
PAGE = Path(__file__).resolve().parent.parent / "migration_docs" / "reference" / "spark-speed.md"

TOPICS = {
    "100B-varying": (Shape(100, True), 5_000_000, 500_000),
    "100B": (Shape(100, False), 5_000_000, 250_000),
    "1KB-varying": (Shape(1024, True), 1_600_000, 100_000),
    "1KB": (Shape(1024, False), 1_600_000, 50_000),
}
"""The shape, the number of rows, and that number with ``--quick``.  Varying lengths are usual, and slower."""
SINKS = ("noop", "parquet")
COLUMNS = (*SOURCES, NARROW, BEFORE, NARROW_BEFORE)
STREAM = "stream"
SAME, BETTER = 1.05, 1.0
"""The gate and the goal for a figure divided by the figure of the second checkout; less is better."""


class Bench:
    """Measures, and collects the rows and gates of the page."""

    def __init__(
        self, sessions: Sessions, cluster: Cluster, folder: Path, rounds: int, before: Checkout | None
    ) -> None:
        self._sessions, self._cluster, self._folder, self._rounds = sessions, cluster, folder, rounds
        self._before = (BEFORE,) if before is not None else ()
        self.rows: list[str] = []
        self.stream_rows: list[str] = []
        self.gates: list[Gate] = []
        self.gates_before: list[Gate] = []

    def batches(self, topic: str, rows: int) -> None:
        """Measure all sources and both sinks on one topic."""
        sources = (*SOURCES, *self._before)
        for source in sources:
            found = self._sessions.run(source, count_rows, source, self._cluster, topic)
            if found != rows:
                raise SystemExit(f"{source.name} finds {found} rows in {topic} instead of {rows}")
        for sink in SINKS:
            # Only without a sink the figures show what Spark does with an unused column.
            narrow = [NARROW, *([NARROW_BEFORE] if self._before else [])] if sink == "noop" else []
            samples: dict[Source, list[Sample]] = {source: [] for source in (*sources, *narrow)}
            for number in range(self._rounds + 1):
                for source in samples:
                    where = source, self._cluster, topic
                    sample = self._sessions.run(source, read_batch, *where, rows, sink, self._folder)
                    if number:
                        samples[source].append(sample)
            self._cell(topic, sink, samples)

    def _cell(self, topic: str, sink: str, samples: dict[Source, list[Sample]]) -> None:
        cell = f"{topic} {sink}"
        columns = [source for source in COLUMNS if self._before or not source.is_before]
        shown = [f"{_rate(found)}; {_cpu(found)}" if (found := samples.get(source)) else "" for source in columns]
        self.rows.append(f"| {cell} | " + " | ".join(shown) + " |")
        print(self.rows[-1], flush=True)
        rate = {source: _median(sample.rate for sample in found) for source, found in samples.items()}
        used = {source: _median(sample.us for sample in found) for source, found in samples.items()}
        faster = (2.0, 3.0) if TOPICS[topic][0].size == 100 and sink == "noop" else (None, None)
        self.gates += [
            Gate(f"{cell}: rows/s ÷ JVM source", rate[OURS] / rate[JVM], 1.2, 2.0),
            Gate(f"{cell}: CPU a row ÷ JVM source", used[OURS] / used[JVM], 1.0, 0.75, at_least=False),
            Gate(f"{cell}: rows/s ÷ confluent-kafka", rate[OURS] / rate[CONFLUENT], *faster),
            Gate(f"{cell}: CPU a row ÷ confluent-kafka", used[OURS] / used[CONFLUENT], None, None, at_least=False),
        ]
        for ours, before in ((OURS, BEFORE), (NARROW, NARROW_BEFORE)):
            if before in samples:
                self.against_before(f"{cell}, {ours.name}", samples[ours], samples[before])

    def against_before(self, what: str, ours: list[Sample], before: list[Sample]) -> None:
        """Compare time and CPU per row with the second checkout; less is better in both."""
        for name, figure in (("time", _seconds_a_row), ("CPU", _us_a_row)):
            sides = [{number: figure(sample) for number, sample in enumerate(side)} for side in (ours, before)]
            found = ratio(*sides)
            assert found is not None, "both were read in the same rounds"
            self.same(f"Spark, {what}: {name} a row ÷ the commit before", found)

    def same(self, what: str, found: Ratio) -> None:
        """Add a gate: the figure must be within 5 % of the second checkout's figure."""
        spread = f"{found.low:.3g} to {found.high:.3g}"
        self.gates_before.append(Gate(what, found.value, SAME, BETTER, at_least=False, note=spread))

    def streams(self, topic: str, rows: int, batch_rows: int) -> None:
        """Measure the streams of this project and of the JVM source, alternately."""
        runs: dict[Source, list[StreamRun]] = {source: [] for source in (JVM, OURS, *self._before)}
        for number in range(self._rounds + 1):
            for source, made in runs.items():
                where, folder = (source, self._cluster, topic), self._folder / source.name.replace(" ", "-")
                run = self._sessions.run(source, read_stream, *where, rows, batch_rows, folder)
                if number:
                    made.append(run)
        for source, made in runs.items():
            self.stream_rows.append(
                f"| {source.name} | {_median(run.add_batch_rate for run in made) / 1e6:.2f} M "
                f"| {_rate([run.whole for run in made])} | {_cpu([run.whole for run in made])} "
                f"| {_median(run.overhead_ms for run in made):.0f} |"
            )
            print(self.stream_rows[-1], flush=True)
        rate = {source: _median(run.add_batch_rate for run in made) for source, made in runs.items()}
        self.gates += [
            Gate("stream: rows/s in addBatch ÷ JVM source", rate[OURS] / rate[JVM], 1.0, 1.3),
            Gate(
                "stream: trigger without addBatch, p50", _median(run.overhead_ms for run in runs[OURS]), 250.0, None,
                "ms", at_least=False,
            ),
        ]  # fmt: skip
        if self._before:
            self.against_before("stream", *([run.whole for run in runs[source]] for source in (OURS, BEFORE)))
            for name, figure in (("time in addBatch", _add_batch), ("trigger without addBatch", _overhead)):
                sides = [dict(enumerate(map(figure, runs[source]))) for source in (OURS, BEFORE)]
                found = ratio(*sides)
                assert found is not None, "both were read in the same rounds"
                self.same(f"Spark, stream: {name} ÷ the commit before", found)

    def decoding(self, rows: int, rounds: int) -> None:
        """Run ``bench/columns.py`` of both checkouts alternately, each in the process of its session.

        A second checkout whose modules have other names cannot run it.
        """
        why = self._sessions.run(BEFORE, import_problem, columns.__name__)
        if why:
            what = "to Arrow: all shapes ÷ the commit before"
            self.gates_before.append(Gate(what, None, SAME, BETTER, at_least=False, note=why))
            return
        for shape in columns.SHAPES:
            sides: dict[Source, dict[int, tuple[float, float]]] = {OURS: {}, BEFORE: {}}
            for number in range(self._rounds):
                for source, found in sides.items():
                    found[number] = self._sessions.run(source, columns.measure_in_session, shape, rows, rounds)
            for at, name in enumerate(("all fields", "key and value")):
                one = ({number: each[at] for number, each in sides[source].items()} for source in (OURS, BEFORE))
                found_ratio = ratio(*one)
                assert found_ratio is not None, "both decode in the same rounds"
                self.same(f"to Arrow: {shape}, {name} ÷ the commit before", found_ratio)


def _seconds_a_row(sample: Sample) -> float:
    return sample.seconds / sample.rows


def _us_a_row(sample: Sample) -> float:
    return sample.us


def _add_batch(run: StreamRun) -> float:
    return 1 / run.add_batch_rate


def _overhead(run: StreamRun) -> float:
    return run.overhead_ms


def _median(values: Any) -> float:
    return statistics.median(values)


def _rate(samples: list[Sample]) -> str:
    rate = _median(sample.rate for sample in samples)
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k"


def _cpu(samples: list[Sample]) -> str:
    return f"{_median(s.jvm_us for s in samples):.2f}+{_median(s.python_us for s in samples):.2f}"


def machine() -> str:
    """One sentence."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "pyarrow"))
    return (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the "
        f"start; Python {platform.python_version()}, {packages}, confluent-kafka "
        f"{importlib.metadata.version('confluent-kafka')}; broker {BROKER} on the same cores."
    )


def wanted(topic: str, arguments: argparse.Namespace) -> tuple[Shape, int]:
    """The records of a topic, and about how many."""
    shape, rows, quick = TOPICS[topic]
    return shape, int((quick if arguments.quick else rows) * arguments.scale)


def page(head: str, bench: Bench, decoded: list[Cost], arguments: argparse.Namespace) -> str:
    """The page, as Markdown."""
    of_fewer = ", of fewer rows than it should be" if arguments.quick else ""
    shown = [source for source in COLUMNS if arguments.before is not None or not source.is_before]
    lines = [
        "# How fast Spark reads",
        "",
        "Printed by `python bench/spark.py --write`; its docstring explains the measurement.",
        "",
        head,
        f"{arguments.rounds} rounds{of_fewer}; batches of 16 KB on the broker, keys of 8 bytes; lengths that vary",
        "are half to one and a half of the mean. Gates are for an idle machine.",
        "",
        "## Batches: rows a second; µs of CPU a row, JVM + Python",
        "",
        "| topic and sink | " + " | ".join(source.name for source in shown) + " |",
        "|---" * (len(shown) + 1) + "|",
        *bench.rows,
        "",
    ]
    if bench.stream_rows:
        lines += [
            f"## Stream: AvailableNow, batches of {arguments.stream_batch_rows:,} rows, noop",
            "",
            "| source | rows/s in addBatch | rows/s of the whole query | µs CPU a row | trigger without addBatch, ms |",
            "|---|---|---|---|---|",
            *bench.stream_rows,
            "",
        ]
    if decoded:
        rows = [cost.row() for cost in decoded]
        lines += ["## From a record set to Arrow, without Spark", "", *columns.HEAD, *rows, ""]
    lines += ["## Gates", "", "| what | is | gate | goal | |", "|---|---|---|---|---|"]
    lines += [gate.row() for gate in (*bench.gates, *bench.gates_before)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of rows")
    parser.add_argument("--cells", nargs="*", choices=[*TOPICS, STREAM], default=[*TOPICS, STREAM])
    parser.add_argument("--decode", action=argparse.BooleanOptionalAction, default=True, help="also bench/columns.py")
    parser.add_argument("--before", type=lambda path: checkout_of(Path(path)), metavar="PATH", help="a second checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the gates")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 3)
    arguments.stream_batch_rows = STREAM_BATCH_ROWS_QUICK if arguments.quick else STREAM_BATCH_ROWS
    if importlib.util.find_spec("confluent_kafka") is None:
        raise SystemExit("confluent-kafka is not installed: pip install '.[bench]' in a clone")
    start, head = time.monotonic(), machine()
    print(head)
    decoded = columns.costs("", DECODED_ROWS, DECODED_ROUNDS) if arguments.decode else []
    with Sandbox() as sandbox, tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch:
        sandbox.start_zookeeper()
        # The timestamps of the records are in 2023.
        sandbox.start_broker(BROKER, chroot="/kafka", heap_mb=HEAP_MB, settings={"log.retention.ms": "-1"})
        cluster = Cluster(sandbox.bootstrap, sandbox.zookeeper_connect)
        before: Checkout | None = arguments.before
        sources = SOURCES if before is None else (*SOURCES, BEFORE)
        second = None if before is None else (before.root, before.python)
        with sessions(sources, Path(scratch), ensure_spark_jars(), second) as one_each:
            bench = Bench(one_each, cluster, Path(scratch), arguments.rounds, before)
            for topic in arguments.cells:
                if topic != STREAM:
                    bench.batches(topic, fill(sandbox, topic, *wanted(topic, arguments), PARTITIONS).rows)
            if before is not None and arguments.decode:
                bench.decoding(DECODED_ROWS, DECODED_IN_TURN)
            if STREAM in arguments.cells:
                rows = fill(sandbox, STREAM, *wanted("100B-varying", arguments), PARTITIONS).rows
                bench.streams(STREAM, rows, arguments.stream_batch_rows)
                claim_ms = claim_ms_a_partition(cluster, STREAM)
                bench.gates.append(Gate("a claim, a partition", claim_ms, 10.0, None, "ms", at_least=False))
    bench.gates += [
        Gate(f"to Arrow: {cost.shape}", cost.full, columns.GATE_US, columns.GOAL_US, "µs", at_least=False)
        for cost in decoded
        if cost.shape.is_gated
    ]
    if arguments.decode and compiled.RECORD_DECODER is not None:
        bench.gates.append(columns.from_zip(80_000, 7))
    text = page(head, bench, decoded, arguments)
    print(text)
    missed = [gate.what for gate in (*bench.gates, *bench.gates_before) if gate.verdict == "MISSED"]
    print(f"{time.monotonic() - start:.0f} s; {'missed: ' + '; '.join(missed) if missed else 'every gate is met'}")
    if arguments.json is not None:
        kinds = {"gates": bench.gates_before, "other_gates": bench.gates}
        found = {name: [{**asdict(gate), "verdict": gate.verdict} for gate in made] for name, made in kinds.items()}
        arguments.json.write_text(json.dumps({"machine": head, **found}, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
