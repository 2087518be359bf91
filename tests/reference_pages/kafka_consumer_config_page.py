"""The page ``migration_docs/reference/kafka-consumer-config.md``, from the tables of settings.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.client.kafka_consumer.kafka_consumer_config import KafkaClientSettings, KafkaConsumerConfig
from bridge.client.kafka_consumer_keys import assignor_names
from tests.reference_pages.config_page import settings_table
from zkconsumer.config_def import SettingsTable, SettingStatus
from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings
from zkconsumer.config_tables.transaction_settings import TransactionSettings
from zkconsumer.configuration import SettingRow, settings_of
from zkconsumer.kafka.group.group_member_config import MemberSettings
from zkconsumer.other_client_keys import java_client_key_text, java_client_keys

_PAGE = """\
# Settings of KafkaConsumer

<!-- Generated: python tests/generate_docs.py --write -->

Every setting of [`bridge.KafkaConsumer`](kafka-consumer.md): type, allowed values, default, meaning; then the keys
of Kafka's own consumer that have no effect here, and those that are errors. Names and ranges are those of Kafka 3.0.

- `KafkaConsumer({{"bootstrap.servers": "host:9092", "group.id": "g"}})` takes a dictionary, with Kafka's keys.
- `KafkaConsumer(KafkaConsumerConfig.from_properties("consumer.properties"))` reads the file of a Java consumer.
- `KafkaConsumerConfig(bootstrap_servers="host:9092", group_id="g")` takes keywords, with `_` for `.`.

Numbers and booleans may be given as text. An error (`InvalidConfigException`) contains all problems, one a line.

## Settings

{client}

## Settings of the group and of requests

`retry.backoff.max.ms` limits the pause between requests of the group; requests for metadata and positions are repeated
after `retry.backoff.ms` each time.

{group}

## TLS and login

All members of this project have these settings. Sentences about ZooKeeper and streams do not concern `KafkaConsumer`,
which gets `oauth_token` by its constructor.

{brokers}

## Settings that must fit each other

These are errors:

| settings | error |
|---|---|
| `group.id` and `enable.auto.commit` | `enable.auto.commit=true` in the configuration, and no `group.id` |
| `heartbeat.interval.ms` and `session.timeout.ms` | the first is not less than the second |
| `fetch.max.wait.ms` and `request.timeout.ms` | the first is not less than the second |

## Differences from Kafka 3.0

These keys have another default in `org.apache.kafka.clients.consumer.ConsumerConfig` of 3.0:

| key | default in Kafka 3.0 | default here |
|---|---|---|
{differing}

Kafka 3.0 does not have these keys: {own}.

## Keys without effect

The constructor logs a line `setting-ignored` for each of these keys that is in the configuration.
`KafkaConsumerConfig.ignored` has the key and the reason.

| key | why |
|---|---|
{ignored}

A key that is not known is ignored in the same way. As in Java, it is passed to `configure` of your interceptors,
deserializers and assignors, with all other keys of the configuration. As a keyword (`KafkaConsumerConfig(…)`) it is an
error.

## Keys that are errors

These would change what the program reads, or how it connects, and are not supported. The constructor raises
`InvalidConfigException`.

| key | accepted value | why |
|---|---|---|
{rejected}
"""

_SAME = {"null": "none", "": "none", "(required)": "must be given"}
"""Values in the table of Kafka's defaults -> our texts."""

_PREFIXES = (java_client_key_text(""), "a setting of TLS and SASL in Java; ")
"""What a reason begins with in the log, where it is not clear which program has the key."""


def _rows(tables: list[type[SettingsTable]], without: list[type[SettingsTable]]) -> list[SettingRow]:
    """The settings of these tables that the configuration has from there, and not from the tables before."""
    earlier = settings_of(without)
    keys = [key for key in settings_of(tables) if key not in earlier]
    rows = {row.key: row for row in KafkaConsumerConfig.describe()}
    return [_shown(rows[key]) for key in keys]


def _shown(row: SettingRow) -> SettingRow:
    is_required = row.key == "bootstrap.servers"
    return row._replace(default="must be given" if is_required else row.default or "none")


def _with_later_keys(kafkas: Mapping[str, str]) -> dict[str, str]:
    """Kafka's keys with a value of each, and the keys of later releases."""
    return {**kafkas, **{key: "" for key in java_client_keys() if key not in kafkas}}


def outcome_rows(kafkas: Mapping[str, str], status: SettingStatus) -> Iterator[tuple[str, str]]:
    """The keys that are treated so, and why.  ``kafkas``: the keys of Kafka's own consumer -> a value of each."""
    for key, value in _with_later_keys(kafkas).items():
        outcome = KafkaConsumerConfig.outcome_of(key, value)
        if outcome.status is status:
            reason = outcome.reason
            for prefix in _PREFIXES:
                reason = reason.removeprefix(prefix)
            yield key, reason


def _accepted_value(key: str) -> str:
    """The only value of a key that is otherwise an error."""
    values = ("classic", "true")
    return next((f"`{value}`" for value in values if KafkaConsumerConfig.is_only_supported_value(key, value)), "-")


def _differing(defaults: Mapping[str, str]) -> Iterator[str]:
    rows = {row.key: _shown(row) for row in KafkaConsumerConfig.describe()}
    for key, row in rows.items():
        there = defaults.get(key)
        if there is None:
            continue
        if key == "partition.assignment.strategy":
            there = ",".join(assignor_names(there))
        there = _SAME.get(there, there)
        if there != row.default and key != "bootstrap.servers":  # there it is an empty list, and then an error
            yield f"| `{key}` | {there} | {row.default} |"


def render(kafkas: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """The whole page.

    ``kafkas``: the keys of Kafka's own consumer -> a value of each; ``defaults``: the same keys -> Kafka 3.0's default.
    """
    own = [row.key for row in KafkaConsumerConfig.describe() if row.key not in kafkas]
    return _PAGE.format(
        client=settings_table(_rows([KafkaClientSettings, TransactionSettings], [])),
        group=settings_table(_rows([MemberSettings], [KafkaClientSettings])),
        brokers=settings_table(_rows([BrokerConnectionSettings], [KafkaClientSettings])),
        differing="\n".join(_differing(defaults)),
        own=", ".join(f"`{key}`" for key in own),
        ignored="\n".join(f"| `{key}` | {why} |" for key, why in outcome_rows(kafkas, SettingStatus.IGNORED)),
        rejected="\n".join(
            f"| `{key}` | {_accepted_value(key)} | {why} |" for key, why in outcome_rows(kafkas, SettingStatus.REJECTED)
        ),
    )
