"""Where topics and their partitions are learnt from, as rounds of requests; and the way of the original, ZooKeeper.

What a source tells is read again by ``group_reader`` in every attempt, so it remembers what cannot have changed.
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
    """The group could not be read; carries the reason.  It goes no further than ``GroupReader.read``."""


class TopicSource(Protocol):
    """Tells which topics there are.  Both procedures raise ``GroupReadError``."""

    def read(self, topics: Iterable[str]) -> Procedure[Mapping[str, tuple[int, ...] | None]]:
        """The partitions of at least these topics, ascending; None, or nothing, for one that is missing."""

    def read_all(self) -> Procedure[tuple[str, ...]]:
        """The names of all topics."""

    @property
    def topic_czxids(self) -> Mapping[str, int]:
        """For each topic that was read: in which transaction of ZooKeeper its node was created.

        Another number means another topic of the same name.  A source without nodes gives small numbers, which are
        older than everything in ZooKeeper.
        """

    def invalidate(self, path: str) -> None:
        """The watch of this node fired; it may be none of a topic."""

    def clear(self) -> None:
        """Every watch is gone."""


class ZooKeeperTopicSource:
    """Reads ``/brokers/topics``, each node once, leaving a watch."""

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
        raise GroupReadError(f"{paths.BROKER_TOPICS} comes and goes")

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
            raise GroupReadError(f"{paths.topic(unread[0])} comes and goes")
        return self._topics

    def _watch_missing(self, topics: Sequence[str]) -> Procedure[list[str]]:
        """Leave watches on what is to come; gives back what has come meanwhile."""
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
    """Another member may have subscribed to a text that no topic can be called."""
    try:
        paths.check_topic(topic)
    except InvalidNameError:
        return False
    return True
