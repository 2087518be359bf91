"""Clicks as JSON into Parquet files, beside a member of the original consumer in the same group.

    python examples/clicks_to_parquet/run.py

Starts ZooKeeper, a broker and a Scala member of group clicks; then ``zkconsumer pipeline run`` as a second member;
stops the Scala member; compares what both have read with what was produced.
Exit code: 0 each click is where it must be, 1 not so, 2 wrong arguments, 3 Java, Maven or Spark is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from click_records import DEAD_LETTER, FILTERED, ROW, click, outcome_of

from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.parquet_sink import read_manifests
from bridge.spark.pipeline.sinks.parquet_table import committed_files
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import (
    Sandbox,
    ScalaMember,
    missing_requirement,
    missing_spark_requirement,
    wait_until,
    zookeeper_release,
)

HERE = Path(__file__).resolve().parent
KAFKA, ZOOKEEPER = "1.1.1", "3.8"
GROUP = TOPIC = "clicks"
PARTITIONS = 4
ADDRESS = "127.0.0.1:2181/kafka"
WAIT_MS = 120_000
END_S = 120

CODE_RIGHT, CODE_WRONG, CODE_MISSING = 0, 1, 3

Place = tuple[int, int]
"""Partition and offset."""


class Clicks:
    """Produces clicks, and has the number of each.  ``numbers``: place -> number."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.numbers: dict[Place, int] = {}

    def produce(self, count: int) -> None:
        """``count`` further clicks, in all partitions alike."""
        first = len(self.numbers)
        for partition in range(PARTITIONS):
            wanted = range(first + partition, first + count, PARTITIONS)
            sent = self._sandbox.producer.produce_records(TOPIC, partition, [click(number) for number in wanted])
            offsets = range(sent.first, sent.last + 1)
            self.numbers |= {(partition, offset): n for offset, n in zip(offsets, wanted, strict=True)}

    def wait_read(self) -> None:
        """Until the offsets of the group are those of the ends of the topic."""
        ends = Counter(partition for partition, _ in self.numbers)
        wait_until(
            lambda: self._sandbox.admin.offsets(GROUP, TOPIC) == ends, f"group {GROUP} has read the topic", WAIT_MS
        )


