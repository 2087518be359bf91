"""``ConsumerMetadata``: the metadata of the topics that a consumer reads, as in Kafka 3.0.  Pure.

The topics are those of the subscription (while it leads its group: those of all members), and the *transient* ones,
which a call such as ``partitions_for``, ``list_topics`` or ``offsets_for_times`` needs while it runs.  A pattern
subscription requests all topics, and keeps those that match.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.cluster import ClusterResourceListener
from zkconsumer.kafka.metadata.metadata import Metadata
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder


class ConsumerMetadata(Metadata):
    """``include_internal_topics``: not ``exclude.internal.topics``; whether a pattern may match Kafka's own topics.

    ``allow_auto_topic_creation``: allow.auto.create.topics.
    """

    def __init__(
        self,
        refresh_backoff_ms: int,
        metadata_expire_ms: int,
        subscription: SubscriptionState,
        *,
        include_internal_topics: bool = False,
        allow_auto_topic_creation: bool = True,
        listeners: Sequence[ClusterResourceListener] = (),
    ) -> None:
        super().__init__(refresh_backoff_ms, metadata_expire_ms, listeners)
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self._include_internal_topics = include_internal_topics
        self._subscription = subscription
        self._transient_topics: set[str] = set()

    def new_metadata_request_builder(self) -> MetadataRequestBuilder:
        if self._subscription.has_pattern_subscription:
            return MetadataRequestBuilder.all_topics()
        topics = {**dict.fromkeys(self._subscription.metadata_topics()), **dict.fromkeys(self._transient_topics)}
        return MetadataRequestBuilder(tuple(sorted(topics)), self.allow_auto_topic_creation)

    def add_transient_topics(self, topics: Collection[str]) -> None:
        """Keep the metadata of these too, until ``clear_transient_topics``; an update is requested for unknown ones."""
        self._transient_topics.update(topics)
        if not self.fetch().topics.issuperset(topics):
            self.request_update_for_new_topics()

    def clear_transient_topics(self) -> None:
        """Do not request the transient topics any more; their metadata goes with the next update."""
        self._transient_topics.clear()

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        if topic in self._transient_topics or self._subscription.needs_metadata(topic):
            return True
        return self._may_match(topic, is_internal)

    def pattern_topics(self) -> frozenset[str]:
        """The known topics that the pattern matches; a transient one may be internal."""
        cluster = self.fetch()
        return frozenset(topic for topic in cluster.topics if self._may_match(topic, topic in cluster.internal_topics))

    def _may_match(self, topic: str, is_internal: bool) -> bool:
        if is_internal and not self._include_internal_topics:
            return False
        return self._subscription.matches_subscribed_pattern(topic)
