"""Offsets on their way to Kafka and back, with everything that may come in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.offsets import offset_copy_steps
from bridge.migration.offsets.offset_copies import OffsetCopy
from bridge.migration.offsets.offset_copy_steps import CopyToKafka, CopyToZooKeeper, OffsetStores
from bridge.migration.offsets.offset_verification import VerifyCopiedOffsets, VerifyReturnedOffsets
from bridge.migration.placeholder.placeholder_steps import JoinPlaceholder, RemovePlaceholder
from bridge.migration.plan.decisions import OffsetConvention
from bridge.migration.steps.step import MigrationStep, StepDone, StepPending, StepRefused, StepRunner
from tests.broker.raw_client import RawClient
from tests.migration.placeholder_fixtures import (
    FAILURES,
    GROUP,
    MIGRATION,
    RELEASES,
    MakePlaceholderFixture,
    Network,
    PlaceholderFixture,
)
from tests.migration.step_write_faults import WAYS, Cut, Doer, Killed
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.kafka_offsets import KafkaOffsetAdmin
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ALL, Acl, GetAcl
from zkconsumer.zk.znode_formats import ControlRecord, format_control

T = [TopicPartition("t", number) for number in range(4)]
COPIES = [
    OffsetCopy(T[0], 10, 10, 0),
    OffsetCopy(T[1], 20, 20, 0),
    OffsetCopy(T[2], 30, 30, 0),
    OffsetCopy(T[3], 0, None, NO_ZNODE_VERSION),
]
WRITTEN = {"t/0": (10, 0), "t/1": (20, 0), "t/2": (30, 0), "t/3": (0, -1)}
NEXT, LAST = OffsetConvention.NEXT, OffsetConvention.LAST


def fenced(env: PlaceholderFixture, phase: str = "fenced") -> PlaceholderFixture:
    """Offsets 10, 20, 30 and none; the migration is in this phase, at epoch 3."""
    env.offsets({"t-0": 10, "t-1": 20, "t-2": 30})
    env.control(phase)
    return env


def written(values: Mapping[str, tuple[int, int]], epoch: int = 3) -> dict[str, tuple[int, str]]:
    return {
        name: (offset, f"zkconsumer-migrate:1:{MIGRATION}:{epoch}:{version}")
        for name, (offset, version) in values.items()
    }


def in_kafka(env: PlaceholderFixture) -> dict[str, tuple[int, str]]:
    with env.process() as session:
        found = KafkaOffsetAdmin(session, GROUP).read_offsets()
    return {str(tp): (stored.offset, stored.metadata) for tp, stored in found.items()}


def in_zookeeper(env: PlaceholderFixture, topic: str = "t", partitions: int = 4) -> list[bytes | None]:
    return [env.zookeeper.data(paths.offset(GROUP, TopicPartition(topic, n))) for n in range(partitions)]


def carry_out(env: PlaceholderFixture, *steps: MigrationStep) -> None:
    StepRunner(Doer(env.clock), env.clock, 60_000, "again", lambda: False).run_steps(steps)


def copy(env: PlaceholderFixture, session: AdminSession, copies: list[OffsetCopy] = COPIES) -> OffsetStores:
    """The part of a migration that is shown here."""
    stores = env.stores(session)
    carry_out(
        env,
        JoinPlaceholder(stores.placeholder, False),
        CopyToKafka(stores, copies),
        VerifyCopiedOffsets(stores, copies),
    )
    return stores


def go_back(
    env: PlaceholderFixture, session: AdminSession, convention: OffsetConvention = NEXT, **how: tuple[Acl, ...]
) -> OffsetStores:
    stores = env.stores(session)
    back = CopyToZooKeeper(stores, convention, **how)
    carry_out(env, JoinPlaceholder(stores.placeholder, False), back, VerifyReturnedOffsets(stores, convention))
    return stores


def commit(env: PlaceholderFixture, partition: int, offset: int, topic: str = "t") -> None:
    """As a stock tool does in a group without members."""
    with RawClient(env.broker.addresses()[0]) as talk:
        while talk.find_coordinator(GROUP, version=0).error_code:
            pass
        assert talk.commit(GROUP, topic, partition, offset, version=2) == 0


# --- to Kafka ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_every_offset_is_in_kafka_with_its_provenance_and_is_written_once(
    make_env: MakePlaceholderFixture, release: str
) -> None:
    env = fenced(make_env(release))
    network = Network()
    with env.process(network) as session:
        copy(env, session)
        assert network.writes.count("OffsetCommit") == 1
    with env.process(network) as session:
        copy(env, session)
        assert network.writes.count("OffsetCommit") == 1, "what is right is not written again"
    assert in_kafka(env) == written(WRITTEN)


@pytest.mark.parametrize("release", ["0.9.0.1", "2.0.1", "3.9.1"])
def test_killed_at_any_write_the_next_run_ends_as_if_nothing_had_been(
    make_env: MakePlaceholderFixture, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joins, the settling of the generation, and a commit for each partition."""
    monkeypatch.setattr(offset_copy_steps, "BATCH_BYTES_MAX", 1)
    for cut in FAILURES:
        env = fenced(make_env(release))
        network = Network(cut=cut)
        try:
            with env.process(network) as session:
                copy(env, session)
        except Killed:
            pass
        else:
            assert network.writes.count("OffsetCommit") == 4
            break
        with env.process() as session:
            copy(env, session)
        assert in_kafka(env) == written(WRITTEN), cut
    assert cut[0] >= 6


