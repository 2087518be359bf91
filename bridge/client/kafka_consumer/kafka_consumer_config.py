"""``KafkaConsumerConfig``: the settings of ``KafkaConsumer``, with the keys, ranges and defaults of Kafka 3.0.  Pure.

A key that has no meaning here is ignored with a warning that explains what applies instead; one that would change what
the program reads is an error.  A key that is not known is passed to ``configure`` of the program's classes, as in Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from bridge.client.kafka_consumer_keys import assignor_names, partition_assignment_strategy_setting, why_unsupported
from zkconsumer.config_def import (
    INT_MAX,
    Origin,
    Setting,
    SettingsTable,
    boolean,
    check_group_id,
    choice,
    integer,
    optional_text,
    text,
)
from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings, check_bootstrap
from zkconsumer.config_tables.group_member_settings import MemberSettings
from zkconsumer.config_tables.transaction_settings import TransactionSettings
from zkconsumer.configuration import Configuration
from zkconsumer.other_client_keys import java_client_key_text, why_ignored_by_all_members

RECORDS_MAX = 1_000_000
"""The largest ``max.poll.records``: the fetcher reserves 64 bytes for each record of a call."""

_METRICS = "call metrics() for all metrics"
KEYS_WITHOUT_EFFECT: dict[str, str] = {
    "auto.include.jmx.reporter": _METRICS,
    "enable.metrics.push": _METRICS,
    "internal.throw.on.fetch.stable.offset.unsupported": "a broker before 2.5 is asked for the offset without this "
    "condition",
    **dict.fromkeys(
        ("metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy"),
        "as in Kafka 3.0, the brokers of the last metadata are asked, and bootstrap.servers only before the first",
    ),
    "metric.reporters": f"it names classes of the JVM; {_METRICS}",
    "metrics.num.samples": f"metrics are not sampled; {_METRICS}",
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": f"metrics are not sampled; {_METRICS}",
}
"""Kafka's keys that change nothing in what is read or committed -> what to use instead."""

RESET_POLICIES = ("latest", "earliest", "none")

_SAME_AS_ALWAYS: dict[str, str] = {"group.protocol": "classic", "internal.leave.group.on.close": "true"}
"""Key -> its only value that is supported, which is the behaviour anyway."""


def _object_setting(key: str, default: object, sentence: str, allowed: str) -> Setting[Any]:
    """A name, or an object of the program, which is used as it is."""

    def read(given: object) -> object:
        if isinstance(given, str) and not given:
            raise ValueError
        return given

    return Setting(key, sentence, read, type_="class", allowed=allowed, default=default, unit="")


def _class_list(key: str, sentence: str, allowed: str) -> Setting[Any]:
    """Names with commas in between, or a list of names and objects; none by default."""

    def read(given: object) -> tuple[object, ...]:
        if isinstance(given, str):
            given = [name.strip() for name in given.split(",") if name.strip()]
        if not isinstance(given, list | tuple):
            raise ValueError
        return tuple(given)

    return Setting(key, sentence, read, type_="list", allowed=allowed, default=(), unit="")


def _strategy_setting() -> Setting[Any]:
    """``partition.assignment.strategy``: names with commas, or a list of names, import paths and objects."""
    of_text = partition_assignment_strategy_setting()

    def read(given: object) -> tuple[object, ...]:
        if isinstance(given, str):
            return tuple(of_text.parse(given).split(","))
        if not isinstance(given, list | tuple) or not given:
            raise ValueError
        return tuple(name for one in given for name in (assignor_names(one) if isinstance(one, str) else (one,)))

    return Setting(
        of_text.key, of_text.description, read, type_="list", allowed=of_text.allowed,
        default=("range", "cooperative-sticky"), unit="",
    )  # fmt: skip


def _encoding_setting(key: str, what: str) -> Setting[str | None]:
    return optional_text(
        key, f"The encoding of {what}, for `StringDeserializer` and `UUIDDeserializer`; UTF-8 if it is not set.",
        lambda given: given, "the name of an encoding of Python",
    )  # fmt: skip


def _reset_setting() -> Setting[str]:
    """``auto.offset.reset``, also with the values of the Scala consumer."""
    words = {**{word: word for word in RESET_POLICIES}, "largest": "latest", "smallest": "earliest"}

    def check(given: str) -> str:
        if given not in words:
            raise ValueError
        return words[given]

    return text(
        "auto.offset.reset",
        RESET_POLICIES[0],
        "Where to begin in a partition without a committed offset, or with one that the broker does not have any more: "
        "`latest` (or `largest`) is the end, `earliest` (or `smallest`) the beginning; with `none`, `poll` raises "
        "`NoOffsetForPartitionException` or `OffsetOutOfRangeException`.",
        check,
        "latest, earliest or none (or the old values largest or smallest)",
    )


