"""A group of members of both kinds on a real cluster, watched and judged: see ``GroupLab``."""

from zkconsumer.testing.lab.group_lab import Change, GroupLab
from zkconsumer.testing.lab.observer import Observer, OwnerNode

__all__ = ["Change", "GroupLab", "Observer", "OwnerNode"]
