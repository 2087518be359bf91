"""How the leader of a coordinator group assigns partitions: Kafka's four assignors, with Kafka's results.  Pure.

range.py  roundrobin.py      a new assignment in each generation
sticky.py                    ``sticky`` and ``cooperative-sticky``: keep owned partitions, move as few as possible
  owned.py                       the partitions that members report as owned, and which reports are valid
  constrained.py general.py      all members have the same subscription; they have different ones
  movements.py user_data.py      prevents moves back and forth; the user data that members exchange
racks.py                     which members and replicas are on the same rack
assignor_group.py java_order.py  members and topics in the order of Kafka's leader
"""

from bridge.client.assignors.range import RangeAssignor
from bridge.client.assignors.roundrobin import RoundRobinAssignor
from bridge.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor

__all__ = [
    "ASSIGNORS",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]

ASSIGNORS: dict[str, type[ConsumerPartitionAssignor]] = {
    each.name: each for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""Name -> assignor, as in ``partition.assignment.strategy``."""
