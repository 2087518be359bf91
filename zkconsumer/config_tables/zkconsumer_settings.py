"""The settings that the original does not have and that no other client of Kafka has.  Pure."""

from __future__ import annotations

from zkconsumer.config_def import Origin, SettingsTable, boolean, check_health_socket, choice, integer, optional_text


class ZkConsumerSettings(SettingsTable):
    """How this program differs from the original where it may."""

    __slots__ = ()

    ORIGIN = Origin.ZKCONSUMER

    rebalance_drain_timeout_ms = integer(
        "rebalance.drain.timeout.ms",
        2000,
        "How long the release of a partition waits for the program to finish the message in hand. It must be well "
        "below the 8 s for which an original member goes on trying.",
        unit="ms",
    )
    release_settle_ms = integer(
        "release.settle.ms",
        0,
        "How long a partition is still held after its last commit when it is released. More than 0 closes the "
        "window in which an original successor reads the offset before it owns the partition, and costs it one of "
        "its pauses.",
        unit="ms",
    )
    rebalance_offsets_timeout_ms = integer(
        "rebalance.offsets.timeout.ms",
        2500,
        "With `offsets.storage=kafka`: how long one step of a rebalance waits for the group's coordinator. A partition "
        "that leaves is released without its last commit after that; one that comes is held and not read until the "
        "coordinator tells its offset. It must be well below the 8 s for which an original member goes on trying.",
        unit="ms",
        low=1,
    )
    rebalance_debounce_ms = integer(
        "rebalance.debounce.ms",
        50,
        "A change of the group after a quiet time is read at once; the changes of this time after it cost one more "
        "reading, at its end.",
        unit="ms",
    )
    rebalance_listener_timeout_ms = integer(
        "rebalance.listener.timeout.ms",
        5000,
        "How long a rebalance waits for each of the two calls of a rebalance listener; then it goes on without it. It "
        "must be well below the 8 s for which an original member goes on trying.",
        unit="ms",
        low=1,
    )
    rebalance_fail_fast = boolean(
        "rebalance.fail.fast",
        False,
        "Whether `create_message_streams` leaves the group and raises `ConsumerRebalanceFailedException` when it "
        "does not get its full share in time. Else it returns the streams and goes on trying.",
    )
    roundrobin_compatibility = choice(
        "roundrobin.compatibility",
        ("auto", "0.8.2", "0.10.2", "1.0"),
        "As which releases `roundrobin` shares out, those from the named one on: 1.0 deals in another order than "
        "those before, and 0.8.2 to 0.10.1 refuse members that are not alike. `auto` looks at the owners that are "
        "there.",
    )
    new_partitions_from_beginning = boolean(
        "new.partitions.from.beginning",
        True,
        "Whether a topic or a partition that came into being while this member was in the group, and has no stored "
        "offset, is read from its beginning also with `auto.offset.reset=largest`. The original begins at its end, and "
        "so skips what was produced before the partition was claimed.",
    )
    fetch_pause_ms = integer(
        "fetch.pause.ms",
        3,
        "How long a fetcher waits after an answer with a few records that leaves nothing to read, before it asks "
        "again: one answer then brings what several would. A record that follows another one of the same "
        "broker at once comes later by so much at most. 0 asks at once.",
        unit="ms",
    )
    queued_max_bytes = integer(
        "queued.max.bytes",
        100 * 1024 * 1024,
        "How much memory fetched bytes may take that wait for the streams, or are on their way, and decompressed bytes "
        "that a stream reads: of the whole connector. Without room fetchers ask for nothing, but one chunk for each "
        "stream that has nothing to read, however small the limit is. A stream decompresses one batch at a time, and "
        "takes the room for it in any case.",
        unit="bytes",
        low=1,
    )
    offsets_older_than_topic = choice(
        "offsets.older.than.topic",
        ("use", "ignore"),
        "What to do with a stored offset that was written before its topic was created. It belongs to a deleted topic "
        "of that name, unless offsets were imported, or ZooKeeper copied by a tool, before the topic was made. `use` "
        "takes it, as the original does, and says so; `ignore` takes it for none. It counts as none in any case when "
        "this member has seen the topic come.",
    )
    health_socket = optional_text(
        "health.socket",
        "Where `zkconsumer health` and other supervisors of this machine ask whether the member works: a unix socket "
        "that only the same user may open. `auto` is a place that `zkconsumer health --pid N` finds; in a path `{pid}` "
        "stands for the process id. Connectors of one process may share one.",
        check_health_socket, "auto, or an absolute path",
    )  # fmt: skip
