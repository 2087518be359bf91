"""The page ``migration_docs/reference/coordinator-config.md``, from the tables.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from bridge.client.config import REQUIRED_KEYS, SCALA_CONSUMER_KEYS, CoordinatorConsumerConfig
from bridge.client.kafka_consumer_keys import assignor_names
from bridge.client.supported_settings import NO_EFFECT, OTHER_MEANING, SAME_MEANING
from tests.reference_pages.config_page import outcome_table, settings_table
from zkconsumer.config import SETTINGS as OLD
from zkconsumer.config_def import default_text
from zkconsumer.configuration import setting_row
from zkconsumer.kafka.group.group_member_config import MEMBER_SETTINGS
from zkconsumer.other_client_keys import java_client_keys

_PAGE = """\
# Settings of a coordinator group's member

<!-- Generated: python tests/generate_docs.py --write -->

`CoordinatorConsumerConnector(config, group)` and `MigratingConsumerConnector(config, group)` take a
`bridge.CoordinatorConsumerConfig`. `CoordinatorConsumerConfig.from_properties("consumer.properties")` reads the file of
a Java consumer, of a Scala consumer, or one with the settings of both; a dictionary and keywords are also possible.
`group` is a mapping with settings of the group that are not in `config`; a key that is in both, with different values,
is an error. How to use it: [run a group that has moved](../how-to/run-a-migrated-group.md).

## Settings of the group

In `config`, or in `group`. Names, ranges and defaults are those of Kafka's clients of 3.x; numbers and booleans may be
given as text. Any other key in `group` is an error.

{group}

{said_by_the_old}; in `group` they are errors.

A `ConsumerConfig`, which a ZooKeeper member has, is also accepted. It ignores these keys, so a `ConsumerConfig` of a
file that has one of them is an error here.

## max.poll.interval.ms

The Java client counts the time between two calls of `poll`. Here each stream is a thread of the program, and the time
that the program works on a record counts:

- It begins when a stream delivers a record, and ends when the program asks the same stream for the next one (`next`,
  `has_next` or `peek`).
- A program that waits in such a call is alive, however long no record comes. So is one that has not asked for its first
  record, and a stream whose call ended without a record (`ConsumerTimeoutException`).
- A program that leaves its loop keeps the last record: close the connector, or ask for the next record.
- With several streams the slowest counts: the limit applies when any stream has had its record for that
  long, though the others are read.

After `max.poll.interval.ms` the log has a line `poll-timeout-expired` with the stream, the coordinator gets a
LeaveGroup with the reason `consumer poll timeout has expired`, and the partitions are lost: they are not committed,
others read them from the last commit, and `commit_offsets` of the program raises `OffsetsNotCommitted`. When the
program asks for the next record the member joins the group again, within a second. A static member
(`group.instance.id`) does not leave: it sends no heartbeats, and its partitions go to others after
`session.timeout.ms`.

A `MigratingConsumerConnector` counts only while its membership at the coordinator is the active one, and from the
moment when it becomes active; ZooKeeper has no such limit. A Spark query has none either: Spark monitors it.

## Settings of the Scala consumer

`group.id` and `bootstrap.servers` must be given; `zookeeper.connect` is optional. These keys have the same meaning as
[for every consumer](config.md):

{as_everywhere}

These have another meaning here:

| key | default | meaning |
|---|---|---|
{taken}

These have no effect in `CoordinatorConsumerConnector`. A line `setting-ignored` in the log names each one that is set,
except those of the connection to ZooKeeper: they may stay in the file.

| key | why |
|---|---|
{not_taken}

## Keys of Kafka's own consumer

The effect of each key of `org.apache.kafka.clients.consumer.ConsumerConfig` of Kafka 3.0, and of keys of later
releases, in a `CoordinatorConsumerConfig`. A key that would change what the program receives, and is not supported, is
an error. A key without effect is named in `CoordinatorConsumerConfig.ignored`, and by the connector in a line
`setting-ignored` of the log. A setting that is given under both keys, with different values, is an error; so are
`request.timeout.ms` and `socket.timeout.ms`.

### Defaults where a file does not set a key

The last column applies. For a key that the Scala consumer has too, under this name or another, that is **the Scala
consumer's default and not Kafka's**: a program that moves to the coordinator keeps its behaviour. The defaults that
differ from those of Kafka 3.0 are in bold. A program that comes from Kafka's own consumer, and relies on defaults, adds
these lines:

```properties
{as_in_kafka}
```

