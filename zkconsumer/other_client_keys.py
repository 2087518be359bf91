"""The known keys in configuration files that belong to other programs.  Pure.

The Scala consumer only logs keys that it does not have, so several programs often use one file.  These keys are
accepted and ignored, each with a reason; any other unknown key is an error, because it is usually misspelled.
"""

from __future__ import annotations

_PREFIXES = {
    "external": "a key of the application: the Scala consumer ignores keys with this prefix",
    "kafka.metrics.": "a metrics reporter, a class of the JVM; here a program calls `connector.metrics()`",
    "kafka.csv.": "a metrics reporter, a class of the JVM; here `zkconsumer consume --metrics FILE` writes JSON",
    "mirror.": "a setting of the mirror maker of 0.7: no release from 0.8 on reads it",
    "sasl.login.": "a setting of Java's login that has no counterpart here",
    "sasl.oauthbearer.": "a setting of Java's token login: here the program passes oauth_token to the connector",
    "zookeeper.clientCnxnSocket": "a class of the JVM: here only zookeeper.ssl.client.enable enables TLS",
    "zookeeper.ssl.truststore.password": "the password of a Java keystore: certificates in PEM format have none",
    "log4j.": "a setting of the JVM's logging",
}

_KEYS_OF_0_7 = {
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

_JAVA_CLIENT_EQUIVALENTS: dict[str, str] = {
    "enable.auto.commit": "auto.commit.enable",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "refresh.leader.backoff.ms",
    "reconnect.backoff.ms": "refresh.leader.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "refresh.leader.backoff.ms",
    "retry.backoff.ms": "refresh.leader.backoff.ms",
    "session.timeout.ms": "zookeeper.session.timeout.ms",
    "socket.connection.setup.timeout.max.ms": "socket.timeout.ms",
    "socket.connection.setup.timeout.ms": "socket.timeout.ms",
}
"""Key -> the key of this consumer with the most similar meaning."""

JAVA_CLIENT_KEYS_WITHOUT_EFFECT: dict[str, str] = {
    "allow.auto.create.topics": "this consumer never creates a topic",
    "check.crcs": "checksums are always checked",
    "client.dns.lookup": "every address of a host is tried, with the configured host name",
    "connections.max.idle.ms": "a connection stays open until the broker closes it",
    "internal.throw.on.fetch.stable.offset.unsupported": "no offset fetch waits for transactions",
    "metadata.recovery.rebootstrap.trigger.ms": "if brokers do not answer, the client searches for brokers at once",
    "metadata.recovery.strategy": "if brokers do not answer, the client always searches for brokers again",
    "send.buffer.bytes": "the operating system chooses the size of this buffer",
    **dict.fromkeys(
        (
            "auto.include.jmx.reporter", "enable.metrics.push", "metric.reporters", "metrics.num.samples",
            "metrics.recording.level", "metrics.sample.window.ms",
        ),
        "the program calls connector.metrics() for its metrics",
    ),
}  # fmt: skip
"""Keys of the new consumer without effect in all members of this project -> the behaviour instead."""

_COORDINATOR_GROUP_KEYS: dict[str, str] = {
    "client.rack": "the assignment in a ZooKeeper group ignores racks, and records are fetched from leaders",
    "default.api.timeout.ms": "each call has its own timeout",
    "group.instance.id": "a ZooKeeper group has no static members",
    "group.protocol": "this is a ZooKeeper group",
    "group.remote.assignor": "this is a ZooKeeper group",
    "heartbeat.interval.ms": "zookeeper.session.timeout.ms determines how often a request is sent to ZooKeeper",
    "interceptor.classes": "a class of the JVM; the program does its work with each record",
    "internal.leave.group.on.close": "a member that is closed always leaves its group",
    "key.deserializer": "a class of the JVM; pass a key_decoder to create_message_streams",
    "max.poll.interval.ms": "ZooKeeper does not limit the time that the program needs for a record",
    "max.poll.records": "a stream delivers one record at a time",
    "value.deserializer": "a class of the JVM; pass a value_decoder to create_message_streams",
}
"""Keys of the new consumer without effect in members of ZooKeeper groups -> the behaviour instead."""

_PRODUCER_KEYS = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "block.on.buffer.full",
        "broker.list",
        "buffer.memory",
        "compressed.topics",
        "compression.codec",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "key.serializer",
        "key.serializer.class",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "message.send.max.retries",
        "metadata.broker.list",
        "metadata.fetch.timeout.ms",
        "partitioner.class",
        "partitioner.type",
        "producer.type",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queue.enqueue.timeout.ms",
        "request.required.acks",
        "retries",
        "serializer.class",
        "timeout.ms",
        "topic.metadata.refresh.interval.ms",
        "transaction.timeout.ms",
        "transactional.id",
        "value.serializer",
        "value.serializer.class",
    }
)

