"""What Kafka says of topics, for the machine: which a subscription takes, and how many partitions they have.

The finder asks brokers on its own thread; everything here runs on the control thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from bridge.client.events import Event, MetadataUpdated, Subscribed
from zkconsumer.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from zkconsumer.member.log_rate_limiter import LogRateLimiter
from zkconsumer.member.topic_messages import filter_topics_message, missing_topic_message
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.stream_assignor import StreamAssignor
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.topic_finder import TopicFinder
    from zkconsumer.member.group_view import TopicSubscription

TOPIC_CHECK_INTERVAL_MS = 5_000
"""How often it is looked whether there is something to say again about topics that are missing or refused."""

log = logging.getLogger("zkconsumer.topics")


class GroupTopics:
    """``call`` runs something on the control thread, ``feed`` gives the machine an event.

    ``refused`` is called with topics that brokers refuse and with those of them that this member cannot do without;
    ``missed`` with the words about a topic that the program named and that is missing: when it is seen, and again and
    again, rarely.  ``taken`` is called with the topics that a filter takes when they changed, and the words about them.
    """

    def __init__(
        self,
        finder: TopicFinder,
        spread: StreamAssignor,
        call: Callable[[Callable[[], None]], None],
        feed: Callable[[Event], None],
        clock: Clock,
        *,
        refused: Callable[[Mapping[str, ErrorCode], Collection[str]], None],
        missed: Callable[[str], None],
        taken: Callable[[frozenset[str], str], None],
    ) -> None:
        self._finder = finder
        self._spread = spread
        self._call = call
        self._feed = feed
        self._clock = clock
        self._refused = refused
        self._missed = missed
        self._taken = taken
        self.missing: frozenset[str] = frozenset()
        """Topics that the program named and that are not there; for the control thread."""
        self._missing_due = LogRateLimiter()
        self._subscription: TopicSubscription | None = None
        self._subscribed: frozenset[str] | None = None
        self._needed: frozenset[str] | None = frozenset()

    def subscribe(self, subscription: TopicSubscription) -> None:
        """Topics by name are subscribed to at once, those of a filter when it is known which there are."""
        self._subscription = subscription
        if subscription.is_filter:
            self._finder.request_topics(None, self._answered)
        else:
            self._subscribe()

    def need(self, topics: frozenset[str] | None) -> None:
        """The machine asks for these."""
        self._needed = topics
        self._finder.request_topics(topics, self._answered)

    def changed(self) -> None:
        """The finder learnt something; from any thread."""
        self._call(self._update_metadata)

    def _answered(self, why: str) -> None:
        """From any thread; ``why`` is empty, or says why nothing is known."""
        if why:
            self._call(lambda: self._ask_again(why))
        else:
            self._call(self._update_metadata)

    def _ask_again(self, why: str) -> None:
        log.warning("topics-unknown reason=%r: asked again", why)
        if self._subscription is not None and self._subscription.is_filter and self._subscribed is None:
            self._finder.request_topics(None, self._answered)
        else:
            self._finder.request_topics(self._needed, self._answered)

    def _update_metadata(self) -> None:
        if self._subscription is not None and self._subscription.is_filter:
            self._subscribe()
        if self._needed is None:
            asked, names = None, frozenset(self._finder.all_topics())
        else:
            asked = names = frozenset(name for name in self._needed if self._finder.is_known(name))
        found = {name: self._finder.partitions(name) for name in names}
        counts = {name: len(partitions) for name, partitions in found.items() if partitions}
        racks = {TopicPartition(name, number): on for name in counts for number, on in self._finder.racks(name).items()}
        self._feed(MetadataUpdated(counts, asked, racks))
        self.check_topics()

    def check_topics(self) -> None:
        """Say what is wrong with the topics that are needed; on the control thread."""
        subscription = self._subscription
        own = frozenset[str]() if subscription is None or subscription.is_filter else frozenset(subscription.topics)
        refused = self._finder.rejected(own | (self._needed or frozenset()))
        if refused:
            # A leader that may not see a topic of another member would leave it without an owner: as Kafka's, it ends.
            hidden = {name for name, error in refused.items() if error == TOPIC_AUTHORIZATION_FAILED}
            self._refused(refused, own | hidden)
        gone = {name for name in own if self._finder.is_known(name) and self._finder.partitions(name) is None}
        self.missing = frozenset(gone - refused.keys())
        for topic in self._missing_due.select_due(self.missing, self._clock.now_ms()):
            self._missed(missing_topic_message(topic))

    def _subscribe(self) -> None:
        assert self._subscription is not None, "there is a subscription"
        topics = self._spread.topics(self._subscription, self._finder.all_topics())
        if topics != self._subscribed:
            if self._subscription.is_filter:
                self._taken(topics, filter_topics_message(self._subscribed or frozenset(), topics))
            self._subscribed = topics
            self._feed(Subscribed(topics, self._spread.takes(self._subscription)))
