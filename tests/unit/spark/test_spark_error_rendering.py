"""What Spark shows of an error: our sentence first, then the whole trace."""

from __future__ import annotations

import io
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from bridge.spark.source.datasource import COLUMNS, InvalidOptionsStreamReader, ZkConsumerDataSource
from bridge.spark.source.error_rendering import (
    TRACE_HEAD,
    configure_log_prefix,
    iterate_sentence_before_traceback,
    sentence_before_traceback,
    sentence_first,
)
from zkconsumer.errors import InvalidConfigException, UnavailableError

FIRST = "zkconsumer.errors.UnavailableError: the brokers are silent: start them\n"


def raise_behind_another(error: Exception) -> None:
    try:
        {}["inner"]
    except KeyError as inner:
        raise error from inner


fail = sentence_first(raise_behind_another)


def shown(error: BaseException) -> str:
    """As a worker of Spark (4.2, 4.3) makes a text of it."""
    return "".join(traceback.TracebackException(type(error), error, error.__traceback__, compact=True).format())


def test_the_sentence_comes_first_and_last_and_the_trace_is_whole() -> None:
    with pytest.raises(UnavailableError) as caught:
        fail(UnavailableError("the brokers are silent: start them"))
    text = shown(caught.value)
    assert text.startswith(FIRST)
    assert text.endswith(FIRST)
    assert "KeyError: 'inner'" in text
    assert text.count(FIRST) == 2


def test_an_error_that_passes_two_doors_is_told_once_before_the_trace() -> None:
    with pytest.raises(UnavailableError) as caught:
        sentence_first(fail)(UnavailableError("the brokers are silent: start them"))
    assert shown(caught.value).count(FIRST) == 2


@pytest.mark.parametrize("told", [sentence_first, sentence_before_traceback])
def test_settings_of_brokers_have_the_names_that_they_have_as_options(
    told: Callable[[Callable[[Exception], None]], Callable[[Exception], None]],
) -> None:
    words = "no host of {}bootstrap.servers has an address; see kafka.security.protocol and group.id"
    with pytest.raises(UnavailableError) as caught:
        told(raise_behind_another)(UnavailableError(words.format("")))
    assert str(caught.value) == words.format("kafka.")
    assert "of bootstrap.servers" not in shown(caught.value)


def test_other_exceptions_are_left_alone() -> None:
    with pytest.raises(ValueError, match="of somebody else") as caught:
        fail(ValueError("of somebody else"))
    assert shown(caught.value).startswith("Traceback")


def test_wrong_options_are_told_without_the_frames_that_found_them() -> None:
    with pytest.raises(InvalidConfigException) as caught:
        ZkConsumerDataSource({"zookeper.connect": "zk:1"}).schema()
    assert "options.py" not in shown(caught.value)
    assert shown(caught.value).startswith("zkconsumer.errors.InvalidConfigException: the options of")


WORKER = """
def work(call, handle, out):
    try:
        list(call())
    except BaseException as error:
        handle(error, out)
"""


def as_a_worker_tells(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch, **environ: str) -> str:
    """What ``pyspark.util`` makes of the exception, below frames of Spark's own."""
    import pyspark
    from pyspark.serializers import read_int
    from pyspark.util import handle_worker_exception

    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    around: dict[str, Callable[..., None]] = {}
    exec(compile(WORKER, str(Path(pyspark.__file__).parent / "worker.py"), "exec"), around)
    out = io.BytesIO()
    around["work"](call, handle_worker_exception, out)
    out.seek(0)
    assert read_int(out) < 0, "an exception was thrown"
    return out.read(read_int(out)).decode()


def pieces() -> Iterator[int]:
    yield 1
    raise_behind_another(UnavailableError("the brokers are silent: start them"))


TELLERS = [sentence_before_traceback(lambda: list(pieces())), lambda: iterate_sentence_before_traceback(pieces())]


@pytest.mark.parametrize("call", TELLERS, ids=["when a batch is planned", "in a task"])
def test_where_spark_throws_causes_away_the_sentence_stands_before_our_frames(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = as_a_worker_tells(call, monkeypatch, SPARK_SIMPLIFIED_TRACEBACK="1")
    head, behind = text.split(f"\n{TRACE_HEAD}\n")
    lines = head.splitlines(keepends=True)
    assert (len(lines), lines[0], lines[3]) == (4, "Traceback (most recent call last):\n", FIRST)
    assert "in rendering" in lines[1] or "in iterate_sentence_before_traceback" in lines[1]
    assert "KeyError: 'inner'" in behind
    assert "in pieces" in behind
    assert behind.count(FIRST) == 1


@pytest.mark.parametrize("call", TELLERS, ids=["when a batch is planned", "in a task"])
def test_where_spark_shows_causes_the_sentence_is_the_first_line(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert as_a_worker_tells(call, monkeypatch).startswith(FIRST)


def test_who_wants_no_frames_of_workers_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_a_worker_tells(TELLERS[0], monkeypatch, SPARK_HIDE_TRACEBACK="1") == FIRST


def test_a_task_that_is_left_half_way_is_closed() -> None:
    closed = []

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    task = iterate_sentence_before_traceback(endless())
    assert next(task) == 1
    task.close()  # type: ignore[attr-defined]
    assert closed == [True]


def test_lines_of_the_planning_process_have_a_time_a_level_and_the_group() -> None:
    assert logging.lastResort is not None
    before = logging.lastResort.formatter
    try:
        configure_log_prefix("billing")
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
    assert isinstance(reader, InvalidOptionsStreamReader)
    reader.stop()
    for call in (reader.initialOffset, lambda: reader.latestOffset({}, None), lambda: reader.partitions({}, {})):
        with pytest.raises(InvalidConfigException, match=r"group\.id is missing") as caught:
            call()
        assert shown(caught.value).startswith("zkconsumer.errors.InvalidConfigException: the options of")
