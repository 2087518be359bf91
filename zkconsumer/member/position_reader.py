r"""Reads the committed offsets of owned partitions from every offset store of the group; one read at a time.

    read --> ReadPositions (ZooKeeper) --+
         \-> FetchOffsets  (Kafka) ------+--> both answered: each partition starts from the larger offset

The read follows the acquisition, so that it sees the last commit of the former owner.  An offset that could not be read
never counts as "no offset": the member keeps the partition without fetching it, and reads the offset again at the next
attempt.

Partitions start together, when every store has answered.  A connection that breaks leaves partitions without an answer
(in neither map of ``PositionsRead``): they stay ``ACQUIRED`` and are read by the next attempt
(``positions_that_the_connection_did_not_bring.txt``).  A partition that was lost during the read is ignored when the
answer arrives.  Kafka's answer has a timeout, ZooKeeper's ends with the session, which cancels the read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member import ownership
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.member.partition_state_machine import NO_POSITION, PositionKnown, PositionUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_settings import GroupSettings
    from zkconsumer.member.new_partition_tracker import NewPartitionTracker
    from zkconsumer.member.offset_stores import OffsetStoreSelection
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition


class PositionReader:
    """One read under way, with the answers so far."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        new_partitions: NewPartitionTracker,
        settings: GroupSettings,
    ) -> None:
        self.is_kafka_unavailable = False
        """Whether the last read got no answer from Kafka for some partition."""
        self.unsupported = ""
        """Why no broker of the cluster stores offsets; "" if brokers do."""
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._new_partitions = new_partitions
        self._stores = settings.offset_stores
        self._timeout_ms = settings.kafka_timeout_ms
        self._requested: tuple[TopicPartition, ...] = ()
        """The partitions of the read under way, or of the last one."""
        self._from_zookeeper: int | ev.PositionsRead | None = None
        """The ticket until the answer has arrived, then the answer; None if no read is under way or it is not asked."""
        self._from_kafka: int | ev.OffsetsFetched | None = None
        """The same for Kafka; at least one of the two is a ticket while a read is under way."""
        self._logged_unreadable: dict[TopicPartition, str] = {}
        """Owned partition -> why its offset is unreadable, as it was logged last."""
        self._logged_kafka_failure = ""
        """The reason, without digits, that was logged last; "" since a read in which Kafka answered for all."""

    @property
    def is_reading(self) -> bool:
        """Whether a store has not answered yet."""
        return isinstance(self._from_zookeeper, int) or isinstance(self._from_kafka, int)

    def read(self, partitions: Sequence[TopicPartition], session_id: int) -> list[Command]:
        """Read these; cancels an earlier read."""
        assert partitions, "a read of nothing would wait for an answer"
        out = self.cancel()
        assert not self.is_reading, "one read at a time"
        self._requested = tuple(partitions)
        if self._stores.uses_zookeeper:
            self._from_zookeeper = self._new_ticket()
            out.append(do.ReadPositions(self._from_zookeeper, session_id, self._requested))
        if self._stores.uses_kafka:
            self._from_kafka = self._new_ticket()
            out.append(do.FetchOffsets(self._from_kafka, session_id, self._requested, self._timeout_ms))
        return out

    def on_result(self, event: ev.PositionsRead | ev.OffsetsFetched) -> list[Command] | None:
        """Process an answer; return the commands, or None if it is outdated or the other store has not answered."""
        match event:
            case ev.PositionsRead() if event.ticket == self._from_zookeeper:
                self._from_zookeeper = event
            case ev.OffsetsFetched() if event.ticket == self._from_kafka:
                self._from_kafka = event
            case _:
                return None
        stored, fetched = self._from_zookeeper, self._from_kafka
        if isinstance(stored, int) or isinstance(fetched, int):  # the other store has not answered yet
            return None
        self._from_zookeeper = self._from_kafka = None
        self.unsupported = "" if fetched is None else fetched.unsupported
        return self._merged(stored, fetched)

    def _merged(self, stored: ev.PositionsRead | None, fetched: ev.OffsetsFetched | None) -> list[Command]:
        assert not self.is_reading, "every store has answered"
        out: list[Command] = []
        known: dict[TopicPartition, PartitionStateMachine] = {}
        silent: dict[TopicPartition, str] = {}
        for tp in self._requested:
            held = self._partitions.get(tp)  # None when its owner node was deleted meanwhile
            if held is None:
                continue
            if stored is not None and tp in stored.failed:
                held.handle(PositionUnreadable(stored.failed[tp]))
                out += self._log_unreadable(tp, stored.failed[tp])
            elif fetched is not None and tp in fetched.failed:
                held.handle(PositionUnreadable(fetched.failed[tp]))
                silent[tp] = fetched.failed[tp]
            elif (stored is None or tp in stored.stored) and (fetched is None or tp in fetched.offsets):
                in_zookeeper = ev.StoredOffset() if stored is None else stored.stored[tp]
                held.handle(PositionKnown(in_zookeeper, NO_POSITION if fetched is None else fetched.offsets[tp]))
                known[tp] = held
                self._logged_unreadable.pop(tp, None)
        out += self._log_kafka_failures(silent)
        if known and self._stores.uses_kafka:
            out.append(_starts_log_event(known, self._stores))
        if known:
            positions, words = self._new_partitions.start_positions(known)
            out += words
            threads = {tp: held.thread for tp, held in known.items()}
            sources = {tp: held.source for tp, held in known.items()}
            epochs = {tp: held.czxid for tp, held in known.items()}
            out.append(ownership.StartFetching(positions, threads, sources, epochs))
        return out

    def cancel(self) -> list[Command]:
        """Ignore the answers of the read under way."""
        fetching, self._from_zookeeper, self._from_kafka = self._from_kafka, None, None
        return [do.CancelKafkaRequest(fetching)] if isinstance(fetching, int) else []

    def on_ownership_lost(self, tp: TopicPartition) -> None:
        """This member does not own the partition any more."""
        self._logged_unreadable.pop(tp, None)

    def _log_unreadable(self, tp: TopicPartition, why: str) -> list[Command]:
        if self._logged_unreadable.get(tp) == why:
            return []
        self._logged_unreadable[tp] = why
        words = f"partition={tp} reason={why!r}: this member owns it, but does not read it until that is repaired"
        return [do.LogEvent("ERROR", "offset-unreadable", words)]

    def _log_kafka_failures(self, silent: Mapping[TopicPartition, str]) -> list[Command]:
        """Log failed offset fetches once for each reason; reasons that differ only in digits are the same."""
        self.is_kafka_unavailable = bool(silent)
        if not silent:
            self._logged_kafka_failure = ""
        if not silent or self.unsupported:
            return []
        first, why = next(iter(silent.items()))
        shape = "".join(char for char in why if not char.isdigit())
        if shape == self._logged_kafka_failure:
            return []
        self._logged_kafka_failure = shape
        words = f"partitions={len(silent)} first={first} reason={why!r}: not read until Kafka answers"
        return [do.LogEvent("ERROR", "offset-fetch-failed", words)]


def _starts_log_event(known: Mapping[TopicPartition, PartitionStateMachine], stores: OffsetStoreSelection) -> Command:
    """The log command that counts the partitions by the store that their start offset is from."""
    count = dict.fromkeys(OffsetSource, 0)
    for held in known.values():
        count[held.source] += 1
    words = f"partitions={len(known)} kafka={count[OffsetSource.KAFKA]} neither={count[OffsetSource.NEITHER]}"
    if stores.uses_zookeeper:
        words += f" zookeeper={count[OffsetSource.ZOOKEEPER]} both={count[OffsetSource.BOTH]}"
        apart = [
            (tp, held) for tp, held in known.items() if held.source in (OffsetSource.KAFKA, OffsetSource.ZOOKEEPER)
        ]
        if apart:
            tp, held = apart[0]
            words += f" first_apart={tp} in_zookeeper={held.stored.offset} in_kafka={held.kafka_offset}"
    return do.LogEvent("INFO", "positions-read", words)
