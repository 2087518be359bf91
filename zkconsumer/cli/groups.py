"""``zkconsumer groups``: lists and describes groups.  ``delete`` and ``doctor`` have files of their own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NoReturn, TypeAlias

import click

from zkconsumer.admin.admin_session import AdminSession, AnySession, BrokerAdminSession
from zkconsumer.admin.coordinator_group_snapshot import (
    COORDINATOR_KIND,
    KAFKA_AUTHORITY,
    CoordinatorGroupListing,
    CoordinatorGroupSnapshot,
    coordinator_group_json,
    coordinator_group_rows,
    list_all_coordinator_groups,
    read_coordinator_group_snapshot,
)
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC
from zkconsumer.admin.describe import (
    COLUMNS,
    DROPPABLE_COLUMNS,
    LAG_SECONDS_COLUMN,
    GroupDescribeRow,
    OffsetStorageMode,
    differing_offsets,
)
from zkconsumer.admin.group_members import (
    DROPPABLE_MEMBER_COLUMNS,
    DROPPABLE_STATE_COLUMNS,
    MEMBER_COLUMNS,
    STATE_COLUMNS,
    VERBOSE_MEMBER_COLUMNS,
    GroupMemberRow,
    GroupStateRow,
    coordinator_member_rows,
    group_state_rows,
    zookeeper_member_rows,
)
from zkconsumer.admin.group_offset_stores import has_only_placeholder_member
from zkconsumer.admin.lag_time_observer import LagTimeObserver
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_group_list import GroupListing, GroupWithOffsets, group_names, read_groups_with_offsets
from zkconsumer.admin.zookeeper_group_snapshot import ZooKeeperGroupSnapshot, configured_storage, read_group_snapshot
from zkconsumer.base.progress import progress_task
from zkconsumer.cli.common import EXIT_FAILED, open_admin_session, print_json, print_not_known, print_table, utc_text
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.lazy_commands import LazyGroup
from zkconsumer.cli.options import ClusterOptions, group_argument, report_options
from zkconsumer.errors import UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord

Output = Literal["table", "json"]

LAZY_COMMANDS = {"delete": "zkconsumer.cli.groups_delete:delete", "doctor": "zkconsumer.cli.groups_doctor:doctor"}
"""Loaded when they are called."""

NEAR_NAMES_MAX = 3
LIST_GROUPS_COMMAND = "zkconsumer groups list"
LIST_SCHEMA = "zkconsumer/groups-list/1"
DESCRIBE_SCHEMA = "zkconsumer/groups-describe/1"
DESCRIBE_ALL_SCHEMA = "zkconsumer/groups-describe-all/1"

GROUP_STATES = (
    "Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling",
)  # fmt: skip
"""The states of kafka-consumer-groups (ConsumerGroupState of 4.0)."""

OLD_STATE_NAMES = {"AwaitingSync": "CompletingRebalance"}
"""Name that brokers 0.9 to 0.11 report -> name of the state from 1.0 on."""

LIST_COLUMNS = ("GROUP", "KIND", "MEMBERS", "TOPICS", "LAST-COMMIT", "STATE")
DROPPABLE_LIST_COLUMNS = ("STATE", "TOPICS", "LAST-COMMIT")

DescribeView: TypeAlias = Literal["members", "state"]


@click.group(cls=LazyGroup, lazy_commands=LAZY_COMMANDS, plugin_parent="groups")
def groups() -> None:
    """List, describe, examine and delete consumer groups in ZooKeeper and at their coordinators."""


# --- list -------------------------------------------------------------------------------------------------------


def _states(value: str | None) -> frozenset[str] | None:
    """Parse ``--state``; None: it is not given, empty: without a value.  Raises ``click.BadParameter``."""
    if value is None:
        return None
    names = {name.lower(): name for name in GROUP_STATES}
    given = [name.strip() for name in value.split(",")] if value else []
    if any(name.lower() not in names for name in given):
        raise click.BadParameter(f"Invalid state list '{value}'. Valid states are: {', '.join(GROUP_STATES)}")
    return frozenset(names[name.lower()] for name in given)


def _has_state(line: CoordinatorGroupListing, states: frozenset[str]) -> bool:
    """Whether the group is in one of the states; older brokers have another name for one of them."""
    return OLD_STATE_NAMES.get(line.state, line.state) in states


def _among(which: str) -> str:
    return "" if which == "all" else f", among the groups {'with' if which == 'active' else 'without'} members"


@groups.command(name="list")
@click.option("--all", "which", flag_value="all", default="all", help="Every group (the default).")
@click.option("--active", "which", flag_value="active", help="Groups with a registered member.")
@click.option("--empty", "which", flag_value="empty", help="Groups without a registered member.")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="[STATE,…]",
    callback=lambda _context, _parameter, value: _states(value),
    help="Only coordinator groups in these states; without a value: all groups, as without --state.",
)
@report_options
def list_(
    context: click.Context, which: str, states: frozenset[str] | None, output: Output, cluster: ClusterOptions
) -> None:
    """List the groups below /consumers and those that brokers coordinate, with their members and topics.

    KIND shows which program made the owner nodes: scala, zkconsumer, mixed; foreign: another program; - : there are no
    owner nodes. coordinator: a group of the coordinator, with the STATE that its broker reports; without --zookeeper
    the list has only these.

    --state is that of kafka-consumer-groups: Stable, Empty, Dead, PreparingRebalance, CompletingRebalance, and of
    brokers 4.0 and later Assigning and Reconciling. Groups in ZooKeeper have no state.

    Exit codes: 0 shown, 1 a broker did not answer, and its groups are missing.
    """
    session = open_admin_session(context, cluster)
    found = read_group_listings(session)
    lines = found.lines
    if found.not_known and not found.has_coordinator_groups and not isinstance(session, AdminSession):
        _exit_not_known(context, found.not_known, output)
    shown = [line for line in lines if which == "all" or line.is_active == (which == "active")]
    if states:
        shown = [line for line in shown if isinstance(line, CoordinatorGroupListing) and _has_state(line, states)]
    if output == "json":
        print_json(group_list_document(shown, found.not_known))
    else:
        droppable = [head for head in DROPPABLE_LIST_COLUMNS if states is None or head != "STATE"]
        print_table(LIST_COLUMNS, map(_listing_cells, shown), droppable)
        if not shown and states and lines:
            print_message(f"No coordinator group is in the state {' or '.join(sorted(states))}{_among(which)}.")
        elif not shown:
            print_message(_empty_list_text(session, bool(lines), which, is_all_known=not found.not_known))
    if found.not_known:
        print_not_known(found.not_known)
        context.exit(EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class GroupListings:
    """Every group, sorted by name, and why groups of some brokers are missing."""

    lines: Sequence[GroupListing | CoordinatorGroupListing]
    not_known: tuple[str, ...]
    has_coordinator_groups: bool


def read_group_listings(
    session: AnySession, visit: Callable[[GroupWithOffsets], object] | None = None
) -> GroupListings:
    """Read the groups in ZooKeeper, if the session has one, and those of the brokers.

    ``visit`` is called with each group in ZooKeeper: its offset nodes are not kept.

    Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    lines: list[GroupListing | CoordinatorGroupListing] = []
    if isinstance(session, AdminSession):
        for each in read_groups_with_offsets(session):
            lines.append(each.line)
            if visit is not None:
                visit(each)
    found = list_all_coordinator_groups(session.brokers)
    old = {line.group for line in lines}
    # Offsets that a ZooKeeper group stores in Kafka are not a second group.
    lines += [line for line in found.listings if not (line.is_offsets_only and line.group in old)]
    lines.sort(key=lambda line: (line.group, isinstance(line, CoordinatorGroupListing)))
    return GroupListings(lines, found.not_known, bool(found.groups))


