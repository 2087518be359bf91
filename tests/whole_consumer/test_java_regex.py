"""Generated patterns: what Java answers, and what we do."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.java_regex_cases import INVALID, answers, generated, names
from tests.sandbox_fixtures import require_releases
from zkconsumer.errors import InvalidTopicFilter
from zkconsumer.member.topic_filter import PatternNotEvaluable, Whitelist

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

NAMES = 24
UNTOLD = "?!"
"""Java needed too many steps, or stumbled over its own feet."""


@pytest.mark.parametrize(
    ("count", "seed"), [pytest.param(2_000, 1), *(pytest.param(30_000, n, marks=pytest.mark.nightly) for n in (2, 3))]
)
def test_what_we_evaluate_java_evaluates_alike_and_what_we_call_invalid_it_refuses(count: int, seed: int) -> None:
    require_releases()
    table = [(pattern, names(pattern, NAMES, seed)) for pattern in dict.fromkeys(generated(count, seed))]
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for (pattern, of), said in zip(table, answers(table), strict=True):
        try:
            made = Whitelist(pattern)
        except InvalidTopicFilter as refused:
            counts["invalid"] += 1
            if said != INVALID:
                wrong.append(f"Java compiles {pattern!r}: {refused}")
        except PatternNotEvaluable:
            counts["refused"] += 1
        else:
            counts["exact"] += 1
            if said[0] not in "01?!":
                wrong.append(f"Java says of {pattern!r}: {said}")
                continue
            for name, answer in zip(of, said, strict=True):
                ours = made.is_topic_allowed(name, exclude_internal_topics=False)
                counts["matches"] += ours
                if answer not in UNTOLD and ours is not (answer == "1"):
                    wrong.append(f"{pattern!r} and {name!r}: Java says {answer}")
    assert not wrong, "\n".join(wrong[:20])
    assert counts["exact"] > count / 5, counts
    assert counts["invalid"] > count / 40, counts
    assert counts["matches"] > count / 2, counts
