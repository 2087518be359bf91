"""The assignors against the worked cases of the original, through the way that production takes: bytes of
registrations in, owners out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import MalformedZnode, PeerError, UsageError
from zkconsumer.member import group_assignment
from zkconsumer.member.assignment_planner import ZooKeeperAssignmentPlanner
from zkconsumer.member.group_assignment import (
    AssignmentContext,
    AssignmentError,
    AssignorVariant,
    RangeAssignor,
    RoundRobinAssignor,
    VariantScore,
    create_instance,
    detect_variants,
    explain_mismatch,
    score_variants,
    topics_with_equal_hash,
)
from zkconsumer.member.group_view import GroupView, TopicSubscription
from zkconsumer.member.scala_maps import immutable_map_order, mutable_map_order
from zkconsumer.member.topic_count import ConsumerThreadId, construct_topic_count
from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash
from zkconsumer.zk.member_registration import Registration, format_registration, parse_registration

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "assignment-vectors.json").read_text())
FORM_OF_KEY = {
    "range": AssignorVariant.RANGE,
    "roundrobin_strict": AssignorVariant.ROUNDROBIN_0_8_2,
    "roundrobin_brackets": AssignorVariant.ROUNDROBIN_0_10_2,
    "roundrobin_dash": AssignorVariant.ROUNDROBIN_1_0,
}


def group(
    members: dict[str, dict[str, int]],
    partitions: dict[str, Any],
    me: str = "",
    pattern: str = "static",
    **options: Any,
) -> AssignmentContext:
    """The view of ``me``: each registration is written to bytes and read back, as through ZooKeeper."""
    registrations = {}
    for consumer, subscription in members.items():
        written = format_registration(Registration(pattern, subscription, timestamp="1416246370000"))  # type: ignore[arg-type]
        read = parse_registration(written)
        registrations[consumer] = construct_topic_count(consumer, read.pattern, read.subscription)
    return AssignmentContext(me or next(iter(members), ""), registrations, partitions, **options)


def assign(form: AssignorVariant, context: AssignmentContext) -> dict[str, str]:
    return texts(create_instance(form.strategy, form.compatibility).assign(context).own)


def texts(owners: Any) -> dict[str, str]:
    return {str(tp): str(owner) for tp, owner in owners.items()}


def owners_of(form: AssignorVariant, context: AssignmentContext) -> dict[TopicPartition, str]:
    """What stands in ZooKeeper when the whole group uses one form."""
    computed = create_instance(form.strategy, form.compatibility).assign(context).owners
    return {tp: str(owner) for tp, owner in computed.items()}


# --- the 120 cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_every_member_computes_the_share_that_the_original_computes(case: dict[str, Any]) -> None:
    for me in case["members"]:
        context = group(case["members"], case["partitions"], me)
        for key, form in FORM_OF_KEY.items():
            if case[key] == "refused":
                with pytest.raises(AssignmentError):
                    assign(form, context)
            else:
                assert assign(form, context) == case[key][me], key


def test_the_cases_hold_both_verdicts_of_the_precondition() -> None:
    assert len(VECTORS) == 120
    refused = [case for case in VECTORS if case["roundrobin_strict"] == "refused"]
    assert 0 < len(refused) < 120


# --- the worked vectors -------------------------------------------------------------------------------------------

RANGE = {
    "R1 one topic, uneven: the first thread takes the extra one": (
        {"c1": {"t1": 1}, "c2": {"t1": 2}},
        {"t1": range(10)},
        {"c1-0": "t1/0 t1/1 t1/2 t1/3", "c2-0": "t1/4 t1/5 t1/6", "c2-1": "t1/7 t1/8 t1/9"},
    ),
    "R2 remainder 2": (
        {"c1": {"t1": 1}, "c2": {"t1": 2}},
        {"t1": range(11)},
        {"c1-0": "t1/0 t1/1 t1/2 t1/3", "c2-0": "t1/4 t1/5 t1/6 t1/7", "c2-1": "t1/8 t1/9 t1/10"},
    ),
    "R3 more threads than partitions": (
        {"g_a": {"t": 2}, "g_b": {"t": 2}},
        {"t": range(3)},
        {"g_a-0": "t/0", "g_a-1": "t/1", "g_b-0": "t/2"},
    ),
    "R4 twelve threads in one consumer: string order": (
        {"c": {"t": 12}},
        {"t": range(14)},
        {
            "c-0": "t/0 t/1", "c-1": "t/2 t/3", "c-10": "t/4", "c-11": "t/5", "c-2": "t/6", "c-3": "t/7",
            "c-4": "t/8", "c-5": "t/9", "c-6": "t/10", "c-7": "t/11", "c-8": "t/12", "c-9": "t/13",
        },
    ),
    "R5 threads of different consumers interleave by their full text": (
        {"g_c-1": {"t": 2}, "g_c": {"t": 2}, "g_c-10": {"t": 1}},
        {"t": range(7)},
        {"g_c-0": "t/0 t/1", "g_c-1": "t/2 t/3", "g_c-1-0": "t/4", "g_c-1-1": "t/5", "g_c-10-0": "t/6"},
    ),
    "R6 several topics: the surplus always lands on the same first thread": (
        {"g_a": {"t1": 1, "t2": 1, "t3": 1}, "g_b": {"t1": 1, "t2": 1, "t3": 1}},
        {"t1": range(3), "t2": range(3), "t3": [0]},
        {"g_a-0": "t1/0 t1/1 t2/0 t2/1 t3/0", "g_b-0": "t1/2 t2/2"},
    ),
    "R7 different subscriptions": (
        {"g_a": {"t1": 1}, "g_b": {"t1": 1, "t2": 2}},
        {"t1": range(3), "t2": range(3)},
        {"g_a-0": "t1/0 t1/1", "g_b-0": "t1/2 t2/0 t2/1", "g_b-1": "t2/2"},
    ),
    "R8 gap in partition ids, topic without znode, empty subscription": (
        {"g_a": {"t1": 1, "gone": 1}, "g_b": {}},
        {"t1": [0, 2, 5]},
        {"g_a-0": "t1/0 t1/2 t1/5"},
    ),
    "R9 '-' and '.' before digits before upper case before '_' before lower case": (
        {"g_B": {"t": 1}, "g_a": {"t": 1}, "g__": {"t": 1}, "g_.": {"t": 1}, "g_-": {"t": 1}, "g_1": {"t": 1}},
        {"t": range(6)},
        {"g_--0": "t/0", "g_.-0": "t/1", "g_1-0": "t/2", "g_B-0": "t/3", "g__-0": "t/4", "g_a-0": "t/5"},
    ),
}  # fmt: skip

SAME = None
ROUNDROBIN = {
    "B1 one topic, two consumers of two threads": (
        {"c1": {"t1": 2}, "c2": {"t1": 2}},
        {"t1": range(10)},
        {"c1-0": "t1/0 t1/4 t1/8", "c1-1": "t1/1 t1/5 t1/9", "c2-0": "t1/2 t1/6", "c2-1": "t1/3 t1/7"},
        SAME,
    ),
    "B2 twelve partitions: [t1,10] sorts by hash, not by number": (
        {"c1": {"t1": 1}, "c2": {"t1": 1}, "c3": {"t1": 1}},
        {"t1": range(12)},
        {"c1-0": "t1/1 t1/4 t1/7 t1/10", "c2-0": "t1/2 t1/5 t1/8 t1/11", "c3-0": "t1/0 t1/3 t1/6 t1/9"},
        {"c1-0": "t1/0 t1/3 t1/6 t1/9", "c2-0": "t1/1 t1/4 t1/7 t1/10", "c3-0": "t1/2 t1/5 t1/8 t1/11"},
    ),
    "B3 two topics, eleven threads in one consumer": (
        {"c": {"a": 11, "b": 11}},
        {"a": range(6), "b": range(7)},
        {
            "c-0": "a/0 b/5", "c-1": "a/1 b/6", "c-10": "a/2", "c-2": "a/3", "c-3": "a/4", "c-4": "a/5",
            "c-5": "b/0", "c-6": "b/1", "c-7": "b/2", "c-8": "b/3", "c-9": "b/4",
        },
        SAME,
    ),
    "B4 negative hashes come first": (
        {"g_x": {"orders": 1, "payments": 1}, "g_y": {"orders": 1, "payments": 1}},
        {"orders": range(3), "payments": range(3)},
        {"g_x-0": "orders/0 orders/2 payments/1", "g_y-0": "orders/1 payments/0 payments/2"},
        SAME,
    ),
    "B5 equal hashes: the order of the Scala map decides": (
        {"g_x": {"Aa": 1, "BB": 1}, "g_y": {"Aa": 1, "BB": 1}},
        {"Aa": range(2), "BB": range(2)},
        {"g_x-0": "Aa/0 Aa/1", "g_y-0": "BB/0 BB/1"},
        SAME,
    ),
    "B6 more threads than partitions": (
        {"g_a": {"t": 2}, "g_b": {"t": 2}},
        {"t": range(3)},
        {"g_a-0": "t/0", "g_a-1": "t/1", "g_b-0": "t/2"},
        SAME,
    ),
    "B7 unequal subscriptions": (
        {"g_a": {"t1": 1, "t2": 1}, "g_b": {"t1": 1}, "g_c": {"t2": 2}},
        {"t1": range(4), "t2": range(4)},
        {"g_a-0": "t1/0 t1/2 t2/2", "g_b-0": "t1/1 t1/3", "g_c-0": "t2/0 t2/3", "g_c-1": "t2/1"},
        SAME,
    ),
    "B8 unequal stream counts": (
        {"g_a": {"t1": 1, "t2": 2}, "g_b": {"t1": 1, "t2": 1}},
        {"t1": range(3), "t2": range(3)},
        {"g_a-0": "t1/0 t1/2 t2/2", "g_a-1": "t2/0", "g_b-0": "t1/1 t2/1"},
        SAME,
    ),
}  # fmt: skip


def claims(form: AssignorVariant, members: Any, partitions: Any) -> dict[str, set[str]]:
    """The union of what each member computes for itself: thread -> partitions."""
    claimed: dict[str, set[str]] = {}
    for me in members:
        for tp, owner in assign(form, group(members, partitions, me)).items():
            claimed.setdefault(owner, set()).add(tp)
    return claimed


def listed(expected: dict[str, str]) -> dict[str, set[str]]:
    return {thread: set(partitions.split()) for thread, partitions in expected.items()}


@pytest.mark.parametrize("name", RANGE)
def test_range_claims_as_worked_out_with_the_original(name: str) -> None:
    members, partitions, expected = RANGE[name]
    assert claims(AssignorVariant.RANGE, members, partitions) == listed(expected)


@pytest.mark.parametrize("name", ROUNDROBIN)
def test_roundrobin_claims_as_worked_out_with_the_original(name: str) -> None:
    members, partitions, brackets, dash = ROUNDROBIN[name]
    assert claims(AssignorVariant.ROUNDROBIN_0_10_2, members, partitions) == listed(brackets)
    assert claims(AssignorVariant.ROUNDROBIN_1_0, members, partitions) == listed(dash if dash is not SAME else brackets)


@pytest.mark.parametrize("name", ROUNDROBIN)
def test_the_oldest_roundrobin_refuses_unequal_members_and_else_agrees_with_the_next(name: str) -> None:
    members, partitions, brackets, _ = ROUNDROBIN[name]
    if name.startswith(("B7", "B8")):
        with pytest.raises(AssignmentError):
            claims(AssignorVariant.ROUNDROBIN_0_8_2, members, partitions)
    elif name.startswith("B5"):
        # One map fewer stands between the registration and the deal, so equal hashes come the other way round.
        turned = {"g_x-0": brackets["g_y-0"], "g_y-0": brackets["g_x-0"]}
        assert claims(AssignorVariant.ROUNDROBIN_0_8_2, members, partitions) == listed(turned)
    else:
        assert claims(AssignorVariant.ROUNDROBIN_0_8_2, members, partitions) == listed(brackets)


# --- the context --------------------------------------------------------------------------------------------------


def test_the_context_has_what_the_original_has() -> None:
    context = group({"g_b": {"t": 2, "gone": 1}, "g_a": {"t": 1}}, {"t": [5, 0, 2], "other": [0]}, "g_b")
    assert context.consumers == ["g_a", "g_b"]
    assert {t: list(map(str, ids)) for t, ids in context.my_topic_thread_ids.items()} == {
        "t": ["g_b-0", "g_b-1"],
        "gone": ["g_b-0"],
    }
    assert context.partitions_for_topic == {"t": [0, 2, 5], "gone": []}
    assert list(map(str, context.consumers_for_topic["t"])) == ["g_a-0", "g_b-0", "g_b-1"]


def test_a_member_of_a_topic_without_partitions_gets_nothing() -> None:
    members = {"g_a": {"gone": 2}, "g_b": {"t": 1}}
    for form in (AssignorVariant.RANGE, AssignorVariant.ROUNDROBIN_0_10_2, AssignorVariant.ROUNDROBIN_1_0):
        assert assign(form, group(members, {"t": [0, 1]}, "g_a")) == {}
        assert assign(form, group(members, {"t": [0, 1], "gone": []}, "g_b")) == {"t/0": "g_b-0", "t/1": "g_b-0"}


@pytest.mark.parametrize("form", AssignorVariant)
def test_a_group_without_any_topic_gets_an_empty_assignment(form: AssignorVariant) -> None:
    assert assign(form, group({"g_a": {}, "g_b": {}}, {})) == {}
    assert assign(form, group({}, {"t": [0]})) == {}


@pytest.mark.parametrize("form", AssignorVariant)
def test_a_looker_on_sees_the_group_and_owns_nothing(form: AssignorVariant) -> None:
    context = group({"g_a": {"t": 1}}, {"t": [0, 1]}, me="g_new")
    assignment = create_instance(form.strategy, form.compatibility).assign(context)
    assert assignment.own == {}
    assert texts(assignment.of_member("g_a")) == {"t/0": "g_a-0", "t/1": "g_a-0"}


def test_a_filter_takes_the_topics_of_the_cluster_with_the_readers_own_flag() -> None:
    partitions = {"clicks": [0], "views": [0], "__consumer_offsets": [0], "__transaction_state": [0]}
    members = {"g_a": {"c.*|__.*": 1}}
    shown = group(members, partitions, pattern="white_list", exclude_internal_topics=False)
    hidden = group(members, partitions, pattern="white_list")
    assert set(shown.my_topic_thread_ids) == {"clicks", "__consumer_offsets", "__transaction_state"}
    assert set(hidden.my_topic_thread_ids) == {"clicks"}
    black = group({"g_a": {"c.*": 1}}, partitions, pattern="black_list", topics=["clicks", "views", "new"])
    assert set(black.my_topic_thread_ids) == {"views", "new"}
    assert black.partitions_for_topic["new"] == []


def test_an_impossible_number_of_threads_names_the_member() -> None:
    for count in (0, -1, 2**31 - 1):
        registrations = {"g_bad": construct_topic_count("g_bad", "static", {"t": count})}
        with pytest.raises(MalformedZnode, match=f"g_bad asks for {count} threads for 't'"):
            AssignmentContext("g_me", registrations, {"t": [0]})


def test_the_refusal_has_the_originals_text_and_family() -> None:
    with pytest.raises(AssignmentError) as refused:
        assign(AssignorVariant.ROUNDROBIN_0_8_2, group({"g_a": {"t1": 1, "t2": 2}}, {"t1": [0], "t2": [0]}))
    assert isinstance(refused.value, PeerError)
    assert str(refused.value) == (
        "Round-robin assignment is allowed only if all consumers in the group subscribe to the same topics, AND if "
        "the stream counts across topics are identical for a given consumer instance.\n"
        "Topic t2 has the following available consumer streams: Set(g_a-0, g_a-1)\n"
        "Topic t1 has the following available consumer streams: Set(g_a-0)\n"
    )


def test_create_instance_knows_two_strategies_and_three_forms() -> None:
    assert isinstance(create_instance("range"), RangeAssignor)
    for compatibility in ("0.8.2", "0.10.2", "1.0"):
        assignor = create_instance("roundrobin", compatibility)
        assert isinstance(assignor, RoundRobinAssignor)
        assert assignor.variant.compatibility == compatibility
    with pytest.raises(UsageError, match="range or roundrobin"):
        create_instance("sticky")
    with pytest.raises(UsageError, match=r"0\.8\.2, 0\.10\.2 or 1\.0"):
        create_instance("roundrobin", "0.9")


def test_threads_sort_by_utf16_code_unit() -> None:
    ids = [ConsumerThreadId(c, n) for c, n in (("\U0001f600", 0), ("\uffee", 0), ("c", 2), ("c", 10))]
    assert sorted(ids) == [ids[3], ids[2], ids[0], ids[1]]
    assert sorted(map(str, ids)) != [str(i) for i in sorted(ids)], "Python's own order is another one"


# --- ties -----------------------------------------------------------------------------------------------------------


def test_topics_of_equal_hash_are_dealt_in_the_order_of_zookeepers_children() -> None:
    members = {"g_a": {"BB": 1, "Aa": 1}, "g_b": {"Aa": 1, "BB": 1}}
    partitions = {"Aa": [0], "BB": [0]}
    assignor = create_instance("roundrobin", "1.0")
    first = assignor.assign(group(members, partitions))
    assert first.topics_with_hash_collision == {"Aa", "BB"}
    turned = assignor.assign(group(dict(reversed(members.items())), partitions))
    assert texts(first.owners) != texts(turned.owners)


def test_up_to_0_10_1_a_tie_is_decided_by_the_own_registration() -> None:
    members = {"g_a": {"BB": 1, "Aa": 1}, "g_b": {"Aa": 1, "BB": 1}}
    partitions = {"Aa": [0], "BB": [0]}
    assignor = create_instance("roundrobin", "0.8.2")
    assert texts(assignor.assign(group(members, partitions, "g_a")).owners) != texts(
        assignor.assign(group(members, partitions, "g_b")).owners
    )


@pytest.mark.parametrize(
    "form", [AssignorVariant.ROUNDROBIN_0_8_2, AssignorVariant.ROUNDROBIN_0_10_2, AssignorVariant.ROUNDROBIN_1_0]
)
def test_every_partition_is_sorted_by_the_hash_of_its_whole_text(form: AssignorVariant) -> None:
    partitions = {"t": [*range(120), 2**31 - 1], "a-much-longer_topic.name": range(1005)}
    context = group({"g_a": dict.fromkeys(partitions, 1)}, partitions)
    dealt = list(create_instance("roundrobin", form.compatibility).assign(context).owners)
    text = "{0}-{1}" if form is AssignorVariant.ROUNDROBIN_1_0 else "[{0},{1}]"
    hashes = [java_hash(text.format(*tp)) for tp in dealt]
    assert hashes == sorted(hashes)
    assert len(dealt) == 121 + 1005


def test_topics_with_equal_hash_are_named_for_a_warning() -> None:
    assert topics_with_equal_hash(["Aa", "t", "BB", "AaBB", "BBAa", "AaAa", "Aa"]) == [
        ("Aa", "BB"),
        ("AaBB", "BBAa", "AaAa"),
    ]
    assert topics_with_equal_hash(["a", "b"]) == []


def test_small_immutable_maps_keep_their_order_and_larger_ones_do_not() -> None:
    assert immutable_map_order("dbca") == ["d", "b", "c", "a"]
    assert immutable_map_order("dbcad") == ["d", "b", "c", "a"]
    assert immutable_map_order("edbca") == immutable_map_order("abcde")


def test_mutable_maps_walk_from_the_last_bucket_and_each_bucket_from_the_newest() -> None:
    assert mutable_map_order(["Aa", "BB"]) == ["BB", "Aa"]
    assert mutable_map_order(["BB", "Aa"]) == ["Aa", "BB"]
    assert mutable_map_order(["Aa", "BB", "Aa"]) == ["BB", "Aa"]
    names = [f"t{i}" for i in range(100)]
    assert sorted(mutable_map_order(names)) == sorted(names)


# --- which form do the others use? ----------------------------------------------------------------------------------

TWELVE = {"g_a": {"t1": 1}, "g_b": {"t1": 1}, "g_c": {"t1": 1}}
TWELVE_PARTITIONS = {"t1": range(12)}


@pytest.mark.parametrize(
    ("used", "recognised"),
    [
        (AssignorVariant.RANGE, {AssignorVariant.RANGE}),
        (AssignorVariant.ROUNDROBIN_0_8_2, {AssignorVariant.ROUNDROBIN_0_8_2, AssignorVariant.ROUNDROBIN_0_10_2}),
        (AssignorVariant.ROUNDROBIN_1_0, {AssignorVariant.ROUNDROBIN_1_0}),
    ],
)
def test_the_form_of_the_others_is_recognised_by_one_who_looks_on(
    used: AssignorVariant, recognised: set[AssignorVariant]
) -> None:
    context = group(TWELVE, TWELVE_PARTITIONS, me="g_new")
    assert detect_variants(owners_of(used, context), context) == recognised


def test_unequal_members_rule_the_oldest_form_out() -> None:
    context = group({"g_a": {"t1": 1, "t2": 1}, "g_b": {"t1": 1}}, {"t1": range(12), "t2": range(3)}, me="g_new")
    assert detect_variants(owners_of(AssignorVariant.ROUNDROBIN_0_10_2, context), context) == {
        AssignorVariant.ROUNDROBIN_0_10_2
    }


def test_own_owners_unknown_owners_and_foreign_partitions_tell_nothing() -> None:
    context = group(TWELVE, TWELVE_PARTITIONS, me="g_a")
    silent = {
        TopicPartition("t1", 0): "g_a-0",
        TopicPartition("t1", 1): "g_dead-0",
        TopicPartition("t1", 99): "g_b-0",
        TopicPartition("other", 0): "g_c-0",
    }
    assert detect_variants(silent, context) == frozenset()
    assert set(score_variants(silent, context).values()) == {VariantScore(0, 0)}


def test_owners_in_part_are_enough_to_recognise_a_form() -> None:
    context = group(TWELVE, TWELVE_PARTITIONS, me="g_a")
    some = dict(list(owners_of(AssignorVariant.ROUNDROBIN_1_0, context).items())[3:9])
    assert detect_variants(some, context) == {AssignorVariant.ROUNDROBIN_1_0}


def test_one_owner_that_differs_rules_a_form_out() -> None:
    context = group(TWELVE, TWELVE_PARTITIONS, me="g_a")
    owners = owners_of(AssignorVariant.RANGE, context) | {TopicPartition("t1", 5): "g_c-0"}
    assert detect_variants(owners, context) == frozenset()
    assert score_variants(owners, context)[AssignorVariant.RANGE].differing == 1


def test_a_mismatch_is_explained_by_the_setting_that_fits() -> None:
    context = group(TWELVE, TWELVE_PARTITIONS, me="g_a")
    computed = create_instance("roundrobin", "1.0").assign(context)
    assert explain_mismatch(owners_of(AssignorVariant.ROUNDROBIN_1_0, context), computed, context) == ""
    assert explain_mismatch({}, computed, context) == ""
    said = explain_mismatch(owners_of(AssignorVariant.RANGE, context), computed, context)
    assert "all of them match partition.assignment.strategy=range" in said
    said = explain_mismatch(owners_of(AssignorVariant.ROUNDROBIN_0_10_2, context), computed, context)
    assert "roundrobin.compatibility=0.10.2" in said
    assert "\n" not in said


def test_a_mismatch_that_no_form_explains_says_so() -> None:
    context = group(TWELVE, TWELVE_PARTITIONS, me="g_a")
    computed = create_instance("range").assign(context)
    swapped = {TopicPartition("t1", 1): "g_b-0", TopicPartition("t1", 4): "g_c-0", TopicPartition("t1", 8): "g_b-0"}
    assert "no known variant explains them" in explain_mismatch(swapped, computed, context)
    near = owners_of(AssignorVariant.ROUNDROBIN_1_0, context) | {TopicPartition("t1", 4): "g_c-0"}
    assert "is closest" in explain_mismatch(near, computed, context)


# --- speed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", AssignorVariant)
def test_a_large_group_is_assigned_well_within_a_tenth_of_a_second(form: AssignorVariant) -> None:
    members = {f"g_host{i}-17000000000{i:02}-abcdef01": {f"topic-{t}": 8 for t in range(10)} for i in range(16)}
    partitions = {f"topic-{t}": range(512) for t in range(10)}
    registrations = {m: construct_topic_count(m, "static", s) for m, s in members.items()}
    fastest = min(_seconds(form, registrations, partitions) for _ in range(5))
    assert fastest < 0.1


def _seconds(form: AssignorVariant, registrations: Any, partitions: Any) -> float:
    start = time.thread_time()  # not what other processes take meanwhile
    context = AssignmentContext(next(iter(registrations)), registrations, partitions)
    assignment = create_instance(form.strategy, form.compatibility).assign(context)
    assert len(assignment.owners) == 5120
    return time.thread_time() - start


def test_all_forms_of_one_view_cost_two_orders_of_hashes_and_one_deal_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that does not know the form yet asks for each of them several times in each rebalance."""
    orders: list[str] = []
    deals: list[int] = []
    in_order, deal = group_assignment._in_hash_order, group_assignment._assign_in_turn

    def counted_order(topics: Any, partitions: Any, before: str, between: str, after: str) -> Any:
        orders.append(f"{before}t{between}p{after}")
        return in_order(topics, partitions, before, between, after)

    def counted_deal(context: Any, tps: Any) -> Any:
        deals.append(1)
        return deal(context, tps)

    monkeypatch.setattr(group_assignment, "_in_hash_order", counted_order)
    monkeypatch.setattr(group_assignment, "_assign_in_turn", counted_deal)
    view = GroupView(
        {f"m{number}": TopicSubscription("static", {"t": 1}) for number in range(16)},
        {"t": tuple(range(512))},
        owners={},
    )
    planner = ZooKeeperAssignmentPlanner("m3", "roundrobin", "auto", exclude_internal_topics=True)
    for _ in range(2):
        orders.clear()
        deals.clear()
        assert planner.plan(view).is_partial
        assert sorted(orders) == ["[t,p]", "t-p"]
        assert len(deals) <= 3
