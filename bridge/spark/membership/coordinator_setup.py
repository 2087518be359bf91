"""Joins a coordinator group, for a query whose group has migrated there."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from bridge.client.assignors import ASSIGNORS, RangeAssignor
from bridge.client.coordinator_from_config import membership_settings_of, stream_assignor_of
from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.migration.dual.connector.migration_assignor import MigrationAssignor
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from bridge.migration.dual.machine.phase_rules import MIGRATION_PROTOCOL
from bridge.migration.dual.non_acknowledging_members import non_acknowledging_name
from bridge.spark.group_membership import CommitMode
from bridge.spark.membership.batch_lease_processor import BatchLeaseProcessor
from bridge.spark.membership.batch_leases import BatchLeases
from bridge.spark.membership.metrics import BatchMembershipMeters
from bridge.spark.membership.zookeeper_setup import LOOKUP_TIMEOUT_MS, CountingHooks
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import InternalError, UnavailableError, UsageError
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.runtime.broker_access import BrokerAccess
from zkconsumer.zk.zk_security import ZkSecurity, zk_security_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.spark.membership.process_settings import MembershipProcessSettings
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor
    from zkconsumer.types import BrokerAddress
    from zkconsumer.zk.group_procedures import Procedure
    from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

SESSION_TIMEOUT_MS = 10_000
"""Every release of the broker accepts this value (0.9: 30 s at most).  It is short, since the group waits so long for a
machine that has failed."""

HEARTBEAT_MS = 1_000
"""How soon a query learns that others wait for partitions."""

COORDINATOR_EPOCH_BASE = 1 << 62
"""Epochs from this number on are from a coordinator; ZooKeeper's transaction ids do not reach it."""

_GENERATION_BITS = 32
_LIFE_BITS = 29


@dataclass(frozen=True, slots=True)
class MigrationProtocols:
    """The ``protocols`` that a migration uses, offered by the query with this consumer id."""

    migration_id: str
    consumer: str
    protocols: tuple[str, ...]

    def assignors(self) -> list[ConsumerPartitionAssignor]:
        """The assignors of the protocols."""
        private = MigrationAssignor(self.migration_id, non_acknowledging_name(self.consumer))
        return [private if protocol == MIGRATION_PROTOCOL else RangeAssignor() for protocol in self.protocols]


class CoordinatorBatchLeaseProcessor(BatchLeaseProcessor):
    """A coordinator restarts generations at 1 when it has forgotten a group, and an earlier run of a query may have had
    the same generation.  So an epoch also identifies the run of this membership."""

    def __init__(self, lending: BatchLeases, lease: Lease, membership: CoordinatorMembership) -> None:
        super().__init__(lending, lease, membership.event_loop)
        life = uuid.uuid4().int % (1 << _LIFE_BITS)
        self._base = COORDINATOR_EPOCH_BASE | life << _GENERATION_BITS

    def _epoch_of(self, epoch: int) -> int:
        return self._base | epoch % (1 << _GENERATION_BITS)


class CoordinatorMembershipSetup:
    """One query's membership with its resources.

    ``store``: a session that is used only for records of claims.  ``protocols``: those of the migrating members; None
    where the query offers the configured ones.
    """

    def __init__(
        self,
        settings: MembershipProcessSettings,
        store: ZkStore,
        clock: Clock,
        connect: ConnectionFactory | None = None,
        protocols: MigrationProtocols | None = None,
    ) -> None:
        """Raises ``UsageError`` when the addresses of the brokers are not known, and the errors of the settings."""
        self.settings = settings
        self.config = with_bootstrap_servers(settings.config(), store, clock, connect)
        self.group = self.config.group_id
        self.store = store
        self.security: ZkSecurity = zk_security_of(self.config)
        self.is_started = False
        self.lease = Lease(clock)
        self.meters = BatchMembershipMeters(clock, lambda: self.processor.notify(), lambda: self.processor.assignment)
        self._brokers = BrokerAccess.from_config(self.config, None, LOOKUP_TIMEOUT_MS, clock, connect=connect)
        config, is_after_batch, counting = self.config, settings.mode is CommitMode.AFTER_BATCH, CountingHooks()
        self.offered_protocols = protocols
        self.membership = CoordinatorMembership(
            GroupMemberConfig(
                {
                    "group.id": self.group,
                    "session.timeout.ms": SESSION_TIMEOUT_MS,
                    "heartbeat.interval.ms": HEARTBEAT_MS,
                    "enable.auto.commit": is_after_batch,
                    "auto.commit.interval.ms": config.auto_commit_interval_ms,
                }
            ),
            [ASSIGNORS[config.partition_assignment_strategy]()] if protocols is None else protocols.assignors(),
            membership_settings_of(config, settings.consumer_id),
            stream_assignor_of(config, settings.consumer_id),
            brokers=self._brokers,
            clock=clock,
            lease=self.lease,
            meters=self.meters,
            hooks=counting,
            # The members migrated with their group: they use the migration assignor first, then ``range``.
            machine_class=ConsumerCoordinator if protocols is None else DowngradingConsumerCoordinator,
        )
        self.counters = counting.counters = self.membership.counters
        self.processor = CoordinatorBatchLeaseProcessor(
            BatchLeases(waits_for_batch=is_after_batch), self.lease, self.membership
        )
        self.membership.attach_processor(self.processor)

    def join(self, pause: Callable[[int], bool]) -> None:
        """Connect and become a member with one thread, since a coordinator counts members, not threads.

        Raises ``BrokerUnreachable``, an ``AuthenticationException``, ``UnsupportedVersionException``.
        """
        self.membership.start(self.config.zookeeper_connection_timeout_ms)
        self.is_started = True
        self.membership.join(replace(self.settings, topic_threads={}).subscription(1))

    def update_protocols(self, protocols: MigrationProtocols) -> None:
        """The group may use these protocols from now on."""
        self.offered_protocols = protocols
        self.membership.offer_assignors(protocols.assignors())

    def brokers(self) -> list[BrokerAddress]:
        """The current addresses of the brokers; raises ``UnavailableError``."""
        return list(self._brokers.find_brokers())

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """This membership has no nodes in ZooKeeper: ``CoordinatorBatchMembership`` runs its procedures itself."""
        raise InternalError("a coordinator group has no procedures")


def with_bootstrap_servers(
    config: ConsumerConfig, store: ZkStore, clock: Clock, connect: ConnectionFactory | None
) -> ConsumerConfig:
    """The configuration with ``bootstrap.servers``: as given, or the brokers that are registered in ZooKeeper.

    Raises ``UsageError`` when neither names a broker, ``InvalidConfigException`` for settings that became invalid
    since.
    """
    if config.bootstrap_servers is not None:
        return config
    try:
        found = BrokerAccess.from_config(config, store, LOOKUP_TIMEOUT_MS, clock, connect=connect).find_brokers()
        why = ""
    except UnavailableError as error:
        found, why = [], f" ({error})"
    if not found:
        raise UsageError(
            f"group {config.group_id} has migrated to Kafka's coordinator, and ZooKeeper has no broker with an "
            f"endpoint for security.protocol={config.security_protocol}{why}: set kafka.bootstrap.servers for the "
            "query, and start it again; it continues from its checkpoint"
        )
    servers = ",".join(f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}" for one in found)
    given = {key: config.values[key] for key in config.given}
    return ConsumerConfig.from_properties({**given, "bootstrap.servers": servers})
