"""The settings of a member of a coordinator group: Kafka's keys, ranges and defaults (those of 3.x).

``GroupMemberConfig`` has the settings of the group.  ``CoordinatorConsumerConfig`` is the complete configuration of
such a member: the Scala consumer's settings, under their old keys and under Kafka's, and those of the group.  Pure,
except that it reads files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bridge.client import kafka_consumer_keys
from zkconsumer.config import ConsumerConfig
from zkconsumer.config_def import (
    JAVA_BLANKS,
    Origin,
    SameAsSetting,
    Setting,
    SettingsTable,
    boolean,
    check_group_id,
    default_of,
    integer,
    invalid_value_text,
    optional_text,
    problems_text,
    text,
)
from zkconsumer.configuration import settings_of
from zkconsumer.errors import InvalidConfigException

JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000
"""The time in addition to the rebalance timeout for the answer to JoinGroup (``AbstractCoordinator``)."""

INSTANCE_ID_CHARS_MAX = 249


def _check_instance_id(given: str) -> str:
    """The id of a static member, as ``JoinGroupRequest.validateGroupInstanceId`` checks it (2.3)."""
    if given in ("", ".", "..") or not re.fullmatch(r"[a-zA-Z0-9._-]+", given):
        raise ValueError("use letters, digits, '.', '_' and '-' of ASCII, and neither '.' nor '..'")
    if len(given) > INSTANCE_ID_CHARS_MAX:
        raise ValueError(f"it has {len(given)} characters, the maximum is {INSTANCE_ID_CHARS_MAX}")
    return given


def _rack() -> Setting[str | None]:
    """``client.rack``; an empty text is None, as in Kafka."""
    made = optional_text(
        "client.rack",
        "The rack of this member; the leader's assignor may use it (3.5). A leader with a rack starts a rebalance "
        "when replicas move to other racks. Records are fetched from leaders, in any rack.",
        lambda given: given,
        "any text",
    )
    read = made.parse
    made.parse = lambda given: read(given) or None
    return made


class MemberSettings(SettingsTable):
    """The settings that only a member of a coordinator group has."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    group_instance_id = optional_text(
        "group.instance.id",
        "Makes this a static member (2.3): it may restart within `session.timeout.ms` without a rebalance, "
        "and does not leave the group when it is closed. Each member of a group needs a different value.",
        _check_instance_id,
        f"letters, digits, '.', '_' and '-' of ASCII; at most {INSTANCE_ID_CHARS_MAX}",
    )
    client_rack = _rack()
    session_timeout_ms = integer(
        "session.timeout.ms",
        45_000,
        "How long the coordinator waits for a heartbeat before it gives the member's partitions to others. This member "
        "stops the delivery of messages after two thirds of it. Brokers have limits: `group.min.session.timeout.ms` "
        "and `group.max.session.timeout.ms`.",
        unit="ms",
        low=1,
    )
    heartbeat_interval_ms = integer(
        "heartbeat.interval.ms",
        3000,
        "How often the member sends a heartbeat, whose answer reports a rebalance. Less than "
        "`session.timeout.ms`; a third of it or less is safe.",
        unit="ms",
        low=1,
    )
    max_poll_interval_ms = integer(
        "max.poll.interval.ms",
        300_000,
        "How long the program may work on a record before it asks its stream for the next one. After that this member "
        "leaves the group, and its partitions go to others; it joins again when the program asks for the next record "
        "([how it is counted](#maxpollintervalms)). It is also how long the others wait for this member in a rebalance "
        "(brokers from 0.10.1 on; older ones wait for `session.timeout.ms`).",
        unit="ms",
        low=1,
    )
    request_timeout_ms = integer(
        "request.timeout.ms", 30_000, "How long a broker may take to answer.", unit="ms", low=1
    )
    default_api_timeout_ms = integer(
        "default.api.timeout.ms",
        60_000,
        "How long a blocking commit, and a request for committed offsets, are retried.",
        unit="ms",
        low=1,
    )
    retry_backoff_ms = integer(
        "retry.backoff.ms",
        100,
        "The pause before a failed request is retried; it doubles each time.",
        unit="ms",
    )
    retry_backoff_max_ms = integer("retry.backoff.max.ms", 1000, "The maximum of this pause.", unit="ms")

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """See ``SettingsTable``."""
        beat, session = values["heartbeat.interval.ms"], values["session.timeout.ms"]
        if beat < session:
            return []
        return [
            f"heartbeat.interval.ms={beat}: must be less than session.timeout.ms={session}, or the coordinator would "
            "remove this member between two heartbeats; lower it, to a third of the other at most"
        ]  # fmt: skip


class SharedSettings(SettingsTable):
    """The settings that the Scala consumer has too, under this key or another."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    group_id = text(
        "group.id",
        ...,
        "The group: its partitions are divided among its members.",
        check_group_id,
        "letters, digits, '.', '_' and '-' of ASCII; not empty",
    )
    enable_auto_commit = boolean(
        "enable.auto.commit",
        True,
        "Whether offsets are committed every `auto.commit.interval.ms`, before partitions are revoked, and when the "
        "connector is closed.",
    )
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 5000, "The time between two automatic commits.", unit="ms"
    )


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


MEMBER_SETTINGS = settings_of([MemberSettings])
"""Key -> setting that only a member of a coordinator group has, in the order of the table."""

GROUP_SETTINGS = settings_of([SharedSettings, MemberSettings])
"""Key -> setting of the group, in the order of the tables."""


SCALA_CONSUMER_KEYS = MappingProxyType(
    {
        "group.id": "group.id",
        "enable.auto.commit": "auto.commit.enable",
        "auto.commit.interval.ms": "auto.commit.interval.ms",
    }
)
"""Kafka's key -> the Scala consumer's key of the same setting."""


class GroupMemberConfig(SharedSettings, MemberSettings):
    """The settings of one member: ``GroupMemberConfig({"group.id": "g", "session.timeout.ms": 10_000})``.

    Numbers and booleans may be given as text.  Raises ``InvalidConfigException`` with a line for each problem.
    """

    __slots__ = ("values",)

    def __init__(self, given: Mapping[str, object]) -> None:
        values: dict[str, Any] = {}
        problems = [f"{key} is not known: remove it" for key in given if key not in GROUP_SETTINGS]
        for key, setting in GROUP_SETTINGS.items():
            raw = given.get(key)
            values[key] = default_of(setting, values)
            if raw is None:
                if setting.default is ...:
                    problems.append(f"{key} is missing: set it; allowed is {setting.allowed}")
                continue
            try:
                values[key] = setting.parse(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw)
            except ValueError as e:
                problems.append(invalid_value_text(setting, raw, str(e)))
        problems += MemberSettings.conflicts(values, frozenset(given))
        if problems:
            raise InvalidConfigException(problems_text(problems))
        self.values: Mapping[str, Any] = values

    @property
    def join_group_timeout_ms(self) -> int:
        """How long the member waits for the answer to JoinGroup, which arrives when all members have joined; in ms."""
        return max(self.request_timeout_ms, self.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS)

    @property
    def is_dynamic_member(self) -> bool:
        """Whether the member has no ``group.instance.id``, so that it leaves the group when it is closed."""
        return self.group_instance_id is None
