"""The one hash of Java that other members compute too.  Pure.

The Scala consumer hashes topic names to choose a fetcher thread and to assign partitions (``roundrobin``); a
member with another hash would compute another assignment than its group.
"""

from __future__ import annotations


def java_hash(s: str) -> int:
    """``String.hashCode`` of ``s`` as Java computes it: over UTF-16 code units, as a signed 32-bit integer.

    A character outside the basic plane counts as its two surrogates, and a lone surrogate (which a Java string may
    hold) as itself.  The same in every release of Java and of Kafka.
    """
    units = s.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    return hashed - 0x1_0000_0000 if hashed & 0x8000_0000 else hashed
