"""Where a group's offsets are kept: in ZooKeeper, in Kafka, or in both (``offsets.storage``, ``dual.commit.enabled``).

Only values.  The rule for both: a partition starts from the larger of the two; a commit goes to ZooKeeper first, where
it can be bound to our owner node and to the version that we know, and then to Kafka, for what ZooKeeper took.  (The
original writes Kafka first, and neither write has a condition.)
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
        """Whether the group's coordinator is asked."""
        return self is not OffsetStoreSelection.ZOOKEEPER


class OffsetSource(Enum):
    """Which store said where a partition starts."""

    ZOOKEEPER = "zookeeper"
    KAFKA = "kafka"
    BOTH = "both"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class CommitFailure:
    """Why an offset was not written.  ``store`` is empty when that has nothing to do with a store.

    ``is_final``: another try cannot help while things are as they are.  ``is_passing``: it helps in a moment, as the
    group moves or forms anew just now.
    """

    why: str
    store: str = ""
    is_permanent: bool = False
    is_transient: bool = False

    def __str__(self) -> str:
        return f"{self.store}: {self.why}" if self.store else self.why
