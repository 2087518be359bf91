"""What can happen to a member of both worlds, and what it wants done.  Values only.

Its two memberships speak to it as to a ``PartitionProcessor`` (``zkconsumer.member.ownership``), in the
values of ``core.commands``; it speaks to them as a holder does, in those of ``core.events``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.migration.dual.machine.acknowledgement import Acknowledgement
from bridge.migration.dual.machine.phase_rules import MembershipSide
from zkconsumer.member.ownership import PartitionCommand, PartitionEvent
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import ControlRecord

# --- what happens -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlChanged:
    """The control znode as ZooKeeper's side has read it; None: there is none."""

    control: ControlRecord | None


@dataclass(frozen=True, slots=True)
class GenerationChanged:
    """In which generation of the coordinator's group this member is; -1: in none."""

    generation: int


@dataclass(frozen=True, slots=True)
class SideCommanded:
    """One of the two memberships commands its partition processor."""

    side: MembershipSide
    command: PartitionCommand


@dataclass(frozen=True, slots=True)
class ZooKeeperOffsetsRead:
    """What is in ZooKeeper of what its side holds: the next offset of each as last read or written by us, -1: none.

    It is looked after each commit and claim, and now and then.
    """

    stored: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CommitStarted:
    """The program commits these; until ``CommitFinished`` with this number the rules of this moment apply."""

    call: int
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitFinished:
    """A commit of the program is over; ``in_kafka``: what Kafka took of it."""

    call: int
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KafkaWriteFinished:
    """The answer to ``WriteToKafka``: what was taken of it."""

    number: int
    committed: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class KafkaCommitted:
    """The coordinator's side committed by itself, and Kafka took this."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class KafkaOffsetsRead:
    """The answer to ``ReadFromKafka``; -1 where nothing is committed."""

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


# --- what is to be done -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToSide:
    """Submit this event of the partition processor to one of the two memberships."""

    side: MembershipSide
    event: PartitionEvent


@dataclass(frozen=True, slots=True)
class SetZooKeeperAssignment:
    """This is the share of ZooKeeper's side from now on; None: it computes it."""

    threads: Mapping[TopicPartition, str] | None
    new_partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class SetCoordinatorProtocols:
    """Be a member of the coordinator's group, offering these protocols; none: leave it."""

    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteToKafka:
    """Commit these as a member, with the migration's provenance; ``KafkaWriteFinished`` with the number follows.

    ``is_urgent``: partitions that leave wait for it, so it is tried again while the group forms anew.  Any other is
    made once: what is not ours any more by the next try must not be overwritten.
    """

    number: int
    offsets: Mapping[TopicPartition, int]
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class ReadFromKafka:
    """Ask what is committed of these now, until it is told; ``KafkaOffsetsRead`` follows."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class MirrorToZooKeeper:
    """Write these to ZooKeeper under the control znode's version; what cannot be written is let be."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class WriteAcknowledgement:
    """Write this where the migration looks for it, in place of what stood there; None: take it away."""

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
