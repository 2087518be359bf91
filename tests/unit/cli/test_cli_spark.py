"""``zkconsumer spark`` in a world in memory: what is printed, what is refused, and every exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from bridge.commands.spark_claims import CLAIM_COLUMNS
from bridge.spark.claims.records import BatchClaim, ClaimRecord, format_record, parse_record
from bridge.spark.group_membership import CommitMode
from bridge.spark.handoff.checkpoint_files import BadCheckpoint
from bridge.spark.handoff.reconcile import reconcile
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import RunTool, doors, join, put
from tests.spark_checkpoint_files import QUERY, CheckpointFolder, envelope, kafka
from zkconsumer.admin.kafka_offsets import OFFSETS_TOPIC
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, Multi, SetOp
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, format_control

P0, P1, P2 = (TopicPartition("clicks", number) for number in range(3))
OTHER_QUERY = "0"


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    """clicks: three partitions of 100 records; g1 stands at 40, 50 and nowhere."""
    world.create_topic("clicks", 3)
    for partition in range(3):
        world.cluster.append("clicks", partition, [b"x"] * 100, timestamp_ms=1_000)
    put(world, {0: 40, 1: 50})
    return world


@pytest.fixture
def spark(tool: RunTool) -> RunTool:
    """Runs ``zkconsumer spark <words> --group g1``."""
    return lambda command, *words: tool("spark", command, "--group", "g1", *map(str, words))


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoint")


@pytest.fixture
def run(spark: RunTool, folder: CheckpointFolder) -> Callable[..., Result]:
    """``zkconsumer spark reconcile`` with the checkpoint of the test."""
    return lambda *words: spark("reconcile", "--checkpoint", folder.root, *words)


def claimed(
    world: FakeEnvironment, tp: TopicPartition, *claims: tuple[int, int, int], query: str = QUERY, epoch: int = 1
) -> None:
    """A record of batch, first, end."""
    record = ClaimRecord(tuple(BatchClaim(*row, epoch, 1_000) for row in claims))
    world.zookeeper.ensure(paths.claims_of_partition("g1", query, tp), format_record(record))


def record(world: FakeEnvironment, tp: TopicPartition) -> ClaimRecord:
    return parse_record(world.zookeeper.data(paths.claims_of_partition("g1", QUERY, tp)) or b"", "")


def session(world: FakeEnvironment) -> FakeZkStore:
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    return store


def own(world: FakeEnvironment, tp: TopicPartition, thread: str = "g1_a-0", *, is_ours: bool = True) -> int:
    """An owner node; its czxid."""
    path = paths.owner("g1", tp)
    world.zookeeper.ensure(paths.owners_of_topic("g1", tp.topic))
    submit_and_wait(session(world), [Create(path, thread.encode(), ephemeral=True)], 1_000)
    if is_ours:
        submit_and_wait(session(world), [Multi((SetOp(path, thread.encode()),))], 1_000)
    return int(getattr(world.zookeeper.tree.exists(path), "czxid"))  # noqa: B009 (a stat, or None)


def offsets(world: FakeEnvironment) -> dict[int, int]:
    return world.offsets("g1", "clicks")


def decisions(result: Result) -> list[tuple[str, str, str, str, str]]:
    """Group now, committed, claimed, new offset and decision of each row."""
    heads, *rows = [line.split(maxsplit=7) for line in result.stdout.splitlines()]
    assert heads == ["TOPIC", "PARTITION", "STORE", "GROUP-NOW", "COMMITTED", "CLAIMED", "NEW-OFFSET", "DECISION"]
    return [(row[3], row[4], row[5], row[6], row[7]) for row in rows]


# --- reconcile, forward -----------------------------------------------------------------------------------------


def test_a_group_is_brought_forward_to_what_is_committed(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(6, envelope(6, {0: 30, 1: 30, 2: 0}, {0: 60, 1: 50, 2: 7}))
    folder.logged(7, envelope(7, {0: 60}, {0: 90, 1: 50, 2: 7}))
    result = run()
    assert result.exit_code == 3
    assert decisions(result) == [
        ("40", "60", "-", "60", "forward"),
        ("50", "50", "-", "-", "as committed"),
        ("-", "7", "-", "7", "forward"),
    ]
    assert result.stderr.startswith("Nothing was changed; 2 offsets would be. To do it: zkconsumer spark reconcile")
    assert offsets(world) == {0: 40, 1: 50}
    done = run("--execute")
    assert (done.exit_code, done.stderr) == (0, "Group g1: 2 offsets written.\n")
    assert offsets(world) == {0: 60, 1: 50, 2: 7}
    again = run("--execute")
    assert (again.exit_code, again.stderr) == (0, "There is nothing to change.\n")


def test_a_group_that_is_ahead_is_left_and_so_is_what_the_last_batch_did_not_have(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(6, envelope(6, {0: 30}, {0: 35, 1: 90}))
    result = run("--execute")
    assert result.exit_code == 0
    assert [row[3:] for row in decisions(result)] == [("-", "ahead: left"), ("-", "not of the last batch: left")]
    assert offsets(world) == {0: 40, 1: 50}


def test_spark_s_own_source_is_reconciled_too_and_json_says_the_same(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(2, kafka({0: 45, 1: 20}))
    result = run("--execute", "-o", "json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["schema"], told["query"], told["executed"]) == ("zkconsumer/spark-reconcile/1", None, True)
    assert [(row["new_offset"], row["decision"], row["written"]) for row in told["rows"]] == [
        (45, "forward", True),
        (None, "ahead: left", False),
    ]
    assert offsets(world) == {0: 45, 1: 50}


def test_offsets_of_a_reliable_receiver_are_one_less_than_they_mean(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(2, kafka({0: 41, 1: 60}))
    result = run("--offset-convention", "last-consumed", "--execute")
    assert [row[0] for row in decisions(result)] == ["41", "51"]
    assert offsets(world) == {0: 40, 1: 60}


def test_both_stores(world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder) -> None:
    world.create_topic(OFFSETS_TOPIC, 1)
    world.cluster.commit("g1", "clicks", 0, 55)
    folder.done(2, kafka({0: 50}))
    result = run("--store", "both", "--execute")
    assert result.exit_code == 0
    assert decisions(result) == [("40", "50", "-", "50", "forward"), ("55", "50", "-", "-", "ahead: left")]
    folder.done(3, kafka({0: 70}))
    assert run("--store", "kafka", "--execute").exit_code == 0
    assert {tp.partition: stored.offset for tp, stored in world.cluster.committed("g1").items()} == {0: 70}
    assert offsets(world)[0] == 50


def test_sources_of_one_query_that_disagree(run: Callable[..., Result], folder: CheckpointFolder) -> None:
    folder.done(2, kafka({0: 45}), kafka({0: 46}))
    result = run()
    assert result.exit_code == 2
    assert "several sources read clicks/0, up to different offsets; name one of them as source (0, 1)" in result.stderr
    assert [row[3] for row in decisions(run("--source", "1"))] == ["46"]
    assert "has no offsets of Kafka of source 2; it has sources 0, 1" in run("--source", "2").stderr


# --- reconcile, claims ------------------------------------------------------------------------------------------


@pytest.fixture
def crashed(world: FakeEnvironment, folder: CheckpointFolder) -> CheckpointFolder:
    """Batch 6 is done; batch 7 claimed partition 0 up to 40 and partition 1 up to 50, and others went on with 1."""
    folder.done(6, envelope(6, {0: 10, 1: 10}, {0: 30, 1: 30}, mode=CommitMode.CLAIM))
    folder.logged(7, envelope(7, {0: 30, 1: 30}, {0: 40, 1: 45}, mode=CommitMode.CLAIM))
    claimed(world, P0, (6, 10, 30), (7, 30, 40))
    claimed(world, P1, (6, 10, 30), (7, 30, 45))
    return folder


def test_a_query_that_claims_needs_no_help_forward(
    world: FakeEnvironment, run: Callable[..., Result], crashed: CheckpointFolder
) -> None:
    result = run("--execute")
    assert result.exit_code == 0
    start_again = "claimed, not done: start again, or 'zkconsumer spark reconcile --group G --checkpoint DIR --rewind'"
    assert decisions(result) == [("40", "30", "30-40", "-", start_again), ("50", "30", "30-45", "-", start_again)]
    crashed.done(7, envelope(7, {0: 30, 1: 30}, {0: 40, 1: 45}, mode=CommitMode.CLAIM))
    put(world, {1: 20})
    assert [row[4] for row in decisions(run())] == [
        "claims move this group",
        "set back below the claim of 45: left",
    ]


def test_the_planned_ends_of_a_claiming_query_whose_records_are_gone_move_nothing(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(6, envelope(6, {0: 30, 1: 30}, {0: 100, 1: 100}, mode=CommitMode.CLAIM))
    result = run("--execute")
    assert (result.exit_code, {row[4] for row in decisions(result)}) == (0, {"claims move this group"})
    assert offsets(world) == {0: 40, 1: 50}


def test_kafka_s_store_follows_zookeeper_s_where_a_query_claims(
    world: FakeEnvironment, run: Callable[..., Result], crashed: CheckpointFolder
) -> None:
    world.create_topic(OFFSETS_TOPIC, 1)
    world.cluster.commit("g1", "clicks", 0, 30)
    assert run("--store", "kafka", "--execute").exit_code == 0
    assert {tp.partition: stored.offset for tp, stored in world.cluster.committed("g1").items()} == {0: 40, 1: 50}


def test_a_batch_that_is_given_back_has_the_number_that_the_sink_knows(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    """Spark counts batches in which the query had nothing, too, so its number is the larger one."""
    folder.done(8, envelope(6, {0: 10}, {0: 30}))
    folder.logged(9, envelope(7, {0: 30}, {0: 40}))
    claimed(world, P0, (6, 10, 30), (7, 30, 40))
    assert decisions(run("--rewind")) == [("40", "30", "30-40", "30", "back before batch 9")]


def test_a_checkpoint_that_is_given_up_gives_back_what_it_claimed(
    world: FakeEnvironment, run: Callable[..., Result], crashed: CheckpointFolder
) -> None:
    result = run("--rewind")
    assert result.exit_code == 3
    assert decisions(result) == [
        ("40", "30", "30-40", "30", "back before batch 7"),
        ("50", "30", "30-45", "-", "others have continued: left"),
    ]
    assert run("--rewind", "--execute").exit_code == 0
    assert offsets(world) == {0: 30, 1: 50}
    assert [claim.batch for claim in record(world, P0).claims] == [6], "the claim went with the offset"
    assert [claim.batch for claim in record(world, P1).claims] == [6, 7]
    again = run("--rewind", "--execute")
    assert again.exit_code == 0
    assert decisions(again)[0][4] == "nothing claimed that is not done: left"


def test_a_rewind_when_somebody_set_the_group_back_already(
    world: FakeEnvironment, run: Callable[..., Result], crashed: CheckpointFolder
) -> None:
    put(world, {0: 30, 1: 5})
    assert [row[4] for row in decisions(run("--rewind"))] == [
        "equal already",
        "set back already: left",
    ]


def test_a_record_that_changes_meanwhile_stops_the_rewind(
    world: FakeEnvironment, run: Callable[..., Result], crashed: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridge.commands import spark_reconcile

    carry_out = spark_reconcile.execute_reconcile

    def meanwhile(*arguments: Any, **more: Any) -> None:
        claimed(world, P0, (6, 10, 30), (7, 30, 40), (8, 40, 41))
        carry_out(*arguments, **more)

    monkeypatch.setattr(spark_reconcile, "execute_reconcile", meanwhile)
    result = run("--rewind", "--execute")
    assert result.exit_code == 4
    path = paths.claims_of_partition("g1", QUERY, P0)
    assert f"0 of 1 offset written, because {path} was changed by another program after it was read" in result.stderr
    assert offsets(world) == {0: 40, 1: 50}


@pytest.mark.parametrize("words", [(), ("--rewind",)])
def test_a_checkpoint_that_is_older_than_the_claims_is_refused(
    words: tuple[str, ...], world: FakeEnvironment, run: Callable[..., Result], crashed: CheckpointFolder
) -> None:
    """A copy of last week: what it holds for unfinished was done long since."""
    claimed(world, P0, (7, 30, 35), (8, 35, 40))
    result = run(*words, "--execute")
    assert result.exit_code == 4
    assert f"query {QUERY} claimed for batch 8, but in {crashed.root} it has done batch 6" in result.stderr
    assert offsets(world) == {0: 40, 1: 50}


# --- reconcile, refused -----------------------------------------------------------------------------------------


def test_a_group_with_members_is_refused_and_only_what_nobody_owns_is_written_if_asked_for(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(2, kafka({0: 60, 1: 70}))
    join(world)
    refused = run("--execute", "-o", "json")
    assert refused.exit_code == 4
    assert "group g1 is active: g1_a." in refused.stderr
    assert json.loads(refused.stdout)["blocked_by"].startswith("group g1 is active: g1_a.")
    own(world, P0)
    owned = run("--allow-members", "--execute")
    assert owned.exit_code == 4
    assert "clicks/0 cannot be set: it is owned by g1_a-0, which writes its own position at its next" in owned.stderr
    assert offsets(world) == {0: 40, 1: 50}
    folder.done(3, kafka({1: 70}))
    assert run("--allow-members", "--execute").exit_code == 0
    assert offsets(world) == {0: 40, 1: 70}


def test_an_owner_without_a_registration_is_in_the_way_too(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(2, kafka({0: 60}))
    own(world, P0, "g1_scala-0", is_ours=False)
    assert run("--execute").exit_code == 4
    assert offsets(world)[0] == 40


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--rewind", "--store", "kafka"), "claims of this group are made in zookeeper"),
        (("--allow-members", "--store", "both"), "Kafka accepts no offsets while a group has members"),
        (("--offset-convention", "last-consumed", "--store", "both"), "offsets in Kafka are always the next ones"),
        (("--rewind",), 'of format("kafka"), which does not claim'),
    ],
)
def test_words_that_do_not_go_together(
    words: tuple[str, ...], why: str, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(2, kafka({0: 60}))
    result = run(*words)
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_checkpoint_of_another_group_of_no_batch_or_of_no_kafka(
    run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    assert "has no batch yet: there is nothing to reconcile" in run().stderr
    folder.done(0, "17")
    assert "has no source of Kafka: there is nothing to reconcile" in run().stderr
    folder.done(1, envelope(0, {0: 0}, {0: 50}, group="g2"))
    result = run("--execute")
    assert result.exit_code == 4
    assert "is of group g2, not of g1" in result.stderr


def test_an_offset_beyond_the_log_is_of_another_cluster(
    world: FakeEnvironment, run: Callable[..., Result], folder: CheckpointFolder
) -> None:
    folder.done(2, kafka({0: 101}))
    result = run("--execute")
    assert result.exit_code == 4
    assert "101 is beyond the end of the log (100): another cluster, or a topic created again" in result.stderr
    assert offsets(world)[0] == 40


def test_the_function_does_what_the_command_does(world: FakeEnvironment, crashed: CheckpointFolder) -> None:
    report = reconcile(ADDRESS, "g1", crashed.root, rewind=True, dependencies=doors(world))
    assert [(row.tp, row.new_offset) for row in report.changes] == [(P0, 30)]
    assert offsets(world)[0] == 40
    reconcile(ADDRESS, "g1", crashed.root, rewind=True, execute=True, dependencies=doors(world))
    assert offsets(world)[0] == 30
    crashed.done(7, kafka({0: 90}))
    join(world)
    with pytest.raises(PreconditionFailed, match="group g1 is active"):
        reconcile(ADDRESS, "g1", crashed.root, execute=True, dependencies=doors(world))
    with pytest.raises(BadCheckpoint):
        reconcile(ADDRESS, "g1", crashed.root / "offsets", dependencies=doors(world))


# --- a group that has moved to Kafka ----------------------------------------------------------------------------


@pytest.fixture
def moved(world: FakeEnvironment, crashed: CheckpointFolder) -> CheckpointFolder:
    """The same crash in Kafka's group; what ZooKeeper has is of the cut-over."""
    world.create_topic(OFFSETS_TOPIC, 1)
    world.cluster.commit("g1", "clicks", 0, 40)
    world.cluster.commit("g1", "clicks", 1, 50)
    put(world, {0: 11, 1: 12})
    control = ControlRecord("m1", 4, "completed", "kafka", "copy")
    world.zookeeper.ensure(paths.control("g1"), format_control(control))
    return crashed


