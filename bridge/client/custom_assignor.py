"""Creates the assignors of ``partition.assignment.strategy``, also those of the user (``package.module:ClassName``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.client.assignors import ASSIGNORS
from bridge.client.class_loader import configure_if_possible, create_from_path, missing_methods
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor, RebalanceProtocol

_KEY = "partition.assignment.strategy"
_METHODS = ("assign", "subscription_user_data", "on_assignment")


def create_assignors(strategies: Sequence[object], values: Mapping[str, Any]) -> list[ConsumerPartitionAssignor]:
    """The assignors with these names and import paths, and these objects; ``values``: as for ``load_assignor``.

    Raises ``InvalidConfigException`` for an assignor of the user that cannot be used, and for two of one name.
    """
    assignors = [_assignor(strategy, values) for strategy in strategies]
    names = [assignor.name for assignor in assignors]
    if len(set(names)) < len(names):
        raise InvalidConfigException(
            f"{_KEY}: two of {', '.join(map(str, strategies))} have the same name ({', '.join(names)}); "
            "the group knows assignors by their names, so remove one, or rename it"
        )
    return assignors


def _assignor(strategy: object, values: Mapping[str, Any]) -> ConsumerPartitionAssignor:
    if not isinstance(strategy, str):
        return check_assignor(strategy, type(strategy).__qualname__)
    return ASSIGNORS[strategy]() if strategy in ASSIGNORS else load_assignor(strategy, values)


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
