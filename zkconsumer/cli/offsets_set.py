"""``zkconsumer offsets set`` and ``delete``: like kafka-consumer-groups --reset-offsets, for both stores."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import click

from zkconsumer.admin.group_offset_stores import NO_SUCH_TOPIC, GroupOffsetsSnapshot, GroupOffsetStores
from zkconsumer.admin.offset_files import ExportedOffset, OffsetFileFormat, format_file
from zkconsumer.admin.offset_lines import OffsetStoreName
from zkconsumer.admin.offset_plan import OffsetPlan, plan_delete, plan_set
from zkconsumer.admin.offset_targets import (
    ResetTarget,
    Scope,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToFile,
    ToLatest,
    ToOffset,
    ToTime,
    datetime_text,
    in_scope,
    parse_datetime,
    parse_duration,
    parse_scope,
)
from zkconsumer.cli.command_hints import command_text, rerun_with_execute
from zkconsumer.cli.common import open_admin_session
from zkconsumer.cli.console import print_message
from zkconsumer.cli.offsets_common import (
    OffsetPlanExecution,
    execute_option,
    execute_or_explain,
    print_plan,
    read_file,
    read_group_offsets,
    selected_stores,
    store_option,
)
from zkconsumer.cli.options import ClusterOptions, OutputFormat, group_argument, report_options
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import INT64_MAX

_TargetFactory: TypeAlias = "Callable[[int], ResetTarget]"
"""Makes the target from the present time."""


@click.command(name="set")
@group_argument()
@click.option("--topic", "topics", multiple=True, metavar="T[:P,...]", help="This topic, or these partitions of it.")
@click.option("--all-topics", is_flag=True, help="Every partition that has an offset in the store.")
@click.option("--to-earliest", is_flag=True, help="To the start of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="Keep each offset; if there is none, set it to the end of the log.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N records, or back where N is negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at or after YYYY-MM-DDTHH:mm:SS.sss (UTC).")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first record that is not older than this.")
@click.option("--from-file", metavar="FILE", help="To the offsets of a file: csv, zk or json.")
@click.option("--export", "as_csv", is_flag=True, help="Print the plan as csv, as --from-file takes it.")
@store_option("The store to write to; both: for groups with dual commit.")
@execute_option
@report_options
def set_(
    context: click.Context,
    group: str,
    topics: Sequence[str],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: str | None,
    as_csv: bool,
    store: str | None,
    do_it: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Set the offsets of a group without registered members.

    Scopes and targets are those of kafka-consumer-groups --reset-offsets: an offset outside the log becomes the nearer
    end of the log, with a REMARK. Without --execute the plan is shown and nothing is written. Exit codes: 0 done or
    nothing to do, 3 would change something, 4 rejected and nothing changed, 6 written in part.
    """
    _check_scope(topics, all_topics, bool(from_file))
    scope = parse_scope(topics) if topics else None
    duration_ms = parse_duration(by_duration) if by_duration else None
    choose = _selected_target(
        {
            "--to-earliest": (lambda _: ToEarliest()) if to_earliest else None,
            "--to-latest": (lambda _: ToLatest()) if to_latest else None,
            "--to-current": (lambda _: ToCurrent()) if to_current else None,
            "--to-offset": None if to_offset is None else _to(to_offset),
            "--shift-by": None if shift_by is None else lambda _: ShiftBy(shift_by),
            "--to-datetime": _at(parse_datetime(to_datetime)) if to_datetime else None,
            "--by-duration": None if duration_ms is None else lambda now_ms: ToTime(now_ms - duration_ms),
            "--from-file": _from_file(from_file, group, scope) if from_file else None,
        }
    )
    session = open_admin_session(context, cluster)
    in_stores = selected_stores(session, store)
    target = choose(session.clock.wall_ms())
    time_ms = target.time_ms if isinstance(target, ToTime) else None
    if time_ms is not None:
        print_message(f"The time is {datetime_text(time_ms)}.")
    stores = GroupOffsetStores(session, group)
    seen = stores.read(in_stores, include_kafka=True)
    wanted = list(target.offsets) if isinstance(target, ToFile) else _partitions(stores, seen, in_stores, scope)
    current = {each: seen.offsets_in(each) for each in in_stores}
    plan = plan_set(group, target, wanted, stores=in_stores, current=current, logs=stores.log_ranges(wanted, time_ms))
    if as_csv:
        click.echo(_csv(plan), nl=False)
    elif output == "table":
        print_plan(plan, changes_only=False)
    gone = sorted({row.tp.topic for row in plan.rejected if row.log == NO_SUCH_TOPIC})
    advice = f"Leave these partitions out, or correct what is wrong with them; then: {rerun_with_execute(context)}"
    if gone:
        delete_it = command_text(context, "offsets", "delete", group, "--topic", gone[0])
        advice = f"Name other topics, or delete the offsets of this one: {delete_it}"
    if seen.is_new:
        print_message(
            f"Group {group} has no member and no offset: this makes a new group. The groups: zkconsumer groups list"
        )
    job = OffsetPlanExecution(stores, seen, plan, is_repeatable=not isinstance(target, ShiftBy))
    execute_or_explain(context, [job], in_stores, do_it=do_it, output="csv" if as_csv else output, hint=advice)


