"""What a member of a coordinator's group takes of the old consumer's settings, and what not, and why.  Pure.

Every key of ``ConsumerConfig`` stands in one of the three tables, and a test holds them to what a running member reads.
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
        "api.version.request",
    }
)  # fmt: skip
"""Keys that mean what they mean for a member that ZooKeeper keeps."""

OTHER_MEANING = {
    "bootstrap.servers": "Where the brokers, the coordinator and the topics are asked for. It must be given.",
    "consumer.id": "Takes the place of the generated part of this member's name in threads, metrics and log lines. The "
    "coordinator gives it another id, so two members may have the same.",
    "partition.assignment.strategy": "The assignors with which the group is divided, the best first, unless the "
    "program names assignors: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or Java's classes. The first of "
    "`range` and `roundrobin` among them, else `range`, is the rule by which partitions fall to the streams of this "
    "member.",
    "socket.timeout.ms": "How long a broker may take to accept a connection, and to answer what is not a question to "
    "the coordinator. At least `fetch.wait.max.ms`.",
    "auto.offset.reset": "As everywhere; `latest` and `earliest` are taken as well as `largest` and `smallest`.",
    "exclude.internal.topics": "Whether this member's topic filters pass over `__consumer_offsets` and "
    "`__transaction_state`.",
    "zookeeper.connection.timeout.ms": "How long the constructor waits for a broker to answer.",
    "rebalance.max.retries": "Times `rebalance.backoff.ms`: how long `create_message_streams` waits for the first "
    "whole share, at least two `session.timeout.ms`. The attempts go on afterwards.",
    "rebalance.backoff.ms": "See `rebalance.max.retries`; and the pause before the coordinator is asked again for "
    "offsets that it did not tell.",
    "rebalance.fail.fast": "Whether `create_message_streams` leaves the group and raises "
    "`ConsumerRebalanceFailedException` when the first whole share is not there in time.",
    "offsets.commit.max.retries": "How often `commit_offsets` asks again for what was not committed, on top of what is "
    "tried within `default.api.timeout.ms`.",
}
"""Key -> what it means here, where that is something else."""

NO_ZOOKEEPER = "no ZooKeeper is asked"
_OFFSETS_IN_KAFKA = "the offsets of such a group are in Kafka, and nowhere else"
_NO_OWNER_NODES = "there are no owner nodes that are held, claimed or given back"

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
    "zookeeper.session.timeout.ms": "`session.timeout.ms` of the group stands in its place; it is only the default of "
    "`zookeeper.connection.timeout.ms`",
    "offsets.storage": _OFFSETS_IN_KAFKA,
    "dual.commit.enabled": _OFFSETS_IN_KAFKA,
    "offsets.channel.socket.timeout.ms": "`request.timeout.ms` and `default.api.timeout.ms` of the group stand in its "
    "place",
    "release.settle.ms": _NO_OWNER_NODES,
    "rebalance.offsets.timeout.ms": _NO_OWNER_NODES,
    "rebalance.debounce.ms": "the coordinator says when the group forms anew",
    "roundrobin.compatibility": "`roundrobin` is that of Kafka's newer clients",
    "offsets.older.than.topic": "brokers delete the offsets of a topic with it",
}
"""Key -> why it has no effect here."""


def settings_without_effect(config: ConsumerConfig) -> dict[str, str]:
    """What is set and has no effect here, and why: worth a warning each.

    What says how ZooKeeper is reached is passed over: it stays in the file for those who need it.
    """
    set_aside = {key: CoordinatorConsumerConfig.why_ignored(key) or why for key, why in config.ignored.items()}
    in_vain = {key: why.replace("`", "") for key, why in NO_EFFECT.items() if key in config.given | set_aside.keys()}
    return {key: why for key, why in (set_aside | in_vain).items() if why != NO_ZOOKEEPER}
