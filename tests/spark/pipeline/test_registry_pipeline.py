"""A pipeline with a real schema registry: each record is a row or a dead letter, whatever the registry does.

Most tests give the writer of batches a frame of records, without a group: what is tested is what a batch does.
"""

from __future__ import annotations

import io
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from bridge.commands import pipeline_check, pipeline_run
from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.batch_writer import (
    AFTER_DEAD_LETTERS,
    AFTER_WRITE,
    BatchParts,
    BatchWriter,
    MoreDeadLettersError,
    WrittenBatch,
)
from bridge.spark.pipeline.decode.decode_plan import decode_plan_of
from bridge.spark.pipeline.decode.decoded_frame import decode
from bridge.spark.pipeline.decode.schema_registry import SchemaRegistryRefused, SchemaRegistryUnavailable
from bridge.spark.pipeline.pipeline_file import parse_pipeline
from bridge.spark.pipeline.pipeline_query import dead_letter_schema, prepare_pipeline, start_pipeline
from bridge.spark.pipeline.pipeline_spec import PipelineSpec
from bridge.spark.pipeline.replay.dead_letter_reader import letter_places
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from bridge.spark.pipeline.sinks.sink_choice import open_sink
from bridge.spark.pipeline.transform import classify, plan_transform, written_rows
from bridge.spark.source.batch_ranges_file import StreamBatchRanges
from tests.registry_proxy import RegistryFault, RegistryProxy
from tests.spark.pipeline.test_decoded_frame import SOURCE
from tests.spark_session_fixtures import STARTS_MAX, TOO_SLOW
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.main import main as main_command
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.testing.sandbox.registry_process import SchemaRegistryServer
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.real

TP = TopicPartition("orders", 0)
END_MS = 120_000
LOOKUP_MS = 1_500
SLACK_S = 30
"""How long a batch may take beside the time that the registry gets."""

ID, ITEM, NOTE = ("id", "long"), ("item", ["null", "string"], None), ("note", "string")

FILE = """
[pipeline]
name = "{name}"
[source]
zookeeper.connect = "{zookeeper}"
group.id = "{name}"
subscribe = "{name}"
auto.offset.reset = "smallest"
[decode]
format = "avro"
schema = '{schema}'
rescued = "_rescued"
registry = "{registry}"
registry-read-timeout = "400ms"
registry-timeout = "{lookup_ms}ms"
registry-retries = 1
[transform]
select = ["id", "item", "_rescued"]
where = "id >= 0"
[sink]
format = "parquet"
path = "{folder}/rows"
[dead-letters]
{letters}
[trigger]
{trigger}
[checkpoint]
path = "{folder}/checkpoint"
"""


def avro_schema(*fields: Any, name: str = "Order") -> dict[str, Any]:
    """A record with these fields: (name, type) or (name, type, default)."""
    keys = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(keys, each, strict=False)) for each in fields]}


def framed(schema_id: int, schema: Any, **values: Any) -> bytes:
    """A record in Confluent's framing."""
    fastavro = pytest.importorskip("fastavro")
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema), values)
    return b"\0" + schema_id.to_bytes(4, "big") + bytes(made.getvalue())


