"""The fetches of ``poll`` cost what has changed, and are the same as if each partition had been looked at."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from tests.metadata_responses import metadata_response, partition_row, topic_row
from tests.poll_fetcher_fixtures import (
    ALL_VERSIONS,
    TOPIC,
    TP0,
    TP1,
    TP2,
    TP3,
    PollFetcher,
    fetch_response,
    offsets_of,
    partition_response,
    record_set,
)
from tests.simulation_seeds import Seeds
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.error_codes import FETCH_SESSION_ID_NOT_FOUND, NONE, OFFSET_OUT_OF_RANGE, ErrorCode
from zkconsumer.kafka.fetch import fetcher as fetcher_module
from zkconsumer.kafka.fetch.fetch_requests import FetchRow, prepare_fetch_requests
from zkconsumer.kafka.fetch.topic_partition_state import TopicPartitionState
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import TopicPartition

PARTITIONS = (TP0, TP1, TP2, TP3)
LEASE_MS = 5_000
NODES = 2


class SessionBrokers:
    """Two brokers that keep fetch sessions; the leader of a partition is the node with its parity, or the other one.

    As Kafka (``FetchSession.scala`` of 3.0): a partition that is new in the session has a row also without records; one
    with records is the last of its session then.
    """

    def __init__(self, made: PollFetcher) -> None:
        self.made = made
        self.leaders = {tp: tp.partition % NODES for tp in PARTITIONS}
        self.sessions: dict[int, dict[TopicPartition, int]] = {}
        made.kafka.versions = dict.fromkeys(range(NODES), ALL_VERSIONS)
        self.update_metadata()

    def update_metadata(self) -> None:
        """All partitions exist all the time; the node of ``leaders`` leads, and both have replicas."""
        rows = [
            partition_row(tp.partition, leader, 1, replica_nodes=[0, 1], isr_nodes=[0, 1])
            for tp, leader in self.leaders.items()
        ]
        self.made.kafka.update_metadata(metadata_response(topic_row(TOPIC, *rows), nodes=NODES))

    def respond(
        self,
        number: int,
        with_records: Iterable[TopicPartition] = (),
        *,
        room: int = 0,
        has_error: bool = False,
        replica: int = -1,
        row_error: ErrorCode = NONE,
        high_watermark: int = 100,
    ) -> None:
        """Answer the fetch that is in flight to a node, if there is one.

        With two records of each of these partitions, or of the first ``room`` ones.
        """
        found = [each for each in self.made.kafka.requests if each.request.destination == number]
        if not found:
            return
        request = found[0].body
        partitions = self.sessions.get(number, {}) if request.session_epoch else {}
        known = set(partitions)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del partitions[TopicPartition(topic.topic, index)]
        for topic in request.topics:
            for row in topic.partitions:
                partitions[TopicPartition(topic.topic, row.partition)] = row.fetch_offset
        self.sessions[number] = partitions
        with_records = with_records or list(partitions)[:room]
        chosen = [tp for tp in partitions if not request.session_epoch or tp in with_records or tp not in known]
        rows = [
            (
                tp,
                partition_response(
                    tp,
                    record_set(partitions[tp], 2) if tp in with_records and row_error is NONE else b"",
                    row_error,
                    preferred_read_replica=replica,
                    high_watermark=high_watermark,
                ),
            )
            for tp in chosen
        ]
        for tp in with_records:  # in the next response the others come first
            if tp in partitions:
                partitions[tp] = partitions.pop(tp)
        error = FETCH_SESSION_ID_NOT_FOUND if has_error and request.session_epoch else NONE
        body = fetch_response(*([] if error is not NONE else rows), session_id=7 + number, error=error)
        self.made.kafka.respond(body, node_id=number)
        self.made.poll()


def rows_of_all(made: PollFetcher) -> dict[Node, dict[TopicPartition, FetchRow]]:
    """The rows for each node, with a look at each partition."""
    fetcher = made.fetcher
    available = made.subscriptions.assigned_partitions() - fetcher._buffered_partitions()
    return prepare_fetch_requests(
        made.subscriptions,
        made.metadata,
        made.network,
        made.subscriptions.fetchable_partitions(available.__contains__),
        nodes_in_flight=set(fetcher._nodes_with_pending_fetch_requests),
        fetch_size=1000,
        now_ms=made.clock.now_ms(),
    )


def would_only_wait(made: PollFetcher, node: Node, rows: dict[TopicPartition, FetchRow]) -> bool:
    """Whether all that is asked for is at its end, and records of other partitions of the node are buffered."""
    states = {tp: made.subscriptions.assigned_state(tp) for tp in made.subscriptions.assigned_partitions()}
    for tp, row in rows.items():
        end = states[tp].high_watermark
        if end is None or row.fetch_offset < end:
            return False
    buffered = [states[tp] for tp in made.fetcher._buffered_partitions() if tp in states]
    return any(each.is_fetchable and each.position.current_leader.leader == node for each in buffered)


def check_next_fetches(made: PollFetcher) -> None:
    """Send the fetches: they are those of a look at each partition."""
    fetcher = made.fetcher
    fetcher._offsets.validate_positions_on_metadata_change()
    expected = {node: rows for node, rows in rows_of_all(made).items() if not would_only_wait(made, node, rows)}
    before = set(fetcher._nodes_with_pending_fetch_requests)
    count = fetcher.send_fetches()
    assert fetcher._leaders is not None
    if fetcher._leaders <= before:
        expected = {}  # a preferred replica alone is asked later
    assert count == len(expected)
    assert fetcher._nodes_with_pending_fetch_requests - before == {node.id for node in expected}
    for node, rows in expected.items():
        handler = fetcher._session_handlers[node.id]
        assert handler.partitions == rows
        assert handler.is_open or list(handler.partitions) == list(rows)
    made.poll()


def consumer(*, high_watermark: int = 100, **options: Any) -> tuple[PollFetcher, SessionBrokers]:
    """A fetcher whose partitions have positions, with an open session at both nodes."""
    made = PollFetcher(**options)
    made.subscriptions.assign_from_user(PARTITIONS)
    brokers = SessionBrokers(made)
    for tp in PARTITIONS:
        made.seek(tp, 0)
    check_next_fetches(made)
    for number in range(NODES):
        brokers.respond(number, high_watermark=high_watermark)
    assert made.fetcher.fetched_records() == {}
    check_next_fetches(made)
    return made, brokers


SEEDS = Seeds("prepared-sessions")
STEPS_OF_A_LIFE = 60
ACTIONS = {
    "respond": 40,
    "records": 30,
    "name a replica": 10,
    "out of range": 2,
    "session error": 2,
    "disconnect": 2,
    "back-off": 2,
    "wait": 8,
    "pause": 10,
    "resume": 15,
    "seek": 3,
    "drop": 5,
    "revoke": 3,
    "leader": 2,
    "assign": 3,
}


def live(seed: int) -> None:
    """Fetches, responses and changes in any order; each fetch is that of a look at each partition."""
    random = Random(seed)
    made, brokers = consumer(max_poll_records=3, metadata_expire_ms=LEASE_MS, client_rack_id="here")
    subscriptions = made.subscriptions
    for action in random.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS_OF_A_LIFE):
        node, tp = random.randrange(NODES), random.choice(subscriptions.assigned_partitions_list())
        match action:
            case "respond":
                chosen = random.sample(PARTITIONS, random.randrange(3))
                brokers.respond(node, chosen, high_watermark=random.choice([0, 2, 4, 100]))
            case "records":
                for read, found in made.fetcher.fetched_records().items():
                    assert offsets_of(found)[-1] + 1 == made.position(read)
            case "name a replica":
                brokers.respond(node, [tp], replica=random.randrange(NODES))
            case "session error":
                brokers.respond(node, has_error=True)
            case "disconnect":
                made.kafka.disconnect(node)
                made.poll()
            case "back-off":
                made.kafka.backoff(node, 500)
            case "out of range":
                brokers.respond(node, [tp], row_error=OFFSET_OUT_OF_RANGE)
                made.fetcher.fetched_records()
            case "wait":
                made.clock.move(random.choice([600, LEASE_MS + 1]))
            case "pause":
                subscriptions.pause(tp)
            case "resume":
                subscriptions.resume(tp)
            case "seek":
                made.seek(tp, 10)
            case "drop":
                made.fetcher.clear_buffered_data_for_unassigned_partitions(subscriptions.assigned_partitions() - {tp})
            case "revoke":
                subscriptions.mark_pending_revocation([tp])
            case "leader":
                brokers.leaders[tp] = node
                brokers.update_metadata()
            case "assign":
                before = subscriptions.assigned_partitions()
                subscriptions.assign_from_user(random.sample(PARTITIONS, random.randint(2, len(PARTITIONS))))
                for new in subscriptions.assigned_partitions() - before:
                    made.seek(new, 0)
        check_next_fetches(made)


def test_the_fetches_are_those_of_a_look_at_each_partition() -> None:
    SEEDS.live(SEEDS.first(100), live)


@pytest.mark.nightly
def test_many_more_orders_of_events() -> None:
    SEEDS.live(SEEDS.new(10_000), live)


def test_only_partitions_of_the_last_responses_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand partitions that have few records, the look at each cost more than the records."""
    made, brokers = consumer()
    looks: list[TopicPartition] = []

    def prepare(*args: Any, **fields: Any) -> Any:
        looks.extend(args[3])
        return prepare_fetch_requests(*args, **fields)

    monkeypatch.setattr(fetcher_module, "prepare_fetch_requests", prepare)
    monkeypatch.setattr(TopicPartitionState, "has_preferred_read_replica", property(lambda each: 1 / 0))
    for _ in range(3):
        brokers.respond(0, [TP2])
        assert set(made.fetcher.fetched_records()) == {TP2}
        assert made.fetcher.send_fetches() == 1
        assert looks == [TP2]
        looks.clear()
        made.poll()
    brokers.respond(1)
    assert made.fetcher.send_fetches() == 1, "the broker had nothing, and is asked for the same"
    assert looks == []


