"""Client libraries of every kind in one group on real brokers of every age: every change, and one judgement.

A scenario is one group that lives through all changes.  After each of them every partition is held by exactly one
member; at the end nothing was lost, and nothing repeated without its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fix_modern import ModernClusters
from tests.fix_sandbox import require_releases
from zkconsumer.testing.lab import ModernLab
from zkconsumer.testing.sandbox.modern_member import JAVA

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]

PARTITIONS = 7
PER_SECOND = 200

C, PYTHON = "confluent", "kafka-python"
BEFORE_0_10 = {
    C: {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"},
    PYTHON: {"api.version": "0.9"},
}
"""What clients must be told of a broker that cannot be asked."""


def scenario(broker: str, *clients: str, strategy: str = "range", nightly: bool = True) -> object:
    marks = [pytest.mark.nightly] if nightly else []
    name = "-".join([broker, strategy, *(client.removeprefix(JAVA) for client in clients)])
    return pytest.param(broker, clients, strategy, marks=marks, id=name)


SCENARIOS = [
    scenario("3.9.1", "java-3.9.1", C, PYTHON, nightly=False),
    scenario("3.9.1", "java-0.9.0.1", "java-2.8.2", "java-4.1.1"),
    scenario("3.9.1", "java-4.1.1", C, PYTHON, strategy="roundrobin"),
    scenario("3.9.1", "java-2.8.2", C, "java-3.9.1", strategy="cooperative-sticky"),
    scenario("1.1.1", "java-0.9.0.1", C, PYTHON),
    scenario("1.1.1", "java-2.8.2", "java-3.9.1", C, strategy="roundrobin"),
    scenario("0.11.0.3", "java-0.9.0.1", "java-2.8.2", C),
    scenario("0.11.0.3", "java-3.9.1", PYTHON, C),
    scenario("0.9.0.1", "java-0.9.0.1", C, PYTHON),
    scenario("4.1.1", "java-2.8.2", "java-3.9.1", "java-4.1.1"),
    scenario("4.1.1", "java-4.1.1", C, PYTHON),
    scenario("4.1.1", "java-4.1.1", C, "java-3.9.1", strategy="cooperative-sticky"),
]


def settings_of(broker: str, client: str) -> dict[str, str]:
    return BEFORE_0_10.get(client, {}) if broker.startswith("0.9") else {}


@pytest.mark.parametrize(("broker", "clients", "strategy"), SCENARIOS)
def test_a_group_of_several_libraries_lives_through_every_change(
    broker: str,
    clients: tuple[str, ...],
    strategy: str,
    modern_clusters: ModernClusters,
    names: tuple[str, str],
    tmp_path: Path,
) -> None:
    require_releases(*(client.removeprefix(JAVA) for client in clients if client.startswith(JAVA)))
    cluster = modern_clusters.get(broker)
    group, topic = names
    cluster.create_topic(topic, PARTITIONS)
    with ModernLab(
        cluster.run, cluster.bootstrap, cluster.load, group, {topic: PARTITIONS}, folder=tmp_path, strategy=strategy
    ) as lab:

        def start(name: str, client: str) -> None:
            lab.start(name, client, settings=settings_of(broker, client))

        first, second, third = clients
        lab.load(topic, PER_SECOND)
        with lab.change("the first member comes"):
            start("first", first)
        with lab.change("two others join at once"):
            start("second", second)
            start("third", third)
        with lab.change("the first member leaves"):
            lab.leave("first")
        with lab.change("it comes again, in a new process"):
            start("first-again", first)
        with lab.change("the second member is killed"):
            lab.kill("second")
        lab.halt()
        with lab.change("the coordinator dies and comes back"):
            [server] = cluster.brokers
            server.kill()
            server.start()
        lab.load(topic, PER_SECOND)
        with lab.change("the second member comes again, in a new process"):
            start("second-again", second)
        lab.finish()
        print(lab.report())
