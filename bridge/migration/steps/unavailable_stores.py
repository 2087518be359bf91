"""When a store is away: what counts as that.  Pure.

    ZooKeeper    it did not answer, the connection took the answer along, or the session of the run has ended
                 a seat is gone from a group that is empty, before the authority moved or after it
    Kafka        no broker answers, or none coordinates the group now (14, 15, 16): a seat is not taken or left in time

Nothing that was done is lost by it, and every step may be done again, so a run waits for the store (``Run``), as it
waits for members that leave, until its deadline.
"""

from __future__ import annotations

from bridge.migration.errors import (
    AuthorityMoveUnconfirmedError,
    ControlWriteUnknownError,
    MigrationLockLostError,
    PlaceholderLostError,
    PlaceholderTimeoutError,
)
from zkconsumer.errors import BrokerUnreachable, ZkConsumerError, ZkTimeoutException
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.group_offsets import COORDINATOR_LOADING_ERRORS, COORDINATOR_MOVED_ERRORS


def is_unavailable(error: ZkConsumerError) -> bool:
    """Whether the same may be tried again once a store is back."""
    if isinstance(error, BrokerError):
        return error.code in COORDINATOR_MOVED_ERRORS | COORDINATOR_LOADING_ERRORS
    return isinstance(
        error,
        ZkTimeoutException
        | BrokerUnreachable
        | PlaceholderTimeoutError
        | PlaceholderLostError
        | MigrationLockLostError
        | ControlWriteUnknownError
        | AuthorityMoveUnconfirmedError,
    )
