"""``spark.read.format("zkconsumer")``: reads one range of each partition once, without a member in a group.

    partitions()   options ---> topics, group offsets, log bounds ---> ranges ---> tasks
    read()         a task ----> record batches; in executors (``bridge.spark.decode.range_partition``)

It writes nothing to ZooKeeper or Kafka, so it does not affect the group.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql.datasource import DataSourceReader

from bridge.spark.decode.arrow_decoder import warn_if_not_compiled
from bridge.spark.decode.gc_freeze import gc_freeze_worker
from bridge.spark.decode.offset_ranges import ReadSettings
from bridge.spark.decode.range_partition import RangePartition
from bridge.spark.offset_range_limits import GroupOffsetRangeLimit, format_partition_list
from bridge.spark.options import AssignedPartitions, SourceOptions, SubscribedTopics
from bridge.spark.source.batch_ranges import BatchRanges, configured_end, configured_start, resolve_ranges
from bridge.spark.source.error_rendering import sentence_before_traceback
from bridge.spark.source.offset_selection import GroupStartingOffsets, resolve_storage, select_offsets
from bridge.spark.source.pickling import ExecutorReaderMixin
from bridge.spark.source.skip_offsets import ranges_to_read
from bridge.spark.source.tasks import cut_into_tasks
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetStores
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.admin.zookeeper_group import read_topics
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.errors import BrokerUnreachable, PreconditionFailed, UnavailableError, UsageError
from zkconsumer.kafka.broker_security import broker_security_from_config
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel

log = logging.getLogger("zkconsumer.spark")


class ZkConsumerBatchReader(ExecutorReaderMixin, DataSourceReader):  # type: ignore[misc]
    """The part of the reader on the driver: created when Spark plans; opens no connection before ``partitions``."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    @sentence_before_traceback
    def partitions(self) -> list[RangePartition]:
        """The tasks of the batch; an empty list when no records are to be read.

        Raises what ``plan_batch`` raises.
        """
        planned = plan_batch(self._options, self._columns)
        gc_freeze_worker()
        return planned


def plan_batch(
    options: SourceOptions, columns: tuple[str, ...], dependencies: AdminDependencies | None = None
) -> list[RangePartition]:
    """The tasks that read the ranges.

    Raises ``UsageError`` for a topic that does not exist and for impossible ranges; ``PreconditionFailed`` for a group
    without offsets and for ranges that the logs do not contain; ``UnavailableError`` when ZooKeeper or the brokers do
    not answer; ``AuthenticationException``.
    """
    for option, why in options.warnings.items():
        log.warning("option-without-effect option=%s reason=%s", option, why)
    warn_if_not_compiled()
    isolation_level = IsolationLevel.of_setting(options.config.isolation_level)
    with batch_session(options, dependencies) as session:
        found = resolve_batch(options, session, selected_partitions(options, session))
        brokers = tuple(session.brokers.all())
    for lost in found.lost:
        log.warning(
            "data-lost partition=%s first=%s end=%s lost_offsets=%s",
            lost.tp, lost.first, lost.end, lost.end - lost.first,
        )  # fmt: skip
    ranges, _ = ranges_to_read(found.ranges.values(), options.skip_offsets)
    settings = ReadSettings(
        fail_on_data_loss=options.fail_on_data_loss, request_timeout_ms=options.config.socket_timeout_ms,
        skip_offsets=options.skip_offsets, isolation_level=isolation_level,
        on_corrupt_record=options.on_corrupt_record,
    )  # fmt: skip
    security, client_id = broker_security_from_config(options.config).for_brokers(brokers), options.config.client_id
    wanted = cut_into_tasks(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(each, brokers, columns, settings, security, client_id) for each in wanted]


def resolve_batch(options: SourceOptions, session: AdminSession, partitions: Collection[TopicPartition]) -> BatchRanges:
    """The ranges of these partitions between the starting and the ending limit.  Raises what ``plan_batch`` raises."""
    isolation_level = IsolationLevel.of_setting(options.config.isolation_level)

    def ask(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogRange]:
        return _at_times(session, times, isolation_level)

    if isinstance(options.starting_limit, GroupOffsetRangeLimit):
        starting = _group_start(options, session, partitions)
    else:
        starting = configured_start(options.starting_limit, partitions, ask, options.fail_on_late_timestamp)
    ending = configured_end(options.ending_limit, partitions, ask)
    logs = _logs(session, partitions, isolation_level=isolation_level)
    return resolve_ranges(starting, ending, logs, options.fail_on_data_loss)


@contextmanager
def batch_session(options: SourceOptions, dependencies: AdminDependencies | None) -> Iterator[AdminSession]:
    """A session with the brokers, and with ZooKeeper if ``zookeeper.connect`` is set."""
    session = AdminSession(options.config, dependencies)
    if options.has_zookeeper:
        session.start(options.config.zookeeper_connection_timeout_ms)
    try:
        yield session
    finally:
        session.close()


