"""``OffsetResetStrategy``: where a partition without a usable position begins, as in Kafka 3.0.  Pure."""

from __future__ import annotations

from enum import Enum

from zkconsumer.types import EARLIEST_TIME, LATEST_TIME


class OffsetResetStrategy(Enum):
    """The values of ``auto.offset.reset``."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"

    @staticmethod
    def of_setting(value: str) -> OffsetResetStrategy:
        """The strategy of a value of either consumer; the old one has ``largest`` and ``smallest``."""
        return OffsetResetStrategy({"largest": "latest", "smallest": "earliest"}.get(value, value))

    @property
    def timestamp(self) -> int | None:
        """The timestamp of a ListOffsets request for it; None: there is no request."""
        return {OffsetResetStrategy.LATEST: LATEST_TIME, OffsetResetStrategy.EARLIEST: EARLIEST_TIME}.get(self)
