"""An old program of ``zkconsumer.javaapi`` gets the connector that its configuration names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bridge import CoordinatorConsumerConfig, CoordinatorConsumerConnector, MigratingConsumerConnector
from bridge.testing.embedded_broker import EmbeddedBroker
from tests.coordinator.test_connector_embedded import broker, config_of, fill
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, connector_selection
from zkconsumer.connector_base import ConsumerConnector
from zkconsumer.errors import InvalidConfigException, UsageError, ZkTimeoutException
from zkconsumer.javaapi import Consumer, MessageAndMetadata
from zkconsumer.javaapi import ConsumerConfig as OldConsumerConfig

__all__ = ["broker"]


def old_program(properties: Mapping[str, str], count: int) -> list[MessageAndMetadata]:
    """A program of Kafka 0.8, line by line: it names no connector."""
    connector = Consumer.createJavaConsumerConnector(OldConsumerConfig(properties))
    try:
        stream = connector.createMessageStreams({"t": 1})["t"][0]
        it = stream.iterator()
        found = []
        while len(found) < count and it.hasNext():
            found.append(it.next())
        connector.commitOffsets()
        return found
    finally:
        connector.shutdown()


def properties_of(broker: EmbeddedBroker) -> dict[str, str]:
    return {
        "group.id": "g",
        "zookeeper.connect": "127.0.0.1:1",
        "bootstrap.servers": broker.bootstrap,
        "auto.offset.reset": "smallest",
        "consumer.connector": "coordinator",
        "session.timeout.ms": "6000",
    }


def test_an_old_program_reads_in_a_group_of_the_coordinator_by_its_configuration(broker: EmbeddedBroker) -> None:
    fill(broker)
    assert len(old_program(properties_of(broker), 20)) == 20
    fill(broker)
    again = old_program(properties_of(broker), 20)
    assert {message.offset() for message in again} == {5, 6, 7, 8, 9}, "it continues at the committed offsets"


@pytest.mark.parametrize(
    ("name", "kind", "config_kind"),
    [
        ("zookeeper", ZookeeperConsumerConnector, ConsumerConfig),
        ("migrating", MigratingConsumerConnector, CoordinatorConsumerConfig),
        ("coordinator", CoordinatorConsumerConnector, CoordinatorConsumerConfig),
    ],
)
def test_each_name_has_its_connector_and_its_configuration(
    name: str,
    kind: type[ConsumerConnector[object]],
    config_kind: type[ConsumerConfig],  # type: ignore[type-var]
) -> None:
    assert name == kind.CONNECTOR
    found = connector_selection._kind(name)
    assert (found.connector_class, found.config_class) == (kind, config_kind)


def test_without_the_key_the_program_is_a_member_of_a_zookeeper_group() -> None:
    config = OldConsumerConfig(
        {"group.id": "g", "zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "100"}
    )
    assert type(config) is ConsumerConfig
    with pytest.raises(ZkTimeoutException):
        Consumer.create(config)


def test_a_name_that_no_connector_has_is_an_error_of_the_configuration() -> None:
    with pytest.raises(InvalidConfigException, match=r"consumer\.connector=kraft: .*zookeeper or migrating or coord"):
        OldConsumerConfig({"group.id": "g", "zookeeper.connect": "a:1", "consumer.connector": "kraft"})


def test_a_connector_without_its_package_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_selection, "entry_points", lambda **_: ())
    with pytest.raises(InvalidConfigException, match=r"consumer\.connector=migrating: .* install zkconsumer with pip"):
        OldConsumerConfig({"group.id": "g", "zookeeper.connect": "a:1", "consumer.connector": "migrating"})


def test_a_program_that_creates_another_connector_itself_gets_an_error(broker: EmbeddedBroker) -> None:
    with pytest.raises(UsageError, match=r"consumer\.connector=coordinator, but the program creates a ZookeeperC"):
        ZookeeperConsumerConnector(config_of(broker, consumer_connector="coordinator"))
    with pytest.raises(UsageError, match=r"consumer\.connector=zookeeper, but the program creates a CoordinatorC"):
        CoordinatorConsumerConnector(config_of(broker, consumer_connector="zookeeper"))
    with pytest.raises(UsageError, match=r"consumer\.connector=coordinator, but the program creates a MigratingC"):
        MigratingConsumerConnector(config_of(broker, consumer_connector="coordinator"))


def test_what_is_no_configuration_is_a_usage_error() -> None:
    properties = {"group.id": "g", "zookeeper.connect": "127.0.0.1:1"}
    with pytest.raises(UsageError, match="takes a ConsumerConfig, not dict"):
        Consumer.createJavaConsumerConnector(properties)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be a mapping from keys to values, not str"):
        OldConsumerConfig("consumer.properties")  # type: ignore[arg-type]
