"""A member of a coordinator's group that goes from a private, cooperative protocol to ``range``, and stops nothing.

Pure.

Kafka's members decide by what they *offer* whether they give everything back before they join again: with ``range``
among it, they do.  This one decides by the generation that it is in:

    private   all members are ours: what it has it keeps, and gives back what the next generation gives to others
    range     there may be any client: everything is given back first

Only one generation is special: by ``range``, after one that was private.  What it leaves to us goes on.  What it gives
to others they have already: it is dropped, and not committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.client.consumer_coordinator import ConsumerCoordinator
from bridge.client.generation import MemberState
from bridge.client.partition_assignor import ConsumerPartitionAssignor, RebalanceProtocol


class DowngradingConsumerCoordinator(ConsumerCoordinator):
    """See above; the assignors that it offers need no protocol in common."""

    @staticmethod
    def protocol_of(assignors: Sequence[ConsumerPartitionAssignor]) -> RebalanceProtocol:
        """See ``ConsumerRebalance``: what the first one wants is what the members try for."""
        return max(assignors[0].supported_protocols, key=lambda protocol: protocol.value)

    @property
    def is_eager(self) -> bool:
        """See ``ConsumerRebalance``: by the generation that we are in."""
        name = self.generation.protocol_name
        known = {assignor.name: assignor for assignor in self.assignors}
        if name is None:
            return False
        # One that we offer no more is the private one: it is the first to go.
        return name in known and self.protocol_of_assignor(known[name]) is RebalanceProtocol.EAGER

    def protocol_of_assignor(self, assignor: ConsumerPartitionAssignor) -> RebalanceProtocol:
        """See ``ConsumerRebalance``."""
        return max(assignor.supported_protocols, key=lambda protocol: protocol.value)

    def transfers_immediately(self, assignor: ConsumerPartitionAssignor) -> bool:
        """See ``ConsumerRebalance``: what we kept from a private generation, and ``range`` gives to others."""
        return self.protocol_of_assignor(assignor) is RebalanceProtocol.EAGER

    def _retry(self, reason: str, *, at_once: bool) -> None:
        """A generation by ``range`` whose shares we were not told: others may have what we kept."""
        if self.state is MemberState.COMPLETING_REBALANCE and self.is_eager and self.assigned:
            self.needs_join_prepare = True
        super()._retry(reason, at_once=at_once)
