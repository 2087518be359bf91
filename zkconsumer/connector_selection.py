"""Creates the connector that a configuration names (``consumer.connector``), so that a program need not name it.

    consumer.connector    connector                       from
    zookeeper             ZookeeperConsumerConnector      this package; the default
    migrating             MigratingConsumerConnector      an entry point of the group ``zkconsumer.connectors``
    coordinator           CoordinatorConsumerConnector    an entry point of the group ``zkconsumer.connectors``

The entry points are those of ``bridge``, which this package does not import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.connector_base import ConsumerConnector
from zkconsumer.errors import InvalidConfigException, UsageError

CONNECTOR_KEY = "consumer.connector"
ENTRY_POINTS = "zkconsumer.connectors"


@dataclass(frozen=True, slots=True)
class ConnectorKind:
    """A connector class, and the class that reads its configuration."""

    config_class: type[ConsumerConfig]
    connector_class: type[ConsumerConnector[Any]]


ZOOKEEPER = ConnectorKind(ConsumerConfig, ZookeeperConsumerConnector)


def read_config(properties: Mapping[str, object]) -> ConsumerConfig:
    """The configuration in these properties, for the connector that they name.

    Raises ``InvalidConfigException`` with a line for each problem, and ``UsageError`` for what is no mapping.
    """
    if not isinstance(properties, Mapping):
        raise UsageError(
            f"the properties must be a mapping from keys to values, not {type(properties).__name__}: read a file with "
            'zkconsumer.ConsumerConfig.from_properties("consumer.properties")'
        )
    return _kind(str(properties.get(CONNECTOR_KEY, "")).strip()).config_class.from_properties(properties)


def create_connector(config: ConsumerConfig) -> ConsumerConnector[Any]:
    """The connector that the configuration names.  Raises what the constructor of its class raises."""
    # What is no configuration is an error that the constructor explains.
    kind = _kind(config.consumer_connector) if isinstance(config, ConsumerConfig) else ZOOKEEPER
    # Each class of connectors has its own signature, and accepts the configuration alone.
    create: Any = kind.connector_class
    connector: ConsumerConnector[Any] = create(config)
    return connector


def _kind(name: str) -> ConnectorKind:
    """A name that no package has is an error of the configuration, which its class reports with the others."""
    for entry in entry_points(group=ENTRY_POINTS, name=name) if name else ():
        try:
            kind = entry.load()
        except Exception as error:
            raise InvalidConfigException(f"{CONNECTOR_KEY}={name}: {entry.value} cannot be loaded: {error}") from error
        assert isinstance(kind, ConnectorKind), "what an entry point of this group names"
        return kind
    if name in ("migrating", "coordinator"):
        raise InvalidConfigException(
            f"{CONNECTOR_KEY}={name}: no installed package has this connector; install zkconsumer with pip, so that "
            "Python finds its entry points"
        )
    return ZOOKEEPER
