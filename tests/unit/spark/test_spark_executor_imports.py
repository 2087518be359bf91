"""What a worker in an executor loads is counted: each package of it must be installed on every machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StringType, StructField, StructType

from bridge.spark.source.datasource import ZkConsumerDataSource
from bridge.spark.source.pickling import ExecutorReaderMixin

RUN_TIMEOUT_S = 60

BROUGHT_BY_OTHERS = {"pyspark", "py4j", "numpy"}
"""Spark, and what pyarrow loads if it is installed."""
OURS = {"bridge", "zkconsumer"}
ON_EXECUTORS = {"pyarrow", "google_crc32c", "cramjam"}
"""As in migration_docs/how-to/install-on-a-spark-cluster.md."""

WHERE_INSTALLED = {"isal", "zstandard"}
"""The extra ``[fast]``."""

WORKER = """
import importlib.metadata, pickle, sys
source, reader = pickle.load(open(sys.argv[1], "rb"))
assert source.name() == "zkconsumer"
assert list(reader.read(None)) == []  # a task that is none: what reads was loaded
known = importlib.metadata.packages_distributions()
whole = {name for name in sys.modules if "." not in name and not name.startswith("_")}
print(*sorted(name for name in whole if name in known or name == "bridge"))
"""

WRITER = """
import importlib.metadata, pickle, sys
writer = pickle.load(open(sys.argv[1], "rb"))
assert writer.write(iter([])).records == 0  # a task without rows: what writes was loaded
known = importlib.metadata.packages_distributions()
whole = {name for name in sys.modules if "." not in name and not name.startswith("_")}
print(*sorted(name for name in whole if name in known or name == "bridge"))
"""


class Reader(ExecutorReaderMixin, DataSourceReader):
    """As the readers of batches and streams are made."""

    def __init__(self) -> None:
        self.secret = "of the driver"


def test_a_worker_loads_what_reads_and_nothing_else(tmp_path: Path) -> None:
    pickled = cloudpickle.dumps((ZkConsumerDataSource({"group.id": "g"}), Reader()))
    assert b"of the driver" not in pickled
    assert packages_loaded(WORKER, pickled, tmp_path) == OURS | ON_EXECUTORS


def test_a_worker_loads_what_writes_and_nothing_else(tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": "one:9092", "topic": "t"}
    value = StructType([StructField("value", StringType())])
    pickled = cloudpickle.dumps(ZkConsumerDataSource(options).streamWriter(value, False))
    assert packages_loaded(WRITER, pickled, tmp_path) == OURS | ON_EXECUTORS


def packages_loaded(program: str, pickled: bytes, folder: Path) -> set[str]:
    """Those that the program has loaded when it has done its task."""
    (folder / "task").write_bytes(pickled)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "task")],
        capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True,
    )  # fmt: skip
    return set(done.stdout.split()) - BROUGHT_BY_OTHERS - WHERE_INSTALLED


def test_the_page_names_what_executors_need() -> None:
    page = Path(__file__).parents[3] / "migration_docs" / "how-to" / "install-on-a-spark-cluster.md"
    [row] = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| the executors |")]
    for package in ON_EXECUTORS | WHERE_INSTALLED:
        assert f"`{package.replace('_', '-')}`" in row
