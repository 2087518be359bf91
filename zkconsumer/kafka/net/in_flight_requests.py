"""``InFlightRequests``: the requests that were sent and have no response yet, by node and in order.  Pure.

As ``org.apache.kafka.clients.InFlightRequests``.  A broker answers the requests of one connection in their order, so
the next response belongs to the oldest request.  The next request of a node is accepted only when the last one is
written completely: then a node that does not read has at most one request in our memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.net.client_request import ClientRequest, ClientResponse


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A sent request.

    ``is_internal``: the network machine sent it for itself, and its end is not reported.  ``sent_ms``: when it was put
    into the output of its connection, from which its time-out counts.  ``is_written``: whether the socket took all of
    its bytes.
    """

    request: ClientRequest
    version: int
    is_internal: bool
    sent_ms: int
    is_written: bool = False

    def completed(self, body: object, now_ms: int) -> ClientResponse:
        """The response with a body; None: no response was expected."""
        return ClientResponse(self.request, now_ms, self.version, body)

    def disconnected(
        self, now_ms: int, authentication_error: AuthenticationException | None, timed_out: bool
    ) -> ClientResponse:
        """The end of a request whose connection ended."""
        return ClientResponse(
            self.request,
            now_ms,
            self.version,
            was_disconnected=True,
            timed_out=timed_out,
            authentication_error=authentication_error,
        )


class InFlightRequests:
    """``max_per_connection``: how many requests a connection may have in flight."""

    def __init__(self, max_per_connection: int) -> None:
        self._max_per_connection = max_per_connection
        self._by_node: dict[int, deque[InFlightRequest]] = {}
        """Node id -> its requests, the oldest first; no entry for a node without any."""

    def add(self, request: InFlightRequest) -> None:
        """Append the newest request of its node."""
        self._by_node.setdefault(request.request.destination, deque()).append(request)

    def of(self, node_id: int) -> Iterable[InFlightRequest]:
        """The requests of a node, the oldest first."""
        return self._by_node.get(node_id, ())

    def last_sent(self, node_id: int) -> InFlightRequest:
        """The newest request of a node; ``KeyError``: it has none."""
        return self._by_node[node_id][-1]

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Remove and return the oldest request of a node; ``KeyError``: it has none."""
        request = self._by_node[node_id].popleft()
        self._forget_if_empty(node_id)
        return request

    def complete_last_sent(self, node_id: int) -> InFlightRequest:
        """Remove and return the newest request of a node; ``KeyError``: it has none."""
        request = self._by_node[node_id].pop()
        self._forget_if_empty(node_id)
        return request

    def can_send_more(self, node_id: int) -> bool:
        """Whether the newest request is written, and there are fewer than ``max_per_connection``."""
        requests = self._by_node.get(node_id)
        return requests is None or (requests[-1].is_written and len(requests) < self._max_per_connection)

    def count(self, node_id: int | None = None) -> int:
        """How many requests a node has, or all nodes."""
        if node_id is None:
            return sum(map(len, self._by_node.values()))
        return len(self._by_node.get(node_id, ()))

    def is_empty(self, node_id: int | None = None) -> bool:
        """Whether a node has no request, or no node has one."""
        return not self._by_node if node_id is None else node_id not in self._by_node

    def clear_all(self, node_id: int) -> list[InFlightRequest]:
        """Remove and return the requests of a node, the oldest first."""
        return list(self._by_node.pop(node_id, ()))

    def nodes_with_timed_out_requests(self, now_ms: int) -> list[int]:
        """The nodes of which a request has waited for longer than its time-out."""
        return [
            node_id
            for node_id, requests in self._by_node.items()
            if any(_left_ms(request, now_ms) < 0 for request in requests)
        ]

    def time_to_next_timeout_ms(self, now_ms: int) -> int:
        """How long until ``nodes_with_timed_out_requests`` names a node, if nothing else happens."""
        left = (_left_ms(request, now_ms) + 1 for requests in self._by_node.values() for request in requests)
        return max(0, min(left, default=FOREVER_MS))

    def _forget_if_empty(self, node_id: int) -> None:
        if not self._by_node[node_id]:
            del self._by_node[node_id]


def _left_ms(request: InFlightRequest, now_ms: int) -> int:
    return request.request.request_timeout_ms - max(0, now_ms - request.sent_ms)
