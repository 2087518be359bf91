"""Shared by the commands that execute steps: options, the session, the step executor, and the final report."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from bridge.commands.migrate_hints import migrate_command, next_command_lines
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.journal import Journal
from bridge.migration.control.phases import Phase
from bridge.migration.fences.fence_login import open_fence_session as open_logged_in
from bridge.migration.inspect.migration_status import PLACEHOLDER_ENTRY
from bridge.migration.steps.migration_invariant import MigrationInvariant
from bridge.migration.steps.step import StepRunner
from bridge.migration.steps.step_executors import ApplyExecutor, DryRunExecutor, DryRunStep
from bridge.migration.steps.unavailable_stores import is_unavailable
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.common import EXIT_DIFFERS, missing_address_error, print_json
from zkconsumer.cli.console import log_to_console, print_message, printable
from zkconsumer.cli.options import ClusterOptions, OutputFormat, SecondsRange, report_options
from zkconsumer.errors import PreconditionFailed, UsageError, ZkConsumerError
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import VersionedControl
    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep

WAIT_TIMEOUT_S = 600.0
"""Default of ``--timeout``: how long a run waits in total."""

PHASE_HINTS = {
    ("copy", Phase.SWITCHED): "Start the new members now. A rollback is possible until the migration is completed.",
    ("copy", Phase.UNDONE): "Old members can read now. Start no new members: nothing blocks them any more.",
    ("dual", Phase.SWITCHED): "The members use Kafka now. A rollback is possible until the migration is completed.",
    ("dual", Phase.UNDONE): "The members use ZooKeeper now. Old members can read beside them.",
}
"""Printed at the end of a run that reached this phase, before the next command."""

F = TypeVar("F", bound=Callable[..., Any])


def execute_option(command: F) -> F:
    """``--execute``."""
    return click.option(
        "--execute", "do_it", is_flag=True, help="Execute the steps; without it, show them and change nothing."
    )(command)


def timeout_option(command: F) -> F:
    """``--timeout``."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=SecondsRange(0),
        default=WAIT_TIMEOUT_S,
        show_default=True,
        metavar="S",
        help="Seconds to wait in total: for members to leave, sessions to end, unavailable stores to answer.",
    )(command)


def zookeeper_auth_option(command: F) -> F:
    """``--zookeeper-auth``."""
    return click.option(
        "--zookeeper-auth", metavar="SCHEME:FILE",
        help="zookeeper.auth: the login that owns the migration [with access lists: a random one for this run].",
    )(command)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The values of ``execute_option`` and ``run_options``."""

    do_it: bool
    timeout_s: float
    zookeeper_auth: str | None
    output: OutputFormat
    cluster: ClusterOptions


def run_options(command: F) -> F:
    """The options of every command that executes steps: timeout, ZooKeeper login, output, cluster.

    The command receives them, and ``--execute``, as ``run``, a ``RunOptions``; and the context, as its first argument.
    """

    @functools.wraps(command)
    def with_run(context: click.Context, **given: Any) -> Any:
        run = RunOptions(**{each.name: given.pop(each.name) for each in fields(RunOptions)})
        return command(context, run=run, **given)

    wrapped: Any = with_run
    return timeout_option(zookeeper_auth_option(report_options(wrapped)))  # type: ignore[no-any-return]


def read_control_znode(session: AdminSession, group: str) -> VersionedControl:
    """The control znode of a group.  Raises ``PreconditionFailed`` when the group never migrated."""
    held = ControlZnode(session, group, "").read()
    if held is None:
        raise PreconditionFailed(
            f"group {group} is not migrating: {paths.control(group)} does not exist. Correct the name, or inspect the "
            f"group: zkconsumer migrate inspect {group}"
        )
    return held


def open_run_session(
    context: click.Context, cluster: ClusterOptions, zookeeper_auth: str | None, *, acl_fence: bool = True
) -> AdminSession:
    """A connected session with the login of the fences; the end of the command closes it."""
    log_to_console()
    if cluster.zookeeper is None and cluster.config_file is None:
        raise missing_address_error()
    doors = context.find_object(AdminDependencies)
    given = cluster.zookeeper, cluster.config_file, doors, cluster.bootstrap_servers
    if doors is not None and doors.store is not None:  # servers that a test replaced: they have their own logins
        session = AdminSession.open(*given)
    else:
        session = open_logged_in(*given, zookeeper_auth=zookeeper_auth, acl_fence=acl_fence)
    context.call_on_close(session.close)
    return session


def dry_run(
    context: click.Context,
    moving: MigrationContext,
    steps: Callable[[], Iterator[MigrationStep]],
    run: RunOptions,
    *,
    again: str,
    schema: str,
) -> NoReturn:
    """Print the dry run and end the command: 0 nothing to do, 3 it would change something, or the refusal's code."""
    performer = DryRunExecutor()
    _step_runner(moving, performer, WAIT_TIMEOUT_S, again).run_with_retry(steps)
    error = performer.error
    words = "" if error is None else complete_commands(str(error), context)
    code = error.exit_code if error is not None else EXIT_DIFFERS if performer.would_change else 0
    if run.output == "json":
        print_json(
            {
                "schema": schema,
                "group": moving.group,
                "migration_id": moving.control_znode.migration_id,
                "executed": False,
                "exit_code": code,
                "error": words or None,
                "steps": [
                    {"name": one.name, "status": one.status, "changes": one.changes, "lines": _lines(context, one)}
                    for one in performer.steps
                ],
                "next_steps": [again] if code in (0, EXIT_DIFFERS) else [],
            }
        )
    else:
        for number, one in enumerate(performer.steps, 1):
            click.echo(printable(f"{number}. {one.name} ({one.status})"))
            for line in _lines(context, one):
                for part in line.split("\n"):
                    click.echo(printable(f"     {part}"))
    if error is not None:
        print_message("It would stop at this step: " + words.split("\n")[0])
    elif performer.would_change:
        print_message(f"Nothing was changed. To do it: {again}")
    else:
        print_message("There is nothing to do.")
    context.exit(code)


