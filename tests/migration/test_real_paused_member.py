"""A Scala consumer that was paused beyond its session and resumes after the fences were set, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.testing.sandbox import ScalaMember, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(200)]

PARTITIONS = 4
PER_SECOND = 400
WAKES_MS = 30_000


SERVERS = [("3.9.1", "3.8"), pytest.param(("1.1.1", "3.4.6"), marks=pytest.mark.nightly)]


@pytest.fixture(params=SERVERS, ids="-zookeeper-".join)
def moving(
    request: pytest.FixtureRequest, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> Iterator[RealGroup]:
    require_releases("0.8.2.2", "1.1.1")
    group, topic = names
    made = RealGroup(clusters.get(*request.param), group, topic, PARTITIONS, tmp_path)
    yield made
    made.close()


def moved_while_one_sleeps(moving: RealGroup, release: str, *options: str) -> ScalaMember:
    """Two members read, one is paused, the other one takes all and is stopped; the offsets are in Kafka."""
    moving.load(PER_SECOND)
    zombie = moving.scala("original", "zombie", release, settings={"auto.commit.interval.ms": "300"})
    moving.scala("original", "other", "1.1.1")
    wait_until(lambda: len(set(moving.owners().values())) == 2, "they share", 30_000)
    moving.wait_delivered("original", 1_000)
    before = {number for _, number, _ in moving.handed("original")}
    assert len(before) == PARTITIONS
    zombie.pause()
    wait_until(lambda: set(moving.owners().values()) == {f"{moving.group}_other-0"}, "the other takes all", 60_000)
    seen = moving.handed("original").total()
    moving.wait_delivered("original", seen + 1_000)
    moving.stop("original", but=zombie)
    moving.halt()
    moving.migrate(
        "apply", moving.plan("--offset-convention", "next", *options), "--execute", "--stop-after", "verified"
    )
    return zombie


@pytest.mark.parametrize("release", ["1.1.1", pytest.param("0.8.2.2", marks=pytest.mark.nightly)])
def test_a_member_that_resumes_after_the_fence_can_neither_write_nor_register(moving: RealGroup, release: str) -> None:
    zombie = moved_while_one_sleeps(moving, release)
    before = moving.stores()
    zombie.resume()
    wait_until(lambda: "NoAuth" in zombie.process.log_text(), "it wakes and is refused", WAKES_MS)
    zombie.process.write_line("commit")
    # It has forgotten its partitions by then, or its commit is refused, too.
    wait_until(lambda: zombie.count("committed") or zombie.count("failed"), "it has tried to commit", WAKES_MS)
    assert moving.stores() == before
    moving.migrate("apply", *moving.kept, "--execute")
    assert moving.in_kafka() == moving.in_zookeeper()


@pytest.mark.nightly
def test_without_access_lists_it_writes_an_old_offset_and_that_is_seen(moving: RealGroup) -> None:
    zombie = moved_while_one_sleeps(moving, "1.1.1", "--no-acl-fence")
    before = moving.in_zookeeper()
    zombie.resume()
    wait_until(lambda: moving.in_zookeeper() != before, "it wakes and writes", WAKES_MS)
    zombie.kill()
    stopped = moving.migrate("apply", *moving.kept, "--no-acl-fence", "--execute", expect=6)
    assert "it went back" in stopped.stderr
    assert moving.status()["authority"] == "zookeeper"
    assert moving.in_kafka() == before
