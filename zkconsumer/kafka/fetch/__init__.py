"""What a consumer reads, from where, and what it has read: subscription, positions, fetch sessions.  Pure.

SubscriptionState            topics, assignment, and the position of each partition
  TopicPartitionState        the state machine of one partition
OffsetForLeaderEpochClient   validates positions after a change of the leader (KIP-320)
FetchSessionHandler          the requests of a fetch session (KIP-227, KIP-516)
"""
