"""Checks OffsetCommit, OffsetFetch and OffsetDelete, and passes them to the coordinator or to ZooKeeper.  Pure.

The checks, in this order, with their error codes: may the client use the group (30); may it use each topic (29); does
each topic, and each partition, exist (3).  The valid partitions go to the coordinator; those of version 0 to ZooKeeper.
The response has the order of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bridge.coordinator.api_request import AclOperation, ApiRequest, BrokerServices, ZooKeeperOffset
from bridge.coordinator.consumer_subscriptions import java_length
from bridge.coordinator.group_error_responses import commit_error_response, error_response
from bridge.coordinator.group_responses import commit_response, committed_partitions, missing_offset
from zkconsumer.kafka.error_codes import (
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    ErrorCode,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from zkconsumer.wire.schemas.offset_delete import OffsetDeletePartitionResponse, OffsetDeleteTopicResponse
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)


class OffsetApis:
    """The offset handlers of one broker."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker

    def handle_offset_commit_request(self, call: ApiRequest) -> None:
        """Version 0 is written to ZooKeeper; other versions, for existing topics, go to the coordinator."""
        body = call.body
        denied = self._broker.group_error(call, AclOperation.READ, body.group_id)
        if denied is not NONE:
            call.reply(commit_error_response(body, denied))
            return
        release = self._broker.release
        checks_topics = call.version == 0 or release.checks_topics_of_commits
        checks_partitions = call.version == 0 or release.checks_partitions_of_commits
        errors: dict[TopicPartition, int] = {}
        for topic in body.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                code = self._topic_error(call, tp, AclOperation.READ, checks_topics, checks_partitions)
                length = java_length(partition.committed_metadata or "")
                if code is NONE and call.version == 0 and length > self._broker.offset_metadata_max_chars:
                    code = OFFSET_METADATA_TOO_LARGE
                if code is not NONE:
                    errors[tp] = code.code
        valid_topics = [
            replace(topic, partitions=kept)
            for topic in body.topics
            if (kept := [p for p in topic.partitions if TopicPartition(topic.name, p.partition_index) not in errors])
        ]
        if not valid_topics:
            call.reply(_commit_response(body, errors))
        elif call.version == 0:
            self._commit_in_zookeeper(call, valid_topics, errors)
        elif not errors:
            self._broker.submit_to_coordinator(call, body, call.reply)
        else:

            def reply(answer: Any) -> None:
                codes = {
                    TopicPartition(topic.name, partition.partition_index): partition.error_code
                    for topic in answer.topics
                    for partition in topic.partitions
                }
                call.reply(_commit_response(body, errors | codes))

            self._broker.submit_to_coordinator(call, replace(body, topics=valid_topics), reply)

    def _commit_in_zookeeper(self, call: ApiRequest, topics: list[Any], errors: dict[TopicPartition, int]) -> None:
        store = self._broker.legacy_offset_store
        if store is None:
            call.reply(commit_error_response(call.body, UNSUPPORTED_VERSION))
            return
        offsets = {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in topics
            for partition in topic.partitions
        }
        store.commit(call.body.group_id, offsets, lambda codes: call.reply(_commit_response(call.body, errors | codes)))

    def handle_offset_fetch_request(self, call: ApiRequest) -> None:
        """Version 0 reads ZooKeeper; other versions go to the coordinator."""
        if call.version == 0:
            self._fetch_from_zookeeper(call)
            return
        body = call.body
        names = [group.group_id for group in body.groups] or [body.group_id]
        errors = {name: self._broker.group_error(call, AclOperation.DESCRIBE, name) for name in names}
        denied = {name: error for name, error in errors.items() if error is not NONE}
        allowed = [group for group in body.groups if group.group_id not in denied]
        if denied and not allowed:
            answer = error_response(call.api, call.version, body, denied[names[0]])
            for group in answer.groups:
                group.error_code = denied[group.group_id].code
            call.reply(answer)
            return

        def reply(answer: Any) -> None:
            for part in [answer, *answer.groups]:
                part.topics = [self._hide_partitions(call, topic) for topic in part.topics]
            found = {group.group_id: group for group in answer.groups}
            for name, error in denied.items():
                found[name] = OffsetFetchGroupResponse(group_id=name, topics=[], error_code=error.code)
            answer.groups = [found[name] for name in dict.fromkeys(names) if name in found]
            call.reply(answer)

        self._broker.submit_to_coordinator(call, replace(body, groups=allowed) if denied else body, reply)

    def _hide_partitions(self, call: ApiRequest, topic: OffsetFetchTopicResponse) -> OffsetFetchTopicResponse:
        """Removes the offsets of a topic that the client may not describe, and of partitions with an error."""
        denied = self._broker.topic_error(call, AclOperation.DESCRIBE, topic.name)
        count = self._broker.partition_count(topic.name) or 0
        has_limit = self._broker.release.checks_partitions_of_fetches
        rows = []
        for row in topic.partitions:
            error = call.injected.partitions.get(TopicPartition(topic.name, row.partition_index), denied)
            if error is NONE and has_limit and not 0 <= row.partition_index < count:
                error = UNKNOWN_TOPIC_OR_PARTITION
            rows.append(row if error is NONE else missing_offset(row.partition_index, error.code))
        return OffsetFetchTopicResponse(name=topic.name, partitions=rows)

    def _fetch_from_zookeeper(self, call: ApiRequest) -> None:
        body = call.body
        store = self._broker.legacy_offset_store
        denied = self._broker.group_error(call, AclOperation.DESCRIBE, body.group_id)
        if denied is not NONE:
            call.reply(error_response(call.api, call.version, body, denied))
            return
        if store is None:
            call.reply(error_response(call.api, call.version, body, UNSUPPORTED_VERSION))
            return
        asked = [TopicPartition(topic.name, index) for topic in body.topics for index in topic.partition_indexes]
        errors = {tp: self._topic_error(call, tp, AclOperation.DESCRIBE) for tp in asked}

        def answered(tp: TopicPartition, found: ZooKeeperOffset) -> OffsetFetchPartitionResponse:
            if errors[tp] is not NONE:
                found = errors[tp]
            elif found is None:
                found = UNKNOWN_TOPIC_OR_PARTITION
            offset, code = (-1, found) if isinstance(found, ErrorCode) else (found, NONE)
            return OffsetFetchPartitionResponse(
                partition_index=tp.partition, committed_offset=offset, error_code=code.code
            )

        def reply(offsets: dict[TopicPartition, ZooKeeperOffset]) -> None:
            topics = [
                OffsetFetchTopicResponse(
                    name=topic.name,
                    partitions=[
                        answered(TopicPartition(topic.name, index), offsets.get(TopicPartition(topic.name, index)))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in body.topics
            ]
            call.reply(OffsetFetchResponse(topics=topics))

        store.fetch(body.group_id, [tp for tp in asked if errors[tp] is NONE], reply)

    def handle_offset_delete_request(self, call: ApiRequest) -> None:
        """Delete the offsets of existing topics that the client may read; the response has an error for the others."""
        body = call.body
        denied = self._broker.group_error(call, AclOperation.DELETE, body.group_id)
        if denied is not NONE:
            call.reply(error_response(call.api, call.version, body, denied))
            return
        errors: list[OffsetDeleteTopicResponse] = []
        valid_topics = []
        for topic in body.topics:
            kept, partition_errors = [], []
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                code = self._topic_error(call, tp, AclOperation.READ)
                if code is NONE:
                    kept.append(partition)
                else:
                    partition_errors.append(
                        OffsetDeletePartitionResponse(partition_index=tp.partition, error_code=code.code)
                    )
            if kept:
                valid_topics.append(replace(topic, partitions=kept))
            if partition_errors:
                errors.append(OffsetDeleteTopicResponse(name=topic.name, partitions=partition_errors))

        def reply(answer: Any) -> None:
            if not answer.error_code:
                answer.topics = [*answer.topics, *errors]
            call.reply(answer)

        self._broker.submit_to_coordinator(call, replace(body, topics=valid_topics), reply)

    def _topic_error(
        self,
        call: ApiRequest,
        tp: TopicPartition,
        operation: AclOperation,
        checks_topic: bool = True,
        checks_partition: bool = True,
    ) -> ErrorCode:
        error = call.injected.partitions.get(tp) or self._broker.topic_error(call, operation, tp.topic)
        if error is not NONE:
            return error
        partitions = self._broker.partition_count(tp.topic)
        if partitions is None:
            return UNKNOWN_TOPIC_OR_PARTITION if checks_topic else NONE
        return UNKNOWN_TOPIC_OR_PARTITION if checks_partition and not 0 <= tp.partition < partitions else NONE


def _commit_response(body: OffsetCommitRequest, codes: Mapping[TopicPartition, int]) -> OffsetCommitResponse:
    """The answer in the order of the request."""
    return commit_response(committed_partitions(body), NONE.code, codes)
