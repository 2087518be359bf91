"""One member of a coordinator's group on a table: no network, no thread, a clock that is moved by hand.

member = Member()
member.join(assigned=[T0, T1])           # subscribed, found, joined as the leader, told its share
member.answer(HEARTBEAT, HeartbeatResponse(error_code=27))
assert member.sent(JOIN_GROUP).reason == "group is already rebalancing"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.events import Failure, Offset, TimerKind
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.partition_assignor import (
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.consumer_protocol import encode_assignment, encode_subscription
from zkconsumer.wire.schemas import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupMember, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import LeaveGroupResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from zkconsumer.wire.schemas.sync_group import SyncGroupResponse

C = TypeVar("C")

NODE = 1
T = [TopicPartition("t", number) for number in range(8)]
U = [TopicPartition("u", number) for number in range(8)]
SESSION_MS = 10_000
HEARTBEAT_MS = 3000
POLL_MS = 60_000


class Dealer:
    """An assignor that deals each topic's partitions in turn to its readers; it remembers what it was told."""

    def __init__(
        self,
        name: str = "dealer",
        protocols: Iterable[RebalanceProtocol] = (RebalanceProtocol.EAGER,),
        assign: Callable[[Mapping[str, int], Mapping[str, Subscription]], Mapping[str, Assignment]] | None = None,
    ) -> None:
        self.name = name
        self.supported_protocols = frozenset(protocols)
        self.told: list[tuple[Assignment, int]] = []
        self.seen: list[Mapping[str, Subscription]] = []
        self.user_data: bytes | None = None
        self._assign = assign

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return self.user_data

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> Mapping[str, Assignment]:
        self.seen.append(subscriptions)
        if self._assign is not None:
            return self._assign(partitions, subscriptions)
        return deal(partitions, subscriptions)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self.told.append((assignment, generation))


