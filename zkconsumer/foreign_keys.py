"""Keys that stand in old consumer files though they are somebody else's.  Pure.

The original looked at its own keys and only logged the others, so one file often serves several programs.  Such
keys are taken and set aside with a sentence each; a key that nobody knows is an error, because it is mostly a slip
of the pen.
"""

from __future__ import annotations

_PREFIXES = {
    "external": "a key of the application: the original leaves keys that begin so alone",
    "kafka.metrics.": "a metrics reporter, a class of the JVM; here a program asks `connector.metrics()`",
    "kafka.csv.": "a metrics reporter, a class of the JVM; here `zkconsumer consume --metrics FILE` writes JSON",
    "mirror.": "a setting of the mirror maker of 0.7: no release from 0.8 on reads it",
    "sasl.login.": "a setting of logging in from Java that has no counterpart here",
    "sasl.oauthbearer.": "a setting of Java's own token login: here the program gives the connector oauth_token",
    "zookeeper.clientCnxnSocket": "a class of the JVM: TLS is chosen by zookeeper.ssl.client.enable alone",
    "zookeeper.ssl.truststore.password": "of a Java keystore: certificates in PEM have no password",
    "log4j.": "a setting of the JVM's logging",
}

_OF_0_7 = {
    "zk.connect": "zookeeper.connect",
    "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
    "zk.connectiontimeout.ms": "zookeeper.connection.timeout.ms",
    "zk.synctime.ms": "zookeeper.sync.time.ms",
    "groupid": "group.id",
    "consumerid": "consumer.id",
    "autocommit.enable": "auto.commit.enable",
    "autocommit.interval.ms": "auto.commit.interval.ms",
    "autooffset.reset": "auto.offset.reset",
    "backoff.increment.ms": "refresh.leader.backoff.ms",
    "fetch.size": "fetch.message.max.bytes",
    "fetcher.backoff.ms": "refresh.leader.backoff.ms",
    "queuedchunks.max": "queued.max.message.chunks",
    "rebalance.retries.max": "rebalance.max.retries",
    "socket.buffersize": "socket.receive.buffer.bytes",
}

_OF_THE_NEW_CONSUMER: dict[str, str] = {
    "enable.auto.commit": "auto.commit.enable",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "session.timeout.ms": "zookeeper.session.timeout.ms",
    **dict.fromkeys(
        (
            "allow.auto.create.topics", "auto.include.jmx.reporter", "check.crcs", "client.dns.lookup",
            "client.rack", "connections.max.idle.ms", "default.api.timeout.ms", "enable.metrics.push",
            "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
            "interceptor.classes", "internal.leave.group.on.close", "isolation.level", "key.deserializer",
            "max.poll.interval.ms", "max.poll.records",
            "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters",
            "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
            "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.max.ms", "retry.backoff.ms",
            "send.buffer.bytes", "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
            "value.deserializer",
        ),
        "",
    ),
}

_OF_THE_PRODUCER = frozenset(
    {
        "acks", "batch.num.messages", "batch.size", "block.on.buffer.full", "broker.list", "buffer.memory",
        "compressed.topics", "compression.codec", "compression.type", "delivery.timeout.ms",
        "enable.idempotence", "key.serializer", "key.serializer.class", "linger.ms", "max.block.ms",
        "max.in.flight.requests.per.connection", "max.request.size", "message.send.max.retries",
        "metadata.broker.list", "metadata.fetch.timeout.ms", "partitioner.class", "partitioner.type",
        "producer.type", "queue.buffering.max.messages", "queue.buffering.max.ms", "queue.enqueue.timeout.ms",
        "request.required.acks", "retries", "serializer.class", "timeout.ms",
        "topic.metadata.refresh.interval.ms", "transaction.timeout.ms", "transactional.id", "value.serializer",
        "value.serializer.class",
    }
)

_OF_JAVA_SECURITY = {
    **dict.fromkeys(("ssl.keystore.password", "ssl.truststore.password"), "the files read here, PEM, have no password"),
    **dict.fromkeys(
        ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.truststore.certificates"),
        "write what stands in it to a file, and name that",
    ),
    **dict.fromkeys(
        (
            "sasl.client.callback.handler.class", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor", "security.providers",
            "ssl.cipher.suites", "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.protocol",
            "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        ),
        "",
    ),
}

_DECODERS = {"serializer.encoding", "key.deserializer.encoding", "value.deserializer.encoding", "deserializer.encoding"}


def why_ignored(key: str) -> str:
    """Whose key this is and what stands in its place, in words; empty for a key that nobody knows."""
    for prefix, words in _PREFIXES.items():
        if key.startswith(prefix):
            return words
    if key in _OF_0_7:
        return f"a key of Kafka 0.7; from 0.8 on it is {_OF_0_7[key]}"
    if key in _OF_THE_NEW_CONSUMER:
        here = _OF_THE_NEW_CONSUMER[key]
        return f"a key of the new consumer{f'; what is like it here is {here}' if here else ''}"
    if key in _OF_JAVA_SECURITY:
        advice = _OF_JAVA_SECURITY[key]
        return f"a setting of TLS and SASL in Java{f'; {advice}' if advice else ''}"
    if key in _OF_THE_PRODUCER:
        return "a key of the producer"
    if key in _DECODERS:
        return "read by decoders, not by the consumer"
    return ""


def successor_of(key: str) -> str:
    """The key of this consumer that says what ``key`` said in 0.7 or says in the new consumer; empty if none does."""
    return _OF_0_7.get(key) or _OF_THE_NEW_CONSUMER.get(key, "")


def families() -> list[tuple[str, str]]:
    """Rows for the reference page: which keys, and why they are ignored."""
    rows = [(f"`{prefix}*`", words) for prefix, words in _PREFIXES.items()]
    rows.append((_listed(_OF_0_7), "keys of Kafka 0.7"))
    rows.append((_listed(_OF_THE_NEW_CONSUMER), "keys of the new consumer"))
    rows.append((_listed(_OF_JAVA_SECURITY), "settings of TLS and SASL in Java that have no counterpart here"))
    rows.append((_listed(_OF_THE_PRODUCER), "keys of the producers"))
    rows.append((_listed(_DECODERS), "read by decoders, not by the consumer"))
    return rows


def _listed(keys: object) -> str:
    assert isinstance(keys, dict | set | frozenset), "the tables above"
    return ", ".join(f"`{key}`" for key in sorted(keys))
