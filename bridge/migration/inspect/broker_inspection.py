"""Asks the brokers which releases they may be, whether they coordinate groups, and how long they keep offsets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.coordinator.release_features import RELEASES
from bridge.migration.inspect.group_snapshot import BrokerSnapshot
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.kafka.error_codes import NONE
from zkconsumer.wire.schemas import DESCRIBE_CONFIGS, JOIN_GROUP, OFFSET_COMMIT
from zkconsumer.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from zkconsumer.wire.schemas.offset_commit import RETENTION_TO

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.types import BrokerAddress

BROKER_RESOURCE_TYPE = 4
"""``resource_type`` of a broker in DescribeConfigs."""

RETENTION_KEY = "offsets.retention.minutes"
MINUTE_MS = 60_000
_MINUTES = re.compile(r"[0-9]{1,10}", re.ASCII)


def inspect_brokers(session: AdminSession) -> tuple[tuple[BrokerSnapshot, ...], int | None, bool | None]:
    """Every broker, by id; the shortest retention of offsets, in ms; and whether a broker counts it from each commit.

    Brokers before 2.1 count from each commit, also while the group has members (KIP-211); the highest version of
    OffsetCommit shows which they are.  The time is None where no broker reports it: brokers before 0.11 cannot be
    asked, and later ones require a permission.  Raises ``UnavailableError`` when ZooKeeper does not return the brokers.
    """
    seen: list[BrokerSnapshot] = []
    kept: list[int] = []
    by_commit: list[bool] = []
    for broker, ranges in session.brokers.execute_on_each(_brokers(session), lambda _, ranges, __: ranges).items():
        name = f"{broker.host}:{broker.port}"
        if isinstance(ranges, BROKER_REQUEST_ERRORS):
            seen.append(BrokerSnapshot(name, None, str(ranges)))
            continue
        seen.append(BrokerSnapshot(name, ranges.supports(JOIN_GROUP, 0), _release_range(ranges)))
        by_commit.append(not ranges.supports(OFFSET_COMMIT, RETENTION_TO + 1))
        minutes = _retention_minutes(session, broker)
        if minutes is not None:
            kept.append(minutes * MINUTE_MS)
    return tuple(seen), min(kept, default=None), any(by_commit) if by_commit else None


def _brokers(session: AdminSession) -> list[BrokerAddress]:
    """The brokers with their ids: a bootstrap server has no id, and is one of many."""
    if session.has_topics_in_zookeeper:
        return session.brokers.all()
    try:
        return sorted(session.brokers.leaders(None).brokers.values())
    except BROKER_REQUEST_ERRORS:
        return session.brokers.all()


def _release_range(ranges: SupportedVersions) -> str:
    """The range of releases, by the versions that the broker supports: the table has one release of each kind."""
    if ranges.is_assumed:
        return "0.9" if ranges.supports(JOIN_GROUP, 0) else "before 0.9"
    names = [name for name, one in RELEASES.items() if one.has_api_versions]
    reached = [name for name in names if _supports_all(ranges, name)]
    if not reached:
        return f"before {names[0]}"
    later = names[names.index(reached[-1]) + 1 :]
    return f"from {reached[-1]} on" + (f", before {later[0]}" if later else "")


def _supports_all(ranges: SupportedVersions, release: str) -> bool:
    """Whether the broker supports the highest version of every request that this release supports."""
    return all(
        key in ranges.ranges and ranges.ranges[key].highest >= one.highest
        for key, one in RELEASES[release].ranges.items()
    )


def _retention_minutes(session: AdminSession, broker: BrokerAddress) -> int | None:
    asked = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE_TYPE, resource_name=str(broker.broker_id), configuration_keys=[RETENTION_KEY]
    )
    body = DescribeConfigsRequest(resources=[asked])

    def ask(connection: Connection, ranges: SupportedVersions) -> DescribeConfigsResponse:
        return connection.request(DESCRIBE_CONFIGS, ranges.pick(DESCRIBE_CONFIGS), body, REQUEST_TIMEOUT_MS)

    try:
        response = session.brokers.execute(broker, ask)
    except BROKER_REQUEST_ERRORS:
        return None
    for one in response.results:
        for config in one.configs if one.error_code == NONE.code else ():
            text = config.value or ""
            if config.name == RETENTION_KEY and _MINUTES.fullmatch(text):
                return int(text)
    return None
