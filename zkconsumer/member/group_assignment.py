"""The assignors ``range`` and ``roundrobin``: which thread of which member owns which partition.  Pure.

No server assigns partitions: each member computes the assignment of the whole group from the same registrations and
takes its own part.  So the result must equal the Scala consumer's for every partition.

ZooKeeper does not contain the strategy, and roundrobin has three variants with different results:

    variant             hash text   precondition    releases
    range               -           -               all
    roundrobin/0.8.2    [t,p]       equal threads   0.8.2 to 0.10.1
    roundrobin/0.10.2   [t,p]       -               0.10.2 to 0.11
    roundrobin/1.0      t-p         -               1.0 and 1.1

``detect_variants`` and ``explain_mismatch`` find from the existing owners which variant the other members use.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from zkconsumer.errors import PeerError, UsageError
from zkconsumer.member.scala_maps import immutable_map_order, mutable_map_order
from zkconsumer.member.topic_count import ConsumerThreadId, WildcardTopicCount, java_string_sort_key
from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from zkconsumer.member.topic_count import ThreadIdsPerTopic, TopicCount

__all__ = [
    "AssignmentContext",
    "AssignmentError",
    "AssignorVariant",
    "ConsumerThreadId",
    "GroupAssignment",
    "PartitionAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "VariantScore",
    "create_instance",
    "detect_variants",
    "explain_mismatch",
    "score_variants",
    "topics_with_equal_hash",
]


CACHED_HASHES_MAX = 8_192
"""How many hashes of partition numbers are cached between rebalances."""


class AssignorVariant(Enum):
    """The four variants that members use; a roundrobin variant is named after the first release that has it."""

    RANGE = "range"
    ROUNDROBIN_0_8_2 = "roundrobin/0.8.2"
    ROUNDROBIN_0_10_2 = "roundrobin/0.10.2"
    ROUNDROBIN_1_0 = "roundrobin/1.0"

    @property
    def strategy(self) -> str:
        """The value of ``partition.assignment.strategy``: ``range`` or ``roundrobin``."""
        return self.value.partition("/")[0]

    @property
    def compatibility(self) -> str:
        """The value of ``roundrobin.compatibility``; empty for range."""
        return self.value.partition("/")[2]


class AssignmentError(PeerError):
    """Roundrobin up to 0.10.1 requires the same topics and thread counts in every member: configure them alike."""


class AssignmentContext:
    """The input from which one member computes the assignment of its group.

    ``registrations``: consumer id -> subscription, in ZooKeeper's child order (it decides ties between topics).
    ``partitions``: topic -> partition numbers, for every subscribed topic that has a znode.
    ``topics``: all children of ``/brokers/topics`` in ZooKeeper's child order, to which filters are applied; None: the
    keys of ``partitions``.  ``exclude_internal_topics``: this member's own setting, applied to every filter.
    ``consumer_id`` need not be registered: then the context describes the group without this member.

    Raises ``MalformedZnode`` when a registration has an impossible number of threads.
    """

    def __init__(
        self,
        consumer_id: str,
        registrations: Mapping[str, TopicCount],
        partitions: Mapping[str, Iterable[int]],
        *,
        exclude_internal_topics: bool = True,
        topics: Sequence[str] | None = None,
    ) -> None:
        self.consumer_id = consumer_id
        self.exclude_internal_topics = exclude_internal_topics
        self._threads_of = _threads_of_members(
            registrations, list(partitions) if topics is None else topics, exclude_internal_topics
        )
        self.my_topic_thread_ids: ThreadIdsPerTopic = self._threads_of.get(consumer_id, {})
        """Topic -> own thread ids, by number."""
        self.consumers = sorted(registrations, key=java_string_sort_key)
        """All members, also those without topics, in the order of Java's strings."""
        self.ordered_threads = _ordered_threads(self._threads_of.values())
        """All threads of the group in the order in which roundrobin assigns partitions to them."""
        self.positions_for_topic = _positions(self.ordered_threads, self._threads_of.values())
        """Topic -> ascending positions in ``ordered_threads`` of the threads that subscribe to it."""
        self.partitions_for_topic: dict[str, list[int]] = {
            topic: sorted(partitions.get(topic, ())) for topic in self.positions_for_topic
        }
        """Topic of the group -> partition numbers, ascending; empty for a topic that does not exist."""
        self._computed: dict[AssignorVariant, GroupAssignment] = {}
        self._hash_orders: dict[tuple[str, str, str], list[tuple[int, TopicPartition]]] = {}

    def cached_assignment(self, form: AssignorVariant, compute: Callable[[], GroupAssignment]) -> GroupAssignment:
        """The assignment of this variant, computed once: detecting the variant needs each of them several times."""
        if form not in self._computed:
            self._computed[form] = compute()
        return self._computed[form]

    def partitions_in_hash_order(self, before: str, between: str, after: str) -> list[tuple[int, TopicPartition]]:
        """All partitions sorted by the hash of this text, see ``_in_hash_order``; two variants use the same text."""
        text = (before, between, after)
        if text not in self._hash_orders:
            of_topic = self.partitions_for_topic
            self._hash_orders[text] = _in_hash_order(of_topic, of_topic, before, between, after)
        return self._hash_orders[text]

    @cached_property
    def consumers_for_topic(self) -> dict[str, list[ConsumerThreadId]]:
        """Topic -> the threads of all members that subscribe to it, in the order of Java's strings."""
        return {
            topic: [self.ordered_threads[position] for position in positions]
            for topic, positions in self.positions_for_topic.items()
        }

    @cached_property
    def group_topic_order(self) -> list[str]:
        """The group's topics in the iteration order of the maps of releases from 0.10.2 on; see ``scala_maps``."""
        filled = [
            topic for topics in self._threads_of.values() for topic in mutable_map_order(immutable_map_order(topics))
        ]
        group_map = mutable_map_order(filled)
        return _partition_map_order(group_map)

    @cached_property
    def own_topic_order(self) -> list[str]:
        """The same for releases up to 0.10.1, which start with the member's own map; other topics follow."""
        own = _partition_map_order(mutable_map_order(immutable_map_order(self.my_topic_thread_ids)))
        return own + [topic for topic in self.group_topic_order if topic not in self.my_topic_thread_ids]


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The assignment of a group as one variant computes it.

    ``owners``: every partition of every topic of the group -> thread; ``own``: the part of ``consumer_id``.
    ``topics_with_hash_collision``: topics with partitions of equal hash, whose order the map order decided.
    """

    variant: AssignorVariant
    consumer_id: str
    owners: dict[TopicPartition, ConsumerThreadId]
    topics_with_hash_collision: frozenset[str] = frozenset()
    own: dict[TopicPartition, ConsumerThreadId] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "own", {tp: owner for tp, owner in self.owners.items() if owner.consumer_id == self.consumer_id}
        )

    def of_member(self, consumer: str) -> dict[TopicPartition, ConsumerThreadId]:
        """The assignment of one member."""
        return {tp: owner for tp, owner in self.owners.items() if owner.consumer_id == consumer}


class PartitionAssignor(Protocol):
    """Computes the assignment of a group from one member's ``AssignmentContext``."""

    variant: AssignorVariant

    def assign(self, context: AssignmentContext) -> GroupAssignment:
        """The whole group's assignment; raises ``AssignmentError`` when a precondition fails."""


