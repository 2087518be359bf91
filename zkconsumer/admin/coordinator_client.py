"""A tool's client of one group's coordinator: finds it, sends requests, and finds it again until retries are used up.

    execute(question)        for requests that may be repeated: finds the coordinator again after "not coordinator",
                             repeats after "loading" and after a lost connection
    execute_once(question)   for requests that may not: sends once; the caller checks the result before it repeats

This class does not query a cluster without ``__consumer_offsets`` unless its caller does: the first request for a group
creates that topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from zkconsumer.admin.coordinator_lookups import COORDINATOR_RETRY_BACKOFF_MS, OFFSETS_TOPIC, discover_coordinator
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import BrokerUnreachable, RemoteProtocolError
from zkconsumer.kafka.error_codes import BrokerError, ErrorCode
from zkconsumer.kafka.group_offsets import COORDINATOR_LOADING_ERRORS, COORDINATOR_MOVED_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.types import BrokerAddress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CoordinatorRetryPolicy:
    """When a request is given up: after ``min_duration_ms`` at the earliest, then when either count is reached.

    ``attempts_max``: answers "not coordinator" or "loading".  A coordinator that cannot be found is searched for
    ``COORDINATOR_ATTEMPTS_MAX`` times in each attempt, so the eight attempts of a tool take 20 seconds at most.
    ``unreachable_attempts_max``: how often a broker may not answer.
    """

    attempts_max: int = 8
    unreachable_attempts_max: int = 3
    min_duration_ms: int = 0


class CoordinatorClient:
    """The coordinator of one group.  One thread.

    Both methods raise ``BrokerUnreachable`` when no broker answers, ``BrokerError`` with the code when the coordinator
    refuses or no coordinator is ready, ``KafkaException`` when brokers are too old, ``RemoteProtocolError`` for bytes
    that are not a valid answer.
    """

    def __init__(
        self,
        session: AnySession,
        group: str,
        pause: Callable[[int], object] | None = None,
        retry_policy: CoordinatorRetryPolicy | None = None,
    ) -> None:
        self._session = session
        self._group = group
        self._pause = pause or StopSignal().wait
        self._retry_policy = retry_policy or CoordinatorRetryPolicy()
        self._coordinator: BrokerAddress | None = None

    def execute(
        self,
        question: Callable[[Connection, SupportedVersions], T],
        retriable_error: Callable[[T], ErrorCode | None] = lambda answer: None,
    ) -> T:
        """Return the coordinator's answer; ``retriable_error`` returns the error in an answer after which the request
        is repeated.
        """
        error: ErrorCode | None = None
        tries = unreachable = 0
        until_ms = self._session.clock.now_ms() + self._retry_policy.min_duration_ms
        while True:
            try:
                answer = self._session.brokers.execute(self._find_coordinator(), question)
                error = retriable_error(answer)
                if error is None:
                    return answer
            except BrokerError as refused:
                if refused.code not in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS:
                    raise
                error = refused.code
            except BrokerUnreachable:
                self._coordinator = None
                unreachable += 1
                if (
                    unreachable >= self._retry_policy.unreachable_attempts_max
                    and self._session.clock.now_ms() >= until_ms
                ):
                    raise
            if error in COORDINATOR_MOVED_ERRORS:
                self._coordinator = None
            tries += 1
            if tries >= self._retry_policy.attempts_max and self._session.clock.now_ms() >= until_ms:
                break
            self._pause(COORDINATOR_RETRY_BACKOFF_MS)
        where = f"group {self._group} has no coordinator that answers (check the topic {OFFSETS_TOPIC})"
        raise BrokerUnreachable(where) if error is None else BrokerError(error, where)

    def execute_once(self, question: Callable[[Connection, SupportedVersions], T]) -> T:
        """Return the coordinator's answer, whatever it is; after an exception it is unknown whether the request was
        executed."""
        broker = self._find_coordinator()
        try:
            return question(*self._session.brokers.connection_to(broker.host, broker.port))
        except (BrokerUnreachable, RemoteProtocolError):
            self._session.brokers.disconnect(broker.host, broker.port)
            self._coordinator = None
            raise

    def forget_coordinator(self) -> None:
        """Another broker coordinates the group now: find it again at the next request."""
        self._coordinator = None

    def _find_coordinator(self) -> BrokerAddress:
        if self._coordinator is None:
            self._coordinator = discover_coordinator(self._session.brokers, self._group, self._pause)
        return self._coordinator
