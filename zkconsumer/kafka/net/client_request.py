"""Requests and responses of the network client, as ``ClientRequest`` and ``ClientResponse`` of Kafka.  Pure.

A ``RequestBuilder`` is a request whose version is not chosen yet (Java's ``AbstractRequest.Builder``).  The network
machine chooses the version when it sends the request, from the versions of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from zkconsumer.errors import AuthenticationException, ZkConsumerError
from zkconsumer.wire.schemas.message_schema import Api


@dataclass(frozen=True, slots=True, eq=False)
class RequestBuilder:
    """A request in the highest common version from ``version_min`` to ``version_max``.

    ``body``: an instance of ``api.request``, or a function that makes one for a version.  ``version_max`` None: the
    ``client_highest`` of the API.  A body that a version cannot contain raises ``UsageError`` when it is encoded, and
    the request fails as one of an unsupported version.
    """

    api: Api[Any, Any]
    body: Any
    version_min: int = 0
    version_max: int | None = None

    @property
    def latest_allowed_version(self) -> int:
        """The highest version that may be sent."""
        return self.api.client_highest if self.version_max is None else min(self.version_max, self.api.highest)

    def build(self, version: int) -> Any:
        """The body of the request for a version."""
        return self.body(version) if callable(self.body) else self.body

    def __str__(self) -> str:
        return self.api.name


RequestCompletionHandler: TypeAlias = Callable[["ClientResponse"], None]


@dataclass(frozen=True, slots=True, eq=False)
class ClientRequest:
    """A request to one node.

    ``destination``: the id of the node.  ``created_ms``: when the caller made it.  ``request_timeout_ms``: how long the
    response may take after the request is sent, or, while it is unsent, how long it may wait.  ``expects_response``
    False: the request is complete when it is written (Produce with acks=0).  ``callback`` is called once with the
    response, unless ``close(node)`` drops the request.
    """

    destination: int
    builder: RequestBuilder
    correlation_id: int
    created_ms: int
    request_timeout_ms: int
    expects_response: bool = True
    callback: RequestCompletionHandler | None = None

    def __str__(self) -> str:
        return f"{self.builder} {self.correlation_id} to node {self.destination}"


@dataclass(frozen=True, slots=True, eq=False)
class ClientResponse:
    """How a request ended.  Exactly one of these holds:

    - ``body`` is the response (None if none was expected);
    - ``was_disconnected``: the connection ended first, and whether the broker executed the request is unknown.  Then
      ``timed_out`` shows that the client closed the connection because a request was late, and
      ``authentication_error`` that the login at the node failed;
    - ``version_mismatch``: the node supports no usable version, and nothing was sent.

    ``version``: of the request and the body; None: it was not sent.  Times in ms.
    """

    request: ClientRequest
    received_ms: int
    version: int | None = None
    body: Any = None
    was_disconnected: bool = False
    timed_out: bool = False
    version_mismatch: ZkConsumerError | None = None
    authentication_error: AuthenticationException | None = None

    @property
    def destination(self) -> int:
        """The id of the node."""
        return self.request.destination

    @property
    def correlation_id(self) -> int:
        """The correlation id of the request."""
        return self.request.correlation_id

    @property
    def has_response(self) -> bool:
        """Whether there is a body."""
        return self.body is not None

    @property
    def latency_ms(self) -> int:
        """The time from the creation of the request to its end."""
        return self.received_ms - self.request.created_ms

    def on_complete(self) -> None:
        """Call the callback of the request, if it has one."""
        if self.request.callback is not None:
            self.request.callback(self)
