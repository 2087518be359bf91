"""The network client with the cluster metadata, from bootstrap.servers to each broker, over real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from bridge.testing import EmbeddedBroker
from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.timer import Timer
from zkconsumer.errors import SaslAuthenticationException
from zkconsumer.kafka.api_versions_deny_list import ApiVersionsDenyList
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.metadata.default_metadata_updater import DefaultMetadataUpdater
from zkconsumer.kafka.metadata.metadata import Metadata
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.net.network_client import NetworkClient
from zkconsumer.kafka.net.network_machine import NetworkMachine, NetworkSettings
from zkconsumer.kafka.net.selector import Selector
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.wire.schemas import METADATA
from zkconsumer.wire.schemas.metadata import MetadataRequest

WAIT_MS = 30_000
REQUEST_MS = 5_000


@contextlib.contextmanager
def client_of(
    *addresses: tuple[str, int], security: BrokerSecurity | None = None
) -> Iterator[tuple[ConsumerNetworkClient, Metadata]]:
    metadata = Metadata(10, 300_000)
    metadata.bootstrap(addresses)
    machine = NetworkMachine(
        NetworkSettings(request_timeout_ms=REQUEST_MS, reconnect_backoff_ms=1, reconnect_backoff_max_ms=20),
        DefaultMetadataUpdater(metadata, REQUEST_MS),
        uniform=lambda: 0.0,
        deny_list=ApiVersionsDenyList(),
    )
    channels = SecureConnectionFactory(security or BrokerSecurity("PLAINTEXT"), SYSTEM_CLOCK)
    network = NetworkClient(machine, Selector(channels.new_channel, SYSTEM_CLOCK), SYSTEM_CLOCK)
    client = ConsumerNetworkClient(network, metadata, SYSTEM_CLOCK, retry_backoff_ms=10, request_timeout_ms=REQUEST_MS)
    try:
        yield client, metadata
    finally:
        client.close()


def timer() -> Timer:
    return Timer(SYSTEM_CLOCK, WAIT_MS)


def ask_all(client: ConsumerNetworkClient, metadata: Metadata) -> set[int]:
    """Ask each broker that the metadata name; returns the ids of those that answer."""
    body = RequestBuilder(METADATA, MetadataRequest(topics=[]))
    futures = {node.id: client.send(node, body) for node in metadata.fetch().nodes}
    for future in futures.values():
        assert client.poll_future(future, timer())
    return {node_id for node_id, future in futures.items() if future.succeeded}


@pytest.mark.parametrize("release", ["0.9.0.1", "0.11.0.3", "1.1.1", "3.9.1", "4.1.1"])
def test_the_metadata_lead_from_a_bootstrap_address_to_each_broker(release: str) -> None:
    with EmbeddedBroker(release=release, nodes=3) as broker:
        broker.create_topic("clicks", partitions=6)
        with client_of(broker.addresses()[1][1:]) as (client, metadata):
            assert [node.id for node in metadata.fetch().nodes] == [-1]
            assert client.await_metadata_update(timer())
            assert ask_all(client, metadata) == {0, 1, 2}
            assert metadata.update_version == 2


def test_a_bootstrap_address_that_is_down_is_passed_over() -> None:
    with FakeCluster(brokers=2).serve() as cluster:
        first, second = (cluster.address(number)[1:] for number in range(2))
        cluster.stop_broker(0)
        with client_of(first, second) as (client, metadata):
            assert client.await_metadata_update(timer())
            assert [node.id for node in metadata.fetch().nodes] == [1]


def test_a_broker_that_leaves_is_noticed_with_its_connection() -> None:
    with FakeCluster(brokers=2).serve() as cluster, client_of(cluster.address(0)[1:]) as (client, metadata):
        assert client.await_metadata_update(timer())
        assert ask_all(client, metadata) == {0, 1}
        version = metadata.update_version
        cluster.stop_broker(1)
        wait = timer()
        while metadata.update_version == version and not wait.is_expired:
            client.poll(wait)
        assert [node.id for node in metadata.fetch().nodes] == [0], "without a request of the program"


def test_a_failed_login_is_raised_in_the_thread_that_polls() -> None:
    security = BrokerSecurity("SASL_PLAINTEXT", None, SaslSettings("PLAIN", "ann", "wrong"))
    listeners = ["SASL_PLAINTEXT://127.0.0.1:0"]
    with (
        EmbeddedBroker(listeners=listeners, users={"ann": "right"}) as broker,
        client_of(broker.addresses()[0][1:], security=security) as (client, _),
        pytest.raises(SaslAuthenticationException),
    ):
        client.await_metadata_update(timer())
