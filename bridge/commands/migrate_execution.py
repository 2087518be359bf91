"""What the commands share that carry steps out: options, the session, the performer, and what is said in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from bridge.commands.migrate_hints import migrate_command, next_command_lines
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.journal import Journal
from bridge.migration.control.phases import Phase
from bridge.migration.fences.fence_login import open_fence_session as open_logged_in
from bridge.migration.inspect.migration_status import PLACEHOLDER_ENTRY
from bridge.migration.steps.step import StepRunner
from bridge.migration.steps.step_executors import ApplyExecutor, DryRunExecutor, DryRunStep
from bridge.migration.steps.unavailable_stores import is_unavailable
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.common import EXIT_DIFFERS, missing_address_error, print_json
from zkconsumer.cli.console import log_to_console, print_message, printable
from zkconsumer.cli.options import cluster_options, output_option
from zkconsumer.errors import PreconditionFailed, UsageError, ZkConsumerError
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import VersionedControl
    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep

WAIT_TIMEOUT_S = 600.0
"""How long a run waits for others altogether, unless it is told otherwise."""

PHASE_HINTS = {
    ("copy", Phase.SWITCHED): "Start the new members now. Until the migration is completed there is a way back.",
    ("copy", Phase.UNDONE): "Old members may work now. Nothing keeps modern ones out: see that none is started.",
    ("dual", Phase.SWITCHED): "The members go on, by Kafka. Until the migration is completed there is a way back.",
    ("dual", Phase.UNDONE): "The members go on, by ZooKeeper. Old members may work beside them.",
}
"""What an operator is told when a run has come there, before the command that may come next, some day."""

F = TypeVar("F", bound=Callable[..., Any])


def execute_option(command: F) -> F:
    """``--execute``."""
    return click.option(
        "--execute", "do_it", is_flag=True, help="Do it; without this it says what it would do, and changes nothing."
    )(command)


def timeout_option(command: F) -> F:
    """``--timeout``."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, max=1_000_000),
        default=WAIT_TIMEOUT_S,
        show_default=True,
        metavar="S",
        help="Seconds to wait altogether: members that leave, sessions that end, stores that are away.",
    )(command)


def zookeeper_auth_option(command: F) -> F:
    """``--zookeeper-auth``."""
    return click.option(
        "--zookeeper-auth", metavar="SCHEME:FILE",
        help="zookeeper.auth: the login that the migration belongs to [access lists: one made up for this run].",
    )(command)  # fmt: skip


def run_options(command: F) -> F:
    """How long is waited, as whom, what is printed, and where: what every command takes that carries steps out."""
    for option in reversed((timeout_option, zookeeper_auth_option, output_option, cluster_options)):
        command = option(command)
    return command


def read_control_znode(session: AdminSession, group: str) -> VersionedControl:
    """The control znode of a group that is on the move, or was.  Raises ``PreconditionFailed`` for any other."""
    held = ControlZnode(session, group, "").read()
    if held is None:
        raise PreconditionFailed(
            f"group {group} is not on the move: there is no {paths.control(group)}. Correct the name, or look at the "
            f"group: zkconsumer migrate inspect {group}"
        )
    return held


def open_run_session(
    context: click.Context,
    zookeeper: str | None,
    config_file: Path | None,
    bootstrap_servers: str | None,
    *,
    zookeeper_auth: str | None,
    acl_fence: bool = True,
) -> AdminSession:
    """A connected session that is logged in for the fence, and ends with the command."""
    log_to_console()
    if zookeeper is None and config_file is None:
        raise missing_address_error()
    doors = context.find_object(AdminDependencies)
    if doors is not None and doors.store is not None:  # servers of another world have logins of their own
        session = AdminSession.open(zookeeper, config_file, doors, bootstrap_servers)
    else:
        session = open_logged_in(
            zookeeper, config_file, doors, bootstrap_servers, zookeeper_auth=zookeeper_auth, acl_fence=acl_fence
        )
    context.call_on_close(session.close)
    return session


