"""The subscription of a member, and the ids of its threads.  Pure.

A registration contains either ``topic -> threads`` or ``pattern -> threads``; from it every member of the group derives
the same thread ids ``<consumer>-<n>``.  The names are those of ``TopicCount`` in the Scala consumer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.errors import MalformedZnode
from zkconsumer.member.scala_maps import immutable_map_order
from zkconsumer.member.topic_filter import Blacklist, TopicFilter, Whitelist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.member.group_view import TopicSubscription

STATIC_PATTERN = "static"
WHITE_LIST_PATTERN = Whitelist.pattern
BLACK_LIST_PATTERN = Blacklist.pattern
"""The three kinds of subscription, as a registration contains them (from 0.8.0 on)."""

THREADS_PER_TOPIC_MAX = 100_000
"""More streams than this of one member for one topic are treated as an error."""


@total_ordering
@dataclass(frozen=True, slots=True)
class ConsumerThreadId:
    """One thread of one member; its text, ``<consumer>-<n>``, is the content of an owner znode.

    The order is that of Java's strings, by UTF-16 code unit of the whole text, in every release: ``c-10`` sorts
    before ``c-2``, and thread 1 of ``c`` before thread 0 of ``c-1``.

    ``consumer()``, ``threadId()`` and ``toString()`` are the old names, for ported programs: rebalance listeners of
    both APIs receive this class.
    """

    consumer_id: str
    thread_id: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.thread_id}"

    def consumer(self) -> str:
        """The member (the old name of ``consumer_id``)."""
        return self.consumer_id

    def threadId(self) -> int:  # noqa: N802
        """The thread's number (the old name of ``thread_id``)."""
        return self.thread_id

    def toString(self) -> str:  # noqa: N802
        """The text (the old name of ``str()``)."""
        return str(self)

    def __lt__(self, other: ConsumerThreadId) -> bool:
        return self.sort_key < other.sort_key

    @property
    def sort_key(self) -> bytes:
        """Bytes that sort as the Scala consumer sorts; for ``sorted(..., key=...)``."""
        return java_string_sort_key(str(self))


ThreadIdsPerTopic: TypeAlias = "dict[str, tuple[ConsumerThreadId, ...]]"
"""topic -> thread ids, by number."""


@dataclass(frozen=True, slots=True)
class StaticTopicCount:
    """A member that subscribes to topics by name: topic -> threads, in the order of the registration."""

    consumer: str
    topics: Mapping[str, int]

    @property
    def pattern(self) -> str:
        """``static``, as the registration contains it."""
        return STATIC_PATTERN

    def get_topic_count_map(self) -> dict[str, int]:
        """The ``subscription`` of the registration: topic -> threads."""
        return dict(self.topics)

    def get_consumer_thread_ids_per_topic(
        self, topics: Iterable[str] = (), exclude_internal_topics: bool = True
    ) -> ThreadIdsPerTopic:
        """Topic -> thread ids.  The arguments matter only for filters: a named topic counts even if it does not exist.

        Raises ``MalformedZnode`` for an invalid number of threads.
        """
        return make_consumer_thread_ids_per_topic(self.consumer, self.topics)


@dataclass(frozen=True, slots=True)
class WildcardTopicCount:
    """A member that subscribes to every topic that its filter allows, with the same number of threads each."""

    consumer: str
    topic_filter: TopicFilter
    num_streams: int

    @property
    def pattern(self) -> str:
        """``white_list`` or ``black_list``, as the registration contains it."""
        return self.topic_filter.pattern

    def get_topic_count_map(self) -> dict[str, int]:
        """The ``subscription`` of the registration: the normalised pattern -> threads.

        The Scala consumer escapes the pattern for JSON here, and releases from 1.0.1 on again when they write it; in
        this project only the writer of the znode escapes it, once.
        """
        return {self.topic_filter.regex: self.num_streams}

    def get_consumer_thread_ids_per_topic(
        self, topics: Iterable[str] = (), exclude_internal_topics: bool = True
    ) -> ThreadIdsPerTopic:
        """Topic -> thread ids for those of ``topics`` (all topics of the cluster) that the filter allows.

        ``exclude_internal_topics`` is the *reader's* own setting: the registration does not carry it.
        Raises ``MalformedZnode`` when a topic matches and the number of threads is invalid.
        """
        allowed = self.topic_filter.is_topic_allowed
        return make_consumer_thread_ids_per_topic(
            self.consumer,
            {topic: self.num_streams for topic in topics if allowed(topic, exclude_internal_topics)},
        )


TopicCount: TypeAlias = StaticTopicCount | WildcardTopicCount


def construct_topic_count(consumer: str, pattern: str, subscription: Mapping[str, int]) -> TopicCount:
    """The subscription of a registration, as the Scala consumer reads it (all releases).

    ``pattern`` other than ``white_list`` and ``black_list`` means ``static``.  A filter without a key is a static
    subscription to nothing; of several keys only the first in Scala's map order counts.

    Raises ``InvalidTopicFilter`` when Java cannot compile the pattern, ``PatternNotEvaluable`` when this project cannot
    evaluate it exactly.
    """
    kind = {WHITE_LIST_PATTERN: Whitelist, BLACK_LIST_PATTERN: Blacklist}.get(pattern)
    if kind is None or not subscription:
        return StaticTopicCount(consumer, subscription)
    raw = immutable_map_order(subscription)[0]
    return WildcardTopicCount(consumer, kind(raw), subscription[raw])


def allowed_topics(subscription: TopicSubscription, all_topics: Iterable[str]) -> set[str]:
    """The topics of a subscription: those that it names, or those of the cluster that its filter allows.

    They include internal topics: the member that computes the assignment decides by its own setting whether these are
    excluded.  Raises the errors of ``construct_topic_count``.
    """
    count = construct_topic_count("", subscription.pattern, subscription.topics)
    return set(count.get_consumer_thread_ids_per_topic(all_topics, exclude_internal_topics=False))


def make_thread_id(consumer: str, thread: int) -> str:
    """The text of a thread id: the data of an owner znode."""
    return str(ConsumerThreadId(consumer, thread))


def make_consumer_thread_ids_per_topic(consumer: str, topics: Mapping[str, int]) -> ThreadIdsPerTopic:
    """Topic -> thread ids 0 to n-1, from topic -> n.

    Raises ``MalformedZnode`` when n is not positive, which fails a rebalance in every release of the Scala consumer,
    or when it is larger than ``THREADS_PER_TOPIC_MAX``.
    """
    threads: dict[int, tuple[ConsumerThreadId, ...]] = {}
    for topic, count in topics.items():
        if count in threads:
            continue
        if not 1 <= count <= THREADS_PER_TOPIC_MAX:
            raise MalformedZnode(
                f"the registration of {consumer} asks for {count} threads for {topic!r}; "
                f"it must be 1 to {THREADS_PER_TOPIC_MAX}. Every Scala consumer of the group fails until that member "
                "has left: stop it"
            )
        threads[count] = tuple(ConsumerThreadId(consumer, n) for n in range(count))
    return {topic: threads[count] for topic, count in topics.items()}


def java_string_sort_key(text: str) -> bytes:
    """Bytes that sort as ``String.compareTo`` does: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")
