"""Which errors mean that a store is unavailable.  Pure.

    ZooKeeper    it did not answer, the connection took the answer along, or the session of the run has ended
                 a seat is gone from a group that is empty, before the authority moved or after it
    Kafka        no broker answers, or none coordinates the group now (14, 15, 16): a seat is not taken or left in time

No completed step is lost, and every step can run again, so ``StepRunner`` waits for the store, as it waits for members
that leave, until its deadline.
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
    """Whether the steps can be tried again when the store answers."""
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
