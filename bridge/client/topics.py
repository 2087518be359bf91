"""What Kafka says of topics, for the machine: which a subscription takes, and how many partitions they have.

The finder asks brokers on its own thread; everything here runs on the control thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bridge.client.events import Event, MetadataUpdated, Subscribed
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.spread import Spread
    from zkconsumer.core.view import Subscription
    from zkconsumer.kafka.topic_finder import TopicFinder

log = logging.getLogger("zkconsumer.topics")


class GroupTopics:
    """``call`` runs something on the control thread, ``feed`` gives the machine an event."""

    def __init__(
        self,
        finder: TopicFinder,
        spread: Spread,
        call: Callable[[Callable[[], None]], None],
        feed: Callable[[Event], None],
    ) -> None:
        self._finder = finder
        self._spread = spread
        self._call = call
        self._feed = feed
        self._subscription: Subscription | None = None
        self._subscribed: frozenset[str] | None = None
        self._needed: frozenset[str] | None = frozenset()

    def subscribe(self, subscription: Subscription) -> None:
        """Topics by name are subscribed to at once, those of a filter when it is known which there are."""
        self._subscription = subscription
        if subscription.is_filter:
            self._finder.want(None, self._answered)
        else:
            self._subscribe()

    def need(self, topics: frozenset[str] | None) -> None:
        """The machine asks for these."""
        self._needed = topics
        self._finder.want(topics, self._answered)

    def changed(self) -> None:
        """The finder learnt something; from any thread."""
        self._call(self._tell)

    def _answered(self, why: str) -> None:
        """From any thread; ``why`` is empty, or says why nothing is known."""
        if why:
            self._call(lambda: self._ask_again(why))
        else:
            self._call(self._tell)

    def _ask_again(self, why: str) -> None:
        log.warning("topics-unknown why=%r: asked again", why)
        if self._subscription is not None and self._subscription.is_filter and self._subscribed is None:
            self._finder.want(None, self._answered)
        else:
            self._finder.want(self._needed, self._answered)

    def _tell(self) -> None:
        if self._subscription is not None and self._subscription.is_filter:
            self._subscribe()
        if self._needed is None:
            asked, names = None, frozenset(self._finder.all_topics())
        else:
            asked = names = frozenset(name for name in self._needed if self._finder.has_answer(name))
        found = {name: self._finder.partitions(name) for name in names}
        counts = {name: len(partitions) for name, partitions in found.items() if partitions}
        racks = {TopicPartition(name, number): on for name in counts for number, on in self._finder.racks(name).items()}
        self._feed(MetadataUpdated(counts, asked, racks))

    def _subscribe(self) -> None:
        assert self._subscription is not None, "there is a subscription"
        topics = self._spread.topics(self._subscription, self._finder.all_topics())
        if topics != self._subscribed:
            self._subscribed = topics
            pattern = next(iter(self._subscription.topics)) if self._subscription.is_filter else None
            self._feed(Subscribed(topics, pattern))