def test_an_answer_that_is_lost_is_asked_for_again(env: PlaceholderFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_copy_steps, "BATCH_BYTES_MAX", 1)
    fenced(env)
    for number in range(2, 6):
        env.control("fenced", epoch=number)
        with env.process(Network(drop=(number, "behind"))) as session:
            copy(env, session)
        assert in_kafka(env) == written(WRITTEN, number), "values of an older epoch are written again"


def test_a_foreign_commit_is_never_overwritten(env: PlaceholderFixture) -> None:
    fenced(env)
    commit(env, 1, 57)
    planned = [COPIES[0], OffsetCopy(T[1], 20, 20, 0, CommittedOffset(56)), *COPIES[2:]]
    with env.process() as session:
        stores = env.stores(session)
        step = CopyToKafka(stores, planned)
        refused = step.check()
        assert isinstance(refused, StepRefused)
        assert "t/1: Kafka has 57, not 56, as the plan saw. None of these offsets was overwritten" in str(refused.error)
        stores.placeholder.join()
        with pytest.raises(VerificationError) as it:
            step.do()
        assert it.value.exit_code == 5
    assert in_kafka(env) == {"t/1": (57, "")}
    with env.process() as session:
        copy(env, session, [COPIES[0], OffsetCopy(T[1], 20, 20, 0, CommittedOffset(57)), *COPIES[2:]])
    assert in_kafka(env) == written(WRITTEN), "what the plan saw, its decisions are about"


def test_offsets_read_in_an_older_generation_are_read_again_before_the_commit(env: PlaceholderFixture) -> None:
    """Between two generations of the placeholder member the group is empty, and any client may commit."""
    fenced(env)
    with env.process() as session:
        stores = env.stores(session)
        step = CopyToKafka(stores, COPIES)
        stores.placeholder.join()
        assert step.check() == StepPending()
        stores.placeholder.leave()
        commit(env, 1, 57)
        stores.placeholder.join()
        with pytest.raises(VerificationError, match="t/1: Kafka has 57, not nothing"):
            step.do()
    assert in_kafka(env) == {"t/1": (57, "")}


def test_a_client_that_joined_without_the_placeholder_is_found_by_its_values(env: PlaceholderFixture) -> None:
    """M5: the re-run comes after the end of the session."""
    fenced(env)
    with env.process() as session:
        copy(env, session).placeholder.leave()
    commit(env, 2, 31)
    with env.process() as session, pytest.raises(VerificationError, match=r"t/2: Kafka has 31, not nothing"):
        copy(env, session)