With `range` alone, the default, a member can be in one group with Java's members of the default configuration: `range`
is the first of their two assignors. A `MigratingConsumerConnector` supports `range` or `roundrobin`, which a ZooKeeper
group has too. With `auto.offset.reset=latest` Kafka's own consumer begins at the end of a partition that is created
while it is in the group; here `new.partitions.from.beginning`, a setting that Kafka does not have, is true.

{kafkas}
"""

_SAME = {"null": "none", "": "none", "(required)": "must be given"}
"""Values in the table of Kafka's defaults -> our texts."""

_IN_KAFKAS_WORDS = {"auto.offset.reset": {"largest": "latest"}}
"""Defaults with the same meaning and another text: key -> ours -> Kafka's."""


class Default(NamedTuple):
    """The default of one of Kafka's keys, as text: in Kafka 3.0, and in a ``CoordinatorConsumerConfig``.

    ``kafkas`` is "" for a key of a later release.
    """

    kafkas: str
    here: str

    @property
    def differs(self) -> bool:
        """Whether a file that does not set the key has another behaviour here."""
        return self.kafkas not in ("", self.here)


def default_of_key(key: str, kafkas: Mapping[str, str]) -> Default | None:
    """Both defaults of a key with an effect; None for one without effect and for an error.

    ``kafkas``: every key of Kafka 3.0's consumer -> its default, in the form of Kafka's ``ConfigDef``.
    """
    setting = CoordinatorConsumerConfig.find_setting(key)
    if setting is None:
        return None
    here = "must be given" if CoordinatorConsumerConfig.is_required(setting) else default_text(setting)
    here = _IN_KAFKAS_WORDS.get(key, {}).get(here, here)
    there = kafkas.get(key, "")
    names = ",".join(assignor_names(there)) if key == "partition.assignment.strategy" else there
    return Default(_SAME.get(names, names) if key in kafkas else "", here)


def _with_defaults(table: str, defaults: Mapping[str, str]) -> str:
    """The table of effects with two more columns."""
    head, rule, *rows = table.splitlines()
    lines = [f"{head} default in Kafka 3.0 | default here |", f"{rule}---|---|"]
    for row in rows:
        found = default_of_key(row.split("`")[1], defaults)
        here = "-" if found is None else f"**{found.here}**" if found.differs else found.here
        lines.append(f"{row} {'-' if found is None else found.kafkas or 'not in 3.0'} | {here} |")
    return "\n".join(lines)


def as_in_kafka(defaults: Mapping[str, str]) -> dict[str, str]:
    """The settings that a file needs so that each key that it does not set has Kafka's default: numbers and
    assignors."""
    differing = {key: found for key in defaults if (found := default_of_key(key, defaults)) and found.differs}
    return {
        key: found.kafkas
        for key, found in differing.items()
        if found.kafkas.isdecimal() or key == "partition.assignment.strategy"
    }


def render(kafkas: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """The whole page.

    ``kafkas``: the keys of Kafka's own consumer -> a value of each; ``defaults``: the same keys -> Kafka 3.0's default.
    """
    assert {"group.id", "bootstrap.servers"} == REQUIRED_KEYS, "the page names these"
    said = " and ".join(
        (", ".join(f"`{key}`" for key in list(SCALA_CONSUMER_KEYS)[:-1]), f"`{list(SCALA_CONSUMER_KEYS)[-1]}`")
    )
    by = ", ".join(f"`{key}`" for key in SCALA_CONSUMER_KEYS.values())
    rows = {row.key: row for row in CoordinatorConsumerConfig.describe()}
    later = {key: "" for key in java_client_keys() if key not in kafkas}
    return _PAGE.format(
        group=settings_table(setting_row(setting) for setting in MEMBER_SETTINGS.values()),
        said_by_the_old=f"{said} are set in `config` ({by})",
        as_everywhere="\n".join(_listed(key for key in OLD if key in SAME_MEANING)),
        taken="\n".join(
            f"| `{key}` | {rows[key].default} | {OTHER_MEANING[key]} |" for key in OLD if key in OTHER_MEANING
        ),
        not_taken="\n".join(f"| `{key}` | {NO_EFFECT[key]} |" for key in OLD if key in NO_EFFECT),
        as_in_kafka="\n".join(f"{key}={value}" for key, value in as_in_kafka(defaults).items()),
        kafkas=_with_defaults(
            outcome_table({**kafkas, **later}, {"effect": CoordinatorConsumerConfig.outcome_of}), defaults
        ),
    )


def _listed(keys: Iterable[str]) -> Iterator[str]:
    line = ""
    for key in keys:
        if line and len(line) + len(key) > 114:
            yield f"{line},"
            line = ""
        line += f"{', ' if line else ''}`{key}`"
    yield f"{line}."
