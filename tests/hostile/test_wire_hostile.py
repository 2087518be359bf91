"""Bytes that no sound peer sends, one danger a test.  All of them end in ``RemoteProtocolError``, with the place."""

from __future__ import annotations

import random
import socket
import struct
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.wire_message_samples import EVERY_VERSION, EVERY_VERSION_IDS, filled
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.errors import BrokerUnreachable, RemoteProtocolError
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.types import TopicPartition
from zkconsumer.wire import consumer_protocol, group_records
from zkconsumer.wire.field_types import ArrayFieldType
from zkconsumer.wire.primitives import (
    ITEMS_MAX,
    OBJECT_BYTES_FREE,
    MalformedMessage,
    MessageReader,
)
from zkconsumer.wire.request_frames import (
    SIZE_BYTES,
    correlation_id_of,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    frame_size,
)
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, Api
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.message_schema import NestedMessageFieldType, fields
from zkconsumer.wire.schemas.metadata import MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic

TIMEOUT_MS = 5_000
SHORT_MS = 100

every_version = pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=EVERY_VERSION_IDS)


def refused(api: Api[Any, Any], version: int, data: bytes) -> MalformedMessage:
    """The error that decoding an answer gives."""
    with pytest.raises(MalformedMessage) as caught:
        decode_response(api, version, data)
    return caught.value


# --- one danger each --------------------------------------------------------------------------------------------


def test_negative_length_of_a_text() -> None:
    error = refused(METADATA, 0, bytes.fromhex("00000001 00000001 00000001 fffe 00000000 00000000"))
    assert (error.field, error.offset) == ("brokers[0].host", 12)
    assert "Metadata v0 response: field brokers[0].host at byte 12: negative length -2" in str(error)


def test_negative_count_of_an_array() -> None:
    error = refused(METADATA, 0, bytes.fromhex("00000001 80000000"))
    assert (error.field, error.offset, error.why) == ("brokers", 4, "negative length -2147483648")


def test_null_array_where_the_version_has_none() -> None:
    assert "null array where this version has none" in refused(METADATA, 0, bytes.fromhex("00000001 ffffffff")).why
    assert "null array where this version has none" in refused(API_VERSIONS, 3, bytes.fromhex("00000001 0000 00")).why


def test_null_text_where_the_version_has_none() -> None:
    error = refused(METADATA, 0, bytes.fromhex("00000001 00000001 00000001 ffff 00000001 00000000 000000000000"))
    assert (error.field, error.why) == ("brokers[0].host", "null text where this version has none")


def test_record_set_shorter_than_minus_one() -> None:
    data = "00000001 00000001 0000 00000001 00000000 0000 0000000000000000 fffffffe"
    error = refused(FETCH, 0, bytes.fromhex(data))
    assert (error.field, error.why) == ("responses[0].partitions[0].records", "negative length -2")


def test_record_set_longer_than_the_frame() -> None:
    data = "00000001 00000001 0000 00000001 00000000 0000 0000000000000000 7fffffff 0000"
    error = refused(FETCH, 0, bytes.fromhex(data))
    assert error.why == "2147483647 bytes announced, 2 left"


