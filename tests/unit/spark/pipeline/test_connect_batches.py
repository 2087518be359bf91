"""The batches of a pipeline over Spark Connect: what the server's process writes, the program gets once."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.pipeline import connect_batches
from bridge.spark.pipeline.batch_writer import WrittenBatch
from bridge.spark.pipeline.connect_batches import BATCHES_FILE, ServerBatches, ServerBatchWriter
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError
from zkconsumer.types import TopicPartition

LINEAGE = BatchLineage(
    "q", 0, "batch", "clicks", "claim", "a1", 1_790_000_000_000, {TopicPartition("t", 0): ((0, 5),)},
    BatchCounts(3, 1, 1, 0),
)  # fmt: skip


SESSION = "session"


class Frame:
    """A frame of a batch."""

    @property
    def sparkSession(self) -> str:
        return SESSION


FRAME: Any = Frame()


def make_parts(session: Any) -> Any:
    assert session == SESSION
    return "parts"


class Writer:
    """``BatchWriter``; the batches from 10 on fail with the errors of ``ERRORS``."""

    ERRORS = (UsageError("no place"), PreconditionFailed("other ranges"), UnavailableError("no server"), ValueError())

    def __init__(self, parts: Any, on_batch: Any) -> None:
        assert parts == "parts"
        self._on_batch = on_batch

    def __call__(self, frame: Any, batch: int) -> None:
        if batch >= 10:
            raise self.ERRORS[batch - 10]
        self._on_batch(WrittenBatch(replace(LINEAGE, batch=batch), is_repeated=batch == 1))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerBatchWriter:
    """As the server has it, out of its bytes."""
    monkeypatch.setattr(connect_batches, "BatchWriter", Writer)
    found = pickle.loads(pickle.dumps(ServerBatchWriter(make_parts, tmp_path)))
    assert isinstance(found, ServerBatchWriter)
    return found


def test_each_batch_is_delivered_once_and_in_order(server: ServerBatchWriter, tmp_path: Path) -> None:
    seen: list[WrittenBatch] = []
    program = ServerBatches(tmp_path, seen.append)
    program.deliver()
    assert seen == []
    server(FRAME, 0)
    program.deliver()
    server(FRAME, 1)
    server(FRAME, 2)
    program.deliver()
    program.deliver()
    assert [(each.lineage.batch, each.is_repeated) for each in seen] == [(0, False), (1, True), (2, False)]
    assert seen[0].lineage == LINEAGE
    assert program.error is None


def test_a_line_that_is_not_complete_is_delivered_when_it_is(server: ServerBatchWriter, tmp_path: Path) -> None:
    seen: list[WrittenBatch] = []
    program = ServerBatches(tmp_path, seen.append)
    server(FRAME, 0)
    file = tmp_path / BATCHES_FILE
    whole = file.read_text()
    file.write_text(whole[:-1])
    program.deliver()
    assert seen == []
    file.write_text(whole)
    program.deliver()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("batch", "error"),
    [(10, UsageError("no place")), (11, PreconditionFailed("other ranges")), (12, UnavailableError("no server"))],
)
def test_an_error_of_the_server_has_its_text_and_its_exit_code(
    server: ServerBatchWriter, tmp_path: Path, batch: int, error: Exception
) -> None:
    with pytest.raises(type(error)):
        server(FRAME, batch)
    found = ServerBatches(tmp_path, lambda _: None).error
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_an_error_that_is_not_of_this_project_is_left_to_spark(server: ServerBatchWriter, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        server(FRAME, 13)
    assert ServerBatches(tmp_path, lambda _: None).error is None
