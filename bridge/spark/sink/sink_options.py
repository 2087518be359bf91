"""Parses the options of the sink: from Spark's case-insensitive map of texts to values.  Pure.

One error reports all problems.  ``sink_option_table`` has the known options; ``ConsumerConfig`` parses the settings of
the connection to brokers, as for the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from bridge.spark.option_table import KAFKA_PREFIX, with_option_names
from bridge.spark.options import OPTION_NAMES, UNSET_ZOOKEEPER, login_problems, problem_lines, problems_report
from bridge.spark.sink.sink_option_table import (
    OF_THE_QUERY,
    SINK_BROKER_OPTIONS,
    SINK_IGNORED,
    SINK_OPTION_NAMES,
    SINK_OPTIONS,
    SINK_SERVERS,
    SINK_UNSUPPORTED,
    acks_number,
)
from zkconsumer.config import SETTINGS, ConsumerConfig
from zkconsumer.config_def import JAVA_BLANKS, invalid_value_text
from zkconsumer.errors import InvalidConfigException
from zkconsumer.wire.compression import CODEC_NAMES

UNSET_SINK_GROUP = "zkconsumer-spark-sink"
"""A placeholder in the configuration: the sink is in no group."""

_IDEMPOTENCE = "kafka.enable.idempotence"

_CODECS = {name: codec for codec, name in CODEC_NAMES.items()}


@dataclass(frozen=True, slots=True, repr=False)
class SinkOptions:
    """The options of a sink.  Shows no secret; can be pickled, and contains the secrets then.

    ``config``: the connection to brokers.  ``acks``, ``codec``: the numbers in the protocol.  ``query``, ``batch``: the
    given headers; None: those of the streaming query.  ``warnings``: given options without effect -> why.
    """

    config: ConsumerConfig
    topic: str | None
    acks: int
    codec: int
    batch_bytes: int
    request_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    query: str | None
    batch: str | None
    given: tuple[tuple[str, str], ...]
    warnings: Mapping[str, str]

    def __repr__(self) -> str:
        return f"SinkOptions({', '.join(f'{name}={value!r}' for name, value in self.given)})"


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parses the options of a sink, as Spark passes them.

    Raises ``InvalidConfigException`` with a line for each problem.
    """
    return _SinkOptionsReader(options).read()


class _SinkOptionsReader:
    """Parses one map; collects problems."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._problems: list[str] = []
        self._warnings: dict[str, str] = {}
        self._values: dict[str, Any] = {key: setting.default for key, setting in SINK_OPTIONS.items()}
        self._connection: dict[str, str] = {}
        self._given: list[tuple[str, str]] = []
        for name, value in options.items():
            self._take(SINK_OPTION_NAMES.get(name.lower(), name), str(value).strip(JAVA_BLANKS))

    def read(self) -> SinkOptions:
        config = self._config()
        own = self._values
        if own["kafka.batch.size"] > own["kafka.max.request.size"]:
            own["kafka.batch.size"] = own["kafka.max.request.size"]
        if self._problems:
            raise InvalidConfigException(problems_report(self._problems))
        assert config is not None, "otherwise there is a problem"
        return SinkOptions(
            config=config,
            topic=own["topic"],
            acks=acks_number(own["kafka.acks"]),
            codec=_CODECS[own["kafka.compression.type"]],
            batch_bytes=own["kafka.batch.size"],
            request_bytes=own["kafka.max.request.size"],
            request_timeout_ms=own["kafka.request.timeout.ms"],
            delivery_timeout_ms=own["kafka.delivery.timeout.ms"],
            max_block_ms=own["kafka.max.block.ms"],
            query=own["zkconsumer.query"],
            batch=own["zkconsumer.batch"],
            given=tuple(self._given),
            warnings=dict(self._warnings),
        )

    def _take(self, name: str, value: str) -> None:
        if name in SINK_OPTIONS:
            self._given.append((name, SINK_OPTIONS[name].masked(value)))
            try:
                self._values[name] = SINK_OPTIONS[name].parse(value)
            except ValueError as error:
                self._problems.append(invalid_value_text(SINK_OPTIONS[name], value, str(error)))
        elif name in SINK_BROKER_OPTIONS:
            key = SINK_BROKER_OPTIONS[name]
            self._connection[key] = value
            self._given.append((name, SETTINGS[key].masked(value)))
        elif name in SINK_IGNORED:
            if name not in OF_THE_QUERY:
                self._warnings[name] = SINK_IGNORED[name]
        elif name == _IDEMPOTENCE and value.lower() == "false":
            return
        elif name in SINK_UNSUPPORTED:
            self._problems.append(f"{name} cannot be set: {SINK_UNSUPPORTED[name]}")
        else:
            self._problems.append(_unknown(name))

    def _config(self) -> ConsumerConfig | None:
        """The settings of the connection, with placeholders for the group and ZooKeeper."""
        if "bootstrap.servers" not in self._connection:
            self._problems.append(f"{SINK_SERVERS} is missing: set it to HOST:PORT[,HOST:PORT…]")
        unset = {"zookeeper.connect": UNSET_ZOOKEEPER, "group.id": UNSET_SINK_GROUP}
        try:
            config = ConsumerConfig.from_files(None, unset | self._connection)
        except InvalidConfigException as error:
            self._problems += [with_option_names(line) for line in problem_lines(error)]
            return None
        self._problems += login_problems(config, "sink")
        return config


def _unknown(name: str) -> str:
    lower = name.lower()
    for near in (KAFKA_PREFIX + lower, lower.removeprefix(KAFKA_PREFIX)):
        if near in SINK_OPTION_NAMES:
            return f"{name} is not known: did you mean {SINK_OPTION_NAMES[near]}?"
    if lower in OPTION_NAMES:
        return f"{name} is an option of the source, and has no meaning for a sink: remove it"
    if nearest := get_close_matches(lower, SINK_OPTION_NAMES, 1):
        return f"{name} is not known: did you mean {SINK_OPTION_NAMES[nearest[0]]}?"
    return f"{name} is not known: remove it"
