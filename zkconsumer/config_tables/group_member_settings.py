"""The settings of a member of a coordinator group: Kafka's keys, ranges and defaults (those of 3.x).  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zkconsumer.config_def import (
    Origin,
    Setting,
    SettingsTable,
    boolean,
    check_group_id,
    integer,
    optional_text,
    text,
)

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
        "and `group.max.session.timeout.ms`; before 0.10.1 the maximum is 30000 by default, so set a smaller value "
        "there.",
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