@contextmanager
def pipeline_process(file: Path) -> Iterator[subprocess.Popen[str]]:
    """``zkconsumer pipeline run FILE``, until the end of the block at the latest."""
    command = [sys.executable, "-c", "from zkconsumer.cli import main; main()", "pipeline", "run", str(file)]
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ}
    options = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    with (file.parent / "pipeline.log").open("w") as log:
        process = subprocess.Popen(
            [*command, *options], stdout=log, stderr=log, text=True, env=environment, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def run(sandbox: Sandbox, folder: Path, count: int) -> tuple[dict[Place, int], set[Place]]:
    """All steps; the produced clicks, and the places that the Scala member has read."""
    sandbox.start_zookeeper(ZOOKEEPER)
    sandbox.start_broker(KAFKA, chroot="/kafka")
    sandbox.create_topic(TOPIC, PARTITIONS)
    file = folder / "pipeline.toml"
    file.write_text((HERE / "pipeline.toml").read_text("utf-8").replace(ADDRESS, sandbox.zookeeper_connect), "utf-8")
    clicks = Clicks(sandbox)
    print(f"1. ZooKeeper {ZOOKEEPER} and Kafka {KAFKA} run; a Scala member of group {GROUP} reads {count} clicks alone")
    scala: ScalaMember = sandbox.start_member(KAFKA, GROUP, {TOPIC: 1})
    clicks.produce(count)
    clicks.wait_read()
    with pipeline_process(file) as process:

        def owners() -> Counter[bool]:
            """Number of partitions of the Scala member (True) and of the pipeline (False)."""
            if process.poll() is not None:
                raise SandboxError(f"the pipeline has ended:\n{(folder / 'pipeline.log').read_text()}")
            found = sandbox.admin.owners(GROUP, TOPIC).values()
            return Counter(str(scala.consumer_id) in owner for owner in found)

        half = PARTITIONS // 2
        wait_until(lambda: owners() == {True: half, False: half}, "the pipeline joins the group", WAIT_MS)
        print(f"2. zkconsumer pipeline run is a member, too; each has {half} partitions, and {count} clicks come")
        clicks.produce(count)
        clicks.wait_read()
        scala.stop()
        wait_until(lambda: owners() == {False: PARTITIONS}, "the pipeline acquires all partitions", WAIT_MS)
        print(f"3. the Scala member has left; the pipeline has {PARTITIONS} partitions, and {count} clicks come")
        clicks.produce(count)
        clicks.wait_read()
        process.send_signal(signal.SIGTERM)
        code = process.wait(END_S)
        if code != 0:
            raise SandboxError(f"the pipeline ended with code {code}:\n{(folder / 'pipeline.log').read_text()}")
    print("4. SIGTERM: the pipeline has finished its batch and ended; its last line:")
    print(f"   {(folder / 'pipeline.log').read_text().splitlines()[-1]}")
    delivered = Counter((each.partition, each.offset) for each in scala.delivered)
    if set(delivered.values()) - {1}:
        raise SandboxError("the Scala member has read a click twice")
    return clicks.numbers, set(delivered)


def places(folder: Path) -> Counter[Place]:
    """The places of the rows of a table that the pipeline has written, by its manifests."""
    files = committed_files(LocalFolderStore(str(folder)))
    if not files:
        return Counter()
    table = ds.dataset([each.removeprefix("file://") for each in files]).to_table(columns=["partition", "offset"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def compare(folder: Path, numbers: dict[Place, int], scala: set[Place]) -> dict[str, Any]:
    """The result.  Each click is at the Scala member, a row, a dead letter or filtered, once."""
    store = LocalFolderStore(str(folder / "rows"))
    manifests = list(read_manifests(store))
    left = {place: outcome_of(number) for place, number in numbers.items() if place not in scala}
    expected = {kind: Counter(place for place, found in left.items() if found == kind) for kind in (ROW, DEAD_LETTER)}
    filtered = sum(each.lineage.counts.filtered for each in manifests)
    rows, dead = places(folder / "rows"), places(folder / "dead-letters")
    seen = rows + dead
    files_by_hour = Counter({})
    for manifest in manifests:
        for file in manifest.files:
            files_by_hour[file.path.partition("/")[0]] += file.rows
    return {
        "produced": len(numbers),
        "scala": len(scala),
        "rows": rows.total(),
        "dead_letters": dead.total(),
        "filtered": filtered,
        "batches": len(manifests),
        "hours": dict(sorted(files_by_hour.items())),
        "lost": len(numbers) - len(scala) - len(seen) - filtered,
        "double": seen.total() - len(seen) + len(seen.keys() & scala),
        "is_right": rows == expected[ROW]
        and dead == expected[DEAD_LETTER]
        and filtered == sum(each == FILTERED for each in left.values()),
    }


def print_result(found: dict[str, Any], folder: Path) -> None:
    """The final table."""
    lines = {
        "read by the Scala member": found["scala"],
        f"rows in {folder / 'rows'}": found["rows"],
        **{f"  in folder {name}": rows for name, rows in found["hours"].items()},
        f"dead letters in {folder / 'dead-letters'}": found["dead_letters"],
        "filtered (bots)": found["filtered"],
        "lost": found["lost"],
        "double": found["double"],
        "produced": found["produced"],
    }
    width = max(map(len, lines))
    print()
    for name, number in lines.items():
        print(f"{name:<{width}}  {number:>6}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Clicks as JSON into Parquet files, beside a Scala member.")
    parser.add_argument("--clicks", type=int, default=400, help="clicks of each of the three steps (default: 400)")
    parser.add_argument("--folder", type=Path, help="for the output; it is kept (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="a file for the result")
    given = parser.parse_args()
    missing = missing_requirement(KAFKA, zookeeper_release(ZOOKEEPER)) or missing_spark_requirement()
    if missing is not None:
        print(missing, file=sys.stderr)
        return CODE_MISSING
    with tempfile.TemporaryDirectory(prefix="clicks-") as temporary, Sandbox() as sandbox:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            found = compare(folder, *run(sandbox, folder, given.clicks))
        except SandboxError as error:
            print(error, file=sys.stderr)
            return CODE_WRONG
        print_result(found, folder)
    if given.json is not None:
        given.json.write_text(json.dumps(found))
    return CODE_RIGHT if found["is_right"] and not found["lost"] and not found["double"] else CODE_WRONG


if __name__ == "__main__":
    sys.exit(main())
