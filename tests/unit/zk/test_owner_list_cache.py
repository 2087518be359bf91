"""Lists of owners that a watch guards: a claim behind a listing is one packet, and meets a newer owner all the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.zk_procedure_fixtures import GROUP, ProcedureSession, nodes_of, other, party, server
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.member import commands as do
from zkconsumer.member import events as ev
from zkconsumer.member.events import WriteOutcome
from zkconsumer.runtime.command_executor import ZooKeeperExecutor
from zkconsumer.runtime.member_authorization import MemberAuthorization
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import AcquireOwnershipProcedure, list_owners
from zkconsumer.zk.group_reader import GroupReader
from zkconsumer.zk.owner_list_cache import OwnerListCache
from zkconsumer.zk.requests import Children, Delete, Multi, Request

__all__ = ["other", "party", "server"]

TOPIC = "clicks"
FOUR = [TopicPartition(TOPIC, number) for number in range(4)]
THREAD = f"{GROUP}_a-0"


def claim(party: ProcedureSession, listed: OwnerListCache) -> list[WriteOutcome]:
    """What became of four claims."""
    claims = AcquireOwnershipProcedure(
        GROUP, party.session_id, dict.fromkeys(FOUR, THREAD), control_version=None, owner_lists=listed
    )
    party.run(claims.run(look_first=True, look_closely=False))
    return [claims.results[tp].outcome for tp in FOUR]


def kinds(party: ProcedureSession) -> list[type[Request]]:
    return [type(request) for requests in party.rounds for request in requests]


def test_a_claim_behind_a_listing_lists_nothing(
    party: ProcedureSession, other: ProcedureSession, server: FakeZooKeeper
) -> None:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    other.claim(FOUR[1], thread=f"{GROUP}_b-0")
    listed = OwnerListCache()
    assert party.run(list_owners(GROUP, [TOPIC], owner_lists=listed)) == {TOPIC: frozenset({1})}
    assert claim(party, listed) == [WriteOutcome.DONE, WriteOutcome.CONFLICT, WriteOutcome.DONE, WriteOutcome.DONE]
    assert kinds(party) == [Multi]


def test_a_list_that_is_older_than_an_owner_is_read_again(
    party: ProcedureSession, other: ProcedureSession, server: FakeZooKeeper
) -> None:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    listed = OwnerListCache()
    party.run(list_owners(GROUP, [TOPIC], owner_lists=listed))
    other.claim(FOUR[2], thread=f"{GROUP}_b-0")
    assert claim(party, listed) == [WriteOutcome.DONE, WriteOutcome.DONE, WriteOutcome.CONFLICT, WriteOutcome.DONE]
    assert kinds(party) == [Multi, Children, Multi]


@pytest.mark.parametrize("end", [lambda listed: listed.invalidate(TOPIC), OwnerListCache.clear])
def test_without_its_watch_a_list_counts_for_nothing(
    party: ProcedureSession, server: FakeZooKeeper, end: Callable[[OwnerListCache], None]
) -> None:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    listed = OwnerListCache()
    party.run(list_owners(GROUP, [TOPIC], owner_lists=listed))
    end(listed)
    assert claim(party, listed) == [WriteOutcome.DONE] * 4
    assert kinds(party) == [Children, Multi]


def test_topics_that_cannot_be_listed_are_in_no_list(party: ProcedureSession) -> None:
    listed = OwnerListCache()
    assert party.run(list_owners(GROUP, [TOPIC], owner_lists=listed)) == {}
    assert listed.get(TOPIC) is None


# --- a member -------------------------------------------------------------------------------------------------------


class Member:
    """The part of a member that acts in ZooKeeper, on the thread of the test; every answer comes at once."""

    def __init__(self, party: ProcedureSession) -> None:
        self.party = party
        self.events: list[Any] = []
        self.sent: list[type[Request]] = []
        self.is_slow = False
        """The member processes no answers before ``process``, and watch events at once."""
        self._unprocessed: list[Callable[[], object]] = []
        self._tickets = iter(range(1, 1_000))
        rights = MemberAuthorization(None, "nobody", lambda: False, lambda _: None)
        stub: Any = self
        self.half = ZooKeeperExecutor(
            GROUP,
            "g1_a",
            party.store,
            reader=GroupReader(GROUP),
            control=stub,
            clock=SYSTEM_CLOCK,
            observing=stub,
            rights=rights,
        )
        party.store.listen(self.half.on_store_event)
        submit = party.store.submit

        def counted(session_id: Any, requests: Any, done: Any) -> None:
            self.sent += map(type, requests)
            submit(session_id, requests, lambda answers: self._answered(partial(done, answers)))

        party.store.submit = counted  # type: ignore[method-assign]

    def _answered(self, process: Callable[[], object]) -> None:
        if self.is_slow:
            self._unprocessed.append(process)
        else:
            process()

    # Control, and Observing

    def call_soon(self, step: Callable[[], object]) -> None:
        step()

    def handle_event(self, event: object) -> None:
        self.events.append(event)

    def session_changed(self, event: object) -> None:
        """Events of the session are not looked at here."""

    # what a test does

    def process(self) -> None:
        """Process the answers that were held back, and later ones at once."""
        self.is_slow = False
        for process in self._unprocessed:
            process()
        self._unprocessed.clear()

    def request_list(self) -> None:
        self.half.list_owners(do.ListOwners(next(self._tickets), self.party.session_id, (TOPIC,), ()))

    def request_claim(self) -> None:
        ticket, session_id, owners = next(self._tickets), self.party.session_id, dict.fromkeys(FOUR, THREAD)
        self.half.acquire_ownership(
            do.AcquireOwnership(
                ticket, session_id, owners, list_owners_first=True, identify_owners=False, control_version=None
            )
        )

    def list(self) -> frozenset[int]:
        self.request_list()
        [listed] = [event for event in self.events if isinstance(event, ev.OwnersListed)]
        self.events.clear()
        return listed.owned[TOPIC]

    def claim(self) -> tuple[list[WriteOutcome], list[type[Request]]]:
        """What became of four claims, and what was sent for them."""
        self.sent.clear()
        self.request_claim()
        [settled] = [event for event in self.events if isinstance(event, ev.AcquireOwnershipCompleted)]
        self.events.clear()
        return [settled.results[tp].outcome for tp in FOUR], self.sent.copy()


@pytest.fixture
def member(party: ProcedureSession, server: FakeZooKeeper) -> Member:
    server.ensure(paths.owners_of_topic(GROUP, TOPIC))
    return Member(party)


def test_a_member_that_listed_claims_in_one_packet(member: Member, other: ProcedureSession) -> None:
    other.claim(FOUR[0], thread=f"{GROUP}_b-0")
    assert member.list() == {0}
    assert member.claim() == ([WriteOutcome.CONFLICT, WriteOutcome.DONE, WriteOutcome.DONE, WriteOutcome.DONE], [Multi])


def test_a_member_lists_again_when_the_watch_fired(member: Member, other: ProcedureSession) -> None:
    assert member.list() == frozenset()
    other.claim(FOUR[0], thread=f"{GROUP}_b-0")
    assert member.claim() == (
        [WriteOutcome.CONFLICT, WriteOutcome.DONE, WriteOutcome.DONE, WriteOutcome.DONE],
        [Children, Multi],
    )


def test_a_member_lists_again_behind_its_own_claims(member: Member) -> None:
    assert member.list() == frozenset()
    assert member.claim() == ([WriteOutcome.DONE] * 4, [Multi])
    assert member.claim() == ([WriteOutcome.CONFLICT] * 4, [Children])


def test_a_member_lists_again_when_the_connection_broke(
    member: Member, server: FakeZooKeeper, other: ProcedureSession
) -> None:
    """What happened meanwhile invalidate no watch."""
    assert member.list() == frozenset()
    server.disconnect(member.party.store)
    other.claim(FOUR[0], thread=f"{GROUP}_b-0")
    server.reconnect(member.party.store)
    assert member.claim() == (
        [WriteOutcome.CONFLICT, WriteOutcome.DONE, WriteOutcome.DONE, WriteOutcome.DONE],
        [Children, Multi],
    )


@pytest.mark.parametrize("request_it", [Member.request_list, Member.request_claim])
def test_a_member_stores_no_list_whose_watch_fired_before_it_processed_the_answers(
    member: Member, other: ProcedureSession, request_it: Callable[[Member], None]
) -> None:
    """The answers for several topics are processed together, after the last of them.

    A stored list without a watch stays wrong: the freed partition would have no owner until the group changes.
    """
    other.claim(FOUR[0], thread=f"{GROUP}_b-0")
    member.is_slow = True
    request_it(member)
    other.ask([Delete(paths.owner(GROUP, FOUR[0]))], other.session_id)
    assert ev.OwnersChanged(TOPIC) in member.events
    member.process()
    member.events.clear()
    member.claim()
    assert nodes_of(other, *(paths.owner(GROUP, tp) for tp in FOUR)).count(None) == 0
