"""Which versions a broker claims to speak, and what it does with others."""

from __future__ import annotations

from types import MappingProxyType

from tests.interop.probe.probed_broker import Probe
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest

# What the real brokers of these releases answer to ApiVersions: lowest and highest version.
ADVERTISED = MappingProxyType(
    {
        "0.10.2.2": {
            FIND_COORDINATOR: (0, 0),
            JOIN_GROUP: (0, 1),
            SYNC_GROUP: (0, 0),
            HEARTBEAT: (0, 0),
            LEAVE_GROUP: (0, 0),
            OFFSET_COMMIT: (0, 2),
            OFFSET_FETCH: (0, 2),
            LIST_OFFSETS: (0, 1),
            METADATA: (0, 2),
            DESCRIBE_GROUPS: (0, 0),
            LIST_GROUPS: (0, 0),
            API_VERSIONS: (0, 0),
            DELETE_GROUPS: None,
            OFFSET_DELETE: None,
        },
        "0.11.0.3": {
            FIND_COORDINATOR: (0, 1),
            JOIN_GROUP: (0, 2),
            SYNC_GROUP: (0, 1),
            HEARTBEAT: (0, 1),
            LEAVE_GROUP: (0, 1),
            OFFSET_COMMIT: (0, 3),
            OFFSET_FETCH: (0, 3),
            LIST_OFFSETS: (0, 2),
            METADATA: (0, 4),
            DESCRIBE_GROUPS: (0, 1),
            LIST_GROUPS: (0, 1),
            API_VERSIONS: (0, 1),
            DELETE_GROUPS: None,
            OFFSET_DELETE: None,
        },
        "1.1.1": {
            FIND_COORDINATOR: (0, 1),
            JOIN_GROUP: (0, 2),
            SYNC_GROUP: (0, 1),
            HEARTBEAT: (0, 1),
            LEAVE_GROUP: (0, 1),
            OFFSET_COMMIT: (0, 3),
            OFFSET_FETCH: (0, 3),
            LIST_OFFSETS: (0, 2),
            METADATA: (0, 5),
            DESCRIBE_GROUPS: (0, 1),
            LIST_GROUPS: (0, 1),
            API_VERSIONS: (0, 1),
            DELETE_GROUPS: (0, 0),
            OFFSET_DELETE: None,
        },
        "2.0.1": {
            FIND_COORDINATOR: (0, 2),
            JOIN_GROUP: (0, 3),
            SYNC_GROUP: (0, 2),
            HEARTBEAT: (0, 2),
            LEAVE_GROUP: (0, 2),
            OFFSET_COMMIT: (0, 4),
            OFFSET_FETCH: (0, 4),
            LIST_OFFSETS: (0, 3),
            METADATA: (0, 6),
            DESCRIBE_GROUPS: (0, 2),
            LIST_GROUPS: (0, 2),
            API_VERSIONS: (0, 2),
            DELETE_GROUPS: (0, 1),
            OFFSET_DELETE: None,
        },
        "2.8.2": {
            FIND_COORDINATOR: (0, 3),
            JOIN_GROUP: (0, 7),
            SYNC_GROUP: (0, 5),
            HEARTBEAT: (0, 4),
            LEAVE_GROUP: (0, 4),
            OFFSET_COMMIT: (0, 8),
            OFFSET_FETCH: (0, 7),
            LIST_OFFSETS: (0, 6),
            METADATA: (0, 11),
            DESCRIBE_GROUPS: (0, 5),
            LIST_GROUPS: (0, 4),
            API_VERSIONS: (0, 3),
            DELETE_GROUPS: (0, 2),
            OFFSET_DELETE: (0, 0),
        },
        "3.9.1": {
            FIND_COORDINATOR: (0, 6),
            JOIN_GROUP: (0, 9),
            SYNC_GROUP: (0, 5),
            HEARTBEAT: (0, 4),
            LEAVE_GROUP: (0, 5),
            OFFSET_COMMIT: (0, 9),
            OFFSET_FETCH: (0, 9),
            LIST_OFFSETS: (0, 9),
            METADATA: (0, 12),
            DESCRIBE_GROUPS: (0, 5),
            LIST_GROUPS: (0, 5),
            API_VERSIONS: (0, 4),
            DELETE_GROUPS: (0, 2),
            OFFSET_DELETE: (0, 0),
        },
        "4.1.1": {
            FIND_COORDINATOR: (0, 6),
            JOIN_GROUP: (0, 9),
            SYNC_GROUP: (0, 5),
            HEARTBEAT: (0, 4),
            LEAVE_GROUP: (0, 5),
            OFFSET_COMMIT: (2, 9),
            OFFSET_FETCH: (1, 9),
            LIST_OFFSETS: (1, 10),
            METADATA: (0, 13),
            DESCRIBE_GROUPS: (0, 6),
            LIST_GROUPS: (0, 5),
            API_VERSIONS: (0, 4),
            DELETE_GROUPS: (0, 2),
            OFFSET_DELETE: (0, 0),
        },
    }
)


@check(since="0.10")
def the_versions_are_those_of_the_release(p: Probe) -> None:
    told = {api: p.server.ranges.ranges.get(api.key) for api in ADVERTISED[p.server.release]}
    there = {api.name: tuple(span) if span is not None else None for api, span in told.items()}
    # Ours may speak less than the release at the upper end of what has nothing to do with groups.
    expected = {api.name: span for api, span in ADVERTISED[p.server.release].items()}
    if not p.server.is_real:
        for api, span in ADVERTISED[p.server.release].items():
            if span is not None and span[1] > api.highest:
                expected[api.name] = (span[0], api.highest)
    assert there == expected, there


@check()
def every_version_of_find_coordinator_names_the_broker(p: Probe) -> None:
    p.until(lambda: p.find_coordinator()[0] == 0, "there is a coordinator")
    for version in p.versions(FIND_COORDINATOR):
        assert p.find_coordinator(version) == (0, p.server.host, p.server.port), version


@check(since="0.10")
def an_unknown_version_of_api_versions_is_answered_in_the_oldest_layout(p: Probe) -> None:
    # The codec reads an answer with error 35 in the layout of version 0, and refuses bytes that are left over.
    highest = p.server.ranges.ranges[API_VERSIONS.key].highest
    if highest < API_VERSIONS.highest:
        asked = p.ask(API_VERSIONS, ApiVersionsRequest(), API_VERSIONS.highest)
        assert asked.error_code == 35
        keys = [one.api_key for one in asked.api_keys]
        assert keys == p.since("2.4", [API_VERSIONS.key], [])
    assert p.ask(API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0
