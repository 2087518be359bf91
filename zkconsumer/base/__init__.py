"""The only makers of threads and the only readers of clocks."""
