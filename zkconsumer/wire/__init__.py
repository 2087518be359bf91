"""Kafka's protocol: bytes to values and back.  Pure."""
