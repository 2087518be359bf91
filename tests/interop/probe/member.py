"""One member of the group under test: it sends requests on command, and stores its id and generation."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zkconsumer.kafka.broker_connection import BlockingConnection, PendingRequest
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import (
    MEMBER_ID_REQUIRED_FROM,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from zkconsumer.wire.schemas.leave_group import BATCHED_FROM, LeaveGroupRequest, LeaveGroupResponse, LeavingMember
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tests.interop.probe.probed_broker import Probe

ANSWER_MS = 15_000
SESSION_MS = 10_000
STILL_MS = 120

MEMBER_ID_REQUIRED = 79


def subscription_to(topic: str) -> bytes:
    """ConsumerProtocol version 0, one topic, no user data; by hand, so that the broker is not judged by our codec."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


SUBSCRIPTION = subscription_to("nowhere")
PROTOCOLS = (("range", SUBSCRIPTION), ("roundrobin", SUBSCRIPTION))


class Member:
    """Each has a connection of its own, as the broker answers one request of a connection at a time.

    ``version``: of JoinGroup, the highest common one unless it is given.  ``instance`` makes a static member.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = SESSION_MS,
        instance: str | None = None,
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] = PROTOCOLS,
        member_id: str = "",
        version: int | None = None,
        group: str | None = None,
        client_id: str = "probe",
    ) -> None:
        self.probe = probe
        self.group = probe.group if group is None else group
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.instance = instance
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.member_id = member_id
        self.generation = -1
        self.version = probe.version(JOIN_GROUP, version)
        self.last: JoinGroupResponse | None = None
        self._client_id = client_id
        self._connection: BlockingConnection | None = None
        self._pending: PendingRequest[Any] | None = None

    @property
    def connection(self) -> BlockingConnection:
        if self._connection is None:
            self._connection = self.probe.connect(self._client_id)
        return self._connection

    @property
    def is_leader(self) -> bool:
        """Whether the last JoinGroup was answered so."""
        return self.last is not None and self.last.leader == self.member_id

    # --- JoinGroup ---

    def join_request(self, **changes: Any) -> JoinGroupRequest:
        """What this member sends; ``changes`` replace fields."""
        fields = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": [JoinGroupProtocol(name=name, metadata=data) for name, data in self.protocols],
        }
        return JoinGroupRequest(**(fields | changes))

    def send_join(self, **changes: Any) -> None:
        """JoinGroup, without waiting for the answer."""
        self._pending = self.connection.send(JOIN_GROUP, self.version, self.join_request(**changes), ANSWER_MS)

    def enter(self) -> None:
        """JoinGroup, without waiting; a new member takes its id first where the broker wants that (2.2)."""
        if self.version >= MEMBER_ID_REQUIRED_FROM and not self.member_id and self.instance is None:
            self.ask_id()
        self.send_join()

    def ask_id(self) -> str:
        """JoinGroup without an id, which is refused with one (from version 4 on)."""
        told = self.join_once()
        assert told.error_code == MEMBER_ID_REQUIRED, told
        assert told.member_id, "an id comes with the refusal"
        self.member_id = told.member_id
        return self.member_id

    def join_once(self, **changes: Any) -> JoinGroupResponse:
        """One JoinGroup and its answer, whatever it is; nothing is remembered."""
        self.send_join(**changes)
        return self.answer()

    def joined(self) -> JoinGroupResponse:
        """The answer to ``enter``, which must be a success."""
        told: JoinGroupResponse = self.answer()
        assert told.error_code == 0, told
        self.member_id, self.generation, self.last = told.member_id, told.generation_id, told
        return told

    def join(self) -> JoinGroupResponse:
        """``enter`` and ``joined``."""
        self.enter()
        return self.joined()

    # --- SyncGroup ---

    def sync_request(self, given: Mapping[str, bytes] | None = None, **changes: Any) -> SyncGroupRequest:
        """What this member sends; ``given``: member id → assignment."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "assignments": [
                SyncGroupAssignment(member_id=member_id, assignment=data) for member_id, data in (given or {}).items()
            ],
        }
        if self.last is not None:
            fields |= {"protocol_type": self.protocol_type, "protocol_name": self.last.protocol_name}
        return SyncGroupRequest(**(fields | changes))

    def sync_later(self, given: Mapping[str, bytes] | None = None, **changes: Any) -> None:
        """SyncGroup, without waiting."""
        body = self.sync_request(given, **changes)
        self._pending = self.connection.send(SYNC_GROUP, self.probe.version(SYNC_GROUP), body, ANSWER_MS)

    def synced(self) -> SyncGroupResponse:
        """The answer to ``sync_later``."""
        told: SyncGroupResponse = self.answer()
        return told

    def sync(self, given: Mapping[str, bytes] | None = None, **changes: Any) -> SyncGroupResponse:
        """``sync_later`` and ``synced``."""
        self.sync_later(given, **changes)
        return self.synced()

    def sync_error(self, **changes: Any) -> int:
        """SyncGroup of a client that may never have joined, with its first protocol: its error."""
        named = {"protocol_type": self.protocol_type, "protocol_name": self.protocols[0][0]}
        return self.sync(**(named | changes)).error_code

    # --- Heartbeat, LeaveGroup, OffsetCommit ---

    def heartbeat(self, **changes: Any) -> int:
        """Heartbeat: its error.  It goes over the probe's own connection, so it may be sent while a request waits."""
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return self.probe.ask(HEARTBEAT, HeartbeatRequest(**(fields | changes))).error_code

    def leave(self, version: int | None = None) -> int:
        """LeaveGroup of this member: its error, wherever the version puts it."""
        told = self.leave_answer(version)
        if told.error_code == 0 and told.members:
            [one] = told.members
            return one.error_code
        return told.error_code

    def leave_answer(self, version: int | None = None) -> LeaveGroupResponse:
        """LeaveGroup of this member: the whole answer."""
        asked = self.probe.version(LEAVE_GROUP) if version is None else version
        if asked >= BATCHED_FROM:
            mine = LeavingMember(member_id=self.member_id, group_instance_id=self.instance)
            body = LeaveGroupRequest(group_id=self.group, members=[mine])
        else:
            body = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
        told: LeaveGroupResponse = self.probe.ask(LEAVE_GROUP, body, asked)
        return told

    def commit(self, offset: int, **changes: Any) -> int:
        """OffsetCommit of partition 0 as this member: the partition's error."""
        who = {"generation": self.generation, "member_id": self.member_id, "instance": self.instance}
        return self.probe.commit({0: offset}, group=self.group, **(who | changes))[0]

    # --- waiting ---

    def answer(self) -> Any:
        """The answer to what was sent last."""
        assert self._pending is not None, "something was sent"
        pending, self._pending = self._pending, None
        return self.connection.receive(pending, ANSWER_MS)

    def is_parked(self) -> bool:
        """Whether the answer stays away."""
        return not self.connection.has_response(STILL_MS)

    def disconnect(self) -> None:
        """Close the connection, as the end of a process does."""
        self.connection.close()
        self._connection = self._pending = None
