"""Whatever is asked, in whatever order, and whatever the log does: nothing is raised, and all is answered once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bridge.coordinator.behaviour import COLUMNS, behaviour_of
from bridge.coordinator.events import Elected, PartitionLoaded, ShutDown, TopicsDeleted
from bridge.coordinator.group_metadata import GroupState
from tests.coordinator.server_harness import Member, Table
from tests.coordinator.server_invariants import Checker
from tests.simulation_seeds import Seeds
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember

STEPS = 300
SEEDS = 12
NIGHTLY_SEEDS = 300
GROUPS = ("g", "h", "i")
INSTANCES = (None, None, None, "i1", "i2")
PROTOCOLS = (
    (("range", encode_subscription(Subscription(("t",)))),),
    (("range", b""), ("roundrobin", b"x")),
    (("roundrobin", b"x"), ("range", b"")),
    (),
)
ERRORS = (0, 0, 0, 0, 0, 0, 3, 6, 7, 10, 19, 87)


class Chaos:
    """One seed: every step does something at random."""

    def __init__(self, seed: int, release: str) -> None:
        self.chance = random.Random(seed)
        self.table = Table(behaviour_of(release), holds_appends=True)
        self.sent: list[int] = []
        self.epoch = 1

    def group(self) -> str:
        return self.chance.choice(GROUPS)

    def member(self, group: str) -> Member:
        """Mostly somebody who is there, sometimes nobody, and now and then in another generation."""
        known = self.table.coordinator.manager.get_group(group)
        ids = (
            ["", "nobody"] if known is None else ["", "nobody", *known.members, *known.members, *known.pending_members]
        )
        generation = 1 if known is None else known.generation_id + self.chance.choice((0, 0, 0, 0, 1, -1))
        member_id = self.chance.choice(ids)
        instance = self.chance.choice(INSTANCES)
        if known is not None and known.has(member_id) and self.chance.random() < 0.8:
            instance = known.get(member_id).group_instance_id
        return Member(member_id, generation, "", instance)

    def join(self) -> None:
        group = self.group()
        member = self.member(group)
        token = self.table.join(
            group,
            member.member_id,
            version=self.chance.choice((0, 3, 4, 9)),
            instance_id=member.instance_id,
            protocols=self.chance.choice(PROTOCOLS),
            protocol_type=self.chance.choice(("consumer", "consumer", "consumer", "connect", "")),
            session_ms=self.chance.choice((5, 200, 500, 5_000)),
            rebalance_ms=self.chance.choice((100, 500, 5_000)),
        )
        self.sent.append(token)

    def sync(self) -> None:
        group = self.group()
        member = self.member(group)
        self.sent.append(self.table.sync(member, {member.member_id: b"x", "nobody": b"y"}, group))

    def sync_well(self) -> None:
        """What the leader of a group does next, or whoever has not synced."""
        group = self.group()
        known = self.table.coordinator.manager.get_group(group)
        if known is not None and known.members:
            member_id = self.chance.choice([known.leader_id or "", *known.members])
            instance = known.get(member_id).group_instance_id
            member = Member(member_id, known.generation_id, known.leader_id or "", instance)
            self.sent.append(self.table.sync(member, dict.fromkeys(known.members, b"x"), group))

    def heartbeat(self) -> None:
        group = self.group()
        self.table.heartbeat(self.member(group), group)

    def leave(self) -> None:
        group = self.group()
        who = [self.member(group) for _ in range(self.chance.randint(0, 2))]
        members = [LeavingMember(member_id=one.member_id, group_instance_id=one.instance_id) for one in who]
        self.sent.append(self.table.send(13, 3, LeaveGroupRequest(group_id=group, members=members)))

    def commit(self) -> None:
        group = self.group()
        offsets = {(topic, self.chance.randrange(2)): 1 for topic in self.chance.sample(("t", "u"), 2)}
        member = self.chance.choice((None, self.member(group)))
        metadata = "x" * self.chance.choice((0, 0, 5_000))
        self.sent.append(self.table.send_commit(offsets, member, group, metadata=metadata))

    def fetch(self) -> None:
        self.table.fetch_answer(None, self.group(), require_stable=True, version=8)

    def look(self) -> None:
        self.table.describe(self.group())
        self.table.list_groups()

    def delete(self) -> None:
        self.sent.append(self.table.send_delete(self.group(), self.group()))

    def delete_offsets(self) -> None:
        self.sent.append(self.table.send_delete_offsets([("t", 0), ("u", 1)], self.group()))

    def settle(self) -> None:
        if self.table.appends:
            self.table.settle(self.chance.choice(ERRORS))

    def wait(self) -> None:
        self.table.move(self.chance.choice((1, 40, 150, 600, 6_000)))

    def elect(self) -> None:
        self.epoch += 1
        partition = self.chance.randrange(2)
        if self.chance.random() < 0.5:
            self.table.resign(partition, self.epoch)
        self.settle_all()
        self.table.happen(Elected(partition, self.epoch))
        if self.chance.random() < 0.8:
            self.load()

    def load(self) -> None:
        while self.table.loads:
            load = self.table.loads.pop()
            log = list(self.table.logs.get(load.partition, []))
            self.table.happen(PartitionLoaded(load.partition, load.epoch, log))

    def topics(self) -> None:
        self.table.happen(TopicsDeleted(frozenset({"u"})))

    def settle_all(self) -> None:
        while self.table.appends:
            self.table.settle()

    def step(self) -> None:
        often: list[Callable[[], None]] = [self.join, self.join, self.join, self.sync, self.sync_well, self.heartbeat]
        often += [self.leave, self.commit, self.settle, self.settle, self.settle, self.wait, self.fetch, self.look]
        seldom: list[Callable[[], None]] = [self.delete, self.delete_offsets, self.elect, self.load, self.topics]
        self.chance.choice(often if self.chance.random() < 0.93 else seldom)()


SEEDS_OF = {release: Seeds(f"coordinator-requests-{release}") for release in COLUMNS}


@pytest.mark.parametrize(
    ("seed", "release"), [(seed, release) for release in COLUMNS for seed in SEEDS_OF[release].first(SEEDS)]
)
def test_anything_may_be_asked_and_everything_is_answered(seed: int, release: str) -> None:
    SEEDS_OF[release].live([seed], lambda seed: ask_anything(seed, release))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("release", COLUMNS)
def test_anything_more_may_be_asked_and_everything_is_answered(release: str) -> None:
    SEEDS_OF[release].live(SEEDS_OF[release].new(NIGHTLY_SEEDS), lambda seed: ask_anything(seed, release))


def ask_anything(seed: int, release: str) -> None:
    chaos = Chaos(seed, release)
    table, checker = chaos.table, Checker()
    for _ in range(STEPS):
        chaos.step()
        if not table.appends and not table.loads:
            for partition in table.coordinator.manager.owned_partitions:
                checker.coordinator(table.coordinator, table.logs.get(partition, []), partition)
    chaos.load()
    chaos.settle_all()
    table.happen(ShutDown())
    chaos.settle_all()
    assert [token for token in chaos.sent if not table.is_answered(token)] == []
    assert table.timers == {}


def test_in_all_that_every_state_is_reached() -> None:
    seen, notes = set(), set()
    for seed in range(SEEDS):
        chaos = Chaos(seed, "3.9.1")
        for _ in range(STEPS):
            chaos.step()
            seen |= {group.state for group in chaos.table.coordinator.manager.current_groups()}
        notes |= {note.name for note in chaos.table.notes}
    assert seen == set(GroupState)
    assert notes >= {"group-rebalance-started", "partition-loaded"}
