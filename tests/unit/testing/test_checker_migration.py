"""The checker over a group that moves: one history that is right, and for each promise histories that break it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zkconsumer.testing.checker import (
    FINDING_CODES,
    ControlWritten,
    Fenced,
    Finding,
    HistoryError,
    HistoryEvent,
    InitialOffset,
    Killed,
    LogRangeReported,
    MemberAcquiredPartition,
    MemberDeclared,
    MemberReleasedPartition,
    OffsetCommitted,
    OffsetJumpAllowed,
    PlannedKafkaOffset,
    Policy,
    RecordDelivered,
    RecordRangeDelivered,
    StateSnapshot,
    Unfenced,
    Verdict,
    check_history,
    end_state,
    render_text,
)

Line = tuple[type[HistoryEvent], tuple[Any, ...], dict[str, Any]]
NODES = {"ids": "open", "owners/clicks": "open"}


def line(event: type[HistoryEvent], *args: Any, **kwargs: Any) -> Line:
    return event, args, kwargs


def control(epoch: int, phase: str, authority: str, migration: str = "m1", strategy: str = "copy") -> Line:
    return line(ControlWritten, epoch, phase, authority, migration, strategy)


def commit(store: str, offset: int, by: str | None) -> Line:
    return line(OffsetCommitted, "clicks", 0, offset, by, store=store)


def claim(member: str, offset: int) -> Line:
    return line(MemberAcquiredPartition, member, "clicks", 0, offset)


def hand(member: str, first: int, last: int) -> Line:
    return line(RecordRangeDelivered, member, "clicks", 0, first, last)


def give_up(member: str) -> Line:
    return line(MemberReleasedPartition, member, "clicks", 0)


class Move:
    """A group that moves to Kafka and back, as it should; a test changes what it names."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {
            "log": line(LogRangeReported, "clicks", 0, 0, 100),
            "started": line(InitialOffset, "clicks", 0, 10),
            "old": line(MemberDeclared, "old", "ours"),
            "new": line(MemberDeclared, "new", "ours"),
            "zombie": line(MemberDeclared, "zombie", "scala"),
            "tool": line(MemberDeclared, "tool", "migrator"),
            "before": line(StateSnapshot, "before", NODES),
            "old claims": claim("old", 10),
            "old reads": hand("old", 10, 19),
            "planned": control(1, "planned", "zookeeper"),
            "old commits": commit("zookeeper", 20, "old"),
            "old gives up": give_up("old"),
            "fencing": control(2, "fencing", "zookeeper"),
            "fence": line(Fenced, "zookeeper", "clicks", 0),
            "seat": line(Fenced, "kafka"),
            "copy": commit("kafka", 20, "tool"),
            "switched": control(3, "switched", "kafka"),
            "leave": line(Unfenced, "kafka"),
            "new claims": claim("new", 20),
            "new reads": hand("new", 20, 29),
            "new commits": commit("kafka", 30, "new"),
            "new gives up": give_up("new"),
            "returning": control(4, "returning", "kafka"),
            "seat again": line(Fenced, "kafka"),
            "return": commit("zookeeper", 30, "tool"),
            "returned": control(5, "returned", "zookeeper"),
            "leave again": line(Unfenced, "kafka"),
            "lift": line(Unfenced, "zookeeper", "clicks", 0),
            "undone": control(5, "undone", "zookeeper"),
            "old again": claim("old", 30),
            "old goes on": hand("old", 30, 99),
            "last": commit("zookeeper", 100, "old"),
            "end": line(StateSnapshot, "end", NODES, {"phase": "undone"}),
        }

    def without(self, *names: str) -> Move:
        for name in names:
            del self.lines[name]
        return self

    def but(self, name: str, changed: Line) -> Move:
        assert name in self.lines
        self.lines[name] = changed
        return self

    def behind(self, name: str, *more: Line) -> Move:
        assert name in self.lines
        lines: dict[str, Line] = {}
        for key, one in self.lines.items():
            lines[key] = one
            if key == name:
                lines |= {f"{name} + {number}": added for number, added in enumerate(more)}
        self.lines = lines
        return self

    def until(self, name: str) -> Move:
        keys = list(self.lines)
        return self.without(*keys[keys.index(name) + 1 :])

    def dual(self) -> Move:
        for name, (event, args, kwargs) in self.lines.items():
            if event is ControlWritten:
                self.lines[name] = event, (*args[:-1], "dual"), kwargs
        return self

    @property
    def events(self) -> list[HistoryEvent]:
        return [event(number, *args, **kwargs, line=number) for number, (event, args, kwargs) in
                enumerate(self.lines.values(), 1)]  # fmt: skip

    def number(self, name: str) -> int:
        return list(self.lines).index(name) + 1

    def verdict(self, **policy: Any) -> Verdict:
        return check_history(self.events, Policy(**policy))

    def codes(self, **policy: Any) -> set[str]:
        return set(self.verdict(**policy).codes)

    def finding(self, code: str, **policy: Any) -> Finding:
        [found] = [one for one in self.verdict(**policy).findings if one.code == code]
        return found


