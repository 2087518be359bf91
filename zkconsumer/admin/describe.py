"""A group as rows: what ``zkconsumer groups describe`` and ``zkconsumer lag`` show.  Decides, and asks nobody.

``current_offset`` is what a member would start from if it were restarted now, as far as can be seen: a control znode
that gives the authority to Kafka is above everything; then ``offsets.storage`` and ``dual.commit.enabled`` of the file
that was given; without them ZooKeeper, and Kafka only where ZooKeeper has nothing (a member's own settings stand in no
znode).  ``authority`` says which store it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from zkconsumer.admin.zookeeper_group import owner_display
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup

OffsetStorageMode: TypeAlias = Literal["zookeeper", "kafka", "dual", "unknown"]
"""What the members are told to store in: ``unknown`` when no file says so."""

UNKNOWN = "?"
"""What a table shows where a server did not answer, or a znode cannot be read; what is not there is shown otherwise."""

COLUMNS = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    "ZK-OFFSET", "KAFKA-OFFSET", "AUTHORITY", "OWNER-KIND",
)  # fmt: skip
"""As kafka-consumer-groups has them and in its order, then ours."""


@dataclass(frozen=True, slots=True)
class GroupDescribeRow:
    """One partition, or one topic of a member that owns no partition at all.

    ``client_id`` is that of a modern member: no znode holds one.  ``owner_kind``: ``zkconsumer``, ``scala``,
    ``foreign``, ``persistent``, ``fence`` (a migration's) or ``coordinator``.  ``unknown``: what is None because a
    server did not answer, of ``current_offset``, ``log_end_offset``, ``kafka_offset`` and ``consumer_id``; or because
    the offset znode holds no number, of ``current_offset`` and ``zk_offset``.
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
    unknown: frozenset[str] = frozenset()

    @property
    def is_lag_unknown(self) -> bool:
        """Whether there may be a lag that nobody knows; where there is no offset, or no log, there is none."""
        return bool(self.unknown & {"current_offset", "log_end_offset"}) and not (
            self.current_offset is None and "current_offset" not in self.unknown
        )

    @property
    def lag(self) -> int | None:
        """Records between the offset and the end of the log; below zero when the log was cut (0.8 to 1.1)."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset

    @property
    def cells(self) -> tuple[object, ...]:
        """In the order of ``COLUMNS``; ``UNKNOWN`` where a value is not known."""
        values = self._values
        return tuple(UNKNOWN if name in self._unknown else value for name, value in values.items())

    def to_json(self) -> dict[str, object]:
        """The same, by name; ``unknown`` names what is null because it is not known."""
        return {**self._values, "unknown": sorted(self._unknown)}

    @property
    def _unknown(self) -> set[str]:
        return {*self.unknown, *(["lag"] if self.is_lag_unknown else [])}

    @property
    def _values(self) -> dict[str, object]:
        values = (
            self.group, self.topic, self.partition, self.current_offset, self.log_end_offset, self.lag,
            self.consumer_id, self.host, self.client_id, self.zk_offset, self.kafka_offset, self.authority,
            self.owner_kind,
        )  # fmt: skip
        return {name.lower().replace("-", "_"): value for name, value in zip(COLUMNS, values, strict=True)}


def describe(
    state: ZooKeeperGroup,
    ends: Mapping[TopicPartition, int],
    kafka: Mapping[TopicPartition, int],
    storage: OffsetStorageMode,
    topics: Sequence[str] = (),
    *,
    unknown_ends: Collection[TopicPartition] = (),
    is_kafka_known: bool = True,
) -> list[GroupDescribeRow]:
    """Every partition, sorted; then every member that owns none, a row for each topic that it wants.

    ``ends`` and ``kafka`` lack what is not there, and what is not known: ``unknown_ends`` are partitions whose leader
    did not answer, and ``is_kafka_known`` is False where the coordinator did not.  ``topics``: only these, if any are
    given.
    """
    wanted = set(topics)
    rows = [
        _row(state, tp, ends, kafka, storage, tp in unknown_ends, is_kafka_known)
        for tp in state.partitions
        if not wanted or tp.topic in wanted
    ]
    busy = {owner.consumer_id for owner in state.owners.values()}
    for name in sorted(set(state.members) - busy):
        member = state.members[name]
        subscribed = sorted(topic for topic in member.threads if not wanted or topic in wanted)
        rows += [GroupDescribeRow(state.group, topic, None, consumer_id=name, host=member.host) for topic in subscribed]
        if not member.threads:
            rows.append(GroupDescribeRow(state.group, None, None, consumer_id=name, host=member.host))
    return rows


def _row(
    state: ZooKeeperGroup,
    tp: TopicPartition,
    ends: Mapping[TopicPartition, int],
    kafka: Mapping[TopicPartition, int],
    storage: OffsetStorageMode,
    is_end_unknown: bool,
    is_kafka_known: bool,
) -> GroupDescribeRow:
    node = state.offsets.get(tp)
    in_zookeeper = node.offset if node else None
    current, authority = current_offset(in_zookeeper, kafka.get(tp), storage, state.authority)
    owner = state.owners.get(tp)
    member = state.members.get(owner.consumer_id) if owner else None
    consumer_id, kind = owner_display(owner.thread, owner.kind) if owner else (None, None)
    unknown = set()
    if is_end_unknown:
        unknown.add("log_end_offset")
    if not is_kafka_known:
        unknown.add("kafka_offset")
        if authority == "kafka" or storage == "dual" or (storage == "unknown" and in_zookeeper is None):
            current = None
            unknown.add("current_offset")
    if authority == UNKNOWN:
        unknown.add("current_offset")
    if node is not None and node.problem:
        unknown.add("zk_offset")
        if state.authority != "kafka" and storage != "kafka":
            current = None
            unknown.add("current_offset")
    return GroupDescribeRow(
        state.group, tp.topic, tp.partition, current, ends.get(tp),
        consumer_id,
        member.host if member else None,
        None, in_zookeeper, kafka.get(tp), authority,
        kind, frozenset(unknown),
    )  # fmt: skip


def current_offset(
    in_zookeeper: int | None, in_kafka: int | None, storage: OffsetStorageMode, authority: str
) -> tuple[int | None, str]:
    """Where a restarted member starts, and which store says so; None: there is no offset, its reset policy counts."""
    if authority == "kafka" or storage == "kafka":
        return in_kafka, "kafka"
    if authority == UNKNOWN:
        return None, UNKNOWN
    if storage == "dual" and in_kafka is not None and (in_zookeeper is None or in_kafka > in_zookeeper):
        return in_kafka, "kafka"
    if storage == "unknown" and in_zookeeper is None and in_kafka is not None:
        return in_kafka, "kafka"
    return in_zookeeper, "zookeeper"


def differing_offsets(state: ZooKeeperGroup, kafka: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions of which both stores have an offset, and not the same."""
    return [
        tp for tp, node in state.offsets.items()
        if node.offset is not None and tp in kafka and kafka[tp] != node.offset
    ]  # fmt: skip
