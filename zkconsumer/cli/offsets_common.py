"""What the ``offsets`` commands have in common: options, reading files, printing and executing a plan."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetsSnapshot, GroupOffsetStores, GroupWriteReports
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.offset_files import (
    FILE_BYTES_MAX,
    OffsetFile,
    OffsetFileError,
    OffsetFileFormat,
    parse_file,
)
from zkconsumer.admin.offset_lines import STORES_BY_OPTION, OffsetFileConvention, OffsetStoreName
from zkconsumer.admin.offset_plan import (
    OffsetPlan,
    PlannedOffset,
    higher_in_other_store,
    offsets_of_group,
    partitions_text,
)
from zkconsumer.admin.text_format import unseen_members_warning
from zkconsumer.cli.command_hints import given_arguments, rerun_with_execute
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_PARTIAL, print_json, print_table, require_admin_session
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.errors import UsageError, ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.types import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])


PLAN_SCHEMA = "zkconsumer/offsets-plan/1"


def store_option(help_: str, *, both: bool = True) -> Callable[[F], F]:
    """``--store``; ``selected_stores`` evaluates it."""
    choices = [name for name in STORES_BY_OPTION if both or name != "both"]
    return click.option("--store", type=click.Choice(choices), help=f"{help_} [zookeeper; kafka with brokers alone]")


def selected_stores(session: AnySession, store: str | None) -> Sequence[OffsetStoreName]:
    """Return the stores that ``--store`` selects.  Raises ``UsageError``."""
    if isinstance(session, AdminSession):
        return STORES_BY_OPTION[store or "zookeeper"]
    if store not in (None, "kafka"):
        require_admin_session(session, f"--store {store} needs the offsets in ZooKeeper")
    return STORES_BY_OPTION["kafka"]


execute_option = click.option("--execute", "do_it", is_flag=True, help="Write; without this option nothing is changed.")

convention_option = click.option(
    "--offset-convention", "convention", type=click.Choice(["next", "last"]),
    help="Meaning of the file's offsets: the next one to read, or the last one read [next, or as the file says].",
)  # fmt: skip

file_format_option = click.option(
    "--format", "format_", type=click.Choice(["auto", *(each.value for each in OffsetFileFormat)]), default="auto",
    show_default=True, help="The format of the file.",
)  # fmt: skip


def read_file(name: str, format_: str) -> OffsetFile:
    """Read the file of this name, ``-`` for standard input, and print its remarks.  Raises ``UsageError``."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    try:
        parsed = parse_file(data, None if format_ == "auto" else OffsetFileFormat(format_))
    except OffsetFileError as error:
        raise OffsetFileError(f"{name}: {error}") from error
    for remark in parsed.remarks:
        print_message(f"{name}: {remark}")
    return parsed


def read_group_offsets(
    name: str, parsed: OffsetFile, group: str | None, convention: OffsetFileConvention | None
) -> dict[str, dict[TopicPartition, int]]:
    """Return the offsets in the file of this group (None: of each group in it), and print the remarks."""
    found, remarks = offsets_of_group(parsed, group, convention)
    for remark in remarks:
        print_message(f"{name}: {remark}")
    return found


# --- showing ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OffsetPlanExecution:
    """The plan of one group, with its sources and its progress."""

    stores: GroupOffsetStores
    snapshot: GroupOffsetsSnapshot
    plan: OffsetPlan
    reports: GroupWriteReports = field(default_factory=GroupWriteReports)
    is_repeatable: bool = True
    """Whether the same command means the same offsets if it is repeated after a part was done."""

    @property
    def verb(self) -> str:
        """The verb for the report: "deleted" or "written"."""
        return "deleted" if all(row.new is None for row in self.plan.rows) else "written"


PLAN_COLUMNS = "GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "CURRENT-OFFSET", "LOG-START", "LOG-END", "STORE", "REMARK"
"""The columns of kafka-consumer-groups --reset-offsets (GROUP from 2.3 on), and ours."""
DROPPABLE_PLAN_COLUMNS = ("GROUP", "STORE", "LOG-START", "LOG-END")


def print_plan(plan: OffsetPlan, *, changes_only: bool) -> None:
    """Print the plan as a table."""
    rows = [row for row in plan.rows if row.is_change or row.rejection_reason] if changes_only else plan.rows
    if rows:
        print_table(PLAN_COLUMNS, (_cells(plan.group, row) for row in rows), DROPPABLE_PLAN_COLUMNS)


