"""Members that are Spark queries: the membership of a query on a ZooKeeper in memory, and what the page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bridge.spark.group_membership import CommitMode, RangeToClaim
from bridge.spark.group_pipeline import GroupPipeline
from bridge.spark.membership.pipeline_registration import PipelineRegistration
from bridge.spark.membership.process_settings import MembershipProcessSettings
from bridge.spark.membership.zookeeper_batch_membership import ZooKeeperBatchMembership
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.web.document_readers import read_group_report
from bridge.web.group_changes import group_events
from bridge.web.page_documents import SPARK, group_page
from bridge.web.spark_members import QUERIES_READ_MAX, read_spark_members
from tests.web_fixtures import dependencies_of
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import UnavailableError
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

GROUP, TOPIC, MEMBER, QUERY = "g1", "clicks", "g1_a", "5f1c2d3e"
BOTH = [TopicPartition(TOPIC, number) for number in range(2)]
CALL_MS = 10_000


class StartedQuery:
    """A query's membership with its first batch."""

    def __init__(self, member: ZooKeeperBatchMembership) -> None:
        self.member = member
        member.open()
        self.batch = member.begin_batch({}, CALL_MS, SYSTEM_CLOCK.now_ms() + CALL_MS)

    def claim(self) -> None:
        """Claim one record of each partition."""
        wanted = {tp: RangeToClaim(0, 1, leased.epoch) for tp, leased in self.batch.partitions.items()}
        assert set(wanted) == set(BOTH)
        self.member.claim(QUERY, 0, wanted, SYSTEM_CLOCK.now_ms() + CALL_MS)

    def leave(self) -> None:
        self.member.leave()
        self.member.stop_waiting()


Start = Callable[[CommitMode], StartedQuery]


@pytest.fixture
def start(world: FakeEnvironment) -> Iterator[Start]:
    """The only member of the group, which owns both partitions."""
    world.create_topic(TOPIC, 2)
    made: list[StartedQuery] = []

    def join(mode: CommitMode) -> StartedQuery:
        given = {"group.id": GROUP, "zookeeper.connect": ADDRESS, "release.settle.ms": "0"}
        settings = MembershipProcessSettings(given, STATIC_SUBSCRIPTION, (TOPIC,), MEMBER, mode=mode)
        made.append(
            StartedQuery(ZooKeeperBatchMembership(settings, make_store=world.store, connect=world.cluster.connect))
        )
        return made[-1]

    yield join
    for each in made:
        each.leave()


@pytest.fixture
def session(world: FakeEnvironment) -> Iterator[AdminSession]:
    with AdminSession.open(ADDRESS, None, dependencies_of(world)) as opened:
        yield opened


def spark_members(session: AdminSession) -> dict[str, str]:
    report = read_group_report(session, GROUP)
    assert report is not None
    return read_spark_members(session, GROUP, report)


def kinds(session: AdminSession) -> dict[str, tuple[str, str | None]]:
    """Member -> its kind on the page, and its query."""
    report = read_group_report(session, GROUP)
    assert report is not None
    page = group_page(report, read_spark_members(session, GROUP, report))
    return {one["id"]: (one["kind"], one["query"]) for one in page["all_members"]}


def test_the_owner_that_claimed_is_a_query(start: Start, session: AdminSession) -> None:
    query = start(CommitMode.CLAIM)
    assert kinds(session) == {MEMBER: ("zkconsumer", None)}
    query.claim()
    assert kinds(session) == {MEMBER: (SPARK, QUERY)}


def test_the_document_of_the_command_stays_as_the_command_prints_it(start: Start, session: AdminSession) -> None:
    start(CommitMode.CLAIM).claim()
    report = read_group_report(session, GROUP)
    assert report is not None
    page = group_page(report, read_spark_members(session, GROUP, report))
    assert [one["kind"] for one in page["members"]] == ["zkconsumer"]


def test_claims_of_an_earlier_ownership_show_nothing(
    start: Start, session: AdminSession, world: FakeEnvironment
) -> None:
    query = start(CommitMode.CLAIM)
    query.claim()
    query.leave()
    start(CommitMode.AFTER_BATCH)
    assert kinds(session) == {MEMBER: ("zkconsumer", None)}


def test_the_session_that_registered_a_pipeline_is_its_query(
    start: Start, session: AdminSession, world: FakeEnvironment
) -> None:
    query = start(CommitMode.AFTER_BATCH)
    pipeline = GroupPipeline("q-7", "clicks", "/checkpoint", "host", 1, 1, "run")
    registration = PipelineRegistration(GROUP, pipeline, None, SYSTEM_CLOCK)
    other = world.store(ADDRESS, CALL_MS)
    other.start(CALL_MS)
    assert registration.ensure(other)
    assert spark_members(session) == {}, "the registration of another session"
    assert registration.ensure(query.member.store)
    assert kinds(session) == {MEMBER: (SPARK, "q-7")}


def test_a_claim_that_cannot_be_read_leaves_the_member_as_it_is(
    start: Start, session: AdminSession, world: FakeEnvironment
) -> None:
    start(CommitMode.CLAIM).claim()
    for tp in BOTH:
        world.zookeeper.ensure(paths.claims_of_partition(GROUP, QUERY, tp), b"{")
    world.zookeeper.ensure(paths.running_pipeline(GROUP), b"{")
    assert spark_members(session) == {}


def test_a_server_that_does_not_answer_leaves_the_member_as_it_is(
    start: Start, session: AdminSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(CommitMode.CLAIM).claim()
    report = read_group_report(session, GROUP)
    assert report is not None

    def refuse(path: str) -> None:
        raise UnavailableError(path)

    monkeypatch.setattr(session, "children", refuse)
    assert read_spark_members(session, GROUP, report) == {}


def test_the_queries_that_began_last_are_read(start: Start, session: AdminSession, world: FakeEnvironment) -> None:
    query = start(CommitMode.CLAIM)
    for number in range(QUERIES_READ_MAX + 2):
        world.zookeeper.ensure(paths.claims_of_query(GROUP, f"old-{number}"))
    query.claim()
    assert spark_members(session) == {MEMBER: QUERY}


def test_a_query_that_joins_is_named_so(start: Start, session: AdminSession) -> None:
    start(CommitMode.CLAIM).claim()
    report = read_group_report(session, GROUP)
    assert report is not None
    page = group_page(report, read_spark_members(session, GROUP, report))
    events = list(group_events({**page, "all_members": []}, page, 0))
    assert [event.text for event in events] == [f"{MEMBER} (a Spark query) joined"]
