"""Our connector in one group with other client libraries, on real brokers: every change, and one judgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator_group_fixtures import ModernClusters
from tests.interop.test_coordinator_group_clients import settings_of
from tests.lab.coordinator_lab import CoordinatorGroupLab
from tests.lab.coordinator_member import JAVA, OURS
from tests.sandbox_fixtures import require_releases

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]

PARTITIONS = 7
PER_SECOND = 200

C, PYTHON = "confluent", "kafka-python"


def scenario(broker: str, *others: str, strategy: str = "range", nightly: bool = True) -> object:
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param(broker, others, strategy, marks=marks, id="-".join([broker, strategy, *others]))


SCENARIOS = [
    scenario("3.9.1", C, PYTHON, nightly=False),
    scenario("3.9.1", "java-3.9.1", C, strategy="cooperative-sticky"),
    scenario("3.9.1", "java-3.9.1", "java-2.8.2", strategy="sticky"),
    scenario("3.9.1", OURS, OURS, strategy="cooperative-sticky"),
    scenario("1.1.1", C, PYTHON),
    scenario("1.1.1", "java-0.9.0.1", C, strategy="roundrobin"),
    scenario("0.9.0.1", C, PYTHON),
    scenario("4.1.1", "java-4.1.1", C),
]


@pytest.mark.parametrize(("broker", "others", "strategy"), SCENARIOS)
def test_our_connector_passes_every_change_beside_others(
    broker: str,
    others: tuple[str, str],
    strategy: str,
    modern_clusters: ModernClusters,
    names: tuple[str, str],
    tmp_path: Path,
) -> None:
    require_releases(*(client.removeprefix(JAVA) for client in others if client.startswith(JAVA)))
    cluster = modern_clusters.get(broker)
    group, topic = names
    cluster.create_topic(topic, PARTITIONS)
    with CoordinatorGroupLab(
        cluster.run, cluster.bootstrap, cluster.producer, group, {topic: PARTITIONS}, folder=tmp_path, strategy=strategy
    ) as lab:
        lab.load(topic, PER_SECOND)
        with lab.change("our first member comes, and two others join"):
            lab.start("ours-1", OURS)
            lab.start("other-1", others[0], settings=settings_of(broker, others[0]))
            lab.start("other-2", others[1], settings=settings_of(broker, others[1]))
        with lab.change("our second member comes"):
            lab.start("ours-2", OURS)
        with lab.change("our first member leaves"):
            lab.leave("ours-1")
        with lab.change("another member leaves"):
            lab.leave("other-1")
        with lab.change("our second member is killed"):
            lab.kill("ours-2")
        with lab.change("our first member comes again, in a new process"):
            lab.start("ours-3", OURS)
        with lab.change("the last of the others is killed"):
            lab.kill("other-2")
        lab.finish()
        print(lab.report())
