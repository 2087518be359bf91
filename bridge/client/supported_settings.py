"""The Scala consumer's settings that a member of a coordinator group uses, those that it ignores, and why.  Pure.

Every key of ``ConsumerConfig`` is in one of the three tables; a test compares them with the keys that a running member
reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.config import CoordinatorConsumerConfig

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig

SAME_MEANING = frozenset(
    {
        "group.id", "client.id", "socket.receive.buffer.bytes", "fetch.message.max.bytes",
        "fetch.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms", "num.consumer.fetchers", "queued.max.message.chunks",
        "refresh.leader.backoff.ms", "consumer.timeout.ms", "auto.commit.enable",
        "auto.commit.interval.ms", "offsets.channel.backoff.ms", "metadata.max.age.ms", "security.protocol",
        "ssl.truststore.location", "ssl.truststore.type", "ssl.ca.location", "ssl.keystore.location",
        "ssl.keystore.type", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "sasl.mechanism", "sasl.username",
        "sasl.password", "sasl.jaas.config", "sasl.kerberos.service.name", "rebalance.drain.timeout.ms",
        "rebalance.listener.timeout.ms", "health.socket", "zookeeper.sync.time.ms",
        "new.partitions.from.beginning", "queued.max.bytes", "fetch.pause.ms",
        "api.version.request", "isolation.level", "consumer.connector",
    }
)  # fmt: skip
"""Keys with the same meaning as for a ZooKeeper member."""

OTHER_MEANING = {
    "bootstrap.servers": "The brokers that the member asks for brokers, the coordinator and the topics. It must be "
    "given.",
    "consumer.id": "Replaces the generated part of this member's name in threads, metrics and log lines. The "
    "coordinator gives it another id, so two members may have the same.",
    "partition.assignment.strategy": "The assignors of the group, in order of preference, unless the "
    "program passes assignors: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or Java's classes. The first of "
    "`range` and `roundrobin` among them, else `range`, is the rule by which partitions are assigned to the streams of "
    "this member.",
    "socket.timeout.ms": "How long a broker may take to accept a connection, and to answer requests other than those "
    "to the coordinator. At least `fetch.wait.max.ms`.",
    "auto.offset.reset": "As for every consumer; `latest` and `earliest` are accepted as well as `largest` and "
    "`smallest`. With `none` a partition without a usable offset ends the member: its streams raise "
    "`NoOffsetForPartitionException` or `OffsetOutOfRangeException`.",
    "exclude.internal.topics": "Whether this member's topic filters exclude `__consumer_offsets` and "
    "`__transaction_state`.",
    "zookeeper.connection.timeout.ms": "How long the constructor waits for a broker to answer.",
    "rebalance.max.retries": "Times `rebalance.backoff.ms`: how long `create_message_streams` waits for the first "
    "complete assignment, at least two `session.timeout.ms`. The attempts continue afterwards.",
    "rebalance.backoff.ms": "See `rebalance.max.retries`; and the pause before the coordinator is asked again for "
    "offsets that it did not return.",
    "rebalance.fail.fast": "Whether `create_message_streams` leaves the group and raises "
    "`ConsumerRebalanceFailedException` when the first complete assignment is not there in time.",
    "offsets.commit.max.retries": "How often `commit_offsets` repeats a failed commit, in addition to the retries "
    "within `default.api.timeout.ms`.",
}
"""Key -> its meaning here, where that differs."""

NO_ZOOKEEPER = "ZooKeeper is not used"
_OFFSETS_IN_KAFKA = "the offsets of such a group are only in Kafka"
_NO_OWNER_NODES = "there are no owner nodes"

NO_EFFECT = {
    "zookeeper.connect": NO_ZOOKEEPER,
    "zookeeper.set.acl": NO_ZOOKEEPER,
    "zookeeper.ssl.client.enable": NO_ZOOKEEPER,
    "zookeeper.ssl.truststore.location": NO_ZOOKEEPER,
    "zookeeper.ssl.truststore.type": NO_ZOOKEEPER,
    "zookeeper.ssl.keystore.location": NO_ZOOKEEPER,
    "zookeeper.ssl.keystore.type": NO_ZOOKEEPER,
    "zookeeper.ssl.keystore.password": NO_ZOOKEEPER,
    "zookeeper.ssl.endpoint.identification.algorithm": NO_ZOOKEEPER,
    "zookeeper.auth": NO_ZOOKEEPER,
    "zookeeper.session.timeout.ms": "`session.timeout.ms` of the group replaces it; it is only the default of "
    "`zookeeper.connection.timeout.ms`",
    "offsets.storage": _OFFSETS_IN_KAFKA,
    "dual.commit.enabled": _OFFSETS_IN_KAFKA,
    "offsets.channel.socket.timeout.ms": "`request.timeout.ms` and `default.api.timeout.ms` of the group replace it",
    "release.settle.ms": _NO_OWNER_NODES,
    "rebalance.offsets.timeout.ms": _NO_OWNER_NODES,
    "rebalance.debounce.ms": "the coordinator starts the rebalances",
    "roundrobin.compatibility": "`roundrobin` is the assignor of Kafka's newer clients",
    "offsets.older.than.topic": "brokers delete the offsets of a topic with it",
}
"""Key -> why it has no effect here."""


def settings_without_effect(config: ConsumerConfig) -> dict[str, str]:
    """The settings that are set and have no effect here, and why: each causes a warning.

    Settings of the connection to ZooKeeper cause none: they stay in the file for clients that need them.
    """
    set_aside = {key: CoordinatorConsumerConfig.why_ignored(key) or why for key, why in config.ignored.items()}
    in_vain = {key: why.replace("`", "") for key, why in NO_EFFECT.items() if key in config.given | set_aside.keys()}
    return {key: why for key, why in (set_aside | in_vain).items() if why != NO_ZOOKEEPER}
