"""The fetcher of ``poll``: requests, buffered records, positions and errors, as FetcherTest of Kafka requires it."""

from __future__ import annotations

import struct
import threading

import pytest

from tests.poll_fetcher_fixtures import (
    NEXT_RECORDS,
    PARTIAL_RECORD,
    RECORDS,
    TOPIC,
    TP0,
    TP1,
    TP2,
    TP3,
    PollFetcher,
    fetch_response,
    full_fetch_response,
    offsets_of,
    partition_response,
    record_set,
    values_of,
    with_epoch,
)
from tests.transactional_records import ABORT, batch, marker
from zkconsumer.errors import (
    AuthenticationException,
    KafkaException,
    OffsetOutOfRangeException,
    RecordDeserializationException,
    RecordTooLargeException,
    SaslAuthenticationException,
    TopicAuthorizationException,
)
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    INCONSISTENT_TOPIC_ID,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    REPLICA_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ErrorCode,
)
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.fetch_requests import select_read_replica
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.record_set_reader import TABLE_ROWS_MAX, RecordSetReader, RowBuffers
from zkconsumer.kafka.metadata.node import NO_NODE, Node
from zkconsumer.kafka.supported_versions import VersionRange
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchPartitionResponse

ID_1, ID_2 = bytes([1]) * 16, bytes([2]) * 16


def assigned(**fields: object) -> PollFetcher:
    """A fetcher that reads ``TP0`` from offset 0."""
    made = PollFetcher(**fields)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 0)
    return made


# --- records --------------------------------------------------------------------------------------------------------


def test_fetched_records_are_returned_and_move_the_position() -> None:
    made = assigned()
    assert made.fetcher.send_fetches() == 1
    assert not made.fetcher.has_completed_fetches
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert made.fetcher.has_completed_fetches
    found = made.fetcher.fetched_records()
    assert list(found) == [TP0]
    assert offsets_of(found[TP0]) == [1, 2, 3]
    assert made.position() == 4


def test_records_of_the_old_formats_have_no_leader_epoch() -> None:
    made = assigned()
    found = made.fetch(full_fetch_response(TP0, record_set(0, 2, magic=0)))
    assert [record.leader_epoch for record in found[TP0]] == [None, None]
    assert found[TP0][1].leader_epoch is None
    assert made.subscriptions.position(TP0).offset_epoch is None


def test_each_record_has_the_leader_epoch_of_its_batch() -> None:
    made = assigned()
    batches = record_set(0, 2, epoch=1) + record_set(2, 1, epoch=8) + record_set(3, 3, epoch=13)
    found = made.fetch(full_fetch_response(TP0, batches))[TP0]
    assert [record.leader_epoch for record in found] == [1, 1, 8, 13, 13, 13]
    assert [found[index].leader_epoch for index in range(6)] == [1, 1, 8, 13, 13, 13]


def test_the_position_has_the_epoch_of_the_last_returned_record() -> None:
    made = assigned(max_poll_records=2)
    made.receive(full_fetch_response(TP0, record_set(0, 2, epoch=1) + record_set(2, 1, epoch=3)))
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [0, 1]
    assert made.subscriptions.position(TP0).offset_epoch == 1
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [2]
    assert made.subscriptions.position(TP0).offset_epoch == 3


def test_the_epoch_of_the_records_becomes_that_of_the_position() -> None:
    made = PollFetcher()
    made.assign(TP0, epoch=1)
    made.subscriptions.seek(TP0, 0)
    made.fetch(full_fetch_response(TP0, record_set(0, 3, epoch=1)))
    position = made.subscriptions.position(TP0)
    assert (position.offset, position.offset_epoch, position.current_leader.epoch) == (3, 1, 1)


def test_headers_are_returned_with_their_records() -> None:
    made = assigned()
    one = (("name", b"first"),)
    two = (("name", b"first"), ("name", b"second"), ("empty", None))
    records = [Record(1 + n, 0, 0, b"k", b"v", headers) for n, headers in enumerate([(), one, two])]
    found = made.fetch(full_fetch_response(TP0, build_record_set(records, 2)))[TP0]
    assert [record.headers for record in found] == [(), one, two]
    assert [found[index].headers for index in range(3)] == [(), one, two]


def test_no_more_than_max_poll_records_are_returned_and_the_rest_follows() -> None:
    made = PollFetcher(max_poll_records=2)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    found = made.fetch(full_fetch_response(TP0, RECORDS))
    assert offsets_of(found[TP0]) == [1, 2]
    assert made.position() == 3
    assert made.fetcher.send_fetches() == 0, "a record is buffered"
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [3]
    assert made.position() == 4
    made.kafka.prepare(full_fetch_response(TP0, NEXT_RECORDS))
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [4, 5]
    assert made.position() == 6


@pytest.mark.parametrize("interrupted_list", [0, 1, 2])
def test_records_that_an_interrupted_call_has_skipped_are_fetched_again(
    monkeypatch: pytest.MonkeyPatch, interrupted_list: int
) -> None:
    made = assigned(max_poll_records=2)
    made.receive(full_fetch_response(TP0, record_set(0, 6)))
    for first in range(0, 2 * interrupted_list, 2):
        assert offsets_of(made.fetcher.fetched_records()[TP0]) == [first, first + 1]
    skip = RecordSetReader.skip

    def skip_and_raise(reader: RecordSetReader, size: int) -> None:
        skip(reader, size)
        raise KeyboardInterrupt  # of a signal handler, which may run at any time

    with monkeypatch.context() as patch:
        patch.setattr(RecordSetReader, "skip", skip_and_raise)
        with pytest.raises(KeyboardInterrupt):
            made.fetcher.fetched_records()
    assert made.position() == 2 * interrupted_list
    assert made.fetcher.fetched_records() == {}, "its records are not those of the position"
    made.receive(full_fetch_response(TP0, record_set(0, 6)))
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [2 * interrupted_list, 2 * interrupted_list + 1]


