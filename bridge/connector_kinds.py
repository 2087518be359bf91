"""The connectors of this package that ``consumer.connector`` can name; ``setup.py`` registers them as entry points."""

from __future__ import annotations

from bridge.client.config import CoordinatorConsumerConfig
from bridge.client.coordinator_connector import CoordinatorConsumerConnector
from bridge.migration.dual.connector.migrating_connector import MigratingConsumerConnector
from zkconsumer.connector_selection import ConnectorKind

COORDINATOR = ConnectorKind(CoordinatorConsumerConfig, CoordinatorConsumerConnector)
MIGRATING = ConnectorKind(CoordinatorConsumerConfig, MigratingConsumerConnector)
