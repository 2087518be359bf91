"""The connection, over sockets and in memory: one code, two transports."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, Delay, Garbage, Hold, WrongCorrelationId
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import WorkerThread, live_threads, spawn
from zkconsumer.errors import BrokerUnreachable, ConnectorClosed, ForkedError, RemoteProtocolError, UsageError
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.kafka.net.compiled_sockets import SOCKETS
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason, guess_protocol
from zkconsumer.kafka.net.sasl_client_authenticator import REQUEST_CORRELATION_ID_MAX
from zkconsumer.kafka.transport import HAS_WAIT_ALL, SocketTransport
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import encode_response
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, METADATA, PRODUCE
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from zkconsumer.wire.schemas.produce import ProduceRequest

TIMEOUT_MS = 5_000
SHORT_MS = 50
LONG_POLL_MS = 60_000

TOPIC = "clicks"
ALL = MetadataRequest(topics=[])


def one_topic(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def long_poll() -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=LONG_POLL_MS, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])


@pytest.fixture(params=["memory", "tcp"])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    made = FakeCluster(release="3.9.1")
    made.create_topic(TOPIC)
    with ExitStack() as stack:
        if request.param == "tcp":
            stack.enter_context(made.serve())
        yield made
    assert live_threads() == []


@pytest.fixture
def connect(cluster: FakeCluster) -> Callable[..., Connection]:
    """A ``Connect`` by the transport of this run."""
    is_tcp = cluster.address(0).host == "127.0.0.1"
    return BlockingConnection if is_tcp else cluster.connect


@pytest.fixture
def connection(cluster: FakeCluster, connect: Callable[..., Connection]) -> Iterator[Connection]:
    _, host, port = cluster.address(0)
    made = connect(host, port, client_id="tests")
    yield made
    made.close()


# --- asking and answering ---------------------------------------------------------------------------------------


def test_a_request_is_answered(cluster: FakeCluster, connection: Connection) -> None:
    response = connection.request(METADATA, 1, one_topic(TOPIC), TIMEOUT_MS)
    assert [topic.name for topic in response.topics] == [TOPIC]
    [seen] = cluster.requests
    assert (seen.api, seen.version, seen.client_id, seen.body) == (METADATA, 1, "tests", one_topic(TOPIC))


def test_nothing_is_opened_before_the_first_request() -> None:
    connection = FakeCluster().connect("nobody", 1)
    with pytest.raises(BrokerConnectionError) as caught:
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.REFUSED


def test_pipelined_answers_come_in_order(connection: Connection) -> None:
    first = connection.send(METADATA, 0, one_topic("a"), TIMEOUT_MS)
    second = connection.send(METADATA, 1, one_topic("b"), TIMEOUT_MS)
    with pytest.raises(UsageError, match="the answer to Metadata v0 comes before that to Metadata v1"):
        connection.receive(second, TIMEOUT_MS)
    assert connection.receive(first, TIMEOUT_MS).topics[0].name == "a"
    third = connection.send(METADATA, 2, one_topic("c"), TIMEOUT_MS)
    assert connection.receive(second, TIMEOUT_MS).topics[0].name == "b"
    assert connection.receive(third, TIMEOUT_MS).topics[0].name == "c"


def test_an_answer_larger_than_any_buffer_arrives_whole(cluster: FakeCluster, connection: Connection) -> None:
    value = bytes(range(256)) * 20_000
    cluster.append(TOPIC, 0, [value])
    body = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**30)])
        ],
    )
    records = connection.request(FETCH, 12, body, TIMEOUT_MS).responses[0].partitions[0].records
    assert records is not None
    assert bytes(records).endswith(value + b"\0")


def test_an_answer_is_put_where_the_caller_wants_it(cluster: FakeCluster, connection: Connection) -> None:
    cluster.append(TOPIC, 0, [b"a value"])
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    body = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[asked])])
    given: list[bytearray] = []

    def new_buffer(size: int) -> memoryview:
        given.append(bytearray(b"\xff" * size))
        return memoryview(given[-1])

    pending = connection.send(FETCH, 12, body, TIMEOUT_MS)
    answer = connection.receive(pending, TIMEOUT_MS, new_buffer=new_buffer)
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is given[0]
    assert bytes(records).endswith(b"a value\0")
    assert len(given) == 1


def test_a_small_answer_is_received_in_one_call_and_the_one_behind_it_in_none() -> None:
    calls: list[str] = []

    class Watched(SocketTransport):
        def receive_into(self, view: memoryview, deadline_ms: int) -> int:
            calls.append("receive_into")
            return super().receive_into(view, deadline_ms)

        def fill(self, view: memoryview, deadline_ms: int) -> int:
            calls.append("fill")
            return super().fill(view, deadline_ms)

    frame = encode_response(METADATA, 0, 0, MetadataResponse(brokers=[], topics=[]))
    second = encode_response(METADATA, 0, 1, MetadataResponse(brokers=[], topics=[]))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = BlockingConnection(*listener.getsockname(), transport=Watched)
        one, two = (connection.send(METADATA, 0, ALL, TIMEOUT_MS) for _ in range(2))
        other, _ = listener.accept()
        with other:
            other.sendall(frame + second)
            connection.receive(one, TIMEOUT_MS)
            assert calls == ["receive_into"]
            assert connection.has_response(0)
            connection.receive(two, TIMEOUT_MS)
            assert calls == ["receive_into"]
            three = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
            other.sendall(frame[:6])
            other.shutdown(socket.SHUT_WR)
            with pytest.raises(BrokerConnectionError, match="after 6 bytes of the answer to Metadata v0"):
                connection.receive(three, TIMEOUT_MS)
        connection.close()


def test_has_answer_waits_but_takes_nothing(cluster: FakeCluster, connection: Connection) -> None:
    hold = cluster.inject(Hold(), api=METADATA)
    pending = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    assert not connection.has_response(1)
    cluster.lift(hold)
    assert connection.has_response(TIMEOUT_MS)
    assert connection.has_response(TIMEOUT_MS)
    assert connection.receive(pending, TIMEOUT_MS).topics


def test_receive_next_passes_over_requests_that_the_broker_ignored() -> None:
    cluster = FakeCluster(release="0.9.0.1")
    connection = cluster.connect(*cluster.address(0)[1:])
    ignored = connection.send(API_VERSIONS, 0, ApiVersionsRequest(), TIMEOUT_MS)
    asked = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    answered, body = connection.receive_next(TIMEOUT_MS)
    assert answered is asked
    assert body.brokers
    with pytest.raises(BrokerConnectionError, match="the connection broke before ApiVersions v0 was answered"):
        connection.receive(ignored, TIMEOUT_MS)
    with pytest.raises(UsageError, match="no request is waiting"):
        connection.receive_next(TIMEOUT_MS)
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers


def test_correlation_ids_start_again_after_the_last(connection: Connection) -> None:
    assert isinstance(connection, BlockingConnection)
    connection._correlation_id = REQUEST_CORRELATION_ID_MAX
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers
    assert connection._correlation_id == 0
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers


def test_a_request_without_an_answer_is_refused(connection: Connection) -> None:
    with pytest.raises(UsageError, match="acks=0 has no answer"):
        connection.request(PRODUCE, 0, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), TIMEOUT_MS)


def test_a_request_that_cannot_be_written_leaves_the_connection_whole(connection: Connection) -> None:
    pending = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    with pytest.raises(UsageError, match="Metadata v99 is not spoken here"):
        connection.send(METADATA, 99, ALL, TIMEOUT_MS)
    assert connection.receive(pending, TIMEOUT_MS).brokers


# --- what goes wrong --------------------------------------------------------------------------------------------


def test_a_silent_broker_is_given_up_at_the_deadline(cluster: FakeCluster, connection: Connection) -> None:
    cluster.inject(Hold(), api=METADATA)
    started_ms = SYSTEM_CLOCK.now_ms()
    with pytest.raises(BrokerConnectionError) as caught:
        connection.request(METADATA, 0, ALL, SHORT_MS)
    assert SHORT_MS <= SYSTEM_CLOCK.now_ms() - started_ms < TIMEOUT_MS
    assert caught.value.reason is ConnectionFailureReason.TIMED_OUT
    host, port = connection.host, connection.port
    assert str(caught.value).startswith(f"{host}:{port}: no answer to Metadata v0 within {SHORT_MS} ms; ")


def test_a_late_answer_in_time_is_an_answer(cluster: FakeCluster, connection: Connection) -> None:
    cluster.inject(Delay(SHORT_MS))
    started_ms = SYSTEM_CLOCK.now_ms()
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers
    assert SYSTEM_CLOCK.now_ms() - started_ms >= SHORT_MS


def test_a_connection_that_broke_opens_again_at_the_next_request(cluster: FakeCluster, connection: Connection) -> None:
    cluster.inject(CloseConnection())
    with pytest.raises(BrokerConnectionError, match="closed instead of answering Metadata v0") as caught:
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.CLOSED
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers


def test_no_request_is_repeated_by_itself(cluster: FakeCluster, connection: Connection) -> None:
    cluster.inject(CloseConnection())
    with pytest.raises(BrokerUnreachable):
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert len(cluster.requests) == 1


def test_answers_that_were_pending_when_it_broke_are_lost(cluster: FakeCluster, connection: Connection) -> None:
    cluster.inject(CloseConnection(after_bytes=10))
    first = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    second = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    with pytest.raises(BrokerConnectionError) as caught:
        connection.receive(first, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.CLOSED
    again = connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    with pytest.raises(BrokerConnectionError, match="the connection broke before Metadata v0 was answered"):
        connection.receive(second, TIMEOUT_MS)
    assert connection.receive(again, TIMEOUT_MS).brokers


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is this port an HTTP port"),
        (Garbage(bytes.fromhex("00000006 00000000 0000")), "field brokers at byte 4: a length takes 4 bytes, 2 left"),
        (WrongCorrelationId(5), "field correlation_id at byte 0: 5, expected 0"),
    ],
)
def test_garbage_is_a_protocol_error_that_names_the_broker(
    cluster: FakeCluster, connection: Connection, fault: Any, text: str
) -> None:
    cluster.inject(fault)
    with pytest.raises(RemoteProtocolError, match=text) as caught:
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert isinstance(caught.value, MalformedMessage)
    assert str(caught.value).startswith(f"{connection.host}:{connection.port}: Metadata v0 response")
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers, "the next request begins on a fresh connection"


def test_a_broker_that_stops_breaks_its_connections(cluster: FakeCluster, connection: Connection) -> None:
    connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    cluster.stop_broker(0)
    with pytest.raises(BrokerConnectionError) as caught:
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.CLOSED
    with pytest.raises(BrokerConnectionError, match="refused; start the broker, or correct its address") as caught:
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.REFUSED
    cluster.start_broker(0)
    assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers


def test_a_send_to_a_connection_that_broke_is_an_error_though_responses_can_be_read() -> None:
    class Broken(SocketTransport):
        sends = 0

        def open(self, deadline_ms: int) -> None:
            pass

        def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
            self.sends += 1
            if self.sends == 2:
                raise ConnectionResetError("reset")

        def receive_into(self, view: memoryview, deadline_ms: int) -> int:
            return len(view)

        def wait(self, deadline_ms: int) -> bool:
            return True

        def release(self) -> None:
            pass

    connection = BlockingConnection("h", 1, transport=Broken)
    connection.send(METADATA, 0, ALL, TIMEOUT_MS)
    with pytest.raises(BrokerConnectionError, match=r"the connection was closed during Metadata v0 \(reset\)"):
        connection.send(METADATA, 0, ALL, TIMEOUT_MS)


def test_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(
        BrokerConnectionError, match=r"the name broker\.example has no address .* correct DNS"
    ) as caught:
        BlockingConnection("broker.example", 9092).request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.UNRESOLVED


@pytest.mark.parametrize("host", ["broker..example", "b" * 64 + ".example"])
def test_a_name_that_no_host_can_have_has_no_address(host: str) -> None:
    with pytest.raises(BrokerConnectionError, match=r"the name b.* has no address .*label.* correct DNS") as caught:
        BlockingConnection(host, 9092).request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.UNRESOLVED


@pytest.mark.parametrize("timeout_ms", [2**31 - 1, 2**31 + 60_000])
def test_a_timeout_may_be_longer_than_a_system_call_can_wait(timeout_ms: int) -> None:
    """``Integer.MAX_VALUE`` of a Java program; a fetch may wait ``max_wait_ms`` longer."""
    cluster = FakeCluster()
    with cluster.serve():
        _, host, port = cluster.address(0)
        connection = BlockingConnection(host, port, connect_timeout_ms=timeout_ms)
        assert connection.request(METADATA, 0, ALL, timeout_ms).brokers
        connection.send(METADATA, 0, ALL, timeout_ms)
        assert connection.has_response(timeout_ms)
        connection.close()


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    with cluster.serve(), socket.create_server(("127.0.0.1", 0)) as unused:
        dead = unused.getsockname()
        unused.close()
        alive = cluster.address(0)[1:]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (dead, alive)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        connection = BlockingConnection("broker", 9092)
        assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers
        connection.close()


def test_an_interrupt_in_the_middle_of_an_answer_breaks_the_connection() -> None:
    class Interrupted(SocketTransport):
        released = 0

        def open(self, deadline_ms: int) -> None:
            pass

        def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
            pass

        def receive_into(self, view: memoryview, deadline_ms: int) -> int:
            raise KeyboardInterrupt

        def release(self) -> None:
            type(self).released += 1

    connection = BlockingConnection("h", 1, transport=Interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert Interrupted.released == 1


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"HTTP", "HTTP port"),
        (b"\x16\x03\x01", "TLS port"),
        (b"SSH-", "SSH port"),
        (b"\x7f\0\0\0", "something else"),
        (b"\0\0\0\x10", ""),
        (b"", ""),
    ],
)
def test_a_guess_for_the_reader(start: bytes, text: str) -> None:
    assert text in guess_protocol(start)
    assert bool(guess_protocol(start)) == bool(text)


# --- closing ----------------------------------------------------------------------------------------------------


def in_thread(what: Callable[[], object]) -> tuple[WorkerThread, list[object]]:
    """Run it in a thread; what it gives or raises ends up in the list."""
    results: list[object] = []
    worker = spawn("caller", lambda stop: results.append(what()), lambda _, error: results.append(error))
    return worker, results


def test_close_from_another_thread_breaks_a_blocked_receive_at_once(
    cluster: FakeCluster, connection: Connection
) -> None:
    worker, results = in_thread(lambda: connection.request(FETCH, 4, long_poll(), LONG_POLL_MS))
    cluster.wait_for_request(lambda seen: seen.api is FETCH, TIMEOUT_MS)
    started_ms = SYSTEM_CLOCK.now_ms()
    connection.close()
    assert worker.join(TIMEOUT_MS)
    assert SYSTEM_CLOCK.now_ms() - started_ms < 1000
    [error] = results
    assert isinstance(error, ConnectorClosed)
    assert "was closed by this process" in str(error)


def test_close_is_final_and_may_come_twice(connection: Connection) -> None:
    connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    connection.close()
    connection.close()
    with pytest.raises(ConnectorClosed):
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    with pytest.raises(ConnectorClosed):
        connection.has_response(0)


def test_close_before_the_first_request(connect: Callable[..., Connection]) -> None:
    connection = connect("127.0.0.1", 1)
    connection.close()
    with pytest.raises(ConnectorClosed):
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)


def test_two_threads_cannot_share_a_connection(cluster: FakeCluster, connection: Connection) -> None:
    worker, results = in_thread(lambda: connection.request(FETCH, 4, long_poll(), LONG_POLL_MS))
    cluster.wait_for_request(lambda seen: seen.api is FETCH, TIMEOUT_MS)
    with pytest.raises(UsageError, match="two threads use the connection"):
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    cluster.append(TOPIC, 0, [b"a"])
    assert worker.join(TIMEOUT_MS)
    assert not isinstance(results[0], BaseException)


@contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue of connections is full: the next one hangs, as behind a firewall that drops packets."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_connecting_has_a_deadline_of_its_own() -> None:
    with black_hole() as port:
        connection = BlockingConnection("127.0.0.1", port, connect_timeout_ms=SHORT_MS)
        with pytest.raises(BrokerConnectionError, match=f"no answer to connect within {SHORT_MS} ms") as caught:
            connection.request(METADATA, 0, ALL, TIMEOUT_MS)
    assert caught.value.reason is ConnectionFailureReason.TIMED_OUT


def test_close_breaks_a_connect_that_hangs() -> None:
    connecting = Marked("connect")

    class Watched(SocketTransport):
        def _left(self, deadline_ms: int) -> float:
            connecting.reach()
            return super()._left(deadline_ms)

    with black_hole() as port:
        connection = BlockingConnection("127.0.0.1", port, connect_timeout_ms=LONG_POLL_MS, transport=Watched)
        worker, results = in_thread(lambda: connection.request(METADATA, 0, ALL, TIMEOUT_MS))
        connecting.wait()
        connection.close()
        assert worker.join(TIMEOUT_MS)
    assert isinstance(results[0], ConnectorClosed)


class Marked:
    """A point in another thread that a test waits for."""

    def __init__(self, name: str) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.settimeout(TIMEOUT_MS / 1000)
        self._name = name

    def reach(self) -> None:
        self._theirs.send(b"x")

    def wait(self) -> None:
        assert self._ours.recv(1), self._name
        self._ours.close()


def test_failures_leave_no_descriptor_behind(cluster: FakeCluster, connect: Callable[..., Connection]) -> None:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("descriptors can be counted on Linux only")
    _, host, port = cluster.address(0)

    def fail() -> None:
        connection = connect(host, port)
        for fault in (CloseConnection(), Garbage(b"HTTP"), CloseConnection(after_bytes=5)):
            cluster.inject(fault)
            with pytest.raises((BrokerUnreachable, RemoteProtocolError)):
                connection.request(METADATA, 0, ALL, TIMEOUT_MS)
        connection.close()
        refused = connect("127.0.0.1", 1)
        with pytest.raises(BrokerUnreachable):
            refused.request(METADATA, 0, ALL, TIMEOUT_MS)

    fail()
    before = len(list(folder.iterdir()))
    for _ in range(5):
        fail()
    # Every failure ends the broker's side too, but in its own thread: what is counted must settle.
    deadline_ms = SYSTEM_CLOCK.now_ms() + TIMEOUT_MS
    while len(list(folder.iterdir())) > before and SYSTEM_CLOCK.now_ms() < deadline_ms:
        os.sched_yield()
    assert len(list(folder.iterdir())) <= before


# --- the socket itself, and processes ---------------------------------------------------------------------------


def test_the_socket_is_set_up_for_a_broker() -> None:
    cluster = FakeCluster()
    with cluster.serve():
        _, host, port = cluster.address(0)
        transport = SocketTransport(host, port, 256 * 1024, SYSTEM_CLOCK)
        transport.open(SYSTEM_CLOCK.now_ms() + TIMEOUT_MS)
        sock = transport._socket
        assert sock is not None
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        default = SocketTransport(host, port, -1, SYSTEM_CLOCK)
        default.open(SYSTEM_CLOCK.now_ms() + TIMEOUT_MS)
        assert default._socket is not None
        assert given != default._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        transport.release()
        default.release()
        with pytest.raises(ConnectionAbortedError, match="not open"):
            transport.receive_into(memoryview(bytearray(1)), SYSTEM_CLOCK.now_ms() + TIMEOUT_MS)


@contextmanager
def listening() -> Iterator[tuple[SocketTransport, socket.socket]]:
    """A transport that is open, and the other end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        transport = SocketTransport(host, port, 64 * 1024, SYSTEM_CLOCK)
        transport.open(SYSTEM_CLOCK.now_ms() + TIMEOUT_MS)
        other, _ = listener.accept()
        with other:
            yield transport, other
        transport.release()


