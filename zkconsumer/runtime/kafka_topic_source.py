"""``KafkaTopicSource``: reads topics from Kafka as a step in the read of a group.

The control thread must not wait for a broker.  So the procedure yields an ``AwaitExternal`` and continues when the
topic finder has the answer; at once if it is cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.zk.group_procedures import AwaitExternal, Procedure
from zkconsumer.zk.topic_source import GroupReadError, is_usable_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from zkconsumer.kafka.error_codes import ErrorCode
    from zkconsumer.kafka.topic_finder import TopicFinder


class KafkaTopicSource:
    """A ``TopicSource`` without watches: the topic finder reports changes.

    ``on_topics_rejected``: called with topics that brokers reject; they count as missing in the view.
    """

    def __init__(self, finder: TopicFinder, on_topics_rejected: Callable[[Mapping[str, ErrorCode]], None]) -> None:
        self._finder = finder
        self._on_topics_rejected = on_topics_rejected
        self.topic_czxids: dict[str, int] = {}
        """Topic -> a small number that grows when the topic is created again (not a ZooKeeper transaction)."""

    def read(self, topics: Iterable[str]) -> Procedure[Mapping[str, tuple[int, ...] | None]]:
        """See ``TopicSource``."""
        wanted = sorted(topic for topic in topics if is_usable_topic_name(topic))
        yield from self._known(wanted)
        refused = self._finder.rejected(wanted)
        if refused:
            self._on_topics_rejected(refused)
        self.topic_czxids = {topic: self._finder.incarnation(topic) for topic in wanted}
        return {topic: self._finder.partitions(topic) for topic in wanted}

    def read_all(self) -> Procedure[tuple[str, ...]]:
        """See ``TopicSource``."""
        yield from self._known(None)
        return self._finder.all_topics()

    def invalidate(self, path: str) -> None:
        """No effect: topics are not read from ZooKeeper."""

    def clear(self) -> None:
        """No effect: topics from Kafka stay valid when the ZooKeeper connection breaks."""

    def _known(self, names: list[str] | None) -> Procedure[None]:
        answer: list[str] = []

        def ask(done: Callable[[], None]) -> None:
            def answered(why: str) -> None:
                answer.append(why)
                done()

            self._finder.request_topics(names, answered)

        yield AwaitExternal(ask)
        [why] = answer
        if why:
            raise GroupReadError(f"the topics could not be read from Kafka: {why}")