class RegistryPlace:
    """Subjects of a registry that is reached through a proxy, a pipeline into parquet, and batches for it."""

    def __init__(
        self, spark: SparkSession, server: SchemaRegistryServer, proxy: RegistryProxy, name: str, folder: Path
    ) -> None:
        self.spark, self.server, self.proxy, self.name, self.folder = spark, server, proxy, name, folder
        self.schema = avro_schema(ID, ITEM)
        self.batches: list[WrittenBatch] = []

    def spec(self) -> PipelineSpec:
        return parse_pipeline(self.text(), "orders.toml")

    def text(self, zookeeper: str = "zk:2181", trigger: str = "available-now = true") -> str:
        return FILE.format(
            name=self.name, zookeeper=zookeeper, schema=json.dumps(self.schema), registry=self.proxy.url,
            lookup_ms=LOOKUP_MS, folder=self.folder, letters=f'format = "parquet"\npath = "{self.folder}/dead"',
            trigger=trigger,
        )  # fmt: skip

    def register(self, *fields: Any, subject: str = "", **more: Any) -> int:
        return self.server.register(f"{self.name}{subject}", avro_schema(*fields), **more)

    def write(
        self, batch: int, values: list[bytes | None], reached: Callable[[str, int], None] = lambda _point, _batch: None
    ) -> None:
        """One attempt of a batch whose records have the offsets from 100 * ``batch`` on."""
        first = 100 * batch
        rows = [(None, value, *TP, first + number, None, 0, None) for number, value in enumerate(values)]
        frame = self.spark.createDataFrame(rows, SOURCE).coalesce(1)
        spec = self.spec()
        plan = decode_plan_of(spec, self.spark)
        decoded = decode(frame, plan, with_payloads=False)
        transform = plan_transform(decoded, plan, spec.transform)
        assert spec.dead_letters is not None
        sink, dead_letters = open_sink(spec.sink, self.spark), open_sink(spec.dead_letters, self.spark)
        sink.prepare(written_rows(classify(decoded, transform), transform).schema)
        dead_letters.prepare(dead_letter_schema())
        ranges = StreamBatchRanges(self.name, "q", batch, "claim", (OffsetRange(TP, first, first + len(values)),), 0)
        parts = BatchParts(
            pipeline=self.name,
            decoding=plan,
            transform=transform,
            sink=sink,
            dead_letters=dead_letters,
            query_id=lambda: "q",
            ranges=lambda: ranges,
            wall_ms=SYSTEM_CLOCK.wall_ms,
            new_attempt=lambda: uuid4().hex,
            reached=reached,
            letter_places=partial(letter_places, spec, self.spark),
        )
        BatchWriter(parts, self.batches.append)(frame, batch)

    def rows(self) -> list[Row]:
        return sorted(read_parquet_table(self.spark, f"{self.folder}/rows").collect(), key=lambda row: row.id)

    def letters(self) -> list[Row]:
        return sorted(read_parquet_table(self.spark, f"{self.folder}/dead").collect(), key=lambda row: row.offset)

    def counted(self, records: int) -> tuple[list[Row], list[Row]]:
        """The rows and the dead letters.

        Each record is a row, a dead letter or filtered, once, and the lineages have these numbers.
        """
        spec = self.spec()
        lineages = list(open_sink(spec.sink, self.spark).lineages())
        assert len({each.key for each in lineages}) == len(lineages)
        counts = [each.counts for each in lineages]
        rows, letters = self.rows(), self.letters()
        assert sum(each.rows for each in counts) == len(rows) == len({row.id for row in rows})
        assert sum(each.dead_letters for each in counts) == len(letters) == len({row.offset for row in letters})
        assert len(rows) + len(letters) + sum(each.filtered for each in counts) == records
        assert sum(each.offsets for each in lineages) == records
        return rows, letters

    def is_empty(self) -> bool:
        """No batch is committed, neither of rows nor of dead letters."""
        return not self.batches and not list(self.folder.glob("*/_zkconsumer/batches/**/*.json"))


@pytest.fixture
def place(
    spark: SparkSession,
    registry_server: SchemaRegistryServer,
    proxied_registry: RegistryProxy,
    fresh_name: str,
    tmp_path: Path,
) -> RegistryPlace:
    return RegistryPlace(spark, registry_server, proxied_registry, fresh_name[-40:], tmp_path)


@pytest.fixture
def new_workers(spark: SparkSession) -> Iterator[None]:
    """Each task has a worker of its own, which has no schema in its cache."""
    settings = spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    before = settings.get("spark.python.worker.reuse", "true")
    settings.set("spark.python.worker.reuse", "false")
    yield
    settings.set("spark.python.worker.reuse", before)


def test_one_batch_has_records_of_many_schemas_and_each_is_decoded_by_its_own(place: RegistryPlace) -> None:
    same, more = avro_schema(ID, ITEM), avro_schema(ID, ITEM, NOTE)
    narrow, text = avro_schema(("id", "int")), avro_schema(("id", "string"))
    ids = [place.server.register(place.name, each) for each in (same, more, narrow, text)]
    city = avro_schema(("city", "string"), name="Place")
    place.server.register(f"{place.name}-place", city)
    nested_id = place.server.register(
        f"{place.name}-nested",
        avro_schema(ID, ("place", "Place")),
        references=[{"name": "Place", "subject": f"{place.name}-place", "version": 1}],
    )
    json_schema = {"$schema": "http://json-schema.org/draft-07/schema#"}
    json_id = place.server.register(f"{place.name}-json", json_schema, kind="JSON")
    place.write(0, [
        framed(ids[0], same, id=1, item="a"),
        framed(ids[1], more, id=2, item=None, note="n"),
        framed(ids[2], narrow, id=3),
        framed(nested_id, avro_schema(ID, ("place", city)), id=4, place={"city": "Ulm"}),
        framed(ids[0], same, id=-5, item=None),
        None,
        framed(ids[3], text, id="6"),
        framed(json_id, same, id=7, item=None),
        framed(999_999, same, id=8, item=None),
        b'{"id": 9}',
        framed(ids[0], same, id=10, item="cut")[:-1],
        framed(ids[1], more, id=11, item=None, note="n"),
    ])  # fmt: skip
    rows, letters = place.counted(12)
    assert [tuple(row) for row in rows] == [
        (1, "a", None), (2, None, '{"note":"n"}'), (3, None, None), (4, None, '{"place":{"city":"Ulm"}}'),
        (11, None, '{"note":"n"}'),
    ]  # fmt: skip
    assert [(row.offset, row.stage) for row in letters] == [(offset, "decode") for offset in range(6, 11)]
    words = (
        f"schema id {ids[3]}: field id: the writer's type is string, and the pipeline's is long",
        f"schema id {json_id}: it is a schema of type 'JSON', not of Avro",
        "schema id 999999: there is no schema of this id in the registry",
        "the payload has no schema id: its first byte is 123",
        f"schema id {ids[0]}: the payload ends within the record",
    )
    assert [row.error.startswith(f"value: {each}") for row, each in zip(letters, words, strict=True)] == [True] * 5
    assert len(place.proxy.paths) <= 2 * 8, "a worker asks once for each id, and once for the reference"


