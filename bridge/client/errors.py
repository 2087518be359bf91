"""What a coordinator's group can refuse: Kafka's names, in the families of ``zkconsumer.errors``.  Pure."""

from __future__ import annotations

from zkconsumer.errors import PeerError, TopicAuthorizationException, UnavailableError, UsageError

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
    "TopicAuthorizationException",
    "UnsupportedVersionException",
]

# --- UsageError -----------------------------------------------------------------------------------------------------


class GroupAuthorizationException(UsageError):
    """The brokers' ACLs do not let this user be in the group; allow READ on the group, or log in as somebody else."""


class InvalidGroupIdException(UsageError):
    """The brokers do not take this ``group.id``; choose another."""


class InvalidSessionTimeoutException(UsageError):
    """``session.timeout.ms`` is outside the brokers' limits (``group.min.session.timeout.ms``, ``max``); change it."""


class InconsistentGroupProtocolException(UsageError):
    """The members of the group have no assignor in common; give all of them one of the same name."""


class GroupMaxSizeReachedException(UsageError):
    """The group has as many members as the brokers allow; raise their ``group.max.size``, or start fewer members."""


class UnsupportedVersionException(UsageError):
    """The brokers are too old for what is asked of them; the text says what to leave out, or which release it takes."""


class RebalanceCallbackFailed(UsageError):
    """A rebalance callback raised an error, which is the cause; correct the callback. The group went on without it."""


class AssignorFailed(UsageError):
    """An assignor raised an error, or gave away what another member still has; correct the assignor."""


# --- PeerError ------------------------------------------------------------------------------------------------------


class FencedInstanceIdException(PeerError):
    """Another process joined the group with this ``group.instance.id``; stop one of them, or give it another id."""


# --- UnavailableError ------------------------------------------------------------------------------------------------


class CommitFailedException(UnavailableError):
    """The group went on without this member, so nothing was committed; its records come again, here or elsewhere."""


class RebalanceInProgressException(UnavailableError):
    """The group is rebalancing, so nothing was committed; commit again if the partition is still yours after that."""


class RetriableCommitFailedException(UnavailableError):
    """A commit that was not to be repeated failed for a passing reason, which is its cause; commit again."""


class OffsetFetchFailed(UnavailableError):
    """The coordinator did not tell what is committed, and is asked again; the text says why, and who must act."""