class RangeAssignor:
    """``range``: for each topic, contiguous ranges of partitions; the first threads get one more (all releases)."""

    variant = AssignorVariant.RANGE

    def assign(self, context: AssignmentContext) -> GroupAssignment:
        """The whole group's assignment."""
        return context.cached_assignment(self.variant, lambda: self._assign(context))

    def _assign(self, context: AssignmentContext) -> GroupAssignment:
        ring = context.ordered_threads
        owners: dict[TopicPartition, ConsumerThreadId] = {}
        for topic, positions in context.positions_for_topic.items():
            partitions = context.partitions_for_topic[topic]
            share, surplus = divmod(len(partitions), len(positions))
            start = 0
            for i, position in enumerate(positions):
                end = start + share + (1 if i < surplus else 0)
                thread = ring[position]
                for partition in partitions[start:end]:
                    owners[TopicPartition(topic, partition)] = thread
                start = end
        return GroupAssignment(self.variant, context.consumer_id, owners)


class RoundRobinAssignor:
    """``roundrobin``: all partitions in the order of a hash, assigned to all threads cyclically (0.8.2 and later).

    ``compatibility`` is the first release with this variant: ``0.8.2``, ``0.10.2`` or ``1.0``.
    """

    def __init__(self, compatibility: str) -> None:
        try:
            self.variant = AssignorVariant(f"roundrobin/{compatibility}")
        except ValueError:
            raise UsageError(
                f"roundrobin.compatibility={compatibility!r} is not known; it is 0.8.2, 0.10.2 or 1.0"
            ) from None

    def assign(self, context: AssignmentContext) -> GroupAssignment:
        """The whole group's assignment; raises ``AssignmentError`` when ``0.8.2``'s precondition fails."""
        return context.cached_assignment(self.variant, lambda: self._assign(context))

    def _assign(self, context: AssignmentContext) -> GroupAssignment:
        strict = self.variant is AssignorVariant.ROUNDROBIN_0_8_2
        if strict:
            _require_equal_threads(context)
        text = ("", "-", "") if self.variant is AssignorVariant.ROUNDROBIN_1_0 else ("[", ",", "]")
        # The order of topics matters only for equal hashes, and is expensive to compute.
        in_order = context.partitions_in_hash_order(*text)
        tied = frozenset(
            topic
            for (hash_a, a), (hash_b, b) in pairwise(in_order)
            if hash_a == hash_b and a.topic != b.topic
            for topic in (a.topic, b.topic)
        )
        if tied:
            order = context.own_topic_order if strict else context.group_topic_order
            in_order = _in_hash_order(order, context.partitions_for_topic, *text)
        return GroupAssignment(
            self.variant, context.consumer_id, _assign_in_turn(context, (tp for _, tp in in_order)), tied
        )