def _lines(context: click.Context, step: DryRunStep) -> list[str]:
    return [complete_commands(line, context) for line in step.lines]


def execute_steps(
    context: click.Context,
    moving: MigrationContext,
    steps: Callable[[], Iterator[MigrationStep]],
    run: RunOptions,
    *,
    again: str,
    schema: str,
    next_steps: Callable[[Phase | None], list[str]],
) -> None:
    """Execute the steps.  An error is raised after the JSON report is printed.  ``again``: the command that continues.

    ``steps`` derives them from the current phase; it is called again each time after a store was unavailable.
    """
    real = ApplyExecutor(
        print_message,
        moving.placeholder.heartbeat_if_due,
        StopSignal().wait,
        moving.session.clock,
        MigrationInvariant(moving),
    )
    error: ZkConsumerError | None = None

    def derive() -> Iterator[MigrationStep]:
        moving.control_znode.reset_lock()
        return steps()

    try:
        _step_runner(moving, real, run.timeout_s, again).run_with_retry(derive)
    except ZkConsumerError as found:
        error = found
    except KeyboardInterrupt:
        _report_placeholder(moving)
        print_message(f"Interrupted. The completed steps remain; continue with: {again}")
        raise
    phase, unknown = None, str(error)
    if not _is_store_unavailable(error):
        _report_placeholder(moving)
        phase, unknown = _phase_of(moving)
    following = [again]
    if error is None:
        following = [migrate_command(context, "status", moving.group)] if unknown else next_steps(phase)
    reason = "" if error is None else complete_commands(str(error), context)
    report = {
        "schema": schema,
        "group": moving.group,
        "migration_id": moving.control_znode.migration_id,
        "executed": True,
        "exit_code": 0 if error is None else error.exit_code,
        "error": reason or None,
        "phase": None if phase is None else phase.value,
        "steps": real.executed_steps,
        "next_steps": following,
    }
    if error is not None:
        if phase is not None and again not in reason:
            print_message(f"The completed steps remain. To continue: {again}")
        with suppress(OSError):  # the error of the run is more important than a report that cannot be written
            _print(report, run.output)
        raise error
    if unknown:
        print_message(f"All steps are done. The phase of group {moving.group} cannot be read now: {unknown}")
    else:
        print_message(f"Group {moving.group} is in phase {'none' if phase is None else phase.value}.")
        words = PHASE_HINTS.get((moving.plan.strategy, phase)) if phase is not None else None
        if words is not None:
            print_message(words)
    for line in next_command_lines(phase, following):
        print_message(line)
    _print(report, run.output)


def _print(report: dict[str, object], output: OutputFormat) -> None:
    if output == "json":
        print_json(report)


def _step_runner(
    moving: MigrationContext, performer: ApplyExecutor | DryRunExecutor, timeout_s: float, again: str
) -> StepRunner:
    has_changed = moving.phase is not None
    is_aborted = moving.control_znode.is_abort_requested
    return StepRunner(performer, moving.session.clock, round(timeout_s * 1_000), again, is_aborted, has_changed)


def _is_store_unavailable(error: ZkConsumerError | None) -> bool:
    """Whether the run ended because a store did not answer; the report then does not read it again."""
    return error is not None and isinstance(error.__cause__, ZkConsumerError) and is_unavailable(error.__cause__)


def _phase_of(moving: MigrationContext) -> tuple[Phase | None, str]:
    """The phase of the migration, and why it cannot be read (empty: it was read)."""
    try:
        return moving.phase, ""
    except ZkConsumerError as error:
        return None, str(error)


def _report_placeholder(moving: MigrationContext) -> None:
    """Print how long the placeholder member that the run leaves in the group still blocks other members."""
    sitting = moving.placeholder.joined
    if sitting is None:
        return
    left_ms = sitting.session_end_ms - moving.session.clock.now_ms()
    until_ms = moving.session.clock.wall_ms() + left_ms
    with suppress(ZkConsumerError):
        Journal(moving.control_znode, moving.caller).append(PLACEHOLDER_ENTRY, {"until_ms": str(until_ms)})
    print_message(
        f"The placeholder member blocks the coordinator group for {max(0, left_ms) // 1_000} s; then clients can join."
    )


def confirm_group(group: str, given: str | None, why: str) -> None:
    """Prompt for the group's name.  ``given``: the value of ``--confirm``.  ``why``: what cannot be undone."""
    try:
        typed = click.prompt(f"{why} Type the group's name ({group})", err=True) if given is None else given
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        words = f"the command cannot prompt for the name here, and nothing was changed: give --confirm {group}"
        raise UsageError(words) from error
    if typed != group:
        raise click.UsageError(f"{typed!r} is not the group's name, so nothing was changed")
