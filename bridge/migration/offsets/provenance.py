"""The origin of an offset in Kafka: the metadata of our commits names the migration.  Pure.

    zkconsumer-migrate:1:<migration id>:<epoch>:<version of the offset znode that it was copied from>

It is far shorter than Kafka's limit of 4,096 characters (``offset.metadata.max.bytes``), and no application writes it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zkconsumer.errors import InvalidNameError

_TEXT = re.compile(
    r"zkconsumer-migrate:1:(?P<id>[A-Za-z0-9_-]{1,64}):(?P<epoch>[0-9]{1,18}):(?P<version>-?[0-9]{1,10})", re.ASCII
)

NO_SOURCE = -1
"""Replaces a version: there was no offset znode, the operator or a default decided the value."""


_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def check_migration_id(migration_id: str) -> str:
    """Return the id of a migration, or raise ``InvalidNameError``: commits and names of protocols contain it."""
    if _ID.fullmatch(migration_id) is None:
        raise InvalidNameError(f"{migration_id[:80]!r} is no id of a migration")
    return migration_id


class Provenance(NamedTuple):
    """Which migration wrote a value, at which epoch, from which version of the offset znode."""

    migration_id: str
    epoch: int
    source_version: int

    def is_of_migration(self, migration_id: str) -> bool:
        """Whether that migration wrote it, at any epoch."""
        return self.migration_id == migration_id


def format_provenance(provenance: Provenance) -> str:
    """The metadata of a commit."""
    return f"zkconsumer-migrate:1:{provenance.migration_id}:{provenance.epoch}:{provenance.source_version}"


def parse_provenance(metadata: str | None) -> Provenance | None:
    """None for metadata that no migration wrote."""
    found = _TEXT.fullmatch(metadata or "")
    return None if found is None else Provenance(found["id"], int(found["epoch"]), int(found["version"]))
