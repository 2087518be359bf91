"""What brokers of every age write."""

from __future__ import annotations

import pytest

from zkconsumer.errors import MalformedZnode
from zkconsumer.types import BrokerAddress
from zkconsumer.zk.znode_formats import (
    LeaderIsrAndControllerEpoch,
    TopicZnode,
    parse_broker,
    parse_partition_state,
    parse_topic,
)

H1 = BrokerAddress(3, "h1", 9092)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (1, '{"jmx_port":-1,"timestamp":"1416246370000","host":"h1","version":1,"port":9092}'),
        (
            2,
            '{"endpoints":["PLAINTEXT://h1:9092"],"jmx_port":-1,"host":"h1","timestamp":"1416246370000",'
            '"port":9092,"version":2}',
        ),
        (
            4,
            '{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h1:9092"],'
            '"rack":"r1","jmx_port":-1,"host":"h1","timestamp":"1416246370000","port":9092,"version":4}',
        ),
    ],
)
def test_a_broker_of_every_version_has_its_plaintext_address(version: int, text: str) -> None:
    broker = parse_broker(3, text.encode())
    assert (broker.version, broker.address("PLAINTEXT")) == (version, H1)
    assert broker.rack == ("r1" if version == 4 else None)


def test_a_version_that_does_not_exist_yet_is_read_as_the_last_one() -> None:
    text = b'{"endpoints":["PLAINTEXT://h1:9092"],"version":9,"features":{"x":{"min":1}}}'
    assert parse_broker(3, text).address("PLAINTEXT") == H1


def test_the_first_plaintext_endpoint_counts_not_host_and_port() -> None:
    text = b'{"endpoints":["SSL://s:1","PLAINTEXT://h1:9092","PLAINTEXT://h2:1"],"host":"x","port":1,"version":2}'
    assert parse_broker(3, text).address("PLAINTEXT") == H1


def test_a_listener_of_another_name_is_plaintext_when_the_map_says_so() -> None:
    text = (
        b'{"listener_security_protocol_map":{"INSIDE":"SSL","outside":"PLAINTEXT"},'
        b'"endpoints":["INSIDE://i:1","OUTSIDE://h1:9092"],"host":null,"port":-1,"version":4}'
    )
    assert parse_broker(3, text).address("PLAINTEXT") == H1


def test_a_listener_that_its_map_does_not_know_is_not_plaintext() -> None:
    text = b'{"listener_security_protocol_map":{},"endpoints":["PLAINTEXT://h1:9092"],"port":-1,"version":4}'
    assert parse_broker(3, text).address("PLAINTEXT") is None


def test_a_broker_without_a_plaintext_endpoint_says_so() -> None:
    text = b'{"endpoints":["SSL://h1:9093"],"host":null,"port":-1,"version":2}'
    broker = parse_broker(3, text)
    assert broker.address("PLAINTEXT") is None
    assert "SSL://h1:9093" in broker.missing_endpoint_message("PLAINTEXT")


def test_an_address_of_ip_6_loses_its_brackets() -> None:
    text = b'{"endpoints":["PLAINTEXT://[::1]:9092"],"version":2}'
    assert parse_broker(3, text).address("PLAINTEXT") == BrokerAddress(3, "::1", 9092)


def test_a_name_with_an_underscore_is_one() -> None:
    text = b'{"endpoints":["PLAINTEXT://a_b:9092"],"version":2}'
    assert parse_broker(3, text).address("PLAINTEXT") == BrokerAddress(3, "a_b", 9092)


def test_the_first_listener_of_each_protocol_counts() -> None:
    text = (
        b'{"listener_security_protocol_map":{"IN":"SASL_SSL","OUT":"SASL_SSL","OPEN":"PLAINTEXT","ODD":"QUIC"},'
        b'"endpoints":["IN://h1:9094","OUT://o:1","OPEN://h1:9092","ODD://q:2"],"host":"h1","port":9092,"version":5}'
    )
    broker = parse_broker(3, text)
    assert broker.addresses == {"SASL_SSL": BrokerAddress(3, "h1", 9094), "PLAINTEXT": H1}
    assert broker.address("SSL") is None
    assert broker.missing_endpoint_message("SSL").startswith("no SSL endpoint among ['IN://h1:9094', ")
    assert "'IN': 'SASL_SSL'" in broker.missing_endpoint_message("SSL")


@pytest.mark.parametrize(
    "members",
    [
        '"endpoints":["PLAINTEXT://h1:70000"]',
        '"endpoints":["PLAINTEXT://h1:-1"]',
        '"endpoints":["PLAINTEXT://:9092"]',
        '"endpoints":["PLAINTEXT://h1:99999999999999999999"]',
        '"endpoints":["PLAINTEXT://h1 :9092"]',
        '"endpoints":[1,null,{}]',
        '"endpoints":{}',
        '"host":"","port":1',
        '"host":"h","port":0',
        '"host":"h","port":"9092"',
        '"host":"h","port":true',
        '"host":1,"port":9092',
        '"host":"h","port":65536',
    ],
)
def test_an_address_that_cannot_be_one_is_none(members: str) -> None:
    broker = parse_broker(3, f'{{"version":2,{members}}}'.encode())
    assert broker.address("PLAINTEXT") is None
    assert broker.missing_endpoint_message("PLAINTEXT")


@pytest.mark.parametrize("data", [b"", b"[]", b"x", b"\xff", b"null"])
def test_a_broker_node_that_is_no_object_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedZnode):
        parse_broker(3, data)


def test_a_topics_partitions_come_in_order_of_their_numbers() -> None:
    assert parse_topic(b'{"version":1,"partitions":{"10":[1],"0":[1,2],"1":[2,1]}}') == TopicZnode((0, 1, 10))


def test_what_later_brokers_add_to_a_topic_does_not_matter() -> None:
    text = (
        b'{"removing_replicas":{},"partitions":{"0":[1]},"topic_id":"Ab_c","adding_replicas":{},'
        b'"version":3,"x":99999999999}'
    )
    assert parse_topic(text) == TopicZnode((0,))


def test_a_topic_without_partitions_has_none_and_says_so() -> None:
    assert parse_topic(b'{"version":1}') == TopicZnode((), "it contains no partitions")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"x", b'{"partitions":[]}', b'{"partitions":{"a":[]}}', b'{"partitions":{"-1":[]}}',
             b'{"partitions":{"2147483648":[]}}', b'{"partitions":{"":[]}}', "{\"partitions\":{\"٣\":[]}}".encode()]
)  # fmt: skip
def test_a_topic_that_cannot_be_read_has_no_partitions_and_says_why(data: bytes) -> None:
    topic = parse_topic(data)
    assert topic.partitions == ()
    assert topic.error


def test_a_partition_state_is_read() -> None:
    text = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":5,"isr":[0,1]}'
    assert parse_partition_state(text) == LeaderIsrAndControllerEpoch(-1, 5, (0, 1), 1)


@pytest.mark.parametrize("key", ["controller_epoch", "leader", "leader_epoch", "isr"])
def test_a_partition_state_without_a_field_is_malformed(key: str) -> None:
    members = {"controller_epoch": "1", "leader": "0", "leader_epoch": "0", "isr": "[0]"}
    del members[key]
    text = ",".join(f'"{name}":{value}' for name, value in members.items())
    with pytest.raises(MalformedZnode, match=key):
        parse_partition_state(f"{{{text}}}".encode())
