"""Each key of Kafka's own consumer, in each configuration of ours: it acts, it is an error, or a warning names it.

The keys and a value of each stand in ``tests/data/kafka-3.0.0-consumer-config.txt``.  What the reference pages say of a
key (``outcome_of``) is held here to what the configuration does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bridge import CoordinatorConsumerConfig
from bridge.client.coordinator_connector import group_config_of
from bridge.client.coordinator_from_config import (
    SCALA_CONSUMER_STRATEGIES,
    assignors_of,
    membership_settings_of,
    stream_assignor_of,
)
from bridge.client.kafka_consumer_keys import SPELLINGS
from bridge.client.supported_settings import settings_without_effect
from bridge.spark.option_table import KAFKA_PREFIX, outcome_of
from bridge.spark.options import SourceOptions, read_options
from tests.generate_docs import KAFKAS_KEYS, REFERENCE, kafkas_defaults, kafkas_keys
from tests.reference_pages.config_page import outcome_table
from tests.reference_pages.coordinator_config_page import as_in_kafka, default_of_key
from zkconsumer import ConsumerConfig
from zkconsumer.config_def import SettingOutcome, SettingStatus
from zkconsumer.config_tables.jaas import SCRAM_MODULE, parse_jaas
from zkconsumer.connector_base import fetch_settings_of
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.other_client_keys import java_client_keys
from zkconsumer.wire.isolation_level import READ_COMMITTED

KEYS = kafkas_keys()
SECRETS = [value for value in KEYS.values() if value.startswith("hush")]

IN_ZOOKEEPER = {"group.id": "g", "zookeeper.connect": "zk1:2181", "bootstrap.servers": "b:9092"}
AT_A_COORDINATOR = {"group.id": "g", "bootstrap.servers": "b:9092"}

TLS = {"security.protocol": "SSL"}
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
BESIDE: dict[str, dict[str, str]] = {
    "security.protocol": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u", "sasl.password": "p"},
    "ssl.keystore.location": TLS,
    "ssl.truststore.location": TLS,
    "ssl.key.password": {**TLS, "ssl.keystore.location": "/f.pem"},
    "sasl.mechanism": LOGIN,
    "sasl.jaas.config": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"},
    "sasl.kerberos.service.name": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"},
}
"""What a key needs beside it."""

Look = Callable[[Any], object]


def field(key: str) -> Look:
    return lambda config: config.values[key]


OTHER_LOGIN = f'{SCRAM_MODULE} required username="other" password="x";'

BROKERS: dict[str, tuple[Look, object]] = {
    **{
        key: (field(key), KEYS[key])
        for key in (
            "bootstrap.servers", "security.protocol", "ssl.enabled.protocols", "ssl.keystore.location",
            "ssl.key.password", "ssl.truststore.location", "ssl.endpoint.identification.algorithm",
            "sasl.kerberos.service.name", "sasl.mechanism",
        )
    },
    "metadata.max.age.ms": (field("metadata.max.age.ms"), 60_000),
    "sasl.jaas.config": (lambda config: parse_jaas(config.sasl_jaas_config or OTHER_LOGIN).username, "me"),
    # There is one value, and no other: a file in Java's formats is refused.
    "ssl.keystore.type": (field("ssl.keystore.type"), "PEM"),
    "ssl.truststore.type": (field("ssl.truststore.type"), "PEM"),
}  # fmt: skip
"""Where a setting of brokers acts, and as what."""

FETCHING: dict[str, tuple[Look, object]] = {
    "fetch.min.bytes": (lambda config: fetch_settings_of(config).min_bytes, 1_000),
    "fetch.max.bytes": (lambda config: fetch_settings_of(config).max_bytes, 10_485_760),
    "client.id": (lambda config: fetch_settings_of(config).client_id, "billing-client"),
    "isolation.level": (lambda config: fetch_settings_of(config).isolation_level, READ_COMMITTED),
    "exclude.internal.topics": (field("exclude.internal.topics"), False),
    "group.id": (field("group.id"), "billing"),
    "auto.commit.interval.ms": (field("auto.commit.interval.ms"), 7_000),
}

ACTS_IN_ZOOKEEPER = {**BROKERS, **FETCHING}

ACTS_AT_A_COORDINATOR: dict[str, tuple[Look, object]] = {
    **BROKERS,
    **FETCHING,
    "group.id": (lambda config: group_config_of(config, {}).group_id, "billing"),
    "group.instance.id": (lambda config: group_config_of(config, {}).group_instance_id, "billing-1"),
    "client.id": (lambda config: membership_settings_of(config, "m").client_id, "billing-client"),
    "client.rack": (lambda config: group_config_of(config, {}).client_rack, "rack-a"),
    "session.timeout.ms": (lambda config: group_config_of(config, {}).session_timeout_ms, 20_000),
    "heartbeat.interval.ms": (lambda config: group_config_of(config, {}).heartbeat_interval_ms, 2_000),
    "max.poll.interval.ms": (lambda config: group_config_of(config, {}).max_poll_interval_ms, 200_000),
    "request.timeout.ms": (
        lambda config: (group_config_of(config, {}).request_timeout_ms, fetch_settings_of(config).socket_timeout_ms),
        (25_000, 25_000),
    ),
    "default.api.timeout.ms": (lambda config: group_config_of(config, {}).default_api_timeout_ms, 50_000),
    "retry.backoff.ms": (lambda config: group_config_of(config, {}).retry_backoff_ms, 150),
    "enable.auto.commit": (lambda config: group_config_of(config, {}).enable_auto_commit, False),
    "auto.commit.interval.ms": (lambda config: group_config_of(config, {}).auto_commit_interval_ms, 7_000),
    "auto.offset.reset": (lambda config: fetch_settings_of(config).reset, OffsetResetStrategy.EARLIEST),
    "partition.assignment.strategy": (lambda config: [each.name for each in assignors_of(config)], ["roundrobin"]),
    "max.partition.fetch.bytes": (lambda config: fetch_settings_of(config).partition_max_bytes, 2_097_152),
    "fetch.max.wait.ms": (lambda config: fetch_settings_of(config).max_wait_ms, 250),
    "receive.buffer.bytes": (lambda config: fetch_settings_of(config).receive_buffer_bytes, 131_072),
}

IN_OTHER_WORDS: dict[str, tuple[str, str, Look, object]] = {
    "auto.offset.reset": (
        "smallest", "that is the new consumer's name for smallest",
        lambda config: fetch_settings_of(config).reset, OffsetResetStrategy.EARLIEST,
    ),
    "partition.assignment.strategy": (
        "roundrobin", "that is the new consumer's name for roundrobin",
        field("partition.assignment.strategy"), "roundrobin",
    ),
}  # fmt: skip
"""A key of the old consumer with words of its own -> the word, what is said of Kafka's own, and where it acts."""


