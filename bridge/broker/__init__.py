"""An embedded broker for development and tests: one process, Kafka's protocol, segment files or memory.

Its groups are implemented in ``bridge.coordinator``.  It has no replication and is not for production.
"""
