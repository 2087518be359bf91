"""``zkconsumer migrate plan``: writes the plan of a migration, and shows what blocks it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path

import click

from bridge.commands.migrate_common import (
    NO_ACL_FENCE_WITH_DUAL,
    decision_command,
    plan_refusal_lines,
    print_sentences,
    read_group_or_exit,
    rows_json,
    show_rows,
)
from bridge.commands.migrate_hints import MigrateCommand, migrate_command
from bridge.migration.control.phases import Strategy
from bridge.migration.plan.decisions import Decisions, ExistingOffsetPolicy, OffsetConvention, OffsetFallback
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import check_plan_file_target, write_plan_file
from bridge.migration.plan.start_offsets import make_plan
from zkconsumer.admin.offset_targets import parse_duration
from zkconsumer.admin.text_format import count_text
from zkconsumer.cli.common import open_zookeeper_session, print_json
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.cli.options import ClusterOptions, OutputFormat, choice_option, group_argument, report_options
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import INT64_MAX

SCHEMA = "zkconsumer/migrate-plan/1"

_OFFSET = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249}):(?P<partition>[0-9]{1,10})=(?P<offset>[0-9]{1,19})", re.ASCII)
MINUTE_MS = 60_000
RETENTION_DAYS_MAX = 3_650

_FALLBACKS = [each.value for each in OffsetFallback]


@click.command(cls=MigrateCommand, short_help="Plan a migration, and show what blocks it.")
@group_argument()
@choice_option(
    "--strategy",
    ["copy", "dual"],
    "copy",
    "copy: stop the old members, start the new ones. dual: all members run this library, none stops.",
)
@click.option(
    "-f",
    "--file",
    "file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file for the plan; replaces a plan of the same group.",
)
@click.option(
    "--offset-convention",
    type=click.Choice([each.value for each in OffsetConvention]),
    help="What a stored offset means: the next record to read, or the last one read [as the group shows].",
)
@choice_option(
    "--missing", _FALLBACKS, "refuse", "Where a partition starts that has no offset, or one that cannot be parsed."
)
@choice_option(
    "--out-of-range", _FALLBACKS, "refuse", "Where a partition starts whose offset is out of the range of its log."
)
@choice_option(
    "--existing",
    [each.value for each in ExistingOffsetPolicy],
    "refuse",
    "Which offset is used where Kafka has another one, which an application committed.",
)
@choice_option(
    "--older-than-topic",
    ["refuse", "use"],
    "refuse",
    "use: use offsets that are older than their topic (ZooKeeper was copied).",
)
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="TOPIC:PARTITION=N",
    help="The next offset of one partition, in place of its stored offset. May be repeated.",
)
@click.option(
    "--no-acl-fence",
    is_flag=True,
    help="Do not change access lists; an old process that resumes from a pause can then write an old offset.",
)
@click.option(
    "--offsets-retention",
    metavar="PnDTnHnMnS",
    help="How long brokers before 2.1 keep the copied offsets [P30D, or the brokers' setting, if longer].",
)
@report_options
def plan(
    context: click.Context,
    group: str,
    strategy: Strategy,
    file: Path,
    offset_convention: str | None,
    missing: str,
    out_of_range: str,
    existing: str,
    older_than_topic: str,
    offsets: Sequence[str],
    no_acl_fence: bool,
    offsets_retention: str | None,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Read a group from both stores, decide where each partition starts in Kafka, and write that to a file.

    Changes nothing but the file. The command guesses nothing: it refuses what it cannot decide, and names the option
    that decides it. Examples: the offset convention, missing or out-of-range offsets, offsets that Kafka already has.
    Exit codes: 0 the plan can be applied, 1 the group does not exist, or the file cannot be written, 4 the plan cannot
    be applied (the file is written, for reading; not without permission to read znodes, and not during a migration of
    the group, because the file may be its plan).
    """
    paths.check_group(group)
    if strategy == "dual" and no_acl_fence:
        raise UsageError(NO_ACL_FENCE_WITH_DUAL)
    decisions = Decisions(
        convention=None if offset_convention is None else OffsetConvention(offset_convention),
        missing=OffsetFallback(missing),
        out_of_range=OffsetFallback(out_of_range),
        existing=ExistingOffsetPolicy(existing),
        use_older=older_than_topic == "use",
        offsets=_offsets(offsets),
        acl_fence=strategy == "copy" and not no_acl_fence,
        offsets_retention_ms=None if offsets_retention is None else _retention(offsets_retention),
    )
    check_plan_file_target(file, group)
    session = open_zookeeper_session(context, cluster)
    seen = read_group_or_exit(context, session, group, with_acls=decisions.acl_fence)
    made = make_plan(
        seen, decisions, migration_id=uuid.uuid4().hex[:12], strategy=strategy, made_at_ms=session.clock.wall_ms()
    )
    is_written = seen.control is None or seen.control.is_over
    if is_written:
        write_plan_file(file, made)
    if output == "table" and made.partitions:
        show_rows(made)
    steps = _print_plan_result(context, made, file, is_written=is_written)
    code = 0 if made.can_be_applied else EXIT_PRECONDITION
    if output == "json":
        print_json(_json(made, file if is_written else None, steps, code))
    context.exit(code)