@pytest.mark.parametrize(
    ("api", "version", "data"),
    [
        (METADATA, 0, "00000001 7fffffff"),
        (LIST_OFFSETS, 0, "00000001 00000001 0000 00000001 00000000 0000 7fffffff"),
        (METADATA, 9, "00000001 00 00000000 ffffffff0f"),
        (API_VERSIONS, 0, "00000001 0000 0fffffff"),
    ],
)
def test_huge_count_takes_no_memory(api: Api[Any, Any], version: int, data: str) -> None:
    refused(api, version, bytes.fromhex(data))  # whatever is made once is made before the measurement
    tracemalloc.start()
    try:
        error = refused(api, version, bytes.fromhex(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "elements of at least" in error.why
    assert peak < 1_000_000


def test_more_elements_than_any_cluster_has() -> None:
    """A frame within the limits whose arrays would make a hundred million small objects."""
    offsets = ITEMS_MAX + 1
    data = bytes.fromhex("00000001 00000001 0000 00000001 00000000 0000") + offsets.to_bytes(4, "big")
    error = refused(LIST_OFFSETS, 0, data + bytes(8 * offsets))
    assert f"more than {ITEMS_MAX} elements" in error.why


def answer_of_topics(count: int, topic: bytes) -> bytes:
    """A Metadata v0 answer without brokers whose topics are all the same bytes."""
    return struct.pack(">iii", 1, 0, count) + topic * count


def memory_of(decode: Callable[[], object]) -> int:
    """The most bytes that are allocated at a time meanwhile."""
    tracemalloc.start()
    try:
        result = decode()
        most = tracemalloc.get_traced_memory()[1]
        del result
        return most
    finally:
        tracemalloc.stop()


def test_an_answer_of_many_small_elements_is_refused_before_any_is_made() -> None:
    """15 MiB of topics without name or partition were 290 MiB of objects."""
    data = answer_of_topics(1_999_990, bytes(8))
    refused(METADATA, 0, data)
    assert memory_of(lambda: refused(METADATA, 0, data)) < 1_000_000


def test_what_is_decoded_takes_at_most_twice_the_memory_of_a_plain_answer_for_its_bytes() -> None:
    """Plain: topics with 20 partitions of one replica, the smallest that brokers send."""
    rows = [MetadataPartition(partition_index=at, leader_id=1, replica_nodes=[1], isr_nodes=[1]) for at in range(20)]
    topics = [MetadataTopic(name=f"topic-{number}", partitions=rows) for number in range(200)]
    plain = encode_response(METADATA, 0, 1, MetadataResponse(brokers=[], topics=topics))[SIZE_BYTES:]
    count = OBJECT_BYTES_FREE // 2_000
    for topic in (bytes(8), b"\0\0\0\5abcde\0\0\0\0"):
        small = answer_of_topics(count, topic)
        of_small = memory_of(lambda data=small: decode_response(METADATA, 0, data)) / len(small)  # type: ignore[misc]
        assert of_small < 2 * memory_of(lambda: decode_response(METADATA, 0, plain)) / len(plain)


def test_the_largest_cluster_is_read() -> None:
    rows = [
        MetadataPartition(partition_index=at, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
        for at in range(100)
    ]
    topics = [MetadataTopic(name=f"topic-{number}", partitions=rows) for number in range(2_000)]
    for version in (0, 9):
        frame = encode_response(METADATA, version, 1, MetadataResponse(brokers=[], topics=topics))
        assert len(decode_response(METADATA, version, frame[SIZE_BYTES:])[1].topics) == 2_000


@every_version
def test_what_an_empty_element_takes_is_estimated_well(api: Api[Any, Any], version: int) -> None:
    """The decoder refuses by this estimate."""
    if api.is_flexible(version):
        return
    for kind in _elements(api.response, version):
        read = kind.reader("", version, False, False)
        reader = MessageReader(bytes(200 * kind.bytes_min(version, False)))
        read(reader)
        taken = memory_of(lambda read=read, reader=reader: [read(reader) for _ in range(199)]) / 199  # type: ignore[misc]
        assert taken <= 1.3 * kind.object_bytes + 16, kind.cls


def _elements(cls: type, version: int) -> Iterator[NestedMessageFieldType]:
    """The kinds of messages that arrays of this message, and of those in it, hold."""
    for field in fields(cls):
        kind = field.spec.field_type
        if (
            isinstance(kind, ArrayFieldType)
            and isinstance(kind.item, NestedMessageFieldType)
            and version in field.spec.versions
        ):
            yield kind.item
            yield from _elements(kind.item.cls, version)


def test_trailing_bytes() -> None:
    whole = encode_response(METADATA, 1, 1, filled(METADATA.response, 1))[SIZE_BYTES:]
    assert refused(METADATA, 1, whole + b"\0").why == "1 bytes after the last field"
    request = encode_request(METADATA, 1, 1, None, MetadataRequest(topics=[]))[SIZE_BYTES:]
    with pytest.raises(RemoteProtocolError, match="Metadata v1 request: field frame at byte 14: 1 bytes after"):
        decode_request(request + b"\0")


def test_bad_utf_8() -> None:
    error = refused(METADATA, 0, bytes.fromhex("00000001 00000001 00000001 0003 61ff62 00000001 00000000"))
    assert (error.field, error.offset) == ("brokers[0].host", 15)
    assert "not UTF-8" in error.why


def test_utf_8_that_smuggles_a_surrogate() -> None:
    error = refused(METADATA, 0, bytes.fromhex("00000001 00000001 00000001 0003 eda080 00000001 00000000"))
    assert "not UTF-8" in error.why


def test_text_of_more_than_32767_bytes_in_a_compact_field() -> None:
    data = bytes.fromhex("00000001 00 00000000 02 00000001 818002") + bytes(0x8000)
    assert "a text of 32768 bytes" in refused(METADATA, 9, data).why


def test_variable_length_number_that_does_not_end() -> None:
    assert "more than 5 bytes" in refused(METADATA, 9, bytes.fromhex("00000001 00 00000000 ffffffffffff01")).why
    assert "ends inside a variable-length number" in refused(METADATA, 9, bytes.fromhex("00000001 00 00000000 ff")).why


def test_variable_length_number_of_more_than_32_bits() -> None:
    assert "more than 32 bits" in refused(METADATA, 9, bytes.fromhex("00000001 00 00000000 ffffffff7f")).why


def api_versions_with_tags(tags: str) -> bytes:
    """An answer in version 3 without APIs; ``tags`` follow its plain fields."""
    return bytes.fromhex("00000001 0000 01 00000000" + tags)


def test_tags_out_of_order() -> None:
    error = refused(API_VERSIONS, 3, api_versions_with_tags("02 07 01 aa 05 01 aa"))
    assert error.why == "tag 5 follows tag 7"


def test_the_same_tag_twice() -> None:
    error = refused(API_VERSIONS, 3, api_versions_with_tags("02 03 01 01 03 01 00"))
    assert error.why == "tag 3 follows tag 3"


def test_tagged_field_longer_than_the_frame() -> None:
    error = refused(API_VERSIONS, 3, api_versions_with_tags("01 63 20 aa"))
    assert error.why == "32 bytes announced, 1 left"


def test_tagged_field_that_is_longer_than_its_value() -> None:
    error = refused(API_VERSIONS, 3, api_versions_with_tags("01 03 02 01 00"))
    assert (error.field, error.why) == ("zk_migration_ready", "1 bytes after the end of tagged field 3")


def test_tagged_field_that_is_shorter_than_its_value() -> None:
    error = refused(API_VERSIONS, 3, api_versions_with_tags("01 01 04 00000000 00000000"))
    assert (error.field, error.why) == ("finalized_features_epoch", "int64 takes 8 bytes, 4 left")


def test_more_tags_than_bytes() -> None:
    assert "elements of at least 2 bytes" in refused(API_VERSIONS, 3, api_versions_with_tags("ffffffff0f")).why


def test_unknown_api() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown API 999"):
        decode_request(bytes.fromhex("03e7 0000 00000001 ffff"))


@pytest.mark.parametrize("version", ["ffff", "7fff", "0013"])
def test_unknown_version(version: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"unknown version .*, known are 0 to 18"):
        decode_request(bytes.fromhex(f"0001 {version} 00000001 ffff"))


def test_a_frame_shorter_than_its_header() -> None:
    for length in range(8):
        with pytest.raises(RemoteProtocolError, match="request header: field"):
            decode_request_header(bytes(length))
    for length in range(SIZE_BYTES):
        with pytest.raises(RemoteProtocolError, match="field correlation_id at byte 0"):
            correlation_id_of(bytes(length))


@pytest.mark.parametrize(("start", "why"), [("ffffffff", "negative size -1"), ("00000065", "at most 100 are accepted")])
def test_size_of_a_frame(start: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        frame_size(bytes.fromhex(start), 100)


# --- every message, cut and changed -----------------------------------------------------------------------------


@every_version
def test_every_cut_of_every_answer_is_refused(api: Api[Any, Any], version: int) -> None:
    whole = encode_response(api, version, 1, filled(api.response, version))[SIZE_BYTES:]
    for length in range(len(whole)):
        refused(api, version, whole[:length])


@every_version
def test_every_cut_of_every_request_is_refused(api: Api[Any, Any], version: int) -> None:
    whole = encode_request(api, version, 1, "c", filled(api.request, version))[SIZE_BYTES:]
    for length in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode_request(whole[:length])


@every_version
def test_changed_bytes_give_a_message_or_a_protocol_error(api: Api[Any, Any], version: int) -> None:
    """Whatever the bytes: nothing else may escape."""
    rng = random.Random(f"{api.name}{version}")
    answer = encode_response(api, version, 1, filled(api.response, version))[SIZE_BYTES:]
    request = encode_request(api, version, 1, "c", filled(api.request, version))[SIZE_BYTES:]
    for _ in range(300):
        for whole, decode in ((answer, lambda data: decode_response(api, version, data)), (request, decode_request)):
            changed = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.choice((0x00, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            _tolerated(decode, bytes(changed))
            _tolerated(decode, rng.randbytes(rng.randint(0, 64)))


def _tolerated(decode: Callable[[bytes], object], data: bytes) -> None:
    with suppress(MalformedMessage):
        decode(data)


HUGE_COUNT, HUGE_COMPACT_COUNT = bytes.fromhex("7fffffff"), bytes.fromhex("ffffffff0f")
BOMB_BYTES_MAX = 500_000


@pytest.mark.parametrize(
    ("api", "version"),
    [row for row in EVERY_VERSION if row[1] in (row[0].lowest, row[0].flexible_from - 1, row[0].highest)],
    ids=lambda value: value if isinstance(value, int) else value.name,
)
def test_a_huge_count_in_any_place_takes_no_memory(api: Api[Any, Any], version: int) -> None:
    """Written over every place in turn, so over every count and length that there is."""
    answer = encode_response(api, version, 1, filled(api.response, version))[SIZE_BYTES:]
    request = encode_request(api, version, 1, "c", filled(api.request, version))[SIZE_BYTES:]
    decoded = (answer, lambda data: decode_response(api, version, data)), (request, decode_request)
    _takes_no_memory(decoded, HUGE_COMPACT_COUNT if api.is_flexible(version) else HUGE_COUNT)


def _takes_no_memory(decoded: Iterable[tuple[bytes, Callable[[bytes], object]]], count: bytes) -> None:
    for whole, decode in decoded:
        _tolerated(decode, whole)  # whatever is made once is made before the measurement
        # The peak has the memory of all threads, and the test runner has one that receives messages at any time.  What
        # the decoder takes, it takes each time.
        assert min(_peak_bytes(decode, whole, count) for _ in range(3)) < BOMB_BYTES_MAX


def _peak_bytes(decode: Callable[[bytes], object], whole: bytes, count: bytes) -> int:
    tracemalloc.start()
    try:
        for place in range(len(whole)):
            _tolerated(decode, whole[:place] + count + whole[place + len(count) :])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- what members and coordinators store -------------------------------------------------------------------------

OWNED = (TopicPartition("t1", 0), TopicPartition("t1", 1), TopicPartition("t2", 7))
SUBSCRIPTION = consumer_protocol.Subscription(("t1", "t2"), b"data", OWNED, 3, "rack")
STORED: list[tuple[str, bytes, Callable[[bytes], object]]] = [
    *(
        (f"subscription-v{v}", consumer_protocol.encode_subscription(SUBSCRIPTION, v), decode)
        for v in range(4)
        for decode in (consumer_protocol.decode_subscription, consumer_protocol.subscribed_topics)
    ),
    *(
        (
            f"assignment-v{v}",
            consumer_protocol.encode_assignment(consumer_protocol.Assignment(OWNED, b"data"), v),
            consumer_protocol.decode_assignment,
        )
        for v in range(4)
    ),
    *(
        (f"offset-v{v}", group_records.write_offset_value(filled(group_records.OffsetCommitValue, v), v),
         group_records.read_offset_value)
        for v in range(5)
    ),
    *(
        (f"group-v{v}", group_records.write_group_value(filled(group_records.GroupMetadataValue, v), v),
         group_records.read_group_value)
        for v in range(5)
    ),
    ("offset-key", group_records.write_key(group_records.OffsetCommitKey("g", "t", 1)), group_records.read_key),
    ("group-key", group_records.write_key(group_records.GroupMetadataKey("group")), group_records.read_key),
]  # fmt: skip
every_stored = pytest.mark.parametrize(
    ("whole", "decode"),
    [row[1:] for row in STORED],
    ids=[f"{name}-{decode.__name__}" for name, _, decode in STORED],
)


@every_stored
def test_every_cut_of_what_is_stored_is_refused(whole: bytes, decode: Callable[[bytes], object]) -> None:
    decode(whole)
    tolerates_the_rest = decode is consumer_protocol.subscribed_topics
    for length in range(len(whole)):
        if tolerates_the_rest or (length == 0 and decode is consumer_protocol.decode_assignment):
            _tolerated(decode, whole[:length])
        else:
            with pytest.raises(MalformedMessage):
                decode(whole[:length])


@every_stored
def test_changed_bytes_of_what_is_stored_give_it_or_a_protocol_error(
    whole: bytes, decode: Callable[[bytes], object]
) -> None:
    for place in range(len(whole)):
        for bit in range(8):
            _tolerated(decode, whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
    rng = random.Random(len(whole))
    for _ in range(1_000):
        _tolerated(decode, rng.randbytes(rng.randint(0, 64)))


@every_stored
def test_a_huge_count_in_what_is_stored_takes_no_memory(whole: bytes, decode: Callable[[bytes], object]) -> None:
    for count in (HUGE_COUNT, HUGE_COMPACT_COUNT):
        _takes_no_memory([(whole, decode)], count)


def test_a_subscription_of_more_partitions_than_any_cluster_has_is_refused_at_once() -> None:
    """Four bytes make one partition: 8 MB would make two million objects, which a leader keeps for every member."""
    count = ITEMS_MAX + 1
    bomb = bytes.fromhex("0001 00000000 ffffffff 00000001 0001 74") + count.to_bytes(4, "big") + bytes(4 * count)
    with pytest.raises(MalformedMessage, match=f"more than {ITEMS_MAX} elements"):
        consumer_protocol.decode_subscription(bomb)


# --- the same through a socket ----------------------------------------------------------------------------------


@contextmanager
def broker_that(answers: Callable[[socket.socket], None]) -> Iterator[BlockingConnection]:
    """A connection to a port that treats its first clients in this way, and then hangs up on them."""
    deaths: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve(stop: StopSignal) -> None:
            while True:
                client, _ = listener.accept()
                with client:
                    if stop.is_set():
                        return
                    client.settimeout(TIMEOUT_MS / 1000)
                    with suppress(ConnectionError, TimeoutError):
                        answers(client)

        def knock() -> None:
            socket.create_connection(("127.0.0.1", port)).close()

        worker = spawn("hostile-broker", serve, lambda _, error: deaths.append(error), wake=knock)
        connection = BlockingConnection("127.0.0.1", port)
        try:
            yield connection
        finally:
            connection.close()
            assert worker.stop(TIMEOUT_MS)
    assert not deaths


def ask(connection: BlockingConnection, timeout_ms: int = TIMEOUT_MS) -> Any:
    return connection.request(METADATA, 0, MetadataRequest(topics=[]), timeout_ms)


ANSWER = encode_response(METADATA, 0, 0, filled(METADATA.response, 0))


def test_slicer_one_byte_a_packet() -> None:
    def answers(client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.recv(1000)
        for at in range(len(ANSWER)):
            client.sendall(ANSWER[at : at + 1])

    with broker_that(answers) as connection:
        assert ask(connection) == filled(METADATA.response, 0)


def test_never_ending_frame() -> None:
    """A peer that sends a byte now and then must not keep the connection for ever: one deadline for all of it."""

    def answers(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall((1000).to_bytes(4, "big"))
        client.settimeout(SHORT_MS / 1000 / 10)
        while True:
            client.sendall(b"\0")
            try:
                if not client.recv(1):
                    return
            except TimeoutError:
                pass

    with broker_that(answers) as connection, pytest.raises(BrokerConnectionError) as caught:
        ask(connection, SHORT_MS)
    assert caught.value.reason is ConnectionFailureReason.TIMED_OUT


def test_correlation_mismatch() -> None:
    def answers(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(encode_response(METADATA, 0, 77, filled(METADATA.response, 0)))

    with broker_that(answers) as connection, pytest.raises(RemoteProtocolError, match="77, expected 0"):
        ask(connection)


def test_answer_cut_in_the_middle() -> None:
    def answers(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(ANSWER[:-1])

    with broker_that(answers) as connection, pytest.raises(BrokerConnectionError) as caught:
        ask(connection)
    assert caught.value.reason is ConnectionFailureReason.CLOSED
    assert f"after {len(ANSWER) - 1} bytes of the answer to Metadata v0" in str(caught.value)


def test_answer_longer_than_the_limit_is_not_read() -> None:
    def answers(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall((2_000_000).to_bytes(4, "big"))
        client.recv(1)

    with broker_that(answers) as connection, pytest.raises(RemoteProtocolError, match="at most 1000 are accepted"):
        connection.request(METADATA, 0, MetadataRequest(topics=[]), TIMEOUT_MS, response_bytes_max=1000)


@pytest.mark.parametrize(
    ("greeting", "guess"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "is this port an HTTP port"),
        (bytes.fromhex("15030300020228"), "is this port a TLS port"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is this port an SSH port"),
        (b"\xff\xff\xff\xff\xff\xff", "a TLS or HTTP port, or something else"),
    ],
)
def test_a_port_of_another_protocol_is_guessed(greeting: bytes, guess: str) -> None:
    def answers(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(greeting)
        client.recv(1)

    with broker_that(answers) as connection, pytest.raises(RemoteProtocolError, match=guess) as caught:
        negotiate(connection, TIMEOUT_MS)
    assert f"127.0.0.1:{connection.port}" in str(caught.value)


def test_a_port_that_closes_on_everything_is_no_broker() -> None:
    with (
        broker_that(lambda client: client.recv(1000) and None) as connection,
        pytest.raises(BrokerUnreachable, match="closes the connection on every request; is this port a TLS or SASL"),
    ):
        negotiate(connection, TIMEOUT_MS)


def test_api_versions_answer_without_any_api() -> None:
    """The connection is sound, but nothing can be spoken on it."""

    def answers(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(encode_response(API_VERSIONS, 3, 0, API_VERSIONS.response(api_keys=[])))
        client.recv(1)

    with broker_that(answers) as connection:
        ranges = negotiate(connection, TIMEOUT_MS)
        with pytest.raises(Exception, match="the broker does not know Fetch"):
            ranges.pick(FETCH)


def test_refusing_every_version_of_api_versions_for_ever_ends() -> None:
    def answers(client: socket.socket) -> None:
        while data := client.recv(1000):
            correlation_id = decode_request_header(data[SIZE_BYTES:]).correlation_id
            refusal = API_VERSIONS.response(error_code=35, api_keys=[])
            client.sendall(encode_response(API_VERSIONS, 0, correlation_id, refusal))

    with broker_that(answers) as connection, pytest.raises(Exception, match=r"UNSUPPORTED_VERSION \(35\)"):
        negotiate(connection, TIMEOUT_MS)


def test_the_request_header_is_read_even_of_unknown_requests() -> None:
    frame = encode_request(API_VERSIONS, 3, 9, "c", ApiVersionsRequest())
    newer = bytearray(frame[SIZE_BYTES:])
    newer[2:4] = (99).to_bytes(2, "big")
    header = decode_request_header(newer)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 99, 9, "c")
