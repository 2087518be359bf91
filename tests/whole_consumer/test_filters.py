"""Members with white lists, ours and originals, in one group while topics are created, grow and go.

After each change every partition of every topic has exactly one owner, the one that the assignment gives; at the end
nothing was lost, and nothing repeated without its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.group_lab import GroupLab
from tests.lab.python_member import PythonMember
from tests.sandbox_fixtures import Clusters, require_releases
from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

BROKER = "1.1.1"
PER_SECOND = 200

# As in the other mixed groups: an original successor is refused once and reads again, so ours repeat nothing for it.
SETTLING = {"release.settle.ms": "500"}
STRICT = {"ours_to_ours": 0, "ours_to_scala": 0}


def form_of(scala: str) -> str:
    """As which release ``roundrobin`` of an original member deals."""
    return "1.0" if scala >= "1." else "0.10.2"


def scenario(scala: str, strategy: str, *, nightly: bool = True) -> object:
    return pytest.param(scala, strategy, marks=[pytest.mark.nightly] if nightly else [], id=f"{scala}-{strategy}")


SCENARIOS = [
    scenario("0.10.2.2", "range", nightly=False),
    scenario("0.8.2.2", "range"),
    scenario("1.1.1", "range"),
    scenario("0.8.2.2", "roundrobin"),
    scenario("0.10.2.2", "roundrobin"),
    scenario("1.1.1", "roundrobin"),
]


@pytest.mark.parametrize(("scala", "strategy"), SCENARIOS)
def test_a_group_of_white_lists_takes_topics_up_and_gives_them_back(
    scala: str, strategy: str, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> None:
    require_releases(scala)
    group, topic = names
    first, second, third = (f"{topic}-{letter}" for letter in "abc")
    # Originals up to 0.10.1 know only members that are alike under roundrobin.
    ours, theirs = (2, 2) if strategy == "roundrobin" else (2, 1)
    # Escaped, and with a slash that matches nothing: originals must read our registration as it stands.
    our_pattern = rf"{topic}\-\w+,a/b"
    pattern = f"{topic}-[a-z]+"
    with GroupLab(
        clusters.get(BROKER),
        group,
        {first: 5},
        folder=tmp_path / "lab",
        strategy=strategy,
        compatibility=form_of(scala),
        ours=SETTLING,
        policy=STRICT,
    ) as lab:
        try:
            lab.load(first, PER_SECOND)
            with lab.change("scala-1 starts the group"):
                lab.start_scala("scala-1", scala, theirs, whitelist=pattern)
            with lab.change("ours-1 joins"):
                lab.start_ours("ours-1", ours, whitelist=our_pattern)
            with lab.change("a second topic is created"):
                lab.create(second, 3)
            lab.load(second, PER_SECOND)
            with lab.change("the first topic grows"):
                lab.grow(first, 7)
            with lab.change("a topic of another name is created"):
                lab.create(f"other-{topic}", 2)
            with lab.change("a third topic is created"):
                lab.create(third, 4)
            with lab.change("the third topic is deleted"):
                lab.delete(third)
            with lab.change("ours-2 joins"):
                lab.start_ours("ours-2", ours, whitelist=our_pattern)
            with lab.change("the third topic is created again"):
                lab.create(third, 2)
            lab.load(third, PER_SECOND)
            with lab.change("scala-1 leaves"):
                lab.leave("scala-1")
            lab.finish()
        finally:
            print(lab.report())


# --- topics that come while a member is there ---------------------------------------------------------------------

DELETE_TIMEOUT_MS = 30_000
OLD, NEW = 20, 50
"""Records of the topic before and after it was deleted: the old offset is in range of the new one."""


def delete(cluster: Sandbox, topic: str) -> None:
    cluster.admin.put(f"/admin/delete_topics/{topic}", b"")
    wait_until(lambda: not cluster.admin.exists(f"/brokers/topics/{topic}"), f"{topic} is gone", DELETE_TIMEOUT_MS)


def values(member: PythonMember, topic: str, first: int) -> list[int]:
    """The offsets that were handed out of this topic, after the first so many."""
    return [message.offset for message in member.delivered if message.topic == topic][first:]


def test_a_topic_that_comes_or_comes_again_is_read_from_its_beginning_with_largest(
    clusters: Clusters, names: tuple[str, str]
) -> None:
    cluster = clusters.get(BROKER)
    group, topic = names
    old = f"{topic}-old"
    cluster.create_topic(old)
    cluster.produce(old, 0, OLD)
    member = PythonMember(
        cluster.zookeeper,
        group,
        chroot=cluster.chroot,
        whitelist=f"{topic}-.*",
        settings={"auto.offset.reset": "largest"},
    )
    try:
        member.start()
        came = f"{topic}-came"
        cluster.create_topic(came)
        cluster.produce(came, 0, OLD)
        member.wait_for(lambda: values(member, came, 0) == list(range(OLD)), 20_000, "what is new is read as a whole")
        assert values(member, old, 0) == [], "what was there is read from its end"
        member.commit()
        assert cluster.admin.offsets(group, came) == {0: OLD}
        delete(cluster, came)
        member.wait_for(lambda: cluster.admin.owners(group, came) == {}, 20_000, "a deleted topic is given back")
        cluster.create_topic(came)
        cluster.produce(came, 0, NEW)
        member.wait_for(lambda: values(member, came, OLD) == list(range(NEW)), 20_000, "the topic is read anew")
        assert member.log_lines("offset-older-than-topic"), "and it is said"
        assert member.stop()
        assert cluster.admin.offsets(group, came) == {0: NEW}
    finally:
        member.close()
