"""A snapshot of a group: its znodes, the start and the end of its logs, and what Kafka has stored for it.

ZooKeeper must answer, or there is nothing to show.  Data that the brokers do not return is missing, and ``not_known``
has one sentence for each reason, so a tool shows the rest while brokers are unreachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.admin.describe import describe
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.admin.stored_kafka_offsets import StoredKafkaOffsets, fetch_kafka_offsets
from zkconsumer.admin.zookeeper_group import ZooKeeperGroup, read_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.admin.describe import GroupDescribeRow, OffsetStorageMode
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ZooKeeperGroupSnapshot:
    """The result.  ``ranges`` lacks the partitions for which no leader answered; ``not_known`` has the reasons."""

    state: ZooKeeperGroup
    log_ranges: Mapping[TopicPartition, LogRange]
    unknown_ranges: Mapping[TopicPartition, str]
    kafka: StoredKafkaOffsets
    not_known: tuple[str, ...] = ()

    def rows(self, storage: OffsetStorageMode, topics: Sequence[str] = ()) -> list[GroupDescribeRow]:
        """The group as ``describe`` shows it."""
        return describe(
            self.state, self.log_ends, self.kafka.offsets, storage, topics,
            unknown_ends=self.unknown_ranges, is_kafka_known=not self.kafka.problem,
        )  # fmt: skip

    @property
    def log_ends(self) -> dict[TopicPartition, int]:
        """Log end offsets that are known."""
        return {tp: one.latest for tp, one in self.log_ranges.items()}


def read_group_snapshot(
    session: AdminSession, group: str, topics: Iterable[str] | None = None
) -> ZooKeeperGroupSnapshot | None:
    """Read now; None if the group does not exist.

    With ``topics`` only those.  Raises ``InvalidNameError`` for an invalid group or topic name, ``UnavailableError``
    when ZooKeeper does not answer.
    """
    only = None if topics is None else set(topics)
    state = read_group(session, group, only)
    if state is None:
        return None
    # Requests name only existing topics: old brokers would create others.
    existing = {t: frozenset(one.partitions) for t, one in state.topics.items() if only is None or t in only}
    wanted = [tp for tp in state.partitions if tp.partition in existing.get(tp.topic, ())]
    ranges: dict[TopicPartition, LogRange] = {}
    unknown: dict[TopicPartition, str] = {}
    words: list[str] = []
    try:
        for tp, log_range in (
            log_ranges(session.brokers, wanted, isolation_level=session.isolation_level).items() if wanted else ()
        ):
            if isinstance(log_range, str):
                unknown[tp] = log_range
            else:
                ranges[tp] = log_range
    except BROKER_REQUEST_ERRORS as error:
        return ZooKeeperGroupSnapshot(
            state, {}, dict.fromkeys(wanted, str(error)), StoredKafkaOffsets({}, str(error)), (str(error),)
        )
    kafka = fetch_kafka_offsets(session, group, state.partitions, state.all_topics)
    words += unknown_log_end_texts(unknown)
    if kafka.problem:
        words.append(f"offsets in Kafka are not known: {kafka.problem}")
    return ZooKeeperGroupSnapshot(state, ranges, unknown, kafka, tuple(words))


def configured_storage(session: AdminSession) -> OffsetStorageMode:
    """The store in which the members commit, if the given file names it."""
    config = session.config
    if "offsets.storage" not in config.given:
        return "unknown"
    if config.offsets_storage == "kafka":
        return "dual" if config.dual_commit_enabled else "kafka"
    return "zookeeper"


def unknown_log_end_texts(unknown: Mapping[TopicPartition, str]) -> list[str]:
    """The unknown log ends, with one sentence for each reason."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for tp, why in unknown.items():
        by_reason.setdefault(why, []).append(tp)
    return [
        f"the log end of {len(tps)} partition{'s' if len(tps) > 1 else ''} is not known, {min(tps)} first: {why}"
        for why, tps in by_reason.items()
    ]
