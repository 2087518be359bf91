"""``migrate`` with strategy copy on real servers, under load, with Scala consumers and then stock Java clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.testing.sandbox import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

OLDER_THAN_THE_TOOLS = ("0.9.0.1", "0.10.2.2")
PARTITIONS = 6
PER_SECOND = 600
MORE = 100_000
JAVA, C = "java-3.9.1", "confluent"
NEXT = "--offset-convention", "next"
OLD_TOOL = "kafka.admin.ConsumerGroupCommand"
NEW_TOOL = "3.9.1-tools", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@dataclass(frozen=True)
class Setup:
    """Servers, and the clients that can read from them: two releases of the Scala consumer, and two others."""

    broker: str
    zookeeper: str = "3.8"
    old: tuple[str, str] = ("1.1.1", "0.8.2.2")
    java: str = JAVA
    c_settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.broker}-zookeeper-{self.zookeeper}"


NIGHTLY = [
    Setup("1.1.1", "3.4.6"),
    Setup("2.0.1", java="java-2.8.2"),
    Setup("0.11.0.3", "3.4.6", java="java-2.8.2"),
    Setup("0.10.2.2", old=("0.10.2.2", "0.8.2.2"), java="java-0.11.0.3"),
    Setup("0.9.0.1", "3.4.6", ("0.9.0.1", "0.8.2.2"), "java-0.9.0.1",
          {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"}),
]  # fmt: skip
SETUPS = [Setup("3.9.1"), Setup("1.1.1"), *(pytest.param(one, marks=pytest.mark.nightly) for one in NIGHTLY)]


@pytest.fixture(params=SETUPS, ids=str)
def setup(request: pytest.FixtureRequest) -> Setup:
    made: Setup = request.param
    require_releases(made.broker, *made.old, made.java.removeprefix("java-"), "1.1.1", NEW_TOOL[0])
    return made


@pytest.fixture
def moving(setup: Setup, clusters: Clusters, names: tuple[str, str], tmp_path: Path) -> Iterator[RealGroup]:
    group, topic = names
    made = RealGroup(clusters.get(setup.broker, setup.zookeeper), group, topic, PARTITIONS, tmp_path)
    yield made
    made.close()


def test_a_group_migrates_and_returns_under_load_without_lost_or_repeated_records(
    moving: RealGroup, setup: Setup
) -> None:
    newer, older = setup.old
    # Scala consumers of two releases read what is produced.
    moving.load(PER_SECOND)
    for name, release in (("old-1", newer), ("old-2", older), ("old-3", newer)):
        moving.scala("original", name, release)
    moving.wait_delivered("original", 3_000)
    waits = moving.migrate("apply", moving.plan(*NEXT), expect=3)
    assert "waits for g" in waits.stdout, "the members are named"
    moving.stop("original")

    plan = moving.plan(*NEXT)
    assert moving.migrate("apply", plan, expect=3)
    moving.migrate("apply", plan, "--execute", "--stop-after", "verified")
    outsiders_change_nothing(moving, setup)

    # The cut-over; the load has never stopped.
    moving.migrate("apply", *moving.kept, "--execute")
    planned = moving.in_zookeeper()
    moving.modern("modern", "java-1", setup.java)
    moving.modern("modern", "c-1", C, setup.c_settings)
    moving.wait_delivered("modern", 3_000)
    print(f"\nfirst cut, with a look around: {moving.gap_s('original', 'modern'):.1f} s; {moving.judge()}")
    assert moving.first_handed("modern") == planned
    if setup.broker not in OLDER_THAN_THE_TOOLS:
        tools_show_both_groups(moving)

    # And back, when the new members have committed much more.
    moving.halt()
    moving.produce(MORE)
    moving.wait_drained()
    refused = moving.migrate("rollback", moving.group, "--execute", "--timeout", "1", expect=6)
    assert "java-1" in refused.stderr
    moving.load(PER_SECOND)
    moving.stop("modern")
    committed = moving.in_kafka()
    moving.migrate("rollback", moving.group, "--execute")
    assert moving.in_zookeeper() == committed
    for name, release in (("back-1", newer), ("back-2", older)):
        moving.scala("back", name, release)
    moving.wait_delivered("back", 3_000)
    print(f"way back: {moving.gap_s('modern', 'back'):.1f} s; {moving.judge()}")
    assert moving.first_handed("back") == committed

    # Once more: the command waits for the members while they read on, and takes what they committed last.
    # The first migration shows the offset convention, and which values its rollback left in Kafka.
    plan = moving.plan()
    with moving.begun("apply", plan, "--execute", "--accept-drift"):
        moving.stop("back")
    moving.modern("again", "java-2", setup.java)
    moving.modern("again", "c-2", C, setup.c_settings)
    moving.wait_delivered("again", 3_000)
    moving.halt()
    moving.wait_drained()
    moving.stop("again")
    judged = moving.judge()
    print(f"second cut: {moving.gap_s('back', 'again'):.1f} s; {judged}")
    assert (judged.missing, judged.across, judged.again["modern"], judged.again["again"]) == (0, 0, 0, 0)
    archive = moving.folder / "archive"
    moving.migrate("complete", moving.group, "--execute", "--confirm", moving.group, "--archive", archive)
    assert archive.exists()
    assert moving.status()["phase"] == "completed"
    a_forgotten_member_reads_nothing_before_the_fences_are_lifted(moving, setup)


def a_forgotten_member_reads_nothing_before_the_fences_are_lifted(moving: RealGroup, setup: Setup) -> None:
    """A Scala consumer that is started after ``complete``; and one that is started after ``--remove-fences``."""
    fences = moving.owners()
    assert len(fences) == PARTITIONS
    late = moving.scala("forgotten", "forgotten", setup.old[0], wait=False)
    wait_until(lambda: not late.is_running(), "it gives up", 30_000)
    assert any("NoAuth" in str(event) for event in late.events), late.events
    assert (moving.handed("forgotten").total(), moving.owners()) == (0, fences)
    moving.migrate("complete", moving.group, "--remove-fences", "--execute", "--confirm", moving.group)
    assert (moving.status()["phase"], moving.owners()) == ("completed", {})
    moving.scala("lifted", "lifted", setup.old[0])
    wait_until(lambda: len(moving.owners()) == PARTITIONS, "it claims every partition", 30_000)
    moving.stop("lifted")


def outsiders_change_nothing(moving: RealGroup, setup: Setup) -> None:
    """With fences a late Scala consumer and early new clients are refused."""
    before = moving.stores()
    late = moving.scala("late", "late", setup.old[0], wait=False)
    early = moving.modern("early", "early-java", setup.java)
    early_c = moving.modern("early", "early-c", C, setup.c_settings)
    wait_until(lambda: not early.is_running() and not late.is_running(), "both give up", 30_000)
    # 0.9 has no class of its own for error 23.
    told = ("InconsistentGroupProtocol", "supported protocols")
    assert any(words in str(event) for event in early.events for words in told), early.events
    assert any("NoAuth" in str(event) for event in late.events), late.events
    wait_until(lambda: any("INCONSISTENT" in str(event) for event in early_c.events), "librdkafka is told", 30_000)
    early_c.stop()
    assert moving.handed("late").total() + moving.handed("early").total() == 0
    assert moving.stores() == before


def tools_show_both_groups(moving: RealGroup) -> None:
    """The Scala consumer's tool shows the group with its fence and Kafka's offsets, Kafka's own tool the new
    members.
    """
    of_group = ["--describe", "--group", moving.group]
    old = moving.sandbox.run_tool("1.1.1", OLD_TOOL, ["--zookeeper", moving.sandbox.zookeeper_connect, *of_group])
    shown = [line.split() for line in old.out.splitlines() if line.startswith(moving.topic)]
    assert {int(row[1]) for row in shown} == set(range(PARTITIONS)), old
    # It asks the coordinator first, and ZooKeeper where that has nothing.
    assert all(int(row[2]) >= moving.in_zookeeper()[int(row[1])] for row in shown), old
    assert {row[5] for row in shown} == {"zkconsumer"}, "the mark of the fence, up to its last hyphen"
    new = moving.sandbox.run_tool(NEW_TOOL[0], NEW_TOOL[1], ["--bootstrap-server", moving.sandbox.bootstrap, *of_group])
    rows = [line.split() for line in new.out.splitlines() if line.startswith(moving.group)]
    assert {int(row[2]) for row in rows} == set(range(PARTITIONS)), new
    assert {row[-1] for row in rows} == {"java-1", "c-1"}, new
    assert all(int(row[3]) >= moving.in_zookeeper()[int(row[2])] for row in rows), new
