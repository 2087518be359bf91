"""The ZooKeeper session that a membership process has beside its membership, and while it has none: it watches the
control znode, writes records of claims, finds brokers, and has the registration of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bridge.spark.claims import ClaimContext, OnRewind
from bridge.spark.claims.kafka_claims import replay_claims
from bridge.spark.membership.blocking_procedure import run_blocking
from bridge.spark.membership.control_watch import ControlSnapshot, ControlWatch
from bridge.spark.membership.zookeeper_setup import LOOKUP_TIMEOUT_MS
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.runtime.broker_access import BrokerAccess
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.zk_security import zk_security_of

if TYPE_CHECKING:
    from bridge.spark.group_membership import ClaimResult, RangeToClaim
    from bridge.spark.membership.process_settings import MembershipProcessSettings
    from bridge.spark.membership.zookeeper_setup import StoreFactory
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.types import BrokerAddress, TopicPartition
    from zkconsumer.zk.requests import Acl
    from zkconsumer.zk.store import ZkStore

CLOSE_MS = 1_500


class StandbySession:
    """Call ``start`` first and ``close`` last."""

    def __init__(
        self,
        settings: MembershipProcessSettings,
        clock: Clock,
        make_store: StoreFactory | None,
        connect: ConnectionFactory | None,
        on_change: Callable[[], None],
    ) -> None:
        """Raises the errors of the settings."""
        self._settings = settings
        self._clock = clock
        self._config = config = settings.config()
        self._security = zk_security_of(config)
        make = make_store or partial(KazooStore, security=self._security)
        self.store: ZkStore = make(config.zookeeper_connect, config.zookeeper_session_timeout_ms)
        self._brokers = BrokerAccess.from_config(config, self.store, LOOKUP_TIMEOUT_MS, clock, connect=connect)
        self._watch = ControlWatch(self.store, config.group_id, on_change)

    @property
    def acl(self) -> tuple[Acl, ...] | None:
        """For new znodes."""
        return self._security.acl

    def start(self) -> None:
        """Connect; raises the errors of ``ZkStore.start``."""
        self.store.start(self._config.zookeeper_connection_timeout_ms)

    def close(self) -> bool:
        """End the session."""
        return self.store.close(CLOSE_MS)

    def read_control(self) -> ControlSnapshot:
        """See ``ControlWatch``."""
        return self._watch.read(LOOKUP_TIMEOUT_MS)

    def brokers(self) -> list[BrokerAddress]:
        """The current addresses of the brokers; raises ``UnavailableError``."""
        return list(self._brokers.find_brokers())

    def replay_claims(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim], until_ms: int
    ) -> dict[TopicPartition, ClaimResult]:
        """The ranges that a batch may read while its query is no member: those that it claimed before.

        Raises ``GroupMigratingError`` when they are not known before the migration has ended.
        """
        session_id = self.store.session_id
        if session_id is None:
            raise ZkTimeoutException("there is no session with ZooKeeper at the moment; the call must be repeated")
        by = ClaimContext(
            self._settings.group, query, self._settings.run, session_id, {}, None,
            OnRewind(self._settings.on_rewind), {}, self._security.acl, self._clock.wall_ms(),
        )  # fmt: skip
        return run_blocking(self.store, session_id, replay_claims(by, batch, ranges), until_ms, self._clock).result()
