"""Access to ZooKeeper: paths, znodes, the store and its watches.  Only this package imports kazoo."""
