"""A member that keeps its partitions while its group waits for a member that is gone, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from bridge import CoordinatorConsumerConnector
from bridge.client.assignors import CooperativeStickyAssignor
from bridge.testing.embedded_broker import EmbeddedBroker
from tests.broker.raw_client import RawClient
from zkconsumer import ConsumerConfig
from zkconsumer.errors import ConsumerTimeoutException
from zkconsumer.kafka.group.generation import MemberState
from zkconsumer.testing.sandbox import waiting
from zkconsumer.wire.consumer_protocol import Subscription, encode_subscription
from zkconsumer.wire.schemas import JOIN_GROUP, OFFSET_FETCH
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchTopic

SESSION_MS = 60_000
"""The broker waits so long for the member that is gone: longer than the test, also on a busy machine."""

WAIT_MS = 30_000
PARTITIONS = 2


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "1"}) as made:
        made.create_topic("t", PARTITIONS)
        yield made


def join_and_be_silent(talk: RawClient) -> None:
    """One more member: the group rebalances, and waits for all the others."""
    metadata = encode_subscription(Subscription(topics=("t",)))
    body = JoinGroupRequest(
        group_id="g", session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id="",
        protocol_type="consumer", protocols=[JoinGroupProtocol(name="cooperative-sticky", metadata=metadata)],
    )  # fmt: skip
    talk.connection.send(JOIN_GROUP, 2, body, WAIT_MS)


def committed(broker: EmbeddedBroker) -> dict[int, int]:
    [address] = broker.addresses()
    topics = [OffsetFetchTopic(name="t", partition_indexes=list(range(PARTITIONS)))]
    with RawClient(address) as talk:
        [topic] = talk.ask(OFFSET_FETCH, 5, OffsetFetchRequest(group_id="g", topics=topics)).topics
    return {row.partition_index: row.committed_offset for row in topic.partitions}


@pytest.mark.parametrize("auto_commit", [False, True])
def test_it_commits_what_it_reads_while_the_group_waits_for_a_member_that_is_gone(
    broker: EmbeddedBroker, auto_commit: bool
) -> None:
    """Before, it read on for seconds without a commit, and the next owner read all of that again."""
    config = ConsumerConfig(
        group_id="g", zookeeper_connect="nowhere:2181", bootstrap_servers=broker.bootstrap,
        auto_offset_reset="smallest", consumer_timeout_ms=100, auto_commit_enable=auto_commit,
        auto_commit_interval_ms=50,
    )  # fmt: skip
    group = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 50, "retry.backoff.ms": 20}
    with ExitStack() as stack:
        first, gone = (
            stack.enter_context(CoordinatorConsumerConnector(config, group, assignors=[CooperativeStickyAssignor()]))
            for _ in range(2)
        )
        [stream] = first.create_message_streams({"t": 1})["t"]
        gone.create_message_streams({"t": 1})
        waiting.wait_until(lambda: len(first.assignment) == len(gone.assignment) == 1, "one each", timeout_ms=WAIT_MS)
        membership: Any = first._member.membership
        lost: Any = gone._member.membership
        lost._network.ask_to_stop()
        assert lost._network.join(WAIT_MS)
        joiner = stack.enter_context(RawClient(broker.addresses()[0]))
        join_and_be_silent(joiner)
        machine = membership.machine
        waiting.wait_until(
            lambda: machine.state is MemberState.PREPARING_REBALANCE, "it has joined again", timeout_ms=WAIT_MS
        )
        [(partition, _)] = [(tp.partition, name) for tp, name in first.assignment.items()]
        broker.append("t", partition, [b"x"] * 10)
        read: list[int] = []

        def has_read_all() -> bool:
            with suppress(ConsumerTimeoutException):
                read.extend(message.offset for message in stream)
            return len(read) == 10

        waiting.wait_until(has_read_all, "it reads on", timeout_ms=WAIT_MS)
        if not auto_commit:
            first.commit_offsets()
        waiting.wait_until(lambda: committed(broker)[partition] == 10, "it is committed", timeout_ms=WAIT_MS)
        assert machine.state is MemberState.PREPARING_REBALANCE, "the group waits still"
