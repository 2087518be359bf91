"""Decides whether a broker of a release can read a frame as a request, and what it does if not.  Pure.

For the brokers in this repository: the fake ones and the development broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from bridge.coordinator.release_features import BrokerRelease
from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.error_codes import UNSUPPORTED_VERSION
from zkconsumer.wire.request_frames import RequestHeader, decode_request, decode_request_header, encode_response
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    APIS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse

_GROUP_APIS = frozenset(
    api.key
    for api in (
        FIND_COORDINATOR,
        JOIN_GROUP,
        SYNC_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
    )
)


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """A request; ``version`` is the version in which it was read, and is answered."""

    api: Api[Any, Any]
    version: int
    header: RequestHeader
    body: Any


@dataclass(frozen=True, slots=True)
class UnsupportedVersionResponse:
    """The frame of the response; the body was not read."""

    frame: bytes


class InvalidFrameAction(Enum):
    """What a broker does with a frame that is not a request for this release."""

    CLOSE_CONNECTION = "the connection ends"
    IGNORE = "nothing is said, and the next frame is looked at (0.9)"


DecodeResult: TypeAlias = DecodedRequest | UnsupportedVersionResponse | InvalidFrameAction


def decode_frame(frame: bytes, release: BrokerRelease) -> DecodeResult:
    """Decide what to do with a frame (without its size)."""
    unreadable = InvalidFrameAction.IGNORE if release.ignores_invalid_frames else InvalidFrameAction.CLOSE_CONNECTION
    try:
        header = decode_request_header(frame)
    except RemoteProtocolError:
        return unreadable
    api = APIS.get(header.api_key)
    known = None if api is None else release.range_of(api)
    if api is None or known is None:
        return unreadable
    version = header.api_version
    if not known.lowest <= version <= known.highest:
        if api is API_VERSIONS:
            return UnsupportedVersionResponse(
                encode_response(API_VERSIONS, 0, header.correlation_id, api_versions_error_response(release))
            )
        if version < known.lowest or not release.accepts_newer_versions:
            return unreadable
        version = known.highest
    if header.client_id is None and release.requires_client_id and api.key in _GROUP_APIS:
        return InvalidFrameAction.CLOSE_CONNECTION
    try:
        return DecodedRequest(api, version, header, decode_request(frame, body_version=version).body)
    except RemoteProtocolError:
        return unreadable


def api_versions_response(release: BrokerRelease) -> ApiVersionsResponse:
    """The supported versions of the release, as far as they are implemented here."""
    rows = [
        ApiVersion(api_key=key, min_version=known.lowest, max_version=known.highest)
        for key, known in sorted(release.ranges.items())
    ]
    return ApiVersionsResponse(api_keys=rows)


def api_versions_error_response(release: BrokerRelease) -> ApiVersionsResponse:
    """The response to an ApiVersions version that the release does not support; in the layout of version 0."""
    rows = [row for row in api_versions_response(release).api_keys if row.api_key == API_VERSIONS.key]
    return ApiVersionsResponse(
        error_code=UNSUPPORTED_VERSION.code, api_keys=rows if release.reports_api_versions_range else []
    )