def in_kafka(world: FakeEnvironment) -> dict[int, int]:
    return {tp.partition: stored.offset for tp, stored in world.cluster.committed("g1").items()}


def test_a_checkpoint_that_is_given_up_behind_a_move_gives_back_its_claims_in_kafka(
    world: FakeEnvironment, run: Callable[..., Result], moved: CheckpointFolder
) -> None:
    result = run("--rewind", "--store", "kafka")
    assert result.exit_code == 3, result.output
    assert decisions(result) == [
        ("40", "30", "30-40", "30", "back before batch 7"),
        ("50", "30", "30-45", "-", "others have continued: left"),
    ]
    assert (in_kafka(world), [claim.batch for claim in record(world, P0).claims]) == ({0: 40, 1: 50}, [6, 7])
    done = run("--rewind", "--store", "kafka", "--execute")
    assert done.exit_code == 0, done.output
    assert in_kafka(world) == {0: 30, 1: 50}
    assert offsets(world) == {0: 11, 1: 12}, "ZooKeeper has no say any more"
    assert [claim.batch for claim in record(world, P0).claims] == [6], "the claim went with the offset"
    again = run("--rewind", "--store", "kafka", "--execute")
    assert (again.exit_code, again.stderr) == (0, "There is nothing to change.\n")