def group_list_document(
    lines: Sequence[GroupListing | CoordinatorGroupListing], not_known: Sequence[str]
) -> dict[str, object]:
    """The document of ``groups list -o json``."""
    stale = sum(isinstance(line, GroupListing) and line.is_stale_console_group for line in lines)
    steps = [f"zkconsumer groups delete --stale   # {stale} left by console consumers"] if stale else []
    return {
        "schema": LIST_SCHEMA,
        "groups": [_listing_json(line) for line in lines],
        "not_known": list(not_known),
        "exit_code": EXIT_FAILED if not_known else 0,
        "next_steps": steps,
    }


def _empty_list_text(session: AnySession, has_groups: bool, which: str, *, is_all_known: bool) -> str:
    """Why the table is empty."""
    if has_groups:
        every = "every group has" if which == "empty" else "no group has"
        return f"{every[0].upper()}{every[1:]} a registered member. All groups: {LIST_GROUPS_COMMAND}"
    at_brokers = ", and the brokers coordinate none" if is_all_known else ""
    if isinstance(session, AdminSession):
        return f"There is no group in ZooKeeper (/consumers){at_brokers}. If you expect one, check the chroot."
    return "The brokers coordinate no group. For groups in ZooKeeper give --zookeeper HOST:PORT[/CHROOT]"


