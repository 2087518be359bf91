"""The Python that the pages about Spark's own kafka source show, run as it stands but for its addresses and names."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.generate_docs import ROOT
from tests.unit.project.test_docs import blocks
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

HOW_TO = ROOT / "migration_docs" / "how-to"
FEED = HOW_TO / "start-sparks-kafka-source-at-the-groups-offsets.md"
LAG = HOW_TO / "monitor-the-lag-of-a-spark-query.md"

_numbers = itertools.count()


def python_of(page: Path) -> list[str]:
    return [text for language, text, _ in blocks(page) if language == "python"]


def run(text: str, names: dict[str, str], inside: dict[str, Any]) -> dict[str, Any]:
    for name, replacement in names.items():
        text = text.replace(name, replacement)
    exec(compile(text, "page", "exec"), inside)
    return inside


def test_the_pages_run_as_they_stand(
    shared_cluster: Sandbox, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    available_now, endless, last_consumed = python_of(FEED)
    of_one_progress, of_a_session, with_a_function, prometheus = python_of(LAG)
    number = next(_numbers)
    group, topic = f"pages-{number}", f"pages-topic-{number}"
    names = {
        "zk1:2181/kafka": shared_cluster.zookeeper_connect,
        "broker1:9092": shared_cluster.bootstrap,
        '"etl"': repr(group),
        '"clicks"': repr(topic),
        "/data": str(tmp_path),
        # What has no end is given one.
        "query.awaitTermination()": "query.processAllAvailable(); query.stop()",
        "start_http_server(8000)": "server, thread = start_http_server(0)",
    }
    inside: dict[str, Any] = {"spark": spark, "__name__": "page"}
    admin = shared_cluster.admin
    shared_cluster.create_topic(topic, 1)
    admin.put(f"/consumers/{group}/offsets/{topic}/0", b"5")
    listeners: list[Any] = []
    try:
        for text in (of_a_session, with_a_function, prometheus):
            shown = run(text, names, dict(inside))
            listeners += [shown["listener"]] if "listener" in shown else []
        shared_cluster.produce(topic, 0, 10)
        run(available_now, names, dict(inside))
        assert admin.offsets(group, topic) == {0: 10}
        shared_cluster.produce(topic, 0, 10)
        query = run(endless, names, dict(inside))["query"]
        assert admin.offsets(group, topic) == {0: 20}
        run(of_one_progress, names, {**inside, "query": query})
        assert "'groupLag': 0" in capsys.readouterr().out
        assert spark.read.parquet(str(tmp_path / "etl" / "clicks")).count() == 15
        admin.put(f"/consumers/{group}/offsets/{topic}/0", b"19")
        assert run(last_consumed, names, dict(inside))["offsets"] == f'{{"{topic}":{{"0":20}}}}'
        assert all(listener.latest for listener in listeners)
    finally:
        _remove_all(spark)


def _remove_all(spark: SparkSession) -> None:
    """The session is shared: the listeners of the pages go."""
    manager: Any = spark.streams._jsqm
    for listener in manager.listListeners():
        manager.removeListener(listener)
