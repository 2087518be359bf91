"""A message that cannot be handed out, from the broker to the committed offset."""

from __future__ import annotations

from typing import Any

import pytest

import zkconsumer.connector_base
from tests.in_memory_fixtures import MakeConnector, MakeWorld, take
from zkconsumer.errors import InvalidMessageException, MessageSizeTooLargeException
from zkconsumer.kafka.fetcher_thread import FetchSettings
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

TOPIC = "clicks"


def bad_batch(first: int, count: int, magic: int = 2) -> bytes:
    records = build_record_set([Record(first + n, 0, 0, None, b"v") for n in range(count)], magic)
    return records[:-1] + b"?"


def test_a_skip_counts_as_consumed_and_is_committed(make_world: MakeWorld, connect: MakeConnector) -> None:
    world = make_world()
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"a"])
    world.cluster.append_raw(TOPIC, 0, bad_batch(1, 3), next_offset=4)
    world.cluster.append(TOPIC, 0, [b"b"])
    connector = connect(on=world)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 1)
    with pytest.raises(InvalidMessageException, match=r"clicks/0 at offset 1: .* continues at offset 4"):
        next(stream.iterator())
    connector.commit_offsets()
    assert world.offsets("g1", TOPIC) == {0: 1}, "not before it was skipped"
    stream.iterator().skip_poison()
    connector.commit_offsets()
    assert world.offsets("g1", TOPIC) == {0: 4}
    [message] = take(stream, 1)
    assert (message.offset, message.value) == (4, b"b")


def test_the_next_owner_meets_what_was_not_skipped_again(make_world: MakeWorld, connect: MakeConnector) -> None:
    world = make_world()
    world.create_topic(TOPIC, 1)
    world.cluster.append_raw(TOPIC, 0, bad_batch(0, 1), next_offset=1)
    for _ in range(2):
        connector = connect(on=world)
        [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
        with pytest.raises(InvalidMessageException, match="clicks/0 at offset 0"):
            next(stream.iterator())
        connector.close()


def test_a_message_too_large_at_any_size_is_gone_past_and_the_fetcher_follows(
    make_world: MakeWorld, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(**settings: Any) -> FetchSettings:
        return FetchSettings(**settings, large_message_bytes_max=3_000)

    monkeypatch.setattr(zkconsumer.connector_base, "FetchSettings", small)
    world = make_world(release="0.8.2.2")
    world.create_topic(TOPIC, 1)
    world.cluster.append(TOPIC, 0, [b"x" * 2_000])
    world.cluster.append(TOPIC, 0, [b"x" * 5_000])
    world.cluster.append(TOPIC, 0, [b"a"])
    connector = connect(on=world, fetch_message_max_bytes=1_000)
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    assert [len(message.value or b"") for message in take(stream, 1)] == [2_000], "larger than a fetch, and read"
    with pytest.raises(MessageSizeTooLargeException, match="partition 0 at fetch offset 1"):
        next(stream.iterator())
    stream.iterator().skip_poison()
    assert [message.offset for message in take(stream, 1)] == [2]
    connector.commit_offsets()
    assert world.offsets("g1", TOPIC) == {0: 3}
