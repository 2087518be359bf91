"""The two halves of a fetch session: what a reader requests in which order, and what a broker answers.

The first part is Kafka's FetchSessionHandlerTest, and topic ids; the second runs the reader's half against the broker's
half.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker.fetch_session_cache import EVICTION_MS, PARTITIONS_MAX, FetchContext, FetchSessionCache
from zkconsumer.kafka.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INCONSISTENT_TOPIC_ID,
    INVALID_FETCH_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    ErrorCode,
)
from zkconsumer.kafka.fetch.fetch_session import (
    EPOCH_MAX,
    FULL_EPOCH,
    NO_SESSION,
    FetchSessionHandler,
    FetchSessionRequest,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.fetch_codec import FetchedPartition, FetchResponseBody
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.schemas.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)

OK = NONE.code
ID = 123


def topic_name(session: FetchSessionHandler[Any], topic_id: bytes) -> str:
    """The topic that a response by ids is about; "" for an id that the session does not have."""
    row = FetchedPartition(topic_id, 0, OK, 0, None, 0, 0, -1, -1, b"")
    [tp] = session.partitions_of(FetchResponseBody(0, OK, ID, [row]), by_ids=True)
    return tp.topic


def tps(*names: str) -> list[TopicPartition]:
    """``foo-0`` is partition 0 of ``foo``."""
    split = [name.rsplit("-", 1) for name in names]
    return [TopicPartition(topic, int(number)) for topic, number in split]


def wanting(**offsets: int) -> FetchSessionHandler[int]:
    """A session whose rows are offsets; ``foo_0=5`` asks for partition 0 of ``foo`` from 5 on."""
    session: FetchSessionHandler[int] = FetchSessionHandler()
    want(session, **offsets)
    return session


def want(session: FetchSessionHandler[int], **offsets: int) -> None:
    for name, offset in offsets.items():
        session.set_partition(tps(name.replace("_", "-"))[0], offset)


def said(request: FetchSessionRequest[int]) -> tuple[int, int, dict[str, int], list[str]]:
    rows = {f"{tp.topic}-{tp.partition}": row for tp, row in request.rows.items()}
    return request.session_id, request.epoch, rows, [f"{tp.topic}-{tp.partition}" for tp in request.forgotten]


def answered_in_full(session: FetchSessionHandler[int], session_id: int = ID) -> FetchSessionRequest[int]:
    request = session.next_request()
    assert request.is_full
    assert session.handle_response(OK, session_id, list(request.rows)) is None
    return request


# --- the reader: FetchSessionHandlerTest ----------------------------------------------------------------------------


def test_without_a_session_every_request_names_everything() -> None:
    """testSessionless: the broker gives no session; it is asked for one each time."""
    session = wanting(foo_0=0, foo_1=10)
    assert said(answered_in_full(session, NO_SESSION)) == (NO_SESSION, FULL_EPOCH, {"foo-0": 0, "foo-1": 10}, [])
    session.remove_partition(tps("foo-1")[0])
    assert said(session.next_request()) == (NO_SESSION, FULL_EPOCH, {"foo-0": 0}, [])
    assert not session.is_open


def test_requests_of_a_session_name_what_was_added_and_what_changed() -> None:
    """testIncrementals."""
    session = wanting(foo_0=0, foo_1=10)
    assert said(answered_in_full(session)) == (NO_SESSION, FULL_EPOCH, {"foo-0": 0, "foo-1": 10}, [])
    want(session, bar_0=20)
    want(session, foo_1=10)
    assert said(session.next_request()) == (ID, 1, {"bar-0": 20}, [])
    assert session.handle_response(OK, ID, tps("foo-1")) is None
    want(session, foo_0=0, foo_1=15)
    assert said(session.next_request()) == (ID, 2, {"foo-1": 15}, [])


def test_an_error_that_the_session_is_not_in_that_epoch_leads_to_a_full_request_that_ends_it() -> None:
    """testIncrementals, its end."""
    session = wanting(foo_0=0, foo_1=10)
    answered_in_full(session)
    session.next_request()
    assert session.handle_response(INVALID_FETCH_SESSION_EPOCH.code, NO_SESSION, []) == INVALID_FETCH_SESSION_EPOCH
    assert said(session.next_request()) == (ID, FULL_EPOCH, {"foo-0": 0, "foo-1": 10}, [])
    assert session.handle_response(OK, 124, tps("foo-0", "foo-1")) is None
    assert said(session.next_request()) == (124, 1, {}, [])


def test_a_second_request_before_the_answer_is_a_mistake() -> None:
    """testDoubleBuild."""
    session = wanting(foo_0=0)
    session.next_request()
    with pytest.raises(AssertionError, match="one request at a time"):
        session.next_request()


def test_partitions_leave_a_session_and_come_back() -> None:
    """testIncrementalPartitionRemoval."""
    session = wanting(foo_0=0, foo_1=10, bar_0=20)
    answered_in_full(session)
    session.remove_partition(tps("bar-0")[0])
    session.remove_partition(tps("foo-0")[0])
    assert said(session.next_request()) == (ID, 1, {}, ["bar-0", "foo-0"])
    assert session.handle_response(OK, ID, tps("foo-1")) is None
    assert set(session.requested) == set(tps("foo-1"))
    want(session, bar_0=20)
    assert said(session.next_request()) == (ID, 2, {"bar-0": 20}, [])


def test_a_session_that_the_broker_does_not_have_is_asked_for_anew() -> None:
    """testIncrementalPartitionRemoval, its end: the id is not known, so nothing is there to be ended."""
    session = wanting(foo_0=0, foo_1=10)
    answered_in_full(session)
    session.remove_partition(tps("foo-0")[0])
    session.next_request()
    assert session.handle_response(FETCH_SESSION_ID_NOT_FOUND.code, NO_SESSION, []) == FETCH_SESSION_ID_NOT_FOUND
    assert said(session.next_request()) == (NO_SESSION, FULL_EPOCH, {"foo-1": 10}, [])


@pytest.mark.parametrize(
    ("answered", "is_kept"),
    [
        (["foo-0", "foo-1", "bar-0"], True),
        (["foo-0", "foo-1"], False),
        (["foo-0", "foo-1", "bar-0", "baz-2"], False),
        (["foo-0", "foo-1", "baz-0"], False),
        ([], False),
    ],
    ids=["whole", "one is missing", "one too many", "another one", "nothing, as while the reader is throttled"],
)
def test_a_full_answer_must_be_about_exactly_what_was_asked_for(answered: list[str], is_kept: bool) -> None:
    """testVerifyFullFetchResponsePartitions."""
    session = wanting(foo_0=0, foo_1=10, bar_0=20)
    session.next_request()
    assert session.handle_response(OK, ID, tps(*answered)) is None
    assert session.is_open is is_kept
    assert session.next_request().session_id == (ID if is_kept else NO_SESSION)


def test_an_answer_about_a_partition_that_is_not_in_the_session_ends_it() -> None:
    session = wanting(foo_0=0)
    answered_in_full(session)
    session.next_request()
    assert session.handle_response(OK, ID, tps("bar-0")) is None
    assert said(session.next_request()) == (ID, FULL_EPOCH, {"foo-0": 0}, [])


def test_a_broker_may_end_a_session_with_an_answer() -> None:
    session = wanting(foo_0=0)
    answered_in_full(session)
    session.next_request()
    assert session.handle_response(OK, NO_SESSION, tps("foo-0")) is None
    assert said(session.next_request()) == (NO_SESSION, FULL_EPOCH, {"foo-0": 0}, [])


def test_another_error_ends_the_session_and_is_left_to_the_caller() -> None:
    """testTopLevelErrorResetsMetadata."""
    session = wanting(foo_0=0)
    answered_in_full(session)
    session.next_request()
    assert session.handle_response(KAFKA_STORAGE_ERROR.code, NO_SESSION, []) is None
    assert said(session.next_request()) == (ID, FULL_EPOCH, {"foo-0": 0}, [])


def test_a_full_request_that_is_refused_with_an_error_of_sessions_is_left_to_the_caller() -> None:
    """Else it would be sent again at once and without end."""
    session = wanting(foo_0=0)
    session.next_request()
    assert session.handle_response(FETCH_SESSION_ID_NOT_FOUND.code, NO_SESSION, []) is None


def test_a_request_without_an_answer_is_followed_by_a_full_one_that_ends_the_session() -> None:
    """handleError: the broker may have counted it, so the epoch is not known."""
    session = wanting(foo_0=0)
    answered_in_full(session)
    want(session, bar_0=5)
    session.next_request()
    session.handle_error()
    assert said(session.next_request()) == (ID, FULL_EPOCH, {"foo-0": 0, "bar-0": 5}, [])


def test_the_epoch_after_the_largest_is_1() -> None:
    """FetchMetadata.nextEpoch: 0 and -1 mean something else."""
    session = wanting(foo_0=0)
    answered_in_full(session)
    session._epoch = EPOCH_MAX
    session.next_request()
    session.handle_response(OK, ID, [])
    assert session.next_request().epoch == 1


def test_what_changes_and_changes_back_is_not_sent() -> None:
    session = wanting(foo_0=0)
    answered_in_full(session)
    want(session, foo_0=5)
    want(session, foo_0=0)
    want(session, bar_0=1)
    session.remove_partition(tps("bar-0")[0])
    assert said(session.next_request()) == (ID, 1, {}, [])


def test_a_full_request_names_the_first_so_many_and_those_that_were_moved_back_last() -> None:
    session = wanting(foo_0=0, foo_1=1, foo_2=2)
    request = session.next_request(partitions_max=2)
    assert list(request.rows) == tps("foo-0", "foo-1")
    assert session.handle_response(OK, NO_SESSION, list(request.rows)) is None
    for tp in request.rows:
        session.move_to_end(tp)
    assert list(session.next_request(partitions_max=2).rows) == tps("foo-2", "foo-0")


# --- the reader: topic ids ----------------------------------------------------------------------------------------

FOO, FOO_2, BAR = b"f" * 16, b"2" * 16, b"b" * 16


def by_id(
    request: FetchSessionRequest[int],
) -> tuple[bool, int, dict[str, int], dict[str, bytes], list[str], dict[str, bytes]]:
    """Form, epoch, rows and their ids, forgotten partitions and their ids."""
    _, epoch, rows, forgotten = said(request)
    return (
        request.has_topic_ids,
        epoch,
        rows,
        dict(request.topic_ids),
        forgotten,
        dict(request.forgotten_topic_ids),
    )


def want_by_id(session: FetchSessionHandler[int], topic_id: bytes, **offsets: int) -> None:
    for name, offset in offsets.items():
        session.set_partition(tps(name.replace("_", "-"))[0], offset, topic_id)


def opened_by_id() -> FetchSessionHandler[int]:
    """A session by ids of the partitions 0 and 1 of ``foo``."""
    session: FetchSessionHandler[int] = FetchSessionHandler()
    want_by_id(session, FOO, foo_0=0, foo_1=10)
    request = session.next_request(with_topic_ids=True)
    assert by_id(request) == (True, FULL_EPOCH, {"foo-0": 0, "foo-1": 10}, {"foo": FOO}, [], {})
    assert session.handle_response(OK, ID, list(request.rows)) is None
    return session


def test_a_session_by_ids_names_the_ids_of_what_was_added_changed_and_removed() -> None:
    session = opened_by_id()
    want_by_id(session, BAR, bar_0=20)
    want_by_id(session, FOO, foo_1=15)
    request = session.next_request(with_topic_ids=True)
    assert by_id(request) == (True, 1, {"bar-0": 20, "foo-1": 15}, {"foo": FOO, "bar": BAR}, [], {})
    assert [topic_name(session, topic_id) for topic_id in (FOO, BAR, FOO_2)] == ["foo", "bar", ""]
    assert session.handle_response(OK, ID, tps("foo-1", "bar-0")) is None
    session.remove_partition(tps("foo-0")[0])
    assert by_id(session.next_request(with_topic_ids=True)) == (True, 2, {}, {}, ["foo-0"], {"foo": FOO})


def test_a_topic_that_was_created_again_is_forgotten_under_the_old_id_and_added_under_the_new_one() -> None:
    session = opened_by_id()
    want_by_id(session, BAR, bar_0=20)
    session.next_request(with_topic_ids=True)
    session.handle_response(OK, ID, [])
    want_by_id(session, FOO_2, foo_0=0)
    request = session.next_request(with_topic_ids=True)
    rows, forgotten = {"foo-0": 0, "foo-1": 10}, ["foo-0", "foo-1"]
    assert by_id(request) == (True, 2, rows, {"foo": FOO_2}, forgotten, {"foo": FOO})
    assert (topic_name(session, FOO), topic_name(session, FOO_2)) == ("", "foo")
    assert set(session.requested) == set(tps("foo-0", "foo-1", "bar-0"))
    assert session.handle_response(OK, ID, tps("foo-0")) is None
    assert by_id(session.next_request(with_topic_ids=True)) == (True, 3, {}, {}, [], {})


def test_a_partition_that_leaves_while_its_topic_is_created_again_is_forgotten_under_the_old_id() -> None:
    session = opened_by_id()
    session.remove_partition(tps("foo-1")[0])
    want_by_id(session, FOO_2, foo_0=0)
    request = session.next_request(with_topic_ids=True)
    assert by_id(request) == (True, 1, {"foo-0": 0}, {"foo": FOO_2}, ["foo-1", "foo-0"], {"foo": FOO})


def test_a_topic_that_was_removed_may_come_back_under_another_id() -> None:
    session = opened_by_id()
    for tp in tps("foo-0", "foo-1"):
        session.remove_partition(tp)
    want_by_id(session, BAR, bar_0=20)
    session.next_request(with_topic_ids=True)
    session.handle_response(OK, ID, [])
    want_by_id(session, FOO_2, foo_0=7)
    request = session.next_request(with_topic_ids=True)
    assert by_id(request) == (True, 2, {"foo-0": 7}, {"foo": FOO_2}, [], {})
    assert (topic_name(session, FOO), topic_name(session, FOO_2)) == ("", "foo")


def test_an_id_that_changes_and_changes_back_before_the_request_changes_nothing() -> None:
    session = opened_by_id()
    want_by_id(session, FOO_2, foo_0=0)
    want_by_id(session, FOO, foo_0=0)
    assert by_id(session.next_request(with_topic_ids=True)) == (True, 1, {}, {}, [], {})


def test_a_session_that_began_with_names_goes_on_with_names_until_it_ends() -> None:
    session = wanting(foo_0=0)
    request = session.next_request(with_topic_ids=True)
    assert not request.has_topic_ids, "the id is not known"
    session.handle_response(OK, ID, list(request.rows))
    want_by_id(session, FOO, foo_0=0)
    want_by_id(session, BAR, bar_0=5)
    assert by_id(session.next_request(with_topic_ids=True)) == (False, 1, {"bar-0": 5}, {}, [], {})
    session.handle_error()
    request = session.next_request(with_topic_ids=True)
    rows, topic_ids = {"foo-0": 0, "bar-0": 5}, {"foo": FOO, "bar": BAR}
    assert by_id(request) == (True, FULL_EPOCH, rows, topic_ids, [], {})


def test_a_change_of_an_id_does_not_change_a_session_by_names() -> None:
    session: FetchSessionHandler[int] = FetchSessionHandler()
    want_by_id(session, FOO, foo_0=0)
    answered_in_full(session)
    want_by_id(session, FOO_2, foo_0=0)
    assert by_id(session.next_request(with_topic_ids=True)) == (False, 1, {}, {}, [], {})


@pytest.mark.parametrize(
    ("topic_id", "with_topic_ids"),
    [(NO_UUID, True), (None, False)],
    ids=["a topic has no id any more", "the broker was downgraded"],
)
def test_a_session_by_ids_ends_when_ids_cannot_be_used_any_more(topic_id: bytes | None, with_topic_ids: bool) -> None:
    session = opened_by_id()
    session.set_partition(tps("foo-0")[0], 0, topic_id)
    request = session.next_request(with_topic_ids=with_topic_ids)
    assert said(request) == (ID, FULL_EPOCH, {"foo-0": 0, "foo-1": 10}, [])
    assert not request.has_topic_ids
    assert topic_name(session, FOO) == ""


def test_a_session_by_ids_ends_when_a_topic_without_an_id_is_added() -> None:
    session = opened_by_id()
    session.set_partition(tps("bar-0")[0], 5, NO_UUID)
    request = session.next_request(with_topic_ids=True)
    assert said(request) == (ID, FULL_EPOCH, {"foo-0": 0, "foo-1": 10, "bar-0": 5}, [])
    assert not request.has_topic_ids


def test_all_partitions_of_a_session_by_ids_may_be_forgotten() -> None:
    session = opened_by_id()
    for tp in tps("foo-0", "foo-1"):
        session.remove_partition(tp)
    request = session.next_request(with_topic_ids=True)
    assert by_id(request) == (True, 1, {}, {}, ["foo-0", "foo-1"], {"foo": FOO})


def test_an_error_about_topic_ids_ends_the_session() -> None:
    session = opened_by_id()
    session.next_request(with_topic_ids=True)
    error = FETCH_SESSION_TOPIC_ID_ERROR
    assert session.handle_response(error.code, NO_SESSION, []) == error
    assert said(session.next_request(with_topic_ids=True))[:2] == (ID, FULL_EPOCH)


@pytest.mark.parametrize("error", [UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID])
def test_an_outdated_id_is_an_error_of_old_metadata_and_left_to_the_caller(error: ErrorCode) -> None:
    session = opened_by_id()
    session.next_request(with_topic_ids=True)
    assert error.is_stale_metadata
    assert session.handle_response(error.code, NO_SESSION, []) is None
    want_by_id(session, FOO_2, foo_0=0)
    request = session.next_request(with_topic_ids=True)
    assert by_id(request) == (True, FULL_EPOCH, {"foo-0": 0, "foo-1": 10}, {"foo": FOO_2}, [], {})


def test_a_partition_with_an_outdated_id_stays_in_the_session_until_the_new_id_is_known() -> None:
    """The broker answers its row with INCONSISTENT_TOPIC_ID; the session itself is all right."""
    session = opened_by_id()
    session.next_request(with_topic_ids=True)
    assert session.handle_response(OK, ID, tps("foo-0")) is None
    assert by_id(session.next_request(with_topic_ids=True)) == (True, 2, {}, {}, [], {})


@pytest.mark.parametrize(
    ("topic_ids", "is_kept"),
    [([FOO, BAR], True), ([FOO], False), ([FOO, BAR, FOO_2], False), ([FOO, FOO_2], False)],
    ids=["whole", "one is missing", "one too many", "another one"],
)
def test_a_full_answer_by_ids_must_be_about_exactly_what_was_asked_for(topic_ids: list[bytes], is_kept: bool) -> None:
    """testVerifyFullFetchResponsePartitions, by ids."""
    session: FetchSessionHandler[int] = FetchSessionHandler()
    want_by_id(session, FOO, foo_0=0)
    want_by_id(session, BAR, bar_0=0)
    session.next_request(with_topic_ids=True)
    session.handle_response(OK, ID, [TopicPartition(topic_name(session, topic_id), 0) for topic_id in topic_ids])
    assert session.is_open is is_kept


# --- the broker -----------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """A partition of a broker: where it ends, and whether reading it fails."""

    end: int = 0
    start: int = 0
    error: ErrorCode = NONE


@dataclass
class Broker:
    """Answers as a broker that has these logs."""

    cache: FetchSessionCache
    logs: dict[TopicPartition, Log] = field(default_factory=dict)

    def fetch(self, body: FetchRequest) -> FetchResponse:
        context = self.cache.new_context(body, 12)
        if isinstance(context, ErrorCode):
            return FetchResponse(error_code=context.code, responses=[])
        topics = []
        for topic in context.topics:
            rows = [self._row(TopicPartition(topic.topic, asked.partition), asked) for asked in topic.partitions]
            topics.append(FetchTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return context.build_response(topics)

    def _row(self, tp: TopicPartition, asked: FetchPartition) -> FetchPartitionResponse:
        log = self.logs.setdefault(tp, Log())
        error = OFFSET_OUT_OF_RANGE if not log.start <= asked.fetch_offset <= log.end else log.error
        if error != NONE:
            return FetchPartitionResponse(
                partition_index=tp.partition, error_code=error.code, high_watermark=-1, records=b""
            )
        return FetchPartitionResponse(
            partition_index=tp.partition, high_watermark=log.end, log_start_offset=log.start,
            records=b"r" * (log.end - asked.fetch_offset),
        )  # fmt: skip


class Time:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def broker(time: Time) -> Broker:
    return Broker(FetchSessionCache(time))


def asking(
    rows: dict[str, int], session_id: int = NO_SESSION, epoch: int = FULL_EPOCH, forgotten: list[str] | None = None
) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = {}
    for tp, offset in zip(tps(*rows), rows.values(), strict=True):
        topics.setdefault(tp.topic, []).append(
            FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=100)
        )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
        forgotten_topics_data=[
            ForgottenTopic(topic=tp.topic, partitions=[tp.partition]) for tp in tps(*(forgotten or []))
        ],
    )


def told(response: FetchResponse) -> dict[str, int]:
    """Which partitions the answer is about, and how many bytes it brings of each."""
    return {
        f"{topic.topic}-{row.partition_index}": len(row.records or b"")
        for topic in response.responses
        for row in topic.partitions
    }


def test_a_full_request_is_answered_in_full_and_opens_a_session(broker: Broker) -> None:
    first = broker.fetch(asking({"foo-0": 0, "foo-1": 0}))
    assert told(first) == {"foo-0": 0, "foo-1": 0}
    assert first.session_id != NO_SESSION
    assert told(broker.fetch(asking({}, first.session_id, 1))) == {}
    broker.logs[tps("foo-1")[0]].end = 3
    assert told(broker.fetch(asking({}, first.session_id, 2))) == {"foo-1": 3}
    assert told(broker.fetch(asking({"foo-1": 3}, first.session_id, 3))) == {}


@pytest.mark.parametrize(
    "change", [{"end": 2}, {"start": 1, "end": 2}, {"error": KAFKA_STORAGE_ERROR}], ids=["end", "start", "error"]
)
def test_an_answer_tells_of_a_partition_what_is_new(broker: Broker, change: dict[str, Any]) -> None:
    broker.logs[tps("foo-0")[0]] = log = Log(end=1)
    session_id = broker.fetch(asking({"foo-0": 1, "foo-1": 0})).session_id
    for name, value in change.items():
        setattr(log, name, value)
    assert list(told(broker.fetch(asking({}, session_id, 1)))) == ["foo-0"]


def test_after_an_error_a_partition_is_told_once_more(broker: Broker) -> None:
    session_id = broker.fetch(asking({"foo-0": 0})).session_id
    log = broker.logs[tps("foo-0")[0]]
    log.error = KAFKA_STORAGE_ERROR
    assert list(told(broker.fetch(asking({}, session_id, 1)))) == ["foo-0"]
    assert list(told(broker.fetch(asking({}, session_id, 2)))) == ["foo-0"], "as long as it lasts"
    log.error = NONE
    assert list(told(broker.fetch(asking({}, session_id, 3)))) == ["foo-0"]
    assert told(broker.fetch(asking({}, session_id, 4))) == {}


def test_what_brings_records_goes_behind_the_others(broker: Broker) -> None:
    session_id = broker.fetch(asking({"foo-0": 0, "foo-1": 0, "foo-2": 0})).session_id
    broker.logs[tps("foo-0")[0]].end = 1
    broker.fetch(asking({}, session_id, 1))
    context = broker.cache.new_context(asking({"foo-0": 1}, session_id, 2), 12)
    assert isinstance(context, FetchContext)
    assert [row.partition for topic in context.topics for row in topic.partitions] == [1, 2, 0]


def test_requests_that_fit_no_session_are_refused(broker: Broker) -> None:
    session_id = broker.fetch(asking({"foo-0": 0})).session_id
    assert broker.fetch(asking({}, session_id + 1, 1)).error_code == FETCH_SESSION_ID_NOT_FOUND.code
    assert broker.fetch(asking({}, session_id, 2)).error_code == INVALID_FETCH_SESSION_EPOCH.code
    assert broker.fetch(asking({}, session_id, 1)).error_code == OK, "a wrong epoch changes nothing"


def test_a_session_without_partitions_is_over(broker: Broker) -> None:
    session_id = broker.fetch(asking({"foo-0": 0})).session_id
    last = broker.fetch(asking({}, session_id, 1, ["foo-0"]))
    assert (last.error_code, last.session_id, told(last)) == (OK, NO_SESSION, {})
    assert broker.fetch(asking({}, session_id, 2)).error_code == FETCH_SESSION_ID_NOT_FOUND.code
    assert len(broker.cache) == 0


@pytest.mark.parametrize("epoch", [-1, FULL_EPOCH])
def test_a_full_request_ends_the_session_that_it_names(broker: Broker, epoch: int) -> None:
    session_id = broker.fetch(asking({"foo-0": 0})).session_id
    again = broker.fetch(asking({"foo-0": 0}, session_id, epoch))
    assert (again.session_id == NO_SESSION) is (epoch == -1)
    assert broker.fetch(asking({}, session_id, 1)).error_code == FETCH_SESSION_ID_NOT_FOUND.code


def test_a_session_gets_the_place_of_one_that_was_not_used_for_two_minutes(time: Time) -> None:
    broker = Broker(FetchSessionCache(time, slots_max=2))
    first, second = (broker.fetch(asking({"foo-0": 0})).session_id for _ in range(2))
    assert broker.fetch(asking({"foo-0": 0})).session_id == NO_SESSION
    time.now_ms += EVICTION_MS
    broker.fetch(asking({}, first, 1))
    time.now_ms += 1
    assert broker.fetch(asking({"foo-0": 0})).session_id != NO_SESSION
    assert broker.fetch(asking({}, second, 1)).error_code == FETCH_SESSION_ID_NOT_FOUND.code
    assert broker.fetch(asking({}, first, 2)).error_code == OK


def test_all_sessions_together_have_so_many_partitions_at_most(broker: Broker) -> None:
    many = {f"foo-{number}": 0 for number in range(PARTITIONS_MAX // 2)}
    first = broker.fetch(asking(many)).session_id
    assert first != NO_SESSION
    assert broker.fetch(asking({**many, "bar-0": 0})).session_id == NO_SESSION
    more = {f"bar-{number}": 0 for number in range(PARTITIONS_MAX // 2 + 1)}
    assert broker.fetch(asking(more, first, 1)).error_code == FETCH_SESSION_ID_NOT_FOUND.code
    assert len(broker.cache) == 0


def test_a_session_is_of_topic_ids_or_of_names(broker: Broker) -> None:
    """FETCH_SESSION_TOPIC_ID_ERROR (3.1, KIP-516)."""
    by_name = broker.fetch(asking({"foo-0": 0})).session_id
    context = broker.cache.new_context(asking({}, by_name, 1), 13)
    assert isinstance(context, ErrorCode)
    assert context.name == "FETCH_SESSION_TOPIC_ID_ERROR"
    with_id = asking({"foo-0": 0})
    with_id.topics[0].topic, with_id.topics[0].topic_id = "", b"i" * len(NO_UUID)
    opened = broker.cache.new_context(with_id, 13)
    assert isinstance(opened, FetchContext)
    assert [topic.topic_id for topic in opened.topics] == [b"i" * len(NO_UUID)]


# --- the two together -----------------------------------------------------------------------------------------------

NAMES = tps("a-0", "a-1", "b-0", "b-1")
partitions = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("append"), partitions, st.integers(1, 3)),
    st.tuples(st.just("delete"), partitions, st.integers(1, 3)),
    st.tuples(st.just("break"), partitions, st.just(0)),
    st.tuples(st.just("leave out"), partitions, st.just(0)),
    st.tuples(st.just("come back"), partitions, st.just(0)),
    st.tuples(st.just("broker forgets"), st.just(NAMES[0]), st.just(0)),
    st.tuples(st.just("request lost"), st.just(NAMES[0]), st.just(0)),
    st.tuples(st.just("answer lost"), st.just(NAMES[0]), st.just(0)),
    st.tuples(st.just("fetch"), st.just(NAMES[0]), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=30), st.integers(0, 2))
def test_a_reader_with_a_session_learns_what_one_without_would(actions: list[Any], slots: int) -> None:
    """After each answer: the same position and the same high watermark of each partition that it asks for."""
    broker = Broker(FetchSessionCache(lambda: 0, slots), {tp: Log() for tp in NAMES})
    session: FetchSessionHandler[int] = FetchSessionHandler()
    offsets = dict.fromkeys(NAMES, 0)
    known: dict[TopicPartition, int] = {}
    asked_for = set(NAMES)
    epochs: list[int] = []

    def body() -> FetchRequest:
        for tp in NAMES:
            if tp in asked_for:
                session.set_partition(tp, offsets[tp])
            else:
                session.remove_partition(tp)
        request = session.next_request()
        epochs.append(request.epoch)
        rows = {f"{tp.topic}-{tp.partition}": row for tp, row in request.rows.items()}
        return asking(rows, request.session_id, request.epoch, [f"{t.topic}-{t.partition}" for t in request.forgotten])

    def fetch() -> None:
        for _ in range(2):
            response = broker.fetch(body())
            rows = {
                TopicPartition(topic.topic, row.partition_index): row
                for topic in response.responses
                for row in topic.partitions
            }
            if session.handle_response(response.error_code, response.session_id, rows) is None:
                break
        assert response.error_code == OK
        for tp, row in rows.items():
            if row.error_code == OFFSET_OUT_OF_RANGE.code:
                offsets[tp] = broker.logs[tp].start
            elif row.error_code == OK:
                known[tp] = row.high_watermark
                offsets[tp] += len(row.records or b"")

    for action, tp, count in [*actions, *[("fetch", NAMES[0], 0)] * 3]:
        log = broker.logs[tp]
        match action:
            case "append":
                log.end += count
            case "delete":
                log.start = min(log.end, log.start + count)
            case "break":
                log.error = NONE if log.error != NONE else KAFKA_STORAGE_ERROR
            case "leave out":
                asked_for.discard(tp)
            case "come back":
                asked_for.add(tp)
            case "broker forgets":
                broker.cache.drop_all()
            case "request lost":
                body()
                session.handle_error()
            case "answer lost":
                broker.fetch(body())
                session.handle_error()
            case "fetch":
                fetch()
    for tp in asked_for:
        if broker.logs[tp].error == NONE:
            assert offsets[tp] == broker.logs[tp].end
            assert known[tp] == broker.logs[tp].end
    assert all(after in (FULL_EPOCH, before + 1) for before, after in pairwise(epochs))


def body_by_id(request: FetchSessionRequest[int]) -> FetchRequest:
    """The request of version 13, with one entry for each partition."""
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=request.session_id,
        session_epoch=request.epoch,
        topics=[
            FetchTopic(
                topic_id=request.topic_ids[tp.topic],
                partitions=[FetchPartition(partition=tp.partition, fetch_offset=row, partition_max_bytes=100)],
            )
            for tp, row in request.rows.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=request.forgotten_topic_ids[tp.topic], partitions=[tp.partition])
            for tp in request.forgotten
        ],
    )


changes_by_id = st.lists(
    st.one_of(
        st.tuples(st.just("set"), partitions, st.integers(0, 3)),
        st.tuples(st.just("leave out"), partitions, st.just(0)),
        st.tuples(st.just("create again"), partitions, st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.just(NAMES[0]), st.just(0)),
        st.tuples(st.just("answer lost"), st.just(NAMES[0]), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(changes_by_id)
def test_the_session_of_the_broker_has_the_partitions_under_the_present_ids_of_their_topics(actions: list[Any]) -> None:
    cache = FetchSessionCache(lambda: 0)
    session: FetchSessionHandler[int] = FetchSessionHandler()
    topic_ids = {"a": b"a" * 16, "b": b"b" * 16}
    wanted: dict[TopicPartition, int] = {}

    def send() -> FetchContext:
        for tp in NAMES:
            if tp in wanted:
                session.set_partition(tp, wanted[tp], topic_ids[tp.topic])
            else:
                session.remove_partition(tp)
        request = session.next_request(with_topic_ids=True)
        assert request.has_topic_ids
        context = cache.new_context(body_by_id(request), 13)
        assert isinstance(context, FetchContext), context
        return context

    for action, tp, number in [*actions, ("fetch", NAMES[0], 0)]:
        match action:
            case "set":
                wanted[tp] = number
            case "leave out":
                wanted.pop(tp, None)
            case "create again":
                topic_ids[tp.topic] = topic_ids[tp.topic][:1] + bytes([number]) * 15
            case "answer lost":
                send()
                session.handle_error()
            case "fetch":
                context = send()
                found = {
                    (topic.topic_id, row.partition): row.fetch_offset
                    for topic in context.topics
                    for row in topic.partitions
                }
                assert found == {(topic_ids[tp.topic], tp.partition): offset for tp, offset in wanted.items()}
                full = [TopicPartition(topic_name(session, topic_id), partition) for topic_id, partition in found]
                session.handle_response(OK, context.session_id, full)
