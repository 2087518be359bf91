"""``zkconsumer groups``: which groups there are, and how one stands.  ``delete`` and ``doctor`` have own files."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NoReturn

import click

from zkconsumer.admin.describe import COLUMNS, Row, Storage, describe, differing
from zkconsumer.admin.listing import GroupLine, group_names, list_groups
from zkconsumer.admin.look import Look, look_at, storage_of
from zkconsumer.admin.session import AdminSession
from zkconsumer.cli.common import (
    EXIT_FAILED,
    cluster_options,
    open_session,
    output_option,
    print_json,
    print_table,
    tell,
    when,
)
from zkconsumer.cli.lazy import LazyGroup

Output = Literal["table", "json"]

LATER = {"delete": "zkconsumer.cli.groups_delete:delete", "doctor": "zkconsumer.cli.groups_doctor:doctor"}
"""Loaded when they are called."""

NEAR_NAMES_MAX = 3
LIST_SCHEMA = "zkconsumer/groups-list/1"
DESCRIBE_SCHEMA = "zkconsumer/groups-describe/1"


@click.group(cls=LazyGroup, later=LATER)
def groups() -> None:
    """Look at groups in ZooKeeper, find what is wrong with one, delete what is dead."""


# --- list -------------------------------------------------------------------------------------------------------


@groups.command(name="list")
@click.option("--all", "which", flag_value="all", default="all", help="Every group (the default).")
@click.option("--active", "which", flag_value="active", help="Groups with a registered member.")
@click.option("--empty", "which", flag_value="empty", help="Groups without one.")
@output_option
@cluster_options
@click.pass_context
def list_(
    context: click.Context, which: str, output: Output, zookeeper: str | None, config_file: Path | None
) -> None:
    """List the groups below /consumers: who is in them, which topics, when anything was committed last.

    KIND says whose owner nodes there are: scala, zkconsumer, mixed; foreign: neither kind; - : nobody owns anything.
    """
    session = open_session(context, zookeeper, config_file)
    lines = [line for line in list_groups(session) if which == "all" or line.is_active == (which == "active")]
    if output == "json":
        litter = sum(line.is_console_litter for line in lines)
        steps = [f"zkconsumer groups delete --litter   # {litter} left by console consumers"] if litter else []
        print_json({"schema": LIST_SCHEMA, "groups": [_line_json(line) for line in lines], "next_steps": steps})
        return
    rows = ((line.group, line.kind, line.members, _topics(line), when(line.last_commit_ms)) for line in lines)
    print_table(("GROUP", "KIND", "MEMBERS", "TOPICS", "LAST-COMMIT"), rows)


def _line_json(line: GroupLine) -> dict[str, object]:
    return {
        "group": line.group,
        "kind": None if line.kind == "-" else line.kind,
        "active": line.is_active,
        "members": line.members,
        "topics": list(line.topics),
        "last_commit_ms": line.last_commit_ms,
        "last_write_ms": line.last_write_ms,
        "console_litter": line.is_console_litter,
    }


TOPICS_SHOWN_MAX = 3


def _topics(line: GroupLine) -> str:
    more = len(line.topics) - TOPICS_SHOWN_MAX
    return ",".join(line.topics[:TOPICS_SHOWN_MAX]) + (f",… {more} more" if more > 0 else "")


# --- describe ---------------------------------------------------------------------------------------------------


@groups.command(name="describe")
@click.argument("group")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic; may be repeated.")
@output_option
@cluster_options
@click.pass_context
def describe_(
    context: click.Context,
    group: str,
    topics: Sequence[str],
    output: Output,
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    """Show a group, a line a partition, in both stores.

    CURRENT-OFFSET is what a member would start from if it were restarted now, and AUTHORITY the store that says so:
    ZooKeeper, unless a control znode or offsets.storage in the --config FILE says otherwise, or only Kafka has an
    offset. OWNER-KIND: zkconsumer, scala, foreign, or persistent (a node that no member made, and that nobody can
    claim). CLIENT-ID stands in no znode. Members without partitions come last. A - is what is not there or not known;
    standard error says why.
    """
    session = open_session(context, zookeeper, config_file)
    look = look_at(session, group, topics or None)
    if look is None:
        no_such_group(context, session, group)
    storage = storage_of(session)
    rows = describe(look.state, look.ends, look.kafka.offsets, storage, topics)
    for words in look.words:
        tell(words)
    say_what_is_not_there(look, topics)
    for words in remarks(look, storage):
        tell(words)
    if output == "json":
        print_json(
            {
                "schema": DESCRIBE_SCHEMA,
                "group": group,
                "active": look.state.is_active,
                "authority": look.state.authority,
                "storage": storage,
                "rows": [row.to_json() for row in rows],
                "members": [_member_json(look, name) for name in sorted(look.state.members)],
                "not_known": list(look.words),
                "next_steps": next_steps(look, rows),
            }
        )
        return
    print_table(COLUMNS, (row.cells for row in rows))


def _member_json(look: Look, name: str) -> dict[str, object]:
    member = look.state.members[name]
    return {
        "consumer_id": name,
        "host": member.host,
        "kind": member.kind,
        "subscribes_by": member.subscribes_by,
        "threads": dict(member.threads),
        "session_id": f"0x{member.session_id:x}",
        "since_ms": member.stat.ctime_ms,
        "problem": member.problem or None,
    }


def say_what_is_not_there(look: Look, topics: Sequence[str]) -> None:
    """A word for each ``--topic`` that the group does not know."""
    for topic in topics:
        if topic not in look.state.group_topics:
            tell(f"{look.state.group} has nothing of the topic {topic}")


def remarks(look: Look, storage: Storage) -> list[str]:
    """What a reader of the rows must know besides."""
    state = look.state
    said = [f"{name}: {member.problem}" for name, member in sorted(state.members.items()) if member.problem]
    if state.control_problem:
        said.append(f"the control znode cannot be read, so the authority is not known: {state.control_problem}")
    elif state.control is not None:
        said.append(f"{state.group} is on the move: phase {state.control.phase}, authority {state.control.authority}")
    apart = differing(state, look.kafka.offsets)
    if apart and storage == "unknown" and state.control is None:
        said.append(
            f"{len(apart)} partitions, {apart[0]} first, have another offset in Kafka: CURRENT-OFFSET is ZooKeeper's. "
            "If the members have offsets.storage=kafka, give their file with --config"
        )
    if state.missing_topics:
        said.append(f"no such topic any more: {', '.join(state.missing_topics)}")
    return said


def next_steps(look: Look, rows: Sequence[Row]) -> list[str]:
    """Commands that follow from what was seen."""
    group = look.state.group
    steps: list[str] = []
    unowned = look.state.is_active and any(row.partition is not None and row.owner_kind is None for row in rows)
    if unowned or any(member.problem for member in look.state.members.values()):
        steps.append(f"zkconsumer groups doctor {group}")
    if not look.state.is_active:
        steps.append(f"zkconsumer groups delete {group}")
    return [*steps, f"zkconsumer lag {group} --watch"]


def no_such_group(context: click.Context, session: AdminSession, group: str) -> NoReturn:
    """The words of the original (0.10.2 and later), the names that come near, and exit code 1."""
    tell(f"Error: The consumer group '{group}' does not exist.")
    near = get_close_matches(group, group_names(session), NEAR_NAMES_MAX)
    if near:
        tell(f"Names that come near: {', '.join(near)}")
    context.exit(EXIT_FAILED)
