"""Kafka's ZooKeeper-based high-level consumer."""
