"""The placeholder member: it joins, stays, is lost, joins again and leaves, on brokers of every age."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.placeholder.placeholder_member import PlaceholderMember
from bridge.migration.placeholder.placeholder_rules import placeholder_subscription
from bridge.migration.placeholder.placeholder_steps import (
    JoinPlaceholder,
    RemovePlaceholder,
    WaitForEmptyCoordinatorGroup,
)
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepWaiting
from tests.broker.raw_client import RawClient
from tests.migration.placeholder_fixtures import (
    FAILURES,
    GROUP,
    RELEASES,
    MakePlaceholderFixture,
    Network,
    PlaceholderFixture,
)
from tests.migration.step_write_faults import Killed
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_assignment, decode_subscription
from zkconsumer.wire.schemas import DESCRIBE_GROUPS, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.describe_groups import DescribeGroupsRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest
from zkconsumer.wire.schemas.sync_group import SyncGroupRequest

T0 = TopicPartition("t", 0)
HAS_STATIC = {"2.8.2", "3.9.1", "4.1.1"}
SESSIONS_MS = {"0.9.0.1": 30_000} | dict.fromkeys(["0.10.2.2", "0.11.0.3", "1.1.1", "2.0.1"], 300_000)


def talk(env: PlaceholderFixture, client_id: str = "stock") -> RawClient:
    return RawClient(env.broker.addresses()[0], client_id)


def join_as_stock(env: PlaceholderFixture) -> tuple[RawClient, int, str]:
    """A stock member that is in the group; its connection, generation and member id."""
    stock = talk(env)
    while stock.find_coordinator(GROUP, version=0).error_code:
        pass
    joined = stock.join(GROUP, version=old(env.release))
    assert joined.error_code == 0
    stock.ask(
        SYNC_GROUP, 0, SyncGroupRequest(group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id)
    )
    return stock, joined.generation_id, joined.member_id


def leave(env: PlaceholderFixture, member: str) -> None:
    with talk(env) as stock:
        assert stock.ask(LEAVE_GROUP, 0, LeaveGroupRequest(group_id=GROUP, member_id=member)).error_code == 0


def old(release: str) -> int:
    """The lowest version of JoinGroup, OffsetCommit (and Kafka's own store) that the broker speaks."""
    return 2 if release.startswith("4.") else 0


def committed(env: PlaceholderFixture, partition: int = 0) -> int:
    with talk(env) as stock:
        return stock.committed(GROUP, "t", partition, version=1)[0]


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_that_allows_less_is_asked_again_at_once(make_env: MakePlaceholderFixture, release: str) -> None:
    env = make_env(release)
    with env.process() as session:
        env.seat(session).join()
        env.seat(session).leave()
        env.pauses.clear()  # until there was a coordinator
        env.seat(session).join()
    assert env.pauses == []


@pytest.mark.parametrize("release", RELEASES)
def test_the_placeholder_joins_and_only_its_generation_commits(make_env: MakePlaceholderFixture, release: str) -> None:
    env = make_env(release)
    with env.process() as session, talk(env) as stock:
        seat = env.seat(session)
        seat.join()
        assert seat.joined is not None
        assert seat.joined.config.session_timeout_ms == SESSIONS_MS.get(env.release, 1_800_000)
        assert seat.joined.config.group_instance_id == (seat.name if release in HAS_STATIC else None)
        assert stock.join(GROUP, version=old(release)).error_code == 23
        assert stock.commit(GROUP, "t", 0, 5, version=2) == 25, "a simple commit, a stock reset"
        assert {code.code for code in seat.commit({T0: OffsetAndMetadata(42, "mine")}).values()} == {0}
        seat.heartbeat()
        seat.leave()
        assert committed(env) == 42
        assert stock.commit(GROUP, "t", 0, 43, version=2) == 0, "the group is free again"
        assert committed(env) == 43


def test_its_assignment_prevents_kip_848_clients_from_converting_the_group(
    env: PlaceholderFixture,
) -> None:
    """Which brokers do from 4.0 on with a share that has no bytes of an assignor's."""
    with env.process() as session, talk(env) as stock:
        env.seat(session).join()
        [member] = stock.ask(DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups=[GROUP])).groups[0].members
        share = decode_assignment(member.member_assignment)
        assert not share.partitions
        assert share.user_data


