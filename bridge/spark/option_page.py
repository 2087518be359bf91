"""The reference page of the options, made from their tables.  Pure."""

from __future__ import annotations

from typing import Any

from bridge.spark.keeper.settings import OWN_DEFAULTS
from bridge.spark.option_table import ASIDE, BATCH_ONLY, GROUP, KAFKA, OWN, REFUSED, STREAM_ONLY
from zkconsumer.config import ConsumerConfig, Row
from zkconsumer.settings import Setting

_PAGE = """\
# Options of format("zkconsumer")

<!-- Generated: python -c 'from bridge.spark.option_page import render_options as r; print(r(), end="")' -->

`spark.readStream.format("zkconsumer").option(…)` and `spark.read.format("zkconsumer").option(…)`. Names are taken in
any case. Where Spark's own `format("kafka")` has an option of the same name it means the same here. An unknown name is
refused with the nearest known one, and options that contradict each other are refused with the reason.

All that is wrong with the options, and with the columns of `.schema(…)`, is told at once, with two exceptions.
Settings of the group and of the way to brokers that contradict each other are told when each of them is right by
itself. What only a file or a server can tell (certificates, topics, whether JSON names every partition) is told when
the query begins.

A stream needs `zookeeper.connect`, `group.id` and one of `subscribe`, `subscribePattern`, `subscribe.blacklist`,
`topics`. A batch needs one of them or `assign`, and `zookeeper.connect` or `kafka.bootstrap.servers`; it is never a
member of the group.

The columns are those of `format("kafka")`: `key binary, value binary, topic string, partition int, offset bigint,
timestamp timestamp, timestampType int`, with `includeHeaders` also `headers array<struct<key:string,value:binary>>`.
`.schema("key binary, value binary")` narrows them, in any order; columns that are not asked for are not built.

## Options of the source

{own}

## Settings of the group

They mean what they mean for every member; see [Settings](config.md).

{group}

## Settings of the way to brokers

{kafka}

Spark hides the values of options whose names hold `password`, `secret` or `token` from its pages and plans
(`spark.redaction.regex`); not so `kafka.sasl.jaas.config`. Nothing is shown of what stands in the file of `zk.config`.

## Options without an effect

They are taken, so that a query of `format("kafka")` or an old configuration can stay as it is, with a warning.

{aside}

So are other settings of Java's consumer with `kafka.` in front.

## Options that are refused

{refused}

## Where a partition is begun

- The query has no checkpoint: as `startingOffsets` and its kin say. `group`: where the group stands, and where it has
  no offset as `auto.offset.reset` says.
- The query has read it, and owned it all the time: where its last batch ended.
- The query has read it, and somebody else owned it in between. `claim`: where the group stands now. `afterBatch`: the
  larger of that and the end of the last batch. `none`: the end of the last batch.
- The query has a checkpoint and has never read it: where the group stands. Where that has no offset: at its beginning
  if the partition came since the query began, also while it was not running (unless
  `new.partitions.from.beginning=false`, or `startingOffsets` names it); else as `startingOffsets` and
  `auto.offset.reset` say.

Where a query begins is first written into the group, and the log has a line `group-set`: with
`group.offsets.commit=claim` whenever the group stands elsewhere, so that a claim finds it there; with `afterBatch`
only where the group stands *behind* that place, or behind the end of a log that lost records. Else the larger of the
two would be, at the next start, the group's, and what lies between would not be read. `none` writes nothing.

`afterBatch` and `none` may be changed for each other on a checkpoint. `claim` is neither begun nor given up on one:
such a start fails, says so, and names the way: the same option as before, or a checkpoint and a sink of its own.

## Data that is lost

`failOnDataLoss=true` fails the query with the partition, the offset that was wanted and where the log begins. With
`false` the query goes on at the beginning of the log, logs `data-lost` and counts what it passed over in its offset.

When an offset is beyond the end of the log, the end is asked for again a few times, since a new leader can know less
for a moment. Then it is lost data, too: the topic was deleted and made again, or a leader was elected that lacked
records. `true` fails. `false` goes on at the end of the log, as Spark's Kafka source does; with
`group.offsets.commit=claim` when the log has grown past what the query claimed, so that no offset is claimed twice.

A topic that was read and is not there any more fails the query, or is told with `false`. What the log says is in
[Log lines](log-lines.md).

## Batches

`maxOffsetsPerTrigger` is shared out over the partitions in proportion to what each has to offer, and each gets at least
one, so that small partitions move: a batch can exceed the limit by less than the number of partitions, as in Spark's
Kafka source. With `Trigger.AvailableNow` the ends are those at the start of the query, and `minOffsetsPerTrigger` has
no effect. A partition that another member waits for is not in the next batch.

## When nobody answers

A stream that begins, and a batch, wait `zookeeper.connection.timeout.ms` for a session with ZooKeeper: 6 s unless
that, or `zookeeper.session.timeout.ms`, is set. Then they fail, with the addresses and what is wrong there. A batch
waits 30 s at most for an answer of ZooKeeper, and 15 s for a broker that tells where logs begin and end. A stream that
runs gives up when no broker has answered for 120 s, and so does a task that makes no progress.
"""

_HEAD = ["option", "what it is", "default"]


def render_options() -> str:
    """The page ``migration_docs/reference/spark-options.md``."""
    rows = {row.key: row for row in ConsumerConfig.describe()}
    return _PAGE.format(
        own=_table(
            ["option", "in", "what it is", "default", "meaning"], [_own_row(setting) for setting in OWN.values()]
        ),
        group=_table(_HEAD, [_config_row(name, rows[key]) for name, key in GROUP.items()]),
        kafka=_table(_HEAD, [_config_row(name, rows[key]) for name, key in KAFKA.items()]),
        aside=_table(["option", "why"], _grouped(ASIDE)),
        refused=_table(["option", "why"], _grouped(REFUSED)),
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
    return [f"`{setting.key}`", where, f"{setting.allowed}{unit}", default, setting.sentence]


def _config_row(name: str, row: Row) -> list[str]:
    default = str(OWN_DEFAULTS.get(row.key, row.default))
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
