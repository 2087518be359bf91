"""What a consumer reads, from where, and what it has read: subscription, positions, sessions, records.  Pure.

SubscriptionState            topics, assignment, and the position of each partition
  TopicPartitionState        the state machine of one partition
OffsetForLeaderEpochClient   validates positions after a change of the leader (KIP-320)
FetchSessionHandler          the requests of a fetch session (KIP-227, KIP-516)
Fetcher                      the records of poll: requests, buffered responses, errors
  CompletedFetch             one partition of a response, read in portions
  FetchedRecords             the records of one partition, in columns
  OffsetFetcher              resets, validations and searches of offsets
  TopicMetadataFetcher       the partitions of any topics
"""
