"""Chooses the version of each API for requests to a broker.

    ApiVersions v3 --answered--> its ranges                                            Kafka 0.10.0 and later
      |   |   '--error 35 (v0 layout)--> v0, or the version that it lists              before 2.4
      |   silence
      |   '--> ListOffsets v0 on the same connection --answered first--> assumed       0.9
      closed
      '--> ApiVersions v0 --closed--> ListOffsets v0 --answered--> assumed             0.8
                                           '--closed--> no broker, or no PLAINTEXT port

Brokers before 0.10 do not have ApiVersions.  A broker of 0.8 closes the connection on it, as most other servers do.  A
broker of 0.9 sends no answer and reads the next request.  So the client then sends ListOffsets v0 without topics: every
broker before 4.0 answers it, and it changes nothing.

"Assumed" versions: version 0 of each request; 0 and 1 of the requests for a group's offsets (0.8.2 and 0.9 support 1,
0.8.1 closes the connection); for 0.9 also version 0 of the requests of group members.

In a broker of 0.9 an ApiVersions request makes requests of *other* clients fail, so the client does not send it to a
broker that is known to be one (``api_versions_deny_list``).
"""

from __future__ import annotations

from types import MappingProxyType

from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST
from zkconsumer.kafka.broker_connection import BrokerConnectionError, Connection, ConnectionFailureReason
from zkconsumer.kafka.error_codes import NONE, UNSUPPORTED_VERSION, BrokerError, error_code
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9, SupportedVersions, VersionRange
from zkconsumer.version import __version__
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    LIST_OFFSETS,
)
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from zkconsumer.wire.schemas.list_offsets import ListOffsetsRequest

CLIENT_SOFTWARE_NAME = "zkconsumer"
CLIENT_SOFTWARE_VERSION = __version__

NEGOTIATION_BYTES_MAX = 1024 * 1024
"""The longest answer to ApiVersions: 60 APIs and some features take about a kilobyte."""

NO_RESPONSE_MS = 500
"""How long a broker may be silent after ApiVersions before it gets a request that brokers of 0.9 support."""

_API_VERSIONS_REQUEST = ApiVersionsRequest(
    client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
)
_EMPTY_LIST_OFFSETS = ListOffsetsRequest(topics=[])


def negotiate(connection: Connection, timeout_ms: int) -> SupportedVersions:
    """Ask a broker for its versions.  The connection stays usable; it may have been reopened meanwhile.

    ``timeout_ms`` is for each of at most four requests; a broker of 0.9 costs ``NO_RESPONSE_MS`` more, once in
    ``api_versions_deny_list.ENTRY_TTL_MS`` for a process, and a known one is not asked.
    Raises what ``Connection.request`` raises (not reachable, not answering, not a broker), and ``BrokerError`` when
    the broker rejects the request.
    """
    if API_VERSIONS_DENY_LIST.contains(connection.host, connection.port):
        return ASSUMED_FOR_0_9
    try:
        response = _request_or_probe(connection, timeout_ms)
        if response is None:
            API_VERSIONS_DENY_LIST.add(connection.host, connection.port)
            return ASSUMED_FOR_0_9
        if response.error_code == UNSUPPORTED_VERSION.code:
            response = _request_api_versions(connection, _version_offered(response), timeout_ms)
    except BrokerConnectionError as error:
        if error.reason is not ConnectionFailureReason.CLOSED:
            raise
        return _negotiate_legacy(connection, timeout_ms)
    return _supported_versions(connection, response)


def _request_or_probe(connection: Connection, timeout_ms: int) -> ApiVersionsResponse | None:
    """Ask in our newest version; None: the broker ignored the request, but answered the one after it."""
    asked = connection.send(API_VERSIONS, API_VERSIONS.client_highest, _API_VERSIONS_REQUEST, timeout_ms)
    if connection.has_response(min(NO_RESPONSE_MS, timeout_ms)):
        return connection.receive(asked, timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX)
    probe = connection.send(LIST_OFFSETS, 0, _EMPTY_LIST_OFFSETS, timeout_ms)
    answered, body = connection.receive_next(timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX)
    if answered is probe:
        return None
    response: ApiVersionsResponse = body
    try:
        # It was only slow.  It answers the probe as well, or (from 4.0 on) closes the connection on it.
        connection.receive(probe, timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX)
    except BrokerConnectionError as error:
        if error.reason is not ConnectionFailureReason.CLOSED:
            raise
    return response


def _request_api_versions(connection: Connection, version: int, timeout_ms: int) -> ApiVersionsResponse:
    return connection.request(
        API_VERSIONS, version, _API_VERSIONS_REQUEST, timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX
    )


def _version_offered(response: ApiVersionsResponse) -> int:
    """Brokers from 2.4 on list their versions of ApiVersions when they reject one (KIP-511)."""
    for api in response.api_keys:
        if api.api_key == API_VERSIONS.key:
            return max(0, min(api.max_version, API_VERSIONS.client_highest))
    return 0


def _supported_versions(connection: Connection, response: ApiVersionsResponse) -> SupportedVersions:
    if response.error_code != NONE.code:
        raise BrokerError(error_code(response.error_code), f"{connection.host}:{connection.port}: ApiVersions")
    ranges = {api.api_key: VersionRange(api.min_version, api.max_version) for api in response.api_keys}
    return SupportedVersions(MappingProxyType(ranges))


def _negotiate_legacy(connection: Connection, timeout_ms: int) -> SupportedVersions:
    """The first connection was closed, perhaps only by chance, so the simplest form of the request comes first."""
    try:
        return _supported_versions(connection, _request_api_versions(connection, 0, timeout_ms))
    except BrokerConnectionError as error:
        if error.reason is not ConnectionFailureReason.CLOSED:
            raise
    try:
        connection.request(LIST_OFFSETS, 0, _EMPTY_LIST_OFFSETS, timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX)
    except BrokerConnectionError as error:
        if error.reason is not ConnectionFailureReason.CLOSED:
            raise
        raise BrokerUnreachable(
            f"{connection.host}:{connection.port}: closes the connection on every request; "
            "is this port a TLS or SASL port, or something else than a Kafka broker?"
        ) from error
    return ASSUMED_BEFORE_0_10
