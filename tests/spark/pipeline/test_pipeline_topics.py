"""A pipeline from a group into topics: at least once, and what comes again is the batch that a crash ended."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from bridge.spark.pipeline.batch_writer import AFTER_WRITE
from bridge.spark.pipeline.lineage import BatchLineage, from_json
from bridge.spark.pipeline.pipeline_file import PipelineFileError
from bridge.spark.pipeline.pipeline_query import PipelineFailedError
from bridge.spark.pipeline.sinks.lineage_folder import LineageFolder
from bridge.spark.pipeline.sinks.topic_sending import TopicRefusedError
from tests.sandbox_fixtures import Clusters, require_releases
from tests.spark.pipeline.test_pipeline_query import BROKEN, FILTERED, NO_NUMBER, WRONG_TYPE, Place, good
from tests.spark.test_topic_sink import headers_of, read_back
from tests.spark_session_fixtures import local_spark_environment
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, zookeeper_release
from zkconsumer.testing.sandbox.sandbox_security import USER_PASSWORD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

WITH_HEADERS = "3.9.1"
SELECT = "to_json(struct(*)) AS value, CAST(CAST(n AS INT) AS STRING) AS key"
LIMIT_BYTES = 20_000
KILL_TIMEOUT_S = 150
CRASH_TEST_TIMEOUT_S = 480
"""Four runs of a pipeline, and a cluster that is started for them."""


class TopicPlace(Place):
    """A topic, and a pipeline with topics for its rows and its dead letters."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, release: str, topic: str, folder: Path) -> None:
        self.release = release
        super().__init__(spark, cluster, topic, folder)
        for name in ("rows", "dead"):
            cluster.create_topic(f"{topic}-{name}", 2)
        self.write_topics()

    def section(self, kind: str, more: str = "") -> str:
        """The keys of a section with the topic ``kind``."""
        server = f'kafka.bootstrap.servers = "{self.cluster.bootstrap}"'
        return f'format = "topic"\ntopic = "{self.topic}-{kind}"\n{server}\n{more}'

    def write_topics(self, select: str = SELECT, more: str = "") -> None:
        self.write(sink=self.section("rows", more), dead_letters=self.section("dead"), select=select)

    def messages(self, kind: str = "rows") -> list[Message]:
        return read_back(self.cluster.bootstrap, self.release, f"{self.topic}-{kind}", 2)

    def ids(self) -> Counter[int]:
        return Counter(json.loads(message.value())["id"] for message in self.messages())

    def letters(self) -> Counter[tuple[bytes, str]]:
        found = [json.loads(message.value()) for message in self.messages("dead")]
        return Counter((base64.b64decode(each["value"]), each["stage"]) for each in found)

    def stored(self, kind: str = "sink") -> list[BatchLineage]:
        files = sorted((self.folder / "checkpoint-lineage" / kind).rglob("batches/*/*.json"))
        return [from_json(file.read_text(), str(file)) for file in files]


def crash_before_lineage(patch: pytest.MonkeyPatch, kind: str) -> None:
    """The driver ends when all records of this section are acknowledged, and their lineage is not stored."""
    add = LineageFolder.add

    def ends(folder: LineageFolder, lineage: BatchLineage) -> BatchLineage:
        if folder._store.uri("").rstrip("/").endswith(f"/{kind}"):
            raise InterruptedError(f"before the lineage of {kind}")
        return add(folder, lineage)

    patch.setattr(LineageFolder, "add", ends)


