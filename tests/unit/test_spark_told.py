"""What Spark shows of an error: our sentence first, then the whole trace."""

from __future__ import annotations

import logging
import re
import traceback

import pytest

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from bridge.spark.datasource import COLUMNS, RefusedStream, ZkConsumerDataSource
from bridge.spark.told import head_for, told_first
from zkconsumer.errors import InvalidConfigException, WorldError

FIRST = "zkconsumer.errors.WorldError: the brokers are silent: start them\n"


@told_first
def fail(error: Exception) -> None:
    try:
        {}["inner"]
    except KeyError as inner:
        raise error from inner


def shown(error: BaseException) -> str:
    """As a worker of Spark (4.2, 4.3) makes a text of it."""
    return "".join(traceback.TracebackException(type(error), error, error.__traceback__, compact=True).format())


def test_the_sentence_comes_first_and_last_and_the_trace_is_whole() -> None:
    with pytest.raises(WorldError) as caught:
        fail(WorldError("the brokers are silent: start them"))
    text = shown(caught.value)
    assert text.startswith(FIRST)
    assert text.endswith(FIRST)
    assert "KeyError: 'inner'" in text
    assert text.count(FIRST) == 2


def test_an_error_that_passes_two_doors_is_told_once_before_the_trace() -> None:
    with pytest.raises(WorldError) as caught:
        told_first(fail)(WorldError("the brokers are silent: start them"))
    assert shown(caught.value).count(FIRST) == 2


def test_other_exceptions_are_left_alone() -> None:
    with pytest.raises(ValueError, match="of somebody else") as caught:
        fail(ValueError("of somebody else"))
    assert shown(caught.value).startswith("Traceback")


def test_wrong_options_are_told_without_the_frames_that_found_them() -> None:
    with pytest.raises(InvalidConfigException) as caught:
        ZkConsumerDataSource({"zookeper.connect": "zk:1"}).schema()
    assert "options.py" not in shown(caught.value)
    assert shown(caught.value).startswith("zkconsumer.errors.InvalidConfigException: the options of")


def test_lines_of_the_planning_process_have_a_time_a_level_and_the_group() -> None:
    assert logging.lastResort is not None
    before = logging.lastResort.formatter
    try:
        head_for("billing")
        record = logging.LogRecord("zkconsumer.spark", logging.WARNING, "", 0, "data-lost partition=t/0", (), None)
        line = logging.lastResort.format(record)
    finally:
        logging.lastResort.setFormatter(before)
    assert re.fullmatch(r"\d{4}-\S+ \S+ WARNING query\[billing\] zkconsumer\.spark: data-lost partition=t/0", line)


def test_a_stream_that_cannot_be_says_so_when_it_is_asked() -> None:
    """Were ``streamReader`` to raise, the last line that Spark shows would be an ``UnboundLocalError`` of its own."""
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField("value", COLUMNS["value"])])
    reader = ZkConsumerDataSource({"zookeeper.connect": "zk:1", "subscribe": "t"}).streamReader(schema)
    assert isinstance(reader, RefusedStream)
    reader.stop()
    for call in (reader.initialOffset, lambda: reader.latestOffset({}, None), lambda: reader.partitions({}, {})):
        with pytest.raises(InvalidConfigException, match=r"group\.id is missing") as caught:
            call()
        assert shown(caught.value).startswith("zkconsumer.errors.InvalidConfigException: the options of")
