"""The connections to the brokers of a fake cluster: frames in, frames out, with the injected faults.

    frame --> RequestInProgress --start--> KafkaApis of the node --reply--> frame, or what a fault makes of it
    bytes --> FakeBrokerConnection: one client's connection: splits frames, answers in order, wakes after changes

The broker is the development broker's ``BrokerNode``.  There are no sockets and no threads here: the transport (in
memory, or the TCP server) waits on the cluster's condition in its own thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from bridge.broker.apis.fetch import answer_fetch
from bridge.broker.client_connection import CLOSE_CONNECTION
from bridge.broker.fetch_session_cache import FetchContext
from bridge.broker.node import BrokerNode
from bridge.broker.request_decoder import (
    DecodedRequest,
    InvalidFrameAction,
    UnsupportedVersionResponse,
    api_versions_response,
    decode_frame,
)
from bridge.broker.sasl_server_authenticator import ANONYMOUS
from bridge.coordinator.api_request import ApiRequest, InjectedErrors
from bridge.testing.fake_faults import (
    ActiveFault,
    CloseConnection,
    CorruptRecords,
    Delay,
    Garbage,
    GroupError,
    Hold,
    NullRecords,
    PartitionError,
    PartitionFault,
    SlowTieredStorage,
    TopicError,
    WrongCorrelationId,
)
from bridge.testing.fake_state import ClusterState, RecordedRequest
from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.error_codes import ErrorCode, error_code
from zkconsumer.types import TopicPartition
from zkconsumer.wire.request_frames import (
    REQUEST_BYTES_MAX,
    SIZE_BYTES,
    encode_response,
    frame_size,
)
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
)
from zkconsumer.wire.schemas.fetch import FetchPartitionResponse
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchTopic

F = TypeVar("F")

LISTENER = "PLAINTEXT"
CLIENT_HOST = "/127.0.0.1"


@dataclass(slots=True)
class RequestInProgress:
    """A request without a response yet.

    ``start`` passes it to the broker, not before ``not_before_ms``, nor while a ``Hold`` is active.  ``frame`` is the
    response; ``closes_connection``: then the connection ends.  ``forget`` removes a request that waits in the broker.
    """

    start: Callable[[RequestInProgress], None]
    not_before_ms: int = 0
    faults: list[ActiveFault] = field(default_factory=list)
    frame: bytes | None = None
    closes_connection: bool = False
    forget: Callable[[], object] = lambda: None
    is_started: bool = False

    def start_if_due(self, now_ms: int) -> None:
        """Pass it to the broker, unless that was done or it is too early."""
        if not self.is_started and not self.is_held and now_ms >= self.not_before_ms:
            self.is_started = True
            self.start(self)

    def finish(self, frame: bytes, *, closes_connection: bool = False) -> None:
        """The response is there; faults may replace it."""
        self.frame, self.closes_connection = frame, closes_connection
        for injected in self.faults:
            match injected.fault:
                case CloseConnection(after_bytes):
                    self.frame, self.closes_connection = frame[:after_bytes], True
                    return
                case Garbage(data):
                    self.frame = data
                    return
                case _:
                    pass

    @property
    def wake_at_ms(self) -> int | None:
        """When it may start; None: it has started, or only lifting a fault can change anything."""
        return None if self.is_started or self.is_held else self.not_before_ms

    @property
    def is_held(self) -> bool:
        """Whether a ``Hold`` is active."""
        return any(isinstance(injected.fault, Hold) and not injected.is_lifted for injected in self.faults)


class FakeBroker:
    """One node of the cluster.  The release of ``node`` sets the versions, and how other versions are rejected."""

    def __init__(self, state: ClusterState, node: BrokerNode) -> None:
        self.broker_id = node.node_id
        self.node = node
        self._state = state

    def begin(self, frame: bytes) -> RequestInProgress:
        """Process a request (without its size)."""
        outcome = decode_frame(frame, self.node.release)
        match outcome:
            case UnsupportedVersionResponse(refused):
                return RequestInProgress(lambda work: work.finish(refused))
            case InvalidFrameAction():
                closes = outcome is InvalidFrameAction.CLOSE_CONNECTION
                return RequestInProgress(lambda work: work.finish(b"", closes_connection=closes))
        asked = outcome.header
        fetch = self.node.fetch_sessions.new_context(outcome.body, outcome.version) if outcome.api is FETCH else None
        topics = fetch.topics if isinstance(fetch, FetchContext) else ()
        self._state.requests.append(
            RecordedRequest(self.broker_id, outcome.api, asked.api_version, asked.client_id, outcome.body, topics)
        )
        self._state.changed.notify_all()
        faults = self._faults(outcome, fetch)
        now_ms = self._state.clock.now_ms()
        return RequestInProgress(
            lambda work: self._start(work, outcome, fetch, now_ms),
            now_ms + sum(injected.fault.delay_ms for injected in faults if isinstance(injected.fault, Delay)),
            faults,
        )

    def _faults(self, request: DecodedRequest, fetch: FetchContext | ErrorCode | None) -> list[ActiveFault]:
        """The faults that apply to this request; those of one partition only if the request has the partition."""
        hit = []
        for injected in self._state.faults:
            is_of_partition = isinstance(injected.fault, PartitionFault)
            if not injected.applies_to(request.api.key, self.broker_id):
                continue
            if is_of_partition and not _names(request, fetch, cast(PartitionFault, injected.fault).tp):
                continue
            if isinstance(injected.fault, GroupError) and injected.fault.group not in _groups(request):
                continue
            if isinstance(injected.fault, TopicError) and not _asks_for(request, injected.fault.topic):
                continue
            injected.hits += 1
            hit.append(injected)
        return hit

    def _start(
        self,
        work: RequestInProgress,
        request: DecodedRequest,
        fetch: FetchContext | ErrorCode | None,
        begun_ms: int,
    ) -> None:
        correlation_id = request.header.correlation_id + sum(fault.by for fault in _each(work, WrongCorrelationId))

        def reply(answer: Any) -> None:
            if answer is CLOSE_CONNECTION:
                work.finish(b"", closes_connection=True)
            elif answer is None:
                work.finish(b"")
            else:
                work.finish(encode_response(request.api, request.version, correlation_id, answer))
            self._state.changed.notify_all()

        def remember(forget: Callable[[], object]) -> None:
            work.forget = forget

        if request.api is API_VERSIONS:
            reply(api_versions_response(self.node.release))
            return
        if request.api is FIND_COORDINATOR:
            self._state.use_groups()
        body = request.body
        if fetch is not None:
            waited_ms = self._state.clock.now_ms() - begun_ms
            body = replace(body, max_wait_ms=max(0, body.max_wait_ms - waited_ms))
        client_id = request.header.client_id or ""
        call = ApiRequest(
            request.api, request.version, body, client_id, CLIENT_HOST, ANONYMOUS, LISTENER, reply, remember,
            _injected(work),
        )  # fmt: skip
        if fetch is None:
            self.node.kafka_apis.handle(call)
        else:
            answer_fetch(self.node, call, fetch)
        self._state.scheduler.run_due()


def _each(work: RequestInProgress, kind: type[F]) -> list[F]:
    return [injected.fault for injected in work.faults if isinstance(injected.fault, kind)]


def _injected(work: RequestInProgress) -> InjectedErrors:
    """What the engine must answer because of the faults."""
    by_partition = {
        injected.fault.tp: injected.fault for injected in work.faults if isinstance(injected.fault, PartitionFault)
    }

    def change(tp: TopicPartition, row: FetchPartitionResponse) -> FetchPartitionResponse:
        match by_partition.get(tp):
            case NullRecords(code=code):
                return FetchPartitionResponse(
                    partition_index=row.partition_index, error_code=code, high_watermark=-1, records=None
                )
            case SlowTieredStorage() if not row.error_code:
                return replace(row, records=b"")
            case CorruptRecords(at=at) if row.records:
                damaged = bytearray(row.records)
                damaged[at % len(damaged)] ^= 0xFF
                return replace(row, records=bytes(damaged))
            case _:
                return row

    return InjectedErrors(
        {tp: error_code(fault.code) for tp, fault in by_partition.items() if isinstance(fault, PartitionError)},
        {fault.topic: error_code(fault.code) for fault in _each(work, TopicError)},
        {fault.group: error_code(fault.code) for fault in _each(work, GroupError)},
        change,
    )


def _names(request: DecodedRequest, fetch: FetchContext | ErrorCode | None, tp: TopicPartition) -> bool:
    """Whether the request is about this partition."""
    body = request.body
    match request.api.key:
        case FETCH.key:
            topics = fetch.topics if isinstance(fetch, FetchContext) else []
            return tp in {(t.topic, p.partition) for t in topics for p in t.partitions}
        case LIST_OFFSETS.key:
            return tp in {(t.name, p.partition_index) for t in body.topics for p in t.partitions}
        case PRODUCE.key:
            return tp in {(t.name, p.index) for t in body.topic_data for p in t.partition_data}
        case METADATA.key:
            return not body.topics or tp.topic in {t.name for t in body.topics}
        case OFFSET_COMMIT.key:
            return tp in {(t.name, p.partition_index) for t in body.topics for p in t.partitions}
        case OFFSET_FETCH.key:
            asked = [body.topics, *(group.topics for group in body.groups)]
            return any(topics is None or tp in _partitions_of(topics) for topics in asked)
    return False


def _partitions_of(topics: list[OffsetFetchTopic]) -> set[TopicPartition]:
    return {TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes}


def _asks_for(request: DecodedRequest, topic: str) -> bool:
    """Whether the request asks for metadata of this topic."""
    body = request.body
    return request.api.key == METADATA.key and (not body.topics or topic in {t.name for t in body.topics})


def _groups(request: DecodedRequest) -> set[str]:
    """The groups that the request is about."""
    body = request.body
    match request.api.key:
        case FIND_COORDINATOR.key:
            return {body.key, *body.coordinator_keys}
        case DESCRIBE_GROUPS.key:
            return set(body.groups)
        case OFFSET_FETCH.key:
            return {body.group_id, *(group.group_id for group in body.groups)}
    return {getattr(body, "group_id", "")}


class FakeBrokerConnection:
    """One client's connection to one broker.  Every method is called with the cluster's lock held."""

    def __init__(self, state: ClusterState, broker: FakeBroker) -> None:
        self._state = state
        self._broker = broker
        self._received = bytearray()
        self._requests: deque[bytes] = deque()
        self._work: RequestInProgress | None = None
        self._output = bytearray()
        self._has_hung_up = False

    @property
    def has_ended(self) -> bool:
        """Whether there is no more output and none to come."""
        return self._has_hung_up and not self._output

    @property
    def has_output(self) -> bool:
        """Whether there is something to take."""
        return bool(self._output)

    @property
    def has_pending_request(self) -> bool:
        """Whether a request is still waiting for its reply."""
        return not self._has_hung_up and (self._work is not None or bool(self._requests))

    def receive(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._has_hung_up:
            return
        self._received += data
        try:
            while len(self._received) >= SIZE_BYTES:
                after = SIZE_BYTES + frame_size(self._received, REQUEST_BYTES_MAX)
                if len(self._received) < after:
                    break
                self._requests.append(bytes(self._received[SIZE_BYTES:after]))
                del self._received[:after]
        except RemoteProtocolError:
            self.disconnect()
        self.advance()

    def disconnect(self) -> None:
        """End the connection; unsent bytes are lost."""
        self._has_hung_up = True
        self._output.clear()
        self._requests.clear()
        if self._work is not None:
            self._work.forget()
            self._work = None
        self._state.changed.notify_all()

    def advance(self) -> None:
        """Answer the requests that can be answered now, in order."""
        self._state.scheduler.run_due()
        if self._broker.broker_id in self._state.cluster.stopped_nodes and not self._has_hung_up:
            self.disconnect()
        while self.has_pending_request:
            work = self._work = self._work or self._broker.begin(self._requests.popleft())
            work.start_if_due(self._state.clock.now_ms())
            if work.frame is None:
                return
            self._work = None
            self._output += work.frame
            if work.closes_connection:
                self._requests.clear()
                self._has_hung_up = True

    def take(self, bytes_max: int) -> bytes:
        """Bytes for the client, as many as there are."""
        data = bytes(self._output[:bytes_max])
        del self._output[:bytes_max]
        return data

    def wait(self, deadline_ms: int | None) -> None:
        """Wait until something changes, a response is due, or the deadline (None: no deadline)."""
        start_ms = None if self._work is None else self._work.wake_at_ms
        due = [ms for ms in (deadline_ms, start_ms, self._state.scheduler.next_due_ms) if ms is not None]
        self._state.changed.wait(max(0, min(due) - self._state.clock.now_ms()) / 1000 if due else None)
