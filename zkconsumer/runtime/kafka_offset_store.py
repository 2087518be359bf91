"""Executes the commands about offsets in Kafka, as ``ZooKeeperExecutor`` does for ZooKeeper.

A commit to Kafka cannot have a condition.  So its conditions are checked immediately before each request: the lease is
valid, the owner nodes belong to the session in which the commit was decided, and the group's control znode has not
changed (one batch of pipelined reads, only in that session).  A change can still be missed only during one request.
"""

from __future__ import annotations

import threading
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome
from zkconsumer.member.offset_committer import CONTROL_CHANGED
from zkconsumer.runtime.member_observer import KAFKA_STORE
from zkconsumer.zk import paths
from zkconsumer.zk.requests import GetMany, NoNode, ZnodeData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.kafka.offsets_channel import OffsetFetchOutcome, OffsetsChannel, OffsetsChannelJob
    from zkconsumer.runtime.member_event_loop import MemberEventLoop
    from zkconsumer.runtime.member_observer import MemberObserver
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Result
    from zkconsumer.zk.store import ZkStore

OWNERSHIP_CHECK_TIMEOUT_MS = 2_000
"""How long the read of the owner nodes may take before the commit fails."""


@dataclass(eq=False, repr=False)
class KafkaOffsetStore:
    """Fetches and commits offsets at the group coordinator, for one member of one group."""

    group: str
    store: ZkStore
    channel: OffsetsChannel
    _: KW_ONLY
    lease: Lease
    control: MemberEventLoop
    observing: MemberObserver
    _jobs: dict[int, OffsetsChannelJob] = field(default_factory=dict, init=False)

    def fetch(self, command: do.FetchOffsets) -> None:
        def done(fetched: OffsetFetchOutcome) -> None:
            event = ev.OffsetsFetched(command.ticket, fetched.offsets, fetched.failed, fetched.unsupported)
            self.control.call_soon(partial(self._completed, command.ticket, event))

        self._jobs[command.ticket] = self.channel.fetch(command.partitions, command.timeout_ms, done)

    def commit(self, command: do.CommitToKafka) -> None:
        def done(results: Mapping[TopicPartition, KafkaCommitResult]) -> None:
            self.control.call_soon(partial(self._committed, command, results))

        check = partial(self._check_ownership, command.session_id, command.control_version)
        self._jobs[command.ticket] = self.channel.commit(command.offsets, command.attempts, check, done)

    def _committed(self, command: do.CommitToKafka, results: Mapping[TopicPartition, KafkaCommitResult]) -> None:
        self.observing.commit_completed(KAFKA_STORE, command.offsets, results)
        self._completed(command.ticket, ev.CommitToKafkaCompleted(command.ticket, results))

    def cancel(self, command: do.CancelKafkaRequest) -> None:
        job = self._jobs.pop(command.cancelled_ticket, None)
        if job is not None:
            self.channel.cancel(job)

    def _completed(self, ticket: int, event: ev.Event) -> None:
        self._jobs.pop(ticket, None)
        self.control.handle_event(event)

    def _check_ownership(
        self, session_id: int, control_version: int | None, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaCommitResult]:
        """The partitions that must not be committed, with the reason; called on the channel's thread."""
        wanted = list(partitions)
        answers: list[list[Result]] = []
        settled = threading.Event()

        def done(results: list[Result]) -> None:
            answers.append(results)
            settled.set()

        control = () if control_version is None else (paths.control(self.group),)
        asked = (*control, *(paths.owner(self.group, tp) for tp in wanted))
        self.store.submit(session_id, [GetMany(asked)], done)
        if not settled.wait(OWNERSHIP_CHECK_TIMEOUT_MS / 1000):
            silent = KafkaCommitResult(
                WriteOutcome.FAILED, f"ZooKeeper did not return the owner nodes within {OWNERSHIP_CHECK_TIMEOUT_MS} ms"
            )
            return dict.fromkeys(wanted, silent)
        [[nodes]] = answers
        assert isinstance(nodes, list), "GetMany returns a list"
        if not self.lease.is_valid:
            return dict.fromkeys(wanted, KafkaCommitResult(WriteOutcome.FAILED, "the ZooKeeper lease has expired"))
        if control_version is not None:
            control_znode, *nodes = nodes
            if not isinstance(control_znode, ZnodeData) or control_znode.stat.version != control_version:
                changed = KafkaCommitResult(WriteOutcome.FAILED, CONTROL_CHANGED)
                return dict.fromkeys(wanted, changed)
        found: dict[TopicPartition, KafkaCommitResult] = {}
        for tp, node in zip(wanted, nodes, strict=True):
            if isinstance(node, ZnodeData) and node.stat.ephemeral_owner == session_id:
                continue
            if isinstance(node, ZnodeData):
                found[tp] = KafkaCommitResult(
                    WriteOutcome.NOT_OWNER, f"another member has the owner node: {node.data[:200]!r}"
                )
            elif isinstance(node, NoNode):
                found[tp] = KafkaCommitResult(WriteOutcome.NOT_OWNER, "the owner node does not exist")
            else:
                found[tp] = KafkaCommitResult(
                    WriteOutcome.FAILED, f"the owner node could not be read: {type(node).__name__}"
                )
        return found