class CountedSocket:
    """A socket that counts its calls."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._sock, name)


def counted_socket(transport: SocketTransport) -> CountedSocket:
    """The socket of the transport, which counts its calls from now on."""
    counted = CountedSocket(transport._socket)  # type: ignore[arg-type]
    transport._socket = counted  # type: ignore[assignment]
    return counted


LARGE = bytes(range(256)) * 8_000


def sending(other: socket.socket, data: bytes) -> WorkerThread:
    return spawn("sender", lambda stop: other.sendall(data), lambda _, error: None)


@pytest.mark.skipif(not HAS_WAIT_ALL, reason="this system has no MSG_WAITALL")
def test_an_answer_much_larger_than_the_receive_buffer_is_one_call_on_any_thread_but_the_main_one() -> None:
    """Each call would need the interpreter's lock again, which an iterating thread gives up every 5 ms."""
    with listening() as (transport, other):
        counted = counted_socket(transport)
        view = memoryview(bytearray(len(LARGE)))
        sender = sending(other, LARGE)
        worker, results = in_thread(lambda: transport.fill(view, SYSTEM_CLOCK.now_ms() + TIMEOUT_MS))
        assert worker.join(TIMEOUT_MS)
        assert sender.join(TIMEOUT_MS)
        assert results == [len(LARGE)]
        assert bytes(view) == LARGE
        assert counted.calls.count("recv_into") == 1
        sender = sending(other, LARGE)
        assert transport.fill(view, SYSTEM_CLOCK.now_ms() + TIMEOUT_MS) == len(LARGE), "the main thread, by pieces"
        assert sender.join(TIMEOUT_MS)


