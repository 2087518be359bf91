"""Members of the old kind, real Scala ones and ours, on the broker and a real ZooKeeper, beside a modern client."""

from __future__ import annotations

import pytest

from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.sandbox_fixtures import require_releases
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.base.threads import spawn
from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]

EACH = 50


@pytest.mark.parametrize(
    ("scala", "release"),
    [("1.1.1", "1.1.1"), pytest.param("0.8.2.2", "0.9.0.1", marks=pytest.mark.nightly)],
)
def test_a_scala_member_and_ours_share_a_topic_of_the_embedded_broker(
    scala: str, release: str, sandbox: Sandbox
) -> None:
    require_releases(scala)
    sandbox.start_zookeeper()
    connect = sandbox.zookeeper.connect_string("")
    with EmbeddedBroker(release=release, nodes=2, zookeeper=connect) as broker:
        broker.create_topic("t", 4)
        for partition in range(4):
            broker.append("t", partition, [b"%d-%d" % (partition, n) for n in range(EACH)])
        wait_until(lambda: len(sandbox.admin.children("/brokers/topics")) == 1, "the topic", 60_000)
        settings = {"auto.offset.reset": "smallest", "auto.commit.interval.ms": "200"}
        theirs = sandbox.start_member(scala, "g", {"t": 1}, settings=settings)
        assert len(theirs.wait_delivered(4 * EACH)) == 4 * EACH
        config = ConsumerConfig(group_id="g", zookeeper_connect=connect, auto_offset_reset="smallest")
        ours = ZookeeperConsumerConnector(config)
        seen: list[bytes | None] = []
        try:
            [stream] = ours.create_message_streams({"t": 1})["t"]
            spawn("reader", lambda _: seen.extend(message.value for message in stream), lambda *_: None)
            wait_until(lambda: len(set(sandbox.admin.owners("g", "t").values())) == 2, "both own a part", 30_000)
            for partition in range(4):
                broker.append("t", partition, [b"later"] * EACH)
            wait_until(lambda: len(seen) >= 2 * EACH, "ours reads its half", 30_000)
            theirs.wait_delivered(6 * EACH)
        finally:
            ours.shutdown()
        with RawClient(broker.addresses()[0]) as talk:
            offset, code = talk.committed("g", "t", 0, version=0)
            assert code == 0
            assert offset > 0, "what a Scala member wrote in ZooKeeper is what version 0 of OffsetFetch reads"
