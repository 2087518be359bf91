"""A member of a group of the coordinator, as ``AbstractCoordinator`` and ``ConsumerCoordinator`` of Kafka 3.0.  Pure.

``consumer_coordinator`` is the entry point: events in, commands out.  Its head names the parts.
"""
