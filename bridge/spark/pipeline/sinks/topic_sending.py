"""Connections to the brokers of a topic: what the driver asks them, and how the tasks send.

Secrets are read on the driver, where a connection is made or tasks are sent.  A task gets them inside of its pickled
``SinkTask``, as tasks of the source do: neither a plan nor an option has them, and executors need no variable and no
file of a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bridge.spark.pipeline.pipeline_spec import TopicTarget
from bridge.spark.pipeline.secret_reference import resolve_secrets
from bridge.spark.pipeline.sinks.sink import SinkUnavailableError
from bridge.spark.pipeline.sinks.topic_records import RECORD_BYTES_LIMIT, TopicFacts
from bridge.spark.pipeline.task_errors import sentence_of
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.errors import UsageError
from zkconsumer.kafka.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import DESCRIBE_CONFIGS
from zkconsumer.wire.schemas.describe_configs import (
    RESOURCE_TYPE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnections
    from bridge.spark.sink.topic_writer import SinkTask

SendRows: TypeAlias = "Callable[[DataFrame, SinkTask], int]"
"""Sends the rows of a frame; returns how many were acknowledged."""

ReadFacts: TypeAlias = "Callable[[ClusterAddress, str | None], TopicFacts | None]"
"""What brokers say of a topic; None: each row has its own, and the brokers need only answer."""

_NO_TOPIC = "zkconsumer-no-topic"
"""The request needs the name of a topic; none is created."""

LIMIT_KEY = "max.message.bytes"

_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)

_PASSING = (
    "TimeoutException", "BrokerUnreachable", "RemoteProtocolError", "SchemaRegistryUnavailable", "UnknownHostException",
)  # fmt: skip
"""Errors that another start may not meet."""


class TopicRefusedError(UsageError):
    """Brokers, or this release, do not accept records of a pipeline; the text has the reason and who must act."""


def sink_task(target: TopicTarget, query: str | None = None, batch: int | None = None) -> SinkTask:
    """What a task needs.  ``query``, ``batch``: the headers.  Raises ``SecretUnavailableError`` and
    ``InvalidConfigException``."""
    from bridge.spark.sink import data_source_writers
    from bridge.spark.sink.sink_options import read_sink_options

    connection = resolve_secrets(target.connection, os.environ, lambda path: Path(path).read_bytes())
    given = {
        "topic": target.topic, "kafka.acks": target.acks, "kafka.compression.type": target.compression,
        "zkconsumer.query": query, "zkconsumer.batch": None if batch is None else str(batch),
    }  # fmt: skip
    options = {**connection, **{name: text for name, text in given.items() if text is not None}}
    # The broker decides about the size of a record, and its answer names the setting.
    return replace(data_source_writers.sink_task(read_sink_options(options)), record_bytes_max=RECORD_BYTES_LIMIT)


def send_frame(frame: DataFrame, task: SinkTask) -> int:
    """A ``SendRows``: one task for each partition of the frame.

    Raises ``TopicRefusedError`` and ``SinkUnavailableError`` with the sentence of the task that failed.
    """
    from pyspark.errors import PySparkException

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from bridge.spark.arrow_scalars import row_of_integers
        from bridge.spark.sink.topic_writer import write_rows
        from bridge.spark.source.error_rendering import task_sentence_before_traceback

        written = task_sentence_before_traceback(write_rows)(task, batches)
        yield row_of_integers(records=sum(each.records for each in written.values()))

    try:
        return sum(row.records for row in frame.mapInArrow(run, "records bigint").collect())
    except PySparkException as error:
        found = sentence_of(str(error))
        if found is None:
            raise
        raise task_error(found.name, found.text) from error


def task_error(name: str, sentence: str) -> SinkUnavailableError | TopicRefusedError:
    """The error of a task, by the name of its class, as one for the operator."""
    text = f"{sentence.rstrip('. ')}. The batch is repeated when the pipeline is started again"
    return SinkUnavailableError(text) if name in _PASSING else TopicRefusedError(text)


def read_topic_facts(address: ClusterAddress, topic: str | None) -> TopicFacts | None:
    """A ``ReadFacts``; creates no topic.  Raises ``SinkUnavailableError``, ``TopicRefusedError`` and
    ``AuthenticationException``."""
    from bridge.spark.sink.delivery_errors import delivery_advice

    with closing(address.open()) as cluster:
        try:
            found = cluster.topic_metadata(topic or _NO_TOPIC)
        except BROKER_REQUEST_ERRORS as error:
            places = ", ".join(f"{each.host}:{each.port}" for each in address.brokers)
            raise SinkUnavailableError(
                f"the brokers {places} do not answer: {str(error).rstrip('. ')}; the operator must start them, or "
                "correct kafka.bootstrap.servers"
            ) from error
        if topic is None:
            return None
        numbers = [tp.partition for tp in found.partitions if tp.topic == topic]
        if topic in found.rejected_topics or not numbers:
            code = found.topic_errors.get(topic, UNKNOWN_TOPIC_OR_PARTITION)
            raise TopicRefusedError(f"topic {topic}: {code}. {delivery_advice(code)}")
        partitions = max(numbers) + 1
        leaders = [found.with_leader.get(TopicPartition(topic, number)) for number in range(partitions)]
        leader = next(filter(None, leaders), None)
        return TopicFacts(partitions, None if leader is None else _record_bytes_max(cluster, leader, topic))


def _record_bytes_max(cluster: ClusterConnections, broker: BrokerAddress, topic: str) -> int | None:
    """None: brokers before 0.11 do not say it, and later ones only to users that may DESCRIBE_CONFIGS."""
    wanted = DescribeConfigsResource(
        resource_type=RESOURCE_TYPE_TOPIC, resource_name=topic, configuration_keys=[LIMIT_KEY]
    )
    try:
        connection, versions = cluster.connection_to(broker)
        if not versions.supports(DESCRIBE_CONFIGS, 0):
            return None
        body = DescribeConfigsRequest(resources=[wanted])
        response = connection.request(DESCRIBE_CONFIGS, versions.pick(DESCRIBE_CONFIGS), body, REQUEST_TIMEOUT_MS)
    except BROKER_REQUEST_ERRORS:
        return None
    for one in response.results:
        for config in one.configs if one.error_code == NONE.code else ():
            if config.name == LIMIT_KEY and _NUMBER.fullmatch(config.value or ""):
                return int(config.value or "")
    return None
