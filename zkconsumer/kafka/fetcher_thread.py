"""``ConsumerFetcherThread``: one thread a broker (and fetcher number) that reads all its partitions.

    partitions that have room --Fetch--> broker --record sets--> chunks --offer--> the streams' queues
                                                                   '--- pending, when a queue is full

A full queue stops only its own partitions: what does not fit waits here (at most one answer's worth) and its
partitions are left out of the next request, which then waits only shortly at the broker.  (The original blocks the
whole thread, with a lock held, until the slowest stream has read on.)

What happens to one partition never stops the others.

A message larger than ``fetch.message.max.bytes`` comes whole from Fetch 3 on (0.10.1).  From older brokers only its
head comes: it is then asked for once more, with as many bytes as the head says, up to ``GROWN_BYTES_MAX``; what is
larger goes to the stream as it is, which raises it, and is not asked for again before the stream has gone past it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.base.wakeup import WakeUp
from zkconsumer.core.commands import BEGINNING
from zkconsumer.errors import (
    ConnectorClosed,
    InvalidMessageException,
    KafkaException,
    RemoteProtocolError,
    UnsupportedCodec,
)
from zkconsumer.kafka.chunks import FetchedDataChunk, PartitionTopicInfo
from zkconsumer.kafka.connection import PeerTrouble
from zkconsumer.kafka.error_codes import (
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.metadata import list_offsets
from zkconsumer.kafka.versions import negotiate
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.entries import read_head
from zkconsumer.wire.frames import RESPONSE_BYTES_MAX
from zkconsumer.wire.records import scan
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import (
    RESPONSE_BYTES_UNLIMITED,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.base.threads import StopSignal
    from zkconsumer.kafka.connection import Connect, Connection
    from zkconsumer.kafka.versions import ApiRanges
    from zkconsumer.observe.fetch_metrics import FetchMetrics
    from zkconsumer.wire.primitives import RecordSet

LEFT_OUT_WAIT_MS = 20
"""How long a request may wait at the broker while some partition is left out because its queue is full."""

TOTAL_LIMIT_FROM = 3
"""The version of Fetch from which a request carries a limit for the whole answer (0.10.1, KIP-74)."""

IDLE_WAIT_MS = 1_000
"""How long to wait for a queue to have room, or for a partition, before looking again."""

FRAME_SHARE_MIN = 4
"""A record set that is less than this part of its answer is copied out of it: it would keep all of it in memory for as
long as it waits in a queue."""

log = logging.getLogger("zkconsumer.fetcher")

NOT_HERE = frozenset(
    str(error) for error in (UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER)
)
"""What a broker answers about a partition that is led elsewhere now, or was deleted: no trouble by itself."""

GROWN_BYTES_MAX = RESPONSE_BYTES_MAX
"""The largest message that is fetched although it is larger than ``fetch.message.max.bytes``: what an answer may be
longer than was asked for."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What the configuration says about fetching; bytes and ms."""

    client_id: str
    max_bytes_each: int = 1024 * 1024
    max_bytes: int = RESPONSE_BYTES_UNLIMITED
    min_bytes: int = 1
    max_wait_ms: int = 100
    socket_timeout_ms: int = 30_000
    receive_buffer_bytes: int = 64 * 1024
    backoff_ms: int = 200
    reset_to_earliest: bool = False
    grown_bytes_max: int = GROWN_BYTES_MAX

    def partitions_max(self, version: int) -> int:
        """How many partitions one request may name, so that the answer keeps to ``fetch.max.bytes``.

        From Fetch 3 on (0.10.1) the broker keeps to it by itself.
        """
        if version >= TOTAL_LIMIT_FROM:
            return RESPONSE_BYTES_UNLIMITED
        return max(1, self.max_bytes // self.max_bytes_each)

    def response_bytes_max(self, partitions: int) -> int:
        """The longest answer that is taken: what was asked for, and one message larger than that."""
        return min(RESPONSE_BYTES_UNLIMITED, partitions * self.max_bytes_each + RESPONSE_BYTES_MAX)


class ConsumerFetcherThread:
    """Reads the partitions that one broker leads.  Everything public may be called from any thread."""

    def __init__(
        self,
        broker: BrokerAddress,
        settings: FetchSettings,
        connect: Connect,
        clock: Clock,
        on_leaderless: Callable[[Iterable[PartitionTopicInfo]], None],
        on_reset: Callable[[PartitionTopicInfo, int], None],
        on_round: Callable[[BrokerAddress, Exception | None], None],
        metrics: FetchMetrics,
        on_trouble: Callable[[BrokerAddress, tuple[TopicPartition, ...], str], None],
        on_topics_refused: Callable[[Mapping[str, ErrorCode]], None],
    ) -> None:
        self._on_trouble = on_trouble
        self._on_topics_refused = on_topics_refused
        self.broker = broker
        self.metrics = metrics
        self._settings = settings
        self._connect = connect
        self._clock = clock
        self._on_leaderless = on_leaderless
        self._on_reset = on_reset
        self._on_round = on_round
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._partitions: dict[TopicPartition, PartitionTopicInfo] = {}
        self._paused_until: dict[TopicPartition, int] = {}
        self._said: dict[TopicPartition, str] = {}
        self._to_say: dict[str, list[TopicPartition]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._too_large_at: dict[TopicPartition, int] = {}
        self._pending: deque[FetchedDataChunk] = deque()
        self._connection: Connection | None = None
        self._ranges: ApiRanges | None = None

    # --- from outside -------------------------------------------------------------------------------------------

    def add(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Read these too, from their fetch offsets on."""
        with self._lock:
            for info in infos:
                self._partitions[info.tp] = info
                self._paused_until.pop(info.tp, None)
                self._too_large_at.pop(info.tp, None)
        self.wake()

    def wake(self) -> None:
        """A queue has room, or a partition has left.  Takes no lock: the thread that iterates a stream calls it."""
        self._wake_up.set()

    def interrupt(self) -> None:
        """End a blocked read at once: the thread is being stopped."""
        connection = self._connection
        if connection is not None:
            connection.close()
        self.wake()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to read here."""
        with self._lock:
            return not any(info.is_live for info in self._partitions.values())

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self, stop: StopSignal) -> None:
        """Fetch until stopped."""
        try:
            while True:
                self._wake_up.clear()  # before the stop signal and the partitions are checked: no change is missed
                if stop.is_set():
                    break
                wanted, left_out = self._wanted()
                if wanted:
                    self._round(wanted, left_out, stop)
                else:
                    self._wake_up.wait(self._idle_ms())
        finally:
            self._disconnect()

    def _idle_ms(self) -> int:
        """How long to wait for ``wake``: until the pause of some partition is over."""
        with self._lock:
            pauses = list(self._paused_until.values())
        next_ms = min(pauses) - self._clock.now_ms() if pauses else IDLE_WAIT_MS
        return max(1, min(IDLE_WAIT_MS, next_ms))

    def _wanted(self) -> tuple[list[PartitionTopicInfo], bool]:
        """What to ask for now, and whether something is left out because it has no room."""
        with self._lock:
            self._partitions = {tp: info for tp, info in self._partitions.items() if info.is_live}
            self._paused_until = {tp: until for tp, until in self._paused_until.items() if tp in self._partitions}
            self._sizes = {tp: size for tp, size in self._sizes.items() if tp in self._partitions}
            self._too_large_at = {tp: offset for tp, offset in self._too_large_at.items() if tp in self._partitions}
            infos = list(self._partitions.values())
        self._pending = deque(chunk for chunk in self._pending if not chunk.info.queue.offer(chunk))
        waiting = {chunk.info.tp for chunk in self._pending}
        now_ms = self._clock.now_ms()
        wanted: list[PartitionTopicInfo] = []
        left_out = False
        for info in infos:
            if info.tp in self._paused_until:
                if self._paused_until[info.tp] > now_ms:
                    continue
                del self._paused_until[info.tp]
            if self._too_large_at.get(info.tp) == info.fetch_offset:
                continue
            if info.tp in waiting or not info.queue.has_room:
                left_out = True
            else:
                wanted.append(info)
        return wanted, left_out

    def _round(self, wanted: list[PartitionTopicInfo], left_out: bool, stop: StopSignal) -> None:
        try:
            connection, ranges = self._connected(stop)
            unplaced = [info for info in wanted if info.fetch_offset < 0]
            if unplaced:
                self._reset(connection, ranges, unplaced)
            placed = [info for info in wanted if info.fetch_offset >= 0 and info.tp not in self._paused_until]
            asked = self._one_grown(placed[: self._settings.partitions_max(ranges.pick(FETCH))])
            if asked:
                self._fetch(connection, ranges, asked, left_out or len(asked) < len(placed))
                self._on_round(self.broker, None)
        except ConnectorClosed:
            return
        except PeerTrouble as error:
            self._disconnect()
            if not stop.is_set():
                self._on_round(self.broker, error)
                self._give_up(wanted)
                stop.wait(self._settings.backoff_ms)
        finally:
            self._say_all()

    def _fetch(
        self, connection: Connection, ranges: ApiRanges, placed: list[PartitionTopicInfo], left_out: bool
    ) -> None:
        settings = self._settings
        max_wait_ms = min(settings.max_wait_ms, LEFT_OUT_WAIT_MS) if left_out else settings.max_wait_ms
        topics: dict[str, list[FetchPartition]] = {}
        asked: dict[TopicPartition, tuple[PartitionTopicInfo, int]] = {}
        for info in placed:
            offset = info.fetch_offset
            asked[info.tp] = (info, offset)
            bytes_max = self._sizes.get(info.tp, settings.max_bytes_each)
            row = FetchPartition(partition=info.tp.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
            topics.setdefault(info.tp.topic, []).append(row)
        body = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            topics=[FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
        )
        asked_at_ms = self._clock.now_ms()
        answer = connection.request(
            FETCH,
            ranges.pick(FETCH),
            body,
            settings.socket_timeout_ms + max_wait_ms,
            response_bytes_max=settings.response_bytes_max(len(placed)),
        )
        if answer.error_code != NONE.code:
            raise KafkaException(f"{self.broker}: Fetch was answered {error_code(answer.error_code)}")
        answered_at_ms = self._clock.now_ms()
        records_bytes = sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)
        self.metrics.answered(answered_at_ms - asked_at_ms, records_bytes, answer.throttle_time_ms)
        self._rotate(placed, answer)
        leaderless: list[PartitionTopicInfo] = []
        out_of_range: list[PartitionTopicInfo] = []
        for topic in answer.responses:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic, part.partition_index)
                if tp not in asked:
                    raise RemoteProtocolError(f"{self.broker}: Fetch was answered for {tp}, which was not asked for")
                info, offset = asked.pop(tp)
                if not info.is_live or info.fetch_offset != offset:
                    continue
                info.answered_at_ms = answered_at_ms
                self._take(info, part, leaderless, out_of_range)
        if out_of_range:
            self._reset(connection, ranges, out_of_range)
        if leaderless:
            self._give_up(leaderless)

    # --- one partition of an answer -----------------------------------------------------------------------------

    def _take(
        self,
        info: PartitionTopicInfo,
        part: FetchPartitionResponse,
        leaderless: list[PartitionTopicInfo],
        out_of_range: list[PartitionTopicInfo],
    ) -> None:
        if part.error_code == OFFSET_OUT_OF_RANGE.code:
            out_of_range.append(info)
        elif part.error_code not in (NONE.code, UNSUPPORTED_COMPRESSION_TYPE.code):
            self._refused(info, error_code(part.error_code))
            leaderless.append(info)
        elif part.error_code != NONE.code or part.records is None:
            self._pause(info, f"{error_code(part.error_code)}: the broker gave no record set; {NULL_ADVICE}")
        else:
            info.high_watermark = part.high_watermark
            if len(part.records):
                self._hand_over(info, part.records)

    def _hand_over(self, info: PartitionTopicInfo, records: RecordSet) -> None:
        offset = info.fetch_offset
        try:
            found = scan(records)
            if found.entries and found.next_offset <= offset:
                raise InvalidMessageException(f"the record set ends at {found.next_offset}, before the fetch offset")
        except (InvalidMessageException, UnsupportedCodec) as error:
            self._pause(info, f"corrupt record set at fetch offset {offset}: {error}")
            return
        self._said.pop(info.tp, None)
        if not found.entries and self._grow(info, records):
            return
        self._sizes.pop(info.tp, None)
        if isinstance(records, memoryview) and len(records) * FRAME_SHARE_MIN < memoryview(records.obj).nbytes:
            records = bytes(records)
        next_offset = found.next_offset if found.entries else offset
        chunk = FetchedDataChunk(records, info, offset, next_offset, found.complete_bytes, info.resets)
        if found.entries:
            info.fetch_offset = next_offset
        else:
            # Too large at any size: the stream raises it, and asking again would bring the same piece.
            self._too_large_at[info.tp] = offset
        self.metrics.handed_over(info.tp.topic, found.complete_bytes)
        if not info.queue.offer(chunk):
            self._pending.append(chunk)

    def _grow(self, info: PartitionTopicInfo, records: RecordSet) -> bool:
        """Ask for this partition with more bytes, as its next message needs; False: that would be too many."""
        limit = self._settings.grown_bytes_max
        size = self._sizes.get(info.tp, self._settings.max_bytes_each)
        head = read_head(records)
        needed = head.bytes_total if head is not None and head.bytes_total > size else 2 * size
        if size >= limit or (head is not None and head.bytes_total > limit):
            return False
        self._sizes[info.tp] = min(needed, limit)
        log.debug("fetch-grown broker=%s partition=%s bytes=%d", self.broker, info.tp, self._sizes[info.tp])
        return True

    def _one_grown(self, infos: list[PartitionTopicInfo]) -> list[PartitionTopicInfo]:
        """At most one that is asked for with more bytes than the others, so that the answer keeps to its limit."""
        first = next((info for info in infos if info.tp in self._sizes), None)
        return [info for info in infos if info is first or info.tp not in self._sizes]

    def _reset(self, connection: Connection, ranges: ApiRanges, infos: list[PartitionTopicInfo]) -> None:
        """Ask the leader where the log begins or ends, and go on from there (``auto.offset.reset``)."""
        policy = EARLIEST_TIME if self._settings.reset_to_earliest else LATEST_TIME
        times = {info.tp: EARLIEST_TIME if info.fetch_offset == BEGINNING else policy for info in infos}
        offsets = list_offsets(connection, ranges, times, self._settings.socket_timeout_ms)
        leaderless: list[PartitionTopicInfo] = []
        for info in infos:
            offset = offsets[info.tp]
            if isinstance(offset, ErrorCode):
                self._refused(info, offset)
                leaderless.append(info)
            elif info.is_live:
                info.reset(offset)
                self._on_reset(info, offset)
        if leaderless:
            self._give_up(leaderless)

    def _rotate(self, asked: list[PartitionTopicInfo], answer: FetchResponse) -> None:
        """Whoever was asked goes behind the others, and who brought records last, so that limits hit each in turn."""
        full = {
            TopicPartition(topic.topic, part.partition_index)
            for topic in answer.responses
            for part in topic.partitions
            if part.records
        }
        with self._lock:
            for info in sorted(asked, key=lambda info: info.tp in full):
                if self._partitions.get(info.tp) is info:
                    self._partitions[info.tp] = self._partitions.pop(info.tp)

    def _pause(self, info: PartitionTopicInfo, why: str) -> None:
        """This partition alone waits a while; the others go on."""
        self._say(info, why)
        self._paused_until[info.tp] = self._clock.now_ms() + self._settings.backoff_ms

    def _refused(self, info: PartitionTopicInfo, error: ErrorCode) -> None:
        self._say(info, str(error))
        if error == TOPIC_AUTHORIZATION_FAILED:
            self._on_topics_refused({info.tp.topic: error})

    def _say(self, info: PartitionTopicInfo, why: str) -> None:
        """One line a reason and answer, however many partitions it concerns."""
        if self._said.get(info.tp) != why:
            self._said[info.tp] = why
            self._to_say.setdefault(why, []).append(info.tp)

    def _say_all(self) -> None:
        to_say, self._to_say = self._to_say, {}
        for why, partitions in to_say.items():
            values = (self.broker, len(partitions), partitions[0], why)
            if why in NOT_HERE:
                log.info("leader-moved broker=%s partitions=%d first=%s why=%r", *values)
            else:
                log.warning("partition-trouble broker=%s partitions=%d first=%s why=%r", *values)
                self._on_trouble(self.broker, tuple(partitions), why)

    def _give_up(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Give these to the leader finder; what waits here of them is fetched again, or it would come too late."""
        given = set(infos)
        waiting = [chunk for chunk in self._pending if chunk.info in given]
        for chunk in waiting:
            chunk.info.fetch_offset = chunk.fetch_offset
        self._pending = deque(chunk for chunk in self._pending if chunk.info not in given)
        with self._lock:
            for info in given:
                if self._partitions.get(info.tp) is info:
                    del self._partitions[info.tp]
        self._say_all()  # before another thread goes on with them
        self._on_leaderless(given)

    # --- the connection -----------------------------------------------------------------------------------------

    def _connected(self, stop: StopSignal) -> tuple[Connection, ApiRanges]:
        if self._connection is None or self._ranges is None:
            settings = self._settings
            self._connection = self._connect(
                self.broker.host,
                self.broker.port,
                client_id=settings.client_id,
                connect_timeout_ms=settings.socket_timeout_ms,
                receive_buffer_bytes=settings.receive_buffer_bytes,
            )
            if stop.is_set():
                # Whoever set it may have come before there was a connection to close.
                raise ConnectorClosed("the fetcher is being stopped")
            self._ranges = negotiate(self._connection, settings.socket_timeout_ms)
        return self._connection, self._ranges

    def _disconnect(self) -> None:
        connection, self._connection, self._ranges = self._connection, None, None
        if connection is not None:
            connection.close()


NULL_ADVICE = (
    "error 76 means records compressed with zstd on a broker or a Fetch version that cannot give them: "
    "check compression.type of the topic"
)
