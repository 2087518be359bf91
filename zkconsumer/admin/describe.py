"""A group as rows, for ``zkconsumer groups describe`` and ``zkconsumer lag``.  Pure: sends no requests.

``current_offset`` is the offset from which a member would start if it were restarted now, as far as it can be known.
First counts a control znode that gives the authority to Kafka; then ``offsets.storage`` and ``dual.commit.enabled`` of
the given file; without a file ZooKeeper, and Kafka only if ZooKeeper has no offset (a member's own settings are in no
znode).  ``authority`` names that store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from zkconsumer.admin.lag_time_text import lag_seconds_text, lag_time_json
from zkconsumer.admin.zookeeper_group import owner_display
from zkconsumer.observe.lag_time import LagTimeAtLeast, UnknownLagTime
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup
    from zkconsumer.observe.lag_time import PartitionLagTime

OffsetStorageMode: TypeAlias = Literal["zookeeper", "kafka", "dual", "unknown"]
"""The configured store of the members: ``unknown`` if no file is given."""

UNKNOWN = "?"
"""Shown in a table if a server did not answer or a znode cannot be read; a value that does not exist is shown as -."""

COLUMNS = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
    "ZK-OFFSET", "KAFKA-OFFSET", "AUTHORITY", "OWNER-KIND",
)  # fmt: skip
"""The columns of kafka-consumer-groups in its order, then ours."""

DROPPABLE_COLUMNS = ("CLIENT-ID", "HOST", "OWNER-KIND", "KAFKA-OFFSET", "ZK-OFFSET", "AUTHORITY", "LOG-END-OFFSET")
"""Columns that a narrow terminal can do without, the least important first."""

LAG_SECONDS_COLUMN = "LAG-SECONDS"
"""The column of ``lag_seconds_cell``, for tools that observe the lag in time."""


@dataclass(frozen=True, slots=True)
class GroupDescribeRow:
    """One partition, or one topic of a member that owns no partition at all.

    ``client_id`` is known only of a coordinator's member: no znode contains it.  ``owner_kind``: ``zkconsumer``,
    ``scala``, ``foreign``, ``persistent``, ``fence`` (of a migration) or ``coordinator``.  ``unknown``: which of
    ``current_offset``, ``log_end_offset``, ``kafka_offset`` and ``consumer_id`` are None because a server did not
    answer, or which of ``current_offset`` and ``zk_offset`` because the offset znode does not contain a number.
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
    lag_time: PartitionLagTime | None = None
    """The lag in time and its trend; None: it was not observed, or the row has no partition."""

    @property
    def is_lag_unknown(self) -> bool:
        """Whether there may be a lag that is unknown; without an offset or a log there is no lag."""
        return bool(self.unknown & {"current_offset", "log_end_offset"}) and not (
            self.current_offset is None and "current_offset" not in self.unknown
        )

    @property
    def lag(self) -> int | None:
        """Records between the offset and the end of the log; negative if the log was truncated (0.8 to 1.1)."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset

    @property
    def cells(self) -> tuple[object, ...]:
        """The values in the order of ``COLUMNS``; ``UNKNOWN`` for unknown values."""
        unknown = self._unknown
        return tuple(UNKNOWN if name in unknown else value for name, value in self._values.items())

    def to_json(self) -> dict[str, object]:
        """The values by name; ``unknown`` names the values that are null because they are unknown."""
        times = {} if self.lag_time is None else lag_time_json(self.lag_time)
        return {**self._values, **times, "unknown": sorted(self._unknown)}

    @property
    def _unknown(self) -> set[str]:
        lags = ["lag"] if self.is_lag_unknown else []
        return {*self.unknown, *lags, *(["lag_seconds"] if self._is_lag_time_unknown else [])}

    @property
    def _is_lag_time_unknown(self) -> bool:
        """Whether there is a lag whose time is unknown; a partition without an offset or a log has no lag."""
        has_lag = self.lag is not None or self.is_lag_unknown
        lag = None if self.lag_time is None else self.lag_time.lag
        return has_lag and isinstance(lag, UnknownLagTime | LagTimeAtLeast)

    @property
    def lag_seconds_cell(self) -> str | None:
        """The value of the column LAG-SECONDS; None: there is no lag, or it was not observed."""
        has_lag = self.lag is not None or self.is_lag_unknown
        return lag_seconds_text(self.lag_time.lag) if self.lag_time is not None and has_lag else None

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
    """Every partition, sorted; then every member without partitions, a row for each topic that it subscribes to.

    ``ends`` and ``kafka`` contain neither values that do not exist nor unknown ones: ``unknown_ends`` are partitions
    whose leader did not answer, and ``is_kafka_known`` is False if the coordinator did not.  ``topics``: only these, if
    any are given.
    """
    wanted = set(topics)
    rows = [
        _row(
            state,
            tp,
            ends,
            kafka=kafka,
            storage=storage,
            is_end_unknown=tp in unknown_ends,
            is_kafka_known=is_kafka_known,
        )
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
    *,
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
    if owner and consumer_id is not None:
        consumer_id = owner.consumer_id
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
    """The start offset of a restarted member, and its store; None: there is no offset, so its reset policy applies."""
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
    """The partitions with different offsets in the two stores."""
    return [
        tp for tp, node in state.offsets.items()
        if node.offset is not None and tp in kafka and kafka[tp] != node.offset
    ]  # fmt: skip
