"""OffsetCommit and OffsetFetch.  Pure.

A commit with a generation must come from a member of it.  One without (-1, from a client that is no member) is accepted
only while the group has no members.  A fetch needs no membership.  Version 0 of both uses ZooKeeper, not this module.
"""

from __future__ import annotations

from bridge.coordinator.consumer_subscriptions import java_length
from bridge.coordinator.continuations import AnswerCommit
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import RequestReceived
from bridge.coordinator.group_metadata import COMPLETING_REBALANCE, DEAD, EMPTY, GroupMetadata
from bridge.coordinator.group_rebalance import GroupRebalance
from bridge.coordinator.group_responses import (
    commit_response,
    committed_partitions,
    missing_offset,
    missing_topic_offsets,
)
from bridge.coordinator.member_metadata import DelayedRequest
from bridge.coordinator.records import StoredOffsetValue
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.wire.schemas.offset_commit import BROKER_RETENTION, OffsetCommitPartition, OffsetCommitRequest
from zkconsumer.wire.schemas.offset_fetch import (
    BATCHED_FROM,
    GROUP_ERROR_FROM,
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)

NO_TIMESTAMP = -1
COMMIT_GROUP_ID_NOT_FOUND_FROM = 9
"""The version of OffsetCommit from which new coordinators report that the group does not exist (KIP-848)."""


class OffsetRequests(GroupRebalance):
    """OffsetCommit, OffsetFetch."""

    # --- OffsetCommit ------------------------------------------------------------------------------------------------

    def handle_commit_offsets(self, request: RequestReceived) -> None:
        """Write offsets; the answer comes when the log has them."""
        body: OffsetCommitRequest = request.body
        parked = DelayedRequest(request.token, request.version)
        asked = committed_partitions(body)
        refused: int = self.validate_group_status(body.group_id, OFFSET_COMMIT.key)
        group = None
        if refused == Errors.NONE:
            group = self.get_group(body.group_id)
            refused = self._validate_offset_commit(group, body, request.version)
        if refused != Errors.NONE:
            self.reply(parked, commit_response(asked, refused))
            return
        if group is None:
            group = self.manager.get_group(body.group_id) or self.manager.add_group(body.group_id)
        elif group.has(body.member_id):
            self.complete_and_schedule_next_heartbeat_expiration(group, group.get(body.member_id))
        self._store_offsets(group, body, asked, parked)

    def _validate_offset_commit(self, group: GroupMetadata | None, body: OffsetCommitRequest, version: int) -> int:
        generation_id = body.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return Errors.NONE
            if version >= COMMIT_GROUP_ID_NOT_FOUND_FROM:
                return self.behaviour.unknown_group_commit_error
            return Errors.ILLEGAL_GENERATION
        if group.is_(DEAD):
            return self.behaviour.dead_group_error
        if generation_id < 0 and group.is_(EMPTY):
            return Errors.NONE
        if self.behaviour.commit_checks_state_first and group.is_(COMPLETING_REBALANCE):
            return Errors.REBALANCE_IN_PROGRESS
        refused = self.validate_current_member(group, body.member_id, body.group_instance_id, operation="offset-commit")
        if refused is not Errors.NONE:
            return refused
        if generation_id != group.generation_id:
            return Errors.ILLEGAL_GENERATION
        return Errors.REBALANCE_IN_PROGRESS if group.is_(COMPLETING_REBALANCE) else Errors.NONE

    def _store_offsets(
        self,
        group: GroupMetadata,
        body: OffsetCommitRequest,
        asked: tuple[tuple[str, tuple[int, ...]], ...],
        parked: DelayedRequest,
    ) -> None:
        offsets: dict[TopicPartition, StoredOffsetValue] = {}
        too_large: set[TopicPartition] = set()
        for topic in body.topics:
            for row in topic.partitions:
                at = TopicPartition(topic.name, row.partition_index)
                if java_length(row.committed_metadata or "") > self.config.offset_metadata_max_chars:
                    too_large.add(at)
                else:
                    offsets[at] = self._offset_and_metadata(row, body.retention_time_ms)
        partition_errors = dict.fromkeys(too_large, Errors.OFFSET_METADATA_TOO_LARGE)
        if offsets:
            then = AnswerCommit(parked, asked, frozenset(too_large), body.member_id)
            self.manager.store_offsets(group, offsets, then)
        else:
            self.reply(parked, commit_response(asked, Errors.NONE, dict(partition_errors)))

    def _offset_and_metadata(self, row: OffsetCommitPartition, retention_time_ms: int) -> StoredOffsetValue:
        given_ms = None if row.commit_timestamp == NO_TIMESTAMP else row.commit_timestamp
        if self.behaviour.always_writes_expiry:
            retention_ms = retention_time_ms
            if retention_time_ms == BROKER_RETENTION:
                retention_ms = self.config.offsets_retention_ms
            committed_ms = self.now_ms
            expires_ms: int | None = _within_int64((self.now_ms if given_ms is None else given_ms) + retention_ms)
        else:
            committed_ms = self.now_ms if given_ms is None else given_ms
            is_default = retention_time_ms == BROKER_RETENTION
            expires_ms = None if is_default else _within_int64(self.now_ms + retention_time_ms)
        return StoredOffsetValue(
            offset=row.committed_offset,
            leader_epoch=row.committed_leader_epoch,
            metadata=row.committed_metadata or "",
            commit_timestamp=committed_ms,
            expire_timestamp=expires_ms,
        )

    def on_offsets_stored(self, stored: AnswerCommit, error: int) -> None:
        """The offsets are in the log, or could not be written: answer the client."""
        partition_errors = dict.fromkeys(stored.too_large, int(Errors.OFFSET_METADATA_TOO_LARGE))
        self.reply(stored.delayed_request, commit_response(stored.topics, error, partition_errors))

    # --- OffsetFetch -------------------------------------------------------------------------------------------------

    def handle_fetch_offsets(self, request: RequestReceived) -> None:
        """Return the stored offsets; of several groups from version 8 on."""
        body: OffsetFetchRequest = request.body
        if request.version >= BATCHED_FROM:
            groups = [self._fetch(asked, body.require_stable) for asked in _without_duplicates(body.groups)]
            answer = OffsetFetchResponse(groups=groups)
        else:
            [asked] = _without_duplicates([OffsetFetchGroup(group_id=body.group_id, topics=body.topics)])
            found = self._fetch(asked, body.require_stable)
            if request.version >= GROUP_ERROR_FROM or not found.error_code:
                answer = OffsetFetchResponse(topics=found.topics, error_code=found.error_code)
            else:
                answer = OffsetFetchResponse(topics=_empty_topics(body.topics or [], found.error_code))
        self.reply(DelayedRequest(request.token, request.version), answer)

    def _fetch(self, asked: OffsetFetchGroup, require_stable: bool) -> OffsetFetchGroupResponse:
        refused = self.validate_group_status(asked.group_id, OFFSET_FETCH.key)
        if refused is not Errors.NONE:
            return OffsetFetchGroupResponse(group_id=asked.group_id, topics=[], error_code=refused)
        # Not get_group: offsets are returned whether their group counts as existing or not.
        group = self.manager.get_group(asked.group_id)
        topics = asked.topics
        if group is None or group.is_(DEAD):
            rows = _empty_topics(topics or [], Errors.NONE)
        else:
            wanted = _all_topics(group) if topics is None else topics
            rows = [_fetch_topic(group, topic, require_stable) for topic in wanted]
        return OffsetFetchGroupResponse(group_id=asked.group_id, topics=rows)