def test_a_group_that_moves_there_and_back_keeps_every_promise() -> None:
    verdict = Move().verdict()
    assert verdict.ok, "\n".join(render_text(verdict))
    assert verdict.counts.authority_changes == 2
    assert "authority changes    2" in list(render_text(verdict))


BROKEN: dict[str, dict[str, Callable[[], Move]]] = {
    "commit_by_non_owner": {
        "a commit behind the next claim": lambda: Move().behind("new claims", claim("new2", 20)).behind(
            "zombie", line(MemberDeclared, "new2", "ours")),
        "a commit behind its own release": lambda: Move().behind("old gives up", commit("zookeeper", 20, "old")),
        "a commit of who knows whom": lambda: Move().behind("new reads", commit("kafka", 25, None)),
    },
    "commit_while_fenced": {
        "by an old member behind the fence": lambda: Move().behind("fence", commit("zookeeper", 20, "zombie")),
        "by a tool although the seat is taken": lambda: Move().behind("copy", commit("kafka", 20, None)),
        "on the way back": lambda: Move().behind("seat again", commit("kafka", 30, None)),
    },
    "delivered_while_fenced": {
        "an old member behind the fence": lambda: Move().behind("fence", line(RecordDelivered, "old", "clicks", 0, 20)),
        "a modern member beside the seat": lambda: Move().behind("seat again", hand("new", 30, 31)),
    },
    "started_at_wrong_offset": {
        "too early": lambda: Move().but("new claims", claim("new", 19)),
        "too late": lambda: Move().but("new claims", claim("new", 21)),
        "where Kafka was when it lost the authority": lambda: Move().but("old again", claim("old", 20)),
    },
    "commit_in_wrong_store": {
        "an old member goes on in ZooKeeper": lambda: Move().behind("new commits", commit("zookeeper", 20, "old")),
        "a modern one begins too early": lambda: Move().behind("fencing", commit("kafka", 20, "new")),
    },
    "offset_overwritten": {
        "the tool copies again behind the switch": lambda: Move().behind("new commits", commit("kafka", 20, "tool")),
        "the tool writes where it should read": lambda: Move().behind("copy", commit("zookeeper", 19, "tool")),
    },
    "stale_epoch": {
        "a stale tool writes an old epoch": lambda: Move().behind("switched", control(2, "fencing", "kafka")),
        "the authority moves within an epoch": lambda: Move().but("switched", control(2, "switched", "kafka")),
        "two migrations at once": lambda: Move().behind("fencing", control(3, "planned", "zookeeper", "m2")),
    },
    "authority_moved_unfenced": {
        "old members may still claim": lambda: Move().without("fence"),
        "modern members may commit already": lambda: Move().without("seat"),
        "back without a seat": lambda: Move().without("seat again"),
    },
    "authority_moved_stale": {
        "nothing was copied": lambda: Move().without("copy"),
        "a number too low": lambda: Move().but("copy", commit("kafka", 19, "tool")),
        "an old member committed behind the copy": lambda: Move().behind("copy", commit("zookeeper", 21, "zombie")),
        "not what the plan decided": lambda: Move().behind("fencing", line(PlannedKafkaOffset, "clicks", 0, 25)),
    },
    "end_state_differs": {
        "an access list stays": lambda: Move().but("end", line(StateSnapshot, "end", NODES | {"ids": "fenced"})),
        "a node is gone": lambda: Move().but("end", line(StateSnapshot, "end", {"ids": "open"})),
        "a node came": lambda: Move().but("end", line(StateSnapshot, "end", NODES | {"owners/other": "open"})),
    },
    "commit_lost_on_return": {
        "nothing was carried back": lambda: Move().without("return"),
        "less than the last commit": lambda: Move().but("return", commit("zookeeper", 29, "tool")),
        "a commit behind the look": lambda: Move().behind("return", commit("kafka", 31, None)),
    },
    "fence_not_removed": {
        "the owner fence stays": lambda: Move().without("lift"),
        "the seat stays": lambda: Move().without("leave again"),
    },
}  # fmt: skip
CASES = [(code, why) for code, cases in BROKEN.items() for why in cases]


