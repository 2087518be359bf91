"""``run_available_now``: one run over the available records, which ends after listeners have received the last batch.

``awaitTermination()`` returns before Spark has called listeners for the last batch.  A program that ends then leaves
the group's offsets one batch behind, and with ``Trigger.AvailableNow`` no later batch corrects them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.spark.monitoring.query_listener import TrackingQueryListener
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import UnavailableError, UsageError, ZkConsumerError

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

EVENTS_TIMEOUT_MS = 60_000
"""How long listener events may take after the end of the query, and writes to stores after the events."""


def run_available_now(
    what: DataStreamWriter | StreamingQuery,
    *listeners: TrackingQueryListener,
    timeout_s: float | None = None,
    events_timeout_ms: int = EVENTS_TIMEOUT_MS,
) -> StreamingQuery:
    """Run it to its end, and return the query when each listener has received its last event and finished its work.

    ``what``: a writer, which is started here with ``trigger(availableNow=True)`` and whose listeners are added for the
    run; or a query that was started with its listeners added.  ``timeout_s``: the limit for the query itself, after
    which it is stopped; None: no limit.

    Raises the error of the query (listeners have received all events then, too), ``UnavailableError`` when the query or
    its events do not end in time, and ``OffsetsNotCommitted`` when a projector could not write its offsets.
    """
    if hasattr(what, "start"):
        return _start_and_await(what, listeners, timeout_s, events_timeout_ms)
    for listener in listeners:
        if listener.spark is None:
            raise UsageError(
                f"this {type(listener).__name__} receives no events of the query: call spark.streams.addListener(it) "
                "before the query is started, or pass the writer to run_available_now"
            )
    _await(what, listeners, timeout_s, events_timeout_ms)
    return what


def _start_and_await(
    writer: Any, listeners: tuple[TrackingQueryListener, ...], timeout_s: float | None, events_timeout_ms: int
) -> StreamingQuery:
    streams = _session_of(writer).streams
    added = [listener for listener in listeners if listener.spark is None]
    for listener in added:
        streams.addListener(listener)
    try:
        query = writer.trigger(availableNow=True).start()
        _await(query, listeners, timeout_s, events_timeout_ms)
    finally:
        for listener in added:
            streams.removeListener(listener)
            listener.forget_session()
    return query


def _session_of(writer: Any) -> Any:
    """The session of a writer of classic Spark or of Spark Connect."""
    frame = getattr(writer, "_df", None)
    return frame.sparkSession if frame is not None else writer._session


def _await(
    query: StreamingQuery, listeners: tuple[TrackingQueryListener, ...], timeout_s: float | None, events_timeout_ms: int
) -> None:
    try:
        if timeout_s is None:
            query.awaitTermination()
        elif not query.awaitTermination(timeout_s):
            query.stop()
            raise UnavailableError(
                f"the query did not end within {timeout_s} s and was stopped; its checkpoint is complete"
            )
    except Exception as error:
        try:
            _settle(query, listeners, events_timeout_ms)
        except ZkConsumerError as besides:
            error.add_note(f"And besides: {besides}")
        raise
    _settle(query, listeners, events_timeout_ms)


def _settle(query: StreamingQuery, listeners: tuple[TrackingQueryListener, ...], events_timeout_ms: int) -> None:
    give_up_ms = SYSTEM_CLOCK.now_ms() + events_timeout_ms
    for listener in listeners:
        if not listener.await_end(str(query.runId), give_up_ms - SYSTEM_CLOCK.now_ms()):
            raise UnavailableError(
                f"Spark did not report the query's end to a {type(listener).__name__} within {events_timeout_ms} ms: "
                "the offsets of the last batch may be missing in the group; 'zkconsumer spark reconcile' writes them"
            )
    for listener in listeners:
        listener.flush(events_timeout_ms)
