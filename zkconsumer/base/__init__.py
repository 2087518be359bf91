"""Basic services: threads, clocks, delivery state, host names.  Only this package creates threads and reads clocks."""
