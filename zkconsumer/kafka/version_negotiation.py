"""Chooses the version of each API for requests to a broker, over a blocking connection.

``net.api_versions_discovery`` has the decisions, and describes the brokers of each age.
"""

from __future__ import annotations

from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.api_versions_deny_list import API_VERSIONS_DENY_LIST
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.net.api_versions_discovery import (
    NEGOTIATION_BYTES_MAX,
    NO_RESPONSE_MS,
    ApiVersionsDiscovery,
    DiscoveryOutcome,
    DiscoveryRequest,
)
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.supported_versions import ASSUMED_FOR_0_9, SupportedVersions


def negotiate(connection: Connection, timeout_ms: int) -> SupportedVersions:
    """Ask a broker for its versions.  The connection stays usable; it may have been reopened meanwhile.

    ``timeout_ms`` is for each of at most four requests; a broker of 0.9 costs ``NO_RESPONSE_MS`` more, once in
    ``api_versions_deny_list.ENTRY_TTL_MS`` for a process, and a known one is not asked.
    Raises what ``Connection.request`` raises (not reachable, not answering, not a broker), and ``BrokerError`` when
    the broker rejects the request.
    """
    if API_VERSIONS_DENY_LIST.contains(connection.host, connection.port):
        return ASSUMED_FOR_0_9
    discovery = ApiVersionsDiscovery(f"{connection.host}:{connection.port}")
    while True:
        try:
            versions = _discover_on_one_connection(connection, discovery, timeout_ms)
        except BrokerConnectionError as error:
            if error.reason is not ConnectionFailureReason.CLOSED:
                raise
            if not discovery.on_closed():
                raise BrokerUnreachable(
                    f"{connection.host}:{connection.port}: closes the connection on every request; "
                    "is this port a TLS or SASL port, or something else than a Kafka broker?"
                ) from error
            continue
        if versions is ASSUMED_FOR_0_9:
            API_VERSIONS_DENY_LIST.add(connection.host, connection.port)
        return versions


def _discover_on_one_connection(
    connection: Connection, discovery: ApiVersionsDiscovery, timeout_ms: int
) -> SupportedVersions:
    """Raises ``BrokerConnectionError`` with reason CLOSED if the broker closes the connection."""
    outcome: DiscoveryOutcome = discovery.begin()
    while not isinstance(outcome, SupportedVersions):
        if outcome is not None:
            _send(connection, outcome, timeout_ms)
            if discovery.may_be_silent and not connection.has_response(min(NO_RESPONSE_MS, timeout_ms)):
                _send(connection, discovery.on_silence(), timeout_ms)
        answered, body = connection.receive_next(timeout_ms, response_bytes_max=NEGOTIATION_BYTES_MAX)
        outcome = discovery.on_response(answered.api, answered.version, body)
    return outcome


def _send(connection: Connection, request: DiscoveryRequest, timeout_ms: int) -> None:
    connection.send(request.api, request.version, request.body, timeout_ms)
