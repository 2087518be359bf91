"""The errors that end a command of ``zkconsumer migrate``, with their exit codes.  Pure.

1 failed (UnavailableError and the like)   2 usage   3 differs, or would change something
4 a precondition is not met, nothing was changed      PreconditionFailed, StalePlanError
5 a value differs, or another client interfered       VerificationError
6 part of it is done; the text has the command        PartiallyDoneError
7 waited too long before anything was changed         WaitTimeoutError
"""

from __future__ import annotations

from zkconsumer.errors import InternalError, PeerError, PreconditionFailed, UnavailableError

EXIT_VERIFICATION = 5
EXIT_PARTIAL = 6
EXIT_WAIT_TIMEOUT = 7


class StalePlanError(PreconditionFailed):
    """The group has changed since the plan was made; check the differences, then plan again or accept them."""


def missing_group_error(group: str) -> StalePlanError:
    """ZooKeeper has no such group: it was deleted after the plan was made, or this is another ZooKeeper."""
    return StalePlanError(
        f"/consumers/{group} does not exist any more, so there is nothing to move. Give the ZooKeeper of the plan "
        "(--zookeeper), or discard the plan if the group was deleted. To list all groups: zkconsumer groups list"
    )


class VerificationError(PeerError):
    """A value differs from what was written: another client writes to this group; stop it, then apply again."""

    exit_code = EXIT_VERIFICATION


class PartiallyDoneError(UnavailableError):
    """The migration stopped between two steps and lost nothing; run the same command again, or roll back."""

    exit_code = EXIT_PARTIAL


class MigrationLockLostError(PartiallyDoneError):
    """The ZooKeeper session of a run has ended, and with it the lock; the next run starts from the first step."""


class ControlWriteUnknownError(PartiallyDoneError):
    """It is not known whether a phase was written; the next run reads the control znode and starts again."""


class AuthorityMoveUnconfirmedError(PartiallyDoneError):
    """The authority moved, and the heartbeat after it was rejected; the next run compares both stores."""


class PlaceholderLostError(PartiallyDoneError):
    """The placeholder member was removed, and the group is empty; the next run joins again and compares all offsets."""


class PlaceholderTimeoutError(PartiallyDoneError):
    """The placeholder member did not join or leave in time; check the brokers, then apply again."""


class HookVetoError(PartiallyDoneError):
    """A program of --hooks-dir vetoed the cut-over; the fences and the placeholder member remain; apply again."""


class WaitTimeoutError(UnavailableError):
    """A member did not join or leave in time, and nothing was changed; start or stop it, then apply again."""

    exit_code = EXIT_WAIT_TIMEOUT


class HookFailedError(PartiallyDoneError):
    """A program of --hooks-dir failed after the cut-over; the group is switched, and apply runs the program again."""


class MigrationInvariantError(InternalError):
    """A run stopped before a step whose requirements are not met, which is a bug; please report it with this text."""