@pytest.mark.parametrize("release", RELEASES)
def test_a_killed_run_finds_its_placeholder_again(make_env: MakePlaceholderFixture, release: str) -> None:
    env = make_env(release)
    with env.process() as session:
        env.seat(session).join()
    with env.process() as session, talk(env) as stock:
        seat = env.seat(session)
        assert JoinPlaceholder(seat, had_placeholder=True).check() == StepPending()
        seat.join()
        assert len(seat.read_occupants().placeholders) == 1, "taken back, and no second member made"
        assert {code.code for code in seat.commit({T0: OffsetAndMetadata(1)}).values()} == {0}
        assert stock.join(GROUP, version=old(release)).error_code == 23


@pytest.mark.parametrize("release", RELEASES)
def test_after_a_kill_at_any_write_the_next_run_joins_and_leaves(
    make_env: MakePlaceholderFixture, release: str
) -> None:
    """The placeholder is interrupted at JoinGroup (refused ones, and both of KIP-394), SyncGroup and LeaveGroup."""
    env = make_env(release)
    for cut in FAILURES:
        group = f"g-{cut[0]}-{cut[1]}"
        with env.process(Network(cut=cut)) as session, suppress(Killed):
            seat = env.seat(session, group=group)
            seat.join()
            seat.leave()
            break
        with env.process() as session:
            seat = env.seat(session, group=group)
            seat.join()
            assert len(seat.read_occupants().placeholders) == 1, cut
            assert {code.code for code in seat.commit({T0: OffsetAndMetadata(1)}).values()} == {0}, cut
            seat.leave()
            assert RemovePlaceholder(seat).check() == StepDone(), cut
    assert 3 <= cut[0] <= 5, "so many writes are made"


@pytest.mark.parametrize("release", RELEASES)
def test_an_answer_that_is_lost_makes_no_second_member(make_env: MakePlaceholderFixture, release: str) -> None:
    env = make_env(release)
    for drop in FAILURES[:10]:
        with env.process(Network(drop=drop)) as session:
            seat = env.seat(session, group=f"g-{drop[0]}-{drop[1]}")
            seat.join()
            assert len(seat.read_occupants().placeholders) == 1, drop
            seat.heartbeat()
            seat.leave()
            assert not seat.read_occupants().placeholders, drop


def test_the_placeholder_of_another_migration_is_another_member(env: PlaceholderFixture) -> None:
    with env.process() as one, env.process() as two:
        env.seat(one).join()
        other = env.seat(two, "m-2")
        assert JoinPlaceholder(other, had_placeholder=False).check() == StepWaiting(
            "zkconsumer-m-1 (zkconsumer-m-1, /127.0.0.1) to leave the coordinator group"
        )
        with pytest.raises(VerificationError, match=r"group g has other members: zkconsumer-m-1 .* is a member"):
            other.join()


def test_a_member_that_starts_too_early_is_waited_for_and_after_the_placeholder_ended_it_is_an_interference(
    env: PlaceholderFixture,
) -> None:
    stock, _, member = join_as_stock(env)
    with stock, env.process() as session:
        seat = env.seat(session)
        named = f"{member} (stock, /127.0.0.1)"
        assert WaitForEmptyCoordinatorGroup(seat).check() == StepWaiting(f"{named} to leave the coordinator group")
        assert JoinPlaceholder(seat, had_placeholder=False).check() == StepWaiting(
            f"{named} to leave the coordinator group"
        )
        refused = JoinPlaceholder(seat, had_placeholder=True).check()
        assert isinstance(refused, StepRefused)
        assert "joined since: stop it" in str(refused.error)
        assert getattr(refused.error, "exit_code", None) == 5


