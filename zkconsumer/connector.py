"""``ZookeeperConsumerConnector``: the high-level consumer of Kafka 0.8 to 1.1.

    with ZookeeperConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            handle(message)
            connector.commit_offsets()

It registers below ``/consumers/<group>/ids``, acquires its assigned partitions in a group that may also have Scala
consumers, fetches them from the brokers, and commits offsets to ZooKeeper, Kafka or both (``offsets.storage``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.config import SETTINGS, ConsumerConfig
from zkconsumer.connector_base import ConsumerConnector, Position, check_config, fetch_settings_of
from zkconsumer.errors import InvalidConfigException
from zkconsumer.runtime.broker_access import BrokerAccess
from zkconsumer.runtime.connector_member import ConnectorMember
from zkconsumer.runtime.health_snapshot import MemberHealthSource
from zkconsumer.runtime.membership_config import (
    assignment_planner_of,
    channel_settings_of,
    group_settings_of,
    make_consumer_id,
    offset_stores_of,
)
from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.zk_security import zk_security_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.types import Hooks
    from zkconsumer.zk.store import ZkStore

__all__ = ["Position", "ZookeeperConsumerConnector"]

COMMIT_TIMEOUT_MS = 10_000
"""How long a commit to ZooKeeper may take."""


class ZookeeperConsumerConnector(ConsumerConnector[ConnectorMember[ZooKeeperMembership]]):
    """A member of a ZooKeeper consumer group; a context manager.

    The constructor connects to ZooKeeper within ``zookeeper.connection.timeout.ms``: it raises ``ZkTimeoutException``
    (with the addresses) or ``ChrootMissing``.  It registers nothing before streams are created.  Leaving the ``with``
    block closes the connector: without an exception the unacknowledged records of the leaving thread count as
    consumed, with one they do not.

    ``oauth_token``, for ``sasl.mechanism=OAUTHBEARER``, returns a fresh token; threads of the connector call it for
    each login at a broker.  Certificates that cannot be read raise ``InvalidConfigException``.

    ``hooks`` are called for events of the member, on a separate thread: see ``zkconsumer.types.Hooks``.
    ``store``, ``connect`` and ``clock`` are for tests and for embedding: see ``zkconsumer.testing``.
    """

    CONNECTOR = "zookeeper"
    _INCOMPLETE_CLOSE_TEXT = (
        "ZooKeeper did not confirm all requests; remaining nodes of this member end with its session"
    )

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        store: Callable[[str, int], ZkStore] | None = None,
        connect: ConnectionFactory | None = None,
        clock: Clock = SYSTEM_CLOCK,
        oauth_token: Callable[[], str] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        check_config(config, type(self), ConsumerConfig)
        if "zookeeper.connect" not in config.given:
            raise InvalidConfigException(
                "zookeeper.connect is missing: this configuration is for a member of a coordinator group; create a "
                "ConsumerConfig for a member of a ZooKeeper group"
            )
        consumer_id = make_consumer_id(config.group_id, config.consumer_id, clock)
        paths.check_consumer_id(consumer_id)
        security = zk_security_of(config)
        make_store = store or partial(KazooStore, security=security)
        self.store = make_store(config.zookeeper_connect, config.zookeeper_session_timeout_ms)
        brokers = BrokerAccess.from_config(
            config, self.store, config.socket_timeout_ms, clock, connect=connect, oauth_token=oauth_token
        )
        member = ConnectorMember(
            consumer_id,
            config.group_id,
            fetch_settings_of(config),
            num_fetchers=config.num_consumer_fetchers,
            brokers=brokers,
            clock=clock,
            make_membership=lambda lease, meters: ZooKeeperMembership(
                config.group_id,
                group_settings_of(config, consumer_id),
                assignment_planner_of(config, consumer_id),
                client_id=config.client_id,
                socket_timeout_ms=config.socket_timeout_ms,
                store=self.store,
                brokers=brokers,
                clock=clock,
                lease=lease,
                meters=meters,
                security=security,
                coordinator_channel=channel_settings_of(config),
                hooks=hooks,
            ),
        )
        super().__init__(config, consumer_id, member, clock, {**config.ignored, **_coordinator_only_settings(config)})
        looker = MemberHealthSource(member, config.group_id, self._delivered_at_ms, clock)
        self._open(looker, config.zookeeper_connection_timeout_ms)

    @property
    def _commit_timeout_ms(self) -> int:
        if not offset_stores_of(self.config).uses_kafka:
            return COMMIT_TIMEOUT_MS
        # The lookup of the coordinator and the commit may each take that long.
        return COMMIT_TIMEOUT_MS + 3 * self.config.offsets_channel_socket_timeout_ms


def _coordinator_only_settings(config: ConsumerConfig) -> dict[str, str]:
    """The settings of coordinator groups in this configuration -> why they have no effect here."""
    why = "a setting of coordinator groups; this is a ZooKeeper group"
    return dict.fromkeys(sorted(config.given - SETTINGS.keys()), why)
