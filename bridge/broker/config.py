"""The broker's settings: Kafka's keys of ``server.properties``, with Kafka's defaults.  Pure.

Topic settings override those of the broker.  A key that is not in the tables is rejected, because the development
broker does not have that feature, and must not pretend to have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from bridge.coordinator.config import GroupCoordinatorConfig

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
BOOLEANS = {"true": True, "false": False}
CLEANUP_POLICIES = ("delete", "compact")

BOOLEAN, STRING, INT, _SHORT, LONG = 1, 2, 3, 4, 5
"""The numbers of the types in DescribeConfigs (2.6, KIP-569)."""


def _key(name: str, default: Any, lowest: int = 0, highest: int = _INT_MAX, kind: int = INT) -> Any:
    return field(default=default, metadata={"key": name, "lowest": lowest, "highest": highest, "kind": kind})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The fields have the names of the keys.  Sizes in bytes, times in ms."""

    num_partitions: int = _key("num.partitions", 1, 1, 10_000)
    default_replication_factor: int = _key("default.replication.factor", 1, 1)
    auto_create_topics_enable: bool = _key("auto.create.topics.enable", True, kind=BOOLEAN)
    delete_topic_enable: bool = _key("delete.topic.enable", True, kind=BOOLEAN)
    message_max_bytes: int = _key("message.max.bytes", 1_048_588)
    log_segment_bytes: int = _key("log.segment.bytes", 1_073_741_824, 14)
    log_retention_bytes: int = _key("log.retention.bytes", -1, -1, _LONG_MAX, LONG)
    offsets_topic_replication_factor: int = _key("offsets.topic.replication.factor", 1, 1)
    fetch_max_bytes: int = _key("fetch.max.bytes", 57_671_680, 1024)
    socket_request_max_bytes: int = _key("socket.request.max.bytes", 104_857_600, 1)
    queued_max_request_bytes: int = _key("queued.max.request.bytes", 536_870_912, 1, _LONG_MAX, LONG)
    max_connections: int = _key("max.connections", 10_000, 1)
    connections_max_idle_ms: int = _key("connections.max.idle.ms", 600_000, 1, _LONG_MAX, LONG)


@dataclass(frozen=True, slots=True)
class TopicConfigOverrides:
    """The possible settings of a topic; None: the broker's setting."""

    max_message_bytes: int | None = _key("max.message.bytes", None)
    segment_bytes: int | None = _key("segment.bytes", None, 14)
    retention_bytes: int | None = _key("retention.bytes", None, -1, _LONG_MAX, LONG)
    cleanup_policy: str | None = _key("cleanup.policy", None, kind=STRING)

    @property
    def is_compacted(self) -> bool:
        """Whether every record needs a key.  Nothing is ever compacted: readers cannot notice the difference."""
        return self.cleanup_policy == "compact"

    def to_properties(self) -> dict[str, str]:
        """The settings that were given, as text."""
        return {
            column.metadata["key"]: str(value)
            for column in fields(self)
            if (value := getattr(self, column.name)) is not None
        }


@dataclass(frozen=True, slots=True)
class BrokerConfigEntry:
    """One setting for DescribeConfigs."""

    key: str
    value: str
    kind: int
    is_default: bool


def read_broker_config(properties: Mapping[str, str], other_keys: Iterable[str] = ()) -> BrokerConfig:
    """Read the broker's keys; ``other_keys`` are read elsewhere.  ``UsageError``: an unknown key or an invalid
    value.
    """
    known = {column.metadata["key"] for column in fields(BrokerConfig)}
    for key in properties:
        if key not in known and key not in other_keys:
            raise UsageError(f"{key} is not supported; the settings are {', '.join(sorted(known | {*other_keys}))}")
    return replace(BrokerConfig(), **_parse_properties(BrokerConfig, properties))


def read_topic_config(properties: Mapping[str, str | None]) -> TopicConfigOverrides:
    """Read a topic's keys.  ``UsageError``: an unknown key or an invalid value."""
    known = [column.metadata["key"] for column in fields(TopicConfigOverrides)]
    for key in properties:
        if key not in known:
            raise UsageError(f"{key} cannot be set here: the settings of a topic are {', '.join(known)}")
    given = _parse_properties(
        TopicConfigOverrides, {key: value for key, value in properties.items() if value is not None}
    )
    policy = given.get("cleanup_policy")
    if policy is not None and policy not in CLEANUP_POLICIES:
        raise UsageError(f"cleanup.policy is {policy!r}; it takes {' or '.join(CLEANUP_POLICIES)}")
    return TopicConfigOverrides(**given)


def broker_config_entries(config: BrokerConfig) -> list[BrokerConfigEntry]:
    """All settings of the broker."""
    return [
        BrokerConfigEntry(
            c.metadata["key"],
            _format_value(getattr(config, c.name)),
            c.metadata["kind"],
            getattr(config, c.name) == c.default,
        )
        for c in fields(config)
    ]


def group_config_entries(config: GroupCoordinatorConfig, defaults: GroupCoordinatorConfig) -> list[BrokerConfigEntry]:
    """All settings of the groups; ``defaults`` are those of the release."""
    return [
        BrokerConfigEntry(c.metadata["kafka.key"], str(value), INT, value == getattr(defaults, c.name))
        for c in fields(config)
        for value in [getattr(config, c.name)]
    ]


def topic_config_entries(topic: TopicConfigOverrides, broker: BrokerConfig) -> list[BrokerConfigEntry]:
    """All settings of a topic, with the broker's values where it has none of its own."""
    inherited = {
        "max_message_bytes": broker.message_max_bytes,
        "segment_bytes": broker.log_segment_bytes,
        "retention_bytes": broker.log_retention_bytes,
        "cleanup_policy": CLEANUP_POLICIES[0],
    }
    rows = []
    for column in fields(topic):
        own = getattr(topic, column.name)
        value = inherited[column.name] if own is None else own
        rows.append(
            BrokerConfigEntry(column.metadata["key"], _format_value(value), column.metadata["kind"], own is None)
        )
    return rows


def _parse_properties(
    table: type[BrokerConfig] | type[TopicConfigOverrides], properties: Mapping[str, str]
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for column in fields(table):
        key = column.metadata["key"]
        text = properties.get(key)
        if text is None:
            continue
        if not isinstance(text, str):
            raise UsageError(f"{key} is {text!r}: settings are text, as in server.properties; write {str(text)!r}")
        given[column.name] = _parse_value(key, text.strip(), column.metadata)
    return given


def _parse_value(key: str, text: str, column: Mapping[str, Any]) -> bool | int | str:
    if column["kind"] == STRING:
        return text
    if column["kind"] == BOOLEAN:
        if text.lower() not in BOOLEANS:
            raise UsageError(f"{key} is {text!r}; it takes true or false")
        return BOOLEANS[text.lower()]
    try:
        value = int(text)
    except ValueError as error:
        raise UsageError(f"{key} is {text!r}; it takes a whole number") from error
    if not column["lowest"] <= value <= column["highest"]:
        raise UsageError(f"{key} is {value}; it takes {column['lowest']} to {column['highest']}")
    return value


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