def expire(env: PlaceholderFixture, seat: PlaceholderMember) -> None:
    """The session of the placeholder ends, as the coordinator sees it."""
    sitting = seat.joined
    with env.process() as session:
        env.seat(session).leave()
    seat.joined = sitting


@pytest.mark.parametrize("release", RELEASES)
def test_the_error_for_a_lost_placeholder_names_the_other_member(
    make_env: MakePlaceholderFixture, release: str
) -> None:
    env = make_env(release)
    with env.process() as session:
        seat = env.seat(session)
        seat.join()
        for lose in (seat.heartbeat, lambda: seat.commit({T0: OffsetAndMetadata(1)})):
            expire(env, seat)
            stock, generation, member = join_as_stock(env)
            with stock:
                with pytest.raises(VerificationError, match=r"stock, /127\.0\.0\.1.* is a member and may commit") as it:
                    lose()
                assert it.value.exit_code == 5
                assert member in str(it.value)
                assert seat.joined is None
                assert stock.commit(GROUP, "t", 0, 7, generation, member, version=2) == 0, "it was not disturbed"
            leave(env, member)
            seat.join()


def test_an_ended_placeholder_session_is_distinguished_from_a_replaced_placeholder(env: PlaceholderFixture) -> None:
    with env.process() as session:
        seat = env.seat(session)
        seat.join()
        expire(env, seat)
        with pytest.raises(PartiallyDoneError, match=r"the group is empty: the session ended.*compares every offset"):
            seat.heartbeat()
        seat.join()
        seat.heartbeat()


def test_two_runs_of_one_migration_cannot_both_have_the_placeholder(env: PlaceholderFixture) -> None:
    with env.process() as one, env.process() as two:
        first, second = env.seat(one), env.seat(two)
        first.join()
        second.join()
        with pytest.raises(VerificationError, match="another run of this migration joined"):
            first.commit({T0: OffsetAndMetadata(1)})
        second.heartbeat()


@pytest.mark.parametrize("loading_ms", [0, 300])
def test_a_coordinator_that_moves_is_found_again(make_env: MakePlaceholderFixture, loading_ms: int) -> None:
    env = make_env(nodes=2)
    env.on_pause = lambda: time.sleep(0.05)
    with env.process() as session:
        seat = env.seat(session)
        seat.join()
        for node in (1, 0, 1):
            env.broker.move_coordinator(GROUP, node, loading_ms=loading_ms)
            seat.heartbeat()
            env.broker.move_coordinator(GROUP, 1 - node, loading_ms=loading_ms)
            assert {code.code for code in seat.commit({T0: OffsetAndMetadata(node)}).values()} == {0}
        env.broker.move_coordinator(GROUP, None)
        env.on_pause = lambda: env.broker.move_coordinator(GROUP, 0) if len(env.pauses) > 20 else None
        env.pauses.clear()
        seat.heartbeat()
        assert len(env.pauses) > 20


@pytest.mark.parametrize("at", ["sit", "beat", "commit", "leave"])
def test_brokers_that_are_away_for_a_while_are_waited_for(env: PlaceholderFixture, at: str) -> None:
    network = Network()
    with env.process(network) as session:
        seat = env.seat(session)
        if at != "sit":
            seat.join()
        network.is_away, gone_at_ms = True, env.clock.now_ms()

        def come_back() -> None:
            network.is_away = env.clock.now_ms() < gone_at_ms + 50_000

        env.on_pause = come_back
        {
            "sit": seat.join,
            "beat": seat.heartbeat,
            "commit": lambda: seat.commit({T0: OffsetAndMetadata(1)}),
            "leave": seat.leave,
        }[at]()
        assert env.clock.now_ms() - gone_at_ms >= 50_000
        network.is_away, env.on_pause = True, lambda: None
        begun_ms = env.clock.now_ms()
        with pytest.raises((PartiallyDoneError, BrokerUnreachable)):
            seat.leave()
        assert 60_000 <= env.clock.now_ms() - begun_ms < 130_000, "not for ever"


