"""What was carried over is read back and compared by value; nothing is written here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.copies import Difference, copy_differences, zookeeper_differences, format_differences
from bridge.migration.errors import VerificationFailed
from bridge.migration.mover import COPYING
from bridge.migration.phases import Phase
from bridge.migration.step import Done, Refused, Standing, Todo

if TYPE_CHECKING:
    from bridge.migration.copies import Copy
    from bridge.migration.decisions import OffsetConvention
    from bridge.migration.mover import Stores
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class VerifyCopy:
    """Kafka has every planned value, written by this migration at this epoch, and no offset znode has moved.

    ``known``: the partitions that the plan looked at.
    """

    stores: Stores
    copies: Sequence[Copy]
    known: Collection[TopicPartition] = ()

    name = "read the offsets back from Kafka, and compare"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return [f"read {len(self.copies)} offsets back from Kafka, and look whether ZooKeeper's have moved"]

    def check(self) -> Standing:
        """See ``Step``."""
        return _comparison_status(self.differences(), self.stores) if self.stores.is_in_phase(*COPYING) else Todo()

    def do(self) -> None:
        """See ``Step``: there is nothing to do; raises when the migration is not where it can be compared."""
        self.stores.control_znode.require_phase(*COPYING)

    def differences(self) -> list[Difference]:
        """What is not as it should be."""
        authority = self.stores.control_znode
        held = authority.require_phase(*COPYING)
        kafka = self.stores.read_kafka([copy.tp for copy in self.copies])
        nodes = self.stores.read_zookeeper()
        return copy_differences(
            self.copies, self.known, kafka, nodes, authority.migration_id, held.control.epoch
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class VerifyReturn:
    """ZooKeeper says what Kafka says, partition by partition."""

    stores: Stores
    convention: OffsetConvention
    phase: Phase = Phase.RETURNING

    name = "read the offsets back from ZooKeeper, and compare"
    changes = False

    def describe(self) -> list[str]:
        """See ``Step``."""
        return ["read both stores, and compare them partition by partition"]

    def check(self) -> Standing:
        """See ``Step``."""
        return _comparison_status(self.differences(), self.stores) if self.stores.is_in_phase(self.phase) else Todo()

    def do(self) -> None:
        """See ``Step``: there is nothing to do; raises when the migration is not where it can be compared."""
        self.stores.control_znode.require_phase(self.phase)

    def differences(self) -> list[Difference]:
        """What is not as it should be."""
        self.stores.control_znode.require_phase(self.phase)
        return zookeeper_differences(self.stores.read_kafka(), self.stores.read_zookeeper(), self.convention)


def _comparison_status(differences: Sequence[Difference], stores: Stores) -> Standing:
    if differences:
        return Refused(
            VerificationFailed(
                f"group {stores.group} is not as it was written: {format_differences(differences)}. Somebody else writes to it: "
                "find out who, then roll back, or run the same command again"
            )
        )
    if stores.placeholder.joined is not None:  # a dry run compares without
        # Whoever came meanwhile would have had to take the seat from us.
        stores.placeholder.heartbeat()
    return Done()
