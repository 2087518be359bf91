"""A group as rows: what ``zkconsumer groups describe`` and ``zkconsumer lag`` show.  Decides, and asks nobody.

``current_offset`` is what a member would start from if it were restarted now, as far as can be seen: a control znode
that gives the authority to Kafka is above everything; then ``offsets.storage`` and ``dual.commit.enabled`` of the file
that was given; without them ZooKeeper, and Kafka only where ZooKeeper has nothing (a member's own settings stand in no
znode).  ``authority`` says which store it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from zkconsumer.admin.groups import shown_owner
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.admin.groups import GroupState

Storage: TypeAlias = Literal["zookeeper", "kafka", "dual", "unknown"]
"""What the members are told to store in: ``unknown`` when no file says so."""

COLUMNS = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    "ZK-OFFSET", "KAFKA-OFFSET", "AUTHORITY", "OWNER-KIND",
)  # fmt: skip
"""As kafka-consumer-groups has them and in its order, then ours."""


@dataclass(frozen=True, slots=True)
class Row:
    """One partition, or one topic of a member that owns no partition at all.

    ``client_id`` is that of a modern member: no znode holds one.  ``owner_kind``: ``zkconsumer``, ``scala``,
    ``foreign``, ``persistent``, ``fence`` (a migration's) or ``modern``.
    """

    group: str
    topic: str | None
    partition: int | None
    current_offset: int | None = None
    log_end_offset: int | None = None
    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None
    zk_offset: int | None = None
    kafka_offset: int | None = None
    authority: str | None = None
    owner_kind: str | None = None

    @property
    def lag(self) -> int | None:
        """Records between the offset and the end of the log; below zero when the log was cut (0.8 to 1.1)."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset

    @property
    def cells(self) -> tuple[object, ...]:
        """In the order of ``COLUMNS``."""
        return (
            self.group, self.topic, self.partition, self.current_offset, self.log_end_offset, self.lag,
            self.consumer_id, self.host, self.client_id, self.zk_offset, self.kafka_offset, self.authority,
            self.owner_kind,
        )  # fmt: skip

    def to_json(self) -> dict[str, object]:
        """The same, by name."""
        return {name.lower().replace("-", "_"): value for name, value in zip(COLUMNS, self.cells, strict=True)}


def describe(
    state: GroupState,
    ends: Mapping[TopicPartition, int],
    kafka: Mapping[TopicPartition, int],
    storage: Storage,
    topics: Sequence[str] = (),
) -> list[Row]:
    """Every partition, sorted; then every member that owns none, a row for each topic that it wants.

    ``ends`` and ``kafka`` lack what is not known.  ``topics``: only these, if any are given.
    """
    wanted = set(topics)
    rows = [_row(state, tp, ends, kafka, storage) for tp in state.partitions if not wanted or tp.topic in wanted]
    busy = {owner.consumer_id for owner in state.owners.values()}
    for name in sorted(set(state.members) - busy):
        member = state.members[name]
        subscribed = sorted(topic for topic in member.threads if not wanted or topic in wanted)
        rows += [Row(state.group, topic, None, consumer_id=name, host=member.host) for topic in subscribed]
        if not member.threads:
            rows.append(Row(state.group, None, None, consumer_id=name, host=member.host))
    return rows


def _row(
    state: GroupState,
    tp: TopicPartition,
    ends: Mapping[TopicPartition, int],
    kafka: Mapping[TopicPartition, int],
    storage: Storage,
) -> Row:
    node = state.offsets.get(tp)
    in_zookeeper = node.offset if node else None
    current, authority = current_offset(in_zookeeper, kafka.get(tp), storage, state.authority)
    owner = state.owners.get(tp)
    member = state.members.get(owner.consumer_id) if owner else None
    consumer_id, kind = shown_owner(owner.thread, owner.kind) if owner else (None, None)
    return Row(
        state.group, tp.topic, tp.partition, current, ends.get(tp),
        consumer_id,
        member.host if member else None,
        None, in_zookeeper, kafka.get(tp), authority,
        kind,
    )  # fmt: skip


def current_offset(
    in_zookeeper: int | None, in_kafka: int | None, storage: Storage, authority: str
) -> tuple[int | None, str]:
    """Where a restarted member starts, and which store says so; None: there is no offset, its reset policy counts."""
    if authority == "kafka" or storage == "kafka":
        return in_kafka, "kafka"
    if authority == "?":
        return None, "?"
    if storage == "dual" and in_kafka is not None and (in_zookeeper is None or in_kafka > in_zookeeper):
        return in_kafka, "kafka"
    if storage == "unknown" and in_zookeeper is None and in_kafka is not None:
        return in_kafka, "kafka"
    return in_zookeeper, "zookeeper"


def differing(state: GroupState, kafka: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions of which both stores have an offset, and not the same."""
    return [
        tp for tp, node in state.offsets.items()
        if node.offset is not None and tp in kafka and kafka[tp] != node.offset
    ]  # fmt: skip
