"""``OffsetsChannel``: fetches and commits a group's offsets at its coordinator, on a thread of its own.

    fetch, commit --> queue --> one thread: find the coordinator --> send the request --> done(result)
                                  ^  |                                   |
                                  |  +-- no coordinator: pause, again    +-- it moved, or broke: find it again
                                  +------ pause <------ it is loading ---+

(In the Scala consumer: ``offsetsChannel``, ``ensureOffsetManagerConnected``.  It searches for a coordinator without
a limit, also in its constructor and while it shuts down.)  Here every job has a limit, and ``cancel`` and
``ask_to_stop`` interrupt any blocking call of the thread.

A search for the coordinator is not an attempt; sending a request is.  A missing answer never counts as "no offset".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.base.threads import OnDemandThread, StopSignal, spawn
from zkconsumer.errors import ConnectorClosed
from zkconsumer.kafka.broker_connection import BROKER_ERRORS
from zkconsumer.kafka.error_codes import NONE, ErrorCode
from zkconsumer.kafka.group_offsets import COORDINATOR_MOVED_ERRORS, OffsetFetchResult, commit_offsets, fetch_offsets
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.offset_errors import FINAL_FETCH_ERRORS, commit_result, describe_error
from zkconsumer.kafka.offsets_coordinator_client import (
    CoordinatorUnsupportedError,
    DeadlineExceededError,
    GroupRejectedError,
    OffsetsChannelSettings,
    OffsetsCoordinatorClient,
)
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.types import BrokerAddress, TopicPartition

JOBS_MAX = 64
"""How many jobs may wait; a member has two at most, so more is a bug."""

PreCommitCheck: TypeAlias = "Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, KafkaCommitResult]]"
"""Called immediately before a commit is sent, on the channel's thread; returns what must not be sent, and why."""


@dataclass(frozen=True, slots=True)
class OffsetFetchOutcome:
    """``offsets``: -1 if nothing is stored.  ``failed``: why the others are unknown."""

    offsets: Mapping[TopicPartition, int]
    failed: Mapping[TopicPartition, str]
    unsupported: str = ""


@dataclass(slots=True, eq=False)
class OffsetsChannelJob:
    """A job of the channel; also the ``RetryBudget`` while it runs.

    ``possibly_written``: the part of a commit that may have been written although no response confirmed it.
    """

    channel: OffsetsChannel
    run: Callable[[OffsetsChannelJob], Callable[[], None]]
    deadline_ms: int
    is_cancelled: bool = False
    last_error: str = ""
    possibly_written: set[TopicPartition] = field(default_factory=set)

    def remaining_ms(self) -> int:
        """The time that is left.  Raises an exception when the job must end."""
        return self.channel.remaining_ms(self)

    def pause(self, why: str) -> None:
        """Wait ``offsets.channel.backoff.ms``, or less if the job ends before."""
        self.last_error = why
        self.channel.pause(self)