def test_a_claim_that_was_begun_in_kafka_is_given_back_too(
    world: FakeEnvironment, run: Callable[..., Result], moved: CheckpointFolder
) -> None:
    """The membership process died between the commit and the end of its record."""
    begun = ClaimRecord((BatchClaim(6, 10, 30, 1, 1_000),)).with_pending(BatchClaim(7, 30, 40, 1, 1_000))
    world.zookeeper.ensure(paths.claims_of_partition("g1", QUERY, P0), format_record(begun))
    assert run("--rewind", "--store", "kafka", "--execute").exit_code == 0
    assert in_kafka(world) == {0: 30, 1: 50}
    assert (record(world, P0).pending, [claim.batch for claim in record(world, P0).claims]) == (None, [6])


def test_behind_a_move_zookeeper_is_not_set_back(run: Callable[..., Result], moved: CheckpointFolder) -> None:
    result = run("--rewind", "--execute")
    assert result.exit_code == 2
    assert "claims of this group are made in kafka: use rewind with store kafka, or both" in result.stderr


def test_behind_a_move_claims_are_shown_beside_what_kafka_says(
    world: FakeEnvironment, spark: RunTool, moved: CheckpointFolder
) -> None:
    told = json.loads(spark("claims", "-o", "json").stdout)["claims"]
    assert [(row["end"], row["group_offset"], row["remark"]) for row in told] == [
        (40, 40, None),
        (45, 50, "other members read further"),
    ]
    assert [row["owner"] for row in told] == [None, None]


