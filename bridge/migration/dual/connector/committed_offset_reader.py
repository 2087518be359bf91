"""Fetches the committed offsets of partitions until they are known: an answer may be an error, or lost.

    read --> in flight --answer--> known
               ^  |
               |  +-- error: again after a pause, which doubles
               |  +-- no answer: again after ``RESPONSE_TIMEOUT_MS``; the first answer counts
               '--'   dropped once the partition is not owned any more

Theory of operation.  A partition is in one of two states: known, or not known with a time at which it is requested
again.  An answer to a request counts for the partitions of the request that are still not known; so a late answer is as
good as the one to the repeated request, and an offset is reported once
(``test_a_lost_answer_is_requested_again_and_reported_once``).  An answer to a request from before the last ``read`` of
a partition does not count: another member may have committed in between
(``test_an_answer_to_an_earlier_question_does_not_count``).

A coordinator that moves, or a group that rebalances, answers with an error; a broken connection, or a paused process,
gives none.  No wait is longer than ``RESPONSE_TIMEOUT_MS``.  The number of attempts has no limit while the partition
is ours: the stream that reads it, or the tool that moves a group back, cannot continue without the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

RETRY_BACKOFF_MS = 50
"""The pause after the first error; it doubles with each further one."""

RESPONSE_TIMEOUT_MS = 5_000
"""The timeout of one request, and the longest pause."""


class CommittedOffsetReader:
    """One reader for each member; all calls on one thread.

    ``ask(number, partitions)`` sends one request; ``handle_response`` may be called before it returns.
    """

    def __init__(
        self,
        ask: Callable[[int, frozenset[TopicPartition]], None],
        on_offsets: Callable[[dict[TopicPartition, int]], None],
        clock: Clock,
    ) -> None:
        self._last_number = 0
        """Numbers begin with 1 and are never used twice, so an answer belongs to one request."""
        self._ask = ask
        self._on_offsets = on_offsets
        self._clock = clock
        self._retry_at_ms: dict[TopicPartition, int] = {}
        """Partition -> when it is requested again, for partitions whose offset is not known yet.  One that is not here
        is known, or not owned."""
        self._in_flight: dict[int, frozenset[TopicPartition]] = {}
        """Request -> the partitions for which its answer counts.  A request without an answer stays in it; its
        partitions are requested again, and the first answer removes them from ``_retry_at_ms``."""
        self._failures = 0
        """Errors since the last answer; they set the pause.  Of all partitions together: an error is one of the group
        or of its coordinator."""

    def read(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch the offsets that are committed now; answers to earlier requests do not count."""
        self._in_flight = {number: asked - partitions for number, asked in self._in_flight.items()}
        self._send(partitions)

    def poll(self, held: Collection[TopicPartition]) -> None:
        """Send the requests that are due; called periodically.  ``held``: the partitions that are still ours.

        The others are dropped: their next owner reads them, and an answer about them must not be reported
        (``test_offsets_of_partitions_that_are_no_longer_assigned_are_not_requested_again``).
        """
        self._retry_at_ms = {tp: at_ms for tp, at_ms in self._retry_at_ms.items() if tp in held}
        now_ms = self._clock.now_ms()
        due = frozenset(tp for tp, at_ms in self._retry_at_ms.items() if at_ms <= now_ms)
        if due:
            self._send(due)

    def _send(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions, "a request has partitions"
        self._last_number = number = self._last_number + 1
        self._in_flight[number] = partitions
        self._retry_at_ms |= dict.fromkeys(partitions, self._clock.now_ms() + RESPONSE_TIMEOUT_MS)
        self._ask(number, partitions)

    def handle_response(self, number: int, offsets: Mapping[TopicPartition, int] | None) -> bool:
        """The answer to a request, None for an error.  Returns whether this reader sent the request.

        Each request is answered at most once; the entry of one without an answer stays until the reader ends.
        """
        if number not in self._in_flight:
            return False
        waiting = self._in_flight.pop(number) & self._retry_at_ms.keys()
        if offsets is None:
            pause_ms = min(
                RETRY_BACKOFF_MS << min(self._failures, RESPONSE_TIMEOUT_MS.bit_length()), RESPONSE_TIMEOUT_MS
            )
            self._failures += 1
            self._retry_at_ms |= dict.fromkeys(waiting, self._clock.now_ms() + pause_ms)
            return True
        self._failures = 0
        known = {tp: offsets[tp] for tp in sorted(waiting)}
        for tp in known:
            del self._retry_at_ms[tp]
        if known:
            self._on_offsets(known)
        return True
