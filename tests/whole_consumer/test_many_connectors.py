"""Two hundred connectors of one process on real servers: nothing of the closed ones is left (MetricsTest)."""

from __future__ import annotations

import pytest

from tests.connector_leak_program import check, run
from zkconsumer.testing.sandbox import Sandbox

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PARTITIONS, RECORDS = 2, 10


def test_two_hundred_connectors_on_real_servers_leave_nothing_behind(shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, PARTITIONS)
    for partition in range(PARTITIONS):
        shared_cluster.produce(fresh_name, partition, RECORDS)
    early, late = run(shared_cluster.zookeeper_connect, fresh_name, str(PARTITIONS * RECORDS))
    assert early["threads"] == ["MainThread"]
    check(early, late)
