"""The releases that ``--emulate`` can name: those that have a group coordinator.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from zkconsumer.errors import UsageError
from zkconsumer.kafka.releases import RELEASES as PLAYED
from zkconsumer.kafka.releases import Release

NEWEST = "3.9.1"
"""What is emulated unless something else is asked for: it speaks with the widest range of clients."""

RELEASES: Mapping[str, Release] = MappingProxyType(
    {name: release for name, release in PLAYED.items() if release.supports_group_members}
)


def emulated_release(name: str) -> Release:
    """The release of this name.  ``UsageError``: it is not in the table; the text lists those that are."""
    if name not in RELEASES:
        raise UsageError(f"release {name} cannot be emulated; those that can are {', '.join(RELEASES)}")
    return RELEASES[name]
