"""Triggers a rebalance of members that gave up at a fence, and checks that they read again.

A Scala consumer that has used up its four tries does nothing until a child of ``ids`` is created or deleted, not even
when the fence is lifted.  So one multi creates and deletes such a child: every member gets the event, and no member can
read the child.

A member whose ``createMessageStreams`` failed at a fence also acquires partitions after that, but its program does not
read the streams.  In ZooKeeper only its offsets, which do not change, show the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.control.control_znode import TRIES_MAX, ControlZnode, connection_lost_error
from bridge.migration.control.phases import Phase
from bridge.migration.fences.owner_nodes import format_partitions, read_owner_nodes
from bridge.migration.steps.step import CheckingStep, StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.admin_session import zk_error_name
from zkconsumer.admin.zookeeper_group import read_offsets
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.errors import UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import owner_text
from zkconsumer.zk.member_registration import Registration, format_registration
from zkconsumer.zk.requests import CreateOp, DeleteOp, MultiFailed, MultiOk, NoNode

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition

OFFSET_PROGRESS_TIMEOUT_MS = 90_000
"""Longer than the Scala consumer's commit interval (``auto.commit.interval.ms``), by default 60 s."""

OWNERSHIP_TIMEOUT_MS = 10_000
"""How long registered members have to acquire their first partitions: with the Scala consumer's default settings, a few
tries, 2 s apart.  After that, the members do not read the partitions without an owner."""

_PHASES = (Phase.UNDOING, Phase.RETURNED)


@dataclass(slots=True)
class TriggerRebalance:
    """Trigger a rebalance.  The step leaves no trace, so a repeated run triggers another one, which does no harm."""

    control_znode: ControlZnode
    _is_done: bool = False

    name = "trigger a rebalance of the old members"
    changes = True

    def describe(self) -> list[str]:
        return [f"create and delete a child of {paths.ids(self.control_znode.group)}, so that old members try again"]

    def check(self) -> StepStatus:
        held = self.control_znode.check_phase(*_PHASES, Phase.UNDONE)
        if isinstance(held, StepRefused):
            return held
        is_undone = held is not None and held.phase is Phase.UNDONE
        is_there = self.control_znode.session.get(paths.ids(self.control_znode.group)) is not None
        return StepDone() if self._is_done or is_undone or not is_there else StepPending()

    def do(self) -> None:
        path = paths.registration(self.control_znode.group, f"zkconsumer-nudge-{self.control_znode.migration_id}")
        # If a member read it, it would be a member that reads nothing: data that cannot be parsed stops the group.
        data = format_registration(Registration("static", {}, str(self.control_znode.session.clock.wall_ms())))
        for _ in range(TRIES_MAX):
            held = self.control_znode.require_phase(*_PHASES)
            answer = self.control_znode.transact(held, [CreateOp(path, data), DeleteOp(path)])
            if isinstance(answer, MultiFailed) and not isinstance(answer.error, NoNode):
                raise UnavailableError(f"no rebalance was triggered: {path}: {zk_error_name(answer.error)}")
            if isinstance(answer, MultiOk | MultiFailed):
                self._is_done = True
                return
        raise connection_lost_error(path)


@dataclass(slots=True)
class WaitForOffsetProgress(CheckingStep):
    """After the trigger: wait until the offset of every owned partition with unread records changes, or report it.

    While members are registered, the step first also waits for unowned partitions with unread records: the members
    acquire them a moment after the rebalance.

    ``ends``: the ends of the logs, if the caller has the brokers' answers.  ``report``: receives a sentence about the
    partitions whose offsets do not change; the migration is in order, and those members must be restarted.
    """

    control_znode: ControlZnode
    read_log_ends: Callable[[], Mapping[TopicPartition, int]]
    report: Callable[[str], None]
    timeout_ms: int = OFFSET_PROGRESS_TIMEOUT_MS
    _since_ms: int | None = None
    _before: dict[TopicPartition, int] = field(default_factory=dict)
    _has_reported: bool = False

    name = "the old members read again"

    def describe(self) -> list[str]:
        return ["check that the offsets of owned partitions change"]

    def check(self) -> StepStatus:
        session = self.control_znode.session
        nodes, _, _ = read_offsets(session, self.control_znode.group)
        versions = {tp: node.stat.version for tp, node in nodes.items()}
        if self._since_ms is None:
            self._since_ms, self._before = session.clock.now_ms(), versions
        owners = {
            tp: owner_text(node)
            for tp, node in sorted(read_owner_nodes(session, self.control_znode.group).items())
            if node.stat.ephemeral_owner
        }
        ends = self.read_log_ends()
        stored = {tp: node.offset or 0 for tp, node in nodes.items()}
        not_moved = [tp for tp in sorted(ends) if versions.get(tp) == self._before.get(tp)]
        unread = [tp for tp in not_moved if ends[tp] > stored.get(tp, 0)]
        without_progress = [tp for tp in unread if tp in owners]
        unclaimed = [tp for tp in unread if tp not in owners]
        waited_ms = session.clock.now_ms() - self._since_ms
        is_early = waited_ms < min(OWNERSHIP_TIMEOUT_MS, self.timeout_ms)
        if unclaimed and is_early and registered_members(session, self.control_znode.group):
            return StepWaiting(f"the registered members to acquire {format_partitions(unclaimed)}")
        left_ms = self.timeout_ms - waited_ms
        if without_progress and left_ms > 0:
            return StepWaiting(
                f"the offsets of {format_partitions(without_progress)} to change, at most {-(-left_ms // 1_000)} s"
            )
        if without_progress and not self._has_reported:
            self._has_reported = True
            whose = ", ".join(sorted({owners[tp] for tp in without_progress})[:5])
            self.report(
                f"the offsets of {format_partitions(without_progress)} do not change, though there are more records: "
                f"restart the members that own them ({whose}). Their streams ended at the fence and read nothing now"
            )
        return StepDone()
