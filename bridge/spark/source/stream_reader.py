"""The stream reader, as Spark calls it for each batch.

    latestOffset(start)    the batch that ended at ``start`` is finished; plan               -> end, or start itself
    partitions(_, end)     claim, if claims are enabled; split into tasks                    -> ranges to read
    read(range)            in an executor: bridge.spark.decode.range_partition

``latestOffset(start)`` is the only sign that the batch that ended at ``start`` is in Spark's commit log.  Spark also
calls it at the end of Trigger.AvailableNow and at idle triggers.  Spark calls ``commit`` one batch late and not for the
last one, and usually does not call ``stop``.  So ``commit`` does nothing, and the membership process does not need
``stop``. After a crash Spark calls ``partitions`` for the batch that it repeats before any other call, so the ``end``
of a batch contains everything about it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from bridge.spark.offset_range_limits import nested
from bridge.spark.options import SourceOptions
from bridge.spark.source import fault_injection
from bridge.spark.source.error_rendering import sentence_first
from bridge.spark.source.pickling import ExecutorReaderMixin
from bridge.spark.source.stream_offset import INITIAL_OFFSET, BatchOffsets, check_mode, decode, encode

if TYPE_CHECKING:
    from bridge.spark.decode.range_partition import RangePartition
    from bridge.spark.source.dependencies import SourceDependencies
    from bridge.spark.source.stream_planner import StreamPlanner


class ZkConsumerStreamReader(ExecutorReaderMixin, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The stream of one query.  Opens no connection before Spark calls a method that needs one; one thread.

    Spark creates it in two processes: in one that plans the batches, and in one that only pickles it.  So what plans is
    imported at its first use.
    """

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], dependencies: SourceDependencies | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._given_dependencies = dependencies

    @cached_property
    def _dependencies(self) -> SourceDependencies:
        from bridge.spark.source.dependencies import SourceDependencies

        return self._given_dependencies or SourceDependencies()

    @cached_property
    def _planner(self) -> StreamPlanner:
        from bridge.spark.source.stream_planner import StreamPlanner

        return StreamPlanner(self._options, self._dependencies)

    @cached_property
    def _faults(self) -> fault_injection.FaultPoint:
        return self._dependencies.fault_point(self._options.config.group_id)

    # --- what Spark calls ---------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """A constant: Spark asks again when it repeats the first batch, and the end of that batch contains its
        start."""
        return dict(INITIAL_OFFSET)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the configured limits; the planner applies the others.  A Python source can return only one (Spark
        4.2, 4.3)."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)

    @sentence_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The ends that the first ``latestOffset`` finds are the ends of the query."""
        self._planner.freeze_end_offsets()

    @sentence_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The offset of the next batch; ``start`` itself without new records.

        The batch that ended at ``start`` is in Spark's commit log: its offsets are committed to the group, and
        partitions for which other members wait are released.
        """
        began = self._decoded(start)
        if began is not None:
            self._faults.reached(fault_injection.AFTER_COMMIT_LOG, began.batch)
        batch = self._planner.plan_next_batch(began, is_unlimited=isinstance(limit, ReadAllAvailable))
        return start if batch is None else encode(batch)

    @sentence_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs of the planned partitions, in the form of Spark's Kafka source."""
        return nested(self._planner.log_ends) or None

    @sentence_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The tasks of the batch that ends at ``end``; with ``claim``, only of the claimed ranges."""
        from bridge.spark.claims.claim_messages import claim_advice
        from bridge.spark.decode.offset_ranges import ReadSettings
        from bridge.spark.decode.range_partition import RangePartition
        from bridge.spark.group_membership import CommitMode
        from bridge.spark.source.tasks import cut_into_tasks
        from zkconsumer.kafka.broker_security import broker_security_from_config
        from zkconsumer.wire.isolation_level import IsolationLevel

        batch = self._decoded(end)
        if batch is None or start == end:
            return []
        self._faults.reached(fault_injection.AFTER_WAL, batch.batch)
        wanted = self._planner.claim_ranges(batch)
        self._faults.reached(fault_injection.AFTER_CLAIM, batch.batch)
        options, config = self._options, self._options.config
        tasks = cut_into_tasks(wanted, options.min_partitions, options.max_records_per_partition)
        if not tasks:
            return []
        settings = ReadSettings(
            fail_on_data_loss=options.fail_on_data_loss, request_timeout_ms=config.socket_timeout_ms,
            skip_offsets=options.skip_offsets, isolation_level=IsolationLevel.of_setting(config.isolation_level),
            on_corrupt_record=options.on_corrupt_record,
            claim_advice=claim_advice(config) if options.commit_mode is CommitMode.CLAIM else "",
        )  # fmt: skip
        brokers = tuple(self._planner.brokers())
        security = broker_security_from_config(config).for_brokers(brokers)
        return [RangePartition(each, brokers, self._columns, settings, security, config.client_id) for each in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark calls it when the batch after ``end`` is planned, and never for the last one."""

    def stop(self) -> None:
        """Leave the group.  Spark calls this when the JVM ends, and otherwise kills the process: the membership process
        detects that."""
        self._planner.close()

    def _decoded(self, found: dict[str, Any]) -> BatchOffsets | None:
        """Parses an offset of this query's checkpoint; None for the initial offset.  Raises ``ForeignCheckpoint``."""
        offsets = decode(found, self._options.config.group_id)
        if offsets is not None:
            check_mode(offsets, self._options.commit_mode)
        return offsets
