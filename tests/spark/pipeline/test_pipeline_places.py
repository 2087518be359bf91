"""One pipeline file by ``spark-submit`` on a cluster that has no zkconsumer, and over Spark Connect."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import bridge.commands.submit_main
from bridge.spark.pipeline.connect_batches import require_shared_path
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.parquet_table import committed_files
from bridge.spark.pipeline.sinks.postgres_connection import connect_postgres
from tests.postgres_fixtures import DATABASE, USER, PostgresServer
from tests.spark_cluster_fixtures import cluster_settings, connect_server, spark_home, standalone
from tests.spark_session_fixtures import require_spark, spark_environment
from zkconsumer.errors import UsageError
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_TIMEOUT_S = 240

pytestmark = pytest.mark.real

COMMAND = (sys.executable, "-c", "from zkconsumer.cli import main; main()", "pipeline")

PARQUET = 'format = "parquet"\npath = "rows"'


class Place:
    """A topic with ten records, of which one is broken, and a pipeline file."""

    def __init__(self, cluster: Sandbox, topic: str, folder: Path, sink: str = PARQUET) -> None:
        self._cluster, self._topic, self.folder = cluster, topic, folder
        folder.mkdir(exist_ok=True)
        self.file = folder / "pipeline.toml"
        self.write(sink)
        cluster.create_topic(topic, 2)
        self.produce(0)

    def produce(self, first: int) -> None:
        for partition in (0, 1):
            ids = range(first + partition, first + 10, 2)
            self._cluster.produce(
                self._topic, partition, [b"{" if n == first + 9 else json.dumps({"id": n}).encode() for n in ids]
            )

    def write(self, sink: str, dead_letters: str = 'format = "parquet"\npath = "dead"', trigger: str = "") -> None:
        self.file.write_text(
            f"""
            [pipeline]
            name = "{self._topic}"
            [source]
            zookeeper.connect = "{self._cluster.zookeeper_connect}"
            group.id = "{self._topic}"
            subscribe = "{self._topic}"
            auto.offset.reset = "smallest"
            [decode]
            format = "json"
            schema = "id BIGINT"
            [transform]
            select = ["id"]
            where = "id > 0"
            [sink]
            {sink}
            [dead-letters]
            {dead_letters}
            [trigger]
            {trigger or "available-now = true"}
            [checkpoint]
            path = "checkpoint"
            """
        )

    def ids(self) -> Counter[int]:
        """The rows in the parquet table."""
        files = committed_files(LocalFolderStore(str(self.folder / "rows")))
        table = ds.dataset([each.removeprefix("file://") for each in files]).to_table(columns=["id"])
        return Counter(table.column("id").to_pylist())


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **spark_environment(), **environment}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip


def words_of(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


@pytest.fixture
def topic(fresh_name: str) -> str:
    return fresh_name.replace("[", "").replace("]", "")


@pytest.mark.nightly
def test_spark_submit_runs_a_pipeline_with_the_package_that_it_sends(
    shared_cluster: Sandbox, topic: str, bare_python: str, package: str, tmp_path: Path
) -> None:
    place = Place(shared_cluster, topic, tmp_path / "work")
    main_file = shutil.copy(bridge.commands.submit_main.__file__, tmp_path)
    environment = {
        "PYSPARK_PYTHON": bare_python,
        "PYSPARK_DRIVER_PYTHON": bare_python,
        "SPARK_HOME": str(spark_home()),
        "PYTHONPATH": "",
    }
    (tmp_path / "cluster").mkdir()
    with standalone(tmp_path / "cluster", workers=1, PYSPARK_PYTHON=bare_python, PYTHONPATH="") as master:
        options = ["--master", master, "--py-files", package, *words_of(cluster_settings(tmp_path))]
        command = [str(spark_home() / "bin" / "spark-submit"), *options, str(main_file), "run", str(place.file)]
        done = run(command, tmp_path, **environment)
    assert done.returncode == 0, done.stdout[-6_000:]
    assert f"{topic}: 1 batches, 8 rows, 1 dead letters, 1 filtered" in done.stdout
    assert place.ids() == Counter(range(1, 9))


@pytest.mark.nightly
def test_a_pipeline_runs_over_spark_connect_into_parquet_and_postgresql(
    shared_cluster: Sandbox, topic: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    require_spark()
    server = tmp_path / "server"
    server.mkdir()
    place = Place(shared_cluster, topic, tmp_path / "parquet")
    password = postgres_server.password_file.read_text()
    table = topic[-40:]
    sink = (
        f'format = "postgres"\nurl = "postgresql://{HOST}:{postgres_server.port}/{DATABASE}"\nssl-mode = "disable"\n'
        f'user = "{USER}"\npassword = "env:PLACE_PASSWORD"\ntable = "{table}"'
    )
    database = Place(shared_cluster, f"{topic}-p", tmp_path / "postgres")
    database.write(sink, f'format = "postgres"\nconnection = "sink"\ntable = "dead {table}"')
    with connect_server(server, "local[2]", cluster_settings(server), PLACE_PASSWORD=password) as url:

        def pipeline(command: str, file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
            return run([*COMMAND, command, str(file), "--master", url], tmp_path, **environment)

        # A batch without a place for its dead letter: the error of the server is one line here.
        place.write(PARQUET, 'format = "none"')
        refused = pipeline("run", place.file)
        assert refused.returncode == 2, refused.stdout
        assert "1 records cannot be written, and the pipeline has no place for dead letters" in refused.stdout
        place.write(PARQUET)
        for first, rows in ((0, 8), (10, 9)):
            done = pipeline("run", place.file)
            filtered = 9 - rows
            assert done.returncode == 0, done.stdout
            assert f"{rows} rows, 1 dead letters, {filtered} filtered" in done.stdout.splitlines()[-1]
            place.produce(first + 10)
        assert place.ids() == Counter([*range(1, 9), *range(10, 19)])
        stopped = stop_by_signal(place, [*COMMAND, "run", str(place.file), "--master", url])
        assert stopped == Counter([*range(1, 9), *range(10, 19), *range(20, 29)])
        done = pipeline("run", database.file, PLACE_PASSWORD=password)
        assert done.returncode == 0, done.stdout
        checked = pipeline("check", database.file, PLACE_PASSWORD=password)
        assert checked.returncode == 0, checked.stdout
    target = read_pipeline(database.file).sink
    assert isinstance(target, PostgresTarget)
    os.environ["PLACE_PASSWORD"] = password
    try:
        with connect_postgres(target) as connection:
            ids = connection.execute(f'SELECT id FROM "{table}" ORDER BY id').fetchall()
            dead = connection.execute(f'SELECT stage FROM "dead {table}"').fetchall()
    finally:
        del os.environ["PLACE_PASSWORD"]
    assert (ids, dead) == ([(n,) for n in range(1, 9)], [("decode",)])


def stop_by_signal(place: Place, command: list[str]) -> Counter[int]:
    """Runs a pipeline with an interval until its first batch is reported, then sends SIGTERM; the rows."""
    place.write(PARQUET, trigger='interval = "1s"')
    process = subprocess.Popen(
        command, env={**os.environ, **spark_environment()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    killer = threading.Timer(RUN_TIMEOUT_S, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("batch "):
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, "".join(seen)
        assert seen[-1].rstrip().endswith("1 batches, 9 rows, 1 dead letters, 0 filtered"), "".join(seen)
    finally:
        killer.cancel()
        process.kill()
    return place.ids()


def test_a_path_that_the_server_does_not_see_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    require_shared_path(spark, tmp_path, f"the folder {tmp_path}", "give a path of both")
    with pytest.raises(UsageError, match=r"server does not see the folder X\. .*: give a path of both, or"):
        require_shared_path(spark, tmp_path / "none", "the folder X", "give a path of both")
