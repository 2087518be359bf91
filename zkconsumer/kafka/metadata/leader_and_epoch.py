"""``LeaderAndEpoch``: the leader of a partition, as ``org.apache.kafka.clients.Metadata.LeaderAndEpoch``.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.kafka.metadata.node import Node


class LeaderAndEpoch(NamedTuple):
    """The leader and its epoch, each None if unknown.

    The leader without its epoch comes from a broker whose epochs are not reliable (before 2.4).  The epoch without the
    leader comes from another source than Metadata, a committed offset for example.
    """

    leader: Node | None = None
    epoch: int | None = None


NO_LEADER_OR_EPOCH = LeaderAndEpoch()
