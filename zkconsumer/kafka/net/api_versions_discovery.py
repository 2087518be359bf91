"""``ApiVersionsDiscovery``: finds out which versions a broker supports, over one or several connections.  Pure.

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

In a broker of 0.9 an ApiVersions request makes requests of *other* clients fail.  So the caller does not begin a
discovery for a broker that is known to be one (``api_versions_deny_list``), and adds one that ignored the request.

The caller sends what a method returns, and calls ``on_response``, ``on_silence`` or ``on_closed``; ``begin`` starts
each connection.  The blocking client (``version_negotiation``) and the network machine are two callers.

A slow broker is not an old one.  It answers ApiVersions after the probe was sent, and then the probe, or (from 4.0 on)
closes the connection on it.  So the discovery waits for the end of the probe before it returns the versions; if the
connection ends then, ``begin`` of the next one returns them at once.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from zkconsumer.kafka.error_codes import NONE, UNSUPPORTED_VERSION, BrokerError, error_code
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9, SupportedVersions, VersionRange
from zkconsumer.version import __version__
from zkconsumer.wire.schemas import API_VERSIONS, LIST_OFFSETS
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from zkconsumer.wire.schemas.list_offsets import ListOffsetsRequest
from zkconsumer.wire.schemas.message_schema import Api

CLIENT_SOFTWARE_NAME = "zkconsumer"
CLIENT_SOFTWARE_VERSION = __version__

NEGOTIATION_BYTES_MAX = 1024 * 1024
"""The longest answer to ApiVersions: 60 APIs and some features take about a kilobyte."""

NO_RESPONSE_MS = 500
"""How long a broker may be silent after ApiVersions before it gets a request that brokers of 0.9 support."""


class DiscoveryRequest(NamedTuple):
    """A request that the caller must send on the present connection."""

    api: Api[Any, Any]
    version: int
    body: Any


DiscoveryOutcome: TypeAlias = DiscoveryRequest | SupportedVersions | None
"""What to send; or the versions of the broker; or None: wait for a response."""


class DiscoveryStep(Enum):
    """Which request begins a connection."""

    NEWEST = "ApiVersions in our newest version"
    LOWEST = "ApiVersions v0, since a connection was closed on the newest"
    LEGACY = "ListOffsets v0, since connections were closed on both"


class ApiVersionsDiscovery:
    """The discovery of one broker; ``address`` is for error texts.  It ends when versions are returned."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._step = DiscoveryStep.NEWEST
        self._is_probing = False
        """The probe was sent on this connection, and its response has not arrived."""
        self._is_rejected = False
        """The broker answered error 35 on this connection, so it has ApiVersions, and its answer comes second."""
        self._found: SupportedVersions | None = None
        """What the broker answered while the probe was in flight."""

    @property
    def may_be_silent(self) -> bool:
        """Whether ``on_silence`` must be called when no response arrives within ``NO_RESPONSE_MS`` of ``begin``."""
        return self._step is DiscoveryStep.NEWEST and not self._is_probing and not self._is_rejected

    def begin(self) -> DiscoveryRequest | SupportedVersions:
        """A connection is open.  Returns its first request, or the versions if they are known already."""
        self._is_probing = self._is_rejected = False
        if self._found is not None:
            return self._found
        match self._step:
            case DiscoveryStep.NEWEST:
                return api_versions_request(API_VERSIONS.client_highest)
            case DiscoveryStep.LOWEST:
                return api_versions_request(0)
            case DiscoveryStep.LEGACY:
                return _empty_list_offsets()

    def on_silence(self) -> DiscoveryRequest:
        """The first request of the connection was not answered for ``NO_RESPONSE_MS``.  Returns the probe."""
        assert self.may_be_silent, "one probe a connection, and only after ApiVersions in our newest version"
        self._is_probing = True
        return _empty_list_offsets()

    def on_response(self, api: Api[Any, Any], version: int, body: Any) -> DiscoveryOutcome:
        """A response arrived: its API, the version of the request, and the body.

        ``BrokerError``: the broker rejects the request; another connection would not change that.
        """
        if api is LIST_OFFSETS:
            was_probe, self._is_probing = self._is_probing, False
            if self._found is not None or self._is_rejected:
                return self._found
            return ASSUMED_FOR_0_9 if was_probe else ASSUMED_BEFORE_0_10
        response: ApiVersionsResponse = body
        if response.error_code == UNSUPPORTED_VERSION.code and version > 0:
            self._is_rejected = True
            return api_versions_request(version_offered(response))
        self._found = supported_versions(self._address, response)
        return None if self._is_probing else self._found

    def on_closed(self) -> bool:
        """The broker closed the connection, which may be its answer.  Returns whether another connection makes sense.

        False: it closes the connection on every request, so it is no broker, or its port has another protocol.  Then
        the discovery starts again.
        """
        match self._step:
            case DiscoveryStep.NEWEST:
                # Perhaps the connection was closed only by chance, so the simplest form of the request comes first.
                # (After ``_found`` no request comes at all.)
                self._step = DiscoveryStep.LOWEST
            case DiscoveryStep.LOWEST:
                self._step = DiscoveryStep.LEGACY
            case DiscoveryStep.LEGACY:
                self._step = DiscoveryStep.NEWEST
                return False
        return True


def api_versions_request(version: int) -> DiscoveryRequest:
    """ApiVersions with the name and version of this client."""
    body = ApiVersionsRequest(
        client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
    )
    return DiscoveryRequest(API_VERSIONS, version, body)


def version_offered(response: ApiVersionsResponse) -> int:
    """Brokers from 2.4 on list their versions of ApiVersions when they reject one (KIP-511)."""
    for api in response.api_keys:
        if api.api_key == API_VERSIONS.key:
            return max(0, min(api.max_version, API_VERSIONS.client_highest))
    return 0


def supported_versions(address: str, response: ApiVersionsResponse) -> SupportedVersions:
    """The versions in a response.  ``BrokerError``: the broker rejects the request."""
    if response.error_code != NONE.code:
        raise BrokerError(error_code(response.error_code), f"{address}: ApiVersions")
    ranges = {api.api_key: VersionRange(api.min_version, api.max_version) for api in response.api_keys}
    return SupportedVersions(MappingProxyType(ranges))


def _empty_list_offsets() -> DiscoveryRequest:
    return DiscoveryRequest(LIST_OFFSETS, 0, ListOffsetsRequest(topics=[]))
