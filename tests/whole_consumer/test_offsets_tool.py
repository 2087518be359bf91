"""``zkconsumer offsets`` on real servers, side by side with the original's own tools."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer

from tests.sandbox_fixtures import Clusters, require_releases
from tests.secured_zookeeper_fixtures import PASSWORD, USER, Secured
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
    member.wait_delivered(RECORDS)
    refused = imported(run, tmp_path, group, topic, {0: 5})
    assert refused.exit_code == 4
    assert f"{group}_live" in refused.output
    member.stop()
    assert stored(shared_cluster, group, topic) == {0: RECORDS}
    assert imported(run, tmp_path, group, topic, {0: 5}).exit_code == 0
    again = shared_cluster.start_member("1.1.1", group, {topic: 1}, consumer_id="again")
    again.wait_delivered(RECORDS - 5)
    assert [each.offset for each in again.delivered] == list(range(5, RECORDS))
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


# --- beside kafka-consumer-groups -------------------------------------------------------------------------------

GROUP_COMMANDS = {
    "1.1.1": "kafka.admin.ConsumerGroupCommand",
    "2.0.1": "kafka.admin.ConsumerGroupCommand",
    "3.9.1-tools": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}


@pytest.mark.nightly
@pytest.mark.parametrize("release", GROUP_COMMANDS)
def test_plans_of_kafka_consumer_groups_and_ours_are_the_same_and_each_reads_the_others(
    shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, release: str
) -> None:
    require_releases(release)
    run, topic, group = tool_on(shared_cluster), fresh_name, f"{fresh_name}-group"
    filled(shared_cluster, topic)
    assert imported(run, tmp_path, group, topic, {0: 5, 1: 6, 2: 7}, "--store", "kafka").exit_code == 0

    def theirs(*words: str) -> str:
        place = ["--bootstrap-server", shared_cluster.bootstrap, "--group", group, "--reset-offsets"]
        done = shared_cluster.run_tool(release, GROUP_COMMANDS[release], [*place, *words])
        assert done.code == 0, done.err
        assert "Error" not in done.out, done.out
        return done.out

    def csv(text: str) -> list[str]:
        return sorted(line.replace('"', "") for line in text.splitlines() if line.count(",") == 2)

    moments = [f"--to-datetime {when}" for when in ("2017-08-04T00:00:00.000", "2100-08-04T00:00:00.000+01:00")]
    for target in ("--to-earliest", "--to-latest", "--to-current", "--to-offset 12", "--to-offset 999", "--shift-by -6",
                   "--shift-by 3", "--by-duration P1D", "--by-duration PT0S", *moments):  # fmt: skip
        words = ["--topic", topic, *target.split(), "--export"]
        ours = run("set", group, "--store", "kafka", *words)
        assert csv(ours.stdout) == csv(theirs(*words)), target

    plan, back = tmp_path / "plan.csv", tmp_path / "back.csv"
    plan.write_text(run("set", group, "--store", "kafka", "--topic", topic, "--to-offset", "9", "--export").stdout)
    theirs("--from-file", str(plan), "--execute")
    assert in_kafka(run, group) == csv_of(topic, {0: 9, 1: 9, 2: 9})
    back.write_text("\n".join(csv(theirs("--all-topics", "--shift-by", "2", "--export"))))
    assert run("set", group, "--from-file", back, "--store", "both", "--execute").exit_code == 0
    assert in_kafka(run, group) == csv_of(topic, {0: 11, 1: 11, 2: 11})
    assert stored(shared_cluster, group, topic) == {0: 11, 1: 11, 2: 11}


# --- brokers of every age ---------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("broker", ["0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"])
def test_both_stores_on_brokers_of_every_age(
    clusters: Clusters, names: tuple[str, str], tmp_path: Path, broker: str
) -> None:
    cluster = clusters.get(broker)
    run, (group, topic) = tool_on(cluster), names
    filled(cluster, topic)
    topics_before = cluster.admin.children("/brokers/topics")
    assert run("export", group, "--store", "kafka").exit_code == 1
    assert sorted(cluster.admin.children("/brokers/topics")) == sorted(topics_before), "asking makes no topic"
    assert imported(run, tmp_path, group, topic, {0: 5, 1: 6, 2: 7}, "--store", "both").exit_code == 0
    assert run("diff", group).exit_code == 0
    assert in_kafka(run, group) == csv_of(topic, {0: 5, 1: 6, 2: 7})
    at = run("set", group, "--topic", topic, "--to-datetime", "2017-08-04T00:00:00.000", "--export")
    assert at.stdout == csv_of(topic, {0: 0, 1: 0, 2: 0})
    now = run("set", group, "--topic", topic, "--by-duration", "PT0S", "-o", "json")
    knows_times = broker not in ("0.8.2.2", "0.9.0.1")
    remark = "no record is that new: the end of the log" if knows_times else "by segment: may be earlier than requested"
    assert {(row["new"], row["remark"]) for row in json.loads(now.stdout)["groups"][0]["rows"]} == {
        (RECORDS if knows_times else 0, remark)
    }
    assert run("set", group, "--topic", topic, "--to-latest", "--store", "both", "--execute").exit_code == 0
    assert in_kafka(run, group) == csv_of(topic, dict.fromkeys(range(3), RECORDS))
    deleted = run("delete", group, "--topic", f"{topic}:0", "--store", "kafka", "--execute")
    if broker == "3.9.1":
        assert deleted.exit_code == 0
        assert in_kafka(run, group) == csv_of(topic, {1: RECORDS, 2: RECORDS})
    else:
        assert deleted.exit_code == 4
        assert "brokers before 2.4" in deleted.output


@pytest.mark.nightly
def test_a_group_with_dual_commit_goes_back_only_when_both_stores_are_lowered(
    shared_cluster: Sandbox, fresh_name: str
) -> None:
    require_releases("0.8.2.2")
    run, topic, group = tool_on(shared_cluster), fresh_name, f"{fresh_name}-group"
    filled(shared_cluster, topic, 1)
    dual = {"offsets.storage": "kafka", "dual.commit.enabled": "true", "auto.commit.enable": "false"}

    def first_offset(count: int) -> int | None:
        member = shared_cluster.start_member("0.8.2.2", group, {topic: 1}, settings=dual)
        handed = member.wait_delivered(count) if count else []
        member.commit()
        member.stop()
        return handed[0].offset if handed else None

    assert first_offset(RECORDS) == 0
    assert run("diff", group).exit_code == 0
    one = run("set", group, "--topic", topic, "--to-offset", "5", "--execute")
    assert one.exit_code == 0
    assert "this does not affect them: use --store both" in " ".join(one.output.split())
    assert first_offset(0) is None, "the larger one counts"
    both = run("set", group, "--topic", topic, "--to-offset", "5", "--store", "both", "--execute")
    assert both.exit_code == 0
    assert first_offset(RECORDS - 5) == 5


@pytest.mark.nightly
def test_on_a_secured_zookeeper_offsets_are_the_logins_and_originals_with_jaas_go_on_from_them(
    secured: Secured, fresh_name: str, tmp_path: Path
) -> None:
    run, topic, group = tool_on(secured.cluster), fresh_name, f"{fresh_name}-group"
    filled(secured.cluster, topic, 1)
    config = tmp_path / "consumer.properties"
    login = secured.secret("offsets-login", f"{USER}:{PASSWORD}")
    config.write_text(f"zookeeper.auth=sasl-digest-md5:{login}\nzookeeper.set.acl=true\n")
    assert imported(run, tmp_path, group, topic, {0: 5}, "--config", str(config)).exit_code == 0
    refused = imported(run, tmp_path, group, topic, {0: 6})
    assert refused.exit_code == 4
    assert "the node belongs to another login" in " ".join(refused.output.split())
    member = secured.cluster.start_member("1.1.1", group, {topic: 1}, options=(secured.jaas,))
    assert member.wait_delivered(RECORDS - 5)[0].offset == 5
    member.commit()
    member.stop()
    assert stored(secured.cluster, group, topic) == {0: RECORDS}
    assert run("delete", group, "--execute", "--config", config).exit_code == 0


@contextlib.contextmanager
def modern_member(cluster: Sandbox, group: str, topic: str) -> Iterator[None]:
    """A living member on librdkafka.

    A leader on kafka-python that joins before it has the metadata of the topic keeps its empty assignment on a busy
    machine: it does not join again when the metadata comes.
    """
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    member = Consumer(settings)
    try:
        member.subscribe([topic])

        def has_joined() -> bool:
            member.poll(0.1)
            return bool(member.assignment())

        wait_until(has_joined, "it has joined", TIMEOUT_MS)
        yield
    finally:
        member.close()
