"""What a broker does with each request: one table, API -> handler.  Pure.

    Call --> KafkaApis.handlers[api key] --+--> a handler of the broker (logs, topics, metadata)
                                           '--> rights (30), topics (29, 3), version 0 (ZooKeeper) --> GroupCoordinator

Kafka's ``KafkaApis`` (0.8 and later).  What the coordinator's machine must not know is decided here, in this order:
whether the asker may use the group, whether it may use each topic, whether each topic is there.  Then the machine has
its own gates (``GroupCoordinator``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, TypeAlias

from bridge.coordinator.group_refusals import commit_refused, refused
from bridge.coordinator.partitioning import partition_for
from zkconsumer.kafka.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
    ErrorCode,
)
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.delete_groups import DeletedGroup
from zkconsumer.wire.schemas.find_coordinator import BATCHED_FROM, KEY_IS_GROUP, Coordinator, FindCoordinatorResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from zkconsumer.wire.schemas.offset_delete import OffsetDeletePartitionResponse, OffsetDeleteTopicResponse
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchPartitionResponse,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)

Reply: TypeAlias = Callable[[Any], None]
Handler: TypeAlias = Callable[["Call"], None]

KEY_IS_TRANSACTIONAL_ID = 1
NO_TRANSACTIONS = "this development broker has no transactions"


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and where its answer goes: ``reply`` is called once, now or later, with a response of its API."""

    api: Api[Any, Any]
    version: int
    body: Any
    client_id: str
    client_host: str
    principal: str
    listener: str
    reply: Reply


class Operation(Enum):
    """What somebody wants to do with a group or a topic."""

    READ = "Read"
    WRITE = "Write"
    DESCRIBE = "Describe"
    DELETE = "Delete"
    CREATE = "Create"


class Authorizer(Protocol):
    """Who may do what."""

    def __call__(self, principal: str, operation: Operation, resource: str, name: str) -> bool:
        """``resource`` is ``group`` or ``topic``."""


class OffsetsInZooKeeper(Protocol):
    """The store of OffsetCommit and OffsetFetch v0: ``/consumers/G/offsets/T/P``, decimal text."""

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        """Write; ``done`` is given an error code for each."""

    def fetch(
        self, group: str, partitions: Iterable[TopicPartition], done: Callable[[dict[TopicPartition, int | None]], None]
    ) -> None:
        """Read; ``done`` is given an offset for each, None where there is none."""


class Broker(Protocol):
    """What is asked of the broker around the coordinator."""

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions a topic has; None: there is none of this name."""

    def offsets_partitions(self) -> int | None:
        """How many partitions ``__consumer_offsets`` has; None: it is being made now."""

    def coordinator_of(self, partition: int, listener: str) -> BrokerAddress | None:
        """Who leads a partition of ``__consumer_offsets``, where a client of this listener reaches it."""

    def ask_coordinator(self, call: Call, body: Any, reply: Reply) -> None:
        """Give a request to this broker's ``GroupCoordinator``."""

    @property
    def offsets_in_zookeeper(self) -> OffsetsInZooKeeper | None:
        """None: there is no ZooKeeper."""

    @property
    def checks_partitions_of_commits(self) -> bool:
        """See ``Behaviour``."""


