"""An assignor of the user: one file, and one line of configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bridge import (
    Assignment,
    CoordinatorConsumerConfig,
    CoordinatorConsumerConnector,
    RebalanceProtocol,
    Subscription,
)
from bridge.client.coordinator_from_config import assignors_of
from bridge.testing.embedded_broker import EmbeddedBroker
from tests.coordinator.test_connector_embedded import QUICK, broker, fill, read_until, wait_until
from zkconsumer.errors import InvalidConfigException
from zkconsumer.types import TopicPartition

__all__ = ["broker"]

HERE = "tests.coordinator.test_custom_assignor"


class FirstMember:
    """Assigns everything to the member with the lowest id."""

    name = "first-member"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})
    configured_with: Mapping[str, Any] | None = None

    def configure(self, values: Mapping[str, Any]) -> None:
        self.configured_with = values

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return None

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> Mapping[str, Assignment]:
        everything = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
        return {min(subscriptions): Assignment(tuple(everything))}

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """It keeps nothing."""


class Renamed(FirstMember):
    name = "range"


class Broken(FirstMember):
    def __init__(self) -> None:
        raise OSError("no licence")


class Incomplete:
    name = ""
    supported_protocols: frozenset[RebalanceProtocol] = frozenset()

    def assign(self) -> None: ...


def config_of(strategy: str, bootstrap: str = "b:9092") -> CoordinatorConsumerConfig:
    return CoordinatorConsumerConfig(
        {
            "group.id": "g", "bootstrap.servers": bootstrap, "partition.assignment.strategy": strategy,
            "auto.offset.reset": "earliest", "consumer.timeout.ms": "100",
        }
    )  # fmt: skip


@pytest.fixture
def members(broker: EmbeddedBroker) -> Iterator[list[CoordinatorConsumerConnector]]:
    config = config_of(f"{HERE}:FirstMember", broker.bootstrap)
    with CoordinatorConsumerConnector(config, QUICK) as one, CoordinatorConsumerConnector(config, QUICK) as other:
        yield [one, other]


def test_a_group_is_assigned_by_the_assignor_that_the_configuration_names(
    broker: EmbeddedBroker, members: list[CoordinatorConsumerConnector]
) -> None:
    fill(broker)
    streams = [member.create_message_streams({"t": 1})["t"][0] for member in members]
    wait_until(lambda: sorted(len(member.assignment) for member in members) == [0, 4], "one member has all partitions")
    [busy] = [stream for stream, member in zip(streams, members, strict=True) if member.assignment]
    assert len(read_until(busy, 20)) == 20


def test_it_is_configured_with_the_settings_of_the_member() -> None:
    config = config_of(f"range, {HERE}:FirstMember")
    first, second = assignors_of(config)
    assert (first.name, second.name) == ("range", "first-member")
    assert isinstance(second, FirstMember)
    assert second.configured_with is config.values


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{HERE}:Missing", "cannot be created: AttributeError: .*Missing"),
        ("no_such_package.assignor:Mine", "cannot be created: ModuleNotFoundError"),
        (f"{HERE}:Broken", "cannot be created: OSError: no licence"),
        (f"{HERE}:Incomplete", r"it lacks subscription_user_data, on_assignment, name \(a text\), supported_protocols"),
        (f"range,{HERE}:Renamed", r"have the same name \(range, range\)"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_of_the_configuration(path: str, text: str) -> None:
    with pytest.raises(InvalidConfigException, match=text):
        assignors_of(config_of(path))


def test_a_word_that_is_no_import_path_is_an_error_of_the_file() -> None:
    with pytest.raises(InvalidConfigException, match=r"mine is not known; name an assignor of your own as package"):
        config_of("mine")
