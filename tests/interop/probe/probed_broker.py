"""The broker under test, and the questions to it that no member needs to ask."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from bridge.coordinator.release_features import RELEASES
from tests.interop.probe.member import PROTOCOLS, Member
from tests.interop.probe.registry import numbers
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.wire.schemas import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    Api,
)
from zkconsumer.wire.schemas.delete_groups import DeleteGroupsRequest
from zkconsumer.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest
from zkconsumer.wire.schemas.find_coordinator import BATCHED_FROM as FIND_BATCHED_FROM
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.list_groups import ListedGroup, ListGroupsRequest
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from zkconsumer.wire.schemas.offset_delete import OffsetDeletePartition, OffsetDeleteRequest, OffsetDeleteTopic
from zkconsumer.wire.schemas.offset_fetch import (
    BATCHED_FROM,
    OffsetFetchGroup,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchTopic,
)

T = TypeVar("T")

TIMEOUT_MS = 15_000
STILL_MS = 120
"""How long a request must stay without an answer to count as parked."""

GROUP_MAX_SIZE = 4
INITIAL_DELAY_MS = 90
SESSION_MIN_MS = 300
SESSION_MAX_MS = 60_000
SHORT_SESSION_MS = 2_000
"""For sessions that are to end; a busy machine may stop a check for a second between two of its requests."""
PARTITIONS = 3

SETTINGS = MappingProxyType(
    {
        "group.min.session.timeout.ms": str(SESSION_MIN_MS),
        "group.max.session.timeout.ms": str(SESSION_MAX_MS),
        "group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS),
        "group.max.size": str(GROUP_MAX_SIZE),
    }
)
"""What the checks take for granted of a broker; releases that do not know a setting pass over it."""

OF_0_9 = SupportedVersions(RELEASES["0.9.0.1"].ranges, is_assumed=True)
"""A broker of 0.9 cannot be asked, and the program of this repository assumes less of it than it speaks."""

START_MS = 30_000
GROUPS_ASKED = 40
"""So many names fall on every partition of ``__consumer_offsets``, of which a sandbox has five."""

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16

_numbers = itertools.count()


@dataclass(slots=True)
class Server:
    """A broker that coordinates every group.  ``topic`` exists there, with ``PARTITIONS`` partitions.

    ``is_kraft``: it has no ZooKeeper.
    """

    release: str
    host: str
    port: int
    topic: str
    is_kraft: bool
    is_real: bool
    _ranges: SupportedVersions | None = None

    @property
    def ranges(self) -> SupportedVersions:
        """What it speaks, asked once."""
        if self._ranges is None:
            connection = BlockingConnection(self.host, self.port, client_id="probe")
            try:
                self._ranges = OF_0_9 if numbers(self.release) < (0, 10) else negotiate(connection, TIMEOUT_MS)
            finally:
                connection.close()
        return self._ranges


def wait_coordinating(server: Server) -> None:
    """Until the server coordinates every group: the first question makes brokers create the topic for it."""
    probe = Probe(server, "waiting")
    not_yet = {COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR}
    try:
        probe.until(lambda: probe.find_coordinator()[0] == 0, "there is a coordinator", START_MS)
        for number in range(GROUPS_ASKED):
            nobody = Member(probe, group=f"waiting-{number}", member_id="nobody")
            probe.until(lambda nobody=nobody: nobody.leave() not in not_yet, "every group has a coordinator", START_MS)
    finally:
        probe.close()


@dataclass(slots=True)
class Probe:
    """One check's view of the server: a group of its own, and whatever it opened, to be closed after it."""

    server: Server
    group: str
    _connections: list[BlockingConnection] = field(default_factory=list)
    _own: BlockingConnection | None = None

    @classmethod
    def of(cls, server: Server, name: str) -> Probe:
        """A probe with a group that no other test uses."""
        return cls(server, f"{name[:40]}-{next(_numbers)}")

    # --- the release ---

    @property
    def topic(self) -> str:
        return self.server.topic

    def since(self, release: str, there: T, before: T) -> T:
        """``there`` from this release on, else ``before``."""
        return there if numbers(self.server.release) >= numbers(release) else before

    def version(self, api: Api[Any, Any], at_most: int | None = None) -> int:
        """The highest version that both sides speak."""
        return self.server.ranges.pick(api, at_most)

    def versions(self, api: Api[Any, Any], at_least: int = 0) -> Iterable[int]:
        """Every version that both sides speak."""
        there = self.server.ranges.ranges[api.key]
        return range(max(there.lowest, api.lowest, at_least), min(there.highest, api.highest) + 1)

    # --- talking ---

    def connect(self, client_id: str = "probe") -> BlockingConnection:
        """One more connection."""
        made = BlockingConnection(self.server.host, self.server.port, client_id=client_id)
        self._connections.append(made)
        return made

    @property
    def own(self) -> BlockingConnection:
        """For questions that are answered at once."""
        if self._own is None:
            self._own = self.connect()
        return self._own

    def ask(self, api: Api[Any, Any], body: Any, version: int | None = None) -> Any:
        """One question at the highest common version, or the one that is given."""
        asked = self.version(api) if version is None else version
        return self.own.request(api, asked, body, TIMEOUT_MS)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    # --- members ---

    def member(self, **given: Any) -> Member:
        """A client that may join the group; see ``Member``."""
        return Member(self, **given)

    def stable(self, count: int = 1, **given: Any) -> list[Member]:
        """A group of so many members in Stable, the first of them its leader, in generation ``count``."""
        members: list[Member] = []
        for _ in range(count):
            self.grow(members, self.member(**given))
        return members

    def grow(self, members: list[Member], new: Member) -> None:
        """One more member comes, the others rejoin, and all have synced afterwards."""
        new.enter()
        self.rejoin(members)
        members.append(new)
        for each in members:
            each.joined()
        self.synced(members)

    def rejoin(self, members: list[Member]) -> None:
        """The rebalance is seen by all of these, and they send JoinGroup."""
        for each in members:
            self.until(lambda each=each: each.heartbeat() == 27, "the rebalance is announced")
            each.enter()

    def synced(self, members: list[Member]) -> None:
        """SyncGroup of all, with an assignment for each that is made of its number."""
        leader = next(each for each in members if each.is_leader)
        given = {each.member_id: assignment(number) for number, each in enumerate(members)}
        for each in members:
            each.sync_later(given if each is leader else {})
        for number, each in enumerate(members):
            answer = each.synced()
            assert (answer.error_code, answer.assignment) == (0, assignment(number)), answer

    def completing(self, count: int = 1) -> list[Member]:
        """A group of so many members that have joined and wait for the leader's assignment (in no SyncGroup yet)."""
        members = self.stable(count)
        members[0].enter()
        self.rejoin(members[1:])
        for each in members:
            each.joined()
        return members

    def preparing(self) -> tuple[Member, Member]:
        """A group of two whose first member has sent JoinGroup again, and waits for the second."""
        first, second = self.stable(2)
        first.enter()
        assert first.is_parked()
        return first, second

    def until(self, condition: Callable[[], Any], what: str, timeout_ms: int = TIMEOUT_MS) -> Any:
        """Ask again and again."""
        return wait_until(condition, what, timeout_ms, poll_ms=10)

    def pass_time(self, duration_ms: int, holds: Callable[[], bool] = lambda: True) -> None:
        """So much time goes by, and ``holds`` holds all the while."""
        end_ms = SYSTEM_CLOCK.now_ms() + duration_ms

        def is_over() -> bool:
            assert holds(), f"{end_ms - SYSTEM_CLOCK.now_ms()} ms before its time"
            return SYSTEM_CLOCK.now_ms() >= end_ms

        self.until(is_over, "time goes by")

    # --- offsets ---

    def commit(
        self,
        offsets: Mapping[int, int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        metadata: str | None = "",
        topic: str | None = None,
        group: str | None = None,
        version: int | None = None,
    ) -> dict[int, int]:
        """OffsetCommit of partition → offset; gives partition → error."""
        partitions = [
            OffsetCommitPartition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
            for number, offset in offsets.items()
        ]
        asked = self.version(OFFSET_COMMIT) if version is None else version
        body = OffsetCommitRequest(
            group_id=self.group if group is None else group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitTopic(name=topic or self.topic, partitions=partitions)],
        )
        answer = self.ask(OFFSET_COMMIT, body, asked)
        [told] = answer.topics
        return {each.partition_index: each.error_code for each in told.partitions}

    def fetch(
        self, partitions: Iterable[int] | None = (0,), *, group: str | None = None, version: int | None = None
    ) -> dict[int, OffsetFetchPartitionResponse]:
        """OffsetFetch of these partitions of the topic, or of everything (None); the top-level error must be 0."""
        asked = self.version(OFFSET_FETCH) if version is None else version
        named = self.group if group is None else group
        topics = None if partitions is None else [OffsetFetchTopic(name=self.topic, partition_indexes=[*partitions])]
        if asked >= BATCHED_FROM:
            body = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=named, topics=topics)])
            [told] = self.ask(OFFSET_FETCH, body, asked).groups
        else:
            told = self.ask(OFFSET_FETCH, OffsetFetchRequest(group_id=named, topics=topics), asked)
        assert told.error_code == 0, told
        return {each.partition_index: each for topic in told.topics for each in topic.partitions}

    def stored(self, partition: int = 0) -> int:
        """The offset that the group has stored, −1 without one."""
        return self.fetch([partition])[partition].committed_offset

    def delete_offsets(self, partitions: Iterable[int], group: str | None = None) -> tuple[int, dict[int, int]]:
        """OffsetDelete: the error of the whole, and those of the partitions."""
        wanted = OffsetDeleteTopic(
            name=self.topic, partitions=[OffsetDeletePartition(partition_index=number) for number in partitions]
        )
        answer = self.ask(OFFSET_DELETE, OffsetDeleteRequest(group_id=group or self.group, topics=[wanted]))
        told = {each.partition_index: each.error_code for topic in answer.topics for each in topic.partitions}
        return answer.error_code, told

    # --- looking ---

    def described(self, group: str | None = None, version: int | None = None) -> DescribedGroup:
        """DescribeGroups of the group."""
        [told] = self.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group or self.group]), version).groups
        return told

    def state(self) -> str:
        """The state that DescribeGroups returns."""
        return self.described().group_state

    def wait_state(self, state: str) -> None:
        """Wait until DescribeGroups returns it: brokers from 4.0 on return what they have written, maybe some ms
        old.
        """
        self.until(lambda: self.state() == state, f"the group is {state}")

    def listed(self, version: int | None = None, **given: Any) -> ListedGroup | None:
        """The group in the answer to ListGroups."""
        answer = self.ask(LIST_GROUPS, ListGroupsRequest(**given), version)
        assert answer.error_code == 0, answer
        return next((each for each in answer.groups if each.group_id == self.group), None)

    def delete(self, group: str | None = None) -> int:
        """DeleteGroups: the group's error."""
        [told] = self.ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group or self.group])).results
        return told.error_code

    def find_coordinator(self, version: int | None = None) -> tuple[int, str, int]:
        """FindCoordinator: error, host, port."""
        asked = self.version(FIND_COORDINATOR) if version is None else version
        if asked >= FIND_BATCHED_FROM:
            body = FindCoordinatorRequest(coordinator_keys=[self.group])
            [told] = self.ask(FIND_COORDINATOR, body, asked).coordinators
        else:
            told = self.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=self.group), asked)
        return told.error_code, told.host, told.port


def assignment(number: int) -> bytes:
    """A member's assignment; the coordinator does not parse it."""
    return b"assignment of member %d" % number


__all__ = ["PROTOCOLS", "Member", "Probe", "Server", "assignment"]
