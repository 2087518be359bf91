"""The log of one partition: Kafka's record sets as they came, numbered, in segment files or in memory.

    Produce --bytes--> produced --numbered bytes--> PartitionLog --> Segment --> files, or memory
                                                        |
    Fetch <--slices of stored bytes---------------------'

``batches``, ``produced``, ``recovery``, ``producers`` and ``epochs`` decide and are pure; ``files`` does the IO.
"""