# --- requests to ZooKeeper and the brokers -----------------------------------------------------------------------


def selected_partitions(options: SourceOptions, session: AdminSession) -> list[TopicPartition]:
    """Every subscribed or assigned partition."""
    subscribed = options.topic_selection
    names: Collection[str] | None = None
    if isinstance(subscribed, SubscribedTopics):
        names = subscribed.topics
    elif isinstance(subscribed, AssignedPartitions):
        names = {tp.topic for tp in subscribed.partitions}
    topics = read_topics(session, names)
    where = _place(options)
    if names is not None and (gone := sorted(set(names) - topics.keys())):
        ways = ("subscribe", "topics", "assign")
        option = next((name for name, _ in options.given if name in ways), "subscribe")
        hint = did_you_mean(gone[0], read_topics(session, None))
        raise UsageError(
            f"topic {', '.join(gone)} does not exist at {where}{hint}: correct {option}, or create the topic"
        )
    broken = {name: topic.problem for name, topic in topics.items() if topic.problem}
    if broken and names is not None:
        name, problem = next(iter(broken.items()))
        raise UnavailableError(f"the znode of topic {name} cannot be read ({problem}): find out which program wrote it")
    found = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    if isinstance(subscribed, SubscribedTopics):
        return sorted(found)
    if isinstance(subscribed, AssignedPartitions):
        if foreign := sorted(set(subscribed.partitions) - set(found)):
            raise UsageError(f"partition {format_partition_list(foreign)} does not exist at {where}: correct assign")
        return sorted(subscribed.partitions)
    hides = options.config.exclude_internal_topics
    chosen = sorted(tp for tp in found if subscribed.is_topic_allowed(tp.topic, hides))
    if not chosen:
        raise UsageError(f"no topic at {where} matches {subscribed}: correct the pattern, or create the topics")
    return chosen


def _place(options: SourceOptions) -> str:
    if options.config.bootstrap_servers is not None:
        return options.config.bootstrap_servers
    return options.config.zookeeper_connect


def _group_start(
    options: SourceOptions, session: AdminSession, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The group's committed offsets; elsewhere the position of ``auto.offset.reset``.  The group may have members."""
    starts = read_group_starts(options, session, partitions)
    if all(start.offset < 0 for start in starts.partitions.values()):
        topics = dict.fromkeys(tp.topic for tp in partitions)
        raise PreconditionFailed(
            f"group {options.config.group_id} has no offset of any partition of {', '.join(topics)}. Check that "
            "group.id is correct, and in which store the members commit (offsets.storage); or set "
            "startingOffsets=earliest"
        )
    for remark in starts.remarks:
        log.warning("starting-offsets group=%s remark=%r", options.config.group_id, remark)
    return {tp: start.offset for tp, start in starts.partitions.items()}


def read_group_starts(
    options: SourceOptions, session: AdminSession, partitions: Collection[TopicPartition]
) -> GroupStartingOffsets:
    """The group's committed offsets, and -2 or -1 (``auto.offset.reset``) where it has none.

    Raises ``PreconditionFailed`` and ``UnavailableError``, also if it is not known which store is valid.
    """
    storage = configured_storage(session)
    in_kafka = storage in ("kafka", "dual")
    stores = GroupOffsetStores(session, options.config.group_id)
    seen = stores.read(["kafka"] if in_kafka else ["zookeeper"], include_kafka=storage == "unknown")
    if seen.control is not None and seen.control.authority == "kafka" and seen.kafka is None:
        seen = stores.read(["kafka"])  # the group has migrated to Kafka since the options were written
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    resets_to_earliest = options.config.auto_offset_reset == "smallest"
    return select_offsets(
        seen,
        topics,
        resolve_storage("auto", storage, seen),
        convention="last-consumed" if options.is_last_consumed else "next",
        missing="earliest" if resets_to_earliest else "latest",
    )


def _logs(
    session: AdminSession,
    partitions: Collection[TopicPartition],
    time_ms: int | None = None,
    *,
    isolation_level: int,
) -> dict[TopicPartition, LogRange]:
    found = {}
    for tp, log in log_ranges(session.brokers, partitions, time_ms, isolation_level=isolation_level).items():
        if isinstance(log, str):
            raise BrokerUnreachable(f"{tp}: the start and the end of its log are not known: {log}")
        found[tp] = log
    return found


def _at_times(
    session: AdminSession, times: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, LogRange]:
    by_time: dict[int, list[TopicPartition]] = {}
    for tp, time_ms in times.items():
        by_time.setdefault(time_ms, []).append(tp)
    found: dict[TopicPartition, LogRange] = {}
    for time_ms, some in by_time.items():
        found |= _logs(session, some, time_ms, isolation_level=isolation_level)
    return found
