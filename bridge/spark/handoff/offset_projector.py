"""``GroupOffsetProjector``: commits the progress of a query of Spark's own Kafka source to a group, for lag tools.

    projector = GroupOffsetProjector("zk1:2181/kafka", "etl", "clicks")
    spark.streams.addListener(projector)

    Spark's listener thread    on_progress --choose_source--> pending          never waits for a store
    projector's own thread     pending --writer.write_offsets--> written       retries until it succeeds

The checkpoint still decides where the query continues.  The group's offsets are a copy of it, with a delay: Spark
calls listeners after a batch, on a separate thread.  A query that stops may have written its last batch to the sink
before the projector writes its offsets, and a consumer that begins at the group's offsets reads that batch again.
Missing offsets are written with the next batch, or by ``zkconsumer spark reconcile``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.spark.handoff.group_offset_writer import GroupOffsetWriter, OffsetWriter
from bridge.spark.handoff.source_selection import choose_source
from bridge.spark.monitoring.query_lag import Lag, lag
from bridge.spark.monitoring.query_listener import TrackingQueryListener
from bridge.spark.source.offset_selection import topic_names
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.admin.offset_lines import STORES_BY_OPTION
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import OffsetsNotCommitted, UsageError, ZkConsumerError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent

    from zkconsumer.types import TopicPartition

log = logging.getLogger("zkconsumer.spark")

RETRY_PAUSE_MS = 5_000
"""The pause before a retry after a failure; the next batch tries at once."""

CLOSE_TIMEOUT_MS = 30_000
"""How long ``close`` tries to write the pending offsets."""

STOP_TIMEOUT_MS = 35_000
"""How long an attempt in progress may take: ZooKeeper's connection timeout, and a little."""

ProjectedStore: TypeAlias = Literal["zookeeper", "kafka", "both"]


@dataclass(slots=True)
class ProjectionCounts:
    """The results of progress events: ``projected`` successful writes, ``failures`` failed ones, ``ignored`` batches of
    other queries and sources."""

    projected: int = 0
    failures: int = 0
    ignored: int = 0