def test_the_table_has_every_key_once() -> None:
    lines = [line for line in KAFKAS_KEYS.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) == len(KEYS) == 77
    # Those of later releases are known too, and none of them is taken for an unknown key.
    for key in java_client_keys():
        assert CoordinatorConsumerConfig.outcome_of(key, "x").reason != "it is not known"


def found(
    kind: type[ConsumerConfig], needed: Mapping[str, str], key: str, value: str
) -> SettingOutcome | ConsumerConfig:
    """What the configuration does with the key: the configuration when it takes it."""
    try:
        made = kind.from_properties({**needed, **BESIDE.get(key, {}), key: value})
    except InvalidConfigException as error:
        [line] = str(error).split("\n  ")[1:]
        assert not any(secret in line for secret in SECRETS)
        assert line.startswith(key), line
        return SettingOutcome.rejected(line)
    assert not any(secret in f"{made!r} {made.ignored}" for secret in SECRETS)
    return SettingOutcome.ignored(made.ignored[key]) if key in made.ignored else made


def check_acts(
    made: SettingOutcome | ConsumerConfig, base: ConsumerConfig, look: Look, wanted: object, key: str
) -> None:
    assert isinstance(made, ConsumerConfig), made
    assert look(made) == wanted
    if not key.endswith("store.type"):
        assert look(base) != wanted, "it would be so without the key"


@pytest.mark.parametrize("key", KEYS)
def test_in_a_configuration_of_zookeepers_member(key: str) -> None:
    outcome = ConsumerConfig.outcome_of(key, KEYS[key])
    made = found(ConsumerConfig, IN_ZOOKEEPER, key, KEYS[key])
    match outcome.status:
        case SettingStatus.IGNORED:
            assert made == outcome
            assert outcome.reason
        case SettingStatus.REJECTED:
            assert isinstance(made, SettingOutcome)
            assert made.status is SettingStatus.REJECTED
            assert outcome.reason in made.reason
        case SettingStatus.EFFECTIVE if key in IN_OTHER_WORDS:
            word, hint, look, wanted = IN_OTHER_WORDS[key]
            assert isinstance(made, SettingOutcome)
            assert hint in made.reason
            assert "any other value is an error" in outcome.reason
            base = ConsumerConfig.from_properties(IN_ZOOKEEPER)
            check_acts(found(ConsumerConfig, IN_ZOOKEEPER, key, word), base, look, wanted, key)
        case SettingStatus.EFFECTIVE:
            look, wanted = ACTS_IN_ZOOKEEPER[key]
            check_acts(made, ConsumerConfig.from_properties(IN_ZOOKEEPER), look, wanted, key)


