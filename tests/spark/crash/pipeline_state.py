"""What a pipeline has left in its sink, its dead letters, its checkpoint and its group, read without Spark.

A Delta table is read by the files of its log; a topic by librdkafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.dataset as ds

from bridge.spark.pipeline.lineage import BatchLineage
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PostgresTarget, SinkTarget, TopicTarget
from bridge.spark.pipeline.sinks.delta_commits import LOG_FOLDER, commit_path, commit_versions, parse_commit
from bridge.spark.pipeline.sinks.folder_reservations import FolderReservations
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.parquet_table import committed_files
from bridge.spark.pipeline.sinks.postgres_connection import connect_postgres
from bridge.spark.pipeline.sinks.sink_choice import open_sink
from tests.spark.crash.pipeline_judge import FoundLetter, FoundRow, PipelineState
from tests.spark.test_topic_sink import headers_of, read_back
from zkconsumer.testing.sandbox import Sandbox

ROW_COLUMNS = ("partition", "offset", "n")
LETTER_COLUMNS = ("partition", "offset", "query", "batch", "stage")


def read_state(file: Path, sandbox: Sandbox, topic: str, planned: dict[int, int]) -> PipelineState:
    """What there is now."""
    spec = read_pipeline(file)
    assert spec.dead_letters is not None, "each pipeline of the matrix has a place for dead letters"
    lineages, reservations = _lineages(spec.sink)
    checkpoint = Path(spec.checkpoint.path)
    return PipelineState(
        rows=sorted(_rows(spec.sink, sandbox), key=str),
        letters=sorted(_letters(spec.dead_letters, sandbox), key=str),
        lineages=lineages,
        letter_lineages=_lineages(spec.dead_letters)[0],
        reservations=reservations,
        group_offsets=sandbox.admin.offsets(topic, topic),
        planned=planned,
        checkpoint={
            f"{log}/{each.name}": each.read_text()
            for log in ("offsets", "commits")
            for each in sorted((checkpoint / log).glob("[0-9]*"))
        },
    )


def _rows(target: SinkTarget, sandbox: Sandbox) -> Iterator[FoundRow]:
    if isinstance(target, TopicTarget):
        assert target.topic is not None
        for record in read_back(sandbox.bootstrap, sandbox.brokers[0].release, target.topic, 1):
            values, headers = json.loads(record.value()), headers_of(record)
            place = f"/{values['partition']}/{values['offset']}".encode()
            assert headers["zkconsumer.source"].endswith(place), (headers, values)
            batch = headers["zkconsumer.query"].decode(), int(headers["zkconsumer.batch"])
            yield FoundRow(values["partition"], values["offset"], values["n"], batch)
        return
    for values in _table(target, ROW_COLUMNS):
        yield FoundRow(*values)


def _letters(target: SinkTarget, sandbox: Sandbox) -> Iterator[FoundLetter]:
    if isinstance(target, TopicTarget):
        assert target.topic is not None
        for record in read_back(sandbox.bootstrap, sandbox.brokers[0].release, target.topic, 1):
            values = json.loads(record.value())
            yield FoundLetter(*(values[name] for name in LETTER_COLUMNS))
        return
    for values in _table(target, LETTER_COLUMNS):
        yield FoundLetter(*values)


def _table(target: SinkTarget, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows of a table with these columns; none, if there is no table yet."""
    match target:
        case PostgresTarget():
            names = ", ".join(f'"{name}"' for name in columns)
            with connect_postgres(target) as connection:
                found = connection.execute("SELECT to_regclass(%s)", [f'"{target.schema}"."{target.table}"']).fetchone()
                if found == (None,):
                    return []
                return connection.execute(f'SELECT {names} FROM "{target.schema}"."{target.table}"').fetchall()
        case ParquetTarget():
            files = [uri.removeprefix("file://") for uri in committed_files(LocalFolderStore(target.path))]
        case DeltaTarget():
            files = [str(each) for each in _delta_files(_delta_folder(target))]
        case _:
            raise AssertionError(f"{target} is no table")
    if not files:
        return []
    found_columns = ds.dataset(files, format="parquet").to_table(columns=list(columns)).to_pydict()
    return list(zip(*(found_columns[name] for name in columns), strict=True))


def _lineages(target: SinkTarget) -> tuple[list[BatchLineage], list[BatchLineage]]:
    """Those of batches, and those of reservations."""
    if not isinstance(target, DeltaTarget):
        sink = open_sink(target, None)
        return list(sink.lineages()), list(sink.reservations())
    folder = _delta_folder(target)
    commits = (parse_commit((folder / commit_path(number)).read_bytes(), str(folder)) for number in _versions(folder))
    lineages = {each.lineage.key: each.lineage for each in commits if each is not None}
    store = LocalFolderStore(str(folder))
    reservations = FolderReservations(store, lambda query, batch: lineages.get((query, batch)), lambda _: None)
    return [lineages[key] for key in sorted(lineages)], list(reservations.all())


def _delta_folder(target: DeltaTarget) -> Path:
    assert target.path is not None, "the matrix names tables by their folder"
    return Path(target.path)


def _delta_files(folder: Path) -> list[Path]:
    """The files of the newest snapshot."""
    files: set[str] = set()
    for number in _versions(folder):
        for line in (folder / commit_path(number)).read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files.add(unquote(action["add"]["path"]))
            if "remove" in action:
                files.discard(unquote(action["remove"]["path"]))
    return [folder / each for each in sorted(files)]


def _versions(folder: Path) -> list[int]:
    log = folder / LOG_FOLDER
    return commit_versions(each.name for each in log.iterdir()) if log.exists() else []