@pytest.mark.nightly  # CI kills a whole process at this point: tests/spark/crash
@pytest.mark.timeout(CRASH_TEST_TIMEOUT_S)
@pytest.mark.parametrize("release", ["0.8.2.2", WITH_HEADERS])
def test_a_crash_between_send_and_lineage_loses_nothing_and_repeats_only_its_batch(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    release: str,
) -> None:  # fmt: skip
    place = TopicPlace(spark, clusters.get(release), release, fresh_name, tmp_path)
    place.cluster.produce(place.topic, 0, [*good(0, 20), BROKEN, WRONG_TYPE, NO_NUMBER, FILTERED])
    place.cluster.produce(place.topic, 1, good(100, 20))
    for kind in ("dead-letters", "sink"):
        with monkeypatch.context() as patch:
            crash_before_lineage(patch, kind)
            with pytest.raises(PipelineFailedError, match=f"before the lineage of {kind}"):
                place.run()
    place.run()
    ids = [*range(20), *range(100, 120)]
    assert place.ids() == Counter(ids * 2)
    assert place.letters() == Counter([(BROKEN, "decode"), (WRONG_TYPE, "decode"), (NO_NUMBER, "transform")] * 2)
    assert place.totals() == {"rows": 40, "dead_letters": 3, "filtered": 1, "offsets": 44}
    place.cluster.produce(place.topic, 1, good(200, 5))
    place.run()
    assert place.ids() == Counter(ids * 2 + [*range(200, 205)])
    assert [(each.batch, each.counts.rows) for each in place.stored()] == [(0, 40), (1, 5)]
    assert [(each.batch, each.counts.rows) for each in place.stored("dead-letters")] == [(0, 3), (1, 0)]
    check_records(place, place.stored()[0].query)


def check_records(place: TopicPlace, query: str) -> None:
    """Keys, JSON and headers: the same for what was sent twice."""
    for message in place.messages():
        row = json.loads(message.value())
        assert row == {"id": row["id"], "n": str(row["id"])}, "the decoded columns; to_json leaves out nulls"
        assert message.key() == str(row["id"]).encode()
    letter = next(each for each in place.messages("dead") if b"transform" in each.value())
    assert letter.key().decode() == f"{place.topic}/0/22"
    fields = json.loads(letter.value())
    assert (fields["topic"], fields["partition"], fields["offset"]) == (place.topic, 0, 22)
    assert (fields["key"], fields["query"], fields["batch"]) == (None, query, 0)
    assert fields["time"].endswith("Z")
    if place.release != WITH_HEADERS:
        return
    assert headers_of(letter) == {
        "zkconsumer.query": query.encode(), "zkconsumer.batch": b"0", "zkconsumer.source": letter.key(),
        "zkconsumer.stage": b"transform",
    }  # fmt: skip
    headers = [headers_of(each) for each in place.messages()]
    assert {each["zkconsumer.query"] for each in headers} == {query.encode()}
    sent = Counter((each["zkconsumer.batch"], each["zkconsumer.source"].decode()) for each in headers)
    places = [f"{place.topic}/{partition}/{offset}" for partition in (0, 1) for offset in range(20)]
    new = {(b"1", f"{place.topic}/1/{offset}"): 1 for offset in range(20, 25)}
    assert sent == {(b"0", source): 2 for source in places} | new


KILLED_BEFORE_LINEAGE = """
import os, signal, sys
from bridge.spark.pipeline.sinks.lineage_folder import LineageFolder
from zkconsumer.cli.main import main
add = LineageFolder.add
def ends(folder, lineage):  # that of the dead letters is stored first, since there are none
    if folder._store.uri("").rstrip("/").endswith("/sink"):
        os.kill(os.getpid(), signal.SIGKILL)
    return add(folder, lineage)
LineageFolder.add = ends
sys.argv = ["zkconsumer", "pipeline", "run", sys.argv[1], "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
main()
"""


@pytest.mark.nightly
def test_a_driver_that_is_killed_with_sigkill_after_the_send_repeats_its_batch(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path
) -> None:
    place = TopicPlace(spark, clusters.get(WITH_HEADERS), WITH_HEADERS, fresh_name, tmp_path)
    place.cluster.produce(place.topic, 0, good(0, 20))
    command = [sys.executable, "-c", KILLED_BEFORE_LINEAGE, str(place.file)]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **local_spark_environment()},
        )  # fmt: skip
    try:
        assert process.wait(KILL_TIMEOUT_S) == -signal.SIGKILL, (tmp_path / "log").read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert place.ids() == Counter(range(20))
    assert place.stored() == []
    place.run()
    assert place.ids() == Counter([*range(20)] * 2)
    sources = Counter(headers_of(message)["zkconsumer.source"] for message in place.messages())
    assert sources == {f"{place.topic}/0/{offset}".encode(): 2 for offset in range(20)}