@pytest.mark.skipif(compiled.RECORD_DECODER is None, reason="tables are made by the compiled decoder")
@pytest.mark.parametrize("interrupted", ["next_buffer", "kept_rows"])
@pytest.mark.parametrize("tables_before", [0, 1])
def test_records_whose_decoding_was_interrupted_are_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tables_before: int, interrupted: str
) -> None:
    size = TABLE_ROWS_MAX
    log = build_record_set([Record(n, 0, 0, None, b"", ()) for n in range(3 * size)], 2)
    made = assigned(max_poll_records=size)
    made.receive(full_fetch_response(TP0, log))
    for number in range(tables_before):
        assert offsets_of(made.fetcher.fetched_records()[TP0])[0] == number * size

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt  # of a signal handler, which may run at any time

    with monkeypatch.context() as patch:
        patch.setattr(RowBuffers, interrupted, interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.fetcher.fetched_records()
    position = tables_before * size
    assert made.position() == position
    assert made.fetcher.fetched_records() == {}, "some records may be missing"
    assert made.position() == position
    made.receive(full_fetch_response(TP0, log))
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == list(range(position, position + size))


def test_max_poll_records_holds_over_partitions() -> None:
    made = PollFetcher(max_poll_records=4)
    made.assign(TP0, TP1)
    made.subscriptions.seek(TP0, 1)
    made.subscriptions.seek(TP1, 1)
    rows = [(tp, partition_response(tp, RECORDS)) for tp in (TP0, TP1)]
    found = made.fetch(fetch_response(*rows))
    assert {tp: offsets_of(records) for tp, records in found.items()} == {TP0: [1, 2, 3], TP1: [1]}
    assert {tp: offsets_of(records) for tp, records in made.fetcher.fetched_records().items()} == {TP1: [2, 3]}


def test_the_buffered_records_of_an_unassigned_partition_are_dropped() -> None:
    made = PollFetcher(max_poll_records=2)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    assert offsets_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == [1, 2]
    made.assign(TP1)
    made.subscriptions.seek(TP1, 4)
    found = made.fetch(full_fetch_response(TP1, NEXT_RECORDS))
    assert {tp: offsets_of(records) for tp, records in found.items()} == {TP1: [4, 5]}
    assert made.position(TP1) == 6


def test_gaps_between_offsets_are_kept() -> None:
    made = assigned()
    records = [Record(offset, 0, 0, b"k", b"v") for offset in (15, 20, 30)]
    found = made.fetch(full_fetch_response(TP0, build_record_set(records, 2)))
    assert offsets_of(found[TP0]) == [15, 20, 30]
    assert made.position() == 31


def test_records_before_the_position_are_dropped_also_inside_of_a_batch() -> None:
    for magic, codec in [(0, 0), (1, 1), (2, 0), (2, 1)]:
        made = PollFetcher()
        made.assign(TP0)
        made.subscriptions.seek(TP0, 3)
        records = build_record_set([Record(1 + n, 0, 0, None, b"%d" % n) for n in range(4)], magic, codec)
        found = made.fetch(full_fetch_response(TP0, records))
        assert offsets_of(found[TP0]) == [3, 4], (magic, codec)


def test_control_records_are_not_returned_and_the_position_is_behind_them() -> None:
    made = assigned()
    found = made.fetch(full_fetch_response(TP0, batch(0, 1, producer=1, attributes=0) + marker(1, 1, ABORT)))
    assert offsets_of(found[TP0]) == [0]
    assert made.position() == 2


def test_a_batch_whose_last_records_were_compacted_moves_the_position_behind_it() -> None:
    made = assigned()
    compacted = build_record_set([Record(n, 0, 0, b"%d" % n, b"v") for n in range(3)], 2, last_offset=3)
    found = made.fetch(full_fetch_response(TP0, compacted))
    assert [record.key for record in found[TP0]] == [b"0", b"1", b"2"]
    assert made.position() == 4


def test_an_empty_batch_moves_the_position_behind_it() -> None:
    made = assigned()
    empty = with_epoch(build_record_set([], 2, base_offset=37, last_offset=54), 7)
    assert made.fetch(full_fetch_response(TP0, empty)) == {}
    assert made.position() == 55
    assert made.subscriptions.position(TP0).offset_epoch == 7


def test_while_every_leader_has_a_fetch_in_flight_no_partition_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    made.seek(TP0, 1)
    made.seek(TP1, 1)
    assert made.fetcher.send_fetches() == 1
    looked_at: list[object] = []
    fetchable = made.subscriptions.fetchable_partitions
    monkeypatch.setattr(
        made.subscriptions, "fetchable_partitions", lambda wanted: looked_at.append(0) or fetchable(wanted)
    )
    assert made.fetcher.send_fetches() == 0
    assert not looked_at
    made.receive(full_fetch_response(TP0, RECORDS), sent=0)
    assert made.fetcher.send_fetches() == 1, "of the other partition"
    assert looked_at


@pytest.mark.parametrize("is_unavailable", [False, True])
def test_a_node_is_asked_once_for_a_fetch_of_several_partitions(
    is_unavailable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question takes the lock of the network client."""
    made = PollFetcher()
    made.assign(TP0, TP1, TP2)
    for tp in (TP0, TP1, TP2):
        made.seek(tp, 1)
    asked: list[Node] = []
    monkeypatch.setattr(made.network, "is_unavailable", lambda node: asked.append(node) or is_unavailable)
    assert made.fetcher.send_fetches() == (0 if is_unavailable else 1)
    assert len(asked) == 1


def test_two_fetches_of_one_partition_become_one_sequence() -> None:
    """After a change of the leader, both may have answered."""
    made = PollFetcher()
    made.assign(TP1)
    made.subscriptions.seek(TP1, 1)
    assert made.fetcher.send_fetches() == 1
    made.update_metadata(epoch=1, nodes=2)
    made.subscriptions.seek_validated(TP1, FetchPosition(4, None, made.metadata.current_leader(TP1)))
    assert made.fetcher.send_fetches() == 1, "to the other node"
    made.poll()
    made.kafka.respond(full_fetch_response(TP1, RECORDS))
    made.kafka.respond(full_fetch_response(TP1, NEXT_RECORDS))
    made.subscriptions.seek_validated(TP1, FetchPosition(1, None, made.metadata.current_leader(TP1)))
    made.poll()
    found = made.fetcher.fetched_records()[TP1]
    assert offsets_of(found) == [1, 2, 3, 4, 5]
    assert values_of(found) == found.values == [b"value-%d" % n for n in range(1, 6)]
    assert [found[index].offset for index in range(-5, 5)] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    assert {(record.serialized_key_size, record.serialized_value_size) for record in found} == {(3, 7)}
    assert made.position(TP1) == 6


# --- damaged and undecodable records --------------------------------------------------------------------------------


class FailingDeserializer:
    """Raises for one value, until it is allowed."""

    def __init__(self, poison: bytes) -> None:
        self.poison = poison

    def deserialize(self, topic: str, headers: object, data: bytes) -> str:
        if data == self.poison:
            raise ValueError("poison")
        return data.decode()


def test_a_deserializer_that_fails_stops_the_poll_in_front_of_the_record() -> None:
    made = PollFetcher(deserializer=FailingDeserializer(b"value-1"))
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    made.receive(full_fetch_response(TP0, RECORDS))
    for _ in range(2):
        with pytest.raises(RecordDeserializationException, match="test/0 at offset 1") as raised:
            made.fetcher.fetched_records()
        assert (raised.value.partition, raised.value.offset) == (TP0, 1)
        assert isinstance(raised.value.__cause__, ValueError)
        assert made.position() == 1


def test_the_records_before_one_that_cannot_be_deserialized_are_returned_first() -> None:
    deserializer = FailingDeserializer(b"value-2")
    made = PollFetcher(deserializer=deserializer)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    found = made.fetch(full_fetch_response(TP0, RECORDS))[TP0]
    assert values_of(found) == ["value-1"]
    assert (found.keys, found.values) == (["key"], ["value-1"])
    assert found[0].serialized_value_size == len("value-1")
    with pytest.raises(RecordDeserializationException):
        made.fetcher.fetched_records()
    deserializer.poison = b""
    assert values_of(made.fetcher.fetched_records()[TP0]) == ["value-2", "value-3"], "the record is tried again"


def test_a_seek_passes_a_record_that_cannot_be_deserialized() -> None:
    made = PollFetcher(deserializer=FailingDeserializer(b"value-1"))
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    made.receive(full_fetch_response(TP0, RECORDS))
    with pytest.raises(RecordDeserializationException):
        made.fetcher.fetched_records()
    made.seek(TP0, 2)
    assert made.fetcher.fetched_records() == {}
    assert values_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == ["value-2", "value-3"]


def legacy_message(offset: int, *, is_damaged: bool = False) -> bytes:
    made = bytearray(build_record_set([Record(offset, 500, 0, b"foo", b"baz")], 1))
    if is_damaged:
        made[15] ^= 1  # the checksum
    return bytes(made)


def test_records_before_a_damaged_one_are_returned_and_a_seek_passes_it() -> None:
    made = assigned()
    invalid_size = struct.pack(">qi", 3, 1)
    log = legacy_message(0) + legacy_message(1, is_damaged=True) + legacy_message(2) + invalid_size + legacy_message(4)
    assert offsets_of(made.fetch(full_fetch_response(TP0, log))[TP0]) == [0]
    for _ in range(2):
        with pytest.raises(KafkaException, match="test/0"):
            made.fetcher.fetched_records()
        assert made.position() == 1
    made.seek(TP0, 2)
    assert made.fetcher.fetched_records() == {}
    assert offsets_of(made.fetch(full_fetch_response(TP0, log))[TP0]) == [2]
    for _ in range(2):
        with pytest.raises(KafkaException):
            made.fetcher.fetched_records()
        assert made.position() == 3
    made.seek(TP0, 4)
    assert made.fetcher.fetched_records() == {}
    made.receive(full_fetch_response(TP0, log))
    for _ in range(2):
        with pytest.raises(KafkaException):
            made.fetcher.fetched_records()
        assert made.position() == 4, "nothing is found behind an impossible size"


def test_a_batch_with_a_wrong_checksum_raises_until_a_seek() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, RECORDS[:17] + b"beef" + RECORDS[21:]))
    for _ in range(2):
        with pytest.raises(KafkaException, match="checksum") as raised:
            made.fetcher.fetched_records()
        assert made.position() == 0
        assert vars(raised.value.__cause__)["next_offset"] == 4


def test_a_batch_with_changed_bits_raises_and_does_not_move_the_position() -> None:
    made = assigned()
    damaged = bytearray(RECORDS)
    damaged[32] ^= 0x53
    made.receive(full_fetch_response(TP0, bytes(damaged)))
    with pytest.raises(KafkaException):
        made.fetcher.fetched_records()
    assert made.position() == 0


def test_without_check_crcs_a_wrong_checksum_is_not_noticed() -> None:
    made = assigned(check_crcs=False)
    found = made.fetch(full_fetch_response(TP0, RECORDS[:17] + b"beef" + RECORDS[21:]))
    assert offsets_of(found[TP0]) == [1, 2, 3]


def test_a_record_larger_than_the_fetch_size_is_an_error_of_an_old_broker() -> None:
    made = assigned()
    made.kafka.limits[FETCH.key] = VersionRange(0, 2)
    made.receive(full_fetch_response(TP0, bytes(8)))
    for _ in range(2):
        with pytest.raises(RecordTooLargeException, match=r"max\.partition\.fetch\.bytes=1000") as raised:
            made.fetcher.fetched_records()
        assert raised.value.record_too_large_partitions == {TP0: 0}
        assert made.position() == 0


def test_a_response_without_a_complete_record_is_an_error_of_a_new_broker() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, bytes(8)))
    with pytest.raises(KafkaException, match="no complete record"):
        made.fetcher.fetched_records()
    assert made.position() == 0


# --- pause, seek and rebalance --------------------------------------------------------------------------------------


def test_a_partition_that_is_paused_during_its_fetch_returns_nothing() -> None:
    made = assigned()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.pause(TP0)
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert made.fetcher.fetched_records() == {}


def test_a_paused_partition_is_not_requested() -> None:
    made = assigned()
    made.subscriptions.pause(TP0)
    assert made.fetcher.send_fetches() == 0
    assert not made.kafka.requests


def test_records_of_a_paused_partition_are_kept_until_it_is_resumed() -> None:
    made = assigned()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.pause(TP0)
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert made.fetcher.fetched_records() == {}
    assert made.fetcher.has_completed_fetches
    assert not made.fetcher.has_available_fetches
    assert made.fetcher.send_fetches() == 0
    made.subscriptions.resume(TP0)
    assert made.fetcher.has_available_fetches
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [1, 2, 3]
    assert made.fetcher.fetched_records() == {}
    assert not made.fetcher.has_completed_fetches


def two_fetches() -> PollFetcher:
    """``TP0`` and ``TP1`` are buffered."""
    made = PollFetcher()
    made.assign(TP0, TP1)
    made.seek(TP0, 1)
    made.receive(full_fetch_response(TP0, RECORDS))
    made.seek(TP1, 4)
    made.receive(full_fetch_response(TP1, NEXT_RECORDS))
    return made


def test_a_paused_partition_does_not_hold_up_the_others() -> None:
    made = two_fetches()
    made.subscriptions.pause(TP0)
    assert list(made.fetcher.fetched_records()) == [TP1]
    assert made.fetcher.has_completed_fetches
    assert made.fetcher.fetched_records() == {}
    assert made.fetcher.has_completed_fetches


def test_the_records_of_several_paused_partitions_are_kept() -> None:
    made = two_fetches()
    made.subscriptions.pause(TP0)
    made.subscriptions.pause(TP1)
    assert made.fetcher.fetched_records() == {}
    assert made.fetcher.has_completed_fetches
    assert not made.fetcher.has_available_fetches
    made.subscriptions.resume(TP0)
    made.subscriptions.resume(TP1)
    assert set(made.fetcher.fetched_records()) == {TP0, TP1}


def test_the_rest_of_a_fetch_is_kept_while_its_partition_is_paused() -> None:
    made = PollFetcher(max_poll_records=2)
    made.assign(TP0, TP1)
    made.subscriptions.seek(TP0, 1)
    assert offsets_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == [1, 2]
    assert not made.fetcher.has_completed_fetches
    made.subscriptions.pause(TP0)
    assert made.fetcher.fetched_records() == {}
    assert made.fetcher.has_completed_fetches
    assert not made.fetcher.has_available_fetches
    made.subscriptions.resume(TP0)
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [3]
    assert not made.fetcher.has_completed_fetches


def test_records_of_a_paused_partition_are_dropped_after_a_seek() -> None:
    made = assigned()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.pause(TP0)
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.subscriptions.seek(TP0, 3)
    made.subscriptions.resume(TP0)
    made.poll()
    assert made.fetcher.has_completed_fetches
    assert made.fetcher.fetched_records() == {}
    assert not made.fetcher.has_completed_fetches


def test_a_seek_during_the_delivery_of_a_fetch_drops_the_rest() -> None:
    made = PollFetcher(max_poll_records=1)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    assert offsets_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == [1]
    made.seek(TP0, 1)
    assert made.fetcher.fetched_records() == {}
    assert offsets_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == [1]


def subscribed() -> PollFetcher:
    made = PollFetcher()
    made.subscriptions.subscribe([TOPIC])
    made.subscriptions.assign_from_subscribed([TP0])
    made.subscriptions.seek(TP0, 0)
    made.update_metadata(epoch=0)
    return made


def test_a_fetch_of_the_assignment_before_an_eager_rebalance_is_ignored() -> None:
    made = subscribed()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.assign_from_subscribed([])
    made.subscriptions.assign_from_subscribed([TP0])
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert made.fetcher.fetched_records() == {}


def test_a_fetch_of_a_partition_that_stays_in_a_cooperative_rebalance_is_used() -> None:
    made = subscribed()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.assign_from_subscribed([TP0])
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [1, 2, 3]


def test_a_partition_that_is_being_revoked_returns_nothing() -> None:
    made = subscribed()
    assert made.fetcher.send_fetches() == 1
    made.subscriptions.mark_pending_revocation([TP0])
    made.kafka.prepare(full_fetch_response(TP0, RECORDS))
    made.poll()
    assert made.fetcher.fetched_records() == {}


def test_the_buffered_records_of_other_partitions_can_be_cleared() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, RECORDS))
    made.fetcher.clear_buffered_data_for_unassigned_partitions([TP1])
    assert not made.fetcher.has_completed_fetches


def test_the_buffered_records_of_other_topics_can_be_cleared_also_after_some_were_returned() -> None:
    made = PollFetcher(max_poll_records=1)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    assert offsets_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == [1]
    made.fetcher.clear_buffered_data_for_unassigned_topics([TOPIC])
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [2]
    made.fetcher.clear_buffered_data_for_unassigned_topics(["other"])
    assert made.fetcher.fetched_records() == {}


# --- errors of a partition ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        OFFSET_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    ],
    ids=lambda error: error.name,
)
def test_an_error_of_outdated_metadata_requests_an_update(error: ErrorCode) -> None:
    made = assigned()
    assert made.fetch(full_fetch_response(TP0, b"", error)) == {}
    assert made.metadata.time_to_next_update(made.clock.now_ms()) == 0
    assert "fetch-error" in made.log_names()
    assert made.position() == 0
    assert made.fetcher.send_fetches() == 1, "the response was dropped"


@pytest.mark.parametrize("error", [UNKNOWN_LEADER_EPOCH, UNKNOWN_SERVER_ERROR], ids=lambda error: error.name)
def test_an_error_of_the_broker_alone_requests_no_update(error: ErrorCode) -> None:
    made = assigned()
    assert made.fetch(full_fetch_response(TP0, b"", error)) == {}
    assert made.metadata.time_to_next_update(made.clock.now_ms()) != 0
    assert made.fetcher.send_fetches() == 1


def test_the_records_of_a_response_with_an_error_are_not_returned() -> None:
    made = assigned()
    assert made.fetch(full_fetch_response(TP0, RECORDS, NOT_LEADER_OR_FOLLOWER)) == {}


def test_a_missing_permission_is_raised() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, b"", TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(TopicAuthorizationException) as raised:
        made.fetcher.fetched_records()
    assert raised.value.unauthorized_topics == {TOPIC}
    assert made.fetcher.fetched_records() == {}


def test_one_unauthorized_topic_does_not_stop_the_others() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    made.subscriptions.seek(TP0, 1)
    made.subscriptions.seek(TP1, 1)
    rows = [(TP0, partition_response(TP0, b"", TOPIC_AUTHORIZATION_FAILED)), (TP1, partition_response(TP1, RECORDS))]
    made.receive(fetch_response(*rows))
    with pytest.raises(TopicAuthorizationException):
        made.fetcher.fetched_records()
    assert offsets_of(made.fetcher.fetched_records()[TP1]) == [1, 2, 3]


def test_the_error_of_corrupt_data_at_the_broker_is_raised() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, record_set(1, 1), CORRUPT_MESSAGE))
    with pytest.raises(KafkaException, match="CORRUPT_MESSAGE"):
        made.fetcher.fetched_records()


def test_an_unexpected_error_is_raised_with_its_name() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, b"", POLICY_VIOLATION))
    with pytest.raises(BrokerError, match=r"Fetch of test/0 at offset 0: POLICY_VIOLATION"):
        made.fetcher.fetched_records()


def test_an_offset_out_of_range_resets_the_position() -> None:
    made = assigned()
    assert made.fetch(full_fetch_response(TP0, b"", OFFSET_OUT_OF_RANGE)) == {}
    assert made.subscriptions.is_offset_reset_needed(TP0)
    assert made.subscriptions.valid_position(TP0) is None
    assert made.subscriptions.position(TP0) is None


def test_an_offset_out_of_range_that_arrives_after_a_seek_changes_nothing() -> None:
    for strategy in (OffsetResetStrategy.EARLIEST, OffsetResetStrategy.NONE):
        made = assigned(strategy=strategy)
        assert made.fetcher.send_fetches() == 1
        made.kafka.prepare(full_fetch_response(TP0, b"", OFFSET_OUT_OF_RANGE))
        made.subscriptions.seek(TP0, 1)
        made.poll()
        assert made.fetcher.fetched_records() == {}
        assert not made.subscriptions.is_offset_reset_needed(TP0)
        assert made.position() == 1


def test_a_seek_after_an_offset_out_of_range_prevents_the_exception() -> None:
    made = assigned(strategy=OffsetResetStrategy.NONE, max_poll_records=2)
    made.receive(full_fetch_response(TP0, b"", OFFSET_OUT_OF_RANGE))
    assert not made.subscriptions.is_offset_reset_needed(TP0)
    made.subscriptions.seek(TP0, 2)
    assert made.fetcher.fetched_records() == {}


def test_without_a_reset_policy_each_fetch_out_of_range_raises() -> None:
    made = assigned(strategy=OffsetResetStrategy.NONE, max_poll_records=2)
    for _ in range(2):
        made.receive(full_fetch_response(TP0, b"", OFFSET_OUT_OF_RANGE))
        with pytest.raises(OffsetOutOfRangeException, match=r"auto\.offset\.reset=none") as raised:
            made.fetcher.fetched_records()
        assert raised.value.offset_out_of_range_partitions == {TP0: 0}
        assert not made.subscriptions.is_offset_reset_needed(TP0)


def test_an_exception_loses_no_record_that_was_taken_before_it() -> None:
    made = PollFetcher(strategy=OffsetResetStrategy.NONE)
    made.assign(TP0, TP1)
    made.subscriptions.seek(TP0, 1)
    made.subscriptions.seek(TP1, 1)
    rows = [(TP1, partition_response(TP1, RECORDS)), (TP0, partition_response(TP0, b"", OFFSET_OUT_OF_RANGE))]
    found = made.fetch(fetch_response(*rows))
    assert {tp: offsets_of(records) for tp, records in found.items()} == {TP1: [1, 2, 3]}
    assert (made.position(TP0), made.position(TP1)) == (1, 4)
    with pytest.raises(OffsetOutOfRangeException) as raised:
        made.fetcher.fetched_records()
    assert raised.value.offset_out_of_range_partitions == {TP0: 1}
    assert (made.position(TP0), made.position(TP1)) == (1, 4)


def test_a_response_that_raises_is_dropped_only_if_it_has_no_records() -> None:
    made = PollFetcher(strategy=OffsetResetStrategy.NONE)
    made.assign(TP0, TP1, TP2, TP3)
    for tp in (TP0, TP1, TP2, TP3):
        made.subscriptions.seek(tp, 1)
    rows = [
        (TP1, partition_response(TP1, RECORDS)),
        (TP0, partition_response(TP0, b"", OFFSET_OUT_OF_RANGE)),
        (TP2, partition_response(TP2, NEXT_RECORDS)),
        (TP3, partition_response(TP3, PARTIAL_RECORD)),
    ]
    assert list(made.fetch(fetch_response(*rows))) == [TP1]
    with pytest.raises(OffsetOutOfRangeException) as raised:
        made.fetcher.fetched_records()
    assert list(raised.value.offset_out_of_range_partitions) == [TP0]
    assert offsets_of(made.fetcher.fetched_records()[TP2]) == [4, 5]
    assert made.position(TP2) == 6
    for _ in range(3):
        with pytest.raises(KafkaException):
            made.fetcher.fetched_records()


def test_a_seek_before_the_exception_of_another_fetch_prevents_it() -> None:
    made = PollFetcher(strategy=OffsetResetStrategy.NONE, max_poll_records=2)
    made.assign(TP0)
    made.subscriptions.seek(TP0, 1)
    assert len(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == 2
    made.subscriptions.assign_from_user([TP0, TP1])
    made.seek(TP1, 1)
    found = made.fetch(full_fetch_response(TP1, b"", OFFSET_OUT_OF_RANGE))
    assert offsets_of(found[TP0]) == [3]
    made.subscriptions.seek(TP1, 10)
    assert made.fetcher.fetched_records() == {}


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_node_in_reconnect_backoff_is_skipped() -> None:
    made = assigned()
    made.kafka.backoff(0, 500)
    assert made.fetcher.send_fetches() == 0
    made.clock.move(500)
    assert made.fetcher.send_fetches() == 1


def test_the_failed_login_at_a_node_is_raised() -> None:
    made = assigned()
    made.kafka.backoff(0, 500)
    made.kafka.authentication_errors[0] = SaslAuthenticationException("wrong password")
    with pytest.raises(AuthenticationException, match="wrong password"):
        made.fetcher.send_fetches()


def test_a_partition_without_a_leader_requests_metadata() -> None:
    made = PollFetcher()
    made.assign(TP0)
    assert made.fetcher.send_fetches() == 0
    made.subscriptions.seek(TP0, 0)
    assert not made.metadata.update_requested
    assert made.fetcher.send_fetches() == 0
    assert made.metadata.update_requested


def test_one_fetch_is_in_flight_for_each_node() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    made.subscriptions.seek(TP0, 1)
    made.subscriptions.seek(TP1, 1)
    made.update_metadata(nodes=2)
    assert made.fetcher.send_fetches() == 2
    assert made.fetcher.send_fetches() == 0
    made.kafka.prepare(full_fetch_response(TP1, RECORDS), node_id=1)
    made.poll()
    assert made.fetcher.send_fetches() == 0, "the records of TP1 are buffered"
    assert list(made.fetcher.fetched_records()) == [TP1]
    assert made.fetcher.send_fetches() == 1


def test_a_request_contains_the_leader_epoch_the_rack_and_the_limits() -> None:
    made = PollFetcher(client_rack_id="rack-7", isolation_level=IsolationLevel.READ_COMMITTED)
    made.assign(TP0, epoch=99)
    made.subscriptions.seek(TP0, 10)
    assert made.fetcher.send_fetches() == 1
    made.poll()
    request = made.last_request()
    [topic] = request.topics
    [row] = topic.partitions
    assert (topic.topic, row.partition, row.fetch_offset, row.current_leader_epoch) == (TOPIC, 0, 10, 99)
    assert (row.partition_max_bytes, request.min_bytes, request.isolation_level) == (1000, 1, 1)
    assert request.rack_id == "rack-7"


def test_a_disconnect_changes_no_position() -> None:
    made = assigned()
    assert made.fetcher.send_fetches() == 1
    made.kafka.prepare(None, was_disconnected=True)
    made.poll()
    assert made.fetcher.fetched_records() == {}
    assert not made.subscriptions.is_offset_reset_needed(TP0)
    assert made.subscriptions.is_fetchable(TP0)
    assert made.position() == 0
    assert made.log_names() == ["fetch-request-failed"]
    assert made.fetcher.send_fetches() == 1, "the same is requested again"


def test_a_fetch_that_ends_before_its_listener_is_added_is_handled() -> None:
    """The heartbeat's thread may end the request between ``send`` and ``add_listener``."""
    made = assigned()
    real_send = made.network.send

    def send_and_fail(*args: object) -> object:
        future = real_send(*args)
        made.network.disconnect_async(made.metadata.fetch().nodes[0])
        made.network.poll(made.timer())
        assert future.is_done
        return future

    made.network.send = send_and_fail  # type: ignore[method-assign]
    assert made.fetcher.send_fetches() == 1
    made.network.send = real_send  # type: ignore[method-assign]
    assert made.fetcher.send_fetches() == 1


def test_incremental_requests_of_a_session_return_the_same_records() -> None:
    made = PollFetcher(max_poll_records=2)
    made.assign(TP0, TP1)
    made.seek(TP0, 0)
    made.seek(TP1, 1)
    both = [(TP0, partition_response(TP0, RECORDS, high_watermark=2)), (TP1, partition_response(TP1))]
    assert offsets_of(made.fetch(fetch_response(*both, session_id=123))[TP0]) == [1, 2]
    assert (made.position(TP0), made.position(TP1)) == (3, 1)
    assert made.fetcher.send_fetches() == 0, "a record of TP0 is buffered, and the answer of TP1"
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [3]
    assert made.fetcher.fetched_records() == {}
    assert made.fetch(fetch_response(session_id=123)) == {}
    assert (made.position(TP0), made.position(TP1)) == (4, 1)
    found = made.fetch(fetch_response((TP0, partition_response(TP0, NEXT_RECORDS)), session_id=123))
    assert offsets_of(found[TP0]) == [4, 5]
    assert (made.position(TP0), made.position(TP1)) == (6, 1)


def test_an_incremental_request_contains_only_what_has_changed() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    made.seek(TP0, 1)
    made.seek(TP1, 1)
    rows = [(tp, partition_response(tp)) for tp in (TP0, TP1)]
    assert made.fetch(fetch_response(*rows, session_id=9)) == {}
    made.seek(TP1, 7)
    assert made.fetcher.send_fetches() == 1
    made.poll()
    request = made.last_request()
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert [row.fetch_offset for topic in request.topics for row in topic.partitions] == [7]
    made.kafka.respond(fetch_response(session_id=9))
    made.poll()
    made.subscriptions.pause(TP1)
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert [(gone.topic, gone.partitions) for gone in made.last_request().forgotten_topics_data] == [(TOPIC, [1])]


@pytest.mark.parametrize(
    "error", [FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH], ids=lambda error: error.name
)
def test_a_rejected_session_is_followed_by_a_full_request(error: ErrorCode) -> None:
    made = assigned()
    assert made.fetch(fetch_response((TP0, partition_response(TP0)), session_id=9)) == {}
    assert made.fetch(fetch_response(error=error)) == {}
    assert made.log_names() == ["fetch-session-error"]
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert made.last_request().session_epoch == 0
    assert len(made.last_request().topics) == 1


def test_the_epoch_of_a_session_grows_with_each_response_and_begins_again_after_an_error() -> None:
    made = assigned()
    epochs = []
    for number in range(8):
        assert made.fetcher.send_fetches() == 1
        made.poll()
        epochs.append(made.last_request().session_epoch)
        if number == 4:
            made.network.disconnect_async(made.metadata.fetch().nodes[0])
            made.poll()
            continue
        offset = made.position()
        made.kafka.respond(fetch_response((TP0, partition_response(TP0, record_set(offset, 2))), session_id=5))
        made.poll()
        assert offsets_of(made.fetcher.fetched_records()[TP0]) == [offset, offset + 1]
    assert epochs == [0, 1, 2, 3, 4, 0, 1, 2]


def test_rows_about_partitions_that_were_not_requested_are_ignored() -> None:
    made = assigned()
    rows = [(TP1, partition_response(TP1, NEXT_RECORDS)), (TP0, partition_response(TP0, RECORDS))]
    assert list(made.fetch(fetch_response(*rows))) == [TP0]
    assert "unrequested-partition-ignored" in made.log_names()


def test_topic_ids_are_used_when_the_metadata_has_them_and_names_otherwise() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0])
    made.update_metadata(epoch=0, topic_ids={TOPIC: ID_1})
    made.seek(TP0, 1)
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert [topic.topic_id for topic in made.last_request().topics] == [ID_1]
    made.kafka.respond(fetch_response((TP0, partition_response(TP0, RECORDS)), topic_ids={TOPIC: ID_1}))
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [1, 2, 3]
    made.update_metadata(epoch=0)
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert made.kafka.requests[-1].version == 12


