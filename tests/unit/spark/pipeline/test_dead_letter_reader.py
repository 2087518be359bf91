"""Dead letters as they are read back from PostgreSQL: the records have what the records of the source have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_spec import PipelineSpec, PostgresTarget
from bridge.spark.pipeline.replay import dead_letter_reader
from bridge.spark.pipeline.replay.dead_letter_reader import (
    FETCHED_ROWS,
    KEY_COLUMNS,
    RECORD_COLUMNS,
    PostgresDeadLetters,
    PostgresLetterLoader,
    open_dead_letters,
)
from bridge.spark.pipeline.replay.letter_choice import LetterPlace
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

TARGET = PostgresTarget((("db", 5432),), "shop", None, None, "disable", None, 1_000, "s", "dead", "b")
AT = datetime(2026, 11, 27, 10, 0, 0, 5_000, UTC)
ROW = (b"k", None, "t", 0, 7, AT, 1, [{"key": "h", "value": "AP8="}, {"key": "e", "value": None}])


class Answers:
    """A connection whose statements have these rows; ``asked``: the parameters of each statement."""

    def __init__(self, *pages: Sequence[tuple[Any, ...]]) -> None:
        self._pages = list(pages)
        self._rows: list[tuple[Any, ...]] = []
        self.asked: list[Any] = []

    def __call__(self, _target: PostgresTarget) -> AbstractContextManager[Any]:
        return nullcontext(self)

    def cursor(self, _name: str) -> AbstractContextManager[Any]:
        return nullcontext(self)

    def execute(self, _statement: Any, parameters: Any) -> Answers:
        self.asked.append(parameters)
        self._rows = list(self._pages.pop(0))
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def fetchmany(self, count: int) -> list[tuple[Any, ...]]:
        page, self._rows = self._rows[:count], self._rows[count:]
        return page


def keys(*offsets: int) -> Any:
    count = len(offsets)
    columns: list[list[Any]] = [["t"] * count, [0] * count, list(offsets), ["q"] * count, [3] * count]
    return pa.RecordBatch.from_pydict(dict(zip(KEY_COLUMNS, columns, strict=True)))


def test_a_record_has_the_values_and_types_of_the_source() -> None:
    answers = Answers([ROW, (None, b"v", "t", 0, 8, None, None, None)])
    [batch] = PostgresLetterLoader(TARGET, answers)([keys(7, 8)])
    assert answers.asked == [[["t", "t"], [0, 0], [7, 8], ["q", "q"], [3, 3]]]
    assert batch.schema.names == list(RECORD_COLUMNS)
    assert batch.to_pylist() == [
        {
            "key": b"k", "value": None, "topic": "t", "partition": 0, "offset": 7, "timestamp": AT, "timestampType": 1,
            "headers": [{"key": "h", "value": b"\0\xff"}, {"key": "e", "value": None}],
        },
        {
            "key": None, "value": b"v", "topic": "t", "partition": 0, "offset": 8, "timestamp": None,
            "timestampType": None, "headers": None,
        },
    ]  # fmt: skip


def test_records_are_read_in_parts_and_a_task_without_letters_does_not_connect() -> None:
    answers = Answers([ROW] * (FETCHED_ROWS + 1))
    found = list(PostgresLetterLoader(TARGET, answers)([keys(), keys(7)]))
    assert [batch.num_rows for batch in found] == [FETCHED_ROWS, 1]


def test_places_are_read_in_pages_that_continue_after_the_last_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_reader, "PAGE_LETTERS", 2)
    letters = [("t", 0, offset, "q", 3, "decode", AT) for offset in range(5)]
    answers = Answers(letters[:2], letters[2:4], letters[4:])
    found = list(PostgresDeadLetters(None, TARGET, answers).places())  # type: ignore[arg-type]
    ms = 1_795_773_600_005
    assert found == [LetterPlace(TopicPartition("t", 0), offset, "q", 3, "decode", ms) for offset in range(5)]
    assert answers.asked == [["", -1, -1, "", -1, 2], ["t", 0, 1, "q", 3, 2], ["t", 0, 3, "q", 3, 2]]
    answers = Answers(letters[:2], [])
    assert len(list(PostgresDeadLetters(None, TARGET, answers).places())) == 2  # type: ignore[arg-type]


def spec(folder: Path, dead_letters: str) -> PipelineSpec:
    file = folder / "p.toml"
    file.write_text(
        f"""
        [source]
        zookeeper.connect = "zk:2181"
        group.id = "g"
        subscribe = "t"
        kafka.bootstrap.servers = "b:9092"
        [transform]
        select = ["value"]
        [sink]
        format = "parquet"
        path = "rows"
        [dead-letters]
        {dead_letters}
        [trigger]
        available-now = true
        [checkpoint]
        path = "checkpoint"
        """
    )
    return read_pipeline(file)


@pytest.mark.parametrize(
    ("dead_letters", "why"),
    [
        ('format = "none"', "has no place for dead letters"),
        ('format = "topic"\ntopic = "dead"\nconnection = "source"', "from a table, and a topic is none"),
    ],
)
def test_a_pipeline_without_a_table_of_dead_letters_has_nothing_to_replay(
    tmp_path: Path, dead_letters: str, why: str
) -> None:
    with pytest.raises(UsageError, match=rf"\[dead-letters\] format: .*{why}"):
        open_dead_letters(spec(tmp_path, dead_letters), None)  # type: ignore[arg-type]
