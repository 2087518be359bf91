"""OffsetCommit and OffsetFetch v0: the offsets that members of ZooKeeper groups store in ZooKeeper.

A commit is in the znode before it is answered.  An unreadable offset is answered with an error, not as "no offset".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from bridge.broker.broker_znodes import with_parents
from bridge.broker.timers import Scheduler
from bridge.coordinator.api_request import ZooKeeperOffset
from zkconsumer.errors import InvalidNameError, MalformedZnode
from zkconsumer.kafka.error_codes import INVALID_GROUP_ID, NONE, UNKNOWN_SERVER_ERROR
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, GetMany, NodeExists, NoNode, Request, Result, SetData, StoreError, ZnodeData
from zkconsumer.zk.znode_formats import format_offset, parse_offset

ZOOKEEPER_TIMEOUT_MS = 30_000
"""How long a commit or a fetch waits for ZooKeeper before it is answered with an error."""

C = TypeVar("C")
ResultCallback: TypeAlias = Callable[[dict[TopicPartition, C]], None]


class Submit(Protocol):
    """Send requests to ZooKeeper; ``done`` is called on the broker's thread."""

    def __call__(self, requests: Sequence[Request], done: Callable[[list[Result]], None], /) -> None: ...


class ZooKeeperOffsetStore:
    """An ``LegacyOffsetStore``."""

    def __init__(self, submit: Submit, scheduler: Scheduler) -> None:
        self._submit = submit
        self._scheduler = scheduler

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        """See ``LegacyOffsetStore``."""
        try:
            wanted = [(tp, paths.offset(group, tp), format_offset(offset)) for tp, offset in offsets.items()]
        except InvalidNameError:
            done(dict.fromkeys(offsets, INVALID_GROUP_ID.code))
            return
        answer = self._call_once_or_timeout(done, dict.fromkeys(offsets, UNKNOWN_SERVER_ERROR.code))

        def was_set(results: list[Result]) -> None:
            absent = [at for at, result in enumerate(results) if isinstance(result, NoNode)]
            codes = {tp: _error_code(result) for (tp, _, _), result in zip(wanted, results, strict=True)}
            if not absent:
                answer(codes)
                return
            above = [Create(path) for path in with_parents(paths.parents(wanted[at][1])[-1] for at in absent)]
            made: list[Request] = [Create(wanted[at][1], wanted[at][2]) for at in absent]

            def created(results: list[Result]) -> None:
                results = results[len(above) :]
                created_by_others = [
                    at for at, result in zip(absent, results, strict=True) if isinstance(result, NodeExists)
                ]
                for at, result in zip(absent, results, strict=True):
                    codes[wanted[at][0]] = _error_code(result)
                again = [SetData(wanted[at][1], wanted[at][2]) for at in created_by_others]
                if again:
                    # Another client created the node meanwhile: it contains that client's offset, not ours.
                    self._submit(again, lambda results: was_set_again(created_by_others, results))
                else:
                    answer(codes)

            def was_set_again(created_by_others: list[int], results: list[Result]) -> None:
                for at, result in zip(created_by_others, results, strict=True):
                    codes[wanted[at][0]] = _error_code(result)
                answer(codes)

            self._submit([*above, *made], created)

        self._submit([SetData(path, data) for _, path, data in wanted], was_set)

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ZooKeeperOffset]], None],
    ) -> None:
        """See ``LegacyOffsetStore``."""
        asked = list(partitions)
        nothing: dict[TopicPartition, ZooKeeperOffset] = dict.fromkeys(asked)
        try:
            wanted = tuple(paths.offset(group, tp) for tp in asked)
        except InvalidNameError:
            done(nothing)
            return
        unknown: dict[TopicPartition, ZooKeeperOffset] = dict.fromkeys(asked, UNKNOWN_SERVER_ERROR)
        answer = self._call_once_or_timeout(done, unknown)

        def found(results: list[Result]) -> None:
            nodes = results[0]
            assert isinstance(nodes, list), "GetMany gives a list"
            answer({tp: _read_offset(node) for tp, node in zip(asked, nodes, strict=True)})

        self._submit([GetMany(wanted)], found)

    def _call_once_or_timeout(
        self, done: Callable[[dict[TopicPartition, C]], None], on_timeout: dict[TopicPartition, C]
    ) -> ResultCallback[C]:
        """Call ``done`` once: with the answer, or after the timeout."""
        answered: list[bool] = []

        def answer(values: dict[TopicPartition, C]) -> None:
            if not answered:
                answered.append(True)
                timer.cancel()
                done(values)

        timer = self._scheduler.call_in(ZOOKEEPER_TIMEOUT_MS, lambda: answer(on_timeout))
        return answer


def _error_code(result: Result) -> int:
    return (UNKNOWN_SERVER_ERROR if isinstance(result, StoreError) else NONE).code


def _read_offset(node: ZnodeData | StoreError) -> ZooKeeperOffset:
    """An unreadable offset differs from no offset: a member that confuses them begins at another offset."""
    if isinstance(node, NoNode):
        return None
    try:
        return UNKNOWN_SERVER_ERROR if isinstance(node, StoreError) else parse_offset(node.data)
    except MalformedZnode:
        return UNKNOWN_SERVER_ERROR
