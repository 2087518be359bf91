"""A ``KafkaConsumer`` on ``MockKafkaClient``: no network, no thread, and a clock that moves only by waits of polls.

    ScriptedConsumer --requests--> MockKafkaClient --respond_to--> ScriptedCluster

``ScriptedCluster`` is one broker, which leads all partitions and coordinates the group.  The consumer is never the
leader of its group: the test says which partitions the next SyncGroup assigns.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from bridge.client.kafka_consumer.consumer_components import ConsumerEnvironment
from bridge.client.kafka_consumer.consumer_records import ConsumerRecords
from bridge.client.kafka_consumer.kafka_consumer import KafkaConsumer
from bridge.client.kafka_consumer.kafka_consumer_config import KafkaConsumerConfig
from tests.metadata_responses import metadata_update
from tests.mock_kafka_client import LATER, MockKafkaClient, SentRequest
from tests.poll_fetcher_fixtures import fetch_response, list_offsets_response, partition_response, record_set
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.error_codes import NONE, ErrorCode
from zkconsumer.kafka.fetch.fetched_records import ConsumerRecord
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import Assignment, decode_subscription, encode_assignment
from zkconsumer.wire.schemas import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.fetch import FetchRequest
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeavingMemberResponse
from zkconsumer.wire.schemas.message_schema import Api
from zkconsumer.wire.schemas.metadata import MetadataRequest
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

TOPIC, TOPIC2, TOPIC3 = "test", "test2", "test3"
TP0, TP1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
T2P0, T3P0 = TopicPartition(TOPIC2, 0), TopicPartition(TOPIC3, 0)
GROUP = "mock-group"
MEMBER_ID = "member-1"

HEARTBEAT_MS = 1_000
AUTO_COMMIT_MS = 500
SESSION_MS = 10_000
MAX_POLL_MS = 60_000
RETRY_MS = 100
END, BEGINNING = -1, -2
POLLS_MAX = 20


class ScriptedCluster:
    """``hold`` keeps requests of an API unanswered; ``errors`` has the errors of the next requests of an API."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.topics = dict(topics)
        self.logs: dict[TopicPartition, tuple[int, int]] = defaultdict(lambda: (0, 0))
        """The first offset, and the offset after the last record."""
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        """The offsets of each OffsetCommit that was received."""
        self.assignment: tuple[TopicPartition, ...] = ()
        self.generation = 0
        self.held: set[int] = set()
        self.errors: dict[int, deque[ErrorCode]] = defaultdict(deque)
        self.partition_errors: dict[TopicPartition, ErrorCode] = {}
        """The errors of ListOffsets and Fetch."""
        self.topic_errors: dict[str, ErrorCode] = {}
        self.records_max = 1_000_000
        self._protocol = ""

    def append(self, tp: TopicPartition, count: int) -> None:
        """Write so many records."""
        first, end = self.logs[tp]
        self.logs[tp] = first, end + count

    def fail_next(self, api: Api[Any, Any], *errors: ErrorCode) -> None:
        """Answer the next requests of this API with these errors."""
        self.errors[api.key].extend(errors)

    def hold(self, *apis: Api[Any, Any]) -> None:
        """Answer no request of these APIs."""
        self.held.update(api.key for api in apis)

    def metadata(self) -> Any:
        """The response with all topics."""
        return metadata_update(self.topics, errors=self.topic_errors)

    def respond_to(self, sent: SentRequest) -> Any:
        """The response of the broker."""
        key = sent.request.builder.api.key
        if key in self.held:
            return LATER
        error = self.errors[key].popleft() if self.errors[key] else NONE
        return _ANSWERS[key](self, sent.body, error)

    # --- the group ----------------------------------------------------------------------------------------------------

    def _find_coordinator(self, body: Any, error: ErrorCode) -> FindCoordinatorResponse:
        if error != NONE:
            return FindCoordinatorResponse(error_code=error.code)
        return FindCoordinatorResponse(node_id=0, host="localhost", port=1969)

    def _join_group(self, body: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
        if error != NONE:
            return JoinGroupResponse(error_code=error.code)
        self.generation += 1
        self._protocol = body.protocols[0].name
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self._protocol,
            leader="another member",
            member_id=MEMBER_ID,
        )

    def _sync_group(self, body: Any, error: ErrorCode) -> SyncGroupResponse:
        if error != NONE:
            return SyncGroupResponse(error_code=error.code)
        return SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=self._protocol,
            assignment=encode_assignment(Assignment(self.assignment)),
        )

    def _heartbeat(self, body: Any, error: ErrorCode) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=error.code)

    def _leave_group(self, body: LeaveGroupRequest, error: ErrorCode) -> LeaveGroupResponse:
        members = [LeavingMemberResponse(member_id=each.member_id) for each in body.members]
        return LeaveGroupResponse(error_code=error.code, members=members)

    def _offset_commit(self, body: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
        offsets = offsets_of_commit(body)
        self.commits.append(offsets)
        if error == NONE:
            self.committed.update(offsets)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitTopicResponse(
                    name=topic.name,
                    partitions=[
                        OffsetCommitPartitionResponse(partition_index=row.partition_index, error_code=error.code)
                        for row in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    def _offset_fetch(self, body: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
        if error != NONE:
            return OffsetFetchResponse(error_code=error.code)
        return OffsetFetchResponse(
            topics=[
                OffsetFetchTopicResponse(
                    name=topic.name,
                    partitions=[
                        OffsetFetchPartitionResponse(
                            partition_index=index,
                            committed_offset=self.committed.get(TopicPartition(topic.name, index), -1),
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in body.topics or ()
            ]
        )

    # --- the data -----------------------------------------------------------------------------------------------------

    def _metadata(self, body: MetadataRequest, error: ErrorCode) -> Any:
        wanted = self.topics if body.topics is None else {topic.name for topic in body.topics}
        return metadata_update({topic: count for topic, count in self.topics.items() if topic in wanted})

    def _list_offsets(self, body: Any, error: ErrorCode) -> Any:
        offsets = {}
        for topic in body.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                offsets[tp] = self.logs[tp][row.timestamp == END]
        return list_offsets_response(offsets, {tp: self.partition_errors.get(tp, error) for tp in offsets})

    def _fetch(self, body: FetchRequest, error: ErrorCode) -> Any:
        rows = []
        for tp, offset in offsets_of_fetch(body).items():
            first, end = self.logs[tp]
            if tp in self.partition_errors:
                rows.append((tp, partition_response(tp, error=self.partition_errors[tp])))
            elif offset < end:
                records = record_set(offset, min(end - offset, self.records_max))
                rows.append((tp, partition_response(tp, records, high_watermark=end, log_start_offset=first)))
        return fetch_response(*rows) if rows or error != NONE else LATER


_ANSWERS: Mapping[int, Callable[[ScriptedCluster, Any, ErrorCode], Any]] = {
    FIND_COORDINATOR.key: ScriptedCluster._find_coordinator,
    JOIN_GROUP.key: ScriptedCluster._join_group,
    SYNC_GROUP.key: ScriptedCluster._sync_group,
    HEARTBEAT.key: ScriptedCluster._heartbeat,
    LEAVE_GROUP.key: ScriptedCluster._leave_group,
    OFFSET_COMMIT.key: ScriptedCluster._offset_commit,
    OFFSET_FETCH.key: ScriptedCluster._offset_fetch,
    METADATA.key: ScriptedCluster._metadata,
    LIST_OFFSETS.key: ScriptedCluster._list_offsets,
    FETCH.key: ScriptedCluster._fetch,
}


def offsets_of_commit(body: OffsetCommitRequest) -> dict[TopicPartition, int]:
    """The offset of each partition in an OffsetCommit."""
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in body.topics
        for row in topic.partitions
    }


def offsets_of_fetch(body: FetchRequest) -> dict[TopicPartition, int]:
    """The offset of each partition in a Fetch."""
    return {
        TopicPartition(topic.topic, row.partition): row.fetch_offset
        for topic in body.topics
        for row in topic.partitions
    }


class NoThread:
    """Instead of the heartbeat thread: ``ScriptedConsumer.run_heartbeat_thread`` executes its work."""

    def __init__(self, name: str, target: Any, on_error: Any, *, wake: Callable[[], None]) -> None:
        self.name = name
        self.is_stopped = False

    def stop(self, timeout_ms: int) -> bool:
        self.is_stopped = True
        return True


class RecordingListener:
    """A listener that notes its calls; ``raises`` has an exception for each method that is to raise one."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.raises: dict[str, BaseException] = {}
        self.on_call: Callable[[str], None] = lambda name: None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._call("revoked", partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._call("assigned", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._call("lost", partitions)

    def _call(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((name, list(partitions)))
        self.on_call(name)
        if name in self.raises:
            raise self.raises[name]

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def consumer_in(environment: ConsumerEnvironment, config: KafkaConsumerConfig) -> KafkaConsumer[Any, Any]:
    """A consumer that uses this environment."""

    class ConsumerInEnvironment(KafkaConsumer[Any, Any]):
        _environment = environment

    return ConsumerInEnvironment(config)


class ScriptedConsumer:
    """A consumer with what it uses.  ``settings``: with underscores; ``group`` None: without ``group.id``."""

    def __init__(
        self, *, topics: Mapping[str, int] | None = None, group: str | None = GROUP, **settings: object
    ) -> None:
        self.clock = ManualClock()
        self.cluster = ScriptedCluster({TOPIC: 2, TOPIC2: 1, TOPIC3: 1} if topics is None else topics)
        self.threads: list[NoThread] = []
        given: dict[str, object] = {
            "bootstrap.servers": "localhost:1969",
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": SESSION_MS,
            "max.poll.interval.ms": MAX_POLL_MS,
            "auto.commit.interval.ms": AUTO_COMMIT_MS,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "retry.backoff.ms": RETRY_MS,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        if group is not None:
            given["group.id"] = group
        self.kafka: MockKafkaClient
        environment = ConsumerEnvironment(self.clock, self._new_client, self._start_thread, lambda: 0.5)
        self.consumer = consumer_in(environment, KafkaConsumerConfig(given))

    def _new_client(self, config: Any, client_id: str, metadata: ConsumerMetadata, *_: object) -> MockKafkaClient:
        self.kafka = MockKafkaClient(self.clock, metadata)
        self.kafka.last_metadata = self.cluster.metadata()
        self.kafka.respond_to = self.cluster.respond_to
        return self.kafka

    def _start_thread(self, name: str, target: Any, on_error: Any, *, wake: Callable[[], None]) -> Any:
        self.threads.append(NoThread(name, target, on_error, wake=wake))
        return self.threads[-1]

    # --- the program --------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0) -> ConsumerRecords[Any, Any]:
        """One ``poll`` of the program."""
        return self.consumer.poll(timeout_ms)

    def poll_until(self, condition: Callable[[], object]) -> list[ConsumerRecord]:
        """Poll without waiting until something is true; returns the records."""
        records: list[ConsumerRecord] = []
        for _ in range(POLLS_MAX):
            records += self.poll()
            if condition():
                return records
        raise AssertionError("it did not become true")

    def read(self, count: int) -> list[tuple[TopicPartition, int]]:
        """Poll until so many records were returned; gives the partition and the offset of each."""
        records: list[ConsumerRecord] = []
        for _ in range(POLLS_MAX):
            records += self.poll()
            if len(records) >= count:
                return [(TopicPartition(record.topic, record.partition), record.offset) for record in records]
        raise AssertionError(f"only {len(records)} records")

    def join(self, *partitions: TopicPartition, listener: Any = None, topics: Iterable[str] | None = None) -> None:
        """Subscribe to these topics, by default to those of the partitions, and poll until they are fetched."""
        self.subscribe(*partitions, listener=listener, topics=topics)
        self.poll_until(lambda: self.in_flight(FETCH) or not partitions)

    def subscribe(self, *partitions: TopicPartition, listener: Any = None, topics: Iterable[str] | None = None) -> None:
        """The same, and poll until they are assigned."""
        wanted = sorted({tp.topic for tp in partitions}) if topics is None else list(topics)
        self.cluster.assignment = partitions
        self.consumer.subscribe(wanted, listener)
        self.poll_until(lambda: self.consumer.assignment() == set(partitions) and self.generation == self.stable)

    def assign(self, *partitions: TopicPartition) -> None:
        """Assign these, and poll until they are fetched."""
        self.consumer.assign(partitions)
        self.poll_until(lambda: self.in_flight(FETCH))

    @property
    def generation(self) -> int:
        """The generation of the consumer."""
        return self.consumer.group_metadata().generation_id

    @property
    def stable(self) -> int:
        """The newest generation of the group."""
        return self.cluster.generation

    def position(self, tp: TopicPartition) -> int:
        """The position of a partition, which is known."""
        return self.consumer.position(tp, 0)

    # --- the other thread, and the network ----------------------------------------------------------------------------

    def run_heartbeat_thread(self, after_ms: int = HEARTBEAT_MS) -> None:
        """Let time pass, and let the heartbeat thread do what is due."""
        self.clock.move(after_ms)
        work = self.consumer._coordinator
        assert work is not None, "a consumer with a group"
        for _ in range(2):  # what is due, and then the responses to it
            work.poll_in_background()

    def deliver(self) -> None:
        """Let the other thread poll the network: responses are buffered."""
        self.consumer._client.poll_no_wakeup()

    def fail_login(self, text: str = "the password is wrong") -> None:
        """Let the next login at the broker fail."""
        self.kafka.next_login_error = AuthenticationException(text)

    def append(self, tp: TopicPartition, count: int) -> None:
        """Write records; a fetch in flight is answered."""
        self.cluster.append(tp, count)
        self.answer(FETCH)

    def answer(self, *apis: Api[Any, Any]) -> None:
        """Answer the requests in flight of these APIs, and of now on."""
        self.cluster.held.difference_update(api.key for api in apis)
        for sent in self.in_flight(*apis):
            self.kafka.answer(sent)

    def in_flight(self, *apis: Api[Any, Any]) -> list[SentRequest]:
        """The requests of these APIs that are not answered."""
        keys = {api.key for api in apis}
        return [sent for sent in self.kafka.requests if sent.request.builder.api.key in keys]

    def sent(self, api: Api[Any, Any]) -> list[Any]:
        """The bodies of all requests of an API that were sent."""
        return [sent.body for sent in self.kafka.sent if sent.request.builder.api.key == api.key]

    def sent_names(self) -> list[str]:
        """The names of the APIs of all requests, in the order of sending."""
        return [sent.request.builder.api.name for sent in self.kafka.sent]

    def joined_topics(self) -> list[set[str]]:
        """The subscription in each JoinGroup."""
        return [set(decode_subscription(body.protocols[0].metadata).topics) for body in self.sent(JOIN_GROUP)]


def offsets(records: ConsumerRecords[Any, Any], tp: TopicPartition = TP0) -> list[int]:
    """The offsets of the records of a partition."""
    return list(records.records(tp).offsets)