@pytest.mark.skipif(SOCKETS is None, reason="the compiled module is not in use")
def test_the_main_thread_waits_for_the_parts_of_an_answer_without_a_call_of_python() -> None:
    with listening() as (transport, other):
        counted = counted_socket(transport)
        view = memoryview(bytearray(len(LARGE)))
        sender = sending(other, LARGE)
        assert transport.fill(view, SYSTEM_CLOCK.now_ms() + TIMEOUT_MS) == len(LARGE)
        assert sender.join(TIMEOUT_MS)
        assert bytes(view) == LARGE
        assert counted.calls == ["fileno"]


def test_a_signal_handler_runs_while_the_main_thread_waits_for_the_rest_of_an_answer() -> None:
    """It ends the wait of the compiled module, and the fill goes on after it."""
    with listening() as (transport, other):

        def on_signal(number: int, frame: object) -> None:
            if not handled.is_set():
                handled.set()
                other.sendall(b"the rest")

        def send_signals(stop: object) -> None:
            while not handled.wait(0.02):  # one that comes just before the wait does not end it
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        handled = threading.Event()
        before = signal.signal(signal.SIGUSR1, on_signal)
        try:
            other.sendall(b"some, ")
            sender = spawn("signals", send_signals, lambda _, error: None)
            view = memoryview(bytearray(14))
            assert transport.fill(view, SYSTEM_CLOCK.now_ms() + TIMEOUT_MS) == 14
        finally:
            handled.set()
            assert sender.join(TIMEOUT_MS)
            signal.signal(signal.SIGUSR1, before)
        assert bytes(view) == b"some, the rest"


