"""``zkconsumer offsets`` on real servers, side by side with the original's own tools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaConsumer

from tests.fix_sandbox import require_releases
from zkconsumer.cli.main import main
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

Offsets = Callable[..., Result]
PARTITIONS = 3
RECORDS = 20
TIMEOUT_MS = 30_000


def tool_on(cluster: Sandbox) -> Offsets:
    """Runs ``zkconsumer offsets <words>`` on a cluster."""

    def run(*words: object) -> Result:
        place = ["--zookeeper", cluster.zookeeper_connect]
        return CliRunner().invoke(main, ["offsets", *map(str, words), *place], catch_exceptions=False)

    return run


def filled(cluster: Sandbox, topic: str, partitions: int = PARTITIONS) -> None:
    cluster.create_topic(topic, partitions)
    for partition in range(partitions):
        cluster.produce(topic, partition, RECORDS)


def stored(cluster: Sandbox, group: str, topic: str) -> dict[int, int]:
    return cluster.admin.offsets(group, topic)


def csv_of(topic: str, offsets: dict[int, int]) -> str:
    return "".join(f"{topic},{partition},{offset}\n" for partition, offset in offsets.items())


def imported(run: Offsets, tmp_path: Path, group: str, topic: str, offsets: dict[int, int], *more: str) -> Result:
    file = tmp_path / f"{group}.csv"
    file.write_text(csv_of(topic, offsets))
    return run("import", file, "--group", group, "--execute", *more)


def in_kafka(run: Offsets, group: str) -> str:
    return run("export", group, "--store", "kafka", "--format", "csv").stdout


OTHERS = ["0.9.0.1", "0.10.2.2", "0.11.0.3"]
RELEASES = ["0.8.2.2", "1.1.1", *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)]


@pytest.mark.parametrize("release", RELEASES)
def test_the_originals_export_is_imported_and_ours_by_the_originals_import(
    shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, release: str
) -> None:
    require_releases(release)
    run, topic, group = tool_on(shared_cluster), fresh_name, f"{fresh_name}-group"
    filled(shared_cluster, topic)
    place = ["--zkconnect", shared_cluster.zookeeper_connect]
    assert imported(run, tmp_path, group, topic, {0: 3, 1: 0, 2: 20}).exit_code == 0

    theirs, ours = tmp_path / "theirs.txt", tmp_path / "ours.txt"
    exported = shared_cluster.run_tool(
        release, "kafka.tools.ExportZkOffsets", [*place, "--group", group, "--output-file", theirs]
    )
    assert exported.code == 0, exported.err
    assert run("export", group, "--file", ours).exit_code == 0
    assert sorted(theirs.read_text().splitlines()) == ours.read_text().splitlines()
    assert run("diff", group, theirs).exit_code == 0
    assert "nothing to change" in run("import", theirs, "--execute").output

    # Theirs into ZooKeeper by ours.
    assert run("set", group, "--topic", topic, "--to-earliest", "--execute").exit_code == 0
    assert stored(shared_cluster, group, topic) == {0: 0, 1: 0, 2: 0}
    assert run("import", theirs).exit_code == 3
    assert stored(shared_cluster, group, topic) == {0: 0, 1: 0, 2: 0}
    assert run("import", theirs, "--execute").exit_code == 0
    assert stored(shared_cluster, group, topic) == {0: 3, 1: 0, 2: 20}

    # Ours into ZooKeeper by theirs, into a tree that has none of it.
    assert run("delete", group, "--execute").exit_code == 0
    assert stored(shared_cluster, group, topic) == {}
    put = shared_cluster.run_tool(release, "kafka.tools.ImportZkOffsets", [*place, "--input-file", ours])
    assert put.code == 0, put.err
    assert stored(shared_cluster, group, topic) == {0: 3, 1: 0, 2: 20}


def test_nothing_is_written_while_an_original_member_lives_and_it_starts_from_what_was(
    shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    run, topic, group = tool_on(shared_cluster), fresh_name, f"{fresh_name}-group"
    filled(shared_cluster, topic, 1)
    member = shared_cluster.start_member("1.1.1", group, {topic: 1}, consumer_id="live")
    member.wait_handed(RECORDS)
    refused = imported(run, tmp_path, group, topic, {0: 5})
    assert refused.exit_code == 4
    assert f"{group}_live" in refused.output
    member.stop()
    assert stored(shared_cluster, group, topic) == {0: RECORDS}
    assert imported(run, tmp_path, group, topic, {0: 5}).exit_code == 0
    again = shared_cluster.start_member("1.1.1", group, {topic: 1}, consumer_id="again")
    again.wait_handed(RECORDS - 5)
    assert [each.offset for each in again.handed] == list(range(5, RECORDS))
    again.stop()


def test_offsets_in_kafka_are_set_compared_and_refused_while_a_modern_member_lives(
    shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    run, topic, group = tool_on(shared_cluster), fresh_name, f"{fresh_name}-group"
    filled(shared_cluster, topic)
    assert imported(run, tmp_path, group, topic, {0: 1, 1: 2, 2: 3}, "--store", "both").exit_code == 0
    assert run("diff", group).exit_code == 0
    assert in_kafka(run, group) == csv_of(topic, {0: 1, 1: 2, 2: 3})
    lowered = run("set", group, "--topic", f"{topic}:2", "--to-earliest", "--execute")
    assert lowered.exit_code == 0
    assert "use --store both" in lowered.output
    assert run("diff", group).exit_code == 3
    with modern_member(shared_cluster, group, topic):
        refused = run("set", group, "--topic", topic, "--to-latest", "--store", "kafka", "--execute")
    assert refused.exit_code == 4
    assert "nothing was changed" in refused.output.lower()
    assert in_kafka(run, group) == csv_of(topic, {0: 1, 1: 2, 2: 3})
    assert run("set", group, "--all-topics", "--to-latest", "--store", "kafka", "--execute").exit_code == 0
    assert in_kafka(run, group) == csv_of(topic, dict.fromkeys(range(3), RECORDS))


@contextlib.contextmanager
def modern_member(cluster: Sandbox, group: str, topic: str) -> Iterator[KafkaConsumer]:
    member = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        member.subscribe([topic])
        wait_until(lambda: member.poll(100) is not None and bool(member.assignment()), "it has joined", TIMEOUT_MS)
        yield member
    finally:
        member.close()
