"""Decides which offsets to copy from one store to the other, and whether an offset that exists is correct.  Pure.

    to Kafka       OffsetCopy = the start of a partition, the offset znode that it comes from, Kafka's value in the plan
    to ZooKeeper   OffsetWrite = the value in the group's own convention, and the version of the znode that it replaces

The metadata of a value (``provenance``) names the migration that wrote it.  So a later run distinguishes its own values
from those of other clients, and never overwrites the latter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from bridge.migration.offsets.provenance import Provenance, format_provenance
from bridge.migration.plan.decisions import OffsetConvention
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION, OffsetWrite

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import CommittedOffset
    from bridge.migration.plan.migration_plan import MigrationPlan
    from zkconsumer.admin.zookeeper_group import OffsetNode
    from zkconsumer.types import TopicPartition

DIFFERENCES_SHOWN_MAX = 10


class OffsetCopy(NamedTuple):
    """One partition that is copied to Kafka.

    ``offset``: the next one.  ``stored`` and ``version``: of the offset znode that it comes from; None and
    ``NO_ZNODE_VERSION`` where there is none.  ``kafka_before``: Kafka's value in the plan, to which its decisions
    apply.
    """

    tp: TopicPartition
    offset: int
    stored: int | None = None
    version: int = NO_ZNODE_VERSION
    kafka_before: CommittedOffset | None = None

    def metadata(self, migration_id: str, epoch: int) -> str:
        """The metadata of its commit."""
        return format_provenance(Provenance(migration_id, epoch, self.version))


class CopyStatus(Enum):
    """What a value in Kafka means to a copy."""

    DONE = "correct"
    PENDING = "to be written: Kafka has no value, or the one in the plan, or a wrong value of this migration"
    DRIFT = "another client's value, and not the one in the plan"


def copies_of(plan: MigrationPlan) -> tuple[OffsetCopy, ...]:
    """The offsets that a plan copies, in its order."""
    seen = plan.snapshot.partitions
    return tuple(
        OffsetCopy(row.tp, row.target, row.stored, row.version, seen[row.tp].kafka if row.tp in seen else None)
        for row in plan.partitions
        if row.target is not None
    )


def copy_status(copy: OffsetCopy, found: CommittedOffset | None, migration_id: str, epoch: int) -> CopyStatus:
    """What to do about the value that Kafka has.

    A missing value is no drift, whatever the plan contains: brokers delete offsets of groups that do not commit.
    """
    if found is None:
        return CopyStatus.PENDING
    if found.offset == copy.offset and found.metadata == copy.metadata(migration_id, epoch):
        return CopyStatus.DONE
    whose = found.provenance
    if found == copy.kafka_before or (whose is not None and whose.is_of_migration(migration_id)):
        return CopyStatus.PENDING
    return CopyStatus.DRIFT


@dataclass(frozen=True, slots=True)
class StoreDifference:
    """A wrong value in a store: ``where`` is ``Kafka`` or ``ZooKeeper``, the rest is text for a person."""

    tp: TopicPartition
    store: str
    expected: str
    actual: str
    expected_offset: int = 0
    """The lowest correct offset."""

    def __str__(self) -> str:
        return f"{self.tp}: {self.store} has {self.actual}, not {self.expected}"


def format_differences(differences: Sequence[StoreDifference]) -> str:
    """The first differences, and how many more there are."""
    more = len(differences) - DIFFERENCES_SHOWN_MAX
    shown = "; ".join(map(str, differences[:DIFFERENCES_SHOWN_MAX]))
    return f"{shown}; and {more} more" if more > 0 else shown


def pending_and_drifted(
    copies: Iterable[OffsetCopy], kafka: Mapping[TopicPartition, CommittedOffset], migration_id: str, epoch: int
) -> tuple[list[OffsetCopy], list[StoreDifference]]:
    """The offsets to write, and those that another client has committed since the plan was made."""
    left: list[OffsetCopy] = []
    drift: list[StoreDifference] = []
    for copy in copies:
        found = kafka.get(copy.tp)
        verdict = copy_status(copy, found, migration_id, epoch)
        if verdict is CopyStatus.PENDING:
            left.append(copy)
        elif verdict is CopyStatus.DRIFT:
            drift.append(
                StoreDifference(
                    copy.tp,
                    "Kafka",
                    f"{_format_committed(copy.kafka_before)}, as the plan saw",
                    _format_committed(found),
                )
            )
    return left, drift


# --- after the copy ---------------------------------------------------------------------------------------------


def copy_differences(
    copies: Sequence[OffsetCopy],
    known: Collection[TopicPartition],
    kafka: Mapping[TopicPartition, CommittedOffset],
    *,
    nodes: Mapping[TopicPartition, OffsetNode],
    migration_id: str,
    epoch: int,
) -> list[StoreDifference]:
    """The differences between the two stores and the result of a copy.

    Kafka: each value is the planned one, written by this migration at this epoch.  ZooKeeper: no offset znode was
    written, created or deleted since it was read; ``known`` are the partitions that were read then.
    """
    found: list[StoreDifference] = []
    for copy in copies:
        found += kafka_differences([copy], kafka, migration_id, epoch)
        node = nodes.get(copy.tp)
        version, stored = (NO_ZNODE_VERSION, None) if node is None else (node.stat.version, node.offset)
        if (version, stored) != (copy.version, copy.stored):
            wanted = _format_znode(copy.version, copy.stored)
            found.append(StoreDifference(copy.tp, "ZooKeeper", wanted, _format_znode(version, stored)))
    looked_at = {copy.tp for copy in copies} | set(known)
    for tp in sorted(nodes.keys() - looked_at):
        came = nodes[tp]
        found.append(
            StoreDifference(
                tp, "ZooKeeper", _format_znode(NO_ZNODE_VERSION, None), _format_znode(came.stat.version, came.offset)
            )
        )
    return found


def lost_copies(copies: Iterable[OffsetCopy], kafka: Mapping[TopicPartition, CommittedOffset]) -> list[StoreDifference]:
    """Where Kafka has no value any more, or a smaller one than was copied: members only commit greater ones."""
    found: list[StoreDifference] = []
    for copy in copies:
        value = kafka.get(copy.tp)
        if value is None or value.offset < copy.offset:
            wanted = f"{copy.offset} or more, as was copied"
            found.append(StoreDifference(copy.tp, "Kafka", wanted, _format_committed(value), copy.offset))
    return found


def kafka_differences(
    copies: Iterable[OffsetCopy], kafka: Mapping[TopicPartition, CommittedOffset], migration_id: str, epoch: int
) -> list[StoreDifference]:
    """The values that are not the planned ones, written by this migration at this epoch."""
    return [
        StoreDifference(
            copy.tp,
            "Kafka",
            f"{copy.offset} ({copy.metadata(migration_id, epoch)})",
            _format_committed(kafka.get(copy.tp)),
        )
        for copy in copies
        if copy_status(copy, kafka.get(copy.tp), migration_id, epoch) is not CopyStatus.DONE
    ]


# --- rollback -----------------------------------------------------------------------------------------------------


def zookeeper_offset_for(offset_next: int, convention: OffsetConvention) -> int | None:
    """ZooKeeper's value for a next offset; None: no record was read yet, and the *last* convention has no value for
    it.
    """
    if convention is OffsetConvention.NEXT:
        return offset_next
    return offset_next - 1 if offset_next > 0 else None


def pending_zookeeper_writes(
    kafka: Mapping[TopicPartition, CommittedOffset],
    nodes: Mapping[TopicPartition, OffsetNode],
    convention: OffsetConvention,
) -> list[OffsetWrite]:
    """The writes that give ZooKeeper the offsets of Kafka, sorted.

    An offset that Kafka does not have is not changed in ZooKeeper: it is the last known position.
    """
    writes: list[OffsetWrite] = []
    for tp, value in sorted(kafka.items()):
        node, stored = nodes.get(tp), zookeeper_offset_for(value.offset, convention)
        found = None if node is None else node.offset
        if found != stored or (node is not None and node.problem):
            writes.append(OffsetWrite(tp, stored, NO_ZNODE_VERSION if node is None else node.stat.version))
    return writes


def zookeeper_differences(
    kafka: Mapping[TopicPartition, CommittedOffset],
    nodes: Mapping[TopicPartition, OffsetNode],
    convention: OffsetConvention,
) -> list[StoreDifference]:
    """Where ZooKeeper's offset differs from Kafka's."""
    found = []
    for write in pending_zookeeper_writes(kafka, nodes, convention):
        node = nodes.get(write.tp)
        there = _format_znode(NO_ZNODE_VERSION, None) if node is None else _format_znode(node.stat.version, node.offset)
        wanted = "no offset" if write.offset is None else str(write.offset)
        found.append(StoreDifference(write.tp, "ZooKeeper", wanted, there))
    return found


def _format_committed(value: CommittedOffset | None) -> str:
    if value is None:
        return "nothing"
    return f"{value.offset} ({value.metadata})" if value.metadata else str(value.offset)


def _format_znode(version: int, stored: int | None) -> str:
    if version == NO_ZNODE_VERSION:
        return "no znode"
    return f"{'no offset' if stored is None else stored} at version {version}"