def test_the_kernel_is_told_a_deadline_once_for_many_calls_alike() -> None:
    with listening() as (transport, other):
        counted = counted_socket(transport)
        view = memoryview(bytearray(1))
        for _ in range(10):
            other.sendall(b"x")
            assert transport.receive_into(view, SYSTEM_CLOCK.now_ms() + TIMEOUT_MS) == 1
        assert counted.calls.count("setsockopt") <= 2


@pytest.mark.parametrize("call", ["receive_into", "fill"])
@pytest.mark.parametrize("is_main_thread", [True, False], ids=["main thread", "another thread"])
def test_a_deadline_holds_though_some_bytes_come(call: str, is_main_thread: bool) -> None:
    with listening() as (transport, other):
        if call == "fill":
            other.sendall(b"some")
        view = memoryview(bytearray(1_000))

        def receive() -> object:
            # The one before was told a longer time.
            transport._timeouts_ms[socket.SO_RCVTIMEO] = -1
            with pytest.raises(TimeoutError):
                getattr(transport, call)(view, SYSTEM_CLOCK.now_ms() + SHORT_MS)
            return True

        if is_main_thread:
            assert receive()
        else:
            worker, results = in_thread(receive)
            assert worker.join(TIMEOUT_MS)
            assert results == [True]


