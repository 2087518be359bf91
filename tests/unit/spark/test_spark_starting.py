"""``starting_offsets`` in a world in memory: what is written for Spark, and everything that is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.handoff.starting_offsets import read_starts, starting_offsets
from bridge.spark.source.offset_selection import topic_names
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors, fill_clicks, join, put
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.kafka_offsets import OFFSETS_TOPIC
from zkconsumer.errors import InvalidNameError, PreconditionFailed, UnavailableError, UsageError
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord, format_control


@pytest.fixture
def world(world: FakeEnvironment) -> FakeEnvironment:
    fill_clicks(world)
    return world


@pytest.fixture
def kafka(world: FakeEnvironment) -> FakeEnvironment:
    """The same, with offsets in Kafka: 40, 60 and 70."""
    world.create_topic(OFFSETS_TOPIC, 1)
    for partition, offset in {0: 40, 1: 60, 2: 70}.items():
        world.cluster.commit("g1", "clicks", partition, offset)
    return world


def move(world: FakeEnvironment, authority: Any) -> None:
    world.zookeeper.ensure(paths.control("g1"), format_control(ControlRecord("m1", 1, "cut-over", authority, "stop")))


def ask(world: FakeEnvironment, topics: Any = ("clicks",), group: str = "g1", **how: Any) -> Any:
    return json.loads(starting_offsets(ADDRESS, group, topics, dependencies=doors(world), **how))


# --- what is written ---


def test_every_partition_is_listed_and_one_without_an_offset_begins_at_the_start(world: FakeEnvironment) -> None:
    text = starting_offsets(ADDRESS, "g1", ["clicks"], dependencies=doors(world))
    assert text == '{"clicks":{"0":42,"1":50,"2":-2}}', "what Spark parses"


@pytest.mark.parametrize("topics", ["clicks", " clicks ,", ["clicks", "clicks"], None])
def test_topics_may_be_written_as_for_subscribe_or_left_out(world: FakeEnvironment, topics: Any) -> None:
    assert ask(world, topics) == {"clicks": {"0": 42, "1": 50, "2": -2}}


def test_a_topic_without_any_offset_is_listed_when_it_is_named(world: FakeEnvironment) -> None:
    world.create_topic("orders", 2)
    assert ask(world, "clicks,orders")["orders"] == {"0": -2, "1": -2}
    assert "orders" not in ask(world, None)


def test_where_the_group_has_nothing_the_caller_decides(world: FakeEnvironment) -> None:
    assert ask(world, missing="latest")["clicks"]["2"] == -1
    with pytest.raises(PreconditionFailed, match=r"g1 has no offset of clicks/2: set missing='earliest' or"):
        ask(world, missing="refuse")


def test_what_a_reliable_receiver_wrote_was_read_already(world: FakeEnvironment) -> None:
    assert ask(world, convention="last-consumed") == {"clicks": {"0": 43, "1": 51, "2": -2}}
    with pytest.raises(UsageError, match="is about offsets in ZooKeeper"):
        ask(world, convention="last-consumed", store="kafka")


def test_nothing_is_written(world: FakeEnvironment) -> None:
    with AdminSession.open(ADDRESS, None, doors(world)) as session:
        before = world.zookeeper.tree.zxid
        read_starts(session, "g1")
        assert world.zookeeper.tree.zxid == before


def test_what_was_chosen_for_the_caller_is_logged(world: FakeEnvironment, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "zkconsumer.spark"):
        ask(world)
    assert [record.getMessage() for record in caplog.records] == [
        "starting-offsets group=g1 remark='clicks/2: the group has no offset: read from the start of the log'"
    ]


# --- stores ---


@pytest.mark.parametrize(
    ("store", "offsets"), [("zookeeper", [42, 50, -2]), ("kafka", [40, 60, 70]), ("both", [42, 60, 70])]
)
def test_each_store_is_read_as_members_would_read_it(kafka: FakeEnvironment, store: str, offsets: list[int]) -> None:
    assert list(ask(kafka, store=store)["clicks"].values()) == offsets


def test_two_stores_that_differ_are_not_guessed_between(kafka: FakeEnvironment) -> None:
    with pytest.raises(PreconditionFailed, match=r"different offsets in Kafka .*clicks/0, clicks/1.*set store='zoo"):
        ask(kafka)


def test_two_stores_that_agree_need_no_choice(kafka: FakeEnvironment) -> None:
    put(kafka, {0: 40, 1: 60})
    assert ask(kafka) == {"clicks": {"0": 40, "1": 60, "2": 70}}


def test_the_members_own_file_says_which_store_counts(kafka: FakeEnvironment, tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("offsets.storage=kafka\ndual.commit.enabled=true\n")
    assert ask(kafka, config_file=file) == {"clicks": {"0": 42, "1": 60, "2": 70}}


def test_a_group_that_was_moved_is_read_where_it_went(kafka: FakeEnvironment) -> None:
    move(kafka, "kafka")
    assert ask(kafka) == {"clicks": {"0": 40, "1": 60, "2": 70}}
    with pytest.raises(PreconditionFailed, match="its offsets are in Kafka, and those in ZooKeeper are from before"):
        ask(kafka, store="zookeeper")


def test_a_control_znode_that_cannot_be_read_says_nothing(world: FakeEnvironment) -> None:
    world.zookeeper.ensure(paths.control("g1"), b"?")
    with pytest.raises(PreconditionFailed, match="repair the znode first"):
        ask(world)


def test_when_kafka_does_not_tell_it_is_not_taken_for_empty(kafka: FakeEnvironment) -> None:
    for broker in kafka.cluster.addresses:
        kafka.cluster.stop_broker(broker.broker_id)
    with pytest.raises(UnavailableError, match="not known whether group g1 has offsets in Kafka"):
        ask(kafka)
    assert ask(kafka, store="zookeeper", out_of_range="keep") == {"clicks": {"0": 42, "1": 50, "2": -2}}


# --- the log ---


def test_what_the_log_does_not_hold_is_refused_with_both_numbers(world: FakeEnvironment) -> None:
    put(world, {0: 3, 1: 101})
    with pytest.raises(PreconditionFailed) as caught:
        ask(world)
    words = str(caught.value)
    assert "clicks/0: 3 is before the start of the log (10), 7 records are deleted" in words
    assert "clicks/1: 101 is beyond the end of the log (100)" in words
    assert "out_of_range='earliest'" in words


@pytest.mark.parametrize(("choice", "offsets"), [("earliest", [-2, 50]), ("latest", [-1, 50]), ("keep", [3, 50])])
def test_what_the_log_does_not_hold_begins_where_the_caller_says(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture, choice: str, offsets: list[int]
) -> None:
    put(world, {0: 3})
    assert list(ask(world, out_of_range=choice)["clicks"].values())[:2] == offsets
    assert "clicks/0: 3 is before the start of the log (10), 7 records are deleted" in caplog.text


def test_the_end_of_the_log_is_inside(world: FakeEnvironment) -> None:
    put(world, {1: 100})
    assert ask(world)["clicks"]["1"] == 100


def test_a_last_consumed_offset_taken_for_a_next_one_can_show_at_the_end(world: FakeEnvironment) -> None:
    put(world, {1: 100})
    with pytest.raises(PreconditionFailed, match="101 is beyond the end"):
        ask(world, convention="last-consumed")


# --- refusals ---


def test_a_group_that_nobody_knows_is_told_with_the_nearest_one(world: FakeEnvironment) -> None:
    put(world, {0: 1}, group="click-etl")
    with pytest.raises(
        UsageError, match=r"group click-elt does not exist at fake\.invalid:2181; did you mean click-etl\?"
    ):
        ask(world, group="click-elt")
    with pytest.raises(UsageError, match="zkconsumer groups list"):
        ask(world, group="billing")


def test_a_topic_that_does_not_exist_is_told(world: FakeEnvironment) -> None:
    with pytest.raises(UsageError, match="no such topic: clikcs"):
        ask(world, "clicks,clikcs")
    assert world.cluster.requests == [] or "clikcs" not in str(world.cluster.requests), "old brokers would make it"


def test_a_topic_that_is_gone_is_left_out_unless_it_is_named(
    world: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    put(world, {0: 7}, topic="gone")
    assert list(ask(world, None)) == ["clicks"]
    assert "starting-topics-missing group=g1 topics='gone'" in caplog.text


def test_members_are_in_the_way_unless_they_are_allowed(world: FakeEnvironment) -> None:
    join(world)
    with pytest.raises(PreconditionFailed, match=r"1 member is registered in group g1 \(g1_a\).*stop them first"):
        ask(world)
    assert ask(world, allow_members=True)["clicks"]["0"] == 42


def test_an_offset_that_is_no_number_is_refused(world: FakeEnvironment) -> None:
    put(world, {1: b"fifty"})
    with pytest.raises(PreconditionFailed, match="offset znode of clicks/1 in group g1 contains no number"):
        ask(world)


def test_a_group_without_offsets_needs_topics(world: FakeEnvironment) -> None:
    world.zookeeper.ensure(paths.ids("empty"))
    with pytest.raises(UsageError, match="group empty has no offsets: name the topics"):
        ask(world, None, group="empty")
    assert ask(world, "clicks", group="empty") == {"clicks": {"0": -2, "1": -2, "2": -2}}


@pytest.mark.parametrize(
    "wrong", [{"convention": "last"}, {"store": "zk"}, {"missing": "smallest"}, {"out_of_range": "ignore"}]
)
def test_a_word_that_is_none_is_told_with_those_that_are(world: FakeEnvironment, wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(UsageError, match=rf"{name}='{value}': expected one of '"):
        ask(world, **wrong)


def test_names_are_looked_at_before_a_path_is_made_of_them(world: FakeEnvironment) -> None:
    with pytest.raises(InvalidNameError):
        ask(world, group="a/b")
    with pytest.raises(InvalidNameError):
        ask(world, "a/b")
    with pytest.raises(UsageError, match="topics is empty"):
        topic_names([" "])
