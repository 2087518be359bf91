r"""Reading where owned partitions stand, from every store that the group has; one reading at a time.

    ask --> ReadPositions (ZooKeeper) --+
        \-> FetchOffsets  (Kafka) ------+--> both there: merged, each partition from the larger offset

It comes after the claim, so that nothing of the former owner's last commit is missed.  What a store did not tell is
never taken for "no offset": the partition is held and not read, and asked for again at the next attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.offset_stores import OffsetSource, OffsetStoreSelection
from zkconsumer.member.partition_state_machine import NO_POSITION, PositionKnown, PositionUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from zkconsumer.member.commands import Command
    from zkconsumer.member.new_partition_tracker import NewPartitionTracker
    from zkconsumer.member.partition_state_machine import PartitionStateMachine
    from zkconsumer.types import TopicPartition


class PositionReader:
    """What was asked, and what came back so far."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionStateMachine],
        new_ticket: Callable[[], int],
        *,
        newcomers: NewPartitionTracker,
        stores: OffsetStoreSelection = OffsetStoreSelection.ZOOKEEPER,
        timeout_ms: int = 0,
    ) -> None:
        self.is_kafka_unavailable = False
        """Whether Kafka did not tell some offset the last time."""
        self.unsupported = ""
        """Why no broker of the cluster keeps offsets, if that is so."""
        self._partitions = partitions
        self._new_ticket = new_ticket
        self._newcomers = newcomers
        self._stores = stores
        self._timeout_ms = timeout_ms
        self._requested: tuple[TopicPartition, ...] = ()
        self._from_zookeeper: int | ev.PositionsRead | None = None
        self._from_kafka: int | ev.OffsetsFetched | None = None
        self._logged_unreadable: dict[TopicPartition, str] = {}
        self._logged_kafka_failure = ""

    @property
    def is_reading(self) -> bool:
        """Whether some store has not answered yet."""
        return isinstance(self._from_zookeeper, int) or isinstance(self._from_kafka, int)

    def read(self, partitions: Sequence[TopicPartition], session_id: int) -> list[Command]:
        """Read these; an earlier reading is forgotten."""
        out = self.cancel()
        self._requested = tuple(partitions)
        if self._stores.uses_zookeeper:
            self._from_zookeeper = self._new_ticket()
            out.append(do.ReadPositions(self._from_zookeeper, session_id, self._requested))
        if self._stores.uses_kafka:
            self._from_kafka = self._new_ticket()
            out.append(do.FetchOffsets(self._from_kafka, session_id, self._requested, self._timeout_ms))
        return out

    def on_result(self, event: ev.PositionsRead | ev.OffsetsFetched) -> list[Command] | None:
        """Take an answer in: what must be done now, or None when nobody waited for it, or the other one is to come."""
        match event:
            case ev.PositionsRead() if event.ticket == self._from_zookeeper:
                self._from_zookeeper = event
            case ev.OffsetsFetched() if event.ticket == self._from_kafka:
                self._from_kafka = event
            case _:
                return None
        stored, fetched = self._from_zookeeper, self._from_kafka
        if isinstance(stored, int) or isinstance(fetched, int):  # the other one is to come
            return None
        self._from_zookeeper = self._from_kafka = None
        self.unsupported = "" if fetched is None else fetched.unsupported
        return self._merged(stored, fetched)

    def _merged(self, stored: ev.PositionsRead | None, fetched: ev.OffsetsFetched | None) -> list[Command]:
        out: list[Command] = []
        known: dict[TopicPartition, PartitionStateMachine] = {}
        silent: dict[TopicPartition, str] = {}
        for tp in self._requested:
            held = self._partitions.get(tp)  # None when its owner node vanished meanwhile
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
            positions, words = self._newcomers.start_positions(known)
            out += words
            threads = {tp: held.thread for tp, held in known.items()}
            sources = {tp: held.source for tp, held in known.items()}
            epochs = {tp: held.czxid for tp, held in known.items()}
            out.append(do.StartFetching(positions, threads, sources, epochs))
        return out

    def cancel(self) -> list[Command]:
        """Nobody waits for an answer any more."""
        fetching, self._from_zookeeper, self._from_kafka = self._from_kafka, None, None
        return [do.CancelKafkaRequest(fetching)] if isinstance(fetching, int) else []

    def on_ownership_lost(self, tp: TopicPartition) -> None:
        """It is not ours any more."""
        self._logged_unreadable.pop(tp, None)

    def _log_unreadable(self, tp: TopicPartition, why: str) -> list[Command]:
        if self._logged_unreadable.get(tp) == why:
            return []
        self._logged_unreadable[tp] = why
        words = f"partition={tp} reason={why!r}: it is held but not read until that is repaired"
        return [do.LogEvent("ERROR", "offset-unreadable", words)]

    def _log_kafka_failures(self, silent: Mapping[TopicPartition, str]) -> list[Command]:
        """Kafka did not tell these.  Said once a reason, in which numbers (of ms, of ports) do not count."""
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
        words = f"partitions={len(silent)} first={first} reason={why!r}: they are held but not read until Kafka tells"
        return [do.LogEvent("ERROR", "offset-fetch-failed", words)]


def _starts_log_event(known: Mapping[TopicPartition, PartitionStateMachine], stores: OffsetStoreSelection) -> Command:
    """Where everything starts, and by which store."""
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
