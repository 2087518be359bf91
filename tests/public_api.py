"""The modules of the public API, and its classes of which programs make no objects.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

API_MODULES = (
    "zkconsumer",
    "bridge",
    "bridge.spark",
    "bridge.testing",
    "zkconsumer.testing.checker",
    "zkconsumer.testing.sandbox",
    "zkconsumer.errors",
    "zkconsumer.javaapi",
)
"""What the API reference describes; a name of two modules is described in the first."""

OPAQUE = {
    "Connection": "a program makes none: what a Connect gives, it gives back to the connector",
    "SecureConnectionFactory": "a program makes none: connection_factory_from_config makes it for a SimpleConsumer",
    "ZkStore": "a program makes none: it hands on what zkconsumer.testing, or an embedding, made",
}
"""Types that are exported for annotations, and whose own methods are the package's."""

MADE_HERE = {
    "ByteColumn",
    "ConsumerConnector",
    "ConsumerIterator",
    "FetchedRecords",
    "KafkaStream",
    "MessageAndMetadata",
    "Poison",
    "Record",
    "RecordBatch",
}
"""What programs get and never make: the arguments of their constructors are the package's."""


def exported(module: str) -> Iterator[tuple[str, Any]]:
    """The names of a module and what they name: its ``__all__``, or the classes that it defines."""
    loaded = import_module(module)
    own = [name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == module]
    for name in getattr(loaded, "__all__", own):
        yield name, getattr(loaded, name)