def test_a_coordinator_that_reads_its_log_again_still_has_the_placeholder(env: PlaceholderFixture) -> None:
    with env.process() as session:
        seat = env.seat(session)
        seat.join()
        env.broker.move_coordinator(GROUP, None)
        env.broker.move_coordinator(GROUP, 0)
        seat.heartbeat()
        assert JoinPlaceholder(seat, had_placeholder=True).check() == StepDone()


def test_it_sends_a_heartbeat_when_it_is_due_and_not_before(env: PlaceholderFixture) -> None:
    network = Network()
    with env.process(network) as session:
        seat = env.seat(session)
        seat.heartbeat_if_due()
        seat.join()
        seat.heartbeat_if_due()
        assert "Heartbeat" not in network.asked
        assert seat.joined is not None
        assert seat.joined.session_end_ms == env.clock.now_ms() + 1_800_000
        env.clock.move(3_000)
        seat.heartbeat_if_due()
        seat.heartbeat_if_due()
        assert network.asked.count("Heartbeat") == 1
        assert seat.joined.session_end_ms == env.clock.now_ms() + 1_800_000


def test_what_the_brokers_do_not_allow_is_reported_with_the_remedy(make_env: MakePlaceholderFixture) -> None:
    env = make_env(properties={"group.max.session.timeout.ms": "20000"})
    with (
        env.process() as session,
        pytest.raises(PartiallyDoneError, match=r"raise their group\.max.session.timeout\.ms to 300"),
    ):
        env.seat(session).join()


def test_a_shorter_session_is_asked_for_where_the_longest_is_refused(make_env: MakePlaceholderFixture) -> None:
    env = make_env(properties={"group.max.session.timeout.ms": "60000"})
    with env.process() as session:
        seat = env.seat(session)
        seat.join()
        assert seat.joined is not None
        assert seat.joined.config.session_timeout_ms == 30_000


def test_a_user_without_the_permission_gets_an_error_before_and_after_the_join(
    make_env: MakePlaceholderFixture,
) -> None:
    allowed = [True]

    def may(principal: str, operation: object, resource: str, name: str) -> bool:
        return allowed[0] or name != GROUP or str(operation).endswith(("DESCRIBE", "Describe"))

    env = make_env(authorizer=may)
    with env.process() as session:
        seat = env.seat(session)
        assert seat.join_error() == ""
        allowed[0] = False
        assert seat.join_error().startswith("the brokers' ACLs do not let this user join the group")
        with pytest.raises(
            PartiallyDoneError, match=r"GROUP_AUTHORIZATION_FAILED \(30\).*allow it READ and DESCRIBE on Group:g"
        ):
            seat.join()


def test_a_group_for_one_member_admits_the_returning_placeholder(make_env: MakePlaceholderFixture) -> None:
    env = make_env(properties={"group.max.size": "1"})
    with env.process() as session:
        env.seat(session).join()
    with env.process() as session:
        env.seat(session).join()


def test_a_client_that_takes_the_place_of_a_returning_placeholder_is_named(make_env: MakePlaceholderFixture) -> None:
    """In a group for one member: between the removal of the earlier placeholder member and the next JoinGroup."""
    env = make_env(properties={"group.max.size": "1"})
    with env.process() as session:
        env.seat(session).join()
    stock: list[RawClient] = []

    def take_place(_: str) -> None:
        if network.writes == [JOIN_GROUP.name, LEAVE_GROUP.name]:
            stock.append(join_as_stock(env)[0])

    network = Network(on_write=take_place)
    with env.process(network) as session, pytest.raises(VerificationError, match=r"has other members: .*stock"):
        env.seat(session).join()
    stock[0].connection.close()


def test_the_topics_in_a_placeholders_subscription_are_bounded() -> None:
    few = ["b", "a"]
    assert decode_subscription(placeholder_subscription(few)).topics == ("a", "b")
    many = [f"{n:0249d}" for n in range(10_000)]
    assert len(placeholder_subscription(many)) < 66 * 1024
