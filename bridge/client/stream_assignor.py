"""Which stream of a member reads which of its partitions: by the Scala consumer's rule.  Pure.

A coordinator group assigns partitions to members, the Scala consumer assigned them to threads.  So a member divides its
assignment again, as the Scala consumer would if this member were the whole group and its topics had no other
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from zkconsumer.member.assignment_planner import PREFERRED_VARIANTS
from zkconsumer.member.group_assignment import AssignmentContext, create_instance
from zkconsumer.member.group_view import TopicSubscription
from zkconsumer.member.topic_count import ConsumerThreadId, construct_topic_count
from zkconsumer.types import TopicPartition


class StreamAssignor:
    """``strategy``: ``range`` or ``roundrobin``, ``partition.assignment.strategy`` of the old consumer."""

    def __init__(self, member: str, strategy: str, *, exclude_internal_topics: bool) -> None:
        self._member = member
        self._assignor = create_instance(strategy, PREFERRED_VARIANTS[0].compatibility)
        self._exclude_internal = exclude_internal_topics

    def topics(self, subscription: TopicSubscription, existing: Sequence[str]) -> frozenset[str]:
        """The subscribed topics: named ones, whether they exist or not, or the existing ones that a filter matches."""
        count = construct_topic_count(self._member, subscription.pattern, subscription.topics)
        return frozenset(count.get_consumer_thread_ids_per_topic(existing, self._exclude_internal))

    def takes(self, subscription: TopicSubscription) -> Callable[[str], bool] | None:
        """Whether a filter matches a topic, whether it exists or not; None: the subscription has names."""
        if not subscription.is_filter:
            return None
        return lambda topic: bool(self.topics(subscription, [topic]))

    def threads(
        self, subscription: TopicSubscription, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ConsumerThreadId]:
        """Partition -> thread, for all subscribed partitions."""
        numbers: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers.setdefault(topic, []).append(number)
        count = construct_topic_count(self._member, subscription.pattern, subscription.topics)
        context = AssignmentContext(
            self._member,
            {self._member: count},
            {topic: sorted(numbers[topic]) for topic in sorted(numbers)},
            exclude_internal_topics=self._exclude_internal,
        )
        return dict(self._assignor.assign(context).own)
