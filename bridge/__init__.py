"""The modern side of the same groups: what knows the group coordinator.

Imports zkconsumer, never the other way round.
"""
