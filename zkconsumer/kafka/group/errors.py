"""The errors of a coordinator group: Kafka's names, derived from the base classes of ``zkconsumer.errors``.  Pure."""

from __future__ import annotations

from zkconsumer.errors import (
    PeerError,
    TopicAuthorizationException,
    UnavailableError,
    UnsupportedVersionException,
    UsageError,
)

__all__ = [
    "AssignorFailed",
    "CommitFailedException",
    "FencedInstanceIdException",
    "GroupAuthorizationException",
    "GroupMaxSizeReachedException",
    "InconsistentGroupProtocolException",
    "InvalidGroupIdException",
    "InvalidSessionTimeoutException",
    "OffsetFetchFailed",
    "RebalanceCallbackFailed",
    "RebalanceInProgressException",
    "RetriableCommitFailedException",
    "SerializationException",
    "TopicAuthorizationException",
    "UnsupportedVersionException",
]

# --- UsageError -----------------------------------------------------------------------------------------------------


class GroupAuthorizationException(UsageError):
    """The brokers' ACLs do not allow this user to use the group; allow READ on the group, or log in as another user."""


class InvalidGroupIdException(UsageError):
    """There is no ``group.id``, or the brokers do not accept it; set it, or choose another."""


class InvalidSessionTimeoutException(UsageError):
    """``session.timeout.ms`` is outside the brokers' limits (``group.min.session.timeout.ms``, ``max``); change it."""


class InconsistentGroupProtocolException(UsageError):
    """The members of the group have no assignor in common; give all of them one of the same name."""


class GroupMaxSizeReachedException(UsageError):
    """The group has as many members as the brokers allow; raise their ``group.max.size``, or start fewer members."""


class RebalanceCallbackFailed(UsageError):
    """A rebalance callback raised an error, which is the cause; correct the callback. The group continued without
    it."""


class AssignorFailed(UsageError):
    """An assignor raised an error, or assigned a partition that another member still owns; correct the assignor."""


# --- PeerError ------------------------------------------------------------------------------------------------------


class FencedInstanceIdException(PeerError):
    """Another process joined the group with this ``group.instance.id``; stop one of them, or give it another id."""


class SerializationException(PeerError):
    """The bytes of a key or value are not of the type of the deserializer; correct the producer, or name another
    deserializer."""


# --- UnavailableError ------------------------------------------------------------------------------------------------


class CommitFailedException(UnavailableError):
    """The group continued without this member, so nothing was committed; the records are read again by its owner."""


class RebalanceInProgressException(UnavailableError):
    """The group is rebalancing, so nothing was committed; commit again if you still own the partition afterwards."""


class RetriableCommitFailedException(UnavailableError):
    """A commit without retries failed for a transient reason, which is its cause; commit again."""


class OffsetFetchFailed(UnavailableError):
    """The coordinator did not return committed offsets, and the request is retried; the text has the reason and who
    must act."""
