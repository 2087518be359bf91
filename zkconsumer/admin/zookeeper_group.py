"""A whole group as values: its members, owners, offsets, topics and fences.

    /consumers/G/ids/C          -> RegisteredMember  with the problem of the registration, if there is one
    /consumers/G/owners/T/P     -> PartitionOwner    of zkconsumer (data version 1), of a Scala consumer (0), or neither
    /consumers/G/offsets/T/P    -> OffsetNode        the text, the number, and when it was written
    /brokers/topics/T           -> TopicPartitions   of every topic of the group
    /zkconsumer/groups/G        -> control           if the group is migrating, or was migrated

``read_group`` is a few rounds of reads, not an atomic snapshot: a change meanwhile may appear in one part and not in
another.  This module draws no conclusions; ``describe`` and ``doctor`` do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from zkconsumer.admin.admin_session import BrokerAdminSession
from zkconsumer.errors import InvalidNameError, InvalidTopicFilter, MalformedZnode
from zkconsumer.member.topic_count import construct_topic_count, make_thread_id
from zkconsumer.member.topic_filter import PatternNotEvaluable
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import INITIAL_VERSION, OUR_OWNER_VERSION
from zkconsumer.zk.kafka_znodes import parse_topic
from zkconsumer.zk.member_registration import parse_registration
from zkconsumer.zk.requests import Stat
from zkconsumer.zk.znode_formats import (
    FENCE_OWNER_PREFIX,
    ControlRecord,
    consumer_of,
    parse_control,
    parse_offset,
    parse_owner,
)

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession, AnySession
    from zkconsumer.member.topic_count import TopicCount
    from zkconsumer.zk.member_registration import Registration
    from zkconsumer.zk.requests import ZnodeData

OwnerKind: TypeAlias = Literal["zkconsumer", "scala", "foreign", "persistent"]
"""Who made an owner node: zkconsumer, a Scala consumer, another program, or an operator or a migration (a fence)."""

MemberKind: TypeAlias = Literal["zkconsumer", "scala", "foreign", "unknown"]
"""The kind of a member, inferred from its owner nodes; ``unknown`` while it owns nothing."""

_GENERATED_ID = re.compile(r"(?P<host>.+)-(?P<ms>[0-9]{13})-[0-9a-f]{1,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RegisteredMember:
    """One child of ``ids``.

    ``registration`` is None if no release accepts the node; ``problem`` has the reason.  ``threads``: topic → number of
    threads, of the topics to which it is subscribed *now*: a filter is evaluated, without internal topics, against the
    existing topics; if that is impossible, ``problem`` is not empty.
    """

    group: str
    consumer_id: str
    data: bytes
    registration: Registration | None
    threads: Mapping[str, int]
    stat: Stat
    problem: str = ""
    kind: MemberKind = "unknown"

    @property
    def host(self) -> str | None:
        """The host in the generated part of the id; None if ``consumer.id`` was set."""
        return host_of_id(self.group, self.consumer_id)

    @property
    def session_id(self) -> int:
        """The session that owns the registration; 0 for a persistent node, which no consumer makes."""
        return self.stat.ephemeral_owner

    @property
    def subscription_pattern(self) -> str:
        """``static``, ``white_list``, ``black_list``, or ``-`` if it cannot be read."""
        return "-" if self.registration is None else self.registration.pattern


@dataclass(frozen=True, slots=True)
class PartitionOwner:
    """One owner node.  ``thread`` is the node's text, whatever it is.

    ``consumer_id``: the member that it names.  ``thread`` is equal to it if the node has the id without the number of a
    thread, as kafka-node writes it.
    """

    tp: TopicPartition
    thread: str
    kind: OwnerKind
    stat: Stat
    consumer_id: str

    @property
    def thread_id(self) -> str:
        """The thread that owns the partition; of a member of kafka-node, its only one."""
        return make_thread_id(self.thread, 0) if self.thread == self.consumer_id else self.thread


class OffsetNode(NamedTuple):
    """One stored offset.  ``offset`` is None if there is none: a negative number, or ``problem`` has the reason."""

    tp: TopicPartition
    data: bytes
    offset: int | None
    stat: Stat
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """A topic: its partitions, and its znode's stat; None if the topic was read from brokers
    (``bootstrap.servers``)."""

    partitions: tuple[int, ...]
    stat: Stat | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ZooKeeperGroup:
    """A group as it was read at ``read_at_ms`` (milliseconds since 1970, of this machine).

    ``members``: in ZooKeeper's child order, which decides ties.  ``topics``: every existing topic that is subscribed,
    owned or has an offset; ``missing_topics``: those that do not exist.  ``all_topics``: the children of
    ``/brokers/topics`` in ZooKeeper's order.  ``control``: None if the group never began to migrate;
    ``control_problem``: why an existing control znode cannot be read.  ``unexpected_nodes``: names under owners and
    offsets that are not a topic or a partition.  ``migrating_members``: ids of members that acknowledge a migration of
    strategy ``dual``, so they are in the group of the coordinator as well; empty if there is no such migration.
    """

    group: str
    read_at_ms: int
    ids_cversion: int
    members: Mapping[str, RegisteredMember]
    owners: Mapping[TopicPartition, PartitionOwner]
    offsets: Mapping[TopicPartition, OffsetNode]
    topics: Mapping[str, TopicPartitions]
    owned_topics: frozenset[str] = frozenset()
    offset_topics: frozenset[str] = frozenset()
    all_topics: tuple[str, ...] = ()
    control: ControlRecord | None = None
    control_version: int | None = None
    control_problem: str = ""
    unexpected_nodes: tuple[str, ...] = ()
    topics_read: frozenset[str] | None = None
    """The topics that were read; None: all topics of the group."""
    migrating_members: frozenset[str] = frozenset()
    subscriptions: Mapping[str, TopicCount] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether ``ids`` has children: what Kafka's tools call active (0.9 to 1.1)."""
        return bool(self.members)

    @property
    def group_topics(self) -> list[str]:
        """Every topic of the group, sorted: subscribed, owned, or with offsets."""
        subscribed = {topic for member in self.members.values() for topic in member.threads}
        return sorted(subscribed | self.owned_topics | self.offset_topics)

    @property
    def missing_topics(self) -> list[str]:
        """Those of ``group_topics`` that were read and have no znode."""
        looked_at = (topic for topic in self.group_topics if self.topics_read is None or topic in self.topics_read)
        return [topic for topic in looked_at if topic not in self.topics]

    @property
    def unreadable_offsets(self) -> list[OffsetNode]:
        """The offset znodes whose data no release reads as a number, sorted."""
        return [node for node in self.offsets.values() if node.problem]

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition of the group's topics, and those that only have an owner or an offset; sorted."""
        wanted = set(self.group_topics)
        known = {TopicPartition(t, p) for t in wanted if t in self.topics for p in self.topics[t].partitions}
        return sorted(known | set(self.owners) | set(self.offsets))

    @property
    def authority(self) -> str:
        """The store with the authority: ``zookeeper`` unless the control znode says otherwise; ``?`` if unreadable."""
        if self.control_problem:
            return "?"
        return "zookeeper" if self.control is None else self.control.authority


