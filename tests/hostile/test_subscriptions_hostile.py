"""What other members say of themselves is nobody's promise: a leader of ours divides all the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.client.assignors import ASSIGNORS
from zkconsumer.kafka.group.partition_assignor import Subscription
from zkconsumer.types import TopicPartition

TOPICS = st.sampled_from(["t", "u", "v", "nowhere", "", "\ud800"])
NUMBERS = st.one_of(st.integers(-3, 6), st.integers(-(2**31), 2**31 - 1))
TEXTS = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a", "b"]))

SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(TOPICS, max_size=5).map(tuple),
    user_data=st.one_of(
        st.none(),
        st.binary(max_size=24),
        st.integers(-3, 6).map(lambda n: b"\0\0\0\1\0\1t\0\0\0\1" + n.to_bytes(4, "big", signed=True) + b"\0\0\0\2"),
    ),
    owned_partitions=st.lists(st.builds(TopicPartition, TOPICS, NUMBERS), max_size=12).map(tuple),
    generation_id=st.integers(-(2**31), 2**31 - 1),
    rack_id=TEXTS,
    group_instance_id=TEXTS,
)
RACKS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(-1, 6)), st.frozensets(st.sampled_from("abc")), max_size=12
)


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=120, deadline=None)
@given(
    members=st.dictionaries(st.text(max_size=3), SUBSCRIPTIONS, min_size=1, max_size=6),
    partitions=st.dictionaries(st.sampled_from(["t", "u", "v"]), st.integers(0, 6)),
    racks=RACKS,
)
def test_whatever_members_say_nobody_gets_what_is_anothers_or_not_there(
    name: str,
    members: dict[str, Subscription],
    partitions: dict[str, int],
    racks: dict[TopicPartition, frozenset[str]],
) -> None:
    shares = ASSIGNORS[name]().assign(partitions, members, racks)
    assert set(shares) == set(members)
    given_away = Counter(tp for share in shares.values() for tp in share.partitions)
    assert all(count == 1 for count in given_away.values())
    for member, share in shares.items():
        assert all(tp.topic in members[member].topics for tp in share.partitions)
        assert all(0 <= tp.partition < partitions.get(tp.topic, 0) for tp in share.partitions)
    wanted = {topic for each in members.values() for topic in each.topics}
    everything = {TopicPartition(topic, n) for topic in wanted for n in range(partitions.get(topic, 0))}
    claimed = {tp for each in members.values() for tp in each.owned_partitions}
    assert everything - given_away.keys() <= (claimed if name == "cooperative-sticky" else set())
