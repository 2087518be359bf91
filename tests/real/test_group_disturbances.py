"""What happens to a group besides members that come and go: pauses, foreign hands, restarts, growth, poison."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.lab.group_lab import GroupLab
from tests.lab.python_member import PythonMember
from tests.sandbox_fixtures import Clusters
from zkconsumer.errors import SandboxError
from zkconsumer.testing.checker import Continued, MemberAcquiredPartition, RecordDelivered, read_history
from zkconsumer.testing.sandbox import wait_until
from zkconsumer.types import TopicPartition

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

BROKER, SCALA = "1.1.1", "1.1.1"
SETTLING = {"release.settle.ms": "500"}


def lines_of(lab: GroupLab, name: str, word: str) -> list[str]:
    """The log lines of a member of ours that hold a word."""
    member = lab.members[name]
    assert isinstance(member, PythonMember)
    return member.log_lines(word)


def wait_for_line(lab: GroupLab, name: str, word: str, timeout_ms: int) -> str:
    """The first log line of a member of ours that holds a word; it must come in time."""
    return wait_until(lambda: lines_of(lab, name, word), f"{name} says {word}", timeout_ms)[0]


def born(lab: GroupLab) -> dict[TopicPartition, int]:
    """The birth of each owner node: the same number, the same claim."""
    return {tp: node.czxid for tp, node in lab.observer.owners.items()}


# --- pauses -------------------------------------------------------------------------------------------------------


def test_a_member_that_stood_still_hands_out_nothing_until_it_owns_again(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    cluster = clusters.get(BROKER)
    group, topic = names
    # A fetch that waits long at the broker: its answer arrives in the socket's buffer while the process is paused.
    waiting = {"fetch.wait.max.ms": "3000"}
    with GroupLab(cluster, group, {topic: 4}, folder=tmp_path, ours=waiting) as lab:
        with lab.change("ours-1 starts"):
            lab.start_ours("ours-1")
        for partition in range(4):
            cluster.produce(topic, partition, 10)
        lab.members["ours-1"].wait_delivered(40)
        with lab.change("ours-2 starts"):
            lab.start_ours("ours-2")
        kept = lab.owned_by("ours-1")
        assert len(kept) == 2
        with lab.change("ours-1 stands still"):
            lab.pause("ours-1")
            for partition in range(4):
                cluster.produce(topic, partition, 10)
        lab.members["ours-2"].wait_delivered(40)
        with lab.change("ours-1 goes on"):
            lab.resume("ours-1")
        for partition in range(4):
            cluster.produce(topic, partition, 10)
        lab.finish()
        assert lab.verdict is not None
        assert lab.verdict.counts.duplicates == {}

        history = [e for e in read_history(lab.folder / "history.jsonl") if getattr(e, "member", "") == "ours-1"]
        woken = next(at for at, event in enumerate(history) if isinstance(event, Continued))
        claimed: set[tuple[str, int]] = set()
        for event in history[woken:]:
            if isinstance(event, MemberAcquiredPartition):
                claimed.add((event.topic, event.partition))
            elif isinstance(event, RecordDelivered):
                assert (event.topic, event.partition) in claimed
        assert len(lines_of(lab, "ours-1", "session-lost")) == 1


def test_only_a_message_that_is_not_finished_in_time_is_delivered_again(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    cluster = clusters.get(BROKER)
    group, topic = names
    with GroupLab(cluster, group, {topic: 4}, folder=tmp_path, ours={"rebalance.drain.timeout.ms": "200"}) as lab:
        for partition in (2, 3):  # those that will go to ours-2
            cluster.produce(topic, partition, 2)
        with lab.change("ours-1 starts"):
            lab.start_ours("ours-1", handle_ms=10_000)
        lab.members["ours-1"].wait_delivered(1)
        with lab.change("ours-2 starts"):
            lab.start_ours("ours-2")
        verdict = lab.finish()
        assert verdict.counts.duplicates == {"drain_timeout": 1}
        assert len(lines_of(lab, "ours-1", "drain-timeout")) == 1


def test_a_resumed_scala_consumer_decreases_our_offsets_and_they_are_written_again(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    group, topic = names
    with GroupLab(clusters.get(BROKER), group, {topic: 8}, folder=tmp_path, ours=SETTLING) as lab:
        with lab.change("both kinds start"):
            lab.start_ours("ours-1")
            lab.start_scala("scala-1", SCALA)
        lab.load(topic, 400)
        lab.members["scala-1"].wait_delivered(200)
        # A resumed Scala consumer commits its old positions or drops them, depending on which of its two threads is
        # first.
        tries = 4
        while tries and not lines_of(lab, "ours-1", "offset-rewound"):
            tries -= 1
            _let_sleep_and_wake(lab, topic)
        assert lines_of(lab, "ours-1", "offset-rewound"), "the original forgot its positions four times in a row"
        verdict = lab.finish()
        assert len(lines_of(lab, "ours-1", "offset-rewound")) == 1, "once, not once a partition"
        # The observer may miss the rewind: on a busy machine ours-1 has written again before it looks.
        assert {a.reason for a in verdict.allowances if "went back" in a.text} <= {"scala_zombie"}


def _let_sleep_and_wake(lab: GroupLab, topic: str) -> None:
    """scala-1 sleeps until ours-1 has committed everything that it took over, and wakes; then wait a little."""
    with lab.change("scala-1 stands still"):
        lab.pause("scala-1")
    before = lab.observer.offsets
    moved = [TopicPartition(topic, partition) for partition in range(4, 8)]
    wait_until(
        lambda: all(lab.observer.offsets.get(tp, -1) > before.get(tp, -1) for tp in moved),
        "ours-1 commits what it took",
        15_000,
    )
    with lab.change("scala-1 goes on"):
        lab.resume("scala-1")
    with contextlib.suppress(SandboxError):
        wait_for_line(lab, "ours-1", "offset-rewound", 3_000)


# --- other people's settings and hands ----------------------------------------------------------------------------


def test_a_group_that_is_set_otherwise_is_named_with_its_setting(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    group, topic = names
    settings = {"partition.assignment.strategy": "roundrobin"}
    with GroupLab(
        clusters.get(BROKER), group, {topic: 13}, folder=tmp_path, strategy="roundrobin", compatibility="1.0",
        ours={"partition.assignment.strategy": "range", "rebalance.max.retries": "4"}, scala=settings,
    ) as lab:  # fmt: skip
        with lab.change("scala-1 starts"):
            lab.start_scala("scala-1", SCALA)
        with lab.change("scala-2 starts"):
            lab.start_scala("scala-2", SCALA)
        lab.start_ours("ours-1")
        line = wait_for_line(lab, "ours-1", "assignment-mismatch", 20_000)
        assert "all of them match partition.assignment.strategy=roundrobin" in line
        assert "roundrobin.compatibility=1.0" in line


def test_an_owner_node_made_manually_is_named_and_acquired_when_it_is_deleted(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    cluster = clusters.get(BROKER)
    group, topic = names
    by_hand = f"/consumers/{group}/owners/{topic}/1"
    cluster.admin.put(by_hand, b"somebody-0")
    with GroupLab(cluster, group, {topic: 4}, folder=tmp_path) as lab:
        lab.start_ours("ours-1")
        wait_until(lambda: len(lab.owned_by("ours-1")) == 3, "ours-1 has the others", 60_000)
        lab.load(topic, 100)
        lab.members["ours-1"].wait_delivered(50)
        line = wait_for_line(lab, "ours-1", "persistent", 20_000)
        assert f"{topic}/1" in line
        assert "somebody-0" in line
        with lab.change("the node goes", timeout_ms=5_000):
            cluster.admin.delete(by_hand)
        lab.finish()


def test_an_unreadable_registration_stops_no_member(clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> None:
    group, topic = names
    with GroupLab(clusters.get(BROKER), group, {topic: 4}, folder=tmp_path) as lab:
        with lab.change("ours-1 starts"):
            lab.start_ours("ours-1")
        with lab.change("ours-2 starts"):
            lab.start_ours("ours-2")
        lab.load(topic, 200)
        before = born(lab)
        with lab.change("poison"):
            lab.put_foreign_registration("poison", b'{"version":1,"subscription":{"t":0}')
        for name in ("ours-1", "ours-2"):
            assert "poison" in wait_for_line(lab, name, "registration-ignored", 5_000)
        with lab.change("ours-3 joins all the same"):
            lab.start_ours("ours-3")
        lab.leave("ours-3")
        lab.settle("ours-3 leaves")
        with lab.change("the poison goes"):
            lab.remove_foreign_registration("poison")
        kept = {tp for tp, czxid in born(lab).items() if before[tp] == czxid}
        assert len(kept) >= 2, "what stays with its member is not claimed anew"
        lab.finish()
        for name in ("ours-1", "ours-2"):
            assert len(lines_of(lab, name, "registration-ignored")) == 1


# --- servers and topics -------------------------------------------------------------------------------------------


def test_a_topic_that_grows_is_assigned_again(clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> None:
    group, topic = names
    cluster = clusters.get(BROKER)
    with GroupLab(cluster, group, {topic: 4}, folder=tmp_path, ours=SETTLING) as lab:
        with lab.change("ours-1 starts"):
            lab.start_ours("ours-1")
        with lab.change("ours-2 starts"):
            lab.start_ours("ours-2")
        with lab.change("scala-1 starts"):
            lab.start_scala("scala-1", SCALA)
        lab.load(topic, 200)
        with lab.change("the topic grows"):
            lab.grow(topic, 12)
        assert len(lab.owners) == 12
        for partition in range(4, 12):
            cluster.produce(topic, partition, 5)
        lab.finish()


def test_the_restart_of_a_broker_moves_no_partition(clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> None:
    group, topic = names
    cluster = clusters.get(BROKER)
    with GroupLab(cluster, group, {topic: 6}, folder=tmp_path, ours=SETTLING) as lab:
        with lab.change("ours-1 starts"):
            lab.start_ours("ours-1")
        with lab.change("scala-1 starts"):
            lab.start_scala("scala-1", SCALA)
        lab.load(topic, 300)
        lab.members["ours-1"].wait_delivered(100)
        before = born(lab)
        cluster.brokers[0].restart(kill=True)
        cluster.wait_leaders(topic, 6)
        count = len(lab.members["ours-1"].delivered)
        lab.members["ours-1"].wait_delivered(count + 200, 20_000)
        assert born(lab) == before
        lab.finish()


def test_the_restart_of_zookeeper_moves_no_partition_while_sessions_live(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    group, topic = names
    cluster = clusters.get(BROKER)
    long_session = {"zookeeper.session.timeout.ms": "15000"}
    # A ZooKeeper that is starting may take a connection and never answer on it.  The original client then waits for the
    # session timeout divided by the number of addresses: with one address its session ends meanwhile.
    zookeeper = cluster.zookeeper
    scala = {**long_session, "zookeeper.connect": f"{zookeeper.address},{zookeeper.connect_string('/kafka')}"}
    with GroupLab(cluster, group, {topic: 6}, folder=tmp_path, ours=long_session, scala=scala) as lab:
        with lab.change("ours-1 starts"):
            lab.start_ours("ours-1")
        with lab.change("scala-1 starts"):
            lab.start_scala("scala-1", SCALA)
        with lab.change("ours-2 starts"):
            lab.start_ours("ours-2")
        lab.load(topic, 300)
        lab.members["ours-1"].wait_delivered(50)
        before = born(lab)
        said = [len(lines_of(lab, name, "assignment-complete")) for name in ("ours-1", "ours-2")]
        cluster.zookeeper.restart(kill=True)
        stored = lab.observer.offsets
        wait_until(
            lambda: all(lab.observer.offsets[tp] > offset for tp, offset in stored.items()), "commits go on", 30_000
        )
        assert born(lab) == before
        assert [len(lines_of(lab, name, "assignment-complete")) for name in ("ours-1", "ours-2")] == said
        assert not lines_of(lab, "ours-1", "session-lost")
        verdict = lab.finish()
        assert verdict.counts.duplicates == {}