@pytest.mark.parametrize(("code", "why"), CASES)
def test_a_history_that_breaks_a_promise_is_found_out(code: str, why: str) -> None:
    verdict = BROKEN[code][why]().verdict()
    assert code in verdict.codes, "\n".join(render_text(verdict))


def test_each_promise_has_a_history_that_breaks_it() -> None:
    assert BROKEN.keys() == {
        code for code, meaning in FINDING_CODES.items() if meaning[:1] == "M" and meaning[2:3] == ":"
    }
    assert {FINDING_CODES[code][:2] for code in BROKEN} == {"M1", "M2", "M3", "M4", "M5", "M6"}


def test_a_finding_names_the_lines_that_show_it() -> None:
    move = Move().but("new claims", claim("new", 19))
    finding = move.finding("started_at_wrong_offset")
    # What counts is the last commit that the authority of then accepted: the old member's.
    assert finding.evidence.lines == (move.number("old commits"), move.number("new claims"))
    assert finding.evidence.partition == "clicks/0"
    assert finding.evidence.members == ("new",)

    move = Move().behind("fence", commit("zookeeper", 20, "zombie"))
    assert move.finding("commit_while_fenced").evidence.lines == (move.number("fence"), move.number("fence + 0"))


def test_many_records_behind_one_fence_are_one_finding() -> None:
    handed = [line(RecordDelivered, "old", "clicks", 0, offset) for offset in range(20, 25)]
    finding = Move().until("fence").behind("fence", *handed).finding("delivered_while_fenced")
    assert finding.evidence.offsets == ((20, 24),)


# --- near misses ------------------------------------------------------------------------------------------------


def test_what_the_plan_decided_counts_from_the_switch_on() -> None:
    move = Move().behind("fencing", line(PlannedKafkaOffset, "clicks", 0, 25)).but("copy", commit("kafka", 25, "tool"))
    move.but("new claims", claim("new", 25)).but("new reads", hand("new", 25, 29))
    assert move.codes() == {"lost"}, "what the plan passed over is lost, and nothing else is wrong"


def test_a_commit_behind_the_plan_counts_more_than_what_it_decided() -> None:
    move = Move().behind("tool", line(PlannedKafkaOffset, "clicks", 0, 15))
    assert move.codes() == set(), "the old member committed 20 since, and that was carried over"


def test_the_tool_may_put_back_what_counts() -> None:
    """Old tools delete the offsets of a group that nobody is in."""
    assert Move().behind("copy", commit("zookeeper", 20, "tool")).codes() == set()


def test_a_reset_says_where_an_owner_may_start() -> None:
    move = Move().behind("leave", line(OffsetJumpAllowed, "clicks", 0, 15, "auto.offset.reset", "new"))
    move.but("new claims", claim("new", 15)).but("new reads", hand("new", 15, 29))
    assert move.codes() == set()


def test_a_commit_below_the_last_one_counts_nevertheless() -> None:
    """Whether it may go back is said by commit_rewound; the next owner starts there."""
    move = Move().behind("new commits", commit("kafka", 25, "new"))
    assert "commit_lost_on_return" in move.codes()
    assert "commit_lost_on_return" not in move.but("return", commit("zookeeper", 25, "tool")).codes()


def test_zookeeper_that_stores_the_last_offset_is_one_behind() -> None:
    move = (
        Move().but("started", line(InitialOffset, "clicks", 0, 10)).but("old commits", commit("zookeeper", 19, "old"))
    )
    move.but("return", commit("zookeeper", 29, "tool")).but("last", commit("zookeeper", 99, "old"))
    assert not move.codes(zookeeper_plus=1) & BROKEN.keys()
    assert move.codes() & BROKEN.keys()


def test_without_access_lists_a_zombie_can_write_and_is_named() -> None:
    zombie = commit("zookeeper", 20, "zombie")
    verdict = Move().behind("fence", zombie).verdict(acl_fence=0)
    assert verdict.ok
    assert [one.reason for one in verdict.allowances] == ["scala_zombie"]
    behind_the_copy = Move().behind("copy", commit("zookeeper", 15, "zombie"))
    assert "authority_moved_stale" in behind_the_copy.codes(acl_fence=0), (
        "what it did to the copy is found all the same"
    )


def test_a_scala_member_checks_no_owner() -> None:
    move = Move().behind("old claims", commit("zookeeper", 10, "zombie"))
    assert move.codes() == set()
    assert [one.reason for one in move.verdict().allowances] == ["scala_zombie"]