@pytest.mark.parametrize("needed", [AT_A_COORDINATOR, IN_ZOOKEEPER], ids=["coordinator", "migrating"])
@pytest.mark.parametrize("key", KEYS)
def test_in_a_configuration_of_a_coordinators_member(key: str, needed: dict[str, str]) -> None:
    outcome = CoordinatorConsumerConfig.outcome_of(key, KEYS[key])
    made = found(CoordinatorConsumerConfig, needed, key, KEYS[key])
    assert "zookeeper" not in outcome.reason.lower(), "the hint is about this configuration"
    match outcome.status:
        case SettingStatus.IGNORED:
            assert made == outcome
            assert outcome.reason
        case SettingStatus.REJECTED:
            assert isinstance(made, SettingOutcome)
            assert made.status is SettingStatus.REJECTED
            assert outcome.reason in made.reason
            assert "remove" in made.reason, "it says what to do"
        case SettingStatus.EFFECTIVE:
            look, wanted = ACTS_AT_A_COORDINATOR[key]
            check_acts(made, CoordinatorConsumerConfig.from_properties(needed), look, wanted, key)
            assert isinstance(made, ConsumerConfig)
            assert key not in settings_without_effect(made)


SPARK = {"zookeeper.connect": "zk:2181/kafka", "group.id": "g", "subscribe": "t", "kafka.bootstrap.servers": "b:9092"}


def read_option(name: str, value: str) -> SettingOutcome | SourceOptions:
    key = name.removeprefix(KAFKA_PREFIX)
    beside = {KAFKA_PREFIX + each: what for each, what in BESIDE.get(key, {}).items()}
    try:
        read = read_options({**SPARK, **(beside if name.startswith(KAFKA_PREFIX) else {}), name: value}, is_stream=True)
    except InvalidConfigException as error:
        [line] = str(error).split("\n  ")[1:]
        assert not any(secret in line for secret in SECRETS)
        assert line.startswith(name), line
        return SettingOutcome.rejected(line)
    return SettingOutcome.ignored(read.warnings[name]) if name in read.warnings else read


@pytest.mark.parametrize("prefix", [KAFKA_PREFIX, ""], ids=["with kafka.", "as it is"])
@pytest.mark.parametrize("key", KEYS)
def test_as_an_option_of_spark(key: str, prefix: str) -> None:
    name = prefix + key
    outcome, read = outcome_of(name, KEYS[key]), read_option(name, KEYS[key])
    match outcome.status:
        case SettingStatus.IGNORED:
            assert read == outcome
            assert outcome.reason
        case SettingStatus.REJECTED:
            assert isinstance(read, SettingOutcome)
            assert read.status is SettingStatus.REJECTED
            is_other = outcome.reason == f"it is the option `{KAFKA_PREFIX}{key}`"
            assert (f"did you mean {KAFKA_PREFIX}{key}?" if is_other else outcome.reason) in read.reason
        case SettingStatus.EFFECTIVE if key in IN_OTHER_WORDS:
            word, hint, look, wanted = IN_OTHER_WORDS[key]
            assert isinstance(read, SettingOutcome)
            assert hint in read.reason
            other = read_option(name, word)
            assert isinstance(other, SourceOptions)
            assert look(other.config) == wanted
        case SettingStatus.EFFECTIVE:
            assert isinstance(read, SourceOptions), read
            look, wanted = ACTS_IN_ZOOKEEPER[key]
            check_acts(read.config, read_options(SPARK, is_stream=True).config, look, wanted, key)


@pytest.mark.parametrize(
    ("page", "columns"),
    [
        ("config.md", {"": ConsumerConfig.outcome_of}),
        ("coordinator-config.md", {"": CoordinatorConsumerConfig.outcome_of}),
        ("spark-options.md", {"k": lambda key, value: outcome_of(KAFKA_PREFIX + key, value), "": outcome_of}),
    ],
    ids=lambda page: page if isinstance(page, str) else "",
)
def test_the_reference_pages_show_these_tables(
    page: str, columns: Mapping[str, Callable[[str, str], SettingOutcome]]
) -> None:
    text = (REFERENCE / page).read_text("utf-8")
    _, _, *rows = outcome_table(KEYS, columns).splitlines()
    assert len(rows) == len(KEYS)
    assert [row for row in rows if row not in text] == []


