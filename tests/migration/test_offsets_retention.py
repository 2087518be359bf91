"""How long Kafka keeps the copied offsets, what plan and status show, and the report when the offsets have expired."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.migration.control.phases import Phase
from bridge.migration.inspect.copied_offsets import CopiedOffsetsStatus
from bridge.migration.inspect.migration_status import MigrationStatus, read_migration_status
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.offset_retention import DEFAULT_RETENTION_MS
from bridge.migration.plan.plan_file import plan_from_bytes, plan_to_bytes
from bridge.testing.fake_environment import ADDRESS
from tests.migration.group_snapshots import plan
from tests.migration.kill_cases import GROUP, LOG_END, PARTITIONS, T0, KillScenario
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, Lab, lab
from tests.migration.operator_shell import Shell, shell
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.group_offsets import commit_offsets
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9, SupportedVersions
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.wire.schemas import OFFSET_COMMIT
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)

__all__ = ["lab", "shell"]

DAY_MS = 86_400_000
THIRTY_DAYS = (30 * DAY_MS).to_bytes(8, "big")
BEFORE_KIP_211 = ["0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1"]
LATER = ["2.8.2", "3.9.1", "4.1.1"]
OTHER = "plain"


# --- the sent commits -------------------------------------------------------------------------------------------


class Noting:
    """A connection that records the commit as it would be sent, and answers that it was stored."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes]] = []

    def request(self, api: Any, version: int, body: Any, timeout_ms: int) -> Any:
        self.sent.append((version, encode_request(api, version, 1, "", body)))
        rows = [OffsetCommitPartitionResponse(partition_index=0)]
        return OffsetCommitResponse(topics=[OffsetCommitTopicResponse(name="t", partitions=rows)])


def commit_with(ranges: SupportedVersions, **how: Any) -> tuple[int, bytes]:
    connection: Any = Noting()
    commit_offsets(connection, ranges, "g", offsets={T0: OffsetAndMetadata(10)}, timeout_ms=1_000, **how)
    [sent] = connection.sent
    return sent  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("0.9.0.1", 2), ("0.10.2.2", 2), ("0.11.0.3", 3), ("1.1.1", 3), ("2.0.1", 4), ("2.8.2", 8), ("3.9.1", 9),
        ("4.1.1", 9),
    ],
)  # fmt: skip
def test_a_retention_is_sent_to_brokers_before_2_1_and_to_no_other(release: str, version: int) -> None:
    ranges = ASSUMED_FOR_0_9 if release == "0.9.0.1" else SupportedVersions(RELEASES[release].ranges)
    sent_as, body = commit_with(ranges, retention_ms=30 * DAY_MS)
    assert (sent_as, THIRTY_DAYS in body) == (version, release in BEFORE_KIP_211)
    assert THIRTY_DAYS not in commit_with(ranges)[1]


def test_a_broker_of_0_8_receives_the_version_that_it_supports() -> None:
    assert commit_with(ASSUMED_BEFORE_0_10, retention_ms=DAY_MS)[0] == 1


# --- what becomes of the copied offsets, on the development broker --------------------------------------------------


