"""The old names: every overload does what its Python name does, and the errors are the same classes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import zkconsumer.connector
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from zkconsumer import errors, javaapi
from zkconsumer.javaapi import Consumer, ConsumerConfig, IntegerDecoder, LongDecoder, StringDecoder, TopicPartition
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory

PROPS = {
    "group.id": "g1",
    "zookeeper.connect": ADDRESS,
    "auto.offset.reset": "smallest",
    "consumer.timeout.ms": "1000",
    "auto.commit.enable": "false",
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEnvironment]:
    """A world that the two factory methods reach: they take nothing but a configuration."""
    with FakeEnvironment() as made:
        made.create_topic("t", 1)
        monkeypatch.setattr(zkconsumer.connector, "KazooStore", made.store)
        monkeypatch.setattr(
            "zkconsumer.runtime.broker_access.connection_factory_from_config",
            lambda *_: SecureConnectionFactory(BrokerSecurity(), socket=made.cluster.transport),
        )
        yield made


@pytest.fixture(params=["create", "createJavaConsumerConnector"])
def connector(request: pytest.FixtureRequest, world: FakeEnvironment) -> Iterator[javaapi.ConsumerConnector]:
    """A connector from either factory."""
    made = getattr(Consumer, request.param)(ConsumerConfig(PROPS))
    yield made
    made.shutdown()


def test_a_stream_is_read_with_has_next_and_next(world: FakeEnvironment, connector: javaapi.ConsumerConnector) -> None:
    world.cluster.append("t", 0, [b"a", b"b"])
    it = connector.createMessageStreams({"t": 1})["t"][0].iterator()
    seen = []
    while len(seen) < 2 and it.hasNext():
        message = it.next()
        seen.append((message.topic(), message.partition(), message.offset(), message.key(), message.message()))
    assert seen == [("t", 0, 0, None, b"a"), ("t", 0, 1, None, b"b")]
    with pytest.raises(javaapi.ConsumerTimeoutException):
        it.hasNext()


@pytest.mark.parametrize(
    ("decoder", "data", "value"),
    [
        (StringDecoder(), "grün".encode(), "grün"),
        (StringDecoder({"serializer.encoding": "latin-1"}), "grün".encode("latin-1"), "grün"),
        (StringDecoder(), b"gr\xfcn", "gr\ufffdn"),
        (StringDecoder({"serializer.encoding": "UTF-16"}), "grün".encode("utf-16-be"), "grün"),
        (StringDecoder({"serializer.encoding": "UTF-16"}), "grün".encode("utf-16"), "grün"),
        (LongDecoder(), b"\xff" * 8, -1),
        (IntegerDecoder(), b"\x00\x00\x01\x00", 256),
    ],
)
def test_values_are_decoded_by_the_decoder_that_was_given(
    world: FakeEnvironment, connector: javaapi.ConsumerConnector, decoder: Any, data: bytes, value: object
) -> None:
    world.cluster.append("t", 0, [data])
    stream = connector.createMessageStreams({"t": 1}, StringDecoder(), decoder)["t"][0]
    assert next(iter(stream)).message() == value


def test_a_decoder_of_text_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(StringDecoder())).fromBytes(b"a") == "a"


def test_an_encoding_that_does_not_exist_is_an_error_of_the_decoder() -> None:
    with pytest.raises(errors.UsageError, match=r"serializer\.encoding is 'UTF-9', which Python does not have"):
        StringDecoder({"serializer.encoding": "UTF-9"})


def test_peek_shows_what_next_gives(world: FakeEnvironment, connector: javaapi.ConsumerConnector) -> None:
    world.cluster.append("t", 0, [b"a"])
    it = connector.createMessageStreams({"t": 1})["t"][0].iterator()
    looked = it.peek()
    assert looked is not None
    assert looked.offset() == it.next().offset() == 0


def test_iterator_gives_the_same_object_every_time(connector: javaapi.ConsumerConnector) -> None:
    stream = connector.createMessageStreams({"t": 1})["t"][0]
    assert stream.iterator() is stream.iterator() is iter(stream)


def test_removing_a_message_is_refused_as_in_the_original(connector: javaapi.ConsumerConnector) -> None:
    stream = connector.createMessageStreams({"t": 1})["t"][0]
    with pytest.raises(errors.UsageError):
        stream.iterator().remove()


@pytest.mark.parametrize("arguments", [(), (True,), (False,)])
def test_commit_offsets_covers_the_message_in_hand(
    world: FakeEnvironment, connector: javaapi.ConsumerConnector, arguments: tuple[bool, ...]
) -> None:
    world.cluster.append("t", 0, [b"a", b"b"])
    connector.createMessageStreams({"t": 1})["t"][0].iterator().next()
    connector.commitOffsets(*arguments)
    assert world.offsets("g1", "t") == {0: 1}


def test_commit_offsets_takes_a_map_of_next_offsets(
    world: FakeEnvironment, connector: javaapi.ConsumerConnector
) -> None:
    world.cluster.append("t", 0, [b"a"] * 9)
    connector.createMessageStreams({"t": 1})["t"][0].iterator().next()
    connector.commitOffsets({TopicPartition("t", 0): 7}, True)
    assert world.offsets("g1", "t") == {0: 7}
    connector.commitOffsets({javaapi.TopicAndPartition("t", 0): javaapi.OffsetAndMetadata(8, "as in Java")}, True)
    assert world.offsets("g1", "t") == {0: 8}
    with pytest.raises(errors.UsageError, match="mapping"):
        connector.commitOffsets([7], True)


def test_shutdown_ends_the_streams_and_may_be_called_twice(
    world: FakeEnvironment, connector: javaapi.ConsumerConnector
) -> None:
    it = connector.createMessageStreams({"t": 1})["t"][0].iterator()
    connector.shutdown()
    connector.shutdown()
    assert not it.hasNext()
    with pytest.raises(javaapi.NoSuchElementException):
        it.next()
    assert world.owners("g1", "t") == {}


def test_streams_can_be_created_once(connector: javaapi.ConsumerConnector) -> None:
    connector.createMessageStreams({"t": 1})
    with pytest.raises(javaapi.MessageStreamsExistException):
        connector.createMessageStreams({"t": 1})


def test_a_missing_key_is_the_same_error_under_both_names() -> None:
    with pytest.raises(errors.InvalidConfigException, match=r"zookeeper\.connect"):
        ConsumerConfig({"group.id": "g1"})
    assert javaapi.InvalidConfigException is errors.InvalidConfigException


def test_the_stream_tells_its_thread(connector: javaapi.ConsumerConnector) -> None:
    stream = connector.createMessageStreams({"t": 1})["t"][0]
    assert stream.toString() == f"{connector.connector.consumer_id}-0 kafka stream"
