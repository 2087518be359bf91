"""The settings that neither the Scala consumer nor another client of Kafka has.  Pure."""

from __future__ import annotations

from zkconsumer.config_def import Origin, SettingsTable, boolean, check_health_socket, choice, integer, optional_text


class ZkConsumerSettings(SettingsTable):
    """The settings of the behaviour that the Scala consumer does not have."""

    __slots__ = ()

    ORIGIN = Origin.ZKCONSUMER

    consumer_connector = choice(
        "consumer.connector",
        ("zookeeper", "migrating", "coordinator"),
        "Which connector `Consumer.createJavaConsumerConnector` of `zkconsumer.javaapi` creates: "
        "`ZookeeperConsumerConnector`, `MigratingConsumerConnector` or `CoordinatorConsumerConnector`. A program that "
        "creates another one itself gets an error.",
    )
    rebalance_drain_timeout_ms = integer(
        "rebalance.drain.timeout.ms",
        2000,
        "How long the release of a partition waits until the program has acknowledged its message. It must be well "
        "below the 8 s in which a Scala member repeats its attempts.",
        unit="ms",
    )
    release_settle_ms = integer(
        "release.settle.ms",
        0,
        "How long a member still owns a partition after its last commit when it releases it. A Scala member reads the "
        "offset before it owns the partition, and so may read it before that commit. With more than 0 it cannot own "
        "the partition then: it pauses for its `rebalance.backoff.ms`, and reads the offset again.",
        unit="ms",
    )
    rebalance_offsets_timeout_ms = integer(
        "rebalance.offsets.timeout.ms",
        2500,
        "With `offsets.storage=kafka`: how long one step of a rebalance waits for the group coordinator. After that a "
        "partition that leaves is released without its last commit; the member owns a partition that it acquired, and "
        "does not read it until the coordinator returns its offset. It must be well below the 8 s in which a Scala "
        "member repeats its attempts.",
        unit="ms",
        low=1,
    )
    rebalance_debounce_ms = integer(
        "rebalance.debounce.ms",
        50,
        "The member reads the group at once after the first change. It reads the group once more at the end of this "
        "time, for all changes within it.",
        unit="ms",
    )
    rebalance_listener_timeout_ms = integer(
        "rebalance.listener.timeout.ms",
        5000,
        "How long a rebalance waits for each of the two calls of a rebalance listener; then it continues without it. "
        "It must be well below the 8 s in which a Scala member repeats its attempts.",
        unit="ms",
        low=1,
    )
    rebalance_fail_fast = boolean(
        "rebalance.fail.fast",
        False,
        "Whether `create_message_streams` leaves the group and raises `ConsumerRebalanceFailedException` if its "
        "assignment is not complete in time. Otherwise it returns the streams, and the attempts continue.",
    )
    roundrobin_compatibility = choice(
        "roundrobin.compatibility",
        ("auto", "0.8.2", "0.10.2", "1.0"),
        "The release whose variant of `roundrobin` is used, valid from that release on: 1.0 has another order than the "
        "releases before, and 0.8.2 to 0.10.1 refuse members with different subscriptions. `auto` chooses by the "
        "existing owners.",
    )
    new_partitions_from_beginning = boolean(
        "new.partitions.from.beginning",
        True,
        "Whether the member reads a topic or a partition from its beginning, also with `auto.offset.reset=largest`, if "
        "it was created while this member was in the group, and has no stored offset. The Scala consumer begins at its "
        "end, and so skips the records from before it acquired the partition.",
    )
    fetch_pause_ms = integer(
        "fetch.pause.ms",
        3,
        "How long a fetcher waits before its next request, after an answer with a few records that reaches the end of "
        "the logs: one answer then has the records of several. A record that immediately follows another one of the "
        "same broker arrives later by this time at most. 0: no wait.",
        unit="ms",
    )
    queued_max_bytes = integer(
        "queued.max.bytes",
        100 * 1024 * 1024,
        "The memory of the whole connector for fetched bytes that wait for the streams or are in flight, and for "
        "decompressed bytes that a stream reads. At the limit, fetchers request only one chunk for each stream that "
        "has nothing to read, however small the limit is. A stream decompresses one batch at a time, and always takes "
        "the memory for it.",
        unit="bytes",
        low=1,
    )
    offsets_older_than_topic = choice(
        "offsets.older.than.topic",
        ("use", "ignore"),
        "What to do with a stored offset that was written before its topic was created. It belongs to a deleted topic "
        "of that name, unless a tool imported offsets, or copied ZooKeeper, before the topic was created. `use` uses "
        "it, as the Scala consumer does, and logs this; `ignore` ignores it. The member always ignores it if the topic "
        "was created while the member was in the group.",
    )
    health_socket = optional_text(
        "health.socket",
        "The unix socket where `zkconsumer health` and other supervisors of this machine ask whether the member works; "
        "only the same user may open it. `auto` is a path that `zkconsumer health --pid N` finds; in a path `{pid}` is "
        "replaced by the process id. Connectors of one process may use the same socket.",
        check_health_socket, "auto, or an absolute path",
    )  # fmt: skip
