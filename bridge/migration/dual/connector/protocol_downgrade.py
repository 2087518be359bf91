"""A member of a coordinator group that changes from the migration protocol (cooperative) to ``range`` without a stop.

Pure.

Kafka's members revoke everything before they join again if one of the protocols that they *offer* is eager, as
``range`` is.  This one decides by the protocol of its *generation*:

    private   all members are migrating members: it keeps its partitions, and revokes those that the next generation
              assigns to others
    range     other clients may be in the group: it revokes everything first

Only one generation is special: the first one by ``range`` after the migration protocol.  The partitions that it leaves
to us continue.  Others read already those that it assigns to them: these are dropped without a commit.

Why that is safe: the migration protocol assigns as ``range`` does, so normally that generation moves nothing.  A
partition that it moves all the same (a member left meanwhile) was kept by us during the join, and its new member starts
it at once, at the last committed offset.  A commit of ours for it could overwrite a commit of that member.

The order of the changes: in SWITCHED each member offers [migration, range].  The coordinator selects one of the
protocols that all members offer, the one that most of them prefer.  In COMPLETED each offers ``range`` alone, so the
first member that does so changes the protocol of the group.  Members of both lists are in one generation meanwhile.  In
a rollback the same list [migration, range] is offered again, and a group with a stock client stays with ``range``.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor, RebalanceProtocol


class DowngradingConsumerCoordinator(ConsumerCoordinator):
    """See the head of this file; its assignors need no protocol in common."""

    @staticmethod
    def protocol_of(assignors: Sequence[ConsumerPartitionAssignor]) -> RebalanceProtocol:
        """See ``ConsumerRebalance``: the highest protocol of the preferred assignor.

        Kafka's rule, one that all offered assignors support, refuses the list of SWITCHED: the migration assignor is
        cooperative only, and ``range`` is eager only.
        """
        assert assignors, "a member offers a protocol"
        return max(assignors[0].supported_protocols, key=lambda protocol: protocol.value)

    @property
    def is_eager(self) -> bool:
        """See ``ConsumerRebalance``: by the protocol of the present generation."""
        name = self.generation.protocol_name
        known = {assignor.name: assignor for assignor in self.assignors}
        if name is None:
            return False
        # A protocol that is not offered any more is the migration protocol, which is removed first.
        return name in known and self.protocol_of_assignor(known[name]) is RebalanceProtocol.EAGER

    def protocol_of_assignor(self, assignor: ConsumerPartitionAssignor) -> RebalanceProtocol:
        """See ``ConsumerRebalance``."""
        return max(assignor.supported_protocols, key=lambda protocol: protocol.value)

    def transfers_immediately(self, assignor: ConsumerPartitionAssignor) -> bool:
        """See ``ConsumerRebalance``: partitions of a private generation that ``range`` assigns to others."""
        return self.protocol_of_assignor(assignor) is RebalanceProtocol.EAGER

    def _retry(self, reason: str, *, at_once: bool) -> None:
        """A generation by ``range`` whose assignment did not arrive: other members may own what this one kept."""
        if self.state is MemberState.COMPLETING_REBALANCE and self.is_eager and self.assigned:
            self.needs_join_prepare = True
        super()._retry(reason, at_once=at_once)