class KafkaApis:
    """One broker's.  ``handlers``: API key → what answers it; ``others`` are those that no group is concerned with."""

    def __init__(self, broker: Broker, may: Authorizer, others: Mapping[int, Handler]) -> None:
        self._broker = broker
        self._may = may
        self.handlers: dict[int, Handler] = {
            **others,
            FIND_COORDINATOR.key: self.handle_find_coordinator_request,
            JOIN_GROUP.key: self.handle_group_member_request,
            SYNC_GROUP.key: self.handle_group_member_request,
            HEARTBEAT.key: self.handle_group_member_request,
            LEAVE_GROUP.key: self.handle_group_member_request,
            DESCRIBE_GROUPS.key: self.handle_describe_groups_request,
            LIST_GROUPS.key: self.handle_list_groups_request,
            DELETE_GROUPS.key: self.handle_delete_groups_request,
            OFFSET_COMMIT.key: self.handle_offset_commit_request,
            OFFSET_FETCH.key: self.handle_offset_fetch_request,
            OFFSET_DELETE.key: self.handle_offset_delete_request,
        }

    def handle(self, call: Call) -> None:
        """Answer a request of an API that this broker's release has, now or later."""
        self.handlers[call.api.key](call)

    # --- who coordinates ----------------------------------------------------------------------------------------

    def handle_find_coordinator_request(self, call: Call) -> None:
        """Several keys from version 4 on, one before."""
        body = call.body
        keys = body.coordinator_keys if call.version >= BATCHED_FROM else [body.key]
        found = [self._coordinator(call, body.key_type, key) for key in keys]
        if call.version >= BATCHED_FROM:
            call.reply(FindCoordinatorResponse(coordinators=found))
            return
        [one] = found
        call.reply(
            FindCoordinatorResponse(
                error_code=one.error_code,
                error_message=one.error_message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        )

    def _coordinator(self, call: Call, key_type: int, key: str) -> Coordinator:
        if key_type == KEY_IS_TRANSACTIONAL_ID:
            return _nobody(key, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        if key_type != KEY_IS_GROUP:
            return _nobody(key, INVALID_REQUEST, f"a coordinator of kind {key_type} is not known here")
        if not self._may(call.principal, Operation.DESCRIBE, "group", key):
            return _nobody(key, GROUP_AUTHORIZATION_FAILED)
        partitions = self._broker.offsets_partitions()
        if partitions is None:
            return _nobody(key, COORDINATOR_NOT_AVAILABLE)
        address = self._broker.coordinator_of(partition_for(key, partitions), call.listener)
        if address is None:
            return _nobody(key, COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key=key, node_id=address.broker_id, host=address.host, port=address.port)

    # --- members and groups -------------------------------------------------------------------------------------

    def handle_group_member_request(self, call: Call) -> None:
        """JoinGroup, SyncGroup, Heartbeat, LeaveGroup: for whoever may read with the group."""
        if self._may(call.principal, Operation.READ, "group", call.body.group_id):
            self._broker.ask_coordinator(call, call.body, call.reply)
        else:
            call.reply(refused(call.api, call.version, call.body, GROUP_AUTHORIZATION_FAILED))

    def handle_list_groups_request(self, call: Call) -> None:
        """Only the groups that the asker may see."""

        def reply(body: Any) -> None:
            body.groups = [g for g in body.groups if self._may(call.principal, Operation.DESCRIBE, "group", g.group_id)]
            call.reply(body)

        self._broker.ask_coordinator(call, call.body, reply)

    def handle_describe_groups_request(self, call: Call) -> None:
        """The coordinator is asked for those that the asker may see."""
        denied = self._denied_groups(call, Operation.DESCRIBE, call.body.groups)

        def reply(body: Any) -> None:
            told = {group.group_id: group for group in body.groups}
            barred = refused(call.api, call.version, replace(call.body, groups=denied), GROUP_AUTHORIZATION_FAILED)
            told |= {group.group_id: group for group in barred.groups}
            body.groups = [told[name] for name in dict.fromkeys(call.body.groups)]
            call.reply(body)

        if not denied:
            self._broker.ask_coordinator(call, call.body, call.reply)
            return
        allowed = [name for name in call.body.groups if name not in denied]
        self._broker.ask_coordinator(call, replace(call.body, groups=allowed), reply)

    def handle_delete_groups_request(self, call: Call) -> None:
        """The coordinator is asked for those that the asker may delete."""
        denied = self._denied_groups(call, Operation.DELETE, call.body.groups_names)

        def reply(body: Any) -> None:
            body.results = [
                *body.results,
                *(DeletedGroup(group_id=name, error_code=GROUP_AUTHORIZATION_FAILED.code) for name in denied),
            ]
            call.reply(body)

        allowed = [name for name in call.body.groups_names if name not in denied]
        self._broker.ask_coordinator(call, replace(call.body, groups_names=allowed), reply if denied else call.reply)

    def _denied_groups(self, call: Call, operation: Operation, names: list[str]) -> list[str]:
        return [name for name in dict.fromkeys(names) if not self._may(call.principal, operation, "group", name)]

    # --- offsets ------------------------------------------------------------------------------------------------

    def handle_offset_commit_request(self, call: Call) -> None:
        """Version 0 goes to ZooKeeper; the rest, for topics that are there, to the coordinator."""
        body = call.body
        if not self._may(call.principal, Operation.READ, "group", body.group_id):
            call.reply(commit_refused(body, GROUP_AUTHORIZATION_FAILED))
            return
        checks_partitions = call.version == 0 or self._broker.checks_partitions_of_commits
        wrong: dict[TopicPartition, int] = {}
        for topic in body.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                code = self._topic_error(call, tp, Operation.READ, checks_partitions)
                if code is not NONE:
                    wrong[tp] = code.code
        right = [
            replace(topic, partitions=kept)
            for topic in body.topics
            if (kept := [p for p in topic.partitions if TopicPartition(topic.name, p.partition_index) not in wrong])
        ]
        if not right:
            call.reply(_committed(body, wrong))
        elif call.version == 0:
            self._commit_in_zookeeper(call, right, wrong)
        elif not wrong:
            self._broker.ask_coordinator(call, body, call.reply)
        else:

            def reply(answer: Any) -> None:
                codes = {
                    TopicPartition(topic.name, partition.partition_index): partition.error_code
                    for topic in answer.topics
                    for partition in topic.partitions
                }
                call.reply(_committed(body, wrong | codes))

            self._broker.ask_coordinator(call, replace(body, topics=right), reply)

    def _commit_in_zookeeper(self, call: Call, topics: list[Any], wrong: dict[TopicPartition, int]) -> None:
        store = self._broker.offsets_in_zookeeper
        if store is None:
            call.reply(commit_refused(call.body, UNSUPPORTED_VERSION))
            return
        offsets = {
            TopicPartition(topic.name, partition.partition_index): partition.committed_offset
            for topic in topics
            for partition in topic.partitions
        }
        store.commit(call.body.group_id, offsets, lambda codes: call.reply(_committed(call.body, wrong | codes)))

    def handle_offset_fetch_request(self, call: Call) -> None:
        """Version 0 reads ZooKeeper; the rest is asked of the coordinator."""
        if call.version == 0:
            self._fetch_from_zookeeper(call)
            return
        names = [group.group_id for group in call.body.groups] or [call.body.group_id]
        if self._denied_groups(call, Operation.DESCRIBE, names):
            call.reply(refused(call.api, call.version, call.body, GROUP_AUTHORIZATION_FAILED))
            return

        def reply(body: Any) -> None:
            for part in [body, *body.groups]:
                part.topics = [self._seen(call, topic) for topic in part.topics]
            call.reply(body)

        self._broker.ask_coordinator(call, call.body, reply)

    def _seen(self, call: Call, topic: OffsetFetchTopicResponse) -> OffsetFetchTopicResponse:
        """Offsets of a topic that the asker may not see are not told."""
        if self._may(call.principal, Operation.DESCRIBE, "topic", topic.name):
            return topic
        return _not_fetched(topic.name, [p.partition_index for p in topic.partitions], TOPIC_AUTHORIZATION_FAILED)

    def _fetch_from_zookeeper(self, call: Call) -> None:
        body = call.body
        store = self._broker.offsets_in_zookeeper
        if not self._may(call.principal, Operation.DESCRIBE, "group", body.group_id):
            call.reply(refused(call.api, call.version, body, GROUP_AUTHORIZATION_FAILED))
            return
        if store is None:
            call.reply(refused(call.api, call.version, body, UNSUPPORTED_VERSION))
            return
        asked = [TopicPartition(topic.name, index) for topic in body.topics for index in topic.partition_indexes]
        errors = {tp: self._topic_error(call, tp, Operation.DESCRIBE, True) for tp in asked}

        def told(tp: TopicPartition, offset: int | None) -> OffsetFetchPartitionResponse:
            code = errors[tp]
            if code is NONE and offset is None:
                code = UNKNOWN_TOPIC_OR_PARTITION
            return OffsetFetchPartitionResponse(
                partition_index=tp.partition,
                committed_offset=-1 if offset is None or code is not NONE else offset,
                error_code=code.code,
            )

        def reply(offsets: dict[TopicPartition, int | None]) -> None:
            topics = [
                OffsetFetchTopicResponse(
                    name=topic.name,
                    partitions=[
                        told(TopicPartition(topic.name, index), offsets.get(TopicPartition(topic.name, index)))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in body.topics
            ]
            call.reply(OffsetFetchResponse(topics=topics))

        store.fetch(body.group_id, [tp for tp in asked if errors[tp] is NONE], reply)

    def handle_offset_delete_request(self, call: Call) -> None:
        """For topics that are there and that the asker may read."""
        body = call.body
        if not self._may(call.principal, Operation.DELETE, "group", body.group_id):
            call.reply(refused(call.api, call.version, body, GROUP_AUTHORIZATION_FAILED))
            return
        wrong: list[OffsetDeleteTopicResponse] = []
        right = []
        for topic in body.topics:
            kept, barred = [], []
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                code = self._topic_error(call, tp, Operation.READ, True)
                if code is NONE:
                    kept.append(partition)
                else:
                    barred.append(OffsetDeletePartitionResponse(partition_index=tp.partition, error_code=code.code))
            if kept:
                right.append(replace(topic, partitions=kept))
            if barred:
                wrong.append(OffsetDeleteTopicResponse(name=topic.name, partitions=barred))

        def reply(answer: Any) -> None:
            if not answer.error_code:
                answer.topics = [*answer.topics, *wrong]
            call.reply(answer)

        self._broker.ask_coordinator(call, replace(body, topics=right), reply)

    def _topic_error(self, call: Call, tp: TopicPartition, operation: Operation, checks_partition: bool) -> ErrorCode:
        if not self._may(call.principal, operation, "topic", tp.topic):
            return TOPIC_AUTHORIZATION_FAILED
        partitions = self._broker.partitions_of(tp.topic)
        if partitions is None or (checks_partition and not 0 <= tp.partition < partitions):
            return UNKNOWN_TOPIC_OR_PARTITION
        return NONE


def _nobody(key: str, code: ErrorCode, words: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code.code, error_message=words)


def _committed(body: Any, codes: Mapping[TopicPartition, int]) -> OffsetCommitResponse:
    """The answer in the order of the question."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResponse(
                name=topic.name,
                partitions=[
                    OffsetCommitPartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=codes.get(TopicPartition(topic.name, partition.partition_index), 0),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _not_fetched(topic: str, partitions: list[int], code: ErrorCode) -> OffsetFetchTopicResponse:
    return OffsetFetchTopicResponse(
        name=topic,
        partitions=[
            OffsetFetchPartitionResponse(partition_index=index, committed_offset=-1, error_code=code.code)
            for index in partitions
        ],
    )
