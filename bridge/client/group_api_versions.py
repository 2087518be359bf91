"""The group APIs of a broker, also of one without ApiVersions: brokers of 0.8 do not support group members."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from zkconsumer.kafka.coordinator_requests import NO_MEMBERS_MESSAGE
from zkconsumer.kafka.group.errors import UnsupportedVersionException
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, OFFSET_FETCH, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from zkconsumer.kafka.broker_connection import Connection

GROUP_APIS_OF_0_9 = MappingProxyType(
    {
        **{api.key: VersionRange(0, 0) for api in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)},
        OFFSET_COMMIT.key: VersionRange(0, 2),
        OFFSET_FETCH.key: VersionRange(0, 1),
    }
)
"""The group APIs of a broker without ApiVersions, if it is one of 0.9."""

CLOSED_MIN = 2
"""How often a broker must close the connection on a group request, and answer others in between, before it counts as
one without group APIs: a broker that shuts down closes connections, too."""

_OF_NOBODY = HeartbeatRequest(group_id="-", generation_id=-1, member_id="")


def with_group_apis(connection: Connection, ranges: SupportedVersions, timeout_ms: int) -> SupportedVersions:
    """The supported versions of a broker, including its group APIs.

    Raises ``UnsupportedVersionException`` for one before 0.9, and the errors of ``Connection.request``.
    """
    if not ranges.is_assumed:
        return ranges
    if JOIN_GROUP.key not in ranges.ranges and not _answers(connection, timeout_ms):
        raise UnsupportedVersionException(NO_MEMBERS_MESSAGE.format(connection.host, connection.port))
    return SupportedVersions(MappingProxyType({**ranges.ranges, **GROUP_APIS_OF_0_9}), is_assumed=True)


def _answers(connection: Connection, timeout_ms: int) -> bool:
    for _ in range(CLOSED_MIN):
        try:
            connection.request(HEARTBEAT, 0, _OF_NOBODY, timeout_ms)
        except BrokerConnectionError as error:
            if error.reason is not ConnectionFailureReason.CLOSED:
                raise
            negotiate(connection, timeout_ms)
        else:
            return True
    return False
