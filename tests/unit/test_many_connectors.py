"""Hundreds of connectors in one process, as servers and notebooks make them: nothing of the closed ones is left.

MetricsTest.testMetricsLeak of the original, for everything that a connector has.
"""

from __future__ import annotations

import gc
import os
import threading

import pytest

from tests.connector_leak_program import check, run
from zkconsumer.base.threads import live_threads
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ZkTimeoutException


@pytest.mark.timeout(300)
def test_two_hundred_connectors_leave_nothing_behind() -> None:
    early, late = run()
    assert all(name.startswith("fake-") for name in early["ours"]), "threads of closed connectors"
    check(early, late)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_connector_that_found_no_zookeeper_leaves_nothing_behind() -> None:
    config = ConsumerConfig(group_id="g", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=20)
    gc.collect()  # of earlier tests
    before = descriptors(), threading.active_count()
    for _ in range(20):
        with pytest.raises(ZkTimeoutException):
            ZookeeperConsumerConnector(config)
    gc.collect()
    assert descriptors() <= before[0]
    assert threading.active_count() <= before[1]
    assert live_threads() == []
