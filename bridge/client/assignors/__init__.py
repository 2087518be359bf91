"""How the leader of a coordinator's group divides the partitions: Kafka's four assignors, with Kafka's results.  Pure.

range.py  roundrobin.py      each generation anew
sticky.py                    ``sticky`` and ``cooperative-sticky``: who had what, and how few must move
  owned.py                       what members say they had, and who is believed
  constrained.py general.py      all want the same topics; they do not
  movements.py user_data.py      nothing moves there and back; the bytes that members of a group exchange
racks.py                     who is near what
group.py java_order.py       members and topics in the order in which Kafka's leader walks them
"""

from bridge.client.assignors.range import RangeAssignor
from bridge.client.assignors.roundrobin import RoundRobinAssignor
from bridge.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from bridge.client.partition_assignor import ConsumerPartitionAssignor

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
