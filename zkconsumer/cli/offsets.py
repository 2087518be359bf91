"""``zkconsumer offsets``: saves, compares and sets the offsets of groups.  The commands that write have own files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from zkconsumer.admin.admin_session import AdminSession, AnySession
from zkconsumer.admin.coordinator_group_snapshot import list_all_coordinator_groups
from zkconsumer.admin.describe import UNKNOWN
from zkconsumer.admin.group_offset_stores import GroupOffsetStores
from zkconsumer.admin.json_offset_znodes import read_json_offset_znodes
from zkconsumer.admin.offset_files import ExportedOffset, OffsetFileFormat, can_name_group, format_file
from zkconsumer.admin.offset_lines import STORES_BY_OPTION, OffsetFileConvention, OffsetStoreName
from zkconsumer.admin.zookeeper_group_list import group_names
from zkconsumer.base.progress import progress_task
from zkconsumer.cli.common import (
    EXIT_DIFFERS,
    EXIT_FAILED,
    open_admin_session,
    print_json,
    print_not_known,
    print_table,
    require_admin_session,
)
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.lazy_commands import LazyGroup
from zkconsumer.cli.offsets_common import (
    convention_option,
    file_format_option,
    offset_count_text,
    read_file,
    read_group_offsets,
    selected_stores,
    store_option,
)
from zkconsumer.cli.options import ClusterOptions, OutputFormat, cluster_options, group_arguments, report_options
from zkconsumer.errors import UnavailableError, UsageError
from zkconsumer.types import TopicPartition

LAZY_COMMANDS = {
    "import": "zkconsumer.cli.offsets_import:import_",
    "set": "zkconsumer.cli.offsets_set:set_",
    "delete": "zkconsumer.cli.offsets_set:delete",
}
"""Loaded when they are called."""

LIST_GROUPS_COMMAND = "zkconsumer groups list"
DIFF_SCHEMA = "zkconsumer/offsets-diff/1"


@click.group(cls=LazyGroup, lazy_commands=LAZY_COMMANDS)
def offsets() -> None:
    """Save, compare, move and set the offsets of groups, in ZooKeeper and in Kafka."""


# --- export -----------------------------------------------------------------------------------------------------


@offsets.command()
@group_arguments
@click.option(
    "--all",
    "all_groups",
    is_flag=True,
    help="Every group below /consumers; with brokers only, every group that they coordinate.",
)
@store_option("The store to read the offsets from.", both=False)
@click.option(
    "--format", "format_", type=click.Choice([each.value for each in OffsetFileFormat]), default="zk",
    show_default=True,
    help="zk: like ExportZkOffsets; csv: like kafka-consumer-groups --export; json: with store, convention and times.",
)  # fmt: skip
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to this file.")
@click.option(
    "--json-znodes",
    metavar="PATH",
    help="Instead of the group's offsets, export those in JSON znodes below PATH, as Storm's KafkaSpout and "
    "kafka-spark-consumer write them, under the name of GROUP.",
)
@click.option(
    "--offset-convention",
    "convention",
    type=click.Choice(["next", "last"]),
    help="With --json-znodes: whether a znode has the next offset to read, or the last one read, which is written "
    "plus one. [next]",
)
@cluster_options
@click.pass_context
def export(
    context: click.Context,
    groups: Sequence[str],
    all_groups: bool,
    store: OffsetStoreName | None,
    format_: str,
    file: Path | None,
    json_znodes: str | None,
    convention: OffsetFileConvention | None,
    cluster: ClusterOptions,
) -> None:
    """Write the offsets of groups to standard output, or to a file.

    The file is written completely or not at all. Groups without offsets are named and skipped. Exit codes: 0 done, 1
    an offset could not be read, a broker does not report its groups, or the format cannot have the name of a group (the
    others are written), or there are no offsets at all (nothing is written).
    """
    if bool(groups) == all_groups:
        raise UsageError("give either groups or --all")
    if json_znodes is None and convention is not None:
        raise UsageError("--offset-convention needs --json-znodes; offsets import has the option too")
    if json_znodes is not None and (len(groups) != 1 or store == "kafka"):
        raise UsageError("--json-znodes needs exactly one GROUP, and does not fit --store kafka")
    session = open_admin_session(context, cluster)
    [store] = selected_stores(session, store)
    if json_znodes is not None:
        names = groups
        found, unreadable = _read_json_znodes(session, groups[0], json_znodes, convention)
        missing = f"there are no offsets in JSON znodes below {json_znodes} to export; nothing was written"
    else:
        names, unknown = _all_groups(session) if all_groups else (sorted(set(groups)), ())
        print_not_known(unknown)
        if unknown and not names:
            context.exit(EXIT_FAILED)
        readable = names
        if not isinstance(session, AdminSession):
            readable = _groups_that_fit(names, format_, all_groups=all_groups)
        if names and not readable:
            context.exit(EXIT_FAILED)
        found, unreadable = _read_groups(session, readable, store)
        unreadable += len(unknown) + len(names) - len(readable)
        among = "of the groups that are known " if unknown else ""
        missing = f"there are no offsets {among}in {store} to export; nothing was written. "
        missing += f"The groups: {LIST_GROUPS_COMMAND}"
    if not found:
        print_error(missing)
        context.exit(EXIT_FAILED)
    now_ms = session.clock.wall_ms()
    text = format_file(OffsetFileFormat(format_), found, store=store, exported_ms=now_ms, with_group=len(names) > 1)
    if file is None:
        click.echo(text, nl=False)
    else:
        _write_atomically(file, text)
        count = len({each.group for each in found})
        print_message(
            f"{offset_count_text(len(found))} of {count} {'group' if count == 1 else 'groups'} written to {file}."
        )
    context.exit(EXIT_FAILED if unreadable else 0)


def _groups_that_fit(names: Sequence[str], format_: str, *, all_groups: bool) -> Sequence[str]:
    """Return the groups whose names the format can have; print the others, which are skipped with ``--all``."""
    fitting = [name for name in names if can_name_group(OffsetFileFormat(format_), name, with_group=len(names) > 1)]
    for name in sorted(set(names).difference(fitting)):
        why = f"--format {format_} cannot have this name, --format json can"
        if not all_groups:
            raise UsageError(f"group {name}: {why}")
        print_message(f"Group {name}: skipped, {why}")
    return fitting


def _read_groups(
    session: AnySession, groups: Sequence[str], store: OffsetStoreName
) -> tuple[list[ExportedOffset], int]:
    """Return the offsets of these groups, and how many could not be read; print what is skipped."""
    found: list[ExportedOffset] = []
    unreadable = 0
    with progress_task("exporting", len(groups), "groups") as task:
        for group in groups:
            seen = GroupOffsetStores(session, group).read([store])
            offsets_ = {tp: offset for tp, offset in seen.offsets_in(store).items() if offset is not None}
            changed = {tp: node.stat.mtime_ms for tp, node in seen.zookeeper.items()} if store == "zookeeper" else {}
            found += [ExportedOffset(group, tp, offset, changed.get(tp)) for tp, offset in offsets_.items()]
            if not offsets_:
                print_message(f"Group {group} has no offsets in {store}; skipped.")
            for node in seen.unreadable if store == "zookeeper" else ():
                print_message(
                    f"Group {group}, {node.tp}: skipped, the znode does not contain an offset: {node.problem}"
                )
            for path in seen.unexpected_nodes if store == "zookeeper" else ():
                print_message(f"{path}: skipped, this is not a topic or a partition")
            unreadable += len(seen.unreadable) if store == "zookeeper" else 0
            task.advance()
    return found, unreadable


def _read_json_znodes(
    session: AnySession, group: str, path: str, convention: OffsetFileConvention | None
) -> tuple[list[ExportedOffset], int]:
    """As ``_read_groups``, of JSON znodes of another program, as the next offsets of this group."""
    read = read_json_offset_znodes(require_admin_session(session, "--json-znodes reads ZooKeeper"), path)
    for problem in read.problems:
        print_message(problem)
    shift = 1 if convention == "last" else 0
    if shift and read.offsets:
        print_message("the znodes have the last offset read: the next one is written, which is 1 more")
    return [ExportedOffset(group, tp, offset + shift) for tp, offset in read.offsets.items()], len(read.problems)


def _all_groups(session: AnySession) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the groups, and what could not be read."""
    if isinstance(session, AdminSession):
        return sorted(group_names(session)), ()
    listed = list_all_coordinator_groups(session.brokers)
    return sorted(listed.groups), listed.not_known


