"""The options of the sink ``format("zkconsumer")``, in tables.  Pure.

``SINK_OPTIONS`` have the names and the meaning of Spark's Kafka sink and of Kafka's producer where these have them.
``SINK_BROKER_OPTIONS`` are the settings of the connection to brokers, as the source has them.  ``SINK_IGNORED`` (no
effect) and ``SINK_UNSUPPORTED`` (rejected) are options of other programs, each with the reason.
"""

from __future__ import annotations

from typing import Any

from bridge.spark.option_table import BROKER_OPTIONS, IGNORED_OPTIONS, KAFKA_PREFIX, UNSUPPORTED_OPTIONS, checked_topic
from zkconsumer.config_def import Setting, SettingsTable, choice, integer, optional_text, text
from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings
from zkconsumer.other_client_keys import (
    JAVA_CLIENT_KEYS_WITHOUT_EFFECT,
    JAVA_SECURITY_KEYS,
    SECURITY_KEYS_NOT_IGNORED,
)
from zkconsumer.wire.compression import CODEC_NAMES

BATCH_BYTES_MIN = 1024
"""A smaller limit would put each record into a record set of its own."""

REQUEST_BYTES_LIMIT = 100 * 1024 * 1024
"""The default of the brokers' ``socket.request.max.bytes``, since 0.8."""

_ACKS = {"all": -1, "-1": -1, "1": 1}


def _check_acks(given: str) -> str:
    if given == "0":
        raise ValueError("with 0 the brokers send no answer, so lost records would not be noticed")
    if given not in _ACKS:
        raise ValueError
    return given


def _any_text(given: str) -> str:
    return given


def acks_number(word: str) -> int:
    """The number in a Produce request: -1 for all replicas in sync, 1 for the leader."""
    return _ACKS[word]


class SinkOptionTable(SettingsTable):
    """The sink's own options."""

    __slots__ = ()

    topic = optional_text(
        "topic",
        "The topic of all rows. Takes precedence over a column `topic`; without the option there must be that column.",
        checked_topic, "the name of a topic",
    )  # fmt: skip
    acks = text(
        "kafka.acks", "all",
        "Which replicas must have a record before it counts as written: all that are in sync, or only the leader (`1`; "
        "then records are lost when a leader fails).",
        _check_acks, "all or 1",
    )  # fmt: skip
    compression_type = choice(
        "kafka.compression.type", tuple(CODEC_NAMES.values()),
        "The compression of the record sets; `lz4` needs brokers from 0.8.2 on, `zstd` from 2.1 on.", ignore_case=True,
    )  # fmt: skip
    batch_size = integer(
        "kafka.batch.size", 512 * 1024,
        "The largest record set, before compression. A larger record has a record set of its own. Brokers limit a "
        "record set by `message.max.bytes`; one that is too large is split, and sent again.",
        unit="bytes", low=BATCH_BYTES_MIN, high=REQUEST_BYTES_LIMIT,
    )  # fmt: skip
    max_request_size = integer(
        "kafka.max.request.size", 1024 * 1024,
        "The largest request, and so the largest record, before compression. A larger record fails the task.",
        unit="bytes", low=BATCH_BYTES_MIN, high=REQUEST_BYTES_LIMIT,
    )  # fmt: skip
    request_timeout = integer(
        "kafka.request.timeout.ms", 30_000, "How long a broker may take to answer, also for its replicas.",
        unit="ms", low=1,
    )  # fmt: skip
    delivery_timeout = integer(
        "kafka.delivery.timeout.ms", 120_000,
        "How long a record set is sent again after errors that may pass. Counts from the first attempt.",
        unit="ms", low=0,
    )  # fmt: skip
    max_block = integer(
        "kafka.max.block.ms", 60_000, "How long a task waits for the partitions of a topic, if it does not exist yet.",
        unit="ms", low=0,
    )  # fmt: skip
    query = optional_text(
        "zkconsumer.query",
        "The header `zkconsumer.query`. By default the id of the streaming query; a batch that is no part of a query "
        "has none.",
        _any_text, "a text",
    )  # fmt: skip
    batch = optional_text(
        "zkconsumer.batch",
        "The header `zkconsumer.batch`. By default the id of the micro-batch; a batch that is no part of a query has "
        "none.",
        _any_text, "a text",
    )  # fmt: skip


