"""The placeholder member in the coordinator group, which keeps all other clients out while offsets are copied.

    read group -> others are members: nothing is done, the error names them
      |
      '---------> no member, or a placeholder member of this migration --JoinGroup, SyncGroup--> joined
                                               joined --heartbeat, commit--> joined --leave--> end
                                               joined --an error of MEMBERSHIP_LOST_CODES--> lost

The placeholder is a member of type ``consumer`` with one protocol that no other client has.  So the coordinator rejects
the JoinGroup of a stock client with error 23 (inconsistent group protocol), and a commit or a reset by a client that is
no member with error 25 (unknown member id), in every release from 0.9 on.  Only a member that has *joined* has this
effect.

Its name is derived only from the migration's id.  So a later run finds it with DescribeGroups, also if its member id is
lost, and replaces it (``placeholder_join``).  Where brokers support static members (2.3, KIP-345) it is one, so that
tools show its name.

Each run has a member id of its own.  So a LeaveGroup of a paused run names a member that does not exist any more, and
never the member of a later run.

The session is the longest that the brokers allow.  The caller sends the heartbeats: the placeholder has no thread.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.errors import PartiallyDoneError, PlaceholderLostError, VerificationError
from bridge.migration.placeholder import placeholder_requests as asked
from bridge.migration.placeholder.placeholder_group import PlaceholderGroup, other_members_text, retriable_code
from bridge.migration.placeholder.placeholder_join import JoinedPlaceholder, PlaceholderJoiner
from bridge.migration.placeholder.placeholder_rules import (
    MEMBERSHIP_LOST_CODES,
    GroupOccupants,
    join_error_remedy,
    placeholder_subscription,
)
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.admin.coordinator_client import CoordinatorClient, CoordinatorRetryPolicy
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import InternalError
from zkconsumer.kafka.error_codes import NONE, REQUEST_TIMED_OUT, ErrorCode
from zkconsumer.kafka.group_offsets import (
    COORDINATOR_LOADING_ERRORS,
    COORDINATOR_MOVED_ERRORS,
    CommittingMember,
    commit_offsets,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.wire.schemas.offset_commit import BROKER_RETENTION
from zkconsumer.zk.znode_formats import placeholder_client_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.types import TopicPartition

PLACEHOLDER_RETRY_POLICY = CoordinatorRetryPolicy(min_duration_ms=10_000)
"""How long requests wait for an unavailable coordinator without a report; then the run waits for it, and reports it."""

_RETRIABLE_COMMIT_CODES = COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS | {REQUEST_TIMED_OUT}


class PlaceholderMember:
    """One migration's placeholder member in one group.  One thread.

    ``topics``: those of the group.  ``joined`` is None while it is not a member.  ``check_run`` raises when this run
    has lost the lock; it is called between a read of the group and the requests that depend on it.  Methods raise
    ``PartiallyDoneError`` when the operator must act before the run can continue, ``VerificationError`` when another
    client is a member of the group, ``BrokerUnreachable`` or ``KafkaException`` when the brokers did not answer in
    time.
    """

    def __init__(
        self,
        session: AdminSession,
        group: str,
        migration_id: str,
        topics: Collection[str] = (),
        *,
        pause: Callable[[int], object] | None = None,
        patience: CoordinatorRetryPolicy = PLACEHOLDER_RETRY_POLICY,
        check_run: Callable[[], None] = lambda: None,
    ) -> None:
        self.group = group
        self.name = placeholder_client_id(migration_id)
        self.joined: JoinedPlaceholder | None = None
        self._clock = session.clock
        self._group = PlaceholderGroup(CoordinatorClient(session, group, pause, patience), group, self.name)
        self._joiner = PlaceholderJoiner(
            self._group,
            placeholder_subscription(topics),
            session.clock,
            pause=pause or StopSignal().wait,
            patience_ms=patience.min_duration_ms,
            check_run=check_run,
        )

    def read_occupants(self) -> GroupOccupants:
        """The members of the group now; changes nothing."""
        return self._group.read_occupants()

    def join_error(self) -> str:
        """Why this user cannot join, as far as that can be checked before; empty: no reason was found."""
        return self._group.join_error()

    def session_timeout_ms(self) -> int | None:
        """As ``PlaceholderGroup.session_timeout_ms``."""
        return self._group.session_timeout_ms()

    def join(self) -> None:
        """Join, or replace the placeholder member of an earlier run; then no other member is in the group."""
        self.joined = self._joiner.join()

    def leave(self) -> None:
        """Remove the placeholder member of any run; then other clients can join."""
        self._joiner.leave()
        self.joined = None

    def heartbeat_if_due(self) -> None:
        """Send a heartbeat if the last answered request is old; nothing while not joined."""
        if (
            self.joined is not None
            and self._clock.now_ms() >= self.joined.last_response_request_ms + asked.HEARTBEAT_INTERVAL_MS
        ):
            self.heartbeat()

    def heartbeat(self) -> None:
        """Send a heartbeat; the answer proves that no other client joined.  ``InternalError``: not joined."""
        sitting, sent_at_ms = self._require_joined(), self._clock.now_ms()
        question = partial(asked.send_heartbeat, config=sitting.config, generation=sitting.generation)
        self._handle_code(self._group.coordinator.execute(question, retriable_code), "a heartbeat", sent_at_ms)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], retention_ms: int = BROKER_RETENTION
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit as the only member; returns the result of each partition.  ``InternalError``: not joined.

        ``retention_ms``: how long brokers before 2.1 keep these offsets (``commit_offsets``).
        """
        sitting, sent_at_ms = self._require_joined(), self._clock.now_ms()
        generation = sitting.generation
        question = partial(
            commit_offsets,
            group=self.group,
            offsets=offsets,
            timeout_ms=REQUEST_TIMEOUT_MS,
            committer=CommittingMember(
                generation.generation_id, generation.member_id, sitting.config.group_instance_id
            ),
            retention_ms=retention_ms,
        )
        outcome = self._group.coordinator.execute(question, _retriable_commit_code)
        codes = set(outcome.values())
        lost = next((code for code in codes if code.code in MEMBERSHIP_LOST_CODES), NONE)
        refused = next((code for code in codes if join_error_remedy(code.code, self.group)), NONE)
        self._handle_code(refused if lost == NONE else lost, "a commit", sent_at_ms)
        return outcome

    def _require_joined(self) -> JoinedPlaceholder:
        if self.joined is None:
            raise InternalError(f"the placeholder member of group {self.group} did not join")
        return self.joined

    def _handle_code(self, code: ErrorCode, what: str, sent_at_ms: int) -> None:
        if code.code in MEMBERSHIP_LOST_CODES:
            raise self._lost_error(code, what)
        if code != NONE:
            self._group.raise_error(code, what)
        self.joined = replace(self._require_joined(), last_response_request_ms=sent_at_ms)

    def _lost_error(self, code: ErrorCode, what: str) -> VerificationError | PartiallyDoneError:
        self.joined = None
        told = f"the placeholder member of group {self.group} was removed ({what} failed with {code})"
        try:
            found = self.read_occupants()
        except BROKER_REQUEST_ERRORS as error:
            return VerificationError(f"{told}, and the members of the group are not known now: {error}")
        if found.others:
            return VerificationError(f"{told}: {other_members_text(found)}")
        if found.placeholders:
            return VerificationError(
                f"{told}: another run of this migration joined ({found.placeholders[0].member_id}, "
                f"{found.placeholders[0].host}). Stop one of the two runs"
            )
        return PlaceholderLostError(
            f"{told}, and the group is empty: the session ended, or another client joined and left. The placeholder "
            "member joins again, and the run compares every offset before the next write"
        )


def _retriable_commit_code(outcome: Mapping[TopicPartition, ErrorCode]) -> ErrorCode | None:
    """The first error code after which the whole commit is to be sent again; else None.

    After error 7 (request timed out) the broker may have stored the offsets; then the retry stores them a second time.
    """
    return next((code for code in outcome.values() if code in _RETRIABLE_COMMIT_CODES), None)
