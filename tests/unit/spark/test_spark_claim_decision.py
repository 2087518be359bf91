"""The table of ``bridge.spark.claims.claim_decision``, row by row, and what a record's znode may hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.spark.claims.claim_decision import (
    ClaimSnapshot,
    OnRewind,
    ReplayClaim,
    RewoundBelowClaim,
    WriteClaim,
    WriteRefusal,
    decide_claim,
    next_position,
)
from bridge.spark.claims.records import (
    CLAIMS_KEPT_MAX,
    RECORD_BYTES_MAX,
    BatchClaim,
    ClaimRecord,
    format_record,
    parse_record,
)
from bridge.spark.group_membership import NO_OFFSET, ClaimRefused, GroupOffset, RangeToClaim
from zkconsumer.errors import MalformedZnode

IGNORE, FOLLOW, FAIL = OnRewind.IGNORE, OnRewind.FOLLOW, OnRewind.FAIL
WANTED = RangeToClaim(100, 200, epoch=1)
BATCH = 20
PATH = "/zkconsumer/spark/g1/q/t/0"
every_policy = pytest.mark.parametrize("policy", OnRewind)


def claims(*rows: tuple[int, int, int]) -> ClaimRecord:
    """A record of batch, first, end."""
    return ClaimRecord(tuple(BatchClaim(*row, epoch=1, wall_ms=5) for row in rows))


def seen(
    cur: int | None, record: ClaimRecord | None = None, not_owned: str = "", unreadable: str = ""
) -> ClaimSnapshot:
    record = record or ClaimRecord()
    return ClaimSnapshot(record, record.latest.end if record.latest else None, not_owned, cur, unreadable)


# --- the table --------------------------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("cur", [None, 0, 150, 900])
def test_row_1_a_claim_of_this_batch_is_its_answer_whatever_stands_there_now(policy: OnRewind, cur: int | None) -> None:
    record = claims((19, 50, 100), (BATCH, 120, 180))
    assert decide_claim(BATCH, WANTED, seen(cur, record, "another's", "nonsense"), policy) == ReplayClaim(120, 180)


@every_policy
def test_row_2_a_batch_that_the_record_has_forgotten_is_refused(policy: OnRewind) -> None:
    full = claims(*((BATCH + at, at * 10, at * 10 + 10) for at in range(1, CLAIMS_KEPT_MAX + 1)))
    verdict = decide_claim(BATCH, WANTED, seen(100, full), policy)
    assert isinstance(verdict, ClaimRefused)
    assert verdict.reason == "batch 20 is older than the oldest claim that is kept, of batch 21"


@every_policy
@pytest.mark.parametrize(
    "record",
    [
        claims((BATCH + 1, 0, 50)),
        claims((BATCH - 1, 0, 50), (BATCH + 1, 50, 90)),
        ClaimRecord(refused=BATCH),
        claims((BATCH - 1, 0, 100)).with_refusal(BATCH),
        claims((BATCH - 1, 0, 100)).with_refusal(BATCH + 1),
    ],
)
def test_row_3_a_batch_that_got_nothing_gets_nothing_when_it_is_replayed(policy: OnRewind, record: ClaimRecord) -> None:
    verdict = decide_claim(BATCH, WANTED, seen(100, record), policy)
    assert verdict == ClaimRefused("batch 20 was refused when it ran first")


@every_policy
def test_row_4_what_another_owns_is_refused(policy: OnRewind) -> None:
    assert decide_claim(BATCH, WANTED, seen(100, not_owned="it is another's"), policy) == WriteRefusal(
        "it is another's"
    )


def test_row_4_goes_before_a_rewind_that_is_the_owners_business() -> None:
    assert decide_claim(BATCH, WANTED, seen(0, claims((19, 0, 100)), "another's"), FAIL) == WriteRefusal("another's")


@every_policy
def test_row_5_an_offset_that_is_no_number_is_not_written_over(policy: OnRewind) -> None:
    verdict = decide_claim(BATCH, WANTED, seen(None, unreadable="b'x' (1 bytes) is no number"), policy)
    assert verdict == WriteRefusal("b'x' (1 bytes) is no number; write the correct offset: 'zkconsumer offsets set'")


@pytest.mark.parametrize(("cur", "told"), [(0, 0), (99, 99), (None, NO_OFFSET)])
def test_row_6_ignore_goes_on_behind_our_claim(cur: int | None, told: int) -> None:
    assert decide_claim(BATCH, WANTED, seen(cur, claims((19, 0, 100))), IGNORE) == WriteClaim(100, 200, told)


@every_policy
def test_row_6_is_not_for_a_batch_that_was_planned_below_our_claim(policy: OnRewind) -> None:
    """The log lost its end, and with ``failOnDataLoss=false`` the query goes on with what took those offsets."""
    assert decide_claim(BATCH, WANTED, seen(100, claims((19, 0, 130))), policy) == WriteClaim(100, 200)
    assert isinstance(decide_claim(BATCH, WANTED, seen(90, claims((19, 0, 130))), policy), WriteRefusal)


def test_row_6_ignore_does_not_take_a_front_that_was_refused() -> None:
    assert isinstance(decide_claim(BATCH, WANTED, seen(10, claims((19, 0, 60))), IGNORE), WriteRefusal)


def test_row_6_ignore_writes_over_what_is_no_number() -> None:
    assert decide_claim(BATCH, WANTED, seen(None, claims((19, 0, 100)), unreadable="x"), IGNORE) == WriteClaim(
        100, 200, NO_OFFSET
    )


def test_row_6_follow_refuses_what_was_planned_before_the_rewind() -> None:
    assert isinstance(decide_claim(BATCH, WANTED, seen(40, claims((19, 0, 100))), FOLLOW), WriteRefusal)


def test_row_6_follow_takes_what_was_planned_behind_it() -> None:
    assert decide_claim(BATCH, RangeToClaim(40, 140, 1), seen(40, claims((19, 0, 100))), FOLLOW) == WriteClaim(40, 140)
    assert decide_claim(BATCH, RangeToClaim(40, 140, 1), seen(60, claims((19, 0, 100))), FOLLOW) == WriteClaim(60, 140)
    assert decide_claim(BATCH, RangeToClaim(0, 90, 1), seen(None, claims((19, 0, 100))), FOLLOW) == WriteClaim(0, 90)


@pytest.mark.parametrize(("cur", "told"), [(0, 0), (99, 99), (None, NO_OFFSET)])
def test_row_6_fail_stops(cur: int | None, told: int) -> None:
    assert decide_claim(BATCH, WANTED, seen(cur, claims((19, 0, 100))), FAIL) == RewoundBelowClaim(told, 100)


@every_policy
def test_row_7_a_group_without_an_offset_gets_one(policy: OnRewind) -> None:
    assert decide_claim(BATCH, WANTED, seen(None), policy) == WriteClaim(100, 200)


@every_policy
@pytest.mark.parametrize("record", [ClaimRecord(), claims((19, 0, 100)), claims((18, 0, 60))])
def test_row_8_the_group_stands_where_the_batch_begins(policy: OnRewind, record: ClaimRecord) -> None:
    assert decide_claim(BATCH, WANTED, seen(100, record), policy) == WriteClaim(100, 200)


@every_policy
@pytest.mark.parametrize("cur", [101, 199])
def test_row_9_others_read_the_front(policy: OnRewind, cur: int) -> None:
    assert decide_claim(BATCH, WANTED, seen(cur, claims((19, 0, 100))), policy) == WriteClaim(cur, 200)


@every_policy
@pytest.mark.parametrize("cur", [200, 1_000])
def test_row_10_others_read_all_of_it(policy: OnRewind, cur: int) -> None:
    verdict = decide_claim(BATCH, WANTED, seen(cur), policy)
    assert verdict == WriteRefusal(f"the group's offset is {cur}: other members have read the range")


@every_policy
def test_row_11_the_front_was_refused(policy: OnRewind) -> None:
    verdict = decide_claim(BATCH, WANTED, seen(99), policy)
    assert verdict == WriteRefusal("the group's offset is 99, before the range: the next batch begins there")


@pytest.mark.parametrize(
    ("stand", "ignore", "follow", "fail"),
    [
        (GroupOffset(70, None), 70, 70, 70),
        (GroupOffset(NO_OFFSET, None), NO_OFFSET, NO_OFFSET, NO_OFFSET),
        (GroupOffset(70, 70), 70, 70, 70),
        (GroupOffset(90, 70), 90, 90, 90),
        (GroupOffset(30, 70), 70, 30, RewoundBelowClaim(30, 70)),
        (GroupOffset(NO_OFFSET, 70), 70, NO_OFFSET, RewoundBelowClaim(NO_OFFSET, 70)),
    ],
)
def test_where_the_next_batch_begins(
    stand: GroupOffset, ignore: int, follow: int, fail: int | RewoundBelowClaim
) -> None:
    assert [next_position(stand, policy) for policy in (IGNORE, FOLLOW, FAIL)] == [ignore, follow, fail]


# --- records ----------------------------------------------------------------------------------------------------


def test_a_record_is_one_line_and_is_read_back() -> None:
    record = claims((7, 0, 50), (9, 50, 90))
    assert format_record(record) == b'{"v":1,"claims":[[7,0,50,1,5],[9,50,90,1,5]]}'
    assert parse_record(format_record(record), PATH) == record
    assert format_record(record.with_refusal(11))[:-1] == format_record(record)[:-1] + b',"refused":11'
    assert parse_record(format_record(record.with_refusal(11)), PATH) == ClaimRecord(record.claims, 11)
    assert parse_record(b'{"v":1,"claims":[],"of a later release":null}', PATH) == ClaimRecord()


def test_a_record_keeps_the_newest_claims_and_stays_small() -> None:
    record, top = ClaimRecord(), 2**63 - 1
    for at in range(CLAIMS_KEPT_MAX + 5):
        record = record.with_claim(BatchClaim(top - 100 + at, top - 1, top, top, top))
    assert [claim.batch for claim in record.claims] == [top - 100 + at for at in range(5, CLAIMS_KEPT_MAX + 5)]
    assert len(format_record(record)) < RECORD_BYTES_MAX / 4


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda some: st.lists(some, max_size=6)).map(
        lambda claims: json.dumps({"v": 1, "claims": claims, "refused": claims}).encode()
    )
)
def test_any_bytes_are_a_record_or_an_error(data: bytes) -> None:
    try:
        record = parse_record(data, PATH)
    except MalformedZnode:
        return
    assert parse_record(format_record(record), PATH) == record


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"42", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"v":1}', "claims is missing"),
        (b'{"v":true,"claims":[]}', "has the wrong type"),
        (b'{"v":2,"claims":[]}', "version 2, but this release supports only version 1; upgrade"),
        (b'{"v":1,"claims":[[1,2,3]]}', "a claim is a list of batch, first, end, epoch, wall ms"),
        (b'{"v":1,"claims":[[1,2,3,4,5,6]]}', "a claim is a list of"),
        (b'{"v":1,"claims":[[1,2,3.5,4,5]]}', "a claim is a list of"),
        (b'{"v":1,"claims":[[1,2,true,4,5]]}', "a claim is a list of"),
        (b'{"v":1,"claims":[[1,-2,3,4,5]]}', "a claim is a list of"),
        (b'{"v":1,"claims":[[1,2,9223372036854775808,4,5]]}', "a claim is a list of"),
        (b'{"v":1,"claims":[[1,3,3,4,5]]}', "batch 1 has an empty claim: from 3 to 3"),
        (b'{"v":1,"claims":[[2,0,3,4,5],[2,3,4,4,5]]}', "its batches do not increase"),
        (b'{"v":1,"claims":[[2,0,3,4,5],[1,3,4,4,5]]}', "its batches do not increase"),
        (b'{"v":1,"claims":[', "not JSON"),
        (b'{"v":1,"claims":[],"refused":-1}', "refused is not a batch number"),
        (b'{"v":1,"claims":[],"refused":true}', "refused is not a batch number"),
        (b'{"v":1,"claims":[[2,0,3,4,5]],"refused":2}', "refused is not after its claims"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"v":1,"claims":' + b"[" * 4_000, "nested too deeply|not JSON|recursion"),
        (b" " * (RECORD_BYTES_MAX + 1), "4097 bytes, at most 4096 are read"),
        (json.dumps({"v": 1, "claims": [[at, 1, 2, 3, 4] for at in range(9)]}).encode(), "9 claims, at most 8"),
    ],
)
def test_a_hostile_record_is_an_error_that_names_its_node(data: bytes, why: str) -> None:
    with pytest.raises(MalformedZnode, match=why) as caught:
        parse_record(data, PATH)
    assert PATH in str(caught.value)
    assert "Repair the znode, or delete it" in str(caught.value)
