"""What the command line's tools do to a group, without being a member of it.

    session      a ZooKeeper session that makes no ephemeral node, and connections to brokers when they are needed
    brokers      who leads what, and one negotiated connection a broker
    groups       a whole group as values: members, owners, offsets, fences
    listing      every group, a line each, in bounded memory
    log_ranges   where logs begin, end, and reach a time
    stores       offsets in ZooKeeper, written under conditions
"""