def _check_scope(topics: Sequence[str], all_topics: bool, has_file: bool) -> None:
    if all_topics and topics:
        raise UsageError("give either --all-topics or --topic")
    if not (all_topics or topics or has_file):
        raise UsageError("no partitions are named: give --topic T, --topic T:0,1 or --all-topics")


def _selected_target(choices: Mapping[str, _TargetFactory | None]) -> _TargetFactory:
    given = [choose for choose in choices.values() if choose is not None]
    if len(given) != 1:
        raise UsageError(f"give exactly one of {', '.join(choices)}")
    return given[0]


def _to(offset: int) -> _TargetFactory:
    if not 0 <= offset <= INT64_MAX:
        raise UsageError(f"--to-offset {offset}: an offset must be 0 to {INT64_MAX}")
    return lambda _: ToOffset(offset)


def _at(time_ms: int) -> _TargetFactory:
    return lambda _: ToTime(time_ms)


def _from_file(name: str, group: str, scope: Scope | None) -> _TargetFactory:
    found = read_group_offsets(name, read_file(name, "auto"), group, None)
    offsets = {tp: offset for tp, offset in found[group].items() if in_scope(scope, tp)}
    return lambda _: ToFile(offsets)


def _partitions(
    stores: GroupOffsetStores, seen: GroupOffsetsSnapshot, wanted: Sequence[OffsetStoreName], scope: Scope | None
) -> list[TopicPartition]:
    """Return the selected partitions; a topic without numbers means all of its.  Raises ``PreconditionFailed``."""
    if scope is None:
        found = sorted({tp for store in wanted for tp in seen.offsets_in(store)})
        if not found:
            raise PreconditionFailed(
                f"group {seen.group} has no offsets in {' and '.join(wanted)}, so --all-topics selects nothing; "
                "name topics with --topic"
            )
        return found
    known = stores.topics(scope)
    partitions: list[TopicPartition] = []
    for topic, numbers in sorted(scope.items()):
        if numbers is None and topic not in known:
            raise PreconditionFailed(
                f"there is no topic {topic}; the topics of this group: zkconsumer groups describe "
                f"{shlex.quote(seen.group)}"
            )
        if numbers is None and known[topic].problem:
            raise PreconditionFailed(f"the znode of topic {topic} cannot be read: {known[topic].problem}; repair it")
        wanted_numbers = known[topic].partitions if numbers is None else sorted(numbers)
        partitions += [TopicPartition(topic, each) for each in wanted_numbers]
    return partitions


def _csv(plan: OffsetPlan) -> str:
    rows = {row.tp: row.new for row in plan.rows if not row.rejection_reason and row.new is not None}
    exported = [ExportedOffset(plan.group, tp, offset) for tp, offset in rows.items()]
    return format_file(OffsetFileFormat.CSV, exported, store="zookeeper", exported_ms=0, with_group=False)


# --- delete -----------------------------------------------------------------------------------------------------


@click.command()
@group_argument()
@click.option(
    "--topic", "topics", multiple=True, metavar="T[:P,...]", help="Only this topic, or these partitions of it."
)
@store_option("The store to delete from.")
@execute_option
@report_options
def delete(
    context: click.Context,
    group: str,
    topics: Sequence[str],
    store: str | None,
    do_it: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Delete the offsets of a group without registered members; the rest of the group stays.

    A member then starts at the offset that auto.offset.reset sets. In Kafka this needs brokers from 2.4 on. Exit codes:
    0 done or nothing to do, 3 would change something, 4 rejected and nothing changed, 6 deleted in part.
    """
    scope = parse_scope(topics) if topics else None
    session = open_admin_session(context, cluster)
    in_stores = selected_stores(session, store)
    stores = GroupOffsetStores(session, group)
    seen = stores.read(in_stores)
    current = {
        each: {tp: offset for tp, offset in seen.offsets_in(each).items() if in_scope(scope, tp)} for each in in_stores
    }
    same = [word for topic in topics for word in ("--topic", topic)] or ["--all-topics"]
    if current.get("kafka") and not stores.can_delete_in_kafka():
        raise PreconditionFailed(
            "nothing was changed: brokers before 2.4 cannot delete single offsets; they delete an offset automatically "
            "offsets.retention.minutes after the last commit (1 day before 2.0, then 7 days). Until then an offset can "
            f"be set: {command_text(context, 'offsets', 'set', group, *same, '--to-earliest', '--store', 'kafka')}"
        )
    if not any(current.values()):
        of = f" of {', '.join(topics)}" if topics else ""
        print_message(
            f"Group {group} has no offsets{of} in {' or '.join(in_stores)}. The groups: zkconsumer groups list"
        )
    plan = plan_delete(group, in_stores, current)
    if output == "table":
        print_plan(plan, changes_only=False)
    execute_or_explain(
        context, [OffsetPlanExecution(stores, seen, plan)], in_stores, do_it=do_it, output=output, hint=""
    )
