"""What the panels show, from what commands print."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.web.group_changes import EVENTS_MAX, EventHistory, GroupEvent, changed_rows, group_events, migration_events
from bridge.web.lag_series import POINTS_MAX, TOPICS_MAX, LagSeries
from bridge.web.page_documents import actor, group_page, last_change_ms, list_rows, move_page, phase_line, total_json
from bridge.web.read_state import ReadState, next_read_ms
from zkconsumer.admin.describe import GroupDescribeRow
from zkconsumer.cli.groups import DescribeReport


def row(partition: int | None, owner: str | None = None, kind: str | None = None, **values: Any) -> GroupDescribeRow:
    return GroupDescribeRow("g", "clicks", partition, consumer_id=owner, owner_kind=kind, **values)


def member(name: str, kind: str = "scala") -> dict[str, Any]:
    return {
        "consumer_id": name, "host": "h", "kind": kind, "subscription_pattern": "static", "threads": {"clicks": 1},
        "session_id": "0x1", "since_ms": 5, "problem": None,
    }  # fmt: skip


def page(*rows: GroupDescribeRow, members: tuple[str, ...] = (), authority: str = "zookeeper", **more: Any) -> Any:
    document = {
        "group": "g", "active": bool(members), "authority": authority, "storage": "unknown",
        "rows": [one.to_json() for one in rows], "members": [member(name) for name in members],
        "coordinator_group": None, "next_steps": [], "not_known": [], **more,
    }  # fmt: skip
    return group_page(DescribeReport(rows, document, [], [], []))


def status(phase: str | None, **values: Any) -> dict[str, Any]:
    return {
        "phase": phase, "strategy": "copy", "epoch": 3, "lock": None, "waiting_for": None, "journal": [], **values
    }  # fmt: skip


# --- totals -----------------------------------------------------------------------------------------------------


def test_an_unknown_lag_is_never_zero() -> None:
    known = row(0, current_offset=4, log_end_offset=10)
    unknown = row(1, current_offset=4, unknown=frozenset({"log_end_offset"}))
    assert total_json([known])["lag"] == 6
    both = total_json([known, unknown])
    assert (both["lag"], both["known"], both["unknown"]) == (None, 6, 1)
    none = total_json([unknown])
    assert (none["lag"], none["known"], none["unknown"]) == (None, None, 1)
    assert total_json([row(2, log_end_offset=10)])["without_offset"] == 1


def test_a_partition_of_a_migrated_group_counts_once_though_both_stores_have_a_row() -> None:
    offsets = {"current_offset": 4, "log_end_offset": 10}
    both = (row(0, None, "fence", **offsets), row(0, "m", "coordinator", **offsets))
    found = page(*both, authority="kafka")
    assert (found["total"]["lag"], found["total"]["partitions"], found["topics"][0]["lag"]) == (6, 1, 6)
    assert found["unowned"] == 0
    assert page(*both)["total"]["lag"] == 12, "two groups of one name: each has its lag"


def test_a_page_has_the_members_with_what_they_own() -> None:
    found = page(row(0, "a", "scala"), row(1, "b", "zkconsumer"), row(2), members=("a",))
    members = {one["id"]: one for one in found["all_members"]}
    assert members["a"]["partitions"] == ["clicks-0"]
    assert members["b"]["kind"] == "unregistered"
    assert members["b"]["problem"]
    assert found["unowned"] == 1


def test_a_fence_is_no_partition_without_an_owner() -> None:
    assert page(row(0, None, "fence"))["unowned"] == 0


def test_members_of_the_coordinator_are_in_the_same_list() -> None:
    one = {"member_id": "m", "host": "h", "client_id": "c", "topics": ["t"], "problem": None, "partitions": ["t-0"]}
    coordinator = {"state": "Stable", "members": [one]}
    found = page(row(0, "m", "coordinator"), coordinator_group=coordinator)
    [shown] = found["all_members"]
    assert (shown["kind"], shown["store"], shown["partitions"]) == ("coordinator", "coordinator", ["clicks-0"])


def test_the_list_has_a_lag_only_where_it_was_read() -> None:
    document = {"groups": [{"group": "a", "kind": "scala"}, {"group": "a", "kind": "coordinator"}]}
    rows = list_rows(document, {"a": {"known": 5}})["groups"]
    assert [one["lag"] for one in rows] == [{"known": 5}, None]
    assert [one["phase"] for one in list_rows(document, {}, {"a": "copied"})["groups"]] == ["copied", "copied"]
    assert [one["phase"] for one in rows] == [None, None]


# --- the migration ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "current", "done"),
    [("planned", "planned", 0), ("fenced", "fenced", 2), ("switched", "switched", 5), ("completed", None, 7)],
)
def test_the_phase_line_forward(phase: str, current: str | None, done: int) -> None:
    line = phase_line(status(phase))
    assert [one["phase"] for one in line if one["state"] == "current"] == ([current] if current else [])
    assert sum(one["state"] == "done" for one in line) == done
    assert [one["phase"] for one in line if one["authority"] == "kafka"] == ["switched", "completed"]


def test_the_phase_line_back() -> None:
    assert [one["phase"] for one in phase_line(status("undoing"))] == ["planned", "undoing", "undone"]
    late = [one["phase"] for one in phase_line(status("returned"))]
    assert late[-4:] == ["switched", "returning", "returned", "undone"]
    ended = phase_line(status("undone"))
    assert {one["state"] for one in ended} == {"done"}
    assert phase_line(status(None)) == []


def test_who_must_act() -> None:
    lock = {"owner": "olga@host", "since_ms": 7}
    assert actor(status(None)).startswith("No one")
    assert actor(status("completed")).startswith("No one")
    assert actor(status("copied")).startswith("The operator")
    assert actor(status("copied", lock=lock)) == "The run of olga@host: it works now."
    assert actor(status("armed", lock=lock, waiting_for=["m"])).startswith("The members")
    assert "no run is active" in actor(status("armed", waiting_for=["m"]))


def test_since_when_it_is_so() -> None:
    assert last_change_ms(status("copied")) is None
    assert last_change_ms(status("copied", journal=[{"at_ms": 3}], lock={"owner": "o", "since_ms": 9})) == 9
    assert move_page(status("copied", journal=[{"at_ms": 3}]))["since_ms"] == 3


# --- changes ----------------------------------------------------------------------------------------------------


def texts(before: Any, after: Any) -> list[str]:
    return [event.text for event in group_events(before, after, 1)]


def test_a_rebalance_is_one_event_for_each_member_and_one_for_all_owners() -> None:
    before = page(*(row(n, "a", "scala") for n in range(4)), members=("a",))
    after = page(*(row(n, "a" if n < 2 else "b", "scala") for n in range(4)), members=("a", "b"))
    assert texts(before, after) == ["b (a Scala member) joined", "2 partitions: a → b"]
    assert texts(after, before) == ["b (a Scala member) left", "2 partitions: b → a"]
    assert texts(before, before) == []


def test_an_owner_that_is_not_known_is_no_change() -> None:
    before = page(row(0, "a", "scala"), members=("a",))
    after = page(row(0, None, None, unknown=frozenset({"consumer_id"})), members=("a",))
    assert texts(before, after) == []


def test_fences_state_and_authority_are_events() -> None:
    before, after = page(row(0)), page(row(0, None, "fence"), authority="kafka")
    assert texts(before, after) == ["1 partition: no owner → a fence", "the authority moved: zookeeper → kafka"]
    group = {"state": "Stable", "members": []}
    assert texts(page(), page(coordinator_group=group)) == ["coordinator group: none → Stable"]


def test_many_moves_are_summed() -> None:
    before = page(*(row(n, f"a{n}", "scala") for n in range(10)))
    after = page(*(row(n, f"b{n}", "scala") for n in range(10)))
    [moves] = [event.text for event in group_events(before, after, 1) if event.kind == "owners"]
    assert moves.count("→") == 6
    assert moves.endswith("4 partitions moved between others")


def test_a_phase_is_an_event() -> None:
    lock = {"owner": "o", "since_ms": 1}
    found = [one.text for one in migration_events(status(None), status("planned", lock=lock), 1)]
    assert found == ["migration: no migration → planned, epoch 3", "a run began: o"]
    assert [one.text for one in migration_events(status("planned", lock=lock), status("planned"), 1)] == [
        "the run of o ended"
    ]


def test_only_changed_rows_are_sent() -> None:
    before = page(row(0, current_offset=1), row(1, current_offset=1), row(None, "idle"))
    after = page(row(0, current_offset=2), row(1, current_offset=1), row(2, current_offset=0))
    changed, gone = changed_rows(before, after)
    assert [one["partition"] for one in changed] == [0, 2]
    assert gone == [["clicks", None, "idle", ""]]


def test_the_history_is_bounded() -> None:
    events = EventHistory()
    assert not events.add([])
    assert events.add(GroupEvent(n, "members", str(n)) for n in range(EVENTS_MAX + 5))
    assert len(events.to_json()) == EVENTS_MAX
    assert events.to_json()[-1]["text"] == str(EVENTS_MAX + 4)
    series = LagSeries()
    for n in range(POINTS_MAX + 5):
        series.add(n, {"topics": [{"topic": f"t{k}", "lag": k} for k in range(20)], "total": {"lag": n}})
    whole: Any = series.to_json()
    assert len(whole["at_ms"]) == POINTS_MAX
    assert list(whole["topics"]) == [f"t{k}" for k in range(19, 19 - TOPICS_MAX, -1)]


def test_an_unknown_lag_is_a_gap_in_the_graph() -> None:
    series = LagSeries()
    series.add(1, {"topics": [{"topic": "t", "lag": None}], "total": {"lag": None}})
    series.add_gap(2)
    assert series.to_json() == {"at_ms": [1, 2], "total": [None, None], "topics": {"t": [None, None]}}
    assert series.newest_to_json() == {"at_ms": [2], "total": [None], "topics": {"t": [None]}}


# --- reading ----------------------------------------------------------------------------------------------------


def test_a_failed_read_keeps_what_was_read() -> None:
    state = ReadState().with_document({"a": 1}, 10)
    failed = state.with_error("no answer", 20).with_error("no answer", 30)
    assert (failed.document, failed.read_at_ms, failed.failed_since_ms) == ({"a": 1}, 10, 20)
    again = failed.with_document({"a": 1}, 40)
    assert (again.error, again.failed_since_ms, again.read_at_ms) == ("", None, 40)
    assert again.revision > failed.revision
    assert again.with_document({"a": 1}, 50).revision == again.revision


def test_a_group_that_is_gone_is_not_shown() -> None:
    state = ReadState().with_document({"a": 1}, 10).without_group(20)
    assert state.document is None
    assert state.is_known
    assert not ReadState().is_known


def test_a_read_that_works_long_is_repeated_less_often() -> None:
    assert next_read_ms(0, 20, 20, 1_000) == 1_000
    assert next_read_ms(0, 1_000, 1_000, 1_000) == 20_000


def test_a_read_that_waits_long_is_repeated_at_once() -> None:
    assert next_read_ms(0, 30_000, 5, 1_000) == 30_095
