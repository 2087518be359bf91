"""The messages between a query and its membership process: one JSON object a line, parsed strictly.  Pure.

    -> {"id": 7, "call": "begin_batch", "within_ms": 15000, "args": {"ended": {"t": {"0": [epoch, 9]}}, "wait_ms": 0}}
    <- {"id": 7, "done": {...}}      or      {"id": 7, "failed": "ZkTimeoutException", "message": "..."}

``->`` is a request of the query, ``<-`` the answer with its ``id``.  Partitions are written as in Spark's own offsets:
topic -> partition -> value; a set of partitions has 1 as the value.  ``within_ms`` is the time limit of the membership
process; the caller waits somewhat longer.  Both processes have the same release, so a message that cannot be parsed is
an ``InternalError``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bridge.spark.group_membership import (
    BatchAssignment,
    BatchEnd,
    ClaimedRange,
    ClaimRefused,
    ClaimResult,
    GroupOffset,
    LeasedPartition,
    RangeToClaim,
)
from zkconsumer import errors
from zkconsumer.errors import InternalError, ZkConsumerError
from zkconsumer.types import BrokerAddress, TopicPartition

LINE_BYTES_MAX = 32 * 1024 * 1024
"""The maximum length of one message: some hundred thousand partitions."""

REQUEST_NAMES = (
    "open",
    "begin_batch",
    "batch_planned",
    "group_offsets",
    "claim",
    "seek",
    "brokers",
    "metrics",
    "close",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """A request."""

    request_id: int
    name: str
    within_ms: int
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProcessResponse:
    """The successful answer."""

    request_id: int
    result: Any


@dataclass(frozen=True, slots=True)
class ProcessErrorResponse:
    """The request failed: ``kind`` names a class of ``zkconsumer.errors``, the nearest one of the error's bases."""

    request_id: int
    kind: str
    message: str

    @classmethod
    def of(cls, number: int, error: ZkConsumerError) -> ProcessErrorResponse:
        kind = next(base.__name__ for base in type(error).__mro__ if getattr(errors, base.__name__, None) is base)
        return cls(number, kind, str(error) or type(error).__name__)

    def error(self) -> ZkConsumerError:
        """The same error in this process; its base class, where the class needs more than a message."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, ZkConsumerError)):
            return InternalError(f"{self.kind}: {self.message}")
        if kind.__init__ is not ZkConsumerError.__init__:
            kind = next(base for base in kind.__mro__ if base in ERROR_FAMILIES)
        return kind(self.message)


ERROR_FAMILIES = (
    errors.UsageError,
    errors.PeerError,
    errors.UnavailableError,
    errors.MigrationError,
    errors.InternalError,
)


# --- lines ------------------------------------------------------------------------------------------------------


def encode(message: ProcessRequest | ProcessResponse | ProcessErrorResponse) -> bytes:
    """One line, with its end."""
    match message:
        case ProcessRequest(number, name, within_ms, args):
            found: dict[str, Any] = {"id": number, "call": name, "within_ms": within_ms, "args": args}
        case ProcessResponse(number, result):
            found = {"id": number, "done": result}
        case ProcessErrorResponse(number, kind, text):
            found = {"id": number, "failed": kind, "message": text}
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


def decode_process_request(line: bytes) -> ProcessRequest:
    """Raises ``InternalError``."""
    found = _object(line)
    if found.keys() != {"id", "call", "within_ms", "args"} or found["call"] not in REQUEST_NAMES:
        raise _unreadable(line)
    number, within_ms, args = found["id"], found["within_ms"], found["args"]
    if not (_is_number(number) and _is_number(within_ms) and isinstance(args, dict)):
        raise _unreadable(line)
    return ProcessRequest(number, found["call"], within_ms, args)


def decode_process_response(line: bytes) -> ProcessResponse | ProcessErrorResponse:
    """Raises ``InternalError``."""
    found = _object(line)
    match found:
        case {"id": int(number), "done": result} if len(found) == 2:
            return ProcessResponse(number, result)
        case {"id": int(number), "failed": str(kind), "message": str(message)} if len(found) == 3:
            return ProcessErrorResponse(number, kind, message)
        case _:
            raise _unreadable(line)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _unreadable(line) from error
    if not isinstance(found, dict):
        raise _unreadable(line)
    return found


def _unreadable(line: bytes) -> InternalError:
    """Reports the length and not the content: it may contain a password."""
    return InternalError(f"a message of {len(line)} bytes between a query and its membership process cannot be parsed")


def _is_number(value: object) -> bool:
    return type(value) is int


# --- values -----------------------------------------------------------------------------------------------------


def encode_by_topic(values: Mapping[TopicPartition, T], write: Callable[[T], Any]) -> dict[str, dict[str, Any]]:
    """Topic -> partition -> value."""
    found: dict[str, dict[str, Any]] = {}
    for tp, value in sorted(values.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = write(value)
    return found


def decode_by_topic(found: Any, read: Callable[[Any], T]) -> dict[TopicPartition, T]:
    """Raises ``InternalError`` when that is not topic -> partition -> value."""
    try:
        return {
            TopicPartition(topic, int(number)): read(value)
            for topic, numbers in found.items()
            for number, value in numbers.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InternalError(f"partitions in a message cannot be parsed: {type(error).__name__}") from error


def encode_partitions(partitions: Iterable[TopicPartition]) -> dict[str, dict[str, Any]]:
    return encode_by_topic(dict.fromkeys(partitions, 1), int)


def decode_partitions(found: Any) -> list[TopicPartition]:
    return list(decode_by_topic(found, int))


def number_of(value: Any) -> int:
    """Raises ``ValueError`` for a value that is not an integer."""
    if not _is_number(value):
        raise ValueError("a number")
    return int(value)


def _numbers(count: int) -> Callable[[Any], list[int]]:
    def read(value: Any) -> list[int]:
        if not isinstance(value, list) or len(value) != count:
            raise ValueError("numbers")
        return [number_of(one) for one in value]

    return read


def encode_batch_ends(ended: Mapping[TopicPartition, BatchEnd]) -> Any:
    return encode_by_topic(ended, lambda one: [one.epoch, one.offset])


def decode_batch_ends(found: Any) -> dict[TopicPartition, BatchEnd]:
    return {tp: BatchEnd(*numbers) for tp, numbers in decode_by_topic(found, _numbers(2)).items()}


def encode_ranges_to_claim(ranges: Mapping[TopicPartition, RangeToClaim]) -> Any:
    return encode_by_topic(ranges, lambda one: [one.first, one.end, one.epoch])


def decode_ranges_to_claim(found: Any) -> dict[TopicPartition, RangeToClaim]:
    return {tp: RangeToClaim(*numbers) for tp, numbers in decode_by_topic(found, _numbers(3)).items()}


def encode_claim_results(claimed: Mapping[TopicPartition, ClaimResult]) -> Any:
    return encode_by_topic(claimed, lambda one: [one.first, one.end] if isinstance(one, ClaimedRange) else one.reason)


def decode_claim_results(found: Any) -> dict[TopicPartition, ClaimResult]:
    def read(value: Any) -> ClaimResult:
        return ClaimRefused(value) if isinstance(value, str) else ClaimedRange(*_numbers(2)(value))

    return decode_by_topic(found, read)


def encode_group_offsets(group_offsets: Mapping[TopicPartition, GroupOffset]) -> Any:
    return encode_by_topic(group_offsets, lambda one: [one.offset, one.claimed_end])


def decode_group_offsets(found: Any) -> dict[TopicPartition, GroupOffset]:
    def read(value: Any) -> GroupOffset:
        offset, claimed = value
        return GroupOffset(number_of(offset), None if claimed is None else number_of(claimed))

    return decode_by_topic(found, read)


def encode_reasons(texts: Mapping[TopicPartition, str]) -> Any:
    return encode_by_topic(texts, str)


def decode_reasons(found: Any) -> dict[TopicPartition, str]:
    return decode_by_topic(found, str)


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> Any:
    return encode_by_topic(offsets, int)


def decode_offsets(found: Any) -> dict[TopicPartition, int]:
    return decode_by_topic(found, number_of)


def encode_batch_assignment(holding: BatchAssignment) -> Any:
    return {
        "partitions": encode_by_topic(holding.partitions, lambda held: [held.epoch, held.offset]),
        "is_settled": holding.is_complete,
        "rebalances": holding.rebalances,
        "topics": dict(holding.partition_counts),
    }


def decode_batch_assignment(found: Any) -> BatchAssignment:
    match found:
        case {"partitions": dict(partitions), "is_settled": bool(settled), "rebalances": int(n), "topics": dict(sizes)}:
            held = {tp: LeasedPartition(*numbers) for tp, numbers in decode_by_topic(partitions, _numbers(2)).items()}
            return BatchAssignment(held, settled, n, {str(topic): number_of(count) for topic, count in sizes.items()})
        case _:
            raise InternalError("the assignment in a message cannot be parsed")


def encode_brokers(brokers: Iterable[BrokerAddress]) -> Any:
    return [[broker.broker_id, broker.host, broker.port] for broker in brokers]


def decode_brokers(found: Any) -> list[BrokerAddress]:
    try:
        return [BrokerAddress(number_of(one), str(host), number_of(port)) for one, host, port in found]
    except (TypeError, ValueError) as error:
        raise InternalError("the brokers in a message cannot be parsed") from error