def deal(partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
    """Each topic's partitions in turn to its readers."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic, count in sorted(partitions.items()):
        readers = sorted(member for member, wants in subscriptions.items() if topic in wants.topics)
        for number in range(count if readers else 0):
            shares[readers[number % len(readers)]].append(TopicPartition(topic, number))
    return {member: Assignment(tuple(share)) for member, share in shares.items()}


class CooperativeDealer(Dealer):
    """The same in two steps: what is to move is nobody's in between."""

    def __init__(self, name: str = "cooperative-dealer") -> None:
        super().__init__(name, (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER), in_two_steps)


def in_two_steps(partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
    """What ``deal`` gives, without what another member has still; of two who say so the later generation counts."""
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member, wants in sorted(subscriptions.items()):
        for tp in wants.owned_partitions:
            owners[tp] = max(owners.get(tp, (-2, "")), (wants.generation_id, member))
    return {
        member: Assignment(tuple(tp for tp in share.partitions if owners.get(tp, (0, member))[1] == member))
        for member, share in deal(partitions, subscriptions).items()
    }


class Member:
    """A ``ConsumerCoordinator`` and everything that it said."""

    def __init__(
        self,
        *assignors: ConsumerPartitionAssignor,
        auto_commit: bool = False,
        kind: type[ConsumerCoordinator] = ConsumerCoordinator,
        **settings: object,
    ) -> None:
        given: dict[str, object] = {
            "group.id": "g",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": POLL_MS,
            "request.timeout.ms": 40_000,
            "enable.auto.commit": auto_commit,
        }
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self.now_ms = 0
        self.machine = kind(GroupMemberConfig(given), assignors or (Dealer(),), lambda: 0.5, 0)
        self.said: list[do.Command] = []
        self.open: list[do.Send] = []
        self.timers: dict[TimerKind, int] = {}
        self.calls: list[do.Invoke] = []

    # --- what happens to it ---------------------------------------------------------------------------------------

    def hear(self, event: ev.Event) -> list[do.Command]:
        """One event; what it answered is kept as well."""
        answers = self.machine.handle(event, self.now_ms)
        self.said += answers
        for answer in answers:
            match answer:
                case do.Send():
                    self.open.append(answer)
                case do.SetMemberTimer(kind, deadline):
                    self.timers[kind] = deadline
                case do.CancelMemberTimer(kind):
                    del self.timers[kind]
                case do.Invoke():
                    self.calls.append(answer)
                case _:
                    pass
        return answers

    def wait(self, delay_ms: int) -> list[do.Command]:
        """Let time pass; timers fire at their time."""
        until_ms = self.now_ms + delay_ms
        said: list[do.Command] = []
        while self.timers and min(self.timers.values()) <= until_ms:
            kind, deadline = min(self.timers.items(), key=lambda item: item[1])
            del self.timers[kind]
            self.now_ms = deadline
            said += self.hear(ev.MemberTimerFired(kind, deadline))
        self.now_ms = until_ms
        return said

    def poll(self, busy_since_ms: int | None = None, stream: str = "") -> list[do.Command]:
        """The program waits for a record, or works on one of that stream since then."""
        return self.hear(ev.Polled(busy_since_ms, stream))

    def has_open(self, api: Api[Any, Any]) -> bool:
        """Whether a request of this kind waits for its answer."""
        return any(send.api_key == api.key for send in self.open)

    def count_open(self, api: Api[Any, Any]) -> int:
        """How many of this kind do."""
        return sum(send.api_key == api.key for send in self.open)

    def request(self, api: Api[Any, Any]) -> do.Send:
        """The oldest request of this kind that was not answered."""
        found = [send for send in self.open if send.api_key == api.key]
        assert found, f"no {api.name} waits for an answer; open are {[send.api_key for send in self.open]}"
        return found[0]

    def sent(self, api: Api[C, Any]) -> C:
        """Its body."""
        body: C = self.request(api).body
        return body

    def answer(self, api: Api[Any, C], body: C) -> list[do.Command]:
        """Answer it."""
        send = self.request(api)
        self.open.remove(send)
        return self.hear(ev.Responded(send.request, body))

    def fail(
        self, api: Api[Any, Any], failure: Failure = Failure.DISCONNECTED, error: Exception | None = None
    ) -> list[do.Command]:
        """It has no answer."""
        send = self.request(api)
        self.open.remove(send)
        return self.hear(ev.RequestFailed(send.request, failure, error))

    def disconnect(self, node: int = NODE) -> list[do.Command]:
        """The connection breaks: what is on its way fails, then the connection."""
        said: list[do.Command] = []
        for send in [send for send in self.open if send.node == node]:
            self.open.remove(send)
            said += self.hear(ev.RequestFailed(send.request, Failure.DISCONNECTED))
        return said + self.hear(ev.Disconnected(node))

    def returned(self, error: Exception | None = None) -> list[do.Command]:
        """The callback that runs returns, or raises."""
        return self.hear(ev.CallbackDone(self.calls.pop(0).number, error=error))

    # --- a group's usual course -----------------------------------------------------------------------------------

    def subscribe(self, *topics: str, pattern: str | None = None) -> list[do.Command]:
        """The program wants these; of a filter, what its pattern matches now."""
        takes = None if pattern is None else lambda topic: re.fullmatch(pattern, topic) is not None
        return self.hear(ev.Subscribed(frozenset(topics or ("t",)), takes))

    def metadata(self, **counts: int) -> list[do.Command]:
        """All topics that there are."""
        return self.hear(ev.MetadataUpdated(counts or {"t": 4}))

    def find(self, node: int = NODE, error: int = 0) -> list[do.Command]:
        """The coordinator is found."""
        return self.answer(FIND_COORDINATOR, coordinator(node, error))

    def joined(
        self, generation: int = 1, member: str = "me", leader: str = "leader", **fields: Any
    ) -> list[do.Command]:
        """JoinGroup is answered; ``leader="me"`` makes this member the leader of itself."""
        members = fields.pop("members", [group_member(member, "t")] if leader == member else [])
        name = fields.pop("protocol_name", self.machine.assignors[0].name)
        return self.answer(
            JOIN_GROUP,
            JoinGroupResponse(
                generation_id=generation, member_id=member, leader=leader, members=members, protocol_name=name, **fields
            ),
        )

    def join_refused(self, error: int, member: str = "") -> list[do.Command]:
        """JoinGroup is answered with an error."""
        return self.answer(JOIN_GROUP, JoinGroupResponse(error_code=error, member_id=member))

    def synced(self, assigned: Iterable[TopicPartition] = (), error: int = 0, **fields: Any) -> list[do.Command]:
        """SyncGroup is answered."""
        share = b"" if error else encode_assignment(Assignment(tuple(assigned)))
        return self.answer(SYNC_GROUP, SyncGroupResponse(error_code=error, assignment=share, **fields))

    def join(self, assigned: Iterable[TopicPartition] = (), generation: int = 1, member: str = "me") -> None:
        """From nothing to a stable member that follows, with this share."""
        self.subscribe()
        self.metadata()
        self.find()
        self.joined(generation, member)
        self.synced(assigned)
        self.returned()

    def rejoin(self, assigned: Iterable[TopicPartition] = (), generation: int = 2, member: str = "me") -> None:
        """The same, once JoinGroup was sent again."""
        self.joined(generation, member)
        self.synced(assigned)
        while self.calls:
            self.returned()

    def beat(self, error: int = 0) -> list[do.Command]:
        """Wait for the next heartbeat, and answer it."""
        if not self.has_open(HEARTBEAT):
            self.wait(HEARTBEAT_MS)
        return self.answer(HEARTBEAT, HeartbeatResponse(error_code=error))

    def left(self, body: LeaveGroupResponse | None = None) -> list[do.Command]:
        """LeaveGroup is answered."""
        return self.answer(LEAVE_GROUP, body or LeaveGroupResponse())

    def commit(self, number: int = 1, *, retried: bool = False, **offsets: int) -> list[do.Command]:
        """The program commits ``t0=5``."""
        asked = {TopicPartition(name[0], int(name[1:])): Offset(offset) for name, offset in offsets.items()}
        return self.hear(ev.CommitAsked(number, asked or {T[0]: Offset(5)}, retried))

    def committed(self, error: int = 0, **errors: int) -> list[do.Command]:
        """OffsetCommit is answered, with this error for all of it, or ``t0=29``."""
        rows = [
            OffsetCommitTopicResponse(
                name=topic.name,
                partitions=[
                    OffsetCommitPartitionResponse(
                        partition_index=row.partition_index,
                        error_code=errors.get(f"{topic.name}{row.partition_index}", error),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in self.sent(OFFSET_COMMIT).topics
        ]
        return self.answer(OFFSET_COMMIT, OffsetCommitResponse(topics=rows))


def coordinator(node: int = NODE, error: int = 0) -> FindCoordinatorResponse:
    """The answer that names the coordinator, or an error."""
    if error:
        return FindCoordinatorResponse(error_code=error)
    address = BrokerAddress(node, f"broker{node}", 9092)
    return FindCoordinatorResponse(node_id=node, host=address.host, port=address.port)


def group_member(member: str, *topics: str, **fields: Any) -> JoinGroupMember:
    """A row of the answer to the leader."""
    instance = fields.pop("instance", None)
    metadata = encode_subscription(Subscription(topics=topics, **fields))
    return JoinGroupMember(member_id=member, group_instance_id=instance, metadata=metadata)


def only(commands: Iterable[do.Command], kind: type[C]) -> C:
    """The one command of this kind."""
    (found,) = (command for command in commands if isinstance(command, kind))
    return found


def every(commands: Iterable[do.Command], kind: type[C]) -> list[C]:
    """All commands of this kind."""
    return [command for command in commands if isinstance(command, kind)]
