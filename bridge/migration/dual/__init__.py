"""The migrator's side of a ``dual`` migration: members go from one world to the other, and the tool tells when.

    steps.py      the way there: which phase is told when
    back.py       the ways back
    roster.py     who is registered, who acknowledged what, who is in the coordinator's group; who is waited for
    following.py  the steps that wait for members: they follow, they hold every partition
    comparing.py  both stores, compared by value while members commit
    unheld.py     what no member carries over: partitions that nobody reads, or that have no offset

The tool writes the control znode, fences where nobody claims, and what is in ``orphaned_partitions``; never what a
member holds.  The member's side is ``bridge.migration.dual.machine``.
"""
