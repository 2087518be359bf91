"""For your tests and ours: in-memory ZooKeeper and brokers, a manual clock, real local clusters, the checker."""
