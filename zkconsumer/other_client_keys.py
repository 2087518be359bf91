"""Keys in consumer files that belong to other programs.  Pure.

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
"""Key -> the key of this consumer that is like it."""

JAVA_CLIENT_KEYS_WITHOUT_EFFECT: dict[str, str] = {
    "allow.auto.create.topics": "this consumer never creates a topic",
    "check.crcs": "checksums are always checked",
    "client.dns.lookup": "every address of a host is tried, under the name as it is given",
    "connections.max.idle.ms": "a connection stays open until the broker closes it",
    "internal.throw.on.fetch.stable.offset.unsupported": "no question for offsets waits for transactions",
    "metadata.recovery.rebootstrap.trigger.ms": "brokers that do not answer are looked for at once",
    "metadata.recovery.strategy": "brokers that do not answer are always looked for again",
    "send.buffer.bytes": "the operating system chooses the size of this buffer",
    **dict.fromkeys(
        (
            "auto.include.jmx.reporter", "enable.metrics.push", "metric.reporters", "metrics.num.samples",
            "metrics.recording.level", "metrics.sample.window.ms",
        ),
        "the program calls connector.metrics() for its metrics",
    ),
}  # fmt: skip
"""Keys of the new consumer that have no meaning for any member here -> what is so instead."""

_COORDINATOR_GROUP_KEYS: dict[str, str] = {
    "client.rack": "a group in ZooKeeper is divided without regard to racks, and records are fetched from leaders",
    "default.api.timeout.ms": "each call has its own time-out",
    "group.instance.id": "a group in ZooKeeper has no static members",
    "group.protocol": "ZooKeeper keeps this group",
    "group.remote.assignor": "ZooKeeper keeps this group",
    "heartbeat.interval.ms": "zookeeper.session.timeout.ms says how often ZooKeeper is asked",
    "interceptor.classes": "a class of the JVM; the program does its work with each record",
    "internal.leave.group.on.close": "a member that is closed always leaves its group",
    "isolation.level": "all records are handed out, those of aborted transactions too",
    "key.deserializer": "a class of the JVM; give create_message_streams a key_decoder",
    "max.poll.interval.ms": "ZooKeeper sets no limit to the time that the program needs for a record",
    "max.poll.records": "a stream gives one record at a time",
    "value.deserializer": "a class of the JVM; give create_message_streams a value_decoder",
}
"""Keys of the new consumer that mean nothing to a member of a group in ZooKeeper -> what is so instead."""

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
"""Keys of Java's TLS that hold keys and certificates themselves -> what to do."""

SECURITY_KEYS_NOT_IGNORED = (*INLINE_PEM_KEYS, "ssl.cipher.suites", "ssl.engine.factory.class")
"""Keys of Java's TLS without which a connection would be another one: an error where the file is of one program."""

_PYTHON_TLS_REASON = "TLS is that of Python's ssl module"
_KERBEROS_TICKET_REASON = (
    "the ticket is that of the environment (kinit, or KRB5_CLIENT_KTNAME for a keytab), which renews it"
)
_LOGIN_CLASS_REASON = (
    "a class of the JVM; users and passwords are sasl.jaas.config, or sasl.username and sasl.password, and tokens are "
    "made by oauth_token, which the program gives the connector"
)

JAVA_SECURITY_KEYS: dict[str, str] = {
    **dict.fromkeys(("ssl.keystore.password", "ssl.truststore.password"), "the files read here, PEM, have no password"),
    **INLINE_PEM_KEYS,
    "ssl.cipher.suites": "the cipher suites are those of Python's ssl module; restrict them at the brokers",
    "ssl.engine.factory.class": "a class of the JVM; name the PEM files of keys and certificates in "
    "ssl.truststore.location and ssl.keystore.location",
    "ssl.protocol": "ssl.enabled.protocols says which versions of TLS are spoken",
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
        "each login at a broker asks oauth_token for a token",
    ),
}
"""Keys of TLS and SASL in Java that have no counterpart here -> what is so instead, or what to do."""

_KAFKA_PYTHON_KEYS: dict[str, str] = {
    "sasl_oauth_token_provider": "give the connector a function as oauth_token=…",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "restrict the cipher suites at the brokers",
    "ssl_context": "name the PEM files in ssl.truststore.location and ssl.keystore.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""Names that kafka-python has and Kafka has not -> the key of this consumer that is like it, or what to do."""

_DECODER_KEYS = {
    "serializer.encoding",
    "key.deserializer.encoding",
    "value.deserializer.encoding",
    "deserializer.encoding",
}


def why_ignored(key: str) -> str:
    """The program of this key and its replacement, as text; empty for an unknown key."""
    if key in _JAVA_CLIENT_EQUIVALENTS:
        return java_client_key_text(f"set {_JAVA_CLIENT_EQUIVALENTS[key]} in its place")
    if key in _COORDINATOR_GROUP_KEYS:
        return java_client_key_text(_COORDINATOR_GROUP_KEYS[key])
    return why_ignored_by_all_members(key)


def java_client_key_text(words: str) -> str:
    """The sentence on a key of the new consumer; ``words``: what is so here."""
    return f"a key of the new consumer; {words}"


def why_ignored_by_all_members(key: str) -> str:
    """The same for keys that have no meaning for any member here, be its group in ZooKeeper or at a coordinator."""
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


def ignored_key_rows() -> list[tuple[str, str]]:
    """Rows for the reference page: which keys, and why they are ignored."""
    rows = [(f"`{prefix}*`", words) for prefix, words in _PREFIXES.items()]
    rows.append((_listed(_KEYS_OF_0_7), "keys of Kafka 0.7"))
    rows.append((_listed(_PRODUCER_KEYS), "keys of the producers"))
    rows.append((_listed(_DECODER_KEYS), "read by decoders, not by the consumer"))
    return rows


def java_client_keys() -> list[str]:
    """Those that have no meaning for a member of a group in ZooKeeper, in their order."""
    return sorted(
        [*_JAVA_CLIENT_EQUIVALENTS, *_COORDINATOR_GROUP_KEYS, *JAVA_CLIENT_KEYS_WITHOUT_EFFECT, *JAVA_SECURITY_KEYS]
    )


def _listed(keys: object) -> str:
    assert isinstance(keys, dict | set | frozenset), "the tables above"
    return ", ".join(f"`{key}`" for key in sorted(keys))
