"""``MigratingConsumerConnector``: a member of a group that can be moved without a stop.

    with MigratingConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            handle(message)
            connector.commit_offsets()

The same streams, offsets, listener and metrics as ``ZookeeperConsumerConnector``, and the same member of the same
group, until the group migrates (``zkconsumer migrate … --strategy dual``).  Then it joins the coordinator group as
well, and changes to it together with all other members, without losing the records in its queues.

This file has the public class and the check of its settings; everything that changes is in ``migrating_membership``.
The parts are built in this order: the settings of both groups are checked before anything is opened, then the store and
the brokers, then the membership.  A constructor that raises leaves no thread (``ConsumerConnector._open``,
``test_without_zookeeper_it_is_not_created_and_nothing_runs_on``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bridge.client.coordinator_connector import COMMIT_GRACE_MS, group_config_of
from bridge.client.coordinator_from_config import membership_settings_of, stream_assignor_of
from bridge.migration.dual.connector.migrating_membership import MigratingMembership
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import COMMIT_TIMEOUT_MS
from zkconsumer.connector_base import ConsumerConnector, check_config, fetch_settings_of
from zkconsumer.errors import InvalidConfigException
from zkconsumer.runtime.broker_access import BrokerAccess
from zkconsumer.runtime.connector_member import ConnectorMember
from zkconsumer.runtime.health_snapshot import MemberHealthSource
from zkconsumer.runtime.membership_config import (
    assignment_planner_of,
    group_settings_of,
    make_consumer_id,
    offset_stores_of,
)
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.zk_security import zk_security_of

if TYPE_CHECKING:
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.types import Hooks
    from zkconsumer.zk.store import ZkStore

GROUP_SERVICES = "ZooKeeper, or the group's coordinator"
"""Part of the health answer: which servers a member that has no lease should be able to reach."""

log = logging.getLogger("zkconsumer.connector")


class MigratingConsumerConnector(ConsumerConnector[ConnectorMember[MigratingMembership]]):
    """A member of a ZooKeeper group, and of the coordinator group of the same name when the group migrates there.

    ``config`` is that of the Scala consumer, or a ``CoordinatorConsumerConfig``, which also has the settings of the
    coordinator group.  It must contain ``bootstrap.servers`` besides ``zookeeper.connect``, because the member finds
    the coordinator there; ``offsets.storage`` must be ``zookeeper``, which is the default.  ``group``: settings of the
    coordinator group with Kafka's keys, as for ``CoordinatorConsumerConnector``.

    The constructor connects to ZooKeeper and raises the errors of ``ZookeeperConsumerConnector``, or
    ``InvalidConfigException``.  The member connects to the coordinator when a migration is armed.  While the ZooKeeper
    side is active, an error of the coordinator group stops nothing: it is logged and counted
    (``coordinator_side_ended`` if an operator must act), and the member tries again.  While the coordinator side is
    active, an unavailable ZooKeeper stops nothing; an error that ends the member there ends its streams, because the
    member could not move back with the group.

    A control znode of a later release, or of a migration with strategy ``copy`` that has given Kafka the authority,
    ends every stream with ``MigrationError``.
    """

    CONNECTOR = "migrating"
    _INCOMPLETE_CLOSE_TEXT = (
        "ZooKeeper, or the group's coordinator, did not confirm everything; what is left ends with the session"
    )

    def __init__(
        self,
        config: ConsumerConfig,
        group: Mapping[str, object] | None = None,
        *,
        store: Callable[[str, int], ZkStore] | None = None,
        connect: ConnectionFactory | None = None,
        clock: Clock = SYSTEM_CLOCK,
        oauth_token: Callable[[], str] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        check_config(config, type(self), ConsumerConfig)
        _check_config(config)
        self.group_config = group_config_of(config, group or {})
        consumer_id = make_consumer_id(config.group_id, config.consumer_id, clock)
        paths.check_consumer_id(consumer_id)
        security = zk_security_of(config)
        make_store = store or partial(KazooStore, security=security)
        self.store = make_store(config.zookeeper_connect, config.zookeeper_session_timeout_ms)
        brokers = BrokerAccess.from_config(
            config, self.store, config.socket_timeout_ms, clock, connect=connect, oauth_token=oauth_token
        )
        coordinator_settings = (
            self.group_config,
            membership_settings_of(config, consumer_id),
            stream_assignor_of(config, consumer_id),
        )
        member = ConnectorMember(
            consumer_id,
            config.group_id,
            fetch_settings_of(config),
            num_fetchers=config.num_consumer_fetchers,
            brokers=brokers,
            clock=clock,
            make_membership=lambda lease, meters: MigratingMembership(
                config.group_id,
                replace(group_settings_of(config, consumer_id), follows_control_znode=True),
                assignment_planner_of(config, consumer_id),
                coordinator_settings,
                store=self.store, brokers=brokers, clock=clock, lease=lease, meters=meters, security=security,
                hooks=hooks,
            ),
        )  # fmt: skip
        super().__init__(config, consumer_id, member, clock)
        looker = MemberHealthSource(member, config.group_id, self._delivered_at_ms, clock, GROUP_SERVICES)
        self._open(looker, config.zookeeper_connection_timeout_ms)

    @property
    def _commit_timeout_ms(self) -> int:
        """The sum, because a commit may go to both stores, one after the other."""
        return COMMIT_TIMEOUT_MS + self.group_config.default_api_timeout_ms + COMMIT_GRACE_MS

    @property
    def member_phase(self) -> str:
        """The phase that this member follows: ``alone``, ``joined``, ``locked``, ``copied``, ``switched``,
        ``completed``, ``returning`` or ``returned`` (``migration_docs/how-to/run-a-migrating-member.md``).

        It follows the control znode at once; the tool reads the acknowledgement, which may come later.
        """
        return self._member.membership.member_phase.value

    @property
    def generation(self) -> int:
        """The generation of the coordinator group in which this member is; -1 while it is in none."""
        return self._member.membership.generation


def _check_config(config: ConsumerConfig) -> None:
    """Raise ``InvalidConfigException`` for settings with which a group could not migrate.

    Both addresses must be given; a default does not count.  Offsets must be in ZooKeeper until the migration, because
    the phases before ``switched`` commit there under the owner node.
    """
    missing = [key for key in ("zookeeper.connect", "bootstrap.servers") if key not in config.given]
    if missing:
        raise InvalidConfigException(
            f"{' and '.join(missing)} must be set: a member that can be moved is in ZooKeeper's group, and finds the "
            "coordinator's at bootstrap.servers"
        )
    if offset_stores_of(config).uses_kafka:
        raise InvalidConfigException(
            "offsets.storage=kafka: a group that is moved without a stop keeps its offsets in ZooKeeper until then; "
            "leave the key out, or move the group by copying"
        )
