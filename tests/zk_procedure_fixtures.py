"""Runs procedures, which are generators, against one server in memory; a test may act between their rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import AcquireOwnershipProcedure, Procedure
from zkconsumer.zk.requests import GetMany, Multi, Request, Result, Stat, ZnodeData
from zkconsumer.zk.store import submit_and_wait

GROUP = "g1"
TIMEOUT_MS = 5_000

T = TypeVar("T")


class ProcedureSession:
    """One session, and what it has sent: the requests of each round."""

    def __init__(self, server: FakeZooKeeper, chroot: str = "") -> None:
        self.server = server
        self.store = FakeZkStore(server, chroot)
        self.store.listen(lambda _: None)
        self.store.start(TIMEOUT_MS)
        self.rounds: list[list[Request]] = []

    @property
    def session_id(self) -> int:
        assert self.store.session_id is not None
        return self.store.session_id

    def run(self, procedure: Procedure[T], between: Callable[[int], object] | None = None) -> T:
        """Drive it to its end in the present session; ``between`` is called with the number of each round to come."""
        session_id = self.session_id
        self.rounds = []
        results: Any = None
        while True:
            try:
                requests = procedure.send(results)
            except StopIteration as end:
                result: T = end.value
                return result
            self.rounds.append(requests)
            if between is not None:
                between(len(self.rounds))
            results = self.ask(requests, session_id)

    def ask(self, requests: list[Request], session_id: int | None) -> list[Result]:
        """The results of one round."""
        box: list[list[Result]] = []
        self.store.submit(session_id, requests, box.append)
        assert box, "direct delivery answers at once"
        return box[0]

    def claim(self, *partitions: TopicPartition, thread: str = "") -> None:
        """Own these, as a member of ours does."""
        owners = dict.fromkeys(partitions, thread or f"{GROUP}_a-0")
        claims = AcquireOwnershipProcedure(GROUP, self.session_id, owners, control_version=None)
        self.run(claims.run(look_first=False, look_closely=False))
        assert all(claimed.czxid for claimed in claims.results.values())

    @property
    def multis(self) -> list[Multi]:
        """The multis that the last procedure sent."""
        return [request for requests in self.rounds for request in requests if isinstance(request, Multi)]


def stat_of(server: FakeZooKeeper, path: str) -> Stat | None:
    """A node's stat, None when it is missing."""
    stat = server.tree.exists(path)
    assert stat is None or isinstance(stat, Stat)
    return stat


def nodes_of(party: ProcedureSession, *wanted: str) -> list[ZnodeData | None]:
    """These nodes, None for each that cannot be read."""
    [nodes] = submit_and_wait(party.store, [GetMany(wanted)], TIMEOUT_MS)
    assert isinstance(nodes, list)
    return [node if isinstance(node, ZnodeData) else None for node in nodes]


@pytest.fixture
def server() -> FakeZooKeeper:
    """One server that has the group, its ``owners`` and its ``offsets``, and no topic below them."""
    made = FakeZooKeeper()
    for path in (paths.ids(GROUP), paths.owners(GROUP), paths.offsets(GROUP)):
        made.ensure(path)
    return made


@pytest.fixture
def party(server: FakeZooKeeper) -> ProcedureSession:
    """Our session."""
    return ProcedureSession(server)


@pytest.fixture
def other(server: FakeZooKeeper) -> ProcedureSession:
    """Another member's session."""
    return ProcedureSession(server)
