"""The class archive that Spark's JVMs of the tests start with: a driver needs half the time and a third of the CPU.

    SPARK_SUBMIT_OPTS = class_archive_options(spark_home)

A dynamic archive of Java 13 and later (JEP 350): the first call starts one Spark, has it run a batch and a streaming
query, and stores the classes that it loaded in the cache of the sandbox; each later JVM maps this file.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from zkconsumer.testing.sandbox import cache as sandbox_cache
from zkconsumer.testing.sandbox import child_process, class_archive
from zkconsumer.testing.sandbox.java import find_jdk

FAST_START = " ".join(child_process.FAST_START)

NO_WARNINGS = " ".join(class_archive.NO_WARNINGS)

TRAINING_TIMEOUT_S = 240

ARCHIVES_MAX = 4
"""Archives that are kept, of 180 MB each: those of the last environments in which the tests ran."""

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


@cache
def class_archive_options(home: Path) -> str:
    """Options of a JVM of Spark that uses the archive, which is made if there is none for this Java and this Spark.

    ``home``: SPARK_HOME.  An archive is of one class path only.
    """
    java = find_jdk().java
    jars = sorted((each.name, each.stat().st_mtime_ns) for each in (home / "jars").iterdir())
    key = repr((str(java), os.stat(java).st_mtime_ns, str(home), jars, FAST_START, TRAINING))
    folder = sandbox_cache.folder("spark-classes")
    archive = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
    with sandbox_cache.lock(folder / "lock"):
        if not archive.exists():
            _make(archive, home)
    return f"{FAST_START} {NO_WARNINGS} -XX:SharedArchiveFile={archive}"


def _make(archive: Path, home: Path) -> None:
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    options = f"{FAST_START} {NO_WARNINGS} -XX:ArchiveClassesAtExit={new}"
    with tempfile.TemporaryDirectory(prefix="spark-classes-") as folder:
        subprocess.run(
            [sys.executable, "-c", TRAINING, folder],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=True, timeout=TRAINING_TIMEOUT_S, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
    new.replace(archive)
    archives = sorted(archive.parent.glob("*.jsa"), key=lambda each: each.stat().st_mtime_ns)
    for old in archives[:-ARCHIVES_MAX]:
        old.unlink()  # a JVM that has it open keeps it, and one that starts with its name starts without an archive
