"""``format("zkconsumer")``: what Spark makes of it, and which columns there are.

ctor, schema          in a process that plans, again and again: nothing is opened, nothing is kept but the options
reader                a batch: bridge.spark.source.batch_reader
streamReader          a stream: bridge.spark.source.stream_reader
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bridge.spark.decode.gc_freeze import gc_freeze_worker
from bridge.spark.source.error_rendering import configure_log_prefix, sentence_first
from bridge.spark.source.pickling import LoaderPickledMeta
from zkconsumer.errors import InvalidConfigException

if TYPE_CHECKING:
    from bridge.spark.options import SourceOptions

T = TypeVar("T")

NAME = "zkconsumer"

HEADERS = "headers"

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
"""The columns of Spark's Kafka source, in its order."""


class ZkConsumerDataSource(DataSource, metaclass=LoaderPickledMeta):  # type: ignore[misc]
    """Batches and streams of records of a ZooKeeper consumer group's topics."""

    @classmethod
    def name(cls) -> str:
        """``zkconsumer``."""
        return NAME

    @sentence_first
    def schema(self) -> StructType:
        """The columns of ``format("kafka")``; those of the headers with ``includeHeaders``.

        Raises ``InvalidConfigException`` for wrong options: see ``check_options_at_load`` about which of a stream and a
        batch it is.  The reader raises the rest.  With ``.schema(…)`` Spark does not call this, and the reader raises
        all of it.
        """
        from bridge.spark.options import (  # executors load this file, not what options need
            check_options_at_load,
            wants_headers,
        )

        check_options_at_load(self.options)
        gc_freeze_worker()
        wanted = [name for name in COLUMNS if name != HEADERS or wants_headers(self.options)]
        return StructType([StructField(name, COLUMNS[name]) for name in wanted])

    @sentence_first
    def reader(self, schema: StructType) -> Any:
        """A batch; see ``bridge.spark.source.batch_reader``.

        Raises ``InvalidConfigException`` for options that are none of a batch, and for columns that there are not.
        """
        from bridge.spark.source.batch_reader import ZkConsumerBatchReader

        return ZkConsumerBatchReader(*self._read(schema, is_stream=False))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """A stream; see ``bridge.spark.source.stream_reader``.

        Options that are none of a stream, and columns that there are not, are told by the first call of the reader:
        when this method raises, Spark (4.2, 4.3) says ``UnboundLocalError: … 'reader'`` behind it.
        """
        from bridge.spark.source.stream_reader import ZkConsumerStreamReader

        try:
            return ZkConsumerStreamReader(*self._read(schema, is_stream=True))
        except InvalidConfigException as error:
            return InvalidOptionsStreamReader(error)

    def _read(self, schema: StructType, *, is_stream: bool) -> tuple[SourceOptions, tuple[str, ...]]:
        """Options and columns; what is wrong with either is told together."""
        from bridge.spark.options import read_options

        options, why_options = _tried(lambda: read_options(self.options, is_stream=is_stream))
        columns, why_columns = _tried(lambda: columns_of(schema))
        if why_options is not None and why_columns is not None:
            raise InvalidConfigException(f"{why_options}\n{why_columns}")
        if options is None or columns is None:
            why = why_options or why_columns
            assert why is not None, "one of the two could not be read"
            raise why
        configure_log_prefix(options.config.group_id)
        return options, columns


class InvalidOptionsStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """A stream that cannot be: whatever it is asked, it says why."""

    def __init__(self, why: InvalidConfigException) -> None:
        self._why = why

    @sentence_first
    def initialOffset(self) -> Any:  # noqa: N802
        """Raises ``InvalidConfigException``."""
        raise self._why

    @sentence_first
    def latestOffset(self, *_: Any) -> Any:  # noqa: N802
        """Raises ``InvalidConfigException``."""
        raise self._why

    @sentence_first
    def partitions(self, *_: Any) -> Any:
        """Raises ``InvalidConfigException``."""
        raise self._why

    @sentence_first
    def read(self, partition: Any) -> Any:
        """Raises ``InvalidConfigException``."""
        raise self._why


def _tried(read: Callable[[], T]) -> tuple[T | None, InvalidConfigException | None]:
    """What was read, or why it could not be."""
    try:
        return read(), None
    except InvalidConfigException as error:
        return None, error


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a query asks for, in its order: those of ``schema()``, or what ``.schema(…)`` was given.

    Raises ``InvalidConfigException`` with a line for each column that there is not, or not of that type.
    """
    problems = []
    for field in schema.fields:
        problem = _wrong(field)
        if problem:
            problems.append(problem)
    if len(set(schema.fieldNames())) < len(schema.fields):
        problems.append("a column occurs in it twice")
    if not schema.fields:
        problems.append("it has no column; leave it out for all columns")
    if problems:
        there = ", ".join(f"{name} {made.simpleString()}" for name, made in COLUMNS.items())
        head = f'.schema(…) can narrow the columns of format("zkconsumer"), not change them; there are {there}:'
        raise InvalidConfigException("\n  ".join([head, *problems]))
    return tuple(schema.fieldNames())


def _wrong(field: Any) -> str:
    known = COLUMNS.get(field.name)
    if known is None:
        by_lower = {name.lower(): name for name in COLUMNS}
        nearest = by_lower.get(field.name.lower())
        return f"{field.name}: there is no such column{f'; did you mean {nearest}?' if nearest else ''}"
    if field.dataType.simpleString() != known.simpleString():
        return f"{field.name}: is {known.simpleString()}, not {field.dataType.simpleString()}; cast it in the query"
    return ""
