"""``group.offsets.commit=claim``: a batch reads only the ranges that it has claimed.

claim_decision.py   what a batch may read, as one table; and where the next batch begins
records.py          the claims of the last batches on a partition: the content of its znode
query_runs.py       which run of a query may claim, when two have begun
claim_reads.py      the group's offsets, and the other input of a claim
claim_writes.py     the writes for a partition, and the identity of the writer
claim_messages.py   texts for an operator when a query must stop
claim_procedure.py  a claim in ZooKeeper by the member that owns the partitions
kafka_claims.py     the same where the group's offsets are in Kafka
claim_report.py     the result of a claim
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
