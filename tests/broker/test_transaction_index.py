"""The transactions that the development broker finds in a log, and what readers of committed records get of it."""

from __future__ import annotations

from bridge.broker.log.batches import read_batch_header
from bridge.broker.log.transaction_index import TransactionIndex
from bridge.testing.fake_cluster import FakeCluster
from tests.transactional_records import ABORT, COMMIT, batch, marker
from zkconsumer.types import LATEST_TIME
from zkconsumer.wire.entries import iter_entries
from zkconsumer.wire.schemas import LIST_OFFSETS
from zkconsumer.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


def index_of(*entries: bytes) -> TransactionIndex:
    index = TransactionIndex()
    for data in entries:
        for entry in iter_entries(data):
            index.update(read_batch_header(data, entry))
    return index


def aborted(index: TransactionIndex, start: int, end: int) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in index.aborted_between(start, end)]


def test_the_last_stable_offset_is_the_start_of_the_oldest_open_transaction() -> None:
    index = index_of(batch(0, 2, 7), batch(2, 1, 8), marker(3, 7, COMMIT))
    assert index.last_stable_offset(4) == 2
    assert index_of(batch(0, 2, 7), marker(2, 7, COMMIT)).last_stable_offset(3) == 3
    assert index_of(batch(0, 2, 7, attributes=0)).last_stable_offset(2) == 2, "outside of transactions"


def test_a_reader_gets_the_aborted_transactions_that_reach_into_its_range() -> None:
    index = index_of(
        batch(0, 2, 7), batch(2, 1, 8), marker(3, 7, ABORT), batch(4, 1, 7), marker(5, 7, COMMIT), marker(6, 8, ABORT)
    )
    assert aborted(index, 0, 7) == [(7, 0), (8, 2)]
    assert aborted(index, 4, 7) == [(8, 2)], "the first one ended before"
    assert aborted(index, 0, 2) == [(7, 0)], "the second one begins behind"


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    index = index_of(marker(0, 7, ABORT), batch(1, 1, 7))
    assert aborted(index, 0, 2) == []
    assert index.last_stable_offset(2) == 1


def test_a_log_that_is_cut_forgets_the_transactions_behind_the_cut() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    cluster.append_raw("t", 0, batch(0, 2, 7), 2)
    cluster.append_raw("t", 0, batch(2, 2, 8), 4)
    cluster.append_raw("t", 0, marker(4, 7, COMMIT), 5)
    assert latest(cluster, isolation_level=1) == 2
    cluster.truncate("t", 0, 2)
    assert latest(cluster, isolation_level=1) == 0, "the marker is gone, too"
    assert latest(cluster, isolation_level=0) == 2


def latest(cluster: FakeCluster, isolation_level: int) -> int:
    """The end of the partition for a reader."""
    [address] = cluster.addresses
    connection = cluster.connect(address.host, address.port)
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIME)
    body = ListOffsetsRequest(isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    return connection.request(LIST_OFFSETS, 2, body, 5_000).topics[0].partitions[0].offset
