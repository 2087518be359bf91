"""Joins the placeholder member to a coordinator group, and removes it: retries, each after it reads the group."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.errors import PlaceholderTimeoutError, VerificationError
from bridge.migration.placeholder import placeholder_requests as asked
from bridge.migration.placeholder.placeholder_group import PlaceholderGroup, other_members_text
from bridge.migration.placeholder.placeholder_rules import (
    GROUP_MAX_SIZE_REACHED,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    MEMBERSHIP_LOST_CODES,
    PLACEHOLDER_SESSION_TIMEOUTS_MS,
    UNSUPPORTED_VERSION,
)
from zkconsumer.admin.coordinator_lookups import COORDINATOR_RETRY_BACKOFF_MS
from zkconsumer.errors import BrokerUnreachable, RemoteProtocolError
from zkconsumer.kafka.error_codes import NONE, error_code
from zkconsumer.kafka.group import error_policy
from zkconsumer.kafka.group.error_policy import ErrorAction, error_action
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group_offsets import COORDINATOR_LOADING_ERRORS, COORDINATOR_MOVED_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.coordinator_groups import CoordinatorGroupMember
    from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
    from zkconsumer.wire.schemas.join_group import JoinGroupResponse


@dataclass(frozen=True, slots=True)
class JoinedPlaceholder:
    """The joined placeholder member."""

    generation: Generation
    config: GroupMemberConfig
    last_response_request_ms: int
    """When the last answered request was sent, by the session's clock."""

    @property
    def session_end_ms(self) -> int:
        """Until when the coordinator keeps the member without a further heartbeat, by the session's clock."""
        return self.last_response_request_ms + self.config.session_timeout_ms


