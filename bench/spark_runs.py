"""The Spark part of ``bench/spark.py``: a session, and one measured reading of one topic by one source."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
"""The partitions of each topic."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The addresses of the servers with the topics."""

    bootstrap: str
    zookeeper: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: seconds, and seconds of CPU in the JVM and in its Python processes."""

    rows: int
    seconds: float
    jvm_cpu: float
    python_cpu: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def jvm_us(self) -> float:
        return self.jvm_cpu / self.rows * 1e6

    @property
    def python_us(self) -> float:
        return self.python_cpu / self.rows * 1e6

    @property
    def us(self) -> float:
        return self.jvm_us + self.python_us


@dataclass(frozen=True, slots=True)
class Source:
    """A data source that reads a topic in Spark."""

    name: str
    format: str
    schema: str = ""
    is_before: bool = False
    """Whether it is the source of the second checkout, in a separate session."""

    def options(self, cluster: Cluster, topic: str) -> dict[str, str]:
        """The options for a batch from the beginning to the end."""
        if self.format == "bench-confluent":
            return {"bootstrap": cluster.bootstrap, "topic": topic, "partitions": str(PARTITIONS)}
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        if self.format == "zkconsumer":
            options |= {"zookeeper.connect": cluster.zookeeper, "group.id": "bench-batch"}
        return options


JVM = Source("JVM kafka", "kafka")
OURS = Source("zkconsumer", "zkconsumer")
CONFLUENT = Source("confluent-kafka to Arrow", "bench-confluent")
NARROW = Source("zkconsumer, key and value", "zkconsumer", "key binary, value binary")
BEFORE = Source("zkconsumer before", "zkconsumer", is_before=True)
NARROW_BEFORE = Source("zkconsumer before, key and value", "zkconsumer", NARROW.schema, is_before=True)
SOURCES = (JVM, OURS, CONFLUENT)


@contextmanager
def session(folder: Path, jars: list[Path], root: Path) -> Iterator[Any]:
    """A ``local[2]`` session with the three sources; zkconsumer is from the checkout ``root``.  It ends its JVM."""
    path = [str(root), str(ROOT / "bench"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
    }
    from pyspark.sql import SparkSession

    made = (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    try:
        from spark_sources import ConfluentSource

        import bridge.spark

        made.dataSource.register(ConfluentSource)
        bridge.spark.register(made)  # the second checkout may have other modules
        yield made
    finally:
        made.stop()


def read_batch(spark: Any, source: Source, cluster: Cluster, topic: str, rows: int, sink: str, folder: Path) -> Sample:
    """Read the topic from its beginning to its end into ``noop`` or ``parquet``."""
    reader = spark.read.format(source.format).options(**source.options(cluster, topic))
    frame = (reader.schema(source.schema) if source.schema else reader).load()
    out = folder / "out"
    writer = frame.write.mode("overwrite").format(sink)
    with measured(spark, rows) as samples:
        writer.save(str(out)) if sink == "parquet" else writer.save()
    shutil.rmtree(out, ignore_errors=True)
    return samples[0]


def count_rows(spark: Any, source: Source, cluster: Cluster, topic: str) -> int:
    """The number of records that the source finds."""
    frame = spark.read.format(source.format).options(**source.options(cluster, topic)).load()
    return int(frame.count())


@contextmanager
def measured(spark: Any, rows: int) -> Iterator[list[Sample]]:
    """Measure seconds, and CPU of the JVM and its Python processes (not of this process, and not of the broker)."""
    samples: list[Sample] = []
    jvm = spark.sparkContext._gateway.proc.pid
    before, start = _cpu_of_tree(jvm), time.monotonic()
    yield samples
    seconds, after = time.monotonic() - start, _cpu_of_tree(jvm)
    samples.append(Sample(rows, seconds, after.root - before.root, after.below_since(before)))


@dataclass(frozen=True, slots=True)
class _Tree:
    """Seconds of CPU: of a process, of each descendant, and of descendants that have ended and were waited for."""

    root: float
    below: dict[int, float]
    ended: float

    def below_since(self, before: _Tree) -> float:
        """The CPU time of the descendants since ``before``.  A process that ended meanwhile was idle: its earlier time
        does not count, whether its parent has waited for it (and has its whole time) or not (as Spark's daemons)."""
        used = sum(seconds - before.below.get(pid, 0.0) for pid, seconds in self.below.items())
        gone = sum(seconds for pid, seconds in before.below.items() if pid not in self.below)
        return used + max(0.0, self.ended - before.ended - gone)


def _cpu_of_tree(root: int) -> _Tree:
    parents: dict[int, int] = {}
    own: dict[int, float] = {}
    ended: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(entry.name)
        parents[pid] = int(fields[1])
        own[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        ended[pid] = (int(fields[13]) + int(fields[14])) / _TICKS
    below = [pid for pid in parents if pid != root and _is_below(pid, root, parents)]
    return _Tree(own[root], {pid: own[pid] for pid in below}, ended[root] + sum(ended[pid] for pid in below))


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid]
    return pid == root
