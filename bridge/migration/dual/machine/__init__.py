"""The state machine of a member in a ``dual`` migration: the control znode decides which membership is active.

    phase_rules.py           phase of the control znode -> rules: who assigns, which side is active, where a commit goes
    machine_messages.py      its events and commands
    migrating_member.py      what a new phase changes, and when the member acknowledges it
    side_arbiter.py          arbitrates between the two memberships and the partition processor
    migrating_partitions.py  the state of each partition, in one table
    store_positions.py       which store lacks offsets of the other, and which writes correct that
    acknowledgement.py       the phase that a member follows, for the tool that moves the group

All of it is pure.
"""
