"""Where the compiled decoder is missing, reading is slow: the logs and the progress of a query say so, once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compiled

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from bridge.spark.decode import arrow_decoder
from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.decode.range_partition import RangePartition, read_partition
from bridge.spark.monitoring.query_lag import lag
from bridge.spark.options import read_options
from bridge.spark.source import environment_check
from bridge.spark.source.batch_reader import plan_batch
from bridge.spark.source.environment_check import PythonWorker, check_environment
from tests.unit.spark.test_spark_stream import A, Query
from zkconsumer import extensions
from zkconsumer.base.clock import SYSTEM_CLOCK

TP = TopicPartition("clicks", 0)
WHY = "it cannot be loaded: there is none"
TOLD = f"decoder-not-compiled reason={WHY!r}: records are decoded in Python, which is slow: see {arrow_decoder.PAGE}"
RUN_TIMEOUT_S = 60


@pytest.fixture
def _missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "RECORD_DECODER", None)
    monkeypatch.setitem(extensions._missing, compiled.MODULE_NAME, WHY)
    monkeypatch.setattr(arrow_decoder, "_is_logged", False)


@pytest.fixture
def clusters() -> Iterator[tuple[ClusterConnectionPool, RangePartition]]:
    fake = FakeCluster(1)
    fake.create_topic(TP.topic)
    fake.append(TP.topic, 0, [b"v"] * 3)

    def open_(address: ClusterAddress) -> ClusterConnections:
        return ClusterConnections(lambda: address.brokers, fake.connect, address.client_id, SYSTEM_CLOCK)

    made = ClusterConnectionPool(open_)
    yield made, RangePartition(OffsetRange(TP, 0, 3), tuple(fake.addresses), ("offset",))
    made.close()


@pytest.mark.usefixtures("_missing")
def test_an_executor_logs_it_at_its_first_task(
    clusters: tuple[ClusterConnectionPool, RangePartition], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        [batch] = read_partition(clusters[1], clusters[0])
        assert batch.column("offset").to_pylist() == [0, 1, 2]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [TOLD]


@pytest.mark.skipif(compiled.RECORD_DECODER is None, reason="installed without a compiler, or told not to use it")
def test_where_it_is_there_nothing_is_logged(
    clusters: tuple[ClusterConnectionPool, RangePartition], caplog: pytest.LogCaptureFixture
) -> None:
    assert arrow_decoder.python_decoder_reason() is None
    list(read_partition(clusters[1], clusters[0]))
    assert "decoder" not in caplog.text


@pytest.mark.usefixtures("_missing")
def test_a_stream_logs_it_once_and_has_it_in_its_progress(caplog: pytest.LogCaptureFixture) -> None:
    query = Query()
    engine = query.start()
    engine.run()
    query.logs.append(A, 1)
    engine.run()
    assert caplog.messages.count(TOLD) == 1
    heads = {"id": "q", "runId": "r", "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 1}
    progress = {**heads, "sources": [{"endOffset": engine.last_planned_offset(), "latestOffset": "None"}]}
    assert lag(progress).metrics["pythonDecoder"] == 1


@pytest.mark.skipif(compiled.RECORD_DECODER is None, reason="installed without a compiler, or told not to use it")
def test_a_stream_with_the_compiled_decoder_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    engine = Query().start()
    engine.run()
    assert "pythonDecoder" not in engine.last_planned_offset()["s"]
    assert "decoder" not in caplog.text


@pytest.mark.usefixtures("_missing")
def test_a_batch_logs_it_where_it_is_planned(caplog: pytest.LogCaptureFixture) -> None:
    given = {"zookeeper.connect": ADDRESS, "subscribe": "orders", "startingOffsets": "earliest"}
    given["endingOffsets"] = "latest"
    with FakeEnvironment() as world:
        world.create_topic("orders", 1)
        for _ in range(2):
            plan_batch(read_options(given, is_stream=False), ("offset",), doors(world))
    assert caplog.messages.count(TOLD) == 1


def test_check_environment_logs_which_executors_lack_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    workers = [PythonWorker("n1", "/opt/python", version, (), ""), PythonWorker("n2", "/opt/python", version, (), WHY)]
    monkeypatch.setattr(environment_check, "_ask_executors", lambda _: workers)
    session = SimpleNamespace(version="4.3.0", sparkContext=SimpleNamespace(pythonExec=sys.executable))
    assert check_environment(session) == workers
    [told] = caplog.messages
    assert told.startswith(f"decoder-not-compiled python='/opt/python ({version}) on n2' reason={WHY!r}: ")


@pytest.mark.parametrize("switch", ["", "1"])
def test_a_worker_says_why_it_decodes_in_python(switch: str) -> None:
    """In a process of its own, as an executor's is."""
    if not switch and compiled.RECORD_DECODER is None:
        pytest.skip("installed without a compiler, or told not to use it")
    program = (
        "from bridge.spark.source.pickled_by_value import describe_interpreter\n"
        "print(describe_interpreter(['bridge.spark'])['decoder'], describe_interpreter(['no_such_module', "
        "'bridge.spark'])['decoder'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, extensions.DISABLE_VARIABLE: switch},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=True,
    )
    why = f"the environment variable {extensions.DISABLE_VARIABLE} is set" if switch else ""
    assert done.stdout.strip() == why