class GroupOffsetProjector(TrackingQueryListener):
    """Writes the end of each batch to the group, only larger offsets.

    ``topics``: those of the group; needed when the query has several sources.  ``query``: the name or id of the query;
    None: the first one of the session that reads these topics, and no other after it.  ``source``: a part of Spark's
    description of the source, where topics are not sufficient.  ``store``: zookeeper, kafka (``__consumer_offsets``),
    or both.  No offset is written while the group has members; that is a failure like any other: logged once, counted,
    and retried.  ``writer``: replaces ``store``.

    A failure here does not affect the query.  ``flush`` and ``run_available_now`` raise failures that remain.
    """

    def __init__(
        self,
        zookeeper: str | None,
        group: str,
        topics: str | Iterable[str] | None = None,
        *,
        store: ProjectedStore = "zookeeper",
        query: str | None = None,
        source: str | None = None,
        config_file: str | Path | None = None,
        writer: OffsetWriter | None = None,
        dependencies: AdminDependencies | None = None,
    ) -> None:
        """Opens no connection.  Raises ``UsageError``."""
        super().__init__()
        if store not in STORES_BY_OPTION:
            raise UsageError(f"store={store!r}: expected one of {', '.join(map(repr, STORES_BY_OPTION))}")
        names = topic_names(topics)
        self._topics = None if names is None else frozenset(names)
        self._group = group
        self._query = query
        self._source = source
        file = None if config_file is None else Path(config_file)
        self._sink = writer or GroupOffsetWriter(zookeeper, group, STORES_BY_OPTION[store], file, dependencies)
        self._followed_query_id: str | None = None
        self._logged_queries: set[str] = set()
        self._pending: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._error: ZkConsumerError | None = None
        self._asked = self._trying = self._tried = 0
        self._is_closed = False
        self.counts = ProjectionCounts()
        self._worker = spawn(f"projector-{group}", self._run, self._died, wake=self._wake)

    # --- calls of Spark -----------------------------------------------------------------------------------------

    def on_progress(self, event: QueryProgressEvent) -> None:
        """A batch has ended: its end must be written."""
        try:
            found = lag(event.progress)
        except UsageError as error:
            self._ignore("?", str(error))
            return
        if not found.sources or not self._is_followed(found):
            return
        chosen = choose_source(found, self._topics, self._source)
        if chosen.none_reason:
            self._ignore(found.name or found.query_id, chosen.none_reason)
            return
        if self._followed_query_id is None:
            self._followed_query_id = found.query_id
            log.info("projection-started group=%s query=%s batch=%d", self._group, _name(found), found.batch)
        self.project(chosen.offsets)

    def _is_followed(self, found: Lag) -> bool:
        if self._query is not None and self._query not in (found.name, found.query_id):
            return False
        if self._followed_query_id in (None, found.query_id):
            return True
        chosen = choose_source(found, self._topics, self._source)
        if not chosen.none_reason:
            self._ignore(
                _name(found), "the group follows another query; give this one a projector and a group of its own"
            )
        return False

    def _ignore(self, query: str, why: str) -> None:
        self.counts.ignored += 1
        if query not in self._logged_queries:
            self._logged_queries.add(query)
            log.warning("projection-ignored group=%s query=%s reason=%r", self._group, query, why)

    # --- writes -------------------------------------------------------------------------------------------------

    @property
    def written(self) -> Mapping[TopicPartition, int]:
        """The offsets that this projector has certainly written.  A copy."""
        with self._changed:
            return dict(self._written)

    def project(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write these soon; offsets that are not larger than written ones are ignored."""
        with self._changed:
            for tp, offset in offsets.items():
                if offset > self._written.get(tp, -1) and offset > self._pending.get(tp, -1):
                    self._pending[tp] = offset
            self._asked += 1
            self._changed.notify_all()

    def flush(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Wait until everything is written.

        Raises ``OffsetsNotCommitted`` with the reason when it is not: after the time, or at once for an error that does
        not end without an operator (members in the group, access rights).
        """
        give_up_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
        with self._changed:
            self._asked += 1
            asked = self._asked
            self._changed.notify_all()
            while self._pending and self._worker.is_alive:
                left_ms = give_up_ms - SYSTEM_CLOCK.now_ms()
                is_final = isinstance(self._error, UsageError) and self._tried >= asked
                if left_ms <= 0 or is_final:
                    break
                self._changed.wait(left_ms / 1000)
            if self._pending:
                why = str(self._error or "the store did not answer in time")
                raise OffsetsNotCommitted(dict.fromkeys(self._pending, why)) from self._error

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Write pending offsets, and end; may be called twice.  Raises the errors of ``flush``, after everything
        ended."""
        if self._is_closed:
            return
        try:
            self.flush(timeout_ms)
        finally:
            self._is_closed = True
            if self._worker.stop(STOP_TIMEOUT_MS):
                self._sink.close()

    def __enter__(self) -> GroupOffsetProjector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the projector's thread -------------------------------------------------------------------------------------

    def _run(self, stop: StopSignal) -> None:
        while (offsets := self._next(stop)) is not None:
            try:
                self._sink.write_offsets(offsets)
            except OffsetsNotCommitted as error:
                self._done({tp: offset for tp, offset in offsets.items() if tp not in error.errors}, error)
            except ZkConsumerError as error:
                self._done({}, error)
            else:
                self._done(offsets, None)

    def _next(self, stop: StopSignal) -> dict[TopicPartition, int] | None:
        """The offsets to write now; None: end."""
        with self._changed:
            while not stop.is_set():
                if self._pending and self._asked > self._trying:
                    self._trying = self._asked
                    return dict(self._pending)
                if not self._changed.wait(RETRY_PAUSE_MS / 1000 if self._pending else None):
                    self._asked += 1
        return None

    def _done(self, written: Mapping[TopicPartition, int], error: ZkConsumerError | None) -> None:
        was = self._error  # only this thread writes it
        # Logged before ``flush`` returns: a log that is read afterwards contains the end of the failure.
        if error is not None and (was is None or type(was) is not type(error)):
            log.warning("projection-failed group=%s reason=%r: the query continues", self._group, str(error))
        elif error is None and was is not None:
            log.info("projection-recovered group=%s", self._group)
        with self._changed:
            self._written.update(written)
            self._pending = {tp: n for tp, n in self._pending.items() if n > self._written.get(tp, -1)}
            self._error = error
            self._tried = self._trying
            if error is None:
                self.counts.projected += 1
            else:
                self.counts.failures += 1
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _died(self, name: str, error: BaseException) -> None:
        """The thread ends; ``flush`` raises the error."""
        log.error("thread-died thread=%s group=%s error=%r: its offsets do not change", name, self._group, error)
        self._wake()


def _name(found: Lag) -> str:
    return found.name or found.query_id
