"""Measures a claim for ``bench/spark.py``: the source requests it from a membership process, which uses ZooKeeper."""

from __future__ import annotations

import statistics
import time

from spark_runs import PARTITIONS, Cluster

from bridge.spark.group_membership import ClaimedRange, CommitMode, RangeToClaim
from bridge.spark.membership.process_client import MembershipProcessClient
from bridge.spark.membership.process_settings import MembershipProcessSettings
from zkconsumer.types import TopicPartition

BATCHES = 50
BATCH_ROWS = 1000
WAIT_MS = 10_000


def claim_ms_a_partition(cluster: Cluster, topic: str) -> float:
    """The median of the batches of a query with ``PARTITIONS`` partitions, with the call of the membership process."""
    settings = MembershipProcessSettings(
        {"group.id": "bench-claims", "zookeeper.connect": cluster.zookeeper}, "static", (topic,), "",
        mode=CommitMode.CLAIM,
    )  # fmt: skip
    taken_ms = []
    with MembershipProcessClient(settings) as client:
        held = client.begin_batch({}, WAIT_MS).partitions
        assert len(held) == PARTITIONS, "the only member of a new group owns all partitions"
        partitions: list[TopicPartition] = sorted(held)
        refused = client.seek(dict.fromkeys(partitions, 0))
        assert not refused, refused
        for batch in range(BATCHES):
            first = batch * BATCH_ROWS
            ranges = {tp: RangeToClaim(first, first + BATCH_ROWS, held[tp].epoch) for tp in partitions}
            client.batch_planned(partitions)
            start = time.monotonic()
            answers = client.claim("bench", batch, ranges)
            taken_ms.append((time.monotonic() - start) * 1000 / PARTITIONS)
            assert all(isinstance(answer, ClaimedRange) for answer in answers.values()), answers
    return statistics.median(taken_ms)
