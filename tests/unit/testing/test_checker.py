"""The checker: for each judgement a history that violates it, and a near miss that must pass."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.testing.checker import (
    ALLOWANCE_REASONS,
    EVENTS,
    FINDING_CODES,
    AssignmentExpected,
    CommitCalled,
    Continued,
    ControlWritten,
    DrainTimedOut,
    Expired,
    Fenced,
    Finding,
    FullReadExpected,
    GroupSettled,
    HistoryError,
    HistoryEvent,
    HistoryNote,
    HistoryWriter,
    InitialOffset,
    Joined,
    Killed,
    Leaving,
    Left,
    LogRangeReported,
    MemberAcquiredPartition,
    MemberDeclared,
    MemberReleasedPartition,
    OffsetCommitted,
    OffsetJumpAllowed,
    OwnerObserved,
    Paused,
    PlannedKafkaOffset,
    Policy,
    PolicyChanged,
    RecordConsumed,
    RecordDelivered,
    RecordRangeDelivered,
    StateSnapshot,
    Unfenced,
    Verdict,
    check_history,
    dump_line,
    parse_line,
    read_history,
    render_text,
)

EVENTUALLY_MS = 1_000
"""Longer than any line may be late."""


class Story:
    """A history in the making: one event a millisecond, partition clicks/0, members a and b ours, s and z Scala."""

    def __init__(self, end: int = 100, **log: Any) -> None:
        self.t = 1_000
        self.events: list[HistoryEvent] = [
            LogRangeReported(self.t, "clicks", 0, log.get("start", 0), end, log.get("missing", ()))
        ]
        for name, kind in (("a", "ours"), ("b", "ours"), ("s", "scala"), ("z", "scala")):
            self.events.append(MemberDeclared(self.t, name, kind, consumer_id=f"g_{name}"))  # type: ignore[arg-type]

    def wait(self, ms: int = EVENTUALLY_MS) -> Story:
        self.t += ms
        return self

    def add(self, event: Callable[..., HistoryEvent], *args: Any, **kwargs: Any) -> Story:
        self.t += 1
        self.events.append(event(self.t, *args, **kwargs))
        return self

    def hand(self, member: str, *offsets: int) -> Story:
        for offset in offsets:
            self.add(RecordDelivered, member, "clicks", 0, offset)
        return self

    def commit(self, offset: int, **how: Any) -> Story:
        return self.add(OffsetCommitted, "clicks", 0, offset, **how)

    def owner(self, member: str | None) -> Story:
        return self.add(OwnerObserved, "clicks", 0, None if member is None else f"g_{member}-0")

    def claim(self, member: str, offset: int | None = None) -> Story:
        return self.add(MemberAcquiredPartition, member, "clicks", 0, offset)

    def release(self, member: str) -> Story:
        return self.add(MemberReleasedPartition, member, "clicks", 0)

    def over_to(self, member: str | None) -> Story:
        """A clean hand-over, seen at once."""
        return self.owner(None).owner(member) if member else self.owner(None)

    def verdict(self, **policy: Any) -> Verdict:
        return check_history(self.events, Policy(**policy))

    def codes(self, **policy: Any) -> set[str]:
        return set(self.verdict(**policy).codes)

    def finding(self, code: str, **policy: Any) -> Finding:
        [finding] = [finding for finding in self.verdict(**policy).findings if finding.code == code]
        return finding


def offsets(finding: Finding) -> list[int]:
    return [offset for first, last in finding.evidence.offsets for offset in range(first, last + 1)]


# --- lost -------------------------------------------------------------------------------------------------------


def test_a_record_that_nobody_was_handed_below_the_stored_offset_is_lost() -> None:
    story = Story().owner("a").hand("a", 0, 1, 2).over_to("b").hand("b", 4, 5).commit(6)
    assert story.codes() == {"lost"}
    finding = story.finding("lost")
    assert offsets(finding) == [3]
    assert "a received 2; b received 4" in finding.text
    assert finding.evidence.lines == (9, 12)


def test_a_record_above_the_stored_offset_is_not_yet_lost() -> None:
    story = Story().owner("a").hand("a", 0, 1, 2).over_to("b").hand("b", 4, 5).commit(3)
    assert story.codes() == set()


def test_a_record_that_nobody_was_handed_is_lost_when_everything_had_to_be_read() -> None:
    assert Story(end=4).hand("a", 0, 1, 2).commit(3).add(FullReadExpected).codes() == {"lost"}
    assert Story(end=3).hand("a", 0, 1, 2).add(FullReadExpected).codes() == set()


def test_drained_may_name_the_topic_and_the_partition() -> None:
    assert Story(end=4).hand("a", 0).add(FullReadExpected, "other").codes() == set()
    assert Story(end=4).hand("a", 0).add(FullReadExpected, "clicks", 1).codes() == set()
    assert Story(end=4).hand("a", 0).add(FullReadExpected, "clicks", 0).codes() == {"lost"}


def test_what_lies_below_the_offset_at_the_start_need_not_be_read() -> None:
    story = Story(end=4).add(InitialOffset, "clicks", 0, 2).hand("a", 2, 3).add(FullReadExpected)
    assert story.codes() == set()
    assert story.verdict().counts.records == 2


def test_missing_offsets_are_neither_lost_nor_skipped() -> None:
    story = Story(end=10, missing=((2, 3), (3, 4), (8, 9))).hand("a", 0, 1, 5, 6, 7).commit(10).add(FullReadExpected)
    assert story.codes() == set()
    assert story.verdict().counts.records == 5


def test_a_log_that_grew_and_was_cut_needs_all_that_it_ever_held() -> None:
    story = Story(end=4).add(LogRangeReported, "clicks", 0, 2, 6).hand("a", 1, 2, 3, 4).commit(5)
    assert offsets(story.finding("lost")) == [0]
    assert story.add(FullReadExpected).finding("lost").evidence.count == 2


def test_a_partition_without_a_log_line_cannot_be_judged() -> None:
    story = Story().add(RecordDelivered, "a", "clicks", 1, 0)
    assert story.codes() == {"no_log"}
    assert check_history([]).codes == {"no_log"}


def test_a_record_that_the_log_does_not_hold_cannot_be_handed_out() -> None:
    assert Story(end=3).hand("a", 0, 1, 2).codes() == set()
    assert Story(end=3).hand("a", 0, 1, 2, 3).codes() == {"not_in_log"}
    assert Story(start=1, end=3).hand("a", 0, 1).codes() == {"not_in_log"}


# --- skipped, reordered -----------------------------------------------------------------------------------------


def test_a_jump_over_an_existing_offset_within_one_ownership_is_skipped() -> None:
    story = Story().owner("a").wait().hand("a", 0, 1, 3)
    assert story.codes() == {"skipped"}
    assert offsets(story.finding("skipped")) == [2]


def test_a_skipped_record_stays_skipped_when_another_member_reads_it_later() -> None:
    story = Story().owner("a").wait().hand("a", 0, 1, 3).commit(2).add(Killed, "a").wait().owner("b").hand("b", 2, 3)
    assert story.codes() == {"skipped"}


def test_going_back_within_one_ownership_is_reordered() -> None:
    story = Story().owner("a").wait().hand("a", 0, 2, 1, 3)
    assert story.codes() == {"reordered"}
    assert "from 2 to 1" in story.finding("reordered").text


def test_an_original_member_is_held_to_the_order_within_one_ownership_too() -> None:
    assert Story().owner("s").wait().hand("s", 0, 2, 1, 3).codes() == {"reordered"}
    assert Story().owner("s").wait().hand("s", 0, 1, 3).codes() == {"skipped"}


def test_a_new_ownership_may_start_anywhere() -> None:
    story = Story().add(InitialOffset, "clicks", 0, 4).owner("s").hand("s", 4, 5, 6, 7)
    assert story.over_to("s").hand("s", 5, 6, 7, 8).codes() == set()


def test_a_late_owner_line_explains_the_jump_just_before_it() -> None:
    story = Story().owner("s").wait().hand("s", 4, 5, 6, 7)
    assert story.hand("s", 5).wait(200).owner("s").hand("s", 6).codes() == set()


def test_an_owner_line_that_is_too_late_explains_nothing() -> None:
    story = Story().owner("s").wait().hand("s", 4, 5, 6, 7)
    assert story.hand("s", 5).wait(260).owner("s").hand("s", 6).codes() == {"reordered", "duplicated"}


def test_claims_of_the_member_itself_are_exact() -> None:
    story = Story().claim("a").hand("a", 0, 1, 3).claim("a")
    assert story.codes() == {"skipped"}
    assert Story().claim("a").hand("a", 0, 1).claim("a").hand("a", 3).codes() == set()


@pytest.mark.parametrize(("first", "codes"), [(5, set()), (6, {"skipped"}), (4, {"reordered"})])
def test_a_claim_that_names_its_offset_starts_there(first: int, codes: set[str]) -> None:
    assert Story().claim("a", 5).hand("a", first).codes() == codes


def test_a_claim_may_name_an_offset_that_is_missing() -> None:
    assert Story(missing=((5, 6),)).claim("a", 5).hand("a", 7).codes() == set()


def test_an_original_member_may_deliver_one_stale_chunk_after_a_rebalance() -> None:
    story = Story().owner("s").wait().hand("s", 0, 1, 2).commit(3).owner(None).owner("s").wait()
    story.hand("s", 3, 4, 3, 4, 5)
    assert story.codes() == set()
    assert story.verdict().counts.duplicates == {"scala_to_scala": 2}
    assert "reordered" in story.hand("s", 3).codes()


@pytest.mark.parametrize("delay_ms", [250, 3_000])
@pytest.mark.parametrize("paused_ms", [100, 300, 2_900])
def test_what_a_woken_original_member_delivers_may_end_before_the_offset_of_its_next_ownership(
    delay_ms: int, paused_ms: int
) -> None:
    """With a long delay of the observer, the records before the owner line can belong to either ownership."""

    def story(read_by_a: int) -> Story:
        made = Story().owner("s").wait().hand("s", 0, 1).commit(2).add(Paused, "s").wait(10_000)
        made.owner(None).owner("a").add(Expired, "s").hand("a", 2, 3, 4).wait(3_500)
        made.add(Continued, "s").hand("s", 2, 3, 4).wait(paused_ms).hand("a", *range(5, read_by_a)).commit(7)
        return made.owner(None).owner("s").wait(20).hand("s", 7, 8)

    assert story(7).codes(observer_delay_ms=delay_ms) == set()
    assert "lost" in story(6).codes(observer_delay_ms=delay_ms)
    assert "skipped" in story(7).hand("s", 10).codes(observer_delay_ms=delay_ms)


def test_an_original_member_may_deliver_a_stale_chunk_that_ends_before_what_another_member_has_read() -> None:
    def story() -> Story:
        made = Story().owner("s").wait().hand("s", 0, 1).commit(2).over_to("a").hand("a", 2, 3, 4).commit(5)
        return made.owner(None).owner("s").wait().hand("s", 2, 3)

    assert story().hand("s", 5, 6).codes() == set()
    assert story().hand("s", 6, 7).codes() == {"skipped"}, "no member has delivered 5"
    assert story().hand("s", 5, 7).codes() == {"skipped"}
    assert story().hand("s", 5, 6).hand("a", 7).hand("s", 8).codes() >= {"skipped"}, "only once"


def test_a_reset_allows_the_jump_and_the_gap() -> None:
    story = Story().owner("a").wait().hand("a", 0, 1, 2).commit(3)
    story.add(OffsetJumpAllowed, "clicks", 0, 10, "auto.offset.reset").hand("a", 10, 11).commit(12)
    assert story.codes() == set()
    [allowance] = story.verdict().allowances
    assert (allowance.reason, allowance.evidence.count) == ("reset", 7)


def test_a_reset_does_not_excuse_what_was_lost_before_it() -> None:
    story = Story().owner("a").wait().hand("a", 0).over_to("b").hand("b", 2).commit(3).wait()
    story.add(OffsetJumpAllowed, "clicks", 0, 10, "auto.offset.reset").hand("b", 10).commit(11)
    assert offsets(story.finding("lost")) == [1]


def test_a_reset_back_allows_everything_from_there_to_be_read_again() -> None:
    story = Story().owner("a").wait().hand("a", 0, 1, 2, 3).commit(4).wait()
    story.add(OffsetJumpAllowed, "clicks", 0, 1, "operator").hand("a", 1, 2, 3, 4).commit(3)
    assert story.codes() == set()
    assert story.verdict().counts.duplicates == {"reset": 3}
    again = Story().owner("a").wait().hand("a", 0, 1, 2, 3).commit(4).wait()
    assert "duplicated" in again.add(OffsetJumpAllowed, "clicks", 0, 1, "operator").hand("a", 0).codes()


# --- duplicated -------------------------------------------------------------------------------------------------


def test_the_same_record_twice_in_one_ownership_is_duplicated() -> None:
    story = Story().owner("a").wait().hand("a", 0, 1, 1, 2)
    assert story.codes() == {"duplicated"}
    finding = story.finding("duplicated")
    assert offsets(finding) == [1]
    assert finding.evidence.lines == (8, 9)


def test_a_clean_hand_over_between_ours_repeats_nothing() -> None:
    story = Story().claim("a").hand("a", 0, 1, 2).commit(3).release("a").claim("b")
    assert story.codes() == set()
    assert story.hand("b", 3).codes() == set()
    assert story.verdict().counts.ownership_transfers == {"ours_to_ours": 1}


def test_one_record_repeated_in_a_clean_hand_over_between_ours_is_duplicated() -> None:
    story = Story().claim("a").hand("a", 0, 1, 2).commit(2).release("a").claim("b").hand("b", 2, 3)
    assert story.codes() == {"duplicated"}


@pytest.mark.parametrize("end", [Killed, Paused, Expired])
def test_after_a_stop_the_records_since_the_last_commit_may_come_again_and_not_one_more(
    end: type[HistoryEvent],
) -> None:
    def story() -> Story:
        return Story().owner("a").wait().hand("a", *range(8)).commit(5).wait().add(end, "a").wait().owner("b")

    exactly = story().hand("b", 5, 6, 7, 8)
    assert exactly.codes() == set()
    assert exactly.verdict().counts.duplicates == {end.__name__.lower(): 3}
    one_more = story().hand("b", 4, 5, 6, 7, 8)
    assert one_more.codes() == {"duplicated"}
    assert offsets(one_more.finding("duplicated")) == [4]


def test_without_any_commit_everything_may_come_again_after_a_kill() -> None:
    story = Story().owner("a").wait().hand("a", 0, 1).add(Killed, "a").wait().owner("b").hand("b", 0, 1, 2)
    assert story.codes() == set()


def test_a_kill_allows_one_repetition_and_not_two() -> None:
    story = Story().claim("a").hand("a", 0, 1).add(Killed, "a").wait().claim("b").hand("b", 0, 1)
    assert story.codes() == set()
    assert story.release("b").claim("a").codes() == set()
    assert "duplicated" in story.hand("a", 0).codes()


def test_a_pause_that_ended_before_the_hand_over_allows_nothing() -> None:
    story = Story().claim("a").hand("a", 0, 1, 2).add(Paused, "a").add(Continued, "a").wait()
    story.hand("a", 3).commit(4).wait().release("a").claim("b")
    assert story.hand("b", 2).codes() == {"duplicated"}


def test_an_expiry_may_be_seen_after_the_next_owner_has_begun() -> None:
    story = Story().claim("a").hand("a", 0, 1, 2).commit(1).wait().claim("b").hand("b", 1, 2, 3).commit(4)
    assert story.codes() == {"duplicated"}
    assert story.wait(100).add(Expired, "a").codes() == set()


def test_an_expiry_may_be_seen_after_the_member_itself_has_begun_again() -> None:
    story = Story().claim("a").hand("a", 0, 1, 2).commit(1).wait().claim("a").hand("a", 1, 2, 3)
    assert story.codes() == {"duplicated"}
    assert story.wait(100).add(Expired, "a").codes() == set()


def test_a_member_that_lost_its_session_may_release_in_the_same_millisecond() -> None:
    """A member of the coordinator that is not in its group any more writes both lines at once."""

    def story(*, later_ms: int) -> Story:
        story = Story().claim("a").hand("a", 0, 1, 2).commit(1).wait()
        story.add(Expired, "a").t += later_ms - 1
        return story.release("a").wait().claim("b").hand("b", 1, 2, 3)

    assert story(later_ms=0).codes() == story(later_ms=1).codes() == set()
    released = Story().claim("a").hand("a", 0, 1, 2).commit(1).wait().release("a").add(Expired, "a").wait().claim("b")
    assert released.hand("b", 1, 2, 3).codes() == {"duplicated"}, "it had released the partition before"


def test_an_unclean_close_allows_what_came_since_the_last_commit() -> None:
    def story(clean: bool) -> Story:
        story = Story().claim("a").hand("a", 0, 1, 2).commit(1).wait()
        return story.add(Leaving, "a").add(Left, "a", clean).wait().claim("b").hand("b", 1, 2)

    assert story(clean=False).codes() == set()
    assert story(clean=False).verdict().counts.duplicates == {"unclean_close": 2}
    assert story(clean=True).codes() == {"duplicated"}


def test_a_drain_that_timed_out_allows_the_message_in_hand_and_not_one_more() -> None:
    def story() -> Story:
        story = Story().claim("a").hand("a", 0, 1, 2)
        return story.add(DrainTimedOut, "a", "clicks", 0).commit(2).release("a").wait().claim("b")

    assert story().hand("b", 2, 3).codes() == set()
    assert story().hand("b", 2, 3).verdict().counts.duplicates == {"drain_timeout": 1}
    assert offsets(story().hand("b", 1, 2, 3).finding("duplicated")) == [1]


def test_a_record_below_the_offset_at_the_start_was_read_before_the_history() -> None:
    assert Story().add(InitialOffset, "clicks", 0, 5).hand("a", 5).codes() == set()
    finding = Story().add(InitialOffset, "clicks", 0, 5).hand("a", 4, 5).finding("duplicated")
    assert "before this history" in finding.text


def test_what_original_members_repeat_between_them_is_named_and_counted() -> None:
    story = Story().owner("s").wait().hand("s", *range(8)).commit(5).over_to("z").hand("z", 5, 6, 7, 8)
    verdict = story.verdict()
    assert verdict.ok
    assert verdict.counts.duplicates == {"scala_to_scala": 3}
    [allowance] = verdict.allowances
    assert (allowance.reason, allowance.evidence.members) == ("scala_to_scala", ("s", "z"))
    assert allowance.evidence.offsets == ((5, 7),)


def test_even_an_original_member_cannot_repeat_what_lay_below_the_stored_offset_for_long() -> None:
    story = Story().owner("s").wait().hand("s", *range(8)).commit(5).wait(4_000).over_to("z")
    assert offsets(story.hand("z", 4, 5, 6, 7, 8).finding("duplicated")) == [4]


def test_an_original_member_may_have_read_the_offset_before_the_last_commit() -> None:
    story = Story().claim("a").hand("a", *range(8)).commit(5).wait(4_000).commit(8).release("a").owner("s")
    story.hand("s", 5, 6, 7, 8)
    assert story.codes() == set()
    assert story.verdict().counts.duplicates == {"ours_to_scala": 3}
    assert story.codes(ours_to_scala=0) == {"duplicated"}


def test_ours_starts_from_the_stored_offset_however_many_repeats_are_allowed() -> None:
    story = Story().owner("s").wait().hand("s", *range(8)).commit(5).wait().over_to("a")
    assert offsets(story.hand("a", 4, 5, 6, 7, 8).finding("duplicated")) == [4]


@pytest.mark.parametrize(
    ("pair", "before", "after"),
    [("scala_to_ours", "s", "a"), ("scala_to_scala", "s", "z"), ("ours_to_scala", "a", "s")],
)
def test_a_limit_of_the_policy_holds_to_the_record(pair: str, before: str, after: str) -> None:
    def story() -> Story:
        return Story().owner(before).wait().hand(before, *range(8)).commit(5).over_to(after).hand(after, 5, 6, 7, 8)

    assert story().codes(**{pair: 3}) == set()
    assert story().codes(**{pair: 2}) == {"duplicated"}
    assert offsets(story().finding("duplicated", **{pair: 2})) == [7]
    assert story().add(PolicyChanged, {pair: 2}).codes() == {"duplicated"}


def test_a_limit_holds_for_each_hand_over_by_itself() -> None:
    story = Story().owner("s").wait().hand("s", 0, 1).commit(1).over_to("z").hand("z", 1, 2).commit(2)
    story.wait(4_000).over_to("s").hand("s", 2, 3)
    assert story.codes(scala_to_scala=1) == set()


def test_a_woken_original_member_hands_out_its_buffer_once_more() -> None:
    def story() -> Story:
        story = Story().owner("s").wait().hand("s", 0, 1).commit(2).add(Paused, "s").wait(10_000)
        return story.owner(None).owner("a").hand("a", 2, 3, 4, 5).commit(6)

    story_of_zombie = story().add(Continued, "s").hand("s", 2, 3)
    assert story_of_zombie.codes(ours_to_scala=0) == set()
    assert story_of_zombie.verdict().counts.duplicates == {"scala_zombie": 2}


def test_an_original_member_may_deliver_a_chunk_that_it_took_before_it_gave_the_partition_up() -> None:
    story = Story().owner("s").wait().hand("s", 0, 1).commit(2).over_to("a").hand("a", 2, 3, 4).commit(5).hand("s", 2)
    assert story.codes(ours_to_scala=0) == set()
    assert story.verdict(ours_to_scala=0).counts.duplicates == {"scala_stale_chunk": 1}


def test_what_a_woken_original_member_was_first_to_hand_out_the_owner_may_repeat() -> None:
    story = Story().owner("s").wait().hand("s", 0, 1).commit(2).add(Paused, "s").wait(10_000)
    story.owner(None).owner("a").hand("a", 2).add(Continued, "s").hand("s", 2, 3, 4).hand("a", 3, 4, 5)
    assert story.codes(scala_to_ours=0) == set()


def test_a_record_already_in_hand_may_show_after_a_pause_but_only_one_a_stream() -> None:
    def story(streams: int) -> Story:
        story = Story()
        story.events[1] = MemberDeclared(story.t, "a", "ours", consumer_id="g_a", streams=streams)
        story.claim("a").hand("a", 0, 1).add(Paused, "a").wait(10_000).claim("b").owner("b").hand("b", 2, 3)
        return story.add(Continued, "a")

    one = story(1).hand("a", 2)
    assert one.codes() == set()
    assert {allowance.reason for allowance in one.verdict().allowances} == {"in_hand_at_pause"}
    assert one.codes(in_hand_at_pause=0) == {"two_owners", "delivered_without_owner", "duplicated"}
    assert story(1).hand("a", 2, 3).codes() == {"two_owners", "delivered_without_owner", "duplicated"}
    assert story(2).hand("a", 2, 3).codes() == set()


def test_what_is_claimed_after_a_pause_was_not_in_hand_before_it() -> None:
    story = Story().claim("a").hand("a", 0).add(Paused, "a").wait(10_000).claim("b").hand("b", 1, 2).commit(3)
    story.add(Continued, "a").wait().release("b").claim("a").hand("a", 2)
    assert story.codes() == {"duplicated"}


def test_a_member_of_ours_that_hands_out_after_its_own_release_is_found() -> None:
    story = Story().claim("a").hand("a", 0).release("a")
    assert story.codes() == set()
    assert story.hand("a", 1).codes() == {"delivered_without_owner"}
    assert story.claim("b").hand("a", 2).codes() == {"delivered_without_owner", "two_owners"}


# --- two_owners, delivered_without_owner, delivered_after_close -------------------------------------------------


def test_a_member_of_ours_that_hands_out_after_the_claim_of_another_is_found() -> None:
    story = Story().claim("a").hand("a", 0, 1).claim("b").hand("a", 2)
    assert story.codes() == {"two_owners"}
    finding = story.finding("two_owners")
    assert finding.evidence.members == ("a", "b")
    assert finding.evidence.lines == (9, 10)


def test_a_member_of_ours_that_hands_out_after_the_first_record_of_another_is_found() -> None:
    assert Story().hand("a", 0, 1).hand("b", 2).hand("a", 3).codes() == {"two_owners"}
    assert Story().hand("a", 0, 1).hand("b", 2, 3).codes() == set()


def test_lines_of_one_millisecond_have_no_order() -> None:
    story = Story().claim("a").hand("a", 0, 1).claim("b")
    story.t -= 1
    assert story.hand("a", 2).codes() == set()


def test_a_partition_that_came_back_is_no_second_owner() -> None:
    story = Story().claim("a").hand("a", 0).release("a").claim("b").hand("b", 1).release("b").claim("a").hand("a", 2)
    assert story.codes() == set()


def test_a_partition_that_came_back_may_be_seen_late() -> None:
    story = Story().owner("a").hand("a", 0).over_to("b").hand("b", 1).owner(None)
    assert story.hand("a", 2).wait(100).owner("a").codes() == set()
    story = Story().owner("a").hand("a", 0).owner("b").hand("b", 1)
    assert story.hand("a", 2).wait(300).owner("a").codes() == {"two_owners", "delivered_without_owner", "skipped"}


@pytest.mark.parametrize("end", [Killed, Left, Expired])
def test_a_second_owner_that_has_ended_stands_in_nobodys_way(end: type[HistoryEvent]) -> None:
    assert Story().hand("a", 0).hand("b", 1).add(end, "b").hand("a", 2).codes() == set()


def test_two_owners_of_which_one_is_an_original_member_are_not_judged_as_two_of_ours() -> None:
    assert Story().hand("a", 0).hand("s", 1).hand("a", 2).codes() == set()


def test_a_member_of_ours_must_not_hand_out_what_was_seen_owned_by_another() -> None:
    story = Story().owner("a").hand("a", 0).owner("s").hand("a", 1)
    assert story.codes() == {"delivered_without_owner"}
    assert "owned by g_s-0" in story.finding("delivered_without_owner").text


def test_a_member_of_ours_must_not_hand_out_what_was_seen_owned_by_nobody() -> None:
    story = Story().owner("a").hand("a", 0).owner(None).hand("a", 1)
    assert story.codes() == {"delivered_without_owner"}
    assert "without an owner" in story.finding("delivered_without_owner").text


@pytest.mark.parametrize(("late_ms", "codes"), [(249, set()), (251, {"delivered_without_owner"})])
def test_the_observer_may_see_the_claim_a_little_later(late_ms: int, codes: set[str]) -> None:
    story = Story().owner("s").hand("s", 0).owner(None).hand("a", 1).wait(late_ms - 1).owner("a")
    assert story.codes() == codes


def test_the_tolerance_is_a_parameter() -> None:
    story = Story().owner("s").hand("s", 0).owner(None).hand("a", 1).wait(400).owner("a")
    assert story.codes() == {"delivered_without_owner"}
    assert story.codes(observer_delay_ms=500) == set()
    assert story.add(PolicyChanged, {"observer_delay_ms": 500}).codes() == set()


def test_a_short_ownership_may_pass_unseen_when_the_member_tells_of_it() -> None:
    story = Story().owner("s").hand("s", 0).commit(1).claim("a").hand("a", 1).commit(2).release("a").owner("z")
    assert story.codes() == set()


def test_an_original_member_may_hand_out_what_it_no_longer_owns() -> None:
    assert Story().owner("s").hand("s", 0).owner("a").hand("s", 1).codes() == set()


@pytest.mark.parametrize("end", [Left, Killed])
@pytest.mark.parametrize("member", ["a", "s"])
def test_nothing_is_handed_out_after_the_end(end: type[HistoryEvent], member: str) -> None:
    story = Story().hand(member, 0).add(end, member)
    assert story.codes() == set()
    assert story.hand(member, 1).codes() == {"delivered_after_close"}


def test_a_member_may_start_again() -> None:
    assert Story().hand("a", 0).add(Left, "a").add(Joined, "a").hand("a", 1).codes() == set()
    story = Story().hand("a", 0).add(Killed, "a").add(MemberDeclared, "a", "ours", 12, "g_a2").hand("a", 0, 1)
    assert story.codes() == set()


# --- the stored offset ------------------------------------------------------------------------------------------


def test_a_commit_must_not_pass_what_was_handed_out() -> None:
    assert Story().hand("a", 0, 1, 2).commit(3).codes() == set()
    story = Story().hand("a", 0, 1, 2).commit(4).wait().hand("a", 3)
    assert story.codes() == {"commit_ahead"}
    assert offsets(story.finding("commit_ahead")) == [3]


def test_a_commit_may_pass_missing_offsets() -> None:
    assert Story(missing=((3, 5),)).hand("a", 0, 1, 2).commit(6).codes() == set()
    assert Story(missing=((3, 5),)).hand("a", 0, 1, 2).commit(7).codes() == {"commit_ahead", "lost"}


def test_a_commit_must_not_pass_the_end_of_the_log() -> None:
    assert Story(end=3).hand("a", 0, 1, 2).commit(4).codes() == {"commit_ahead"}


def test_a_commit_of_where_the_group_stood_needs_no_record() -> None:
    assert Story().commit(0).add(InitialOffset, "clicks", 0, 7).commit(7).codes() == {"commit_rewound"}
    assert Story().add(InitialOffset, "clicks", 0, 7).commit(7).codes() == set()
    assert Story().add(OffsetJumpAllowed, "clicks", 0, 100, "auto.offset.reset").commit(100).codes() == set()


def test_a_commit_and_a_record_of_one_millisecond_have_no_order() -> None:
    story = Story().hand("a", 0).commit(2)
    story.t -= 1
    assert story.hand("a", 1).codes() == set()


def test_an_original_member_writes_a_record_down_a_moment_after_its_commit() -> None:
    assert Story().hand("s", 0).commit(2).wait(90).hand("s", 1).codes() == set()
    assert Story().hand("s", 0).commit(2).wait(110).hand("s", 1).codes() == {"commit_ahead"}
    assert Story().hand("a", 0).commit(2).wait(90).hand("a", 1).codes() == {"commit_ahead"}


def test_an_original_member_that_is_killed_may_take_one_committed_record_with_it() -> None:
    story = Story().hand("s", 0).commit(2).add(Killed, "s").wait().hand("z", 2).commit(3)
    assert story.codes() == set()
    assert [a.reason for a in story.verdict().allowances] == ["scala_in_flight"]
    story = Story().hand("s", 0).commit(3).add(Killed, "s").wait().hand("z", 3).commit(4)
    assert story.codes() == {"commit_ahead", "lost"}
    story = Story().hand("a", 0).commit(2).add(Killed, "a").wait().hand("b", 2).commit(3)
    assert story.codes() == {"commit_ahead", "lost"}


def test_a_commit_must_not_pass_what_was_consumed() -> None:
    def story() -> Story:
        return Story().hand("a", 0).add(RecordConsumed, "a", "clicks", 0, 0).hand("a", 1)

    assert story().commit(1).codes() == set()
    finding = story().commit(2).finding("commit_ahead")
    assert "consumed only offsets below 1" in finding.text
    assert story().add(CommitCalled, "a").commit(2).codes() == set()
    assert story().add(Leaving, "a").commit(2).add(Left, "a").codes() == set()
    assert story().add(CommitCalled, "a").hand("a", 2).commit(3).codes() == {"commit_ahead"}


def test_a_member_may_store_where_it_started() -> None:
    story = Story().hand("s", 0, 1).commit(2).owner("a").hand("a", 2).commit(2).wait()
    assert story.add(RecordConsumed, "a", "clicks", 0, 2).codes() == set()


def test_the_stored_offset_must_not_go_back() -> None:
    story = Story().hand("a", 0, 1, 2).commit(3).commit(2)
    assert story.codes() == {"commit_rewound"}
    assert Story().hand("a", 0, 1, 2).commit(2).commit(2).commit(3).codes() == set()
    assert Story().add(InitialOffset, "clicks", 0, 5).hand("a", 5).commit(4).codes() == {"commit_rewound"}


def test_old_news_of_the_offset_node_is_no_step_back() -> None:
    assert Story().hand("a", 0, 1, 2).commit(3, zxid=9).commit(2, zxid=8).codes() == set()
    assert Story().hand("a", 0, 1, 2).commit(3, zxid=9).commit(2, zxid=10).codes() == {"commit_rewound"}


def test_a_woken_original_member_may_put_the_stored_offset_back_for_a_while() -> None:
    def story(member: str) -> Story:
        story = Story().owner(member).wait().hand(member, 0, 1).commit(2).add(Paused, member).wait(10_000)
        story.over_to("a").hand("a", 2, 3, 4).commit(5)
        return story.add(Continued, member)

    woken = story("s").commit(2)
    assert woken.codes() == set()
    assert [a.reason for a in woken.verdict().allowances] == ["scala_zombie"]
    assert story("s").commit(2, by="s").codes() == set()
    assert story("s").commit(2, by="a").codes() == {"commit_rewound"}
    assert story("b").commit(2).codes() == {"commit_rewound"}
    long_ago = story("s").add(Joined, "s").wait(11_000).commit(2)
    assert long_ago.codes() == {"commit_rewound"}


def test_a_commit_that_a_woken_original_member_overwrote_before_it_was_seen_was_made_all_the_same() -> None:
    def story(*rest: int) -> Story:
        story = Story().owner("s").wait().hand("s", 0, 1).commit(2).add(Paused, "s").wait(10_000)
        story.over_to("a").hand("a", 2, 3).commit(4).hand("a", 4, 5).add(Continued, "s").commit(2, by="s")
        return story.hand("a", *rest).wait().over_to("b").hand("b", 2, 3, 4, 5, *rest)

    assert story().codes() == set()
    assert offsets(story(6).finding("duplicated")) == [6], "read after that write: it needs a commit of its own"


def test_what_a_woken_original_member_put_back_the_next_owner_may_repeat_and_not_one_more() -> None:
    def story() -> Story:
        story = Story().owner("s").wait().hand("s", 0, 1).commit(2).add(Paused, "s").wait(10_000)
        story.over_to("a").hand("a", 2, 3, 4).commit(5).add(Continued, "s").commit(3, by="s")
        return story.wait().over_to("b")

    assert story().hand("b", 3, 4, 5).codes() == set()
    assert offsets(story().hand("b", 2, 3, 4, 5).finding("duplicated")) == [2]


def test_an_original_member_that_started_below_the_last_commit_stores_its_own_position() -> None:
    def story() -> Story:
        story = Story().claim("a").hand("a", *range(8)).commit(5).wait(4_000).commit(8).release("a").owner("s")
        return story.hand("s", 5, 6)

    allowed = story().commit(7)
    assert allowed.codes() == set()
    assert "scala_commit" in {a.reason for a in allowed.verdict().allowances}
    assert story().commit(4).codes() == {"commit_rewound"}


# --- checkpoints ------------------------------------------------------------------------------------------------


def test_the_owners_must_be_the_expected_ones() -> None:
    story = Story().owner("a").add(AssignmentExpected, {"clicks/0": "g_a-0"})
    assert story.codes() == set()
    story = story.add(AssignmentExpected, {"clicks/0": "g_a-1", "clicks/7": "g_b-0", "clicks/8": None})
    assert {(f.code, f.evidence.partition) for f in story.verdict().findings} == {
        ("wrong_owner", "clicks/0"),
        ("wrong_owner", "clicks/7"),
    }
    assert "expected g_a-1, observed g_a-0" in story.verdict().findings[0].text


def test_owners_may_be_anything_before_and_after_the_checkpoint() -> None:
    story = Story().owner("b").over_to("a").add(AssignmentExpected, {"clicks/0": "g_a-0"}).over_to("s")
    assert story.codes() == set()


def test_a_settled_group_leaves_no_partition_without_a_living_owner() -> None:
    assert Story().add(Joined, "a").owner("a").add(GroupSettled).codes() == set()
    assert Story().add(Joined, "a").owner("a").owner(None).add(GroupSettled).codes() == {"wrong_owner"}
    assert Story().add(Joined, "a").owner("a").add(Killed, "a").wait().add(GroupSettled).codes() == {"wrong_owner"}
    assert Story().add(OwnerObserved, "clicks", 0, "stranger-0").add(GroupSettled).codes() == {"wrong_owner"}
    assert Story().add(Joined, "a").owner("a").add(Left, "a").owner(None).wait().add(GroupSettled).codes() == set()


def test_a_topic_that_was_not_observed_is_not_judged_at_a_checkpoint() -> None:
    assert Story().hand("a", 0).add(GroupSettled).codes() == set()


def test_an_old_sight_of_the_owner_is_no_news() -> None:
    story = Story().add(OwnerObserved, "clicks", 0, "g_a-0", zxid=9).add(OwnerObserved, "clicks", 0, "g_b-0", zxid=8)
    assert story.add(AssignmentExpected, {"clicks/0": "g_a-0"}).codes() == set()


# --- ranges, members, counts ------------------------------------------------------------------------------------


def test_a_range_is_judged_like_its_records() -> None:
    story = Story().owner("a").wait().add(RecordRangeDelivered, "a", "clicks", 0, 0, 49)
    assert story.add(RecordRangeDelivered, "a", "clicks", 0, 50, 99).add(FullReadExpected).codes() == set()
    assert story.verdict().counts.delivered == 100
    story.add(RecordRangeDelivered, "a", "clicks", 0, 90, 99)
    assert story.finding("duplicated").evidence.count == 10


def test_a_run_of_repeats_is_one_finding() -> None:
    story = Story().claim("a").hand("a", *range(10)).commit(2).release("a").claim("b").hand("b", *range(2, 12))
    finding = story.finding("duplicated")
    assert finding.evidence.offsets == ((2, 9),)
    assert finding.evidence.count == 8


def test_a_member_without_a_member_line_is_refused() -> None:
    with pytest.raises(HistoryError, match=r"line 6: member 'x' has no member line"):
        Story().hand("x", 0).verdict()


def test_a_member_cannot_be_of_two_kinds_nor_share_its_consumer_id() -> None:
    with pytest.raises(HistoryError, match="both ours and scala"):
        Story().add(MemberDeclared, "a", "scala").verdict()
    with pytest.raises(HistoryError, match="belongs to two members"):
        Story().add(MemberDeclared, "c", "ours", consumer_id="g_a").verdict()


def test_the_order_of_the_input_does_not_matter_but_its_time() -> None:
    story = Story().claim("a").hand("a", 0, 1, 2).commit(3)
    assert check_history(reversed(story.events)).ok


def test_the_counts_say_how_much_was_judged() -> None:
    story = Story(end=10).owner("s").wait().hand("s", 0, 1, 2).commit(2).over_to("a").hand("a", 2, 3)
    counts = story.verdict().counts
    assert (counts.records, counts.delivered, counts.delivered_distinct, counts.commits) == (10, 5, 4, 1)
    assert (counts.duplicates, counts.ownership_transfers) == ({"scala_to_ours": 1}, {"scala_to_ours": 1})
    assert (counts.members, counts.partitions) == (4, 1)


# --- the format -------------------------------------------------------------------------------------------------

EXAMPLES: tuple[HistoryEvent, ...] = (
    LogRangeReported(1, "clicks", 0, 0, 10, ((3, 3), (5, 6))),
    InitialOffset(1, "clicks", 0, 4),
    MemberDeclared(1, "a", "scala", 77, "g_a", 2),
    Joined(1, "a"),
    Leaving(1, "a"),
    Left(1, "a", False),
    Killed(1, "a"),
    Paused(1, "a"),
    Continued(1, "a"),
    Expired(1, "a"),
    MemberAcquiredPartition(1, "a", "clicks", 0, 4),
    MemberReleasedPartition(1, "a", "clicks", 0),
    DrainTimedOut(1, "a", "clicks", 0),
    RecordDelivered(1, "a", "clicks", 0, 4),
    RecordRangeDelivered(1, "a", "clicks", 0, 4, 9),
    RecordConsumed(1, "a", "clicks", 0, 4),
    CommitCalled(1, "a"),
    OffsetCommitted(1, "clicks", 0, 5, "a", 12, "kafka"),
    ControlWritten(1, 3, "switched", "kafka", "m1", "copy"),
    Fenced(1, "zookeeper", "clicks", 0),
    Unfenced(1, "kafka"),
    PlannedKafkaOffset(1, "clicks", 0, 9),
    StateSnapshot(1, "end", {"ids": "acl"}, {"kafka clicks/0": "9"}),
    OwnerObserved(1, "clicks", 0, None, -5, 13),
    OffsetJumpAllowed(1, "clicks", 0, 9, "auto.offset.reset", "a"),
    AssignmentExpected(1, {"clicks/0": "g_a-0", "clicks/1": None}),
    GroupSettled(1),
    FullReadExpected(1, "clicks", 0),
    PolicyChanged(1, {"ours_to_scala": 0, "scala_to_ours": None}),
    HistoryNote(1, "Grüße"),
)


def test_each_event_comes_back_from_its_line() -> None:
    assert {type(event) for event in EXAMPLES} == set(EVENTS.values())
    for event in EXAMPLES:
        assert parse_line(dump_line(event).encode(), 1) == event


def test_missing_offsets_may_be_single_numbers() -> None:
    line = b'{"t":1,"event":"log","topic":"c","partition":0,"start":0,"end":9,"missing":[3,[5,6]]}'
    assert parse_line(line, 1) == LogRangeReported(1, "c", 0, 0, 9, ((3, 3), (5, 6)))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"t":1}', "unknown event None"),
        ('{"t":1,"event":"hnded"}', "unknown event 'hnded'"),
        ('{"t":1,"event":["handed"]}', "unknown event"),
        ('{"event":"settled"}', "settled needs 't'"),
        ('{"t":1.5,"event":"settled"}', "1.5 is not a whole number"),
        ('{"t":true,"event":"settled"}', "True is not a whole number"),
        ('{"t":-1,"event":"settled"}', "-1 is not a whole number"),
        ('{"t":9223372036854775808,"event":"settled"}', "not a whole number"),
        ('{"t":1,"event":"settled","extra":1}', "settled has no field 'extra'"),
        ('{"t":1,"event":"settled","line":1}', "settled has no field 'line'"),
        ('{"t":1,"event":"joined","member":""}', "'' is not a text"),
        ('{"t":1,"event":"joined","member":5}', "5 is not a text"),
        ('{"t":1,"event":"joined","member":"\\ud800"}', "half of a surrogate pair"),
        ('{"t":1,"event":"left","member":"a","clean":1}', "1 is not true or false"),
        ('{"t":1,"event":"member","member":"a","kind":"java"}', "kind 'java'"),
        ('{"t":1,"event":"log","topic":"c","partition":0,"start":0,"end":9,"missing":[[6,5]]}', r"\[6, 5\]"),
        ('{"t":1,"event":"log","topic":"c","partition":0,"start":0,"end":9,"missing":5}', "not a list"),
        ('{"t":1,"event":"handed_range","member":"a","topic":"c","partition":0,"first":5,"last":4}', "must contain"),
        (
            '{"t":1,"event":"handed_range","member":"a","topic":"c","partition":0,"first":0,"last":9999999}',
            "must contain",
        ),
        ('{"t":1,"event":"assignment","expected":{"clicks":"a-0"}}', "not topic/partition"),
        ('{"t":1,"event":"assignment","expected":{"clicks/0":7}}', "not a text"),
        ('{"t":1,"event":"assignment","expected":[]}', "not an object"),
        ('{"t":1,"event":"policy","ours_to_mars":1}', "no field 'ours_to_mars'"),
        ('{"t":1,"event":"policy","observer_delay_ms":null}', "observer_delay_ms cannot be None"),
        ('{"t":1,"event":"policy","ours_to_ours":-1}', "ours_to_ours cannot be -1"),
    ],
)
def test_a_line_that_cannot_be_right_is_refused_with_its_number(line: str, problem: str) -> None:
    with pytest.raises(HistoryError, match=problem) as caught:
        read_history(io.BytesIO(b'\n{"t":1,"event":"settled"}\n' + line.encode() + b"\n"))
    assert caught.value.line == 3


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(HistoryError, match="line 1: not JSON"):
        read_history(io.BytesIO(b'{"t":1,"event":"note","text":"\xff"}'))


def test_a_log_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(HistoryError, match="a log from 5 to 4"):
        check_history([LogRangeReported(1, "clicks", 0, 5, 4)])


def test_lines_are_merged_by_time_and_ties_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = [HistoryNote(2, "c"), HistoryNote(1, "a"), HistoryNote(2, "d"), HistoryNote(1, "b")]
    path.write_text("".join(f"{dump_line(event)}\n" for event in events), encoding="utf-8")
    found = read_history(path)
    assert [event.text for event in found if isinstance(event, HistoryNote)] == ["a", "b", "c", "d"]
    assert [event.line for event in found] == [2, 4, 1, 3]


class FixedClock:
    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 1_234


def test_writers_share_a_file_and_every_line_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, FixedClock()) as one, HistoryWriter(path, FixedClock()) as two:
        one.delivered("a", "clicks", 0, 5)
        two.write(Joined(two.now_ms(), "b"))
        assert read_history(path) == [RecordDelivered(1_234, "a", "clicks", 0, 5), Joined(1_234, "b")]


# --- how it reads -----------------------------------------------------------------------------------------------


def test_the_text_is_one_line_a_finding_and_then_the_counts() -> None:
    story = Story(end=10).owner("a").wait().hand("a", 0, 1, 3).commit(4)
    story.events = [type(e)(**_fields(e, t=e.t + 86_399_000)) for e in story.events]
    lines = list(render_text(story.verdict()))
    assert lines[0] == "NOT OK: 2 findings in 10 lines of history"
    assert lines[1] == (
        "skipped                  clicks/0: a jumped from 1 to 3 within one ownership | 1 record: 2 | line 9 | "
        "00:00:01.004"
    )
    assert lines[2].startswith("lost                     clicks/0: never delivered, and the committed offset ended")
    assert lines[3:] == [
        "records in log       10",
        "delivered            3 (3 different records)",
        "duplicates           0",
        "ownership transfers  0",
        "commits seen         1",
        "members              4",
    ]


def _fields(event: HistoryEvent, **changes: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in type(event).__dataclass_fields__} | changes


def test_a_good_history_says_so_and_names_what_it_allowed() -> None:
    story = (
        Story(end=4).owner("s").wait().hand("s", 0, 1).commit(1).over_to("z").hand("z", 1, 2, 3).add(FullReadExpected)
    )
    lines = list(render_text(story.verdict()))
    assert lines[0] == "ok: 4 records in 1 partitions, 15 lines of history"
    assert lines[1].startswith(
        "allowed: clicks/0: scala_to_scala: z delivered again what s had delivered | 1 record: 1 |"
    )
    assert "duplicates           1 (scala to scala 1)" in lines


def test_very_many_findings_are_cut_in_the_text_only() -> None:
    story = Story()
    for number in range(1, 301):
        story.add(RecordDelivered, "a", "clicks", number, 0)
    verdict = story.verdict()
    assert len(verdict.findings) == 300
    assert sum(line.startswith("no_log") for line in render_text(verdict)) == 200
    assert "... and 100 more findings (all of them: -o json)" in list(render_text(verdict))


def test_the_verdict_is_plain_json() -> None:
    found = json.loads(json.dumps(Story().hand("a", 0, 2).verdict().to_json()))
    assert found["ok"] is False
    assert found["findings"][0]["code"] == "skipped"
    assert found["findings"][0]["evidence"]["offsets"] == [[1, 1]]


def test_the_page_explains_each_code_reason_event_and_field_of_the_policy() -> None:
    page = Path(__file__).parents[3] / "migration_docs" / "reference" / "history.md"
    text = page.read_text(encoding="utf-8")
    for code, meaning in FINDING_CODES.items():
        assert f"| `{code}` | {meaning} |" in text
    for reason, meaning in ALLOWANCE_REASONS.items():
        assert f"| `{reason}` | {meaning} |" in text
    for name in EVENTS:
        assert f"| `{name}` |" in text
    for name in Policy.__dataclass_fields__:
        assert f"| `{name}` |" in text
