"""The recorder writes what both stores accepted, and nothing that they refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bridge.migration.fences.fence_record import FenceRecord, format_fence_record
from bridge.testing import HistoryRecorder
from tests.broker.raw_client import RawClient
from tests.migration.placeholder_fixtures import GROUP, PlaceholderFixture
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.testing.checker import (
    ControlWritten,
    Fenced,
    HistoryEvent,
    HistoryNote,
    MemberDeclared,
    OffsetCommitted,
    Unfenced,
    read_history,
)
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CheckOp, Create, CreateOp, Delete, Multi, SetData, SetOp
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, format_control

T0 = TopicPartition("t", 0)


def told(recorder: HistoryRecorder) -> list[HistoryEvent]:
    assert [event.t for event in recorder.events] == sorted({event.t for event in recorder.events}), "times grow"
    return [replace(event, t=0) for event in recorder.events]


def test_accepted_writes_to_zookeeper_are_recorded_with_their_member() -> None:
    zookeeper, recorder = FakeZooKeeper(), HistoryRecorder(GROUP)
    zookeeper.ensure(paths.owners_of_topic(GROUP, "t"))
    zookeeper.ensure(paths.offset(GROUP, T0), b"5")
    zookeeper.ensure(paths.offset("other", T0), b"5")
    zookeeper.on_changes = recorder.zookeeper_callback(zookeeper)
    store = FakeZkStore(zookeeper)
    store.start(1_000)
    recorder.member("tool", "migrator", store.session_id)
    offset, owner, child = paths.offset(GROUP, T0), paths.owner(GROUP, T0), paths.fence_child(GROUP, T0)
    control = format_control(ControlRecord("m1", 2, "fencing", "zookeeper", "copy"))
    submit_and_wait(store, [
        SetData(offset, b"6", -1),
        SetData(offset, b"7", 99),
        Multi((SetOp(offset, b"8", -1), CheckOp(offset, 99))),
        SetData(paths.offset("other", T0), b"9", -1),
        *map(Create, paths.parents(paths.control(GROUP))),
        Create(paths.control(GROUP), control),
        Multi((CreateOp(owner, format_fence_record(FenceRecord("m1", 2))), CreateOp(child))),
        Delete(child),
        SetData(offset, b"-1", -1),
        SetData(offset, b"abc", -1),
    ], 1_000)  # fmt: skip
    zookeeper.ensure(offset, b"10")
    assert told(recorder) == [
        MemberDeclared(0, "tool", "migrator"),
        OffsetCommitted(0, "t", 0, 6, "tool", store="zookeeper"),
        ControlWritten(0, 2, "fencing", "zookeeper", "m1", "copy"),
        Fenced(0, "zookeeper", "t", 0),
        Unfenced(0, "zookeeper", "t", 0),
        HistoryNote(0, "t/0: tool stored -1 in zookeeper, which is no offset"),
        HistoryNote(0, f"{offset}, written by tool: b'abc' (3 bytes) is no number"),
        OffsetCommitted(0, "t", 0, 10, None, store="zookeeper"),
    ]


def test_the_end_of_a_session_lifts_no_fence_and_its_claims_are_no_lines() -> None:
    zookeeper, recorder = FakeZooKeeper(), HistoryRecorder(GROUP)
    zookeeper.ensure(paths.owners_of_topic(GROUP, "t"))
    zookeeper.on_changes = recorder.zookeeper_callback(zookeeper)
    store = FakeZkStore(zookeeper)
    store.start(1_000)
    submit_and_wait(store, [Create(paths.owner(GROUP, T0), b"old", ephemeral=True)], 1_000)
    store.close(1_000)
    assert recorder.events == []


def test_accepted_commits_are_recorded_and_the_placeholder_is_a_fence(env: PlaceholderFixture, tmp_path: Path) -> None:
    recorder = HistoryRecorder(GROUP)
    recorder.member("tool", "migrator")
    names = {"stock": None, "other": None}
    env.broker.on_group_response(recorder.kafka_callback(lambda asked, body: names.get(asked.client_id, "tool")))

    def commit(offset: int) -> int:
        with RawClient(env.broker.addresses()[0], "stock") as talk:
            while talk.find_coordinator(GROUP, version=0).error_code:
                pass
            return talk.commit(GROUP, "t", 0, offset, version=2)

    with env.process() as session:
        seat = env.seat(session)
        assert commit(1) == 0
        seat.join()
        assert commit(2) == 25, "refused, and no line"
        seat.commit({T0: OffsetAndMetadata(3, "")})
        seat.join()  # replaces its own placeholder: it had not left
        seat.leave()
        assert commit(4) == 0
    assert told(recorder) == [
        MemberDeclared(0, "tool", "migrator"),
        OffsetCommitted(0, "t", 0, 1, None, store="kafka"),
        Fenced(0, "kafka"),
        OffsetCommitted(0, "t", 0, 3, "tool", store="kafka"),
        Unfenced(0, "kafka"),
        OffsetCommitted(0, "t", 0, 4, None, store="kafka"),
    ]
    recorder.save(tmp_path / "history.jsonl")
    assert read_history(tmp_path / "history.jsonl") == recorder.events
