"""What the ``offsets`` commands have in common: options, reading files, showing a plan, carrying it out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from zkconsumer.admin.group_stores import GroupStores, Reports, SeenGroup
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.offset_files import (
    FILE_BYTES_MAX,
    BadOffsetFile,
    Format,
    OffsetFile,
    parse_file,
)
from zkconsumer.admin.offset_lines import STORES, Convention, Store
from zkconsumer.admin.offset_plan import OffsetPlan, PlannedOffset, higher_in_the_other, named
from zkconsumer.admin.session import AdminSession
from zkconsumer.admin.words import unseen_members
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_PARTIAL, only_in_zookeeper, print_json, print_table
from zkconsumer.cli.console import tell, tell_error
from zkconsumer.cli.hints import again_words, given_words
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.errors import UsageError, ZkConsumerError

if TYPE_CHECKING:
    from zkconsumer.admin.session import AnySession
    from zkconsumer.types import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])


PLAN_SCHEMA = "zkconsumer/offsets-plan/1"


def store_option(help_: str, *, both: bool = True) -> Callable[[F], F]:
    """``--store``; ``stores_of`` says what it means."""
    choices = [name for name in STORES if both or name != "both"]
    return click.option("--store", type=click.Choice(choices), help=f"{help_} [zookeeper; kafka with brokers alone]")


def stores_of(session: AnySession, store: str | None) -> Sequence[Store]:
    """The stores that ``--store`` means.  Raises ``UsageError``."""
    if isinstance(session, AdminSession):
        return STORES[store or "zookeeper"]
    if store not in (None, "kafka"):
        only_in_zookeeper(session, f"--store {store} is about offsets in ZooKeeper")
    return STORES["kafka"]


execute_option = click.option("--execute", "do_it", is_flag=True, help="Do it; without this nothing is changed.")

convention_option = click.option(
    "--offset-convention", "convention", type=click.Choice(["next", "last"]),
    help="What the file's offsets mean: the next one to read, or the last that was read [next, or as the file says].",
)  # fmt: skip

file_format_option = click.option(
    "--format", "format_", type=click.Choice(["auto", *(each.value for each in Format)]), default="auto",
    show_default=True, help="What the file looks like.",
)  # fmt: skip


def read_file(name: str, format_: str) -> OffsetFile:
    """The file of this name, ``-`` for standard input; its remarks are told.  Raises ``UsageError``."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    try:
        parsed = parse_file(data, None if format_ == "auto" else Format(format_))
    except BadOffsetFile as error:
        raise BadOffsetFile(f"{name}: {error}") from error
    for remark in parsed.remarks:
        tell(f"{name}: {remark}")
    return parsed


def as_convention(text: str | None) -> Convention | None:
    """The value of ``--offset-convention``."""
    match text:
        case "next" | "last":
            return text
    return None


# --- showing ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Job:
    """One group's plan, with what it was made from and how far it got."""

    stores: GroupStores
    seen: SeenGroup
    plan: OffsetPlan
    reports: Reports = field(default_factory=Reports)
    is_repeatable: bool = True
    """Whether the same command, given again after a part was done, means the same offsets."""

    @property
    def verb(self) -> str:
        """What is done to the offsets, in a word."""
        return "deleted" if all(row.new is None for row in self.plan.rows) else "written"


HEADS = "GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "CURRENT-OFFSET", "LOG-START", "LOG-END", "STORE", "REMARK"
"""The columns of kafka-consumer-groups --reset-offsets (GROUP from 2.3 on), and ours."""


def show_table(plan: OffsetPlan, *, changes_only: bool) -> None:
    """The plan for a person."""
    rows = [row for row in plan.rows if row.is_change or row.refusal] if changes_only else plan.rows
    if rows:
        print_table(HEADS, (_cells(plan.group, row) for row in rows))


def _cells(group: str, row: PlannedOffset) -> tuple[object, ...]:
    new = "(delete)" if row.new is None and not row.refusal else row.new
    start, end = (row.log.earliest, row.log.latest) if isinstance(row.log, LogRange) else (None, None)
    remark = f"REFUSED: {row.refusal}" if row.refusal else row.remark
    return group, row.tp.topic, row.tp.partition, new, row.current, start, end, row.store, remark


def _job_json(job: Job) -> dict[str, object]:
    written, unknown = _done(job.reports), _unknown(job.reports)

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
            "refusal": row.refusal or None,
            "written": None if at in unknown else at in written,
        }

    return {
        "group": job.plan.group,
        "members": list(job.seen.members),
        "stopped_by": job.reports.stopped_by or None,
        "rows": [row_json(row) for row in job.plan.rows],
    }


def _tell_about(job: Job, wanted: Sequence[Store]) -> None:
    """What a person should know of the plan before it is carried out."""
    for node in job.seen.unreadable:
        tell(f"the znode of {node.tp} holds no offset: {node.problem}")
    if job.seen.may_have_unseen_members:
        tell(unseen_members(job.plan.group))
    control = job.seen.control
    if control is not None and job.seen.is_moving:
        tell(
            f"Group {job.plan.group} is on the move (phase {control.phase}, authority {control.authority}): its "
            "migration compares the offsets, and stops where they change. Where it stands: zkconsumer migrate status "
            f"{shlex.quote(job.plan.group)}"
        )
    if len(wanted) > 1:
        return
    other: Store = "kafka" if wanted[0] == "zookeeper" else "zookeeper"
    if other == "kafka" and job.seen.kafka is None:
        if job.seen.kafka_problem:
            tell_error(f"whether Kafka's own store has offsets of this group is not known: {job.seen.kafka_problem}")
        return
    higher = higher_in_the_other(job.plan, job.seen.current(other))
    if higher:
        tell(
            f"{named(higher)}: a larger offset is stored in {other}. Members with offsets.storage=kafka and "
            "dual.commit.enabled start from the larger of the two, so for them this changes nothing: use --store both"
        )


