"""``CoordinatorConsumerConnector``: the Scala consumer's high-level API for a coordinator group.

    with CoordinatorConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            handle(message)
            connector.commit_offsets()

It has the same streams, offsets, listener and metrics as ``ZookeeperConsumerConnector``, on the same fetchers; only the
assignment is made differently.  Its group may have members of any client that uses a coordinator (0.9 and later).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bridge.client.config import SCALA_CONSUMER_KEYS, CoordinatorConsumerConfig
from bridge.client.coordinator_from_config import assignors_of, membership_settings_of, stream_assignor_of
from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.client.supported_settings import settings_without_effect
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.config import SETTINGS as OLD_SETTINGS
from zkconsumer.config_def import SettingStatus
from zkconsumer.connector_base import ConsumerConnector, check_config, fetch_settings_of
from zkconsumer.errors import InvalidConfigException
from zkconsumer.kafka.group.group_member_config import MEMBER_SETTINGS, GroupMemberConfig
from zkconsumer.runtime.broker_access import BrokerAccess
from zkconsumer.runtime.connector_member import ConnectorMember
from zkconsumer.runtime.health_snapshot import MemberHealthSource
from zkconsumer.runtime.membership_config import make_consumer_id
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor
    from zkconsumer.types import Hooks

log = logging.getLogger("zkconsumer.connector")

COORDINATOR = "the group's coordinator"
COMMIT_GRACE_MS = 1_000
"""In addition to ``default.api.timeout.ms``, which limits a commit in the state machine."""


class CoordinatorConsumerConnector(ConsumerConnector[ConnectorMember[CoordinatorMembership]]):
    """A member of a coordinator group; a context manager.

    ``config`` is a ``CoordinatorConsumerConfig``, which reads files of Java consumers and needs no
    ``zookeeper.connect``, or the Scala consumer's ``ConsumerConfig``; ``bootstrap.servers`` is required, and ZooKeeper
    is not used.  Each setting without effect here causes a warning
    (``migration_docs/reference/coordinator-config.md``).
    ``group`` has settings of the group under Kafka's own keys (``session.timeout.ms``, ``group.instance.id`` …), those
    that are not in ``config``.  ``assignors``: how the group is assigned, in order of preference; without it, those
    that ``partition.assignment.strategy`` names.  All members must have one in common.

    The constructor connects to one broker, within ``zookeeper.connection.timeout.ms``.  It raises
    ``BrokerUnreachable``, an ``AuthenticationException``, ``UnsupportedVersionException`` (a broker before 0.9 does not
    support group members), or ``InvalidConfigException``.  The member joins the group when
    streams are created.  An error that ends the member later (an ACL, members without a common assignor, another
    process with this ``group.instance.id``) ends every stream with an error text that names who must act.

    A rebalance listener receives only this member's own partitions: those of other members are not known here.
    """

    CONNECTOR = "coordinator"
    _INCOMPLETE_CLOSE_TEXT = (
        "the group's coordinator did not confirm the close; it removes the member after its session timeout"
    )

    def __init__(
        self,
        config: ConsumerConfig,
        group: Mapping[str, object] | None = None,
        *,
        assignors: Sequence[ConsumerPartitionAssignor] | None = None,
        connect: ConnectionFactory | None = None,
        clock: Clock = SYSTEM_CLOCK,
        oauth_token: Callable[[], str] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        check_config(config, type(self), CoordinatorConsumerConfig)
        self.group_config = group_config_of(config, group or {})
        consumer_id = make_consumer_id(config.group_id, config.consumer_id, clock)
        paths.check_consumer_id(consumer_id)
        chosen = assignors or assignors_of(config)
        brokers = BrokerAccess.from_config(
            config, None, config.socket_timeout_ms, clock, connect=connect, oauth_token=oauth_token
        )
        member = ConnectorMember(
            consumer_id,
            config.group_id,
            fetch_settings_of(config),
            num_fetchers=config.num_consumer_fetchers,
            brokers=brokers,
            clock=clock,
            make_membership=lambda lease, meters: CoordinatorMembership(
                self.group_config,
                chosen,
                membership_settings_of(config, consumer_id),
                stream_assignor_of(config, consumer_id),
                brokers=brokers,
                clock=clock,
                lease=lease,
                meters=meters,
                hooks=hooks,
            ),
        )
        super().__init__(config, consumer_id, member, clock, settings_without_effect(config))

        looker = MemberHealthSource(member, config.group_id, self._delivered_at_ms, clock, COORDINATOR)
        self._open(looker, config.zookeeper_connection_timeout_ms)

    @property
    def _commit_timeout_ms(self) -> int:
        return self.group_config.default_api_timeout_ms + COMMIT_GRACE_MS

    @property
    def generation(self) -> int:
        """The current generation of this member; -1 without one."""
        return self._member.membership.generation_id


def group_config_of(config: ConsumerConfig, group: Mapping[str, object]) -> GroupMemberConfig:
    """The group's settings: those in ``config``, those in ``group``, and those that the Scala consumer's settings
    imply.

    Raises ``InvalidConfigException`` for an unknown key, for a key with different values in both, and for a key that
    must be set in ``config``; and for a ``ConsumerConfig`` of a file with keys that only a
    ``CoordinatorConsumerConfig`` reads.
    """
    twice = sorted(SCALA_CONSUMER_KEYS.keys() & group.keys())
    if twice:
        raise InvalidConfigException(
            f"{', '.join(twice)}: remove it from the group's settings, because the configuration sets it already "
            f"({', '.join(SCALA_CONSUMER_KEYS.values())})"
        )
    if unread := _unread(config):
        raise InvalidConfigException(
            f"{', '.join(unread)}: ConsumerConfig has ignored keys that a member of a coordinator group needs; create "
            "a bridge.CoordinatorConsumerConfig from the same file, or remove these keys"
        )
    own = {key: config.values[key] for key in MEMBER_SETTINGS if key in config.given}
    made = GroupMemberConfig({**own, **group, **{key: config.values[old] for key, old in SCALA_CONSUMER_KEYS.items()}})
    differing = [f"{key} ({value} and {made.values[key]})" for key, value in own.items() if made.values[key] != value]
    if differing:
        raise InvalidConfigException(
            f"{', '.join(differing)}: the configuration and the group's settings differ; remove it from one of them"
        )
    return made


def _unread(config: ConsumerConfig) -> list[str]:
    """Ignored keys that would have an effect in a ``CoordinatorConsumerConfig``, or be an error there."""
    if isinstance(config, CoordinatorConsumerConfig):
        return []
    foreign = config.ignored.keys() - OLD_SETTINGS.keys()
    return sorted(
        key for key in foreign if CoordinatorConsumerConfig.outcome_of(key).status is not SettingStatus.IGNORED
    )
