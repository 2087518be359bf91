"""The seat in the modern group that keeps everybody else out of it while offsets are carried over (K5 of the contract).

    look ---> others are there: nothing is done, they are named
      |
      '-----> nobody, or a seat of this migration --JoinGroup, SyncGroup--> sitting --beat, commit--> ... --leave-->
                                                                               '--22, 25, 27, 82--> lost

The seat is a member of type ``consumer`` with one protocol that nobody else has, so a stock client that joins is told
error 23, and a commit or a reset by somebody who is no member error 25 (brokers of every release from 0.9 on).  Only a
member that has *joined* keeps others out.  Its name is made from the migration's id alone: whoever runs the migration
again finds the seat by what DescribeGroups tells, also one whose member id nobody ever heard of, and takes it back.
Where there are static members (2.3, KIP-345) it is one, so that tools show its name.

The session is the longest that the brokers allow, and the seat beats when it is used: nothing runs beside the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from bridge.client import reactions
from bridge.client.generation import Generation
from bridge.client.reactions import Reaction, reaction
from bridge.migration import seat_requests as asked
from bridge.migration.errors import PartlyDone, SeatDelayed, VerificationFailed
from bridge.migration.seat_rules import (
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    LOST,
    SESSION_TIMEOUTS_MS,
    UNSUPPORTED_VERSION,
    Occupancy,
    occupancy,
    subscription_of,
    who_must_act,
)
from zkconsumer.admin.brokers import REQUEST_TIMEOUT_MS, PeerTrouble
from zkconsumer.admin.coordinator_line import CoordinatorLine, Patience
from zkconsumer.admin.coordinators import RETRY_PAUSE_MS
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import BrokerUnreachable, Bug, RemoteProtocolError
from zkconsumer.kafka.error_codes import NONE, REQUEST_TIMED_OUT, BrokerError, ErrorCode, error_code
from zkconsumer.kafka.group_offsets import MOVED, WAIT, Committer, OffsetAndMetadata, commit_offsets
from zkconsumer.kafka.modern_groups import describe_modern_group

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from bridge.client.config import GroupConfig
    from zkconsumer.admin.session import AdminSession
    from zkconsumer.types import TopicPartition
    from zkconsumer.wire.schemas.join_group import JoinGroupResponse

PATIENCE = Patience(at_least_ms=10_000)
"""So long a coordinator that is away is waited for without a word; then the run waits for it, and says so."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """Who we are in the group."""

    generation: Generation
    config: GroupConfig
    heard_at_ms: int
    """When the last question was sent to which the coordinator gave an answer, by the session's clock."""

    @property
    def until_ms(self) -> int:
        """Till when nobody else is let in if the coordinator hears nothing more of us, by the session's clock."""
        return self.heard_at_ms + self.config.session_timeout_ms


