"""Taking the seat in a modern group, and leaving it: tries, each after a look, until one says that it is done."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bridge.client import reactions
from bridge.client.generation import Generation
from bridge.client.reactions import Reaction, reaction
from bridge.migration import seat_requests as asked
from bridge.migration.errors import SeatDelayed, VerificationFailed
from bridge.migration.seat_group import SeatGroup, words_of_others
from bridge.migration.seat_rules import (
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    LOST,
    SESSION_TIMEOUTS_MS,
    UNSUPPORTED_VERSION,
)
from zkconsumer.admin.coordinators import RETRY_PAUSE_MS
from zkconsumer.errors import BrokerUnreachable, RemoteProtocolError
from zkconsumer.kafka.error_codes import NONE, error_code
from zkconsumer.kafka.group_offsets import MOVED, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.client.config import GroupConfig
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.modern_groups import ModernMember
    from zkconsumer.wire.schemas.join_group import JoinGroupResponse


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


class Taking:
    """Takes the seat, and leaves it; ``metadata`` is what it says of itself.  One thread.

    What one try learns of the brokers, the next one goes by.  Methods raise as ``SeatGroup`` does, ``SeatDelayed`` when
    it was tried for ``patience_ms``, ``VerificationFailed`` when somebody else is alive in the group.
    """

    def __init__(
        self,
        at: SeatGroup,
        metadata: bytes,
        clock: Clock,
        pause: Callable[[int], object],
        patience_ms: int,
        check_run: Callable[[], None],
    ) -> None:
        self._at = at
        self._metadata = metadata
        self._clock = clock
        self._pause = pause
        self._patience_ms = patience_ms
        self._check_run = check_run
        self._session_timeouts_ms = list(SESSION_TIMEOUTS_MS)
        self._has_static_members = True
        self._sitting: Sitting | None = None
        self._former: ModernMember | None = None
        """The static member of an earlier run that the next JoinGroup replaces."""

    def sit(self) -> Sitting:
        """Join, or take back the seat that an earlier run left; when it returns, nobody else is in the group."""
        self._until_done(self._tried_to_sit, "taken")
        assert self._sitting is not None, "the last try says so"
        return self._sitting

    def leave(self) -> None:
        """Give the seat up, whichever run took it; when it returns, modern members can join."""
        self._until_done(self._tried_to_leave, "left")

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
                raise SeatDelayed(f"the seat in group {self._at.group} could not be {what} {within}: {trouble}")
            self._pause(RETRY_PAUSE_MS)

    def _tried_to_sit(self) -> str:
        """Empty when we sit, else why not yet.

        An answer that was lost may have made a member that we did not hear of, so each try begins with a look.

        A seat that is there is replaced by a new member: a static one in one request.  Any other is removed first: a
        newcomer would be answered only when the coordinator has waited for the former in vain (10 s; 30 s in 0.9).
        Whoever commits or joins in that moment is found, as whoever did before this run: every value is compared.
        """
        found = self._at.look()
        if found.others:
            raise VerificationFailed(f"the seat in group {self._at.group} is not free: {words_of_others(found)}")
        self._check_run()
        statics = [one for one in found.ours if one.instance_id is not None and self._has_static_members]
        self._former = statics[0] if statics else None
        troubles = [self._remove(one.member_id) for one in found.ours if one != self._former]
        return next(filter(None, troubles), "") or self._joined("", is_static=self._has_static_members)

    def _joined(self, member_id: str, *, is_static: bool) -> str:
        timeout_ms, sent_at_ms = self._session_timeouts_ms[0], self._clock.now_ms()
        joining = asked.Joining(self._at.group, self._at.name, self._metadata, timeout_ms, member_id, is_static)
        answer, config = self._at.line.once(joining.ask)
        if answer.error_code == NONE.code:
            return self._synced(answer, config, sent_at_ms)
        match reaction(reactions.JOIN_GROUP, answer.error_code):
            case Reaction.TAKE_MEMBER_ID:
                return self._joined(answer.member_id, is_static=False)
            case Reaction.FIND_COORDINATOR:
                self._at.line.lost()
            case _ if answer.error_code == GROUP_MAX_SIZE_REACHED and self._former is not None and not member_id:
                # A group of group.max.size members lets nobody in who names no member, a static one neither.
                trouble = self._remove(self._former.member_id)
                return trouble or self._joined("", is_static=is_static)
            case Reaction.RAISE if self._steps_down(answer.error_code, is_static=is_static):
                return self._joined(member_id, is_static=is_static and self._has_static_members)
        return f"JoinGroup was answered by {error_code(answer.error_code)}"

    def _steps_down(self, code: int, *, is_static: bool) -> bool:
        """Whether there is less to ask for, at once; raises when there is nothing less."""
        if code == INVALID_SESSION_TIMEOUT and len(self._session_timeouts_ms) > 1:
            del self._session_timeouts_ms[0]
        elif code == UNSUPPORTED_VERSION and is_static:
            # Brokers from 2.3 on whose inter.broker.protocol.version is older have no static members.
            self._has_static_members = False
        elif code == INCONSISTENT_GROUP_PROTOCOL:
            return False  # that is another member, and the next look names it
        else:
            self._at.refuse(error_code(code), "JoinGroup")
        return True

    def _synced(self, joined: JoinGroupResponse, config: GroupConfig, sent_at_ms: int) -> str:
        if joined.leader != joined.member_id:
            # A JoinGroup of ours whose answer was lost may lead, and would never tell everybody's share.
            for ghost in self._at.look().ours:
                if ghost.member_id != joined.member_id:
                    self._remove(ghost.member_id)
        generation = Generation(joined.generation_id, joined.member_id, joined.protocol_name)
        code = self._at.line.once(partial(asked.sync, config=config, generation=generation))
        if code == NONE:
            self._sitting = Sitting(generation, config, sent_at_ms)
            return ""
        if code in MOVED:
            self._at.line.lost()
        elif code not in WAIT and reaction(reactions.SYNC_GROUP, code.code) is Reaction.RAISE:
            self._at.refuse(code, "SyncGroup")
        return f"SyncGroup was answered by {code}"

    def _tried_to_leave(self) -> str:
        """Empty when no seat of this migration is there any more, else why not yet."""
        seats = self._at.look().ours
        # What was found before the run was still ours is no seat of a later run.
        self._check_run()
        troubles = [self._remove(seat.member_id) for seat in seats]
        return next(filter(None, troubles), "")

    def _remove(self, member_id: str) -> str:
        """Empty when a member is gone, else why not."""
        config = asked.config_of(self._at.group, None, SESSION_TIMEOUTS_MS[0])
        code = self._at.line.once(partial(asked.leave, config=config, member_id=member_id))
        if code == NONE or code.code in LOST:
            return ""
        if code in MOVED:
            self._at.line.lost()
        elif code not in WAIT:
            self._at.refuse(code, "LeaveGroup")
        return f"LeaveGroup was answered by {code}"
