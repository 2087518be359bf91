"""The settings of the Scala consumer, 0.8 to 1.1.  Pure."""

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
    """The keys of the Scala consumer, with its defaults."""

    __slots__ = ()

    # The group.

    group_id = text(
        "group.id",
        ...,
        "The name of the group, whose members divide the partitions. All members, and no other program, must have the "
        "same name.",
        check_group_id,
        "letters, digits, '.', '_' and '-' of ASCII; not empty",
    )
    consumer_id = optional_text(
        "consumer.id",
        "Replaces the generated part of the member's id, which is then `<group.id>_<consumer.id>`. Two members of a "
        "group cannot have the same.",
        check_consumer_id_setting,
        "any text that can be part of a path in ZooKeeper",
    )
    client_id = text(
        "client.id",
        SameAsSetting("group.id"),
        "Sent to brokers with every request; it names this program in their logs.",
        check_name,
        "letters, digits, '.', '_' and '-' of ASCII",
    )
    partition_assignment_strategy = choice(
        "partition.assignment.strategy",
        ("range", "roundrobin"),
        "How partitions are assigned. It is not stored in ZooKeeper, so all members of a group must have the same "
        "value. (0.8.2 uses range for every other text.)",
        {
            "org.apache.kafka.clients.consumer.RangeAssignor": "range",
            "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        },
    )
    exclude_internal_topics = boolean(
        "exclude.internal.topics",
        True,
        "Whether topic filters ignore `__consumer_offsets` and `__transaction_state`. It is applied to the filters "
        "of all members, so all of them must have the same value.",
    )

    # ZooKeeper.

    zookeeper_connect = text(
        "zookeeper.connect",
        ...,
        "The ZooKeeper servers, and after the last one the chroot of the Kafka cluster.",
        check_connect,
        "HOST:PORT[,HOST:PORT…][/CHROOT]",
    )
    zookeeper_connect.mask = mask_user
    zookeeper_session_timeout_ms = integer(
        "zookeeper.session.timeout.ms",
        6000,
        "How long ZooKeeper waits without a request of a member before it ends its session, so that others acquire "
        "its partitions. The server may grant another value. Without answers this member stops delivering after two "
        "thirds of it.",
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
        "zookeeper.sync.time.ms", 2000, "The default of `rebalance.backoff.ms`; it has no other use.", unit="ms"
    )

    # Rebalance.

    rebalance_max_retries = integer(
        "rebalance.max.retries",
        4,
        "With `rebalance.backoff.ms`: how long `create_message_streams` waits for the first complete assignment (at "
        "least two session timeouts). The attempts continue after that.",
        unit="attempts",
        low=1,
    )
    rebalance_backoff_ms = integer(
        "rebalance.backoff.ms",
        SameAsSetting("zookeeper.sync.time.ms"),
        "The pause after a failed attempt; each further pause is longer.",
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
        "The receive buffer of sockets to brokers; with 0 or less the system chooses it.",
        unit="bytes",
        low=INT_MIN,
    )
    fetch_message_max_bytes = integer(
        "fetch.message.max.bytes",
        1024 * 1024,
        "How many bytes a request asks for from one partition; the largest message must fit.",
        unit="bytes",
        low=1,
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        50 * 1024 * 1024,
        "How many bytes a request asks for from one broker, all partitions together. (The Scala consumer has the key "
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
        "The number of waiting chunks of one stream, of up to `fetch.message.max.bytes` each, at which fetchers "
        "request no more for it; the answers to earlier requests are queued too.",
        unit="chunks",
        low=1,
    )
    refresh_leader_backoff_ms = integer(
        "refresh.leader.backoff.ms",
        200,
        "The pause before the member looks up leaders again, and after a failed fetch.",
        unit="ms",
    )
    auto_offset_reset = choice(
        "auto.offset.reset",
        ("largest", "smallest"),
        "Where to begin if no offset is stored, or if the broker no longer has it: `largest` is the end, `smallest` "
        "the beginning.",
        {"latest": "largest", "earliest": "smallest", "none": "an error, which is not raised here"},
    )
    consumer_timeout_ms = integer(
        "consumer.timeout.ms",
        -1,
        "How long an iterator waits for a message before it raises `ConsumerTimeoutException`; less than 0: no limit.",
        unit="ms",
        low=INT_MIN,
    )

    # Offsets.

    auto_commit_enable = boolean(
        "auto.commit.enable",
        True,
        "Whether the member commits offsets every `auto.commit.interval.ms`, in rebalances and at the end.",
    )
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 60_000, "The time between two automatic commits.", unit="ms", low=1
    )
    offsets_storage = choice(
        "offsets.storage",
        ("zookeeper", "kafka"),
        "Where offsets are stored: in ZooKeeper, or in Kafka at the group coordinator (brokers from 0.8.2 on). All "
        "members of a group must have the same value; how to change it: "
        "[offsets in Kafka](../how-to/store-offsets-in-kafka.md).",
        ignore_case=True,
    )
    dual_commit_enabled = boolean(
        "dual.commit.enabled",
        TrueIfSetting("offsets.storage", "kafka"),
        "Only with `offsets.storage=kafka`: also commit to ZooKeeper, and start from the larger offset of the two.",
    )
    offsets_channel_backoff_ms = integer(
        "offsets.channel.backoff.ms",
        1000,
        "The pause before a failed commit is repeated, and before the member looks for the group coordinator or asks "
        "it again.",
        unit="ms",
    )
    offsets_channel_socket_timeout_ms = integer(
        "offsets.channel.socket.timeout.ms",
        10_000,
        "How long the group coordinator may take to accept a connection or to answer; only with "
        "`offsets.storage=kafka`.",
        unit="ms",
        low=1,
    )
    offsets_commit_max_retries = integer(
        "offsets.commit.max.retries",
        5,
        "How often a failed commit is repeated: a commit of `commit_offsets()`, and the last one when the connector is "
        "closed. Automatic commits and those of a rebalance are tried once; the search for the coordinator does not "
        "count. (Kafka documents it so; releases from 0.9 on do the opposite.)",
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
                "check this)"
            )
        return problems
