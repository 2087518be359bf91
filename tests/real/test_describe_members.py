"""``groups describe --members`` and ``--state`` beside ``kafka-consumer-groups``, on real servers."""

from __future__ import annotations

from contextlib import closing

import pytest
from click.testing import CliRunner

from bridge import KafkaConsumer
from tests.sandbox_fixtures import require_releases
from zkconsumer.cli.main import main
from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(180)]

RELEASE = "1.1.1"
WAIT_MS = 60_000


def described(group: str, address: tuple[str, str], *view: str) -> list[str]:
    """Return the words of the line after the heads."""
    done = CliRunner().invoke(main, ["groups", "describe", group, *view, *address])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[1].split()


def test_a_scala_member_and_what_it_owns(shared_cluster: Sandbox, fresh_name: str) -> None:
    require_releases(RELEASE)
    group = f"{fresh_name}-group"
    shared_cluster.create_topic(fresh_name, 2)
    member = shared_cluster.start_member(RELEASE, group, {fresh_name: 1}, values=True)
    consumer_id = member.wait_registered()
    where = ("--zookeeper", shared_cluster.zookeeper_connect)
    wait_until(lambda: described(group, where, "--members")[4] == "2", "the member owns both partitions", WAIT_MS)
    found = described(group, where, "--members", "--verbose")
    assert (found[1], found[3:]) == (consumer_id, ["-", "2", f"{fresh_name}(0,1)", "scala"])
    assert described(group, where, "--state") == [group, "-", "-", "1", "zookeeper"]


def test_a_coordinator_group_as_kafkas_own_tool_shows_it(shared_cluster: Sandbox, fresh_name: str) -> None:
    require_releases(RELEASE)
    group, servers = f"{fresh_name}-group", shared_cluster.bootstrap
    shared_cluster.create_topic(fresh_name, 2)

    def theirs(*view: str) -> list[str]:
        words = ["--bootstrap-server", servers, "--describe", "--group", group, *view]
        done = shared_cluster.run_tool(RELEASE, "kafka.admin.ConsumerGroupCommand", words)
        lines = [line.split() for line in done.out.splitlines()]
        return lines[next(i for i, line in enumerate(lines) if "ASSIGNMENT" in " ".join(line)) + 1]

    with closing(KafkaConsumer({"bootstrap.servers": servers, "group.id": group})) as consumer:
        consumer.subscribe([fresh_name])
        wait_until(lambda: consumer.poll(200) is not None and bool(consumer.assignment()), "an assignment", WAIT_MS)
        where = ("--bootstrap-server", servers)
        assert described(group, where, "--members", "--verbose")[1:-1] == theirs("--members", "--verbose")
        strategy, state, members = theirs("--state")[-3:]
        assert described(group, where, "--state") == [group, strategy, state, members, "coordinator"]
