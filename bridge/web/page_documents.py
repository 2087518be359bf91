"""What the panels of a group show, from what the commands print.  Pure.

group_page   ``groups describe``  ->  members by kind, who owns what, totals by topic, both offsets side by side
move_page    ``migrate status``   ->  the phase line, what is awaited, who must act, the next commands
list_rows    ``groups list``      ->  the rows of the list, with the lag of each group, where it was read
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bridge.migration.control.phases import ENDED, FORWARD, Phase
from zkconsumer.admin.coordinator_group_snapshot import KAFKA_AUTHORITY
from zkconsumer.admin.lag_time_text import lag_time_total_json, lag_time_total_text
from zkconsumer.cli.lag import LagTotal
from zkconsumer.observe.lag_time import LagTimeTotal

if TYPE_CHECKING:
    from bridge.web.read_state import Document
    from zkconsumer.admin.describe import GroupDescribeRow
    from zkconsumer.cli.groups import DescribeReport

BACK_BEFORE_SWITCH = (Phase.UNDOING, Phase.UNDONE)
BACK_AFTER_SWITCH = (Phase.RETURNING, Phase.RETURNED, Phase.UNDONE)

COORDINATOR_STORE, ZOOKEEPER_STORE = "coordinator", "zookeeper"

SPARK = "spark"
"""The kind of a member of this library that is a Spark query; ``groups describe`` names it ``zkconsumer``."""

NO_QUERIES: Mapping[str, str] = {}


def total_json(rows: Iterable[GroupDescribeRow]) -> dict[str, object]:
    """The lag of rows together; ``lag`` is None if any part of it is unknown, and ``known`` is the rest."""
    total = LagTotal.of(rows)
    return {
        "lag": None if total.unknown or not total.has_known else total.known,
        "known": total.known if total.has_known else None,
        "unknown": total.unknown,
        "without_offset": total.without_offset,
        "without_log": total.without_log,
        "partitions": total.partitions,
        "text": str(total),
    }


def group_page(report: DescribeReport, queries: Mapping[str, str] = NO_QUERIES) -> dict[str, Any]:
    """The document of ``groups describe``, with totals, and the members of both kinds in one list.

    ``queries``: consumer id -> the id of its Spark query, of the members that are known to be one.
    """
    rows = _counted_rows(report)
    topics: dict[str, list[GroupDescribeRow]] = {}
    for row in rows:
        topics.setdefault(row.topic or "", []).append(row)
    document = dict(report.document)
    times = [row.lag_time.lag for row in rows if row.lag_time is not None and row.lag is not None]
    return {
        **document,
        "remarks": list(report.remarks),
        "total": total_json(rows),
        "seconds_behind": None if not times else lag_time_total_text(LagTimeTotal.of(times)),
        "lag_time": lag_time_total_json(row.lag_time for row in rows if row.lag_time is not None),
        "topics": [{"topic": topic, **total_json(some)} for topic, some in sorted(topics.items())],
        "all_members": _members(document, [row for row in report.rows if row.partition is not None], queries),
        "unowned": sum(row.consumer_id is None and row.owner_kind is None for row in rows),
    }


def _counted_rows(report: DescribeReport) -> list[GroupDescribeRow]:
    """The rows with a partition.

    A group that was migrated has the rows of both stores, with the same offsets: of these each partition counts once.
    """
    rows = [row for row in report.rows if row.partition is not None]
    if report.document["authority"] != KAFKA_AUTHORITY:
        return rows
    return list({(row.topic, row.partition): row for row in rows}.values())


def _members(
    document: Mapping[str, Any], rows: Sequence[GroupDescribeRow], queries: Mapping[str, str]
) -> list[dict[str, object]]:
    owned: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        store = COORDINATOR_STORE if row.owner_kind == "coordinator" else ZOOKEEPER_STORE
        if row.consumer_id is not None:
            owned.setdefault((store, row.consumer_id), []).append(f"{row.topic}-{row.partition}")
    members: list[dict[str, object]] = [
        {
            "id": one["consumer_id"],
            "kind": SPARK if one["consumer_id"] in queries else one["kind"],
            "query": queries.get(one["consumer_id"]),
            "store": ZOOKEEPER_STORE,
            "host": one["host"],
            "client_id": None,
            "topics": sorted(one["threads"]),
            "since_ms": one["since_ms"],
            "problem": one["problem"],
            "partitions": owned.pop((ZOOKEEPER_STORE, one["consumer_id"]), []),
        }
        for one in document["members"]
    ]
    coordinator_group = document["coordinator_group"]
    members += [
        {
            "id": one["member_id"],
            "kind": "coordinator",
            "query": None,
            "store": COORDINATOR_STORE,
            "host": one["host"],
            "client_id": one["client_id"],
            "topics": list(one["topics"]),
            "since_ms": None,
            "problem": one["problem"],
            "partitions": owned.pop((COORDINATOR_STORE, one["member_id"]), list(one["partitions"])),
        }
        for one in (coordinator_group["members"] if coordinator_group else ())
    ]
    members += [
        {
            "id": name,
            "kind": "unregistered",
            "query": None,
            "store": store,
            "host": None,
            "client_id": None,
            "topics": [],
            "since_ms": None,
            "problem": "it owns partitions, and is not registered",
            "partitions": partitions,
        }
        for (store, name), partitions in owned.items()
    ]
    return members


def move_page(status: Document) -> dict[str, Any]:
    """The document of ``migrate status``, with the phase line, since when it is so, and who must act."""
    return {**status, "phases": phase_line(status), "actor": actor(status), "since_ms": last_change_ms(status)}


def phase_line(status: Document) -> list[dict[str, str]]:
    """The phases in order, each ``done``, ``current`` or ``ahead``; the way back only where the group is on it."""
    if status["phase"] is None:
        return []
    phase, strategy = Phase(status["phase"]), status["strategy"]
    forward = FORWARD.get(strategy, ())
    if phase in forward:
        line, at = list(forward), forward.index(phase)
    else:
        # The znode does not contain how far the migration had come; whether it was switched follows from the way.
        is_late = phase in (Phase.RETURNING, Phase.RETURNED) or _was_switched(status)
        came_from = list(forward[: forward.index(Phase.SWITCHED) + 1]) if is_late else [Phase.PLANNED]
        back = BACK_AFTER_SWITCH if is_late else BACK_BEFORE_SWITCH
        line = [*came_from, *back]
        at = line.index(phase)
    is_finished = phase in ENDED
    return [
        {
            "phase": one.value,
            "state": "done"
            if number < at or (number == at and is_finished)
            else "current"
            if number == at
            else "ahead",
            "authority": "kafka" if one in (Phase.SWITCHED, Phase.COMPLETED, Phase.RETURNING) else "zookeeper",
        }
        for number, one in enumerate(line)
    ]


def _was_switched(status: Document) -> bool:
    """Whether a migration that was undone had been switched before: then its journal says so."""
    return any("returning" in str(entry["what"]) or "returned" in str(entry["what"]) for entry in status["journal"])


def actor(status: Document) -> str:
    """Who must act next, as one sentence."""
    phase = status["phase"]
    if phase is None:
        return "No one: no migration has begun, and ZooKeeper has the offsets."
    if Phase(phase) in ENDED:
        return "No one: the migration has ended."
    lock = status["lock"]
    waiting = status["waiting_for"] or ()
    if lock is not None and waiting:
        return f"The members: the run of {lock['owner']} waits for them."
    if lock is not None:
        return f"The run of {lock['owner']}: it works now."
    if waiting:
        return "The members, and then the operator: no run is active."
    return "The operator: no run is active. The next command is below."


def last_change_ms(status: Document) -> int | None:
    """The newest sign of work: the begin of the run, or the newest entry of the journal; None without any."""
    times = [entry["at_ms"] for entry in status["journal"]]
    if status["lock"] is not None:
        times.append(status["lock"]["since_ms"])
    return max(times, default=None)


def list_rows(
    document: Document, totals: Mapping[str, Document], phases: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The document of ``groups list``, each group with its ``lag``: as ``total_json``, None where it was not read; and
    with the ``phase`` of its migration, None without one.
    """
    groups = [
        {
            **one,
            "lag": None if one["kind"] == "coordinator" else totals.get(one["group"]),
            "phase": (phases or {}).get(one["group"]),
        }
        for one in document["groups"]
    ]
    return {**document, "groups": groups}