def _exit_not_known(context: click.Context, words: Sequence[str], output: Output) -> NoReturn:
    """Exit with an error: an empty table would mean that there are no groups."""
    if output == "json":
        print_json(
            {"schema": LIST_SCHEMA, "groups": None, "not_known": list(words), "exit_code": EXIT_FAILED,
             "next_steps": []}
        )  # fmt: skip
    print_not_known(words)
    context.exit(EXIT_FAILED)


def _listing_cells(line: GroupListing | CoordinatorGroupListing) -> tuple[object, ...]:
    if isinstance(line, CoordinatorGroupListing):
        return line.group, COORDINATOR_KIND, line.members, _topics(line), None, line.state
    return line.group, line.kind, line.members, _topics(line), utc_text(line.last_commit_ms), None


def _listing_json(line: GroupListing | CoordinatorGroupListing) -> dict[str, object]:
    if isinstance(line, CoordinatorGroupListing):
        return {
            "group": line.group,
            "kind": COORDINATOR_KIND,
            "active": line.is_active,
            "members": line.members,
            "topics": list(line.topics),
            "state": line.state,
            "protocol_type": line.protocol_type or None,
        }
    return {
        "group": line.group,
        "kind": None if line.kind == "-" else line.kind,
        "active": line.is_active,
        "members": line.members,
        "topics": list(line.topics),
        "last_commit_ms": line.last_commit_ms,
        "last_write_ms": line.last_write_ms,
        "stale_console_group": line.is_stale_console_group,
    }


TOPICS_SHOWN_MAX = 3


def _topics(line: GroupListing | CoordinatorGroupListing) -> str:
    more = len(line.topics) - TOPICS_SHOWN_MAX
    return ",".join(line.topics[:TOPICS_SHOWN_MAX]) + (f",… {more} more" if more > 0 else "")


# --- describe ---------------------------------------------------------------------------------------------------


@groups.command(name="describe")
@group_argument(required=False)
@click.option("--all-groups", "is_every_group", is_flag=True, help="Every group that 'groups list' shows.")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic; may be repeated.")
@click.option("--members", "view", flag_value="members", help="The members, and how many partitions each owns.")
@click.option("--state", "view", flag_value="state", help="One line a group: its state, and how many members it has.")
@click.option("--verbose", "is_verbose", is_flag=True, help="With --members: also which partitions.")
@report_options
def describe_(
    context: click.Context,
    group: str | None,
    *,
    is_every_group: bool,
    topics: Sequence[str],
    view: DescribeView | None,
    is_verbose: bool,
    output: Output,
    cluster: ClusterOptions,
) -> None:
    """Show a group, one line for each partition, with the offsets in both stores.

    CURRENT-OFFSET is the offset from which a member would start if it were restarted now, and AUTHORITY the store that
    contains it: ZooKeeper, unless a control znode or offsets.storage in the --config FILE says otherwise, or only Kafka
    has an offset. OWNER-KIND: zkconsumer, scala, foreign, fence (a migration blocks ZooKeeper members), persistent (a
    node that no member made; no member can acquire the partition), or coordinator: a member of the coordinator group of
    this name. CLIENT-ID is not in ZooKeeper. LAG-SECONDS: for how long the first unread record has been waiting, as in
    zkconsumer lag. Members without partitions come last. - means that there is no value, ?
    that the value is unknown: standard error names the broker that did not answer or the znode that cannot be read.

    --members, --state and --all-groups are those of kafka-consumer-groups. JSON always has everything; with
    --all-groups it has a list of the documents of the groups.

    Exit codes: 0 shown, 1 no such group, the group has nothing of a --topic, or a part is unknown.
    """
    if is_verbose and view != "members":
        raise click.UsageError("--verbose needs --members", context)
    if topics and view is not None:
        raise click.UsageError(f"--{view} shows the whole group; give it without --topic", context)
    if group is None and not is_every_group:
        raise click.UsageError("Missing argument 'GROUP', or --group. --all-groups shows every group.", context)
    if group is not None and is_every_group:
        raise click.UsageError("give either a GROUP or --all-groups", context)
    session = open_admin_session(context, cluster)
    if group is None:
        _describe_every_group(context, session, topics, view, is_verbose=is_verbose, output=output)
        return
    report = read_describe_report(session, group, topics)
    if report is None:
        exit_no_such_group(context, session, group)
    for words in report.remarks:
        print_message(words)
    if output == "json":
        print_json(report.document)
    else:
        _print_described([report], view, is_verbose=is_verbose)
    print_not_known(report.not_known)
    print_topics_not_found(group, report.topics_not_found)
    if report.exit_code:
        context.exit(report.exit_code)


