"""``zkconsumer groups doctor``: reports problems of a group, with the evidence and the next step."""

from __future__ import annotations

import sys

import click

from zkconsumer import extensions
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.doctor import DoctorFinding, GroupFacts, run_checks
from zkconsumer.admin.doctor.collect import collect_facts
from zkconsumer.admin.doctor.facts import COMMIT_INTERVAL_MS
from zkconsumer.admin.doctor.owner_findings import owned_by_registered_threads
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage
from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.common import (
    EXIT_DIFFERS,
    EXIT_FAILED,
    open_admin_session,
    print_json,
    print_not_known,
    require_admin_session,
)
from zkconsumer.cli.console import print_message, printable
from zkconsumer.cli.groups import exit_no_such_group
from zkconsumer.cli.lag import LagTotal
from zkconsumer.cli.options import ClusterOptions, OutputFormat, SecondsRange, group_argument, report_options
from zkconsumer.cli.terminal import ATTENTION, GOOD, coloured
from zkconsumer.wire import compression

SCHEMA = "zkconsumer/groups-doctor/1"
INTERVAL_S = 5.0


@click.command(name="doctor")
@group_argument()
@click.option(
    "--interval",
    type=SecondsRange(0, 3_600),
    default=INTERVAL_S,
    show_default=True,
    metavar="S",
    help="Seconds between the two reads of the group; 0: one read.",
)
@click.option(
    "--commit-interval",
    type=SecondsRange(0.1),
    metavar="S",
    help="auto.commit.interval.ms of the members, in seconds. Default: the one of the --config FILE, or 60.",
)
@report_options
def doctor(
    context: click.Context,
    group: str,
    interval: float,
    commit_interval: float | None,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Find the problems of a group; changes nothing.

    Reads the group twice, some seconds apart, and reports: registrations that stop other members, members that compute
    other assignments, owner nodes without a member, partitions that no member reads, offsets that do not advance or
    went back, topics that Scala consumers cannot read, and coordinator groups of the same name. Each finding has its
    evidence and the next step.

    The first line is the check of VerifyConsumerRebalance: how many partitions of the subscribed topics are owned by a
    registered thread. Exit codes: 0 nothing found, 1 nothing found but not everything was checked, because a server did
    not answer, 3 findings.
    """
    known = open_admin_session(context, cluster)
    session = require_admin_session(known, "groups doctor examines groups in ZooKeeper")
    interval_ms = configured_commit_interval_ms(session)
    if commit_interval is not None:
        interval_ms = round(commit_interval * 1000)
    facts = collect_facts(
        session, group, round(interval * 1000), interval_ms, stores_in_kafka=configured_storage(session) == "kafka"
    )
    if facts is None:
        exit_no_such_group(context, session, group, only_in_zookeeper="")
    findings = run_checks(facts)
    code = _exit_code(facts, findings)
    if output == "json":
        print_json(doctor_document(facts, findings))
    else:
        _print(facts, findings)
    print_not_known(facts.not_known)
    if missing := [f"{name} is {state}" for name, state in extensions.status().items() if state != extensions.IN_USE]:
        print_message(
            "Members that are started from this installation run without its compiled modules and need about fifty "
            f"times the CPU for a message: {'; '.join(missing)}. Install a C compiler, and reinstall the package"
        )
    context.exit(code)


def configured_commit_interval_ms(session: AdminSession) -> int:
    """``auto.commit.interval.ms`` of the given file, or the default of Scala consumers."""
    config = session.config
    return config.auto_commit_interval_ms if "auto.commit.interval.ms" in config.given else COMMIT_INTERVAL_MS


def _print(facts: GroupFacts, findings: list[DoctorFinding]) -> None:
    click.echo(group_summary(facts))
    for number, finding in enumerate(findings, start=1):
        click.echo()
        name = coloured(printable(finding.name), ATTENTION, sys.stdout)
        click.echo(f"{number}. {name}: {printable(finding.description)}.")
        for line in finding.evidence:
            click.echo(f"   {printable(line)}")
        for step in finding.next_steps:
            click.echo(f"   -> {printable(complete_commands(step))}")
    if findings:
        click.echo(f"\n{count_text(len(findings), 'finding')}")
    else:
        words, colour = (
            ("not known: no finding, but not everything could be checked", ATTENTION)
            if facts.not_known
            else ("OK: nothing found", GOOD)
        )
        click.echo(coloured(words, colour, sys.stdout))


def group_summary(facts: GroupFacts) -> str:
    """Describe the group in one line."""
    state = facts.state
    partitions, owned = owned_by_registered_threads(facts)
    total = LagTotal.of(row for row in facts.second_snapshot.rows("unknown") if row.partition is not None)
    who = count_text(len(state.members), "member") if state.members else "no member is registered"
    held = f", {owned} of {count_text(partitions, 'partition')} owned by registered threads" if state.members else ""
    return f"{facts.group}: {who}{held}, lag {total}"


def _exit_code(facts: GroupFacts, findings: list[DoctorFinding]) -> int:
    return EXIT_DIFFERS if findings else EXIT_FAILED if facts.not_known else 0


def doctor_document(facts: GroupFacts, findings: list[DoctorFinding]) -> dict[str, object]:
    """The document of ``groups doctor -o json``."""
    partitions, owned = owned_by_registered_threads(facts)
    return {
        "schema": SCHEMA,
        "group": facts.group,
        "interval_ms": facts.interval_ms,
        "members": len(facts.state.members),
        "partitions": partitions,
        "partitions_owned_by_registered_threads": owned,
        "findings": [
            {
                "name": finding.name,
                "description": finding.description,
                "evidence": list(finding.evidence),
                "next_steps": list(finding.next_steps),
            }
            for finding in findings
        ],
        "not_known": list(facts.not_known),
        "compiled_modules": extensions.status(),
        "codecs": compression.implementations(),
        "next_steps": [step for finding in findings for step in finding.next_steps],
        "exit_code": _exit_code(facts, findings),
    }