@dataclass(eq=False, repr=False)
class PlaceholderJoiner:
    """Joins and removes the placeholder member; ``metadata`` is its subscription.  One thread.

    A try does not request a session timeout, or a static membership, that the brokers rejected in an earlier try.

    Methods raise as ``PlaceholderGroup`` does,
    ``PlaceholderTimeoutError`` after the timeout, ``VerificationError`` when another client is in the group.
    """

    group: PlaceholderGroup
    metadata: bytes
    clock: Clock
    _: KW_ONLY
    pause: Callable[[int], object]
    patience_ms: int
    check_run: Callable[[], None]

    def __post_init__(self) -> None:
        self._session_timeouts_ms = list(PLACEHOLDER_SESSION_TIMEOUTS_MS)
        self._has_static_members = True
        self._joined_placeholder: JoinedPlaceholder | None = None
        self._previous_static_member: CoordinatorGroupMember | None = None
        """The static member of an earlier run that the next JoinGroup replaces; None once it was removed."""

    def join(self) -> JoinedPlaceholder:
        """Join, or replace the placeholder member of an earlier run; then no other member is in the group."""
        self._retry_until_done(self._try_join, "join")
        assert self._joined_placeholder is not None, "the last try joined"
        return self._joined_placeholder

    def leave(self) -> None:
        """Remove the placeholder member of any run; then other clients can join."""
        self._retry_until_done(self._try_leave, "leave")

    def _retry_until_done(self, attempt: Callable[[], str], what: str) -> None:
        """Try until a try returns no reason to try again."""
        until_ms = self.clock.now_ms() + self.patience_ms
        while True:
            try:
                trouble = attempt()
            except (BrokerUnreachable, RemoteProtocolError) as error:
                trouble = str(error)
            if not trouble:
                return
            if self.clock.now_ms() >= until_ms:
                within = f"within {self.patience_ms // 1000} s"
                raise PlaceholderTimeoutError(
                    f"the placeholder member of group {self.group.group} could not {what} {within}: {trouble}"
                )
            self.pause(COORDINATOR_RETRY_BACKOFF_MS)

    def _try_join(self) -> str:
        """Empty when the placeholder member has joined, else why not yet.

        A lost answer may have created a member whose id this run did not receive, so each try reads the group first.

        A new member replaces an existing placeholder member.  A static one is replaced in one request.  Any other is
        removed first: otherwise the coordinator would answer the new member only after it has waited for the former
        one (10 s; 30 s in 0.9).  A client that commits or joins in that moment is detected like one before this run:
        every value is compared.
        """
        found = self.group.read_occupants()
        if found.others:
            raise VerificationError(f"group {self.group.group} has other members: {other_members_text(found)}")
        self.check_run()
        statics = [one for one in found.placeholders if one.instance_id is not None and self._has_static_members]
        self._previous_static_member = statics[0] if statics else None
        troubles = [self._remove(one.member_id) for one in found.placeholders if one != self._previous_static_member]
        return next(filter(None, troubles), "") or self._send_join("", is_static=self._has_static_members)

    def _send_join(self, member_id: str, *, is_static: bool) -> str:
        timeout_ms, sent_at_ms = self._session_timeouts_ms[0], self.clock.now_ms()
        previous = self._previous_static_member
        joining = asked.PlaceholderJoinRequest(
            self.group.group, self.group.name, self.metadata, timeout_ms, member_id, is_static
        )
        answer, config = self.group.coordinator.execute_once(joining.send)
        if answer.error_code == NONE.code:
            return self._send_sync(answer, config, sent_at_ms)
        match error_action(error_policy.JOIN_GROUP, answer.error_code):
            case ErrorAction.USE_GIVEN_MEMBER_ID:
                return self._send_join(answer.member_id, is_static=False)
            case ErrorAction.FIND_COORDINATOR:
                self.group.coordinator.forget_coordinator()
            case _ if answer.error_code == GROUP_MAX_SIZE_REACHED and previous is not None and not member_id:
                # A group of group.max.size members rejects a new member without a member id, static or not.
                self._previous_static_member = None  # rejected again: another client has its place
                trouble = self._remove(previous.member_id)
                return trouble or self._send_join("", is_static=is_static)
            case ErrorAction.RAISE if self._fall_back(answer.error_code, is_static=is_static):
                return self._send_join(member_id, is_static=is_static and self._has_static_members)
        return f"JoinGroup failed with {error_code(answer.error_code)}"

    def _fall_back(self, code: int, *, is_static: bool) -> bool:
        """Whether to join again at once, with a shorter session timeout or without static membership.

        Raises the error of the code when neither is possible.
        """
        if code == INVALID_SESSION_TIMEOUT and len(self._session_timeouts_ms) > 1:
            del self._session_timeouts_ms[0]
        elif code == UNSUPPORTED_VERSION and is_static:
            # Brokers from 2.3 on whose inter.broker.protocol.version is older have no static members.
            self._has_static_members = False
        elif code in (INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED):
            return False  # the group has another member; the next try reads the group and names it
        else:
            self.group.raise_error(error_code(code), "JoinGroup")
        return True

    def _send_sync(self, joined: JoinGroupResponse, config: GroupMemberConfig, sent_at_ms: int) -> str:
        if joined.leader != joined.member_id:
            # A JoinGroup of this run whose answer was lost may lead, and would never send the assignments.
            for ghost in self.group.read_occupants().placeholders:
                if ghost.member_id != joined.member_id:
                    self._remove(ghost.member_id)
        generation = Generation(joined.generation_id, joined.member_id, joined.protocol_name)
        code = self.group.coordinator.execute_once(partial(asked.send_sync_group, config=config, generation=generation))
        if code == NONE:
            self._joined_placeholder = JoinedPlaceholder(generation, config, sent_at_ms)
            return ""
        if code in COORDINATOR_MOVED_ERRORS:
            self.group.coordinator.forget_coordinator()
        elif (
            code not in COORDINATOR_LOADING_ERRORS
            and error_action(error_policy.SYNC_GROUP, code.code) is ErrorAction.RAISE
        ):
            self.group.raise_error(code, "SyncGroup")
        return f"SyncGroup failed with {code}"

    def _try_leave(self) -> str:
        """Empty when the group has no placeholder member of this migration; else why to try again."""
        placeholders = self.group.read_occupants().placeholders
        # These members were found while this run had the lock, so none belongs to a later run.
        self.check_run()
        troubles = [self._remove(placeholder.member_id) for placeholder in placeholders]
        return next(filter(None, troubles), "")

    def _remove(self, member_id: str) -> str:
        """Empty when the member was removed; else why not."""
        config = asked.placeholder_config(self.group.group, None, PLACEHOLDER_SESSION_TIMEOUTS_MS[0])
        code = self.group.coordinator.execute_once(partial(asked.send_leave_group, config=config, member_id=member_id))
        if code == NONE or code.code in MEMBERSHIP_LOST_CODES:
            return ""
        if code in COORDINATOR_MOVED_ERRORS:
            self.group.coordinator.forget_coordinator()
        elif code not in COORDINATOR_LOADING_ERRORS:
            self.group.raise_error(code, "LeaveGroup")
        return f"LeaveGroup failed with {code}"
