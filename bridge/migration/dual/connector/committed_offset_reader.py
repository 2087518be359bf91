"""What the coordinator is asked of committed offsets, until it has told: an answer may be refused, or lost.

    read --> asked --told--> known
              ^  |
              |  +-- refused: after a pause, which doubles
              |  +-- silent: after ``RESPONSE_TIMEOUT_MS``; whichever answer comes first counts
              '--'   given up: once the partition is not held any more

No wait is longer than ``RESPONSE_TIMEOUT_MS``.  There are as many tries as it takes, for as long as the partition is
ours: whoever waits for it (a reader, or the tool that takes a group back) cannot go on without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

RETRY_BACKOFF_MS = 50
"""How soon is asked again what was refused; twice as long after each refusal."""

RESPONSE_TIMEOUT_MS = 5_000
"""For how long an answer is waited for, and how long a pause gets."""


class CommittedOffsetReader:
    """Of one member; all of it on one thread.

    ``ask(number, partitions)`` sends one request; ``handle_response`` may be called before it returns.
    """

    def __init__(
        self,
        ask: Callable[[int, frozenset[TopicPartition]], None],
        told: Callable[[dict[TopicPartition, int]], None],
        clock: Clock,
    ) -> None:
        self._last_number = 0
        self._ask = ask
        self._on_offsets = told
        self._clock = clock
        self._retry_at_ms: dict[TopicPartition, int] = {}
        """What is not known yet."""
        self._in_flight: dict[int, frozenset[TopicPartition]] = {}
        self._failures = 0

    def read(self, partitions: frozenset[TopicPartition]) -> None:
        """Ask what is committed of these from now on; what was asked before does not count."""
        self._in_flight = {number: asked - partitions for number, asked in self._in_flight.items()}
        self._send(partitions)

    def poll(self, held: Collection[TopicPartition]) -> None:
        """Time has passed; ``held``: what is ours still."""
        self._retry_at_ms = {tp: at_ms for tp, at_ms in self._retry_at_ms.items() if tp in held}
        now_ms = self._clock.now_ms()
        due = frozenset(tp for tp, at_ms in self._retry_at_ms.items() if at_ms <= now_ms)
        if due:
            self._send(due)

    def _send(self, partitions: frozenset[TopicPartition]) -> None:
        self._last_number = number = self._last_number + 1
        self._in_flight[number] = partitions
        self._retry_at_ms |= dict.fromkeys(partitions, self._clock.now_ms() + RESPONSE_TIMEOUT_MS)
        self._ask(number, partitions)

    def handle_response(self, number: int, offsets: Mapping[TopicPartition, int] | None) -> bool:
        """The answer to a question; None: it was refused.  False: it was not asked here."""
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
