"""Who leads a partition, and where that broker is: said beside errors of Fetch and Produce (3.7, KIP-951)."""

from __future__ import annotations

from zkconsumer.wire.field_types import int32, text
from zkconsumer.wire.schemas.message_schema import f, message


@message
class LeaderIdAndEpoch:
    """Who leads now, as far as the answering broker knows."""

    leader_id: int = f(int32, default=-1)
    leader_epoch: int = f(int32, default=-1)


@message
class NodeEndpoint:
    """Where clients reach one broker, by the listener that the question came in on."""

    node_id: int = f(int32)
    host: str = f(text)
    port: int = f(int32)
    rack: str | None = f(text, nullable="0+", default=None)