# --- the file of a modern program, as a whole ---------------------------------------------------------------------

MODERN_FILE = """\
bootstrap.servers=broker1:9092,broker2:9092
group.id=billing
enable.auto.commit=false
auto.offset.reset=earliest
session.timeout.ms=20000
heartbeat.interval.ms=2000
max.poll.interval.ms=200000
max.poll.records=100
request.timeout.ms=25000
group.instance.id=billing-1
client.rack=rack-a
isolation.level=read_committed
interceptor.classes=
partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor,\\
  org.apache.kafka.clients.consumer.RangeAssignor
fetch.max.wait.ms=250
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.deserializer=org.apache.kafka.common.serialization.StringDeserializer
"""


def test_the_file_of_a_modern_program_is_read_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(MODERN_FILE)
    config = CoordinatorConsumerConfig.from_properties(file)
    group = group_config_of(config, {})
    assert (group.enable_auto_commit, group.session_timeout_ms, group.group_instance_id) == (False, 20_000, "billing-1")
    assert (group.client_rack, group.request_timeout_ms, group.max_poll_interval_ms) == ("rack-a", 25_000, 200_000)
    assert [each.name for each in assignors_of(config)] == ["cooperative-sticky", "range"]
    assert set(config.ignored) == {"max.poll.records", "key.deserializer", "value.deserializer"}
    assert CoordinatorConsumerConfig.from_files(file, {"enable.auto.commit": "true"}).auto_commit_enable
    by_keyword = CoordinatorConsumerConfig(
        group_id="g", bootstrap_servers="b:1", enable_auto_commit=False, session_timeout_ms=5_000
    )
    assert by_keyword.given == {"group.id", "bootstrap.servers", "auto.commit.enable", "session.timeout.ms"}


def problem(properties: Mapping[str, object]) -> str:
    with pytest.raises(InvalidConfigException) as caught:
        CoordinatorConsumerConfig.from_properties({**AT_A_COORDINATOR, **properties})
    [line] = str(caught.value).split("\n  ")[1:]
    return line


@pytest.mark.parametrize("key", SPELLINGS)
def test_two_spellings_that_disagree_are_an_error_and_two_that_agree_are_none(key: str) -> None:
    value, other = ("false", "true") if key == "enable.auto.commit" else ("200", "300")
    for pair in ([key, SPELLINGS[key]], [SPELLINGS[key], key]):
        said = problem({pair[0]: value, pair[1]: other})
        assert said == (
            f"{pair[0]} and {pair[1]} are the same setting with different values ({value} and {other}): remove one"
        )
        same = {**AT_A_COORDINATOR, pair[0]: f" {value}", pair[1]: value}
        assert CoordinatorConsumerConfig.from_properties(same).given >= {SPELLINGS[key]}


def test_the_time_that_a_broker_may_take_is_said_once() -> None:
    assert "both are the time that a broker may" in problem({"request.timeout.ms": 5_000, "socket.timeout.ms": 6_000})
    same = CoordinatorConsumerConfig.from_properties(
        {**AT_A_COORDINATOR, "request.timeout.ms": 5_000, "socket.timeout.ms": 5_000}
    )
    assert same.socket_timeout_ms == 5_000
    old = CoordinatorConsumerConfig.from_properties({**AT_A_COORDINATOR, "socket.timeout.ms": 6_000})
    assert (old.socket_timeout_ms, old.request_timeout_ms) == (6_000, 30_000)


def test_an_error_names_a_key_as_it_was_given() -> None:
    assert problem({"fetch.max.wait.ms": "soon"}).startswith("fetch.max.wait.ms=soon: set it to an integer")
    assert problem({"fetch.max.wait.ms": 9_000, "request.timeout.ms": 8_000}).startswith(
        "request.timeout.ms=8000: must be at least fetch.max.wait.ms=9000"
    )
    assert problem({"auto.offset.reset": "newest"}).startswith("auto.offset.reset=newest: set it to latest, earliest")
    assert "a class of the JVM; name an assignor of your own as package.module:ClassName" in problem(
        {"partition.assignment.strategy": "com.example.MyAssignor"}
    )
    assert "name each assignor once" in problem({"partition.assignment.strategy": "range,RangeAssignor"})


