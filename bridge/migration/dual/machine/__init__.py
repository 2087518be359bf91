"""The member's side of a ``dual`` migration: a member of both worlds; the control znode says which of them counts.

    duty.py             phase of the control znode -> what a member does: who divides, who holds, where a commit goes
    values.py           what can happen to it, and what it wants done
    machine.py          what a new phase changes, and when it is acknowledged
    sides.py            between the two memberships and what works on the partitions
    works.py            what is worked on, and what of it comes to rest
    writes.py           which store is behind the other, and what brings it up
    acknowledgement.py  what a member says of where it stands, for whoever moves the group

All of it is pure.
"""