# --- claims -----------------------------------------------------------------------------------------------------


def test_claims_are_shown_with_how_the_group_stands_to_them(world: FakeEnvironment, spark: RunTool) -> None:
    claimed(world, P0, (6, 10, 30), (7, 30, 40), epoch=own(world, P0))
    claimed(world, P1, (7, 30, 60))
    claimed(world, P2, (3, 0, 5), query=OTHER_QUERY)
    put(world, {2: 9})
    world.zookeeper.ensure(paths.claims_of_partition("g1", OTHER_QUERY, P1), format_record(ClaimRecord(refused=4)))
    result = spark("claims")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert tuple(rows[0]) == CLAIM_COLUMNS
    assert [row[:8] for row in rows[1:]] == [
        [OTHER_QUERY, "clicks", "1", "-", "-", "-", "50", "-"],
        [OTHER_QUERY, "clicks", "2", "3", "0", "5", "9", "-"],
        [QUERY, "clicks", "0", "7", "30", "40", "40", "g1_a-0"],
        [QUERY, "clicks", "1", "7", "30", "60", "50", "-"],
    ]
    told = json.loads(spark("claims", "--query", QUERY, "-o", "json").stdout)["claims"]
    assert [row["owner_is_claimant"] for row in told] == [True, False]
    assert [row["remark"] for row in told] == [None, "the group's offset was reset backwards"]
    assert told[0]["claimed_at"] == "1970-01-01T00:00:01Z"
    [other, _] = json.loads(spark("claims", "--query", OTHER_QUERY, "-o", "json").stdout)["claims"]
    assert (other["rejected_batch"], told[0]["rejected_batch"]) == (4, None)


