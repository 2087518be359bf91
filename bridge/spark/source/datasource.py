"""``format("zkconsumer")``: the data source class that Spark loads, and the columns of its source.

ctor, schema          run in a planning process, many times: they open no connection and keep only the options
reader                reads a batch: bridge.spark.source.batch_reader
streamReader          reads a stream: bridge.spark.source.stream_reader
writer, streamWriter  write rows to topics: bridge.spark.sink.data_source_writers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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
CORRUPT = "corrupt"

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

CORRUPT_COLUMNS: dict[str, DataType] = {
    CORRUPT: StructType([StructField("end", LongType()), StructField("error", StringType())])
}
"""The column with ``onCorruptRecord=deadLetter``, after the others.  Not null: the row is no record, but the offsets
from ``offset`` to before ``end``, which cannot be read because of ``error``; ``value``: the damaged bytes, if known."""


IS_UTF8 = {"key": "keyIsUtf8", "value": "valueIsUtf8"}
"""A column of bytes -> that of ``includeIsUtf8`` which is about it."""

UTF8_COLUMNS: dict[str, DataType] = dict.fromkeys(IS_UTF8.values(), BooleanType())
"""The last columns with ``includeIsUtf8``: whether all bytes of a key or a value are UTF-8; true where there is none.
The source checks that at a tenth of what ``is_valid_utf8`` costs in the JVM."""


class ZkConsumerDataSource(DataSource, metaclass=LoaderPickledMeta):  # type: ignore[misc]
    """Batches and streams of records of a ZooKeeper consumer group's topics; and rows that are written to topics."""

    @classmethod
    def name(cls) -> str:
        """``zkconsumer``."""
        return NAME

    @sentence_first
    def schema(self) -> StructType:
        """The columns of ``format("kafka")``; those of the headers with ``includeHeaders``, ``corrupt`` with
        ``onCorruptRecord=deadLetter``, and ``keyIsUtf8`` and ``valueIsUtf8`` with ``includeIsUtf8``.

        Raises ``InvalidConfigException`` for wrong options: ``check_options_at_load`` explains which problems of a
        stream and of a batch it finds.  The reader raises the others.  With ``.schema(…)`` Spark does not call this
        method, and the reader raises all of them.
        """
        from bridge.spark.options import (  # executors load this file without the packages that options need
            check_options_at_load,
            wants_corrupt_column,
            wants_headers,
            wants_utf8_columns,
        )

        check_options_at_load(self.options)
        gc_freeze_worker()
        columns = offered_columns(
            has_corrupt=wants_corrupt_column(self.options), has_utf8=wants_utf8_columns(self.options)
        )
        wanted = [name for name in columns if name != HEADERS or wants_headers(self.options)]
        return StructType([StructField(name, columns[name]) for name in wanted])

    @sentence_first
    def reader(self, schema: StructType) -> Any:
        """A batch; see ``bridge.spark.source.batch_reader``.

        Raises ``InvalidConfigException`` for options that do not apply to a batch, and for columns that do not exist.
        """
        from bridge.spark.source.batch_reader import ZkConsumerBatchReader

        return ZkConsumerBatchReader(*self._read(schema, is_stream=False))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802
        """A stream; see ``bridge.spark.source.stream_reader``.

        For options that do not apply to a stream, and columns that do not exist, the first call of the reader raises:
        when this method itself raises, Spark (4.2, 4.3) adds ``UnboundLocalError: … 'reader'`` after the error.
        """
        from bridge.spark.source.stream_reader import ZkConsumerStreamReader

        try:
            return ZkConsumerStreamReader(*self._read(schema, is_stream=True))
        except InvalidConfigException as error:
            return InvalidOptionsStreamReader(error)

    @sentence_first
    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Writes a batch to topics; see ``bridge.spark.sink.data_source_writers``.

        Raises ``InvalidConfigException`` for wrong options and columns, and for ``mode("overwrite")``.
        """
        from bridge.spark.sink.data_source_writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @sentence_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """Writes a stream to topics; see ``bridge.spark.sink.data_source_writers``.

        Raises ``InvalidConfigException`` for wrong options and columns.
        """
        from bridge.spark.sink.data_source_writers import stream_writer

        return stream_writer(self.options, schema)

    def _read(self, schema: StructType, *, is_stream: bool) -> tuple[SourceOptions, tuple[str, ...]]:
        """Options and columns; one error reports the problems of both."""
        from bridge.spark.options import read_options, wants_corrupt_column, wants_utf8_columns

        options, why_options = _tried(lambda: read_options(self.options, is_stream=is_stream))
        has_corrupt, has_utf8 = wants_corrupt_column(self.options), wants_utf8_columns(self.options)
        columns, why_columns = _tried(lambda: columns_of(schema, has_corrupt=has_corrupt, has_utf8=has_utf8))
        if why_options is not None and why_columns is not None:
            raise InvalidConfigException(f"{why_options}\n{why_columns}")
        if options is None or columns is None:
            why = why_options or why_columns
            assert why is not None, "one of the two could not be read"
            raise why
        configure_log_prefix(options.config.group_id)
        return options, columns


class InvalidOptionsStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """A stream with invalid options: each call raises the error about them."""

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
    """The value that was read, or the error."""
    try:
        return read(), None
    except InvalidConfigException as error:
        return None, error


def offered_columns(*, has_corrupt: bool, has_utf8: bool) -> dict[str, DataType]:
    """All columns that a query with these options can read, in their order."""
    return COLUMNS | (CORRUPT_COLUMNS if has_corrupt else {}) | (UTF8_COLUMNS if has_utf8 else {})


def columns_of(schema: StructType, *, has_corrupt: bool = False, has_utf8: bool = False) -> tuple[str, ...]:
    """The columns that a query reads, in its order: those of ``schema()``, or those passed to ``.schema(…)``.

    ``has_corrupt``: ``onCorruptRecord=deadLetter``, with which rows without the column ``corrupt`` could not be
    distinguished from records.  ``has_utf8``: ``includeIsUtf8``.
    Raises ``InvalidConfigException`` with a line for each column that does not exist, or has another type.
    """
    columns = offered_columns(has_corrupt=has_corrupt, has_utf8=has_utf8)
    problems = []
    for field in schema.fields:
        problem = _wrong(field, columns)
        if problem:
            problems.append(problem)
    if has_corrupt and CORRUPT not in schema.fieldNames():
        problems.append(
            f"{CORRUPT}: is missing; with onCorruptRecord=deadLetter only this column shows which rows are no records"
        )
    if len(set(schema.fieldNames())) < len(schema.fields):
        problems.append("a column occurs twice; name each column once")
    if not schema.fields:
        problems.append("it has no column; omit .schema(…) for all columns")
    if problems:
        there = ", ".join(f"{name} {made.simpleString()}" for name, made in columns.items())
        head = f'.schema(…) can select columns of format("zkconsumer"), but not change them; the columns are {there}:'
        raise InvalidConfigException("\n  ".join([head, *problems]))
    return tuple(schema.fieldNames())


def _wrong(field: Any, columns: Mapping[str, DataType]) -> str:
    known = columns.get(field.name)
    if known is None and field.name == CORRUPT:
        return f"{CORRUPT}: this column exists with onCorruptRecord=deadLetter only"
    if known is None and field.name in UTF8_COLUMNS:
        return f"{field.name}: this column exists with includeIsUtf8=true only"
    if known is None:
        by_lower = {name.lower(): name for name in columns}
        nearest = by_lower.get(field.name.lower())
        return f"{field.name}: this column does not exist{f'; did you mean {nearest}?' if nearest else ''}"
    if field.dataType.simpleString() != known.simpleString():
        return f"{field.name}: is {known.simpleString()}, not {field.dataType.simpleString()}; cast it in the query"
    return ""
