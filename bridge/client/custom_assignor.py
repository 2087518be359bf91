"""Loads an assignor of the user: ``partition.assignment.strategy=package.module:ClassName``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.client.class_loader import configure_if_possible, create_from_path, missing_methods
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor, RebalanceProtocol

_KEY = "partition.assignment.strategy"
_METHODS = ("assign", "subscription_user_data", "on_assignment")


def load_assignor(path: str, values: Mapping[str, Any]) -> ConsumerPartitionAssignor:
    """A new object of the class at the import path, which implements ``ConsumerPartitionAssignor``.

    The class is called without arguments.  If it has a method ``configure``, this is called with ``values``, the
    settings of the member (as for classes with Java's ``Configurable``).  Raises ``InvalidConfigException`` for a class
    that does not exist, cannot be created, or lacks a part of the interface.
    """
    return check_assignor(create_from_path(_KEY, path, lambda created: configure_if_possible(created, values)), path)


def check_assignor(assignor: Any, name: str) -> ConsumerPartitionAssignor:
    """The object itself; ``InvalidConfigException`` if it lacks a part of the interface.  ``name``: for the error."""
    missing = missing_methods(assignor, _METHODS)
    if not isinstance(getattr(assignor, "name", None), str) or not assignor.name:
        missing.append("name (a text)")
    protocols = getattr(assignor, "supported_protocols", None)
    if (
        not isinstance(protocols, frozenset)
        or not protocols
        or not all(isinstance(p, RebalanceProtocol) for p in protocols)
    ):
        missing.append("supported_protocols (a frozenset of RebalanceProtocol that is not empty)")
    if missing:
        raise InvalidConfigException(
            f"{_KEY}: {name} is not a bridge.ConsumerPartitionAssignor; it lacks {', '.join(missing)}"
        )
    checked: ConsumerPartitionAssignor = assignor
    return checked
