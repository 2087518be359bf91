"""The settings of a member of a coordinator's group: Kafka's keys, ranges and defaults (those of 3.x).

And the old consumer's settings for such a member, who needs no ZooKeeper.  Pure but for the reading of a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import InvalidConfigException
from zkconsumer.settings import (
    JAVA_BLANKS,
    Origin,
    Setting,
    SettingsTable,
    boolean,
    check_group,
    default_of,
    integer,
    optional_text,
    report,
    text,
    wrong,
)

JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000
"""How much longer than the rebalance may last the answer to JoinGroup is waited for (``AbstractCoordinator``)."""

INSTANCE_ID_CHARS_MAX = 249


def _check_instance_id(given: str) -> str:
    """A static member's name, as ``JoinGroupRequest.validateGroupInstanceId`` checks it (2.3)."""
    if given in ("", ".", "..") or not re.fullmatch(r"[a-zA-Z0-9._-]+", given):
        raise ValueError("it is made of letters, digits, '.', '_' and '-' of ASCII, and is not '.' or '..'")
    if len(given) > INSTANCE_ID_CHARS_MAX:
        raise ValueError(f"it has {len(given)} characters, and {INSTANCE_ID_CHARS_MAX} are the most")
    return given


class GroupSettings(SettingsTable):
    """What a member of a coordinator's group can be told."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    group_id = text(
        "group.id",
        ...,
        "The group: its members share the partitions.",
        check_group,
        "letters, digits, '.', '_' and '-' of ASCII; not empty",
    )
    group_instance_id = optional_text(
        "group.instance.id",
        "Makes this a static member (2.3): it may go and come back within `session.timeout.ms` without a rebalance, "
        "and never leaves by itself. No two members of a group may have the same.",
        _check_instance_id,
        f"letters, digits, '.', '_' and '-' of ASCII; at most {INSTANCE_ID_CHARS_MAX}",
    )
    client_rack = optional_text(
        "client.rack",
        "Where this member runs; told to the leader, whose assignor may go by it (3.5). A leader that has one lets the "
        "group form anew when replicas move to other racks.",
        lambda given: given,
        "any text",
    )
    session_timeout_ms = integer(
        "session.timeout.ms",
        45_000,
        "How long the coordinator waits for a silent member before it gives its partitions to the others. This member "
        "stops handing out messages after two thirds of it. Brokers have limits: `group.min.session.timeout.ms` and "
        "`group.max.session.timeout.ms`.",
        unit="ms",
        low=1,
    )
    heartbeat_interval_ms = integer(
        "heartbeat.interval.ms",
        3000,
        "How often the coordinator is told that this member lives, and asked whether the group forms anew. Less than "
        "`session.timeout.ms`, a third of it at most to be safe.",
        unit="ms",
        low=1,
    )
    max_poll_interval_ms = integer(
        "max.poll.interval.ms",
        300_000,
        "How long the others wait for this member when the group forms anew (brokers from 0.10.1 on; older ones wait "
        "for `session.timeout.ms`). A program that reads for longer is not dropped: its streams speak for it.",
        unit="ms",
        low=1,
    )
    request_timeout_ms = integer(
        "request.timeout.ms", 30_000, "How long a broker may take to answer.", unit="ms", low=1
    )
    default_api_timeout_ms = integer(
        "default.api.timeout.ms",
        60_000,
        "How long a commit that is waited for, and a question for committed offsets, are tried again.",
        unit="ms",
        low=1,
    )
    retry_backoff_ms = integer(
        "retry.backoff.ms",
        100,
        "The pause before something that failed is tried again; it doubles each time.",
        unit="ms",
    )
    retry_backoff_max_ms = integer("retry.backoff.max.ms", 1000, "The longest such pause.", unit="ms")
    enable_auto_commit = boolean(
        "enable.auto.commit",
        True,
        "Whether offsets are committed every `auto.commit.interval.ms`, before partitions are given back and at the "
        "end.",
    )
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 5000, "The time between two automatic commits.", unit="ms"
    )

    @staticmethod
    def contradictions(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """See ``SettingsTable``."""
        beat, session = values["heartbeat.interval.ms"], values["session.timeout.ms"]
        if beat < session:
            return []
        return [
            f"heartbeat.interval.ms={beat}: must be less than session.timeout.ms={session}, or the coordinator would "
            "drop this member between two heartbeats; lower it, to a third of the other at most"
        ]  # fmt: skip


NEEDED_OF_THE_OLD = frozenset({"group.id", "bootstrap.servers"})


class CoordinatorConsumerConfig(ConsumerConfig):
    """The old consumer's settings for a member of a coordinator's group.

    ``ConsumerConfig`` in all but this: ``bootstrap.servers`` must be given, and ``zookeeper.connect`` need not be.
    A file that has it, or a ``ConsumerConfig``, does as well: it is not asked.
    """

    __slots__ = ()

    @classmethod
    def is_needed(cls, setting: Setting[Any]) -> bool:
        """See ``ConsumerConfig``."""
        return setting.key in NEEDED_OF_THE_OLD


SETTINGS: dict[str, Setting[Any]] = {
    setting.key: setting for setting in vars(GroupSettings).values() if isinstance(setting, Setting)
}
"""Key -> setting, in the order of the table."""


SAID_BY_THE_OLD = MappingProxyType(
    {
        "group.id": "group.id",
        "enable.auto.commit": "auto.commit.enable",
        "auto.commit.interval.ms": "auto.commit.interval.ms",
    }
)
"""What both know: key -> the old consumer's key, which says it."""


class GroupConfig(GroupSettings):
    """The settings of one member: ``GroupConfig({"group.id": "g", "session.timeout.ms": 10_000})``.

    Numbers and booleans are taken as such or as text.  Raises ``InvalidConfigException`` with a line for each problem.
    """

    __slots__ = ("values",)

    def __init__(self, given: Mapping[str, object]) -> None:
        values: dict[str, Any] = {}
        problems = [f"{key} is not known: leave it out" for key in given if key not in SETTINGS]
        for key, setting in SETTINGS.items():
            raw = given.get(key)
            values[key] = default_of(setting, values)
            if raw is None:
                if setting.default is ...:
                    problems.append(f"{key} is missing: it must be given; allowed is {setting.allowed}")
                continue
            try:
                values[key] = setting.read(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw)
            except ValueError as e:
                problems.append(wrong(setting, raw, str(e)))
        problems += GroupSettings.contradictions(values, frozenset(given))
        if problems:
            raise InvalidConfigException(report(problems))
        self.values: Mapping[str, Any] = values

    @property
    def join_group_timeout_ms(self) -> int:
        """How long the answer to JoinGroup is waited for: it comes when everybody has joined."""
        return max(self.request_timeout_ms, self.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS)

    @property
    def is_dynamic_member(self) -> bool:
        """Whether the member has no name of its own, and leaves when it goes."""
        return self.group_instance_id is None