def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    made = PollFetcher()
    made.subscriptions.assign_from_user([TP0])
    made.update_metadata(epoch=0, topic_ids={TOPIC: ID_1})
    made.kafka.limits[FETCH.key] = VersionRange(0, 12)
    made.seek(TP0, 1)
    assert offsets_of(made.fetch(full_fetch_response(TP0, RECORDS))[TP0]) == [1, 2, 3]


@pytest.mark.parametrize("version_max", [12, 13])
def test_a_topic_that_was_deleted_and_created_again_is_replaced_in_the_session(version_max: int) -> None:
    made = PollFetcher()
    made.kafka.limits[FETCH.key] = VersionRange(0, version_max)
    made.subscriptions.assign_from_user([TP0])
    made.update_metadata(epoch=0, topic_ids={TOPIC: ID_1})
    made.seek(TP0, 1)
    assert made.fetch(fetch_response((TP0, partition_response(TP0)), session_id=9, topic_ids={TOPIC: ID_1})) == {}
    gone = fetch_response((TP0, partition_response(TP0, b"", UNKNOWN_TOPIC_ID)), session_id=9, topic_ids={TOPIC: ID_1})
    assert made.fetch(gone) == {}
    assert made.metadata.update_requested
    made.update_metadata(epoch=0, topic_ids={TOPIC: ID_2})
    assert made.fetcher.send_fetches() == 1
    made.poll()
    request = made.last_request()
    if version_max == 13:
        assert [topic.topic_id for topic in request.forgotten_topics_data] == [ID_1]
        assert [topic.topic_id for topic in request.topics] == [ID_2]
    else:
        assert request.forgotten_topics_data == [], "by name, it is the same topic"
        assert [topic.topic for topic in request.topics] == [TOPIC]
    made.kafka.respond(fetch_response((TP0, partition_response(TP0, RECORDS)), session_id=9, topic_ids={TOPIC: ID_2}))
    made.poll()
    assert offsets_of(made.fetcher.fetched_records()[TP0]) == [1, 2, 3]