class OffsetsChannel(OnDemandThread):
    """Every public method may be called from any thread; ``done`` is called on the channel's, unless it was
    cancelled."""

    def __init__(
        self,
        name: str,
        settings: OffsetsChannelSettings,
        connect: ConnectionFactory,
        *,
        find_brokers: Callable[[], Sequence[BrokerAddress]],
        clock: Clock,
        on_thread_error: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__()
        self._name = name
        self._settings = settings
        self._clock = clock
        self._on_thread_error = on_thread_error
        # Under the lock: the waiting jobs, and the running job.
        self._jobs: deque[OffsetsChannelJob] = deque()
        self._job: OffsetsChannelJob | None = None
        self._lookup = OffsetsCoordinatorClient(settings, connect, find_brokers)

    # --- called by members --------------------------------------------------------------------------------------

    def fetch(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, done: Callable[[OffsetFetchOutcome], None]
    ) -> OffsetsChannelJob:
        """Fetch the group's stored offsets of these partitions, as far as possible in time."""

        def run(job: OffsetsChannelJob) -> Callable[[], None]:
            fetched = self._fetch_with_retry(job, partitions)
            return lambda: done(fetched)

        return self._enqueue(OffsetsChannelJob(self, run, self._clock.now_ms() + timeout_ms))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        attempts: int,
        check: PreCommitCheck,
        done: Callable[[Mapping[TopicPartition, KafkaCommitResult]], None],
    ) -> OffsetsChannelJob:
        """Commit these offsets, with at most this many attempts of ``offsets.channel.socket.timeout.ms`` each."""
        settings = self._settings
        timeout_ms = attempts * (2 * settings.socket_timeout_ms + settings.backoff_ms)

        def run(job: OffsetsChannelJob) -> Callable[[], None]:
            results = self._commit_with_retry(job, offsets, attempts, check)
            return lambda: done(results)

        return self._enqueue(OffsetsChannelJob(self, run, self._clock.now_ms() + timeout_ms))

    def cancel(self, job: OffsetsChannelJob) -> None:
        """Send nothing of this job from now on, and do not call ``done`` when it ends."""
        with self._changed:
            job.is_cancelled = True
            if job in self._jobs:
                self._jobs.remove(job)
            is_under_way = self._job is job
            self._changed.notify_all()
        if is_under_way:
            self._lookup.interrupt()

    # --- the thread ---------------------------------------------------------------------------------------------

    def _enqueue(self, job: OffsetsChannelJob) -> OffsetsChannelJob:
        with self._changed:
            assert len(self._jobs) < JOBS_MAX, "a caller waits for each result"
            if not self._is_closed:
                self._jobs.append(job)
                self._changed.notify_all()
                if self._worker is None:
                    self._worker = spawn(
                        f"{self._name}-offsets-channel", self._run, self._on_thread_error, wake=self._wake
                    )
        return job

    def _wake(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._lookup.interrupt()

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._is_closed)
                if self._is_closed:
                    break
                job = self._job = self._jobs.popleft()
            tell: Callable[[], None] | None = None
            try:
                if not job.is_cancelled:
                    tell = job.run(job)
            except ConnectorClosed:
                self._lookup.disconnect()
                with self._changed:
                    if not (job.is_cancelled or self._is_closed):
                        # The connection was closed to cancel the previous job, just after that job had ended.
                        self._jobs.appendleft(job)
            finally:
                with self._changed:
                    self._job = None
            if tell is not None and not job.is_cancelled:
                tell()
        self._lookup.disconnect()

    def remaining_ms(self, job: OffsetsChannelJob) -> int:
        """See ``OffsetsChannelJob``; on the channel's thread."""
        if job.is_cancelled or self._is_closed:
            raise ConnectorClosed("the offsets channel was told to stop")
        left_ms = job.deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            raise DeadlineExceededError(job.last_error or "the group's coordinator did not answer in time")
        return left_ms

    def pause(self, job: OffsetsChannelJob) -> None:
        """See ``OffsetsChannelJob``; on the channel's thread."""
        until_ms = self._clock.now_ms() + min(self._settings.backoff_ms, job.remaining_ms())
        with self._changed:
            while (left_ms := until_ms - self._clock.now_ms()) > 0 and not (job.is_cancelled or self._is_closed):
                self._changed.wait(left_ms / 1000)
        job.remaining_ms()

    # --- fetching -----------------------------------------------------------------------------------------------

    def _fetch_with_retry(self, job: OffsetsChannelJob, partitions: Sequence[TopicPartition]) -> OffsetFetchOutcome:
        offsets: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, str] = dict.fromkeys(partitions, "")
        why = unsupported = ""
        try:
            while failed:
                answered = self._fetch_once(job, list(failed))
                if answered is None:
                    continue
                for tp, stored in answered.partitions.items():
                    if isinstance(stored, ErrorCode):
                        failed[tp] = describe_error(stored)
                    else:
                        offsets[tp] = _offset_of(stored)
                        del failed[tp]
                codes_left = {stored for stored in answered.partitions.values() if isinstance(stored, ErrorCode)}
                if codes_left and codes_left <= FINAL_FETCH_ERRORS:
                    break
                if failed:
                    job.pause(next(iter(failed.values())))
        except (DeadlineExceededError, GroupRejectedError) as end:
            why = str(end)
        except CoordinatorUnsupportedError as end:
            why = unsupported = str(end)
        return OffsetFetchOutcome(offsets, {tp: words or why for tp, words in failed.items()}, unsupported)

    def _fetch_once(self, job: OffsetsChannelJob, partitions: Sequence[TopicPartition]) -> OffsetFetchResult | None:
        """Send one request; None: the coordinator must be asked again."""
        coordinator = self._lookup.connect(job)
        timeout_ms = min(self._settings.socket_timeout_ms, job.remaining_ms())
        try:
            answered = fetch_offsets(
                coordinator.connection, coordinator.ranges, self._settings.group, partitions, timeout_ms
            )
        except BROKER_ERRORS as error:
            self._lookup.disconnect()
            job.pause(str(error))
            return None
        if answered.error == NONE:
            return answered
        if answered.error in FINAL_FETCH_ERRORS:
            raise GroupRejectedError(answered.error)
        if answered.error in COORDINATOR_MOVED_ERRORS:
            self._lookup.disconnect()
        job.pause(f"{coordinator.address} answered {answered.error}")
        return None

    # --- committing ---------------------------------------------------------------------------------------------

    def _commit_with_retry(
        self, job: OffsetsChannelJob, offsets: Mapping[TopicPartition, int], attempts: int, check: PreCommitCheck
    ) -> Mapping[TopicPartition, KafkaCommitResult]:
        results: dict[TopicPartition, KafkaCommitResult] = {}
        left = dict(offsets)
        try:
            for attempt in range(1, attempts + 1):
                answers = self._commit_once(job, left, check)
                results |= answers
                job.possibly_written |= {
                    tp for tp, written in answers.items() if written.outcome is WriteOutcome.UNKNOWN
                }
                left = {tp: offset for tp, offset in left.items() if not _is_finished(answers[tp])}
                if not left or attempt == attempts:
                    break
                job.pause(answers[next(iter(left))].why)
        except DeadlineExceededError as end:
            results |= dict.fromkeys(left, KafkaCommitResult(WriteOutcome.FAILED, str(end)))
        except CoordinatorUnsupportedError as end:
            results |= dict.fromkeys(left, KafkaCommitResult(WriteOutcome.FAILED, str(end), is_permanent=True))
        except GroupRejectedError as end:
            results |= dict.fromkeys(left, commit_result(end.code))
        # An earlier attempt may have written what failed in the end.
        failed = [tp for tp in job.possibly_written if results[tp].outcome is WriteOutcome.FAILED]
        return results | {tp: replace(results[tp], outcome=WriteOutcome.UNKNOWN) for tp in failed}

    def _commit_once(
        self, job: OffsetsChannelJob, offsets: Mapping[TopicPartition, int], check: PreCommitCheck
    ) -> dict[TopicPartition, KafkaCommitResult]:
        """Send one request, with the offsets that the check allows; nothing happens between the check and the
        request."""
        coordinator = self._lookup.connect(job)
        results = dict(check(offsets))
        job.remaining_ms()
        sent = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items() if tp not in results}
        if not sent:
            return results
        timeout_ms = self._settings.socket_timeout_ms
        try:
            answers = commit_offsets(
                coordinator.connection, coordinator.ranges, self._settings.group, offsets=sent, timeout_ms=timeout_ms
            )
        except ConnectorClosed:
            job.possibly_written |= sent.keys()  # it may be started again, see _run
            raise
        except BROKER_ERRORS as error:
            self._lookup.disconnect()
            return results | dict.fromkeys(sent, KafkaCommitResult(WriteOutcome.UNKNOWN, str(error)))
        if COORDINATOR_MOVED_ERRORS & set(answers.values()):
            self._lookup.disconnect()
        return results | {tp: commit_result(code) for tp, code in answers.items()}


def _offset_of(stored: OffsetAndMetadata | None) -> int:
    """The offset of a response; -1: nothing is stored, or an invalid offset is stored (the Scala consumer commits
    -1)."""
    return -1 if stored is None else max(stored.offset, -1)


def _is_finished(written: KafkaCommitResult) -> bool:
    return written.is_permanent or written.outcome in (WriteOutcome.DONE, WriteOutcome.NOT_OWNER)
