"""Messages larger than the fetch size, on real brokers that send only their heads."""

from __future__ import annotations

import pytest

import zkconsumer.connector_base
from tests.sandbox_fixtures import Clusters
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import MessageSizeTooLargeException
from zkconsumer.kafka.fetcher_thread import FetchSettings
from zkconsumer.testing.sandbox import Sandbox

pytestmark = [pytest.mark.real, pytest.mark.nightly]

FETCH_BYTES = 1_000
GROWN_BYTES = 100_000


@pytest.mark.parametrize(("release", "zookeeper"), [("0.8.2.2", "3.4.6"), ("0.9.0.1", "3.8")])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_messages_larger_than_the_fetch_size_are_read_and_larger_ones_gone_past(
    clusters: Clusters,
    names: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    release: str,
    zookeeper: str,
    codec: str,
) -> None:
    monkeypatch.setattr(
        zkconsumer.connector_base,
        "FetchSettings",
        lambda **how: FetchSettings(**how, large_message_bytes_max=GROWN_BYTES),
    )
    sandbox: Sandbox = clusters.get(release, zookeeper)
    group, topic = names
    sandbox.create_topic(topic, 1)
    sizes = [10, 50_000, 10, 90_000, 10]
    for size in sizes:
        sandbox.produce(topic, 0, [bytes(n * n % 251 for n in range(size))], codec=codec)
    if codec == "none":
        sandbox.produce(topic, 0, [b"x" * 200_000], codec=codec)
        sandbox.produce(topic, 0, [b"last"], codec=codec)
    config = ConsumerConfig(
        group_id=group,
        zookeeper_connect=sandbox.zookeeper_connect,
        auto_offset_reset="smallest",
        consumer_timeout_ms=20_000,
        fetch_message_max_bytes=FETCH_BYTES,
    )
    with ZookeeperConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        iterator = stream.iterator()
        assert [len(next(iterator).value or b"") for _ in sizes] == sizes
        if codec == "none":
            with pytest.raises(MessageSizeTooLargeException, match="partition 0 at fetch offset 5"):
                next(iterator)
            skipped = iterator.skip_poison()
            assert skipped is not None
            assert (skipped.offset, skipped.next_offset) == (5, 6)
            assert next(iterator).value == b"last"
        connector.commit_offsets()
        assert sandbox.admin.offsets(group, topic) == {0: 7 if codec == "none" else 5}
