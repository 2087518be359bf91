"""``run_available_now``: the order in which things end, with a query that only pretends."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from bridge.spark.handoff.available_now import run_available_now
from bridge.spark.monitoring.query_listener import TrackingQueryListener
from tests.spark_listener_events import RUN, ended
from zkconsumer.errors import OffsetsNotCommitted, UnavailableError, UsageError
from zkconsumer.types import TopicPartition


class Listener(TrackingQueryListener):
    """Remembers what is asked of it."""

    def __init__(self, error: OffsetsNotCommitted | None = None) -> None:
        super().__init__()
        self.error = error
        self.is_settled = False

    def flush(self, timeout_ms: int) -> None:
        assert self.await_end(str(RUN), 0), "the events come first"
        self.is_settled = True
        if self.error is not None:
            raise self.error


class Query:
    """Ends at once; its last event comes from another thread, a moment later."""

    def __init__(self, streams: Streams, error: Exception | None = None, is_endless: bool = False) -> None:
        self.runId = RUN
        self._streams = streams
        self._error = error
        self._is_endless = is_endless
        self.is_stopped = False

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if self._is_endless and not self.is_stopped:
            return False
        threading.Timer(0.01, self._streams.end).start()
        if self._error is not None:
            raise self._error
        return None if timeout is None else True

    def stop(self) -> None:
        self.is_stopped = True
        threading.Timer(0.01, self._streams.end).start()


class Streams:
    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.is_silent = False

    def addListener(self, listener: Any) -> None:
        listener._set_spark_session(self)
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def end(self) -> None:
        for listener in [] if self.is_silent else list(self.listeners):
            listener.onQueryTerminated(ended())


class Writer:
    """A writer of Spark Connect: it knows its session."""

    def __init__(self, streams: Streams, query: Query) -> None:
        self._session = type("Session", (), {"streams": streams})
        self._query = query
        self.triggers: list[dict[str, Any]] = []

    def trigger(self, **trigger: Any) -> Writer:
        self.triggers.append(trigger)
        return self

    def start(self) -> Query:
        return self._query


@pytest.fixture
def streams() -> Streams:
    return Streams()


def test_a_writer_is_started_and_waited_for_with_its_last_event(streams: Streams) -> None:
    listener, query = Listener(), Query(streams)
    writer = Writer(streams, query)
    assert run_available_now(writer, listener) is query  # type: ignore[arg-type, comparison-overlap]
    assert writer.triggers == [{"availableNow": True}]
    assert listener.is_settled
    assert streams.listeners == [], "what was added for the run is removed"
    assert run_available_now(writer, listener) is query  # type: ignore[arg-type, comparison-overlap]


def test_a_listener_of_the_session_stays(streams: Streams) -> None:
    listener = Listener()
    streams.addListener(listener)
    run_available_now(Writer(streams, Query(streams)), listener)  # type: ignore[arg-type]
    assert streams.listeners == [listener]


def test_a_query_that_runs_needs_listeners_that_hear_it(streams: Streams) -> None:
    listener = Listener()
    with pytest.raises(
        UsageError, match=r"this Listener receives no events of the query: call spark\.streams\.addListener"
    ):
        run_available_now(Query(streams), listener)  # type: ignore[arg-type]
    streams.addListener(listener)
    run_available_now(Query(streams), listener)  # type: ignore[arg-type]
    assert listener.is_settled


def test_what_the_query_raised_is_raised_when_everything_was_told(streams: Streams) -> None:
    listener = Listener(OffsetsNotCommitted({TopicPartition("t", 0): "no broker"}))
    query = Query(streams, ValueError("a poisoned row"))
    with pytest.raises(ValueError, match="a poisoned row") as caught:
        run_available_now(Writer(streams, query), listener)  # type: ignore[arg-type]
    assert listener.is_settled
    assert "no broker" in caught.value.__notes__[0]


def test_what_could_not_be_written_is_an_error(streams: Streams) -> None:
    listener = Listener(OffsetsNotCommitted({TopicPartition("t", 0): "no broker"}))
    with pytest.raises(OffsetsNotCommitted, match="no broker"):
        run_available_now(Writer(streams, Query(streams)), listener)  # type: ignore[arg-type]


def test_events_that_do_not_come_are_not_waited_for_for_ever(streams: Streams) -> None:
    streams.is_silent = True
    with pytest.raises(UnavailableError, match="did not report the query's end to a Listener within 30 ms"):
        run_available_now(Writer(streams, Query(streams)), Listener(), events_timeout_ms=30)  # type: ignore[arg-type]


def test_a_query_that_does_not_end_is_stopped(streams: Streams) -> None:
    query = Query(streams, is_endless=True)
    listener = Listener()
    with pytest.raises(UnavailableError, match=r"did not end within 0\.1 s and was stopped"):
        run_available_now(Writer(streams, query), listener, timeout_s=0.1)  # type: ignore[arg-type]
    assert query.is_stopped
    assert listener.is_settled


def test_another_runs_end_is_not_this_ones(streams: Streams) -> None:
    listener = Listener()
    listener.onQueryTerminated(ended(uuid.UUID(int=7)))
    assert not listener.await_end(str(RUN), 1)
