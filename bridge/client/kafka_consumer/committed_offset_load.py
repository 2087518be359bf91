"""``CommittedOffsetLoad``: begins each assigned partition at the committed offset of its group.

    assignment --> INITIALIZING --OffsetFetch--> committed: ``maybe_seek_to_committed``
                                            '--> nothing committed: ``auto.offset.reset``

One look-up is open at a time; a partition that is assigned meanwhile is in the next one.  ``poll`` does not wait here,
so the others are read meanwhile.  Each result names the state
of the partition at the time of the request, so it changes nothing after a ``seek`` or another assignment.  Java:
``ConsumerCoordinator.refreshCommittedOffsetsIfNeeded``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from zkconsumer.kafka.fetch.fetch_position import FetchPosition, PositionLookup
from zkconsumer.kafka.group.errors import OffsetFetchFailed
from zkconsumer.kafka.group.kafka_text_forms import offset_text, partition_text, position_text
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.client.kafka_consumer.offset_calls import CommittedOffsetsCall
    from bridge.client.kafka_consumer.polled_coordinator import PolledCoordinator
    from zkconsumer.base.timer import Timer
    from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
    from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata

log = logging.getLogger("zkconsumer.member")


class CommittedOffsetLoad:
    """The look-up that is open, if any."""

    def __init__(
        self, coordinator: PolledCoordinator, metadata: ConsumerMetadata, subscriptions: SubscriptionState
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._call: CommittedOffsetsCall | None = None
        self._lookups: dict[TopicPartition, PositionLookup] = {}

    def refresh(self, timer: Timer) -> bool:
        """Load the offsets of the partitions that wait for them; returns whether none waits any more.

        It waits at most for ``timer``.  Raises the error of the coordinator, such as ``GroupAuthorizationException``.
        """
        while initializing := self._subscriptions.initializing_partitions():
            if self._call is None:
                self._lookups = {tp: self._subscriptions.position_lookup(tp) for tp in initializing}
                self._call = self._coordinator.ask_committed_offsets(initializing)
            if not self._coordinator.wait_for_committed_offsets(self._call, timer):
                return False
            self._take(self._call)
        return True

    def _take(self, call: CommittedOffsetsCall) -> None:
        self._call = None
        if isinstance(call.error, OffsetFetchFailed):
            # No answer within default.api.timeout.ms: it is asked again.
            log.warning("committed-offsets-missing reason=%r", str(call.error))
            return
        if call.error is not None:
            raise call.error
        missing = []
        for tp, committed in call.offsets.items():
            lookup = self._lookups[tp]
            if committed is None:
                missing.append(lookup)
                continue
            epoch = committed.leader_epoch if committed.leader_epoch >= 0 else None
            if epoch is not None:
                self._metadata.update_last_seen_epoch_if_newer(tp, epoch)
            position = FetchPosition(committed.offset, epoch, self._metadata.current_leader(tp))
            if self._subscriptions.maybe_seek_to_committed(lookup, position):
                log.info(
                    "position-from-committed-offset: Setting offset for partition %s to the committed offset %s "
                    "partition=%s offset=%d",
                    partition_text(tp), position_text(committed), tp, committed.offset,
                )  # fmt: skip
            else:
                log.info(
                    "committed-offset-ignored: Ignoring the returned %s since its partition %s is no longer assigned "
                    "partition=%s",
                    offset_text(committed), partition_text(tp), tp,
                )  # fmt: skip
        self._subscriptions.reset_initializing_positions(missing)
