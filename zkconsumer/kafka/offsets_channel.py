"""``OffsetsChannel``: fetches and commits a group's offsets at its coordinator, on a thread of its own.

    fetch, commit --> queue --> one thread: look the coordinator up --> ask it --> done(result)
                                  ^  |                                   |
                                  |  +-- no coordinator: pause, again    +-- it moved, or broke: look again
                                  +------ pause <------ it is loading ---+

(The original: ``offsetsChannel``, ``ensureOffsetManagerConnected``.  It looks for a coordinator without end, also in
its constructor and while shutting down.)  Here every job has a limit, and ``cancel`` and ``ask_to_stop`` interrupt
whatever the thread is blocked in.

Looking the coordinator up is not an attempt; sending a request is.  What the coordinator did not tell is never taken
for "no offset".
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.base.threads import StopSignal, Worker, spawn
from zkconsumer.core.events import KafkaWritten, Outcome
from zkconsumer.errors import ConnectorClosed, WorldError
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.connection import ConnectionFailed, PeerTrouble, Reason
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.group_offsets import (
    MOVED,
    GroupOffsets,
    OffsetAndMetadata,
    commit_offsets,
    fetch_offsets,
    find_coordinator,
)
from zkconsumer.kafka.versions import ApiRanges, negotiate
from zkconsumer.types import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.connection import Connect, Connection
    from zkconsumer.types import TopicPartition

LOOKUP_TIMEOUT_MS = 3_000
"""How long one broker may take to say who the coordinator is; the original's fixed time-out of this channel."""

LOOKUP_SHARE_MS_MIN = 250
"""The least that each broker gets when the time is divided among them."""

SAY_FROM_ROUND = 2
"""From which round of a job on trouble is told: the first group that ever commits finds no coordinator, because the
brokers make the topic of the offsets only then."""

JOBS_MAX = 64
"""How many jobs may wait; a member has two at most, so more is a bug of ours."""

UNSUPPORTED = (
    "offsets.storage=kafka needs brokers from 0.8.2 on, and none of the {} brokers of this cluster knows "
    "FindCoordinator: set offsets.storage=zookeeper for every member, or upgrade the brokers"
)

MODERN_GROUP = frozenset(
    {codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION, codes.REBALANCE_IN_PROGRESS, codes.STALE_MEMBER_EPOCH}
)
"""What a coordinator answers to somebody outside, while members of the modern kind are in a group of this name."""

MODERN_GROUP_HINT = (
    "members of the modern kind (KafkaConsumer) are alive in a group of this name, and the coordinator takes offsets "
    "from them alone: stop them, or give this group another group.id"
)

HINTS = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: "the brokers do not know the partition: its topic was deleted",
    codes.OFFSET_METADATA_TOO_LARGE: "the note beside the offset is longer than offset.metadata.max.bytes",
    codes.INVALID_COMMIT_OFFSET_SIZE: "the broker cannot store a commit of this size",
    codes.INVALID_GROUP_ID: "the brokers do not take this group.id",
    codes.TOPIC_AUTHORIZATION_FAILED: "the brokers' ACLs do not let this user read the topic",
    codes.GROUP_AUTHORIZATION_FAILED: "the brokers' ACLs do not let this user use the group",
}
"""Errors after which committing again is in vain, and what they mean."""

NEVER_TOLD = frozenset({codes.INVALID_GROUP_ID, codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED})
"""Errors after which asking again is in vain.  Not so UNKNOWN_TOPIC_OR_PARTITION: brokers of 0.8.2 answer it until they
have learnt of the topic, also right after a restart, and then there may be an offset."""

log = logging.getLogger("zkconsumer.offsets")

Check: TypeAlias = "Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, KafkaWritten]]"
"""Called immediately before a commit is sent, on the channel's thread: what must not be sent, and why."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """How the channel asks; times in ms."""

    group: str
    client_id: str
    socket_timeout_ms: int
    backoff_ms: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """``offsets``: -1 where nothing is stored.  ``failed``: why the others were not told."""

    offsets: Mapping[TopicPartition, int]
    failed: Mapping[TopicPartition, str]
    unsupported: str = ""


class _GivenUp(Exception):
    """The job's time is over; the text says what stood in its way last."""


class _Unsupported(Exception):
    """No broker of the cluster knows what a coordinator is."""