def _describe_every_group(
    context: click.Context,
    session: AnySession,
    topics: Sequence[str],
    view: DescribeView | None,
    *,
    is_verbose: bool,
    output: Output,
) -> None:
    """A topic that a group does not have is no failure here."""
    listed = read_group_listings(session)
    reports: dict[str, DescribeReport] = {}
    names = list(dict.fromkeys(line.group for line in listed.lines))
    with progress_task("reading", len(names), "groups") as task:
        for name in names:
            report = read_describe_report(session, name, topics)
            if report is not None:  # it was deleted meanwhile
                reports[name] = report
            task.advance()
    not_known = [
        *listed.not_known,
        *(f"group {name}: {one}" for name, each in reports.items() for one in each.not_known),
    ]
    exit_code = EXIT_FAILED if not_known else 0
    if output == "json":
        documents = [report.document for report in reports.values()]
        print_json({"schema": DESCRIBE_ALL_SCHEMA, "groups": documents, "not_known": not_known, "exit_code": exit_code})
    else:
        for name, report in reports.items():
            for words in report.remarks:
                print_message(f"Group {name}: {words}")
        _print_described(list(reports.values()), view, is_verbose=is_verbose)
        if not reports:
            print_message(_empty_list_text(session, has_groups=False, which="all", is_all_known=not not_known))
    print_not_known(not_known)
    if exit_code:
        context.exit(exit_code)


def _print_described(reports: Sequence[DescribeReport], view: DescribeView | None, *, is_verbose: bool) -> None:
    """One table for all of them."""
    if view == "members":
        _print_members(reports, is_verbose=is_verbose)
    elif view == "state":
        print_table(STATE_COLUMNS, (row.cells for report in reports for row in report.states), DROPPABLE_STATE_COLUMNS)
    else:
        rows = (row for report in reports for row in report.rows)
        print_table(
            (*COLUMNS, LAG_SECONDS_COLUMN),
            ((*row.cells, row.lag_seconds_cell) for row in rows),
            _droppable(reports, DROPPABLE_COLUMNS),
        )


def _droppable(reports: Sequence[DescribeReport], columns: Sequence[str]) -> tuple[str, ...]:
    """The column GROUP is the least important one if it has the same value in each row."""
    return tuple(columns) if len(reports) > 1 else ("GROUP", *columns)


def _print_members(reports: Sequence[DescribeReport], *, is_verbose: bool) -> None:
    rows = [row for report in reports for row in report.members]
    if is_verbose:
        droppable = _droppable(reports, DROPPABLE_MEMBER_COLUMNS)
        print_table(VERBOSE_MEMBER_COLUMNS, (row.verbose_cells for row in rows), droppable)
    else:
        print_table(MEMBER_COLUMNS, (row.cells for row in rows), _droppable(reports, DROPPABLE_MEMBER_COLUMNS))
    for report in reports:
        group = "The group" if len(reports) == 1 else f"Group {report.document['group']}"
        if any(state.members is None for state in report.states):
            print_message(f"{group} has members, but its coordinator does not name them to this command.")
        elif not report.members and not report.not_known:
            print_message(f"{group} has no members.")


@dataclass(frozen=True, slots=True)
class DescribeReport:
    """What ``groups describe`` shows: ``rows`` as a table, or ``document`` as JSON, and sentences beside them."""

    rows: Sequence[GroupDescribeRow]
    document: Mapping[str, object]
    remarks: Sequence[str]
    not_known: Sequence[str]
    topics_not_found: Sequence[str]
    members: Sequence[GroupMemberRow] = ()
    states: Sequence[GroupStateRow] = ()

    @property
    def exit_code(self) -> int:
        """0; 1 if a part is unknown, or the group has nothing of a topic that was requested."""
        return EXIT_FAILED if self.not_known or self.topics_not_found else 0