def test_each_partition_has_its_turn_if_a_response_has_no_room_for_all() -> None:
    """With ``fetch.max.bytes`` for two of four partitions, all of which have records."""
    made, brokers = consumer(max_poll_records=2)
    brokers.leaders = dict.fromkeys(PARTITIONS, 0)
    brokers.update_metadata()
    brokers.respond(1)
    brokers.respond(0, has_error=True)  # so the next request is full, and its response has a row for each partition
    read = dict.fromkeys(PARTITIONS, 0)
    for _ in range(60):
        made.fetcher.send_fetches()
        made.poll()
        records = made.fetcher.fetched_records()
        if not records:
            brokers.respond(0, room=2)
        for tp, found in records.items():
            read[tp] += len(offsets_of(found))
    assert 2 * min(read.values()) >= max(read.values()), read


def test_a_node_is_not_asked_for_partitions_at_their_ends_while_others_of_it_are_buffered() -> None:
    """The broker would answer after ``fetch.max.wait.ms``, and until then nothing more is read of the others."""
    made, brokers = consumer(max_poll_records=1, high_watermark=0)
    send = made.fetcher.send_fetches
    brokers.respond(0, [TP0])
    assert set(made.fetcher.fetched_records()) == {TP0}
    assert (send(), send()) == (0, 0), "TP2 is at its end, a record of TP0 is left, and node 1 has a fetch in flight"
    brokers.respond(1)
    assert send() == 1, "the other node has nothing buffered"
    assert set(made.fetcher.fetched_records()) == {TP0}
    assert made.fetcher.fetched_records() == {}, "it is drained"
    assert send() == 1
    made.poll()
    brokers.respond(0, [TP0])
    assert send() == 0
    made.subscriptions.pause(TP0)
    assert send() == 1, "paused records stay in the buffer"


def test_a_node_is_asked_for_partitions_that_have_more_while_others_of_it_are_buffered() -> None:
    made, brokers = consumer(max_poll_records=1, high_watermark=1)
    brokers.respond(0, [TP0])
    assert set(made.fetcher.fetched_records()) == {TP0}
    assert made.fetcher.send_fetches() == 1


def test_a_failed_login_is_raised_also_if_no_partition_has_changed() -> None:
    made, brokers = consumer()
    brokers.respond(0)
    made.kafka.backoff(0, 500)
    made.kafka.authentication_errors[0] = AuthenticationException("no")
    with pytest.raises(AuthenticationException, match="no"):
        made.fetcher.send_fetches()
    made.clock.move(501)
    assert made.fetcher.send_fetches() == 1