class _Refused(Exception):
    """The coordinator refuses the whole group, and will go on doing so."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(in_words(code))
        self.code = code


@dataclass(slots=True, eq=False)
class Job:
    """Something that the channel was asked to do."""

    run: Callable[[Job], Callable[[], None]]
    deadline_ms: int
    is_cancelled: bool = False
    trouble: str = ""


@dataclass(slots=True)
class _Coordinator:
    """An open conversation with the coordinator."""

    address: BrokerAddress
    connection: Connection
    ranges: ApiRanges = field(repr=False)


class OffsetsChannel:
    """Everything public may be called from any thread; ``done`` is called on the channel's, unless cancelled before."""

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        connect: Connect,
        find_brokers: Callable[[], Sequence[BrokerAddress]],
        clock: Clock,
        on_death: Callable[[str, BaseException], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._connect = connect
        self._find_brokers = find_brokers
        self._clock = clock
        self._on_death = on_death
        self._changed = threading.Condition()
        # Under the lock: what waits, what is being done, the connection it may be blocked in, whether all must end.
        self._jobs: deque[Job] = deque()
        self._job: Job | None = None
        self._connection: Connection | None = None
        self._is_closed = False
        self._worker: Worker | None = None
        # The thread's own.
        self._coordinator: _Coordinator | None = None
        self._silent: set[BrokerAddress] = set()
        self._said_coordinator: BrokerAddress | None = None
        self._said_trouble = ""

    # --- what is asked of it ------------------------------------------------------------------------------------

    def fetch(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, done: Callable[[Fetched], None]
    ) -> Job:
        """What the group has stored for these partitions, as far as that can be learnt in time."""

        def run(job: Job) -> Callable[[], None]:
            fetched = self._fetched(job, partitions)
            return lambda: done(fetched)

        return self._enqueue(Job(run, self._clock.now_ms() + timeout_ms))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        attempts: int,
        check: Check,
        done: Callable[[Mapping[TopicPartition, KafkaWritten]], None],
    ) -> Job:
        """Store these offsets, in so many attempts at most, each of ``offsets.channel.socket.timeout.ms``."""
        settings = self._settings
        timeout_ms = attempts * (2 * settings.socket_timeout_ms + settings.backoff_ms)

        def run(job: Job) -> Callable[[], None]:
            results = self._committed(job, offsets, attempts, check)
            return lambda: done(results)

        return self._enqueue(Job(run, self._clock.now_ms() + timeout_ms))

    def cancel(self, job: Job) -> None:
        """Send nothing of this job from now on, and call nobody when it ends."""
        with self._changed:
            job.is_cancelled = True
            if job in self._jobs:
                self._jobs.remove(job)
            connection = self._connection if self._job is job else None
            self._changed.notify_all()
        if connection is not None:
            connection.close()

    def ask_to_stop(self) -> None:
        """Let the thread end, without waiting for it; what waits is dropped."""
        with self._changed:
            self._is_closed = True
            worker = self._worker
        if worker is not None:
            worker.ask_to_stop()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the thread; False: it still runs."""
        return self._worker is None or self._worker.join(timeout_ms)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _enqueue(self, job: Job) -> Job:
        with self._changed:
            assert len(self._jobs) < JOBS_MAX, "whoever asks waits for the answer"
            if not self._is_closed:
                self._jobs.append(job)
                self._changed.notify_all()
                if self._worker is None:
                    self._worker = spawn(f"{self._name}-offsets-channel", self._run, self._on_death, wake=self._wake)
        return job

    def _wake(self) -> None:
        with self._changed:
            self._is_closed = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.close()

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
                self._drop()
                with self._changed:
                    if not (job.is_cancelled or self._is_closed):
                        # The connection was closed for the sake of the job before, just when that had ended.
                        self._jobs.appendleft(job)
            finally:
                with self._changed:
                    self._job = None
            if tell is not None and not job.is_cancelled:
                tell()
        self._drop()

    def _left_ms(self, job: Job) -> int:
        """How long the job may still take.  Raises what ends it."""
        if job.is_cancelled or self._is_closed:
            raise ConnectorClosed("the offsets channel was told to stop")
        left_ms = job.deadline_ms - self._clock.now_ms()
        if left_ms <= 0:
            raise _GivenUp(job.trouble or "the group's coordinator did not answer in time")
        return left_ms

    def _pause(self, job: Job, why: str) -> None:
        """``offsets.channel.backoff.ms``, or less if the job ends before."""
        job.trouble = why
        until_ms = self._clock.now_ms() + min(self._settings.backoff_ms, self._left_ms(job))
        with self._changed:
            while (left_ms := until_ms - self._clock.now_ms()) > 0 and not (job.is_cancelled or self._is_closed):
                self._changed.wait(left_ms / 1000)
        self._left_ms(job)

    # --- fetching -----------------------------------------------------------------------------------------------

    def _fetched(self, job: Job, partitions: Sequence[TopicPartition]) -> Fetched:
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
                        failed[tp] = in_words(stored)
                    else:
                        offsets[tp] = _offset_of(stored)
                        del failed[tp]
                codes_left = {stored for stored in answered.partitions.values() if isinstance(stored, ErrorCode)}
                if codes_left and codes_left <= NEVER_TOLD:
                    break
                if failed:
                    self._pause(job, next(iter(failed.values())))
        except (_GivenUp, _Refused) as end:
            why = str(end)
        except _Unsupported as end:
            why = unsupported = str(end)
        return Fetched(offsets, {tp: words or why for tp, words in failed.items()}, unsupported)

    def _fetch_once(self, job: Job, partitions: Sequence[TopicPartition]) -> GroupOffsets | None:
        """One request; None: the coordinator has to be asked again."""
        there = self._connected(job)
        timeout_ms = min(self._settings.socket_timeout_ms, self._left_ms(job))
        try:
            answered = fetch_offsets(there.connection, there.ranges, self._settings.group, partitions, timeout_ms)
        except PeerTrouble as error:
            self._drop()
            self._pause(job, str(error))
            return None
        if answered.error == codes.NONE:
            return answered
        if answered.error in NEVER_TOLD:
            raise _Refused(answered.error)
        if answered.error in MOVED:
            self._drop()
        self._pause(job, f"{there.address} answered {answered.error}")
        return None

    # --- committing ---------------------------------------------------------------------------------------------

    def _committed(
        self, job: Job, offsets: Mapping[TopicPartition, int], attempts: int, check: Check
    ) -> Mapping[TopicPartition, KafkaWritten]:
        results: dict[TopicPartition, KafkaWritten] = {}
        left = dict(offsets)
        try:
            for attempt in range(1, attempts + 1):
                answers = self._commit_once(job, left, check)
                results |= answers
                left = {tp: offset for tp, offset in left.items() if not _is_settled(answers[tp])}
                if not left or attempt == attempts:
                    break
                self._pause(job, answers[next(iter(left))].why)
        except _GivenUp as end:
            results |= dict.fromkeys(left, KafkaWritten(Outcome.FAILED, str(end)))
        except _Unsupported as end:
            results |= dict.fromkeys(left, KafkaWritten(Outcome.FAILED, str(end), is_final=True))
        except _Refused as end:
            results |= dict.fromkeys(left, refusal(end.code))
        return results

    def _commit_once(
        self, job: Job, offsets: Mapping[TopicPartition, int], check: Check
    ) -> dict[TopicPartition, KafkaWritten]:
        """One request, of what the check lets pass.  Between its look and the request nothing else happens."""
        there = self._connected(job)
        results = dict(check(offsets))
        self._left_ms(job)
        sent = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items() if tp not in results}
        if not sent:
            return results
        timeout_ms = self._settings.socket_timeout_ms
        try:
            answers = commit_offsets(there.connection, there.ranges, self._settings.group, sent, timeout_ms)
        except PeerTrouble as error:
            self._drop()
            return results | dict.fromkeys(sent, KafkaWritten(Outcome.UNKNOWN, str(error)))
        if MOVED & set(answers.values()):
            self._drop()
        return results | {tp: refusal(code) for tp, code in answers.items()}

    # --- the coordinator ----------------------------------------------------------------------------------------

    def _connected(self, job: Job) -> _Coordinator:
        """The conversation with the coordinator; looks for it as long as the job lasts.

        One that the broker has ended meanwhile (it went down, or nothing was said for long) costs no attempt.
        """
        if self._coordinator is not None and _has_ended(self._coordinator.connection):
            self._drop()
        rounds = 0
        while self._coordinator is None:
            self._left_ms(job)
            try:
                brokers = list(self._find_brokers())
            except WorldError as error:
                self._pause(job, f"the brokers cannot be looked up: {error}")
                continue
            # Whoever did not answer the last time is asked last.
            brokers.sort(key=lambda broker: (broker in self._silent, random.random()))
            trouble = self._ask_around(job, brokers)
            if self._coordinator is None:
                rounds += 1
                if rounds >= SAY_FROM_ROUND:
                    self._say_trouble(trouble)
                self._pause(job, trouble)
        return self._coordinator

    def _ask_around(self, job: Job, brokers: Sequence[BrokerAddress]) -> str:
        """Ask one broker after the other who the coordinator is, and connect to that; why not, if that failed."""
        trouble = "no broker is registered in ZooKeeper (/brokers/ids)"
        too_old = 0
        for number, broker in enumerate(brokers):
            # One that swallows packets must leave time for the others.
            share_ms = max(LOOKUP_SHARE_MS_MIN, self._left_ms(job) // (len(brokers) - number))
            try:
                found = self._ask_one(job, broker, min(LOOKUP_TIMEOUT_MS, share_ms))
                self._silent.discard(broker)
            except PeerTrouble as error:
                self._drop()
                self._silent.add(broker)
                trouble = f"none of {len(brokers)} brokers names the group's coordinator; the last one: {error}"
                continue
            if found is None:
                too_old += 1
                trouble = f"{broker} is older than 0.8.2, and keeps no offsets"
            elif isinstance(found, ErrorCode):
                if found in NEVER_TOLD:
                    raise _Refused(found)
                return f"{broker} was asked for the coordinator of group {self._settings.group}: {found}"
            else:
                return self._go_to(job, found, broker)
        if brokers and too_old == len(brokers):
            raise _Unsupported(UNSUPPORTED.format(len(brokers)))
        return trouble

    def _ask_one(self, job: Job, broker: BrokerAddress, timeout_ms: int) -> BrokerAddress | ErrorCode | None:
        """Who the coordinator is; None when the broker does not know such a question (0.8.0, 0.8.1)."""
        for _ in range(2):
            connection = self._open(job, broker, timeout_ms)
            ranges = negotiate(connection, timeout_ms)
            self._coordinator = _Coordinator(broker, connection, ranges)
            try:
                found = find_coordinator(connection, ranges, self._settings.group, timeout_ms)
            except ConnectionFailed as error:
                # Before 0.8.2 a broker closes the connection on a question that it does not know; so does one that
                # is just going down: it is asked twice.
                if not ranges.is_assumed or error.reason is not Reason.CLOSED:
                    raise
                self._drop()
            else:
                if not isinstance(found, BrokerAddress) or found[1:] != broker[1:]:
                    self._drop()
                return found
        return None

    def _go_to(self, job: Job, found: BrokerAddress, asked: BrokerAddress) -> str:
        """Connect to the coordinator, unless it is the one that was asked."""
        if self._coordinator is None:
            timeout_ms = min(self._settings.socket_timeout_ms, self._left_ms(job))
            try:
                connection = self._open(job, found, timeout_ms)
                self._coordinator = _Coordinator(found, connection, negotiate(connection, timeout_ms))
            except PeerTrouble as error:
                self._drop()
                return f"{asked} named {found} as the coordinator: {error}"
        self._said_trouble = ""
        if found != self._said_coordinator:
            self._said_coordinator = found
            log.info("coordinator-found group=%s broker=%s", self._settings.group, found)
        return ""

    def _open(self, job: Job, broker: BrokerAddress, timeout_ms: int) -> Connection:
        self._drop()
        connection = self._connect(
            broker.host, broker.port, client_id=self._settings.client_id, connect_timeout_ms=timeout_ms
        )
        with self._changed:
            self._connection = connection
        # Whoever cancelled it may have come before there was a connection to close.
        self._left_ms(job)
        return connection

    def _drop(self) -> None:
        """End the conversation: the coordinator is looked for anew."""
        with self._changed:
            connection, self._connection = self._connection, None
        self._coordinator = None
        if connection is not None:
            connection.close()

    def _say_trouble(self, why: str) -> None:
        shape = "".join(char for char in why if not char.isdigit())
        if shape != self._said_trouble:
            self._said_trouble = shape
            log.warning("no-coordinator group=%s why=%r", self._settings.group, why)


def _has_ended(connection: Connection) -> bool:
    """Whether the other side has ended a conversation in which no answer is due."""
    try:
        return connection.has_answer(0)
    except (*PeerTrouble, ConnectorClosed):
        return True


# --- what an error means ----------------------------------------------------------------------------------------------


def is_final(code: ErrorCode) -> bool:
    """Whether committing again is in vain as long as things are as they are."""
    return code in MODERN_GROUP or code in HINTS


def in_words(code: ErrorCode) -> str:
    """The code's name and number, and what it means."""
    hint = MODERN_GROUP_HINT if code in MODERN_GROUP else HINTS.get(code)
    return f"{code}: {hint}" if hint else str(code)


def refusal(code: ErrorCode) -> KafkaWritten:
    """What became of a commit that was answered with this code."""
    if code == codes.NONE:
        return KafkaWritten(Outcome.DONE)
    return KafkaWritten(Outcome.FAILED, in_words(code), is_final(code), code in MODERN_GROUP)


def _offset_of(stored: OffsetAndMetadata | None) -> int:
    """An answer as an offset; -1: nothing is stored, or what is stored is no offset (the original commits -1)."""
    return -1 if stored is None else max(stored.offset, -1)


def _is_settled(written: KafkaWritten) -> bool:
    return written.is_final or written.outcome in (Outcome.DONE, Outcome.NOT_OURS)
