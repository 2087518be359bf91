"""The configuration of a group coordinator: Kafka's keys of ``server.properties``, with Kafka's defaults.  Pure.

``read_group_coordinator_config`` parses them; the defaults of an old release come from its ``Behaviour``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from zkconsumer.errors import UsageError

_KEY = "kafka.key"
_INT_MAX = 2**31 - 1


def _key(name: str, default: int, lowest: int) -> Any:
    return field(default=default, metadata={_KEY: name, "lowest": lowest})


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Kafka's ``GroupCoordinatorConfig`` and ``OffsetConfig``.  ``offsets_topic_partitions`` must never change on a
    live log.
    """

    offsets_topic_partitions: int = _key("offsets.topic.num.partitions", 50, 1)
    group_min_session_timeout_ms: int = _key("group.min.session.timeout.ms", 6_000, 0)
    group_max_session_timeout_ms: int = _key("group.max.session.timeout.ms", 1_800_000, 0)
    group_initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", 3_000, 0)
    group_max_size: int = _key("group.max.size", _INT_MAX, 1)
    offset_metadata_max_chars: int = _key("offset.metadata.max.bytes", 4_096, 0)
    offsets_retention_minutes: int = _key("offsets.retention.minutes", 10_080, 1)
    offsets_retention_check_interval_ms: int = _key("offsets.retention.check.interval.ms", 600_000, 1)

    @property
    def offsets_retention_ms(self) -> int:
        """The retention of offsets that are not committed again."""
        return self.offsets_retention_minutes * 60_000


def group_coordinator_keys() -> list[str]:
    """The keys of the coordinator."""
    return [column.metadata[_KEY] for column in fields(GroupCoordinatorConfig)]


def read_group_coordinator_config(
    properties: Mapping[str, str], defaults: GroupCoordinatorConfig | None = None
) -> GroupCoordinatorConfig:
    """Parses the coordinator's keys in a broker's properties; other keys are ignored.

    Raises ``UsageError`` for a value that is not a number, or outside its limits.
    """
    given: dict[str, int] = {}
    for column in fields(GroupCoordinatorConfig):
        key, lowest = column.metadata[_KEY], column.metadata["lowest"]
        text = properties.get(key)
        if text is None:
            continue
        try:
            value = int(text.strip())
        except ValueError as error:
            raise UsageError(f"{key} is {text!r}; set it to an integer") from error
        if not lowest <= value <= _INT_MAX:
            raise UsageError(f"{key} is {value}; set it to {lowest} to {_INT_MAX}")
        given[column.name] = value
    config = replace(defaults or GroupCoordinatorConfig(), **given)
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise UsageError(
            f"group.min.session.timeout.ms ({config.group_min_session_timeout_ms}) is above "
            f"group.max.session.timeout.ms ({config.group_max_session_timeout_ms}), so no member could join: lower it"
        )
    return config
