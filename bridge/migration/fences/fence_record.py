"""What the fence of a partition says: whose it is, and from which epoch.  Pure.

    zkconsumer-migrate:1:<migration id>:<epoch>

It stands where a member's thread id would.  An original member takes it for another's claim, and does not claim; old
tools print it as the owner (they cut the text at its last ``-``, so there is one).
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
    """None for whatever is no fence."""
    found = _TEXT.fullmatch(data)
    return None if found is None else FenceRecord(found["id"].decode(), int(found["epoch"]))
