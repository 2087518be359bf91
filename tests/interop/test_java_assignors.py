"""Groups at random, each day others, divided by Kafka's own assignors and by ours."""

from __future__ import annotations

import datetime

import pytest

from tests.java_assignment_cases import answers, groups, is_followed, shares_of
from tests.sandbox_fixtures import require_releases

GROUPS = 3_000


@pytest.mark.real
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
def test_javas_clients_divide_groups_as_we_do(release: str) -> None:
    require_releases(release)
    seed = datetime.date.today().toordinal()
    cases = list(groups(GROUPS, seed))
    compared = 0
    for case, said in zip(cases, answers([case.line() for case in cases], release), strict=True):
        shares = shares_of(said)
        if shares is not None and is_followed(case):
            assert case.ours() == shares, f"seed {seed}: {case.line()}"
            compared += 1
    assert compared > GROUPS // 2
