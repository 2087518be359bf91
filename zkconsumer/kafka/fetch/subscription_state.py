"""``SubscriptionState``: what a consumer is subscribed to, what is assigned to it, and from where it reads.  Pure.

As ``org.apache.kafka.clients.consumer.internals.SubscriptionState`` of Kafka 3.0.

    NONE --subscribe--------> AUTO_TOPICS     the group assigns partitions of these topics
         --subscribe_pattern> AUTO_PATTERN    the group assigns partitions of matching topics
         --assign_from_user-> USER_ASSIGNED   the program assigns partitions itself
         <--unsubscribe------ all three       (they exclude each other)

The topics: ``subscription`` are those of this member; while it leads its group, ``group_subscribe`` adds those of the
others, because the leader needs the metadata of all.  The partitions: ``assign_from_subscribed`` takes the assignment
of the group.  A partition that stays keeps its state; a new one begins in INITIALIZING (``TopicPartitionState``).

Invariants: ``_subscription`` is empty in NONE, has the topics of the assignment in USER_ASSIGNED, and else those of the
program or of its pattern.  ``_group_subscription`` is empty unless this member leads.  ``_subscribed_pattern`` is set
exactly in AUTO_PATTERN.

``PartitionPositions`` has the part about the assigned partitions, with its own differences from Java.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Protocol

from zkconsumer.errors import UsageError
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.partition_positions import PartitionPositions
from zkconsumer.types import TopicPartition


class SubscriptionType(Enum):
    """How partitions are assigned."""

    NONE = "none"
    AUTO_TOPICS = "auto-topics"
    AUTO_PATTERN = "auto-pattern"
    USER_ASSIGNED = "user-assigned"


class TopicPattern(Protocol):
    """A pattern of topic names; a compiled pattern of ``re`` is one."""

    @property
    def pattern(self) -> str:
        """The text of the pattern, for log lines."""

    def fullmatch(self, string: str, /) -> object | None:
        """Not None if the pattern matches the whole name."""


class SubscriptionState(PartitionPositions):
    """``default_reset_strategy``: auto.offset.reset.  A position is the offset of the next record to read."""

    def __init__(self, default_reset_strategy: OffsetResetStrategy) -> None:
        super().__init__(default_reset_strategy)
        self._type = SubscriptionType.NONE
        self._subscribed_pattern: TopicPattern | None = None
        self._subscription: frozenset[str] = frozenset()
        self._group_subscription: frozenset[str] = frozenset()
        self._rebalance_listener: Any = None

    def __str__(self) -> str:
        match self._type:
            case SubscriptionType.NONE:
                return "None"
            case SubscriptionType.AUTO_TOPICS:
                return f"Subscribe({','.join(sorted(self._subscription))})"
            case SubscriptionType.AUTO_PATTERN:
                assert self._subscribed_pattern is not None, "set while there is a subscription to a pattern"
                return f"Subscribe({self._subscribed_pattern.pattern})"
            case SubscriptionType.USER_ASSIGNED:
                return f"Assign({','.join(map(str, self._assignment))}, id={self.assignment_id})"

    # --- subscription -----------------------------------------------------------------------------------------------

    @property
    def rebalance_listener(self) -> Any:
        """The listener of the last ``subscribe``, None if it had none."""
        return self._rebalance_listener

    @property
    def has_pattern_subscription(self) -> bool:
        """Whether the topics are those that match a pattern."""
        return self._type is SubscriptionType.AUTO_PATTERN

    @property
    def has_no_subscription_or_user_assignment(self) -> bool:
        """Whether the program has neither subscribed nor assigned."""
        return self._type is SubscriptionType.NONE

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._type in (SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN)

    def subscribe(self, topics: Iterable[str], listener: Any = None) -> bool:
        """Subscribe to these topics instead of the former ones; returns whether they are others.

        ``UsageError``: the program has subscribed to a pattern or assigned partitions.
        """
        self._set_type(SubscriptionType.AUTO_TOPICS)
        self._rebalance_listener = listener
        return self._change_subscription(frozenset(topics))

    def subscribe_pattern(self, pattern: TopicPattern, listener: Any = None) -> None:
        """Subscribe to the topics that match; ``subscribe_from_pattern`` names them when the metadata is there.

        ``UsageError``: the program has subscribed to topics or assigned partitions.
        """
        self._set_type(SubscriptionType.AUTO_PATTERN)
        self._rebalance_listener = listener
        self._subscribed_pattern = pattern

    def subscribe_from_pattern(self, topics: Iterable[str]) -> bool:
        """The topics that match the pattern; returns whether they are others than before."""
        if self._type is not SubscriptionType.AUTO_PATTERN:
            raise UsageError(f"the topics of a pattern need a subscription to a pattern, not {self._type.value}")
        return self._change_subscription(frozenset(topics))

    def unsubscribe(self) -> None:
        """Remove subscription and assignment."""
        self._subscription = self._group_subscription = frozenset()
        self._subscribed_pattern = None
        self._type = SubscriptionType.NONE
        self._assign(())

    def group_subscribe(self, topics: Iterable[str]) -> bool:
        """The topics of all members, because this one leads; returns whether some are not in its own subscription."""
        if not self.has_auto_assigned_partitions:
            raise UsageError(f"a group subscription needs a subscription, not {self._type.value}")
        self._group_subscription = frozenset(topics)
        return not self._group_subscription <= self._subscription

    def reset_group_subscription(self) -> None:
        """This member does not lead, or does not yet."""
        self._group_subscription = frozenset()

    def subscription(self) -> frozenset[str]:
        """The subscribed topics; none if the program assigns partitions."""
        return self._subscription if self.has_auto_assigned_partitions else frozenset()

    def metadata_topics(self) -> frozenset[str]:
        """The topics whose metadata is needed: those of this member, and of all members while it leads."""
        return self._subscription | self._group_subscription

    def needs_metadata(self, topic: str) -> bool:
        """Whether a topic is one of ``metadata_topics``."""
        return topic in self._subscription or topic in self._group_subscription

    def matches_subscribed_pattern(self, topic: str) -> bool:
        """Whether there is a pattern and it matches."""
        return self._subscribed_pattern is not None and self._subscribed_pattern.fullmatch(topic) is not None

    def _set_type(self, wanted: SubscriptionType) -> None:
        if self._type not in (SubscriptionType.NONE, wanted):
            raise UsageError(
                "a subscription to topics, a subscription to a pattern and assigned partitions exclude each other: "
                f"this consumer has {self._type.value}; call unsubscribe() before {wanted.value}"
            )
        self._type = wanted

    def _change_subscription(self, topics: frozenset[str]) -> bool:
        is_other = topics != self._subscription
        self._subscription = topics
        return is_other

    # --- assignment -------------------------------------------------------------------------------------------------

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assign these instead of the former ones; returns whether their topics are others.

        ``UsageError``: the program has subscribed.
        """
        self._set_type(SubscriptionType.USER_ASSIGNED)
        assigned = dict.fromkeys(partitions)
        if assigned.keys() == self._assignment.keys():
            return False
        self._assign(assigned)
        return self._change_subscription(frozenset(tp.topic for tp in assigned))

    def check_assignment_matched_subscription(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the subscription contains the topics of an assignment; the first that it does not is logged."""
        for tp in partitions:
            pattern = self._subscribed_pattern
            if tp.topic not in self._subscription if pattern is None else pattern.fullmatch(tp.topic) is None:
                self._log_event("INFO", "assigned-partition-not-subscribed", partition=tp, subscription=self)
                return False
        return True

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the assignment of the group; ``UsageError``: the program has not subscribed."""
        if not self.has_auto_assigned_partitions:
            raise UsageError(f"the group assigns partitions only to a subscription, not to {self._type.value}")
        self._assign(dict.fromkeys(partitions))
