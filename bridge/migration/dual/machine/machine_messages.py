"""The events and commands of ``MigratingMember``.  Values only.

The values of ``zkconsumer.member.ownership`` pass through it as they are: a ``PartitionEvent`` of the processor is one
of its events, a ``PartitionCommand`` for the processor is one of its commands.  ``SideCommanded`` and ``SendToSide``
add only the membership that commands, or receives the event.

Each request has one answer, whatever becomes of the coordinator side: ``WriteToKafka`` gets ``KafkaWriteFinished``,
``CollectPositions`` gets ``PositionsCollected``, ``CommitStarted`` is followed by ``CommitFinished``.  Only
``ReadFromKafka`` may get none: a read ends with the assignment of the partition, and with the coordinator side.  The
answers to different requests may arrive in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bridge.migration.dual.machine.acknowledgement import Acknowledgement
from bridge.migration.dual.machine.phase_rules import MembershipSide
from zkconsumer.member.ownership import PartitionCommand, PartitionEvent
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import ControlRecord

# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlChanged:
    """The control znode as the ZooKeeper side has read it; None: it does not exist.

    Sent at each change that the side sees.  It may have missed any number of changes before.
    """

    control: ControlRecord | None


@dataclass(frozen=True, slots=True)
class GenerationChanged:
    """The generation of the coordinator group in which this member is; -1: none.

    The partitions of the generation come separately, as commands of the side.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class SideCommanded:
    """One of the two memberships commands its partition processor."""

    side: MembershipSide
    command: PartitionCommand


@dataclass(frozen=True, slots=True)
class ZooKeeperOffsetsRead:
    """The offsets in ZooKeeper of the partitions that its side owns, as this member read or wrote them last; -1: none.

    Sent after each commit and acquisition, and periodically.
    """

    stored: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CommitStarted:
    """The program commits these; until ``CommitFinished`` with this number the present commit order applies to it."""

    call: int
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitFinished:
    """A commit of the program has ended, with whatever result; ``KafkaCommitted`` has what Kafka accepted of it."""

    call: int


@dataclass(frozen=True, slots=True)
class KafkaWriteFinished:
    """The answer to ``WriteToKafka``: the partitions whose offsets Kafka accepted."""

    number: int
    committed: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class KafkaCommitted:
    """The coordinator side committed these, and Kafka accepted them: a commit of the program or an automatic one, but
    not a ``WriteToKafka``."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class KafkaOffsetsRead:
    """The answer to ``ReadFromKafka``; -1 without a committed offset."""

    offsets: Mapping[TopicPartition, int]


MigratingMemberEvent: TypeAlias = (
    ControlChanged
    | GenerationChanged
    | SideCommanded
    | PartitionEvent
    | ZooKeeperOffsetsRead
    | CommitStarted
    | CommitFinished
    | KafkaWriteFinished
    | KafkaCommitted
    | KafkaOffsetsRead
)


# --- commands --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToSide:
    """Submit this event of the partition processor to one of the two memberships."""

    side: MembershipSide
    event: PartitionEvent


@dataclass(frozen=True, slots=True)
class SetZooKeeperAssignment:
    """The assignment of the ZooKeeper side from now on; None: it computes it.

    ``new_partitions``: those of ``threads`` that are read from their beginning if they have no committed offset.
    """

    threads: Mapping[TopicPartition, str] | None
    new_partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class SetCoordinatorProtocols:
    """Be a member of the coordinator group with these protocols, the preferred one first; without protocols: leave it.

    The connector tries until it succeeds; ``GenerationChanged`` shows that it did.
    """

    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteToKafka:
    """Commit these as a member, with the migration's provenance; ``KafkaWriteFinished`` with the number follows.

    ``is_urgent``: partitions that leave wait for it, so it is repeated while the group rebalances.  Other writes are
    made once: a retry must not overwrite the offset of the next owner.
    """

    number: int
    offsets: Mapping[TopicPartition, int]
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class ReadFromKafka:
    """Fetch the committed offsets of these until they are known; ``KafkaOffsetsRead`` follows."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class MirrorToZooKeeper:
    """Write these to ZooKeeper, conditional on the version of the control znode; failures are ignored.

    Nothing reads them while Kafka has the authority; a rollback compares each of them with Kafka.
    """

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class WriteAcknowledgement:
    """Write this acknowledgement in place of the previous one; None: delete it.  Repeated until it succeeds."""

    acknowledgement: Acknowledgement | None


MigratingMemberCommand: TypeAlias = (
    PartitionCommand
    | SendToSide
    | SetZooKeeperAssignment
    | SetCoordinatorProtocols
    | WriteToKafka
    | ReadFromKafka
    | MirrorToZooKeeper
    | WriteAcknowledgement
)