class Seat:
    """One migration's seat in one group.  One thread.

    ``topics``: those of the group.  ``sitting`` is None while we do not sit.  Methods raise ``PartlyDone`` when
    something must be seen to before it can go on, ``VerificationFailed`` when somebody else is alive in the group,
    ``BrokerUnreachable`` or ``KafkaException`` when the brokers were waited for in vain.
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
    ) -> None:
        self.group = group
        self.name = f"zkconsumer-{migration_id}"
        self.sitting: Sitting | None = None
        self._clock = session.clock
        self._pause = pause or StopSignal().wait
        self._patience_ms = patience.at_least_ms
        self._line = CoordinatorLine(session, group, pause, patience)
        self._metadata = subscription_of(topics)
        self._session_timeouts_ms = list(SESSION_TIMEOUTS_MS)
        self._has_static_members = True

    # --- looking ------------------------------------------------------------------------------------------------

    def look(self) -> Occupancy:
        """Who is in the group now; changes nothing."""
        try:
            group = self._line.ask(partial(describe_modern_group, group=self.group, timeout_ms=REQUEST_TIMEOUT_MS))
        except BrokerError as error:
            self._refuse(error.code, "DescribeGroups")
        return occupancy(group, self.name)

    def problem(self) -> str:
        """Why this user could not sit, as far as that can be asked beforehand; empty when nothing speaks against it.

        A heartbeat of nobody changes nothing, and needs the right that a JoinGroup needs.
        """
        config = asked.config_of(self.group, None, SESSION_TIMEOUTS_MS[0])
        code = self._line.ask(partial(asked.beat, config=config, generation=Generation(0, self.name)), _passing)
        return who_must_act(code.code, self.group)

    # --- sitting down, and leaving ------------------------------------------------------------------------------

    def sit(self) -> None:
        """Join, or take back the seat that an earlier run left; when it returns, nobody else is in the group."""
        self._until_done(self._tried_to_sit, "taken")

    def leave(self) -> None:
        """Give the seat up, whichever run took it; when it returns, modern members can join."""
        self._until_done(self._tried_to_leave, "left")
        self.sitting = None

    def _until_done(self, attempt: Callable[[], str], what: str) -> None:
        """Try until a try says that nothing is in the way."""
        until_ms = self._clock.now_ms() + self._patience_ms
        while True:
            try:
                trouble = attempt()
            except (BrokerUnreachable, RemoteProtocolError) as error:
                trouble = str(error)
            if not trouble:
                return
            if self._clock.now_ms() >= until_ms:
                within = f"within {self._patience_ms // 1000} s"
                raise SeatDelayed(f"the seat in group {self.group} could not be {what} {within}: {trouble}")
            self._pause(RETRY_PAUSE_MS)

    def _tried_to_sit(self) -> str:
        """Empty when we sit, else why not yet.

        An answer that was lost may have made a member that we did not hear of, so each try begins with a look.
        """
        found = self.look()
        if found.others:
            raise VerificationFailed(f"the seat in group {self.group} is not free: {_others(found)}")
        for ghost in found.ours[1:]:
            self._remove(ghost.member_id)
        if found.ours:
            # By its member id, a static one too: by the name alone it would be one too many for group.max.size.
            return self._joined(found.ours[0].member_id, is_static=found.ours[0].instance_id is not None)
        return self._joined("", is_static=self._has_static_members)

    def _joined(self, member_id: str, *, is_static: bool) -> str:
        timeout_ms, sent_at_ms = self._session_timeouts_ms[0], self._clock.now_ms()
        joining = asked.Joining(self.group, self.name, self._metadata, timeout_ms, member_id, is_static)
        answer, config = self._line.once(joining.ask)
        if answer.error_code == NONE.code:
            return self._synced(answer, config, sent_at_ms)
        match reaction(reactions.JOIN_GROUP, answer.error_code):
            case Reaction.TAKE_MEMBER_ID:
                return self._joined(answer.member_id, is_static=False)
            case Reaction.FIND_COORDINATOR:
                self._line.lost()
            case Reaction.RAISE:
                self._step_down(answer.error_code, is_static=is_static)
        return f"JoinGroup was answered by {error_code(answer.error_code)}"

    def _step_down(self, code: int, *, is_static: bool) -> None:
        """Ask for less next time; raises when there is nothing less."""
        if code == INVALID_SESSION_TIMEOUT and len(self._session_timeouts_ms) > 1:
            del self._session_timeouts_ms[0]
        elif code == UNSUPPORTED_VERSION and is_static:
            # Brokers from 2.3 on whose inter.broker.protocol.version is older have no static members.
            self._has_static_members = False
        elif code != INCONSISTENT_GROUP_PROTOCOL:  # that is another member, and the next look names it
            self._refuse(error_code(code), "JoinGroup")

    def _synced(self, joined: JoinGroupResponse, config: GroupConfig, sent_at_ms: int) -> str:
        if joined.leader != joined.member_id:
            # A JoinGroup of ours whose answer was lost may lead, and would never tell everybody's share.
            for ghost in self.look().ours:
                if ghost.member_id != joined.member_id:
                    self._remove(ghost.member_id)
        generation = Generation(joined.generation_id, joined.member_id, joined.protocol_name)
        code = self._line.once(partial(asked.sync, config=config, generation=generation))
        if code == NONE:
            self.sitting = Sitting(generation, config, sent_at_ms)
            return ""
        if code in MOVED:
            self._line.lost()
        elif code not in WAIT and reaction(reactions.SYNC_GROUP, code.code) is Reaction.RAISE:
            self._refuse(code, "SyncGroup")
        return f"SyncGroup was answered by {code}"

    def _tried_to_leave(self) -> str:
        """Empty when no seat of this migration is there any more, else why not yet."""
        troubles = [self._remove(seat.member_id) for seat in self.look().ours]
        return next(filter(None, troubles), "")

    def _remove(self, member_id: str) -> str:
        """Empty when a member is gone, else why not."""
        config = asked.config_of(self.group, None, SESSION_TIMEOUTS_MS[0])
        code = self._line.once(partial(asked.leave, config=config, member_id=member_id))
        if code == NONE or code.code in LOST:
            return ""
        if code in MOVED:
            self._line.lost()
        elif code not in WAIT:
            self._refuse(code, "LeaveGroup")
        return f"LeaveGroup was answered by {code}"

    # --- while we sit -------------------------------------------------------------------------------------------

    def beat_if_due(self) -> None:
        """Say that we live if the coordinator has not heard of us lately; nothing while we do not sit."""
        if self.sitting is not None and self._clock.now_ms() >= self.sitting.heard_at_ms + asked.BEAT_EVERY_MS:
            self.beat()

    def beat(self) -> None:
        """Say that we live, and hear that nobody else came.  ``Bug``: we do not sit."""
        sitting, sent_at_ms = self._seated(), self._clock.now_ms()
        question = partial(asked.beat, config=sitting.config, generation=sitting.generation)
        self._heard(self._line.ask(question, _passing), "a heartbeat", sent_at_ms)

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, ErrorCode]:
        """Commit as the only member; what became of each partition.  ``Bug``: we do not sit."""
        sitting, sent_at_ms = self._seated(), self._clock.now_ms()
        generation = sitting.generation
        question = partial(
            commit_offsets,
            group=self.group,
            offsets=offsets,
            timeout_ms=REQUEST_TIMEOUT_MS,
            committer=Committer(generation.generation_id, generation.member_id, sitting.config.group_instance_id),
        )
        outcome = self._line.ask(question, _passing_of_one)
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
            self._refuse(code, what)
        self.sitting = replace(self._seated(), heard_at_ms=sent_at_ms)

    def _lost(self, code: ErrorCode, what: str) -> VerificationFailed | PartlyDone:
        self.sitting = None
        told = f"the seat in group {self.group} was lost ({what} was answered by {code})"
        try:
            found = self.look()
        except PeerTrouble as error:
            return VerificationFailed(f"{told}, and who is in the group now is not known: {error}")
        if found.others:
            return VerificationFailed(f"{told}: {_others(found)}")
        if found.ours:
            return VerificationFailed(
                f"{told}: another run of this migration sits there now ({found.ours[0].member_id}, "
                f"{found.ours[0].host}). Let one of them go on, and stop the other"
            )
        return PartlyDone(
            f"{told}, and nobody is in the group: the session ended, or somebody came and went. Run the same command "
            "again: it takes the seat again and compares every offset before it goes on"
        )

    def _refuse(self, code: ErrorCode, what: str) -> NoReturn:
        why = who_must_act(code.code, self.group)
        if not why:
            raise BrokerError(code, f"{what} of group {self.group}")
        raise PartlyDone(
            f"{what} of group {self.group} was answered by {code}: {why}. Then run the same command again, or roll back"
        )


def _others(found: Occupancy) -> str:
    return (
        f"{found.names} is alive there and may commit. Stop it, and find out who started it; then run the same command "
        "again: it compares every offset before it goes on"
    )


def _passing(code: ErrorCode) -> ErrorCode | None:
    """An error after which the same is asked again."""
    return code if code in MOVED | WAIT else None


def _passing_of_one(outcome: Mapping[TopicPartition, ErrorCode]) -> ErrorCode | None:
    """The same of a commit; one that took too long may have been stored, and may be stored twice."""
    return next((code for code in outcome.values() if code in MOVED | WAIT | {REQUEST_TIMED_OUT}), None)
