"""``Fetcher``: the records of the assigned partitions for ``poll``, as ``Fetcher`` of Kafka 3.0.

    send_fetches --one request for each node--> response --> CompletedFetch, CompletedFetch, ...    (_completed_fetches)
                                                                   |
    fetched_records <--at most max.poll.records-- _next_in_line <--'--paused: to the end of the queue

The network client may end a request in another thread (the heartbeat's polls it, too).  Its listener only appends to
``ResponseQueue``; everything else happens in the thread of the program, which takes the responses at the begin of each
call here, or by ``handle_responses`` after it has polled the network client.

*One fetch in flight for each node.*  A partition is requested when nothing of it is buffered, so that at most one
response of it exists.  If the response is lost, the future fails by its time-out, the session of the node begins again,
and the next ``send_fetches`` asks for the same offsets.

*Positions.*  Only ``fetched_records`` moves them, together with returning the records.  A fetch whose offset is not the
position any more (after a seek, a reset or another assignment) is dropped.  If a signal handler ends the call by an
exception after that, ``take_back`` sets the positions back.

*Errors.*  An exception is raised only when no records precede it in this call; otherwise these are returned, and the
next call meets the same error.  A response with an error code is dropped after its exception, so that the next fetch
shows whether the error persists.  Damaged records stay, and raise again, until the program seeks past them.

Invariants: ``_nodes_with_pending_fetch_requests`` has the ids of the nodes whose fetch has not been handled yet.
A partition has at most one fetch in ``_completed_fetches`` and ``_next_in_line`` together, unless its leader changed.
``_next_in_line`` is initialized.  ``_session_handlers``: one for each node that was ever asked.
``_leaders``: the nodes that led the assigned partitions at ``_leaders_state``, a version of the metadata and of the
assignment; while each of them has a fetch in flight, ``send_fetches`` has nothing to do.  A preferred replica that has
none is asked in the call after one of these fetches.  ``_prepared``: the sessions for which ``send_fetches`` looks only
at partitions that have changed (``PreparedSessions``).

Differences from Java:

- Java's ``Fetcher`` is synchronized instead (``ResponseQueue``).
- Fetch 13 with topic ids is used where all ids are known (3.1); what a session was opened with decides.
- A row about a partition that was not requested is logged and ignored; Java raises in the network thread.
- A fetch with an error code is dropped after its exception even if it has records, which no broker sends.
- A node is not asked for partitions that are at their ends alone, while records of its other partitions are buffered.
  Java asks; the broker answers after ``fetch.max.wait.ms``, and until then nothing is read of the other partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from zkconsumer.base.timer import Timer
from zkconsumer.errors import KafkaException, RecordTooLargeException, ZkConsumerError
from zkconsumer.kafka.client_log_event import ClientLogEvent, LogLevel
from zkconsumer.kafka.error_codes import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    BrokerError,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.fetch.completed_fetch import CompletedFetch, RecordReading
from zkconsumer.kafka.fetch.consumer_fetch_metrics import (
    ConsumerFetchMetrics,
    FetchedResponseTotals,
    PartitionDistances,
)
from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetch_errors import CHANGE_OF_LEADER_ERRORS, FetchErrorAction, fetch_error_action
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.fetch_requests import FetchRow, fetch_request, prepare_fetch_requests
from zkconsumer.kafka.fetch.fetch_session import FetchSessionHandler
from zkconsumer.kafka.fetch.fetched_records import Deserializer, FetchedRecords
from zkconsumer.kafka.fetch.list_offsets_requests import OffsetAndTimestamp
from zkconsumer.kafka.fetch.offset_fetcher import OffsetFetcher, OffsetNetworkClient
from zkconsumer.kafka.fetch.partition_positions import LOG_EVENTS_MAX
from zkconsumer.kafka.fetch.position_errors import offset_out_of_range_error
from zkconsumer.kafka.fetch.prepared_sessions import PreparedSessions
from zkconsumer.kafka.fetch.record_set_reader import RowBuffers
from zkconsumer.kafka.fetch.response_queue import ResponseQueue
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.fetch.topic_metadata_fetcher import PolledNetworkClient, TopicMetadataFetcher
from zkconsumer.kafka.fetch.topic_partition_state import TopicPartitionState
from zkconsumer.kafka.metadata.cluster import PartitionInfo
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import ClientResponse
from zkconsumer.kafka.topic_errors import topic_exception_of
from zkconsumer.types import TopicPartition
from zkconsumer.wire.fetch_codec import NO_REPLICA, TOPIC_IDS_FROM, FetchedPartition, FetchResponseBody
from zkconsumer.wire.field_types import NO_UUID

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

RECORD_TOO_LARGE_BEFORE = 3
"""The version (0.10.1, KIP-74) from which a response has at least one complete record, whatever its size."""

_new_tuple: Any = tuple.__new__
"""Makes a named tuple without a call of Python."""


class FetcherNetworkClient(OffsetNetworkClient, PolledNetworkClient, Protocol):
    """The part of ``ConsumerNetworkClient`` that is used here."""


@dataclass(slots=True)
class _LastRead:
    """The fetch whose records were returned last, and the position after them, which was set in ``state``."""

    fetch: CompletedFetch
    state: TopicPartitionState
    position: FetchPosition
    assignment_id: int
    distances: PartitionDistances


class Fetcher:
    """All methods are for the thread of the program; a deserializer None returns bytes.  ``metrics`` may be read by any
    thread."""

    def __init__(
        self,
        client: FetcherNetworkClient,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        config: FetchConfig,
        clock: Clock,
        *,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
    ) -> None:
        self.metrics = ConsumerFetchMetrics()
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._config = config
        self._clock = clock
        self._reading = RecordReading(
            RowBuffers(config.max_poll_records),
            config.check_crcs,
            config.isolation_level,
            key_deserializer,
            value_deserializer,
        )
        self._responses = ResponseQueue()
        self.log_events: deque[ClientLogEvent] = deque(maxlen=LOG_EVENTS_MAX)
        """The log lines that the caller has not taken yet."""
        self._offsets = OffsetFetcher(
            client, metadata, subscriptions, config, clock, responses=self._responses, log_events=self.log_events
        )
        self._topics = TopicMetadataFetcher(client, clock, config.retry_backoff_ms)
        self._session_handlers: dict[int, FetchSessionHandler[FetchRow]] = {}
        self._nodes_with_pending_fetch_requests: set[int] = set()
        self._leaders: set[int] | None = None
        self._leaders_state = (-1, -1)
        self._prepared = PreparedSessions()
        self._completed_fetches: deque[CompletedFetch] = deque()
        self._next_in_line: CompletedFetch | None = None
        self._last_read: _LastRead | None = None
        self.moves: list[tuple[TopicPartitionState, FetchPosition]] = []
        """The positions before the records that were taken since the caller has cleared it; for ``take_back``."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def send_fetches(self) -> int:
        """Send a fetch to each node that leads a fetchable partition and has no fetch in flight; returns how many.

        ``AuthenticationException``: the last login at such a node failed.
        """
        if self._responses.ended:
            self._responses.run()
        state = self._metadata.update_version, self._subscriptions.assignment_id
        if state != self._leaders_state:
            self._offsets.validate_positions_on_metadata_change()
            self.metrics.maybe_update_assignment(
                self._subscriptions.assignment_id, self._subscriptions.assigned_partitions()
            )
            self._leaders = self._leader_ids()
            self._leaders_state = state
        if self._leaders is not None and self._leaders <= self._nodes_with_pending_fetch_requests:
            return 0
        self._prepared.begin((self._metadata.update_version, self._subscriptions.change_id))
        if self._leaders is not None and self._leaders <= (
            self._nodes_with_pending_fetch_requests | self._prepared.nodes_to_drain
        ):
            return 0
        return self._send_changes() if self._are_leaders_prepared() else self._send_all()

    def _are_leaders_prepared(self) -> bool:
        """Whether only partitions that have changed must be looked at."""
        if self._leaders is None:
            return False
        waiting = self._leaders - self._nodes_with_pending_fetch_requests
        return waiting <= self._prepared.nodes.keys() and all(self._session_handlers[each].is_open for each in waiting)

    def _send_all(self) -> int:
        """Send the fetches with the rows of all partitions; returns how many."""
        count = 0
        buffered = self._buffered_partitions()
        available = self._subscriptions.assigned_partitions() - buffered
        requests = self._prepare(self._subscriptions.fetchable_partitions(available.__contains__))
        for node, rows in requests.items():
            self._prepared.lagging.pop(node.id, None)
            handler = self._session_handlers.get(node.id)
            if handler is None:
                handler = self._session_handlers[node.id] = FetchSessionHandler()
            for tp in [tp for tp in handler.partitions if tp not in rows]:
                handler.remove_partition(tp)
            self._set_rows(node, rows)
            if not handler.is_open:
                for tp in rows:
                    handler.move_to_end(tp)  # a full request has the order of the assignment
            count += self._send_fetch(node, buffered)
        if self._subscriptions.has_preferred_read_replicas():  # a lease may end at any time
            self._prepared.nodes_to_drain.clear()
        else:
            self._prepared.add(requests, buffered)
        return count

    def _send_changes(self) -> int:
        """Send the fetches of prepared nodes with the rows of the partitions that have changed; returns how many."""
        prepared, count = self._prepared, 0
        buffered = self._buffered_partitions()
        left = [tp for tp in prepared.changed if tp not in buffered and self._subscriptions.is_fetchable(tp)]
        changes = self._prepare(left)
        for node in prepared.nodes.values():
            if node.id in self._nodes_with_pending_fetch_requests:
                continue
            handler = self._session_handlers[node.id]
            for tp in buffered:
                handler.remove_partition(tp)
            prepared.lagging[node.id] -= buffered
            rows = changes.get(node)
            if rows is not None:
                self._set_rows(node, rows)
            elif not handler.partitions:
                continue
            elif self._client.is_unavailable(node):
                self._client.maybe_throw_auth_failure(node)
                continue
            count += self._send_fetch(node, buffered)
        return count

    def _prepare(self, partitions: Iterable[TopicPartition]) -> dict[Node, dict[TopicPartition, FetchRow]]:
        return prepare_fetch_requests(
            self._subscriptions,
            self._metadata,
            self._client,
            partitions,
            nodes_in_flight=self._nodes_with_pending_fetch_requests,
            fetch_size=self._config.fetch_size,
            now_ms=self._clock.now_ms(),
        )

    def _set_rows(self, node: Node, rows: Mapping[TopicPartition, FetchRow]) -> None:
        handler, lagging = self._session_handlers[node.id], self._prepared.lagging[node.id]
        topic_ids = {topic: self._metadata.topic_id(topic) or NO_UUID for topic in {tp.topic for tp in rows}}
        for tp, row in rows.items():
            handler.set_partition(tp, row, topic_ids[tp.topic])
            self._prepared.changed.pop(tp, None)
            state = self._subscriptions.assigned_state(tp)
            assert state is not None, "only an assigned partition is fetched"
            end = state.end_offset(self._config.isolation_level)
            if end is None or row.fetch_offset < end:
                lagging.add(tp)
            else:
                lagging.discard(tp)

    def _leader_ids(self) -> set[int] | None:
        """The nodes that lead the assigned partitions; None: a leader is not known."""
        leaders = [self._metadata.current_leader(tp).leader for tp in self._subscriptions.assigned_partitions()]
        known = {leader.id for leader in leaders if leader is not None}
        return None if None in leaders else known

    def _buffered_partitions(self) -> set[TopicPartition]:
        buffered = {fetch.partition for fetch in self._completed_fetches}
        if self._next_in_line is not None and not self._next_in_line.is_consumed:
            buffered.add(self._next_in_line.partition)
        return buffered

    def _send_fetch(self, node: Node, buffered: Iterable[TopicPartition]) -> bool:
        """Send the fetch of the session with a node; returns whether it was sent.

        It is not if it would only wait for new records, while records of other partitions of the node are buffered.
        """
        if not self._prepared.lagging[node.id] and self._has_records_of(node, buffered):
            self._prepared.nodes_to_drain.add(node.id)
            return False
        handler = self._session_handlers[node.id]
        request = handler.next_request(with_topic_ids=True)
        future = self._client.send(node, fetch_request(self._config, request))
        self._nodes_with_pending_fetch_requests.add(node.id)
        self._responses.when_done(future, partial(self._on_fetch_response, node), partial(self._on_fetch_failure, node))
        return True

    def _has_records_of(self, node: Node, buffered: Iterable[TopicPartition]) -> bool:
        """Whether buffered records of partitions that the node leads can be returned."""
        for state in map(self._subscriptions.assigned_state, buffered):
            if state is None or not state.is_fetchable:
                continue
            assert state.position is not None, "a fetchable partition has one"
            leader = state.position.current_leader.leader
            if leader is not None and leader.id == node.id:
                return True
        return False

    def handle_responses(self) -> None:
        """Take what has arrived: completed fetches, positions, and errors for later calls."""
        self._responses.run()

    def _on_fetch_response(self, node: Node, response: ClientResponse) -> None:
        self._nodes_with_pending_fetch_requests.discard(node.id)
        body: FetchResponseBody = response.body
        assert response.version is not None, "it was sent"
        handler = self._session_handlers.get(node.id)
        if handler is None:
            return  # closed
        rows = handler.partitions_of(body, by_ids=response.version >= TOPIC_IDS_FROM)
        requested = handler.requested
        handler.handle_response(body.error_code, body.session_id, rows)
        self.metrics.fetch_throttle_ms.record(body.throttle_time_ms)
        if body.error_code != NONE.code:
            self._log_event("INFO", "fetch-session-error", node=node, error=error_code(body.error_code).name)
            return
        self.metrics.fetch_latency_ms.record(response.latency_ms)
        for tp in [tp for tp in rows if tp not in requested]:
            self._log_event("WARNING", "unrequested-partition-ignored", node=node, partition=tp)
            del rows[tp]
        self._prepared.add_changed(rows)
        totals = FetchedResponseTotals(self.metrics, set(rows))
        for tp, row in rows.items():
            offset = requested[tp].fetch_offset
            self._completed_fetches.append(
                CompletedFetch(tp, row, offset, response.version, self._reading, totals, self._on_drained)
            )

    def _on_fetch_failure(self, node: Node, error: Exception) -> None:
        self._nodes_with_pending_fetch_requests.discard(node.id)
        handler = self._session_handlers.get(node.id)
        if handler is not None:
            handler.handle_error()
        self._log_event("INFO", "fetch-request-failed", node=node, reason=repr(error))

    def _on_drained(self, tp: TopicPartition, has_read: bool) -> None:
        self._prepared.nodes_to_drain.clear()
        if has_read:
            self._move_to_end(tp)

    def _move_to_end(self, tp: TopicPartition) -> None:
        """Let the other partitions come first in the next response, which may not have room for all."""
        self._subscriptions.move_partition_to_end(tp)
        self._prepared.move_to_end(tp)

    # --- records ----------------------------------------------------------------------------------------------------

    @property
    def has_completed_fetches(self) -> bool:
        """Whether responses are buffered, perhaps of paused partitions."""
        self._responses.run()
        return bool(self._completed_fetches)

    @property
    def has_available_fetches(self) -> bool:
        """Whether responses of fetchable partitions are buffered.  A poll may stop to wait then."""
        self._responses.run()
        fetches = self._completed_fetches
        return bool(fetches) and any(self._subscriptions.is_fetchable(fetch.partition) for fetch in fetches)

    def fetched_records(self) -> dict[TopicPartition, FetchedRecords[Any, Any]]:
        """Up to max.poll.records buffered records, by partition; moves the positions to the end of them.

        A partition without records is not in the result, although its position may have moved (compaction, control
        batches, aborted transactions).  Raises only if there are no records: ``OffsetOutOfRangeException``,
        ``TopicAuthorizationException``, ``RecordTooLargeException``, ``RecordDeserializationException``,
        ``KafkaException`` (damaged records; an unexpected error of a broker).
        """
        if self._responses.ended:
            self._responses.run()
        if (more := self.more_records()) is not None:
            return more
        found: dict[TopicPartition, FetchedRecords[Any, Any]] = {}
        paused: list[CompletedFetch] = []
        left = self._config.max_poll_records
        try:
            while left:
                fetch = self._next_in_line
                if fetch is None or fetch.is_consumed:
                    if not self._completed_fetches:
                        break
                    self._take_next_in_line(is_first=not found)
                    continue
                state = self._subscriptions.assigned_state(fetch.partition)
                if state is not None and state.is_paused:
                    paused.append(fetch)
                    self._next_in_line = None
                else:
                    records = self._fetch_records(fetch, state, left)
                    count = len(records)
                    if count:
                        before = found.get(fetch.partition)
                        found[fetch.partition] = records if before is None else before.joined_with(records)
                        left -= count
        except ZkConsumerError:
            # The records are returned: their positions have moved.  The same error follows in the next call.
            if not found:
                raise
        finally:
            self._completed_fetches.extend(paused)
        return found

    def more_records(self) -> dict[TopicPartition, FetchedRecords[Any, Any]] | None:
        """``fetched_records``, if the fetch of the last call has max.poll.records more in a table; else None.

        Most lists of a program with small ones come from here, at half of the cost.  No other partition can be fetched
        after it than before it.
        """
        last = self._last_read
        if (
            last is None
            or last.fetch is not self._next_in_line
            or last.assignment_id != self._subscriptions.assignment_id
            or last.state.position is not last.position
            or last.fetch.next_fetch_offset != last.position.offset
            or not last.state.is_fetchable
            or (records := last.fetch.fetch_from_table(self._config.max_poll_records)) is None
        ):
            return None
        fetch, position = last.fetch, last.position
        last.distances.record_move(fetch.next_fetch_offset - position.offset)
        moved = _new_tuple(FetchPosition, (fetch.next_fetch_offset, fetch.last_epoch, position.current_leader))
        self.moves.append((last.state, position))
        last.state.position = last.position = moved  # `set_position` without its check: the state is fetchable
        return {fetch.partition: records}

    def take_back(self) -> None:
        """Set the positions to where they were before ``moves``: the program did not get these records.

        They are fetched again, since what is buffered after them is not at the position.
        """
        while self.moves:
            state, position = self.moves.pop()
            state.position = position  # it was valid, and nothing but taking records has happened since

    def _take_next_in_line(self, *, is_first: bool) -> None:
        """Take the oldest buffered fetch; ``is_first``: no records precede it in this call."""
        fetch = self._completed_fetches[0]
        if not fetch.is_initialized:
            try:
                self._initialize_completed_fetch(fetch)
            except ZkConsumerError:
                if is_first and (fetch.row.error_code != NONE.code or not fetch.has_records):
                    self._completed_fetches.popleft().drain()
                raise
        self._completed_fetches.popleft()
        if fetch.is_initialized:
            self._next_in_line = fetch
        else:
            fetch.drain()

    def _fetch_records(
        self, fetch: CompletedFetch, state: TopicPartitionState | None, records_max: int
    ) -> FetchedRecords[Any, Any]:
        """The next records of this fetch if the position is in front of them; else it is drained."""
        if state is None or not state.is_fetchable:
            return self._dropped(fetch, "not fetchable any more")
        position = state.position
        assert position is not None, "a fetchable partition has one"
        if fetch.next_fetch_offset != position.offset:
            return self._dropped(fetch, "the position is another one")
        records = fetch.fetch_records(records_max)
        if fetch.next_fetch_offset > position.offset:
            if records.size:
                self.moves.append((state, position))
            position = FetchPosition(fetch.next_fetch_offset, fetch.last_epoch, position.current_leader)
            state.set_position(position)
        distances = self.metrics.distances_of(fetch.partition)
        distances.record(*state.distances(self._config.isolation_level))
        self._last_read = _LastRead(fetch, state, position, self._subscriptions.assignment_id, distances)
        return records

    def _dropped(self, fetch: CompletedFetch, reason: str) -> FetchedRecords[Any, Any]:
        self._log_event("DEBUG", "fetched-records-dropped", partition=fetch.partition, reason=reason)
        fetch.drain()
        return FetchedRecords(fetch.partition)

    # --- one response of a partition --------------------------------------------------------------------------------

    def _initialize_completed_fetch(self, fetch: CompletedFetch) -> None:
        """Take the numbers of a response whose records are next for the position, or handle its error."""
        tp, error = fetch.partition, error_code(fetch.row.error_code)
        try:
            if not self._subscriptions.has_valid_position(tp):
                self._log_event("DEBUG", "fetch-ignored", partition=tp, reason="no valid position")
            elif error != NONE:
                self._handle_fetch_error(fetch, error)
            elif not self._is_at_position(fetch):
                self._log_event("DEBUG", "fetch-ignored", partition=tp, reason="the position is another one")
            else:
                self._check_progress(fetch)
                self._take_log_offsets(tp, fetch.row)
                fetch.is_initialized = True
        finally:
            if error != NONE:
                self._move_to_end(tp)

    def _is_at_position(self, fetch: CompletedFetch) -> bool:
        position = self._subscriptions.position(fetch.partition)
        return position is not None and position.offset == fetch.next_fetch_offset

    def _check_progress(self, fetch: CompletedFetch) -> None:
        """Raise if there are bytes, but no complete record."""
        if fetch.row.entries or not fetch.has_records:
            return
        tp, offset = fetch.partition, fetch.next_fetch_offset
        if fetch.version < RECORD_TOO_LARGE_BEFORE:
            raise RecordTooLargeException(
                f"the record of {tp} at offset {offset} is larger than max.partition.fetch.bytes="
                f"{self._config.fetch_size}, and the broker is older than 0.10.1: raise the setting",
                {tp: offset},
            )
        raise KafkaException(f"the broker answered bytes, but no complete record, for {tp} at offset {offset}")

    def _take_log_offsets(self, tp: TopicPartition, row: FetchedPartition) -> None:
        if row.high_watermark >= 0:
            self._subscriptions.update_high_watermark(tp, row.high_watermark)
        if row.log_start_offset >= 0:
            self._subscriptions.update_log_start_offset(tp, row.log_start_offset)
        if row.last_stable_offset >= 0:
            self._subscriptions.update_last_stable_offset(tp, row.last_stable_offset)
        if row.preferred_read_replica != NO_REPLICA:
            expire_ms = self._clock.now_ms() + self._metadata.metadata_expire_ms
            self._subscriptions.update_preferred_read_replica(tp, row.preferred_read_replica, expire_ms)

    def _handle_fetch_error(self, fetch: CompletedFetch, error: ErrorCode) -> None:
        tp = fetch.partition
        if error in CHANGE_OF_LEADER_ERRORS:
            self._log_event("DEBUG", "fetch-error", partition=tp, offset=fetch.next_fetch_offset, error=error.name)
        else:
            self._log_event("WARNING", "fetch-error", partition=tp, offset=fetch.next_fetch_offset, error=error.name)
        match fetch_error_action(error):
            case FetchErrorAction.UPDATE_METADATA:
                self._metadata.request_update()
            case FetchErrorAction.RETRY:
                pass
            case FetchErrorAction.RESET_POSITION:
                self._handle_offset_out_of_range(fetch)
            case FetchErrorAction.RAISE if error == TOPIC_AUTHORIZATION_FAILED:
                raise topic_exception_of({tp.topic: error})
            case FetchErrorAction.RAISE:
                raise BrokerError(error, f"Fetch of {tp} at offset {fetch.next_fetch_offset}")

    def _handle_offset_out_of_range(self, fetch: CompletedFetch) -> None:
        tp, offset = fetch.partition, fetch.next_fetch_offset
        if self._subscriptions.clear_preferred_read_replica(tp) is not None or not self._is_at_position(fetch):
            # A follower may lack records that the leader has, which is asked next; or the program has sought meanwhile.
            return
        if not self._subscriptions.has_default_offset_reset_policy:
            raise offset_out_of_range_error({tp: offset})
        self._subscriptions.request_offset_reset(tp)

    # --- buffered records -------------------------------------------------------------------------------------------

    def clear_buffered_data_for_unassigned_partitions(self, assigned: Collection[TopicPartition]) -> None:
        """Drop the buffered records of all partitions but these."""
        self._responses.run()
        kept: deque[CompletedFetch] = deque()
        for fetch in self._completed_fetches:
            if fetch.partition in assigned:
                kept.append(fetch)
            else:
                fetch.drain()
        self._completed_fetches = kept
        if self._next_in_line is not None and self._next_in_line.partition not in assigned:
            self._next_in_line.drain()
            self._next_in_line = None

    def clear_buffered_data_for_unassigned_topics(self, topics: Collection[str]) -> None:
        """Drop the buffered records of all assigned partitions but those of these topics."""
        self.clear_buffered_data_for_unassigned_partitions(
            {tp for tp in self._subscriptions.assigned_partitions() if tp.topic in topics}
        )

    def close(self) -> None:
        """Drop what is buffered, and forget the sessions; brokers remove theirs when they need the slots."""
        self.clear_buffered_data_for_unassigned_partitions(())
        self._session_handlers.clear()
        self._prepared = PreparedSessions()

    # --- positions and offsets --------------------------------------------------------------------------------------

    def reset_offsets_if_needed(self) -> None:
        """See ``OffsetFetcher``."""
        self._offsets.reset_offsets_if_needed()

    def validate_offsets_if_needed(self) -> None:
        """See ``OffsetFetcher``."""
        self._offsets.validate_offsets_if_needed()

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See ``OffsetFetcher``."""
        return self._offsets.offsets_for_times(timestamps, timer)

    def beginning_offsets(self, partitions: Collection[TopicPartition], timer: Timer) -> dict[TopicPartition, int]:
        """See ``OffsetFetcher``."""
        return self._offsets.beginning_offsets(partitions, timer)

    def end_offsets(self, partitions: Collection[TopicPartition], timer: Timer) -> dict[TopicPartition, int]:
        """See ``OffsetFetcher``."""
        return self._offsets.end_offsets(partitions, timer)

    def get_topic_metadata(self, request: MetadataRequestBuilder, timer: Timer) -> dict[str, tuple[PartitionInfo, ...]]:
        """See ``TopicMetadataFetcher``."""
        return self._topics.get_topic_metadata(request, timer)

    def get_all_topic_metadata(self, timer: Timer) -> dict[str, tuple[PartitionInfo, ...]]:
        """See ``TopicMetadataFetcher``."""
        return self._topics.get_all_topic_metadata(timer)

    def _log_event(self, level: LogLevel, name: str, **fields: object) -> None:
        self.log_events.append(ClientLogEvent(level, name, tuple((key, str(value)) for key, value in fields.items())))
