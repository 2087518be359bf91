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
from zkconsumer.kafka.metadata_client import NO_OFFSET, list_offsets_request, parse_list_offsets
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.isolation_level import READ_COMMITTED, READ_UNCOMMITTED
from zkconsumer.wire.schemas import LIST_OFFSETS
from zkconsumer.wire.schemas.list_offsets import ISOLATION_LEVEL_FROM

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
    at_time = None if time_ms is None else _Query(time_ms)
    if time_ms is not None and time_ms < 0:
        # No record is older than 1970.  To brokers, times below 0 have other meanings: -1 is the end of the log.
        at_time = _EARLIEST
    is_committed = isolation_level == READ_COMMITTED
    queries = [_EARLIEST, _LATEST, *([at_time] if at_time else []), *([_LAST_STABLE] if is_committed else [])]
    found = asker.ask(partitions, queries)
    by_segment: dict[TopicPartition, _PartitionOffsets] = {}
    if at_time is not None:
        without_timestamps = [tp for tp, answers in found.items() if answers.offsets.get(at_time) == _NO_TIMESTAMPS]
        by_segment = asker.ask(without_timestamps, [at_time], version_max=BY_SEGMENT_VERSION)
    ranges = {tp: _log_range(answers, at_time, by_segment.get(tp)) for tp, answers in found.items()}
    if is_committed:
        return {tp: _up_to_stable(log, found[tp]) for tp, log in ranges.items()}
    return ranges


class _Query(NamedTuple):
    """What is asked of each partition: the offset at a time, for a reader of this kind."""

    time: int
    isolation_level: int = READ_UNCOMMITTED


_EARLIEST, _LATEST = _Query(EARLIEST_TIME), _Query(LATEST_TIME)
_LAST_STABLE = _Query(LATEST_TIME, READ_COMMITTED)

_NO_TIMESTAMPS = UNSUPPORTED_FOR_MESSAGE_FORMAT


@dataclass(slots=True)
class _PartitionOffsets:
    """What is known of one partition: query → offset, or the error; ``problem`` if it could not be requested."""

    offsets: dict[_Query, int | ErrorCode] = field(default_factory=dict)
    is_by_segment: bool = False
    problem: str = ""
    is_retriable: bool = False


def _log_range(
    answers: _PartitionOffsets, at_time: _Query | None, by_segment: _PartitionOffsets | None
) -> LogRange | str:
    problem = answers.problem or _first_error(answers, (_EARLIEST, _LATEST))
    if problem:
        return problem
    earliest, latest = answers.offsets[_EARLIEST], answers.offsets[_LATEST]
    assert isinstance(earliest, int), "an error is a problem"
    assert isinstance(latest, int), "an error is a problem"
    if at_time is None:
        return LogRange(earliest, latest)
    if by_segment is not None:
        answers = by_segment
    problem = answers.problem or _first_error(answers, (at_time,))
    if problem:
        return problem
    offset = answers.offsets[at_time]
    assert isinstance(offset, int), "an error is a problem"
    if answers.is_by_segment:
        at = (
            OffsetForTime(earliest, "start") if offset == NO_OFFSET else OffsetForTime(max(offset, earliest), "segment")
        )
    else:
        at = OffsetForTime(latest, "end") if offset == NO_OFFSET else OffsetForTime(offset, "exact")
    return LogRange(earliest, latest, at)


def _up_to_stable(log: LogRange | str, answers: _PartitionOffsets) -> LogRange | str:
    """The same range for a reader of committed records.  The log may have grown between the two requests."""
    problem = _first_error(answers, (_LAST_STABLE,))
    if isinstance(log, str) or problem:
        return log if isinstance(log, str) else problem
    end = answers.offsets[_LAST_STABLE]
    assert isinstance(end, int), "an error is a problem"
    end = min(end, log.latest)
    at = log.for_time
    if at is not None and (at.offset >= end or at.kind == "end"):
        at = OffsetForTime(end, "end")
    return replace(log, for_time=at, last_stable=end)


