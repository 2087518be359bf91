"""The API versions and the behaviour of brokers of each release, as a table, for the development broker.  Pure.

The versions are those of real brokers' ApiVersions responses (before 0.10: those that the broker accepts), of the APIs
that it has; every difference was seen on a real broker.  The differences of the coordinators are in ``behaviour``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from zkconsumer.kafka.error_codes import OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, ErrorCode
from zkconsumer.kafka.supported_versions import VersionRange
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    Api,
)

MAX_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP = -3, -4, -5
"""Special times of ListOffsets: the record with the highest timestamp, and two of tiered storage."""


class IntroducedIn(NamedTuple):
    """The release of brokers and the version of an API that introduced something."""

    release: tuple[int, ...]
    version: int


SPECIAL_TIMESTAMPS: Mapping[int, IntroducedIn] = MappingProxyType(
    {
        MAX_TIMESTAMP: IntroducedIn((3, 0), 7),
        EARLIEST_LOCAL_TIMESTAMP: IntroducedIn((3, 6), 8),
        LATEST_TIERED_TIMESTAMP: IntroducedIn((3, 9), 9),
    }
)
"""KIP-734, KIP-405, KIP-1005."""


@dataclass(frozen=True, slots=True)
class BrokerRelease:
    """How the brokers of one release behave.  ``magic``: the message format of their logs."""

    name: str
    magic: int
    ranges: Mapping[int, VersionRange]

    @property
    def version(self) -> tuple[int, ...]:
        """The release as numbers."""
        return tuple(int(part) for part in self.name.split("."))

    @property
    def has_api_versions(self) -> bool:
        """Whether the broker supports ApiVersions (0.10.0, KIP-35)."""
        return API_VERSIONS.key in self.ranges

    @property
    def reports_api_versions_range(self) -> bool:
        """Whether a rejected ApiVersions response contains the supported versions of ApiVersions (2.4, KIP-511)."""
        return self.version >= (2, 4)

    @property
    def accepts_newer_versions(self) -> bool:
        """Whether a request above the range is read and answered in the highest version, if it can be read so."""
        return self.version < (0, 10)

    @property
    def ignores_invalid_frames(self) -> bool:
        """Whether an invalid frame is ignored silently; other releases close the connection."""
        return (0, 9) <= self.version < (0, 10)

    @property
    def requires_client_id(self) -> bool:
        """Whether a request about a group without a client id ends the connection."""
        return (0, 9) <= self.version < (0, 10)

    @property
    def supports_invalid_record_error(self) -> bool:
        """Whether error 87 separates a valid record that is not allowed from a damaged one (2.4, KIP-467)."""
        return self.version >= (2, 4)

    @property
    def disconnects_on_invalid_batches(self) -> bool:
        """Whether Produce v3 and later cannot be read with anything but one batch of format 2 (until 2.4)."""
        return self.version < (2, 4)

    @property
    def unknown_producer_error(self) -> ErrorCode | None:
        """The error for an unknown producer: out of order (0.11), unknown producer (1.0), none (2.5, KIP-360)."""
        if self.version >= (2, 5):
            return None
        return UNKNOWN_PRODUCER_ID if self.version >= (1,) else OUT_OF_ORDER_SEQUENCE_NUMBER

    @property
    def converts_lazily(self) -> bool:
        """Whether a response in an older format has the length of the stored bytes: cut, or filled up with a false
        entry."""
        return self.version >= (2,)

    @property
    def omits_unconvertible_entry(self) -> bool:
        """Whether a first entry that does not fit, and needs conversion, is omitted; older brokers send its beginning
        (seen: 3.9.1 omits it, 2.8.2 does not)."""
        return self.version >= (3,)

    @property
    def returns_null_records_for_unsupported_codec(self) -> bool:
        """Whether the records of a partition that cannot be converted, because the version is too old for zstd, are
        null; older brokers send an empty record set (seen: null in 3.9.1, empty in 2.8.2)."""
        return self.version >= (3,)

    @property
    def returns_last_stable_offset(self) -> bool:
        """Whether readers without ``read_committed`` receive it too; older brokers return −1."""
        return self.version >= (2, 1)

    @property
    def supports_group_members(self) -> bool:
        """Whether groups have members, and only they may commit while there are any (0.9)."""
        return self.version >= (0, 9)

    @property
    def checks_topics_of_commits(self) -> bool:
        """Whether a commit in Kafka's own store for a topic that does not exist is rejected; 0.8.2 stores it."""
        return self.version >= (0, 9)

    @property
    def checks_partitions_of_commits(self) -> bool:
        """Whether a commit for a partition that does not exist is rejected; older brokers check only the topic."""
        return self.version >= (2,)

    @property
    def checks_partitions_of_fetches(self) -> bool:
        """Whether OffsetFetch v1 answers error 3 for partitions that do not exist; later brokers return "nothing
        stored"."""
        return self.version < (0, 9)

    def is_special_timestamp(self, time_ms: int) -> bool:
        """Whether a time of ListOffsets below −2 is one of ``SPECIAL_TIMESTAMPS`` to the broker."""
        return time_ms in SPECIAL_TIMESTAMPS and self.version >= SPECIAL_TIMESTAMPS[time_ms].release

    def rejects_timestamp(self, time_ms: int, version: int) -> bool:
        """Whether this version of ListOffsets is too old for the special time (error 35)."""
        return self.is_special_timestamp(time_ms) and version < SPECIAL_TIMESTAMPS[time_ms].version

    def range_of(self, api: Api[Any, Any]) -> VersionRange | None:
        """The versions of an API; None: it is not supported."""
        return self.ranges.get(api.key)


