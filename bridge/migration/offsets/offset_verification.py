"""Reads the copied offsets back and compares them by value; writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.phases import Phase
from bridge.migration.errors import VerificationError
from bridge.migration.offsets.offset_copies import (
    StoreDifference,
    copy_differences,
    format_differences,
    zookeeper_differences,
)
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus

if TYPE_CHECKING:
    from bridge.migration.offsets.offset_copies import OffsetCopy
    from bridge.migration.offsets.offset_copy_steps import OffsetStores
    from bridge.migration.plan.decisions import OffsetConvention
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class VerifyCopiedOffsets:
    """Check that Kafka has every planned value, written by this migration at this epoch, and that no offset znode has
    changed.

    ``known``: the partitions in the plan.
    """

    stores: OffsetStores
    copies: Sequence[OffsetCopy]
    known: Collection[TopicPartition] = ()

    name = "read the offsets back from Kafka, and compare"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"read {len(self.copies)} offsets back from Kafka, and check that ZooKeeper's have not changed"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        if self.stores.is_in_phase(*COPY_PHASES):
            return _comparison_status(self.differences(), self.stores)
        return StepPending()

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises in a phase in which the check is not possible."""
        self.stores.control_znode.require_phase(*COPY_PHASES)

    def differences(self) -> list[StoreDifference]:
        """The values that are wrong."""
        authority = self.stores.control_znode
        held = authority.require_phase(*COPY_PHASES)
        kafka = self.stores.read_kafka([copy.tp for copy in self.copies])
        nodes = self.stores.read_zookeeper()
        return copy_differences(
            self.copies, self.known, kafka, nodes=nodes, migration_id=authority.migration_id, epoch=held.control.epoch
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class VerifyReturnedOffsets:
    """Check that ZooKeeper and Kafka have the same offset for each partition."""

    stores: OffsetStores
    convention: OffsetConvention
    phase: Phase = Phase.RETURNING

    name = "read the offsets back from ZooKeeper, and compare"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["read both stores, and compare them partition by partition"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        if self.stores.is_in_phase(self.phase):
            return _comparison_status(self.differences(), self.stores)
        return StepPending()

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises in a phase in which the check is not possible."""
        self.stores.control_znode.require_phase(self.phase)

    def differences(self) -> list[StoreDifference]:
        """The values that are wrong."""
        self.stores.control_znode.require_phase(self.phase)
        return zookeeper_differences(self.stores.read_kafka(), self.stores.read_zookeeper(), self.convention)


def _comparison_status(differences: Sequence[StoreDifference], stores: OffsetStores) -> StepStatus:
    if differences:
        return StepRefused(
            VerificationError(
                f"the offsets of group {stores.group} differ from what was written: {format_differences(differences)}. "
                "Another client writes them: stop it, then roll back, or run the same command again"
            )
        )
    if stores.placeholder.joined is not None:  # a dry run has no placeholder member
        # Another client that joined meanwhile would have removed the placeholder member.
        stores.placeholder.heartbeat()
    return StepDone()
