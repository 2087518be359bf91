"""Coordinator groups as tools show them.  Every broker is asked which groups it coordinates, which creates no topic.

FindCoordinator would be the shorter way to one group, but it makes brokers create ``__consumer_offsets`` if it does not
exist (0.8.2 and later); ListGroups never does.  If a broker does not answer, ``not_known`` has a sentence, and its
groups are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS, REQUEST_TIMEOUT_MS
from zkconsumer.admin.describe import GroupDescribeRow
from zkconsumer.admin.log_ranges import NO_SUCH_PARTITION, LogRange, log_ranges
from zkconsumer.admin.zookeeper_group_snapshot import unknown_log_end_texts
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, list_coordinator_groups
from zkconsumer.kafka.error_codes import NONE, BrokerError
from zkconsumer.kafka.group_offsets import fetch_offsets
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.wire.isolation_level import READ_UNCOMMITTED
from zkconsumer.wire.schemas import OFFSET_FETCH
from zkconsumer.wire.schemas.offset_fetch import ALL_TOPICS_IS_NULL_FROM

if TYPE_CHECKING:
    from zkconsumer.admin.broker_client import BrokerClient
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.types import BrokerAddress, TopicPartition

COORDINATOR_KIND = "coordinator"
"""The kind of these groups, and of their partition owners."""

KAFKA_AUTHORITY = "kafka"


@dataclass(frozen=True, slots=True)
class CoordinatorGroupListing:
    """One group, as a list shows it; ``topics``: subscribed or assigned."""

    group: str
    state: str
    protocol_type: str
    members: int
    topics: tuple[str, ...]

    @property
    def is_active(self) -> bool:
        """Whether it has members."""
        return self.members > 0

    @property
    def is_offsets_only(self) -> bool:
        """Whether the group has offsets and never had a member; perhaps a ZooKeeper group stores them under this
        name."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True)
class CoordinatorGroupList:
    """The groups that the brokers report; ``not_known`` has one sentence for each reason why groups are missing."""

    groups: Mapping[str, tuple[BrokerAddress, CoordinatorGroup]] = field(default_factory=dict)
    not_known: tuple[str, ...] = ()

    @property
    def listings(self) -> list[CoordinatorGroupListing]:
        """The listings, by name."""
        return [_line(name, group) for name, (_, group) in sorted(self.groups.items())]


@dataclass(frozen=True, slots=True)
class CoordinatorGroupSnapshot:
    """One group, its offsets, and its log ends; unknown values are missing, and ``not_known`` has the reasons."""

    group: str
    state: CoordinatorGroup
    offsets: Mapping[TopicPartition, int]
    log_ranges: Mapping[TopicPartition, LogRange]
    missing_partitions: frozenset[TopicPartition] = frozenset()
    """Partitions that do not exist although a member or an offset names them."""

    not_known: tuple[str, ...] = ()
    are_offsets_known: bool = True

    @property
    def log_ends(self) -> dict[TopicPartition, int]:
        """Log end offsets that are known."""
        return {tp: log.latest for tp, log in self.log_ranges.items()}


def list_all_coordinator_groups(brokers: BrokerClient) -> CoordinatorGroupList:
    """Every group of every live broker.

    Raises nothing if a broker does not answer; ``UnavailableError`` if ZooKeeper does not list the brokers.
    """
    found: dict[str, tuple[BrokerAddress, CoordinatorGroup]] = {}
    words: list[str] = []
    try:
        # Ask all brokers, not only those that were given: a bootstrap server is one of many.
        addresses = sorted(brokers.leaders(None).brokers.values())
    except BROKER_REQUEST_ERRORS as error:
        return CoordinatorGroupList({}, (f"coordinator groups are not known: {error}",))
    for address, response in brokers.execute_on_each(addresses, list_coordinator_groups).items():
        if isinstance(response, BROKER_REQUEST_ERRORS):
            words.append(f"coordinator groups of the broker {address.host}:{address.port} are not known: {response}")
            continue
        found |= {name: (address, group) for name, group in response.items()}
    return CoordinatorGroupList(found, tuple(words))