def read_describe_report(
    session: AnySession, group: str, topics: Sequence[str] = (), observer: LagTimeObserver | None = None
) -> DescribeReport | None:
    """Read the group in both stores; None if neither has it.  ``topics``: only these, if any are given.

    ``observer``: the one of the reads before; None: of this read alone.

    Raises ``UnavailableError`` when ZooKeeper does not answer, or if it is not known whether the group exists.
    """
    look: ZooKeeperGroupSnapshot | None = None
    if isinstance(session, AdminSession) and paths.is_group(group):
        look = read_group_snapshot(session, group, topics or None)
    is_kafka_asked = look is None or OFFSETS_TOPIC in look.state.all_topics
    coordinator_group, trouble = (
        read_coordinator_group_snapshot(session.brokers, group, session.isolation_level)
        if is_kafka_asked
        else (None, ())
    )
    if look is not None and coordinator_group is not None and not coordinator_group.state.members:
        coordinator_group = None  # the offsets of this ZooKeeper group in Kafka; its own rows show them
    if look is None and coordinator_group is None:
        if trouble:
            raise UnavailableError(f"whether there is a group {group} is not known: {'; '.join(trouble)}")
        return None
    storage = configured_storage(session) if isinstance(session, AdminSession) else "kafka"
    rows = [] if look is None else look.rows(storage, topics)
    not_known = [*look.not_known, *unreadable_offset_texts(look)] if look is not None else []
    if look is not None and trouble and (look.kafka.problem or not look.state.partitions):
        # Otherwise its coordinator has answered, and the brokers that did not answer do not matter for this group.
        not_known += [
            f"whether consumers have joined the coordinator group {group} is not known: {why}" for why in trouble
        ]
    control = look.state.control if look is not None else None
    is_kept_empty = coordinator_group is not None and has_only_placeholder_member(coordinator_group.state, control)
    if coordinator_group is not None:
        rows += [] if is_kept_empty else coordinator_group_rows(coordinator_group, topics)
        not_known += coordinator_group.not_known
    ranges = {} if coordinator_group is None else dict(coordinator_group.log_ranges)
    ranges |= {} if look is None else look.log_ranges
    rows = (observer or LagTimeObserver.of_session(session)).with_lag_times(rows, ranges)
    absent = topics_not_found(topics, rows, look)
    document = _describe_json(group, look, coordinator_group, storage, rows)
    document |= {"topics_not_found": absent, "not_known": not_known}
    document |= {"exit_code": EXIT_FAILED if not_known or absent else 0}
    sentences = [] if look is None else remarks(look, storage)
    sentences += _coordinator_group_remarks(coordinator_group, is_kept_empty=is_kept_empty)
    members = [] if look is None else zookeeper_member_rows(look.state)
    members += [] if coordinator_group is None or is_kept_empty else coordinator_member_rows(coordinator_group)
    states = group_state_rows(None if look is None else look.state, None if is_kept_empty else coordinator_group)
    return DescribeReport(
        rows, document, sentences, list(dict.fromkeys(not_known)), absent, members=members, states=states
    )


def _coordinator_group_remarks(found: CoordinatorGroupSnapshot | None, *, is_kept_empty: bool) -> list[str]:
    if found is None:
        return []
    if is_kept_empty:
        return [
            f"the placeholder member of the migration blocks the coordinator group {found.group}: no other member can "
            "join"
        ]
    members = count_text(len(found.state.members), "member")
    return [
        f"the coordinator group {found.group} is {found.state.state}, with {members}",
        *(f"{member.member_id}: {member.problem}" for member in found.state.members if member.problem),
    ]


def _describe_json(
    group: str,
    look: ZooKeeperGroupSnapshot | None,
    found: CoordinatorGroupSnapshot | None,
    storage: OffsetStorageMode,
    rows: Sequence[GroupDescribeRow],
) -> dict[str, object]:
    members = [] if look is None else [_member_json(look, name) for name in sorted(look.state.members)]
    return {
        "schema": DESCRIBE_SCHEMA,
        "group": group,
        "active": look.state.is_active if look is not None else bool(found and found.state.members),
        "authority": look.state.authority if look is not None else KAFKA_AUTHORITY,
        "storage": storage,
        "rows": [row.to_json() for row in rows],
        "members": members,
        "coordinator_group": coordinator_group_json(found) if found is not None else None,
        "next_steps": describe_next_steps(look, rows) if look is not None else [],
    }


def _member_json(look: ZooKeeperGroupSnapshot, name: str) -> dict[str, object]:
    member = look.state.members[name]
    return {
        "consumer_id": name,
        "host": member.host,
        "kind": member.kind,
        "subscription_pattern": member.subscription_pattern,
        "threads": dict(member.threads),
        "session_id": f"0x{member.session_id:x}",
        "since_ms": member.stat.ctime_ms,
        "problem": member.problem or None,
    }