def _write_atomically(file: Path, text: str) -> None:
    """Replace an existing file in one step, so that no reader sees half of it.  Write directly to a device or pipe."""
    file = Path(os.path.realpath(file))
    try:
        if file.exists() and not file.is_file():
            file.write_text(text, encoding="utf-8", newline="\n")
            return
        # In the same folder: a rename to another file system would be a copy.
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(name, _mode_of(file))
            os.replace(name, file)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UnavailableError(f"{file} cannot be written: {error.strerror}; nothing was written") from error


def _mode_of(file: Path) -> int:
    if file.exists():
        return file.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


# --- diff -------------------------------------------------------------------------------------------------------


@offsets.command()
@click.argument("words", nargs=-1, metavar="GROUP [FILE]")
@click.option("--group", metavar="GROUP", help="The group, if it is no argument.")
@store_option("With FILE: the store to compare it with.", both=False)
@file_format_option
@convention_option
@report_options
def diff(
    context: click.Context,
    words: Sequence[str],
    group: str | None,
    store: OffsetStoreName | None,
    format_: str,
    convention: OffsetFileConvention | None,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Compare a group's offsets in ZooKeeper with those in Kafka, or with those of FILE, partition by partition.

    Shows only differences. Exit codes: 0 equal, 1 there is nothing to compare, 3 there are differences.
    """
    group, file = _group_and_file(context, words, group)
    if file is None and (format_ != "auto" or convention is not None or store is not None):
        raise UsageError("--format, --offset-convention and --store need FILE: without it, the two stores are compared")
    read = None if file is None else read_group_offsets(file, read_file(file, format_), group, convention)[group]
    session = open_admin_session(context, cluster)
    if read is None:
        require_admin_session(
            session, "offsets diff without FILE compares the offsets in ZooKeeper with those in Kafka"
        )
    [store] = selected_stores(session, store)
    seen = GroupOffsetStores(session, group).read(STORES_BY_OPTION["both"] if read is None else [store])
    left: Mapping[TopicPartition, int | None] = seen.offsets_in("zookeeper" if read is None else store)
    right: Mapping[TopicPartition, int | None] = seen.offsets_in("kafka") if read is None else read
    names = ("zookeeper", "kafka") if read is None else (store, "file")
    partitions = sorted(left.keys() | right.keys())
    unreadable = {node.tp for node in seen.unreadable if "zookeeper" in names}
    differing = [tp for tp in partitions if left.get(tp) != right.get(tp) or tp in unreadable]
    for node in seen.unreadable if unreadable else ():
        print_message(f"the znode of {node.tp} does not contain an offset: {node.problem}")
    rows = [(tp, left.get(tp), right.get(tp)) for tp in differing]
    if output == "json":
        print_json(
            {
                "schema": DIFF_SCHEMA,
                "group": group,
                "compared": names,
                "equal": len(partitions) - len(rows),
                "rows": [
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        names[0]: one,
                        names[1]: other,
                        "unknown": ["zookeeper"] if tp in unreadable else [],
                    }
                    for tp, one, other in rows
                ],
            }
        )
    elif rows:
        heads = {"zookeeper": "ZK-OFFSET", "kafka": "KAFKA-OFFSET", "file": "FILE-OFFSET"}
        print_table(
            ("GROUP", "TOPIC", "PARTITION", heads[names[0]], heads[names[1]], "DIFFERENCE"),
            (
                (group, tp.topic, tp.partition, UNKNOWN if tp in unreadable else one, other, _difference(one, other))
                for tp, one, other in rows
            ),
            ("GROUP",),
        )
    if not partitions:
        where = f"{names[0]} or {names[1]}"
        print_error(f"group {group} has no offsets in {where}: nothing was compared. The groups: {LIST_GROUPS_COMMAND}")
        context.exit(EXIT_FAILED)
    equal = len(partitions) - len(rows)
    are = "1 partition is" if equal == 1 else f"{equal} partitions are"
    differ = "1 differs" if len(rows) == 1 else f"{len(rows)} differ"
    print_message(f"Group {group}: {are} equal in {names[0]} and {names[1]}, {differ}.")
    context.exit(EXIT_DIFFERS if rows else 0)


def _group_and_file(context: click.Context, words: Sequence[str], option: str | None) -> tuple[str, str | None]:
    """``GROUP [FILE]``; with ``--group`` a single word is the file, and the first of two words must be that group."""
    if len(words) > 2:
        raise click.UsageError(f"too many arguments: {' '.join(words[2:])}", context)
    group, file = (*words, None, None)[:2]
    if option is not None and len(words) < 2:
        group, file = option, group
    if group is None:
        raise click.UsageError("Missing argument 'GROUP', or --group.", context)
    if option not in (None, group):
        raise click.UsageError(f"two groups are given, {group!r} and --group {option!r}; name one", context)
    return group, file


def _difference(one: int | None, other: int | None) -> int | None:
    """Return how much larger the second one is."""
    return None if one is None or other is None else other - one
