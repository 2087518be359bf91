"""Owner fences alone block a late Scala consumer; it stays, and is named after they are removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.testing.sandbox import wait_until

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(280)]

PARTITIONS = 3
RECORDS = 3_000
GIVES_UP_SOON = {"rebalance.max.retries": "4", "rebalance.backoff.ms": "300"}


@pytest.fixture
def moving(clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> Iterator[RealGroup]:
    require_releases("0.8.2.2", "1.1.1")
    group, topic = names
    made = RealGroup(clusters.get("1.1.1"), group, topic, PARTITIONS, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("release", ["1.1.1", "0.8.2.2"])
def test_a_late_member_acquires_nothing_and_the_rollback_reports_that_it_must_be_restarted(
    moving: RealGroup, release: str
) -> None:
    moving.produce(RECORDS)
    moving.scala("original", "old", "1.1.1")
    moving.wait_delivered("original", RECORDS)
    moving.stop("original")
    moving.produce(RECORDS)
    plan = moving.plan("--offset-convention", "next", "--no-acl-fence")
    moving.migrate("apply", plan, "--execute", "--stop-after", "verified")
    offsets, owners = (moving.in_zookeeper(), moving.in_kafka()), moving.owners()

    late = moving.scala("late", "late", release, wait=False, ignores_start_errors=True, settings=GIVES_UP_SOON)
    wait_until(lambda: late.count("failed"), "its tries are used up", 60_000)
    assert "ConsumerRebalanceFailedException" in str(late.events)
    assert (moving.in_zookeeper(), moving.in_kafka()) == offsets
    assert moving.owners() == owners, "all fences exist"
    assert moving.status()["registered"] == [f"{moving.group}_late"]

    done = moving.migrate("rollback", moving.group, "--execute")
    assert f"restart the members that own them ({moving.group}_late" in done.stderr
    assert set(moving.owners().values()) == {f"{moving.group}_late-0"}, "it was woken, and claims"
    assert (moving.in_zookeeper(), late.delivered) == (offsets[0], []), "but nobody reads"
    late.stop()
    moving.scala("back", "back", "1.1.1")
    moving.wait_drained()
    moving.stop("back")
    judged = moving.judge()
    assert (judged.missing, judged.across) == (0, 0), judged
