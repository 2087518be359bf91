"""A group of members of several kinds on a real cluster, watched and judged: ``GroupLab``, ``CoordinatorGroupLab``."""

from tests.lab.coordinator_lab import CoordinatorGroupLab
from tests.lab.group_lab import ChangeTiming, GroupLab
from tests.lab.group_observer import GroupObserver, ObservedOwnerNode

__all__ = ["ChangeTiming", "CoordinatorGroupLab", "GroupLab", "GroupObserver", "ObservedOwnerNode"]
