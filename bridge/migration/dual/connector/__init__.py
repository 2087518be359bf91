"""A member that can be moved without a stop: ``MigratingConsumerConnector``, and what it is put together from.

connector.py         the public class; settings
membership.py        both memberships around the machine (``bridge.migration.dual.machine``), which decides
zookeeper_side.py    the one in ZooKeeper: its control thread is the machine's
coordinator_side.py  the one at the coordinator: another control thread
readings.py          what is committed of a partition, asked until it is told
holders.py           what both take for their holder, and the streams for their inbox
commits.py           the program's commits: which stores, and which first
lease.py gates.py    what the streams, the listener, hooks and metrics see: the side that holds
znodes.py            the acknowledgement and the mirror; ``procedures.py`` has their packets
private.py           the protocol that keeps stock clients out          pure
keeping.py           from that one to ``range``, and nothing is stopped  pure
"""