def test_in_dual_the_other_store_may_be_behind() -> None:
    move = Move().dual().behind("old commits", commit("kafka", 20, "old")).without("copy", "seat", "fence")
    move.without("seat again").behind("new commits", commit("zookeeper", 30, "new"))
    assert move.codes() == set()
    late = Move().dual().behind("new commits", commit("zookeeper", 25, "new"))
    assert late.codes() == set(), "it is brought up before the authority moves"


def test_in_dual_kafka_has_a_commit_first_once_it_has_every_partition() -> None:
    """In ``copied``: a member wrote Kafka, and the authority moved before it wrote ZooKeeper."""
    copied = [control(2, "copied", "zookeeper"), commit("kafka", 19, "old")]
    move = Move().behind("planned", *copied).dual().without("old commits", "copy", "seat", "fence", "seat again")
    move.but("new claims", claim("new", 19)).but("new reads", hand("new", 19, 29))
    assert move.codes() == {"duplicated"}, "it had not committed the last one"
    lower = Move().behind("planned", control(2, "copied", "zookeeper"), commit("kafka", 19, "old")).dual()
    lower.without("copy", "seat", "fence", "seat again")
    assert "authority_moved_stale" in lower.codes(), "ZooKeeper took 20 and Kafka never did"


def test_a_killed_migrator_and_the_next_one_are_one_history() -> None:
    again = [line(Killed, "tool"), line(MemberDeclared, "tool 2", "migrator"), commit("kafka", 20, "tool 2")]
    assert Move().behind("copy", *again).codes() == set()


def test_after_a_migration_that_ended_another_may_begin() -> None:
    again = [control(6, "planned", "zookeeper", "m2")]
    assert Move().behind("undone", *again).codes() == set()
    assert "stale_epoch" in Move().behind("undone", control(4, "planned", "zookeeper", "m2")).codes()


def test_commits_that_an_observer_saw_are_judged_as_before() -> None:
    """They may be late: nothing of M1, M3, M4 and M6 can be said, and what can be is."""
    move = Move()
    for name, (event, args, kwargs) in list(move.lines.items()):
        if event is OffsetCommitted:
            kwargs.pop("store")
            move.but(name, (event, args[:3], kwargs))
    # The copies are seen too, and an observer cannot tell them from commits.
    assert move.codes() == set()
    assert move.but("new claims", claim("new", 19)).codes() & BROKEN.keys() == set()


def test_without_a_migration_both_stores_may_be_written() -> None:
    """``dual.commit.enabled``: ZooKeeper and Kafka, and nobody moves."""
    move = Move().until("old commits").without("planned").behind("old commits", commit("kafka", 20, "old"))
    assert move.codes() == set()


def test_a_fence_of_half_a_partition_is_refused() -> None:
    with pytest.raises(HistoryError, match="of a topic and a partition"):
        Move().behind("fence", line(Fenced, "kafka", "clicks")).verdict()


# --- M5 ---------------------------------------------------------------------------------------------------------


def ended(nodes: dict[str, str], others: dict[str, str]) -> list[HistoryEvent]:
    return Move().until("new commits").behind("new commits", line(StateSnapshot, "end", nodes, others)).events


def test_a_history_must_end_as_the_one_without_a_kill() -> None:
    whole = end_state(ended(NODES, {"kafka": "20"}))
    assert check_history(ended(NODES, {"kafka": "20"}), expected_end=whole).ok
    verdict = check_history(ended(NODES, {"kafka": "19"}), expected_end=whole)
    assert verdict.codes == {"end_state_differs"}
    assert "kafka is '19' and not '20'" in verdict.findings[0].text
    assert check_history(ended({}, {"kafka": "20"}), expected_end=whole).codes == {"end_state_differs"}


def test_a_history_that_was_undone_need_not_end_as_the_whole_one() -> None:
    whole = end_state(ended(NODES, {"kafka": "20"}))
    assert check_history(Move().events, expected_end=whole).ok
    assert check_history(BROKEN["end_state_differs"]["a node came"]().events, expected_end=whole).codes == {
        "end_state_differs"
    }


def test_a_history_without_its_end_cannot_be_compared() -> None:
    whole = end_state(ended(NODES, {}))
    assert check_history(Move().until("last").events, expected_end=whole).codes == {"end_state_differs"}
    assert end_state(Move().until("last").events) is None


def test_only_so_many_differences_are_told() -> None:
    whole = end_state(ended({str(number): "x" * 200 for number in range(9)}, {}))
    text = check_history(ended({}, {}), expected_end=whole).findings[0].text
    assert "0 is missing and not 'xxx" in text
    assert "and 4 more" in text or text.endswith("4 more")
    assert len(text) < 1_000
