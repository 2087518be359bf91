"""``zkconsumer groups`` and ``zkconsumer lag`` beside a live original member, and beside the original's own tools."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox_fixtures import require_releases
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.delete_zookeeper_group import NODES_PER_MULTI_MAX
from zkconsumer.testing.sandbox import Sandbox, ScalaMember, wait_until
from zkconsumer.zk.requests import Create, OtherError

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
TOOLS = "0.10.2.2"
"""The release whose tools are compared: it has both, and prints the newer columns."""

PARTITIONS, RECORDS = 4, 10
TIMEOUT_S = 30
_numbers = itertools.count()


@dataclass(frozen=True)
class Cluster:
    """A cluster, and a group of one original member that has read and committed everything in ``topic``."""

    sandbox: Sandbox
    member: ScalaMember
    group: str
    topic: str

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        place = ["--zookeeper", self.sandbox.zookeeper_connect]
        return subprocess.run([PROGRAM, *words, *place], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def original(self, main: str, *words: str) -> list[str]:
        place = ["--zookeeper", self.sandbox.zookeeper_connect]
        done = self.sandbox.run_tool(TOOLS, main, [*place, *words])
        assert done.code == 0, done
        return done.out.splitlines()

    def rows(self, group: str | None = None) -> list[dict[str, Any]]:
        done = self.run("groups", "describe", group or self.group, "-o", "json")
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        return rows


@pytest.fixture(scope="module")
def live(shared_cluster: Sandbox) -> Iterator[Cluster]:
    require_releases(TOOLS)
    group, topic = f"tool-group-{next(_numbers)}", f"tool-topic-{next(_numbers)}"
    shared_cluster.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        shared_cluster.produce(topic, partition, RECORDS)
    member = shared_cluster.start_member("1.1.1", group, {topic: 2})
    member.wait_delivered(PARTITIONS * RECORDS)
    admin = shared_cluster.admin
    wait_until(
        lambda: admin.offsets(group, topic) == dict.fromkeys(range(PARTITIONS), RECORDS), "all is committed", 15_000
    )
    yield Cluster(shared_cluster, member, group, topic)
    member.close()


def test_describe_shows_what_the_originals_tools_show(live: Cluster) -> None:
    live.sandbox.produce(live.topic, 0, 1)  # something that is committed a moment later
    wait_until(lambda: live.sandbox.admin.offsets(live.group, live.topic)[0] == RECORDS + 1, "it is committed", 60_000)
    ours = live.rows()
    assert {row["owner_kind"] for row in ours} == {"scala"}
    assert {row["authority"] for row in ours} == {"zookeeper"}
    shown = [
        [row[key] for key in ("topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id")]
        for row in ours
    ]
    assert shown[0] == [live.topic, 0, RECORDS + 1, RECORDS + 1, 0, live.member.consumer_id]

    described = live.original("kafka.admin.ConsumerGroupCommand", "--describe", "--group", live.group)
    theirs = sorted(line.split() for line in described if line.startswith(live.topic))
    assert [list(map(str, row)) for row in shown] == theirs

    checked = live.original("kafka.tools.ConsumerOffsetChecker", "--group", live.group)
    theirs = [line.split() for line in checked if line.startswith(live.group)]
    assert [row[:6] for row in theirs] == [[live.group, *map(str, row[:5])] for row in shown]
    assert {row[6].rpartition("-")[0] for row in theirs} == {live.member.consumer_id}


def test_list_and_lag_know_the_group(live: Cluster) -> None:
    listed = json.loads(live.run("groups", "list", "--active", "-o", "json").stdout)["groups"]
    [line] = [each for each in listed if each["group"] == live.group]
    assert (line["kind"], line["members"], line["topics"]) == ("scala", 1, [live.topic])
    assert abs(line["last_commit_ms"] - time.time() * 1000) < 600_000
    done = live.run("lag", live.group)
    assert done.stdout.splitlines()[-1] == "TOTAL 0", done


def test_the_doctor_finds_nothing_and_then_a_poisonous_registration(live: Cluster) -> None:
    done = live.run("groups", "doctor", live.group, "--interval", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        f"{live.group}: 1 member, {PARTITIONS} of {PARTITIONS} partitions owned by registered threads, lag 0",
        "OK: nothing found",
    ]
    admin, path = live.sandbox.admin, f"/consumers/{live.group}/ids/{live.group}_bad"
    admin.put(path, b"not JSON")
    try:
        wait_until(lambda: not admin.owners(live.group, live.topic), "the original gives everything up", 60_000)
        done = live.run("groups", "doctor", live.group, "--interval", "0", "-o", "json")
        assert done.returncode == 3
        found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
        assert path in str(found["registration-invalid"]["evidence"])
        assert {"registration-invalid", "registration-persistent", "partitions-unowned"} <= set(found)
    finally:
        admin.delete(path)
    wait_until(lambda: len(admin.owners(live.group, live.topic)) == PARTITIONS, "it comes back", 60_000)


def test_a_group_that_somebody_is_in_is_not_deleted(live: Cluster) -> None:
    admin = live.sandbox.admin
    members = admin.members(live.group)
    for words in ([live.group], [live.group, "--topic", live.topic]):
        done = live.run("groups", "delete", *words, "--execute")
        assert done.returncode == 4
        assert done.stderr.startswith(
            f"zkconsumer: Delete for group {live.group} failed because its consumers are still active.\n"
        )
    assert admin.members(live.group) == members
    # It may be in the middle of a rebalance, since an earlier test changed the group.
    wait_until(lambda: len(admin.owners(live.group, live.topic)) == PARTITIONS, "it owns all", 60_000)


def test_a_dead_group_of_any_size_is_deleted(live: Cluster) -> None:
    """The second one is too large for one transaction."""
    admin = live.sandbox.admin
    small, large = f"{live.group}-small", f"{live.group}-large"
    with AdminSession.open(live.sandbox.zookeeper_connect) as session:
        for group, offsets in ((small, 3), (large, NODES_PER_MULTI_MAX + 50)):
            folder = f"/consumers/{group}/offsets/{live.topic}"
            for path in (folder, f"/consumers/{group}/ids", f"/consumers/{group}/owners/{live.topic}"):
                admin.ensure_path(path)
            made = session.request([Create(f"{folder}/{number}", b"1") for number in range(offsets)])
            assert made[-1] == f"{folder}/{offsets - 1}"
    done = live.run("groups", "delete", small, large)
    assert (done.returncode, re.findall("would delete", done.stdout)) == (3, ["would delete"] * 2), done
    assert admin.exists(f"/consumers/{small}")
    done = live.run("groups", "delete", small, large, "--execute")
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        f"Deleted all consumer group information for group {group} in zookeeper." for group in (small, large)
    ]
    assert not admin.exists(f"/consumers/{small}")
    assert not admin.exists(f"/consumers/{large}")


def test_nobody_can_join_behind_the_fence(live: Cluster) -> None:
    """What keeps members out while many nodes are deleted: ZooKeeper makes no children of ephemeral nodes."""
    group = f"{live.group}-fenced"
    live.sandbox.admin.ensure_path(f"/consumers/{group}")
    with AdminSession.open(live.sandbox.zookeeper_connect) as session:
        [made] = session.request([Create(f"/consumers/{group}/ids", ephemeral=True)])
        assert made == f"/consumers/{group}/ids"
        [refused] = session.request([Create(f"/consumers/{group}/ids/{group}_late", b"{}", ephemeral=True)])
        assert isinstance(refused, OtherError)
        assert refused.name == "NoChildrenForEphemerals"


def test_an_unknown_group_is_said_as_the_original_says_it(live: Cluster) -> None:
    done = live.run("groups", "describe", f"{live.group}x")
    assert (done.returncode, done.stdout) == (1, "")
    sentence = f"The consumer group '{live.group}x' does not exist."
    assert done.stderr.startswith(f"zkconsumer: {sentence} ")
    theirs = live.original("kafka.admin.ConsumerGroupCommand", "--describe", "--group", f"{live.group}x")
    assert f"Error: {sentence}" in theirs
