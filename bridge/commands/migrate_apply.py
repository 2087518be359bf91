"""``zkconsumer migrate apply``: executes a plan, or shows in a dry run what it would do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.commands.migrate_common import NO_ACL_FENCE_WITH_DUAL
from bridge.commands.migrate_execution import (
    RunOptions,
    dry_run,
    execute_option,
    execute_steps,
    open_run_session,
    run_options,
)
from bridge.commands.migrate_hints import MigrateCommand, migrate_command, remember_plan_digest
from bridge.commands.migrate_plan_digest import check_plan_digest
from bridge.migration.control.control_acls import check_control_acls
from bridge.migration.control.control_pieces import read_plan_text as read_kept_text
from bridge.migration.control.phases import Phase
from bridge.migration.dual.dual_strategy import STOP_AFTER_PHASES, DualOptions, dual_steps
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES
from bridge.migration.plan.plan_checks import next_command
from bridge.migration.plan.plan_file import InvalidPlanFileError, plan_from_bytes, plan_to_bytes, read_plan_file
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.cut_over_hooks import check_hooks
from bridge.migration.steps.migration_context import caller_description, open_migration, read_accepted_plan
from zkconsumer.admin.text_format import count_text
from zkconsumer.errors import InvalidNameError, PreconditionFailed, UsageError
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.plan.migration_plan import MigrationPlan

SCHEMA = "zkconsumer/migrate-apply/1"

STOP_AFTER_CHOICES = {
    "copy": [phase.value for phase in COPY_PHASES],
    "dual": [phase.value for phase in STOP_AFTER_PHASES],
}


@click.command(cls=MigrateCommand, short_help="Execute a plan; again to continue after a crash.")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path), metavar="[PLAN]")
@click.option("--resume", metavar="GROUP", help="Continue with the plan beside the control znode of GROUP.")
@click.option(
    "--plan-digest",
    metavar="DIGEST",
    help="With --resume: the digest that plan printed. It confirms that ZooKeeper contains this plan.",
)
@execute_option
@click.option(
    "--stop-after",
    type=click.Choice(list(dict.fromkeys(STOP_AFTER_CHOICES["copy"] + STOP_AFTER_CHOICES["dual"]))),
    help="Stop after this phase of the plan's strategy; the same command without this option continues.",
)
@click.option(
    "--accept-drift",
    is_flag=True,
    help="Where offsets have changed since the plan, copy the current ones, by the decisions of the plan.",
)
@click.option(
    "--hooks-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Programs zkconsumer-on-before-cut-over* (may veto) and zkconsumer-on-after-cut-over*.",
)
@click.option("--no-acl-fence", is_flag=True, help="As for plan; apply refuses a plan that was made without it.")
@run_options
def apply(
    context: click.Context,
    file: Path | None,
    resume: str | None,
    plan_digest: str | None,
    stop_after: str | None,
    accept_drift: bool,
    hooks_dir: Path | None,
    no_acl_fence: bool,
    run: RunOptions,
) -> None:
    """Move a group as its plan defines.

    Strategy copy: wait until the old members have stopped, fence both sides, copy the offsets, read them back and
    compare them, and move the authority to Kafka in one write. Strategy dual: the members continue to read; each phase
    begins when every member has acknowledged the phase before it.

    Without --execute it shows what each step would do. After a crash the same command, on any machine, continues from
    the current phase of the group. With --resume it reads the plan from ZooKeeper and shows it; it executes the plan
    when --plan-digest confirms it. Exit codes: 0 done or nothing to do, 3 would change something, 4 blocked and nothing
    was changed, 5 a value differs from what was written, 6 part of it is done and the same command continues, 7 waited
    too long before anything was changed.
    """
    if (file is None) == (resume is None):
        raise UsageError("give the file of the plan, or --resume GROUP")
    if plan_digest is not None and resume is None:
        raise UsageError("--plan-digest needs --resume: a plan from a file needs no confirmation")
    check_hooks(hooks_dir)
    given = None if file is None else _read(file)
    if resume is not None:
        paths.check_group(resume)
    session = open_run_session(
        context, run.cluster, run.zookeeper_auth,
        acl_fence=not no_acl_fence if given is None else given.uses_acl_fence,
    )  # fmt: skip
    group = given.group if given is not None else str(resume)
    check_control_acls(session, group)
    first = given if given is not None else plan_from_bytes(read_kept_text(session, group))
    _check_plan(first, no_acl_fence=no_acl_fence)
    _check_options(first, stop_after, accept_drift=accept_drift, no_acl_fence=no_acl_fence)
    moving = open_migration(session, first, caller_description())
    if moving.phase is not None:
        moving.plan = read_accepted_plan(session, first) or first
    hold = None if stop_after is None else Phase(stop_after)
    # Until PLANNED is complete the plan's chunks in ZooKeeper may be incomplete, so the command must name the file.
    is_kept = file is None or moving.phase not in (None, Phase.PLANNED)
    confirmed = ["--resume", first.group, "--plan-digest", first.digest]
    words = ["apply", *(confirmed if is_kept else [str(file)]), "--execute"]
    words += [f"--stop-after={stop_after}"] if stop_after else []
    words += [f"--hooks-dir={hooks_dir}"] if hooks_dir else []
    words += ["--accept-drift"] if accept_drift else []
    again = migrate_command(context, *words)
    if resume is not None:
        check_plan_digest(first, plan_digest, again, do_it=run.do_it)
    if resume is None or plan_digest is not None:
        remember_plan_digest(context, first.digest)
    if first.strategy == "dual":
        steps = partial(dual_steps, moving, DualOptions(plan_to_bytes(first), hooks_dir, hold))
    else:
        steps = partial(copy_steps, moving, CopyOptions(plan_to_bytes(first), accept_drift, hooks_dir, hold))
    if not run.do_it:
        dry_run(context, moving, steps, run, again=again, schema=SCHEMA)

    def next_steps(phase: Phase | None) -> list[str]:
        if phase is Phase.SWITCHED:
            return [
                migrate_command(context, "complete", first.group),
                migrate_command(context, "rollback", first.group, "--execute"),
            ]
        return [
            migrate_command(context, "apply", *confirmed, "--execute"),
            migrate_command(context, "rollback", first.group, "--execute"),
        ]

    execute_steps(context, moving, steps, run, again=again, schema=SCHEMA, next_steps=next_steps)


def _read(file: Path) -> MigrationPlan:
    try:
        return read_plan_file(file)
    except InvalidPlanFileError as error:
        if file.exists() or not _is_group(str(file)):
            raise
        raise InvalidPlanFileError(
            f"{error}. If {file} is the name of a migrating group, continue with its stored plan: zkconsumer migrate "
            f"apply --resume {file}"
        ) from error


def _is_group(text: str) -> bool:
    try:
        return bool(paths.check_group(text))
    except InvalidNameError:
        return False


def _check_plan(plan: MigrationPlan, *, no_acl_fence: bool) -> None:
    again = f"zkconsumer migrate plan {plan.group}"
    if not plan.can_be_applied:
        reasons = [*plan.refusals, *(f"{row.tp}: {row.refusal}" for row in plan.partitions if row.refusal)]
        more = f" {count_text(len(reasons), 'reason')}, the first one:" if len(reasons) > 1 else ""
        settle = "" if next_command(reasons[0]) else f". Plan again, with an option that decides each reason: {again}"
        raise PreconditionFailed(f"this plan cannot be applied:{more} {reasons[0]}{settle}")
    if no_acl_fence and plan.uses_acl_fence:
        raise PreconditionFailed(
            f"this plan uses access lists as a fence; make a plan that does not: {again} --no-acl-fence"
        )


def _check_options(plan: MigrationPlan, stop_after: str | None, *, accept_drift: bool, no_acl_fence: bool) -> None:
    if stop_after is not None and stop_after not in STOP_AFTER_CHOICES[plan.strategy]:
        raise UsageError(
            f"a run of strategy {plan.strategy} cannot stop after phase {stop_after}: give --stop-after with one of "
            f"{', '.join(STOP_AFTER_CHOICES[plan.strategy])}"
        )
    if accept_drift and plan.strategy == "dual":
        raise UsageError(
            "--accept-drift is for plans of strategy copy: with dual the members move their own current offsets, not "
            "those of the plan"
        )
    if no_acl_fence and plan.strategy == "dual":
        raise UsageError(NO_ACL_FENCE_WITH_DUAL)
