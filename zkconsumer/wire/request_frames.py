"""Encodes and decodes whole requests and responses: a size, a header, and a message of ``schemas``.  Pure.

    frame     int32 size, then that many bytes
    request   header: int16 api key, int16 version, int32 correlation id, text client id (nullable)
              version 0 of the header has no client id, version 2 (flexible APIs) adds tagged fields
    response  header: int32 correlation id; version 1 (flexible APIs) adds tagged fields

``encode_…`` returns a complete frame with its size; ``decode_…`` receives the bytes after the size.  For invalid bytes
decoding raises only ``MalformedMessage`` (a ``RemoteProtocolError``).  For invalid values encoding raises
``UsageError``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from zkconsumer.errors import UsageError
from zkconsumer.wire.field_types import fixed_reader, int16, int32, text
from zkconsumer.wire.primitives import Buffer, FieldDecodeError, MalformedMessage, MessageReader
from zkconsumer.wire.schemas import API_VERSIONS, APIS
from zkconsumer.wire.schemas.message_schema import Api, decoder, encoder

Q = TypeVar("Q")
R = TypeVar("R")

FRAME_BYTES_MAX = 0x7FFF_FFFF
"""The largest size that the int32 can contain; each reader of a socket has a lower limit."""

RESPONSE_BYTES_MAX = 64 * 1024 * 1024
"""The longest response that is accepted, unless the caller sets a higher limit (a Fetch of many partitions)."""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""The longest request that a broker accepts: the default of ``socket.request.max.bytes`` (since 0.8)."""

SIZE_BYTES = 4

UNSUPPORTED_VERSION = 35
"""The error code of ApiVersions responses that have the layout of version 0, whatever version was requested."""

CONTROLLED_SHUTDOWN_KEY = 7
"""The API key of ControlledShutdown.  Its version 0, which brokers of 0.8 send each other, is the only request whose
header has no client id."""

_SIZE = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_SIZE_PLACEHOLDER = bytes(SIZE_BYTES)