def create_instance(strategy: str, compatibility: str = "0.10.2") -> PartitionAssignor:
    """The assignor for ``partition.assignment.strategy`` and ``roundrobin.compatibility`` (which range ignores).

    Raises ``UsageError`` for an unknown name, as releases from 0.9 on do (0.8.2 used range for unknown names).
    """
    match strategy:
        case "range":
            return RangeAssignor()
        case "roundrobin":
            return RoundRobinAssignor(compatibility)
    raise UsageError(f"partition.assignment.strategy={strategy!r} is not known; it is range or roundrobin")


def topics_with_equal_hash(topics: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of topic names with equal ``hashCode``, such as ``Aa`` and ``BB``, each in the order of the input.

    Under roundrobin their order depends on ZooKeeper's child order, so even Scala consumers may disagree.
    """
    by_hash: dict[int, list[str]] = {}
    for topic in dict.fromkeys(topics):
        by_hash.setdefault(java_hash(topic), []).append(topic)
    return [tuple(names) for names in by_hash.values() if len(names) > 1]


# --- Detecting the variant of other members -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VariantScore:
    """How many partitions of other members have the owner that a variant computes, and how many have not."""

    agreeing: int
    differing: int


def score_variants(
    owners: Mapping[TopicPartition, str], context: AssignmentContext
) -> dict[AssignorVariant, VariantScore]:
    """Compare the existing owners (partition -> thread id) with each variant; omits variants that reject the group.

    Counts only owners that are threads of a registered member other than ``context.consumer_id``, and only of
    partitions that exist.  A member that has just joined passes a context without its own registration, because the
    owners are still those of the group before.
    """
    known = {str(thread): thread.consumer_id for thread in context.ordered_threads}
    telling = {
        tp: owner for tp, owner in owners.items() if known.get(owner, context.consumer_id) != context.consumer_id
    }
    scores: dict[AssignorVariant, VariantScore] = {}
    for form in AssignorVariant:
        try:
            computed = create_instance(form.strategy, form.compatibility).assign(context).owners
        except AssignmentError:
            continue
        judged = [str(computed[tp]) == owner for tp, owner in telling.items() if tp in computed]
        scores[form] = VariantScore(sum(judged), len(judged) - sum(judged))
    return scores


def detect_variants(owners: Mapping[TopicPartition, str], context: AssignmentContext) -> frozenset[AssignorVariant]:
    """The variants that explain every existing owner; empty if no variant does, or no other member owns a partition.

    Several variants may match (all roundrobin variants assign one topic of at most ten partitions alike); then all of
    them are returned.  See ``score_variants`` for what counts and for the context to pass.
    """
    scores = score_variants(owners, context)
    return frozenset(form for form, score in scores.items() if score.agreeing and not score.differing)


def explain_mismatch(
    owners: Mapping[TopicPartition, str], computed: GroupAssignment, context: AssignmentContext
) -> str:
    """One sentence: which setting the other members seem to use; empty when their owners match ``computed``."""
    scores = score_variants(owners, context)
    here = scores.get(computed.variant, VariantScore(0, 0))
    if not here.differing and (here.agreeing or not any(score.agreeing for score in scores.values())):
        return ""
    seen = here.agreeing + here.differing
    found = (
        f"{here.differing} of {seen} partitions of other members have other owners than {_setting(computed.variant)} "
        "computes"
        if seen
        else f"{_setting(computed.variant)} rejects this group, but other members own partitions"
    )
    fitting = [form for form, score in scores.items() if score.agreeing and not score.differing]
    if fitting:
        settings = " or ".join(_setting(form) for form in fitting)
        return f"{found}; all of them match {settings}: use the same setting in all members of the group."
    best, score = max(scores.items(), key=lambda item: item[1].agreeing)
    # Some owners match every variant by chance; only more than half of them indicate one.
    if best is not computed.variant and score.agreeing > score.differing:
        return (
            f"{found}; {_setting(best)} is closest with {score.agreeing} of {score.agreeing + score.differing}: "
            "compare the settings of all members, also exclude.internal.topics."
        )
    return (
        f"{found}, and no known variant explains them: they may be from an older view of the group, or the members "
        "differ in exclude.internal.topics or in partition.assignment.strategy: compare the settings of all members."
    )


def _setting(form: AssignorVariant) -> str:
    strategy = f"partition.assignment.strategy={form.strategy}"
    match form:
        case AssignorVariant.RANGE:
            return strategy
        case AssignorVariant.ROUNDROBIN_0_8_2:
            return f"{strategy} of 0.8.2 to 0.10.1 (roundrobin.compatibility=0.8.2)"
        case AssignorVariant.ROUNDROBIN_0_10_2:
            return f"{strategy} of 0.10.2 to 0.11 (roundrobin.compatibility=0.10.2)"
        case AssignorVariant.ROUNDROBIN_1_0:
            return f"{strategy} of 1.0 and 1.1 (roundrobin.compatibility=1.0)"


# --- Helpers ------------------------------------------------------------------------------------------------------


def _threads_of_members(
    registrations: Mapping[str, TopicCount], topics: Sequence[str], exclude_internal_topics: bool
) -> dict[str, ThreadIdsPerTopic]:
    """Member -> topic -> thread ids; each filter is evaluated once, because members mostly have the same one."""
    chosen: dict[object, list[str]] = {}
    threads: dict[str, ThreadIdsPerTopic] = {}
    for consumer, count in registrations.items():
        candidates: Sequence[str] = ()
        if isinstance(count, WildcardTopicCount):
            topic_filter = count.topic_filter
            if topic_filter not in chosen:
                allowed = topic_filter.is_topic_allowed
                chosen[topic_filter] = [topic for topic in topics if allowed(topic, exclude_internal_topics)]
            candidates = chosen[topic_filter]
        threads[consumer] = count.get_consumer_thread_ids_per_topic(candidates, exclude_internal_topics)
    return threads


def _ordered_threads(members: Iterable[ThreadIdsPerTopic]) -> list[ConsumerThreadId]:
    threads = {thread for topics in members for ids in {id(t): t for t in topics.values()}.values() for thread in ids}
    return sorted(threads, key=lambda thread: thread.sort_key)


def _positions(ring: list[ConsumerThreadId], members: Iterable[ThreadIdsPerTopic]) -> dict[str, list[int]]:
    position_of = {thread: position for position, thread in enumerate(ring)}
    positions: dict[str, list[int]] = {}
    for topics in members:
        of_ids: dict[int, list[int]] = {}
        for topic, ids in topics.items():
            if id(ids) not in of_ids:
                of_ids[id(ids)] = [position_of[thread] for thread in ids]
            positions.setdefault(topic, []).extend(of_ids[id(ids)])
    for of_topic in positions.values():
        of_topic.sort()
    return positions


def _partition_map_order(topics: list[str]) -> list[str]:
    """The order of the map from topic to partitions: filled from a list of topics, then copied once."""
    return mutable_map_order(mutable_map_order(topics))


def _require_equal_threads(context: AssignmentContext) -> None:
    """Releases up to 0.10.1 assign only when every topic of the group has the same threads."""
    topics = iter(context.positions_for_topic.items())
    head, head_positions = next(topics, ("", []))
    for topic, positions in topics:
        if positions != head_positions:
            raise AssignmentError(
                "Round-robin assignment is allowed only if all consumers in the group subscribe to the same topics, "
                "AND if the stream counts across topics are identical for a given consumer instance.\n"
                f"Topic {topic} has the following available consumer streams: {_streams(context, topic)}\n"
                f"Topic {head} has the following available consumer streams: {_streams(context, head)}\n"
            )


def _streams(context: AssignmentContext, topic: str) -> str:
    return f"Set({', '.join(map(str, context.consumers_for_topic[topic]))})"


def _in_hash_order(
    topics: Iterable[str], partitions: Mapping[str, list[int]], before: str, between: str, after: str
) -> list[tuple[int, TopicPartition]]:
    """All partitions sorted by the signed hash of ``<before><topic><between><partition><after>``.

    Equal hashes keep the input order.  The hash of a topic is computed once, and the hash of a number once for all
    topics, because hash(a + b) = hash(a) * 31**len(b) + hash(b), modulo 2**32.
    """
    hashed: list[tuple[int, TopicPartition]] = []
    for topic in topics:
        head = java_hash(f"{before}{topic}{between}")
        for partition in partitions[topic]:
            factor, rest = _partition_hash(partition, after)
            signed = (head * factor + rest + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000
            hashed.append((signed, TopicPartition(topic, partition)))
    hashed.sort(key=lambda item: item[0])
    return hashed


@lru_cache(CACHED_HASHES_MAX)
def _partition_hash(partition: int, after: str) -> tuple[int, int]:
    tail = f"{partition}{after}"
    return 31 ** len(tail), java_hash(tail)


def _assign_in_turn(
    context: AssignmentContext, in_order: Iterable[TopicPartition]
) -> dict[TopicPartition, ConsumerThreadId]:
    """Assign each partition to the next thread from the cursor on that subscribes to its topic.

    The cursor moves behind that thread; threads that it skips get no partition in this round.
    """
    ring = context.ordered_threads
    cursor = 0
    owners: dict[TopicPartition, ConsumerThreadId] = {}
    for tp in in_order:
        positions = context.positions_for_topic[tp.topic]
        i = bisect_left(positions, cursor)
        position = positions[i] if i < len(positions) else positions[0]
        owners[tp] = ring[position]
        cursor = position + 1
    return owners
