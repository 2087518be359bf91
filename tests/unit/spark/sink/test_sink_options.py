"""Options and columns of the sink: what is accepted, and the line about what is not."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from pyspark import cloudpickle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bridge.spark.sink.data_source_writers import TopicStreamWriter
from bridge.spark.sink.sink_columns import SINK_COLUMNS, check_sink_columns
from bridge.spark.sink.sink_options import SinkOptions, read_sink_options
from bridge.spark.source.datasource import ZkConsumerDataSource
from zkconsumer.errors import InvalidConfigException
from zkconsumer.wire import compression

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9092"}
VALUE = StructField("value", StringType())


def read(**options: str) -> SinkOptions:
    """Options whose names have _ for dots."""
    return read_sink_options(SERVERS | {name.replace("_", "."): value for name, value in options.items()})


def problems(options: dict[str, str]) -> str:
    with pytest.raises(InvalidConfigException) as raised:
        read_sink_options(options)
    return str(raised.value)


def test_only_the_servers_are_required() -> None:
    options = read_sink_options(SERVERS)
    assert (options.topic, options.acks, options.codec) == (None, -1, compression.NONE)
    assert options.delivery_timeout_ms == 120_000
    assert "kafka.bootstrap.servers is missing" in problems({"topic": "t"})


def test_names_and_codecs_are_not_case_sensitive() -> None:
    lower = read_sink_options({"kafka.bootstrap.SERVERS": "one:9092", "KAFKA.compression.type": "ZSTD", "TOPIC": "t"})
    assert (lower.codec, lower.topic) == (compression.ZSTD, "t")


@pytest.mark.parametrize(("word", "number"), [("all", -1), ("-1", -1), ("1", 1)])
def test_acks_have_the_words_of_kafka(word: str, number: int) -> None:
    assert read(kafka_acks=word).acks == number


def test_acks_0_is_refused_since_lost_records_would_not_be_noticed() -> None:
    text = problems(SERVERS | {"kafka.acks": "0"})
    assert "kafka.acks=0: with 0 the brokers send no answer" in text
    assert "set it to all or 1" in text


def test_a_record_set_is_never_larger_than_a_request() -> None:
    assert read(kafka_max_request_size="2000", kafka_batch_size="9999").batch_bytes == 2_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("topik", "topik is not known: did you mean topic?"),
        ("kafka.topic", "kafka.topic is not known: did you mean topic?"),
        ("compression.type", "compression.type is not known: did you mean kafka.compression.type?"),
        ("group.id", "group.id is an option of the source, and has no meaning for a sink: remove it"),
        ("kafka.partitioner.class", "kafka.partitioner.class cannot be set: a class of the JVM; set the column"),
        ("kafka.enable.idempotence", "kafka.enable.idempotence cannot be set: the sink writes at least once"),
        ("path", "path cannot be set: start() and save() take no path here"),
        ("xyzzy", "xyzzy is not known: remove it"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_the_reason(name: str, words: str) -> None:
    assert words in problems(SERVERS | {name: "true"})


def test_all_problems_are_reported_at_once() -> None:
    text = problems({"kafka.acks": "2", "topic": "a b", "kafka.security.protocol": "TLS"})
    assert "have 4 problems" in text
    for words in ("kafka.acks=2", "topic=a b", "kafka.security.protocol", "kafka.bootstrap.servers is missing"):
        assert words in text


def test_options_without_effect_are_warnings_and_those_of_the_query_are_not() -> None:
    options = read_sink_options(SERVERS | {"kafka.linger.ms": "5", "checkpointLocation": "/tmp/c"})
    assert list(options.warnings) == ["kafka.linger.ms"]
    assert not read_sink_options(SERVERS | {"kafka.enable.idempotence": "false"}).warnings


def test_a_password_is_shown_nowhere() -> None:
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u",
        "kafka.sasl.password": "s3cret",
    }  # fmt: skip
    options = read_sink_options(SERVERS | login)
    assert "s3cret" not in repr(options)
    writer = ZkConsumerDataSource(SERVERS | login | {"topic": "t"}).streamWriter(StructType([VALUE]), False)
    assert "s3cret" not in repr(writer._task)
    assert pickle.loads(cloudpickle.dumps(writer))._task == writer._task


def test_each_type_of_each_column_is_accepted() -> None:
    headers = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
    others = [
        StructField("headers", headers), StructField("topic", StringType()), StructField("partition", IntegerType()),
        StructField("timestamp", TimestampType()), StructField("source", StringType()),
    ]  # fmt: skip
    for type_ in (StringType(), BinaryType()):
        columns = [StructField("key", type_), StructField("value", type_), *others]
        check_sink_columns(StructType(columns), None)
    assert {field.name for field in columns} == SINK_COLUMNS.keys()


@pytest.mark.parametrize(
    ("fields", "topic", "words"),
    [
        ([StructField("key", StringType())], "t", "value: is missing"),
        ([VALUE], None, "topic: is missing; set the option topic"),
        ([VALUE, StructField("key", LongType())], "t", "key: is bigint, and must be binary or string; cast it"),
        ([VALUE, StructField("header", StringType())], "t", "header: is not written (did you mean headers?); drop it"),
        ([VALUE, StructField("partition", DoubleType())], "t", "partition: is double, and must be int"),
        ([VALUE, VALUE], "t", "value: occurs twice"),
    ],
)
def test_a_wrong_column_is_one_line_with_what_to_do(
    fields: list[StructField], topic: str | None, words: str
) -> None:  # fmt: skip
    with pytest.raises(InvalidConfigException) as raised:
        check_sink_columns(StructType(fields), topic)
    assert [words in line for line in str(raised.value).splitlines()[1:]] == [True]


def test_a_batch_cannot_overwrite_a_topic() -> None:
    source = ZkConsumerDataSource(SERVERS | {"topic": "t"})
    with pytest.raises(InvalidConfigException, match=r'set mode\("append"\)'):
        source.writer(StructType([VALUE]), True)
    assert isinstance(source.streamWriter(StructType([VALUE]), True), TopicStreamWriter), "complete: each row again"