def _cells(group: str, row: PlannedOffset) -> tuple[object, ...]:
    new = "(delete)" if row.new is None and not row.rejection_reason else row.new
    start, end = (row.log.earliest, row.log.latest) if isinstance(row.log, LogRange) else (None, None)
    remark = f"REFUSED: {row.rejection_reason}" if row.rejection_reason else row.remark
    return group, row.tp.topic, row.tp.partition, new, row.current, start, end, row.store, remark


def _execution_json(job: OffsetPlanExecution) -> dict[str, object]:
    written, unknown = _written(job.reports), _unknown(job.reports)

    def row_json(row: PlannedOffset) -> dict[str, object]:
        log = row.log if isinstance(row.log, LogRange) else None
        at = row.store, row.tp
        return {
            "topic": row.tp.topic,
            "partition": row.tp.partition,
            "store": row.store,
            "current": row.current,
            "new": row.new,
            "log_start": None if log is None else log.earliest,
            "log_end": None if log is None else log.latest,
            "log_problem": row.log if isinstance(row.log, str) else None,
            "remark": row.remark or None,
            "rejection_reason": row.rejection_reason or None,
            "written": None if at in unknown else at in written,
        }

    return {
        "group": job.plan.group,
        "members": list(job.snapshot.members),
        "stopped_by": job.reports.stopped_by or None,
        "rows": [row_json(row) for row in job.plan.rows],
    }


def _print_warnings(job: OffsetPlanExecution, wanted: Sequence[OffsetStoreName]) -> None:
    """Print what the user must know before the plan is executed."""
    for node in job.snapshot.unreadable:
        print_message(f"the znode of {node.tp} does not contain an offset: {node.problem}")
    if job.snapshot.may_have_unseen_members:
        print_message(unseen_members_warning(job.plan.group))
    control = job.snapshot.control
    if control is not None and job.snapshot.is_migrating:
        print_message(
            f"Group {job.plan.group} is migrating (phase {control.phase}, authority {control.authority}): its "
            "migration compares the offsets, and stops if they change. Its state: zkconsumer migrate status "
            f"{shlex.quote(job.plan.group)}"
        )
    if len(wanted) > 1:
        return
    other: OffsetStoreName = "kafka" if wanted[0] == "zookeeper" else "zookeeper"
    if other == "kafka" and job.snapshot.kafka is None:
        if job.snapshot.kafka_problem:
            print_error(
                f"whether Kafka's own store has offsets of this group is not known: {job.snapshot.kafka_problem}"
            )
        return
    higher = higher_in_other_store(job.plan, job.snapshot.offsets_in(other))
    if higher:
        print_message(
            f"{partitions_text(higher)}: a larger offset is stored in {other}. Members with offsets.storage=kafka and "
            "dual.commit.enabled start from the larger of the two, so this does not affect them: use --store both"
        )


def offset_count_text(count: int) -> str:
    """A number of offsets as text."""
    return "1 offset" if count == 1 else f"{count} offsets"


# --- carrying out -----------------------------------------------------------------------------------------------


def execute_or_explain(
    context: click.Context,
    jobs: Sequence[OffsetPlanExecution],
    wanted: Sequence[OffsetStoreName],
    *,
    do_it: bool,
    output: str,
    hint: str,
) -> NoReturn:
    """Reject, explain or execute the plans, and end with the exit code; nothing is written if one group is rejected.

    ``hint``: what to do about offsets that cannot be set.
    """
    for job in jobs:
        _print_warnings(job, wanted)
    code = _check_plans(context, jobs, wanted, do_it=do_it, hint=hint)
    if code is None:
        code = _execute_plans(jobs, rerun_with_execute(context))
    if output == "json":
        print_json(
            {"schema": PLAN_SCHEMA, "executed": do_it, "exit_code": code, "groups": list(map(_execution_json, jobs))}
        )
    context.exit(code)


