"""Members of a group that moves with its members are killed one after the other, on real servers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.migration.test_real_dual import STAGE, Flips, group
from tests.sandbox_fixtures import Clusters
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.testing.sandbox import wait_until

pytestmark = [pytest.mark.real, pytest.mark.nightly]

PARTITIONS = 12
COMMIT_MS = 500
SESSION_MS = 30_000
SETTINGS = {
    "heartbeat.interval.ms": "500",
    "session.timeout.ms": str(SESSION_MS),
    "auto.commit.enable": "true",
    "auto.commit.interval.ms": str(COMMIT_MS),
}
JOINS_AFTER_S, KILLED_AFTER_S = 3.0, 3.5
"""The group rebalances from the join on, and waits for the first member until its session ends.  Until then the second
one reads on: its lease lasts for two thirds of the session time-out."""

REPEATED_MS_MAX = 1_500
"""How much of the second member's reading may be repeated: three intervals.  Wall time, because a process is killed in
wall time: a machine that stops the member for a second before its death breaks it.  Before, it was 3,400."""


def is_rebalancing(store: KafkaOffsetAdmin) -> bool:
    found = store.coordinator_group()
    return found is not None and found.state == "PreparingRebalance"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("broker", ["3.9.1", "1.1.1"])
def test_a_member_that_is_killed_while_the_group_rebalances_repeats_no_more_than_its_commit_interval(
    broker: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    with group(clusters, names, tmp_path, broker, PARTITIONS) as moving:
        flips = Flips(moving, 4, SETTINGS)
        flips.there()
        # The other half calls commit_offsets(), which waits: where commits are refused, those members read nothing.
        first, _, second, *_ = moving.stages[STAGE]
        failed: list[BaseException] = []

        def roll_back() -> None:
            try:
                moving.migrate("rollback", moving.group, "--execute")
            except BaseException as error:  # noqa: BLE001 - it is raised where the test waits
                failed.append(error)

        way_back = threading.Thread(target=roll_back)
        # Without a kill before it, the rollback ends in less time than a status command takes.
        first.kill()
        way_back.start()
        time.sleep(JOINS_AFTER_S)
        moving.dual(STAGE, "late", SETTINGS)
        with moving.session() as session:
            store = KafkaOffsetAdmin(session, moving.group)
            wait_until(lambda: is_rebalancing(store), "the coordinator's group waits for the first member", SESSION_MS)
        time.sleep(KILLED_AFTER_S)
        assert moving.status()["phase"] == "returning"
        second.kill()
        way_back.join()
        assert not failed, failed
        moving.halt()
        moving.wait_drained()
        moving.stop(STAGE)
        readers = Counter((one.partition, one.offset) for member in moving.stages[STAGE] for one in member.delivered)
        again = [one for one in second.delivered if readers[(one.partition, one.offset)] > 1]
        repeated_ms = second.delivered[-1].t_ms - min((one.t_ms for one in again), default=second.delivered[-1].t_ms)
        judged = moving.judge()
        print(f"{judged}; {len(again)} of the second member's are read again, {repeated_ms} ms of its reading")
        assert judged.missing == 0
        assert repeated_ms <= REPEATED_MS_MAX
