"""What can happen to a member of both worlds, and what it wants done.  Values only.

Its two memberships speak to it as to a ``Holder`` (``zkconsumer.runtime.holder``), in the values of ``core.commands``;
it speaks to them as a holder does, in those of ``core.events``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.migration.member.acknowledgement import Acknowledgement
from bridge.migration.member.duty import Side
from zkconsumer.core import commands as do
from zkconsumer.core import events as ev
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znodes import Control

ToldToHolder: TypeAlias = (
    do.StartFetching | do.Drain | do.GiveUpDrain | do.Drop | do.MoveThread | do.CollectPositions
)
"""What a membership tells its holder."""

ToldByHolder: TypeAlias = ev.PartitionsDrained | ev.PositionsCollected | ev.OffsetReset | ev.OffsetsPlaced
"""What a holder tells its membership."""


# --- what happens -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControlSeen:
    """The control znode as ZooKeeper's side has read it; None: there is none."""

    control: Control | None


@dataclass(frozen=True, slots=True)
class GenerationSeen:
    """In which generation of the coordinator's group this member is; -1: in none."""

    generation: int


@dataclass(frozen=True, slots=True)
class Told:
    """A side tells its holder something."""

    side: Side
    command: ToldToHolder


@dataclass(frozen=True, slots=True)
class HolderSaid:
    """What works on the partitions says something."""

    event: ToldByHolder


@dataclass(frozen=True, slots=True)
class Looked:
    """What is in ZooKeeper of what its side holds: the next offset of each as last read or written by us, -1: none.

    It is looked after each commit and claim, and now and then.
    """

    stored: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CommitBegun:
    """The program commits these; until ``CommitEnded`` with this number it goes the way of the duty of this moment."""

    call: int
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """A commit of the program is over; ``in_kafka``: what Kafka took of it."""

    call: int
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenToKafka:
    """The answer to ``WriteToKafka``: what was taken of it."""

    number: int
    committed: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class KafkaTook:
    """The coordinator's side committed by itself, and Kafka took this."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class KafkaRead:
    """The answer to ``ReadFromKafka``; -1 where nothing is committed."""

    offsets: Mapping[TopicPartition, int]


Event: TypeAlias = (
    ControlSeen | GenerationSeen | Told | HolderSaid | Looked | CommitBegun | CommitEnded | WrittenToKafka
    | KafkaTook | KafkaRead
)  # fmt: skip


# --- what is to be done -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TellHolder:
    """Tell what works on the partitions."""

    command: ToldToHolder


@dataclass(frozen=True, slots=True)
class Say:
    """Tell a side something, as its holder."""

    side: Side
    event: ToldByHolder


@dataclass(frozen=True, slots=True)
class Give:
    """This is the share of ZooKeeper's side from now on; None: it computes it."""

    threads: Mapping[TopicPartition, str] | None
    new_partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Join:
    """Be a member of the coordinator's group, offering these protocols; none: leave it."""

    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteToKafka:
    """Commit these as a member, with the migration's provenance; ``WrittenToKafka`` with the number follows.

    ``is_urgent``: partitions that leave wait for it, so it is tried again while the group forms anew.  Any other is
    made once: what is not ours any more by the next try must not be overwritten.
    """

    number: int
    offsets: Mapping[TopicPartition, int]
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class ReadFromKafka:
    """Ask what is committed of these now, until it is told; ``KafkaRead`` follows."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Mirror:
    """Write these to ZooKeeper under the control znode's version; what cannot be written is let be."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Write this where the migration looks for it, in place of what stood there; None: take it away."""

    acknowledgement: Acknowledgement | None


Command: TypeAlias = TellHolder | Say | Give | Join | WriteToKafka | ReadFromKafka | Mirror | Acknowledge