class KafkaClientSettings(SettingsTable):
    """The settings of the connections, of fetching and of offsets."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    bootstrap_servers = optional_text(
        "bootstrap.servers", "Some brokers of the cluster; the others are found through them.",
        check_bootstrap, "HOST:PORT[,HOST:PORT…]",
    )  # fmt: skip
    bootstrap_servers.mask = BrokerConnectionSettings.bootstrap_servers.mask
    client_dns_lookup = choice(
        "client.dns.lookup", ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "`use_all_dns_ips`: every address of a host is tried. `resolve_canonical_bootstrap_servers_only`: each address "
        "of `bootstrap.servers` becomes one bootstrap broker under its canonical name, as Kerberos may need it.",
    )  # fmt: skip
    group_id = optional_text(
        "group.id",
        "The group: its partitions are divided among its members. Without it `subscribe` and commits are errors, and "
        "`assign` works.",
        check_group_id, "letters, digits, '.', '_' and '-' of ASCII; not empty",
    )  # fmt: skip
    client_id = text(
        "client.id",
        "",
        "The name of this client in the logs and quotas of the brokers.",
        lambda given: given,
        "any text",
    )
    session_timeout_ms = integer(
        "session.timeout.ms", 45_000,
        "How long the coordinator waits for a heartbeat before it gives the member's partitions to others. Brokers "
        "have limits: `group.min.session.timeout.ms` and `group.max.session.timeout.ms`; before 0.10.1 the maximum is "
        "30000 by default, so set a smaller value there.",
        unit="ms", low=1,
    )  # fmt: skip
    max_poll_interval_ms = integer(
        "max.poll.interval.ms", 300_000,
        "How long the program may take between two calls of `poll`. After that this member leaves the group, and its "
        "partitions go to others; the next `poll` joins again. It is also how long the others wait for this member in "
        "a rebalance (brokers from 0.10.1 on; older ones wait for `session.timeout.ms`).",
        unit="ms", low=1,
    )  # fmt: skip
    client_rack = optional_text(
        "client.rack",
        "The rack of this consumer: a leader with a replica in this rack may let it fetch from there (2.4, KIP-392), "
        "and assignors may use it (3.5).",
        lambda given: given, "any text",
    )  # fmt: skip
    enable_auto_commit = boolean(
        "enable.auto.commit", True,
        "Whether `poll` commits the records that earlier calls returned, every `auto.commit.interval.ms`, and before "
        "partitions are revoked. False without `group.id`.",
    )  # fmt: skip
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 5000, "The time between two automatic commits.", unit="ms"
    )
    auto_offset_reset = _reset_setting()
    partition_assignment_strategy = _strategy_setting()
    metadata_max_age_ms = integer(
        "metadata.max.age.ms",
        300_000,
        "How often the metadata of the topics is read again without a reason.",
        unit="ms",
    )
    allow_auto_create_topics = boolean(
        "allow.auto.create.topics", True,
        "Whether a broker with `auto.create.topics.enable` may create a topic that this consumer subscribes to "
        "(brokers from 0.11 on; older ones always may).",
    )  # fmt: skip
    exclude_internal_topics = boolean(
        "exclude.internal.topics", True,
        "Whether a pattern does not match the topics of Kafka itself. A subscription by name is not concerned.",
    )  # fmt: skip
    key_deserializer = _object_setting(
        "key.deserializer", None,
        "How keys are read: the name of one of Kafka's deserializers, a class of yours as `package.module:ClassName`, "
        "or an object with `deserialize(topic, headers, data)`. None: keys are `bytes`.",
        "a name, package.module:ClassName or an object",
    )  # fmt: skip
    value_deserializer = _object_setting(
        "value.deserializer", None, "The same for values.", "a name, package.module:ClassName or an object"
    )
    deserializer_encoding = _encoding_setting("deserializer.encoding", "keys and values")
    key_deserializer_encoding = _encoding_setting("key.deserializer.encoding", "keys")
    value_deserializer_encoding = _encoding_setting("value.deserializer.encoding", "values")
    interceptor_classes = _class_list(
        "interceptor.classes",
        "Interceptors (KIP-42), called in this order: classes of yours as `package.module:ClassName`, or objects.",
        "package.module:ClassName, with commas in between, or a list of names and objects",
    )
    max_poll_records = integer(
        "max.poll.records", 500, "How many records one `poll` returns at most.", low=1, high=RECORDS_MAX
    )
    fetch_min_bytes = integer(
        "fetch.min.bytes", 1,
        "A broker answers a fetch when it has so many bytes, or after `fetch.max.wait.ms`.", unit="bytes",
    )  # fmt: skip
    fetch_max_wait_ms = integer("fetch.max.wait.ms", 500, "See `fetch.min.bytes`.", unit="ms")
    fetch_max_bytes = integer(
        "fetch.max.bytes", 50 * 1024 * 1024,
        "How many bytes of records one answer has at most; a first batch that is larger is sent anyway (brokers from "
        "0.10.1 on).",
        unit="bytes",
    )  # fmt: skip
    max_partition_fetch_bytes = integer(
        "max.partition.fetch.bytes", 1024 * 1024,
        "The same for one partition. Brokers before 0.10.1 cannot send a larger message: `poll` raises "
        "`RecordTooLargeException` then.",
        unit="bytes",
    )  # fmt: skip
    check_crcs = boolean("check.crcs", True, "Whether the checksums of records are checked.")
    send_buffer_bytes = integer(
        "send.buffer.bytes", 128 * 1024, "The buffer of the socket for sending (SO_SNDBUF); -1: the system decides.",
        unit="bytes", low=-1,
    )  # fmt: skip
    receive_buffer_bytes = integer(
        "receive.buffer.bytes", 64 * 1024,
        "The buffer of the socket for receiving (SO_RCVBUF); -1: the system decides, and adapts it to the connection.",
        unit="bytes", low=-1,
    )  # fmt: skip
    reconnect_backoff_ms = integer(
        "reconnect.backoff.ms", 50,
        "The pause before the next attempt to connect to the same broker; it doubles with each failure.", unit="ms",
    )  # fmt: skip
    reconnect_backoff_max_ms = integer(
        "reconnect.backoff.max.ms", 1000, "The maximum of this pause, with its jitter of 20 %.", unit="ms"
    )
    socket_connection_setup_timeout_ms = integer(
        "socket.connection.setup.timeout.ms", 10_000,
        "How long a connection may take, with TLS and login; it doubles with each failure.", unit="ms", low=1,
    )  # fmt: skip
    socket_connection_setup_timeout_max_ms = integer(
        "socket.connection.setup.timeout.max.ms", 30_000, "The maximum of this time, with its jitter of 20 %.",
        unit="ms", low=1,
    )  # fmt: skip
    connections_max_idle_ms = integer(
        "connections.max.idle.ms", 540_000, "How long a connection without traffic stays open; -1: without a limit.",
        unit="ms", low=-1,
    )  # fmt: skip

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """See ``SettingsTable``."""
        problems = []
        if values["group.id"] is None and "enable.auto.commit" in given and values["enable.auto.commit"]:
            problems.append(
                "enable.auto.commit=true: offsets are committed for a group, and group.id is missing; set group.id, or "
                "remove enable.auto.commit"
            )
        wait_ms, request_ms = values["fetch.max.wait.ms"], values["request.timeout.ms"]
        if wait_ms >= request_ms:
            problems.append(
                f"fetch.max.wait.ms={wait_ms}: must be less than request.timeout.ms={request_ms}, or every fetch of a "
                "partition without new records would time out; lower it"
            )
        return problems


class KafkaConsumerConfig(
    KafkaClientSettings, MemberSettings, BrokerConnectionSettings, TransactionSettings, Configuration
):
    """The configuration of a ``KafkaConsumer``: ``KafkaConsumerConfig({"bootstrap.servers": "host:9092", …})``.

    Numbers and booleans may be given as text, so a properties file of a Java consumer can be read
    (``KafkaConsumerConfig.from_properties``).  Raises ``InvalidConfigException`` with a line for each problem.
    """

    __slots__ = ()

    @classmethod
    def is_required(cls, setting: Setting[Any]) -> bool:
        """See ``Configuration``."""
        return setting.key == "bootstrap.servers"

    @classmethod
    def settle(cls, values: dict[str, Any]) -> dict[str, str]:
        """See ``Configuration``: nothing is committed without a group."""
        if values["group.id"] is None:
            values["enable.auto.commit"] = False
        return {}

    @classmethod
    def why_unsupported(cls, key: str, value: object) -> str:
        """See ``Configuration``."""
        return "" if key == "interceptor.classes" else why_unsupported(key, value)

    @classmethod
    def is_only_supported_value(cls, key: str, value: object) -> bool:
        """See ``Configuration``."""
        return _SAME_AS_ALWAYS.get(key) == str(value).strip().lower()

    @classmethod
    def why_ignored(cls, key: str) -> str:
        """See ``Configuration``: an unknown key is for the program's own classes."""
        if key in KEYS_WITHOUT_EFFECT:
            return java_client_key_text(KEYS_WITHOUT_EFFECT[key])
        why = why_ignored_by_all_members(key)
        if why:
            return why
        near = get_close_matches(key.lower(), cls._settings, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"not a setting of this consumer, and only passed to configure() of your classes{hint}"

    @property
    def originals(self) -> dict[str, object]:
        """The keys that were given, with the values for ``configure`` of the program's classes."""
        return {**self.others, **{key: self.values[key] for key in self.given}}

    @property
    def connections_max_idle_limit_ms(self) -> int:
        """``connections.max.idle.ms``; the largest number if there is no limit."""
        return cast(int, self.values["connections.max.idle.ms"]) if self.connections_max_idle_ms >= 0 else INT_MAX