def test_a_deadline_that_is_nearer_than_the_one_before_holds() -> None:
    with listening() as (transport, other):
        other.sendall(b"x")

        def receive() -> object:
            view = memoryview(bytearray(1))
            transport.receive_into(view, SYSTEM_CLOCK.now_ms() + LONG_POLL_MS)
            with pytest.raises(TimeoutError):
                transport.receive_into(view, SYSTEM_CLOCK.now_ms() + SHORT_MS)
            return True

        worker, results = in_thread(receive)
        assert worker.join(TIMEOUT_MS)
        assert results == [True]


def test_a_send_that_the_other_side_does_not_take_ends_at_its_deadline() -> None:
    with listening() as (transport, _):
        data = bytes(64 * 1024 * 1024)
        worker, results = in_thread(lambda: transport.send_all(data, SYSTEM_CLOCK.now_ms() + SHORT_MS))
        assert worker.join(TIMEOUT_MS)
        assert isinstance(results[0], TimeoutError)


def test_an_abort_ends_a_fill_at_once() -> None:
    with listening() as (transport, other):
        other.sendall(b"some")
        worker, results = in_thread(
            lambda: transport.fill(memoryview(bytearray(1_000)), SYSTEM_CLOCK.now_ms() + LONG_POLL_MS)
        )
        transport.abort()
        assert worker.join(TIMEOUT_MS)
        assert isinstance(results[0], ConnectionAbortedError) or results[0] in (0, 4)