_read_request_start = fixed_reader(["api_key", "api_version", "correlation_id"], [int16, int16, int32])
_read_correlation = fixed_reader(["correlation_id"], [int32])
_read_client_id = text.reader("client_id", 1, flexible=False, nullable=True)
_write_client_id = text.writer("client_id", 1, flexible=False, nullable=True)


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request; it can be read even if the API or the version is unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A whole request that a broker has received; ``body`` is an instance of ``api.request``."""

    api: Api[Any, Any]
    header: RequestHeader
    body: Any


def request_header_version(api_key: int, flexible: bool) -> int:
    """0 for ControlledShutdown v0 only, 1 for plain requests, 2 for flexible ones (KIP-482)."""
    if flexible:
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN_KEY else 1


def response_header_version(api_key: int, flexible: bool) -> int:
    """0 for plain responses and for every ApiVersions response (KIP-511), 1 for flexible ones."""
    return 1 if flexible and api_key != API_VERSIONS.key else 0


def encode_request(api: Api[Q, R], version: int, correlation_id: int, client_id: str | None, body: Q) -> bytes:
    """A request frame.  ``UsageError``: the version is not supported, or a value does not fit its field."""
    flexible = _flexible(api, version)
    out = bytearray(_SIZE_PLACEHOLDER)
    out += _REQUEST_START.pack(api.key, version, correlation_id)
    _write_client_id(out, client_id)
    if request_header_version(api.key, flexible) == 2:
        out.append(0)
    if api.codec is not None:
        api.codec.write(out, body, version)
    else:
        encoder(api.request, version, flexible)(out, body)
    return _framed(out)


def encode_response(api: Api[Q, R], version: int, correlation_id: int, body: R) -> bytes:
    """A response frame.  ``UsageError``: the version is not supported, or a value does not fit its field."""
    flexible = _flexible(api, version)
    out = bytearray(_SIZE_PLACEHOLDER)
    out += _CORRELATION.pack(correlation_id)
    if response_header_version(api.key, flexible) == 1:
        out.append(0)
    encoder(api.response, version, flexible)(out, body)
    return _framed(out)


def decode_response(api: Api[Q, R], version: int, data: Buffer) -> tuple[int, R]:
    """Correlation id and body of the response to a request of this API and version.

    An ApiVersions response with error 35 is read in the layout of version 0, as brokers send it (KIP-511).
    """
    flexible = _flexible(api, version)
    reader = MessageReader(data)
    try:
        (correlation_id,) = _read_correlation(reader)
        if response_header_version(api.key, flexible) == 1:
            _skip_tags(reader)
        if api.key == API_VERSIONS.key and version > 0 and _is_unsupported_version(reader):
            version, flexible = 0, False
        if api.codec is not None:
            body = api.codec.read(reader, version)
        else:
            body = decoder(api.response, version, flexible)(reader)
        reader.check_end()
    except FieldDecodeError as fault:
        raise _malformed(f"{api.name} v{version} response", fault) from None
    return correlation_id, body


def correlation_id_of(data: Buffer) -> int:
    """The correlation id of a response, which identifies its request; only the header is read."""
    try:
        (correlation_id,) = _read_correlation(MessageReader(data))
    except FieldDecodeError as fault:
        raise _malformed("response header", fault) from None
    return int(correlation_id)


def decode_request_header(data: Buffer) -> RequestHeader:
    """Read the header of a request, also for unknown APIs and versions."""
    try:
        return _header(MessageReader(data))
    except FieldDecodeError as fault:
        raise _malformed("request header", fault) from None


def decode_request(data: Buffer, *, body_version: int | None = None) -> ReceivedRequest:
    """Read a whole request.  Raises ``MalformedMessage``, also for an API or version that is not supported.

    ``body_version``: the version in whose layout the body is read, if it is not the one in the header.  The emulated
    brokers of 0.8 use it, because real ones ignore the version of most requests.
    """
    reader = MessageReader(data)
    name = "request header"
    try:
        header = _header(reader)
        api = APIS.get(header.api_key)
        if api is None:
            raise FieldDecodeError("api_key", 0, f"unknown API {header.api_key}")
        version = header.api_version if body_version is None else body_version
        name = f"{api.name} v{version} request"
        if not api.supports(version):
            raise FieldDecodeError(
                "api_version", 2, f"unknown version {version}, known are {api.lowest} to {api.highest}"
            )
        flexible = api.is_flexible(version)
        if flexible:
            _skip_tags(reader)
        body = decoder(api.request, version, flexible)(reader)
        reader.check_end()
    except FieldDecodeError as fault:
        raise _malformed(name, fault) from None
    return ReceivedRequest(api, header, body)


def frame_size(start: Buffer, bytes_max: int, name: str = "frame") -> int:
    """The size that the first four bytes of a frame announce.  ``MalformedMessage``: negative, or above the limit."""
    size: int = _SIZE.unpack_from(start)[0]
    if size < 0:
        raise MalformedMessage(name, "size", 0, f"negative size {size}")
    if size > bytes_max:
        raise MalformedMessage(name, "size", 0, f"{size} bytes announced, at most {bytes_max} are accepted")
    return size


def _flexible(api: Api[Q, R], version: int) -> bool:
    if not api.supports(version):
        raise UsageError(f"{api.name} v{version} is not spoken here, only v{api.lowest} to v{api.highest}")
    return api.is_flexible(version)


def _framed(out: bytearray) -> bytes:
    size = len(out) - SIZE_BYTES
    if size > FRAME_BYTES_MAX:
        raise UsageError(f"a frame of {size} bytes cannot be sent, at most {FRAME_BYTES_MAX} bytes can")
    _SIZE.pack_into(out, 0, size)
    return bytes(out)


def _header(reader: MessageReader) -> RequestHeader:
    api_key, api_version, correlation_id = _read_request_start(reader)
    if api_key == CONTROLLED_SHUTDOWN_KEY and api_version == 0:
        return RequestHeader(api_key, api_version, correlation_id, None)
    return RequestHeader(api_key, api_version, correlation_id, _read_client_id(reader))


def _is_unsupported_version(reader: MessageReader) -> bool:
    start = reader.data[reader.pos : reader.pos + int16.size]
    return len(start) == int16.size and int.from_bytes(start, "big", signed=True) == UNSUPPORTED_VERSION


def _skip_tags(reader: MessageReader) -> None:
    count = reader.uvarint("header tags")
    reader.check_count("header tags", count, 2)
    for _ in range(count):
        reader.uvarint("header tags")
        reader.skip("header tags", reader.uvarint("header tags"))


def _malformed(name: str, fault: FieldDecodeError) -> MalformedMessage:
    return MalformedMessage(name, fault.field, fault.offset, fault.why)
