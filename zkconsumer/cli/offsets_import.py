"""``zkconsumer offsets import``: writes the offsets of a file into a store, after all checks."""

from __future__ import annotations

import click

from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.group_offset_stores import GroupOffsetStores
from zkconsumer.admin.offset_lines import OffsetFileConvention
from zkconsumer.admin.offset_plan import plan_import
from zkconsumer.base.progress import progress_task
from zkconsumer.cli.command_hints import rerun_with_execute
from zkconsumer.cli.common import open_admin_session
from zkconsumer.cli.offsets_common import (
    OffsetPlanExecution,
    convention_option,
    execute_option,
    execute_or_explain,
    file_format_option,
    print_plan,
    read_file,
    read_group_offsets,
    selected_stores,
    store_option,
)
from zkconsumer.cli.options import ClusterOptions, OutputFormat, group_argument, report_options


@click.command(name="import")
@click.argument("file")
@group_argument(required=False)
@store_option("The store to write to; default: the one that a json file names.")
@file_format_option
@convention_option
@click.option("--allow-out-of-range", is_flag=True, help="Also write offsets outside the log.")
@execute_option
@report_options
def import_(
    context: click.Context,
    file: str,
    group: str | None,
    store: str | None,
    format_: str,
    convention: OffsetFileConvention | None,
    allow_out_of_range: bool,
    do_it: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Write the offsets of FILE (- for standard input) into a store.

    With GROUP, only the offsets of that group are written; a file without groups (csv) needs GROUP.

    FILE may come from export, from Kafka's ExportZkOffsets, or from kafka-consumer-groups --export. Without --execute
    every change is shown and nothing is written.

    A group with registered members is rejected, without an option to force it: a running member overwrites the import
    with its own position at its next commit. Each write to ZooKeeper names the version that was read, so it never
    overwrites a change of another program; if a run was interrupted, run it again. Exit codes: 0 done or nothing to do,
    3 would change something, 4 rejected and nothing changed, 6 written in part.
    """
    parsed = read_file(file, format_)
    found = read_group_offsets(file, parsed, group, convention)
    session = open_admin_session(context, cluster)
    stores = selected_stores(session, store or (parsed.store if isinstance(session, AdminSession) else None))
    jobs = []
    with progress_task("reading", len(found), "groups") as task:
        for name, wanted in sorted(found.items()):
            group_stores = GroupOffsetStores(session, name)
            seen = group_stores.read(stores, include_kafka=True)
            current = {each: seen.offsets_in(each) for each in stores}
            logs = group_stores.log_ranges(wanted)
            plan = plan_import(name, wanted, stores, current, logs, allow_out_of_range=allow_out_of_range)
            jobs.append(OffsetPlanExecution(group_stores, seen, plan))
            if output == "table":
                print_plan(plan, changes_only=True)
            task.advance()
    hint = f"To write them anyway: {rerun_with_execute(context)} --allow-out-of-range"
    execute_or_explain(context, jobs, stores, do_it=do_it, output=output, hint=hint)
