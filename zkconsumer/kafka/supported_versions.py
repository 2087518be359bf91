"""``SupportedVersions``: which versions of each API a broker supports.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from zkconsumer.errors import KafkaException
from zkconsumer.wire.schemas import (
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    Api,
)


class VersionRange(NamedTuple):
    """Versions of one API, both ends included."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class SupportedVersions:
    """What a broker supports: API key → versions.  ``is_assumed``: it has no ApiVersions (before 0.10)."""

    ranges: Mapping[int, VersionRange]
    is_assumed: bool = False

    def pick(self, api: Api[Any, Any], at_most: int | None = None, at_least: int = 0) -> int:
        """The highest version that the broker and this program both support, from ``at_least`` to ``at_most``.

        Without ``at_most`` it is the API's ``client_highest``; a caller that can handle later versions passes its own.

        ``KafkaException``: there is none; the text has both ranges.
        """
        highest_here = api.client_highest if at_most is None else min(api.highest, at_most)
        there = self.ranges.get(api.key)
        if there is None:
            raise KafkaException(f"the broker does not know {api.name} (API {api.key})")
        lowest_here = max(api.lowest, at_least)
        version = min(there.highest, highest_here)
        if version < max(there.lowest, lowest_here):
            raise KafkaException(
                f"no common version of {api.name}: the broker speaks v{there.lowest} to v{there.highest}, "
                f"this program v{lowest_here} to v{highest_here}"
            )
        return version

    def supports(self, api: Api[Any, Any], version: int) -> bool:
        """Whether the broker supports this version."""
        there = self.ranges.get(api.key)
        return there is not None and there.lowest <= version <= there.highest


ASSUMED_BEFORE_0_10 = SupportedVersions(
    MappingProxyType(
        {
            **{api.key: VersionRange(0, 0) for api in (PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR)},
            **{api.key: VersionRange(0, 1) for api in (OFFSET_COMMIT, OFFSET_FETCH)},
        }
    ),
    is_assumed=True,
)
"""The versions of brokers from 0.8 to 0.9, which have no ApiVersions; those about groups only from 0.8.2 on."""

ASSUMED_FOR_0_9 = SupportedVersions(
    MappingProxyType(
        {
            **ASSUMED_BEFORE_0_10.ranges,
            **{
                api.key: VersionRange(0, 0)
                for api in (JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS)
            },
        }
    ),
    is_assumed=True,
)
"""The versions of a broker that ignored ApiVersions silently: it supports group members (0.9)."""
