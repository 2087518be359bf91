"""``BrokerDirectory``: the brokers that are registered in ZooKeeper now, as addresses to connect to.

A broker that cannot be read, or that has no listener of our ``security.protocol``, is passed over and named once: the
others have partitions as well.  (The original knows PLAINTEXT only, and fails for all brokers when one is without.)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zkconsumer.errors import MalformedZnode, UnavailableError
from zkconsumer.zk import paths
from zkconsumer.zk.kafka_znodes import PLAINTEXT, parse_broker
from zkconsumer.zk.requests import ChildNames, Children, GetMany, NoNode, ZnodeData
from zkconsumer.zk.store import submit_and_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.types import BrokerAddress
    from zkconsumer.zk.store import ZkStore

log = logging.getLogger("zkconsumer.member")


class BrokerDirectory:
    """Looks ``/brokers/ids`` up, for any thread but the control thread: it waits for answers."""

    def __init__(
        self, store: ZkStore, timeout_ms: int, protocol: str = PLAINTEXT,
        *, on_registered: Callable[[str, int, int], object] = lambda host, port, version: None,
    ) -> None:  # fmt: skip
        """``on_registered`` is told host, port and the version of the registration, of each that is found."""
        self._store = store
        self._registered = on_registered
        self._protocol = protocol
        self._timeout_ms = timeout_ms
        self._logged: dict[int, str] = {}

    def brokers(self) -> list[BrokerAddress]:
        """All that can be connected to, in no order; empty when none is registered.

        Raises ``UnavailableError`` when ZooKeeper does not answer within the time-out, or with an error.
        """
        [listed] = submit_and_wait(self._store, [Children(paths.BROKER_IDS)], self._timeout_ms)
        if isinstance(listed, NoNode):
            return []
        if not isinstance(listed, ChildNames):
            raise UnavailableError(f"{paths.BROKER_IDS}: {listed}")
        numbers = [number for name in listed.names if (number := paths.partition_number(name)) is not None]
        if not numbers:
            return []
        wanted = tuple(paths.broker(number) for number in numbers)
        [nodes] = submit_and_wait(self._store, [GetMany(wanted)], self._timeout_ms)
        assert isinstance(nodes, list), "reading many gives a list"
        found = (
            self._address(number, node.data)
            for number, node in zip(numbers, nodes, strict=True)
            if isinstance(node, ZnodeData)
        )
        return [address for address in found if address is not None]

    def _address(self, number: int, data: bytes) -> BrokerAddress | None:
        try:
            broker = parse_broker(number, data)
        except MalformedZnode as error:
            if self._is_first_report(number, str(error)):
                log.warning("broker-registration-invalid broker=%d reason=%r", number, str(error))
            return None
        address = broker.address(self._protocol)
        if address is None:
            why = broker.missing_endpoint_message(self._protocol)
            if self._is_first_report(number, why):
                log.warning("broker-endpoint-missing broker=%d reason=%r", number, why)
        else:
            self._registered(address.host, address.port, broker.version)
            self._logged.pop(number, None)
        return address

    def _is_first_report(self, number: int, why: str) -> bool:
        """Whether this has not been said of the broker yet: they are looked up often while a leader is missing."""
        before, self._logged[number] = self._logged.get(number), why
        return before != why
