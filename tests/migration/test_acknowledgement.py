"""What a member acknowledges, as bytes in ZooKeeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.migration.dual.machine.acknowledgement import (
    BYTES_MAX,
    INT64_MAX,
    Acknowledgement,
    acknowledgement_path,
    format_acknowledgement,
    parse_acknowledgement,
)
from zkconsumer.errors import InvalidNameError, MalformedZnode
from zkconsumer.zk.znode_formats import ControlRecord

SAID = Acknowledgement("m1", 3, "locked", 7, 2)
DATA = b'{"id":"m1","epoch":3,"phase":"locked","generation":7,"behind":2}'


def test_it_is_one_line_of_json_beside_the_control_znode() -> None:
    assert format_acknowledgement(SAID) == DATA
    assert acknowledgement_path("g", "g_host-1") == "/zkconsumer/groups/g/members/g_host-1"
    with pytest.raises(InvalidNameError):
        acknowledgement_path("g", "a/b")


@given(st.builds(
    Acknowledgement,
    st.text(min_size=1, max_size=64),
    st.integers(0, INT64_MAX),
    st.text(min_size=1, max_size=16),
    st.integers(-1, INT64_MAX),
    st.integers(0, INT64_MAX),
))  # fmt: skip
def test_written_records_are_read(said: Acknowledgement) -> None:
    assert parse_acknowledgement(format_acknowledgement(said)) == said


def test_a_key_of_a_later_release_is_ignored() -> None:
    assert parse_acknowledgement(DATA[:-1] + b',"lag":5}') == SAID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 1000,
        DATA.replace(b'"m1"', b'""'),
        DATA.replace(b'"locked"', b"5"),
        DATA.replace(b'"epoch":3', b'"epoch":-1'),
        DATA.replace(b'"epoch":3', b'"epoch":true'),
        DATA.replace(b'"epoch":3', b'"epoch":9223372036854775808'),
        DATA.replace(b'"generation":7', b'"generation":-2'),
        DATA.replace(b'"behind":2', b'"behind":"2"'),
        DATA.replace(b',"behind":2', b""),
        DATA[:-1] + b" " * BYTES_MAX + b"}",
    ],
)  # fmt: skip
def test_an_unreadable_acknowledgement_acknowledges_nothing(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        parse_acknowledgement(data)


@pytest.mark.parametrize(
    ("control", "answers"),
    [
        (ControlRecord("m1", 3, "locked", "zookeeper", "dual"), True),
        (ControlRecord("m2", 3, "locked", "zookeeper", "dual"), False),
        (ControlRecord("m1", 4, "locked", "zookeeper", "dual"), False),
        (ControlRecord("m1", 3, "copied", "zookeeper", "dual"), False),
    ],
)
def test_it_answers_one_state_of_the_control_znode(control: ControlRecord, answers: bool) -> None:
    assert SAID.matches_control(control) is answers