def read_group(session: AdminSession, group: str, topics: Iterable[str] | None = None) -> ZooKeeperGroup | None:
    """The group, None if ``/consumers/<group>`` does not exist.

    With ``topics`` only their owners and offsets are read.  Raises ``InvalidNameError`` if it is not a group id,
    ``UnavailableError`` when ZooKeeper does not answer, or the brokers if the topics are read from them.
    """
    if session.get(paths.group_root(group)) is None:
        return None
    only = None if topics is None else {paths.check_topic(topic) for topic in topics}
    listed = session.children(paths.ids(group))
    broker_topics = None if session.has_topics_in_zookeeper else _topics_from_brokers(session)
    names = tuple(sorted(broker_topics)) if broker_topics is not None else _topic_names(session)
    control, control_version, control_problem = read_control(session, group)
    ids = frozenset(listed.names) if listed else frozenset()
    owners, owned_topics, odd_owners = _read_owners(session, group, ids, only)
    offsets, offset_topics, odd_offsets = read_offsets(session, group, only)
    members, subscriptions = _read_members(session, group, listed.names if listed else [], names, owners)
    wanted = {topic for member in members.values() for topic in member.threads} | owned_topics | offset_topics
    return ZooKeeperGroup(
        group=group,
        read_at_ms=session.clock.wall_ms(),
        ids_cversion=listed.stat.cversion if listed else -1,
        members=members,
        owners=owners,
        offsets=offsets,
        topics=_read_topics(session, wanted if only is None else wanted & only, broker_topics),
        owned_topics=frozenset(owned_topics),
        offset_topics=frozenset(offset_topics),
        all_topics=names,
        control=control,
        control_version=control_version,
        control_problem=control_problem,
        unexpected_nodes=(*odd_owners, *odd_offsets),
        topics_read=None if only is None else frozenset(only),
        migrating_members=_read_migrating_members(session, group, control),
        subscriptions=subscriptions,
    )


