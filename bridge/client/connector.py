"""``CoordinatorConsumerConnector``: the old high-level consumer's API for a group that the modern coordinator keeps.

    with CoordinatorConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            handle(message)
            connector.commit_offsets()

The same streams, offsets, listener and metrics as ``ZookeeperConsumerConnector``, on the same fetchers; only who has
what is decided otherwise.  Its members share a group with any client that speaks to a coordinator (0.9 and later).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bridge.client.assignors import ASSIGNORS
from bridge.client.config import SAID_BY_THE_OLD, GroupConfig
from bridge.client.from_config import membership_settings_of, spread_of
from bridge.client.membership import CoordinatorMembership
from bridge.client.taken_settings import without_effect
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.connector_base import ConsumerConnector, fetch_settings_of
from zkconsumer.errors import InvalidConfigException
from zkconsumer.runtime.brokers import BrokerAccess
from zkconsumer.runtime.from_config import make_consumer_id
from zkconsumer.runtime.look import Looker
from zkconsumer.runtime.streams_member import StreamsMember
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.client.assignor import ConsumerPartitionAssignor
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.kafka.connection import Connect
    from zkconsumer.types import Hooks

log = logging.getLogger("zkconsumer.connector")

COORDINATOR = "the group's coordinator"
COMMIT_GRACE_MS = 1_000
"""On top of ``default.api.timeout.ms``, which bounds a commit in the machine."""


class CoordinatorConsumerConnector(ConsumerConnector[StreamsMember[CoordinatorMembership]]):
    """A member of a coordinator's consumer group; a context manager.

    ``config`` is the old consumer's, as it stands, or a ``CoordinatorConsumerConfig``, which needs no
    ``zookeeper.connect``; ``bootstrap.servers`` must be in it, and no ZooKeeper is asked.  What is set there and has no
    effect here is a warning each (``migration_docs/reference/coordinator-config.md``).
    ``group`` are settings of the group in Kafka's own words (``session.timeout.ms``, ``group.instance.id`` …); what
    both know, ``group.id`` and automatic commits, is ``config``'s.  ``assignors``: how the group is divided, the best
    first; left out, the one that ``partition.assignment.strategy`` names.  All members must have one in common.

    The constructor speaks to one broker, at most for ``zookeeper.connection.timeout.ms``: it raises
    ``BrokerUnreachable``, an ``AuthenticationException``, ``UnsupportedVersionException`` (a broker before 0.9 keeps
    no members), or ``InvalidConfigException``.  The group is joined when
    streams are created.  What ends the member later (an ACL, members without a common assignor, another process with
    this ``group.instance.id``) ends every stream with an error that says who must act.

    A rebalance listener is told of this member's own partitions: nobody else's are known here.
    """

    _LEFT_BEHIND = "the group's coordinator did not confirm everything; it gives what is left to others by itself"

    def __init__(
        self,
        config: ConsumerConfig,
        group: Mapping[str, object] | None = None,
        *,
        assignors: Sequence[ConsumerPartitionAssignor] | None = None,
        connect: Connect | None = None,
        clock: Clock = SYSTEM_CLOCK,
        oauth_token: Callable[[], str] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.group_config = group_config_of(config, group or {})
        consumer_id = make_consumer_id(config.group_id, config.consumer_id, clock)
        paths.check_consumer_id(consumer_id)
        chosen = assignors or [ASSIGNORS[config.partition_assignment_strategy]()]
        brokers = BrokerAccess.of(
            config, None, config.socket_timeout_ms, clock, connect=connect, oauth_token=oauth_token
        )
        member = StreamsMember(
            consumer_id,
            config.group_id,
            fetch_settings_of(config),
            config.num_consumer_fetchers,
            brokers,
            clock,
            lambda lease, meters: CoordinatorMembership(
                self.group_config, chosen, membership_settings_of(config, consumer_id), spread_of(config, consumer_id),
                brokers=brokers, clock=clock, lease=lease, meters=meters, hooks=hooks,
            ),
        )  # fmt: skip
        super().__init__(config, consumer_id, member, clock)
        for key, why in without_effect(config).items():
            log.warning("setting-ignored key=%s why=%r", key, why)

        def fetching() -> int:
            live = {tp for tp, info in member.streams.infos.items() if info.is_live}
            return len(live - member.fetchers.leaderless())

        looker = Looker(
            member,
            lambda: member.membership.look(fetching()),
            config.group_id,
            self._handed_out_at_ms,
            clock,
            COORDINATOR,
        )
        self._open(looker, config.zookeeper_connection_timeout_ms)

    @property
    def _commit_timeout_ms(self) -> int:
        return self.group_config.default_api_timeout_ms + COMMIT_GRACE_MS

    @property
    def generation(self) -> int:
        """The generation of the group in which this member is; -1 while it is in none."""
        return self._member.membership.machine.generation.generation_id


def group_config_of(config: ConsumerConfig, group: Mapping[str, object]) -> GroupConfig:
    """The group's settings, with what the old configuration says of the same things.

    Raises ``InvalidConfigException`` for a key that is not known, or that is ``config``'s to say.
    """
    twice = sorted(SAID_BY_THE_OLD.keys() & group.keys())
    if twice:
        raise InvalidConfigException(
            f"{', '.join(twice)}: leave it out of the group's settings, the old configuration says it already "
            f"({', '.join(SAID_BY_THE_OLD.values())})"
        )
    return GroupConfig({**group, **{key: config.values[old] for key, old in SAID_BY_THE_OLD.items()}})
