"""``zkconsumer lag`` and ``groups describe``: the lag in seconds and its trend, on a cluster in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.admin_fixtures import RunTool, put, run_at
from tests.in_memory_fixtures import MakeWorld
from tests.transactional_records import Transactions
from zkconsumer.cli import lag as lag_command
from zkconsumer.testing.manual_clock import ManualClock

COLUMNS = "TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG LAG-SECONDS TREND CAUGHT-UP-IN CONSUMER-ID"


def old_records(world: FakeEnvironment, clock: ManualClock, partition: int, *ages_ms: int) -> None:
    for age_ms in ages_ms:
        world.cluster.append("clicks", partition, [b"x"], timestamp_ms=clock.wall_ms() - age_ms)


def test_the_first_unread_record_gives_the_seconds_and_one_read_gives_no_trend(world: FakeEnvironment) -> None:
    clock = ManualClock()
    world.create_topic("clicks", 3)
    old_records(world, clock, 0, 500_000, 100_000, 30_000)
    old_records(world, clock, 1, 500_000)
    put(world, {0: 1, 1: 1})
    lines = run_at(world, clock, "lag", "g1").stdout.splitlines()
    assert [line.split() for line in lines[:-2]] == [
        COLUMNS.split(),
        ["clicks", "0", "1", "3", "2", "100", "?", "?", "-"],
        ["clicks", "1", "1", "1", "0", "0", "caught-up", "now", "-"],
        ["clicks", "2", "-", "0", "-", "-", "-", "-", "-"],
    ]
    assert lines[-2:] == [
        "LARGEST LAG-SECONDS at least 100 (CreateTime)  (1 of 3 partitions not known)",
        "TOTAL 2  (1 of 3 partitions without an offset)",
    ]
    described = run_at(world, clock, "groups", "describe", "g1").stdout.splitlines()
    assert [line.split()[-1] for line in described] == ["LAG-SECONDS", "100", "0", "-"]


def test_an_offset_outside_of_the_log_has_unknown_seconds_and_a_reason(world: FakeEnvironment, tool: RunTool) -> None:
    world.create_topic("clicks", 2)
    old_records(world, ManualClock(), 0, 9_000, 9_000)
    world.cluster.delete_before("clicks", 0, 1)
    put(world, {0: 0, 1: 7})
    rows = json.loads(tool("lag", "g1", "-o", "json").stdout)["partitions"]
    values = [(row["lag_seconds"], row["trend"], row["unknown"]) for row in rows]
    assert values == [(None, "unknown", ["lag_seconds"])] * 2
    assert "before the start of the log (1), so auto.offset.reset decides" in rows[0]["lag_time"]["reason"]
    assert "beyond the end of the log (0), so auto.offset.reset decides" in rows[1]["lag_time"]["reason"]


def test_an_offset_that_cannot_be_read_is_not_an_offset_that_does_not_exist(
    world: FakeEnvironment, tool: RunTool
) -> None:
    world.create_topic("clicks", 1)
    put(world, {0: b"abc"})
    [row] = json.loads(tool("lag", "g1", "-o", "json").stdout)["partitions"]
    assert row["lag_time"]["reason"] == "the offset of the group is not known"


def test_a_broker_that_is_gone_makes_only_its_partitions_unknown(make_world: MakeWorld) -> None:
    world, clock = make_world(2), ManualClock()
    world.create_topic("clicks", 2)
    for partition in (0, 1):
        old_records(world, clock, partition, 50_000)
    put(world, {0: 0, 1: 0})
    world.cluster.stop_broker(world.cluster.addresses[0].broker_id)
    done = run_at(world, clock, "lag", "g1")
    assert [line.split()[4:6] for line in done.stdout.splitlines()[1:3]] == [["?", "?"], ["1", "50"]]
    assert done.exit_code == 1


def test_a_reader_of_committed_records_has_caught_up_at_the_last_stable_offset(
    world: FakeEnvironment, tool: RunTool, tmp_path: Path
) -> None:
    world.create_topic("clicks", 1)
    log = Transactions(world.cluster, "clicks")
    log.plain(2)
    log.records(7, 3)
    put(world, {0: 2})
    config = tmp_path / "consumer.properties"
    config.write_text("group.id=g1\nisolation.level=read_committed\n")
    [row] = json.loads(tool("lag", "g1", "-o", "json", "--config", str(config)).stdout)["partitions"]
    assert (row["lag"], row["lag_seconds"]) == (3, 0)
    [row] = json.loads(tool("lag", "g1", "-o", "json").stdout)["partitions"]
    assert row["lag_seconds"] > 0


def test_an_observed_group_has_a_trend_and_a_time_at_which_it_has_caught_up(
    world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    world.create_topic("clicks", 1)
    for _ in range(1_000):
        world.cluster.append("clicks", 0, [b"x"], timestamp_ms=clock.wall_ms() - 60_000)
    put(world, {0: 0})

    class CommittingPause:
        """While the command waits, the group commits: ten records a second."""

        def wait(self, timeout_ms: int) -> bool:
            clock.move(timeout_ms)
            put(world, {0: clock.now_ms() // 100 - ManualClock().now_ms() // 100})
            return False

    monkeypatch.setattr(lag_command, "StopSignal", CommittingPause)
    monkeypatch.setattr(lag_command, "SYSTEM_CLOCK", clock)
    found = json.loads(run_at(world, clock, "lag", "g1", "--observe", "20", "--interval", "2", "-o", "json").stdout)
    [row] = found["partitions"]
    assert (row["current_offset"], row["lag_seconds"], row["trend"]) == (200, 80, "catching-up")
    assert row["caught_up_in_seconds"] == found["caught_up_in_seconds"] == 80


def test_watch_and_observe_exclude_each_other(tool: RunTool, world: FakeEnvironment) -> None:
    done = tool("lag", "g1", "--watch", "--observe", "5")
    assert done.exit_code == 2
    assert "--watch observes as long as it runs" in str(done.exception) + done.stderr