def _check_plans(
    context: click.Context,
    jobs: Sequence[OffsetPlanExecution],
    wanted: Sequence[OffsetStoreName],
    *,
    do_it: bool,
    hint: str,
) -> int | None:
    """Return the exit code if nothing must be written, or None to continue."""
    refused = [job for job in jobs if job.plan.rejected]
    for job in refused:
        print_error(f"Group {job.plan.group}: {offset_count_text(len(job.plan.rejected))} cannot be set:")
        for line in job.plan.rejection_lines():
            print_message(f"  {line}")
    if refused:
        print_message(f"Nothing was changed. {hint}")
        return EXIT_PRECONDITION
    changes = sum(len(job.plan.changes) for job in jobs)
    if not changes:
        print_message("There is nothing to change.")
        return 0
    in_the_way = [words for job in jobs if job.plan.changes and (words := job.snapshot.rejection_reason(wanted))]
    for words in in_the_way:
        print_error(words)
    if in_the_way:
        print_message(f"Nothing was changed. Then: {_command_to_run(context, jobs, wanted)}")
        return EXIT_PRECONDITION
    if not do_it:
        print_message(
            f"Nothing was changed; {offset_count_text(changes)} would be. To do it: {rerun_with_execute(context)}"
        )
        return EXIT_DIFFERS
    return None


def _command_to_run(
    context: click.Context, jobs: Sequence[OffsetPlanExecution], wanted: Sequence[OffsetStoreName]
) -> str:
    """The same command; for a migrated group the one for Kafka's store, as ZooKeeper would be rejected again."""
    if "zookeeper" in wanted and any(job.snapshot.is_migrated for job in jobs):
        return shlex.join([*given_arguments(context, without=("--store",)), "--store", "kafka", "--execute"])
    return rerun_with_execute(context)


def _execute_plans(jobs: Sequence[OffsetPlanExecution], again: str) -> int:
    for at, job in enumerate(jobs):
        try:
            job.stores.write(job.plan, job.snapshot, job.reports)
        except KeyboardInterrupt:
            job.reports.zookeeper.stopped_by = "it was interrupted"
            _print_partial(jobs[: at + 1], again)
            raise
        except ZkConsumerError as error:
            job.reports.zookeeper.stopped_by = str(error)
        if job.reports.stopped_by:
            return _print_partial(jobs[: at + 1], again)
        print_message(f"Group {job.plan.group}: {offset_count_text(job.reports.written)} {job.verb}.")
    return 0


def _print_partial(jobs: Sequence[OffsetPlanExecution], again: str) -> int:
    """Print exactly what was written and what was not; return the exit code."""
    job = jobs[-1]
    group, reports = job.plan.group, job.reports
    if not any(each.reports.written or each.reports.unknown for each in jobs):
        print_error(f"Group {group}: nothing was changed, because {reports.stopped_by}. Then: {again}")
        return EXIT_PRECONDITION
    changes = job.plan.changes
    print_error(
        f"Group {group}: {reports.written} of {offset_count_text(len(changes))} {job.verb}, because "
        f"{reports.stopped_by}:"
    )
    written, unknown = _written(reports), _unknown(reports)
    for row in changes:
        at = row.store, row.tp
        state = job.verb if at in written else "unknown, no answer arrived" if at in unknown else f"not {job.verb}"
        print_message(f"  {row.store} {row.tp}: {state}")
    if job.is_repeatable:
        print_message(f"The same command writes the rest and skips what is already written: {again}")
        return EXIT_PARTIAL
    rest = {row.tp: row.new for row in changes if (row.store, row.tp) not in written}
    stores = " --store both" if len({row.store for row in changes}) > 1 else f" --store {changes[0].store}"
    file = shlex.quote(f"{group}-rest.csv")
    print_message(f"Do not give the same command again: it would start from the present offsets. Put this into {file}:")
    for tp, new in rest.items():
        print_message(f"{tp.topic},{tp.partition},{new}")
    print_message(f"Then: zkconsumer offsets set {shlex.quote(group)} --from-file {file}{stores} --execute")
    return EXIT_PARTIAL


def _written(reports: GroupWriteReports) -> set[tuple[OffsetStoreName, TopicPartition]]:
    return {("zookeeper", tp) for tp in reports.zookeeper.written} | {("kafka", tp) for tp in reports.kafka.written}


def _unknown(reports: GroupWriteReports) -> set[tuple[OffsetStoreName, TopicPartition]]:
    return {("zookeeper", tp) for tp in reports.zookeeper.unknown} | {("kafka", tp) for tp in reports.kafka.unknown}