FAULTS = {
    RegistryFault.NO_SUCH_PATH: (SchemaRegistryRefused, r"has no schema registry at this path; correct the prefix"),
    RegistryFault.ERROR: (
        SchemaRegistryUnavailable,
        r"answers 500: 'no space left' \(2 attempts for schema id \d+\); ",
    ),
    RegistryFault.SILENCE: (
        SchemaRegistryUnavailable,
        r"does not answer in time \(2 attempts .* must start the registry",
    ),
    RegistryFault.CLOSED: (SchemaRegistryUnavailable, r"RemoteDisconnected \(2 attempts .* must start the registry"),
}
"""What a batch ends with."""


def orders(place: RegistryPlace, ids: range) -> list[bytes | None]:
    schema = avro_schema(ID, ITEM)
    schema_id = place.server.register(place.name, schema)
    return [framed(schema_id, schema, id=number, item="x") for number in ids]


def test_a_registry_that_fails_fails_the_batch_in_one_line_and_the_batch_goes_on_later(
    place: RegistryPlace, new_workers: None
) -> None:
    values = [*orders(place, range(5)), b"broken"]
    for fault, (kind, words) in FAULTS.items():
        place.proxy.fault = fault
        start = time.monotonic()
        with pytest.raises(kind, match=words) as raised:
            place.write(0, values)
        assert time.monotonic() - start < LOOKUP_MS / 1000 + SLACK_S
        assert str(raised.value).startswith(f"the schema registry {place.proxy.url}: ")
        assert "\n" not in str(raised.value)
        assert place.is_empty()
    place.proxy.fault = RegistryFault.NONE
    place.write(0, values)
    place.proxy.fault = RegistryFault.ERROR
    place.write(0, values)
    assert [each.is_repeated for each in place.batches] == [False, True], "a batch that is there is not read again"
    place.counted(6)


def at(point: str, action: Callable[[], object]) -> Callable[[str, int], None]:
    """Does something at this point of a batch."""

    def reached(found: str, _: int) -> None:
        if found == point:
            action()

    return reached


def crash() -> None:
    raise InterruptedError("the driver ends here")


def test_a_registry_that_dies_between_the_passes_of_a_batch_loses_nothing_and_doubles_nothing(
    place: RegistryPlace, new_workers: None
) -> None:
    def fail() -> None:
        place.proxy.fault = RegistryFault.ERROR

    values = [*orders(place, range(5)), b"broken"]
    with pytest.raises(SchemaRegistryUnavailable, match="answers 500"):
        place.write(0, values, at(AFTER_WRITE, fail))
    assert place.is_empty()
    place.proxy.fault = RegistryFault.NONE
    place.write(0, values, at(AFTER_DEAD_LETTERS, fail))
    place.counted(6)


@pytest.mark.nightly
def test_a_schema_that_is_registered_between_the_passes_fails_the_attempt_and_the_next_one_has_rows(
    place: RegistryPlace, new_workers: None
) -> None:
    def register() -> None:
        place.proxy.fault = RegistryFault.NONE

    values = orders(place, range(3))
    place.proxy.fault = RegistryFault.NO_SUCH_ID
    with pytest.raises(PreconditionFailed, match="had 3 dead letters, and 0 when it was read again; nothing was comm"):
        place.write(0, values, at(AFTER_WRITE, register))
    assert place.is_empty()
    place.write(0, values)
    assert (len(place.rows()), place.letters()) == (3, [])


