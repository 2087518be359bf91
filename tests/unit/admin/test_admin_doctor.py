"""``zkconsumer groups doctor``: each finding met by a group that has it, and not by one that has not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from tests.in_memory_fixtures import MakeConnector, take
from tests.unit.admin.test_admin_groups import SCALA, scala_member
from zkconsumer import extensions
from zkconsumer.admin import doctor as doctor_package
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.doctor import CHECK_MODULES, run_checks
from zkconsumer.admin.doctor.collect import collect_facts
from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.doctor.owner_findings import owned_by_registered_threads
from zkconsumer.cli.main import main
from zkconsumer.errors import MalformedZnode
from zkconsumer.member.group_assignment import AssignmentContext, create_instance
from zkconsumer.member.topic_count import StaticTopicCount
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire import compression
from zkconsumer.zk.member_registration import incompatible_releases
from zkconsumer.zk.requests import Create, Multi, SetOp
from zkconsumer.zk.store import submit_and_wait

FAKE_EPOCH_MS = 1_416_246_370_000
"""What the fake ZooKeeper's clock begins at; each of its steps is a millisecond."""

HOUR_MS = 3_600_000
Act = Callable[[], object]


class Clinic:
    """Examines the group ``g1`` of a world; between the looks it does what the test says, one thing a sample."""

    def __init__(self, world: FakeEnvironment) -> None:
        self.world = world

    def facts(self, *between: Act, age_ms: int = HOUR_MS, look_for_ms: int = 4_000, **how: Any) -> GroupFacts:
        """``age_ms``: how long before the examination everything was written."""
        clock = ManualClock(wall_ms=FAKE_EPOCH_MS + self.world.zookeeper._seq + age_ms)
        acts = list(between)

        def pause(ms: int) -> None:
            if acts:
                acts.pop(0)()
            clock.move(ms)

        reached = AdminDependencies(self.world.store, self.world.cluster.connect, clock)
        with AdminSession.open(ADDRESS, None, reached) as session:
            found = collect_facts(session, "g1", look_for_ms, pause=pause, **how)
        assert found is not None
        return found

    def findings(self, *between: Act, **how: Any) -> dict[str, DoctorFinding]:
        return {finding.name: finding for finding in run_checks(self.facts(*between, **how))}


@pytest.fixture
def clinic(world: FakeEnvironment) -> Clinic:
    """A topic ``clicks`` of four partitions without records."""
    world.create_topic("clicks", 4)
    return Clinic(world)


def stored(world: FakeEnvironment, at: str, offset: int | bytes) -> None:
    data = offset if isinstance(offset, bytes) else str(offset).encode()
    world.zookeeper.ensure(f"/consumers/g1/offsets/{at}", data)


def healthy(world: FakeEnvironment) -> FakeZkStore:
    """One original member that owns everything and has read everything."""
    owns = tuple(f"clicks/{number}" for number in range(4))
    for at in owns:
        stored(world, at, 0)
    return scala_member(world, SCALA, {"clicks": 1}, owns)


def words(finding: DoctorFinding) -> str:
    return "\n".join((finding.description, *finding.evidence, *finding.next_steps))


# --- a healthy group --------------------------------------------------------------------------------------------


