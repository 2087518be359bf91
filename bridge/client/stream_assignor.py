"""Which stream of a member reads which of its partitions: by the old consumer's rule.  Pure.

The coordinator's group divides among members, the old consumer divided among threads.  So a member divides its share
once more, as the old consumer would if the group were this member and its topics had no other partitions.
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
        """What is subscribed to: topics by name, whether they exist or not, or those that a filter takes."""
        count = construct_topic_count(self._member, subscription.pattern, subscription.topics)
        return frozenset(count.get_consumer_thread_ids_per_topic(existing, self._exclude_internal))

    def takes(self, subscription: TopicSubscription) -> Callable[[str], bool] | None:
        """Whether a filter takes a topic, whether it is known or not; None: topics are subscribed to by name."""
        if not subscription.is_filter:
            return None
        return lambda topic: bool(self.topics(subscription, [topic]))

    def threads(
        self, subscription: TopicSubscription, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ConsumerThreadId]:
        """Partition -> thread, of all that are subscribed to."""
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