def test_committed_dead_letters_stay_dead_letters_although_their_schema_was_registered_since(
    place: RegistryPlace, new_workers: None
) -> None:
    values = [*orders(place, range(3)), b"broken"]
    place.proxy.fault = RegistryFault.NO_SUCH_ID
    with pytest.raises(InterruptedError):
        place.write(0, values, at(AFTER_DEAD_LETTERS, crash))
    place.proxy.fault = RegistryFault.NONE
    place.write(0, values)
    rows, letters = place.counted(4)
    assert (rows, len(letters)) == ([], 4)


@pytest.mark.nightly
def test_a_schema_that_was_deleted_after_dead_letters_were_committed_fails_the_batch_and_loses_nothing(
    place: RegistryPlace, new_workers: None
) -> None:
    values = [*orders(place, range(3)), b"broken"]
    with pytest.raises(InterruptedError):
        place.write(0, values, at(AFTER_DEAD_LETTERS, crash))
    place.proxy.fault = RegistryFault.NO_SUCH_ID
    words = r"the 1 dead letters of an earlier attempt are committed.*orders/0 offset 0, stage decode: value: schema id"
    with pytest.raises(MoreDeadLettersError, match=words):
        place.write(0, values)
    assert place.batches == []
    place.proxy.fault = RegistryFault.NONE
    place.write(0, values)
    assert [row.id for row in place.counted(4)[0]] == [0, 1, 2]


# --- with a group -------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_schema_that_evolves_while_the_query_runs_changes_no_column_of_the_table(
    place: RegistryPlace, shared_cluster: Sandbox
) -> None:
    shared_cluster.create_topic(place.name, 1)
    text = place.text(shared_cluster.zookeeper.connect_string("/kafka"), 'interval = "200ms"')
    prepared = prepare_pipeline(place.spark, parse_pipeline(text, "orders.toml"), {}, lambda _path: b"")
    running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=place.batches.append)

    def produce(*values: bytes) -> None:
        before = sum(each.lineage.offsets for each in place.batches)
        shared_cluster.produce(place.name, 0, list(values))
        wait_until(
            lambda: not running.wait(100)
            and sum(each.lineage.offsets for each in place.batches) == before + len(values),
            f"{len(values)} more records", END_MS,
        )  # fmt: skip

    try:
        same, more, text_id = avro_schema(ID, ITEM), avro_schema(ID, ITEM, NOTE), avro_schema(("id", "string"))
        first = place.server.register(place.name, same)
        produce(framed(first, same, id=1, item="a"))
        second = place.server.register(place.name, more)
        third = place.server.register(place.name, text_id)
        produce(
            framed(second, more, id=2, item="b", note="new"), framed(third, text_id, id="3"),
            framed(first, same, id=4, item=None),
        )  # fmt: skip
        assert running.stop(END_MS, SYSTEM_CLOCK.now_ms)
    finally:
        running.query.stop()
        prepared.close()
    assert len(place.batches) >= 2
    rows, [letter] = place.counted(4)
    assert [tuple(row) for row in rows] == [(1, "a", None), (2, "b", '{"note":"new"}'), (4, None, None)]
    assert (letter.offset, letter.value) == (2, framed(third, text_id, id="3"))
    assert letter.error.startswith(f"value: schema id {third}: field id: the writer's type is string")


@pytest.mark.nightly
def test_check_and_run_end_with_one_line_and_a_code_and_run_continues_when_the_registry_answers(
    place: RegistryPlace, shared_cluster: Sandbox, new_workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared_session(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield place.spark

    for module in (pipeline_check, pipeline_run):
        monkeypatch.setattr(module, "pipeline_spark_session", shared_session)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    shared_cluster.create_topic(place.name, 1)
    values = [*orders(place, range(3)), b"broken"]
    shared_cluster.produce(place.name, 0, [each for each in values if each is not None])
    file = place.folder / "orders.toml"
    file.write_text(place.text(shared_cluster.zookeeper.connect_string("/kafka")))

    def result_of(command: str) -> tuple[int, list[str]]:
        for _ in range(STARTS_MAX):
            found = CliRunner().invoke(main_command, ["pipeline", command, str(file)])
            if TOO_SLOW not in found.stderr:
                break
        return found.exit_code, found.stderr.splitlines()

    for fault, (kind, words) in FAULTS.items():
        place.proxy.fault = fault
        code, lines = result_of("check")
        assert (code, len(lines)) == (kind.exit_code, 1), lines
        assert re.search(words, lines[0])
    code, lines = result_of("run")
    assert (code, len(lines)) == (1, 1), lines
    assert re.search(FAULTS[fault][1], lines[0])
    assert place.is_empty()
    place.proxy.fault = RegistryFault.NONE
    code, lines = result_of("run")
    assert (code, lines[-1]) == (0, f"{place.name}: 1 batches, 3 rows, 1 dead letters, 0 filtered")
    place.counted(4)
