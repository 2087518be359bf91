"""An embedded broker for development and tests: one process, Kafka's protocol, segment files or memory.

Its groups are those of ``bridge.coordinator``.  It keeps no replica and is no broker for production.
"""
