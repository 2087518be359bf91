"""The membership process: the process that is a Spark query's member of its group.

    process_client.py      in the query's process: starts the membership process, sends requests, restarts it when
                           killed
    process_settings.py    the settings that the process receives once, over its pipe
    pipe_messages.py       the messages between both: JSON, one object a line, parsed strictly
    membership_process.py  the process: reads requests, answers, and leaves the group when the query has ended
    query_membership.py    the calls of the query while the group migrates
    membership_switcher.py moves the membership to the store that has the authority
    membership_target.py   control znode -> the group in which the membership must be; pure
    control_watch.py       reads and watches the control znode
    standby_session.py     the ZooKeeper session that stays open without a membership
    pipeline_registration.py  one pipeline at a time in a group
    batch_membership.py    what each call does, in either group
    zookeeper_batch_membership.py    ... in a ZooKeeper group; zookeeper_setup.py: how the process joins it
    coordinator_batch_membership.py  ... in a coordinator group; coordinator_setup.py: how the process joins it
    batch_leases.py        which partitions a batch leases, and which can be released; pure
    batch_lease_processor.py  the same, as the ``PartitionProcessor`` of a membership
    exclusive_takeover.py  ``consumer.threads=all``
    metrics.py             counters, and their text for Prometheus

The membership has its own process because Spark kills a query's Python process without notice when the query ends: the
owner nodes of a session that is not closed would block the whole group until the session expires.
"""
