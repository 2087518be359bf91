"""In a rollback before the switch: restores offset znodes that another client deleted after the fences were set.

Old tools delete ``/consumers/G`` as soon as nobody is registered; without the fence of access lists nothing stops them.
ZooKeeper has the authority then, and the plan is the only one that knows what it said.  It is done before a fence is
lifted, so that no old member begins somewhere else meanwhile.
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
    """Every offset znode that the plan saw is there.  What is there is left as it is, whoever wrote it.

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
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` when something stands in the way; the fences that are
        there stay.
        """
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
