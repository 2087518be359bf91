"""Joins a ZooKeeper group: all steps between the settings of a membership process and its first assignment.

It checks every possible error before it registers: a member that cannot read blocks the other members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from bridge.spark.group_membership import CommitMode
from bridge.spark.membership.batch_lease_processor import BatchLeaseProcessor
from bridge.spark.membership.batch_leases import BatchLeases
from bridge.spark.membership.exclusive_takeover import other_members, threads_for, wait_until_exclusive
from bridge.spark.membership.metrics import BatchMembershipMeters
from bridge.spark.membership.process_settings import MembershipProcessSettings
from zkconsumer.base.clock import Clock
from zkconsumer.base.delivery_lease import Lease
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.errors import UnavailableError, UsageError, ZkConsumerError
from zkconsumer.kafka.broker_connection import ConnectionFactory
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.member.topic_count import allowed_topics
from zkconsumer.observe.counters import Counters
from zkconsumer.runtime.broker_access import BrokerAccess, check_brokers
from zkconsumer.runtime.membership_config import assignment_planner_of, channel_settings_of, group_settings_of
from zkconsumer.runtime.zookeeper_membership import ZooKeeperMembership
from zkconsumer.types import BrokerAddress, Hooks, TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import Procedure
from zkconsumer.zk.kafka_znodes import parse_topic
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import ChildNames, Children, GetMany, NoNode, ZnodeData
from zkconsumer.zk.store import ZkStore, submit_and_wait
from zkconsumer.zk.zk_security import ZkSecurity, zk_security_of

LOOKUP_TIMEOUT_MS = 5_000
"""How long ZooKeeper may take to answer about brokers, topics and members."""

T = TypeVar("T")

StoreFactory = Callable[[str, int], ZkStore]

log = logging.getLogger("zkconsumer.membership")


class CountingHooks(Hooks):
    """Counts events that only hooks receive."""

    def __init__(self) -> None:
        self.counters: Counters | None = None

    def session_lost(self, session_id: int) -> None:
        if self.counters is not None:
            self.counters.add("spark_sessions_lost")

    def partitions_lost(self, partitions: tuple[TopicPartition, ...], why: str) -> None:
        if self.counters is not None:
            self.counters.add("spark_partitions_lost", len(partitions))


class ZooKeeperMembershipSetup:
    """One query's membership with its resources; no connection is opened before ``join``."""

    def __init__(
        self,
        settings: MembershipProcessSettings,
        clock: Clock,
        make_store: StoreFactory | None = None,
        connect: ConnectionFactory | None = None,
    ) -> None:
        """Raises the errors of the settings, the certificate files and the pattern."""
        self.settings = settings
        self.config = settings.config()
        self.group = self.config.group_id
        self.threads = settings.threads
        self.is_started = False
        self.security: ZkSecurity = zk_security_of(self.config)
        settings.subscription(1)
        paths.check_consumer_id(settings.consumer_id)
        make = make_store or partial(KazooStore, security=self.security)
        self.store = make(self.config.zookeeper_connect, self.config.zookeeper_session_timeout_ms)
        access = BrokerAccess.from_config(self.config, self.store, LOOKUP_TIMEOUT_MS, clock, connect=connect)
        self._brokers = access
        self.lease = Lease(clock)
        self.meters = BatchMembershipMeters(clock, lambda: self.processor.notify(), lambda: self.processor.assignment)
        is_after_batch = settings.mode is CommitMode.AFTER_BATCH
        counting = CountingHooks()
        self.membership = ZooKeeperMembership(
            self.group,
            group_settings_of(self.config, settings.consumer_id, auto_commit=is_after_batch),
            assignment_planner_of(self.config, settings.consumer_id),
            client_id=self.config.client_id,
            socket_timeout_ms=self.config.socket_timeout_ms,
            store=self.store,
            brokers=access,
            clock=clock,
            lease=self.lease,
            meters=self.meters,
            security=self.security,
            coordinator_channel=channel_settings_of(self.config),
            hooks=counting,
        )
        self.counters = counting.counters = self.membership.counters
        lending = BatchLeases(waits_for_batch=is_after_batch)
        self.processor = BatchLeaseProcessor(lending, self.lease, self.membership.event_loop)
        self.membership.attach_processor(self.processor)

    def join(self, pause: Callable[[int], bool]) -> None:
        """Connect and become a member; ``pause`` waits for so many ms, and returns True to stop joining.

        Raises ``ZkTimeoutException``, ``ChrootMissing``, ``UsageError`` for a topic that does not exist,
        ``AuthenticationException`` where a broker rejects the login, ``GroupNotExclusive``.
        """
        self.membership.start(self.config.zookeeper_connection_timeout_ms)
        self.is_started = True
        self._check_rebalance_budget()
        log.info(
            "membership-process-connected member=%s session_timeout_ms=%d mode=%s",
            self.settings.consumer_id, self.membership.negotiated_timeout_ms, self.settings.mode.value,
        )  # fmt: skip
        if self.config.security_protocol != "PLAINTEXT" or self.config.bootstrap_servers is not None:
            check_brokers(self.membership.bootstrap_client)
        sizes = self._partition_counts() if self.config.bootstrap_servers is None else {}
        if self.settings.is_takeover:
            look = partial(other_members, self.store, self.group, self.settings.consumer_id, LOOKUP_TIMEOUT_MS)
            wait_until_exclusive(look, self.group, self.settings.takeover_wait_ms, pause)
            self.threads = threads_for(sizes)
        self.membership.join(self.settings.subscription(self.threads))

    def _check_rebalance_budget(self) -> None:
        """A Scala consumer that fails to acquire its assignment so many times stays in the group and owns nothing."""
        budget_ms = self.config.rebalance_max_retries * self.config.rebalance_backoff_ms
        session_ms, drain_ms = self.membership.negotiated_timeout_ms, self.config.rebalance_drain_timeout_ms
        if max(session_ms, drain_ms) >= budget_ms:
            log.warning(
                "rebalance-budget-small budget_ms=%d session_timeout_ms=%d drain_timeout_ms=%d: a Scala consumer "
                "with these settings stops rebalancing before our partitions are free; lower "
                "zookeeper.session.timeout.ms and rebalance.drain.timeout.ms, or raise rebalance.max.retries at every "
                "member",
                budget_ms, session_ms, drain_ms,
            )  # fmt: skip

    def run_procedure(self, procedure: Procedure[T], session_id: int, then: Callable[[T], None]) -> None:
        """See ``MembershipResources``: on the membership's thread."""
        self.membership.run_procedure(procedure, session_id, then)

    def brokers(self) -> list[BrokerAddress]:
        """The current addresses of the brokers; raises ``UnavailableError``."""
        return list(self._brokers.find_brokers())

    def _partition_counts(self) -> dict[str, int]:
        """The partitions of each subscribed topic; raises ``UsageError`` for a name without a topic."""
        [listed] = submit_and_wait(self.store, [Children(paths.BROKER_TOPICS)], LOOKUP_TIMEOUT_MS)
        if not isinstance(listed, ChildNames | NoNode):
            raise UnavailableError(f"{paths.BROKER_TOPICS} cannot be listed: {listed}")
        known = listed.names if isinstance(listed, ChildNames) else ()
        if self.settings.pattern == STATIC_SUBSCRIPTION:
            wanted = sorted(self.settings.topics)
            self._check_known(known)
        else:
            wanted = sorted(allowed_topics(self.settings.subscription(1), known))
        if not wanted:
            return {}
        [nodes] = submit_and_wait(self.store, [GetMany(tuple(map(paths.topic, wanted)))], LOOKUP_TIMEOUT_MS)
        assert isinstance(nodes, list), "a read of many nodes returns a list"
        found = zip(wanted, nodes, strict=True)
        return {topic: len(_partitions(node.data)) for topic, node in found if isinstance(node, ZnodeData)}

    def _check_known(self, known: Collection[str]) -> None:
        missing = [topic for topic in self.settings.topics if topic not in known]
        if not missing:
            return
        raise UsageError(
            f"topic {missing[0]!r} does not exist in ZooKeeper {self.config.zookeeper_connect}"
            f"{did_you_mean(missing[0], known)}: correct the topics that the query subscribes to, or the chroot of "
            "zookeeper.connect, or create the topic"
        )


def _partitions(data: bytes) -> tuple[int, ...]:
    try:
        return parse_topic(data).partitions
    except ZkConsumerError:
        return ()
