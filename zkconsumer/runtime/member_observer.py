"""Updates the metrics and calls the program's hooks for everything that happens to a member.

``runtime`` reports every executed command, every commit result and every session event here; only this module decides
which metrics and hooks they concern.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended, WriteOutcome
from zkconsumer.member.partition_releaser import DROP_REASON_RELEASED
from zkconsumer.member.session_state_machine import NO_LEASE_MS

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
"""The names of the two offset stores in hooks."""


class MembershipMeters(Protocol):
    """The metrics of a membership that do not depend on its processor; called on the control thread."""

    @property
    def zookeeper_commits(self) -> Meter:
        """Offsets written to ZooKeeper."""

    @property
    def kafka_commits(self) -> Meter:
        """Offsets committed to Kafka."""

    def rebalance_started(self) -> None:
        """From now on the assignment may be incomplete."""

    def rebalance_completed(self) -> None:
        """The rebalance has ended."""


class MemberObserver:
    """Maps commands, results and session events to metrics and hooks."""

    def __init__(
        self, metrics: MembershipMeters, hooks: HookCalls, assignment: Callable[[], dict[TopicPartition, str]]
    ) -> None:
        self.metrics = metrics
        self.hooks = hooks
        self._assignment = assignment
        self._reported_assignment: dict[TopicPartition, str] | None = None

    def command_executed(self, command: Command) -> None:
        """This command was executed or started; called on the control thread."""
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
            case ownership.DropPartitions(partitions, why) if why == DROP_REASON_RELEASED:
                self.hooks.call("partitions_revoked", partitions)
            case ownership.DropPartitions(partitions, why):
                self._reported_assignment = None
                self.hooks.call("partitions_lost", partitions, why)
            case ownership.ForceDrain(partitions):
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
        """The results of a commit, or of a release with its last commit; ``asked`` is None where no offset changed."""
        offsets = {tp: offset for tp, offset in asked.items() if offset is not None}
        answered: Mapping[TopicPartition, ZooKeeperWriteResult | KafkaCommitResult] = {
            tp: results[tp] for tp in offsets if tp in results
        }
        written = {tp: offsets[tp] for tp, result in answered.items() if _is_written(result)}
        meter = self.metrics.zookeeper_commits if store == ZOOKEEPER_STORE else self.metrics.kafka_commits
        # The Scala consumer counts the offsets that it wrote to ZooKeeper, and those that it tried to write to Kafka.
        meter.mark(len(written if store == ZOOKEEPER_STORE else offsets))
        if offsets:
            refused = {tp: answered[tp].why if tp in answered else NOT_ANSWERED for tp in offsets if tp not in written}
            self.hooks.call("commit_completed", store, written, refused)

    def session_changed(self, event: StoreEvent) -> None:
        """The state of the session changed; called on the control thread."""
        match event:
            case SessionConnected(session_id, timeout_ms):
                self.hooks.call("session_connected", session_id, timeout_ms)
            case SessionSuspended():
                self.hooks.call("session_suspended")
            case SessionLost(session_id):
                self.hooks.call("session_lost", session_id)

    def fetch_failed(self, broker: BrokerAddress, partitions: tuple[TopicPartition, ...], why: str) -> None:
        """A broker is unavailable (no partitions), or these partitions cannot be read; called on a fetcher thread."""
        self.hooks.call("fetch_failed", broker, partitions, why)

    def poison_record_found(self, partition: TopicPartition, why: str) -> None:
        """A stream cannot deliver the next record; called on the program's thread that reads the stream."""
        self.hooks.call("poison_record_found", partition, why)


def _is_written(result: ZooKeeperWriteResult | KafkaCommitResult) -> bool:
    """Whether the offset is stored; ``why`` with ``DONE`` means that the partition was released without it."""
    return result.outcome is WriteOutcome.DONE and not result.why
