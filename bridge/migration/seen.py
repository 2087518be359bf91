"""A group on both sides, as it was looked at for a plan or a check.  Values only; ``look.py`` makes them.

Offsets are *stored* values here, as the znodes have them: whether they mean the next record or the last one is a
decision (``decisions.OffsetConvention``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.provenance import Provenance, parse_provenance
from zkconsumer.admin.stores import MISSING

if TYPE_CHECKING:
    from zkconsumer.admin.groups import OwnerNode
    from zkconsumer.admin.log_ranges import LogRange
    from zkconsumer.kafka.modern_groups import ModernGroup
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Acl
    from zkconsumer.zk.znodes import Control


@dataclass(frozen=True, slots=True)
class KafkaValue:
    """What Kafka has for a partition: the offset (always the next one) and whatever was committed with it."""

    offset: int
    metadata: str = ""

    @property
    def provenance(self) -> Provenance | None:
        """Which migration wrote it; None: an application did."""
        return parse_provenance(self.metadata)


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """One partition of the group's topics.

    ``stored`` None: there is no offset znode (``version`` is ``MISSING``), or it holds none (``problem`` says why when
    it is unreadable).  ``log`` is a sentence where the log's range is not known.
    """

    tp: TopicPartition
    stored: int | None = None
    version: int = MISSING
    problem: str = ""
    owner: OwnerNode | None = None
    kafka: KafkaValue | None = None
    log: LogRange | str = ""


@dataclass(frozen=True, slots=True)
class SeenMember:
    """One child of ``ids``: what it is, where it runs, and what it subscribes to, as the registration has it."""

    consumer_id: str
    kind: str
    host: str | None
    pattern: str
    topics: Mapping[str, int]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that a plan is made from and compared with.

    ``acls``: the access lists of every node that a fence would change, by path.  ``retention_ms``: how long Kafka keeps
    the offsets of a group that does not commit; None where the brokers do not tell.  ``strategy_in_use`` is the
    assignment that the owners show: ``range``, one of the roundrobins, ``none`` while nothing is owned, ``?`` when they
    show neither.  ``legacy_kafka_commits``: evidence that old members store offsets in Kafka; empty when there is none.
    """

    group: str
    at_ms: int
    members: tuple[SeenMember, ...]
    partitions: Mapping[TopicPartition, SeenPartition]
    missing_topics: tuple[str, ...] = ()
    odd_nodes: tuple[str, ...] = ()
    acls: Mapping[str, tuple[Acl, ...]] = field(default_factory=dict)
    control: Control | None = None
    control_version: int | None = None
    control_problem: str = ""
    modern: ModernGroup | None = None
    brokers: str = ""
    retention_ms: int | None = None
    strategy_in_use: str = "none"
    legacy_kafka_commits: str = ""
    filters: tuple[str, ...] = ()
    """The subscriptions by regular expression, as text: topics may appear during the move."""

    @property
    def topics(self) -> list[str]:
        """The topics of the group, sorted."""
        return sorted({tp.topic for tp in self.partitions})