def test_responses_after_close_are_ignored_and_nothing_is_buffered() -> None:
    made = assigned()
    made.receive(full_fetch_response(TP0, RECORDS))
    assert made.fetcher.has_completed_fetches
    made.fetcher.close()
    assert not made.fetcher.has_completed_fetches
    other = assigned()
    assert other.fetcher.send_fetches() == 1
    other.fetcher.close()
    other.kafka.prepare(full_fetch_response(TP0, RECORDS))
    other.poll()
    assert not other.fetcher.has_completed_fetches


def test_a_partition_whose_records_were_returned_comes_after_the_others() -> None:
    made = PollFetcher()
    made.assign(TP0, TP1)
    made.seek(TP0, 1)
    made.seek(TP1, 1)
    rows = [(TP0, partition_response(TP0, RECORDS)), (TP1, partition_response(TP1))]
    made.fetch(fetch_response(*rows))
    assert made.subscriptions.assigned_partitions_list() == [TP1, TP0]
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert [row.partition for topic in made.last_request().topics for row in topic.partitions] == [1, 0]


# --- preferred read replica -----------------------------------------------------------------------------------------


def with_replica() -> PollFetcher:
    """The leader of ``TP0`` is node 0; node 1 is preferred for it since the last response."""
    made = PollFetcher(isolation_level=IsolationLevel.READ_COMMITTED, metadata_expire_ms=300_000)
    made.assign(TP0, nodes=2)
    made.subscriptions.seek(TP0, 0)
    assert replica_of(made) == -1
    made.fetch(full_fetch_response(TP0, RECORDS, preferred_read_replica=1))
    return made


