"""``BrokerDirectory``: the brokers that are registered in ZooKeeper now, as addresses to connect to.

A broker whose registration cannot be read, or without a listener of our ``security.protocol``, is skipped and logged
once, because the other brokers have partitions, too.  (The Scala consumer supports only PLAINTEXT, and fails for all
brokers when one has no such listener.)
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
    """Reads ``/brokers/ids``; not on the control thread, because it waits for answers."""

    def __init__(
        self, store: ZkStore, timeout_ms: int, protocol: str = PLAINTEXT,
        *, on_registered: Callable[[str, int, int], object] = lambda host, port, version: None,
    ) -> None:  # fmt: skip
        """``on_registered`` is called with host, port and registration version of each broker."""
        self._store = store
        self._registered = on_registered
        self._protocol = protocol
        self._timeout_ms = timeout_ms
        self._logged: dict[int, str] = {}

    def brokers(self) -> list[BrokerAddress]:
        """All brokers with a usable listener, in no order; empty when none is registered.

        Raises ``UnavailableError`` when ZooKeeper does not answer within the timeout, or with an error.
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
        assert isinstance(nodes, list), "GetMany returns a list"
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
        """Whether this was not logged for the broker yet: brokers are read often while a leader is missing."""
        before, self._logged[number] = self._logged.get(number), why
        return before != why
