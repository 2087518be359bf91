"""``group.offsets.commit=claim``: a batch reads what it claimed, and nothing else.

judge.py       what a batch may read, as one table; and where the next batch begins
records.py     what the last batches claimed of a partition: the bytes of its znode
runs.py        which life of a query claims, when two have begun
look.py        where the group stands, and what is read for a claim
writes.py      what is written of a partition, and who writes
words.py       what an operator reads when a query must stop
procedure.py   a claim, carried out in ZooKeeper by the member that owns the partitions
in_kafka.py    the same where the group's offsets are in Kafka
report.py      what became of it
"""

from bridge.spark.claims.claim_decision import OnRewind, next_position
from bridge.spark.claims.claim_messages import group_rewound_message
from bridge.spark.claims.claim_procedure import claim
from bridge.spark.claims.claim_reads import GroupOffsetsReport, read_group_offsets
from bridge.spark.claims.claim_report import ClaimReport
from bridge.spark.claims.claim_writes import ClaimContext

__all__ = [
    "ClaimContext",
    "ClaimReport",
    "GroupOffsetsReport",
    "OnRewind",
    "claim",
    "group_rewound_message",
    "next_position",
    "read_group_offsets",
]