def _without_duplicates(groups: list[OffsetFetchGroup]) -> list[OffsetFetchGroup]:
    """The same request with each partition, topic and group once: otherwise a short request may have a very long
    answer.

    Kafka does the same: it builds the answer from a map of partitions (until 4.0), and from one of groups (until 3.4).
    Its map of groups loses the first entry of a group; here that entry is answered as well.
    """
    wanted: dict[str, dict[str, dict[int, None]] | None] = {}
    for asked in groups:
        topics = wanted.setdefault(asked.group_id, {})
        if topics is None or asked.topics is None:
            wanted[asked.group_id] = None
            continue
        for topic in asked.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [
        OffsetFetchGroup(
            group_id=group_id,
            topics=None
            if topics is None
            else [OffsetFetchTopic(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()],
        )
        for group_id, topics in wanted.items()
    ]


def _all_topics(group: GroupMetadata) -> list[OffsetFetchTopic]:
    known: dict[str, list[int]] = {}
    for topic, partition in sorted(group.stored.offsets):
        known.setdefault(topic, []).append(partition)
    return [OffsetFetchTopic(name=topic, partition_indexes=indexes) for topic, indexes in known.items()]


def _fetch_topic(group: GroupMetadata, topic: OffsetFetchTopic, require_stable: bool) -> OffsetFetchTopicResponse:
    rows = [
        _fetch_partition(group, TopicPartition(topic.name, index), require_stable) for index in topic.partition_indexes
    ]
    return OffsetFetchTopicResponse(name=topic.name, partitions=rows)


def _fetch_partition(group: GroupMetadata, at: TopicPartition, require_stable: bool) -> OffsetFetchPartitionResponse:
    if require_stable and (at in group.pending_offset_commits or group.stored.has_pending_transactional(at)):
        return missing_offset(at.partition, Errors.UNSTABLE_OFFSET_COMMIT)
    commit = group.stored.offsets.get(at)
    if commit is None:
        return missing_offset(at.partition, Errors.NONE)
    return OffsetFetchPartitionResponse(
        partition_index=at.partition,
        committed_offset=commit.value.offset,
        committed_leader_epoch=commit.value.leader_epoch,
        metadata=commit.value.metadata,
    )


def _empty_topics(topics: list[OffsetFetchTopic], error: int) -> list[OffsetFetchTopicResponse]:
    return [missing_topic_offsets(topic.name, topic.partition_indexes, error) for topic in topics]


def _within_int64(time_ms: int) -> int:
    """The sum of a client's numbers may exceed 64 bits; the maximum is late enough."""
    return max(-(2**63), min(time_ms, 2**63 - 1))
