"""``PreparedSessions``: which partitions ``poll`` looks at before a fetch: those that have changed.  Pure.

    all fetchable partitions --prepare--> rows in the fetch sessions --response--> partitions that have changed
           ^                                      ^                                          |
           '--- another version, a new session    '------------- prepare only these <--------'

Before a fetch each partition has to be asked whether it can be fetched, from which node and at which offset.  With many
partitions that have few records, this costs more than the records.  But only two things change the answer:

- what ``version`` names: the metadata, the assignment, and each partition's state but its position;
- a response with a row for the partition: its position moves, and it is not fetched while its records are buffered.

``lagging`` and ``nodes_to_drain`` are about fetches that would only wait for new records: ``Fetcher`` does not send one
while other records of the node are buffered.

Invariants: the session of each node in ``nodes`` has the present row of each partition that can be fetched from the
node at ``version``, but for the partitions in ``changed``.  ``lagging`` has each partition of a session whose row is
before the end offset of its last response, or that had no response.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import TopicPartition


class PreparedSessions:
    """``version``: the one at which ``nodes`` were prepared, None at first."""

    def __init__(self) -> None:
        self.version: tuple[int, int] | None = None
        self.nodes: dict[int, Node] = {}
        """The prepared nodes by id."""
        self.changed: OrderedDict[TopicPartition, None] = OrderedDict()
        """The partitions whose rows may be out of date, in the order in which they are requested: those whose records
        were read last are at the end, as in ``SubscriptionState``."""
        self.lagging: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        """The id of a node -> the partitions in its session of which it has more records, as far as known."""
        self.nodes_to_drain: set[int] = set()
        """The nodes that are asked again after a buffered fetch is drained."""

    def begin(self, version: tuple[int, int]) -> None:
        """Forget what was prepared if the version is another one."""
        if version != self.version:
            self.version = version
            self.nodes.clear()
            self.changed.clear()
            self.lagging.clear()
            self.nodes_to_drain.clear()

    def add(self, nodes: Iterable[Node], buffered: Iterable[TopicPartition]) -> None:
        """The sessions of these nodes have the rows of all partitions but the buffered ones."""
        self.nodes.update((node.id, node) for node in nodes)
        self.add_changed(buffered)

    def add_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Look at these before the next fetch of their nodes."""
        self.changed.update(dict.fromkeys(partitions))

    def move_to_end(self, tp: TopicPartition) -> None:
        """Request this one after the other changed ones."""
        if tp in self.changed:
            self.changed.move_to_end(tp)
