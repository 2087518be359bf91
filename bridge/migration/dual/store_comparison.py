"""Compares both stores by value while members commit to them.

ZooKeeper is read before Kafka and after it.  Members write one store and then the other, so a partition that differs in
one comparison may agree in the next: it has to agree once in a phase, and the step names a partition that never does.
A partition whose two ZooKeeper offsets enclose Kafka's offset agrees too, because a partition with frequent commits
never has the same offset in two reads.  An orphaned partition does not change, and has to agree at once.

    ZooKeeper has an offset      Kafka has the same, and up to the switch with this migration's provenance
    it has none, one is planned  Kafka has the planned one, of this migration
    it has none, none is planned the group has no position: equal in both stores

In a rollback ZooKeeper must have the offsets of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.control.control_znode import VersionedControl
from bridge.migration.control.phases import Phase
from bridge.migration.dual.member_steps import consumed_partitions
from bridge.migration.errors import VerificationError
from bridge.migration.offsets.offset_copies import StoreDifference, format_differences
from bridge.migration.offsets.provenance import NO_SOURCE
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.zookeeper_group import read_group

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import CommittedOffset
    from bridge.migration.steps.migration_context import MigrationContext
    from zkconsumer.admin.zookeeper_group import OffsetNode
    from zkconsumer.types import TopicPartition

COMPARED_PHASES = (Phase.LOCKED, Phase.COPIED, Phase.RETURNING)
"""Phases that end when both stores agree."""


@dataclass(frozen=True, slots=True)
class ComparedPartitions:
    """The partitions to compare.  ``consumed``: partitions whose offsets members copy.  ``targets``: decided in the
    plan."""

    consumed: frozenset[TopicPartition]
    targets: Mapping[TopicPartition, int]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All, sorted."""
        return sorted(self.consumed | self.targets.keys())


@dataclass(frozen=True, slots=True)
class StoresSnapshot:
    """Both stores at one moment: ZooKeeper was read before Kafka and after it."""

    before: Mapping[TopicPartition, OffsetNode]
    kafka: Mapping[TopicPartition, CommittedOffset]
    after: Mapping[TopicPartition, OffsetNode]


def compare_offsets(
    wanted: ComparedPartitions, kept: StoresSnapshot, phase: Phase, migration_id: str, epoch: int
) -> tuple[set[TopicPartition], list[StoreDifference]]:
    """The partitions that agree, and the differences of the others; a partition whose offset changed
    between the reads may be in neither."""
    agree: set[TopicPartition] = set()
    differ: list[StoreDifference] = []
    for tp in wanted.partitions:
        before, behind, value = kept.before.get(tp), kept.after.get(tp), kept.kafka.get(tp)
        stored = None if behind is None else behind.offset
        if _version(before) != _version(behind):
            if tp not in wanted.consumed or not _moved_past(before, value, behind):
                continue
            assert value is not None, "ZooKeeper passed Kafka's offset"
            stored = value.offset
        should = wanted.targets.get(tp) if stored is None else stored
        found = None if value is None else value.offset
        if phase is Phase.RETURNING:
            if is_in_zookeeper(value, stored, migration_id):
                agree.add(tp)
            else:
                differ.append(StoreDifference(tp, "ZooKeeper", f"{found} as Kafka has", _format_offset(stored)))
        elif found != should:
            differ.append(
                StoreDifference(tp, "Kafka", f"{_format_offset(should)}{_source_text(stored)}", _format_offset(found))
            )
        elif should is not None and not _is_ours(
            value, tp in wanted.consumed and stored is not None, phase, migration_id, epoch
        ):
            differ.append(StoreDifference(tp, "Kafka", "a value of this migration", f"{found}, of another client"))
        else:
            agree.add(tp)
    return agree, differ


def is_in_zookeeper(value: CommittedOffset | None, stored: int | None, migration_id: str) -> bool:
    """Whether ZooKeeper has Kafka's offset, if Kafka has one.

    An offset that the tool decided for a partition without one, and over which no member has committed, is no position:
    the partition has no offset, as before.
    """
    if value is None or value.offset == stored:
        return True
    whose = value.provenance
    is_decided = whose is not None and whose.is_of_migration(migration_id) and whose.source_version == NO_SOURCE
    return is_decided and stored is None


