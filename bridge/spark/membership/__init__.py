"""The process that holds a Spark query's membership in its group.

    client.py     in the query's process: starts the keeper, asks, starts another when it was killed
    settings.py   what a keeper is told once, over its pipe
    messages.py   what both say to each other: JSON, a line each, read strictly
    process.py    in the keeper: reads calls, answers, and leaves the group when the query is gone
    following.py  what each call does while the group moves
    whereabouts.py  which side has the authority, and the way from one to the other
    place.py      the control znode -> where the membership is to be; pure
    watching.py   looks at the control znode
    absent.py     what there is while there is no membership
    side.py       what each call does, in either group
    service.py    ... in a group in ZooKeeper; opening.py: how it is joined
    in_kafka.py   ... in a group of Kafka's coordinator; opening_in_kafka.py: how it is joined
    lending.py    which partition is with which batch, and what may be given back; pure
    holder.py     the same, as the ``PartitionProcessor`` of a membership
    takeover.py   ``consumer.threads=all``
    metrics.py    what it counts, as text for Prometheus

A process of its own, because a query's Python process is killed without a word when the query ends: the owner nodes
of a session that nobody closes would stand in the way of the whole group until it expires.
"""