@pytest.mark.parametrize("code", [28, 10])
def test_a_batch_too_large_for_one_commit_is_halved(make_env: MakePlaceholderFixture, code: int) -> None:
    env = make_env(partitions=100)
    env.offsets({f"t-{n}": n for n in range(100)})
    env.control("fenced")
    copies = [OffsetCopy(TopicPartition("t", n), n, n, 0) for n in range(100)]
    network = Network(commits_max=20, too_much=code)
    with env.process(network) as session:
        copy(env, session, copies)
    assert len(in_kafka(env)) == 100
    assert 9 <= network.writes.count("OffsetCommit") <= 13, "100, 50, 25, and then none that is refused"
    with env.process(Network(commits_max=0, too_much=code)) as session:
        env.control("fenced", epoch=4)
        with pytest.raises(
            PartiallyDoneError, match=r"and 90 more: .*raise max.message.bytes of __consumer_offsets to 4096"
        ):
            copy(env, session, copies)


def test_rejected_partitions_are_named_and_the_others_are_committed(make_env: MakePlaceholderFixture) -> None:
    def may(principal: str, operation: object, resource: str, name: str) -> bool:
        return name != "secret"

    env = fenced(make_env(authorizer=may))
    env.broker.create_topic("secret")
    gone, secret = TopicPartition("gone", 0), TopicPartition("secret", 0)
    copies = [OffsetCopy(gone, 1), OffsetCopy(secret, 2), *COPIES]
    with env.process() as session:
        stores = env.stores(session)
        stores.placeholder.join()
        with pytest.raises(PartiallyDoneError) as it:
            CopyToKafka(stores, [OffsetCopy(gone, 1), *COPIES]).do()
    assert str(it.value) == (
        "gone/0: UNKNOWN_TOPIC_OR_PARTITION (3); there is no such partition: if the topic was deleted, roll back and "
        "plan again. The others are committed; then run the same command again, or roll back"
    )
    assert in_kafka(env) == written(WRITTEN)
    env.control("fenced", epoch=4)
    with env.process() as session:
        stores = env.stores(session)
        stores.placeholder.join()
        outcome = stores.placeholder.commit({copy.tp: OffsetAndMetadata(copy.offset) for copy in copies})
        assert [code.code for code in outcome.values()] == [3, 29, 0, 0, 0, 0]


def test_metadata_that_a_broker_rejects_are_reported_with_the_setting(make_env: MakePlaceholderFixture) -> None:
    env = fenced(make_env(properties={"offset.metadata.max.bytes": "10"}))
    with (
        env.process() as session,
        pytest.raises(PartiallyDoneError, match=r"t/0, t/1, t/2, t/3: OFFSET_METADATA_TOO_LARGE"),
    ):
        copy(env, session)


def test_a_run_that_replaces_the_placeholder_ends_the_other(
    env: PlaceholderFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_copy_steps, "BATCH_BYTES_MAX", 1)
    fenced(env)

    def take(name: str) -> None:
        if network.writes.count("OffsetCommit") == 2:
            network.on_write = lambda name: None
            with env.process() as other:
                env.seat(other).leave()
            with RawClient(env.broker.addresses()[0], "stock") as talk:
                joined = talk.join(GROUP, version=0)
                talk.sync(GROUP, joined.generation_id, joined.member_id, {joined.member_id: b""})

    network = Network(on_write=take)
    with env.process(network) as session, pytest.raises(VerificationError, match=r"stock.* is a member and may"):
        copy(env, session)
    assert in_kafka(env) == written({name: WRITTEN[name] for name in ("t/0", "t/1")}), "as far as it was ours"