def test_what_the_configuration_and_the_groups_settings_both_say_must_agree() -> None:
    config = CoordinatorConsumerConfig.from_properties({**AT_A_COORDINATOR, "session.timeout.ms": "9000"})
    assert group_config_of(config, {"heartbeat.interval.ms": 1_000}).session_timeout_ms == 9_000
    assert group_config_of(config, {"session.timeout.ms": " 9000"}).session_timeout_ms == 9_000
    with pytest.raises(InvalidConfigException, match=r"session\.timeout\.ms \(9000 and 8000\).*differ"):
        group_config_of(config, {"session.timeout.ms": 8_000})


@pytest.mark.parametrize(
    "key", [key for key in KEYS if CoordinatorConsumerConfig.outcome_of(key).status is not SettingStatus.IGNORED]
)
def test_a_configuration_of_zookeepers_member_that_has_set_such_a_key_aside_is_refused(key: str) -> None:
    """Its words are for a member that ZooKeeper keeps, and its value is gone."""
    config = found(ConsumerConfig, IN_ZOOKEEPER, key, KEYS[key])
    if isinstance(config, ConsumerConfig) or config.status is SettingStatus.REJECTED:
        return
    with pytest.raises(InvalidConfigException, match=r"create a bridge\.CoordinatorConsumerConfig") as caught:
        group_config_of(ConsumerConfig.from_properties({**IN_ZOOKEEPER, key: KEYS[key]}), {})
    assert str(caught.value).startswith(key)


def test_the_threads_of_a_member_divide_by_a_rule_of_the_old_consumer() -> None:
    for named, rule in (("sticky", "range"), ("sticky,roundrobin,range", "roundrobin"), ("range", "range")):
        config = CoordinatorConsumerConfig.from_properties({**AT_A_COORDINATOR, "partition.assignment.strategy": named})
        assert rule in SCALA_CONSUMER_STRATEGIES
        assert type(stream_assignor_of(config, "m")._assignor).__name__.lower() == f"{rule}assignor"


DEFAULTS = kafkas_defaults()

OTHER_DEFAULTS = {
    "auto.commit.interval.ms", "bootstrap.servers", "client.id", "fetch.max.wait.ms", "group.id", "metadata.max.age.ms",
    "partition.assignment.strategy", "sasl.kerberos.service.name", "sasl.mechanism", "ssl.keystore.type",
    "ssl.truststore.type",
}  # fmt: skip
"""Keys that act at a coordinator, and whose default is not Kafka's."""


def test_kafkas_defaults_are_those_of_the_keys_of_the_table() -> None:
    assert DEFAULTS.keys() == KEYS.keys()
    assert not [key for key, value in KEYS.items() if value and value == DEFAULTS[key]]


def test_the_page_says_which_default_counts_where_a_file_does_not_set_a_key() -> None:
    config = CoordinatorConsumerConfig(AT_A_COORDINATOR)
    differing = set()
    for key in KEYS:
        found = default_of_key(key, DEFAULTS)
        if found is None:
            assert CoordinatorConsumerConfig.outcome_of(key, KEYS[key]).status is not SettingStatus.EFFECTIVE, key
            continue
        if found.differs:
            differing.add(key)
        value = config.values[CoordinatorConsumerConfig.canonical_key(key)]
        match found.here:
            case "must be given":
                assert key in AT_A_COORDINATOR
            case "none":
                assert value is None, key
            case "the value of group.id":
                assert value == config.group_id, key
            case "latest":
                assert fetch_settings_of(config).reset is OffsetResetStrategy.LATEST
            case here:
                assert str(value).lower() == here.lower(), key
    assert differing == OTHER_DEFAULTS


def test_the_lines_that_the_page_names_give_a_member_kafkas_defaults() -> None:
    lines = as_in_kafka(DEFAULTS)
    assert lines.keys() < OTHER_DEFAULTS
    config = CoordinatorConsumerConfig({**AT_A_COORDINATOR, **lines})
    group = group_config_of(config, {})
    assert group.auto_commit_interval_ms == int(DEFAULTS["auto.commit.interval.ms"])
    assert fetch_settings_of(config).max_wait_ms == int(DEFAULTS["fetch.max.wait.ms"])
    assert config.values["metadata.max.age.ms"] == int(DEFAULTS["metadata.max.age.ms"])
    assert [each.name for each in assignors_of(config)] == ["range", "cooperative-sticky"]
