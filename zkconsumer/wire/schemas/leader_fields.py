"""The leader of a partition and its address, which answers to Fetch and Produce contain with errors (3.7, KIP-951)."""

from __future__ import annotations

from zkconsumer.wire.field_types import int32, text
from zkconsumer.wire.schemas.message_schema import f, message


@message
class LeaderIdAndEpoch:
    """The present leader, as far as the answering broker knows."""

    leader_id: int = f(int32, default=-1)
    leader_epoch: int = f(int32, default=-1)


@message
class NodeEndpoint:
    """The address of one broker, for the listener that received the request."""

    node_id: int = f(int32)
    host: str = f(text)
    port: int = f(int32)
    rack: str | None = f(text, nullable="0+", default=None)
