"""Members of ours and Scala consumers in one group, on brokers of every age: every change, and one check at the end.

A scenario is one group that runs through all changes.  After each of them every partition has exactly one owner, the
one that the assignment gives; at the end no record is lost, and none was delivered again without a reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.group_lab import GroupLab
from tests.sandbox_fixtures import Clusters, require_releases

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

# With more than ten partitions, and an odd number, roundrobin of 1.0 differs from that of 0.10.2.
PARTITIONS = 13
PER_SECOND = 400

# The node of a partition is held for a while after its last commit, so that an original successor, which reads the
# offset before it claims, is refused once and reads again: then the judge allows no repetition from ours to Scala.
SETTLING = {"release.settle.ms": "500"}
STRICT = {"ours_to_ours": 0, "ours_to_scala": 0}


def form_of(scala: str) -> str:
    """The release whose ``roundrobin`` a Scala consumer uses."""
    return "1.0" if scala >= "1." else "0.10.2"


def scenario(broker: str, scala: str, strategy: str, *, zookeeper: str = "3.8", nightly: bool = True) -> object:
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param(
        broker, zookeeper, scala, strategy, marks=marks, id=f"{broker}-{scala}-{strategy}-zk{zookeeper}"
    )


SCENARIOS = [
    scenario("0.8.2.2", "0.8.2.2", "range", zookeeper="3.4.6", nightly=False),
    scenario("0.8.2.2", "0.8.2.2", "roundrobin", zookeeper="3.4.6"),
    scenario("0.10.2.2", "0.8.2.2", "range"),
    scenario("0.10.2.2", "0.8.2.2", "roundrobin"),
    scenario("0.10.2.2", "0.10.2.2", "range"),
    scenario("0.10.2.2", "0.10.2.2", "roundrobin"),
    scenario("0.10.2.2", "1.1.1", "range"),
    scenario("0.10.2.2", "1.1.1", "roundrobin"),
    scenario("3.9.1", "0.10.2.2", "range", nightly=False),
    scenario("3.9.1", "0.10.2.2", "roundrobin"),
    scenario("3.9.1", "0.8.2.2", "range"),
    scenario("3.9.1", "0.8.2.2", "roundrobin"),
    scenario("3.9.1", "1.1.1", "range"),
    scenario("3.9.1", "1.1.1", "roundrobin"),
    scenario("1.1.1", "1.1.1", "roundrobin", nightly=False),
    scenario("1.1.1", "1.1.1", "range"),
    scenario("1.1.1", "0.8.2.2", "range"),
    scenario("1.1.1", "0.8.2.2", "roundrobin"),
    scenario("1.1.1", "0.10.2.2", "range"),
    scenario("1.1.1", "0.10.2.2", "roundrobin"),
]


@pytest.mark.parametrize(("broker", "zookeeper", "scala", "strategy"), SCENARIOS)
def test_a_group_of_both_kinds_passes_every_change(
    broker: str,
    zookeeper: str,
    scala: str,
    strategy: str,
    clusters: Clusters,
    names: tuple[str, str],
    tmp_path: Path,
) -> None:
    require_releases(scala)
    cluster = clusters.get(broker, zookeeper)
    group, topic = names
    with GroupLab(
        cluster,
        group,
        {topic: PARTITIONS},
        folder=tmp_path / "lab",
        strategy=strategy,
        compatibility=form_of(scala),
        ours=SETTLING,
        policy=STRICT,
    ) as lab:
        try:
            lab.load(topic, PER_SECOND)
            # A Scala consumer first: with roundrobin our member detects the variant from its owner nodes.
            with lab.change("scala-1 starts the group"):
                lab.start_scala("scala-1", scala, threads=2)
            with lab.change("ours-1 joins"):
                lab.start_ours("ours-1")
            with lab.change("ours-2 joins"):
                lab.start_ours("ours-2", threads=2)
            with lab.change("scala-2 joins"):
                lab.start_scala("scala-2", scala)
            with lab.change("ours-1 leaves"):
                lab.leave("ours-1")
            with lab.change("scala-1 leaves"):
                lab.leave("scala-1")
            with lab.change("ours-3 joins"):
                lab.start_ours("ours-3")
            with lab.change("ours-2 is killed"):
                lab.kill("ours-2")
            with lab.change("ours-3 stands still beyond its session"):
                lab.pause("ours-3")
            with lab.change("ours-3 goes on"):
                lab.resume("ours-3")
            with lab.change("scala-2 stands still beyond its session"):
                lab.pause("scala-2")
            with lab.change("scala-2 goes on"):
                lab.resume("scala-2")
            with lab.change("scala-2 is killed"):
                lab.kill("scala-2")
            lab.finish()
        finally:
            print(lab.report())


# --- which roundrobin is it? --------------------------------------------------------------------------------------


AUTO = [pytest.param("1.1.1", id="as-1.0"), pytest.param("0.10.2.2", id="as-0.10.2", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("scala", AUTO)
def test_a_member_waits_for_a_single_scala_thread_to_show_its_variant(
    scala: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    # It owned everything, which fits every form; one node of ours in its way would make it give up all of them.
    require_releases(scala)
    group, topic = names
    with GroupLab(
        clusters.get("1.1.1"),
        group,
        {topic: PARTITIONS},
        folder=tmp_path,
        strategy="roundrobin",
        compatibility=form_of(scala),
        policy=STRICT | {"ours_to_scala": None},
    ) as lab:
        lab.load(topic, PER_SECOND)
        with lab.change("scala-1 starts the group with one thread"):
            lab.start_scala("scala-1", scala)
        with lab.change("ours-1 joins", timeout_ms=8_000):
            lab.start_ours("ours-1")
        with lab.change("ours-2 joins", timeout_ms=8_000):
            lab.start_ours("ours-2")
        lab.finish()
        print(lab.report())


@pytest.mark.parametrize("scala", AUTO)
def test_a_scala_consumer_may_join_a_group_that_our_member_began(
    scala: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    require_releases(scala)
    group, topic = names
    with GroupLab(
        clusters.get("1.1.1"),
        group,
        {topic: PARTITIONS},
        folder=tmp_path,
        strategy="roundrobin",
        compatibility=form_of(scala),
        policy=STRICT | {"ours_to_scala": None},
    ) as lab:
        lab.load(topic, PER_SECOND)
        with lab.change("ours-1 starts the group"):
            lab.start_ours("ours-1")
        with lab.change("scala-1 joins", timeout_ms=8_000):
            lab.start_scala("scala-1", scala)
        with lab.change("scala-1 leaves"):
            lab.leave("scala-1")
        with lab.change("ours-2 joins", timeout_ms=8_000):
            lab.start_ours("ours-2")
        lab.finish()
        print(lab.report())
