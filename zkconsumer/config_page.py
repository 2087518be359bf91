"""The page ``migration_docs/reference/config.md``, from the tables of settings.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from zkconsumer.config import ConsumerConfig, SettingRow
from zkconsumer.config_def import Origin, SettingOutcome
from zkconsumer.other_client_keys import ignored_key_rows, java_client_keys

_HEADINGS = {
    Origin.SCALA_CONSUMER: """\
Settings of the original

As in 0.8 to 1.1, with the same defaults. Integers and booleans are trimmed; booleans are exactly `true` or `false`.""",
    Origin.NEWER_CLIENTS: """\
Settings of newer clients

The original has none of these. Their names and their meaning are those of Kafka's newer clients and of its brokers.""",
    Origin.ZKCONSUMER: "Settings of this program",
}

_PAGE = """\
# Settings

<!-- Generated: python tests/generate_docs.py --write -->

`ConsumerConfig.from_properties("consumer.properties")` reads the files of the original as they stand;
`ConsumerConfig(group_id="g", zookeeper_connect="zk1:2181/kafka")` takes the same settings by keyword, with `_` for
`.`, and `ConsumerConfig({{"group.id": "g", "zookeeper.connect": "zk1:2181/kafka"}})` as a dictionary. An error has all
problems, a line each.

{tables}

## Keys that are set aside

One file often serves several programs. These keys are accepted and have no effect; `ConsumerConfig.ignored` names
them. Any other unknown key is an error that names the nearest known one: the original only logged it.

{foreign}

## Keys of Kafka's own consumer

What becomes of each key of `org.apache.kafka.clients.consumer.ConsumerConfig` of Kafka 3.0, and of keys of later
releases, in a `ConsumerConfig`. A key without effect is named in `ConsumerConfig.ignored`, and by the connector in a
line `setting-ignored` of the log. A member of a coordinator's group
[takes nearly all of them](coordinator-config.md#keys-of-kafkas-own-consumer).

{kafkas}

## How files are read

As `java.util.Properties` reads them: `#` and `!` begin comments; key and value are parted by `=`, `:` or a blank; a
backslash at the end of a line joins the next one; `\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are escapes; of two equal
keys the later counts. A file that is not UTF-8 is taken for Latin-1.
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
        kafkas=outcome_table({**kafkas, **later}, {"what becomes of it": ConsumerConfig.outcome_of}),
    )


def settings_table(rows: Iterable[SettingRow]) -> str:
    """These settings with all that is to be known of them."""
    lines = ["| key | type | allowed | default | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        type_ = f"{row.type}, {row.unit}" if row.unit else row.type
        lines.append(f"| `{row.key}` | {type_} | {row.allowed} | {row.default} | {row.description} |")
    return "\n".join(lines)


def outcome_table(keys: Mapping[str, str], columns: Mapping[str, Callable[[str, str], SettingOutcome]]) -> str:
    """What becomes of these keys, with these values: a column for each way to give them."""
    lines = [f"| key | {' | '.join(columns)} |", f"|{'---|' * (1 + len(columns))}"]
    for key, value in keys.items():
        found = [outcome(key, value) for outcome in columns.values()]
        cells = [f"{each.status.value}{f': {each.reason}' if each.reason else ''}" for each in found]
        lines.append(f"| `{key}` | {' | '.join(cells)} |")
    return "\n".join(lines)
