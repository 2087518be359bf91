"""InitProducerId (22): a producer id, by which brokers recognize records that they have written (0.11, KIP-98).

From version 3 on (2.5, KIP-360) a producer can keep its id with the next epoch.  Version 6 (KIP-939) is for two-phase
commit; brokers up to 4.1 support it only if it is enabled.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import boolean, int16, int32, int64, text
from zkconsumer.wire.schemas.message_schema import Api, f, message

NO_PRODUCER = -1
"""``producer_id`` and ``producer_epoch`` of a producer that has none."""


@message
class InitProducerIdRequest:
    """``transactional_id`` None: the producer is only idempotent, and the timeout has no effect."""

    transactional_id: str | None = f(text, nullable="0+", default=None)
    transaction_timeout_ms: int = f(int32)
    producer_id: int = f(int64, "3+", default=NO_PRODUCER, needed=True)
    producer_epoch: int = f(int16, "3+", default=NO_PRODUCER, needed=True)
    enable2_pc: bool = f(boolean, "6+", default=False, needed=True)
    keep_prepared_txn: bool = f(boolean, "6+", default=False, needed=True)


@message
class InitProducerIdResponse:
    """The producer id and its epoch; ``ongoing_...``: those of a kept transaction (version 6)."""

    throttle_time_ms: int = f(int32, default=0)
    error_code: int = f(int16, default=0)
    producer_id: int = f(int64, default=NO_PRODUCER)
    producer_epoch: int = f(int16, default=NO_PRODUCER)
    ongoing_txn_producer_id: int = f(int64, "6+", default=NO_PRODUCER, needed=True)
    ongoing_txn_producer_epoch: int = f(int16, "6+", default=NO_PRODUCER, needed=True)


INIT_PRODUCER_ID = Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse, highest=6, flexible_from=2)
