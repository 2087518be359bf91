"""Peer of ``bench/streams.py``: the CPU of records in Python without a consumer; see ``protocol.py``.

    python no_consumer.py SETTINGS

A blocking socket, the compiled decoder of zkconsumer, and a loop over lists of max.poll.records.  One fetch of one
partition is in flight while the records of the last response are read.  There is no group, commit, fetch session,
time-out or handling of errors, and of the metadata only the number of partitions.  A consumer in Python with this
decoder cannot need less.
"""

from __future__ import annotations

import gc
import socket
import sys
from collections import deque
from typing import Any

import protocol

from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetch_session import NO_SESSION
from zkconsumer.kafka.fetch.fetched_records import TableRecords
from zkconsumer.kafka.fetch.record_set_reader import RecordSetReader, RowBuffers, outline_of
from zkconsumer.kafka.net.compiled_sockets import SOCKETS
from zkconsumer.types import TopicPartition
from zkconsumer.wire.fetch_codec import FAST_FETCH, UNKNOWN_VALUE, FetchedPartition, FetchRequestBody, partition_encoder
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_response, encode_request
from zkconsumer.wire.schemas import METADATA
from zkconsumer.wire.schemas.fetch import SESSIONLESS_EPOCH
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

FETCH_VERSION, METADATA_VERSION = 12, 8
KEYS = {
    "fetch.max.wait.ms": "max_wait_ms",
    "max.partition.fetch.bytes": "fetch_size",
    "max.poll.records": "max_poll_records",
}
RECEIVE_MS = 10_000
BUFFERS = 2
"""One response is read while the next one arrives."""


class Connection:
    """Sends requests to one broker, and receives their responses in order."""

    def __init__(self, bootstrap: str, receive_buffer_bytes: int) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect((host, int(port)))
        self._buffers = [bytearray() for _ in range(BUFFERS)]

    def close(self) -> None:
        self._socket.close()

    def send(self, api: Any, version: int, body: Any) -> None:
        """Send a request."""
        self._socket.sendall(encode_request(api, version, 0, "no-consumer", body))

    def receive(self, api: Any, version: int) -> Any:
        """The body of the next response.  Its bytes are valid until the response after the next one."""
        assert SOCKETS is not None, "it is compiled"
        size = int.from_bytes(self._socket.recv(SIZE_BYTES, socket.MSG_WAITALL), "big")
        self._buffers.append(self._buffers.pop(0))
        if len(self._buffers[-1]) < size:
            self._buffers[-1] = bytearray(size)
        frame = memoryview(self._buffers[-1])[:size]
        received = 0
        while received < size:
            count = SOCKETS.receive(self._socket.fileno(), -1, RECEIVE_MS, frame[received:])
            if not count:
                raise ConnectionError("the broker has closed the connection")
            received += count
        return decode_response(api, version, frame)[1]


class NoConsumer:
    """See the module."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._bootstrap = settings["bootstrap.servers"]
        self._receive_buffer_bytes = int(settings["receive.buffer.bytes"])
        numbers = {name: int(settings[key]) for key, name in KEYS.items() if key in settings}
        self._config = FetchConfig(**numbers)  # type: ignore[arg-type]

    def read(self, read: protocol.Read) -> None:
        connection = Connection(self._bootstrap, self._receive_buffer_bytes)
        try:
            self._read(read, connection)
        finally:
            connection.close()
        gc.collect()

    def tail(self, tail: protocol.Tail) -> None:
        raise NotImplementedError("it reads topics to their ends")

    def _read(self, read: protocol.Read, connection: Connection) -> None:
        buffers = RowBuffers(self._config.max_poll_records)
        next_offsets = deque((number, 0) for number in range(self._partitions(read.topic, connection)))
        if read.messages:
            self._send_fetch(read.topic, connection, *next_offsets.popleft())
        while read.count < read.messages:
            [fields] = connection.receive(FAST_FETCH, FETCH_VERSION).rows
            row = FetchedPartition(*fields)
            if row.error_code:
                raise RuntimeError(f"the broker answered error {row.error_code}")
            if row.next_offset < row.high_watermark:
                next_offsets.append((row.partition, row.next_offset))
            if next_offsets:
                self._send_fetch(read.topic, connection, *next_offsets.popleft())
            self._loop(read, row, buffers)

    def _partitions(self, topic: str, connection: Connection) -> int:
        connection.send(METADATA, METADATA_VERSION, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        [found] = connection.receive(METADATA, METADATA_VERSION).topics
        return len(found.partitions)

    def _send_fetch(self, topic: str, connection: Connection, partition: int, offset: int) -> None:
        row = partition_encoder(FETCH_VERSION)(partition, offset, self._config.fetch_size, UNKNOWN_VALUE)
        limits = self._config.max_wait_ms, self._config.min_bytes, self._config.max_bytes
        body = FetchRequestBody(*limits, NO_SESSION, SESSIONLESS_EPOCH, {topic: [row]}, {})
        connection.send(FAST_FETCH, FETCH_VERSION, body)

    def _loop(self, read: protocol.Read, row: FetchedPartition, buffers: RowBuffers) -> None:
        """The records of a response, a list at a time.  They are all needed: each fetch begins at a batch."""
        assert row.records is not None, "the topic has records"
        _, epochs = outline_of(row.records, 0)
        reader = RecordSetReader(row.records, 0, buffers, True, [], self._config.max_poll_records)
        partition = TopicPartition(row.topic, row.partition)
        while reader.next_chunk():
            assert reader.data is not None, "it is decoded by the compiled decoder"
            for begin in range(0, reader.count, self._config.max_poll_records):
                size = min(self._config.max_poll_records, reader.count - begin)
                read.loop(TableRecords(partition, epochs, reader.data, reader.rows, begin, size))


if __name__ == "__main__":
    protocol.serve(NoConsumer(protocol.settings(sys.argv[1])), {"version": "none"})