def topics_not_found(
    topics: Sequence[str], rows: Sequence[GroupDescribeRow], look: ZooKeeperGroupSnapshot | None
) -> list[str]:
    """Return each ``--topic`` of which the group has no subscription, no owner and no offset."""
    there = {row.topic for row in rows} | set(look.state.group_topics if look is not None else ())
    return [topic for topic in dict.fromkeys(topics) if topic not in there]


def print_topics_not_found(group: str, absent: Sequence[str]) -> None:
    """Print an error for each of these topics: with a wrong name the table is empty, as if there were no lag."""
    for topic in absent:
        print_error(
            f"group {group} has nothing of the topic {topic}: correct the name; the topics of the group: "
            f"zkconsumer groups describe {shlex.quote(group)}"
        )


def unreadable_offset_texts(look: ZooKeeperGroupSnapshot) -> list[str]:
    """Report the offsets in ZooKeeper that are unknown because their znodes do not contain a number."""
    nodes = look.state.unreadable_offsets
    if not nodes:
        return []
    return [
        f"the offset of {count_text(len(nodes), 'partition')} in ZooKeeper is not known, {nodes[0].tp} first: "
        f"{nodes[0].problem}; what to do: zkconsumer groups doctor {shlex.quote(look.state.group)}"
    ]


def remarks(look: ZooKeeperGroupSnapshot, storage: OffsetStorageMode) -> list[str]:
    """Notes that belong to the rows."""
    state = look.state
    sentences = [f"{name}: {member.problem}" for name, member in sorted(state.members.items()) if member.problem]
    if state.control_problem:
        sentences.append(f"the control znode cannot be read, so the authority is not known: {state.control_problem}")
    elif state.control is not None:
        sentences.append(f"{state.group} {migration_text(state.control)}")
    apart = differing_offsets(state, look.kafka.offsets)
    if apart and storage == "unknown" and state.control is None:
        sentences.append(
            f"{len(apart)} partitions, {apart[0]} first, have another offset in Kafka: CURRENT-OFFSET is ZooKeeper's. "
            "If the members have offsets.storage=kafka, give their file with --config"
        )
    if state.missing_topics:
        sentences.append(f"these topics do not exist any more: {', '.join(state.missing_topics)}")
    return sentences


def migration_text(control: ControlRecord) -> str:
    """The state of the migration, printed after the group's name."""
    if not control.is_over:
        return f"is migrating: phase {control.phase}, authority {control.authority}"
    moved = "was migrated to Kafka" if control.authority == "kafka" else "was rolled back to ZooKeeper"
    return f"{moved} (phase {control.phase})"


def describe_next_steps(look: ZooKeeperGroupSnapshot, rows: Sequence[GroupDescribeRow]) -> list[str]:
    """Commands that follow from the state of the group."""
    group = shlex.quote(look.state.group)
    steps: list[str] = []
    unowned = look.state.is_active and any(row.partition is not None and row.owner_kind is None for row in rows)
    if unowned or any(member.problem for member in look.state.members.values()):
        steps.append(f"zkconsumer groups doctor {group}")
    control = look.state.control
    if control is not None and not control.is_over:
        steps.append(f"zkconsumer migrate status {group}")
    elif not look.state.is_active:
        steps.append(f"zkconsumer groups delete {group}")
    return [*steps, f"zkconsumer lag {group} --watch"]


def exit_no_such_group(
    context: click.Context, session: AnySession, group: str, *, only_in_zookeeper: str | None = None
) -> NoReturn:
    """Print the text of Kafka's tool (0.10.2 and later), where else to search, and similar names; exit with code 1.

    ``only_in_zookeeper``: given if the command asks no broker; what to do about a group that brokers coordinate.
    """
    if isinstance(session, BrokerAdminSession):
        where = " at the brokers. For a group in ZooKeeper give --zookeeper HOST:PORT[/CHROOT]"
    elif only_in_zookeeper is not None:
        where = f" in ZooKeeper, and this command searches only there{only_in_zookeeper}"
    else:
        where = ""
    print_error(f"The consumer group '{group}' does not exist{where}. The existing groups: {LIST_GROUPS_COMMAND}")
    names = (
        group_names(session)
        if isinstance(session, AdminSession)
        else list_all_coordinator_groups(session.brokers).groups
    )
    near = get_close_matches(group, names, NEAR_NAMES_MAX)
    if near:
        print_message(f"Similar names: {', '.join(near)}")
    context.exit(EXIT_FAILED)