@pytest.fixture(autouse=True)
def quick_0_9(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of 0.9 is silent on the question what it speaks; this clock does not wait."""
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)


def copied(folder: Path, release: str, decisions: Decisions = DECISIONS) -> KillScenario:
    """A group that was switched on a broker of this release, and a commit of another group at the same time."""
    ground = KillScenario(folder, decisions, release)
    made = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, made)
    row = OffsetCommitPartition(partition_index=0, committed_offset=7, committed_metadata="")
    body = OffsetCommitRequest(group_id=OTHER, topics=[OffsetCommitTopic(name="t", partitions=[row])])
    connection = ground.broker.connect("")
    assert connection.request(OFFSET_COMMIT, 2, body, 1_000).topics[0].partitions[0].error_code == 0
    connection.close()
    return ground


def days_pass(ground: KillScenario, days: float) -> None:
    ground.pause(round(days * DAY_MS))
    while ground.broker.scheduler.run(ground.clock.now_ms()):
        pass


def has(ground: KillScenario, group: str) -> bool:
    """Whether the broker has an offset of t/0."""
    found = ground.broker.group(group)
    return found is not None and T0 in found.stored.offsets


@pytest.mark.parametrize("release", BEFORE_KIP_211)
def test_copied_offsets_outlive_a_plain_commit_by_weeks_on_brokers_before_2_1(tmp_path: Path, release: str) -> None:
    own_days = 7 if release == "2.0.1" else 1
    ground = copied(tmp_path, release)
    assert (has(ground, GROUP), has(ground, OTHER)) == (True, True)
    days_pass(ground, own_days + 0.1)
    assert (has(ground, GROUP), has(ground, OTHER)) == (True, False)
    days_pass(ground, 29.8 - own_days)
    assert has(ground, GROUP)
    days_pass(ground, 0.3)
    assert not has(ground, GROUP)


def test_the_operator_decides_how_long_they_are_kept(tmp_path: Path) -> None:
    ground = copied(tmp_path, "1.1.1", replace(DECISIONS, offsets_retention_ms=3 * DAY_MS))
    days_pass(ground, 2.9)
    assert has(ground, GROUP)
    days_pass(ground, 0.2)
    assert not has(ground, GROUP)


@pytest.mark.parametrize("release", LATER)
def test_later_brokers_keep_copied_offsets_without_an_end_of_their_own(tmp_path: Path, release: str) -> None:
    """With one, an idle partition's offset would expire in the first moment without members after that end."""
    ground = copied(tmp_path, release)
    group = ground.broker.group(GROUP)
    assert group is not None
    assert {one.value.expire_timestamp for one in group.stored.offsets.values()} == {None}
    days_pass(ground, 6.9)
    assert has(ground, GROUP)
    days_pass(ground, 0.2)
    assert not has(ground, GROUP)


# --- the plan ---------------------------------------------------------------------------------------------------


def test_a_plan_keeps_them_for_thirty_days_or_as_the_brokers_do_if_that_is_longer() -> None:
    old = {"keeps_by_commit": True}
    assert plan(retention_ms=DAY_MS, **old).offsets_retention_ms == DEFAULT_RETENTION_MS == 30 * DAY_MS
    assert plan(retention_ms=None, **old).offsets_retention_ms == 30 * DAY_MS
    assert plan(retention_ms=60 * DAY_MS, **old).offsets_retention_ms == 60 * DAY_MS
    decided = Decisions(offsets_retention_ms=DAY_MS)
    assert plan(retention_ms=60 * DAY_MS, decisions=decided, **old).offsets_retention_ms == DAY_MS


def test_a_plan_contains_until_when_the_copied_offsets_are_kept() -> None:
    made = plan(retention_ms=DAY_MS, keeps_by_commit=True)
    [said] = [words for words in made.warnings if "--offsets-retention" in words]
    assert "keep an offset for 1 d from its commit" in said
    assert "committed for 30 d (--offsets-retention), now until 2014-12-17T17:46:10Z" in said


def test_a_retention_that_is_not_sent_is_reported() -> None:
    [said] = [words for words in plan(decisions=Decisions(offsets_retention_ms=DAY_MS)).warnings if "not sent" in words]
    assert said.startswith("--offsets-retention is not sent to these brokers (2.1 and later)")
    assert not any("--offsets-retention" in words for words in plan().warnings)


def test_a_plan_without_a_decision_has_the_bytes_that_it_had_before() -> None:
    made = plan()
    assert b"offsets_retention_ms" not in plan_to_bytes(made)
    assert b"fences" not in plan_to_bytes(made)
    decided = plan(decisions=Decisions(offsets_retention_ms=DAY_MS))
    assert b'"offsets_retention_ms":86400000' in plan_to_bytes(decided)
    assert plan_from_bytes(plan_to_bytes(decided)) == decided
    left = plan(fences_migration_id="m0", fences_error="why")
    assert plan_from_bytes(plan_to_bytes(left)) == left


@pytest.mark.parametrize(("given", "ms"), [("P30D", 30 * DAY_MS), ("PT1M", 60_000), ("P3650D", 3_650 * DAY_MS)])
def test_the_duration_has_the_usual_format(shell: Shell, given: str, ms: int) -> None:
    group = shell.lab.new_group()
    file = shell.folder / "p"
    done = shell("plan", group, "-f", file, "--missing=earliest", "--offset-convention=next",
                 f"--offsets-retention={given}")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert plan_from_bytes(file.read_bytes()).decisions.offsets_retention_ms == ms


@pytest.mark.parametrize("given", ["30d", "PT59S", "P3650DT1S", "P1Y", ""])
def test_invalid_durations_are_refused(shell: Shell, given: str) -> None:
    done = shell("plan", shell.lab.new_group(), "-f", shell.folder / "p", f"--offsets-retention={given}")
    assert done.exit_code == 2
    assert "--offsets-retention" in done.stderr
    assert not (shell.folder / "p").exists()


# --- the status -------------------------------------------------------------------------------------------------


def status(ground: KillScenario) -> MigrationStatus:
    with ground.process() as session:
        return read_migration_status(session, GROUP)


def found_of(ground: KillScenario) -> CopiedOffsetsStatus:
    found = status(ground).copied
    assert found is not None
    return found


def test_status_shows_until_when_and_that_all_exist(tmp_path: Path) -> None:
    ground = KillScenario(tmp_path, DECISIONS, "1.1.1")
    made = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, made, stop_after=Phase.FENCED)
    assert status(ground).copied is None, "nothing is copied yet"
    ground.pause(5_000)
    at_ms = ground.clock.wall_ms()
    with ground.process() as session:
        ground.apply(session, made)
    found = found_of(ground)
    assert (found.count, found.lost, found.error) == (3, (), "")
    assert found.kept_until_ms is not None
    assert 0 <= found.kept_until_ms - at_ms - 30 * DAY_MS < 60_000
    for tp in PARTITIONS:
        assert ground.commit(GROUP, tp.partition, LOG_END) == 0
    assert found_of(ground).lost == (), "members commit greater ones"
    with ground.process() as session:
        ground.complete(session, remove_fences=False)
    assert status(ground).copied is None


