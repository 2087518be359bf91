"""Receives large responses (``_sockets.c``).  Internal: ``zkconsumer.kafka.net.selector`` uses it."""

def receive(fd: int, wake_fd: int, wait_ms: int, buffer: memoryview, /) -> int:
    """Receive until the buffer is full, the connection ends, ``wait_ms`` are over, ``wake_fd`` has bytes, or a signal
    arrives.

    Returns how many bytes; 0: the connection has ended.  ``OSError`` as ``recv_into``, if nothing was received before.
    """
