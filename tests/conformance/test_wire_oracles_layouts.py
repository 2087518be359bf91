"""Our tables against Kafka's own classes: every field of every version, its type, its place, null and tags."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox_fixtures import require_releases
from tests.wire_message_samples import EVERY_VERSION
from tests.wire_oracles import layouts

BEYOND_4_1 = {("ListOffsets", 11)}
"""Only in releases that are not recorded."""

TAGGED_LATER = {("3.9.1", ("OffsetCommitValue", "stored", 4)): ", topic_id @0 uuid"}
"""A tagged field may join a version that there is: older readers pass over it."""


def our_tables() -> Iterator[tuple[str, str, int, type, bool]]:
    for api, version in EVERY_VERSION:
        yield api.name, "request", version, api.request, api.is_flexible(version)
        yield api.name, "response", version, api.response, api.is_flexible(version)
    for name, (cls, highest, flexible_from) in layouts.TABLES.items():
        for version in range(highest + 1):
            yield name, "stored", version, cls, version >= flexible_from


def recorded(release: str) -> dict[tuple[str, str, int], str]:
    return layouts.parsed(layouts.recorded_of(release).read_text())


@pytest.mark.parametrize("release", layouts.RELEASES)
def test_every_layout_is_that_of_kafkas_own_classes(release: str) -> None:
    theirs = recorded(release)
    mine = {(name, what, version): layouts.ours(cls, version, flex) for name, what, version, cls, flex in our_tables()}
    for (in_release, key), later in TAGGED_LATER.items():
        if in_release == release:
            mine[key] = mine[key].removesuffix(later)
    compared = theirs.keys() & mine.keys()
    assert {key: mine[key] for key in compared} == {key: theirs[key] for key in compared}
    assert not theirs.keys() - mine.keys(), "the release has versions that we have not"


def test_nothing_of_ours_escapes_the_comparison() -> None:
    known = {key for release in layouts.RELEASES for key in recorded(release)}
    mine = {(name, what, version) for name, what, version, _, _ in our_tables()}
    assert {(name, version) for name, _, version in mine - known} == BEYOND_4_1


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.parametrize("release", layouts.RELEASES)
def test_kafkas_classes_still_give_the_recorded_layouts(release: str) -> None:
    require_releases(release)
    assert layouts.printed_by_java(release) == layouts.recorded_of(release).read_text()
