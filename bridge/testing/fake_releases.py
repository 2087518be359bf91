"""The releases of the fake brokers, restricted to the APIs that the clients here use.  Pure."""

from __future__ import annotations

from zkconsumer.errors import UsageError
from zkconsumer.kafka.release_features import RELEASES as ALL_RELEASES
from zkconsumer.kafka.release_features import BrokerRelease
from zkconsumer.wire.schemas import (
    API_VERSIONS,
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
)

NEWEST = "3.9.1"
"""The last release with ZooKeeper mode."""

_NAMES = ("0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1", "3.9.1", "4.1.1")
_ANSWERED = (
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

RELEASES: dict[str, BrokerRelease] = {
    name: ALL_RELEASES[name].restricted_to({api: api.client_highest for api in _ANSWERED}) for name in _NAMES
}


def release_named(name: str) -> BrokerRelease:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists the releases."""
    if name not in RELEASES:
        raise UsageError(f"the fake brokers know no release {name}; they know {', '.join(RELEASES)}")
    return RELEASES[name]
