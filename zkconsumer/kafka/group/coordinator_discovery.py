r"""Finds the coordinator of the group, independently of the membership: one of the two machines of a member.  Pure.

    UNKNOWN --FindCoordinator--> LOOKING --found--> KNOWN
       ^  ^---- after a pause ----'  \                |  no longer the coordinator, no answer, or disconnected
       |                              '-- rejected --> error for the program; no request before its next call
       '----------------------------------------------'

At most one request is in flight.  Requests to a coordinator end when it is no longer the coordinator.
"""

from __future__ import annotations

from zkconsumer.errors import BrokerUnreachable, ZkConsumerError
from zkconsumer.kafka.error_codes import NONE, error_code
from zkconsumer.kafka.group.commands import ConnectCoordinator, DisconnectCoordinator
from zkconsumer.kafka.group.error_policy import error_from_code
from zkconsumer.kafka.group.errors import UnsupportedVersionException
from zkconsumer.kafka.group.events import CoordinatorNode, Failure, RequestFailed, RequestId
from zkconsumer.kafka.group.generation import NO_GENERATION
from zkconsumer.kafka.group.kafka_text_forms import boolean_text, error_message, node_text
from zkconsumer.kafka.group.pending_commands import PendingCommands, RequestKind, SentRequest
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.schemas import FIND_COORDINATOR
from zkconsumer.wire.schemas.find_coordinator import BATCHED_FROM, FindCoordinatorRequest, FindCoordinatorResponse

VERSION_MOST = BATCHED_FROM - 1
"""The request names one group: the form that every broker from 0.9 to 4.x supports."""


class CoordinatorDiscovery:
    """``coordinator`` or None; ``incarnation`` is different for each one that was found."""

    def __init__(
        self, group: str, request_timeout_ms: int, backoff: ExponentialBackoff, outbox: PendingCommands
    ) -> None:
        self.coordinator: CoordinatorNode | None = None
        self.incarnation = 0
        self.fatal: ZkConsumerError | None = None
        self.retry_at_ms = 0
        self._group = group
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._pending_commands = outbox
        self._request: RequestId | None = None
        self._attempts = 0

    @property
    def has_pending_request(self) -> bool:
        """Whether a request is unanswered."""
        return self._request is not None

    def ensure_coordinator_ready(self) -> bool:
        """Whether the coordinator is known; if not, find it, unless a request is in flight or a pause is not over."""
        if self.coordinator is not None:
            return True
        self.lookup_coordinator()
        return False

    def lookup_coordinator(self) -> None:
        """Send a request to any broker, one at a time."""
        if self.has_pending_request or self.fatal is not None or self._pending_commands.now_ms < self.retry_at_ms:
            return
        self._request = self._pending_commands.send(
            SentRequest(RequestKind.FIND_COORDINATOR, NO_GENERATION, self.incarnation),
            None,
            FIND_COORDINATOR.key,
            body=FindCoordinatorRequest(key=self._group),
            timeout_ms=self._request_timeout_ms,
            version_most=VERSION_MOST,
        )

    def answered(self, body: FindCoordinatorResponse) -> bool:
        """Process the answer; returns whether the coordinator is known now."""
        self._request = None
        code = error_code(body.error_code)
        if code == NONE:
            self.incarnation += 1
            self.coordinator = CoordinatorNode(body.node_id, BrokerAddress(body.node_id, body.host, body.port))
            self._pending_commands.log_event(
                "coordinator-found",
                f"Discovered group coordinator {node_text(self.coordinator)}",
                node=body.node_id,
                host=body.host,
                port=body.port,
            )
            self._pending_commands.add(ConnectCoordinator(self.coordinator))
            return True
        self._pending_commands.log_event(
            "coordinator-lookup-failed",
            f"Group coordinator lookup failed: {body.error_message or error_message(code.code)}",
            error=str(code),
        )
        if code.is_retriable:
            self._pause()
        else:
            self._reject(error_from_code(code.code, self._group, "FindCoordinator"))
        return False

    def failed(self, event: RequestFailed) -> None:
        """The request has no answer."""
        self._request = None
        error = error_without_answer(event, self._group, RequestKind.FIND_COORDINATOR)
        self._pending_commands.log_event(
            "coordinator-lookup-failed", f"FindCoordinator request failed due to {error}", error=event.failure.value
        )
        if event.error is not None or event.failure is Failure.UNSUPPORTED:
            self._reject(error)
        else:
            self._pause()

    def _reject(self, error: ZkConsumerError) -> None:
        """No search before the program's next call."""
        self.fatal = error
        self._pending_commands.log_event(
            "coordinator-lookup-rejected", "FindCoordinator request hit fatal exception", reason=str(error)
        )

    def record_response(self) -> None:
        """The coordinator answered a request: the next search begins without a pause."""
        self._attempts = 0

    def clear_fatal_error(self) -> None:
        """The program called: a rejected request may be sent again."""
        self.fatal = None

    def mark_coordinator_unknown(self, why: str, *, is_disconnected: bool = False) -> None:
        """Forget it first, then end the requests to it."""
        node, self.coordinator = self.coordinator, None
        if node is None:
            return
        self._pending_commands.log_event(
            "coordinator-unknown",
            f"Group coordinator {node_text(node)} is unavailable or invalid due to cause: {why}.isDisconnected: "
            f"{boolean_text(is_disconnected)}. Rediscovery will be attempted.",
            node=node.id,
            reason=why,
        )
        self._pause()
        if not is_disconnected:
            self._pending_commands.add(DisconnectCoordinator(node.id))

    def _pause(self) -> None:
        self.retry_at_ms = self._pending_commands.now_ms + self._backoff.backoff(self._attempts)
        self._attempts += 1


def error_without_answer(event: RequestFailed, group: str, what: RequestKind) -> ZkConsumerError:
    """The program's error for a request without an answer."""
    if isinstance(event.error, ZkConsumerError):
        return event.error
    if event.failure is Failure.UNSUPPORTED:
        return UnsupportedVersionException(
            f"{what.value} of group {group}: the broker is too old for this request; upgrade the brokers"
        )
    why = f"{event.failure.value}: {event.error}" if event.error else event.failure.value
    return BrokerUnreachable(f"{what.value} of group {group} was not answered: {why}")
