"""What brokers of each release speak, for the fake ones.  Pure.

The ranges are those that real brokers answer; where they go beyond what the clients here ask, they are cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import UsageError
from zkconsumer.kafka.versions import VersionRange
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    APIS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    Api,
)

NEWEST = "3.9.1"
"""The last release with ZooKeeper mode."""


@dataclass(frozen=True, slots=True)
class Release:
    """How the brokers of one release behave; every line was seen on a real one.

    ``magic``: the message format of their logs.
    """

    name: str
    magic: int
    ranges: dict[int, VersionRange]

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
        """What cannot be read is passed over in silence; other releases close the connection on it."""
        return (0, 9) <= self.version < (0, 10)

    @property
    def converts_lazily(self) -> bool:
        """An answer in an older format is as long as the stored bytes: cut there, or filled up with a false entry."""
        return self.version >= (2,)

    @property
    def hides_unconvertible(self) -> bool:
        """A first entry that does not fit, and would have to be converted, is left out; older ones send its head."""
        return self.version >= (2, 1)

    @property
    def tells_last_stable_offset(self) -> bool:
        """Also to readers that do not ask for committed records only; older ones say −1."""
        return self.version >= (2, 1)

    @property
    def knows_members(self) -> bool:
        """Groups have members, and while some are there nobody else may commit (0.9)."""
        return self.version >= (0, 9)

    @property
    def checks_topics_of_commits(self) -> bool:
        """A commit in Kafka's own store for a topic that does not exist is refused; 0.8.2 keeps it."""
        return self.version >= (0, 9)

    @property
    def knows_partitions_of_commits(self) -> bool:
        """A commit for a partition that does not exist is refused; older ones look at the topic only."""
        return self.version >= (2,)

    @property
    def checks_partitions_of_fetches(self) -> bool:
        """OffsetFetch v1 answers error 3 for partitions that do not exist; later ones say that nothing is stored."""
        return self.version < (0, 9)

    @property
    def knows_newest_time(self) -> bool:
        """Time −3 of ListOffsets means the newest timestamp, and is refused before v7 (3.0, KIP-734)."""
        return self.version >= (3,)

    def range_of(self, api: Api[Any, Any]) -> VersionRange | None:
        """The versions of an API; None: it is not known, and the connection is closed on it."""
        return self.ranges.get(api.key)

    @property
    def has_api_versions(self) -> bool:
        """Whether the broker can be asked what it speaks (0.10.0, KIP-35)."""
        return API_VERSIONS.key in self.ranges


# release, message format, then the versions of
#            Produce Fetch ListOff. Metadata OffsetCommit OffsetFetch FindCoord. Describe-, ListGroups ApiV. OffsetDel.
_TABLE = """
0.8.1.1   0  0     0     0     0     0     0     -     -     -     -         -
0.8.2.2   0  0     0     0     0     0-1   0-1   0     -     -     -         -
0.9.0.1   0  0-1   0-1   0     0     0-2   0-1   0     0     0     -         -
0.10.2.2  1  0-2   0-3   0-1   0-2   0-2   0-2   0     0     0     0         -
0.11.0.3  2  0-3   0-5   0-2   0-4   0-3   0-3   0-1   0-1   0-1   0-1       -
1.1.1     2  0-5   0-7   0-2   0-5   0-3   0-3   0-1   0-1   0-1   0-1       -
2.0.1     2  0-6   0-8   0-3   0-6   0-4   0-4   0-2   0-2   0-2   0-2       -
3.9.1     2  0-11  0-17  0-9   0-12  0-9   0-9   0-6   0-5   0-5   0-4       0
4.1.1     2  0-13  4-18  1-10  0-13  2-9   1-9   0-6   0-6   0-5   0-4       0
"""
_COLUMNS: tuple[Api[Any, Any], ...] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    API_VERSIONS,
    OFFSET_DELETE,
)


def release_named(name: str) -> Release:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists those that are."""
    if name not in RELEASES:
        raise UsageError(f"the fake brokers know no release {name}; they know {', '.join(RELEASES)}")
    return RELEASES[name]


def _read(line: str) -> Release:
    name, magic, *spans = line.split()
    ranges = {api.key: _clipped(api, span) for api, span in zip(_COLUMNS, spans, strict=True) if span != "-"}
    return Release(name, int(magic), ranges)


def _clipped(api: Api[Any, Any], span: str) -> VersionRange:
    lowest, _, highest = span.partition("-")
    return VersionRange(int(lowest), min(int(highest or lowest), APIS[api.key].client_highest))


RELEASES = {release.name: release for release in map(_read, _TABLE.strip().splitlines())}
