"""``CoordinatorRequests``: sends the requests of a group's machine through the network client, and returns the answers.

    commands of the machine --execute--> ConsumerNetworkClient --> on_answer(event, command, time): RequestAnswered

The coordinator has two connections: the broker's id is mapped to two node ids of the network client, which no fetch
uses.  JoinGroup has one of its own, because a broker reads the next request of a connection only when it has answered
the one before, and it answers JoinGroup when all members have joined: commits, heartbeats and LeaveGroup do not wait
for it.  (Java's consumer has one connection for all of them, and a member of a cooperative group that keeps its
partitions cannot commit before JoinGroup is answered.)

Every request is answered once, by ``Responded`` or ``RequestFailed``; the network client ends it by its time-out.  When
one of the two connections breaks, the other is closed, too: both lead to the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.errors import (
    AuthenticationException,
    DisconnectException,
    TimeoutException,
    UnsupportedVersionException,
    UsageError,
)
from zkconsumer.kafka.group.commands import ConnectCoordinator, DisconnectCoordinator, Send
from zkconsumer.kafka.group.events import Disconnected, Failure, RequestFailed, Responded
from zkconsumer.kafka.group.pending_commands import VERSION_ANY
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import ClientResponse, RequestBuilder
from zkconsumer.wire.schemas import APIS, JOIN_GROUP

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient

NO_MEMBERS_MESSAGE = (
    "{}:{}: this broker is older than 0.9, so its coordinator stores offsets but does not support members; the "
    "operator of the brokers must upgrade all of them to 0.9 or later, and until then the group needs members that use "
    "ZooKeeper (ZookeeperConsumerConnector)"
)

COORDINATOR_NODE_ID = 0x7FFFFFFF
"""Minus the broker's id: the node id of the connection to the coordinator (as in Java)."""

JOIN_NODE_ID = 0x80000000
"""Plus the broker's id: the node id of the connection for JoinGroup."""

AnswerCallback: TypeAlias = Callable[[Responded | RequestFailed, Send, ClientResponse | None, int], None]
"""``on_answer(event, request, response, sent_ms)``: ``response`` None if there is none; ``sent_ms``: not later than the
time when the request was sent.  Called in a thread that polls the network client, or by ``execute``."""


class CoordinatorRequests:
    """``execute`` may be called by any thread.  Its callers hold no lock that ``on_answer`` needs."""

    def __init__(self, client: ConsumerNetworkClient, clock: Clock, on_answer: AnswerCallback) -> None:
        self._client = client
        self._clock = clock
        self._on_answer = on_answer
        self._nodes: dict[int, tuple[Node, Node]] = {}
        """Broker id -> the nodes of the coordinator's two connections, of each coordinator that was found."""

    def execute(self, command: Send | ConnectCoordinator | DisconnectCoordinator) -> None:
        """Execute a command of the machine, without waiting."""
        match command:
            case Send():
                self._send(command)
            case ConnectCoordinator(node):
                first = Node(COORDINATOR_NODE_ID - node.id, node.address.host, node.address.port)
                self._nodes[node.id] = first, first._replace(id=JOIN_NODE_ID + node.id)
            case DisconnectCoordinator(broker_id):
                self._disconnect(broker_id)

    def lost_connection(self, broker_id: int) -> Disconnected | None:
        """The event if the connection to this coordinator broke, also while no request was in flight.

        Only until the back-off of the connection is over, as in Java: after it the next request connects again.
        """
        nodes = self._nodes.get(broker_id)
        return Disconnected(broker_id) if nodes is not None and self._client.is_unavailable(nodes[0]) else None

    def _disconnect(self, broker_id: int) -> None:
        for node in self._nodes.get(broker_id, ()):
            self._client.disconnect_async(node)

    def _send(self, command: Send) -> None:
        if command.node is None:
            node = self._client.least_loaded_node()
        else:
            nodes = self._nodes.get(command.node)
            node = None if nodes is None else nodes[command.api_key == JOIN_GROUP.key]
        sent_ms = self._clock.now_ms()
        if node is None:
            self._on_answer(RequestFailed(command.request, Failure.NO_BROKER), command, None, sent_ms)
            return
        version_max = None if command.version_most == VERSION_ANY else command.version_most
        builder = RequestBuilder(APIS[command.api_key], command.body, version_max=version_max)
        future = self._client.send(node, builder, command.timeout_ms)
        future.add_listener(
            partial(self._on_response, command, sent_ms), partial(self._on_failure, command, node, sent_ms)
        )

    def _on_response(self, command: Send, sent_ms: int, response: ClientResponse) -> None:
        assert response.version is not None, "it was sent"
        self._on_answer(Responded(command.request, response.body, response.version), command, response, sent_ms)

    def _on_failure(self, command: Send, node: Node, sent_ms: int, error: Exception) -> None:
        match error:
            case AuthenticationException():
                event = RequestFailed(command.request, Failure.DISCONNECTED, error)
            case UnsupportedVersionException():
                versions = self._client.supported_versions(node)
                if versions is not None and JOIN_GROUP.key not in versions.ranges:
                    error = UnsupportedVersionException(NO_MEMBERS_MESSAGE.format(node.host, node.port))
                event = RequestFailed(command.request, Failure.UNSUPPORTED, error)
            case UsageError():
                event = RequestFailed(command.request, Failure.INVALID, error)
            case TimeoutException():
                event = RequestFailed(command.request, Failure.TIMED_OUT)
            case _:
                event = RequestFailed(command.request, Failure.DISCONNECTED)
        if isinstance(error, DisconnectException) and command.node is not None:
            # Not the one that has ended: that would forget what is known of the broker's versions.
            for other in self._nodes.get(command.node, ()):
                if other != node:
                    self._client.disconnect_async(other)
        self._on_answer(event, command, None, sent_ms)