def owner_kind(node: ZnodeData) -> OwnerKind:
    """Who made an owner node.  zkconsumer creates and sets it in one multi, so its data version is exactly 1; the Scala
    consumer never sets it (0.8 to 1.1), and kafka-node neither: its text has no number of a thread."""
    if not node.stat.ephemeral_owner:
        return "persistent"
    if node.stat.version == OUR_OWNER_VERSION:
        return "zkconsumer"
    text = node.data.decode("utf-8", "replace")
    return "scala" if node.stat.version == INITIAL_VERSION and consumer_of(text) != text else "foreign"


def owner_display(thread: str, kind: OwnerKind) -> tuple[str | None, str]:
    """The owner and its kind, as tables show them; a migration's fence has no owner."""
    if kind == "persistent" and thread.startswith(FENCE_OWNER_PREFIX):
        return None, "fence"
    return consumer_of(thread), kind


def host_of_id(group: str, consumer_id: str) -> str | None:
    """The host in ``<group>_<host>-<millis>-<hex>`` (0.8.0 to 1.1); None for a configured id."""
    found = _GENERATED_ID.fullmatch(consumer_id.removeprefix(f"{group}_"))
    return found["host"] if found and consumer_id.startswith(f"{group}_") else None


# --- members ----------------------------------------------------------------------------------------------------


def _read_members(
    session: AdminSession,
    group: str,
    names: list[str],
    all_topics: tuple[str, ...],
    owners: Mapping[TopicPartition, PartitionOwner],
) -> tuple[dict[str, RegisteredMember], dict[str, TopicCount]]:
    nodes = session.get_many(f"{paths.ids(group)}/{name}" for name in names)
    kinds: dict[str, set[OwnerKind]] = {}
    for owner in owners.values():
        kinds.setdefault(owner.consumer_id, set()).add(owner.kind)
    members: dict[str, RegisteredMember] = {}
    counts: dict[str, TopicCount] = {}
    for name in names:
        node = nodes.get(f"{paths.ids(group)}/{name}")
        if node is None:
            continue
        registration, count, threads, problem = _parse_member(name, node, all_topics)
        if count is not None:
            counts[name] = count
        kind = _member_kind(kinds.get(name, set()))
        members[name] = RegisteredMember(group, name, node.data, registration, threads, node.stat, problem, kind)
    return members, counts


def _parse_member(
    name: str, node: ZnodeData, all_topics: tuple[str, ...]
) -> tuple[Registration | None, TopicCount | None, dict[str, int], str]:
    try:
        registration = parse_registration(node.data)
    except MalformedZnode as error:
        return None, None, {}, f"no release accepts it: {error}"
    try:
        count = construct_topic_count(name, registration.pattern, registration.subscription)
        threads = count.get_consumer_thread_ids_per_topic(all_topics, True)
    except InvalidTopicFilter as error:
        return registration, None, {}, f"no Java compiles its filter: {error}"
    except PatternNotEvaluable as error:
        return registration, None, {}, f"its filter cannot be evaluated here: {error}"
    except MalformedZnode as error:
        return registration, None, {}, str(error)
    return registration, count, {topic: len(ids) for topic, ids in threads.items() if _is_topic(topic)}, ""


def _is_topic(name: str) -> bool:
    try:
        paths.check_topic(name)
    except InvalidNameError:
        return False
    return True


def _member_kind(kinds: set[OwnerKind]) -> MemberKind:
    if not kinds:
        return "unknown"
    if kinds == {"scala"}:
        return "scala"
    return "zkconsumer" if kinds <= {"zkconsumer", "persistent"} and "zkconsumer" in kinds else "foreign"


def _read_migrating_members(session: AdminSession, group: str, control: ControlRecord | None) -> frozenset[str]:
    """The members that acknowledge a migration in which they stay.  After a rollback there are none."""
    if control is None or control.strategy != "dual" or (control.is_over and control.authority == "zookeeper"):
        return frozenset()
    listed = session.children(paths.control_child(group, paths.CONTROL_MEMBERS))
    return frozenset(listed.names if listed else ())


# --- owners, offsets, topics ------------------------------------------------------------------------------------


def _partition_paths(
    session: AdminSession, root: str, only: set[str] | None
) -> tuple[dict[str, TopicPartition], set[str], list[str]]:
    """The nodes ``root/T/P`` in the order of partitions, the topics, and the paths that are neither."""
    listed = session.children(root)
    odd: list[str] = []
    topics: list[str] = []
    for name in listed.names if listed else []:
        if not _is_topic(name):
            odd.append(f"{root}/{name}")
        elif only is None or name in only:
            topics.append(name)
    found: dict[str, TopicPartition] = {}
    listed_of = session.children_of_many(f"{root}/{topic}" for topic in topics)
    for topic in sorted(topics):
        path = f"{root}/{topic}"
        numbers: list[int] = []
        for name in listed_of[path].names if path in listed_of else ():
            number = paths.partition_number(name)
            if number is None:
                odd.append(f"{path}/{name}")
            else:
                numbers.append(number)
        found |= {f"{path}/{number}": TopicPartition(topic, number) for number in sorted(numbers)}
    return found, set(topics), odd