def test_the_end_of_the_other_side_ends_a_fill() -> None:
    with listening() as (transport, other):
        other.sendall(b"some")
        other.shutdown(socket.SHUT_WR)
        view = memoryview(bytearray(1_000))
        assert transport.fill(view, SYSTEM_CLOCK.now_ms() + TIMEOUT_MS) == 4
        assert bytes(view[:4]) == b"some"


def test_an_aborted_transport_stays_aborted() -> None:
    transport = SocketTransport("127.0.0.1", 1, 0, SYSTEM_CLOCK)
    transport.abort()
    with pytest.raises(ConnectionAbortedError):
        transport.open(SYSTEM_CLOCK.now_ms() + TIMEOUT_MS)


def test_a_connection_is_refused_in_a_child_and_works_on_in_the_parent() -> None:
    cluster = FakeCluster()
    with cluster.serve():
        _, host, port = cluster.address(0)
        connection = BlockingConnection(host, port)
        connection.request(METADATA, 0, ALL, TIMEOUT_MS)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            report = b"nothing was raised"
            try:
                connection.request(METADATA, 0, ALL, TIMEOUT_MS)
            except ForkedError as error:
                report = str(error).encode()
            finally:
                connection.close()
                os.write(writing, report)
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            assert pipe.read().endswith(f"belongs to process {os.getpid()}; connect in the child instead")
        assert connection.request(METADATA, 0, ALL, TIMEOUT_MS).brokers
        connection.close()


def test_deadlines_are_those_of_the_clock_that_was_given() -> None:
    class Later:
        """A clock that jumps by a minute each time it is read."""

        now = 0

        def now_ms(self) -> int:
            self.now += 60_000
            return self.now

        def wall_ms(self) -> int:
            return 0

    clock: Clock = Later()
    cluster = FakeCluster()
    with cluster.serve():
        _, host, port = cluster.address(0)
        connection = BlockingConnection(host, port, clock=clock)
        with pytest.raises(BrokerConnectionError, match="no answer to connect within"):
            connection.request(METADATA, 0, ALL, TIMEOUT_MS)
