"""The keys of the section ``source`` and of the connection to brokers, made of the tables of options.  Pure.

The section ``source`` has every option of ``format("zkconsumer")`` for streams, under its own name:
``bridge.spark.option_table`` has the options, and ``bridge.spark.options`` checks their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.spark.group_membership import CommitMode
from bridge.spark.membership.process_settings import SPARK_DEFAULTS
from bridge.spark.option_table import (
    BATCH_ONLY,
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    KAFKA_PREFIX,
    SOURCE_OPTIONS,
    with_option_names,
)
from bridge.spark.pipeline.pipeline_key import KeyKind, PipelineKey
from zkconsumer.config import SETTINGS
from zkconsumer.config_def import SameAsSetting, Setting, TrueIfSetting
from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings

TOPIC_WAYS = ("subscribe", "subscribePattern", "subscribe.blacklist", "topics")
"""The options of the source of which exactly one selects the topics."""

KEYS_OF_CONSUMER_CONFIG = ("zookeeper.connect", "group.id")
"""Required keys of the source that the file of ``consumer.config`` may have instead."""

SOURCE_DEFAULTS: Mapping[str, str] = {"group.offsets.commit": CommitMode.CLAIM.value}
"""Options of the source with another default in a pipeline than in ``format("zkconsumer")``."""

OPTIONS_OF_PIPELINE = ("batchRangesPath", "includeIsUtf8")
"""Options of the source that the pipeline sets itself."""

_SOURCE_EXAMPLES: Mapping[str, str] = {
    "zookeeper.connect": '"zk1:2181,zk2:2181/kafka"',
    "group.id": '"clicks"',
    "subscribe": '"clicks"',
    "subscribePattern": '"clicks[.].*"',
    "subscribe.blacklist": '"test[.].*"',
    "topics": "'{\"clicks\": 2}'",
    "startingTimestamp": "1700000000000",
    "startingOffsetsByTimestamp": '\'{"clicks": {"0": 1700000000000}}\'',
    "maxOffsetsPerTrigger": "1000000",
    "minOffsetsPerTrigger": "1000",
    "maxBytesPerTrigger": "1000000000",
    "minPartitions": "8",
    "maxRecordsPerPartition": "500000",
    "skipOffsets": '\'{"clicks": {"0": [[1000, 1500]]}}\'',
    "includeHeaders": "true",
    "consumer.config": '"consumer.properties"',
    "metrics.listen": '"127.0.0.1:9309"',
    "auto.offset.reset": '"smallest"',
    "offsets.storage": '"zookeeper"',
    "zookeeper.auth": '"digest:/etc/clicks/zookeeper-login"',
    "kafka.bootstrap.servers": '"kafka1:9092,kafka2:9092"',
    "kafka.security.protocol": '"SASL_SSL"',
    "kafka.sasl.mechanism": '"SCRAM-SHA-512"',
    "kafka.sasl.username": '"clicks"',
    "kafka.sasl.password": '"env:KAFKA_PASSWORD"',
    "kafka.ssl.truststore.location": '"ca.pem"',
}
"""Values for the template: of the source's own options, and of those settings of the group and of the brokers that most
pipelines need."""

_NEEDED_TOGETHER: Mapping[str, tuple[str, ...]] = {
    "kafka.sasl.mechanism": ("kafka.security.protocol",),
    "kafka.sasl.username": ("kafka.sasl.mechanism", "kafka.sasl.password"),
    "kafka.sasl.password": ("kafka.sasl.mechanism", "kafka.sasl.username"),
    "kafka.ssl.truststore.location": ("kafka.security.protocol",),
}
"""``BrokerConnectionSettings.conflicts`` checks these, so the template says them."""

_NOTES: Mapping[str, str] = {
    "includeHeaders": "In a pipeline the default is true if there are dead letters, or a key in [decode.headers].",
}
"""What is different in a pipeline."""

_BROKERS = "kafka.bootstrap.servers"
_COMMA_LISTS = {"subscribe", "zookeeper.connect", _BROKERS}

PATH_OPTIONS = frozenset({
    "consumer.config", "zookeeper.auth",
    *(name for name in (*GROUP_OPTIONS, *BROKER_OPTIONS) if name.endswith(".location")),
})  # fmt: skip
"""Options of the source that name a file; ``zookeeper.auth`` does so after its scheme, ``digest:FILE``."""


def option_setting(name: str) -> Setting[Any] | None:
    """The setting of an option of the source; None for an option that has no effect, or that is not known."""
    key = GROUP_OPTIONS.get(name) or BROKER_OPTIONS.get(name)
    return SETTINGS[key] if key is not None else SOURCE_OPTIONS.get(name)


def is_sensitive(option: str) -> bool:
    """Whether the value of an option is a secret; also of an option of another program that has no effect here."""
    setting = option_setting(option)
    return setting.is_secret if setting is not None else "password" in option or "secret" in option


def source_keys() -> list[PipelineKey]:
    """The rows of ``source``: first what every file needs, then the source's own options, the group and the brokers."""
    own = [name for name in SOURCE_OPTIONS if name not in (*BATCH_ONLY, *OPTIONS_OF_PIPELINE)]
    names = dict.fromkeys((*KEYS_OF_CONSUMER_CONFIG, *own, *GROUP_OPTIONS, *BROKER_OPTIONS))
    return [_source_key(name) for name in names]


