"""The releases that ``--emulate`` can name: those that have a group coordinator.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bridge.coordinator.release_features import RELEASES, BrokerRelease
from zkconsumer.errors import UsageError

DEFAULT_RELEASE = "3.9.1"
"""The default: it supports the widest range of clients."""

EMULATED_RELEASES: Mapping[str, BrokerRelease] = MappingProxyType(
    {name: release for name, release in RELEASES.items() if release.supports_group_members}
)


def emulated_release(name: str) -> BrokerRelease:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists the releases."""
    if name not in EMULATED_RELEASES:
        raise UsageError(f"release {name} cannot be emulated; choose one of {', '.join(EMULATED_RELEASES)}")
    return EMULATED_RELEASES[name]
