"""The assignors against what Kafka's own made of the same groups (``tests/data/java-assignments.jsonl``, 3.9.1)."""

from __future__ import annotations

from collections import Counter

from tests.java_assignment_cases import case_of, faults, groups, is_followed, missing, moving, recorded, shares_of


def test_each_recorded_group_is_divided_as_kafka_divided_it() -> None:
    followed: Counter[str] = Counter()
    for case, said in recorded():
        shares = shares_of(said)
        if shares is not None and is_followed(case):
            assert case.ours() == shares, case.line()
            followed[case.assignor] += 1
    assert all(followed[name] >= 40 for name in ("range", "roundrobin", "sticky", "cooperative-sticky")), followed


def test_kafka_breaks_off_only_where_it_is_not_followed_or_an_earlier_owner_can_have_nothing_more() -> None:
    broken = {said for case, said in recorded() if shares_of(said) is None and is_followed(case)}
    assert broken <= {"broken NullPointerException"}


def test_every_partition_that_somebody_wants_has_exactly_one_owner_or_is_on_its_way() -> None:
    for case in groups(400, 7):
        shares = case.ours()
        assert set(shares) == set(case.members)
        assert faults(case, shares) == [], case.line()
        on_its_way = moving(case, shares) if case.assignor == "cooperative-sticky" else set()
        assert missing(case, shares) <= on_its_way, case.line()


def test_a_group_is_read_back_from_its_line() -> None:
    for case in groups(50, 3):
        assert case_of(case.line()) == case
