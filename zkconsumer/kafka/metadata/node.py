"""``Node``: a broker as the Metadata response names it, as ``org.apache.kafka.common.Node``.  Pure."""

from __future__ import annotations

from typing import NamedTuple


class Node(NamedTuple):
    """A broker.  ``id`` is negative for a bootstrap address, whose id is not known yet.  ``rack`` None: it has none."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether this is ``NO_NODE``."""
        return not self.host

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


NO_NODE = Node(-1, "", -1)
"""The value that means "no broker" (Java's ``Node.noNode()``)."""
