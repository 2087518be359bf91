"""``migrate`` with strategy dual on real servers: members that stay, under load, there and back again and again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.testing.sandbox import wait_until

pytestmark = [pytest.mark.real]

STAGE = "members"
PER_PARTITION = 40
"""Records a second: one every 25 ms."""
GOAL_MS = 1_000
BREATH_MS = 500
QUICK = {"heartbeat.interval.ms": "500"}
"""A member of the coordinator's group learns by its heartbeats that others have come."""
GIVES_UP_SOON = {"rebalance.max.retries": "4", "rebalance.backoff.ms": "300"}


class Gap(NamedTuple):
    """A partition gave nothing for so long, from then on (wall clock)."""

    ms: int
    partition: int
    from_ms: int


class Flips:
    """A group of members that stay, how long each move took, and the longest time in which a partition gave nothing."""

    def __init__(self, moving: RealGroup, members: int, settings: Mapping[str, str] | None = None) -> None:
        self.moving = moving
        self.took_s: dict[str, list[float]] = {"apply": [], "rollback": []}
        self.gaps_ms: dict[str, list[int]] = {"apply": [], "rollback": []}
        moving.load(PER_PARTITION * moving.partitions)
        for number in range(members):
            # Half of them call commit_offsets(), and all commit by themselves, too.
            moving.dual(STAGE, f"m{number}", settings, commit_every=50 if number % 2 else None)
        for member in moving.stages[STAGE]:
            member.wait_started()
        moving.wait_delivered(STAGE, 10 * moving.partitions)
        wait_until(lambda: len(set(moving.owners().values())) == members, "every member owns something", 60_000)
        wait_until(lambda: len(moving.in_zookeeper()) == moving.partitions, "everything is committed", 60_000)

    def there(self) -> None:
        """To the coordinator."""
        # Under load nothing need show what the numbers mean; later moves know it from the first one.
        decisions = () if self.took_s["rollback"] else ("--offset-convention", "next")
        plan = self.moving.plan("--strategy", "dual", *decisions)
        with self._watched("apply"):
            self.moving.migrate("apply", plan, "--execute")

    def back(self) -> None:
        """To ZooKeeper."""
        with self._watched("rollback"):
            self.moving.migrate("rollback", self.moving.group, "--execute")

    @contextmanager
    def _watched(self, way: str) -> Iterator[None]:
        since_ms, begun_s = round(time.time() * 1000), time.monotonic()
        yield
        self.took_s[way].append(time.monotonic() - begun_s)
        until_ms = round(time.time() * 1000)
        # Records that are produced after a migration belong to it, too.
        wait_until(lambda: self._is_read_since(until_ms + BREATH_MS), "every partition is read on", 60_000)
        gap = self._longest_gap(since_ms, until_ms)
        self.gaps_ms[way].append(gap.ms)
        print(
            f"{way}: {self.took_s[way][-1]:.1f} s; longest gap {gap.ms} ms, partition {gap.partition}, "
            f"{(gap.from_ms - since_ms) / 1000:.1f} s behind its beginning", flush=True,
        )  # fmt: skip

    def _times(self) -> dict[int, list[int]]:
        """Partition -> when a record of it was given, in order."""
        times: dict[int, list[int]] = {}
        for member in self.moving.stages[STAGE]:
            for message in member.delivered:
                times.setdefault(message.partition, []).append(message.t_ms)
        return {partition: sorted(found) for partition, found in times.items()}

    def _is_read_since(self, since_ms: int) -> bool:
        times = self._times()
        return len(times) == self.moving.partitions and all(found[-1] > since_ms for found in times.values())

    def _longest_gap(self, since_ms: int, until_ms: int) -> Gap:
        return max(
            Gap(later - earlier, partition, earlier)
            for partition, found in self._times().items()
            for earlier, later in pairwise(found)
            if later >= since_ms and earlier <= until_ms + BREATH_MS
        )

    def end(self) -> None:
        """Everything was read, once."""
        self.moving.halt()
        self.moving.wait_drained()
        self.moving.stop(STAGE)
        judged = self.moving.judge()
        print(f"{judged}; {self}")
        assert (judged.missing, judged.again[STAGE]) == (0, 0), judged

    def __str__(self) -> str:
        return "; ".join(
            f"{way}: {statistics.median(took):.1f} s (at most {max(took):.1f}), a partition gave nothing for "
            f"{statistics.median(self.gaps_ms[way]):.0f} ms (at most {max(self.gaps_ms[way])})"
            for way, took in self.took_s.items()
        )


@contextmanager
def group(
    clusters: Clusters, names: tuple[str, str], folder: Path, broker: str, partitions: int
) -> Iterator[RealGroup]:
    made = RealGroup(clusters.get(broker), *names, partitions, folder)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(280)
def test_three_members_migrate_and_return_twice(clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> None:
    with group(clusters, names, tmp_path, "3.9.1", 6) as moving:
        flips = Flips(moving, 3, QUICK)
        for _ in range(2):
            flips.there()
            flips.back()
        flips.end()


@pytest.mark.nightly
@pytest.mark.timeout(540)
@pytest.mark.parametrize("broker", ["3.9.1", "1.1.1"])
def test_eight_members_migrate_and_return_ten_times(
    broker: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    with group(clusters, names, tmp_path, broker, 16) as moving:
        flips = Flips(moving, 8)
        for _ in range(10):
            flips.there()
            assert moving.status()["authority"] == "kafka"
            flips.back()
            assert moving.status()["authority"] == "zookeeper"
        flips.end()


@pytest.mark.nightly
@pytest.mark.timeout(280)
@pytest.mark.parametrize("release", ["1.1.1", "0.8.2.2"])
def test_a_late_scala_consumer_is_named_and_does_no_harm(
    release: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    require_releases(release)
    with group(clusters, names, tmp_path, "1.1.1", 6) as moving:
        flips = Flips(moving, 3, QUICK)
        flips.there()
        late = moving.scala("late", "late", release, wait=False, ignores_start_errors=True, settings=GIVES_UP_SOON)
        wait_until(lambda: late.count("failed"), "its tries are used up", 60_000)
        assert "ConsumerRebalanceFailedException" in str(late.events)
        name = f"{moving.group}_late"
        status = moving.status()
        assert [one["consumer_id"] for one in status["members"] if not one["acknowledged"]] == [name], status
        told = moving.migrate("status", moving.group).stdout
        [line] = [line for line in told.splitlines() if name in line]
        print(f"status: {line}")

        # It stops the rollback, which continues when it has left.
        refused = moving.migrate("rollback", moving.group, "--execute", "--timeout", "5", expect=6)
        assert name in refused.stderr, refused.stderr
        assert (moving.status()["authority"], moving.handed("late").total()) == ("kafka", 0)
        assert late.stop()
        flips.back()
        flips.end()
        assert (moving.handed("late").total(), moving.judge().across) == (0, 0)
