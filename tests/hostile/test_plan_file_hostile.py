"""A plan file that somebody made to do harm: an error with the line, and no path outside the group."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.migration.plan import plan_file
from bridge.migration.plan.plan_file import InvalidPlanFileError, plan_from_bytes, plan_to_bytes
from tests.migration.group_snapshots import rich_plan

GOOD = plan_to_bytes(rich_plan())
HEAD, *ROWS = (json.loads(line) for line in GOOD.splitlines())


def refused(head: dict[str, Any] | bytes, rows: list[Any] | None = None) -> str:
    """What is said of a file with these lines."""
    first = head if isinstance(head, bytes) else json.dumps(head).encode()
    lines = [first, *(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows or ROWS)]
    with pytest.raises(InvalidPlanFileError) as it:
        plan_from_bytes(b"\n".join(lines) + b"\n")
    return str(it.value)


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"{", b"[]", b"null", b"17", b'"x"', b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a":' * 100_000,
        b'{"schema":NaN}', b'{"schema":1e999}', b'{"schema":' + b"9" * 200_000 + b"}", b'{"schema":"a","schema":"b"}',
        b'{"schema":"\\ud800"}', b'{"schema":"zkconsumer/migration-plan/2"}', b"{} {}", b"\x00" * 1000,
    ],
    ids=[
        "empty", "cut off", "array", "null", "number", "text", "not UTF-8", "byte order mark", "deep arrays",
        "deep objects", "NaN", "infinity", "a long number", "a key twice", "half a surrogate pair", "a later release",
        "two values", "zeros",
    ],
)  # fmt: skip
def test_what_is_no_plan_at_all(bad: bytes) -> None:
    assert refused(bad)
    assert refused(HEAD, [bad, *ROWS[1:]])


OPTIONAL = ("kafka_cluster", "zookeeper_cluster", "convention_before")
"""Not every server says of which cluster it is, and not every group has moved before."""


@pytest.mark.parametrize("name", HEAD)
def test_each_member_of_the_first_line_is_needed_and_looked_at(name: str) -> None:
    words = refused({key: value for key, value in HEAD.items() if key != name})
    assert (name in words) or (name in OPTIONAL and "its digest differs" in words)
    for wrong in ({"x": 1}, [[[]]], -1, True, "\ud800", "x" * 200_000):
        if wrong != HEAD[name]:
            assert refused(HEAD | {name: wrong})


@pytest.mark.parametrize("name", sorted({key for row in ROWS for key in row}))
def test_each_member_of_a_partition_is_looked_at(name: str) -> None:
    at = next(number for number, row in enumerate(ROWS) if name in row)
    for wrong in ({"x": 1}, [[]], -7, 2**63, "\ud800", None if ROWS[at][name] is not None else 1.5):
        words = refused(HEAD, [*ROWS[:at], ROWS[at] | {name: wrong}, *ROWS[at + 1 :]])
        assert words.startswith(("line", "it was altered", name))


def test_a_member_that_is_not_known_is_not_passed_over() -> None:
    assert "'execute' is not known here" in refused(HEAD | {"execute": True})
    assert "line 2: 'rm' is not known here" in refused(HEAD, [ROWS[0] | {"rm": "-rf"}, *ROWS[1:]])


@pytest.mark.parametrize(
    "path",
    [
        "/", "/zookeeper/config", "/brokers/topics/clicks", "/consumers/g2/ids", "/consumers/g1", "/consumers/g1/",
        "/consumers/g1/../g2/ids", "/consumers/g1/offsets/..", "/consumers/g1/offsets/clicks/-1", "consumers/g1/ids",
        "/consumers/g1/offsets/clicks/01", "/consumers/g1/offsets/clicks/0/x", "/consumers/g1/owners/clicks/0",
        "/consumers/g1/offsets/a b", "/consumers/g1/offsets//0", "", "ids", "/consumers/g1/ids\u0000",
    ],
)  # fmt: skip
def test_no_access_list_leads_outside_what_a_fence_changes(path: str) -> None:
    assert "is no node that a fence of group g1 changes" in refused(HEAD | {"acls": {path: 0}})


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "x" * 250, "a\nb", "%2e%2e", "/etc", "a\u0000"])
def test_names_that_no_path_may_carry(name: str) -> None:
    assert refused(HEAD | {"group": name})
    assert refused(HEAD | {"orphans": [[name, 0]]})
    assert refused(HEAD, [ROWS[0] | {"topic": name}, *ROWS[1:]])
    assert refused(HEAD | {"migration_id": f"{name}/"})


def test_a_list_that_is_not_there() -> None:
    assert refused(HEAD | {"acl_lists": []})
    assert refused(HEAD, [ROWS[0] | {"acl": 99}, *ROWS[1:]])


def test_more_and_fewer_partitions_than_announced() -> None:
    assert "line 7: 5 partitions are announced, and more follow" in refused(HEAD, [*ROWS, ROWS[0]])
    assert "is a duplicate" in refused(HEAD | {"partitions": 6}, [*ROWS, ROWS[0]])
    assert "5 partitions are announced, and 4 follow: the file was cut off" in refused(HEAD, ROWS[:-1])


def test_a_file_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_file, "PLAN_BYTES_MAX", len(GOOD) - 1)
    with pytest.raises(InvalidPlanFileError, match=f"more than {len(GOOD) - 1} bytes"):
        plan_from_bytes(GOOD)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.integers(0, 40), st.binary(max_size=5))
def test_any_change_of_any_byte_is_seen(at: int, byte: int, cut: int, more: bytes) -> None:
    changed = GOOD[:at] + more + bytes([byte]) + GOOD[at + cut :]
    if changed.rstrip(b"\n") == GOOD.rstrip(b"\n"):
        return
    with contextlib.suppress(InvalidPlanFileError):
        assert plan_from_bytes(changed) == rich_plan()  # a blank more between two members