def _retention(given: str) -> int:
    retention_ms = parse_duration(given, "--offsets-retention")
    if not MINUTE_MS <= retention_ms <= RETENTION_DAYS_MAX * 1_440 * MINUTE_MS:
        raise UsageError(f"--offsets-retention {given!r} is not between a minute and {RETENTION_DAYS_MAX} days")
    return retention_ms


def _offsets(given: Sequence[str]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for text in given:
        match = _OFFSET.fullmatch(text)
        if match is None or int(match["offset"]) > INT64_MAX:
            raise UsageError(f"--offset {text!r} is not TOPIC:PARTITION=N")
        tp = TopicPartition(paths.check_topic(match["topic"]), int(match["partition"]))
        if found.setdefault(tp, int(match["offset"])) != int(match["offset"]):
            raise UsageError(f"--offset names {tp} twice")
    return found


def _print_plan_result(context: click.Context, made: MigrationPlan, file: Path, *, is_written: bool) -> list[str]:
    """Print the result; return the next commands."""
    meaning = "not known" if made.convention is None else made.convention.value
    print_message(f"Offset convention: {meaning} ({made.convention_evidence})")
    print_message(f"Assignment in use: {made.snapshot.assignment_in_use}")
    later = print_sentences(context, "Warning", made.warnings)
    steps = print_sentences(context, "Refused", made.refusals)
    lines = plan_refusal_lines(made)
    if lines:
        refused = sum(bool(row.refusal) for row in made.partitions)
        print_message(f"Refused: {count_text(refused, 'partition')} cannot be planned:")
        for line in lines:
            print_message(f"  {line}")
        decide = decision_command(context, made)
        if decide:
            print_message(f"Next, after you checked each of them: {decide}")
            steps.append(decide)
    if is_written:
        print_message(f"The plan is in {file} (digest {made.digest}).")
    else:
        print_message(f"No plan was written; {file} is unchanged.")
    if not made.can_be_applied:
        print_error("the plan cannot be applied. Nothing was changed.")
        return [*steps, *later]
    apply = migrate_command(context, "apply", str(file))
    print_message(f"Nothing was changed. To see each step: {apply}")
    return [apply, *later]


def _json(made: MigrationPlan, file: Path | None, steps: list[str], code: int) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "group": made.group,
        "file": None if file is None else str(file),
        "digest": None if file is None else made.digest,
        "migration_id": made.migration_id,
        "strategy": made.strategy,
        "can_be_applied": made.can_be_applied,
        "exit_code": code,
        "offset_convention": None if made.convention is None else made.convention.value,
        "offset_convention_evidence": made.convention_evidence,
        "assignment_in_use": made.snapshot.assignment_in_use,
        "offsets_retention_ms": made.offsets_retention_ms if made.snapshot.keeps_by_commit else None,
        "refusals": list(made.refusals),
        "warnings": list(made.warnings),
        "partitions": rows_json(made),
        "next_steps": steps,
    }
