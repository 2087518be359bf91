"""What a broker with fetch sessions does, step by step: the same for real, fake and embedded brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.kafka import error_codes as codes
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

Fetch = Callable[[FetchRequest], FetchResponse]

NO_SESSION = 0
LEADERS_TIMEOUT_MS = 30_000
PLENTY = 1_000_000


def asking(rows: dict[str, int], session_id: int, epoch: int, forgotten: tuple[str, ...] = ()) -> FetchRequest:
    """``rows``: topic -> fetch offset, of its partition 0."""
    return FetchRequest(
        max_wait_ms=50,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=PLENTY)],
            )
            for topic, offset in rows.items()
        ],
        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=[0]) for topic in forgotten],
    )


def told(response: FetchResponse) -> dict[str, tuple[int, list[bytes | None]]]:
    """Topic -> high watermark and values, of what the answer is about."""
    assert response.error_code == codes.NONE.code
    found: dict[str, Any] = {}
    for topic in response.responses:
        [row] = topic.partitions
        assert row.error_code == codes.NONE.code
        assert row.records is not None
        found[topic.topic] = row.high_watermark, [record.value for record in iter_records(row.records)]
    return found


def walk_through(fetch: Fetch, produce: Callable[[str, bytes], object], one: str, two: str) -> None:
    """``one`` and ``two`` are empty topics of one partition."""

    def has_leaders() -> bool:
        topics = fetch(asking({one: 0, two: 0}, NO_SESSION, -1)).responses
        return all(row.error_code == codes.NONE.code for topic in topics for row in topic.partitions)

    wait_until(has_leaders, f"{one} and {two} have leaders", LEADERS_TIMEOUT_MS)
    # A full request asks for a session.
    first = fetch(asking({one: 0, two: 0}, NO_SESSION, 0))
    assert told(first) == {one: (0, []), two: (0, [])}
    session = first.session_id
    assert session != NO_SESSION

    def next_fetch(epoch: int, rows: dict[str, int], *forgotten: str) -> FetchResponse:
        response = fetch(asking(rows, session, epoch, forgotten))
        assert response.session_id == session
        return response

    # Nothing is new; then one partition has a record, until the reader asks for what comes behind it.
    assert told(next_fetch(1, {})) == {}
    produce(two, b"a")
    assert told(next_fetch(2, {})) == {two: (1, [b"a"])}
    assert told(next_fetch(3, {})) == {two: (1, [b"a"])}
    assert told(next_fetch(4, {two: 1})) == {}
    # A partition that is forgotten is not read; it is told in full when it comes back.
    assert told(next_fetch(5, {}, one)) == {}
    produce(one, b"b")
    assert told(next_fetch(6, {})) == {}
    assert told(next_fetch(7, {one: 1})) == {one: (1, [])}
    # A wrong epoch is refused and changes nothing.
    assert fetch(asking({}, session, 7)).error_code == codes.INVALID_FETCH_SESSION_EPOCH.code
    assert fetch(asking({}, session, 9)).error_code == codes.INVALID_FETCH_SESSION_EPOCH.code
    assert told(next_fetch(8, {})) == {}
    # A full request that names the session ends it, and gets another one.
    again = fetch(asking({one: 1, two: 1}, session, 0))
    assert told(again) == {one: (1, []), two: (1, [])}
    assert again.session_id not in (NO_SESSION, session)
    assert fetch(asking({}, session, 9)).error_code == codes.FETCH_SESSION_ID_NOT_FOUND.code
    # A session without partitions is over.
    last = fetch(asking({}, again.session_id, 1, (one, two)))
    assert (told(last), last.session_id) == ({}, NO_SESSION)
    assert fetch(asking({}, again.session_id, 2)).error_code == codes.FETCH_SESSION_ID_NOT_FOUND.code
    # So is one whose reader says that this is its last request.
    other = fetch(asking({one: 1}, NO_SESSION, 0)).session_id
    last = fetch(asking({one: 1}, other, -1))
    assert (told(last), last.session_id) == ({one: (1, [])}, NO_SESSION)
    assert fetch(asking({}, other, 1)).error_code == codes.FETCH_SESSION_ID_NOT_FOUND.code