def _source_key(name: str) -> PipelineKey:
    setting = option_setting(name)
    assert setting is not None, "the name is from the tables"
    return PipelineKey(
        section="source", setting=_named(setting, name), kind=_option_kind(name, setting),
        default=SOURCE_DEFAULTS.get(name, SPARK_DEFAULTS.get(setting.key, _plain_default(setting))),
        is_required=name in TOPIC_WAYS or name in KEYS_OF_CONSUMER_CONFIG,
        excludes=tuple(way for way in TOPIC_WAYS if way != name) if name in TOPIC_WAYS else (),
        needs=_NEEDED_TOGETHER.get(name, ()), example=_SOURCE_EXAMPLES.get(name, ""),
        is_in_template=name in SOURCE_OPTIONS or name in _SOURCE_EXAMPLES,
    )  # fmt: skip


def _named(setting: Setting[Any], name: str) -> Setting[Any]:
    """The setting under the name of its option, and with the names of other options in its sentence."""
    sentence = with_option_names(setting.description) if name.startswith(KAFKA_PREFIX) else setting.description
    if name in _NOTES:
        sentence = f"{sentence} {_NOTES[name]}"
    return _setting_like(setting, name, sentence)


def _setting_like(setting: Setting[Any], name: str, sentence: str) -> Setting[Any]:
    made: Setting[Any] = Setting(
        name, sentence, setting.parse, type_=setting.type, allowed=setting.allowed, default=setting.default,
        unit=setting.unit,
    )  # fmt: skip
    made.is_secret, made.mask = setting.is_secret, setting.mask
    return made


def _plain_default(setting: Setting[Any]) -> object:
    """The default if it is one value, and does not depend on another setting."""
    depends = isinstance(setting.default, SameAsSetting | TrueIfSetting)
    return None if setting.default is ... or depends else setting.default


def _option_kind(name: str, setting: Setting[Any]) -> KeyKind:
    if setting.is_secret:
        return KeyKind.SECRET
    if name in PATH_OPTIONS:
        return KeyKind.PATH
    if name in _COMMA_LISTS:
        return KeyKind.COMMA_LIST
    if '{"' in setting.allowed:
        return KeyKind.OFFSETS_JSON
    match setting.type:
        case "integer":
            return KeyKind.INTEGER
        case "boolean":
            return KeyKind.BOOLEAN
    if name == "maxTriggerDelay":
        return KeyKind.DURATION
    return KeyKind.CHOICE if " or " in setting.allowed else KeyKind.TEXT


def connection_keys(section: str, others: tuple[str, ...]) -> list[PipelineKey]:
    """The ``kafka.*`` options of the source for the connection of a topic."""
    return [
        PipelineKey(
            section=section,
            setting=_setting_like(setting, _BROKERS, "Some brokers of the cluster that has the topic.")
            if setting.key == "bootstrap.servers" else _named(setting, KAFKA_PREFIX + setting.key),
            kind=_option_kind(KAFKA_PREFIX + setting.key, setting), default=_plain_default(setting), formats=("topic",),
            is_required=setting.key == "bootstrap.servers", needs=_NEEDED_TOGETHER.get(KAFKA_PREFIX + setting.key, ()),
            taken_from=others, example=_SOURCE_EXAMPLES.get(KAFKA_PREFIX + setting.key, ""),
            is_in_template=setting.key == "bootstrap.servers",
        )
        for setting in vars(BrokerConnectionSettings).values()
        if isinstance(setting, Setting) and setting.key != "metadata.max.age.ms"
    ]  # fmt: skip


CONNECTION_OPTIONS = frozenset(key.name for key in connection_keys("sink", ()))
"""The options of the connection to the brokers of a topic."""