def dry_run(
    context: click.Context,
    moving: MigrationContext,
    steps: Callable[[], Iterator[MigrationStep]],
    again: str,
    schema: str,
    output: Literal["table", "json"],
) -> None:
    """The dry run.  Ends the command: 0 nothing to do, 3 it would change something, or the code of what refuses it."""
    performer = DryRunExecutor()
    _step_runner(moving, performer, WAIT_TIMEOUT_S, again).run_with_retry(steps)
    error = performer.error
    words = "" if error is None else complete_commands(str(error), context)
    code = error.exit_code if error is not None else EXIT_DIFFERS if performer.would_change else 0
    if output == "json":
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
        print_message("This would stop here: " + words.split("\n")[0])
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
    again: str,
    timeout_s: float,
    schema: str,
    output: Literal["table", "json"],
    next_steps: Callable[[Phase | None], list[str]],
) -> None:
    """Carry the steps out; what ends it early is raised, behind the JSON that says so.  ``again`` goes on with it.

    ``steps`` derives them from where the migration stands: once more each time when a store was away.
    """
    real = ApplyExecutor(print_message, moving.placeholder.heartbeat_if_due, StopSignal().wait, moving.session.clock)
    error: ZkConsumerError | None = None

    def derive() -> Iterator[MigrationStep]:
        moving.control_znode.reset_lock()
        return steps()

    try:
        _step_runner(moving, real, timeout_s, again).run_with_retry(derive)
    except ZkConsumerError as found:
        error = found
    except KeyboardInterrupt:
        _report_placeholder(moving)
        print_message(f"Interrupted. What was done stands; go on with: {again}")
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
            print_message(f"What was done stands. When it can go on: {again}")
        with suppress(OSError):  # what stopped it counts for more than a report that cannot be written
            _print(report, output)
        raise error
    if unknown:
        print_message(f"Everything was done. Where group {moving.group} stands cannot be looked at now: {unknown}")
    else:
        print_message(f"Group {moving.group} is in phase {'none' if phase is None else phase.value}.")
        words = PHASE_HINTS.get((moving.plan.strategy, phase)) if phase is not None else None
        if words is not None:
            print_message(words)
    for line in next_command_lines(phase, following):
        print_message(line)
    _print(report, output)


def _print(report: dict[str, object], output: Literal["table", "json"]) -> None:
    if output == "json":
        print_json(report)


def _step_runner(
    moving: MigrationContext, performer: ApplyExecutor | DryRunExecutor, timeout_s: float, again: str
) -> StepRunner:
    has_changed = moving.phase is not None
    is_aborted = moving.control_znode.is_abort_requested
    return StepRunner(performer, moving.session.clock, round(timeout_s * 1_000), again, is_aborted, has_changed)


def _is_store_unavailable(error: ZkConsumerError | None) -> bool:
    """Whether a store was waited for in vain, so that it need not be asked once more."""
    return error is not None and isinstance(error.__cause__, ZkConsumerError) and is_unavailable(error.__cause__)


def _phase_of(moving: MigrationContext) -> tuple[Phase | None, str]:
    """Where the migration stands, and why that cannot be told."""
    try:
        return moving.phase, ""
    except ZkConsumerError as error:
        return None, str(error)


def _report_placeholder(moving: MigrationContext) -> None:
    """A seat that is left standing holds for so long; whoever asks for the status is told."""
    sitting = moving.placeholder.joined
    if sitting is None:
        return
    left_ms = sitting.session_end_ms - moving.session.clock.now_ms()
    until_ms = moving.session.clock.wall_ms() + left_ms
    with suppress(ZkConsumerError):
        Journal(moving.control_znode, moving.caller).append(PLACEHOLDER_ENTRY, {"until_ms": str(until_ms)})
    print_message(f"The modern group is kept empty for {max(0, left_ms) // 1_000} s from now on; then others may join.")


def confirm_group(group: str, given: str | None, why: str) -> None:
    """Ask for the group's name; ``given``: the value of ``--confirm``.  ``why``: what cannot be undone."""
    try:
        typed = click.prompt(f"{why} Type the group's name ({group})", err=True) if given is None else given
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        words = f"the name cannot be asked for here, so nothing was changed: give --confirm {group}"
        raise UsageError(words) from error
    if typed != group:
        raise click.UsageError(f"{typed!r} is not the group's name, so nothing was changed")
