"""``Metadata``: when the metadata is updated, what an update changes, and its errors, as ``org.apache.kafka.clients``.

Pure.  The network machine asks ``time_to_next_update`` before each poll; when it is 0, it sends the request of
``new_metadata_request_and_version`` (one at a time).  Then exactly one of these follows:

    update(...)           the response arrived
    failed_update(now)    there is no usable response; the next request waits for retry.backoff.ms
    fatal_error(error)    in addition to failed_update, if repeating the request is of no use

No request is repeated here: an update stays due (``update_requested``, or metadata.max.age.ms is over) until a response
arrives.  If the response is lost, ``failed_update`` is called when the connection ends or the request times out.

*Full and partial updates.*  A full update replaces the topics; a partial one is about new topics only and is merged.
``request_version`` counts the calls of ``request_update_for_new_topics``; a response whose request was made before the
last call leaves the partial update due, because it cannot contain the newest topics.

*Leader epochs.*  The largest epoch of each partition is kept (``_last_seen_leader_epochs``), from Metadata and from
other responses (``update_last_seen_epoch_if_newer``).  Metadata with a smaller epoch is older and is ignored.  While
Metadata is behind an epoch from another response, ``current_leader`` has the epoch and no leader.

*Errors* about topics are kept until the program's thread takes them (``maybe_throw_any_exception``), or until the next
response, which shows whether they still hold.

Invariants: ``_last_seen_leader_epochs`` and ``_last_seen_topic_ids`` have only retained topics;
``_last_refresh_ms`` >= ``_last_successful_refresh_ms`` unless an update for new topics has cleared the former.

Differences from Java:

- The caller serialises all calls (Java's class is synchronized).  ``update_version``, ``update_requested`` and
  ``fetch`` may be read by any thread at any time, in this order: then no state of the cache is older than its version.
- "Not refreshed yet" is None; Java uses the time 0, so its first update would wait on a clock that begins at 0.
- A leader epoch may go back only if the id of the topic differs from the last known one.  Java compares with the id in
  the cache, so it accepts an old epoch of the same topic after one response without that topic.  And when the id
  changes, Java keeps the epochs of partitions that the new topic does not have yet, and later ignores them.
- A ``ClusterResourceListener`` that raises is logged; in Java the exception reaches the network client.
- The ids of topics that are not retained are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkconsumer.errors import UsageError
from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.metadata.cluster import Cluster, ClusterResourceListener
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.kafka.metadata.metadata_cache import EMPTY_METADATA_CACHE, MetadataCache
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.kafka.metadata.metadata_responses import (
    PartitionMetadata,
    has_reliable_leader_epochs,
    is_internal_topic,
    named_topics,
    nodes_of,
    partition_metadata,
)
from zkconsumer.kafka.topic_errors import topic_exception_of
from zkconsumer.types import TopicPartition
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.schemas.metadata import MetadataResponse, MetadataTopic


@dataclass(frozen=True, slots=True)
class MetadataRequestAndVersion:
    """A request and what ``Metadata.update`` must be called with for its response."""

    request_builder: MetadataRequestBuilder
    request_version: int
    is_partial_update: bool


class Metadata:
    """The metadata of all topics; a subclass decides which topics are requested and retained.

    ``refresh_backoff_ms``: retry.backoff.ms.  ``metadata_expire_ms``: metadata.max.age.ms.  Times are ms of a monotonic
    clock.
    """

    def __init__(
        self, refresh_backoff_ms: int, metadata_expire_ms: int, listeners: Sequence[ClusterResourceListener] = ()
    ) -> None:
        self.metadata_expire_ms = metadata_expire_ms
        self._refresh_backoff_ms = refresh_backoff_ms
        self._listeners = tuple(listeners)
        self._cache = EMPTY_METADATA_CACHE
        self.update_version = 0
        """The number of responses and bootstraps so far; a caller that waits for an update compares it."""
        self._request_version = 0
        self._need_full_update = False
        """A full update was requested since the last response to one."""
        self._need_partial_update = False
        """New topics were added since the request of the last response was made."""
        self._last_refresh_ms: int | None = None
        """When the last request ended, with a response or without; None: the next may be sent at once."""
        self._last_successful_refresh_ms: int | None = None
        """When the last response to a full request arrived."""
        self._last_seen_leader_epochs: dict[TopicPartition, int] = {}
        self._last_seen_topic_ids: dict[str, bytes] = {}
        self._topic_errors: dict[str, ErrorCode] = {}
        """The invalid and the unauthorized topics of the last response that were not raised yet."""
        self._fatal_error: Exception | None = None
        self._is_closed = False

    # --- reading --------------------------------------------------------------------------------------------------

    def fetch(self) -> Cluster:
        """The cluster as last known."""
        return self._cache.cluster

    @property
    def update_requested(self) -> bool:
        """Whether an update was requested that has not happened yet."""
        return self._need_full_update or self._need_partial_update

    @property
    def last_successful_update_ms(self) -> int | None:
        """When the last response to a full request arrived; None: never."""
        return self._last_successful_refresh_ms

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, 16 bytes; None if it is not known."""
        return self._cache.topic_id(topic)

    def last_seen_leader_epoch(self, tp: TopicPartition) -> int | None:
        """The largest leader epoch of a partition in any response; None: none, or the topic is not retained."""
        return self._last_seen_leader_epochs.get(tp)

    def partition_metadata_if_current(self, tp: TopicPartition) -> PartitionMetadata | None:
        """The metadata of a partition, unless another response has shown a newer leader epoch."""
        metadata = self._cache.partition_metadata(tp)
        epoch = self._last_seen_leader_epochs.get(tp)
        return metadata if metadata is None or epoch is None or metadata.leader_epoch == epoch else None

    def current_leader(self, tp: TopicPartition) -> LeaderAndEpoch:
        """The leader of a partition; without a node while its metadata is behind the newest epoch."""
        metadata = self.partition_metadata_if_current(tp)
        if metadata is None:
            return LeaderAndEpoch(None, self._last_seen_leader_epochs.get(tp))
        leader = None if metadata.leader_id is None else self._cache.node_by_id(metadata.leader_id)
        return LeaderAndEpoch(leader, metadata.leader_epoch)

    # --- when to update ---------------------------------------------------------------------------------------------

    def time_to_allow_update(self, now_ms: int) -> int:
        """The ms until retry.backoff.ms has passed since the last request ended."""
        return 0 if self._last_refresh_ms is None else max(self._last_refresh_ms + self._refresh_backoff_ms - now_ms, 0)

    def time_to_next_update(self, now_ms: int) -> int:
        """The ms until the next request should be sent; 0: now."""
        return max(self.time_to_allow_update(now_ms), 0 if self.update_requested else self._time_to_expire(now_ms))

    def _time_to_expire(self, now_ms: int) -> int:
        if self._last_successful_refresh_ms is None:
            return 0
        return max(self._last_successful_refresh_ms + self.metadata_expire_ms - now_ms, 0)

    def request_update(self) -> int:
        """Request a full update; returns the update version, which the update increases."""
        self._need_full_update = True
        return self.update_version

    def request_update_for_new_topics(self) -> int:
        """Request an update because topics were added, without waiting for retry.backoff.ms."""
        self._last_refresh_ms = None
        self._need_partial_update = True
        self._request_version += 1
        return self.update_version

    def update_last_seen_epoch_if_newer(self, tp: TopicPartition, leader_epoch: int) -> bool:
        """Take the leader epoch from a response other than Metadata; if it is newer, request an update.

        Returns whether it is newer.  A partition without a known epoch keeps none: either the brokers have no reliable
        epochs, or the topic is not retained.  ``ValueError`` if the epoch is negative.
        """
        if leader_epoch < 0:
            raise ValueError(f"a leader epoch is not negative: {leader_epoch}")
        old_epoch = self._last_seen_leader_epochs.get(tp)
        if old_epoch is None or leader_epoch <= old_epoch:
            return False
        self._last_seen_leader_epochs[tp] = leader_epoch
        self._need_full_update = True
        return True

    # --- requests and responses -------------------------------------------------------------------------------------

    def bootstrap(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Begin with these brokers (host, port), and request an update."""
        self._need_full_update = True
        self.update_version += 1
        self._cache = MetadataCache.bootstrap(addresses)

    def new_metadata_request_and_version(self, now_ms: int) -> MetadataRequestAndVersion:
        """The next request: a partial one if only new topics are missing and the subclass supports it."""
        if not self._need_full_update and self._time_to_expire(now_ms) > 0:
            builder = self.new_metadata_request_builder_for_new_topics()
            if builder is not None:
                return MetadataRequestAndVersion(builder, self._request_version, True)
        return MetadataRequestAndVersion(self.new_metadata_request_builder(), self._request_version, False)

    def new_metadata_request_builder(self) -> MetadataRequestBuilder:
        """The request of a full update."""
        return MetadataRequestBuilder.all_topics()

    def new_metadata_request_builder_for_new_topics(self) -> MetadataRequestBuilder | None:
        """The request of a partial update; None: this class has no partial updates."""
        return None

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        """Whether the metadata of a topic is kept."""
        return True

    def update(
        self, request_version: int, response: MetadataResponse, version: int, is_partial_update: bool, now_ms: int
    ) -> list[ClientLogEvent]:
        """Take a response; returns what to log.

        ``request_version`` and ``is_partial_update`` are those of the request (``MetadataRequestAndVersion``),
        ``version`` is the version of the API in which it was sent.  ``UsageError`` after ``close``.
        """
        if self._is_closed:
            raise UsageError("the metadata was closed: no update is possible")
        assert request_version <= self._request_version, "the response to a request that was made here"
        self._last_refresh_ms = now_ms
        previous = self._cache
        is_stale, cache, log = self._handle_metadata_response(response, version, is_partial_update, now_ms)
        # In this order, for readers in other threads: the new cache, then that it is complete, then its number.
        self._cache = cache
        self._need_partial_update = request_version < self._request_version
        if is_stale:
            self._need_full_update = True
        elif not is_partial_update:
            self._need_full_update = False
        if not is_partial_update:
            self._last_successful_refresh_ms = now_ms
        self.update_version += 1
        log += self._set_topic_errors()
        self._forget_topics(now_ms)
        if self._cache.cluster_id != previous.cluster_id:
            log.append(ClientLogEvent("INFO", "cluster-id-changed", (("cluster_id", self._cache.cluster_id),)))
        return log + self._call_listeners()

    def failed_update(self, now_ms: int) -> None:
        """A request ended without a usable response; the next waits for retry.backoff.ms."""
        self._last_refresh_ms = now_ms

    def close(self) -> None:
        """Refuse further updates."""
        self._is_closed = True

    # --- errors -----------------------------------------------------------------------------------------------------

    def fatal_error(self, error: Exception) -> None:
        """No metadata can be read (failed authentication, unsupported version); the program's thread raises this."""
        self._fatal_error = error

    def maybe_throw_any_exception(self) -> None:
        """Raise the fatal error, or the error of any topic; each is raised once.

        ``TopicAuthorizationException`` takes precedence over ``InvalidTopicException``.
        """
        self._clear_errors_and_maybe_throw(dict(self._topic_errors))

    def maybe_throw_exception_for_topic(self, topic: str) -> None:
        """Raise the fatal error, or the error of this topic; all errors are cleared."""
        error = self._topic_errors.get(topic)
        self._clear_errors_and_maybe_throw({} if error is None else {topic: error})

    def maybe_throw_fatal_exception(self) -> None:
        """Raise the fatal error; the errors of topics are kept."""
        error, self._fatal_error = self._fatal_error, None
        if error is not None:
            raise error

    def _clear_errors_and_maybe_throw(self, topic_errors: dict[str, ErrorCode]) -> None:
        self._topic_errors = {}
        self.maybe_throw_fatal_exception()
        if topic_errors:
            raise topic_exception_of(topic_errors)

    def _set_topic_errors(self) -> list[ClientLogEvent]:
        """Replace the errors of topics by those of the cache, also those that a partial update has kept."""
        denied, invalid = self._cache.unauthorized_topics, self._cache.invalid_topics
        self._topic_errors = {
            **dict.fromkeys(invalid, INVALID_TOPIC_EXCEPTION),
            **dict.fromkeys(denied, TOPIC_AUTHORIZATION_FAILED),
        }
        log = []
        if invalid:
            log.append(ClientLogEvent("ERROR", "topics-invalid", (("topics", ",".join(sorted(invalid))),)))
        if denied:
            log.append(ClientLogEvent("ERROR", "topics-unauthorized", (("topics", ",".join(sorted(denied))),)))
        return log

    # --- one response -----------------------------------------------------------------------------------------------

    def _handle_metadata_response(
        self, response: MetadataResponse, version: int, is_partial_update: bool, now_ms: int
    ) -> tuple[bool, MetadataCache, list[ClientLogEvent]]:
        """Whether the metadata of a topic is stale, so that another update is needed; the new cache; what to log."""
        retained = [
            (name, topic, is_internal_topic(name, topic, version))
            for name, topic in named_topics(response)
            if self.retain_topic(name, is_internal_topic(name, topic, version), now_ms)
        ]
        partitions: list[PartitionMetadata] = []
        log: list[ClientLogEvent] = []
        errors = {name: error_code(topic.error_code) for name, topic, _ in retained}
        for name, topic, _ in retained:
            if errors[name] == NONE:
                log += self._take_topic_id(name, topic)
                partitions += self._latest_metadata(name, topic, has_reliable_leader_epochs(version))
        is_stale = any(error.is_stale_metadata for error in errors.values()) or any(
            error_code(row.error_code).is_stale_metadata
            for name, topic, _ in retained
            if errors[name] == NONE
            for row in topic.partitions
        )
        nodes = nodes_of(response)
        update = MetadataCache.of(
            response.cluster_id,
            nodes,
            partitions,
            unauthorized_topics=(name for name, error in errors.items() if error == TOPIC_AUTHORIZATION_FAILED),
            invalid_topics=(name for name, error in errors.items() if error == INVALID_TOPIC_EXCEPTION),
            internal_topics=(name for name, _, is_internal in retained if is_internal),
            controller=nodes.get(response.controller_id),
            topic_ids={name: topic.topic_id for name, topic, _ in retained if topic.topic_id != NO_UUID},
        )
        if not is_partial_update:
            return is_stale, update, log
        answered = {name for name, _ in named_topics(response)}
        merged = self._cache.merge_with(
            update,
            lambda topic, is_internal: topic not in answered and self.retain_topic(topic, is_internal, now_ms),
        )
        return is_stale, merged, log

    def _take_topic_id(self, name: str, topic: MetadataTopic) -> list[ClientLogEvent]:
        """If the id of a topic differs from the last known one, forget the leader epochs of the old topic."""
        last_id = self._last_seen_topic_ids.get(name)
        if topic.topic_id in (NO_UUID, last_id):
            return []
        self._last_seen_topic_ids[name] = topic.topic_id
        if last_id is None:
            for row in topic.partitions:
                self._last_seen_leader_epochs.pop(TopicPartition(name, row.partition_index), None)
            return []
        # All of them, also those of partitions that the new topic has not yet.
        self._last_seen_leader_epochs = {
            tp: epoch for tp, epoch in self._last_seen_leader_epochs.items() if tp.topic != name
        }
        fields = (("topic", name), ("old_id", last_id.hex()), ("new_id", topic.topic_id.hex()))
        return [ClientLogEvent("INFO", "topic-id-changed", fields)]

    def _latest_metadata(self, name: str, topic: MetadataTopic, has_reliable_epochs: bool) -> list[PartitionMetadata]:
        """The newest metadata of each partition: of the response, or of the cache if its epoch is larger."""
        found = []
        for row in topic.partitions:
            metadata = partition_metadata(name, row)
            tp = metadata.topic_partition
            # A partition with an error is taken, too: it may have a new epoch.
            if not has_reliable_epochs or metadata.leader_epoch is None:
                self._last_seen_leader_epochs.pop(tp, None)
                found.append(metadata.without_leader_epoch())
            elif metadata.leader_epoch >= self._last_seen_leader_epochs.get(tp, 0):
                self._last_seen_leader_epochs[tp] = metadata.leader_epoch
                found.append(metadata)
            elif (cached := self._cache.partition_metadata(tp)) is not None:
                found.append(cached)
        return found

    def _forget_topics(self, now_ms: int) -> None:
        """Remove what is kept of topics that are not retained any more."""
        topics = {tp.topic for tp in self._last_seen_leader_epochs} | self._last_seen_topic_ids.keys()
        gone = {topic for topic in topics if not self.retain_topic(topic, False, now_ms)}
        if gone:
            epochs = self._last_seen_leader_epochs
            self._last_seen_leader_epochs = {tp: epoch for tp, epoch in epochs.items() if tp.topic not in gone}
            ids = self._last_seen_topic_ids
            self._last_seen_topic_ids = {topic: topic_id for topic, topic_id in ids.items() if topic not in gone}

    def _call_listeners(self) -> list[ClientLogEvent]:
        log = []
        for listener in self._listeners:
            try:
                listener.on_update(self._cache.cluster_resource)
            except Exception as error:  # noqa: BLE001 (a callback of the program ends here)
                fields = (("listener", type(listener).__name__), ("reason", repr(repr(error))))
                log.append(ClientLogEvent("ERROR", "cluster-resource-listener-failed", fields))
        return log
