"""``CorruptEndSearch``: finds the end of a damage whose size or offsets are not known.  Pure.

    next_probe -> an offset --fetch--> record(is_readable=…) -> … -> end

The log after a damaged header can be read again from the first offset that the broker finds without passing the damage.
A broker looks for an offset from the last entry of its index on (each 4 KB by default), so a few sound entries after
the damage cannot be fetched either.

Each probe is one fetch.  The first ``ONE_BY_ONE_MAX`` offsets are probed one after the other: none that can be read is
passed over.  After them the distance doubles with each probe, and the last gap is halved, so that a range of any size
ends after a limited number of probes; readable offsets between two probes that both fail are then passed over, too.

Invariant: ``_bad`` cannot be read; ``_good`` can, or is the limit, which is not read; ``_bad < _good``.
"""

from __future__ import annotations

ONE_BY_ONE_MAX = 10_000
"""Seconds on a local network, and more records than a batch of a producer has."""


class CorruptEndSearch:
    """The search from the damaged offset ``first`` on; the end is at most ``limit``."""

    def __init__(self, first: int, limit: int) -> None:
        assert first < limit, "the damage is in the range"
        self._first = first
        self._bad = first
        self._good = limit
        self._stride = 1
        self._is_doubling = True
        """Whether no probe could be read: then ``_good`` is still the limit."""

    @property
    def next_probe(self) -> int | None:
        """The offset to fetch now; None: the end is known."""
        if self._good - self._bad <= 1:
            return None
        if self._is_doubling:
            return min(self._bad + self._stride, self._good - 1)
        return (self._bad + self._good) // 2

    @property
    def end(self) -> int:
        """The first offset after the damage."""
        assert self.next_probe is None, "the search has not ended"
        return self._good

    def record(self, *, is_readable: bool) -> None:
        """The result of the fetch at ``next_probe``."""
        probe = self.next_probe
        assert probe is not None, "nothing was asked"
        if is_readable:
            self._good = probe
            self._is_doubling = False
            return
        self._bad = probe
        if probe - self._first >= ONE_BY_ONE_MAX:
            self._stride *= 2
