"""One member of a ZooKeeper group: pure state machines.  No I/O, no threads, no clock.

Each machine handles one *event* (name in the past tense) and returns *commands* (imperative names).
``member_state_machine`` combines the machines and is the only entry point.
"""
