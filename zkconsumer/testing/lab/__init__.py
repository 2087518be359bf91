"""A group of members of several kinds on a real cluster, watched and judged: ``GroupLab``, ``CoordinatorGroupLab``."""

from zkconsumer.testing.lab.coordinator_lab import CoordinatorGroupLab
from zkconsumer.testing.lab.group_lab import ChangeTiming, GroupLab
from zkconsumer.testing.lab.group_observer import GroupObserver, ObservedOwnerNode

__all__ = ["ChangeTiming", "CoordinatorGroupLab", "GroupLab", "GroupObserver", "ObservedOwnerNode"]