SINK_OPTIONS: dict[str, Setting[Any]] = {
    setting.key: setting for setting in vars(SinkOptionTable).values() if isinstance(setting, Setting)
}

_CONNECTION_KEYS = [
    setting.key
    for setting in vars(BrokerConnectionSettings).values()
    if isinstance(setting, Setting) and setting.key != "metadata.max.age.ms"
]

SINK_BROKER_OPTIONS: dict[str, str] = {
    "client.id": "client.id",
    **{option: key for option, key in BROKER_OPTIONS.items() if key in _CONNECTION_KEYS},
}
"""Options that are settings of the connection to brokers: option -> key of ``ConsumerConfig``."""

SINK_IGNORED: dict[str, str] = {
    "checkpointLocation": "the checkpoint belongs to the query",
    "queryName": "the name belongs to the query",
    "includeHeaders": "the records have headers if there is a column headers, or the rows are of a query",
    **dict.fromkeys(
        ("kafka.buffer.memory", "kafka.linger.ms", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes"),
        "a task has all rows of a batch at once, and limits its memory itself",
    ),
    **dict.fromkeys(
        ("kafka.retries", "kafka.retry.backoff.ms", "kafka.retry.backoff.max.ms"),
        "kafka.delivery.timeout.ms limits the attempts",
    ),
    **dict.fromkeys(
        ("kafka.reconnect.backoff.ms", "kafka.reconnect.backoff.max.ms", "kafka.connections.max.idle.ms"),
        "a task connects when it sends, and again with its next attempt",
    ),
    "kafka.max.in.flight.requests.per.connection": "one request at a time is sent to a broker, which keeps the order",
    **dict.fromkeys(("kafka.metadata.max.age.ms", "kafka.metadata.max.idle.ms"), "a task asks for the leaders itself"),
    **{
        KAFKA_PREFIX + key: IGNORED_OPTIONS[KAFKA_PREFIX + key]
        for key in (*JAVA_CLIENT_KEYS_WITHOUT_EFFECT, *JAVA_SECURITY_KEYS)
        if key not in SECURITY_KEYS_NOT_IGNORED
    },
}
"""Options without effect, and why; a warning each, except for those that belong to the query."""

OF_THE_QUERY = ("checkpointLocation", "queryName")
"""Options that Spark passes to the sink of each query; a warning about them would help no user."""

SINK_UNSUPPORTED: dict[str, str] = {
    "path": "start() and save() take no path here: the topic is the option topic, or a column topic",
    "kafka.client.id": "it is the option client.id, without the prefix kafka.",
    "kafka.key.serializer": "keys are bytes: use functions of the DataFrame on the column",
    "kafka.value.serializer": "values are bytes: use functions of the DataFrame on the column",
    "kafka.partitioner.class": "a class of the JVM; set the column partition instead",
    "kafka.interceptor.classes": "a class of the JVM, which would change records where Spark does not see it",
    "kafka.enable.idempotence": "the sink writes at least once: records of a failed attempt may be written again",
    "kafka.transactional.id": "the sink writes at least once, without transactions",
    **{KAFKA_PREFIX + key: UNSUPPORTED_OPTIONS[KAFKA_PREFIX + key] for key in SECURITY_KEYS_NOT_IGNORED},
}
"""Options that cannot be given, and why."""

SINK_OPTION_NAMES: dict[str, str] = {
    name.lower(): name for name in (*SINK_OPTIONS, *SINK_BROKER_OPTIONS, *SINK_IGNORED, *SINK_UNSUPPORTED)
}
"""Lower-case names, as Spark passes them -> names as they are written."""

SINK_SERVERS = KAFKA_PREFIX + "bootstrap.servers"
