"""The start and the end of logs, and the offset at a time, requested from the leaders for many partitions at once.

Each leader gets requests with ``LIST_OFFSETS_PARTITIONS_MAX`` partitions, a few of them in flight at once; all leaders
are asked in parallel.  The meaning of an answer to a *time* depends on the leader's release, and ``how`` names it:

    exact     ListOffsets from version 1 on (0.10.1): the first record whose timestamp is at or after the time
    end       the same, and there is no such record: the end of the log, like kafka-consumer-groups (KIP-122)
    segment   version 0, or a log in message format 0, which has no timestamps: the start of the newest segment that
              was last written at or before the time.  Earlier than requested by up to a segment; never later
    start     the same, and every segment was written later: the start of the log
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.base.threads import StopSignal
from zkconsumer.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode
from zkconsumer.kafka.metadata_client import (
    ISOLATION_LEVEL_FROM,
    NO_OFFSET,
    list_offsets_request,
    parse_list_offsets,
)
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import LIST_OFFSETS
from zkconsumer.wire.transactions import READ_COMMITTED, READ_UNCOMMITTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from zkconsumer.admin.broker_client import BrokerClient, BrokerRequestError
    from zkconsumer.kafka.broker_connection import Connection, PendingRequest
    from zkconsumer.kafka.supported_versions import SupportedVersions

LIST_OFFSETS_PARTITIONS_MAX = 2_000
"""Partitions in one request: a response of about 60 kB."""

IN_FLIGHT_MAX = 3
"""Requests in flight to one broker; their responses fit into the network buffers."""

TRIES_MAX = 3
RETRY_PAUSE_MS = 200
"""How often a partition is requested again if its leader moved or does not answer, and the pause between."""

BY_SEGMENT_VERSION = 0

NO_SUCH_PARTITION = "there is no such partition"
"""The reason if the brokers have no such partition; every other reason is why a log range is unknown."""

OffsetForTimeKind: TypeAlias = Literal["exact", "end", "segment", "start"]


@dataclass(frozen=True, slots=True)
class OffsetForTime:
    """The offset at a time, and how exact it is: see above."""

    offset: int
    kind: OffsetForTimeKind


@dataclass(frozen=True, slots=True)
class LogRange:
    """``earliest`` can be read, ``latest`` is the offset of the next record; ``for_time`` if a time was requested.

    ``last_stable``: where a ``read_committed`` reader ends; None for other readers.
    """

    earliest: int
    latest: int
    for_time: OffsetForTime | None = None
    last_stable: int | None = None

    @property
    def readable_end(self) -> int:
        """Where the reader that asked ends."""
        return self.latest if self.last_stable is None else self.last_stable

    def contains(self, offset: int) -> bool:
        """Whether a consumer can continue at this offset; the end counts as inside."""
        return self.earliest <= offset <= self.latest


def log_ranges(
    brokers: BrokerClient,
    partitions: Collection[TopicPartition],
    time_ms: int | None = None,
    pause: Callable[[int], object] | None = None,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, LogRange | str]:
    """The start and the end of each partition, and its offset at a time (milliseconds since 1970); or why it is
    unknown.  ``isolation_level`` ``READ_COMMITTED``: also where a reader of committed records ends.

    The topics must exist: a broker before 0.11 may create a topic that is named.  Raises ``BrokerUnreachable`` when no
    broker answers at all.
    """
    asker = _OffsetLister(brokers, pause or StopSignal().wait)
    times = (EARLIEST_TIME, LATEST_TIME) if time_ms is None else (EARLIEST_TIME, LATEST_TIME, time_ms)
    found = asker.ask(partitions, _Question(times))
    stable: dict[TopicPartition, _PartitionOffsets] = {}
    if isolation_level == READ_COMMITTED:
        stable = asker.ask(partitions, _Question((LATEST_TIME,), isolation_level=READ_COMMITTED))
    by_segment: dict[TopicPartition, _PartitionOffsets] = {}
    if time_ms is not None:
        without_timestamps = [tp for tp, answers in found.items() if answers.offsets.get(time_ms) == _NO_TIMESTAMPS]
        by_segment = asker.ask(without_timestamps, _Question((time_ms,), BY_SEGMENT_VERSION))
    ranges = {tp: _log_range(answers, time_ms, by_segment.get(tp)) for tp, answers in found.items()}
    return ranges | {tp: _up_to_stable(ranges[tp], answers) for tp, answers in stable.items()}


_NO_TIMESTAMPS = UNSUPPORTED_FOR_MESSAGE_FORMAT


@dataclass(slots=True)
class _PartitionOffsets:
    """What is known of one partition: time → offset, or the error; ``problem`` if it could not be requested."""

    offsets: dict[int, int | ErrorCode] = field(default_factory=dict)
    is_by_segment: bool = False
    problem: str = ""
    is_retriable: bool = False


def _log_range(answers: _PartitionOffsets, time_ms: int | None, by_segment: _PartitionOffsets | None) -> LogRange | str:
    problem = answers.problem or _first_error(answers, (EARLIEST_TIME, LATEST_TIME))
    if problem:
        return problem
    earliest, latest = answers.offsets[EARLIEST_TIME], answers.offsets[LATEST_TIME]
    assert isinstance(earliest, int), "an error is a problem"
    assert isinstance(latest, int), "an error is a problem"
    if time_ms is None:
        return LogRange(earliest, latest)
    if by_segment is not None:
        answers = by_segment
    problem = answers.problem or _first_error(answers, (time_ms,))
    if problem:
        return problem
    offset = answers.offsets[time_ms]
    assert isinstance(offset, int), "an error is a problem"
    if answers.is_by_segment:
        at = (
            OffsetForTime(earliest, "start") if offset == NO_OFFSET else OffsetForTime(max(offset, earliest), "segment")
        )
    else:
        at = OffsetForTime(latest, "end") if offset == NO_OFFSET else OffsetForTime(offset, "exact")
    return LogRange(earliest, latest, at)


def _up_to_stable(log: LogRange | str, stable: _PartitionOffsets) -> LogRange | str:
    """The same range for a reader of committed records.  The log may have grown between the two requests."""
    problem = stable.problem or _first_error(stable, (LATEST_TIME,))
    if isinstance(log, str) or problem:
        return log if isinstance(log, str) else problem
    end = stable.offsets[LATEST_TIME]
    assert isinstance(end, int), "an error is a problem"
    end = min(end, log.latest)
    at = log.for_time
    if at is not None and (at.offset >= end or at.kind == "end"):
        at = OffsetForTime(end, "end")
    return replace(log, for_time=at, last_stable=end)


def _first_error(answers: _PartitionOffsets, times: Sequence[int]) -> str:
    """A leader answers all times in one response, so the first error is the reason."""
    for time in times:
        answer = answers.offsets.get(time)
        if isinstance(answer, ErrorCode):
            return f"its leader answers {answer}"
        if answer is None:
            return "its leader did not answer"
    return ""


# --- asking -----------------------------------------------------------------------------------------------------


class _Question(NamedTuple):
    """What leaders are asked about each of their partitions.  ``version_max`` None: in the newest version."""

    times: tuple[int, ...]
    version_max: int | None = None
    isolation_level: int = READ_UNCOMMITTED


class _OffsetLister:
    """Asks leaders, and repeats the request if the leader has moved."""

    def __init__(self, brokers: BrokerClient, pause: Callable[[int], object]) -> None:
        self._brokers = brokers
        self._pause = pause

    def ask(
        self, partitions: Collection[TopicPartition], question: _Question
    ) -> dict[TopicPartition, _PartitionOffsets]:
        found: dict[TopicPartition, _PartitionOffsets] = {}
        left = sorted(set(partitions))
        for attempt in range(TRIES_MAX):
            if not left:
                break
            if attempt:
                self._pause(RETRY_PAUSE_MS)
            found |= self._try(left, question)
            left = [tp for tp in left if found[tp].is_retriable]
        return found

    def _try(
        self, partitions: Sequence[TopicPartition], question: _Question
    ) -> dict[TopicPartition, _PartitionOffsets]:
        leaders = self._brokers.leaders({tp.topic for tp in partitions})
        found: dict[TopicPartition, _PartitionOffsets] = {}
        led: dict[BrokerAddress, list[TopicPartition]] = {}
        for tp in partitions:
            leader = leaders.partitions.get(tp)
            if isinstance(leader, BrokerAddress):
                led.setdefault(leader, []).append(tp)
            elif leader is not None:
                found[tp] = _PartitionOffsets(problem=f"it has no leader: {leader}", is_retriable=True)
            elif tp.topic in leaders.topic_errors:
                error = leaders.topic_errors[tp.topic]
                why = NO_SUCH_PARTITION if error == UNKNOWN_TOPIC_OR_PARTITION else f"its topic: {error}"
                found[tp] = _PartitionOffsets(problem=why, is_retriable=error.is_retriable)
            else:
                found[tp] = _PartitionOffsets(problem=NO_SUCH_PARTITION)
        lines = self._brokers.execute_on_each(list(led), lambda connection, ranges, _: (connection, ranges))
        talks = [
            self._talk(lines[leader], leader, theirs, question=question, found=found) for leader, theirs in led.items()
        ]
        open_talks = [talk for talk in talks if talk is not None]
        while open_talks:
            for talk in open_talks:
                talk.send_some()
            for talk in open_talks:
                talk.receive_one()
            open_talks = [talk for talk in open_talks if not talk.is_over]
        return found

    def _talk(
        self,
        line: tuple[Connection, SupportedVersions] | BrokerRequestError,
        leader: BrokerAddress,
        partitions: Sequence[TopicPartition],
        *,
        question: _Question,
        found: dict[TopicPartition, _PartitionOffsets],
    ) -> _LeaderRequests | None:
        for tp in partitions:
            found[tp] = _PartitionOffsets(problem="its leader did not answer", is_retriable=True)
        try:
            if isinstance(line, BROKER_REQUEST_ERRORS):
                raise line
            connection, ranges = line
            version = ranges.pick(LIST_OFFSETS, question.version_max)
            return _LeaderRequests(
                connection,
                version,
                partitions,
                question=question,
                found=found,
                forget=lambda: self._brokers.disconnect(*leader[1:]),
            )
        except BROKER_REQUEST_ERRORS as error:
            for tp in partitions:
                found[tp].problem = str(error)
            return None


class _LeaderRequests:
    """The requests to one leader: a queue, with a few in flight."""

    def __init__(
        self,
        connection: Connection,
        version: int,
        partitions: Sequence[TopicPartition],
        *,
        question: _Question,
        found: dict[TopicPartition, _PartitionOffsets],
        forget: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._forget = forget
        self._version = version
        self._isolation_level = question.isolation_level if version >= ISOLATION_LEVEL_FROM else READ_UNCOMMITTED
        self._found = found
        self._questions: deque[tuple[int, Sequence[TopicPartition]]] = deque(
            (time, partitions[start : start + LIST_OFFSETS_PARTITIONS_MAX])
            for start in range(0, len(partitions), LIST_OFFSETS_PARTITIONS_MAX)
            for time in question.times
        )
        self._sent: deque[tuple[PendingRequest[Any], int, Sequence[TopicPartition]]] = deque()

    @property
    def is_over(self) -> bool:
        return not self._questions and not self._sent

    def send_some(self) -> None:
        try:
            while self._questions and len(self._sent) < IN_FLIGHT_MAX:
                time, partitions = self._questions[0]
                body = list_offsets_request(dict.fromkeys(partitions, time))
                body.isolation_level = self._isolation_level
                pending = self._connection.send(LIST_OFFSETS, self._version, body, REQUEST_TIMEOUT_MS)
                self._sent.append((pending, *self._questions.popleft()))
        except BROKER_REQUEST_ERRORS as error:
            self._break(error)

    def receive_one(self) -> None:
        if not self._sent:
            return
        pending, time, partitions = self._sent[0]
        try:
            response = self._connection.receive(pending, REQUEST_TIMEOUT_MS)
            answered = parse_list_offsets(response, self._version, dict.fromkeys(partitions, time))
        except BROKER_REQUEST_ERRORS as error:
            self._break(error)
            return
        self._sent.popleft()
        for tp, offset in answered.items():
            answers = self._found[tp]
            answers.offsets[time] = offset
            answers.problem = ""
            answers.is_by_segment = self._version == BY_SEGMENT_VERSION
            answers.is_retriable = any(
                isinstance(each, ErrorCode) and each.is_retriable for each in answers.offsets.values()
            )

    def _break(self, error: Exception) -> None:
        """Mark unanswered partitions, which are then requested from their new leader."""
        self._forget()
        unanswered = [some for _, _, some in self._sent] + [some for _, some in self._questions]
        for tp in (tp for some in unanswered for tp in some):
            self._found[tp] = _PartitionOffsets(problem=str(error), is_retriable=True)
        self._sent.clear()
        self._questions.clear()
