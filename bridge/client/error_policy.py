"""What a member does about each error code, as tables: the reaction tables of Kafka's clients (3.x).  Pure.

*Unchanged* means: the generation is still that with which the request was sent.  An answer of an older one resets
nothing, for it says nothing about what came since.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from bridge.client.errors import (
    FencedInstanceIdException,
    GroupAuthorizationException,
    GroupMaxSizeReachedException,
    InconsistentGroupProtocolException,
    InvalidGroupIdException,
    InvalidSessionTimeoutException,
    TopicAuthorizationException,
    UnsupportedVersionException,
)
from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.error_codes import BrokerError, error_code

UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
TOPIC_AUTHORIZATION_FAILED = 29
UNSTABLE_OFFSET_COMMIT = 88


class ErrorAction(Enum):
    """What is done about an error."""

    RETRY_IMMEDIATELY = "the same again at once"
    RETRY_AFTER_BACKOFF = "the same again after a pause"
    FIND_COORDINATOR = "the coordinator is unknown; the same again after a pause"
    RESET_MEMBER = "if unchanged: no generation and no member id; at once"
    RESET_GENERATION = "if unchanged: no generation, the member id stays; at once"
    USE_GIVEN_MEMBER_ID = "join at once with the id that was given"
    REJOIN = "the group forms anew: join"
    FENCED = "if unchanged: another process has our instance id, and the member ends"
    PARTITION_ERROR = "this partition is refused, and the program told"
    RAISE = "the program is told"


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
"""27: the coordinator could not write in time.  82 ends the member whatever changed since."""

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
"""14 is not in it: Kafka's clients give up on it, so a coordinator that loads must answer 27."""

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
"""27 counts only in STABLE; in the middle of a rebalance it is known."""

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
"""88: an open transaction has offsets for it; the coordinator will know when that has ended."""


def error_action(table: ErrorPolicyTable, code: int) -> ErrorAction:
    """What a table says of a code that is not 0."""
    return table.get(code, ErrorAction.RAISE)


_EXCEPTIONS: Mapping[int, tuple[type[ZkConsumerError], str]] = MappingProxyType(
    {
        23: (InconsistentGroupProtocolException, "its members have no assignor in common with this one"),
        24: (InvalidGroupIdException, "the brokers do not take this group.id"),
        26: (InvalidSessionTimeoutException, "session.timeout.ms is outside the limits of the brokers"),
        29: (TopicAuthorizationException, "the brokers' ACLs do not let this user read the topic"),
        30: (GroupAuthorizationException, "the brokers' ACLs do not let this user be in the group"),
        35: (UnsupportedVersionException, "the brokers are too old; leave group.instance.id out and try again"),
        81: (GroupMaxSizeReachedException, "it has as many members as group.max.size of the brokers allows"),
        82: (FencedInstanceIdException, "another process joined with this group.instance.id"),
    }
)


def error_from_code(code: int, group: str, what: str) -> ZkConsumerError:
    """The error that a code means to the program; ``what`` was asked."""
    named = _EXCEPTIONS.get(code)
    if named is None:
        return BrokerError(error_code(code), f"{what} of group {group}")
    kind, why = named
    return kind(f"{what} of group {group}: {why} ({error_code(code)})")
