"""What a keeper has besides its membership, and while it has none: a session that looks at the control znode, keeps
records of claims, and finds brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bridge.spark.claims import ClaimContext, OnRewind
from bridge.spark.claims.in_kafka import replay_claims
from bridge.spark.keeper.opening import LOOKUP_TIMEOUT_MS
from bridge.spark.keeper.running import run_blocking
from bridge.spark.keeper.watching import ControlSnapshot, ControlWatch
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.runtime.brokers import BrokerAccess
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.security import zk_security_of

if TYPE_CHECKING:
    from bridge.spark.keeper.opening import StoreFactory
    from bridge.spark.keeper.settings import MembershipProcessSettings
    from bridge.spark.membership import ClaimResult, RangeToClaim
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.connection import ConnectionFactory
    from zkconsumer.types import BrokerAddress, TopicPartition
    from zkconsumer.zk.store import ZkStore

CLOSE_MS = 1_500


class StandbySession:
    """``start`` first, ``close`` last."""

    def __init__(
        self,
        settings: MembershipProcessSettings,
        clock: Clock,
        make_store: StoreFactory | None,
        connect: ConnectionFactory | None,
        on_change: Callable[[], None],
    ) -> None:
        """Raises what the settings raise."""
        self._settings = settings
        self._clock = clock
        self._config = config = settings.config()
        self._security = zk_security_of(config)
        make = make_store or partial(KazooStore, security=self._security)
        self.store: ZkStore = make(config.zookeeper_connect, config.zookeeper_session_timeout_ms)
        self._brokers = BrokerAccess.from_config(config, self.store, LOOKUP_TIMEOUT_MS, clock, connect=connect)
        self._watch = ControlWatch(self.store, config.group_id, on_change)

    def start(self) -> None:
        """Connect; raises what ``ZkStore.start`` raises."""
        self.store.start(self._config.zookeeper_connection_timeout_ms)

    def close(self) -> bool:
        """End the session."""
        return self.store.close(CLOSE_MS)

    def read_control(self) -> ControlSnapshot:
        """See ``ControlWatch``."""
        return self._watch.read(LOOKUP_TIMEOUT_MS)

    def brokers(self) -> list[BrokerAddress]:
        """Where the brokers are now; raises ``UnavailableError``."""
        return list(self._brokers.find_brokers())

    def replay_claims(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> dict[TopicPartition, ClaimResult]:
        """What a batch may read while its query is no member: what it claimed before.

        Raises ``GroupMigratingError`` when that is not known before the move is over.
        """
        session_id = self.store.session_id
        if session_id is None:
            raise ZkTimeoutException("there is no session with ZooKeeper at the moment")
        by = ClaimContext(
            self._settings.group, query, self._settings.run, session_id, {}, None,
            OnRewind(self._settings.on_rewind), {}, self._security.acl, self._clock.wall_ms(),
        )  # fmt: skip
        return run_blocking(self.store, session_id, replay_claims(by, batch, ranges), until_ms, self._clock).result()
