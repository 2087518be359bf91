"""The log of one partition: Kafka's record sets with assigned offsets, in segment files or in memory.

    Produce --bytes--> log_validator --bytes with offsets--> PartitionLog --> Segment --> files, or memory
                                                                 |
    Fetch <--slices of stored bytes------------------------------'

``batches``, ``log_validator``, ``recovery``, ``producer_state`` and ``leader_epochs`` decide and are pure;
``segment_files`` does the IO.
"""
