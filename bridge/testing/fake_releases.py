"""The releases of the brokers of a fake cluster.  Pure."""

from __future__ import annotations

from bridge.coordinator.release_features import RELEASES, BrokerRelease
from zkconsumer.errors import UsageError

NEWEST = "3.9.1"
"""The last release with ZooKeeper mode."""


def release_named(name: str) -> BrokerRelease:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists the releases."""
    if name not in RELEASES:
        raise UsageError(f"the fake brokers know no release {name}; they know {', '.join(RELEASES)}")
    return RELEASES[name]
