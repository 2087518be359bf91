"""``zkconsumer spark starting-offsets``: prints the option ``startingOffsets`` for Spark's kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bridge.spark.handoff.starting_offsets import read_starts
from bridge.spark.source.offset_selection import (
    MissingOffsetPolicy,
    OffsetStore,
    OutOfRangePolicy,
    StoredOffsetConvention,
)
from zkconsumer.cli.common import open_zookeeper_session
from zkconsumer.cli.console import print_message
from zkconsumer.cli.options import ClusterOptions, choice_option, cluster_options, group_argument


@click.command(name="starting-offsets", short_help="Print a group's offsets as startingOffsets.")
@group_argument()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    help="A topic that Spark reads; may be repeated [every topic for which the group has an offset].",
)
@choice_option(
    "--store",
    ["auto", "zookeeper", "kafka", "both"],
    "auto",
    "The store of the group's offsets; auto: from the --config file, or the store that has offsets.",
)
@choice_option(
    "--offset-convention",
    ["next", "last-consumed"],
    "next",
    "What offsets in ZooKeeper mean; ReliableKafkaReceiver wrote the last consumed.",
    parameter="convention",
)
@choice_option(
    "--missing",
    ["earliest", "latest", "refuse"],
    "earliest",
    "Where a partition starts for which the group has no offset.",
)
@choice_option(
    "--out-of-range",
    ["refuse", "earliest", "latest", "keep"],
    "refuse",
    "What to do with an offset that is out of the range of the log.",
)
@click.option("--allow-members", is_flag=True, help="Run despite registered members, which read the same records.")
@cluster_options
@click.pass_context
def starting_offsets_command(
    context: click.Context,
    group: str,
    topics: Sequence[str],
    store: OffsetStore,
    convention: StoredOffsetConvention,
    missing: MissingOffsetPolicy,
    out_of_range: OutOfRangePolicy,
    allow_members: bool,
    cluster: ClusterOptions,
) -> None:
    """Print the offsets of a group, as JSON for the option startingOffsets of format("kafka").

    Every partition is listed; -2 is the beginning of the log, -1 its end. Spark reads the option for a new checkpoint
    only. Exit codes: 0 printed, 2 the group or a topic does not exist, 4 members are registered, or an offset is out
    of range.
    """
    session = open_zookeeper_session(context, cluster)
    starts = read_starts(
        session, group, topics or None, convention=convention, store=store, missing=missing,
        out_of_range=out_of_range, allow_members=allow_members,
    )  # fmt: skip
    for remark in starts.remarks:
        print_message(remark)
    click.echo(starts.to_json())
