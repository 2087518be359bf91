"""What was carried over is read back and compared by value; nothing is written here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.copies import Difference, differences_of_copy, differences_of_return, words_of
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
        return _standing(self.differences(), self.stores) if self.stores.is_in(*COPYING) else Todo()

    def do(self) -> None:
        """See ``Step``: there is nothing to do; raises when the migration is not where it can be compared."""
        self.stores.authority.require(*COPYING)

    def differences(self) -> list[Difference]:
        """What is not as it should be."""
        authority = self.stores.authority
        held = authority.require(*COPYING)
        kafka = self.stores.kafka([copy.tp for copy in self.copies])
        nodes = self.stores.zookeeper()
        return differences_of_copy(
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
        return _standing(self.differences(), self.stores) if self.stores.is_in(self.phase) else Todo()

    def do(self) -> None:
        """See ``Step``: there is nothing to do; raises when the migration is not where it can be compared."""
        self.stores.authority.require(self.phase)

    def differences(self) -> list[Difference]:
        """What is not as it should be."""
        self.stores.authority.require(self.phase)
        return differences_of_return(self.stores.kafka(), self.stores.zookeeper(), self.convention)


def _standing(differences: Sequence[Difference], stores: Stores) -> Standing:
    if differences:
        return Refused(
            VerificationFailed(
                f"group {stores.group} is not as it was written: {words_of(differences)}. Somebody else writes to it: "
                "find out who, then roll back, or run the same command again"
            )
        )
    if stores.seat.sitting is not None:  # a dry run compares without
        # Whoever came meanwhile would have had to take the seat from us.
        stores.seat.beat()
    return Done()
