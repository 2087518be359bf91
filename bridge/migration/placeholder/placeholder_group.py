"""The coordinator group for the placeholder member: its members, our permissions, and the meaning of error codes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

from bridge.migration.errors import PartiallyDoneError
from bridge.migration.placeholder import placeholder_requests as asked
from bridge.migration.placeholder.placeholder_rules import (
    INVALID_SESSION_TIMEOUT,
    PLACEHOLDER_SESSION_TIMEOUTS_MS,
    UNKNOWN_MEMBER_ID,
    GroupOccupants,
    join_error_remedy,
    occupants_of,
)
from zkconsumer.admin.broker_client import REQUEST_TIMEOUT_MS
from zkconsumer.kafka.coordinator_groups import describe_coordinator_group
from zkconsumer.kafka.error_codes import BrokerError, ErrorCode, error_code
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group_offsets import COORDINATOR_LOADING_ERRORS, COORDINATOR_MOVED_ERRORS

if TYPE_CHECKING:
    from zkconsumer.admin.coordinator_client import CoordinatorClient
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions

UNUSED_MEMBER_ID = "zkconsumer-asks-how-long-a-session-may-be"


class PlaceholderGroup:
    """One group, and the name of one migration's placeholder member in it.  One thread.

    Methods raise ``PartiallyDoneError`` for an error that an operator must resolve, ``BrokerUnreachable`` or
    ``KafkaException`` when the brokers did not answer in time.
    """

    def __init__(self, line: CoordinatorClient, group: str, name: str) -> None:
        self.coordinator = line
        self.group = group
        self.name = name

    def read_occupants(self) -> GroupOccupants:
        """The members of the group now; changes nothing."""
        try:
            group = self.coordinator.execute(
                partial(describe_coordinator_group, group=self.group, timeout_ms=REQUEST_TIMEOUT_MS)
            )
        except BrokerError as error:
            self.raise_error(error.code, "DescribeGroups")
        return occupants_of(group, self.name)

    def join_error(self) -> str:
        """Why this user cannot join, as far as that can be checked before; empty: no reason was found.

        A heartbeat of an unknown member changes nothing, and needs the permission that a JoinGroup needs.
        """
        config = asked.placeholder_config(self.group, None, PLACEHOLDER_SESSION_TIMEOUTS_MS[0])
        code = self.coordinator.execute(
            partial(asked.send_heartbeat, config=config, generation=Generation(0, self.name)), retriable_code
        )
        return join_error_remedy(code.code, self.group)

    def session_timeout_ms(self) -> int | None:
        """The longest of the placeholder's session timeouts that the brokers allow, in ms.

        0: they allow none of them; None: unknown.

        A JoinGroup with an unknown member id changes nothing.  Coordinators of every release check the session timeout
        first (error 26), then the member id (25).
        """
        for timeout_ms in PLACEHOLDER_SESSION_TIMEOUTS_MS:
            joining = asked.PlaceholderJoinRequest(
                self.group, self.name, b"", timeout_ms, UNUSED_MEMBER_ID, is_static=False
            )
            code = self.coordinator.execute(partial(_join_error_code, joining), retriable_code)
            if code.code != INVALID_SESSION_TIMEOUT:
                return timeout_ms if code.code == UNKNOWN_MEMBER_ID else None
        return 0

    def raise_error(self, code: ErrorCode, what: str) -> NoReturn:
        """Raise the error for a code that no retry resolves; ``BrokerError`` for the others."""
        why = join_error_remedy(code.code, self.group)
        if not why:
            raise BrokerError(code, f"{what} of group {self.group}")
        raise PartiallyDoneError(
            f"{what} of group {self.group} failed with {code}: {why}. Then run the same command again, or roll back"
        )


def _join_error_code(
    joining: asked.PlaceholderJoinRequest, connection: Connection, ranges: SupportedVersions
) -> ErrorCode:
    answer, _ = joining.send(connection, ranges)
    return error_code(answer.error_code)


def other_members_text(found: GroupOccupants) -> str:
    """The other members, and what to do about them."""
    return (
        f"{found.names} is a member and may commit. Stop it, and find out what started it; then run the same command "
        "again: it compares every offset before it continues"
    )


def retriable_code(code: ErrorCode) -> ErrorCode | None:
    """The code, if the request is to be sent again after it; else None."""
    return code if code in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS else None
