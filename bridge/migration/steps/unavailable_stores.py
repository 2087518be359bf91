"""Which errors mean that a store is unavailable.  Pure.

    ZooKeeper    it did not answer, the connection broke before the answer, or the session of the run has ended;
                 the placeholder was removed from an empty group, before the authority moved or after it
    Kafka        no broker answers, or none coordinates the group now (14, 15, 16): the placeholder did not join or
                 leave in time

No completed step is lost, and every step can run again.  So ``StepRunner`` waits for the store until its deadline, as
it waits for members to leave.
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
