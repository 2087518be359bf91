"""One broker in simulated time, for consumers whose network client has no sockets.

    ConsumerNetworkClient --> SimulatedNetwork == connections == SimulatedCluster --> GroupCoordinator, logs of records

A connection passes one request at a time to the broker, in their order.  A response waits until a thread polls the
network, as it does in a socket.  The coordinator is the real machine; its clock goes on while the client is paused.

``delays`` (API key -> ms) delays responses; ``prepared`` (API key -> bodies) replaces them; ``on_request`` and
``on_response`` are called at the broker.  ``Rival`` is another member of the group.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.coordinator.config import GroupCoordinatorConfig
from tests.coordinator.client_harness import deal, in_two_steps
from tests.coordinator.server_harness import Table
from tests.fake_client_requests import NumberedRequests, decoded_response
from tests.metadata_responses import LATEST, metadata_update
from tests.poll_fetcher_fixtures import record_set
from tests.two_thread_scheduler import ScheduledLock
from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import (
    ClientRequest,
    ClientResponse,
)
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request, encode_request
from zkconsumer.wire.schemas import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

GROUP = "g"
NODE = Node(0, "localhost", 1969)
VERSIONS = {
    FETCH.key: 11, LIST_OFFSETS.key: 5, OFFSET_COMMIT.key: 9, OFFSET_FETCH.key: 7, JOIN_GROUP.key: 9,
    HEARTBEAT.key: 4, LEAVE_GROUP.key: 5, SYNC_GROUP.key: 5, FIND_COORDINATOR.key: 3,
}  # fmt: skip
"""API key -> the version that is spoken."""

COORDINATED = frozenset(
    {OFFSET_COMMIT.key, OFFSET_FETCH.key, JOIN_GROUP.key, HEARTBEAT.key, LEAVE_GROUP.key, SYNC_GROUP.key}
)
CONFIG = GroupCoordinatorConfig(
    offsets_topic_partitions=1, group_initial_rebalance_delay_ms=200, group_min_session_timeout_ms=10
)
TRANSIT_MS = 2
"""How long a request takes to the broker, and a response back."""

RECONNECT_MS = 50
RECORDS_MAX = 3
"""How many records one fetch returns of one partition."""


@dataclass
class InFlightRequest:
    """A request of a connection, as the broker reads it."""

    request: ClientRequest
    version: int
    body: Any
    sent_ms: int
    token: int | None = None
    """The number under which the coordinator answers it."""

    @property
    def api_key(self) -> int:
        return self.request.builder.api.key


@dataclass
class ReceivedCommit:
    """An OffsetCommit, and whether the coordinator accepted it."""

    generation: int
    member: str
    offsets: dict[TopicPartition, int]
    is_accepted: bool = False


class SimulatedCluster:
    """The broker; see the module."""

    def __init__(self, clock: ManualClock, topics: Mapping[str, int]) -> None:
        self.clock = clock
        self.topics = dict(topics)
        self.table = Table(config=CONFIG, now_ms=clock.now_ms())
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        """The end of the log of each partition."""
        self.delays: dict[int, int] = {}
        self.metadata_delay_ms = TRANSIT_MS
        self.prepared: dict[int, deque[Any]] = defaultdict(deque)
        self.on_request: Callable[[InFlightRequest], None] = lambda request: None
        self.on_response: Callable[[InFlightRequest, Any], None] = lambda request, body: None
        self.requests: list[InFlightRequest] = []
        """All requests that have arrived."""
        self.commits: list[ReceivedCommit] = []
        self.assigned: dict[tuple[int, str], frozenset[TopicPartition]] = {}
        """Generation and member -> its assignment."""
        self.is_silent = False
        self._rivals: dict[int, Callable[[Any], None]] = {}
        self._connections: dict[int, deque[InFlightRequest]] = defaultdict(deque)
        self._busy: dict[int, InFlightRequest] = {}
        self._networks: list[SimulatedNetwork] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._pushed = 0

    # --- time ---------------------------------------------------------------------------------------------------------

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do this then."""
        self._pushed += 1
        heapq.heappush(self._heap, (self.clock.now_ms() + max(0, delay_ms), self._pushed, action))

    def next_event_ms(self) -> int | None:
        """See ``World``."""
        times = list(self.table.timers.values())
        if self._heap:
            times.append(self._heap[0][0])
        return min(times, default=None)

    def advance(self) -> None:
        """Process what is due, in the order of the times."""
        now_ms = self.clock.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            self._move_table(self._heap[0][0])
            heapq.heappop(self._heap)[2]()
            self._collect()
        self._move_table(now_ms)

    def _move_table(self, to_ms: int) -> None:
        while (due_ms := min(self.table.timers.values(), default=None)) is not None and due_ms <= to_ms:
            self.table.move(max(0, due_ms - self.table.now_ms))
            self._collect()
        self.table.move(max(0, to_ms - self.table.now_ms))
        self._collect()

    # --- requests -----------------------------------------------------------------------------------------------------

    def add_network(self, network: SimulatedNetwork) -> None:
        """A client of this broker."""
        self._networks.append(network)

    def receive(self, connection: int, request: InFlightRequest) -> None:
        """A request has arrived."""
        self._connections[connection].append(request)
        self._serve(connection)

    def drop(self, connection: int) -> None:
        """The connection has ended: the coordinator's answer to its request is dropped."""
        self._connections.pop(connection, None)
        self._busy.pop(connection, None)

    def rival_request(self, api_key: int, body: Any, answered: Callable[[Any], None]) -> None:
        """A request of a member without a connection."""
        token = self.table.send(api_key, VERSIONS[api_key], body, "rival")
        self._rivals[token] = answered
        self._collect()

    def _serve(self, connection: int) -> None:
        waiting = self._connections[connection]
        while waiting and connection not in self._busy and not self.is_silent:
            request = waiting.popleft()
            self.requests.append(request)
            self._busy[connection] = request
            self.on_request(request)
            if connection not in self._busy:
                return
            if self.prepared[request.api_key]:
                self._answer(connection, request, self.prepared[request.api_key].popleft())
            elif request.api_key in COORDINATED:
                if request.api_key == OFFSET_COMMIT.key:
                    self._note_commit(request)
                request.token = self.table.send(request.api_key, request.version, request.body)
                self._collect()
            else:
                self._answer(connection, request, self._own_answer(request))

    def _collect(self) -> None:
        """Send what the coordinator has answered; each answer may cause others."""
        answers = self.table.answers
        while answers:
            token, body = next(iter(answers.items()))
            del answers[token]
            if token in self._rivals:
                self._rivals.pop(token)(body)
                continue
            for connection, request in self._busy.items():
                if request.token == token:
                    self._note_answer(request, body)
                    self._answer(connection, request, body)
                    break

    def _answer(self, connection: int, request: InFlightRequest, body: Any) -> None:
        del self._busy[connection]
        self.on_response(request, body)
        delay_ms = self.delays.get(request.api_key, 0) + TRANSIT_MS
        if request.api_key == FETCH.key and not any(
            row.records for topic in body.responses for row in topic.partitions
        ):
            delay_ms += request.body.max_wait_ms
        network = self._networks[0]
        self.after(delay_ms, lambda: network.arrive(connection, request, body))
        self._serve(connection)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _own_answer(self, request: InFlightRequest) -> Any:
        match request.api_key:
            case FIND_COORDINATOR.key:
                return FindCoordinatorResponse(node_id=NODE.id, host=NODE.host, port=NODE.port)
            case LIST_OFFSETS.key:
                return ListOffsetsResponse(
                    topics=[
                        ListOffsetsTopicResponse(
                            name=topic.name,
                            partitions=[
                                ListOffsetsPartitionResponse(
                                    partition_index=row.partition_index,
                                    offset=0
                                    if row.timestamp == -2
                                    else self.ends[TopicPartition(topic.name, row.partition_index)],
                                )
                                for row in topic.partitions
                            ],
                        )
                        for topic in request.body.topics
                    ]
                )
            case FETCH.key:
                return FetchResponse(
                    responses=[
                        FetchTopicResponse(
                            topic=topic.topic,
                            partitions=[
                                self._fetched(TopicPartition(topic.topic, row.partition), row.fetch_offset)
                                for row in topic.partitions
                            ],
                        )
                        for topic in request.body.topics
                    ]
                )
        raise AssertionError(f"this broker does not support API {request.api_key}")

    def _fetched(self, tp: TopicPartition, offset: int) -> FetchPartitionResponse:
        count = min(self.ends[tp] - offset, RECORDS_MAX)
        return FetchPartitionResponse(
            partition_index=tp.partition,
            high_watermark=self.ends[tp],
            last_stable_offset=self.ends[tp],
            log_start_offset=0,
            aborted_transactions=None,
            records=record_set(offset, count) if count > 0 else b"",
        )

    def _note_commit(self, request: InFlightRequest) -> None:
        body = request.body
        offsets = {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in body.topics
            for row in topic.partitions
        }
        self.commits.append(ReceivedCommit(body.generation_id_or_member_epoch, body.member_id, offsets))

    def _note_answer(self, request: InFlightRequest, body: Any) -> None:
        match request.api_key:
            case SYNC_GROUP.key if body.error_code == 0:
                shares = frozenset(decode_assignment(body.assignment).partitions) if body.assignment else frozenset()
                self.assigned[request.body.generation_id, request.body.member_id] = shares
            case OFFSET_COMMIT.key:
                errors = {row.error_code for topic in body.topics for row in topic.partitions}
                commit = next(one for one in reversed(self.commits) if one.member == request.body.member_id)
                commit.is_accepted = errors == {0}

    # --- the group ----------------------------------------------------------------------------------------------------

    def committed(self, tp: TopicPartition) -> int:
        """The committed offset; -1: none."""
        return self.table.fetch([(tp.topic, tp.partition)], GROUP)[tp.topic, tp.partition][0]

    def members(self) -> list[str]:
        """The ids of the group's members."""
        group = self.table.coordinator.manager.get_group(GROUP)
        return [] if group is None else list(group.members)

    def expel(self, member: str) -> None:
        """Remove a member, as a tool of an administrator does."""
        self.table.leave_one(member, GROUP)
        self._collect()

    def sent(self, api_key: int) -> list[InFlightRequest]:
        """The requests of this API that have arrived."""
        return [one for one in self.requests if one.api_key == api_key]


