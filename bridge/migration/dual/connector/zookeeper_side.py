"""ZooKeeper's side of a member of both worlds: a membership that tells what the control znode says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zkconsumer.member.partition_state_machine import PartitionState
from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership
from zkconsumer.zk.znode_formats import Authority, ControlRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.member import commands as do
    from zkconsumer.member.group_view import GroupControl as SeenControl
    from zkconsumer.types import TopicPartition

STATES_WITH_POSITION = (
    PartitionState.FETCHING,
    PartitionState.DRAINING,
    PartitionState.DRAINED,
    PartitionState.RELEASING,
)


class ZooKeeperSide(ZooKeeperMembership):
    """A ``ZooKeeperMembership`` that goes on wherever the authority is."""

    def __init__(
        self, *what: Any, on_control: Callable[[ControlRecord | None], None], on_share: Callable[[], None], **how: Any
    ) -> None:
        self._on_control = on_control
        self._on_assignment = on_share
        super().__init__(*what, **how)

    def control_changed(self, command: do.AnnounceControl) -> None:
        """See ``MembershipCallbacks``."""
        self._on_control(None if command.control is None else _to_znode_control(command.control))

    def assignment_complete(self, command: do.AnnounceAssignment) -> None:
        """See ``MembershipCallbacks``."""
        super().assignment_complete(command)
        self._on_assignment()

    def fail(self, error: ZkConsumerError) -> None:
        """The member ends."""
        self._end(error)

    @property
    def stored_offsets(self) -> dict[TopicPartition, int]:
        """What the offset znodes of our partitions hold, as we read or wrote them last; -1: nothing."""
        return {
            tp: p.stored.offset for tp, p in self.state_machine.partitions.items() if p.state in STATES_WITH_POSITION
        }

    def version_of(self, tp: TopicPartition, offset: int) -> int:
        """The version of the offset znode at which it held this; -1: it is not known to hold it."""
        held = self.state_machine.partitions.get(tp)
        return held.stored.version if held is not None and held.stored.offset == offset else -1

    @property
    def session_id(self) -> int | None:
        """The session that lives, as far as we know."""
        live = self.state_machine.session.live
        return None if live is None else live.session_id


def _to_znode_control(control: SeenControl) -> ControlRecord:
    authority: Authority = "zookeeper" if control.authority == "zookeeper" else "kafka"
    return ControlRecord(control.migration_id, control.epoch, control.phase, authority, control.strategy)
