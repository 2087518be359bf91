"""In a rollback before the switch: restores offset znodes that another client deleted after the fences were set.

Old tools delete ``/consumers/G`` as soon as no member is registered; without the access list fence nothing prevents it.
ZooKeeper has the authority then, and only the plan still contains the offsets.  The step runs before a fence is
removed, so that no old member starts at another offset meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.errors import PartiallyDoneError
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES
from bridge.migration.steps.step import StepDone, StepPending, StepStatus
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION, OffsetWrite
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.migration.inspect.group_snapshot import PartitionSnapshot
    from bridge.migration.offsets.offset_copy_steps import OffsetStores
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Acl


@dataclass(frozen=True, slots=True)
class RestoreDeletedOffsets:
    """Every offset znode in the plan exists.  Existing ones are not changed, whichever client wrote them.

    ``acl``: the access list of the fence; None: open to the world.
    """

    stores: OffsetStores
    planned: Mapping[TopicPartition, PartitionSnapshot]
    acl: tuple[Acl, ...] | None = None

    name = "restore deleted offsets"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        group = self.stores.group
        return [f"create {count_text(len(self._missing()), 'znode')} below {paths.offsets(group)}, as in the plan"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        return StepPending() if self.stores.is_in_phase(*COPY_PHASES) and self._missing() else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` when a write fails; the existing fences remain."""
        authority = self.stores.control_znode
        stopped_by = authority.write_offsets(authority.require_phase(*COPY_PHASES), self._missing(), self.acl)
        if stopped_by:
            raise PartiallyDoneError(
                f"only a part of the deleted offsets of group {authority.group} is restored: {stopped_by}. "
                "Remove the cause, then run the same command again"
            )

    def _missing(self) -> list[OffsetWrite]:
        there = self.stores.read_zookeeper()
        return [
            OffsetWrite(tp, one.stored, NO_ZNODE_VERSION)
            for tp, one in sorted(self.planned.items())
            if one.stored is not None and tp not in there
        ]