def counted(count: int) -> str:
    """So many offsets, in words."""
    return "1 offset" if count == 1 else f"{count} offsets"


# --- carrying out -----------------------------------------------------------------------------------------------


def run(
    context: click.Context, jobs: Sequence[Job], wanted: Sequence[Store], *, do_it: bool, output: str, hint: str
) -> NoReturn:
    """Refuse, explain or carry out, and end with the exit code; nothing is written when one group is refused.

    ``hint``: what to do about offsets that cannot be set.
    """
    for job in jobs:
        _tell_about(job, wanted)
    code = _judge(context, jobs, wanted, do_it=do_it, hint=hint)
    if code is None:
        code = _carry_out(jobs, again_words(context))
    if output == "json":
        print_json({"schema": PLAN_SCHEMA, "executed": do_it, "exit_code": code, "groups": list(map(_job_json, jobs))})
    context.exit(code)


def _judge(
    context: click.Context, jobs: Sequence[Job], wanted: Sequence[Store], *, do_it: bool, hint: str
) -> int | None:
    """The exit code when nothing is to be written; None: go on."""
    refused = [job for job in jobs if job.plan.refused]
    for job in refused:
        tell_error(f"Group {job.plan.group}: {counted(len(job.plan.refused))} cannot be set:")
        for line in job.plan.refusal_lines():
            tell(f"  {line}")
    if refused:
        tell(f"Nothing was changed. {hint}")
        return EXIT_PRECONDITION
    changes = sum(len(job.plan.changes) for job in jobs)
    if not changes:
        tell("There is nothing to change.")
        return 0
    in_the_way = [words for job in jobs if job.plan.changes and (words := job.seen.refusal(wanted))]
    for words in in_the_way:
        tell_error(words)
    if in_the_way:
        tell(f"Nothing was changed. Then: {_where_it_can_be_done(context, jobs, wanted)}")
        return EXIT_PRECONDITION
    if not do_it:
        tell(f"Nothing was changed; {counted(changes)} would be. To do it: {again_words(context)}")
        return EXIT_DIFFERS
    return None


def _where_it_can_be_done(context: click.Context, jobs: Sequence[Job], wanted: Sequence[Store]) -> str:
    """The same command, or, for a group that has moved, the one for Kafka's store: ZooKeeper would be refused again."""
    if "zookeeper" in wanted and any(job.seen.has_moved for job in jobs):
        return shlex.join([*given_words(context, without=("--store",)), "--store", "kafka", "--execute"])
    return again_words(context)


def _carry_out(jobs: Sequence[Job], again: str) -> int:
    for at, job in enumerate(jobs):
        try:
            job.stores.write(job.plan, job.seen, job.reports)
        except KeyboardInterrupt:
            job.reports.zookeeper.stopped_by = "it was interrupted"
            _tell_partial(jobs[: at + 1], again)
            raise
        except ZkConsumerError as error:
            job.reports.zookeeper.stopped_by = str(error)
        if job.reports.stopped_by:
            return _tell_partial(jobs[: at + 1], again)
        tell(f"Group {job.plan.group}: {counted(job.reports.written)} {job.verb}.")
    return 0


def _tell_partial(jobs: Sequence[Job], again: str) -> int:
    """Say exactly what was written and what was not; the exit code."""
    job = jobs[-1]
    group, reports = job.plan.group, job.reports
    if not any(each.reports.written or each.reports.unknown for each in jobs):
        tell_error(f"Group {group}: nothing was changed, because {reports.stopped_by}. Then: {again}")
        return EXIT_PRECONDITION
    changes = job.plan.changes
    tell_error(f"Group {group}: {reports.written} of {counted(len(changes))} {job.verb}, because {reports.stopped_by}:")
    written, unknown = _done(reports), _unknown(reports)
    for row in changes:
        at = row.store, row.tp
        state = job.verb if at in written else "unknown, the answer never came" if at in unknown else f"not {job.verb}"
        tell(f"  {row.store} {row.tp}: {state}")
    if job.is_repeatable:
        tell(f"The same command does the rest; what stands there already is not written again: {again}")
        return EXIT_PARTIAL
    rest = {row.tp: row.new for row in changes if (row.store, row.tp) not in written}
    stores = " --store both" if len({row.store for row in changes}) > 1 else f" --store {changes[0].store}"
    file = shlex.quote(f"{group}-rest.csv")
    tell(f"Do not give the same command again: it would begin from where the offsets stand now. Put this into {file}:")
    for tp, new in rest.items():
        tell(f"{tp.topic},{tp.partition},{new}")
    tell(f"Then: zkconsumer offsets set {shlex.quote(group)} --from-file {file}{stores} --execute")
    return EXIT_PARTIAL


def _done(reports: Reports) -> set[tuple[Store, TopicPartition]]:
    return {("zookeeper", tp) for tp in reports.zookeeper.written} | {("kafka", tp) for tp in reports.kafka.written}


def _unknown(reports: Reports) -> set[tuple[Store, TopicPartition]]:
    return {("zookeeper", tp) for tp in reports.zookeeper.unknown} | {("kafka", tp) for tp in reports.kafka.unknown}

