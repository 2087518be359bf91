"""Where a group's offsets are stored: ZooKeeper, Kafka, or both (``offsets.storage``, ``dual.commit.enabled``).

Only values.  With both stores a partition starts from the larger offset.  A commit is written to ZooKeeper first, where
the write can check our owner node and the known version of the offset znode; then to Kafka, for the partitions that
ZooKeeper accepted.  (The Scala consumer writes to Kafka first, and neither write has a condition.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ZOOKEEPER_NAME, KAFKA_NAME = "ZooKeeper", "Kafka"


class OffsetStoreSelection(Enum):
    """Which stores are read and written."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    BOTH = "both"

    @property
    def uses_zookeeper(self) -> bool:
        """Whether offset znodes are read and written."""
        return self is not OffsetStoreSelection.KAFKA

    @property
    def uses_kafka(self) -> bool:
        """Whether offsets are fetched from and committed to the group coordinator."""
        return self is not OffsetStoreSelection.ZOOKEEPER


class OffsetSource(Enum):
    """The store whose offset a partition starts from."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    BOTH = "both"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class CommitFailure:
    """Why an offset was not written.  ``store`` is empty when the reason is not in a store.

    ``is_permanent``: a retry cannot succeed while the cause lasts.  ``is_transient``: a retry succeeds soon, because
    the group is migrating or rebalancing now.
    """

    why: str
    store: str = ""
    is_permanent: bool = False
    is_transient: bool = False

    def __str__(self) -> str:
        return f"{self.store}: {self.why}" if self.store else self.why
