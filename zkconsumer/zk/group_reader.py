"""Reads the group, and caches under watches what cannot have changed.

    ids (children)  ->  registrations not cached yet  ->  topics not cached yet  ->  owners, on request

``topics`` (a ``TopicSource``) reads topics from ZooKeeper or from Kafka.

A registration, a topic and the control znode are read once, with a watch; they are read again only after the watch
fired or the connection broke.  So a member needs two or three packets when another one joins or leaves, for any size of
the group.  (The Scala consumer reads everything in every attempt, also the brokers twice.)
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from zkconsumer.errors import InvalidTopicFilter, MalformedZnode
from zkconsumer.member.group_view import ControlRecord, GroupView, TopicSubscription
from zkconsumer.member.topic_count import allowed_topics
from zkconsumer.member.topic_filter import PatternNotEvaluable
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import Procedure, describe_result, owner_text
from zkconsumer.zk.member_registration import parse_registration
from zkconsumer.zk.requests import ChildNames, Children, Exists, Get, GetMany, NoNode, Request, StoreError, ZnodeData
from zkconsumer.zk.topic_source import GroupReadError, TopicSource, ZooKeeperTopicSource, is_usable_topic_name
from zkconsumer.zk.znode_formats import parse_control

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zkconsumer.zk.member_registration import Registration


class GroupReader:
    """The cache of one group.  Call ``invalidate`` when a watch fired, ``clear`` when the connection broke.

    An entry whose watch fires during a read is removed at the end of that read: not earlier, because the view would
    lack an existing member or topic; and also if it was read in this read, because the answers of a round arrive
    together, so a watch may fire before the answer that set it is processed.  A read during which the connection broke
    returns an error, because part of the cache may be cleared.
    """

    def __init__(self, group: str, topics: TopicSource | None = None) -> None:
        self._group = group
        self._topics: TopicSource = topics or ZooKeeperTopicSource()
        self._registrations: dict[str, Registration | MalformedZnode] = {}
        self._control: tuple[ControlRecord | None, int | None] = (None, None)
        self._control_known = False
        self._invalidated_during_read: set[str] | None = None
        self._disconnect_count = 0

    def invalidate(self, path: str) -> None:
        """The watch of this node fired."""
        if self._invalidated_during_read is not None:
            self._invalidated_during_read.add(path)
            return
        self._topics.invalidate(path)
        if path == paths.control(self._group):
            self._control_known = False
        else:
            parent, _, name = path.rpartition("/")
            if parent == paths.ids(self._group):
                self._registrations.pop(name, None)

    def clear(self) -> None:
        """All watches are lost."""
        self._disconnect_count += 1
        self._registrations.clear()
        self._topics.clear()
        self._control_known = False

    def read(
        self, own: TopicSubscription, *, whole_group: bool, with_owners: bool, owners_max: int | None = None
    ) -> Procedure[GroupView | str]:
        """The present group, or why it could not be read; the arguments are those of ``member.commands.ReadGroup``."""
        fired = self._invalidated_during_read = set()
        try:
            return (yield from self._read(own, whole_group, with_owners, owners_max))
        except GroupReadError as error:
            return str(error)
        finally:
            # A read that waited for Kafka may end during the next read, of another session.
            if self._invalidated_during_read is fired:
                self._invalidated_during_read = None
            for path in fired:
                self.invalidate(path)

    def _read(
        self, own: TopicSubscription, whole_group: bool, with_owners: bool, owners_max: int | None
    ) -> Procedure[GroupView]:
        breaks = self._disconnect_count
        members = yield from self._read_members()
        subscriptions: dict[str, TopicSubscription] = {}
        left_out: dict[str, str] = {}
        for member in members:
            registration = self._registrations[member]
            if isinstance(registration, MalformedZnode):
                left_out[member] = str(registration)
            else:
                subscriptions[member] = TopicSubscription(registration.pattern, registration.subscription)
        relevant = [own, *subscriptions.values()] if whole_group else [own]
        # Under range the filter of another member is applied only to our own topics, so no others are needed.
        needs_all = any(subscription.is_filter for subscription in relevant)
        all_topics = tuple(filter(is_usable_topic_name, (yield from self._topics.read_all()))) if needs_all else None
        wanted = _subscribed_topics(relevant, all_topics or ())
        partitions = yield from self._topics.read(wanted)
        control, version = yield from self._read_control()
        found = {topic: numbers for topic in sorted(wanted) if (numbers := partitions.get(topic)) is not None}
        owners = (yield from self._read_owners(found, owners_max)) if with_owners else None
        if breaks != self._disconnect_count:
            raise GroupReadError("the connection broke while the group was read")
        missing = frozenset(wanted - found.keys())
        topic_czxids = {topic: birth for topic in found if (birth := self._topics.topic_czxids.get(topic)) is not None}
        return GroupView(subscriptions, found, left_out, missing, owners, control, all_topics, topic_czxids, version)

    def _read_members(self) -> Procedure[list[str]]:
        """The members in ZooKeeper's order, without those whose registration was deleted meanwhile."""
        [listed] = yield [Children(paths.ids(self._group), watch=True)]
        if isinstance(listed, NoNode):
            return []
        if not isinstance(listed, ChildNames):
            raise GroupReadError(describe_result(listed))
        present = set(listed.names)
        self._registrations = {name: r for name, r in self._registrations.items() if name in present}
        unread = [name for name in listed.names if name not in self._registrations]
        answers = (yield [Get(f"{paths.ids(self._group)}/{name}", watch=True) for name in unread]) if unread else []
        for name, answer in zip(unread, answers, strict=True):
            if isinstance(answer, ZnodeData):
                try:
                    self._registrations[name] = parse_registration(answer.data)
                except MalformedZnode as error:
                    self._registrations[name] = error
            elif not isinstance(answer, NoNode):
                raise GroupReadError(describe_result(answer))
        return [name for name in listed.names if name in self._registrations]

    def _read_control(self) -> Procedure[tuple[ControlRecord | None, int | None]]:
        if not self._control_known:
            path = paths.control(self._group)
            [stat] = yield [Exists(path, watch=True)]
            if isinstance(stat, StoreError):
                raise GroupReadError(describe_result(stat))
            self._control = None, None
            if stat is not None:
                # With another watch: the first one may have fired in between.
                [node] = yield [Get(path, watch=True)]
                if not isinstance(node, ZnodeData):
                    raise GroupReadError(describe_result(node))
                try:
                    self._control = parse_control(node.data), node.stat.version
                except MalformedZnode as error:
                    raise GroupReadError(str(error)) from error
            self._control_known = True
        return self._control

    def _read_owners(self, topics: Iterable[str], owners_max: int | None) -> Procedure[dict[TopicPartition, str]]:
        names = sorted(topics)
        requests: list[Request] = [Children(paths.owners_of_topic(self._group, topic)) for topic in names]
        answers = (yield requests) if requests else []
        owned = [
            TopicPartition(topic, number)
            for topic, answer in zip(names, answers, strict=True)
            if isinstance(answer, ChildNames)
            for number in map(paths.partition_number, answer.names)
            if number is not None
        ]
        if not owned:
            return {}
        if owners_max is not None:
            owned = owned[:: -(-len(owned) // owners_max)]
        [nodes] = yield [GetMany(tuple(paths.owner(self._group, tp) for tp in owned))]
        assert isinstance(nodes, list), "GetMany returns a list"
        return {tp: owner_text(node) for tp, node in zip(owned, nodes, strict=True) if isinstance(node, ZnodeData)}


def _subscribed_topics(subscriptions: Iterable[TopicSubscription], all_topics: Sequence[str]) -> set[str]:
    """Every topic of these subscriptions; the planner handles a filter that cannot be evaluated."""
    wanted: set[str] = set()
    filters: dict[tuple[str, str], TopicSubscription] = {}
    for subscription in subscriptions:
        if subscription.is_filter:
            filters[subscription.pattern, next(iter(subscription.topics))] = subscription
        else:
            wanted.update(subscription.topics)
    for subscription in filters.values():
        with suppress(InvalidTopicFilter, PatternNotEvaluable, MalformedZnode):
            wanted |= allowed_topics(subscription, all_topics)
    return wanted
