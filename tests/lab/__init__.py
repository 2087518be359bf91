"""A group of members of several kinds on a real cluster, watched and judged: ``GroupLab``, ``CoordinatorGroupLab``.

Each member is a process that imports a program of this package, so nothing is imported here.
"""
