"""What a query and its membership process say to each other survives the way, and what is no message is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.spark.group_membership import (
    BatchAssignment,
    BatchEnd,
    ClaimedRange,
    ClaimRefused,
    CommitMode,
    GroupOffset,
    LeasedPartition,
    RangeToClaim,
)
from bridge.spark.membership import pipe_messages as msg
from bridge.spark.membership.metrics import render_prometheus
from bridge.spark.membership.process_settings import DRAIN_TIMEOUT_MS, RELEASE_SETTLE_MS, MembershipProcessSettings
from zkconsumer.errors import (
    BrokerUnreachable,
    InternalError,
    OffsetsNotCommitted,
    SslAuthenticationException,
    UnavailableError,
    UsageError,
    ZkConsumerError,
    ZkTimeoutException,
)
from zkconsumer.kafka.group.errors import GroupAuthorizationException
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.tls import NotTlsError
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION, TopicSubscription
from zkconsumer.types import BrokerAddress, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 12)
SECRET = "nobody-should-read-this"


def there_and_back(value: Any, write: Any, read: Any) -> Any:
    line = msg.encode(msg.ProcessResponse(3, write(value)))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    answer = msg.decode_process_response(line)
    assert isinstance(answer, msg.ProcessResponse)
    return read(answer.result)


@pytest.mark.parametrize(
    ("value", "write", "read"),
    [
        ({A: BatchEnd(2**60, 7), B: BatchEnd(1, 2**62)}, msg.encode_batch_ends, msg.decode_batch_ends),
        ({A: RangeToClaim(1, 2, 3)}, msg.encode_ranges_to_claim, msg.decode_ranges_to_claim),
        (
            {A: ClaimedRange(1, 2), B: ClaimRefused('it is "theirs"\n')},
            msg.encode_claim_results,
            msg.decode_claim_results,
        ),
        ({A: GroupOffset(-1, None), B: GroupOffset(5, 7)}, msg.encode_group_offsets, msg.decode_group_offsets),
        ({A: "why"}, msg.encode_reasons, msg.decode_reasons),
        ({A: 5}, msg.encode_offsets, msg.decode_offsets),
        ([A, B], msg.encode_partitions, msg.decode_partitions),
        ([], msg.encode_partitions, msg.decode_partitions),
        ([BrokerAddress(1, "h", 9092)], msg.encode_brokers, msg.decode_brokers),
        (
            BatchAssignment({A: LeasedPartition(4, -2)}, True, 3, {"a": 1, "none": 0}),
            msg.encode_batch_assignment,
            msg.decode_batch_assignment,
        ),
    ],
)
def test_a_value_comes_as_it_went(value: Any, write: Any, read: Any) -> None:
    assert there_and_back(value, write, read) == value


def test_a_call_comes_as_it_went() -> None:
    call = msg.ProcessRequest(7, "begin_batch", 15_000, {"ended": {}, "wait_ms": 0})
    assert msg.decode_process_request(msg.encode(call)) == call


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"null", b'{"id": 1}', b'{"id": 1, "call": "rm", "within_ms": 1, "args": {}}', b"\xff",
        b'{"id": true, "call": "close", "within_ms": 1, "args": {}}', b"[" * 100_000,
        b'{"id": 1, "call": "close", "within_ms": 1, "args": []}',
        b'{"id": 1, "call": "close", "within_ms": 1, "args": {}, "more": 1}',
    ],
)  # fmt: skip
def test_what_is_no_call_is_refused(line: bytes) -> None:
    with pytest.raises(InternalError):
        msg.decode_process_request(line)


@pytest.mark.parametrize("line", [b"{}", b'{"id": "1", "done": 1}', b'{"id": 1, "failed": "X"}', b"hello"])
def test_what_is_no_answer_is_refused_and_not_quoted(line: bytes) -> None:
    with pytest.raises(InternalError) as caught:
        msg.decode_process_response(line)
    assert line.decode() not in str(caught.value)


@pytest.mark.parametrize("found", [[], {"t": 1}, {"t": {"x": 1}}, {"t": {"0": [1]}}, {"t": {"0": [1, True]}}, None])
def test_partitions_that_are_none_are_refused(found: Any) -> None:
    with pytest.raises(InternalError):
        msg.decode_batch_ends(found)


def test_an_error_has_its_class_and_its_message_on_the_pipe() -> None:
    error = msg.ProcessErrorResponse(7, "ZkTimeoutException", "no session")
    line = msg.encode(error)
    assert line == b'{"id":7,"failed":"ZkTimeoutException","message":"no session"}\n'
    assert msg.decode_process_response(line) == error


@pytest.mark.parametrize(
    ("raised", "family"),
    [(GroupAuthorizationException("g"), UsageError), (NotTlsError("no TLS"), SslAuthenticationException),
     (BrokerConnectionError("k", 9092, ConnectionFailureReason.UNRESOLVED, "silent"), BrokerUnreachable)],
)  # fmt: skip
def test_an_error_of_another_module_is_one_of_its_family_and_no_bug(
    raised: ZkConsumerError, family: type[ZkConsumerError]
) -> None:
    error = msg.ProcessErrorResponse.of(1, raised).error()
    assert type(error) is family
    assert (str(error), error.exit_code) == (str(raised), raised.exit_code)


def test_an_error_is_the_same_class_on_the_other_side() -> None:
    error = msg.ProcessErrorResponse.of(1, ZkTimeoutException("no session")).error()
    assert type(error) is ZkTimeoutException
    assert str(error) == "no session"
    without_words = msg.ProcessErrorResponse.of(1, OffsetsNotCommitted({A: "why"})).error()
    assert type(without_words) is UnavailableError
    assert "a/0: why" in str(without_words)
    assert type(msg.ProcessErrorResponse(1, "os", "x").error()) is InternalError


# --- settings ---------------------------------------------------------------------------------------------------


def settings(**given: Any) -> MembershipProcessSettings:
    properties = {"group.id": "g", "zookeeper.connect": "h:2181", "ssl.truststore.password": SECRET}
    return MembershipProcessSettings(properties | given, STATIC_SUBSCRIPTION, ("t", "u"), "g_c", mode=CommitMode.CLAIM)


def test_settings_come_as_they_went_and_show_no_secret() -> None:
    one = settings()
    assert MembershipProcessSettings.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert SECRET not in repr(one)
    with pytest.raises(InternalError):
        MembershipProcessSettings.from_json({"properties": {}})


def test_a_membership_process_waits_longer_for_a_batch_than_a_connector_for_its_program() -> None:
    plain = MembershipProcessSettings(
        {"group.id": "g", "zookeeper.connect": "h:2181"}, STATIC_SUBSCRIPTION, ("t",), "g_c"
    )
    assert plain.config().rebalance_drain_timeout_ms == DRAIN_TIMEOUT_MS
    assert plain.config().release_settle_ms == RELEASE_SETTLE_MS
    assert DRAIN_TIMEOUT_MS + RELEASE_SETTLE_MS < 6_000, "before the last try of an original member"
    assert plain.subscription(3) == TopicSubscription(STATIC_SUBSCRIPTION, {"t": 3})


def test_claims_are_refused_where_the_offsets_are_in_kafka_alone() -> None:
    kafka = {"offsets.storage": "kafka"}
    one = MembershipProcessSettings(
        {"group.id": "g", "zookeeper.connect": "h:2181", "dual.commit.enabled": "false"} | kafka,
        STATIC_SUBSCRIPTION, ("t",), "g_c", mode=CommitMode.CLAIM,
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"group\.offsets\.commit=afterBatch"):
        one.config()


# --- text for Prometheus ----------------------------------------------------------------------------------------


def test_numbers_are_shown_as_prometheus_reads_them() -> None:
    text = render_prometheus('g"1', "m", {"owned_partitions": 3, "commits": 2, "spark_claims_taken": 1})
    assert text.splitlines()[1:3] == [
        "# TYPE zkconsumer_spark_commits_total counter",
        'zkconsumer_spark_commits_total{group="g\\"1",member="m"} 2',
    ]
    assert 'zkconsumer_spark_owned_partitions{group="g\\"1",member="m"} 3' in text
    assert 'zkconsumer_spark_claims_taken_total{group="g\\"1",member="m"} 1' in text
