"""``KafkaConsumerConfig`` and the constructor of ``KafkaConsumer``."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bridge.client.assignors import RangeAssignor
from bridge.client.kafka_consumer.consumer_components import ConsumerEnvironment
from bridge.client.kafka_consumer.kafka_consumer import KafkaConsumer
from bridge.client.kafka_consumer.kafka_consumer_config import KafkaConsumerConfig
from tests.kafka_consumer_fixtures import GROUP, TP0, ScriptedConsumer, consumer_in
from zkconsumer.config_def import SettingStatus
from zkconsumer.errors import InvalidConfigException, KafkaException
from zkconsumer.kafka.net.host_resolver import RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY
from zkconsumer.wire.schemas import JOIN_GROUP

BOOTSTRAP = {"bootstrap.servers": "localhost:9999"}

DEFAULTS: dict[str, object] = {
    "allow.auto.create.topics": True,
    "auto.commit.interval.ms": 5000,
    "auto.offset.reset": "latest",
    "check.crcs": True,
    "client.dns.lookup": "use_all_dns_ips",
    "client.id": "",
    "client.rack": None,
    "connections.max.idle.ms": 540_000,
    "default.api.timeout.ms": 60_000,
    "exclude.internal.topics": True,
    "fetch.max.bytes": 52_428_800,
    "fetch.max.wait.ms": 500,
    "fetch.min.bytes": 1,
    "group.id": None,
    "group.instance.id": None,
    "heartbeat.interval.ms": 3000,
    "interceptor.classes": (),
    "isolation.level": "read_uncommitted",
    "key.deserializer": None,
    "max.partition.fetch.bytes": 1_048_576,
    "max.poll.interval.ms": 300_000,
    "max.poll.records": 500,
    "metadata.max.age.ms": 300_000,
    "partition.assignment.strategy": ("range", "cooperative-sticky"),
    "receive.buffer.bytes": 65_536,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30_000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "send.buffer.bytes": 131_072,
    "session.timeout.ms": 45_000,
    "socket.connection.setup.timeout.max.ms": 30_000,
    "socket.connection.setup.timeout.ms": 10_000,
    "value.deserializer": None,
}
"""Kafka 3.0's key -> its default."""

WITHOUT_EFFECT = (
    "internal.throw.on.fetch.stable.offset.unsupported", "metric.reporters", "metrics.num.samples",
    "metrics.recording.level", "metrics.sample.window.ms",
)  # fmt: skip
"""Kafka 3.0's keys that change nothing in what is read or committed."""

SECURITY = (
    "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.mechanism", "security.providers", "ssl.cipher.suites",
    "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.key.password",
    "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
)  # fmt: skip
"""The keys of TLS and SASL that the consumer of Kafka 3.0 reads."""


class Recorder:
    """An interceptor and a deserializer that note how they are created and closed."""

    configured: ClassVar[list[dict[str, Any]]] = []
    closed: ClassVar[list[type]] = []

    def configure(self, values: dict[str, Any], *is_key: bool) -> None:
        self.configured.append(dict(values))

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None:
        pass

    def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
        return data

    def close(self) -> None:
        self.closed.append(type(self))


class KeyRecorder(Recorder):
    """The deserializer of keys."""


class Broken:
    """A class whose object cannot be created."""

    def __init__(self) -> None:
        raise RuntimeError("no such file")


@pytest.fixture(autouse=True)
def _no_records() -> None:
    Recorder.configured.clear()
    Recorder.closed.clear()