def test_rows_in_parquet_are_there_once_when_their_dead_letters_are_sent_again(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPlace(spark, clusters.get(WITH_HEADERS), WITH_HEADERS, fresh_name, tmp_path)
    place.write(dead_letters=place.section("dead"))
    place.cluster.produce(place.topic, 0, [*good(0, 5), BROKEN])
    with monkeypatch.context() as patch:
        crash_before_lineage(patch, "dead-letters")
        with pytest.raises(PipelineFailedError):
            place.run()
    assert place.rows() == Counter()
    place.run()
    assert place.rows() == Counter(range(5))
    assert place.letters() == Counter([(BROKEN, "decode")] * 2)
    assert {message.key() for message in place.messages("dead")} == {f"{place.topic}/0/5".encode()}


def test_a_record_that_its_topic_does_not_accept_is_a_dead_letter_if_its_size_is_known(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path
) -> None:
    place = TopicPlace(spark, clusters.get(WITH_HEADERS), WITH_HEADERS, fresh_name, tmp_path)
    admin = AdminClient({"bootstrap.servers": place.cluster.bootstrap})
    limited = NewTopic(f"{place.topic}-small", 1, 1, config={"max.message.bytes": str(LIMIT_BYTES)})
    admin.create_topics([limited])[limited.topic].result()
    random_bytes = b"".join(b"%08x" % (number * 2_654_435_761 % 2**32) for number in range(LIMIT_BYTES // 8))
    large = json.dumps({"id": 7, "n": "7", "text": random_bytes.decode()}).encode()
    fits = json.dumps({"id": 8, "n": "8", "text": random_bytes[: LIMIT_BYTES - 1_000].decode()}).encode()
    place.cluster.produce(place.topic, 0, [large, fits, *good(0, 2)])
    text = place.file.read_text().replace("id BIGINT, n STRING", "id BIGINT, n STRING, text STRING")
    text = text.replace(f"{place.topic}-rows", limited.topic)
    packed = text.replace("[dead-letters]", 'compression = "gzip"\n[dead-letters]')
    place.file.write_text(packed.replace('path = "checkpoint"', 'path = "packed"'))
    place.run()  # gzip halves it: only a broker can say whether it fits
    assert place.letters() == Counter()
    place.file.write_text(text.replace(f'group.id = "{place.topic}"', f'group.id = "{place.topic}-2"'))
    place.run()
    assert place.letters() == Counter([(large, "sink")])
    [letter] = place.messages("dead")
    words = f"the record is larger than max.message.bytes of the topic, {LIMIT_BYTES} bytes"
    assert json.loads(letter.value())["error"].startswith(words)
    assert [each.counts.rows for each in place.stored()] == [3]


@pytest.mark.nightly
def test_a_record_whose_size_is_not_known_fails_with_the_line_of_the_broker(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path
) -> None:
    """The broker's message.max.bytes is 1 MB; a broker of 0.8.2 does not say so."""
    place = TopicPlace(spark, clusters.get("0.8.2.2"), "0.8.2.2", fresh_name, tmp_path)
    place.cluster.produce(place.topic, 0, good(0, 2))
    place.write_topics(select="repeat('x',1200000) AS value")
    with pytest.raises(TopicRefusedError, match=r"-rows/\d: .*MESSAGE_TOO_LARGE.* raise max\.message\.bytes"):
        place.run()
    assert place.stored() == []


@pytest.mark.nightly
def test_each_row_can_have_its_topic_and_nothing_is_sent_before_the_batch_is_computed(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path
) -> None:  # fmt: skip
    place = TopicPlace(spark, clusters.get(WITH_HEADERS), WITH_HEADERS, fresh_name, tmp_path)
    place.cluster.produce(place.topic, 0, good(0, 4))
    place.write_topics(select=f"n AS value, IF(id < 3,'{place.topic}-rows',null) AS topic")
    place.file.write_text(place.file.read_text().replace(f'topic = "{place.topic}-rows"', ""))
    with pytest.raises(PipelineFailedError, match=AFTER_WRITE):
        place.run(AFTER_WRITE)
    assert place.messages() == [], "nothing is sent before the batch is computed, and its dead letters are there"
    assert place.letters() == Counter()
    place.run()
    assert sorted(message.value() for message in place.messages()) == [b"0", b"1", b"2"]
    assert place.letters() == Counter([(good(3, 1)[0], "sink")])


def test_what_is_wrong_is_one_line_before_anything_is_read(
    spark: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path
) -> None:
    place = TopicPlace(spark, clusters.get(WITH_HEADERS), WITH_HEADERS, fresh_name, tmp_path)
    place.write_topics(select="id")
    place.file.write_text(place.file.read_text().replace(f"{place.topic}-dead", f"{place.topic}-none"))
    with pytest.raises(PipelineFileError) as raised:
        place.prepare()
    example = 'select = ["to_json(struct(*)) AS value"]'
    assert raised.value.problems == (
        f"{place.file}: [sink] format: column value is missing: a record needs it, and [transform] select gives id; "
        f"name one of them value (AS value), or write all of them as JSON: {example}",
        f"{place.file}: [dead-letters] format: topic {place.topic}-none: UNKNOWN_TOPIC_OR_PARTITION (3). Create the "
        "topic, or correct the option topic or the column topic",
    )
    place.write(sink=f'format = "topic"\ntopic = "{place.topic}-rows"\nkafka.bootstrap.servers = "127.0.0.1:1"')
    with pytest.raises(PipelineFileError, match=r"\[sink\] format: the brokers 127\.0\.0\.1:1 do not answer: "):
        place.prepare()
    assert not (place.folder / "checkpoint-lineage").exists()


@pytest.mark.nightly
def test_a_password_is_in_no_plan_file_or_error_and_a_wrong_one_is_a_line_of_check(
    spark: SparkSession, fresh_name: str, tmp_path: Path
) -> None:
    require_releases(WITH_HEADERS, zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        sandbox.start_zookeeper()
        sandbox.start_broker(WITH_HEADERS, chroot="/kafka", security=security)
        place = TopicPlace(spark, sandbox, WITH_HEADERS, fresh_name, tmp_path)
        secrets = tmp_path / "secrets"
        secrets.mkdir()
        login = {f"kafka.{key}": value for key, value in security.settings("SASL_SSL", "SCRAM-SHA-512").items()}
        login["kafka.bootstrap.servers"] = security.address("SASL_SSL")
        (secrets / "password").write_text(login["kafka.sasl.password"])
        login["kafka.sasl.password"] = f"file:{secrets / 'password'}"
        keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in login.items())
        sink = f'format = "topic"\ntopic = "{place.topic}-rows"\n{keys}'
        place.write(
            sink=sink, dead_letters=f'format = "topic"\nconnection = "sink"\ntopic = "{place.topic}-dead"',
            select=SELECT,
        )  # fmt: skip
        place.cluster.produce(place.topic, 0, [*good(0, 5), BROKEN])
        place.run()
        assert place.ids() == Counter(range(5))
        assert place.letters() == Counter([(BROKEN, "decode")])
        plans = [each for each in shown_plans(spark) if "MapInArrow" in each]
        assert plans, "the tasks that send are in a plan"
        assert not any(USER_PASSWORD in plan for plan in shown_plans(spark))
        files = [each for each in tmp_path.rglob("*") if each.is_file() and secrets not in each.parents]
        assert not [each for each in files if USER_PASSWORD.encode() in each.read_bytes()]
        (secrets / "password").write_text("wrong-password")
        with pytest.raises(PipelineFileError, match="does not accept the user or the password") as raised:
            place.prepare()
        assert [line for line in raised.value.problems if "[sink] format: " in line] == [raised.value.problems[0]]
        assert "wrong-password" not in str(raised.value)


def shown_plans(spark: SparkSession) -> list[str]:
    """What the pages of Spark show of the jobs of the session."""
    executions: Any = spark._jsparkSession.sharedState().statusStore().executionsList()  # type: ignore[attr-defined]
    return [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