def _is_ours(value: CommittedOffset | None, is_carried: bool, phase: Phase, migration_id: str, epoch: int) -> bool:
    """Whether this migration wrote it; for offsets that members copy: at this epoch, until they commit to Kafka
    first.
    """
    whose = None if value is None else value.provenance
    if is_carried and phase is Phase.COPIED:
        return True
    return whose is not None and whose.is_of_migration(migration_id) and (not is_carried or whose.epoch == epoch)


def _version(node: OffsetNode | None) -> tuple[int, int] | None:
    """Version and czxid: a node that was deleted and created again has the old version, and another czxid."""
    return None if node is None else (node.stat.version, node.stat.czxid)


def _moved_past(before: OffsetNode | None, value: CommittedOffset | None, behind: OffsetNode | None) -> bool:
    """Whether ZooKeeper's offset changed between its two reads, and Kafka's offset is between the two."""
    if before is None or before.offset is None or value is None or behind is None or behind.offset is None:
        return False
    is_one_node = before.stat.czxid == behind.stat.czxid
    return is_one_node and before.offset <= value.offset <= behind.offset


def _format_offset(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)


def _source_text(stored: int | None) -> str:
    return " as planned" if stored is None else " as ZooKeeper has"


@dataclass(slots=True)
class CompareStores:
    """Each partition has agreed in a comparison in this phase."""

    context: MigrationContext
    phase: Phase
    _agreed: set[TopicPartition] = field(default_factory=set)

    name = "compare both stores"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["read both stores, and compare each partition until it has agreed once"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.context.control_znode.check_phase(self.phase)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        wanted, differ = self.compare(held.control.epoch)
        left = [tp for tp in wanted.partitions if tp not in self._agreed]
        if not left:
            return StepDone()
        stuck = [one for one in differ if one.tp not in wanted.consumed]
        if stuck and self.phase is not Phase.RETURNING:
            group = self.context.group
            return StepRefused(
                VerificationError(
                    f"the stores of group {group} differ: {format_differences(stuck)}. No member owns these "
                    "partitions, so another client wrote them: stop it, then roll back: zkconsumer migrate rollback "
                    f"{group} --execute"
                )
            )
        if differ:
            return StepWaiting(f"both stores to agree: {format_differences(differ)}")
        return StepWaiting(f"{left[0]} to agree in one comparison ({len(left)} partitions left)")

    def compare(self, epoch: int) -> tuple[ComparedPartitions, list[StoreDifference]]:
        """Compare again; returns what to compare, and the present differences."""
        wanted, kept = partitions_to_compare(self.context), read_both_stores(self.context)
        agree, differ = compare_offsets(wanted, kept, self.phase, self.context.control_znode.migration_id, epoch)
        self._agreed |= agree
        return wanted, [one for one in differ if one.tp not in self._agreed]

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises in a phase in which the check is not possible."""
        self.context.control_znode.require_phase(self.phase)


def partitions_to_compare(moving: MigrationContext) -> ComparedPartitions:
    """The partitions that members read now, and the decisions of the plan for all others."""
    state = read_group(moving.session, moving.group)
    read = frozenset() if state is None else frozenset(consumed_partitions(state))
    return ComparedPartitions(read, {row.tp: row.target for row in moving.plan.partitions if row.target is not None})


def read_both_stores(moving: MigrationContext) -> StoresSnapshot:
    """Read both stores."""
    stores = moving.stores
    before = stores.read_zookeeper()
    kafka = stores.read_kafka()
    return StoresSnapshot(before, kafka, stores.read_zookeeper())


def compare_repeatedly(compare: CompareStores, epoch: int, pauses: Iterable[object]) -> list[StoreDifference]:
    """The differences after several comparisons, for a caller that only reports them."""
    differ: list[StoreDifference] = []
    for _ in pauses:
        _, differ = compare.compare(epoch)
        if not differ:
            return []
    return differ
