"""What brokers of each release speak and store, as a table: ``--emulate`` reads one row off it.  Pure.

The versions are those that real brokers of the release answer to ApiVersions (0.9 cannot be asked: those that it
understands).  What a real one also has and this one does not (replication, transactions, quotas) is left out, so that
no client is told of something that is not there.  In what their coordinators differ stands in
``bridge.coordinator.behaviour``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bridge.broker.log.producers import SequenceRules
from zkconsumer.errors import UsageError
from zkconsumer.kafka.error_codes import OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID
from zkconsumer.kafka.versions import VersionRange
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

NEWEST = "3.9.1"
"""What is emulated unless something else is asked for: it speaks with the widest range of clients."""


@dataclass(frozen=True, slots=True)
class Release:
    """One row.  ``magic``: the message format of its logs."""

    name: str
    magic: int
    ranges: Mapping[int, VersionRange]

    @property
    def version(self) -> tuple[int, ...]:
        """The release as numbers."""
        return tuple(int(part) for part in self.name.split("."))

    @property
    def lists_itself(self) -> bool:
        """A refused ApiVersions still says which versions of ApiVersions are known (2.4, KIP-511)."""
        return self.version >= (2, 4)

    @property
    def reads_any_version(self) -> bool:
        """A version above the range is read and answered in the layout of the highest one, if it can be read so."""
        return self.version < (0, 10)

    @property
    def ignores_unreadable(self) -> bool:
        """What cannot be read is passed over in silence; later releases close the connection on it."""
        return self.version < (0, 10)

    @property
    def needs_client_id(self) -> bool:
        """A request about a group without a client id ends the connection."""
        return self.version < (0, 10)

    @property
    def knows_invalid_record(self) -> bool:
        """Error 87 tells a record that is sound and not allowed from one that is damaged (2.4, KIP-467)."""
        return self.version >= (2, 4)

    @property
    def hangs_up_on_wrong_batches(self) -> bool:
        """Produce v3 and later with anything but one batch of format 2 cannot be read at all (until 2.4)."""
        return self.version < (2, 4)

    @property
    def sequences(self) -> SequenceRules:
        """A producer that is not known any more is out of order (0.11), told so (1.0), and goes on (2.5, KIP-360)."""
        if self.version < (2, 5):
            return SequenceRules(OUT_OF_ORDER_SEQUENCE_NUMBER if self.version < (1,) else UNKNOWN_PRODUCER_ID)
        return SequenceRules()

    def range_of(self, api: Api[Any, Any]) -> VersionRange | None:
        """The versions of an API; None: it is not known."""
        return self.ranges.get(api.key)


_APIS: tuple[Api[Any, Any], ...] = (
    PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
    LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS,
    INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE,
    DESCRIBE_CLUSTER,
)  # fmt: skip

# API, then its versions in each release; "-" where there is none.
_TABLE = """
Release               0.9.0.1  0.10.2.2  0.11.0.3  1.1.1  2.0.1  2.8.2  3.9.1  4.1.1
Format                0        1         2         2      2      2      2      2
Produce               0-1      0-2       0-3       0-5    0-6    0-9    0-11   0-13
Fetch                 0-1      0-3       0-5       0-7    0-8    0-12   0-17   4-18
ListOffsets           0        0-1       0-2       0-2    0-3    0-6    0-9    1-10
Metadata              0        0-2       0-4       0-5    0-6    0-11   0-12   0-13
OffsetCommit          0-2      0-2       0-3       0-3    0-4    0-8    0-9    2-9
OffsetFetch           0-1      0-2       0-3       0-3    0-4    0-7    0-9    1-9
FindCoordinator       0        0         0-1       0-1    0-2    0-3    0-6    0-6
JoinGroup             0        0-1       0-2       0-2    0-3    0-7    0-9    0-9
Heartbeat             0        0         0-1       0-1    0-2    0-4    0-4    0-4
LeaveGroup            0        0         0-1       0-1    0-2    0-4    0-5    0-5
SyncGroup             0        0         0-1       0-1    0-2    0-5    0-5    0-5
DescribeGroups        0        0         0-1       0-1    0-2    0-5    0-5    0-6
ListGroups            0        0         0-1       0-1    0-2    0-4    0-5    0-5
SaslHandshake         -        0         0         0-1    0-1    0-1    0-1    0-1
ApiVersions           -        0         0-1       0-1    0-2    0-3    0-4    0-4
CreateTopics          -        0-1       0-2       0-2    0-3    0-7    0-7    2-7
DeleteTopics          -        0         0-1       0-1    0-2    0-6    0-6    1-6
InitProducerId        -        -         0         0      0-1    0-4    0-5    0-5
OffsetForLeaderEpoch  -        -         0         0      0-1    0-4    0-4    2-4
DescribeConfigs       -        -         0         0-1    0-2    0-4    0-4    1-4
SaslAuthenticate      -        -         -         0      0      0-2    0-2    0-2
DeleteGroups          -        -         -         0      0-1    0-2    0-2    0-2
OffsetDelete          -        -         -         -      -      0      0      0
DescribeCluster       -        -         -         -      -      0      0-1    0-2
"""


def release_named(name: str) -> Release:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists those that are."""
    if name not in RELEASES:
        raise UsageError(f"release {name} cannot be emulated; those that can are {', '.join(RELEASES)}")
    return RELEASES[name]


def _read() -> dict[str, Release]:
    rows = [line.split() for line in _TABLE.strip().splitlines()]
    releases, formats, spans = rows[0][1:], rows[1][1:], rows[2:]
    assert [row[0] for row in spans] == [api.name for api in _APIS], "one row an API, in the order of the APIs"
    return {
        name: Release(
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


RELEASES: Mapping[str, Release] = MappingProxyType(_read())