class SimulatedNetwork(NumberedRequests):
    """A ``KafkaClient``.  ``wait(is_ready, until_ms)`` lets time pass until one of both."""

    def __init__(self, cluster: SimulatedCluster, metadata: ConsumerMetadata) -> None:
        super().__init__()
        self.cluster = cluster
        self.clock = cluster.clock
        self.metadata = metadata
        self.wait: Callable[[Callable[[], bool], int], None] = self._wait_alone
        self.is_down = False
        """Whether the broker accepts no connection."""
        self.is_polled = False
        self.lock: ScheduledLock | None = None
        """A lock that no thread has while it polls."""
        self.waits: list[int] = []
        """The time of each poll that waited."""
        self.polls = 0
        self.is_closed = False
        self._in_flight: list[tuple[int, InFlightRequest]] = []
        self._arrived: deque[Callable[[], None]] = deque()
        self._completed: deque[ClientResponse] = deque()
        self._failed_until_ms: dict[int, int] = {}
        self._connected: set[int] = set()
        self._is_metadata_asked = False
        self._is_woken = False
        cluster.add_network(self)

    # --- what a test does ---------------------------------------------------------------------------------------------

    def stop_broker(self) -> None:
        """All connections end, and no new one is accepted."""
        self.is_down = True
        for connection in list(self._connected):
            self._end_connection(connection)

    def start_broker(self) -> None:
        """Connections are accepted again."""
        self.is_down = False

    def arrive(self, connection: int, request: InFlightRequest, body: Any) -> None:
        """A response has arrived."""
        self._arrived.append(lambda: self._complete(connection, request, body))

    def _complete(self, connection: int, request: InFlightRequest, body: Any) -> None:
        if (connection, request) in self._in_flight:
            self._in_flight.remove((connection, request))
            answer = decoded_response(request.request, request.version, body)
            self._completed.append(ClientResponse(request.request, self.clock.now_ms(), request.version, answer))

    def _wait_alone(self, is_ready: Callable[[], bool], until_ms: int) -> None:
        while not is_ready() and self.clock.now_ms() < until_ms:
            event_ms = self.cluster.next_event_ms()
            to_ms = until_ms if event_ms is None else min(until_ms, event_ms)
            self.clock.move(max(0, to_ms - self.clock.now_ms()))
            self.cluster.advance()

    # --- KafkaClient --------------------------------------------------------------------------------------------------

    def ready(self, node: Node, now_ms: int) -> bool:
        if now_ms < self._failed_until_ms.get(node.id, 0):
            return False
        if self.is_down:
            self._failed_until_ms[node.id] = now_ms + RECONNECT_MS
            return False
        self._failed_until_ms.pop(node.id, None)
        self._connected.add(node.id)
        return True

    def send(self, request: ClientRequest, now_ms: int) -> None:
        builder = request.builder
        version = min(builder.latest_allowed_version, VERSIONS[builder.api.key])
        frame = encode_request(builder.api, version, request.correlation_id, "test", builder.build(version))
        sent = InFlightRequest(request, version, decode_request(frame[SIZE_BYTES:]).body, now_ms)
        connection = request.destination
        self._in_flight.append((connection, sent))

        def arrive() -> None:
            if (connection, sent) in self._in_flight:
                self.cluster.receive(connection, sent)

        self.cluster.after(TRANSIT_MS, arrive)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        assert not self.is_polled, "one thread polls"
        assert not self.is_closed, "a closed client is not polled"
        assert self.lock is None or not self.lock.is_owned, "a thread does not wait for the network with the lock"
        self.is_polled = True
        self.polls += 1
        try:
            self._update_metadata()
            self.cluster.advance()
            self._end_late_requests()
            if timeout_ms > 0 and not self._has_work():
                self.waits.append(self.clock.now_ms())
                until_ms = min(self.clock.now_ms() + timeout_ms, self._next_deadline_ms())
                self.wait(self._has_work, until_ms)
                self.cluster.advance()
                self._end_late_requests()
            self._is_woken = False
            while self._arrived:
                self._arrived.popleft()()
            done = list(self._completed)
            self._completed.clear()
            for response in done:
                response.on_complete()
            return done
        finally:
            self.is_polled = False

    def _has_work(self) -> bool:
        return bool(self._arrived or self._completed or self._is_woken)

    def _next_deadline_ms(self) -> int:
        late = [sent.sent_ms + sent.request.request_timeout_ms + 1 for _, sent in self._in_flight]
        metadata = (
            []
            if self._is_metadata_asked
            else [self.clock.now_ms() + max(1, self.metadata.time_to_next_update(self.clock.now_ms()))]
        )
        return min([*late, *metadata], default=FOREVER_MS)

    def _end_late_requests(self) -> None:
        now_ms = self.clock.now_ms()
        for connection, sent in list(self._in_flight):
            if now_ms - sent.sent_ms > sent.request.request_timeout_ms:
                self._end_connection(connection, is_late=True)

    def _end_connection(self, connection: int, *, is_late: bool = False) -> None:
        self._connected.discard(connection)
        self.cluster.drop(connection)
        self._failed_until_ms[connection] = self.clock.now_ms() + RECONNECT_MS
        for row in [row for row in self._in_flight if row[0] == connection]:
            self._in_flight.remove(row)
            self._completed.append(
                ClientResponse(
                    row[1].request, self.clock.now_ms(), row[1].version, was_disconnected=True, timed_out=is_late
                )
            )

    def _update_metadata(self) -> None:
        now_ms = self.clock.now_ms()
        if self._is_metadata_asked or self.metadata.is_closed or self.metadata.time_to_next_update(now_ms) > 0:
            return
        if self.is_down:
            self.metadata.failed_update(now_ms)
            return
        self._is_metadata_asked = True
        asked = self.metadata.new_metadata_request_and_version(now_ms)

        def arrive() -> None:
            self._is_metadata_asked = False
            response = metadata_update(self.cluster.topics, epoch=1)
            self.metadata.update(asked.request_version, response, LATEST, asked.is_partial_update, self.clock.now_ms())

        self.cluster.after(self.cluster.metadata_delay_ms, lambda: self._arrived.append(arrive))

    def wakeup(self) -> None:
        self._is_woken = True

    def disconnect(self, node_id: int) -> None:
        self._end_connection(node_id)

    def close(self) -> None:
        self.is_closed = True

    def least_loaded_node(self, now_ms: int) -> Node | None:
        return None if now_ms < self._failed_until_ms.get(NODE.id, 0) else NODE

    def receive_more(self, now_ms: int) -> bool:
        return False

    def has_ready_nodes(self, now_ms: int) -> bool:
        return not self.is_down

    def connection_failed(self, node: Node) -> bool:
        return node.id in self._failed_until_ms

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return max(0, self._failed_until_ms.get(node.id, 0) - now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return self.connection_delay_ms(node, now_ms) if node.id in self._failed_until_ms else FOREVER_MS

    def authentication_error(self, node: Node) -> AuthenticationException | None:
        return None

    def supported_versions(self, node: Node) -> SupportedVersions | None:
        return None

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return sum(node_id in (None, connection) for connection, _ in self._in_flight) + len(self._completed)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        return self.in_flight_request_count(node_id) > 0


@dataclass
class Rival:
    """Another member of the group, with heartbeats, without a program: it takes and gives up what it must."""

    cluster: SimulatedCluster
    topics: tuple[str, ...] = ("t",)
    protocol: str = "dealer"
    is_cooperative: bool = False
    session_ms: int = 6_000
    rebalance_ms: int = 15_000
    heartbeat_ms: int = 500
    member_id: str = ""
    generation: int = -1
    owned: frozenset[TopicPartition] = frozenset()
    is_in_group: bool = False
    has_left: bool = False
    _round: int = field(default=0)

    def join(self) -> None:
        """Become a member, or join again."""
        if self.has_left:
            return
        self.is_in_group = False
        if not self.is_cooperative:
            self.owned = frozenset()
        self._round += 1
        metadata = encode_subscription(
            Subscription(topics=self.topics, owned_partitions=tuple(sorted(self.owned)), generation_id=self.generation)
        )
        body = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name=self.protocol, metadata=metadata)],
        )
        self.cluster.rival_request(JOIN_GROUP.key, body, self._joined)

    def leave(self) -> None:
        """Leave the group."""
        self.has_left = True
        if self.member_id:
            body = LeaveGroupRequest(group_id=GROUP, members=[LeavingMember(member_id=self.member_id)])
            self.cluster.rival_request(LEAVE_GROUP.key, body, lambda answer: None)

    def _joined(self, answer: Any) -> None:
        if answer.error_code == 79:
            self.member_id = answer.member_id
            self.join()
            return
        if answer.error_code or self.has_left:
            self._again(answer.error_code)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        shares: Mapping[str, Assignment] = {}
        if answer.leader == answer.member_id:
            readers = {member.member_id: decode_subscription(member.metadata) for member in answer.members}
            wanted = {topic for one in readers.values() for topic in one.topics}
            counts = {topic: count for topic, count in self.cluster.topics.items() if topic in wanted}
            shares = (in_two_steps if self.is_cooperative else deal)(counts, readers)
        body = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupAssignment(member_id=member, assignment=encode_assignment(share))
                for member, share in shares.items()
            ],
        )
        self.cluster.rival_request(SYNC_GROUP.key, body, self._synced)

    def _synced(self, answer: Any) -> None:
        if answer.error_code or self.has_left:
            self._again(answer.error_code)
            return
        given = frozenset(decode_assignment(answer.assignment).partitions) if answer.assignment else frozenset()
        self.cluster.assigned[self.generation, self.member_id] = given
        is_rejoining = self.is_cooperative and bool(self.owned - given)
        self.owned = given
        self.is_in_group = True
        if is_rejoining:
            self.join()
        else:
            self._beat_later()

    def _beat_later(self) -> None:
        at = self._round
        self.cluster.after(self.heartbeat_ms, lambda: self._beat() if at == self._round else None)

    def _beat(self) -> None:
        if not self.has_left:
            body = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
            self.cluster.rival_request(HEARTBEAT.key, body, self._beaten)

    def _beaten(self, answer: Any) -> None:
        if answer.error_code:
            self._again(answer.error_code)
        else:
            self._beat_later()

    def _again(self, code: int) -> None:
        if self.has_left:
            return
        if code == 25:
            self.member_id, self.generation, self.owned = "", -1, frozenset()
        self._round += 1
        at = self._round
        self.cluster.after(10, lambda: self.join() if at == self._round else None)
