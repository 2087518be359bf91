"""``KafkaTopicSource``: Kafka's word on topics as a step in the reading of a group.

The control thread must not wait for a broker, so the reading yields an ``AwaitExternal``, and goes on when the finder
has an answer: at once, when it knows already.
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
    """A ``TopicSource`` without watches: the finder tells of changes.

    ``on_topics_rejected``: called with topics that brokers refuse; for the reading they count as missing.
    """

    def __init__(self, finder: TopicFinder, on_topics_rejected: Callable[[Mapping[str, ErrorCode]], None]) -> None:
        self._finder = finder
        self._on_topics_rejected = on_topics_rejected
        self.topic_czxids: dict[str, int] = {}
        """Not transactions of ZooKeeper, but small numbers that grow when a topic is created again."""

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
        """No node of ZooKeeper matters here."""

    def clear(self) -> None:
        """What Kafka said stays true when ZooKeeper's connection breaks."""

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
            raise GroupReadError(f"Kafka does not tell of its topics: {why}")
