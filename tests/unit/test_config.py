"""The settings: old files as they stand, and every problem at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zkconsumer.config import SETTINGS, TABLES, ConsumerConfig
from zkconsumer.config_def import Origin, SameAsSetting, secret
from zkconsumer.errors import InvalidConfigException, UsageError
from zkconsumer.properties import decode_properties, parse_properties

NEEDED = {"group.id": "g", "zookeeper.connect": "zk1:2181"}


def config(**settings: object) -> ConsumerConfig:
    return ConsumerConfig(**{"group_id": "g", "zookeeper_connect": "zk1:2181", **settings})


def problems(properties: Any) -> list[str]:
    with pytest.raises(InvalidConfigException) as refused:
        ConsumerConfig.from_properties(properties)
    return str(refused.value).split("\n  ")[1:]


# --- the table ----------------------------------------------------------------------------------------------------

DEFAULTS_OF_THE_ORIGINAL = {
    "zookeeper.session.timeout.ms": 6000,
    "zookeeper.connection.timeout.ms": 6000,
    "zookeeper.sync.time.ms": 2000,
    "consumer.id": None,
    "client.id": "g",
    "socket.timeout.ms": 30000,
    "socket.receive.buffer.bytes": 65536,
    "fetch.message.max.bytes": 1048576,
    "fetch.max.bytes": 52428800,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 100,
    "num.consumer.fetchers": 1,
    "queued.max.message.chunks": 2,
    "auto.commit.enable": True,
    "auto.commit.interval.ms": 60000,
    "auto.offset.reset": "largest",
    "consumer.timeout.ms": -1,
    "rebalance.max.retries": 4,
    "rebalance.backoff.ms": 2000,
    "refresh.leader.backoff.ms": 200,
    "offsets.storage": "zookeeper",
    "dual.commit.enabled": False,
    "offsets.channel.backoff.ms": 1000,
    "offsets.channel.socket.timeout.ms": 10000,
    "offsets.commit.max.retries": 5,
    "exclude.internal.topics": True,
    "partition.assignment.strategy": "range",
}
DEFAULTS_OF_NEWER_CLIENTS: dict[str, object] = {
    "bootstrap.servers": None,
    "metadata.max.age.ms": 30000,
    "api.version.request": True,
    "isolation.level": "read_uncommitted",
    "security.protocol": "PLAINTEXT",
    "ssl.truststore.location": None,
    "ssl.truststore.type": "PEM",
    "ssl.ca.location": None,
    "ssl.keystore.location": None,
    "ssl.keystore.type": "PEM",
    "ssl.certificate.location": None,
    "ssl.key.location": None,
    "ssl.key.password": None,
    "ssl.endpoint.identification.algorithm": "https",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "sasl.mechanism": None,
    "sasl.username": None,
    "sasl.password": None,
    "sasl.jaas.config": None,
    "sasl.kerberos.service.name": "kafka",
    "zookeeper.set.acl": False,
    "zookeeper.ssl.client.enable": False,
    "zookeeper.ssl.truststore.location": None,
    "zookeeper.ssl.truststore.type": "PEM",
    "zookeeper.ssl.keystore.location": None,
    "zookeeper.ssl.keystore.type": "PEM",
    "zookeeper.ssl.keystore.password": None,
    "zookeeper.ssl.endpoint.identification.algorithm": "https",
}
DEFAULTS_OF_OURS = {
    "consumer.connector": "zookeeper",
    "release.settle.ms": 0,
    "rebalance.offsets.timeout.ms": 2500,
    "rebalance.drain.timeout.ms": 2000,
    "rebalance.listener.timeout.ms": 5000,
    "rebalance.fail.fast": False,
    "rebalance.debounce.ms": 50,
    "roundrobin.compatibility": "auto",
    "new.partitions.from.beginning": True,
    "offsets.older.than.topic": "use",
    "fetch.pause.ms": 3,
    "queued.max.bytes": 104857600,
    "health.socket": None,
    "zookeeper.auth": None,
}


def test_all_keys_are_there_with_the_originals_defaults() -> None:
    assert config().values == NEEDED | DEFAULTS_OF_THE_ORIGINAL | DEFAULTS_OF_NEWER_CLIENTS | DEFAULTS_OF_OURS
    for defaults, origin in (
        (NEEDED | DEFAULTS_OF_THE_ORIGINAL, Origin.SCALA_CONSUMER),
        (DEFAULTS_OF_NEWER_CLIENTS, Origin.NEWER_CLIENTS),
        (DEFAULTS_OF_OURS, Origin.ZKCONSUMER),
    ):
        assert set(defaults) == {key for key, setting in SETTINGS.items() if setting.origin is origin}


def test_no_key_stands_in_two_tables_and_defaults_follow_from_what_stands_above() -> None:
    keys = [setting.key for table in TABLES for setting in vars(table).values() if hasattr(setting, "key")]
    assert keys == list(SETTINGS)
    for setting in SETTINGS.values():
        if isinstance(setting.default, SameAsSetting):
            assert keys.index(setting.default.key) < keys.index(setting.key)


def test_a_secret_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    password = secret("the.password", "A word.", "any text")
    password.attribute = "the_password"
    monkeypatch.setitem(SETTINGS, "the.password", password)
    given = ConsumerConfig.from_properties({**NEEDED, "the.password": "hush-hush"})
    assert given.values["the.password"] == "hush-hush"
    assert "the_password=[hidden]" in repr(given)
    [problem] = problems({**NEEDED, "the.password": ["hush-hush"]})
    assert problem.startswith("the.password=[hidden]: ")
    assert "hush" not in repr(given) + str(given.describe()) + problem


def test_attributes_are_the_keys_with_underscores() -> None:
    assert {setting.attribute for setting in SETTINGS.values()} == {key.replace(".", "_") for key in SETTINGS}
    assert config().fetch_message_max_bytes == 1048576


def test_every_setting_is_described_once() -> None:
    rows = ConsumerConfig.describe()
    assert [row.key for row in rows] == list(SETTINGS)
    assert all(row.description.endswith(".") or row.description.endswith(")") for row in rows)
    assert {row.unit for row in rows if row.key.endswith(".ms")} == {"ms"}
    assert {row.unit for row in rows if row.key.endswith(".bytes")} == {"bytes"}


# --- defaults that follow -----------------------------------------------------------------------------------------


def test_defaults_follow_from_other_settings_as_in_the_original() -> None:
    made = config(zookeeper_session_timeout_ms=30000, zookeeper_sync_time_ms=500)
    assert made.zookeeper_connection_timeout_ms == 30000
    assert made.rebalance_backoff_ms == 500
    assert made.client_id == "g"
    assert config(zookeeper_sync_time_ms=500, rebalance_backoff_ms=1).rebalance_backoff_ms == 1


def test_overrides_derive_the_defaults_anew_and_leave_the_first_alone() -> None:
    first = config(zookeeper_session_timeout_ms=30000)
    second = first.with_overrides({"zookeeper.session.timeout.ms": "9000", "group_id": "h"})
    assert (second.zookeeper_connection_timeout_ms, second.client_id) == (9000, "h")
    assert (first.zookeeper_connection_timeout_ms, first.client_id) == (30000, "g")
    assert second == config(group_id="h", zookeeper_session_timeout_ms=9000)
    with pytest.raises(InvalidConfigException, match=r"did you mean group\.id"):
        first.with_overrides({"group.it": "h"})


def test_a_configuration_does_not_change() -> None:
    made = config()
    with pytest.raises(AttributeError, match="with_overrides"):
        made.group_id = "h"  # type: ignore[misc, assignment]
    with pytest.raises(AttributeError, match="with_overrides"):
        made.other = 1  # type: ignore[attr-defined]
    assert hash(made) == hash(config())
    assert repr(made) == "ConsumerConfig(group_id='g', zookeeper_connect='zk1:2181')"


# --- what the original's ConfigTest asserts -----------------------------------------------------------------------


@pytest.mark.parametrize("key", ["group.id", "client.id"])
@pytest.mark.parametrize("bad", [*"/\\,\0:\"';*?", "a b", "a\tb", "a\rb", "a\nb", "="])
def test_illegal_names_are_refused(key: str, bad: str) -> None:
    """ConfigTest.testInvalidClientIds and testInvalidGroupIds."""
    name = f"a{bad}b"
    [problem] = problems(NEEDED | {key: name})
    assert problem.startswith(f"{key}=")
    assert "contains a character other than ASCII alphanumerics, '.', '_' and '-'" in problem


@pytest.mark.parametrize("key", ["group.id", "client.id"])
@pytest.mark.parametrize("good", ["valid", "INSTANCE", "gRoUp", "ar6", "VaL1d", "_0-9_."])
def test_legal_names_pass(key: str, good: str) -> None:
    assert ConsumerConfig.from_properties(NEEDED | {key: good}).values[key] == good


def test_the_empty_name_passes_for_a_client_but_cannot_be_a_group_in_zookeeper() -> None:
    assert config(client_id="").client_id == ""
    for name in ("", ".", ".."):
        [problem] = problems(NEEDED | {"group.id": name})
        assert "paths in ZooKeeper" in problem


# --- values -------------------------------------------------------------------------------------------------------


def test_all_problems_are_told_at_once_with_key_value_and_remedy() -> None:
    told = problems(
        {
            "zookeeper.connect": "zk1:2181/kafka,zk2:2181/kafka",
            "fetch.mesage.max.bytes": "1",
            "rebalance.max.retries": "0",
            "auto.offset.reset": "earliest",
            "auto.commit.enable": "yes",
            "partition.assignment.strategy": "RoundRobin",
        }
    )
    assert told == [
        "fetch.mesage.max.bytes is not known: did you mean fetch.message.max.bytes?",
        "group.id is missing: it must be given; allowed is letters, digits, '.', '_' and '-' of ASCII; not empty",
        "partition.assignment.strategy=RoundRobin: set it to range or roundrobin, or remove it (the default is range)",
        "zookeeper.connect=zk1:2181/kafka,zk2:2181/kafka: write the chroot only once, after the last server; "
        "set it to HOST:PORT[,HOST:PORT…][/CHROOT]",
        "rebalance.max.retries=0: set it to an integer from 1 to 2147483647, in attempts, "
        "or remove it (the default is 4)",
        "auto.offset.reset=earliest: that is the new consumer's name for smallest; "
        "set it to largest or smallest, or remove it (the default is largest)",
        "auto.commit.enable=yes: set it to true or false, or remove it (the default is true)",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fetch.min.bytes", "1.0"),
        ("fetch.min.bytes", "1_000"),
        ("fetch.min.bytes", "0x10"),
        ("fetch.min.bytes", ""),
        ("fetch.min.bytes", "٣"),
        ("fetch.min.bytes", "2147483648"),
        ("fetch.min.bytes", "9" * 5000),
        ("fetch.min.bytes", True),
        ("fetch.min.bytes", 1.0),
        ("fetch.min.bytes", None),
        ("auto.commit.enable", "True"),
        ("auto.commit.enable", "1"),
        ("auto.commit.enable", 1),
        ("auto.offset.reset", "Smallest"),
        ("group.id", 7),
        ("consumer.id", "a/b"),
        ("consumer.id", "a\x00b"),
        ("queued.max.message.chunks", 0),
        ("zookeeper.session.timeout.ms", -1),
        ("fetch.message.max.bytes", 0),
        ("auto.commit.interval.ms", 0),
        ("roundrobin.compatibility", "0.9"),
        ("health.socket", "run/x"),
        ("release.settle.ms", -1),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_key(key: str, value: object) -> None:
    [problem] = problems({**NEEDED, key: value})
    assert problem.startswith(f"{key}=")
    assert len(problem) < 400


def test_values_are_trimmed_as_from_0_9_on() -> None:
    made = ConsumerConfig.from_properties(
        {
            "group.id": " g\t",
            "zookeeper.connect": "zk1:2181, zk2 ,",
            "fetch.min.bytes": " +5 ",
            "auto.commit.enable": "false ",
        }
    )
    assert made.group_id == "g"
    assert made.zookeeper_connect == "zk1:2181,zk2"
    assert made.fetch_min_bytes == 5
    assert made.auto_commit_enable is False


@pytest.mark.parametrize(
    "connect", ["zk1", "zk1:2181", "10.0.0.1:2181,10.0.0.2:2181/a/b", "[::1]:2181", "[::1]", "zk1:2181/"]
)
def test_servers_with_and_without_port_and_chroot(connect: str) -> None:
    assert config(zookeeper_connect=connect).zookeeper_connect == connect


@pytest.mark.parametrize(
    "connect",
    ["", "zk1:", ":2181", "zk1:0", "zk1:65536", "zk1:x", "zk1,,zk2", "z k:1", "zk1/a/", "zk1/a//b", "zk1/../b"],
)
def test_servers_that_cannot_be_reached_by_anybody(connect: str) -> None:
    [problem] = problems({"group.id": "g", "zookeeper.connect": connect})
    assert problem.startswith(f"zookeeper.connect={connect}: ")


def test_the_socket_timeout_must_cover_the_wait_of_a_fetch() -> None:
    assert config(socket_timeout_ms=100).socket_timeout_ms == 100
    [problem] = problems(NEEDED | {"socket.timeout.ms": "99"})
    assert "at least fetch.wait.max.ms=100" in problem


@pytest.mark.parametrize("spelling", ["kafka", "KAFKA", "Kafka"])
@pytest.mark.parametrize(("dual", "is_dual"), [({}, True), ({"dual.commit.enabled": "false"}, False)])
def test_offsets_in_kafka_are_committed_to_both_stores_unless_told_otherwise(
    spelling: str, dual: dict[str, str], is_dual: bool
) -> None:
    made = ConsumerConfig.from_properties(NEEDED | {"offsets.storage": spelling} | dual)
    assert (made.offsets_storage, made.dual_commit_enabled) == ("kafka", is_dual)
    assert not made.ignored


def test_dual_commit_follows_the_storage_when_that_is_overridden() -> None:
    made = ConsumerConfig.from_properties(NEEDED | {"dual.commit.enabled": "true"})
    assert made.dual_commit_enabled is False
    assert made.with_overrides({"offsets.storage": "kafka"}).dual_commit_enabled is True
    given = ConsumerConfig.from_properties(NEEDED | {"dual.commit.enabled": "false"})
    assert given.with_overrides({"offsets.storage": "kafka"}).dual_commit_enabled is False


def test_dual_commit_without_offsets_in_kafka_has_no_effect_as_in_the_original() -> None:
    made = ConsumerConfig.from_properties(NEEDED | {"offsets.storage": "ZooKeeper", "dual.commit.enabled": "true"})
    assert made.offsets_storage == "zookeeper"
    assert made.dual_commit_enabled is False
    assert "dual.commit.enabled" in made.ignored


def test_less_than_zero_is_a_value_where_the_original_takes_it() -> None:
    made = config(consumer_timeout_ms=-7, socket_receive_buffer_bytes=-1)
    assert (made.consumer_timeout_ms, made.socket_receive_buffer_bytes) == (-7, -1)


# --- keys ---------------------------------------------------------------------------------------------------------


def test_keys_of_other_programs_are_set_aside_and_named() -> None:
    foreign = {
        "external.color": "blue",
        "externalColor": "blue",
        "kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter",
        "kafka.csv.metrics.reporter.enabled": "true",
        "mirror.topics.whitelist": ".*",
        "metadata.max.age.ms": "1000",
        "enable.auto.commit": "false",
        "ssl.keystore.password": "secret",
        "metadata.broker.list": "b:9092",
        "zk.connect": "zk1:2181",
        "serializer.encoding": "utf-8",
    }
    made = ConsumerConfig.from_properties({**NEEDED, **foreign})
    assert set(made.ignored) == set(foreign)
    assert made.ignored["enable.auto.commit"] == "a key of the new consumer; set auto.commit.enable instead"
    assert "secret" not in str(made.ignored) + repr(made)
    assert made.with_overrides({"group.id": "h"}).ignored == made.ignored


@pytest.mark.parametrize(
    "key",
    [
        "kafka.metrics.reporters",
        "kafka.metrics.polling.interval.secs",
        "kafka.csv.metrics.reporter.enabled",
        "kafka.csv.metrics.dir",
        "mirror.topics.whitelist",
        "mirror.topics.blacklist",
        "mirror.consumer.numthreads",
    ],
)
def test_a_key_of_the_original_without_effect_here_is_set_aside_and_named(key: str) -> None:
    made = ConsumerConfig.from_properties({**NEEDED, key: "1"})
    assert set(made.ignored) == {key}
    assert made == ConsumerConfig.from_properties(NEEDED)


def test_no_key_of_ours_is_taken_for_foreign() -> None:
    from zkconsumer.other_client_keys import replacement_key, why_ignored

    assert [key for key in SETTINGS if why_ignored(key)] == []
    assert [key for key in SETTINGS if replacement_key(key)] == []


def test_an_unknown_key_names_the_nearest() -> None:
    assert problems(NEEDED | {"auto.commit.intervall.ms": "1"}) == [
        "auto.commit.intervall.ms is not known: did you mean auto.commit.interval.ms?"
    ]
    assert problems(NEEDED | {"GROUP_ID": "1"}) == ["GROUP_ID is not known: did you mean group.id?"]
    assert problems(NEEDED | {"colour": "blue"}) == [
        "colour is not known: remove it, or write external.colour if the application reads it"
    ]


def test_a_key_of_0_7_in_place_of_a_needed_one_is_explained() -> None:
    [problem] = problems({"groupid": "g", "zookeeper.connect": "zk1"})
    assert problem.startswith("group.id is missing")
    assert "groupid" in problem


def test_an_unknown_keyword_names_the_nearest_attribute() -> None:
    with pytest.raises(InvalidConfigException, match="did you mean fetch_min_bytes"):
        config(fetch_min_byte=1)
    with pytest.raises(InvalidConfigException, match=r"set auto\.commit\.enable instead"):
        config(enable_auto_commit=False)


def test_names_of_kafka_python_are_answered_with_ours() -> None:
    with pytest.raises(InvalidConfigException) as refused:
        config(
            ssl_cafile="/ca.pem", sasl_plain_username="alice", ssl_context=object(), bootstrap_servers=["a:1", "b:2"]
        )
    assert str(refused.value).splitlines()[1:] == [
        "  ssl_cafile is not known: it is a setting of kafka-python; set ssl_truststore_location instead",
        "  sasl_plain_username is not known: it is a setting of kafka-python; set sasl_username instead",
        "  ssl_context is not known: it is a setting of kafka-python; set the PEM files in ssl.truststore.location and "
        "ssl.keystore.location",
        "  bootstrap.servers=['a:1', 'b:2']: it must be one text, with commas between its items; set it to "
        "HOST:PORT[,HOST:PORT…]",
    ]
    assert problems(NEEDED | {"ssl.cafile": "/ca.pem"}) == [
        "ssl.cafile is not known: it is a setting of kafka-python; set ssl.truststore.location instead"
    ]


def test_a_dictionary_of_keys_makes_one_as_a_file_does() -> None:
    made = ConsumerConfig({**NEEDED, "auto.offset.reset": "smallest", "external.color": "blue"})
    assert made == ConsumerConfig.from_properties({**NEEDED, "auto.offset.reset": "smallest"})
    assert set(made.ignored) == {"external.color"}
    assert ConsumerConfig(NEEDED, auto_offset_reset="smallest") == made
    assert ConsumerConfig(NEEDED, group_id="g").group_id == "g"


def test_a_dictionary_and_keywords_that_disagree_are_an_error() -> None:
    words = r"group\.id and group_id are the same setting with different values \(g and h\)"
    with pytest.raises(InvalidConfigException, match=words):
        ConsumerConfig(NEEDED, group_id="h")
    with pytest.raises(InvalidConfigException) as refused:
        ConsumerConfig({**NEEDED, "sasl.password": "hush"}, sasl_password="hush-hush")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("given", ["consumer.properties", Path("consumer.properties"), "sasl.password=hush", ["a"], 7])
def test_what_is_no_dictionary_says_how_a_configuration_is_made(given: Any) -> None:
    with pytest.raises(InvalidConfigException) as refused:
        ConsumerConfig(given)
    assert 'ConsumerConfig.from_properties("consumer.properties")' in str(refused.value)
    assert "hush" not in str(refused.value)


def test_the_error_is_the_users_and_has_the_originals_name() -> None:
    assert issubclass(InvalidConfigException, UsageError)


# --- files --------------------------------------------------------------------------------------------------------

OLD_FILE = """\
# Licensed to somebody
!  another comment
zookeeper.connect=127.0.0.1:2181,\\
                  127.0.0.2:2181/kafka

