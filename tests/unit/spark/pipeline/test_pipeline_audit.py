"""``zkconsumer pipeline audit`` with servers in memory: each reason from a log, its exit code, and its limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.audit import audit_run
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, partition_ranges
from bridge.testing.fake_environment import FakeEnvironment
from tests.delta_log_fixtures import DeltaTableFiles
from tests.pipeline_audit_fixtures import TOPIC, TP, PipelineInMemory
from tests.transactional_records import ABORT, COMMIT, Transactions, marker
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.cli.main import main
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.schemas import FETCH


@dataclass
class Audit:
    """The exit code and the document of one call."""

    code: int
    document: dict[str, Any]
    stderr: str

    @property
    def findings(self) -> list[tuple[str, int | None, int | None, int]]:
        return [(each["reason"], each["first"], each["end"], each["offsets"]) for each in self.document["findings"]]


@dataclass
class AuditPlace:
    """A pipeline, and the calls of its audit."""

    pipeline: PipelineInMemory
    world: FakeEnvironment
    dependencies: AdminDependencies = field(init=False)

    def __post_init__(self) -> None:
        self.dependencies = AdminDependencies(store=self.world.store, connect=self.world.connect)

    def call(self, *more: str) -> Result:
        words = ["pipeline", "audit", str(self.pipeline.file), "--by", "none", *more]
        done = CliRunner().invoke(main, words, obj=self.dependencies)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def audit(self, *more: str) -> Audit:
        done = self.call("--json", *more)
        return Audit(done.exit_code, json.loads(done.stdout), done.stderr)


@pytest.fixture
def release() -> str:
    return "3.9.1"


@pytest.fixture
def place(release: str, tmp_path: Path) -> Iterator[AuditPlace]:
    with FakeEnvironment(release=release) as world:
        world.create_topic(TOPIC, 1)
        yield AuditPlace(PipelineInMemory(world, tmp_path), world)


def test_a_complete_pipeline_is_explained_without_reading_the_log(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 10)
    place.pipeline.commit(0, {TP: (0, 10)})
    place.pipeline.set_offset(10)
    found = place.audit("--log-mebibytes", "0")
    assert (found.code, found.findings) == (0, [])
    assert found.document["rows"] == found.document["rows_in_sink"] == 10
    assert found.document["is_explained"] is True
    assert not [each for each in place.world.cluster.requests if each.api == FETCH], "no Fetch"


def test_the_table_shows_the_partitions_and_the_result(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 10)
    place.pipeline.commit(0, {TP: (0, 6)}, dead=1)
    place.pipeline.commit(0, {TP: (0, 6)}, rows=1, table="dead")
    place.pipeline.set_offset(6)
    done = place.call()
    assert done.exit_code == 0
    assert "clicks  0          0          10       6           0          4     0" in done.stdout
    assert "not-yet-read  clicks/0" in done.stdout
    assert "clicks: every gap is explained" in done.stderr


def test_transactions_close_by_the_headers_of_the_log(place: AuditPlace) -> None:
    made = Transactions(place.world.cluster, TOPIC)
    made.records(7, 3)
    made.append(marker(3, 7, ABORT), 1)
    made.records(8, 2)
    made.append(marker(6, 8, COMMIT), 1)
    place.pipeline.write_file(source='"kafka.isolation.level" = "read_committed"')
    place.pipeline.commit(0, {TP: (0, 7)}, rows=2)
    place.pipeline.set_offset(7)
    found = place.audit()
    assert found.findings == [("transaction-markers", 0, 7, 2), ("aborted-transactions", 0, 7, 3)]
    assert found.code == 0
    place.pipeline.write_file()
    assert ("unexplained", 0, 7, 3) in place.audit().findings, "a reader of all records had to read the aborted ones"


def test_compaction_closes_and_a_lost_record_does_not(place: AuditPlace) -> None:
    records = [Record(offset, 0, 0, b"k", b"v") for offset in (0, 4, 9)]
    for each in records:
        place.world.cluster.append_records(TOPIC, 0, [each])
    place.pipeline.commit(0, {TP: (0, 10)}, rows=3)
    place.pipeline.set_offset(10)
    found = place.audit()
    assert (found.code, found.findings) == (0, [("compaction", 0, 10, 7)])
    assert found.document["partitions"][0]["absent"] == 7
    place.pipeline.commit(0, {TP: (0, 10)}, rows=2)
    found = place.audit()
    assert (found.code, found.findings) == (3, [("compaction", 0, 10, 7), ("unexplained", 0, 10, 1)])


@pytest.mark.parametrize("release", ["0.8.2.2", "1.1.1"])
def test_old_brokers_answer_too(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 4, codec=1)
    place.world.cluster.append(TOPIC, 0, [b"v"] * 4)
    place.pipeline.commit(0, {TP: (0, 8)}, rows=7)
    place.pipeline.set_offset(8)
    found = place.audit("--by", "day")
    assert (found.code, found.findings) == (3, [("unexplained", 0, 8, 1)])


def test_retention_before_and_after_reading(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 10)
    place.world.cluster.append(TOPIC, 0, [b"v"] * 10)
    place.pipeline.commit(0, {TP: (0, 10)}, rows=9)
    place.pipeline.set_offset(10)
    place.world.cluster.delete_before(TOPIC, 0, 10)
    found = place.audit()
    assert (found.code, found.findings) == (0, [("not-yet-read", 10, 20, 10), ("retention", 0, 10, 1)])
    place.world.cluster.delete_before(TOPIC, 0, 20)
    assert place.audit().findings == [("retention", 10, 20, 10), ("retention", 0, 10, 1)]


def test_the_limit_of_bytes_leaves_ranges_that_are_not_checked(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 10)
    place.pipeline.commit(0, {TP: (0, 10)}, rows=9)
    place.pipeline.set_offset(10)
    found = place.audit("--log-mebibytes", "0")
    assert (found.code, found.findings) == (1, [("not-checked", None, None, 1)])
    assert "--log-mebibytes" in found.document["findings"][0]["text"]


def test_files_that_are_missing_shorter_or_damaged(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 30)
    files = [place.pipeline.commit(batch, {TP: (batch * 10, batch * 10 + 10)}) for batch in range(3)]
    place.pipeline.set_offset(30)
    assert place.audit().code == 0
    files[0].unlink()
    files[1].write_bytes(b"PAR1 broken")
    files[2].write_bytes(
        place.pipeline.commit(0, {TopicPartition("x", 0): (0, 4)}, query="z", table="other").read_bytes()
    )
    found = place.audit()
    assert found.code == 3
    assert [each[0] for each in found.findings] == ["rows-missing"] * 3
    assert sum(each[3] for each in found.findings) == 10 + 10 + 6


def test_a_file_whose_footer_is_damaged_is_missing_and_hides_no_other_file(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 20)
    files = [place.pipeline.commit(batch, {TP: (batch * 10, batch * 10 + 10)}) for batch in range(2)]
    place.pipeline.set_offset(20)
    data = bytearray(files[0].read_bytes())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[start:-8] = bytes(byte ^ 0xFF for byte in data[start:-8])
    files[0].write_bytes(data)
    files[1].unlink()
    found = place.audit()
    assert (found.code, [each[0] for each in found.findings]) == (3, ["rows-missing"] * 2)
    assert "the file is no complete parquet file" in found.document["findings"][0]["text"]


@pytest.mark.parametrize("kind", ["path", "table"])
def test_a_delta_table_is_audited_without_spark(place: AuditPlace, kind: str) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 30)
    place.pipeline.write_file(rows=f'format = "delta"\n{kind} = "rows"')
    place.pipeline.set_offset(30)
    if kind == "table":
        done = place.call()
        assert done.exit_code == 4
        assert "the folder of the Delta table rows is not known without Spark" in done.stderr
        file = place.pipeline.folder / "checkpoint-lineage/sink/delta-table"
        file.parent.mkdir(parents=True)
        file.write_text(f"file://{place.pipeline.folder}/rows\n")
    assert place.audit().findings == [("other-members", 0, 30, 30)], "there is no table yet"
    table = DeltaTableFiles(place.pipeline.folder / "rows")
    for batch in range(3):
        ranges = partition_ranges([OffsetRange(TP, 10 * batch, 10 * batch + 10)])
        counts = BatchCounts(10)
        table.batch(BatchLineage("q", batch, "batch", "clicks", "claim", "a", 1, ranges, counts), is_copied=batch < 2)
    found = place.audit()
    assert (found.code, found.findings, found.document["rows_in_sink"]) == (0, [], 30)
    table.optimize()
    table.vacuum()
    assert place.audit() == found
    table.delete(4)
    found = place.audit()
    assert (found.code, found.findings) == (3, [("rows-missing", None, None, 4)])
    table.commit({"protocol": {"minReaderVersion": 3, "readerFeatures": ["future"]}})
    found = place.audit()
    assert (found.code, found.findings) == (1, [("not-checked", None, None, 0)])


def test_dead_letters_that_are_not_in_their_table(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 10)
    place.pipeline.commit(0, {TP: (0, 10)}, dead=2)
    place.pipeline.set_offset(10)
    assert ("rows-missing", None, None, 2) in place.audit().findings
    place.pipeline.commit(0, {TP: (0, 2)}, table="dead")
    assert place.audit().findings == [("dead-letters", None, None, 2)]


def test_the_checkpoint_and_reservations_explain(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 40)
    place.pipeline.checkpoint({0: (10, 20)}, {1: (20, 30)})
    place.pipeline.commit(0, {TP: (10, 20)})
    place.pipeline.reserve({TP: (0, 5)})
    place.pipeline.set_offset(30)
    found = place.audit()
    assert found.findings == [
        ("reserved", 0, 5, 5), ("before-start", 5, 10, 5), ("in-progress", 20, 30, 10), ("not-yet-read", 30, 40, 10),
    ]  # fmt: skip
    assert found.code == 0


def test_a_sink_that_is_older_than_the_checkpoint(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 20)
    place.pipeline.checkpoint({0: (0, 10), 1: (10, 20)})
    place.pipeline.commit(0, {TP: (0, 10)})
    place.pipeline.set_offset(20)
    found = place.audit()
    assert found.code == 3
    assert "the checkpoint has finished batch 1" in found.document["findings"][-1]["text"]


def test_a_topic_that_was_deleted_and_created_again(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 20)
    place.pipeline.commit(0, {TP: (0, 20)})
    place.pipeline.set_offset(20)
    place.world.cluster.delete_topic(TOPIC)
    assert place.audit().findings == [("topic-deleted", None, None, 20)]
    place.world.cluster.create_topic(TOPIC, 1)
    found = place.audit()
    assert (found.code, found.findings) == (3, [("unexplained", 0, 20, 20)])


def test_a_pipeline_that_has_never_run(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 20)
    found = place.audit()
    assert (found.code, found.findings) == (0, [("not-yet-read", 0, 20, 20)])


def test_without_a_broker_nothing_is_checked(place: AuditPlace) -> None:
    place.world.cluster.stop_broker(0)
    found = place.audit()
    assert found.code == 1
    assert found.document["schema"] == "zkconsumer/error/1"


def test_days_have_the_offsets_of_their_messages(place: AuditPlace) -> None:
    day = 86_400_000
    start = place.dependencies.clock.wall_ms() // day * day
    place.world.cluster.append(TOPIC, 0, [b"v"] * 4, timestamp_ms=start - 2 * day)
    place.world.cluster.append(TOPIC, 0, [b"v"] * 6, timestamp_ms=start)
    place.pipeline.commit(0, {TP: (0, 7)})
    place.pipeline.set_offset(7)
    found = place.audit("--by", "day").document["buckets"]
    assert [(each["offsets"], each["covered"], each["gaps"]) for each in found] == [
        (4, 4, {}), (6, 3, {"not-yet-read": 3}),
    ]  # fmt: skip


def test_a_damaged_manifest_is_a_precondition(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 4)
    place.pipeline.commit(0, {TP: (0, 4)})
    [manifest] = (place.pipeline.folder / "rows").glob("_zkconsumer/batches/*/*.json")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    done = place.call()
    assert done.exit_code == 4
    assert "the lineage cannot be read" in done.stderr


def test_facts_are_read_before_those_that_explain_them(place: AuditPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is committed between two reads must never be a gap."""
    read: list[str] = []

    def noted(name: str) -> None:
        found = getattr(audit_run, name)

        def call(*given: Any) -> Any:
            read.append(name)
            return found(*given)

        monkeypatch.setattr(audit_run, name, call)

    for name in ("read_pipeline_checkpoint", "read_group", "count_stored_rows", "read_logs"):
        noted(name)
    found = audit_run.LineageTotals
    monkeypatch.setattr(audit_run, "LineageTotals", lambda: (read.append("lineages"), found())[1])
    place.audit()
    assert read == [
        "read_pipeline_checkpoint", "read_group", "lineages", "count_stored_rows", "count_stored_rows", "read_logs",
    ]  # fmt: skip


def test_an_audit_ends_its_session(place: AuditPlace) -> None:
    place.world.cluster.append(TOPIC, 0, [b"v"] * 4)
    place.audit()
    assert place.world.stores
    assert all(isinstance(store, FakeZkStore) and store.session_id is None for store in place.world.stores)
