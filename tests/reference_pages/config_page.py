"""The page ``migration_docs/reference/config.md``, from the tables of settings.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zkconsumer import other_client_keys
from zkconsumer.config import ConsumerConfig
from zkconsumer.config_def import Origin, SettingOutcome
from zkconsumer.configuration import SettingRow
from zkconsumer.other_client_keys import java_client_keys

_HEADINGS = {
    Origin.SCALA_CONSUMER: """\
Settings of the Scala consumer

As in 0.8 to 1.1, with the same defaults. Integers and booleans are trimmed; booleans are exactly `true` or `false`.""",
    Origin.NEWER_CLIENTS: """\
Settings of newer clients

The Scala consumer has none of these. Names and meanings are those of Kafka's newer clients and brokers.""",
    Origin.ZKCONSUMER: "Settings of zkconsumer",
}

_PAGE = """\
# Settings

<!-- Generated: python tests/generate_docs.py --write -->

Every setting of a member of a ZooKeeper group: type, allowed values, default, meaning; and which keys have no effect.
`ConsumerConfig` reads them from a file, from keywords, or from a dictionary.

- `ConsumerConfig.from_properties("consumer.properties")` reads the files of the Scala consumer without changes.
- `ConsumerConfig(group_id="g", zookeeper_connect="zk1:2181/kafka")` takes keywords, with `_` for `.`.
- `ConsumerConfig({{"group.id": "g", "zookeeper.connect": "zk1:2181/kafka"}})` takes a dictionary.

An error contains all problems, one a line.

{tables}

## Keys without effect

Several programs often use the same file. These keys are accepted and have no effect; `ConsumerConfig.ignored` names
them. Any other unknown key is an error that names the most similar known key. (The Scala consumer only logs it.)

{foreign}

## Keys of Kafka's own consumer

The effect of each key of `org.apache.kafka.clients.consumer.ConsumerConfig` of Kafka 3.0, and of keys of later
releases, in a `ConsumerConfig`. `ConsumerConfig.ignored` names a key without effect, and the connector logs a line
`setting-ignored` for it. A member of a coordinator group
[supports nearly all of them](coordinator-config.md#keys-of-kafkas-own-consumer).

{kafkas}

## How files are read

As `java.util.Properties` reads them: `#` and `!` begin comments; `=`, `:` or a blank separates key and value; a
backslash at the end of a line joins the next one; `\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are escapes; of two equal
keys the later one is valid. A file that is not UTF-8 is read as Latin-1.
"""


def render(kafkas: Mapping[str, str]) -> str:
    """The whole page.  ``kafkas``: the keys of Kafka's own consumer -> a value of each."""
    later = {key: "" for key in java_client_keys() if key not in kafkas}
    rows = ConsumerConfig.describe()
    tables = [
        f"## {heading}\n\n{settings_table(chosen)}"
        for origin, heading in _HEADINGS.items()
        if (chosen := [row for row in rows if row.origin is origin])
    ]
    return _PAGE.format(
        tables="\n\n".join(tables),
        foreign="\n".join(
            ["| keys | why |", "|---|---|", *(f"| {keys} | {why} |" for keys, why in ignored_key_rows())]
        ),
        kafkas=outcome_table({**kafkas, **later}, {"effect": ConsumerConfig.outcome_of}),
    )


def ignored_key_rows() -> list[tuple[str, str]]:
    """Which keys are ignored, and why."""
    rows = [(f"`{prefix}*`", words) for prefix, words in other_client_keys._PREFIXES.items()]
    rows.append((_listed(other_client_keys._KEYS_OF_0_7), "keys of Kafka 0.7"))
    rows.append((_listed(other_client_keys._PRODUCER_KEYS), "keys of the producers"))
    rows.append((_listed(other_client_keys._DECODER_KEYS), "read by decoders, not by the consumer"))
    return rows


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in sorted(keys))


def settings_table(rows: Iterable[SettingRow]) -> str:
    """A table of these settings: key, type and unit, allowed values, default, meaning."""
    lines = ["| key | type | allowed | default | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        type_ = f"{row.type}, {row.unit}" if row.unit else row.type
        lines.append(f"| `{row.key}` | {type_} | {row.allowed} | {row.default} | {row.description} |")
    return "\n".join(lines)


def outcome_table(keys: Mapping[str, str], columns: Mapping[str, Callable[[str, str], SettingOutcome]]) -> str:
    """A table of the effect of these keys with these values: one column for each class of settings."""
    lines = [f"| key | {' | '.join(columns)} |", f"|{'---|' * (1 + len(columns))}"]
    for key, value in keys.items():
        found = [outcome(key, value) for outcome in columns.values()]
        cells = [f"{each.status.value}{f': {each.reason}' if each.reason else ''}" for each in found]
        lines.append(f"| `{key}` | {' | '.join(cells)} |")
    return "\n".join(lines)