def replica_of(made: PollFetcher) -> int:
    return select_read_replica(made.subscriptions, made.metadata, TP0, NO_NODE, made.clock.now_ms()).id


def test_the_preferred_replica_is_asked_until_its_lease_ends() -> None:
    made = with_replica()
    assert replica_of(made) == 1
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert made.kafka.requests[-1].request.destination == 1
    made.kafka.respond(full_fetch_response(TP0))
    made.clock.move(300_001)
    made.poll()
    assert made.fetcher.fetched_records() == {}
    assert made.fetcher.send_fetches() == 1
    made.poll()
    assert made.kafka.requests[-1].request.destination == 0


def test_a_preferred_replica_that_is_not_in_the_metadata_is_not_asked() -> None:
    made = with_replica()
    made.fetch(full_fetch_response(TP0, NEXT_RECORDS, preferred_read_replica=2))
    assert replica_of(made) == -1
    assert made.subscriptions.preferred_read_replica(TP0, made.clock.now_ms()) is None


def test_the_replica_and_the_ends_in_a_fetch_at_another_position_are_not_taken() -> None:
    made = PollFetcher()
    made.assign(TP0, nodes=2)
    made.subscriptions.seek(TP0, 0)
    assert made.fetcher.send_fetches() == 1
    made.seek(TP0, 7)
    made.kafka.prepare(full_fetch_response(TP0, RECORDS, preferred_read_replica=1))
    made.poll()
    assert made.fetcher.fetched_records() == {}
    assert replica_of(made) == -1
    assert made.subscriptions.partition_lag(TP0, IsolationLevel.READ_UNCOMMITTED) is None


