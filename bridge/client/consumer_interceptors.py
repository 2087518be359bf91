"""Interceptors of a consumer, as ``org.apache.kafka.clients.consumer`` has them (KIP-42).

    records of poll --> on_consume of the first --> … of the last --> the program
    offsets that the coordinator accepted --> on_commit of each

An interceptor that raises is logged and skipped: the next one gets the records of the last that worked.  The calls are
made on the thread of the program, in the order of ``interceptor.classes``.

Difference from Java: ``on_consume`` that returns None is treated like one that raises.  Java passes null on, and the
program gets it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from bridge.client.class_loader import configure_if_possible, create_from_path, missing_methods
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition

log = logging.getLogger("zkconsumer.member")

_KEY = "interceptor.classes"
_METHODS = ("on_consume", "on_commit", "close")

R = TypeVar("R")
"""The type of the records that one ``poll`` returns."""


class ConsumerInterceptor(Protocol[R]):
    """Sees, and may change, the records that a consumer returns; sees the offsets that it has committed.

    A method ``configure(values)`` is optional: it receives the settings of the consumer before the first record.
    """

    def on_consume(self, records: R) -> R:
        """The records for the program: ``records``, or other ones of the same type."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The coordinator has accepted these offsets."""

    def close(self) -> None:
        """The consumer is closed."""


class ConsumerInterceptors(Generic[R]):
    """The interceptors of one consumer, ``all`` in order.  No method raises an exception of an interceptor."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor[R]]) -> None:
        self.all = tuple(interceptors)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.all)

    def on_consume(self, records: R) -> R:
        """The records for the program, after all interceptors."""
        for interceptor in self.all:
            try:
                returned = interceptor.on_consume(records)
                if returned is None:
                    raise TypeError("on_consume returned None; return the records")
            except Exception:
                log.warning(
                    "interceptor-raised: Error executing interceptor onConsume callback interceptor=%s call=on_consume",
                    _name_of(interceptor),
                    exc_info=True,
                )
            else:
                records = returned
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The coordinator has accepted these offsets."""
        for interceptor in self.all:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log.warning(
                    "interceptor-raised: Error executing interceptor onCommit callback interceptor=%s call=on_commit",
                    _name_of(interceptor),
                    exc_info=True,
                )

    def close(self) -> None:
        """Close each of them."""
        for interceptor in self.all:
            try:
                interceptor.close()
            except Exception:
                log.error(
                    "interceptor-not-closed: Failed to close consumer interceptor interceptor=%s",
                    _name_of(interceptor),
                    exc_info=True,
                )


def load_interceptors(classes: str | Sequence[Any], values: Mapping[str, Any]) -> ConsumerInterceptors[Any]:
    """The interceptors of ``interceptor.classes``: import paths in one text with commas, or paths and objects.

    Each object that is created here is configured with ``values``, the settings of the consumer; an object of the
    program is used as it is.  Raises ``InvalidConfigException`` for a class that cannot be used; those that were
    created before are closed then.
    """
    named = [part.strip() for part in classes.split(",")] if isinstance(classes, str) else list(classes)
    created: list[Any] = []
    interceptors: list[ConsumerInterceptor[Any]] = []
    try:
        for one in filter(None, named):
            interceptor = one
            if isinstance(one, str):
                interceptor = create_from_path(_KEY, one, lambda made: configure_if_possible(made, values))
                created.append(interceptor)
            missing = missing_methods(interceptor, _METHODS)
            if missing:
                name = one if isinstance(one, str) else _name_of(one)
                raise InvalidConfigException(
                    f"{_KEY}: {name} is not a bridge.ConsumerInterceptor; it lacks {', '.join(missing)}"
                )
            interceptors.append(interceptor)
    except InvalidConfigException:
        ConsumerInterceptors([one for one in created if callable(getattr(one, "close", None))]).close()
        raise
    return ConsumerInterceptors(interceptors)


def _name_of(interceptor: object) -> str:
    return f"{type(interceptor).__module__}:{type(interceptor).__qualname__}"
