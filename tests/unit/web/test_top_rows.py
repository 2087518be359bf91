"""``groups top``: the rows of the groups, their order, and what the keys do."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.web.top_rows import (
    CHANGES_SHOWN_MS,
    DROPPABLE_TOP_COLUMNS,
    ESCAPE,
    HELP_LINE,
    KEY_DOWN,
    KEY_END,
    KEY_HOME,
    KEY_PAGE_DOWN,
    KEY_UP,
    SORT_KEYS,
    TOP_COLUMNS,
    TREND_ORDER,
    TopRow,
    TopView,
    one_line_a_group,
    parse_keys,
    top_row,
)
from zkconsumer.observe.lag_trend import LagTrend

NOW_MS = 1_000_000_000


def listed(group: str = "g", **changes: Any) -> dict[str, Any]:
    one = {"group": group, "kind": "scala", "active": True, "members": 2, "lag": None, "phase": None}
    return one | changes


def page(**changes: Any) -> dict[str, Any]:
    total = {"lag": 7, "known": 7, "unknown": 0}
    times = {"largest_lag_seconds": 1.5, "largest_lag_seconds_known": 1.5, "trend": "falling-behind"}
    members = [{"kind": "scala"}, {"kind": "zkconsumer"}, {"kind": "unregistered"}]
    one = {"active": True, "total": total, "lag_time": times, "all_members": members, "coordinator_group": None}
    return one | changes


def cells(row: TopRow) -> dict[str, object]:
    return dict(zip(TOP_COLUMNS, row.cells, strict=True))


def rows(*lags: int) -> list[TopRow]:
    return [
        top_row(listed(f"g{number}", lag={"lag": lag, "known": lag, "unknown": 0}), None, (), NOW_MS)
        for number, lag in enumerate(lags)
    ]


# --- rows -------------------------------------------------------------------------------------------------------


def test_a_group_that_was_not_read_yet_shows_what_the_list_has_and_question_marks() -> None:
    assert cells(top_row(listed(lag={"lag": 5, "known": 5, "unknown": 0}), None, (), NOW_MS)) == {
        "GROUP": "g", "KIND": "scala", "STATE": "active", "MEMBERS": 2, "LAG": "5", "LAG-SECONDS": "?",
        "TREND": "?", "OWNER-CHANGES": "?", "PHASE": None,
    }  # fmt: skip
    assert cells(top_row(listed(), None, (), NOW_MS))["LAG"] == "?"


def test_a_group_that_was_read_shows_everything() -> None:
    changes = (NOW_MS - CHANGES_SHOWN_MS - 1, NOW_MS - 60_000, NOW_MS - 12_000)
    assert cells(top_row(listed(phase="copied"), page(), changes, NOW_MS)) == {
        "GROUP": "g", "KIND": "scala", "STATE": "active", "MEMBERS": 2, "LAG": "7", "LAG-SECONDS": "1.5",
        "TREND": "falling-behind", "OWNER-CHANGES": "2, 12 s ago", "PHASE": "copied",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("total", "text"),
    [
        ({"lag": None, "known": 4, "unknown": 1}, "at least 4"),
        ({"lag": None, "known": None, "unknown": 2}, "?"),
        ({"lag": None, "known": None, "unknown": 0}, ""),
        ({"lag": 0, "known": 0, "unknown": 0}, "0"),
    ],
)
def test_an_unknown_lag_is_never_zero(total: dict[str, Any], text: str) -> None:
    assert cells(top_row(listed(), page(total=total), (), NOW_MS))["LAG"] == text


@pytest.mark.parametrize(
    ("exact", "known", "text"), [(None, 12.0, "> 12"), (None, 0.0, "?"), (None, None, "?"), (0.0, 0.0, "0")]
)
def test_the_seconds_say_what_is_not_known(exact: float | None, known: float | None, text: str) -> None:
    times = {"largest_lag_seconds": exact, "largest_lag_seconds_known": known, "trend": "unknown"}
    found = cells(top_row(listed(), page(lag_time=times), (), NOW_MS))
    assert (found["LAG-SECONDS"], found["TREND"]) == (text, "?")


def test_a_group_of_both_stores_is_one_line() -> None:
    old = listed("a", members=0, active=False, phase="switched")
    new = listed("a", kind="coordinator", members=3, state="Stable", phase="switched")
    [one] = one_line_a_group([old, new])
    found = cells(top_row(one, None, (), NOW_MS))
    assert (found["KIND"], found["STATE"], found["MEMBERS"], found["PHASE"]) == (
        "scala+coordinator", "Stable", 3, "switched",
    )  # fmt: skip


def test_a_group_that_cannot_be_read_keeps_its_values_and_has_no_state() -> None:
    row = top_row(listed(), page(), (), NOW_MS, "the broker does not answer")
    assert (cells(row)["STATE"], cells(row)["LAG"], row.error) == ("?", "7", "the broker does not answer")


def test_each_trend_has_a_place_in_the_order() -> None:
    assert set(TREND_ORDER) == {"?", *(trend.value for trend in LagTrend if trend is not LagTrend.UNKNOWN)}


# --- keys -------------------------------------------------------------------------------------------------------


def test_keys_are_characters_and_known_sequences() -> None:
    assert list(parse_keys("lq\x1b[A\x1bOB\x1b[6~\x1b[1;5C\x1b")) == ["l", "q", KEY_UP, KEY_DOWN, KEY_PAGE_DOWN, ESCAPE]
    assert list(parse_keys("\x1b[")) == []


def press(view: TopView, *keys: str, page_rows: int = 2) -> TopView:
    for key in keys:
        view.on_key(key, page_rows)
    return view


def names(view: TopView, found: list[TopRow], page_rows: int = 2) -> list[str]:
    return [row.group for row in view.shown(found, page_rows)[0]]


def test_the_largest_lag_is_first_and_the_same_key_again_reverses_the_order() -> None:
    found = rows(5, 9, 1)
    assert names(TopView(), found, 3) == ["g1", "g0", "g2"]
    assert names(press(TopView(), "l"), found, 3) == ["g2", "g0", "g1"]
    assert names(press(TopView(), "r"), found, 3) == ["g2", "g0", "g1"]
    assert names(press(TopView(), "g"), found, 3) == ["g0", "g1", "g2"]
    assert names(press(TopView(), "g", "g"), found, 3) == ["g2", "g1", "g0"]


@pytest.mark.parametrize("key", SORT_KEYS)
def test_each_sort_key_is_a_column_in_the_help(key: str) -> None:
    assert SORT_KEYS[key][0] in TOP_COLUMNS
    assert f" {key} " in HELP_LINE
    assert len(names(press(TopView(), key), [*rows(1, 2), top_row(listed(members=None), None, (), NOW_MS)], 5)) == 3


def test_scrolling_ends_at_the_last_row_and_at_the_first_one() -> None:
    found = rows(5, 4, 3, 2, 1)
    assert names(press(TopView(), KEY_DOWN), found) == ["g1", "g2"]
    assert names(press(TopView(), KEY_PAGE_DOWN), found) == ["g2", "g3"]
    end = press(TopView(), KEY_END)
    assert names(end, found) == ["g3", "g4"]
    assert names(press(end, KEY_UP), found) == ["g2", "g3"]
    assert names(press(end, KEY_HOME, KEY_UP), found) == ["g0", "g1"]


def test_a_list_that_gets_shorter_leaves_no_empty_screen() -> None:
    view = press(TopView(), KEY_END)
    view.shown(rows(5, 4, 3, 2, 1), 2)
    assert names(view, rows(2, 1)) == ["g0", "g1"]


def test_the_filter_takes_letters_that_are_keys_elsewhere() -> None:
    found = [top_row(listed(name), None, (), NOW_MS) for name in ("queue", "other")]
    view = press(TopView(), "/", *"qx", "\x7f")
    assert not view.is_ended
    assert names(view, found) == ["queue"]
    assert view.status_line(1, 2).startswith("filter: q_")
    press(view, "\n")
    assert view.status_line(1, 2) == "1 of 2 match 'q' (Esc: all) group, by LAG, from 1"
    assert names(press(view, ESCAPE), found) == ["other", "queue"]


def test_q_ends_it() -> None:
    assert press(TopView(), "q").is_ended


def test_the_columns_that_may_be_left_out_exist() -> None:
    assert set(DROPPABLE_TOP_COLUMNS) < set(TOP_COLUMNS)
