"""The reaction of a member to each error code, as tables: those of Kafka's clients (3.x).  Pure.

*Unchanged* means: the generation is still the one with which the request was sent.  An answer to a request of an older
generation resets nothing, because it does not apply to the current one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.error_codes import BrokerError, error_code
from zkconsumer.kafka.group.errors import (
    FencedInstanceIdException,
    GroupAuthorizationException,
    GroupMaxSizeReachedException,
    InconsistentGroupProtocolException,
    InvalidGroupIdException,
    InvalidSessionTimeoutException,
    TopicAuthorizationException,
    UnsupportedVersionException,
)

UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
UNSUPPORTED_VERSION = 35
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
UNSTABLE_OFFSET_COMMIT = 88


class ErrorAction(Enum):
    """The reaction to an error."""

    RETRY_IMMEDIATELY = "repeat at once"
    RETRY_AFTER_BACKOFF = "repeat after a pause"
    FIND_COORDINATOR = "the coordinator is unknown; repeat after a pause"
    RESET_MEMBER = "if unchanged: no generation and no member id; at once"
    RESET_GENERATION = "if unchanged: no generation, the member id stays; at once"
    USE_GIVEN_MEMBER_ID = "join at once with the id that the coordinator gave"
    REJOIN = "the group rebalances: join"
    FENCED = "if unchanged: another process has our instance id, and the member ends"
    PARTITION_ERROR = "this partition is rejected, and the program receives the error"
    RAISE = "the program receives the error"


ErrorPolicyTable = Mapping[int, ErrorAction]

JOIN_GROUP: ErrorPolicyTable = MappingProxyType(
    {
        14: ErrorAction.RETRY_AFTER_BACKOFF,
        15: ErrorAction.FIND_COORDINATOR,
        16: ErrorAction.FIND_COORDINATOR,
        25: ErrorAction.RESET_MEMBER,
        27: ErrorAction.RETRY_IMMEDIATELY,
        79: ErrorAction.USE_GIVEN_MEMBER_ID,
        82: ErrorAction.FENCED,
    }
)
"""27: the coordinator could not write in time.  82 ends the member in any case."""

SYNC_GROUP: ErrorPolicyTable = MappingProxyType(
    {
        15: ErrorAction.FIND_COORDINATOR,
        16: ErrorAction.FIND_COORDINATOR,
        22: ErrorAction.RESET_GENERATION,
        25: ErrorAction.RESET_MEMBER,
        27: ErrorAction.RETRY_IMMEDIATELY,
        82: ErrorAction.FENCED,
    }
)
"""14 is not in it: Kafka's clients fail on it, so a coordinator that loads its state must answer 27."""

HEARTBEAT: ErrorPolicyTable = MappingProxyType(
    {
        15: ErrorAction.FIND_COORDINATOR,
        16: ErrorAction.FIND_COORDINATOR,
        22: ErrorAction.RESET_GENERATION,
        25: ErrorAction.RESET_MEMBER,
        27: ErrorAction.REJOIN,
        82: ErrorAction.FENCED,
    }
)
"""27 has an effect only in STABLE; during a rebalance it adds no information."""

OFFSET_COMMIT: ErrorPolicyTable = MappingProxyType(
    {
        3: ErrorAction.RETRY_AFTER_BACKOFF,
        7: ErrorAction.FIND_COORDINATOR,
        12: ErrorAction.PARTITION_ERROR,
        14: ErrorAction.RETRY_AFTER_BACKOFF,
        15: ErrorAction.FIND_COORDINATOR,
        16: ErrorAction.FIND_COORDINATOR,
        22: ErrorAction.RESET_GENERATION,
        25: ErrorAction.RESET_MEMBER,
        27: ErrorAction.REJOIN,
        28: ErrorAction.PARTITION_ERROR,
        29: ErrorAction.PARTITION_ERROR,
        82: ErrorAction.FENCED,
    }
)

OFFSET_FETCH: ErrorPolicyTable = MappingProxyType(
    {
        7: ErrorAction.RETRY_AFTER_BACKOFF,
        14: ErrorAction.RETRY_AFTER_BACKOFF,
        15: ErrorAction.FIND_COORDINATOR,
        16: ErrorAction.FIND_COORDINATOR,
        88: ErrorAction.RETRY_AFTER_BACKOFF,
    }
)
"""88: an open transaction has offsets for it; the coordinator has the result when the transaction has ended."""


def error_action(table: ErrorPolicyTable, code: int) -> ErrorAction:
    """The reaction of a table to a code that is not 0."""
    return table.get(code, ErrorAction.RAISE)


_EXCEPTIONS: Mapping[int, tuple[type[ZkConsumerError], str]] = MappingProxyType(
    {
        23: (InconsistentGroupProtocolException, "its members have no assignor in common with this one"),
        24: (InvalidGroupIdException, "the brokers do not accept this group.id"),
        26: (
            InvalidSessionTimeoutException,
            "the brokers do not accept this session.timeout.ms; set it within their group.min.session.timeout.ms and "
            "group.max.session.timeout.ms, which are 6000 and 30000 by default before 0.10.1",
        ),
        29: (TopicAuthorizationException, "the brokers' ACLs do not allow this user to read the topic"),
        30: (GroupAuthorizationException, "the brokers' ACLs do not allow this user to use the group"),
        35: (UnsupportedVersionException, "the brokers are too old; remove group.instance.id and try again"),
        81: (GroupMaxSizeReachedException, "it has as many members as group.max.size of the brokers allows"),
        82: (FencedInstanceIdException, "another process joined with this group.instance.id"),
    }
)


def error_from_code(code: int, group: str, what: str) -> ZkConsumerError:
    """The program's error for a code; ``what`` is the request."""
    named = _EXCEPTIONS.get(code)
    if named is None:
        return BrokerError(error_code(code), f"{what} of group {group}")
    kind, why = named
    return kind(f"{what} of group {group}: {why} ({error_code(code)})")