def test_brokers_that_are_away_in_the_middle_are_waited_for(
    env: PlaceholderFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_copy_steps, "BATCH_BYTES_MAX", 1)
    fenced(env)

    def go(name: str) -> None:
        network.is_away = name == "OffsetCommit" and not env.pauses

    network = Network(on_write=go)
    begun_ms = env.clock.now_ms()

    def come_back() -> None:
        network.is_away = env.clock.now_ms() < begun_ms + 50_000

    env.on_pause = come_back
    with env.process(network) as session:
        copy(env, session)
    assert env.clock.now_ms() - begun_ms >= 50_000
    assert in_kafka(env) == written(WRITTEN)


def test_a_run_that_was_overtaken_writes_nothing(env: PlaceholderFixture) -> None:
    """The control znode is another's, or in a phase in which Kafka's values are not this migration's."""
    fenced(env)
    for change in (lambda: env.control("switched"), lambda: env.control("fenced", migration_id="m-2")):
        change()
        with env.process() as session:
            stores = env.stores(session)
            stores.placeholder.join()
            for step in (
                CopyToKafka(stores, COPIES),
                VerifyCopiedOffsets(stores, COPIES),
                CopyToZooKeeper(stores, NEXT),
            ):
                assert step.check() == StepPending(), "so a dry run tells what would be done"
                with pytest.raises(PartiallyDoneError, match="another run acts on group g"):
                    step.do()
    assert in_kafka(env) == {}


# --- verification -----------------------------------------------------------------------------------------------


def test_a_change_after_the_copy_is_named_by_value(env: PlaceholderFixture) -> None:
    fenced(env)
    with env.process() as session:
        stores = copy(env, session)
        verify = VerifyCopiedOffsets(stores, COPIES)
        assert verify.check() == StepDone()
        env.offsets({"t-1": 21, "new-0": 5})
        stores.placeholder.commit({T[2]: OffsetAndMetadata(29, "zombie")})
        refused = verify.check()
    assert isinstance(refused, StepRefused)
    assert getattr(refused.error, "exit_code", None) == 5
    for words in (
        "t/1: ZooKeeper has 21 at version 1, not 20 at version 0",
        "t/2: Kafka has 29 (zombie), not 30 (zkconsumer-migrate:1:m-1:3:0)",
        "new/0: ZooKeeper has 5 at version 0, not no znode",
    ):
        assert words in str(refused.error)


def test_a_placeholder_lost_during_the_comparison_verifies_nothing(env: PlaceholderFixture) -> None:
    fenced(env)
    with env.process() as session, env.process() as other:
        stores = copy(env, session)
        env.seat(other).leave()
        with pytest.raises(PartiallyDoneError, match="the group is empty"):
            VerifyCopiedOffsets(stores, COPIES).check()


# --- back to ZooKeeper ------------------------------------------------------------------------------------------


def moved(env: PlaceholderFixture) -> PlaceholderFixture:
    """Kafka has the authority; members continued from 10, 20, 30 and 0, and read a topic that was created meanwhile."""
    fenced(env, "returning")
    env.broker.create_topic("new")
    for partition, offset in enumerate((15, 20, 37, 4)):
        commit(env, partition, offset)
    commit(env, 0, 9, "new")
    return env


@pytest.mark.parametrize("release", ["0.9.0.1", "1.1.1", "4.1.1"])
def test_zookeeper_has_what_the_coordinator_group_committed(make_env: MakePlaceholderFixture, release: str) -> None:
    env = moved(make_env(release))
    with env.process() as session:
        go_back(env, session)
    assert in_zookeeper(env) == [b"15", b"20", b"37", b"4"]
    assert in_zookeeper(env, "new", 1) == [b"9"], "a topic that came meanwhile is taken along"


def test_a_group_that_stores_the_last_offset_gets_the_last_one(env: PlaceholderFixture) -> None:
    moved(env)
    with env.process() as session:
        go_back(env, session, LAST)
    assert in_zookeeper(env) == [b"14", b"19", b"36", b"3"]


def test_offsets_that_expired_in_kafka_stay_in_zookeeper(env: PlaceholderFixture) -> None:
    fenced(env, "returning")
    commit(env, 0, 12)
    with env.process() as session:
        go_back(env, session)
    assert in_zookeeper(env) == [b"12", b"20", b"30", None]


