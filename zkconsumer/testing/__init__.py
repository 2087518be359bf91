"""For tests, yours included: in-memory ZooKeeper and broker, a manual clock, real local clusters, the checker."""
