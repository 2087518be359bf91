"""``GroupOffsetProjector``: a group's offsets follow a query of Spark's own kafka source, so that lag tools are right.

    projector = GroupOffsetProjector("zk1:2181/kafka", "etl", "clicks")
    spark.streams.addListener(projector)

    Spark's listener thread    onQueryProgress --choose--> pending          never waits for a store
    projector's own thread     pending --sink.write--> written              tries again until it is

The checkpoint stays what decides where the query goes on.  The group's offsets are a copy of it, a moment late: Spark
calls listeners after a batch, on a thread of its own.  A query that stops may have written its last batch and not yet
projected it, and a consumer that begins at the group's offsets reads that batch again.  What is missing is written
with the next batch, or by ``zkconsumer spark reconcile``.
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
"""How long after a failure it is tried again; the next batch tries at once."""

CLOSE_TIMEOUT_MS = 30_000
"""How long ``close`` tries to write what is left."""

STOP_TIMEOUT_MS = 35_000
"""How long a try that is under way may take: ZooKeeper's time to connect, and a little."""

ProjectedStore: TypeAlias = Literal["zookeeper", "kafka", "both"]


@dataclass(slots=True)
class ProjectionCounts:
    """What became of progress: ``projected`` writes that succeeded, ``failures`` that did not, ``ignored`` batches of
    queries and sources that are not meant."""

    projected: int = 0
    failures: int = 0
    ignored: int = 0


class GroupOffsetProjector(TrackingQueryListener):
    """Puts the end of each batch into the group, forward only.

    ``topics``: those of the group; needed when the query has several sources.  ``query``: the name or id of the query;
    None: the first one of the session that reads what is meant, and no other after it.  ``source``: a part of Spark's
    description of the source, where topics do not tell.  ``store``: zookeeper, kafka (``__consumer_offsets``), or both.
    Nothing is written while members live in the group, and that is a failure like any other: logged once, counted, and
    tried again.  ``writer``: writes instead of ``store``.

    Nothing that goes wrong here harms the query.  ``settle`` and ``run_available_now`` raise what stayed undone.
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
        """Connects to nothing.  Raises ``UsageError``."""
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

    # --- what Spark tells ---------------------------------------------------------------------------------------

    def on_progress(self, event: QueryProgressEvent) -> None:
        """A batch is over: its end is to be written."""
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

    # --- what is to be written ----------------------------------------------------------------------------------

    @property
    def written(self) -> Mapping[TopicPartition, int]:
        """What the group certainly has of us.  A copy."""
        with self._changed:
            return dict(self._written)

    def project(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have these written, soon; what is lower than what was written already is passed over."""
        with self._changed:
            for tp, offset in offsets.items():
                if offset > self._written.get(tp, -1) and offset > self._pending.get(tp, -1):
                    self._pending[tp] = offset
            self._asked += 1
            self._changed.notify_all()

    def flush(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Wait until everything is written.

        Raises ``OffsetsNotCommitted`` with the reason when it is not: after the time, or at once for what waiting does
        not change (members in the group, rights).
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
        """Write what is left, and end; may be called twice.  Raises what ``settle`` raises, with everything ended."""
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

    # --- the projector's thread ---------------------------------------------------------------------------------

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
        """What is to be written now; None: end."""
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
        # Logged before ``settle`` returns: who reads the log afterwards finds the end of the trouble in it.
        if error is not None and (was is None or type(was) is not type(error)):
            log.warning("projection-failed group=%s reason=%r: the query goes on", self._group, str(error))
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
        """Whoever waits in ``settle`` sees that the thread is gone."""
        log.error("thread-died thread=%s group=%s error=%r: its offsets stand still", name, self._group, error)
        self._wake()


def _name(found: Lag) -> str:
    return found.name or found.query_id
