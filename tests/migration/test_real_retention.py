"""Copied offsets on real brokers before 2.1 that keep offsets for a minute: they stay, and a plain commit expires."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import require_releases
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.zookeeper_offset_writes import StoreWriteReport
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.types import TopicPartition

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(400)]

SHORT = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
DAY_MS = 86_400_000
EXPIRES_MS = 200_000
"""A minute, the looks of the broker, and what a busy machine adds to both; it is only waited for, never measured."""


@pytest.fixture(params=["1.1.1", "0.9.0.1", "2.0.1"])
def group(request: pytest.FixtureRequest, names: tuple[str, str], tmp_path: Path) -> Iterator[RealGroup]:
    require_releases(request.param)
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_broker(request.param, chroot="/kafka", settings=SHORT)
        made = RealGroup(sandbox, *names, 2, tmp_path)
        yield made
        made.close()


def test_copied_offsets_survive_where_a_plain_commit_expires(group: RealGroup) -> None:
    group.produce(100)
    group.scala("original", "old-1", "0.8.2.2")
    group.wait_drained()
    group.stop("original")
    group.migrate("apply", group.plan("--offset-convention", "next"), "--execute")
    copied = group.in_kafka()
    assert copied == group.in_zookeeper() == {0: 50, 1: 50}
    tp, report = TopicPartition(group.topic, 0), StoreWriteReport()
    with group.session() as session:
        KafkaOffsetAdmin(session, "plain").write_offsets({tp: 7}, {tp: None}, report)
        assert KafkaOffsetAdmin(session, "plain").read_some([tp])[tp].offset == 7
    assert not report.stopped_by

    def is_gone() -> bool:
        time.sleep(2)
        with group.session() as session:
            return not KafkaOffsetAdmin(session, "plain").read_some([tp])

    wait_until(is_gone, "the plain commit expires", EXPIRES_MS)
    assert group.in_kafka() == copied
    shown = group.status()
    assert (shown["copied_offsets"]["count"], shown["copied_offsets"]["lost"]) == (2, [])
    assert shown["copied_offsets"]["kept_until_ms"] - shown["at_ms"] > 29 * DAY_MS
