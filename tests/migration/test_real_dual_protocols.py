"""Members that stay move to KRaft brokers, and a client of KIP-848 knocks in each phase."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import Sandbox, wait_until, zookeeper_release

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(280)]

PARTITIONS = 3
PER_SECOND = 60
KIP_848 = {"group.protocol": "consumer"}
QUICK = {"heartbeat.interval.ms": "500"}
MEMBERS = "members"


@pytest.fixture
def moving(names: tuple[str, str], tmp_path: Path) -> Iterator[RealGroup]:
    """Two members under load, whose offsets are in a ZooKeeper of their own."""
    require_releases("4.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        sandbox.start_kraft_broker("4.1.1")
        made = RealGroup(sandbox, *names, PARTITIONS, tmp_path)
        made.load(PER_SECOND)
        for number in range(2):
            made.dual(MEMBERS, f"m{number}", QUICK, commit_every=50 if number else None)
        made.wait_delivered(MEMBERS, 5 * PARTITIONS)
        wait_until(lambda: len(made.in_zookeeper()) == PARTITIONS, "everything is committed", 60_000)
        yield made
        made.close()


def knock(moving: RealGroup, phase: str, client: str, told: str) -> None:
    """A client that wants to join is refused, and was given nothing."""
    early = moving.modern(phase, phase, client, KIP_848)
    wait_until(lambda: any(told in str(event) for event in early.events), f"{phase}: it is refused", 30_000)
    early.close()
    assert moving.handed(phase).total() == 0


@pytest.mark.parametrize(("client", "told"), [("java-4.1.1", "GroupIdNotFoundException"), ("confluent", "_FATAL")])
def test_a_client_of_kip_848_does_not_come_in_beside_members_that_move(
    moving: RealGroup, client: str, told: str
) -> None:
    moving.plan("--strategy", "dual")
    words: tuple[str | Path, ...] = (moving.folder / f"{moving.group}.plan",)
    for phase in ("armed", "copied", "switched"):
        moving.migrate("apply", *words, "--execute", *(() if phase == "switched" else ("--stop-after", phase)))
        words = moving.kept
        knock(moving, phase, client, told)
        status = moving.status()
        assert status["phase"] == phase
        assert [one["acknowledged"] for one in status["members"]] == [True, True], status
        assert not status["waiting_for"], status
        handed = moving.handed(MEMBERS).total()
        moving.wait_delivered(MEMBERS, handed + 5 * PARTITIONS)
    moving.halt()
    moving.wait_drained()
    moving.stop(MEMBERS)
    judged = moving.judge()
    assert (judged.missing, judged.again[MEMBERS]) == (0, 0), judged