def path_of(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


# --- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "default"), DEFAULTS.items())
def test_a_key_of_kafka_has_the_default_of_kafka(key: str, default: object) -> None:
    assert KafkaConsumerConfig(BOOTSTRAP).values[key] == default


def test_commits_are_automatic_by_default_with_a_group() -> None:
    assert KafkaConsumerConfig({**BOOTSTRAP, "group.id": GROUP}).enable_auto_commit is True
    assert KafkaConsumerConfig(BOOTSTRAP).enable_auto_commit is False


def test_the_brokers_are_required() -> None:
    with pytest.raises(InvalidConfigException, match=r"bootstrap\.servers"):
        KafkaConsumerConfig({})


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_a_key_of_kafka_without_effect_is_ignored_with_a_reason(key: str) -> None:
    config = KafkaConsumerConfig({**BOOTSTRAP, key: "1"})
    assert "not a setting of this consumer" not in config.ignored[key]
    assert len(config.ignored[key].split()) > 3


@pytest.mark.parametrize("key", SECURITY)
def test_a_key_of_tls_or_sasl_acts_or_is_an_error_or_is_ignored_with_a_reason(key: str) -> None:
    outcome = KafkaConsumerConfig.outcome_of(key, "value")
    assert outcome.status in (SettingStatus.EFFECTIVE, SettingStatus.IGNORED, SettingStatus.REJECTED)
    assert outcome.status is SettingStatus.EFFECTIVE or len(outcome.reason.split()) > 3
    assert "not a setting of this consumer" not in outcome.reason


@pytest.mark.parametrize("key", ["internal.leave.group.on.close", "group.protocol"])
def test_a_key_that_would_change_the_meaning_is_an_error_with_any_other_value(key: str) -> None:
    supported = {"internal.leave.group.on.close": "true", "group.protocol": "classic"}[key]
    KafkaConsumerConfig({**BOOTSTRAP, key: supported})
    with pytest.raises(InvalidConfigException, match=key.replace(".", r"\.")):
        KafkaConsumerConfig({**BOOTSTRAP, key: "another"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("send.buffer.bytes", -2),
        ("receive.buffer.bytes", -2),
        ("max.poll.records", 0),
        ("session.timeout.ms", 0),
        ("max.poll.interval.ms", 0),
        ("auto.offset.reset", "newest"),
        ("isolation.level", "read"),
        ("client.dns.lookup", "default"),
        ("enable.auto.commit", "maybe"),
        ("fetch.max.wait.ms", -1),
        ("partition.assignment.strategy", ""),
        ("partition.assignment.strategy", "org.example.MyAssignor"),
        ("partition.assignment.strategy", []),
        ("interceptor.classes", 7),
        ("group.id", ""),
    ],
)
def test_a_value_out_of_range_is_an_error_of_the_constructor(key: str, value: object) -> None:
    with pytest.raises(InvalidConfigException, match=key.replace(".", r"\.")):
        KafkaConsumer({**BOOTSTRAP, "group.id": GROUP, key: value})


def test_all_problems_are_in_one_error() -> None:
    with pytest.raises(InvalidConfigException) as raised:
        KafkaConsumer({"max.poll.records": 0, "fetch.max.wait.ms": 40_000})
    for key in ("bootstrap.servers", "max.poll.records", "fetch.max.wait.ms"):
        assert key in str(raised.value)


def test_a_fetch_that_waits_longer_than_a_request_is_an_error() -> None:
    with pytest.raises(InvalidConfigException, match=r"fetch\.max\.wait\.ms=30000"):
        KafkaConsumerConfig({**BOOTSTRAP, "fetch.max.wait.ms": 30_000})


def test_a_properties_file_of_a_java_consumer_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(
        "bootstrap.servers=a:1,b:2\ngroup.id=g\nenable.auto.commit=false\nmax.poll.records=7\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor,\\\n"
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor\n"
        "value.deserializer=org.apache.kafka.common.serialization.StringDeserializer\nauto.offset.reset=earliest\n"
    )
    config = KafkaConsumerConfig.from_properties(file)
    assert (config.max_poll_records, config.enable_auto_commit, config.auto_offset_reset) == (7, False, "earliest")
    assert config.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert config.ignored == {}


def test_the_values_of_the_scala_consumer_for_a_missing_offset_are_accepted() -> None:
    found = [KafkaConsumerConfig({**BOOTSTRAP, "auto.offset.reset": old}) for old in ("largest", "smallest")]
    assert [config.auto_offset_reset for config in found] == ["latest", "earliest"]


def test_unused_keys_are_named_when_the_consumer_is_created(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ScriptedConsumer(ssl_protocol="TLS", metrics_num_samples=3, my_key="x", max_poll_record=5).consumer.close()
    text = caplog.text
    assert "setting-ignored: metrics.num.samples has no effect" in text
    for key in ("ssl.protocol", "my.key", "max.poll.record"):
        assert f"The configuration '{key}' was supplied but isn't a known config" in text
    assert "did you mean max.poll.records?" in text


def test_a_static_member_id_without_a_group_is_accepted() -> None:
    ScriptedConsumer(group=None, group_instance_id="instance_id").consumer.close()


@pytest.mark.parametrize("key", ["send.buffer.bytes", "receive.buffer.bytes"])
def test_the_buffers_of_the_system_can_be_chosen(key: str) -> None:
    KafkaConsumer({**BOOTSTRAP, key: -1}).close()


def test_connections_may_stay_open_without_a_limit() -> None:
    config = KafkaConsumerConfig({**BOOTSTRAP, "connections.max.idle.ms": -1})
    assert config.connections_max_idle_limit_ms > 10**9


# --- objects ------------------------------------------------------------------------------------------------------


def test_deserializers_may_be_objects_names_or_paths() -> None:
    made = Recorder()
    with KafkaConsumer({**BOOTSTRAP, "key.deserializer": "StringDeserializer"}, value_deserializer=made) as consumer:
        key, value = consumer._parts.deserializers
        assert key is not None
        assert key.deserialize("t", (), b"x") == "x"
        assert value is made
    with KafkaConsumer({**BOOTSTRAP, "value.deserializer": path_of(Recorder)}) as consumer:
        assert isinstance(consumer._parts.deserializers[1], Recorder)


def test_deserializers_of_the_constructor_replace_those_of_the_configuration() -> None:
    made = Recorder()
    config = KafkaConsumerConfig({**BOOTSTRAP, "key.deserializer": "LongDeserializer"})
    with KafkaConsumer(config, key_deserializer=made) as consumer:
        assert consumer._parts.deserializers == (made, None)


def test_the_objects_of_the_program_see_the_generated_client_id() -> None:
    settings = {"key.deserializer": path_of(KeyRecorder), "value.deserializer": path_of(Recorder)}
    with KafkaConsumer({**BOOTSTRAP, **settings, "interceptor.classes": path_of(Recorder), "my.key": "x"}) as consumer:
        client_id = consumer._parts.client_id
    assert client_id.startswith("consumer-")
    assert [(seen["client.id"], seen["my.key"]) for seen in Recorder.configured] == [(client_id, "x")] * 3


def test_generated_client_ids_name_the_group_and_are_unique() -> None:
    first, second = ScriptedConsumer(), ScriptedConsumer()
    static = ScriptedConsumer(group_instance_id="i")
    given = ScriptedConsumer(client_id="mine")
    ids = [scripted.consumer._parts.client_id for scripted in (first, second, static, given)]
    assert ids[0].startswith(f"consumer-{GROUP}-")
    assert len(set(ids)) == 4
    assert ids[2:] == [f"consumer-{GROUP}-i", "mine"]


def test_an_assignor_may_be_an_object() -> None:
    assignor = RangeAssignor()
    scripted = ScriptedConsumer(partition_assignment_strategy=[assignor, "roundrobin"])
    scripted.join(TP0)
    assert [each.name for each in scripted.sent(JOIN_GROUP)[0].protocols] == ["range", "roundrobin"]


def test_two_assignors_with_the_same_name_are_an_error() -> None:
    with pytest.raises(InvalidConfigException, match="have the same name"):
        ScriptedConsumer(partition_assignment_strategy=[RangeAssignor(), "range"])


# --- a constructor that fails -------------------------------------------------------------------------------------


def test_a_constructor_that_fails_late_closes_what_it_had_opened() -> None:
    settings: dict[str, object] = {
        **BOOTSTRAP, "group.id": GROUP, "interceptor.classes": path_of(Recorder),
        "value.deserializer": path_of(KeyRecorder), "partition.assignment.strategy": path_of(Broken),
    }  # fmt: skip
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(InvalidConfigException, match="no such file") as raised:
        KafkaConsumer(settings)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert sorted(kind.__name__ for kind in Recorder.closed) == ["KeyRecorder", "Recorder"]
    if files:
        assert len(os.listdir("/proc/self/fd")) == files


@pytest.mark.parametrize(
    ("settings", "closed"),
    [
        ({"interceptor.classes": f"{path_of(Recorder)},{path_of(Broken)}"}, [Recorder]),
        ({"key.deserializer": path_of(KeyRecorder), "value.deserializer": path_of(Broken)}, [KeyRecorder]),
        ({"interceptor.classes": path_of(Recorder), "key.deserializer": path_of(Broken)}, [Recorder]),
    ],
)
def test_a_class_that_cannot_be_created_closes_the_objects_before_it(
    settings: dict[str, object], closed: list[type]
) -> None:
    with pytest.raises(InvalidConfigException, match="no such file"):
        KafkaConsumer({**BOOTSTRAP, **settings})
    assert Recorder.closed == closed


def test_another_failure_of_the_constructor_is_one_error_with_the_cause() -> None:
    cause = OSError("too many open files")

    def no_client(*_: object) -> Any:
        raise cause

    config = KafkaConsumerConfig({**BOOTSTRAP, "interceptor.classes": path_of(Recorder)})
    with pytest.raises(KafkaException, match="could not be created: too many open files") as raised:
        consumer_in(ConsumerEnvironment(new_kafka_client=no_client), config)
    assert raised.value.__cause__ is cause
    assert Recorder.closed == [Recorder]


def test_brokers_that_cannot_be_parsed_are_an_error() -> None:
    with pytest.raises(InvalidConfigException, match=r"bootstrap\.servers"):
        KafkaConsumer({"bootstrap.servers": "invalid-23-8409-adsfsdj"})


# --- canonical names ----------------------------------------------------------------------------------------------


def test_canonical_names_are_looked_up_only_with_their_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def bootstrap_addresses(servers: list[tuple[str, int]], client_dns_lookup: str) -> list[tuple[str, int]]:
        return [("canonical", 1)] if client_dns_lookup == RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY else servers

    monkeypatch.setattr("bridge.client.kafka_consumer.consumer_components.bootstrap_addresses", bootstrap_addresses)
    plain = ScriptedConsumer()
    canonical = ScriptedConsumer(client_dns_lookup=RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY)
    nodes = [scripted.kafka.metadata.fetch().nodes[0].host for scripted in (plain, canonical)]
    assert nodes == ["localhost", "canonical"]


def test_a_host_without_an_address_is_an_error_of_the_constructor_and_closes_what_it_had_opened() -> None:
    with pytest.raises(KafkaException, match="could not be created") as raised:
        KafkaConsumer({"bootstrap.servers": "host.invalid:9092", "interceptor.classes": path_of(Recorder)})
    assert "host.invalid" in str(raised.value)
    assert Recorder.closed == [Recorder]
