"""The few bytes that show whether a server is up: ``srvr`` for ZooKeeper, Metadata version 0 for a broker.

The second is written by hand, apart from ``zkconsumer.wire``, so that a mistake there cannot hide itself in a test
whose cluster was declared ready by the same mistake.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field

from zkconsumer.testing.sandbox.waiting import HOST

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 2.0  # the caller that waits for a server asks again
ANSWER_BYTES_MAX = 16 << 20

METADATA_KEY, METADATA_VERSION, CORRELATION_ID = 3, 0, 7
CLIENT_ID = b"sandbox"


@dataclass(slots=True)
class ClusterMetadata:
    """A broker's metadata: brokers by id, and for each topic without an error the leader of each partition."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    leaders: dict[str, dict[int, int]] = field(default_factory=dict)


def zookeeper_version(port: int) -> str | None:
    """The version line that ``srvr`` returns; None if no server answers (yet)."""
    try:
        with socket.create_connection((HOST, port), CONNECT_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.sendall(b"srvr")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
    except OSError:
        return None
    first, *rest = answer.decode(errors="replace").splitlines() or [""]
    is_serving = first.startswith("Zookeeper version") and any(line.startswith("Mode:") for line in rest)
    return first if is_serving else None


def metadata(port: int, topics: tuple[str, ...] = ()) -> ClusterMetadata | None:
    """The answer of the broker on ``port``; None if there is none, or it does not answer.

    Without topics it answers all of them, and, unlike for a named one, never makes a topic.
    """
    names = b"".join(_text(topic.encode()) for topic in topics)
    header = struct.pack(">hhi", METADATA_KEY, METADATA_VERSION, CORRELATION_ID) + _text(CLIENT_ID)
    request = header + struct.pack(">i", len(topics)) + names
    try:
        with socket.create_connection((HOST, port), CONNECT_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                return None
            return _parsed(_exactly(connection, size))
    except (OSError, struct.error):
        return None


def _parsed(answer: bytes) -> ClusterMetadata | None:
    reader = _MetadataReader(answer)
    if reader.take(">i") != CORRELATION_ID:
        return None
    result = ClusterMetadata()
    for _ in range(reader.take(">i")):
        broker_id = reader.take(">i")
        host = reader.text()
        result.brokers[broker_id] = (host, reader.take(">i"))
    for _ in range(reader.take(">i")):
        topic_error = reader.take(">h")
        leaders = result.leaders.setdefault(reader.text(), {})
        for _ in range(reader.take(">i")):
            reader.take(">h")
            partition, leader = reader.take(">i"), reader.take(">i")
            for _replicas_then_isr in range(2):
                for _ in range(reader.take(">i")):
                    reader.take(">i")
            if topic_error == 0 and leader >= 0:
                leaders[partition] = leader
    return result


class _MetadataReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        size = self.take(">h")
        self._at += size
        return self._data[self._at - size : self._at].decode()


def _text(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection in the middle of an answer")
        data += piece
    return data
