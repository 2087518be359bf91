"""The ZooKeeper border: paths, znodes, the store and its watches.  The only importer of kazoo."""
