"""Offsets in JSON znodes, byte for byte as the sources of storm-kafka and kafka-spark-consumer write them.

Storm: ``PartitionManager.commit`` of storm-kafka.  kafka-spark-consumer of dibbhatt: ``PartitionManager.commit`` of
1.0.3, ``ProcessedOffsetManager.persistProcessedOffsets`` of 1.0.7.  Both write ``JSONValue.toJSONString`` of an
``ImmutableMap``, whose order is the order of the calls of ``put``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.admin_fixtures import RunTool, fill_clicks
from zkconsumer.admin.json_offset_znodes import parse_json_offset
from zkconsumer.admin.offset_lines import OffsetLineError
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import INT64_MAX

STORM = (
    b'{"topology":{"id":"8c2b7f3e-0a51-4f0d-9b36-3f2d1f6f7c11","name":"clicks-topology"},"offset":42,"partition":0,'
    b'"broker":{"host":"kafka1.example.com","port":9092},"topic":"clicks"}'
)
SPARK_RECEIVED = (
    b'{"consumer":{"id":"billing"},"offset":60,"partition":1,"broker":{"host":"kafka1.example.com","port":9092},'
    b'"topic":"clicks"}'
)
SPARK_PROCESSED = (
    b'{"consumer":{"id":"billing"},"offset":54,"partition":1,"broker":{"host":"","port":""},"topic":"clicks"}'
)


def storm(partition: int, offset: int, topic: str = "clicks") -> bytes:
    changed = STORM.replace(b'"offset":42,"partition":0', b'"offset":%d,"partition":%d' % (offset, partition))
    return changed.replace(b'"topic":"clicks"', b'"topic":"%s"' % topic.encode())


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


def export(tool: RunTool, path: str, *words: str) -> tuple[int, str, str]:
    result = tool("offsets", "export", "billing", "--json-znodes", path, *words)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("name", "data", "offset"),
    [("partition_0", STORM, 42), ("partition_1", SPARK_RECEIVED, 60), ("partition_1", SPARK_PROCESSED, 54)],
)
def test_each_program_writes_topic_partition_and_offset(name: str, data: bytes, offset: int) -> None:
    assert parse_json_offset(name, data) == (TopicPartition("clicks", int(name[-1])), offset)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"42", "not a JSON object"),
        (b"", "not JSON"),
        (b"\xff", "utf-8"),
        (b"[" * 10_000, "nested too deeply"),  # as many bytes as are read; 5,000 are not too deep for Python 3.13
        (b" " * 20_000, "20000 bytes"),
        (storm(1, 5), "it has partition 1"),
        (STORM.replace(b"42", b"-1"), "negative"),
        (STORM.replace(b"42", b'"42"'), "offset is missing, or not an integer"),
        (STORM.replace(b"42", b"true"), "offset is missing, or not an integer"),
        (STORM.replace(b"42", str(INT64_MAX + 1).encode()), "larger than"),
        (STORM.replace(b'"clicks"}', b"null}"), "topic must be a text"),
        (STORM.replace(b'"clicks"}', b'"../x"}'), "x"),
    ],
)
def test_what_is_no_offset_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(OffsetLineError, match=reason):
        parse_json_offset("partition_0", data)


def test_the_offsets_of_a_storm_spout_become_those_of_a_group(
    world: FakeEnvironment, tool: RunTool, tmp_path: Path
) -> None:
    for partition, offset in {0: 42, 1: 50, 2: 99}.items():
        world.zookeeper.ensure(f"/kafkastorm/clicks-spout/partition_{partition}", storm(partition, offset))
    file = tmp_path / "offsets.json"
    code, _, printed = export(tool, "/kafkastorm/clicks-spout", "--format", "json", "--file", str(file))
    assert (code, printed) == (0, f"3 offsets of 1 group written to {file}.\n")

    done = tool("offsets", "import", str(file), "--execute")
    assert done.exit_code == 0, done.output
    assert world.offsets("billing", "clicks") == {0: 42, 1: 50, 2: 99}
    # The nodes of the spout stay as they are, so Storm can go on from them.
    assert world.zookeeper.data("/kafkastorm/clicks-spout/partition_0") == STORM


def test_a_spout_with_several_topics_has_a_folder_for_each(world: FakeEnvironment, tool: RunTool) -> None:
    world.zookeeper.ensure("/kafkastorm/all/clicks/partition_0", STORM)
    world.zookeeper.ensure("/kafkastorm/all/views/partition_3", storm(3, 7, "views"))
    assert export(tool, "/kafkastorm/all", "--format", "csv") == (0, "clicks,0,42\nviews,3,7\n", "")


def test_the_last_processed_offsets_of_kafka_spark_consumer_are_written_plus_one(
    world: FakeEnvironment, tool: RunTool
) -> None:
    world.zookeeper.ensure("/spark/billing/clicks/partition_1", SPARK_RECEIVED)
    world.zookeeper.ensure("/spark/billing/clicks/processed/partition_1", SPARK_PROCESSED)
    code, out, err = export(tool, "/spark/billing/clicks/processed", "--offset-convention", "last", "--format", "csv")
    assert (code, out) == (0, "clicks,1,55\n")
    assert "the last offset read" in err
    assert export(tool, "/spark/billing/clicks", "--format", "csv") == (0, "clicks,1,60\n", "")


def test_a_node_that_is_no_offset_is_named_and_the_others_are_written(world: FakeEnvironment, tool: RunTool) -> None:
    world.zookeeper.ensure("/s/partition_0", STORM)
    world.zookeeper.ensure("/s/partition_1", b"?")
    code, out, err = export(tool, "/s")
    assert (code, out) == (1, "/consumers/billing/offsets/clicks/0:42\n")
    assert "/s/partition_1: skipped: it is not JSON" in err


def test_two_spouts_with_the_same_partition_are_not_mixed(world: FakeEnvironment, tool: RunTool) -> None:
    world.zookeeper.ensure("/kafkastorm/one/partition_0", STORM)
    world.zookeeper.ensure("/kafkastorm/two/partition_0", storm(0, 50))
    code, out, err = export(tool, "/kafkastorm")
    assert (code, out) == (2, "")
    assert "/kafkastorm/two/partition_0 and another node have offsets of clicks/0: give the path of one spout" in err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("billing", "--json-znodes", "/nowhere"), 2, "there is no znode /nowhere"),
        (("billing", "--json-znodes", "kafkastorm"), 2, "is not a path"),
        (("billing", "--json-znodes", "/consumers/g1"), 1, "no offsets in JSON znodes below /consumers/g1"),
        (("a", "b", "--json-znodes", "/s"), 2, "exactly one GROUP"),
        (("--all", "--json-znodes", "/s"), 2, "exactly one GROUP"),
        (("a", "--json-znodes", "/s", "--store", "kafka"), 2, "does not fit --store kafka"),
        (("g1", "--offset-convention", "last"), 2, "needs --json-znodes"),
    ],
)
def test_a_wrong_call_says_why(
    world: FakeEnvironment, tool: RunTool, words: tuple[str, ...], code: int, text: str
) -> None:
    result = tool("offsets", "export", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr


def test_the_file_is_an_ordinary_one(world: FakeEnvironment, tool: RunTool) -> None:
    world.zookeeper.ensure("/s/partition_0", STORM)
    head, line = map(json.loads, export(tool, "/s", "--format", "json")[1].splitlines())
    assert (head["offset_convention"], head["store"], head["offsets"]) == ("next", "zookeeper", 1)
    assert line == {"group": "billing", "topic": "clicks", "partition": 0, "offset": 42}
