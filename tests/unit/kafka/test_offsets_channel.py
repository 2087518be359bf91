"""The conversation with a group's coordinator: looked up, lost, slow, moved, refusing; bounded, and interrupted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, GroupError, Hold, PartitionError
from tests.in_memory_fixtures import wait_until
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import UnavailableError
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.offsets_channel import OffsetFetchOutcome, OffsetsChannel, OffsetsChannelJob
from zkconsumer.kafka.offsets_coordinator_client import OffsetsChannelSettings
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH

GROUP = "g1"
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENT_MS = 5_000
DONE = KafkaCommitResult(WriteOutcome.DONE)
WITH_GROUPS = [name for name, release in RELEASES.items() if FIND_COORDINATOR.key in release.ranges]


class Talk:
    """A channel on a fake cluster whose group 0 coordinates, and what came back."""

    def __init__(self, cluster: FakeCluster, **settings: Any) -> None:
        self.cluster = cluster
        self.deaths: list[BaseException] = []
        self.looks: list[list[TopicPartition]] = []
        self.find_brokers: Callable[[], Any] = lambda: cluster.addresses
        given = {"socket_timeout_ms": 500, "backoff_ms": 5} | settings
        self.channel = OffsetsChannel(
            "test",
            OffsetsChannelSettings(GROUP, "client", **given),
            cluster.connect,
            find_brokers=lambda: self.find_brokers(),
            clock=SYSTEM_CLOCK,
            on_thread_error=lambda name, error: self.deaths.append(error),
        )

    def start_fetch(self, timeout_ms: int = PATIENT_MS) -> tuple[OffsetsChannelJob, list[OffsetFetchOutcome]]:
        box: list[OffsetFetchOutcome] = []
        return self.channel.fetch([A, B], timeout_ms, box.append), box

    def fetch(self, timeout_ms: int = PATIENT_MS) -> OffsetFetchOutcome:
        _, box = self.start_fetch(timeout_ms)
        wait_until(lambda: box or self.deaths, "the fetch ends")
        assert not self.deaths
        return box[0]

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        attempts: int = 1,
        look: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, KafkaCommitResult]] | None = None,
    ) -> Mapping[TopicPartition, KafkaCommitResult]:
        box: list[Mapping[TopicPartition, KafkaCommitResult]] = []

        def check(partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, KafkaCommitResult]:
            self.looks.append(list(partitions))
            return {} if look is None else look(partitions)

        self.channel.commit(offsets, attempts, check, box.append)
        wait_until(lambda: box or self.deaths, "the commit ends")
        assert not self.deaths
        return box[0]

    def asked(self, api: object) -> int:
        return sum(seen.api is api for seen in self.cluster.requests)

    def committed(self) -> dict[TopicPartition, int]:
        return {tp: stored.offset for tp, stored in self.cluster.committed(GROUP).items()}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)


@pytest.fixture
def make() -> Iterator[Callable[..., Talk]]:
    """Makes channels on clusters of two brokers of a release; at the end no thread is left."""
    made: list[Talk] = []

    def talk(release: str = "3.9.1", **settings: Any) -> Talk:
        cluster = FakeCluster(2, release=release)
        cluster.create_topic("t", 2)
        cluster.move_coordinator(GROUP, 0)
        made.append(Talk(cluster, **settings))
        return made[-1]

    yield talk
    for each in made:
        each.channel.ask_to_stop()
        assert each.channel.join(PATIENT_MS)
    assert live_threads() == []


# --- in peace -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", WITH_GROUPS)
def test_offsets_are_fetched_and_committed_at_brokers_of_every_age(make: Callable[..., Talk], release: str) -> None:
    talk = make(release)
    talk.cluster.commit(GROUP, "t", 0, 7)
    assert talk.fetch() == OffsetFetchOutcome({A: 7, B: -1}, {})
    assert talk.commit({A: 9, B: 3}) == {A: DONE, B: DONE}
    assert talk.committed() == {A: 9, B: 3}
    assert {seen.version for seen in talk.cluster.requests if seen.api in (OFFSET_COMMIT, OFFSET_FETCH)} != {0}
    assert talk.asked(FIND_COORDINATOR) == 1, "the conversation goes on"


def test_every_request_names_the_client(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.fetch()
    assert {seen.client_id for seen in talk.cluster.requests} == {"client"}


def test_an_offset_below_zero_that_an_original_member_committed_is_none(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.commit(GROUP, "t", 0, -1)
    talk.cluster.commit(GROUP, "t", 1, -7)
    assert talk.fetch().offsets == {A: -1, B: -1}


# --- the coordinator moves, loads, or is away -----------------------------------------------------------------------


def test_a_coordinator_that_moved_is_looked_for_again(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.commit(GROUP, "t", 0, 7)
    talk.fetch()
    talk.cluster.move_coordinator(GROUP, 1)
    assert talk.fetch().offsets == {A: 7, B: -1}
    talk.cluster.move_coordinator(GROUP, 0)
    results = talk.commit({A: 8})
    assert results[A].why == "NOT_COORDINATOR (16)"
    assert not results[A].is_permanent
    assert talk.commit({A: 8}) == {A: DONE}, "the wrong one was dropped"
    assert talk.commit({A: 9}, attempts=2) == {A: DONE}


@pytest.mark.parametrize("release", WITH_GROUPS)
@pytest.mark.parametrize("code", [14, 15, 16])
def test_defect_32_an_error_of_the_group_is_asked_again_and_is_no_offset(
    make: Callable[..., Talk], release: str, code: int
) -> None:
    talk = make(release)
    talk.cluster.commit(GROUP, "t", 0, 7)
    talk.cluster.inject(GroupError(GROUP, code), api=OFFSET_FETCH, times=3)
    assert talk.fetch() == OffsetFetchOutcome({A: 7, B: -1}, {})


@pytest.mark.parametrize("release", WITH_GROUPS)
def test_a_coordinator_that_only_loads_is_named_when_the_time_is_over(make: Callable[..., Talk], release: str) -> None:
    talk = make(release)
    talk.cluster.inject(GroupError(GROUP, 14), api=OFFSET_FETCH, times=None)
    fetched = talk.fetch(timeout_ms=300)
    assert fetched.offsets == {}
    assert set(fetched.failed) == {A, B}
    assert "COORDINATOR_LOAD_IN_PROGRESS (14)" in fetched.failed[A]


def test_a_coordinator_that_is_not_there_yet_is_waited_for(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, 15), api=FIND_COORDINATOR, times=5)
    assert talk.fetch().offsets == {A: -1, B: -1}


def test_looking_the_coordinator_up_is_no_attempt(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, 15), api=FIND_COORDINATOR, times=10)
    assert talk.commit({A: 9}, attempts=1) == {A: DONE}
    assert talk.asked(FIND_COORDINATOR) >= 11


def test_a_broker_that_closes_the_connection_costs_one_attempt(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.inject(CloseConnection(), api=OFFSET_COMMIT, times=2)
    results = talk.commit({A: 9}, attempts=1)
    assert results[A].outcome is WriteOutcome.UNKNOWN
    assert talk.commit({A: 9}, attempts=2) == {A: DONE}
    assert talk.asked(OFFSET_COMMIT) == 3


def test_a_commit_that_may_have_been_written_is_not_told_as_refused(make: Callable[..., Talk]) -> None:
    talk = make()
    looks: list[Mapping[TopicPartition, KafkaCommitResult]] = [
        {},
        {A: KafkaCommitResult(WriteOutcome.FAILED, "in doubt")},
    ]
    talk.cluster.inject(CloseConnection(), api=OFFSET_COMMIT)
    results = talk.commit({A: 9}, attempts=2, look=lambda _: looks.pop(0))
    assert results == {A: KafkaCommitResult(WriteOutcome.UNKNOWN, "in doubt")}, "the first attempt may have written it"


def test_a_commit_that_is_begun_again_may_have_been_written_before(make: Callable[..., Talk]) -> None:
    talk = make()
    looks: list[Mapping[TopicPartition, KafkaCommitResult]] = [
        {},
        {A: KafkaCommitResult(WriteOutcome.FAILED, "in doubt")},
    ]
    talk.cluster.inject(Hold(), api=OFFSET_COMMIT)
    box: list[Mapping[TopicPartition, KafkaCommitResult]] = []
    talk.channel.commit({A: 9}, 1, lambda _: looks.pop(0), box.append)
    talk.cluster.wait_for_request(lambda seen: seen.api is OFFSET_COMMIT, PATIENT_MS)
    talk.channel._lookup.interrupt()  # as when the job before is cancelled in the moment in which it ends
    wait_until(lambda: box, "the commit ends")
    assert box == [{A: KafkaCommitResult(WriteOutcome.UNKNOWN, "in doubt")}]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (7, WriteOutcome.UNKNOWN),
        (14, WriteOutcome.FAILED),
        (15, WriteOutcome.UNKNOWN),
        (16, WriteOutcome.FAILED),
        (28, WriteOutcome.FAILED),
    ],
)
def test_some_errors_are_answered_to_a_commit_that_stands_in_the_log(
    make: Callable[..., Talk], code: int, outcome: WriteOutcome
) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, code), api=OFFSET_COMMIT)
    assert talk.commit({A: 9})[A].outcome is outcome


@pytest.mark.parametrize("attempts", [1, 4])
def test_a_commit_is_sent_as_often_as_it_may_be_and_no_more(make: Callable[..., Talk], attempts: int) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, 15), api=OFFSET_COMMIT, times=None)
    results = talk.commit({A: 9, B: 1}, attempts)
    assert {written.why for written in results.values()} == {"COORDINATOR_NOT_AVAILABLE (15)"}
    assert talk.asked(OFFSET_COMMIT) == attempts


def test_only_what_failed_is_sent_again(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.inject(PartitionError(B, 7), api=OFFSET_COMMIT)
    assert talk.commit({A: 9, B: 1}, attempts=3) == {A: DONE, B: DONE}
    sent = [seen.body for seen in talk.cluster.requests if seen.api is OFFSET_COMMIT]
    assert [sum(len(topic.partitions) for topic in body.topics) for body in sent] == [2, 1]


def test_no_broker_at_all_ends_in_time_and_says_so(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.stop_broker(0)
    talk.cluster.stop_broker(1)
    assert "the connection was refused" in talk.fetch(timeout_ms=200).failed[A]
    talk.find_brokers = list
    assert talk.fetch(timeout_ms=200).failed[A] == "no broker is registered in ZooKeeper (/brokers/ids)"

    def silent() -> None:
        raise UnavailableError("ZooKeeper did not answer")

    talk.find_brokers = silent
    assert "ZooKeeper did not answer" in talk.fetch(timeout_ms=200).failed[A]
    talk.find_brokers = lambda: talk.cluster.addresses
    talk.cluster.start_broker(0)
    assert talk.fetch().offsets == {A: -1, B: -1}, "and it works when somebody is there"


def test_another_broker_tells_the_coordinator_when_one_is_down(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.stop_broker(1)
    for _ in range(5):
        assert talk.fetch().offsets == {A: -1, B: -1}
        talk.cluster.stop_broker(0)
        talk.fetch(timeout_ms=50)
        talk.cluster.start_broker(0)


def test_a_conversation_that_the_broker_ended_meanwhile_costs_no_attempt(make: Callable[..., Talk]) -> None:
    talk = make()
    assert talk.commit({A: 1}) == {A: DONE}
    talk.cluster.stop_broker(0)
    talk.cluster.start_broker(0)
    assert talk.commit({A: 2}, attempts=1) == {A: DONE}
    assert talk.committed() == {A: 2}


def test_a_broker_that_swallows_packets_leaves_time_for_the_others(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.inject(Hold(), api=FIND_COORDINATOR, broker_id=1, times=None)
    for _ in range(6):
        assert talk.fetch(timeout_ms=1_000).offsets == {A: -1, B: -1}
        talk.cluster.stop_broker(0)
        talk.cluster.start_broker(0)


def test_a_job_whose_connection_was_closed_for_the_one_before_is_done_all_the_same(make: Callable[..., Talk]) -> None:
    talk = make()
    for _ in range(20):
        job, box = talk.start_fetch()
        wait_until(lambda done=box: done, "the fetch ends")
        # The thread may not have put the job down yet: then its connection is closed, and the next job finds that.
        talk.channel.cancel(job)
        assert talk.fetch().offsets == {A: -1, B: -1}


# --- brokers that are too old -------------------------------------------------------------------------------------


def test_defect_15_brokers_without_coordinators_are_named_instead_of_asked_for_ever(make: Callable[..., Talk]) -> None:
    talk = make("0.8.1.1")
    fetched = talk.fetch()
    assert "needs brokers from 0.8.2 on, and none of the 2 brokers" in fetched.unsupported
    assert set(fetched.failed) == {A, B}
    results = talk.commit({A: 1}, attempts=5)
    assert results[A].is_permanent
    assert talk.looks == [], "nobody is asked about owner nodes in vain"


def test_one_broker_that_is_too_old_does_not_decide_for_the_others() -> None:
    cluster = FakeCluster(2, release={0: "0.8.2.2", 1: "0.8.1.1"})
    cluster.create_topic("t", 2)
    cluster.move_coordinator(GROUP, 0)
    for _ in range(5):
        talk = Talk(cluster)
        assert talk.fetch().offsets == {A: -1, B: -1}
        talk.channel.ask_to_stop()
        assert talk.channel.join(PATIENT_MS)


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [25, 22, 27])
def test_defect_33_a_modern_group_of_the_name_is_told_at_once(make: Callable[..., Talk], code: int) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, code), api=OFFSET_COMMIT, times=None)
    results = talk.commit({A: 9, B: 1}, attempts=6)
    assert talk.asked(OFFSET_COMMIT) == 1, "another try would be in vain"
    for written in results.values():
        assert written.is_permanent
        assert written.is_coordinator_group_active
        assert "a coordinator group of this name has members (KafkaConsumer)" in written.why


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "its topic was deleted"), (12, "offset.metadata.max.bytes"), (29, "read the topic"), (24, "group.id")],
)
def test_what_cannot_be_committed_is_told_at_once_and_stops_no_other(
    make: Callable[..., Talk], code: int, words: str
) -> None:
    talk = make()
    talk.cluster.inject(PartitionError(B, code), api=OFFSET_COMMIT, times=None)
    results = talk.commit({A: 9, B: 1}, attempts=6)
    assert results[A] == DONE
    assert results[B].is_permanent
    assert words in results[B].why
    assert not results[B].is_coordinator_group_active
    assert talk.asked(OFFSET_COMMIT) == 1


@pytest.mark.parametrize("api", [FIND_COORDINATOR, OFFSET_FETCH])
def test_a_group_that_this_user_may_not_use_is_told_at_once(make: Callable[..., Talk], api: Any) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, 30), api=api, times=None)
    fetched = talk.fetch()
    assert fetched.offsets == {}
    assert fetched.failed[A].startswith("GROUP_AUTHORIZATION_FAILED (30): ")
    assert talk.asked(api) == 1
    if api is FIND_COORDINATOR:
        assert talk.commit({A: 9}, attempts=6)[A].is_permanent


def test_one_topic_that_may_not_be_read_stops_no_other(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.commit(GROUP, "t", 0, 7)
    talk.cluster.inject(PartitionError(B, 29), api=OFFSET_FETCH, times=None)
    fetched = talk.fetch()
    assert fetched.offsets == {A: 7}
    assert fetched.failed[B].startswith("TOPIC_AUTHORIZATION_FAILED (29)")


def test_a_partition_that_the_broker_has_not_learnt_of_yet_is_asked_for_again(make: Callable[..., Talk]) -> None:
    talk = make("0.8.2.2")
    talk.cluster.commit(GROUP, "t", 0, 7)
    talk.cluster.commit(GROUP, "t", 1, 5)
    talk.cluster.inject(PartitionError(B, 3), api=OFFSET_FETCH, times=4)
    assert talk.fetch() == OffsetFetchOutcome({A: 7, B: 5}, {})


# --- the look before the request ------------------------------------------------------------------------------------


def test_what_the_look_forbids_is_not_sent(make: Callable[..., Talk]) -> None:
    talk = make()
    lost = KafkaCommitResult(WriteOutcome.NOT_OWNER, "the owner node does not exist")
    assert talk.commit({A: 9, B: 4}, look=lambda _: {A: lost}) == {A: lost, B: DONE}
    assert talk.committed() == {B: 4}
    assert talk.commit({A: 9}, attempts=3, look=lambda _: {A: lost}) == {A: lost}
    assert talk.asked(OFFSET_COMMIT) == 1


def test_the_look_comes_after_the_coordinator_was_found_and_before_every_request(make: Callable[..., Talk]) -> None:
    talk = make()
    talk.cluster.inject(GroupError(GROUP, 15), api=FIND_COORDINATOR, times=3)
    talk.cluster.inject(GroupError(GROUP, 14), api=OFFSET_COMMIT, times=2)
    seen: list[tuple[int, int]] = []

    def look(_: Iterable[TopicPartition]) -> Mapping[TopicPartition, KafkaCommitResult]:
        seen.append((talk.asked(FIND_COORDINATOR), talk.asked(OFFSET_COMMIT)))
        return {}

    assert talk.commit({A: 9}, attempts=3, look=look) == {A: DONE}
    assert [commits for _, commits in seen] == [0, 1, 2]
    assert seen[0][0] >= 4


# --- ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [FIND_COORDINATOR, OFFSET_FETCH])
def test_a_job_that_is_cancelled_ends_whatever_it_waits_for_and_tells_nobody(
    make: Callable[..., Talk], api: Any
) -> None:
    talk = make(socket_timeout_ms=60_000)
    held = talk.cluster.inject(Hold(), api=api, times=None)
    job, box = talk.start_fetch(60_000)
    talk.cluster.wait_for_request(lambda seen: seen.api is api, PATIENT_MS)
    talk.channel.cancel(job)
    talk.cluster.lift(held)
    assert talk.fetch().offsets == {A: -1, B: -1}, "the next one is not held up"
    assert box == []


def test_the_answer_of_a_job_that_is_cancelled_when_it_has_come_is_told_to_nobody(make: Callable[..., Talk]) -> None:
    """The session ended meanwhile: the answer is about an ownership that is over."""
    talk = make()
    told: list[str] = []

    def answered(job: OffsetsChannelJob) -> Callable[[], None]:
        talk.channel.cancel(job)
        return lambda: told.append("the answer")

    talk.channel._enqueue(OffsetsChannelJob(talk.channel, answered, SYSTEM_CLOCK.now_ms() + PATIENT_MS))
    talk.fetch()
    assert told == []


def test_a_job_that_waits_its_turn_can_be_cancelled(make: Callable[..., Talk]) -> None:
    talk = make(socket_timeout_ms=60_000)
    held = talk.cluster.inject(Hold(), api=OFFSET_FETCH, times=None)
    first, _ = talk.start_fetch(60_000)
    talk.cluster.wait_for_request(lambda seen: seen.api is OFFSET_FETCH, PATIENT_MS)
    second, box = talk.start_fetch(60_000)
    talk.channel.cancel(second)
    talk.channel.cancel(first)
    talk.cluster.lift(held)
    talk.fetch()
    assert box == []


@pytest.mark.parametrize("api", [FIND_COORDINATOR, OFFSET_FETCH, None])
def test_defect_15_the_end_interrupts_whatever_it_waits_for(make: Callable[..., Talk], api: Any) -> None:
    talk = make(socket_timeout_ms=60_000, backoff_ms=60_000)
    if api is None:
        talk.cluster.inject(GroupError(GROUP, 15), api=FIND_COORDINATOR, times=None)
    else:
        talk.cluster.inject(Hold(), api=api, times=None)
    _, box = talk.start_fetch(600_000)
    talk.cluster.wait_for_request(lambda seen: seen.api is (api or FIND_COORDINATOR), PATIENT_MS)
    talk.channel.ask_to_stop()
    assert talk.channel.join(PATIENT_MS)
    assert box == []
    talk.start_fetch()
    assert live_threads() == [], "nothing begins after the end"


def test_a_coordinator_that_never_answers_ends_in_time(make: Callable[..., Talk]) -> None:
    talk = make(socket_timeout_ms=50)
    talk.cluster.inject(Hold(), api=OFFSET_FETCH, times=None)
    assert re.search("within|in time", talk.fetch(timeout_ms=300).failed[A])
    talk.cluster.inject(Hold(), api=OFFSET_COMMIT, times=None)
    assert talk.commit({A: 9}, attempts=2)[A].outcome is WriteOutcome.UNKNOWN
    assert talk.asked(OFFSET_COMMIT) == 2


def test_callers_of_many_threads_get_each_its_own_answer(make: Callable[..., Talk]) -> None:
    talk = make()
    boxes: list[list[Any]] = [[] for _ in range(8)]

    def ask(number: int) -> None:
        if number % 2:
            talk.channel.fetch([A, B], PATIENT_MS, boxes[number].append)
        else:
            talk.channel.commit({A: 5}, 1, lambda _: {}, boxes[number].append)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: all(boxes), "everybody is answered")
    assert [type(box[0]) for box in boxes] == [dict, OffsetFetchOutcome] * 4