INLINE_PEM_KEYS: dict[str, str] = {
    "ssl.keystore.certificate.chain": "write the certificates to a PEM file, and name it in ssl.certificate.location",
    "ssl.keystore.key": "write the key to a PEM file, and name it in ssl.key.location",
    "ssl.truststore.certificates": "write the certificates to a PEM file, and name it in ssl.truststore.location",
}
"""Keys of Java's TLS settings whose values are keys and certificates -> what to do."""

SECURITY_KEYS_NOT_IGNORED = (*INLINE_PEM_KEYS, "ssl.cipher.suites", "ssl.engine.factory.class")
"""Keys of Java's TLS settings that change the connection: an error in a configuration of one program only."""

_PYTHON_TLS_REASON = "Python's ssl module implements TLS"
_KERBEROS_TICKET_REASON = "the environment provides and renews the ticket (kinit, or KRB5_CLIENT_KTNAME for a keytab)"
_LOGIN_CLASS_REASON = (
    "a class of the JVM; set user and password with sasl.jaas.config, or with sasl.username and sasl.password; for "
    "tokens pass oauth_token to the connector"
)

JAVA_SECURITY_KEYS: dict[str, str] = {
    **dict.fromkeys(("ssl.keystore.password", "ssl.truststore.password"), "the files must be PEM, without a password"),
    **INLINE_PEM_KEYS,
    "ssl.cipher.suites": "Python's ssl module determines the cipher suites; restrict them at the brokers",
    "ssl.engine.factory.class": "a class of the JVM; set the PEM files of keys and certificates in "
    "ssl.truststore.location and ssl.keystore.location",
    "ssl.protocol": "ssl.enabled.protocols determines the versions of TLS",
    **dict.fromkeys(
        (
            "security.providers",
            "ssl.keymanager.algorithm",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
        _PYTHON_TLS_REASON,
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        _KERBEROS_TICKET_REASON,
    ),
    **dict.fromkeys(
        ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class"),
        _LOGIN_CLASS_REASON,
    ),
    **dict.fromkeys(
        (
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
        ),
        "each login at a broker calls oauth_token for a token",
    ),
}
"""Keys of TLS and SASL in Java that have no counterpart here -> the behaviour instead, or what to do."""

_KAFKA_PYTHON_KEYS: dict[str, str] = {
    "sasl_oauth_token_provider": "pass a function to the connector as oauth_token=…",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "restrict the cipher suites at the brokers",
    "ssl_context": "set the PEM files in ssl.truststore.location and ssl.keystore.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""Names that only kafka-python has -> the similar key of this consumer, or what to do."""

_DECODER_KEYS = {
    "serializer.encoding",
    "key.deserializer.encoding",
    "value.deserializer.encoding",
    "deserializer.encoding",
}


def why_ignored(key: str) -> str:
    """The program of this key and its replacement, as text; empty for an unknown key."""
    if key in _JAVA_CLIENT_EQUIVALENTS:
        return java_client_key_text(f"set {_JAVA_CLIENT_EQUIVALENTS[key]} instead")
    if key in _COORDINATOR_GROUP_KEYS:
        return java_client_key_text(_COORDINATOR_GROUP_KEYS[key])
    return why_ignored_by_all_members(key)


def java_client_key_text(words: str) -> str:
    """The sentence on a key of the new consumer; ``words``: the behaviour of this consumer."""
    return f"a key of the new consumer; {words}"


def why_ignored_by_all_members(key: str) -> str:
    """The same for keys without effect in members of ZooKeeper groups and of coordinator groups."""
    if key in JAVA_CLIENT_KEYS_WITHOUT_EFFECT:
        return java_client_key_text(JAVA_CLIENT_KEYS_WITHOUT_EFFECT[key])
    if key in JAVA_SECURITY_KEYS:
        return f"a setting of TLS and SASL in Java; {JAVA_SECURITY_KEYS[key]}"
    for prefix, words in _PREFIXES.items():
        if key.startswith(prefix):
            return words
    if key in _KEYS_OF_0_7:
        return f"a key of Kafka 0.7; from 0.8 on it is {_KEYS_OF_0_7[key]}"
    if key in _PRODUCER_KEYS:
        return "a key of the producer"
    if key in _DECODER_KEYS:
        return "read by decoders, not by the consumer"
    return ""


def replacement_key(key: str) -> str:
    """The key of this consumer with the meaning of ``key`` in 0.7 or in the new consumer; empty without one."""
    return _KEYS_OF_0_7.get(key) or _JAVA_CLIENT_EQUIVALENTS.get(key, "")


def kafka_python_replacement(name: str) -> str:
    """The replacement of a name that only kafka-python has: what to set or do; empty for any other."""
    return _KAFKA_PYTHON_KEYS.get(name.replace(".", "_"), "")


def java_client_keys() -> list[str]:
    """The keys of the new consumer without effect in a member of a ZooKeeper group, sorted."""
    return sorted(
        [*_JAVA_CLIENT_EQUIVALENTS, *_COORDINATOR_GROUP_KEYS, *JAVA_CLIENT_KEYS_WITHOUT_EFFECT, *JAVA_SECURITY_KEYS]
    )
