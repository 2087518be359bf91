"""A group in ZooKeeper and Kafka, as ``group_inspection`` read it for a plan or a check.  Values only.

Offsets are the *stored* values of the znodes: ``decisions.OffsetConvention`` decides whether they mean the next record
or the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bridge.migration.offsets.provenance import Provenance, parse_provenance
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION

if TYPE_CHECKING:
    from bridge.migration.plan.decisions import OffsetConvention
    from zkconsumer.admin.log_ranges import LogRange
    from zkconsumer.admin.zookeeper_group import OwnerKind
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroup
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Acl
    from zkconsumer.zk.znode_formats import ControlRecord


class CommittedOffset(NamedTuple):
    """What Kafka has for a partition: the next offset and the metadata of the commit."""

    offset: int
    metadata: str = ""

    @property
    def provenance(self) -> Provenance | None:
        """The migration that wrote it; None: an application did."""
        return parse_provenance(self.metadata)


@dataclass(frozen=True, slots=True)
class OwnerSnapshot:
    """The owner of a partition: the data of the owner node, and the kind of client that created it."""

    thread: str
    kind: OwnerKind


@dataclass(frozen=True, slots=True)
class LastLogEntry:
    """The entry at the last offset of a log: a record, or a transaction marker, which no consumer receives.

    ``at_ms`` is the record's timestamp, −1 where there is none.
    """

    is_record: bool
    at_ms: int = -1


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One existing partition of the group's topics.

    ``stored`` None: there is no offset znode (``version`` is ``NO_ZNODE_VERSION``), or it contains no offset
    (``error`` contains the reason when it is unreadable).  ``written_ms``: when the znode was last written, by
    ZooKeeper's clock.  ``is_older_than_topic``: that was before the topic was created.  ``is_written_by_owner``: its
    owner, a member of this library, wrote the value.  ``is_returned``: a rollback of an ended migration read ``kafka``
    and wrote it to ZooKeeper (``returned_offsets``).  ``log`` is a sentence where the log's range is not known.
    ``last_entry`` is read only where it shows the offset convention.
    """

    tp: TopicPartition
    stored: int | None = None
    version: int = NO_ZNODE_VERSION
    error: str = ""
    written_ms: int = 0
    is_older_than_topic: bool = False
    is_written_by_owner: bool = False
    owner: OwnerSnapshot | None = None
    kafka: CommittedOffset | None = None
    log: LogRange | str = ""
    last_entry: LastLogEntry | None = None
    is_returned: bool = False


@dataclass(frozen=True, slots=True)
class RegistrationSnapshot:
    """One child of ``ids``: kind of client, host and subscription, as the registration contains them."""

    consumer_id: str
    kind: str
    host: str | None
    pattern: str
    topics: Mapping[str, int]
    error: str = ""


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """One broker: whether it coordinates groups with members (0.9 and later), None when it does not answer.

    ``release``: the releases that it may be, or why they are not known.
    """

    name: str
    supports_groups: bool | None
    release: str


@dataclass(frozen=True, slots=True)
class ClusterIds:
    """The ids of the Kafka cluster, and of the cluster that uses this ZooKeeper; empty if unknown."""

    kafka: str = ""
    zookeeper: str = ""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """Everything that a plan is made from and compared with.

    ``offsets_without_partition``: partitions that have an offset znode and do not exist.  ``acls``: the access lists of
    every node that a fence would change, by path; ``acls_without_admin``: those that this login may not change;
    ``missing_permissions``: nodes on which the steps need other permissions that this login lacks, each with which.
    ``coordinator_group`` None: not known, and ``coordinator_group_error`` contains the reason; the same for Kafka's
    values and ``kafka_error``.  ``retention_ms``: how long Kafka keeps the offsets of a group that does not commit;
    None if unknown; ``keeps_by_commit``: whether the retention counts from each partition's own commit, also while the
    group has members (before 2.1, KIP-211). ``assignment_in_use`` is the assignment that the owners show: ``range``, a
    roundrobin variant, or several as text; ``none`` while no partition has an owner, ``?`` when the owners match no
    strategy.  ``legacy_kafka_commits``: evidence that old members store offsets in Kafka; ``last_offset_clients``:
    znodes that only clients create which store the *last* offset.  ``clusters``: the cluster ids on both sides.
    """

    group: str
    at_ms: int
    members: tuple[RegistrationSnapshot, ...]
    partitions: Mapping[TopicPartition, PartitionSnapshot]
    missing_topics: tuple[str, ...] = ()
    offsets_without_partition: tuple[TopicPartition, ...] = ()
    unexpected_nodes: tuple[str, ...] = ()
    acls: Mapping[str, tuple[Acl, ...]] = field(default_factory=dict)
    acls_without_admin: tuple[str, ...] = ()
    missing_permissions: tuple[str, ...] = ()
    control: ControlRecord | None = None
    control_version: int | None = None
    control_error: str = ""
    coordinator_group: CoordinatorGroup | None = None
    coordinator_group_error: str = ""
    kafka_error: str = ""
    brokers: tuple[BrokerSnapshot, ...] = ()
    retention_ms: int | None = None
    keeps_by_commit: bool | None = None
    assignment_in_use: str = "none"
    legacy_kafka_commits: str = ""
    last_offset_clients: tuple[str, ...] = ()
    clusters: ClusterIds = ClusterIds()
    topic_filters: tuple[str, ...] = ()
    """The subscriptions by regular expression, as text: topics may appear during the migration."""
    fences_migration_id: str = ""
    """The completed migration (``control``) whose fences exist; ``acls`` has the lists from before those fences."""
    fences_error: str = ""
    """Why a plan cannot take those fences over; a sentence without its end."""
    convention_before: OffsetConvention | None = None
    """The offset convention of the ended migration that ``control`` names; None: not known."""

    @property
    def topics(self) -> list[str]:
        """The topics of the group, sorted."""
        return sorted({tp.topic for tp in self.partitions})
