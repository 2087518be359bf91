"""Topic metadata for the machine: the topics of a subscription, and their number of partitions.

The finder sends requests to brokers on its own thread; everything here runs on the control thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from zkconsumer.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from zkconsumer.kafka.group.events import Event, MetadataUpdated, Subscribed
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
"""How often missing or denied topics are checked for a repeated log line."""

log = logging.getLogger("zkconsumer.topics")


@dataclass(eq=False, repr=False)
class GroupTopics:
    """``call`` runs an action on the control thread, ``feed`` submits an event to the machine.

    ``refused`` is called with topics that brokers deny, and with those of them that this member cannot do without.
    ``missed`` is called with the text about a missing topic that the program named: first when it is detected, then
    rarely.  ``taken`` is called with the topics that a filter matches when they changed, and the text about them.
    """

    finder: TopicFinder
    spread: StreamAssignor
    call: Callable[[Callable[[], None]], None]
    feed: Callable[[Event], None]
    clock: Clock
    _: KW_ONLY
    refused: Callable[[Mapping[str, ErrorCode], Collection[str]], None]
    missed: Callable[[str], None]
    taken: Callable[[frozenset[str], str], None]

    def __post_init__(self) -> None:
        self.missing: frozenset[str] = frozenset()
        """Topics that the program named and that do not exist; for the control thread."""
        self._missing_due = LogRateLimiter()
        self._subscription: TopicSubscription | None = None
        self._subscribed: frozenset[str] | None = None
        self._needed: frozenset[str] | None = frozenset()

    def subscribe(self, subscription: TopicSubscription) -> None:
        """Subscribe: at once to named topics, to those of a filter when the topics of the cluster are known."""
        self._subscription = subscription
        if subscription.is_filter:
            self.finder.request_topics(None, self._answered)
        else:
            self._subscribe()

    def need(self, topics: frozenset[str] | None) -> None:
        """The machine requests the metadata of these."""
        self._needed = topics
        self.finder.request_topics(topics, self._answered)

    def changed(self) -> None:
        """The finder has new metadata; from any thread."""
        self.call(self._update_metadata)

    def _answered(self, why: str) -> None:
        """From any thread; ``why`` is empty, or the reason why no metadata is known."""
        if why:
            self.call(lambda: self._ask_again(why))
        else:
            self.call(self._update_metadata)

    def _ask_again(self, why: str) -> None:
        log.warning("topics-unknown reason=%r: retried", why)
        if self._subscription is not None and self._subscription.is_filter and self._subscribed is None:
            self.finder.request_topics(None, self._answered)
        else:
            self.finder.request_topics(self._needed, self._answered)

    def _update_metadata(self) -> None:
        if self._subscription is not None and self._subscription.is_filter:
            self._subscribe()
        if self._needed is None:
            asked, names = None, frozenset(self.finder.all_topics())
        else:
            asked = names = frozenset(name for name in self._needed if self.finder.is_known(name))
        found = {name: self.finder.partitions(name) for name in names}
        counts = {name: len(partitions) for name, partitions in found.items() if partitions}
        racks = {TopicPartition(name, number): on for name in counts for number, on in self.finder.racks(name).items()}
        self.feed(MetadataUpdated(counts, asked, racks))
        self.check_topics()

    def check_topics(self) -> None:
        """Report problems of the needed topics; on the control thread."""
        subscription = self._subscription
        own = frozenset[str]() if subscription is None or subscription.is_filter else frozenset(subscription.topics)
        refused = self.finder.rejected(own | (self._needed or frozenset()))
        if refused:
            # A leader without access to another member's topic would leave it without an owner: as Kafka's, it ends.
            hidden = {name for name, error in refused.items() if error == TOPIC_AUTHORIZATION_FAILED}
            self.refused(refused, own | hidden)
        gone = {name for name in own if self.finder.is_known(name) and self.finder.partitions(name) is None}
        self.missing = frozenset(gone - refused.keys())
        for topic in self._missing_due.select_due(self.missing, self.clock.now_ms()):
            self.missed(missing_topic_message(topic))

    def _subscribe(self) -> None:
        assert self._subscription is not None, "there is a subscription"
        topics = self.spread.topics(self._subscription, self.finder.all_topics())
        if topics != self._subscribed:
            if self._subscription.is_filter:
                self.taken(topics, filter_topics_message(self._subscribed or frozenset(), topics))
            self._subscribed = topics
            self.feed(Subscribed(topics, self.spread.takes(self._subscription)))
