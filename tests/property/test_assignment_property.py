"""What the original's PartitionAssignorTest asserts, for groups of any shape."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer.member.group_assignment import (
    AssignmentContext,
    AssignmentError,
    AssignorVariant,
    GroupAssignment,
    create_instance,
    detect_variants,
    explain_mismatch,
)
from zkconsumer.member.scala_maps import immutable_map_order, mutable_map_order
from zkconsumer.member.topic_count import construct_topic_count
from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash

NAME = st.text("abAB01._-", min_size=1, max_size=4)
COLLIDING = st.sampled_from(["Aa", "BB", "AaAa", "AaBB", "BBAa", "BBBB"])
TOPICS = st.lists(NAME | COLLIDING, min_size=1, max_size=16, unique=True)
CONSUMERS = st.lists(NAME, min_size=1, max_size=6, unique=True)
PARTITIONS = st.integers(0, 20).map(range) | st.lists(st.integers(0, 2**31 - 1), max_size=5, unique=True)
THREADS = st.integers(1, 4)
FORMS = st.sampled_from(list(AssignorVariant))
ROUNDROBINS = st.sampled_from([form for form in AssignorVariant if form.strategy == "roundrobin"])

Members = dict[str, tuple[str, dict[str, int]]]
Group = tuple[Members, dict[str, Any]]


@st.composite
def alike(draw: st.DrawFn) -> Group:
    """Static members with the same topics, each with the same number of threads for all of them."""
    topics = draw(TOPICS)
    members = {c: ("static", dict.fromkeys(draw(st.permutations(topics)), draw(THREADS))) for c in draw(CONSUMERS)}
    return members, {topic: draw(PARTITIONS) for topic in topics}


@st.composite
def filtering(draw: st.DrawFn) -> Group:
    """Members that all have the white list ``.*``."""
    members = {c: ("white_list", {".*": draw(THREADS)}) for c in draw(CONSUMERS)}
    return members, {topic: draw(PARTITIONS) for topic in draw(TOPICS)}


@st.composite
def unlike(draw: st.DrawFn) -> Group:
    """Static members with any topics, existing or not, and any numbers of threads."""
    topics = draw(TOPICS)
    subscription = st.dictionaries(st.sampled_from(topics), THREADS)
    members = {c: ("static", draw(subscription)) for c in draw(CONSUMERS)}
    existing = draw(st.lists(st.sampled_from(topics), unique=True))
    return members, {topic: draw(PARTITIONS) for topic in existing}


def seen_by(me: str, group: Group) -> AssignmentContext:
    members, partitions = group
    return AssignmentContext(
        me, {c: construct_topic_count(c, pattern, topics) for c, (pattern, topics) in members.items()}, partitions
    )


def computed(form: AssignorVariant, context: AssignmentContext) -> GroupAssignment:
    return create_instance(form.strategy, form.compatibility).assign(context)


def claims(form: AssignorVariant, group: Group) -> list[tuple[TopicPartition, str]]:
    """What all members take, each computing for itself."""
    return [(tp, str(thread)) for me in group[0] for tp, thread in computed(form, seen_by(me, group)).own.items()]


def wanted(group: Group) -> set[TopicPartition]:
    """Every partition of every topic that somebody subscribes to."""
    context = seen_by("", group)
    return {TopicPartition(topic, n) for topic in context.consumers_for_topic for n in group[1].get(topic, ())}


@given(group=alike() | filtering() | unlike(), form=FORMS)
def test_each_partition_has_one_owner_and_nothing_else_is_owned(group: Group, form: AssignorVariant) -> None:
    ties_are_seen_alike = len({tuple(topics) for _, topics in group[0].values()}) == 1
    if form is AssignorVariant.ROUNDROBIN_0_8_2 and not ties_are_seen_alike:
        return  # Up to 0.10.1 topics of equal hash come in the order of each member's own registration.
    try:
        taken = claims(form, group)
    except AssignmentError:
        assert form is AssignorVariant.ROUNDROBIN_0_8_2
        return
    assert Counter(tp for tp, _ in taken) == Counter(wanted(group))


@given(group=alike() | filtering() | unlike(), form=FORMS)
def test_every_member_sees_the_same_assignment_and_takes_its_own_part(group: Group, form: AssignorVariant) -> None:
    views = [seen_by(me, group) for me in group[0]]
    try:
        assignments = [computed(form, view) for view in views]
    except AssignmentError:
        return
    for assignment in assignments:
        assert assignment.own == assignment.of_member(assignment.consumer_id)
        if form is not AssignorVariant.ROUNDROBIN_0_8_2 or not assignment.topics_with_hash_collision:
            assert assignment.owners == assignments[0].owners


@given(group=alike() | filtering() | unlike(), form=FORMS)
def test_only_threads_of_subscribers_own_anything(group: Group, form: AssignorVariant) -> None:
    context = seen_by("", group)
    try:
        owners = computed(form, context).owners
    except AssignmentError:
        return
    for tp, thread in owners.items():
        assert thread in context.consumers_for_topic[tp.topic]


@given(group=alike() | filtering(), form=ROUNDROBINS)
def test_roundrobin_among_members_that_are_alike_differs_by_one_at_most(group: Group, form: AssignorVariant) -> None:
    context = seen_by("", group)
    loads = Counter(dict.fromkeys(context.ordered_threads, 0))
    loads.update(computed(form, context).owners.values())
    assert max(loads.values()) - min(loads.values()) <= 1


@given(group=alike() | filtering() | unlike())
def test_range_gives_each_topic_in_runs_that_differ_by_one_at_most(group: Group) -> None:
    context = seen_by("", group)
    owners = computed(AssignorVariant.RANGE, context).owners
    for topic, threads in context.consumers_for_topic.items():
        in_order = [owners[TopicPartition(topic, n)] for n in context.partitions_for_topic[topic]]
        assert in_order == sorted(in_order, key=threads.index), "runs in the order of the threads"
        loads = [in_order.count(thread) for thread in threads]
        assert loads == sorted(loads, reverse=True), "the surplus goes to the first"
        assert max(loads) - min(loads) <= 1


@given(group=unlike(), form=ROUNDROBINS)
def test_the_deal_is_what_walking_the_ring_step_by_step_gives(group: Group, form: AssignorVariant) -> None:
    context = seen_by("", group)
    try:
        assignment = computed(form, context)
    except AssignmentError:
        return
    cursor = 0
    for tp, owner in assignment.owners.items():
        while (
            context.ordered_threads[cursor % len(context.ordered_threads)] not in context.consumers_for_topic[tp.topic]
        ):
            cursor += 1
        assert owner == context.ordered_threads[cursor % len(context.ordered_threads)]
        cursor += 1
    text = "{0}-{1}" if form is AssignorVariant.ROUNDROBIN_1_0 else "[{0},{1}]"
    hashes = [java_hash(text.format(*tp)) for tp in assignment.owners]
    assert hashes == sorted(hashes)


@given(group=alike() | filtering())
def test_where_the_oldest_form_deals_and_nothing_ties_it_agrees_with_the_next(group: Group) -> None:
    context = seen_by("", group)
    oldest, following = (
        computed(AssignorVariant.ROUNDROBIN_0_8_2, context),
        computed(AssignorVariant.ROUNDROBIN_0_10_2, context),
    )
    if not oldest.topics_with_hash_collision:
        assert oldest.owners == following.owners


@given(group=alike() | filtering() | unlike(), form=FORMS, me=NAME)
def test_what_a_form_gave_is_recognised_and_no_mismatch(group: Group, form: AssignorVariant, me: str) -> None:
    context = seen_by(me, group)
    try:
        assignment = computed(form, context)
    except AssignmentError:
        return
    owners = {tp: str(thread) for tp, thread in assignment.owners.items()}
    told = any(thread.consumer_id != me for thread in assignment.owners.values())
    assert (form in detect_variants(owners, context)) is told
    assert explain_mismatch(owners, assignment, context) == ""


@settings(max_examples=50)
@given(keys=st.lists(NAME | COLLIDING | st.text(max_size=3), max_size=80))
def test_maps_give_back_every_key_once(keys: list[str]) -> None:
    distinct = sorted(set(keys))
    assert sorted(immutable_map_order(keys)) == distinct
    assert sorted(mutable_map_order(keys)) == distinct


@pytest.mark.parametrize("form", AssignorVariant)
def test_owners_of_any_text_are_taken_without_complaint(form: AssignorVariant) -> None:
    context = seen_by("g_a", ({"g_a": ("static", {"t": 1}), "g_b": ("static", {"t": 1})}, {"t": range(3)}))
    owners = {TopicPartition("t", n): text for n, text in enumerate(["", "g_b", "g_b-00"])}
    assert detect_variants(owners, context) == frozenset()
    assert explain_mismatch(owners, computed(form, context), context) == ""