def _read_owners(
    session: AdminSession, group: str, ids: frozenset[str], only: set[str] | None
) -> tuple[dict[TopicPartition, PartitionOwner], set[str], list[str]]:
    """As ``read_offsets``, for the owner nodes.  ``ids``: the registered members."""
    where, topics, odd = _partition_paths(session, paths.owners(group), only)
    found: dict[TopicPartition, PartitionOwner] = {}
    for path, node in session.get_many(where).items():
        try:
            thread = parse_owner(node.data)
        except MalformedZnode as error:
            thread = str(error)
        consumer_id = thread if thread in ids else consumer_of(thread)
        found[where[path]] = PartitionOwner(where[path], thread, owner_kind(node), node.stat, consumer_id)
    return found, topics, odd


def read_offsets(
    session: AdminSession, group: str, only: set[str] | None = None
) -> tuple[dict[TopicPartition, OffsetNode], set[str], list[str]]:
    """The stored offsets of a group, sorted; the topics that have a node for them; the paths that are not an offset's.

    ``only``: of these topics.  Raises ``UnavailableError`` when ZooKeeper does not answer.
    """
    where, topics, odd = _partition_paths(session, paths.offsets(group), only)
    found: dict[TopicPartition, OffsetNode] = {}
    for path, node in session.get_many(where).items():
        offset: int | None = None
        problem = ""
        try:
            offset = parse_offset(node.data)
        except MalformedZnode as error:
            problem = str(error)
        if offset is not None and offset < 0:
            offset = None
        tp = where[path]
        found[tp] = OffsetNode(tp, node.data, offset, node.stat, problem)
    return found, topics, odd


def _topic_names(session: AdminSession) -> tuple[str, ...]:
    listed = session.children(paths.BROKER_TOPICS)
    return tuple(listed.names) if listed else ()


def read_topics(session: AnySession, topics: Iterable[str] | None = None) -> dict[str, TopicPartitions]:
    """Those of these topics that exist (None: all topics), read from ZooKeeper or from the brokers, as configured.

    No request to a broker names a topic, because old brokers create topics that are named.  Raises
    ``UnavailableError`` when ZooKeeper does not answer, ``BrokerUnreachable`` when no broker answers.
    """
    if isinstance(session, BrokerAdminSession) or not session.has_topics_in_zookeeper:
        broker_topics = _topics_from_brokers(session)
        return _select_topics(broker_topics, broker_topics if topics is None else topics)
    return _read_topics(session, filter(_is_topic, _topic_names(session)) if topics is None else topics, None)


def _topics_from_brokers(session: AnySession) -> dict[str, TopicPartitions]:
    """Every topic of the brokers; raises ``BrokerUnreachable`` when none answers."""
    numbers: dict[str, list[int]] = {}
    for tp in session.brokers.leaders(None).partitions:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return {topic: TopicPartitions(tuple(sorted(partitions)), None) for topic, partitions in numbers.items()}


def _select_topics(broker_topics: Mapping[str, TopicPartitions], topics: Iterable[str]) -> dict[str, TopicPartitions]:
    return {topic: broker_topics[topic] for topic in sorted(topics) if topic in broker_topics}


def _read_topics(
    session: AdminSession, topics: Iterable[str], broker_topics: Mapping[str, TopicPartitions] | None
) -> dict[str, TopicPartitions]:
    if broker_topics is not None:
        return _select_topics(broker_topics, topics)
    where = {paths.topic(topic): topic for topic in sorted(topics)}
    found: dict[str, TopicPartitions] = {}
    for path, node in session.get_many(where).items():
        read = parse_topic(node.data)
        found[where[path]] = TopicPartitions(read.partitions, node.stat, read.error)
    return found


def read_control(session: AdminSession, group: str) -> tuple[ControlRecord | None, int | None, str]:
    """The group's control znode and its version, None if it does not exist; and why an existing one is unreadable."""
    node = session.get(paths.control(group))
    if node is None:
        return None, None, ""
    try:
        return parse_control(node.data), node.stat.version, ""
    except MalformedZnode as error:
        return None, node.stat.version, str(error)