_APIS: tuple[Api[Any, Any], ...] = (
    PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
    LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS,
    INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE,
    DESCRIBE_CLUSTER,
)  # fmt: skip

# API, then its versions in each release; "-" where there is none.
_TABLE = """
Release               0.8.1.1  0.8.2.2  0.9.0.1  0.10.2.2  0.11.0.3  1.1.1  2.0.1  2.8.2  3.9.1  4.1.1
Format                0        0        0        1         2         2      2      2      2      2
Produce               0        0        0-1      0-2       0-3       0-5    0-6    0-9    0-11   0-13
Fetch                 0        0        0-1      0-3       0-5       0-7    0-8    0-12   0-17   4-18
ListOffsets           0        0        0        0-1       0-2       0-2    0-3    0-6    0-9    1-10
Metadata              0        0        0        0-2       0-4       0-5    0-6    0-11   0-12   0-13
OffsetCommit          0        0-1      0-2      0-2       0-3       0-3    0-4    0-8    0-9    2-9
OffsetFetch           0        0-1      0-1      0-2       0-3       0-3    0-4    0-7    0-9    1-9
FindCoordinator       -        0        0        0         0-1       0-1    0-2    0-3    0-6    0-6
JoinGroup             -        -        0        0-1       0-2       0-2    0-3    0-7    0-9    0-9
Heartbeat             -        -        0        0         0-1       0-1    0-2    0-4    0-4    0-4
LeaveGroup            -        -        0        0         0-1       0-1    0-2    0-4    0-5    0-5
SyncGroup             -        -        0        0         0-1       0-1    0-2    0-5    0-5    0-5
DescribeGroups        -        -        0        0         0-1       0-1    0-2    0-5    0-5    0-6
ListGroups            -        -        0        0         0-1       0-1    0-2    0-4    0-5    0-5
SaslHandshake         -        -        -        0         0         0-1    0-1    0-1    0-1    0-1
ApiVersions           -        -        -        0         0-1       0-1    0-2    0-3    0-4    0-4
CreateTopics          -        -        -        0-1       0-2       0-2    0-3    0-7    0-7    2-7
DeleteTopics          -        -        -        0         0-1       0-1    0-2    0-6    0-6    1-6
InitProducerId        -        -        -        -         0         0      0-1    0-4    0-5    0-5
OffsetForLeaderEpoch  -        -        -        -         0         0      0-1    0-4    0-4    2-4
DescribeConfigs       -        -        -        -         0         0-1    0-2    0-4    0-4    1-4
SaslAuthenticate      -        -        -        -         -         0      0      0-2    0-2    0-2
DeleteGroups          -        -        -        -         -         0      0-1    0-2    0-2    0-2
OffsetDelete          -        -        -        -         -         -      -      0      0      0
DescribeCluster       -        -        -        -         -         -      -      0      0-1    0-2
"""


def _read() -> dict[str, BrokerRelease]:
    rows = [line.split() for line in _TABLE.strip().splitlines()]
    releases, formats, spans = rows[0][1:], rows[1][1:], rows[2:]
    assert [row[0] for row in spans] == [api.name for api in _APIS], "one row an API, in the order of the APIs"
    return {
        name: BrokerRelease(
            name,
            int(formats[at]),
            MappingProxyType(
                {api.key: _range(row[at + 1]) for api, row in zip(_APIS, spans, strict=True) if row[at + 1] != "-"}
            ),
        )
        for at, name in enumerate(releases)
    }


def _range(span: str) -> VersionRange:
    lowest, _, highest = span.partition("-")
    return VersionRange(int(lowest), int(highest or lowest))


RELEASES: Mapping[str, BrokerRelease] = MappingProxyType(_read())
"""One release of each kind, oldest first."""
