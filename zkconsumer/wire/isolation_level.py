"""Which records of transactions a request asks for.  Pure, and without the schemas of requests: options need it."""

from __future__ import annotations

from enum import IntEnum


class IsolationLevel(IntEnum):
    """Which records of transactions are read (0.11, KIP-98); the numbers are those of requests."""

    READ_UNCOMMITTED = 0
    """All records up to the high watermark."""
    READ_COMMITTED = 1
    """Records up to the last stable offset, without those of aborted transactions."""

    @classmethod
    def of_setting(cls, value: str) -> IsolationLevel:
        """That of a value of the setting ``isolation.level``: ``read_uncommitted`` or ``read_committed``."""
        return cls[value.upper()]


READ_UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
READ_COMMITTED = IsolationLevel.READ_COMMITTED