def test_a_healthy_group_has_no_finding(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    facts = clinic.facts()
    assert run_checks(facts) == []
    assert facts.not_known == ()
    assert owned_by_registered_threads(facts) == (4, 4)


def test_a_group_of_ours_and_the_original_has_no_finding(
    world: FakeEnvironment, clinic: Clinic, connect: MakeConnector
) -> None:
    world.cluster.append("clicks", 3, [b"x"] * 3)
    scala_member(world, SCALA, {"clicks": 1}, ("clicks/0", "clicks/1"))
    ours = connect(consumer_id="z")
    [stream] = ours.create_message_streams({"clicks": 1})["clicks"]
    take(stream, 3)
    ours.commit_offsets()
    assert clinic.findings() == {}


def test_each_finding_has_evidence_a_next_step_and_a_name_of_its_own(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.zookeeper.ensure("/consumers/g1/ids/g1_bad", b"?")
    stored(world, "gone/0", 1)
    found = run_checks(clinic.facts())
    assert len({finding.name for finding in found}) == len(found) >= 3
    assert all(finding.evidence and finding.next_steps for finding in found)
    told = "\n".join(module.__doc__ or "" for module in CHECK_MODULES)
    assert all(finding.name in told for finding in found)


# --- registrations ----------------------------------------------------------------------------------------------


def register(world: FakeEnvironment, name: str, **members: Any) -> None:
    """A registration in a session of its own; ``members`` are the keys of its JSON."""
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    world.zookeeper.ensure("/consumers/g1/ids")
    data = {"version": 1, "subscription": {"clicks": 1}, "pattern": "static", "timestamp": "1"} | members
    submit_and_wait(store, [Create(f"/consumers/g1/ids/{name}", json.dumps(data).encode(), ephemeral=True)], 1_000)


def test_a_registration_that_nobody_can_read_is_poison(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    register(world, "g1_bad", subscription={"clicks": 0})
    finding = clinic.findings()["registration-invalid"]
    assert "/consumers/g1/ids/g1_bad" in words(finding)
    assert "0 streams for 'clicks'" in words(finding)


def test_a_filter_that_no_java_compiles_is_poison(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_bad", subscription={"(": 1}, pattern="white_list")
    assert "no Java compiles" in words(clinic.findings()["registration-invalid"])


def test_a_filter_that_only_java_understands_makes_ours_leave(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_odd", subscription={r"(a|b)\1(?<=x+)": 1}, pattern="white_list")
    found = clinic.findings()
    assert "registration-not-evaluable" in found
    assert "registration-invalid" not in found


def test_a_numeric_timestamp_stops_the_old_releases_only(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_go-1416246370000-aa", timestamp=1416246370000)
    finding = clinic.findings()["registration-partly-unreadable"]
    assert "release up to 0.11" in finding.description
    assert "on go" in words(finding)


@pytest.mark.parametrize(
    ("data", "refusing"),
    [
        (b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}', set()),
        (b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1416246370000}', {"up to 0.11"}),
        (b'{"version":1,"subscription":{"a\\.b":1},"pattern":"white_list","timestamp":"1"}', {"1.0.0"}),
        (b'{"version":1,"subscription":{"t":1},"pattern":null,"timestamp":"1"}', {"from 1.0 on"}),
    ],
)
def test_which_releases_refuse_a_registration(data: bytes, refusing: set[str]) -> None:
    assert set(incompatible_releases(data)) == refusing
    with pytest.raises(MalformedZnode):
        incompatible_releases(b"?")


def test_a_persistent_registration_never_goes(world: FakeEnvironment, clinic: Clinic) -> None:
    data = {"version": 1, "subscription": {"clicks": 1}, "pattern": "static", "timestamp": "1"}
    world.zookeeper.ensure("/consumers/g1/ids/g1_c", json.dumps(data).encode())
    assert "registration-persistent" in clinic.findings()
    world.zookeeper.ensure("/consumers/g1/ids/g1_d", b"x")
    unusable = clinic.findings()["registration-invalid"]
    assert unusable.next_steps == ("delete /consumers/g1/ids/g1_d with zkCli.sh",), "no process holds it"
    assert "no session, registered" in words(unusable)


def test_a_filter_that_was_escaped_twice_is_told(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_a", subscription={"cli.ks\\\\.x|clicks": 1}, pattern="white_list")
    register(world, "g1_b", subscription={"cli.ks": 1}, pattern="white_list")
    finding = clinic.findings()["registration-double-escaped"]
    assert "g1_a" in finding.description
    assert "g1_b" not in words(finding)


def test_subscriptions_without_topics_are_told(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_a", subscription={"clikcs": 1})
    assert "clikcs" in words(clinic.findings()["subscription-without-topics"])


def test_a_filter_that_takes_no_topic_is_told(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_a", subscription={"nothing.*": 1}, pattern="white_list")
    assert "matches no existing topic" in words(clinic.findings()["subscription-without-topics"])


# --- strategies -------------------------------------------------------------------------------------------------

TWO = ("g1_a", "g1_b")


def two_members(
    world: FakeEnvironment, a: tuple[str, ...], b: tuple[str, ...], topics: tuple[str, ...] = ("clicks",)
) -> None:
    for name, owns in zip(TWO, (a, b), strict=True):
        scala_member(world, name, dict.fromkeys(topics, 1), owns)


def test_members_that_compute_otherwise_are_told_by_their_owners(world: FakeEnvironment, clinic: Clinic) -> None:
    two_members(world, ("clicks/0", "clicks/3"), ("clicks/1", "clicks/2"))
    finding = clinic.findings()["strategies-differ"]
    assert "g1_a owns clicks/0, clicks/3: no setting gives exactly this" in finding.evidence
    assert "partition.assignment.strategy" in words(finding)


@pytest.mark.parametrize("form", ["range", "roundrobin"])
def test_members_that_compute_alike_are_no_finding(world: FakeEnvironment, clinic: Clinic, form: str) -> None:
    if form == "range":
        two_members(world, ("clicks/0", "clicks/1"), ("clicks/2", "clicks/3"))
    else:
        two_members(world, ("clicks/0", "clicks/2"), ("clicks/1", "clicks/3"))
    facts = clinic.facts()
    assert {one.strategy for one in facts.forms} == {form}
    assert run_checks(facts) == []


def test_in_the_middle_of_a_rebalance_no_strategy_is_judged(world: FakeEnvironment, clinic: Clinic) -> None:
    two_members(world, ("clicks/0", "clicks/3"), ("clicks/1", "clicks/2"))
    found = clinic.findings(lambda: register(world, "g1_c"))
    assert "strategies-differ" not in found
    assert "strategies-differ" not in clinic.findings(age_ms=100)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_topics_with_equal_hashes_are_told_under_roundrobin(
    world: FakeEnvironment, clinic: Clinic, strategy: str
) -> None:
    topics = {"Aa": (0, 1, 2), "BB": (0, 1, 2), "C": (0,)}
    for topic, numbers in topics.items():
        world.create_topic(topic, len(numbers))
    counts = {name: StaticTopicCount(name, dict.fromkeys(topics, 1)) for name in TWO}
    shares = create_instance(strategy).assign(AssignmentContext("", counts, topics))
    a, b = (tuple(str(tp) for tp in shares.of_member(name)) for name in TWO)
    two_members(world, a, b, tuple(topics))
    found = clinic.findings()
    assert set(found) == ({"topic-hash-collision"} if strategy == "roundrobin" else set())


# --- owners -----------------------------------------------------------------------------------------------------


def test_owners_of_consumers_that_are_not_registered_are_told(world: FakeEnvironment, clinic: Clinic) -> None:
    store = healthy(world)
    submit_and_wait(store, [Create("/consumers/g1/owners/other/0", b"g1_gone-0", ephemeral=True)], 1_000)
    world.zookeeper.ensure("/consumers/g1/owners/other")
    submit_and_wait(store, [Create("/consumers/g1/owners/other/0", b"g1_gone-0", ephemeral=True)], 1_000)
    finding = clinic.findings()["owner-without-member"]
    assert "'g1_gone-0'" in words(finding)
    assert f"0x{store.session_id:x}" in words(finding)


def test_an_owner_node_of_an_older_session_than_the_registration_is_told(
    world: FakeEnvironment, clinic: Clinic
) -> None:
    old = healthy(world)
    submit_and_wait(old, [Create("/x", b"")], 1_000)
    world.zookeeper.remove(f"/consumers/g1/ids/{SCALA}")
    register(world, SCALA)
    assert f"0x{old.session_id:x}" in words(clinic.findings()["owner-of-other-session"])


def test_a_persistent_owner_node_is_a_fence_or_a_mistake(world: FakeEnvironment, clinic: Clinic) -> None:
    register(world, "g1_a")
    world.zookeeper.ensure("/consumers/g1/owners/clicks/0", b"by hand")
    assert "do not end with a session" in clinic.findings()["owner-persistent"].description
    control = {"id": "m1", "epoch": 1, "phase": "fenced", "authority": "zookeeper", "strategy": "copy"}
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control).encode())
    world.zookeeper.ensure("/consumers/g1/owners/clicks/0/fenced")
    found = clinic.findings()["owner-persistent"]
    assert "fenced by a migration" in found.description
    assert found.next_steps == ("zkconsumer migrate status g1",)


def test_an_owner_that_is_no_thread_of_its_member_is_told(world: FakeEnvironment, clinic: Clinic) -> None:
    store = healthy(world)
    submit_and_wait(store, [Multi((SetOp("/consumers/g1/owners/clicks/0", f"{SCALA}-7".encode()),))], 1_000)
    assert f"{SCALA}-7" in words(clinic.findings()["owner-foreign"])


def test_a_claim_on_an_internal_topic_by_a_filter_is_no_foreign_one(world: FakeEnvironment, clinic: Clinic) -> None:
    world.create_topic("__consumer_offsets", 1)
    register(world, "g1_a", subscription={".*": 2}, pattern="white_list")
    store = world.zookeeper.stores[-1]
    for topic, number, thread in (("clicks", 0, 0), ("clicks", 1, 0), ("clicks", 2, 1), ("clicks", 3, 1),
                                  ("__consumer_offsets", 0, 0)):  # fmt: skip
        world.zookeeper.ensure(f"/consumers/g1/owners/{topic}")
        path = f"/consumers/g1/owners/{topic}/{number}"
        submit_and_wait(store, [Create(path, f"g1_a-{thread}".encode(), ephemeral=True)], 1_000)
    assert clinic.findings() == {}


def test_a_node_that_was_written_twice_is_nobodys(world: FakeEnvironment, clinic: Clinic) -> None:
    store = healthy(world)
    path = "/consumers/g1/owners/clicks/0"
    submit_and_wait(store, [Multi((SetOp(path, b"x"), SetOp(path, f"{SCALA}-0".encode())))], 1_000)
    assert "version 2" in words(clinic.findings()["owner-foreign"])


def test_a_claim_on_a_partition_that_does_not_exist_is_told(world: FakeEnvironment, clinic: Clinic) -> None:
    store = healthy(world)
    submit_and_wait(store, [Create("/consumers/g1/owners/clicks/9", f"{SCALA}-0".encode(), ephemeral=True)], 1_000)
    assert "clicks/9" in words(clinic.findings()["owner-of-missing-partition"])


def test_a_member_that_gave_up_is_told_with_its_share_and_its_age(world: FakeEnvironment, clinic: Clinic) -> None:
    two_members(world, ("clicks/0", "clicks/1"), ())
    found = clinic.findings()
    assert "clicks/2, clicks/3" in words(found["partitions-unowned"])
    idle = found["member-idle"]
    assert "g1_b is registered for 1 h" in idle.description
    assert "its assignment by range: clicks/2, clicks/3" in idle.evidence
    assert "without an owner" in idle.evidence
    assert owned_by_registered_threads(clinic.facts()) == (4, 2)


def test_a_member_without_a_share_is_not_idle(world: FakeEnvironment, clinic: Clinic) -> None:
    world.create_topic("one", 1)
    two_members(world, ("one/0",), (), ("one",))
    assert clinic.findings() == {}


def test_a_member_that_has_just_come_is_not_idle(world: FakeEnvironment, clinic: Clinic) -> None:
    two_members(world, ("clicks/0", "clicks/1"), ())
    found = clinic.findings(age_ms=1_000, look_for_ms=1_000)
    assert "member-idle" not in found


def test_partitions_that_are_claimed_between_the_looks_are_not_unowned(world: FakeEnvironment, clinic: Clinic) -> None:
    store = scala_member(world, SCALA, {"clicks": 1}, ("clicks/0", "clicks/1", "clicks/2"))
    node = Create("/consumers/g1/owners/clicks/3", f"{SCALA}-0".encode(), ephemeral=True)
    assert "partitions-unowned" not in clinic.findings(lambda: submit_and_wait(store, [node], 1_000))


def test_a_partition_that_was_let_go_between_the_looks_is_not_unowned(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    found = clinic.findings(lambda: world.zookeeper.remove("/consumers/g1/owners/clicks/3"))
    assert "partitions-unowned" not in found


def test_while_owners_move_nobody_is_called_idle(world: FakeEnvironment, clinic: Clinic) -> None:
    two_members(world, ("clicks/0", "clicks/1"), ())
    found = clinic.findings(lambda: world.zookeeper.remove("/consumers/g1/owners/clicks/1"))
    assert "member-idle" not in found


# --- movement ---------------------------------------------------------------------------------------------------


def test_a_partition_with_records_and_no_commits_is_stalled(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.cluster.append("clicks", 1, [b"x"] * 9)
    finding = clinic.findings(lambda: world.cluster.append("clicks", 1, [b"x"]))["partition-stalled"]
    assert "clicks/1: offset 0 since 1 h" in words(finding)
    assert "log end 10, 1 more in 4 s" in words(finding)


def test_a_partition_without_any_offset_is_stalled_as_well(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.zookeeper.remove("/consumers/g1/offsets/clicks/1")
    world.cluster.append("clicks", 1, [b"x"] * 9)
    assert "clicks/1: no offset" in words(clinic.findings()["partition-stalled"])


def time_passes(world: FakeEnvironment, ms: int) -> None:
    """What was written is older by so much."""
    world.zookeeper._seq += ms


def test_a_young_commit_or_a_young_claim_is_waited_for(world: FakeEnvironment, clinic: Clinic) -> None:
    world.cluster.append("clicks", 1, [b"x"] * 9)
    world.cluster.append("clicks", 2, [b"x"] * 9)
    store = healthy(world)
    time_passes(world, HOUR_MS)
    stored(world, "clicks/1", 5)
    finding = clinic.findings(age_ms=30_000)["partition-stalled"]
    assert [line.partition(":")[0] for line in finding.evidence] == ["clicks/2"]
    world.zookeeper.remove("/consumers/g1/owners/clicks/2")
    submit_and_wait(store, [Create("/consumers/g1/owners/clicks/2", f"{SCALA}-0".encode(), ephemeral=True)], 1_000)
    assert "partition-stalled" not in clinic.findings(age_ms=30_000)


@pytest.mark.parametrize("why", ["it moves", "nothing to read", "young", "longer interval", "in kafka", "unowned"])
def test_a_partition_is_not_stalled(world: FakeEnvironment, clinic: Clinic, why: str) -> None:
    healthy(world)
    if why != "nothing to read":
        world.cluster.append("clicks", 1, [b"x"] * 9)
    between: list[Act] = [lambda: stored(world, "clicks/1", 5)] if why == "it moves" else []
    how: dict[str, Any] = {}
    if why == "young":
        how = {"age_ms": 30_000}
    elif why == "longer interval":
        how = {"commit_interval_ms": HOUR_MS}
    elif why == "in kafka":
        how = {"stores_in_kafka": True}
    elif why == "unowned":
        world.zookeeper.remove("/consumers/g1/owners/clicks/1")
    assert "partition-stalled" not in clinic.findings(*between, **how)


def in_kafka(world: FakeEnvironment, at: str, value: int) -> None:
    topic, _, number = at.partition("/")
    world.zookeeper.ensure("/brokers/topics/__consumer_offsets")
    world.cluster.commit("g1", topic, int(number), value)


def test_a_group_that_stores_in_kafka_is_not_judged_by_what_it_left_in_zookeeper(
    world: FakeEnvironment, clinic: Clinic
) -> None:
    healthy(world)
    world.cluster.append("clicks", 1, [b"x"] * 9)
    in_kafka(world, "clicks/1", 9)
    assert clinic.findings(age_ms=9 * 24 * HOUR_MS) == {}
    world.zookeeper.remove("/consumers/g1/offsets/clicks/1")
    assert clinic.findings() == {}


@pytest.mark.parametrize("look_for_ms", [4_000, 121_000])
def test_an_offset_in_kafka_is_stalled_when_the_looks_are_far_enough_apart(
    world: FakeEnvironment, clinic: Clinic, look_for_ms: int
) -> None:
    healthy(world)
    world.cluster.append("clicks", 1, [b"x"] * 9)
    in_kafka(world, "clicks/1", 5)
    found = clinic.findings(look_for_ms=look_for_ms)
    assert ("partition-stalled" in found) == (look_for_ms > 120_000)
    if found:
        assert "clicks/1: offset 5 in Kafka in both reads" in words(found["partition-stalled"])
    moved = clinic.findings(lambda: in_kafka(world, "clicks/1", 6), look_for_ms=look_for_ms)
    assert "partition-stalled" not in moved


def test_an_offset_rewound_between_the_looks_is_told_though_it_is_right_again(
    world: FakeEnvironment, clinic: Clinic
) -> None:
    healthy(world)
    stored(world, "clicks/0", 100)
    world.cluster.append("clicks", 0, [b"x"] * 200)
    finding = clinic.findings(lambda: stored(world, "clicks/0", 40), lambda: stored(world, "clicks/0", 120))[
        "offset-rewound"
    ]
    assert "/consumers/g1/offsets/clicks/0: 100 (version 1), then 40 (version 2)" in finding.evidence


def test_an_offset_that_goes_on_is_not_rewound(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.cluster.append("clicks", 0, [b"x"] * 200)
    found = clinic.findings(lambda: stored(world, "clicks/0", 40), lambda: stored(world, "clicks/0", 120))
    assert "offset-rewound" not in found


def test_offsets_outside_the_log_are_told(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.cluster.append("clicks", 0, [b"x"] * 20)
    world.cluster.delete_before("clicks", 0, 10)
    stored(world, "clicks/0", 3)
    stored(world, "clicks/1", 7)
    found = clinic.findings()
    assert "= 3, the log starts at 10 (7 deleted)" in words(found["offset-before-start"])
    assert "= 7, the log ends at 0" in words(found["offset-beyond-end"])


# --- offsets ----------------------------------------------------------------------------------------------------


def test_an_offset_node_that_is_no_number_is_told(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    stored(world, "clicks/0", b"forty-two")
    assert "= 'forty-two'" in words(clinic.findings()["offset-unreadable"])


def test_offsets_of_topics_and_partitions_that_are_gone_are_told(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    stored(world, "gone/0", 5)
    stored(world, "clicks/77", 5)
    finding = clinic.findings()["offset-of-missing-topic"]
    assert "2 offsets" in finding.description
    assert finding.next_steps == ("zkconsumer groups delete g1 --topic gone   # members stopped",)


def test_offsets_older_than_their_topic_are_of_another_topic(world: FakeEnvironment, clinic: Clinic) -> None:
    stored(world, "late/0", 5)
    world.create_topic("late", 1)
    world.cluster.append("late", 0, [b"x"] * 5)
    assert "/brokers/topics/late was created" in words(clinic.findings()["offset-older-than-topic"])


def test_offsets_that_nobody_wrote_for_long_are_stale(world: FakeEnvironment, clinic: Clinic) -> None:
    stored(world, "clicks/0", 0)
    world.cluster.append("clicks", 0, [b"x"])
    assert "offsets-stale" not in clinic.findings()
    finding = clinic.findings(age_ms=9 * 24 * HOUR_MS)["offsets-stale"]
    assert "written 9 d" in words(finding)
    assert "offsets.retention.minutes" in finding.description
    assert "groups delete g1" in finding.next_steps[0]


def test_offsets_that_are_all_one_below_the_end_are_the_last_ones_read(world: FakeEnvironment, clinic: Clinic) -> None:
    for number in range(3):
        world.cluster.append("clicks", number, [b"x"] * (number + 3))
        stored(world, f"clicks/{number}", number + 2)
    finding = clinic.findings()["offset-convention-last"]
    assert "all 3 idle partitions" in finding.description
    stored(world, "clicks/1", 4)
    assert "offset-convention-last" not in clinic.findings()


def test_partitions_that_grow_tell_no_convention(world: FakeEnvironment, clinic: Clinic) -> None:
    for number in range(3):
        world.cluster.append("clicks", number, [b"x"] * 3)
        stored(world, f"clicks/{number}", 3)
    grown = clinic.findings(lambda: [world.cluster.append("clicks", number, [b"x"]) for number in range(3)])
    assert "offset-convention-last" not in grown


def test_one_idle_partition_tells_no_convention(world: FakeEnvironment, clinic: Clinic) -> None:
    world.cluster.append("clicks", 0, [b"x"] * 3)
    stored(world, "clicks/0", 2)
    assert "offset-convention-last" not in clinic.findings()


def test_nodes_that_no_consumer_makes_are_told(world: FakeEnvironment, clinic: Clinic) -> None:
    stored(world, "clicks/partition_3", 1)
    assert "/consumers/g1/offsets/clicks/partition_3" in words(clinic.findings()["unexpected-znode"])


# --- from outside -----------------------------------------------------------------------------------------------


def test_a_topic_with_zstd_stops_original_members(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    assert "topic-with-zstd" not in clinic.findings()
    world.cluster.append("clicks", 2, [b"x"] * 50, codec=compression.ZSTD)
    for number in range(4):
        stored(world, f"clicks/{number}", world.cluster.log_end("clicks", number))
    finding = clinic.findings()["topic-with-zstd"]
    assert "clicks/2 at offset 0" in words(finding)
    assert SCALA in words(finding)


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.LZ4, compression.SNAPPY])
def test_other_codecs_stop_nobody(world: FakeEnvironment, clinic: Clinic, codec: int) -> None:
    healthy(world)
    world.cluster.append("clicks", 2, [b"x"] * 50, codec=codec)
    facts = clinic.facts()
    assert list(facts.codecs["clicks"]) == [compression.CODEC_NAMES[codec]]
    assert "topic-with-zstd" not in {finding.name for finding in run_checks(facts)}


def test_zstd_is_no_trouble_for_members_of_ours(world: FakeEnvironment, clinic: Clinic, connect: MakeConnector) -> None:
    world.cluster.append("clicks", 2, [b"x"] * 50, codec=compression.ZSTD)
    connector = connect()
    [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
    take(stream, 50)
    connector.commit_offsets()
    assert clinic.findings() == {}


def test_modern_consumers_of_the_same_name_are_told(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.zookeeper.ensure("/brokers/topics/__consumer_offsets")
    assert clinic.findings() == {}
    world.cluster.set_coordinator_members("g1", True)
    finding = clinic.findings()["coordinator-group-active"]
    assert "the coordinator reports: Stable, 1 member" in finding.evidence
    assert "modern on /127.0.0.1" in finding.evidence


def test_a_modern_group_of_an_empty_old_group_is_no_finding(world: FakeEnvironment, clinic: Clinic) -> None:
    stored(world, "clicks/0", 0)
    world.zookeeper.ensure("/brokers/topics/__consumer_offsets")
    world.cluster.set_coordinator_members("g1", True)
    assert clinic.findings() == {}


@pytest.mark.parametrize("release", ["0.9.0.1", "3.9.1"])
@pytest.mark.parametrize("offset", [0, 7])
def test_a_client_newer_than_the_brokers_owns_and_reads_nothing(make_world: Any, release: str, offset: int) -> None:
    world = make_world(1, release=release)
    world.create_topic("clicks", 4)
    healthy(world)
    for number in range(4):
        world.cluster.append("clicks", number, [b"x"] * 9)
    stored(world, "clicks/0", offset)
    found = Clinic(world).findings()
    assert ("client-newer-than-brokers" in found) == (release == "0.9.0.1" and offset == 0)
    assert "partition-stalled" in found


def test_a_control_znode_that_takes_the_authority_away_is_told(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.zookeeper.ensure("/zkconsumer/groups/g1", b"?")
    assert "cannot be read" in clinic.findings()["group-migrating"].description
    control = {"id": "m1", "epoch": 3, "phase": "switched", "authority": "kafka", "strategy": "copy"}
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control).encode())
    assert "phase switched, epoch 3" in words(clinic.findings()["group-migrating"])
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control | {"authority": "zookeeper"}).encode())
    assert "group-migrating" not in clinic.findings()


@pytest.mark.parametrize(
    ("phase", "authority"), [("copied", "zookeeper"), ("switched", "kafka"), ("completed", "kafka")]
)
def test_members_that_move_with_their_group_are_no_finding(
    world: FakeEnvironment, clinic: Clinic, phase: str, authority: str
) -> None:
    """They are in the group of the coordinator by design: nobody is to stop them."""
    healthy(world)
    world.zookeeper.ensure("/brokers/topics/__consumer_offsets")
    world.cluster.set_coordinator_members("g1", True)
    control = {"id": "m1", "epoch": 3, "phase": phase, "authority": authority, "strategy": "dual"}
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control).encode())
    assert "coordinator-group-active" in clinic.findings(), "no member has acknowledged"
    world.zookeeper.ensure(f"/zkconsumer/groups/g1/members/{SCALA}", b"{}")
    assert clinic.findings() == {}
    scala_member(world, "g1_other-1416246370000-00000001", {"clicks": 1}, ())
    found = clinic.findings()
    assert "coordinator-group-active" in found
    if authority == "kafka":
        assert found["group-migrating"].next_steps == ("stop g1_other-1416246370000-00000001",)


def test_members_that_came_back_with_their_group_are_as_all_others(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.zookeeper.ensure("/brokers/topics/__consumer_offsets")
    world.cluster.set_coordinator_members("g1", True)
    control = {"id": "m1", "epoch": 3, "phase": "undone", "authority": "zookeeper", "strategy": "dual"}
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control).encode())
    world.zookeeper.ensure(f"/zkconsumer/groups/g1/members/{SCALA}", b"{}")
    assert "coordinator-group-active" in clinic.findings()


def test_old_offsets_of_a_group_that_has_moved_are_no_finding(world: FakeEnvironment, clinic: Clinic) -> None:
    """No member starts from them any more."""
    stored(world, "clicks/0", 99)
    assert "offset-beyond-end" in clinic.findings()
    control = {"id": "m1", "epoch": 3, "phase": "switched", "authority": "kafka", "strategy": "copy"}
    world.zookeeper.ensure("/zkconsumer/groups/g1", json.dumps(control).encode())
    assert "offset-beyond-end" not in clinic.findings()


# --- what cannot be known ---------------------------------------------------------------------------------------


def test_without_brokers_the_znodes_are_judged_all_the_same(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    register(world, "g1_bad", subscription={"clicks": 0})
    for address in world.cluster.addresses:
        world.cluster.stop_broker(address.broker_id)
    facts = clinic.facts()
    assert [finding.name for finding in run_checks(facts)] == ["registration-invalid"]
    assert any("none of 2 brokers" in told for told in facts.not_known)


# --- the command ------------------------------------------------------------------------------------------------


def run(world: FakeEnvironment, *more: str) -> Any:
    reached = doors(world)
    return CliRunner().invoke(
        main, ["groups", "doctor", "g1", "--interval", "0", "--zookeeper", ADDRESS, *more], obj=reached
    )


def test_the_command_says_ok_with_the_count_and_exits_with_0(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    result = run(world)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "g1: 1 member, 4 of 4 partitions owned by registered threads, lag 0", "OK: nothing found",
    ]  # fmt: skip


def test_the_command_says_which_compiled_modules_are_in_use(
    world: FakeEnvironment, clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy(world)
    assert json.loads(run(world, "-o", "json").stdout)["compiled_modules"] == extensions.status()
    monkeypatch.setattr(extensions, "status", lambda: {"zkconsumer.wire._records": "not in use: it cannot be loaded"})
    assert json.loads(run(world, "-o", "json").stdout)["codecs"] == compression.implementations()
    missing = run(world)
    assert missing.exit_code == 0
    assert "zkconsumer.wire._records is not in use: it cannot be loaded" in missing.stderr
    assert "Install a C compiler, and reinstall the package" in missing.stderr


def test_the_command_shows_findings_and_exits_with_3(world: FakeEnvironment, clinic: Clinic) -> None:
    healthy(world)
    world.zookeeper.ensure("/consumers/g1/ids/g1_bad", b"\x1b[2J")
    result = run(world)
    assert result.exit_code == 3
    assert "1. registration-invalid: " in result.stdout
    assert "   -> " in result.stdout
    assert "\x1b" not in result.stdout
    told = json.loads(run(world, "-o", "json").stdout)
    assert (told["schema"], told["partitions"]) == ("zkconsumer/groups-doctor/1", 4)
    assert told["findings"][0]["name"] == "registration-invalid"
    assert told["findings"][0]["description"].startswith("no release can use the registration of g1_bad")
    assert told["interval_ms"] >= 0
    assert told["next_steps"]


def test_an_unknown_group_is_an_error(world: FakeEnvironment) -> None:
    result = run(world)
    assert result.exit_code == 1
    assert result.stderr == (
        "zkconsumer: The consumer group 'g1' does not exist in ZooKeeper, and this command searches only there. The "
        f"existing groups: zkconsumer groups list --zookeeper {ADDRESS}\n"
    )


def test_the_page_of_the_findings_has_each_of_them() -> None:
    sources = Path(doctor_package.__file__).parent.glob("*.py")
    made = {name for path in sources for name in re.findall(r"Finding\(\s*\"([a-z-]+)\"", path.read_text("utf-8"))}
    page = Path(__file__).parents[3] / "migration_docs" / "how-to" / "find-out-why-a-group-makes-no-progress.md"
    told = set(re.findall(r"(?m)^\| `([a-z-]+)` \|", page.read_text("utf-8")))
    assert made == told
    assert len(made) > 20
