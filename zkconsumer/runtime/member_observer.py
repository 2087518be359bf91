"""What happens to a member, for its metrics and for the program's hooks.

The shell tells it here once, in the words of the core; who wants to know what of it is decided here and nowhere else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from zkconsumer.member import commands as do
from zkconsumer.member.events import WriteOutcome
from zkconsumer.member.partition_releaser import DROP_REASON_RELEASED
from zkconsumer.member.session_state_machine import NO_LEASE_MS
from zkconsumer.zk.requests import ZkSessionConnected, ZkSessionLost, ZkSessionSuspended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.events import KafkaCommitResult, ZooKeeperWriteResult
    from zkconsumer.observe.metrics import Meter
    from zkconsumer.runtime.hook_calls import HookCalls
    from zkconsumer.types import BrokerAddress, TopicPartition
    from zkconsumer.zk.requests import StoreEvent

NOT_ANSWERED = "it was not answered"
ZOOKEEPER_STORE, KAFKA_STORE = "zookeeper", "kafka"
"""The two offset stores, as hooks call them."""


class MembershipMeters(Protocol):
    """What is measured of a membership, whatever is done with its partitions; told on the control thread."""

    @property
    def zookeeper_commits(self) -> Meter:
        """Offsets written to ZooKeeper."""

    @property
    def kafka_commits(self) -> Meter:
        """Offsets told to Kafka."""

    def rebalance_started(self) -> None:
        """From now on the share is not known to be whole."""

    def rebalance_completed(self) -> None:
        """The end of a rebalance."""


class MemberObserver:
    """Sorts what happened."""

    def __init__(
        self, metrics: MembershipMeters, hooks: HookCalls, assignment: Callable[[], dict[TopicPartition, str]]
    ) -> None:
        self.metrics = metrics
        self.hooks = hooks
        self._assignment = assignment
        self._reported_assignment: dict[TopicPartition, str] | None = None

    def command_executed(self, command: Command) -> None:
        """The core asked for this, and it was done or begun; on the control thread."""
        match command:
            case do.ReadGroup():
                self.metrics.rebalance_started()
            case do.SetLease(until_ms) if until_ms == NO_LEASE_MS and self._reported_assignment is not None:
                self._reported_assignment = None
                self.metrics.rebalance_started()
            case do.AnnounceAssignment():
                self.metrics.rebalance_completed()
                self._share_held()
            case _ if self.hooks:
                self._call_hooks(command)

    def _share_held(self) -> None:
        share = self._assignment()
        if share != self._reported_assignment:
            self._reported_assignment = share
            self.hooks.call("assignment_complete", dict(share))

    def _call_hooks(self, command: Command) -> None:
        match command:
            case do.DropPartitions(partitions, why) if why == DROP_REASON_RELEASED:
                self.hooks.call("partitions_revoked", partitions)
            case do.DropPartitions(partitions, why):
                self._reported_assignment = None
                self.hooks.call("partitions_lost", partitions, why)
            case do.ForceDrain(partitions):
                self.hooks.call("drain_timed_out", partitions)
            case do.LogEvent(level, name, words, about):
                if logging.getLevelName(level) >= logging.WARNING:
                    self.hooks.call("warning_logged", level, name, words)
                if name in ("offset-reset", "offset-rewound"):
                    self.hooks.call(name.replace("-", "_"), *about)

    def commit_completed(
        self,
        store: str,
        asked: Mapping[TopicPartition, int | None],
        results: Mapping[TopicPartition, ZooKeeperWriteResult] | Mapping[TopicPartition, KafkaCommitResult],
    ) -> None:
        """A commit, or a release with its last commit, came back; ``asked`` None where there was nothing to commit."""
        offsets = {tp: offset for tp, offset in asked.items() if offset is not None}
        answered: Mapping[TopicPartition, ZooKeeperWriteResult | KafkaCommitResult] = {
            tp: results[tp] for tp in offsets if tp in results
        }
        written = {tp: offsets[tp] for tp, result in answered.items() if _is_written(result)}
        meter = self.metrics.zookeeper_commits if store == ZOOKEEPER_STORE else self.metrics.kafka_commits
        # The original counts what it wrote to ZooKeeper, and what it tried to write to Kafka.
        meter.mark(len(written if store == ZOOKEEPER_STORE else offsets))
        if offsets:
            refused = {tp: answered[tp].why if tp in answered else NOT_ANSWERED for tp in offsets if tp not in written}
            self.hooks.call("commit_completed", store, written, refused)

    def session_changed(self, event: StoreEvent) -> None:
        """The store says how the session stands; on the control thread."""
        match event:
            case ZkSessionConnected(session_id, timeout_ms):
                self.hooks.call("session_connected", session_id, timeout_ms)
            case ZkSessionSuspended():
                self.hooks.call("session_suspended")
            case ZkSessionLost(session_id):
                self.hooks.call("session_lost", session_id)

    def fetch_failed(self, broker: BrokerAddress, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """A broker cannot be asked (no partitions), or some of its partitions cannot be read; on a fetcher's thread."""
        self.hooks.call("fetch_failed", broker, partitions, why)

    def poison_record_found(self, partition: TopicPartition, why: str) -> None:
        """A stream cannot hand out what comes next; on the thread of the program that reads it."""
        self.hooks.call("poison_record_found", partition, why)


def _is_written(result: ZooKeeperWriteResult | KafkaCommitResult) -> bool:
    """Whether the offset stands there now; a partition may be given back without (``why``)."""
    return result.outcome is WriteOutcome.DONE and not result.why