group.id = test-consumer-group
auto.offset.reset:smallest
fetch.wait.max.ms 50
  consumer\\.id=\\u0061\\
  # not a comment
"""


def test_an_old_file_is_read_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(OLD_FILE, encoding="latin-1")
    made = ConsumerConfig.from_properties(file)
    assert made.zookeeper_connect == "127.0.0.1:2181,127.0.0.2:2181/kafka"
    assert made.group_id == "test-consumer-group"
    assert made.auto_offset_reset == "smallest"
    assert made.fetch_wait_max_ms == 50
    assert made.consumer_id == "a# not a comment"
    assert made == ConsumerConfig.from_properties(str(file)) == ConsumerConfig.from_properties(OLD_FILE)
    assert made.given == {
        "zookeeper.connect", "group.id", "auto.offset.reset", "fetch.wait.max.ms", "consumer.id",
    }  # fmt: skip


def test_settings_win_over_the_file_and_are_checked_with_it(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=g\nexternal.x=1\nfetch.wait.max.ms=0.5\n")
    made = ConsumerConfig.from_files(file, {"zookeeper.connect": "zk1", "fetch.wait.max.ms": "5"})
    assert (made.group_id, made.fetch_wait_max_ms, set(made.ignored)) == ("g", 5, {"external.x"})
    with pytest.raises(InvalidConfigException) as refused:
        ConsumerConfig.from_files(file, {"metadata.broker.list": "b:9092"})
    assert str(refused.value).count("\n") == 3, "the file's, the override's and the missing one"
    assert ConsumerConfig.from_files(None, dict(NEEDED)) == config()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for source in (tmp_path / "none", str(tmp_path), "no-such-file.properties", "a\0b"):
        with pytest.raises(InvalidConfigException, match="cannot be read"):
            ConsumerConfig.from_properties(source)
    bad = tmp_path / "bad.properties"
    bad.write_text("group.id=g\n\ngroup.id=\\u12")
    with pytest.raises(InvalidConfigException, match=r"bad\.properties: line 3: \\u must be followed"):
        ConsumerConfig.from_properties(bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a = b = c", {"a": "b = c"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a   :   b  ", {"a": "b  "}),
        ("a\t=\f b", {"a": "b"}),
        ("a=1\ra=2\r\na=3", {"a": "3"}),
        (r"a\=\:\ b=c", {"a=: b": "c"}),
        (r"a=\t\n\r\f\q\\", {"a": "\t\n\r\fq\\"}),
        ("a=1\\\n\n b=2", {"a": "1", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        (r"a=\u00e9\ud83d\ude00", {"a": "é\U0001f600"}),
        ("# c\\\na=1", {"a": "1"}),
        ("=v", {"": "v"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_files_are_utf8_or_else_latin1() -> None:
    assert decode_properties("é".encode()) == "é"
    assert decode_properties(b"\xef\xbb\xbfa") == "a"
    assert decode_properties(b"\xe9=\xff") == "é=ÿ"
