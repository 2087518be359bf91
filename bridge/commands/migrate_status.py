"""``zkconsumer migrate status``, ``verify`` and ``abort``: show, compare, and request a run to stop."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, TypedDict

import click

from bridge.commands.migrate_hints import MigrateCommand, migrate_command, next_command_lines
from bridge.commands.migrate_participants import participant_line, participants_json
from bridge.migration.control.control_steps import request_abort
from bridge.migration.control.phases import Phase
from bridge.migration.dual.store_comparison import COMPARED_PHASES, CompareStores, compare_repeatedly
from bridge.migration.errors import EXIT_VERIFICATION
from bridge.migration.fences.fence_checks import CheckFences
from bridge.migration.fences.owner_nodes import format_partitions
from bridge.migration.fences.post_switch_fences import FenceUnownedPartitions
from bridge.migration.inspect.migration_status import read_migration_status
from bridge.migration.offsets.offset_copies import copies_of
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES
from bridge.migration.offsets.offset_verification import VerifyCopiedOffsets
from bridge.migration.steps.migration_context import caller_description, open_migration, read_effective_plan
from bridge.migration.steps.step import StepRefused
from zkconsumer.admin.text_format import count_text, list_text
from zkconsumer.base.progress import progress_task
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.common import EXIT_FAILED, open_zookeeper_session, print_json, print_not_known, utc_text
from zkconsumer.cli.console import print_message, printable
from zkconsumer.cli.groups import exit_no_such_group
from zkconsumer.cli.options import ClusterOptions, OutputFormat, group_argument, report_options
from zkconsumer.cli.terminal import BAD, FACT_COLOURS, coloured
from zkconsumer.errors import PreconditionFailed
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.inspect.copied_offsets import CopiedOffsetsStatus
    from bridge.migration.inspect.migration_status import MigrationStatus
    from bridge.migration.steps.migration_context import MigrationContext
    from zkconsumer.admin.admin_session import AdminSession

STATUS_SCHEMA = "zkconsumer/migrate-status/1"
VERIFY_SCHEMA = "zkconsumer/migrate-verify/1"
ABORT_SCHEMA = "zkconsumer/migrate-abort/1"
WATCH_INTERVAL_MS = 2_000
COMPARISONS_MAX = 10
"""Times to compare the two stores of a group whose members commit meanwhile."""
COMPARISON_INTERVAL_MS = 200
JOURNAL_SHOWN = 5
PHASES_WITHOUT_COMPARISON = (Phase.FENCED, Phase.SWITCHED)
"""Phases in which the stores may differ: before the copy, and after the switch, when new members commit."""
COMPARE_EVERY_POLLS = 15
"""``--watch`` reads the copied offsets again after this number of updates: every 30 s."""


@click.command(cls=MigrateCommand, short_help="Show the phase of a migration.")
@group_argument()
@click.option("--watch", is_flag=True, help="Update every two seconds, until the end of the migration or Ctrl-C.")
@report_options
def status(context: click.Context, group: str, watch: bool, output: OutputFormat, cluster: ClusterOptions) -> None:
    """Show the phase, which store has the authority, whether a run is active, the members in ZooKeeper and at the
    coordinator, and what comes next.

    Changes nothing. With --watch and -o json every update is one line. Exit codes: 0 shown, 1 the group does not exist,
    or a part is unknown, because a broker does not answer or the journal cannot be read (with --watch it continues).
    """
    paths.check_group(group)
    session = open_zookeeper_session(context, cluster)
    pause = StopSignal()
    shown: list[tuple[str, str]] = []
    copied: CopiedOffsetsStatus | None = None
    for number in count():
        found = read_migration_status(session, group, copied if number % COMPARE_EVERY_POLLS else None)
        if not found.group_exists:
            exit_no_such_group(context, session, group, only_in_zookeeper="")
        copied = found.copied
        steps = [complete_commands(step, context) for step in found.next_commands]
        if output == "json":
            print_json(status_document(found, steps), is_line=watch)
        else:
            facts = list(_facts(context, found))
            if facts != shown:
                for name, words in facts:
                    text = coloured(printable(words), FACT_COLOURS.get(name), sys.stdout)
                    click.echo(f"{printable(name)}: {text}")
                for line in next_command_lines(None if found.control is None else found.control.phase, steps):
                    print_message(line)
                shown = facts
        sys.stdout.flush()
        if not watch:
            print_not_known(found.not_known)
            context.exit(EXIT_FAILED if found.not_known else 0)
        if found.is_over:
            return
        pause.wait(WATCH_INTERVAL_MS)


def _facts(context: click.Context, found: MigrationStatus) -> Iterator[tuple[str, str]]:
    yield "group", found.group
    if found.control is None:
        yield "migration", "none: ZooKeeper has the offsets"
        return
    control = found.control.control
    yield "migration", f"{control.migration_id}, {control.strategy}"
    unconfirmed = "" if control.is_confirmed else ", not confirmed: the next run compares both stores first"
    yield "phase", f"{control.phase}, epoch {control.epoch}{unconfirmed}"
    yield "authority", control.authority
    run = "none" if found.lock is None else f"{found.lock.owner}, since {utc_text(found.lock.since_ms)}"
    yield "runs now", f"{run}{', stop requested' if found.abort_requested else ''}"
    if found.participants is None:
        yield "old members", list_text(found.registered) or "none"
    else:
        for one in found.participants.by_consumer_id.values():
            yield "member", participant_line(one, found.participants)
        for words in found.waiting_for if not found.is_over else ():
            yield "waiting for", words
    yield (
        "fences",
        f"{count_text(found.fences, 'owner node')}; members own {count_text(found.owned_partitions, 'partition')}",
    )
    until = (
        ""
        if found.placeholder_until_ms is None
        else f", until {utc_text(found.placeholder_until_ms)} by the journal of its last run"
    )
    unknown = f"not known: {found.coordinator_error}" if found.coordinator_error else ""
    yield "placeholder", f"{found.placeholder}{until}" if found.placeholder else unknown or "none"
    yield "coordinator members", unknown or _coordinator_members_text(found) or "none"
    if found.copied is not None:
        yield from _copied_facts(found.copied)
        if found.copied.lost:
            words = found.copied.recovery_text(found.group, found.control.phase)
            yield "what to do", complete_commands(words, context)
    if found.journal_error:
        yield "journal", found.journal_error
    for entry in found.journal[-JOURNAL_SHOWN:]:
        yield "journal", f"{utc_text(entry.at_ms)} {entry.who}: {entry.what}"


def _coordinator_members_text(found: MigrationStatus) -> str:
    """The members at the coordinator.  With ``dual`` the line names only those that are not participants."""
    coordinator_group = None if found.participants is None else found.participants.coordinator_group
    if coordinator_group is None:
        return found.coordinator_members
    others = f", besides those above: {found.coordinator_members}" if found.coordinator_members else ""
    return f"{len(coordinator_group.members)}, the group is {coordinator_group.state}{others}"


def _copied_facts(copied: CopiedOffsetsStatus) -> Iterator[tuple[str, str]]:
    if copied.error:
        yield "copied offsets", f"not known: {copied.error}"
        return
    lost = len(copied.lost)
    until = (
        copied.retention_text if copied.kept_until_ms is None else f"until {utc_text(copied.kept_until_ms)} at least"
    )
    yield "copied offsets", f"{copied.count - lost} of {copied.count} are in Kafka"
    yield "Kafka keeps them", until
    for line in copied.lines:
        yield "lost", line


def _copied_json(copied: CopiedOffsetsStatus | None) -> dict[str, object] | None:
    if copied is None:
        return None
    return {
        "count": None if copied.error else copied.count,
        "lost": [{"topic": one.tp.topic, "partition": one.tp.partition, "text": str(one)} for one in copied.lost],
        "kept_until_ms": copied.kept_until_ms,
        "retention": copied.retention_text or None,
        "error": copied.error or None,
    }


def status_document(found: MigrationStatus, steps: Sequence[str]) -> dict[str, object]:
    """The document of ``migrate status -o json``; ``steps``: the next commands."""
    control = None if found.control is None else found.control.control
    return {
        "schema": STATUS_SCHEMA,
        "group": found.group,
        "at_ms": found.at_ms,
        "migration_id": None if control is None else control.migration_id,
        "strategy": None if control is None else control.strategy,
        "phase": None if control is None else control.phase,
        "epoch": None if control is None else control.epoch,
        "authority": "zookeeper" if control is None else control.authority,
        "confirmed": control is None or control.is_confirmed,
        "lock": None if found.lock is None else {"owner": found.lock.owner, "since_ms": found.lock.since_ms},
        "abort_requested": found.abort_requested,
        "registered": list(found.registered),
        "members": None if found.participants is None else participants_json(found.participants),
        "waiting_for": None if found.participants is None or found.is_over else found.waiting_for,
        "fences": found.fences,
        "owned_partitions": found.owned_partitions,
        "placeholder": found.placeholder,
        "placeholder_until_ms": found.placeholder_until_ms if found.placeholder else None,
        "coordinator_members": found.coordinator_members or None,
        "coordinator_group": _coordinator_group_json(found),
        "coordinator_error": found.coordinator_error or None,
        "copied_offsets": _copied_json(found.copied),
        "journal": [
            {"at_ms": one.at_ms, "who": one.who, "what": one.what, "facts": dict(one.facts)} for one in found.journal
        ],
        "journal_error": found.journal_error or None,
        "not_known": list(found.not_known),
        "exit_code": EXIT_FAILED if found.not_known else 0,
        "next_steps": list(steps),
    }


def _coordinator_group_json(found: MigrationStatus) -> dict[str, object] | None:
    """The coordinator group of ``dual``; None where it is not known, and with ``copy``."""
    coordinator_group = None if found.participants is None else found.participants.coordinator_group
    if coordinator_group is None:
        return None
    return {"state": coordinator_group.state, "members": len(coordinator_group.members)}


@click.command(cls=MigrateCommand, short_help="Compare both stores of a migrating group.")
@group_argument()
@report_options
def verify(context: click.Context, group: str, output: OutputFormat, cluster: ClusterOptions) -> None:
    """Compare each offset of a fenced group in both stores with the plan, and check that all fences exist. In phase
    fenced, before the copy, and in switched, where new members commit, check only the fences. With strategy dual:
    compare both stores while the members commit.

    Changes nothing. Exit codes: 0 all values are as they were written, 4 nothing can be compared in this phase, 5 a
    value differs.
    """
    paths.check_group(group)
    session = open_zookeeper_session(context, cluster)
    with progress_task("comparing both stores"):
        document = read_verify_document(session, group)
    differences, phase = document["differences"], Phase(document["phase"])
    if output == "json":
        print_json(document)
    else:
        for line in differences:
            click.echo(coloured(printable(line), BAD, sys.stdout))
        what = (
            "the fences"
            if phase in PHASES_WITHOUT_COMPARISON
            else f"{count_text(document['partitions'], 'partition')} and the fences"
        )
        print_message(f"Compared {what}: {count_text(len(differences), 'difference')}.")
        if phase is Phase.SWITCHED:
            print_message("The coordinator group commits since the switch, so its offsets are not compared.")
        if phase is Phase.FENCED:
            print_message("The offsets are not in Kafka yet, so they are not compared.")
    context.exit(document["exit_code"])


class VerifyDocument(TypedDict):
    """The document of ``migrate verify -o json``; ``differences``: one text each."""

    schema: str
    group: str
    phase: str
    partitions: int
    compared_offsets: bool
    differences: list[str]
    exit_code: int
    next_steps: list[str]


def read_verify_document(session: AdminSession, group: str) -> VerifyDocument:
    """Compare both stores of a migrating group now; changes nothing.

    Raises ``PreconditionFailed`` in a phase in which nothing can be compared, ``UnavailableError`` when a store does
    not answer.
    """
    moving = open_migration(session, read_effective_plan(session, group), caller_description())
    phase, plan = moving.phase, moving.plan
    phases = (*(COMPARED_PHASES if plan.strategy == "dual" else COPY_PHASES), Phase.SWITCHED)
    if phase not in phases:
        raise PreconditionFailed(
            f"group {group} is in phase {'none' if phase is None else phase.value}; with {plan.strategy} the stores "
            f"can be compared in {', '.join(one.value for one in phases)}. See: "
            f"zkconsumer migrate status {shlex.quote(group)}"
        )
    differences, name = _differences(moving, phase), shlex.quote(group)
    return {
        "schema": VERIFY_SCHEMA,
        "group": group,
        "phase": phase.value,
        "partitions": len(copies_of(plan)),
        "compared_offsets": phase not in PHASES_WITHOUT_COMPARISON,
        "differences": differences,
        "exit_code": EXIT_VERIFICATION if differences else 0,
        "next_steps": [f"zkconsumer migrate rollback {name}" if differences else f"zkconsumer migrate status {name}"],
    }


def _differences(moving: MigrationContext, phase: Phase) -> list[str]:
    """How the group differs from what its phase requires."""
    authority, plan = moving.control_znode, moving.plan
    if plan.strategy == "dual" and phase is Phase.SWITCHED:
        left = FenceUnownedPartitions(authority, moving.topics).unfenced(authority.require_phase(phase))
        return [f"no owner and no fence: {format_partitions([tp for tp, _ in left])}"] if left else []
    if plan.strategy == "dual":
        pause = StopSignal()
        looks = (number and pause.wait(COMPARISON_INTERVAL_MS) for number in range(COMPARISONS_MAX))
        epoch = authority.require_phase(phase).control.epoch
        return [str(one) for one in compare_repeatedly(CompareStores(moving, phase), epoch, looks)]
    fences = CheckFences(authority, tuple(plan.snapshot.partitions), "the plan").check()
    differences = [str(fences.error)] if isinstance(fences, StepRefused) else []
    if phase not in PHASES_WITHOUT_COMPARISON:
        compare = VerifyCopiedOffsets(moving.stores, copies_of(plan), frozenset(plan.snapshot.partitions))
        differences += map(str, compare.differences())
    return differences


@click.command(cls=MigrateCommand, short_help="Request a run to stop at its next step.")
@group_argument()
@report_options
def abort(context: click.Context, group: str, output: OutputFormat, cluster: ClusterOptions) -> None:
    """Request a run of apply, rollback or complete to stop before its next step, or while it waits.

    Undoes nothing.

    Exit codes: 0 the stop was requested, 4 no run is active.
    """
    paths.check_group(group)
    session = open_zookeeper_session(context, cluster)
    words = request_abort(session, group, caller_description())
    steps = [migrate_command(context, "status", group)]
    if output == "json":
        print_json({"schema": ABORT_SCHEMA, "group": group, "message": words, "next_steps": steps})
    else:
        print_message(f"{words[0].upper()}{words[1:]}.")
        print_message(f"Next: {steps[0]}")
