"""``OffsetFetcher``: finds positions by ListOffsets, and validates them by OffsetForLeaderEpoch.  Pure.

The part of ``Fetcher`` of Kafka 3.0 that is ``OffsetFetcher`` from 3.5 on.

    reset_offsets_if_needed     partitions in AWAIT_RESET       --ListOffsets-->           position, or an error
    validate_offsets_if_needed  partitions in AWAIT_VALIDATION  --OffsetForLeaderEpoch-->  valid, other position, error
    offsets_for_times, beginning_offsets, end_offsets           --ListOffsets-->           the result of the call

The first two send requests and return; the ``ResponseQueue`` later brings the responses.  A lost response, or a failed
request, leaves the partition in its state, and the next call sends the request again: after request.timeout.ms, or
after retry.backoff.ms if the failure is known.  A response to an older lookup changes nothing (``PositionLookup``).

The other calls poll the network client until the answer is there or the timer expires.

``_reset_error`` and ``_validation_error``: an error that the program must see, raised and removed by the next call.  A
second error of this kind is logged and dropped while the first is pending.

Differences from Java:

- One topic that this user may not read does not delay the others: their positions are set, then the error is raised.
- If one leader fails, what the others have answered is kept, and only the rest is asked for again.
- A truncation without a reset policy is reported again after retry.backoff.ms; in Java after request.timeout.ms.
- Only a search for the end of a partition updates its end offset (for ``current_lag``).  In Java, a search for its
  begin or for a time does, too, and the lag is wrong until the next fetch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from zkconsumer.base.timer import Timer
from zkconsumer.errors import (
    LogTruncationException,
    RemoteProtocolError,
    RetriableException,
    TimeoutException,
    TopicAuthorizationException,
)
from zkconsumer.kafka.client_log_event import ClientLogEvent, LogLevel
from zkconsumer.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetch_position import FetchPosition, LogTruncation, PositionLookup
from zkconsumer.kafka.fetch.list_offsets_requests import (
    ListOffsetsFound,
    ListOffsetsResult,
    ListOffsetsTarget,
    OffsetAndTimestamp,
    list_offsets_request,
    read_list_offsets_response,
)
from zkconsumer.kafka.fetch.offset_for_leader_epoch_client import (
    CONSUMER_VERSION_MIN,
    OffsetForLeaderEpochClient,
    group_by_leader,
    has_usable_version,
)
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.response_queue import ResponseQueue
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import ClientResponse, RequestBuilder
from zkconsumer.kafka.net.request_future import RequestFuture
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.topic_errors import topic_exception_of
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.schemas import OFFSET_FOR_LEADER_EPOCH

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock


class OffsetNetworkClient(Protocol):
    """The part of ``ConsumerNetworkClient`` that is used here."""

    def send(self, node: Node, builder: RequestBuilder) -> RequestFuture[ClientResponse]: ...

    def poll_future(self, future: RequestFuture[ClientResponse], timer: Timer) -> bool: ...

    def await_metadata_update(self, timer: Timer) -> bool: ...

    def is_unavailable(self, node: Node) -> bool: ...

    def maybe_throw_auth_failure(self, node: Node) -> None: ...

    def supported_versions(self, node: Node) -> SupportedVersions | None: ...

    def try_connect(self, node: Node) -> None: ...


class OffsetFetcher:
    """All methods are for the thread of the program.  Offsets of the result are those of the next record to read."""

    def __init__(
        self,
        client: OffsetNetworkClient,
        metadata: ConsumerMetadata,
        subscriptions: SubscriptionState,
        config: FetchConfig,
        clock: Clock,
        *,
        responses: ResponseQueue,
        log_events: deque[ClientLogEvent],
    ) -> None:
        """``log_events``: where log lines are appended."""
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._config = config
        self._clock = clock
        self._responses = responses
        self._epoch_client = OffsetForLeaderEpochClient()
        self._metadata_version = -1
        """The update of the metadata that the positions were last compared with."""
        self._reset_error: Exception | None = None
        self._validation_error: Exception | None = None
        self._log_events = log_events

    # --- reset ------------------------------------------------------------------------------------------------------

    def reset_offsets_if_needed(self) -> None:
        """Ask the leaders of partitions that wait for a reset.  Raises the error of an earlier request."""
        self._responses.run()
        error, self._reset_error = self._reset_error, None
        if error is not None:
            raise error
        targets: dict[TopicPartition, int] = {}
        for tp in self._subscriptions.partitions_needing_reset(self._clock.now_ms()):
            strategy = self._subscriptions.reset_strategy(tp)
            if strategy is not None and strategy.timestamp is not None:
                targets[tp] = strategy.timestamp
        if not targets:
            return
        for node, rows in self._group_by_leader(targets)[0].items():
            lookups = {tp: self._subscriptions.position_lookup(tp) for tp in rows}
            retry_ms = self._clock.now_ms() + self._config.request_timeout_ms
            self._subscriptions.set_next_allowed_retry(rows, retry_ms)
            future = self._client.send(node, list_offsets_request(rows, self._config.isolation_level))
            self._responses.when_done(
                future, partial(self._on_reset_response, rows, lookups), partial(self._on_reset_failure, lookups)
            )

    def _on_reset_response(
        self,
        targets: Mapping[TopicPartition, ListOffsetsTarget],
        lookups: Mapping[TopicPartition, PositionLookup],
        response: ClientResponse,
    ) -> None:
        try:
            result = read_list_offsets_response(targets, response.body)
        except RemoteProtocolError as error:
            self._on_reset_failure(lookups, error)
            return
        self._log_events.extend(result.log_events)
        missing = [lookups[tp] for tp in lookups if tp not in result.fetched_offsets]
        if missing:
            self._subscriptions.request_failed(missing, self._clock.now_ms() + self._config.retry_backoff_ms)
            self._metadata.request_update()
        for tp, found in result.fetched_offsets.items():
            self._reset_offset(lookups[tp], _strategy_of(targets[tp]), found)
        if result.unauthorized_topics:
            self._set_reset_error(_unauthorized(result.unauthorized_topics))

    def _reset_offset(self, lookup: PositionLookup, strategy: OffsetResetStrategy, found: ListOffsetsFound) -> None:
        # Without an epoch, so that the position needs no validation.
        position = FetchPosition(found.offset, None, self._metadata.current_leader(lookup.partition))
        if found.leader_epoch is not None:
            self._metadata.update_last_seen_epoch_if_newer(lookup.partition, found.leader_epoch)
        self._subscriptions.maybe_seek_unvalidated(lookup, position, strategy)

    def _on_reset_failure(self, lookups: Mapping[TopicPartition, PositionLookup], error: Exception) -> None:
        self._subscriptions.request_failed(lookups.values(), self._clock.now_ms() + self._config.retry_backoff_ms)
        self._metadata.request_update()
        if not isinstance(error, RetriableException):
            self._set_reset_error(error)

    def _set_reset_error(self, error: Exception) -> None:
        if self._reset_error is None:
            self._reset_error = error
        else:
            self._log_event("ERROR", "offset-reset-error-dropped", reason=repr(error))

    # --- validation -------------------------------------------------------------------------------------------------

    def validate_positions_on_metadata_change(self) -> None:
        """After an update of the metadata, take the new leaders; a position must be validated at a new leader."""
        version = self._metadata.update_version
        if version == self._metadata_version:
            return
        self._metadata_version = version
        for tp in self._subscriptions.assigned_partitions_list():
            leader = self._metadata.current_leader(tp)
            versions = None if leader.leader is None else self._client.supported_versions(leader.leader)
            self._subscriptions.maybe_validate_position_for_current_leader(versions, tp, leader)

    def validate_offsets_if_needed(self) -> None:
        """Ask the leaders of positions that must be validated.  Raises the error of an earlier request.

        ``LogTruncationException``: a log has lost records that were read, and there is no reset policy.
        """
        self._responses.run()
        error, self._validation_error = self._validation_error, None
        if error is not None:
            raise error
        self.validate_positions_on_metadata_change()
        due = self._subscriptions.partitions_needing_validation(self._clock.now_ms())
        if not due:
            return
        lookups = [self._subscriptions.position_lookup(tp) for tp in due]
        for node, of_node in group_by_leader(lookups).items():
            self._validate_at(node, of_node)

    def _validate_at(self, node: Node, lookups: dict[TopicPartition, PositionLookup]) -> None:
        versions = self._client.supported_versions(node)
        if versions is None:
            # Its versions show whether it can validate at all; they come with the connection.
            self._client.try_connect(node)
            return
        if not has_usable_version(versions):
            self._log_event("DEBUG", "position-validation-skipped", node=node, partitions=len(lookups))
            for tp in lookups:
                self._subscriptions.complete_validation(tp)
            return
        self._subscriptions.set_next_allowed_retry(lookups, self._clock.now_ms() + self._config.request_timeout_ms)
        body = self._epoch_client.prepare_request(lookups)
        future = self._client.send(
            node, RequestBuilder(OFFSET_FOR_LEADER_EPOCH, body, version_min=CONSUMER_VERSION_MIN)
        )
        self._responses.when_done(
            future, partial(self._on_validation_response, lookups), partial(self._on_validation_failure, lookups)
        )

    def _on_validation_response(
        self, lookups: Mapping[TopicPartition, PositionLookup], response: ClientResponse
    ) -> None:
        result = self._epoch_client.handle_response(lookups, response.body)
        self._log_events.extend(result.log_events)
        missing = [lookups[tp] for tp in lookups if tp not in result.end_offsets]
        if missing:
            self._subscriptions.request_failed(missing, self._clock.now_ms() + self._config.retry_backoff_ms)
            self._metadata.request_update()
        completed = (
            self._subscriptions.maybe_complete_validation(lookups[tp], end) for tp, end in result.end_offsets.items()
        )
        truncations = [found for found in completed if found is not None]
        if truncations:
            # Asked again soon, so that the error is raised again until the program seeks.
            again = [lookups[found.partition] for found in truncations]
            self._subscriptions.request_failed(again, self._clock.now_ms() + self._config.retry_backoff_ms)
            self._set_validation_error(_truncated(truncations))
        if result.unauthorized_topics:
            self._set_validation_error(_unauthorized(result.unauthorized_topics))

    def _on_validation_failure(self, lookups: Mapping[TopicPartition, PositionLookup], error: Exception) -> None:
        self._subscriptions.request_failed(lookups.values(), self._clock.now_ms() + self._config.retry_backoff_ms)
        self._metadata.request_update()
        if not isinstance(error, RetriableException):
            self._set_validation_error(error)

    def _set_validation_error(self, error: Exception) -> None:
        if self._validation_error is None:
            self._validation_error = error
        else:
            self._log_event("ERROR", "position-validation-error-dropped", reason=repr(error))

    # --- searches ---------------------------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset whose timestamp (ms since 1970) is at or after the given one; None: there is none.

        ``TopicAuthorizationException``, ``TimeoutException``; ``UnsupportedVersionException`` before Kafka 0.10.1.
        """
        found = self._search(timestamps, timer, requires_timestamps=True)
        return {
            tp: OffsetAndTimestamp(row.offset, -1 if row.timestamp is None else row.timestamp, row.leader_epoch)
            if (row := found.get(tp)) is not None
            else None
            for tp in timestamps
        }

    def beginning_offsets(self, partitions: Collection[TopicPartition], timer: Timer) -> dict[TopicPartition, int]:
        """The first offset of each.  ``TopicAuthorizationException``, ``TimeoutException``."""
        found = self._search(dict.fromkeys(partitions, EARLIEST_TIME), timer)
        return {tp: row.offset for tp, row in found.items()}

    def end_offsets(self, partitions: Collection[TopicPartition], timer: Timer) -> dict[TopicPartition, int]:
        """The high watermark of each, or with ``read_committed`` its last stable offset.

        A timer of 0 ms waits for nothing: the result is empty, and the answer later updates the end offset of the
        partition (``SubscriptionState.partition_end_offset``).  ``TopicAuthorizationException``, ``TimeoutException``.
        """
        found = self._search(dict.fromkeys(partitions, LATEST_TIME), timer)
        return {tp: row.offset for tp, row in found.items()}

    def _search(
        self, timestamps: Mapping[TopicPartition, int], timer: Timer, *, requires_timestamps: bool = False
    ) -> dict[TopicPartition, ListOffsetsFound]:
        found: dict[TopicPartition, ListOffsetsFound] = {}
        if not timestamps:
            return found
        self._metadata.add_transient_topics({tp.topic for tp in timestamps})
        try:
            remaining = dict(timestamps)
            while True:
                by_node, to_retry = self._group_by_leader(remaining)
                sent = [
                    (rows, self._send_search(node, rows, requires_timestamps=requires_timestamps))
                    for node, rows in by_node.items()
                ]
                if timer.timeout_ms == 0:
                    self._subscriptions.end_offset_request_failed(to_retry)
                    for rows, future in sent:
                        self._responses.when_done(
                            future, partial(self._on_end_offsets, rows), partial(self._on_search_failure, rows)
                        )
                    return found
                for rows, future in sent:
                    if not self._client.poll_future(future, timer):
                        break
                    result = self._answer(rows, future)
                    found.update(result.fetched_offsets)
                    to_retry |= result.partitions_to_retry
                else:
                    if not to_retry:
                        return found
                    remaining = {tp: timestamps[tp] for tp in timestamps if tp in to_retry}
                    self._client.await_metadata_update(timer)
                if timer.is_expired:
                    raise TimeoutException(f"the offsets of partitions were not found within {timer.elapsed_ms} ms")
        finally:
            self._metadata.clear_transient_topics()

    def _send_search(
        self, node: Node, rows: Mapping[TopicPartition, ListOffsetsTarget], *, requires_timestamps: bool
    ) -> RequestFuture[ClientResponse]:
        request = list_offsets_request(rows, self._config.isolation_level, requires_timestamps=requires_timestamps)
        return self._client.send(node, request)

    def _answer(
        self, rows: Mapping[TopicPartition, ListOffsetsTarget], future: RequestFuture[ClientResponse]
    ) -> ListOffsetsResult:
        """The answer of one leader; all of its partitions are to be retried after a transient failure."""
        if future.failed:
            if isinstance(future.exception, RetriableException):
                return ListOffsetsResult(partitions_to_retry=frozenset(rows))
            raise future.exception
        result = read_list_offsets_response(rows, future.value.body)
        self._log_events.extend(result.log_events)
        if result.unauthorized_topics:
            raise _unauthorized(result.unauthorized_topics)
        self._take_end_offsets(rows, result)
        return result

    def _on_end_offsets(self, rows: Mapping[TopicPartition, ListOffsetsTarget], response: ClientResponse) -> None:
        try:
            result = read_list_offsets_response(rows, response.body)
        except RemoteProtocolError as error:
            self._on_search_failure(rows, error)
            return
        self._log_events.extend(result.log_events)
        self._take_end_offsets(rows, result)
        self._subscriptions.end_offset_request_failed(rows.keys() - result.fetched_offsets.keys())

    def _on_search_failure(self, rows: Mapping[TopicPartition, ListOffsetsTarget], error: Exception) -> None:
        self._subscriptions.end_offset_request_failed(rows)
        self._log_event("WARNING", "end-offset-search-failed", reason=repr(error))

    def _take_end_offsets(self, rows: Mapping[TopicPartition, ListOffsetsTarget], result: ListOffsetsResult) -> None:
        for tp, found in result.fetched_offsets.items():
            if rows[tp].timestamp == LATEST_TIME and self._subscriptions.is_assigned(tp):
                if self._config.isolation_level is IsolationLevel.READ_COMMITTED:
                    self._subscriptions.update_last_stable_offset(tp, found.offset)
                else:
                    self._subscriptions.update_high_watermark(tp, found.offset)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _group_by_leader(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> tuple[dict[Node, dict[TopicPartition, ListOffsetsTarget]], set[TopicPartition]]:
        """The targets by leader, and the partitions whose leader is unknown or unavailable."""
        found: dict[Node, dict[TopicPartition, ListOffsetsTarget]] = {}
        to_retry: set[TopicPartition] = set()
        for tp, timestamp in timestamps.items():
            leader, epoch = self._metadata.current_leader(tp)
            if leader is None:
                self._metadata.request_update()
                to_retry.add(tp)
            elif self._client.is_unavailable(leader):
                # The disconnect has requested an update of the metadata already.
                self._client.maybe_throw_auth_failure(leader)
                to_retry.add(tp)
            else:
                found.setdefault(leader, {})[tp] = ListOffsetsTarget(timestamp, epoch)
        return found, to_retry

    def _log_event(self, level: LogLevel, name: str, **fields: object) -> None:
        self._log_events.append(ClientLogEvent(level, name, tuple((key, str(value)) for key, value in fields.items())))


def _strategy_of(target: ListOffsetsTarget) -> OffsetResetStrategy:
    return OffsetResetStrategy.EARLIEST if target.timestamp == EARLIEST_TIME else OffsetResetStrategy.LATEST


def _unauthorized(topics: Iterable[str]) -> TopicAuthorizationException:
    error = topic_exception_of(dict.fromkeys(topics, TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(error, TopicAuthorizationException), "all topics have this error"
    return error


def _truncated(truncations: list[LogTruncation]) -> LogTruncationException:
    places = ", ".join(
        f"{each.partition} at offset {each.fetch_position.offset}"
        + ("" if each.divergent_offset is None else f" (the log diverges at {each.divergent_offset.offset})")
        for each in truncations
    )
    return LogTruncationException(
        f"the logs of these partitions were truncated below the position: {places}; and auto.offset.reset=none: "
        "set earliest or latest, or seek to the offset where the log diverges",
        {each.partition: each.fetch_position.offset for each in truncations},
        {each.partition: each.divergent_offset for each in truncations if each.divergent_offset is not None},
    )
