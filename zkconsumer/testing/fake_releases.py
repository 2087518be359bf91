"""What brokers of each release speak, for the fake ones.  Pure.

The ranges are those that real brokers answer; where they go beyond what this package can write, they are cut there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import UsageError
from zkconsumer.kafka.versions import VersionRange
from zkconsumer.wire.schemas import API_VERSIONS, APIS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, Api

NEWEST = "3.9.1"
"""The last release with ZooKeeper mode."""


@dataclass(frozen=True, slots=True)
class Release:
    """How the brokers of one release behave.

    ``magic``: the message format of their logs.  ``lists_itself``: a refused ApiVersions still says which versions of
    ApiVersions are known (2.4, KIP-511).  ``reads_any_version``: a version above the range is read and answered in the
    layout of the highest one, as the Scala requests of 0.8 and 0.9 do, instead of closing the connection.
    """

    name: str
    magic: int
    ranges: dict[int, VersionRange]
    lists_itself: bool
    reads_any_version: bool

    def range_of(self, api: Api[Any, Any]) -> VersionRange | None:
        """The versions of an API; None: it is not known, and the connection is closed on it."""
        return self.ranges.get(api.key)

    @property
    def has_api_versions(self) -> bool:
        """Whether the broker can be asked what it speaks (0.10.0, KIP-35)."""
        return API_VERSIONS.key in self.ranges


# release, message format, then the versions of Produce, Fetch, ListOffsets, Metadata, ApiVersions
_TABLE = """
0.8.2.2   0  0     0     0     0     -
0.9.0.1   0  0-1   0-1   0     0     -
0.10.2.2  1  0-2   0-3   0-1   0-2   0
0.11.0.3  2  0-3   0-5   0-2   0-4   0-1
1.1.1     2  0-5   0-7   0-2   0-5   0-1
2.0.1     2  0-6   0-8   0-3   0-6   0-2
3.9.1     2  0-11  0-17  0-9   0-12  0-4
4.1.1     2  0-13  4-18  1-10  0-13  0-4
"""
_COLUMNS: tuple[Api[Any, Any], ...] = (PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS)


def release_named(name: str) -> Release:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists those that are."""
    if name not in RELEASES:
        raise UsageError(f"the fake brokers know no release {name}; they know {', '.join(RELEASES)}")
    return RELEASES[name]


def _read(line: str) -> Release:
    name, magic, *spans = line.split()
    ranges = {api.key: _clipped(api, span) for api, span in zip(_COLUMNS, spans, strict=True) if span != "-"}
    version = tuple(int(part) for part in name.split("."))
    return Release(name, int(magic), ranges, lists_itself=version >= (2, 4), reads_any_version=version < (0, 10))


def _clipped(api: Api[Any, Any], span: str) -> VersionRange:
    lowest, _, highest = span.partition("-")
    return VersionRange(int(lowest), min(int(highest or lowest), APIS[api.key].highest))


RELEASES = {release.name: release for release in map(_read, _TABLE.strip().splitlines())}
