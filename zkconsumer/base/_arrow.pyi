"""Arrow's PyCapsule interface (``_arrow.c``).  Internal: ``zkconsumer.kafka.record_batch`` uses it."""

from typing import Any

def capsules(node: tuple[Any, ...], /) -> tuple[Any, Any]:
    """The capsules of schema and array.  A node: (format, name, whether it may be null, length, how many are null,
    (bytes or None, ...), (node, ...))."""