def read_coordinator_group_snapshot(
    brokers: BrokerClient, group: str, isolation_level: int = READ_UNCOMMITTED
) -> tuple[CoordinatorGroupSnapshot | None, tuple[str, ...]]:
    """The group, None if no answering broker has it; and, if None, which brokers did not answer.

    ``isolation_level``: of its members; with ``READ_COMMITTED`` the ranges of the logs have the last stable offset.
    """
    listed = list_all_coordinator_groups(brokers)
    if group not in listed.groups:
        return None, listed.not_known
    coordinator, state = listed.groups[group]
    given = {tp for member in state.members for tp in member.partitions}
    words: list[str] = []  # this broker coordinates the group, so silent brokers have no data of it
    is_known = True
    offsets: dict[TopicPartition, int] = {}
    try:
        offsets = brokers.execute(coordinator, lambda connection, ranges: _offsets(connection, ranges, group, given))
    except BROKER_REQUEST_ERRORS as error:
        words.append(f"offsets in Kafka are not known: {error}")
        is_known = False
    wanted = given | set(offsets)
    ranges: dict[TopicPartition, LogRange | str] = {}
    try:
        ranges = log_ranges(brokers, wanted, isolation_level=isolation_level) if wanted else {}
    except BROKER_REQUEST_ERRORS as error:
        ranges = dict.fromkeys(wanted, str(error))
    known = {tp: response for tp, response in ranges.items() if isinstance(response, LogRange)}
    gone = frozenset(tp for tp, why in ranges.items() if why == NO_SUCH_PARTITION)
    words += unknown_log_end_texts({tp: why for tp, why in ranges.items() if isinstance(why, str) and tp not in gone})
    return CoordinatorGroupSnapshot(group, state, offsets, known, gone, tuple(words), is_known), ()


def coordinator_group_rows(look: CoordinatorGroupSnapshot, topics: Collection[str] = ()) -> list[GroupDescribeRow]:
    """Every partition that is assigned or has an offset, sorted; then every member without partitions."""
    owners = {tp: member for member in look.state.members for tp in member.partitions}
    rows = []
    log_ends = look.log_ends
    for tp in sorted(owners.keys() | look.offsets.keys()):
        if topics and tp.topic not in topics:
            continue
        owner, stored = owners.get(tp), look.offsets.get(tp)
        unknown = set() if tp in log_ends or tp in look.missing_partitions else {"log_end_offset"}
        unknown |= set() if look.are_offsets_known else {"current_offset", "kafka_offset"}
        rows.append(
            GroupDescribeRow(
                look.group,
                tp.topic,
                tp.partition,
                current_offset=stored,
                log_end_offset=log_ends.get(tp),
                consumer_id=owner.member_id if owner else None,
                host=owner.host if owner else None,
                client_id=owner.client_id if owner else None,
                kafka_offset=stored,
                authority=KAFKA_AUTHORITY,
                owner_kind=COORDINATOR_KIND if owner else None,
                unknown=frozenset(unknown),
            )
        )
    for member in sorted((one for one in look.state.members if not one.partitions), key=lambda one: one.member_id):
        wanted: list[str | None] = [topic for topic in member.topics if not topics or topic in topics]
        idle = GroupDescribeRow(
            look.group, None, None, consumer_id=member.member_id, host=member.host, client_id=member.client_id
        )
        rows += [replace(idle, topic=topic) for topic in wanted or [None]]
    return rows


def coordinator_group_json(look: CoordinatorGroupSnapshot) -> dict[str, object]:
    """The group and its members, for JSON output."""
    return {
        "state": look.state.state,
        "protocol_type": look.state.protocol_type or None,
        "protocol": look.state.protocol or None,
        "members": [
            {
                "member_id": one.member_id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "topics": list(one.topics),
                "partitions": [str(tp) for tp in one.partitions],
                "problem": one.problem or None,
            }
            for one in look.state.members
        ],
    }


def _line(name: str, group: CoordinatorGroup) -> CoordinatorGroupListing:
    topics = {topic for one in group.members for topic in one.topics}
    topics |= {tp.topic for one in group.members for tp in one.partitions}
    return CoordinatorGroupListing(name, group.state, group.protocol_type, len(group.members), tuple(sorted(topics)))


def _offsets(
    connection: Connection, ranges: SupportedVersions, group: str, given: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """All stored offsets; from brokers that cannot list all (before 0.10.2), those of the given partitions."""
    partitions = None if ranges.supports(OFFSET_FETCH, ALL_TOPICS_IS_NULL_FROM) else given
    if partitions is not None and not partitions:
        return {}
    answer = fetch_offsets(connection, ranges, group, partitions, REQUEST_TIMEOUT_MS)
    if answer.error != NONE:
        raise BrokerError(answer.error, f"OffsetFetch of {group}")
    return {tp: one.offset for tp, one in answer.partitions.items() if isinstance(one, OffsetAndMetadata)}
