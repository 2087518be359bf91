"""The seat in the modern group that keeps everybody else out of it while offsets are carried over (K5 of the contract).

    look ---> others are there: nothing is done, they are named
      |
      '-----> nobody, or a seat of this migration --JoinGroup, SyncGroup--> sitting --beat, commit--> ... --leave-->
                                                                               '--22, 25, 27, 82--> lost

The seat is a member of type ``consumer`` with one protocol that nobody else has, so a stock client that joins is told
error 23, and a commit or a reset by somebody who is no member error 25 (brokers of every release from 0.9 on).  Only a
member that has *joined* keeps others out.  Its name is made from the migration's id alone: whoever runs the migration
again finds the seat by what DescribeGroups tells, also one whose member id nobody ever heard of, and joins in its place
while it is still there.  Where there are static members (2.3, KIP-345) it is one, so that tools show its name.

Each run has a member id of its own.  So a LeaveGroup of a run that was paused names a member that is gone, and never
the member of the run that came after it.

The session is the longest that the brokers allow, and the seat beats when it is used: nothing runs beside the caller.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration import seat_requests as asked
from bridge.migration.errors import PartlyDone, SeatLost, VerificationFailed
from bridge.migration.seat_group import SeatGroup, passing, words_of_others
from bridge.migration.seat_rules import LOST, Occupancy, subscription_of, who_must_act
from bridge.migration.seat_taking import Sitting, Taking
from zkconsumer.admin.brokers import REQUEST_TIMEOUT_MS, PeerTrouble
from zkconsumer.admin.coordinator_line import CoordinatorLine, Patience
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import Bug
from zkconsumer.kafka.error_codes import NONE, REQUEST_TIMED_OUT, ErrorCode
from zkconsumer.kafka.group_offsets import MOVED, WAIT, Committer, OffsetAndMetadata, commit_offsets
from zkconsumer.wire.schemas.offset_commit import BROKER_RETENTION
from zkconsumer.zk.znodes import placeholder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from zkconsumer.admin.session import AdminSession
    from zkconsumer.types import TopicPartition

PATIENCE = Patience(at_least_ms=10_000)
"""So long a coordinator that is away is waited for without a word; then the run waits for it, and says so."""

_PASSING = MOVED | WAIT | {REQUEST_TIMED_OUT}


class Seat:
    """One migration's seat in one group.  One thread.

    ``topics``: those of the group.  ``sitting`` is None while we do not sit.  ``check_run`` raises when the run is not
    ours any more; it is called between a look at the group and the requests that follow from it.  Methods raise
    ``PartlyDone`` when something must be seen to before it can go on, ``VerificationFailed`` when another client is
    alive in the group, ``BrokerUnreachable`` or ``KafkaException`` when the brokers were waited for in vain.
    """

    def __init__(
        self,
        session: AdminSession,
        group: str,
        migration_id: str,
        topics: Collection[str] = (),
        *,
        pause: Callable[[int], object] | None = None,
        patience: Patience = PATIENCE,
        check_run: Callable[[], None] = lambda: None,
    ) -> None:
        self.group = group
        self.name = placeholder_of(migration_id)
        self.sitting: Sitting | None = None
        self._clock = session.clock
        self._at = SeatGroup(CoordinatorLine(session, group, pause, patience), group, self.name)
        self._taking = Taking(
            self._at, subscription_of(topics), session.clock, pause or StopSignal().wait, patience.at_least_ms,
            check_run,
        )  # fmt: skip

    def look(self) -> Occupancy:
        """Who is in the group now; changes nothing."""
        return self._at.look()

    def problem(self) -> str:
        """Why this user could not sit, as far as that can be asked beforehand; empty when nothing speaks against it."""
        return self._at.problem()

    def session_timeout_ms(self) -> int | None:
        """As ``SeatGroup.session_timeout_ms``: what the seat's session will be; changes nothing."""
        return self._at.session_timeout_ms()

    def sit(self) -> None:
        """Join, in the place of a seat that an earlier run left; when it returns, nobody else is in the group."""
        self.sitting = self._taking.sit()

    def leave(self) -> None:
        """Give the seat up, whichever run took it; when it returns, modern members can join."""
        self._taking.leave()
        self.sitting = None

    def beat_if_due(self) -> None:
        """Say that we live if the coordinator has not heard of us lately; nothing while we do not sit."""
        if self.sitting is not None and self._clock.now_ms() >= self.sitting.heard_at_ms + asked.BEAT_EVERY_MS:
            self.beat()

    def beat(self) -> None:
        """Say that we live, and hear that nobody else came.  ``Bug``: we do not sit."""
        sitting, sent_at_ms = self._seated(), self._clock.now_ms()
        question = partial(asked.beat, config=sitting.config, generation=sitting.generation)
        self._heard(self._at.line.ask(question, passing), "a heartbeat", sent_at_ms)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], retention_ms: int = BROKER_RETENTION
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit as the only member; what became of each partition.  ``Bug``: we do not sit.

        ``retention_ms``: how long brokers before 2.1 keep these offsets (``commit_offsets``).
        """
        sitting, sent_at_ms = self._seated(), self._clock.now_ms()
        generation = sitting.generation
        question = partial(
            commit_offsets,
            group=self.group,
            offsets=offsets,
            timeout_ms=REQUEST_TIMEOUT_MS,
            committer=Committer(generation.generation_id, generation.member_id, sitting.config.group_instance_id),
            retention_ms=retention_ms,
        )
        outcome = self._at.line.ask(question, _passing_of_one)
        said = set(outcome.values())
        lost = next((code for code in said if code.code in LOST), NONE)
        refused = next((code for code in said if who_must_act(code.code, self.group)), NONE)
        self._heard(refused if lost == NONE else lost, "a commit", sent_at_ms)
        return outcome

    def _seated(self) -> Sitting:
        if self.sitting is None:
            raise Bug(f"the seat in group {self.group} was not taken")
        return self.sitting

    def _heard(self, code: ErrorCode, what: str, sent_at_ms: int) -> None:
        if code.code in LOST:
            raise self._lost(code, what)
        if code != NONE:
            self._at.refuse(code, what)
        self.sitting = replace(self._seated(), heard_at_ms=sent_at_ms)

    def _lost(self, code: ErrorCode, what: str) -> VerificationFailed | PartlyDone:
        self.sitting = None
        told = f"the seat in group {self.group} was lost ({what} was answered by {code})"
        try:
            found = self.look()
        except PeerTrouble as error:
            return VerificationFailed(f"{told}, and who is in the group now is not known: {error}")
        if found.others:
            return VerificationFailed(f"{told}: {words_of_others(found)}")
        if found.ours:
            return VerificationFailed(
                f"{told}: another run of this migration sits there now ({found.ours[0].member_id}, "
                f"{found.ours[0].host}). Let one of them go on, and stop the other"
            )
        return SeatLost(
            f"{told}, and the group is empty: the session ended, or another client came and went. The seat is taken "
            "again, and every offset is compared before anything else is written"
        )


def _passing_of_one(outcome: Mapping[TopicPartition, ErrorCode]) -> ErrorCode | None:
    """The same of a commit; one that took too long may have been stored, and may be stored twice."""
    return next((code for code in outcome.values() if code in _PASSING), None)