@pytest.mark.parametrize("how", WAYS)
def test_a_rollback_interrupted_at_any_write_ends_the_same(
    make_env: MakePlaceholderFixture, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Multis of one partition each, so that each is a write of its own."""
    monkeypatch.setattr(offset_copy_steps, "RETURN_BATCH_SIZE", 1)
    env = moved(make_env())
    before = dict(enumerate(in_zookeeper(env)))
    cut = Cut(1, how)  # type: ignore[arg-type]
    while True:
        for partition, data in before.items():
            path = paths.offset(GROUP, T[partition])
            if data is None:
                env.zookeeper.remove(path)
            else:
                env.zookeeper.ensure(path, data)
        try:
            with env.process(cut=cut) as session:
                go_back(env, session)
        except Killed:
            pass
        with env.process() as session:
            go_back(env, session)
        assert in_zookeeper(env) == [b"15", b"20", b"37", b"4"], cut
        if not cut.was_reached:
            break
        cut = Cut(cut.at + 1, how)  # type: ignore[arg-type]
    assert cut.at > 3


def test_every_multi_is_bound_to_the_control_znode(env: PlaceholderFixture) -> None:
    """A run whose lock another run took between two multis writes nothing more."""
    moved(env)
    with env.process() as session:
        stores = env.stores(session)
        stores.placeholder.join()
        left = stores.read_zookeeper

        def overtaken() -> object:
            found = left()
            env.zookeeper.ensure(
                paths.control(GROUP), format_control(ControlRecord("m-2", 9, "planned", "zookeeper", "copy"))
            )
            return found

        stores.read_zookeeper = overtaken  # type: ignore[method-assign, assignment]
        with pytest.raises(PartiallyDoneError, match="in phase planned, and this run needs migration m-1"):
            CopyToZooKeeper(stores, NEXT).do()
    assert in_zookeeper(env) == [b"10", b"20", b"30", None]


def test_nodes_created_in_a_rollback_have_the_list_of_the_fence(env: PlaceholderFixture) -> None:
    moved(env)
    fence = (Acl(PERM_ALL, "world", "anyone"), Acl(1, "digest", "somebody:x"))
    with env.process() as session:
        go_back(env, session, acl=fence)
        made = [
            paths.offset(GROUP, T[3]),
            paths.offsets_of_topic(GROUP, "new"),
            paths.offset(GROUP, TopicPartition("new", 0)),
        ]
        for answer in session.request([GetAcl(path) for path in made]):
            assert answer == fence


def test_a_registered_old_member_stops_the_rollback(env: PlaceholderFixture) -> None:
    moved(env)
    env.zookeeper.ensure(paths.registration(GROUP, "g_old"), b"{}")
    with env.process() as session, pytest.raises(PartiallyDoneError, match="g_old is in the group now"):
        go_back(env, session)


def test_the_placeholder_of_any_run_is_removed_at_the_end(env: PlaceholderFixture) -> None:
    fenced(env)
    with env.process() as session:
        copy(env, session)
    with env.process() as session:
        carry_out(env, RemovePlaceholder(env.seat(session)), RemovePlaceholder(env.seat(session)))
    commit(env, 0, 11)


MakeStep = Callable[[OffsetStores], MigrationStep]


@pytest.mark.parametrize(
    "make",
    [
        lambda stores: CopyToKafka(stores, COPIES),
        lambda stores: VerifyCopiedOffsets(stores, COPIES),
        lambda stores: CopyToZooKeeper(stores, NEXT),
        lambda stores: VerifyReturnedOffsets(stores, NEXT),
        lambda stores: JoinPlaceholder(stores.placeholder, False),
        lambda stores: RemovePlaceholder(stores.placeholder),
    ],
)
def test_each_step_describes_what_it_would_do(env: PlaceholderFixture, make: MakeStep) -> None:
    with env.process() as session:
        step = make(env.stores(session))
        assert all(line for line in step.describe())
        assert step.changes == (not step.name.startswith("read the offsets back"))
