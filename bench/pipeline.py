"""Measures a pipeline from a ZooKeeper group into parquet, compared with a job that is written by hand.

    python bench/pipeline.py [--quick] [--cells 100B 1KB 100B-bad] [--rounds N] [--json FILE] [--write]

The job reads the same topic by Spark's ``format("kafka")``, with the same schema and the same SQL, and writes parquet
by Spark's file sink.  It has no dead letters, no lineage and no group: a record that is no JSON becomes a row of nulls.
The pipeline is a member of a ZooKeeper group that claims each batch, counts, and commits each batch with its ranges.

One real broker (3.9.1), topics of 4 partitions, AvailableNow in batches of 500,000 rows, no time folders, no rescued
column.  A separate ``local[2]`` session for each side; that of the pipeline has the SPARK_HOME of ``pipeline run``.
They alternate, and figures are medians of ``--rounds`` runs after one that does not count; ratios are those of one
round.  CPU is that of the JVM and, after the +, of its Python processes.

The pipeline runs a second time without a place for dead letters.  The ratio is what they cost where no record is bad.
In the topic ``100B-bad`` one record in 10,000 is broken JSON: each batch is read a second time for its dead letters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gates import Gate
from pipeline_runs import run_kafka_job, run_pipeline
from shapes import JsonShape
from spark import BROKER, HEAP_MB, machine
from spark_runs import JVM, OURS, PARTITIONS, Cluster, Source
from spark_sessions import Sessions, sessions
from spark_stream import StreamRun
from stream_results import ratio
from topics import fill

from bridge.spark.pipeline.spark_home import installed_spark_home
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.spark_jars import ensure_spark_jars

PAGE = Path(__file__).resolve().parent.parent / "migration_docs" / "reference" / "pipeline-speed.md"
BATCH_ROWS, BATCH_ROWS_QUICK = 500_000, 100_000

TOPICS = {
    "100B": (JsonShape(100), 3_000_000, 300_000),
    "1KB": (JsonShape(1024), 3_000_000, 100_000),
    "100B-bad": (JsonShape(100, bad_in=10_000), 3_000_000, 300_000),
}
"""The shape, the number of rows, and that number with ``--quick``."""

JOB, PIPELINE, WITHOUT_DEAD_LETTERS = "job by hand", "pipeline", "pipeline without dead letters"
SIDES: dict[str, tuple[Source, Callable[..., Any], dict[str, bool]]] = {
    JOB: (JVM, run_kafka_job, {}),
    PIPELINE: (OURS, run_pipeline, {}),
    WITHOUT_DEAD_LETTERS: (OURS, run_pipeline, {"has_dead_letters": False}),
}


class Bench:
    """Measures, and collects the rows and gates of the page."""

    def __init__(self, one_each: Sessions, cluster: Cluster, folder: Path, rounds: int, batch_rows: int) -> None:
        self._sessions, self._cluster, self._folder = one_each, cluster, folder
        self._rounds, self._batch_rows = rounds, batch_rows
        self.rows: list[str] = []
        self.gates: list[Gate] = []

    def measure(self, topic: str, rows: int) -> None:
        """All sides alternately on one topic."""
        is_bad = TOPICS[topic][0].bad_in > 0
        runs: dict[str, list[StreamRun]] = {name: [] for name in SIDES if not (is_bad and name == WITHOUT_DEAD_LETTERS)}
        for number in range(self._rounds + 1):
            for name, made in runs.items():
                source, work, named = SIDES[name]
                run, found = self._sessions.run(
                    source, work, self._cluster, topic, rows, self._batch_rows, self._folder, **named
                )
                # The SQL of the job drops the rows of nulls that broken records become.
                if found != rows and not (is_bad and name == JOB):
                    raise SystemExit(f"{name}: {found} rows of {rows} in {topic}")
                if number:
                    made.append(run)
        for name, made in runs.items():
            self.rows.append(
                f"| {topic} | {name} | {_median(run.add_batch_rate for run in made) / 1e3:.0f} k "
                f"| {_median(run.whole.rate for run in made) / 1e3:.0f} k "
                f"| {_median(run.whole.jvm_us for run in made):.2f}+{_median(run.whole.python_us for run in made):.2f} "
                f"| {_median(run.overhead_ms for run in made):.0f} |"
            )
            print(self.rows[-1], flush=True)
        gate, goal = ((None, None), (None, None)) if is_bad else ((1.0, 1.0), (1 / 1.2, None))
        self._gate(f"{topic}: time in addBatch ÷ {JOB}", runs, (PIPELINE, JOB), _add_batch_us, (gate[0], goal[0]))
        self._gate(f"{topic}: CPU a row ÷ {JOB}", runs, (PIPELINE, JOB), _cpu_us, (gate[1], goal[1]))
        if WITHOUT_DEAD_LETTERS in runs:
            sides = PIPELINE, WITHOUT_DEAD_LETTERS
            self._gate(
                f"{topic}: time in addBatch, with dead letters ÷ without", runs, sides, _add_batch_us, (1.1, None)
            )
            self._gate(f"{topic}: CPU a row, with dead letters ÷ without", runs, sides, _cpu_us, (1.1, None))

    def _gate(
        self,
        what: str,
        runs: dict[str, list[StreamRun]],
        sides: tuple[str, str],
        figure: Callable[[StreamRun], float],
        limits: tuple[float | None, float | None],
    ) -> None:
        found = ratio(*(dict(enumerate(map(figure, runs[side]))) for side in sides))
        assert found is not None, "both ran in the same rounds"
        note = f"{found.low:.3g} to {found.high:.3g}"
        self.gates.append(Gate(what, found.value, *limits, at_least=False, note=note))


def _add_batch_us(run: StreamRun) -> float:
    return 1e6 / run.add_batch_rate


def _cpu_us(run: StreamRun) -> float:
    return run.whole.us


def _median(values: Any) -> float:
    return statistics.median(values)


def page(head: str, bench: Bench, arguments: argparse.Namespace) -> str:
    """The page, as Markdown."""
    lines = [
        "# How fast a pipeline is",
        "",
        "A pipeline into parquet, compared with a job that is written by hand. Printed by `python bench/pipeline.py "
        "--write`; its docstring explains the measurement.",
        "",
        head,
        f"{arguments.rounds} rounds{', of fewer rows than it should be' if arguments.quick else ''}.",
        "Gates are for an idle machine.",
        "",
        "| topic | | rows/s in addBatch | rows/s of the whole query | µs of CPU a row, JVM + Python "
        "| trigger without addBatch, ms |",
        "|---|---|---|---|---|---|",
        *bench.rows,
        "",
        "## Gates",
        "",
        "| what | is | gate | goal | |",
        "|---|---|---|---|---|",
        *(gate.row() for gate in bench.gates),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows and three rounds; then the JVM is not warm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", nargs="*", choices=TOPICS, default=list(TOPICS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the gates")
    parser.add_argument("--write", action="store_true", help="write migration_docs/reference/pipeline-speed.md")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 3)
    start, head = time.monotonic(), machine()
    print(head)
    with Sandbox() as sandbox, tempfile.TemporaryDirectory(prefix="bench-pipeline-") as scratch:
        sandbox.start_zookeeper()
        # The timestamps of the records are in 2023.
        sandbox.start_broker(BROKER, chroot="/kafka", heap_mb=HEAP_MB, settings={"log.retention.ms": "-1"})
        cluster = Cluster(sandbox.bootstrap, sandbox.zookeeper_connect)
        home = installed_spark_home({}, {})
        homes = {} if home is None else {OURS.format: home}
        with sessions((JVM, OURS), Path(scratch), ensure_spark_jars(), homes=homes) as one_each:
            batch_rows = BATCH_ROWS_QUICK if arguments.quick else BATCH_ROWS
            bench = Bench(one_each, cluster, Path(scratch), arguments.rounds, batch_rows)
            for topic in arguments.cells:
                shape, rows, quick = TOPICS[topic]
                bench.measure(topic, fill(sandbox, topic, shape, quick if arguments.quick else rows, PARTITIONS).rows)
    text = page(head, bench, arguments)
    print(text)
    missed = [gate.what for gate in bench.gates if gate.verdict == "MISSED"]
    print(f"{time.monotonic() - start:.0f} s; {'missed: ' + '; '.join(missed) if missed else 'every gate is met'}")
    if arguments.json is not None:
        found = [{**asdict(gate), "verdict": gate.verdict} for gate in bench.gates]
        arguments.json.write_text(json.dumps({"machine": head, "gates": found}, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
