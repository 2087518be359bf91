"""Python's search for garbage in cycles, for whoever holds a great many values at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

GC_THRESHOLD = 100_000
"""Between two searches; Python's own number is 700."""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """For a command on a large group: half of its processor time went into searches that found nothing.

    Each search of the old generation goes through everything that is held, and a hundred thousand offsets are a million
    objects, none of which is in a cycle.  The whole process is meant, so this is for programs, not for libraries.
    """
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