def test_no_claims_and_a_record_that_cannot_be_read(world: FakeEnvironment, spark: RunTool) -> None:
    nothing = spark("claims")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No batch has claimed anything of group g1" in nothing.stderr
    world.zookeeper.ensure(paths.claims_of_partition("g1", QUERY, P0), b"x")
    world.zookeeper.ensure(f"{paths.claims('g1')}/a b/clicks/0", b"x")
    world.zookeeper.ensure(f"{paths.claims_of_query('g1', QUERY)}/a b/0", b"x")
    unreadable = spark("claims")
    assert unreadable.exit_code == 1
    assert unreadable.stdout.splitlines()[1].endswith("unreadable")
    assert "cannot be parsed: not JSON" in unreadable.stderr


def test_a_query_that_is_gone_is_forgotten(world: FakeEnvironment, spark: RunTool) -> None:
    claimed(world, P0, (7, 30, 40))
    claimed(world, P1, (7, 30, 40))
    claimed(world, P2, (3, 0, 5), query=OTHER_QUERY)
    own(world, P0, "g1_scala-0", is_ours=False)
    shown = spark("claims", "--delete", QUERY)
    assert shown.exit_code == 3
    assert shown.stderr.startswith(f"Nothing was deleted; 2 records of query {QUERY} would be. To do it: zkconsumer")
    done = spark("claims", "--delete", QUERY, "--execute")
    assert (done.exit_code, done.stderr) == (0, f"2 records of query {QUERY} deleted.\n")
    assert not world.zookeeper.tree.has_node(paths.claims_of_query("g1", QUERY))
    assert world.zookeeper.tree.has_node(paths.claims_of_query("g1", OTHER_QUERY))
    again = spark("claims", "--delete", QUERY, "--execute")
    assert again.exit_code == 4
    assert f"has no records of a query {QUERY}; it has records of: {OTHER_QUERY}" in again.stderr


