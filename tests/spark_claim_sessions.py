"""Claims of a Spark query, for tests that bring a session of their own: in memory, or with a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from bridge.spark.claims import ClaimContext, ClaimReport, GroupOffsetsReport, OnRewind, claim, read_group_offsets
from bridge.spark.group_membership import RangeToClaim
from zkconsumer.member.events import SessionConnected
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import AcquireOwnershipProcedure
from zkconsumer.zk.requests import GetMany, Request, StoreEvent, ZnodeData

GROUP = "g1"
QUERY = "5c1e0f0a111142228333944455556666"
RUN = "00000000000000000000000000000001"
TOPIC = "clicks"
TIMEOUT_MS = 20_000
WALL_MS = 1_416_246_370_000


class Session(Protocol):
    """What a claim needs: a session that runs a procedure and asks."""

    @property
    def session_id(self) -> int: ...

    def run(self, procedure: Any, between: Any = None) -> Any: ...

    def ask(self, requests: list[Request], session_id: int | None) -> list[Any]: ...


class SessionOf:
    """A session on any store, fake or real."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._connected = threading.Event()
        store.listen(self._hear)
        store.start(TIMEOUT_MS)
        self.await_session()

    @property
    def session_id(self) -> int:
        return int(self.store.session_id)

    def run(self, procedure: Any, between: Any = None) -> Any:
        """To its end, in the present session."""
        results: Any = None
        session_id = self.session_id
        while True:
            try:
                requests = procedure.send(results)
            except StopIteration as end:
                return end.value
            results = self.ask(requests, session_id)

    def ask(self, requests: list[Request], session_id: int | None) -> list[Any]:
        """The results of one round."""
        box: list[list[Any]] = []
        settled = threading.Event()

        def done(results: list[Any]) -> None:
            box.append(results)
            settled.set()

        self.store.submit(session_id, requests, done)
        assert settled.wait(TIMEOUT_MS / 1000), f"no answer to {requests}"
        return box[0]

    def claim(self, *partitions: TopicPartition) -> None:
        """Own these, as a member of ours does."""
        claims = AcquireOwnershipProcedure(
            GROUP, self.session_id, dict.fromkeys(partitions, f"{GROUP}_a-0"), control_version=None
        )
        self.run(claims.run(look_first=False, look_closely=False))
        assert all(claimed.czxid for claimed in claims.results.values()), claims.results

    def await_session(self) -> None:
        """Until there is one that was not there before."""
        assert self._connected.wait(TIMEOUT_MS / 1000)
        self._connected.clear()

    def _hear(self, event: StoreEvent) -> None:
        if isinstance(event, SessionConnected) and event.is_new:
            self._connected.set()


def epochs(session: Session, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The partitions that this session owns, with the czxids of their nodes."""
    wanted = list(partitions)
    [nodes] = session.ask([GetMany(tuple(paths.owner(GROUP, tp) for tp in wanted))], None)
    return {
        tp: node.stat.czxid
        for tp, node in zip(wanted, nodes, strict=True)
        if isinstance(node, ZnodeData) and node.stat.ephemeral_owner == session.session_id
    }


def claimant(session: Session, held: Mapping[TopicPartition, int], **more: Any) -> ClaimContext:
    """This session, as the query of the tests."""
    how = {"group": GROUP, "query": QUERY, "run": RUN, "wall_ms": WALL_MS} | more
    return ClaimContext(session_id=session.session_id, owned=held, **how)


def run_claim(
    session: Session,
    batch: int,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    on_rewind: OnRewind = OnRewind.IGNORE,
    between: Any = None,
    **more: Any,
) -> ClaimReport:
    """Claim [first, end) of each."""
    held = more.pop("held", None)
    held = epochs(session, ranges) if held is None else held
    wanted = {tp: RangeToClaim(first, end, 1) for tp, (first, end) in ranges.items()}
    by = claimant(session, held, on_rewind=on_rewind, **more)
    report: ClaimReport = session.run(claim(by, batch, wanted), between)
    return report


def run_stands(session: Session, *partitions: TopicPartition, **more: Any) -> GroupOffsetsReport:
    """Where the group stands of each."""
    report: GroupOffsetsReport = session.run(read_group_offsets(GROUP, QUERY, partitions, **more))
    return report
