"""The settings of the original, 0.8 to 1.1.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zkconsumer.config_def import (
    INT_MIN,
    SameAsSetting,
    SettingsTable,
    TrueIfSetting,
    boolean,
    check_connect,
    check_consumer_id_setting,
    check_group_id,
    check_name,
    choice,
    integer,
    mask_user,
    optional_text,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class ScalaConsumerSettings(SettingsTable):
    """What an old file may hold, with the original's defaults."""

    __slots__ = ()

    # The group.

    group_id = text(
        "group.id",
        ...,
        "The group: its members share the partitions. All members, and only they, have the same.",
        check_group_id,
        "letters, digits, '.', '_' and '-' of ASCII; not empty",
    )
    consumer_id = optional_text(
        "consumer.id",
        "Takes the place of the generated part of the member's id, which is `<group.id>_<consumer.id>` then. "
        "Two members of a group cannot have the same.",
        check_consumer_id_setting,
        "any text that can be part of a path in ZooKeeper",
    )
    client_id = text(
        "client.id",
        SameAsSetting("group.id"),
        "Told to brokers with every request; names this program in their logs.",
        check_name,
        "letters, digits, '.', '_' and '-' of ASCII",
    )
    partition_assignment_strategy = choice(
        "partition.assignment.strategy",
        ("range", "roundrobin"),
        "How partitions are shared out. It stands nowhere in ZooKeeper: all members of a group must be set alike. "
        "(0.8.2 took any other word for range.)",
        {
            "org.apache.kafka.clients.consumer.RangeAssignor": "range",
            "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        },
    )
    exclude_internal_topics = boolean(
        "exclude.internal.topics",
        True,
        "Whether topic filters pass over `__consumer_offsets` and `__transaction_state`. It is applied to the "
        "filters of all members, so all of them must be set alike.",
    )

    # ZooKeeper.

    zookeeper_connect = text(
        "zookeeper.connect",
        ...,
        "The ZooKeeper servers, and the chroot of the Kafka cluster behind the last of them.",
        check_connect,
        "HOST:PORT[,HOST:PORT…][/CHROOT]",
    )
    zookeeper_connect.mask = mask_user
    zookeeper_session_timeout_ms = integer(
        "zookeeper.session.timeout.ms",
        6000,
        "How long ZooKeeper waits for a silent member before it gives its partitions to the others; asked for, the "
        "server has its own limits. This member stops handing out messages after two thirds of it.",
        unit="ms",
        low=1,
    )
    zookeeper_connection_timeout_ms = integer(
        "zookeeper.connection.timeout.ms",
        SameAsSetting("zookeeper.session.timeout.ms"),
        "How long the constructor waits for the first connection to ZooKeeper.",
        unit="ms",
        low=1,
    )
    zookeeper_sync_time_ms = integer(
        "zookeeper.sync.time.ms", 2000, "Is the default of `rebalance.backoff.ms`, and nothing else.", unit="ms"
    )

    # Rebalance.

    rebalance_max_retries = integer(
        "rebalance.max.retries",
        4,
        "With `rebalance.backoff.ms`: how long `create_message_streams` waits for the first full share (at least "
        "two session time-outs). The attempts go on afterwards.",
        unit="attempts",
        low=1,
    )
    rebalance_backoff_ms = integer(
        "rebalance.backoff.ms",
        SameAsSetting("zookeeper.sync.time.ms"),
        "The pause after a failed attempt; it grows.",
        unit="ms",
    )

    # Fetching.

    socket_timeout_ms = integer(
        "socket.timeout.ms",
        30_000,
        "How long a broker may take to accept a connection or to answer. At least `fetch.wait.max.ms`.",
        unit="ms",
        low=1,
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        64 * 1024,
        "The receive buffer of sockets to brokers; 0 and less leave it to the system.",
        unit="bytes",
        low=INT_MIN,
    )
    fetch_message_max_bytes = integer(
        "fetch.message.max.bytes",
        1024 * 1024,
        "How many bytes are asked for of one partition at a time; the largest message must fit.",
        unit="bytes",
        low=1,
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        50 * 1024 * 1024,
        "How many bytes are asked for of one broker at a time, all partitions together. (The original has the key "
        "from 0.10.1 on, and does not use it.)",
        unit="bytes",
        low=1,
    )
    fetch_min_bytes = integer(
        "fetch.min.bytes", 1, "How many bytes a broker waits for, for at most `fetch.wait.max.ms`.", unit="bytes"
    )
    fetch_wait_max_ms = integer(
        "fetch.wait.max.ms", 100, "How long a broker may wait for `fetch.min.bytes`.", unit="ms"
    )
    num_consumer_fetchers = integer("num.consumer.fetchers", 1, "Fetch threads for each broker.", unit="threads", low=1)
    queued_max_message_chunks = integer(
        "queued.max.message.chunks",
        2,
        "With how many fetched chunks, of up to `fetch.message.max.bytes` each, in front of one stream nothing more is "
        "asked for; what was asked for before is queued too.",
        unit="chunks",
        low=1,
    )
    refresh_leader_backoff_ms = integer(
        "refresh.leader.backoff.ms",
        200,
        "The pause before looking for new leaders, and after a failed fetch.",
        unit="ms",
    )
    auto_offset_reset = choice(
        "auto.offset.reset",
        ("largest", "smallest"),
        "Where to begin when there is no offset, or none that the broker still has: `largest` is the end, "
        "`smallest` the beginning.",
        {"latest": "largest", "earliest": "smallest", "none": "an error, which is not raised here"},
    )
    consumer_timeout_ms = integer(
        "consumer.timeout.ms",
        -1,
        "How long an iterator waits for a message before it raises `ConsumerTimeoutException`; less than 0: for ever.",
        unit="ms",
        low=INT_MIN,
    )

    # Offsets.

    auto_commit_enable = boolean(
        "auto.commit.enable",
        True,
        "Whether offsets are committed every `auto.commit.interval.ms`, in rebalances and at the end.",
    )
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 60_000, "The time between two automatic commits.", unit="ms", low=1
    )
    offsets_storage = choice(
        "offsets.storage",
        ("zookeeper", "kafka"),
        "Where offsets are kept: in ZooKeeper, or in Kafka at the group's coordinator (brokers from 0.8.2 on). All "
        "members of a group must be set alike; how to change it: "
        "[offsets in Kafka](../how-to/keep-offsets-in-kafka.md).",
        ignore_case=True,
    )
    dual_commit_enabled = boolean(
        "dual.commit.enabled",
        TrueIfSetting("offsets.storage", "kafka"),
        "Only with `offsets.storage=kafka`: commit to ZooKeeper as well, and start from the larger offset of the two.",
    )
    offsets_channel_backoff_ms = integer(
        "offsets.channel.backoff.ms",
        1000,
        "The pause before a failed commit is tried again, and before the group's coordinator is looked for or asked "
        "again.",
        unit="ms",
    )
    offsets_channel_socket_timeout_ms = integer(
        "offsets.channel.socket.timeout.ms",
        10_000,
        "How long the group's coordinator may take to accept a connection or to answer; only with "
        "`offsets.storage=kafka`.",
        unit="ms",
        low=1,
    )
    offsets_commit_max_retries = integer(
        "offsets.commit.max.retries",
        5,
        "How often a failed commit is tried again: that of `commit_offsets()`, and the last one when the connector is "
        "closed. Automatic commits and those of a rebalance are tried once; looking for the coordinator does not "
        "count. (So it is documented; releases from 0.9 on do the opposite.)",
        unit="attempts",
    )

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """See ``SettingsTable``."""
        problems: list[str] = []
        if values["socket.timeout.ms"] < values["fetch.wait.max.ms"]:
            problems.append(
                f"socket.timeout.ms={values['socket.timeout.ms']}: must be at least fetch.wait.max.ms="
                f"{values['fetch.wait.max.ms']}, or every idle fetch times out; raise it (releases before 0.9 did not "
                "look)"
            )
        return problems
