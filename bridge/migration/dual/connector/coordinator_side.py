"""The membership at the coordinator of a migrating member, with what a migration needs of it besides.

    MigratingMembership --offer_assignors, write_offsets, read_offsets--> CoordinatorSide --> CoordinatorMembership
                        <--on_event: generation, commits that Kafka accepted, results of write and read--

``CoordinatorSide`` contains the membership and receives its ``MembershipEvents``.  ``on_event`` is called only on the
control thread of this membership; it never waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bridge.client import commands as cmd
from bridge.client.coordinator_membership import CoordinatorMembership
from bridge.migration.dual.connector.committed_offset_reader import CommittedOffsetReader
from bridge.migration.dual.connector.protocol_downgrade import DowngradingConsumerCoordinator
from bridge.migration.dual.connector.urgent_writes import UrgentWrites
from bridge.migration.dual.machine import machine_messages as val
from zkconsumer.member.events import WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.client import events as cev
    from bridge.client.config import GroupMemberConfig
    from bridge.client.coordinator_event_loop import CoordinatorEventLoop
    from bridge.client.coordinator_membership import MembershipSettings
    from bridge.client.partition_assignor import ConsumerPartitionAssignor
    from bridge.client.stream_assignor import StreamAssignor
    from bridge.migration.dual.connector.active_side_filters import ActiveSideHooks, ActiveSideListener
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.member.events import KafkaCommitResult
    from zkconsumer.observe.counters import Counters
    from zkconsumer.runtime.broker_access import BrokerAccess
    from zkconsumer.runtime.member_observer import MembershipMeters
    from zkconsumer.types import TopicPartition

NO_COMMITTED_OFFSET = -1

SIDE_RETRY_INTERVAL_MS = 50
"""The interval after which a request is repeated that the group rejected because it rebalanced."""


class CoordinatorSide:
    """``membership`` can change its protocols while it is in the group; ``on_assignment``: it owns its assignment."""

    def __init__(
        self,
        coordinator_settings: tuple[GroupMemberConfig, MembershipSettings, StreamAssignor],
        assignors: Sequence[ConsumerPartitionAssignor],
        *,
        brokers: BrokerAccess,
        clock: Clock,
        lease: Lease,
        meters: MembershipMeters,
        hooks: ActiveSideHooks,
        counters: Counters,
        on_event: Callable[[CoordinatorSide, val.MigratingMemberEvent], None],
        on_assignment: Callable[[CoordinatorSide], None],
        make_listener: Callable[[str, CoordinatorEventLoop, OnThreadError], ActiveSideListener],
    ) -> None:
        self._on_event = partial(on_event, self)
        self.assignment_complete = partial(on_assignment, self)
        config, settings, spread = coordinator_settings
        self.membership = CoordinatorMembership(
            config,
            assignors,
            settings,
            spread,
            brokers=brokers,
            clock=clock,
            lease=lease,
            meters=meters,
            hooks=hooks,
            counters=counters,
            machine_class=DowngradingConsumerCoordinator,
            make_listener=make_listener,
            events=self,
        )
        self._drain_timeout_ms = settings.limits.drain_ms
        self._writes = UrgentWrites(
            lambda number, offsets: self.membership.request_commit(
                offsets, partial(self._writes.handle_response, number)
            ),
            lambda number, committed: self._on_event(val.KafkaWriteFinished(number, committed)),
            clock,
        )
        self._offset_reader = CommittedOffsetReader(
            lambda number, partitions: self.membership.request_offsets(partitions, partial(self._fetched, number)),
            lambda offsets: self._on_event(val.KafkaOffsetsRead(offsets)),
            clock,
        )
        self.membership.event_loop.call_every(SIDE_RETRY_INTERVAL_MS, self._retry_pending)

    # --- calls from any thread ----------------------------------------------------------------------------------

    def write_offsets(self, number: int, offsets: Mapping[TopicPartition, cev.Offset], *, is_urgent: bool) -> None:
        """Commit these once; ``KafkaWriteFinished`` with the number follows.

        ``is_urgent``: the commit is repeated while the group rebalances, for half of the drain timeout.
        """
        retry_ms = self._drain_timeout_ms // 2 if is_urgent else 0
        self.membership.event_loop.call_soon(lambda: self._writes.write(number, offsets, retry_ms))

    def read_offsets(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch the committed offsets of these until they are known; ``KafkaOffsetsRead`` follows."""
        self.membership.event_loop.call_soon(lambda: self._offset_reader.read(partitions))

    # --- on the control thread of the membership ----------------------------------------------------------------

    def _retry_pending(self) -> None:
        self._writes.retry()
        if not self.membership.has_ended:
            self._offset_reader.poll(self.membership.running_partitions)

    def _fetched(self, number: int, answer: cmd.FetchDone) -> None:
        found = {tp: NO_COMMITTED_OFFSET if at is None else at.offset for tp, at in answer.offsets.items()}
        is_expected = self._offset_reader.handle_response(number, None if answer.error else found)
        if is_expected and answer.error is not None and not self.membership.has_ended:
            self.membership.raised(cmd.Raise(answer.error, is_fatal=False))

    def generation_changed(self, generation: int) -> None:
        """See ``MembershipEvents``."""
        self._on_event(val.GenerationChanged(generation))

    def offsets_committed(
        self, offsets: Mapping[TopicPartition, int | None], results: Mapping[TopicPartition, KafkaCommitResult]
    ) -> None:
        """See ``MembershipEvents``."""
        committed = {
            tp: offset
            for tp, offset in offsets.items()
            if offset is not None and tp in results and results[tp].outcome is WriteOutcome.DONE
        }
        if committed:
            self._on_event(val.KafkaCommitted(committed))
