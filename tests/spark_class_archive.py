"""A copy of Spark with a class archive for the JVMs of the tests: a driver needs half the time and a third of the CPU.

    spark = archived_spark(installed_spark_home(…))       SPARK_HOME = spark.home, SPARK_SUBMIT_OPTS = spark.options

A dynamic archive of Java 13 and later (JEP 350): the first call starts one Spark, has it run a batch and a streaming
query, and stores the classes that it loaded in the cache of the sandbox; each later JVM maps this file.

An archive is of one class path, with the times of its files.  So that each new environment with the same release of
Spark has the archive of the one before, the jars are linked into a folder of the cache, whose name follows from their
names and sizes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from zkconsumer.testing.sandbox import cache as sandbox_cache
from zkconsumer.testing.sandbox import class_archive, java

FAST_START = " ".join(java.FAST_START)

NO_WARNINGS = " ".join(class_archive.NO_WARNINGS)

TRAINING_TIMEOUT_S = 240

ARCHIVES_MAX = 4
"""Archives that are kept, of 180 MB each: those that were made last."""

TRAINING = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
process = spark.sparkContext._gateway.proc
folder = sys.argv[1]
rows = spark.range(100).selectExpr("id", "to_json(struct(id)) AS value").selectExpr(
    "from_json(value, 'id INT, n STRING') AS v", "timestamp_millis(id) AS time", "cast(value AS BINARY) AS b")
rows.write.partitionBy("time").parquet(folder + "/rows")
cached = spark.read.parquet(folder + "/rows").where("v.id < 10").cache()
cached.groupBy("v.n").count().collect()
stream = spark.readStream.schema(rows.schema).parquet(folder + "/rows")
each = stream.writeStream.foreachBatch(lambda batch, number: batch.write.mode("append").parquet(folder + "/sink"))
query = each.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
process.stdin.close()
process.wait()
"""


@dataclass(frozen=True, slots=True)
class ArchivedSpark:
    """``options``: of a JVM that uses the archive.  ``home``: the SPARK_HOME without which it does not."""

    home: Path
    options: str


@cache
def archived_spark(installed: Path) -> ArchivedSpark:
    """That of this Java and of the Spark in ``installed`` (a SPARK_HOME), made if there is none."""
    program = java.find_jdk().java
    jars = sorted((each.name, each.stat().st_size) for each in (installed / "jars").iterdir())
    key = repr((str(program), os.stat(program).st_mtime_ns, jars, FAST_START, TRAINING))
    folder = sandbox_cache.folder("spark-classes")
    home = folder / hashlib.sha256(key.encode()).hexdigest()[:16]
    archive = home / "classes.jsa"
    with sandbox_cache.lock(folder / "lock"):
        if not archive.exists():
            _make(home, installed)
    return ArchivedSpark(home, f"{FAST_START} {NO_WARNINGS} -XX:SharedArchiveFile={archive}")


def _make(home: Path, installed: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    for name in ("bin", "conf", "jars", "sbin"):
        if (installed / name).is_dir():
            shutil.copytree(installed / name, home / name, copy_function=_link_or_copy)
    new = home / "classes.new"
    options = f"{FAST_START} {NO_WARNINGS} -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory(prefix="spark-classes-") as folder:
        subprocess.run(
            [sys.executable, "-c", TRAINING, folder],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=True, timeout=TRAINING_TIMEOUT_S, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
    new.replace(home / "classes.jsa")
    homes = sorted(home.parent.glob("*/classes.jsa"), key=lambda each: each.stat().st_mtime_ns)
    for old in homes[:-ARCHIVES_MAX]:
        shutil.rmtree(old.parent)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
