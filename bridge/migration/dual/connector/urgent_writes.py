"""Commits to Kafka that are repeated while the group rebalances.

An urgent commit belongs to partitions that the member releases soon.  It is repeated for a limited time.  The time is
checked before each attempt: a process that was paused must not commit partitions that it has released meanwhile
(``test_after_a_pause_nothing_is_sent_for_partitions_that_may_be_lost``).

    in flight --accepted, or another error--> done
        |  ^
        |  '-- retry: in time
        '--- the group rebalances, in time--> to retry --too late--> done, with nothing accepted

A coordinator rejects commits while the group is between JoinGroup and SyncGroup (REBALANCE_IN_PROGRESS, 27), and it is
a rebalance that causes most releases.  Without the repetition the position of the release would be lost, and the next
owner would read the records since the last commit again.

Only that error is repeated: after any other one the outcome is unknown, or the member is not in the generation any
more.  The membership answers each request, with an error at its timeout, so each commit ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.kafka.group.errors import RebalanceInProgressException

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.group import commands as cmd
    from zkconsumer.kafka.group import events as cev
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class _UrgentWrite:
    """One commit.  ``until_ms``: no attempt begins at this time or later, by the clock of the member."""

    offsets: Mapping[TopicPartition, cev.Offset]
    until_ms: int


class UrgentWrites:
    """The commits of one member; all calls on one thread.

    ``send(number, offsets)`` makes one attempt, and may call ``handle_response`` before it returns.
    ``done(number, taken)`` is called once for each commit, with the partitions whose offsets Kafka accepted.
    """

    def __init__(
        self,
        send: Callable[[int, Mapping[TopicPartition, cev.Offset]], None],
        done: Callable[[int, frozenset[TopicPartition]], None],
        clock: Clock,
    ) -> None:
        self._send = send
        self._on_done = done
        self._clock = clock
        self._pending: dict[int, _UrgentWrite] = {}
        """The commits for which ``done`` was not called."""
        self._to_retry: set[int] = set()
        """Those of ``_pending`` that have no request in flight: Kafka rejected the last one."""

    def write(self, number: int, offsets: Mapping[TopicPartition, cev.Offset], patience_ms: int) -> None:
        """Commit these; with ``patience_ms`` 0 there is one attempt."""
        assert patience_ms >= 0, "a duration"
        assert number not in self._pending, "a commit has a number of its own"
        self._pending[number] = _UrgentWrite(offsets, self._clock.now_ms() + patience_ms)
        self._send(number, offsets)

    def handle_response(self, number: int, command: cmd.CommitDone) -> None:
        """The result of an attempt; partitions that the coordinator rejected one by one are not repeated."""
        assert number not in self._to_retry, "a commit that waits for its next attempt has none in flight"
        write = self._pending[number]
        if isinstance(command.error, RebalanceInProgressException) and self._is_in_time(write):
            self._to_retry.add(number)
        elif command.error is not None:
            self._finish(number, frozenset())
        else:
            self._finish(number, frozenset(write.offsets.keys() - command.refused.keys()))

    def retry(self) -> None:
        """Repeat the rejected commits, and finish those whose time is over; called periodically.

        The set is replaced first: an attempt that is rejected at once is repeated at the next call, not in this one.
        """
        assert self._to_retry <= self._pending.keys(), "a commit that is finished is not repeated"
        again, self._to_retry = self._to_retry, set()
        for number in sorted(again):
            write = self._pending[number]
            if self._is_in_time(write):
                self._send(number, write.offsets)
            else:
                self._finish(number, frozenset())

    def _is_in_time(self, write: _UrgentWrite) -> bool:
        return self._clock.now_ms() < write.until_ms

    def _finish(self, number: int, taken: frozenset[TopicPartition]) -> None:
        del self._pending[number]
        self._on_done(number, taken)
