"""``CoordinatorConsumerConfig``: the complete configuration of a member of a coordinator group with streams.

It has the Scala consumer's settings, under their old keys and under Kafka's, and those of the group
(``zkconsumer.config_tables.group_member_settings``).  Pure, except that it reads files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bridge.client import kafka_consumer_keys
from zkconsumer.config import ConsumerConfig
from zkconsumer.config_def import (
    Origin,
    SameAsSetting,
    Setting,
    SettingsTable,
    integer,
)
from zkconsumer.config_tables.group_member_settings import MemberSettings


class TranslatedSettings(SettingsTable):
    """Settings of the Scala consumer that also accept Kafka's values, or depend on Kafka's own settings."""

    __slots__ = ()

    ORIGIN = Origin.SCALA_CONSUMER

    auto_offset_reset = kafka_consumer_keys.auto_offset_reset_setting()
    partition_assignment_strategy = kafka_consumer_keys.partition_assignment_strategy_setting()
    socket_timeout_ms = integer(
        "socket.timeout.ms",
        SameAsSetting("request.timeout.ms"),
        "How long a broker may take to accept a connection, and to answer requests other than those to the "
        "coordinator. At least `fetch.wait.max.ms`.",
        unit="ms",
        low=1,
    )

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """See ``SettingsTable``."""
        ours, theirs = values["socket.timeout.ms"], values["request.timeout.ms"]
        if ours == theirs or not {"socket.timeout.ms", "request.timeout.ms"} <= given:
            return []
        return [
            f"socket.timeout.ms={ours} and request.timeout.ms={theirs}: both are the time that a broker may take to "
            "answer, and they differ; remove one of them"
        ]


REQUIRED_KEYS = frozenset({"group.id", "bootstrap.servers"})


class CoordinatorConsumerConfig(MemberSettings, TranslatedSettings, ConsumerConfig):
    """The configuration of a member of a coordinator group: from a file of the Scala consumer, or of a Java consumer.

    Like ``ConsumerConfig``, except that ``bootstrap.servers`` is required and ``zookeeper.connect`` is not.
    Kafka's own keys have the meaning that they have for Kafka's consumer: each sets a key of the Scala consumer
    (``enable.auto.commit`` is ``auto.commit.enable``) or a setting of the group (``session.timeout.ms``).  A key that
    would change the meaning and is not supported is an error, and so are two keys of one setting with different values.
    A key that is not set has the Scala consumer's default where the Scala consumer has the key
    (``auto.commit.interval.ms`` is 60000), else that of Kafka 3.0: ``migration_docs/reference/coordinator-config.md``
    has both for each key.
    """

    __slots__ = ()

    @classmethod
    def is_required(cls, setting: Setting[Any]) -> bool:
        """See ``ConsumerConfig``."""
        return setting.key in REQUIRED_KEYS

    @classmethod
    def canonical_key(cls, key: str) -> str:
        """See ``ConsumerConfig``."""
        return kafka_consumer_keys.SPELLINGS.get(key, key)

    @classmethod
    def why_unsupported(cls, key: str, value: object) -> str:
        """See ``ConsumerConfig``."""
        return kafka_consumer_keys.why_unsupported(key, value)

    @classmethod
    def is_only_supported_value(cls, key: str, value: object) -> bool:
        """See ``ConsumerConfig``."""
        return kafka_consumer_keys.is_only_supported_value(key, value)

    @classmethod
    def why_ignored(cls, key: str) -> str:
        """See ``ConsumerConfig``."""
        return kafka_consumer_keys.why_ignored(key)


SCALA_CONSUMER_KEYS = MappingProxyType(
    {
        "group.id": "group.id",
        "enable.auto.commit": "auto.commit.enable",
        "auto.commit.interval.ms": "auto.commit.interval.ms",
    }
)
"""Kafka's key -> the Scala consumer's key of the same setting."""
