"""The judge of a query and its group: it must see each kind of harm, and no harm where there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bridge.spark.group_membership import CommitMode
from bridge.testing import MemberRead, QueryHistory, SinkRow, check_query_history
from zkconsumer.types import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def value(tp: TopicPartition, offset: int) -> str:
    return f"{tp}-{offset}"


def rows(batch: int, offsets: Iterable[int], tp: TopicPartition = TP) -> list[SinkRow]:
    return [SinkRow(batch, tp, offset, value(tp, offset)) for offset in offsets]


def handed(offsets: Iterable[int], tp: TopicPartition = TP) -> list[MemberRead]:
    return [MemberRead("scala", tp, offset) for offset in offsets]


RIGHT = QueryHistory(
    mode=CommitMode.CLAIM,
    log={TP: range(30), OTHER: range(5, 8)},
    sink_rows=[*rows(0, range(10)), *rows(1, range(20, 30)), *rows(1, range(5, 8), OTHER)],
    member_reads=handed(range(10, 20)),
    stored={TP: [0, 10, 20, 30]},
    final_offsets={TP: (30, 30), OTHER: (8, 8)},
    value_of=value,
)


def codes(feed: QueryHistory) -> list[str]:
    return [finding.code for finding in check_query_history(feed).findings]


def test_a_feed_that_keeps_every_promise_has_no_finding() -> None:
    judgement = check_query_history(RIGHT)
    assert judgement.is_valid, judgement.text
    assert judgement.text == "33 records, 23 in the sink, 10 with members, 0 with both, 0 repeated by members"


def test_a_record_that_nobody_has_is_lost() -> None:
    feed = replace(RIGHT, member_reads=[*handed(range(10, 14)), *handed(range(16, 20))])
    assert codes(feed) == ["lost"]
    assert "14-15 (2)" in check_query_history(feed).text


def test_what_retention_has_deleted_is_not_missed_and_what_lies_behind_it_is() -> None:
    feed = replace(RIGHT, member_reads=handed(range(16, 20)))
    assert codes(feed) == ["lost"]
    assert codes(replace(feed, retention_starts={TP: 16})) == []
    assert codes(replace(feed, retention_starts={TP: 15})) == ["lost"]
    assert codes(replace(feed, retention_starts={OTHER: 99})) == ["lost"]


def test_a_partition_that_nobody_read_is_lost() -> None:
    assert codes(replace(RIGHT, log={**RIGHT.log, TopicPartition("t", 2): range(1)})) == ["lost"]


def test_a_record_that_the_log_does_not_hold_is_named() -> None:
    assert codes(replace(RIGHT, sink_rows=[*RIGHT.sink_rows, *rows(2, [30])])) == ["not_in_log"]
    assert codes(
        replace(RIGHT, member_reads=[*RIGHT.member_reads, MemberRead("scala", TopicPartition("u", 0), 1)])
    ) == ["not_in_log"]


def test_a_value_of_another_record_is_named() -> None:
    sunk = [row._replace(value=value(TP, 4)) if row.offset == 3 else row for row in RIGHT.sink_rows]
    assert codes(replace(RIGHT, sink_rows=sunk)) == ["other_value"]


def test_a_record_twice_in_the_sink_is_named_whichever_batch_it_is_in() -> None:
    assert codes(replace(RIGHT, sink_rows=[*RIGHT.sink_rows, *rows(0, [3])])) == ["twice_in_sink"]
    feed = replace(RIGHT, sink_rows=[*RIGHT.sink_rows, *rows(1, [3])])
    assert codes(feed) == ["twice_in_sink"]
    assert "3 is in batches [0, 1]" in check_query_history(feed).text


def test_claim_allows_no_record_with_both_even_after_crashes() -> None:
    feed = replace(RIGHT, member_reads=handed(range(9, 20)), crashes=3)
    assert codes(feed) == ["claim_overlap"]
    assert check_query_history(feed).overlap == {TP: 1}


def test_after_batch_allows_the_records_of_one_batch_a_crash_and_a_partition() -> None:
    feed = replace(RIGHT, mode=CommitMode.AFTER_BATCH, crashes=1)
    one_each = replace(feed, member_reads=[*handed(range(20)), *handed([6], OTHER)])
    assert codes(one_each) == []
    assert check_query_history(one_each).overlap == {TP: 10, OTHER: 1}
    of_two_batches = replace(feed, member_reads=handed(range(9, 21)))
    assert codes(of_two_batches) == ["overlap"]
    assert codes(replace(of_two_batches, crashes=2)) == []


def test_after_batch_allows_nothing_without_a_crash() -> None:
    assert codes(replace(RIGHT, mode=CommitMode.AFTER_BATCH, member_reads=handed(range(9, 20)))) == ["overlap"]


def test_what_a_killed_member_reads_again_is_excused_by_name_only() -> None:
    feed = replace(RIGHT, member_reads=handed(range(10, 22)), allowed_overlap=frozenset({(TP, 20), (TP, 21)}))
    assert codes(feed) == []
    assert codes(replace(feed, allowed_overlap=frozenset({(TP, 20)}))) == ["claim_overlap"]


def test_what_members_repeat_among_themselves_is_counted_and_not_judged() -> None:
    judgement = check_query_history(replace(RIGHT, member_reads=[*RIGHT.member_reads, *handed([12, 12])]))
    assert judgement.is_valid
    assert judgement.member_duplicates == 2


def test_a_stored_offset_that_goes_back_is_named() -> None:
    assert codes(replace(RIGHT, stored={TP: [0, 20, 10, 30]})) == ["went_back"]
    assert codes(replace(RIGHT, stored={TP: [10, 10]})) == []


def test_a_group_that_stands_elsewhere_than_the_last_batch_is_named() -> None:
    assert codes(replace(RIGHT, final_offsets={TP: (20, 30)})) == ["group_end"]
    assert codes(replace(RIGHT, final_offsets={TP: (40, 30)})) == ["group_end"]
