"""A group of members of several kinds on a real cluster, watched and judged: ``GroupLab``, ``ModernLab``."""

from zkconsumer.testing.lab.group_lab import Change, GroupLab
from zkconsumer.testing.lab.modern_lab import ModernLab
from zkconsumer.testing.lab.observer import Observer, OwnerNode

__all__ = ["Change", "GroupLab", "ModernLab", "Observer", "OwnerNode"]