def _first_error(answers: _PartitionOffsets, queries: Sequence[_Query]) -> str:
    """A leader answers all queries in a row, so the first error is the reason."""
    for query in queries:
        answer = answers.offsets.get(query)
        if isinstance(answer, ErrorCode):
            return f"its leader answers {answer}"
        if answer is None:
            return "its leader did not answer"
    return ""


# --- asking -----------------------------------------------------------------------------------------------------


class _OffsetLister:
    """Asks leaders, and repeats the request if the leader has moved."""

    def __init__(self, brokers: BrokerClient, pause: Callable[[int], object]) -> None:
        self._brokers = brokers
        self._pause = pause

    def ask(
        self, partitions: Collection[TopicPartition], queries: Sequence[_Query], *, version_max: int | None = None
    ) -> dict[TopicPartition, _PartitionOffsets]:
        found: dict[TopicPartition, _PartitionOffsets] = {}
        left = sorted(set(partitions))
        for attempt in range(TRIES_MAX):
            if not left:
                break
            if attempt:
                self._pause(RETRY_PAUSE_MS)
            found |= self._try(left, queries, version_max)
            left = [tp for tp in left if found[tp].is_retriable]
        return found

    def _try(
        self, partitions: Sequence[TopicPartition], queries: Sequence[_Query], version_max: int | None
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
            self._talk(lines[leader], leader, theirs, queries=queries, version_max=version_max, found=found)
            for leader, theirs in led.items()
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
        queries: Sequence[_Query],
        version_max: int | None,
        found: dict[TopicPartition, _PartitionOffsets],
    ) -> _LeaderRequests | None:
        for tp in partitions:
            found[tp] = _PartitionOffsets(problem="its leader did not answer", is_retriable=True)
        try:
            if isinstance(line, BROKER_REQUEST_ERRORS):
                raise line
            connection, ranges = line
            version = ranges.pick(LIST_OFFSETS, version_max)
            return _LeaderRequests(
                connection,
                version,
                partitions,
                queries=queries,
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
        queries: Sequence[_Query],
        found: dict[TopicPartition, _PartitionOffsets],
        forget: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._forget = forget
        self._version = version
        self._found = found
        self._questions: deque[tuple[_Query, Sequence[TopicPartition]]] = deque(
            (query, partitions[start : start + LIST_OFFSETS_PARTITIONS_MAX])
            for start in range(0, len(partitions), LIST_OFFSETS_PARTITIONS_MAX)
            for query in queries
        )
        self._sent: deque[tuple[PendingRequest[Any], _Query, Sequence[TopicPartition]]] = deque()

    @property
    def is_over(self) -> bool:
        return not self._questions and not self._sent

    def send_some(self) -> None:
        try:
            while self._questions and len(self._sent) < IN_FLIGHT_MAX:
                query, partitions = self._questions[0]
                body = list_offsets_request(dict.fromkeys(partitions, query.time))
                if self._version >= ISOLATION_LEVEL_FROM:
                    body.isolation_level = query.isolation_level
                pending = self._connection.send(LIST_OFFSETS, self._version, body, REQUEST_TIMEOUT_MS)
                self._sent.append((pending, *self._questions.popleft()))
        except BROKER_REQUEST_ERRORS as error:
            self._break(error)

    def receive_one(self) -> None:
        if not self._sent:
            return
        pending, query, partitions = self._sent[0]
        try:
            response = self._connection.receive(pending, REQUEST_TIMEOUT_MS)
            answered = parse_list_offsets(response, self._version, dict.fromkeys(partitions, query.time))
        except BROKER_REQUEST_ERRORS as error:
            self._break(error)
            return
        self._sent.popleft()
        for tp, offset in answered.items():
            answers = self._found[tp]
            answers.offsets[query] = offset
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