def test_a_repeated_run_does_not_extend_the_retention(tmp_path: Path) -> None:
    """Only missing offsets are committed again, so the first commit counts."""
    ground = KillScenario(tmp_path, DECISIONS, "1.1.1")
    made = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, made, stop_after=Phase.COPIED)
    first = found_of(ground).kept_until_ms
    days_pass(ground, 1)
    with ground.process() as session:
        ground.apply(session, made)
    assert found_of(ground).kept_until_ms == first


def test_status_shows_how_long_later_brokers_keep_them(tmp_path: Path) -> None:
    found = found_of(copied(tmp_path, "3.9.1"))
    assert found.kept_until_ms is None
    assert found.retention_text == "for 7 d (offsets.retention.minutes) after the last member of the group has left"


def test_a_journal_without_the_commit_is_reported(tmp_path: Path) -> None:
    ground = copied(tmp_path, "1.1.1")
    ground.zookeeper.remove("/zkconsumer/groups/g/journal")
    found = found_of(ground)
    assert found.kept_until_ms is None
    assert found.retention_text.startswith("not known: the journal does not say")


def test_expired_offsets_are_named_with_the_remedy_and_committed_again_before_the_switch(tmp_path: Path) -> None:
    ground = KillScenario(tmp_path, DECISIONS, "1.1.1")
    made = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, made, stop_after=Phase.COPIED)
    days_pass(ground, 31)
    found = found_of(ground)
    nothing = "Kafka has nothing, not {} or more, as was copied"
    assert [str(one) for one in found.lost] == [f"{tp}: {nothing.format(EXPECTED[tp])}" for tp in PARTITIONS]
    assert found.recovery_text(GROUP, Phase.COPIED).endswith("zkconsumer migrate apply --resume g --execute")
    with ground.process() as session:
        ground.apply(session, made)
    assert found_of(ground).lost == ()


def test_offsets_that_expired_after_the_switch_need_a_rollback_to_zookeeper(tmp_path: Path) -> None:
    ground = copied(tmp_path, "1.1.1")
    days_pass(ground, 31)
    shown = status(ground)
    assert shown.copied is not None
    assert len(shown.copied.lost) == 3
    assert shown.next_commands[0] == "zkconsumer migrate rollback g --execute"
    assert "zkconsumer offsets set g --store kafka --topic t:0" in shown.copied.recovery_text(GROUP, Phase.SWITCHED)
    with ground.process() as session:
        ground.back(session, ground.kept(session, GROUP))
    assert {tp: EXPECTED[tp] for tp in ground.offsets(GROUP)} == ground.offsets(GROUP)


def test_an_offset_that_went_back_is_named_too(tmp_path: Path) -> None:
    ground = copied(tmp_path, "1.1.1")
    assert ground.commit(GROUP, 0, 4) == 0
    assert [str(one) for one in found_of(ground).lost] == ["t/0: Kafka has 4, not 10 or more, as was copied"]


def test_the_command_shows_the_kept_and_the_lost_offsets(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()
    assert shell("apply", file, "--execute").exit_code == 0
    shown = shell("status", group).stdout
    assert "copied offsets: 3 of 3 are in Kafka\n" in shown
    assert "Kafka keeps them: for 7 d (offsets.retention.minutes) after the last member of the group has left" in shown
    assert lab.commit_first(group, 0, 4) == 0
    lost = shell("status", group).stdout
    assert "copied offsets: 2 of 3 are in Kafka\n" in lost
    assert "lost: t/0: Kafka has 4, not 10 or more, as was copied\n" in lost
    copied = json.loads(shell("status", group, "-o", "json").stdout)["copied_offsets"]
    assert copied == {
        "count": 3,
        "lost": [{"topic": "t", "partition": 0, "text": "t/0: Kafka has 4, not 10 or more, as was copied"}],
        "kept_until_ms": None,
        "retention": "for 7 d (offsets.retention.minutes) after the last member of the group has left",
        "error": None,
    }
    back = f"zkconsumer migrate rollback {group} --execute --zookeeper {ADDRESS}"
    assert "what to do: they expired or were deleted" in lost
    assert back in lost
    ended = shell("complete", group, "--execute", "--confirm", group, "--archive", shell.folder / "archive")
    assert ended.exit_code == 0
    assert "Warning: t/0: Kafka has 4, not 10 or more, as was copied" in ended.stderr


def test_a_plan_that_is_not_there_leaves_the_comparison_unknown(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()
    assert shell("apply", file, "--execute").exit_code == 0
    lab.zookeeper.remove(f"/zkconsumer/groups/{group}/plan-0000")
    done = shell("status", group)
    assert done.exit_code == 1
    assert "copied offsets: not known:" in done.stdout
