"""What ends a command of ``zkconsumer migrate`` before it is done, each with its exit code.  Pure.

1 failed (UnavailableError and the like)   2 usage   3 differs, or would change something
4 a precondition is not met, nothing was changed      PreconditionFailed, StalePlanError
5 what was verified is not so, or somebody interfered VerificationError
6 part of it is done; the text has the command        PartiallyDoneError
7 waited too long before anything was changed         WaitTimeoutError
"""

from __future__ import annotations

from zkconsumer.errors import PeerError, PreconditionFailed, UnavailableError

EXIT_VERIFICATION = 5
EXIT_PARTIAL = 6
EXIT_WAIT_TIMEOUT = 7


class StalePlanError(PreconditionFailed):
    """The group is not what the plan was made from; look at the differences, and plan again or accept them."""


def missing_group_error(group: str) -> StalePlanError:
    """ZooKeeper has no such group: it was deleted after the plan was made, or this is another ZooKeeper."""
    return StalePlanError(
        f"there is no /consumers/{group} any more, so there is nothing to move. Name the ZooKeeper of the plan "
        "(--zookeeper), or drop the plan if the group was deleted. The groups that there are: zkconsumer groups list"
    )


class VerificationError(PeerError):
    """What was written is not what is there: somebody else writes to this group; find out who, then apply again."""

    exit_code = EXIT_VERIFICATION


class PartiallyDoneError(UnavailableError):
    """The migration stopped between two steps and nothing is lost; run the same command again, or roll back."""

    exit_code = EXIT_PARTIAL


class MigrationLockLostError(PartiallyDoneError):
    """The session of a run with ZooKeeper has ended, so the run is nobody's; whoever goes on begins it anew."""


class ControlWriteUnknownError(PartiallyDoneError):
    """Whether a phase was written is not known; whoever goes on looks at the control znode, and begins anew."""


class AuthorityMoveUnconfirmedError(PartiallyDoneError):
    """The authority moved, and the heartbeat after it was refused; whoever goes on compares both stores."""


class PlaceholderLostError(PartiallyDoneError):
    """The placeholder member is gone, and the group is empty; whoever goes on joins again and compares all."""


class PlaceholderTimeoutError(PartiallyDoneError):
    """The seat in the modern group was neither taken nor left in time; see to the brokers, then apply again."""


class HookVetoError(PartiallyDoneError):
    """A program of --hooks-dir spoke against the cut-over, so the group was not switched; fences and seat stand."""


class WaitTimeoutError(UnavailableError):
    """Whoever was waited for did not come or go in time, and nothing was changed; see to it and apply again."""

    exit_code = EXIT_WAIT_TIMEOUT


class HookFailedError(PartiallyDoneError):
    """A program of --hooks-dir failed behind the cut-over; the group is switched, and apply runs the program again."""
