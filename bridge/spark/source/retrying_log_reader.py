"""Requests log bounds for a query and tolerates brokers that do not answer for a while.

A running query omits the partitions with unknown bounds and asks again at its next trigger.  A run of
Trigger.AvailableNow waits, because it would end without those records.  Both fail after ``UNREACHABLE_MAX_MS`` without
an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from bridge.spark.decode.offset_ranges import GIVE_UP_MS
from bridge.spark.source.log_reader import LogReader
from bridge.spark.source.micro_batch_plan import LogBounds
from zkconsumer.base.clock import Clock
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.types import TopicPartition

UNREACHABLE_MAX_MS = GIVE_UP_MS
"""How long brokers may not answer before the query ends; as long as a task waits for a leader."""

RETRY_BACKOFF_MS = 1_000
"""The pause before a run of Trigger.AvailableNow asks again."""

log = logging.getLogger("zkconsumer.spark")


class RetryingLogReader:
    """``LogReader`` of one query; one thread."""

    def __init__(self, logs: LogReader, clock: Clock, pause: Callable[[int], object]) -> None:
        self._logs = logs
        self._clock = clock
        self._pause = pause
        self._silent_since_ms: int | None = None
        self._logged: set[TopicPartition] = set()

    def read_bounds(
        self, partitions: Collection[TopicPartition], times: Mapping[TopicPartition, int], *, needs_all: bool
    ) -> dict[TopicPartition, LogBounds]:
        """The known bounds of these; with ``needs_all`` of all of them.

        Raises ``BrokerUnreachable`` when no broker answers, or with ``needs_all`` some partition has no leader, for
        ``UNREACHABLE_MAX_MS``.
        """
        if not partitions:
            return {}
        began_ms = self._clock.now_ms()
        while True:
            known, unknown = self._read_once(partitions, times)
            if not unknown or not needs_all:
                return known
            if self._clock.now_ms() - began_ms >= UNREACHABLE_MAX_MS:
                tp, why = next(iter(unknown.items()))
                raise BrokerUnreachable(
                    f"{tp}: {why}, for {UNREACHABLE_MAX_MS} ms. Trigger.AvailableNow would end without its records: "
                    "start the brokers with its replicas, and start the query again"
                )
            self._pause(RETRY_BACKOFF_MS)

    def sample_bytes_per_offset(self, tp: TopicPartition, offset: int) -> float | None:
        """See ``LogReader``: an estimate; the query does not wait for it."""
        return self._logs.sample_bytes_per_offset(tp, offset)

    def unreachable_reason(self) -> str:
        """See ``LogReader``."""
        return self._logs.unreachable_reason()

    def close(self) -> None:
        """End every connection."""
        self._logs.close()

    def _read_once(
        self, partitions: Collection[TopicPartition], times: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, LogBounds], dict[TopicPartition, str]]:
        """The known bounds, and why the others are unknown: each reason is logged once, and not at every trigger."""
        try:
            answers = self._logs.read_bounds(partitions, times)
        except BrokerUnreachable as error:
            answers = dict.fromkeys(partitions, self._unreachable_reason_or_raise(error))
        else:
            self._silent_since_ms = None
        known = {tp: bounds for tp, bounds in answers.items() if isinstance(bounds, LogBounds)}
        unknown = {tp: bounds for tp, bounds in answers.items() if isinstance(bounds, str)}
        for tp, why in unknown.items():
            if tp not in self._logged:
                log.warning("log-bounds-unknown partition=%s reason=%r: it is not in this batch", tp, why)
        self._logged = (self._logged | unknown.keys()) - known.keys()
        return known, unknown

    def _unreachable_reason_or_raise(self, error: BrokerUnreachable) -> str:
        """No broker answers: the text of the error, or the error itself when it has lasted too long."""
        now_ms = self._clock.now_ms()
        if self._silent_since_ms is None:
            self._silent_since_ms = now_ms
        if now_ms - self._silent_since_ms >= UNREACHABLE_MAX_MS:
            raise BrokerUnreachable(
                f"no broker has answered for {UNREACHABLE_MAX_MS} ms: {error}. Then start the query again: it "
                "continues from its checkpoint"
            ) from error
        return str(error)