def test_an_offset_out_of_range_at_the_preferred_replica_returns_to_the_leader() -> None:
    made = with_replica()
    assert made.fetch(full_fetch_response(TP0, b"", OFFSET_OUT_OF_RANGE)) == {}
    assert replica_of(made) == -1
    assert not made.subscriptions.is_offset_reset_needed(TP0), "the leader may have the offset"


# --- threads --------------------------------------------------------------------------------------------------------


def two_records(row: FetchPartition) -> tuple[TopicPartition, FetchPartitionResponse]:
    """The response to a row: two records from its offset on."""
    tp = TopicPartition(TOPIC, row.partition)
    return tp, partition_response(tp, record_set(row.fetch_offset, 2))


def test_responses_that_arrive_in_another_thread_lose_and_repeat_nothing() -> None:
    """The heartbeat's thread polls the same network client."""
    made = PollFetcher(max_poll_records=40)
    partitions = [TP0, TP1, TP2, TP3]
    made.assign(*partitions)
    for tp in partitions:
        made.subscriptions.seek(tp, 0)
    rounds, is_over = 200, threading.Event()
    turn = threading.Lock()

    def answer() -> None:
        while not is_over.is_set():
            with turn:
                if made.kafka.requests:
                    [topic] = made.kafka.requests[0].body.topics
                    made.kafka.respond(fetch_response(*map(two_records, topic.partitions)))
                    made.network.poll(made.timer())
            is_over.wait(0.0005)

    thread = threading.Thread(target=answer)
    thread.start()
    next_offsets = dict.fromkeys(partitions, 0)
    try:
        for _ in range(rounds):
            with turn:
                if made.fetcher.send_fetches():
                    made.network.poll(made.timer())
            deadline = 2_000
            while not made.fetcher.has_completed_fetches and deadline:
                is_over.wait(0.0005)
                deadline -= 1
            for tp, records in made.fetcher.fetched_records().items():
                assert offsets_of(records) == [next_offsets[tp], next_offsets[tp] + 1]
                next_offsets[tp] += 2
    finally:
        is_over.set()
        thread.join(30)
    assert set(next_offsets.values()) == {2 * rounds}
