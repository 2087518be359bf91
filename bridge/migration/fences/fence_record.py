"""The data of the fence of a partition: its migration and epoch.  Pure.

    zkconsumer-migrate:1:<migration id>:<epoch>

It replaces a member's thread id.  A Scala consumer takes it for another owner, and does not acquire the partition.  Old
tools print it as the owner; they cut the text at its last ``-``, so it contains one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from zkconsumer.zk.znode_formats import FENCE_OWNER_PREFIX

_TEXT = re.compile(rb"%b1:(?P<id>[A-Za-z0-9_-]{1,64}):(?P<epoch>[0-9]{1,18})" % FENCE_OWNER_PREFIX.encode())


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """Which migration fenced a partition, at which epoch."""

    migration_id: str
    epoch: int


def format_fence_record(mark: FenceRecord) -> bytes:
    """The data of the node."""
    return f"{FENCE_OWNER_PREFIX}1:{mark.migration_id}:{mark.epoch}".encode()


def parse_fence_record(data: bytes) -> FenceRecord | None:
    """The fence record in these data; None: they are no fence."""
    found = _TEXT.fullmatch(data)
    return None if found is None else FenceRecord(found["id"].decode(), int(found["epoch"]))
