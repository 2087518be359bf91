"""One broker of a fake cluster: frames in, frames out.

    frame --> FakeBroker.begin --> PendingFakeResponse --reply--> FakeResponse    a Fetch may wait for records first
    bytes --> FakeBrokerConnection: one client's connection: splits frames, answers in order, wakes after changes

There are no sockets and no threads here: the transport (in memory, or the TCP server) waits on the
cluster's condition in its own thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from bridge.testing import fake_apis, fake_groups
from bridge.testing.fake_faults import (
    ActiveFault,
    CloseConnection,
    Delay,
    Garbage,
    GroupError,
    Hold,
    PartitionError,
    PartitionFault,
    TopicError,
    WrongCorrelationId,
)
from bridge.testing.fake_state import ClusterState, RecordedRequest
from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.error_codes import ErrorCode, error_code
from zkconsumer.kafka.fetch_session_cache import FetchContext, FetchSessionCache
from zkconsumer.kafka.release_features import BrokerRelease
from zkconsumer.kafka.request_decoder import (
    DecodedRequest,
    InvalidFrameAction,
    UnsupportedVersionResponse,
    api_versions_response,
    decode_frame,
)
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
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
)
from zkconsumer.wire.schemas.fetch import FetchRequest
from zkconsumer.wire.schemas.produce import ProduceRequest


@dataclass(frozen=True, slots=True)
class FakeResponse:
    """The bytes for the client; ``closes_connection``: then the connection ends."""

    data: bytes
    closes_connection: bool = False


@dataclass(slots=True)
class PendingFakeResponse:
    """A request without a response yet.

    ``poll(is_final)`` returns the response frame, or None while the request can wait; it is final from ``deadline_ms``
    on.  Nothing is polled before ``not_before_ms``, or while a ``Hold`` is active.
    """

    poll: Callable[[bool], bytes | None]
    deadline_ms: int
    not_before_ms: int
    faults: list[ActiveFault]

    def reply(self, now_ms: int) -> FakeResponse | None:
        """The reply, if it is due."""
        if now_ms < self.not_before_ms or self._is_held:
            return None
        frame = self.poll(now_ms >= self.deadline_ms)
        if frame is None:
            return None
        for injected in self.faults:
            match injected.fault:
                case CloseConnection(after_bytes):
                    return FakeResponse(frame[:after_bytes], closes_connection=True)
                case Garbage(data):
                    return FakeResponse(data)
                case _:
                    pass
        return FakeResponse(frame)

    def wake_at_ms(self, now_ms: int) -> int | None:
        """When to poll again even if nothing changed; None: only lifting a fault can change anything."""
        if self._is_held:
            return None
        return self.not_before_ms if now_ms < self.not_before_ms else self.deadline_ms

    @property
    def _is_held(self) -> bool:
        return any(isinstance(injected.fault, Hold) and not injected.is_lifted for injected in self.faults)


class FakeBroker:
    """``release``: sets the supported versions, and how other versions are rejected."""

    def __init__(self, state: ClusterState, broker_id: int, release: BrokerRelease, fetch_sessions_max: int) -> None:
        self.broker_id = broker_id
        self.release = release
        self.fetch_sessions = FetchSessionCache(state.clock.now_ms, fetch_sessions_max)
        self._state = state

    def begin(self, frame: bytes) -> PendingFakeResponse | FakeResponse:
        """Process a request (without its size)."""
        outcome = decode_frame(frame, self.release)
        match outcome:
            case UnsupportedVersionResponse(refused):
                return FakeResponse(refused)
            case InvalidFrameAction():
                return FakeResponse(b"", closes_connection=outcome is InvalidFrameAction.CLOSE_CONNECTION)
        asked = outcome.header
        fetch = self.fetch_sessions.new_context(outcome.body, outcome.version) if outcome.api is FETCH else None
        topics = fetch.topics if isinstance(fetch, FetchContext) else ()
        self._state.requests.append(
            RecordedRequest(self.broker_id, outcome.api, asked.api_version, asked.client_id, outcome.body, topics)
        )
        self._state.changed.notify_all()
        return self._work(outcome, fetch)

    def _work(self, request: DecodedRequest, fetch: FetchContext | ErrorCode | None) -> PendingFakeResponse:
        now_ms = self._state.clock.now_ms()
        faults = self._faults(request, fetch)
        body = request.body
        return PendingFakeResponse(
            poll=self._answering(request, faults, fetch),
            deadline_ms=now_ms + body.max_wait_ms if isinstance(body, FetchRequest) else now_ms,
            not_before_ms=now_ms + sum(i.fault.delay_ms for i in faults if isinstance(i.fault, Delay)),
            faults=faults,
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

    def _answering(
        self, request: DecodedRequest, faults: list[ActiveFault], fetch: FetchContext | ErrorCode | None
    ) -> Callable[[bool], bytes | None]:
        correlation_id = request.header.correlation_id + sum(
            injected.fault.by for injected in faults if isinstance(injected.fault, WrongCorrelationId)
        )
        partition_faults = {
            injected.fault.tp: injected.fault for injected in faults if isinstance(injected.fault, PartitionFault)
        }
        topic_errors = {
            injected.fault.topic: error_code(injected.fault.code)
            for injected in faults
            if isinstance(injected.fault, TopicError)
        }
        group_errors = {
            injected.fault.group: error_code(injected.fault.code)
            for injected in faults
            if isinstance(injected.fault, GroupError)
        }

        def poll(is_final: bool) -> bytes | None:
            body = self._body(request, fetch, partition_faults, topic_errors, group_errors, is_final)
            if body is None:
                return None
            if isinstance(request.body, ProduceRequest) and request.body.acks == 0:
                return b""
            return encode_response(request.api, request.version, correlation_id, body)

        return poll

    def _body(
        self,
        request: DecodedRequest,
        fetch: FetchContext | ErrorCode | None,
        faults: dict[TopicPartition, PartitionFault],
        topic_errors: dict[str, ErrorCode],
        group_errors: dict[str, ErrorCode],
        is_final: bool,
    ) -> Any:
        state, me, version, body = self._state, self.broker_id, request.version, request.body
        errors = {tp: error_code(fault.code) for tp, fault in faults.items() if isinstance(fault, PartitionError)}
        match request.api.key:
            case API_VERSIONS.key:
                return api_versions_response(self.release)
            case METADATA.key:
                return fake_apis.metadata(state, version, body, faults, topic_errors)
            case LIST_OFFSETS.key:
                return fake_apis.list_offsets(state, me, self.release, version, body, faults)
            case PRODUCE.key:
                return fake_apis.produce(state, me, body, faults)
            case FETCH.key:
                assert fetch is not None, "each Fetch has one"
                return fake_apis.fetch(state, me, self.release, version, body, fetch, faults, is_final=is_final)
            case FIND_COORDINATOR.key:
                return fake_groups.find_coordinator(state, version, body, group_errors)
            case DESCRIBE_GROUPS.key:
                return fake_groups.describe_groups(state, me, body, group_errors)
            case LIST_GROUPS.key:
                return fake_groups.list_groups(state, me)
            case OFFSET_COMMIT.key:
                return fake_groups.offset_commit(state, me, self.release, version, body, group_errors, errors)
            case OFFSET_FETCH.key:
                return fake_groups.offset_fetch(state, me, self.release, version, body, group_errors, errors)
            case OFFSET_DELETE.key:
                return fake_groups.offset_delete(state, me, body, group_errors)
        raise AssertionError(f"{request.api.name} stands in the releases' table, but nobody answers it")


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
            return any(topics is None or tp in fake_groups.partitions_of(topics) for topics in asked)
    return False


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
        case OFFSET_COMMIT.key | OFFSET_DELETE.key:
            return {body.group_id}
        case OFFSET_FETCH.key:
            return {body.group_id, *(group.group_id for group in body.groups)}
    return set()


class FakeBrokerConnection:
    """One client's connection to one broker.  Every method is called with the cluster's lock held."""

    def __init__(self, state: ClusterState, broker: FakeBroker) -> None:
        self._state = state
        self._broker = broker
        self._received = bytearray()
        self._requests: deque[bytes] = deque()
        self._work: PendingFakeResponse | None = None
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
        self._work = None
        self._state.changed.notify_all()

    def advance(self) -> None:
        """Answer the requests that can be answered now, in order."""
        if self._broker.broker_id not in self._state.running_brokers and not self._has_hung_up:
            self.disconnect()
        while self.has_pending_request:
            reply: PendingFakeResponse | FakeResponse | None = self._work or self._broker.begin(
                self._requests.popleft()
            )
            if isinstance(reply, PendingFakeResponse):
                self._work = reply
                reply = reply.reply(self._state.clock.now_ms())
            if reply is None:
                return
            self._work = None
            self._output += reply.data
            if reply.closes_connection:
                self._requests.clear()
                self._has_hung_up = True

    def take(self, bytes_max: int) -> bytes:
        """Bytes for the client, as many as there are."""
        data = bytes(self._output[:bytes_max])
        del self._output[:bytes_max]
        return data

    def wait(self, deadline_ms: int | None) -> None:
        """Wait until something changes, a response is due, or the deadline (None: no deadline)."""
        now_ms = self._state.clock.now_ms()
        due_ms = None if self._work is None else self._work.wake_at_ms(now_ms)
        times = [time_ms for time_ms in (deadline_ms, due_ms) if time_ms is not None]
        self._state.changed.wait(max(0, min(times) - now_ms) / 1000 if times else None)
