"""``TopicSource``: reads topics and their partitions; and the source of the Scala consumer, ZooKeeper.

``group_reader`` reads from it in every rebalance attempt, so a source caches what cannot have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from zkconsumer.errors import InvalidNameError
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import ROUNDS_MAX, Procedure, describe_result
from zkconsumer.zk.kafka_znodes import parse_topic
from zkconsumer.zk.requests import ChildNames, Children, Exists, Get, NoNode, StoreError, ZnodeData


class GroupReadError(Exception):
    """The group could not be read, with the reason.  ``GroupReader.read`` catches it."""


class TopicSource(Protocol):
    """Reads which topics exist.  Both procedures raise ``GroupReadError``."""

    def read(self, topics: Iterable[str]) -> Procedure[Mapping[str, tuple[int, ...] | None]]:
        """Topic -> partitions, ascending, of at least these topics; a missing topic has None or is not a key."""

    def read_all(self) -> Procedure[tuple[str, ...]]:
        """The names of all topics."""

    @property
    def topic_czxids(self) -> Mapping[str, int]:
        """For each topic that was read: the ZooKeeper transaction that created its node.

        Another number means that the topic was created again.  A source other than ZooKeeper returns small numbers,
        which are older than every transaction.
        """

    def invalidate(self, path: str) -> None:
        """The watch of this node fired; it may be a node that is not a topic."""

    def clear(self) -> None:
        """All watches are lost."""


class ZooKeeperTopicSource:
    """Reads ``/brokers/topics``: each node once, with a watch."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[int, ...] | None] = {}
        self.topic_czxids: dict[str, int] = {}
        """See ``TopicSource``."""
        self._all_topics: tuple[str, ...] | None = None

    def invalidate(self, path: str) -> None:
        """See ``TopicSource``."""
        topic = paths.topic_of(path)
        if topic is not None:
            self._topics.pop(topic, None)
            self.topic_czxids.pop(topic, None)
        elif path == paths.BROKER_TOPICS:
            self._all_topics = None

    def clear(self) -> None:
        """See ``TopicSource``."""
        self._topics.clear()
        self.topic_czxids.clear()
        self._all_topics = None

    def read_all(self) -> Procedure[tuple[str, ...]]:
        """See ``TopicSource``."""
        if self._all_topics is not None:
            return self._all_topics
        for _ in range(ROUNDS_MAX):
            [listed] = yield [Children(paths.BROKER_TOPICS, watch=True)]
            if isinstance(listed, ChildNames):
                self._all_topics = tuple(listed.names)
                return self._all_topics
            if not isinstance(listed, NoNode):
                raise GroupReadError(describe_result(listed))
            [stat] = yield [Exists(paths.BROKER_TOPICS, watch=True)]
            if stat is None:
                self._all_topics = ()
                return self._all_topics
        raise GroupReadError(f"{paths.BROKER_TOPICS} is created and deleted repeatedly")

    def read(self, topics: Iterable[str]) -> Procedure[Mapping[str, tuple[int, ...] | None]]:
        """See ``TopicSource``."""
        unread = [topic for topic in sorted(topics) if topic not in self._topics and is_usable_topic_name(topic)]
        for _ in range(ROUNDS_MAX):
            if not unread:
                return self._topics
            answers = yield [Get(paths.topic(topic), watch=True) for topic in unread]
            missing: list[str] = []
            for topic, answer in zip(unread, answers, strict=True):
                if isinstance(answer, ZnodeData):
                    self._topics[topic] = parse_topic(answer.data).partitions
                    self.topic_czxids[topic] = answer.stat.czxid
                elif isinstance(answer, NoNode):
                    missing.append(topic)
                else:
                    raise GroupReadError(describe_result(answer))
            unread = (yield from self._watch_missing(missing)) if missing else []
        if unread:
            raise GroupReadError(f"{paths.topic(unread[0])} is created and deleted repeatedly")
        return self._topics

    def _watch_missing(self, topics: Sequence[str]) -> Procedure[list[str]]:
        """Set watches on missing topics; return those that were created meanwhile."""
        stats = yield [Exists(paths.topic(topic), watch=True) for topic in topics]
        came: list[str] = []
        for topic, stat in zip(topics, stats, strict=True):
            if isinstance(stat, StoreError):
                raise GroupReadError(describe_result(stat))
            if stat is None:
                self._topics[topic] = None
            else:
                came.append(topic)
        return came


def is_usable_topic_name(topic: str) -> bool:
    """Whether a topic can have this name; another member may subscribe to an invalid one."""
    try:
        paths.check_topic(topic)
    except InvalidNameError:
        return False
    return True
