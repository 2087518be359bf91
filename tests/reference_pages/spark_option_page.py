"""The reference page of the options, made from their tables.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.spark.membership.process_settings import SPARK_DEFAULTS
from bridge.spark.option_table import (
    BATCH_ONLY,
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    IGNORED_OPTIONS,
    KAFKA_PREFIX,
    SOURCE_OPTIONS,
    STREAM_ONLY,
    UNSUPPORTED_OPTIONS,
    outcome_of,
)
from bridge.spark.sink.sink_option_table import SINK_BROKER_OPTIONS, SINK_IGNORED, SINK_OPTIONS, SINK_UNSUPPORTED
from tests.reference_pages.config_page import outcome_table
from zkconsumer.config import ConsumerConfig
from zkconsumer.config_def import Setting
from zkconsumer.configuration import SettingRow

_PAGE = """\
# Options of format("zkconsumer")

<!-- Generated: python tests/generate_docs.py --write -->

Every option of `spark.readStream.format("zkconsumer")` and `spark.read.format("zkconsumer")`: values, default, meaning.
An option of the same name in Spark's own `format("kafka")` has the same meaning here. `writeStream` and `write` have
[options of their own](#options-of-the-sink).

Names are not case-sensitive. An error for an unknown name contains the most similar known one, and an error for options
that contradict each other contains the reason.

`.load()` reports all wrong options at once, with two exceptions. Contradictions between settings of the group and of
the connection to brokers are reported only after each single setting is valid. Errors that only a file or a server can
show (certificates, topics, whether JSON names every partition) are reported when the query begins.

A stream needs `zookeeper.connect`, `group.id` and one of `subscribe`, `subscribePattern`, `subscribe.blacklist`,
`topics`. A batch needs one of them or `assign`, and `zookeeper.connect` or `kafka.bootstrap.servers`; it is never a
member of the group.

Spark does not report at `.load()` whether it loads a stream or a batch. Options with `endingOffsets`, `endingTimestamp`
or `endingOffsetsByTimestamp` count as those of a batch, and all others must be valid for a stream. So a batch that has
`assign`, or has no `group.id` or no `zookeeper.connect`, needs an option for its end, for example
`endingOffsets=latest`. With `.schema(…)` Spark does not call the source at `.load()`; wrong options are then reported
when the query begins.

The columns are those of `format("kafka")`: `key binary, value binary, topic string, partition int, offset bigint,
timestamp timestamp, timestampType int`, with `includeHeaders` also `headers array<struct<key:string,value:binary>>`,
and with `includeIsUtf8` also `keyIsUtf8 boolean, valueIsUtf8 boolean`: true where there is no key or no value.
`.schema("key binary, value binary")` selects some of them, in any order; other columns are not built.

## Options of the source

{own}

## Where the query begins to read a partition

- The query has no checkpoint: at the offset of `startingOffsets`, or of the option that overrides it. `group` means the
  group's offset. Where the group has no offset, `auto.offset.reset` decides. Its default is `largest`, so a query of a
  **new group reads only later records**; the log line `starting-offsets` names the partitions.
- The query has read the partition, and owned it all the time: at the end of its last batch.
- The query has read the partition, and another member owned it in between. `claim`: at the group's offset.
  `afterBatch`: at the larger of the group's offset and the end of the last batch. `none`: at the end of the last batch.
- The query has a checkpoint and has never read the partition: at the group's offset. Where the group has none: at the
  beginning of the log, if the query did not own the partition when it began (unless
  `new.partitions.from.beginning=false`, or `startingOffsets` names it); else by `startingOffsets` and
  `auto.offset.reset`.

The last case applies to partitions and topics that were created since the query began, also while it was not running,
and for a **topic that you add to `subscribe` or `topics`** of a query with a checkpoint, however old the topic is. A
topic that you remove is [data that is lost](#data-that-is-lost).

With `claim` the query writes the offset at which it begins into the group, if the group has another one: a claim
requires it. With `afterBatch` it does so only where the group's offset is larger, or is beyond the end of a
log that lost records: at the next start the larger offset would be used, and the records between the two would not
be read. The log line is `group-offset-set`. `none` writes nothing.

A query may change between `afterBatch` and `none` on a checkpoint, but not to or from `claim`: such a start fails, and
the error names the solution: the former option, or a new checkpoint and a new sink.

## Data that is lost

With `failOnDataLoss=true` the query fails, and the error names the partition, the wanted offset and the beginning of
the log. With `false` the query continues at the beginning of the log, logs `data-lost` and counts the skipped
offsets (`lostOffsets` in its progress).

When an offset is beyond the end of the log, the source asks for the end a few times, because a new leader can report a
smaller one for a moment. After that this also counts as lost data: the topic was deleted and created again, or the new
leader did not have all records. `true` fails. `false` continues at the end of the log, as Spark's Kafka source does;
with `group.offsets.commit=claim` it continues when the log has grown past the claims of the query, so that it claims no
offset twice.

A topic that the query has read, and that is deleted or no longer subscribed to, fails the query with `true`. With
`false` the query continues without the topic and logs `topic-missing`. All of these lines are in [Log
lines](log-lines.md).

## Corrupt records

Records are corrupt when their bytes cannot be decoded: a wrong checksum, a damaged header, an unknown codec, a
compressed set that cannot be decompressed, an invalid record inside of a batch. The task fetches them a second time
over a new connection; if the bytes are others, the network had damaged them, and the task reads on. `onCorruptRecord`
says what to do when they are the same, in streams and batches:

| value | what happens |
|---|---|
| `fail` | the query fails; the error names the offsets and `skipOffsets` |
| `skip` | the offsets are passed over, and logged by the task (`corrupt-records-skipped`) |
| `deadLetter` | the same, and the column `corrupt struct<end bigint, error string>` |

With `fail` and `group.offsets.commit=claim` the error also names the command that gives the batch back to the group,
whose offsets are after it already. With `deadLetter` the column is not null in one row for each range of offsets, from
`offset` to before `corrupt.end`. The `value` of this row has the damaged bytes, if their extent is known and they have
at most 1 MiB; key, times and headers are null.

The offsets are exact. They begin with the first record that cannot be read (records before it in the same batch are
returned), and end with the damaged batch or message, or with the range of the task. Where size or offsets in the
header are damaged, the number of records is not known: the task fetches one offset after the other until the broker
sends something else, 10,000 of them at most, then with doubling steps, and at most to the end of its range. A broker
looks for an offset from its index on (each 4 KB by default), so some sound batches after such a damage may not be
found. Where a broker sends *nothing* for an offset, as for a size that is larger than the rest of its log, the query
fails with `FetchStalled`: an empty answer is no proof of damage. The same holds for an error of the broker itself,
except `CORRUPT_MESSAGE`. The first eight bytes of a batch, its offset, have no checksum: an offset that is after the
end of the log, or that does not follow the one before, is damage; another wrong one looks like a gap.

A failed or repeated task decides by the bytes that it gets. A [pipeline](../how-to/load-a-group-into-tables.md) decides
once for a batch, counts what was skipped in its lineage, and in the progress of the query (`skippedOffsets`). A query
of your own sees what was skipped in the tasks' log lines only, since Spark has no metrics of Python sources: use
`deadLetter` to count.

## Offsets that cannot be read

A task skips offsets without a record (compacted ones, transaction markers) only where the broker proves that they
have none: by a later record in the same answer. An answer without a record proves nothing, since a broker of 3.6 or
later returns one for existing records when its tiered storage is slow. So these fail the query, with
`failOnDataLoss=false` too:

- **No record arrives, though the log continues** (`FetchStalled`, after 120 s). Check the broker first: when its
  storage answers again, a restarted query reads the records. Only where a log ends with a gap, as after damage or
  after deletions on the broker's disk, no record will ever arrive.
- **A record set is damaged, or of an unknown format or codec, or a record is larger than 1 GiB.**

The query repeats the same batch at each start, so neither another `startingOffsets` nor waiting helps: its checkpoint
has the end of that batch already. `skipOffsets` omits the offsets. The error ends with the complete option, including
what the query skips already; paste it into the query, and start it on the same checkpoint:

```python
stream = spark.readStream.format("zkconsumer")
stream = stream.option("skipOffsets", '{{"orders": {{"0": [[1000, 1500], [9000, 9001]]}}}}')
```

Each range is [first, end): 1000 to 1499, and 9000. Exactly these offsets are not read, in streams and batches, with
each `group.offsets.commit`, and in a batch that is repeated from a checkpoint as well; the group's offsets are
committed past them as if they had been read. Each range of a batch is logged once (`offsets-skipped`), and
`skippedOffsets` in [the query's progress](../how-to/monitor-the-lag-of-a-spark-query.md) counts them, in the batch
after. Offsets that were read before are not affected, and offsets that do not exist yet are skipped when they exist:
remove the option when the query is past them. Where the error reports that the end of the damage is not known, it
names the end of the task's range: find an earlier one with the broker's own tool
(`kafka-dump-log.sh --files … --deep-iteration`).

## Batches

`maxOffsetsPerTrigger` is divided among the partitions in proportion to their available offsets, and each gets at least
one, so that small partitions advance: a batch can exceed the limit by less than the number of partitions, as in
Spark's Kafka source. With `Trigger.AvailableNow` the ends are those at the start of the query, and
`minOffsetsPerTrigger` has no effect. A partition that another member waits for is not in the next batch.

## When servers do not answer

A stream that begins, and a batch, wait `zookeeper.connection.timeout.ms` for a session with ZooKeeper: 6 s unless
that, or `zookeeper.session.timeout.ms`, is set. Then they fail, with the addresses and the reason. Later:

- A batch waits 30 s for an answer of ZooKeeper, and 15 s for the brokers of its partitions. Then it fails.
- A running stream waits for ZooKeeper without a limit. It reads nothing meanwhile, logs `membership-unconfirmed`
  once, and continues when ZooKeeper answers.
- A stream waits 120 s for any broker when it plans a batch, and logs `brokers-unreachable` or `log-bounds-unknown`.
- A task waits for the leader of its partition until it has made no progress for 120 s. Then it fails.

## Settings of the group

They have the same meaning as for every member; see [Settings](config.md).

{group}

## Settings of the connection to brokers

{kafka}

Spark hides the values of options whose names contain `password`, `secret` or `token` from its pages and plans
(`spark.redaction.regex`), but not that of `kafka.sasl.jaas.config`. Nothing of the file of `consumer.config` is shown.

## Options without an effect

They are accepted with a warning, so that a query of `format("kafka")` or an old configuration need not change.

{aside}

The same applies to other settings of Java's consumer with the prefix `kafka.`.

## Options that are refused

{refused}

## Options of the sink

Every option of `writeStream.format("zkconsumer")` and `write.format("zkconsumer")`, which write rows to topics; see
[Write to a topic from Spark](../how-to/write-to-a-topic-from-spark.md). `kafka.bootstrap.servers` is required. Wrong
options and columns are reported when Spark plans the first batch, all at once.

{sink}

The settings of the connection to brokers are the same as for the source: {sink_connection}.

Without an effect, with a warning:

{sink_aside}

Refused:

{sink_refused}

## Keys of Kafka's own consumer

The effect of each key of `org.apache.kafka.clients.consumer.ConsumerConfig` of Kafka 3.0: as an option with the prefix
`kafka.`, as Spark's own Kafka source has it, and without. An option without effect is named in a warning.

{kafkas}

"""

_HEAD = ["option", "what it is", "default"]


def render_options(kafkas: Mapping[str, str]) -> str:
    """The page ``migration_docs/reference/spark-options.md``; ``kafkas``: keys of Kafka's consumer -> a value."""
    rows = {row.key: row for row in ConsumerConfig.describe()}
    return _PAGE.format(
        own=_table(
            ["option", "in", "what it is", "default", "meaning"],
            [_own_row(setting) for setting in SOURCE_OPTIONS.values()],
        ),
        group=_table(_HEAD, [_config_row(name, rows[key]) for name, key in GROUP_OPTIONS.items()]),
        kafka=_table(_HEAD, [_config_row(name, rows[key]) for name, key in BROKER_OPTIONS.items()]),
        aside=_table(["option", "why"], _grouped(IGNORED_OPTIONS)),
        refused=_table(["option", "why"], _grouped(UNSUPPORTED_OPTIONS)),
        sink=_table(
            ["option", "what it is", "default", "meaning"],
            [[cell for at, cell in enumerate(_own_row(row)) if at != 1] for row in SINK_OPTIONS.values()],
        ),
        sink_connection=", ".join(f"`{name}`" for name in SINK_BROKER_OPTIONS),
        sink_aside=_table(["option", "why"], _grouped(SINK_IGNORED)),
        sink_refused=_table(["option", "why"], _grouped(SINK_UNSUPPORTED)),
        kafkas=outcome_table(
            kafkas,
            {
                "with `kafka.` in front": lambda key, value: outcome_of(KAFKA_PREFIX + key, value),
                "as it is": outcome_of,
            },
        ),
    )


def _own_row(setting: Setting[Any]) -> list[str]:
    where = "batch" if setting.key in BATCH_ONLY else "stream" if setting.key in STREAM_ONLY else "both"
    match setting.default:
        case None:
            default = "none"
        case bool() as flag:
            default = str(flag).lower()
        case other:
            default = str(other)
    unit = f", in {setting.unit}" if setting.unit else ""
    return [f"`{setting.key}`", where, f"{setting.allowed}{unit}", default, setting.description]


def _config_row(name: str, row: SettingRow) -> list[str]:
    default = str(SPARK_DEFAULTS.get(row.key, row.default))
    return [f"`{name}`", f"{row.allowed}{f', in {row.unit}' if row.unit else ''}", default]


def _grouped(reasons: dict[str, str]) -> list[list[str]]:
    """The names that share a reason, in one row."""
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        by_reason.setdefault(why, []).append(f"`{name}`")
    return [[", ".join(names), why] for why, names in by_reason.items()]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"|{'|'.join(cells)}|" if cells[0] == "---" else f"| {' | '.join(cells)} |" for cells in lines)
