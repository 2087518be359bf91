"""A plan as lines of JSON, and back; strict, since ``apply`` executes it.  Pure.

    line 1      what applies to the whole group, with the digest
    others      one partition each, in the plan's order

The digest is checked, and every path must belong to the group: an altered or hostile file causes ``InvalidJsonError``,
and no write to another path.  ``plan_header`` has the first line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.migration.inspect.group_snapshot import CommittedOffset, LastLogEntry, OwnerSnapshot, PartitionSnapshot
from bridge.migration.plan.json_object_reader import (
    InvalidJsonError,
    JsonObjectReader,
    JsonValue,
    as_list,
    as_number,
    as_text,
)
from bridge.migration.plan.migration_plan import MigrationPlan, PlannedPartition
from bridge.migration.plan.plan_header import PlanHeader, format_plan_header, parse_plan_header
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.admin.zookeeper_group import OwnerKind
    from zkconsumer.zk.requests import Acl

HEAD_CHARS_MAX = 64 * 1024 * 1024
ROW_CHARS_MAX = 100_000
"""The longest first line (names of topics and members, access lists), and the longest other line, in characters."""

PARTITIONS_MAX = 1_000_000
INT32_MAX = 2**31 - 1


def digest_of_plan(plan: MigrationPlan) -> str:
    """SHA-256 over everything except the digest, in hex."""
    digest = hashlib.sha256()
    for line in plan_lines(replace(plan, digest="")):
        digest.update(line.encode())
    return digest.hexdigest()


def plan_lines(plan: MigrationPlan) -> Iterator[str]:
    """The lines of a plan, each with its end; ASCII."""
    lists = {acl: number for number, acl in enumerate(dict.fromkeys(plan.snapshot.acls.values()))}
    of_partitions = {paths.offset(plan.group, row.tp) for row in plan.partitions if row.version != NO_ZNODE_VERSION}
    yield _line(format_plan_header(plan, lists, of_partitions))
    for row in plan.partitions:
        acl = plan.snapshot.acls.get(paths.offset(plan.group, row.tp)) if row.version != NO_ZNODE_VERSION else None
        yield _line(_row(plan.snapshot.partitions[row.tp], row, None if acl is None else lists[acl]))


def parse_plan(lines: Iterable[str]) -> MigrationPlan:
    """A plan from its lines.  Raises ``InvalidJsonError``."""
    rest = iter(lines)
    first = next(rest, "")
    if not first.strip():
        raise InvalidJsonError("line 1: it is empty")
    head = parse_plan_header(JsonObjectReader.parse(_limited(first, HEAD_CHARS_MAX, "line 1"), "line 1"))
    partitions: dict[TopicPartition, PartitionSnapshot] = {}
    planned: list[PlannedPartition] = []
    acls = dict(head.snapshot.acls)
    for number, line in enumerate(rest, start=2):
        where = f"line {number}"
        if len(planned) >= min(head.partition_count, PARTITIONS_MAX):
            raise InvalidJsonError(f"{where}: {head.partition_count} partitions are announced, and more follow")
        seen, row, acl = _parse_row(JsonObjectReader.parse(_limited(line, ROW_CHARS_MAX, where), where), head)
        if seen.tp in partitions:
            raise InvalidJsonError(f"{where}: {seen.tp} is a duplicate")
        partitions[seen.tp] = seen
        planned.append(row)
        if acl is not None:
            acls[paths.offset(head.plan.group, seen.tp)] = acl
    if len(planned) != head.partition_count:
        raise InvalidJsonError(
            f"{head.partition_count} partitions are announced, and {len(planned)} follow: the file was cut off"
        )
    plan = replace(
        head.plan, snapshot=replace(head.snapshot, partitions=partitions, acls=acls), partitions=tuple(planned)
    )
    if digest_of_plan(plan) != plan.digest:
        raise InvalidJsonError("it was altered: its digest differs")
    return plan


def _limited(line: str, chars_max: int, where: str) -> str:
    if len(line) > chars_max:
        raise InvalidJsonError(f"{where}: more than {chars_max} characters")
    return line


def _line(members: dict[str, JsonValue]) -> str:
    return json.dumps(members, separators=(",", ":")) + "\n"


# --- one partition ----------------------------------------------------------------------------------------------

_KINDS: dict[str, OwnerKind] = {
    "zkconsumer": "zkconsumer", "scala": "scala", "foreign": "foreign", "persistent": "persistent",
}  # fmt: skip


def _row(seen: PartitionSnapshot, row: PlannedPartition, acl: int | None) -> dict[str, JsonValue]:
    """Usual values are omitted."""
    members: dict[str, JsonValue] = {"topic": seen.tp.topic, "partition": seen.tp.partition}
    if seen.version != NO_ZNODE_VERSION:
        members |= {"stored": seen.stored, "version": seen.version, "written_ms": seen.written_ms}
    if seen.error:
        members["problem"] = seen.error
    if seen.is_older_than_topic:
        members["is_older"] = True
    if seen.is_written_by_owner:
        members["is_ours"] = True
    if acl is not None:
        members["acl"] = acl
    if seen.owner is not None:
        members["owner"] = [seen.owner.kind, seen.owner.thread]
    if seen.kafka is not None:
        members["kafka"] = [seen.kafka.offset, seen.kafka.metadata]
    if seen.is_returned:
        members["is_returned"] = True
    members["log"] = seen.log if isinstance(seen.log, str) else [seen.log.earliest, seen.log.latest]
    if seen.last_entry is not None:
        members["last"] = [seen.last_entry.is_record, seen.last_entry.at_ms]
    members["target"] = row.target
    members["why"] = row.why
    if row.refusal:
        members["refusal"] = row.refusal
    return members


def _parse_row(
    members: JsonObjectReader, head: PlanHeader
) -> tuple[PartitionSnapshot, PlannedPartition, tuple[Acl, ...] | None]:
    tp = TopicPartition(members.checked("topic", paths.check_topic), members.number("partition", 0, INT32_MAX))
    is_there = members.has("version")
    stored = members.nullable("stored", members.number) if is_there else None
    seen = PartitionSnapshot(
        tp,
        stored,
        members.number("version", 0, INT32_MAX) if is_there else NO_ZNODE_VERSION,
        members.optional("problem", members.text, ""),
        members.number("written_ms") if is_there else 0,
        members.optional("is_older", members.flag, False),
        members.optional("is_ours", members.flag, False),
        _owner(members) if members.has("owner") else None,
        _kafka(members) if members.has("kafka") else None,
        _log(members),
        _last(members) if members.has("last") else None,
        members.optional("is_returned", members.flag, False),
    )
    acl = None
    if members.has("acl"):
        if not is_there:
            raise members.error("an access list of a node that is not there")
        acl = head.acls[members.number("acl", 0, len(head.acls) - 1)]
    target = members.nullable("target", members.number)
    why, refusal = members.text("why"), members.optional("refusal", members.text, "")
    members.reject_unknown_keys()
    return seen, PlannedPartition(tp, seen.stored, seen.version, target, why, refusal), acl


def _owner(members: JsonObjectReader) -> OwnerSnapshot:
    kind, thread = as_list(members.take("owner"), "owner", 2)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise members.error("'owner' is of no known kind")
    return OwnerSnapshot(as_text(thread, "owner", ROW_CHARS_MAX), _KINDS[kind])


def _kafka(members: JsonObjectReader) -> CommittedOffset:
    offset, metadata = as_list(members.take("kafka"), "kafka", 2)
    return CommittedOffset(as_number(offset, "kafka"), as_text(metadata, "kafka", ROW_CHARS_MAX))


def _log(members: JsonObjectReader) -> LogRange | str:
    value = members.take("log")
    if isinstance(value, str):
        return value
    earliest, latest = as_list(value, "log", 2)
    return LogRange(as_number(earliest, "log"), as_number(latest, "log"))


def _last(members: JsonObjectReader) -> LastLogEntry:
    is_record, at_ms = as_list(members.take("last"), "last", 2)
    if not isinstance(is_record, bool):
        raise members.error("'last' is no entry of a log")
    return LastLogEntry(is_record, as_number(at_ms, "last", -1))
