"""The modern side of the same groups: what knows the group coordinator.

    from bridge import CoordinatorConsumerConfig, CoordinatorConsumerConnector, MigratingConsumerConnector

Imports zkconsumer, never the other way round.  Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.client.config import CoordinatorConsumerConfig
    from bridge.client.connector import CoordinatorConsumerConnector
    from bridge.migration.connector.connector import MigratingConsumerConnector

_HOMES = {
    "CoordinatorConsumerConfig": "bridge.client.config",
    "CoordinatorConsumerConnector": "bridge.client.connector",
    "MigratingConsumerConnector": "bridge.migration.connector.connector",
}

__all__ = ["CoordinatorConsumerConfig", "CoordinatorConsumerConnector", "MigratingConsumerConnector"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