def test_a_query_that_is_alive_is_not_forgotten(world: FakeEnvironment, spark: RunTool) -> None:
    claimed(world, P0, (7, 30, 40), epoch=own(world, P0))
    result = spark("claims", "--delete", QUERY, "--execute")
    assert result.exit_code == 4
    assert f"query {QUERY} is alive: g1_a-0 claimed clicks/0 and owns it" in result.stderr
    claimed(world, P0, (7, 30, 40))
    result = spark("claims", "--delete", QUERY, "--execute")
    assert result.exit_code == 4
    assert "g1_a-0 owns clicks/0, and may be query" in result.stderr
    assert record(world, P0).claims


def test_the_query_that_came_after_is_not_in_the_way(world: FakeEnvironment, spark: RunTool) -> None:
    claimed(world, P0, (7, 30, 40))
    claimed(world, P1, (7, 30, 40))
    claimed(world, P0, (3, 40, 45), query=OTHER_QUERY, epoch=own(world, P0, "g1_b-0"))
    own(world, P1, "g1_b-1")
    assert spark("claims", "--delete", OTHER_QUERY, "--execute").exit_code == 4
    assert spark("claims", "--delete", QUERY, "--execute").exit_code == 0


def test_words_of_claims_that_do_not_go_together(spark: RunTool) -> None:
    assert "--execute needs --delete" in spark("claims", "--execute").stderr
    assert "omit --query" in spark("claims", "--delete", "a", "--query", "a").stderr


# --- starting offsets -------------------------------------------------------------------------------------------


def test_starting_offsets_prints_json_and_nothing_else(world: FakeEnvironment, spark: RunTool) -> None:
    result = spark("starting-offsets", "--topic", "clicks")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"clicks": {"0": 40, "1": 50, "2": -2}}
    last = spark("starting-offsets", "--offset-convention", "last-consumed", "--missing", "latest")
    assert json.loads(last.stdout) == {"clicks": {"0": 41, "1": 51, "2": -1}}
    join(world)
    refused = spark("starting-offsets")
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert spark("starting-offsets", "--allow-members").exit_code == 0


def test_the_commands_need_no_pyspark() -> None:
    """Each is loaded with pyspark, pyarrow and numpy out of reach."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pyspark', 'pyarrow', 'numpy')))\n"
        "from zkconsumer.cli.lazy_commands import load_command\n"
        "from bridge.commands.spark import SPARK_COMMANDS\n"
        "print(*[load_command(target).name for target in SPARK_COMMANDS.values()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("starting-offsets reconcile claims\n", "")
