"""A group of members of several kinds on a real cluster, watched and judged: ``GroupLab``, ``CoordinatorGroupLab``."""

from zkconsumer.testing.lab.group_lab import ChangeTiming, GroupLab
from zkconsumer.testing.lab.modern_lab import CoordinatorGroupLab
from zkconsumer.testing.lab.observer import GroupObserver, ObservedOwnerNode

__all__ = ["ChangeTiming", "CoordinatorGroupLab", "GroupLab", "GroupObserver", "ObservedOwnerNode"]
